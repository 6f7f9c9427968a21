"""Think and keying times: their lengths, their effect on a load, and no effect on the mix."""

from __future__ import annotations

import dataclasses
from itertools import islice
from typing import Any

import numpy as np
import pytest

from proveout.agent.load.loop.recorder import Recorder
from proveout.agent.load.loop.terminal import Terminal
from proveout.agent.load.loop.transaction import statements
from proveout.agent.load.pacing import Pacing
from proveout.agent.load.population.handler import populate
from proveout.agent.load.think_time import ThinkTimes
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import Think
from proveout.dsl.workloads.base import WorkloadKind
from proveout.dsl.workloads.hlr.parameters import Hlr
from proveout.dsl.workloads.kinds import build
from proveout.proto.wire.results import LoadResult
from proveout.proto.wire.tasks import Endpoint, PopulateSystem

from .conftest import run_until

pytestmark = pytest.mark.server

SUBSCRIBERS = 200
READ = Workload(
    name="hlr",
    kind="hlr",
    parameters=to_values(Hlr(population=SUBSCRIBERS, weights={"GetBasicSubscriberData": 1.0})),
)


class Keyed:
    """HLR with keying and think times of its own."""

    def __init__(self, keying_s: float, thinking_s: float) -> None:
        self._hlr = build(Workload(name="hlr", kind="hlr", parameters=to_values(Hlr(population=SUBSCRIBERS))))
        self.population = self._hlr.population
        self.transactions = tuple(
            dataclasses.replace(kind, keying_s=keying_s, thinking_s=thinking_s) for kind in self._hlr.transactions
        )

    def keys(self, stream: int) -> Any:
        return self._hlr.keys(stream)


def terminal(workload: WorkloadKind, pacing: Pacing, number: int = 0) -> Terminal:
    prepared = {statement.name: statement for statement in statements(workload)}
    recorder = Recorder(len(workload.transactions))
    return Terminal(
        number, workload=workload, pacing=pacing, recorder=recorder, seed=1, session=None, prepared=prepared
    )


def pauses_ns(of: Terminal, count: int) -> list[int]:
    assert of.pauses is not None
    return [of.pauses.next_ns(of.next_kind()) for _ in range(count)]


CLOSED = Pacing(total=1, ramp_s=0.0)


def test_a_terminal_without_think_times_does_not_pause() -> None:
    assert terminal(Keyed(0.0, 0.0), CLOSED).restless
    assert not terminal(Keyed(0.0, 0.1), CLOSED).restless
    assert not terminal(Keyed(0.0, 0.0), dataclasses.replace(CLOSED, rate=10.0)).restless


def test_open_arrival_has_no_pauses() -> None:
    assert terminal(Keyed(1.0, 1.0), dataclasses.replace(CLOSED, rate=10.0)).pauses is None


def test_constant_think_times_have_their_length() -> None:
    pacing = dataclasses.replace(CLOSED, think=Think(mean_s=0.25, distribution="constant"))
    assert set(pauses_ns(terminal(Keyed(0.0, 9.0), pacing), 50)) == {250_000_000}


def test_keying_times_are_added_and_precede_the_first_transaction() -> None:
    pacing = dataclasses.replace(CLOSED, think=Think(mean_s=0.25, distribution="constant"))
    keyed = terminal(Keyed(0.5, 0.0), pacing)
    assert set(pauses_ns(keyed, 50)) == {750_000_000}
    assert keyed.begins_ns(pacing) == 500_000_000


@pytest.mark.parametrize("own", [True, False])
def test_exponential_think_times_have_their_mean_and_their_spread(own: bool) -> None:
    think = None if own else Think(mean_s=0.1)
    drawn = np.array(pauses_ns(terminal(Keyed(0.0, 0.1), dataclasses.replace(CLOSED, think=think)), 20_000)) / 1e9
    assert drawn.mean() == pytest.approx(0.1, rel=0.05)
    assert drawn.std() == pytest.approx(0.1, rel=0.05)
    assert drawn.max() <= 1.0


def test_think_times_differ_by_terminal_and_repeat_by_seed() -> None:
    pacing = dataclasses.replace(CLOSED, total=2, think=Think(mean_s=0.1))
    first, again, other = (pauses_ns(terminal(Keyed(0.0, 0.0), pacing, number), 20) for number in (0, 0, 1))
    assert first == again
    assert first != other


def test_the_mix_is_drawn_as_without_pauses() -> None:
    paused, restless = terminal(Keyed(0.1, 0.1), CLOSED), terminal(Keyed(0.0, 0.0), CLOSED)
    drawn = [kind.number for kind in islice(iter(paused.next_kind, None), 300)]
    assert drawn == [kind.number for kind in islice(iter(restless.next_kind, None), 300)]


def test_a_mix_whose_paused_type_has_no_weight_has_no_pauses() -> None:
    kinds = [
        dataclasses.replace(kind, weight=float(number > 0)) for number, kind in enumerate(Keyed(0, 0).transactions)
    ]
    kinds[0] = dataclasses.replace(kinds[0], thinking_s=5.0)
    assert not ThinkTimes.are_wanted(kinds, None)


@pytest.mark.parametrize("engine", ["postgres", "sqlite"])
async def test_a_load_keeps_its_think_times(
    engine: str, request: pytest.FixtureRequest, context: Any, spec: Any
) -> None:
    """The rate is limited by the think times, and response times exclude them: the intended time is the start."""
    dsn = str(request.getfixturevalue("database" if engine == "postgres" else "wal_file"))
    endpoint = Endpoint(system="backend", engine=engine, dsn=dsn)
    await populate(context, PopulateSystem(workload=READ, endpoint=endpoint, workers=1))
    paced = spec(dsn, engine=engine, terminals=4, workload=READ, windows=(0.0, 1.0, 0.0))
    share = dataclasses.replace(paced.share, think_s=0.1, think="constant")
    paced = dataclasses.replace(paced, share=share)
    result: LoadResult = await run_until(lambda result: result.ended_in_window >= 4, context, paced)
    load = result.transactions[0]
    window_s = (result.measure_end_ns - result.measure_start_ns) / 1e9
    assert result.ended_in_window <= 4 * 10 * window_s
    assert load.response == load.service
    assert load.counts.missed <= 4

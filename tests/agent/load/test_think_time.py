"""Think and keying times: their lengths, and no effect on the mix. A loop waits for them: `test_arrival_schedule`."""

from __future__ import annotations

import dataclasses
from itertools import islice
from typing import Any

import numpy as np
import pytest

from proveout.agent.load.loop.recorder import Recorder
from proveout.agent.load.loop.terminal import Terminal
from proveout.agent.load.loop.transaction import ThinkTimes
from proveout.agent.load.pacing import Pacing
from proveout.dsl.plan.stages import Think
from proveout.dsl.workloads.hlr import Hlr
from proveout.dsl.workloads.hlr_workload import build


class Keyed:
    """HLR with keying and think times of its own."""

    def __init__(self, keying_s: float, thinking_s: float) -> None:
        self._hlr = build(Hlr(population=200))
        self.population = self._hlr.population
        self.transactions = tuple(
            dataclasses.replace(kind, keying_s=keying_s, thinking_s=thinking_s) for kind in self._hlr.transactions
        )

    def keys(self, stream: int) -> Any:
        return self._hlr.keys(stream)


def terminal(workload: Keyed, pacing: Pacing, number: int = 0) -> Terminal:
    recorder = Recorder(len(workload.transactions))
    return Terminal(number, workload=workload, pacing=pacing, recorder=recorder, seed=1, session=None, prepared={})


def pauses_ns(of: Terminal, count: int) -> list[int]:
    assert of.pauses is not None
    return [of.pauses.next_ns(of.next_kind()) for _ in range(count)]


CLOSED = Pacing(total=1, ramp_s=0.0)
CONSTANT = dataclasses.replace(CLOSED, think=Think(mean_s=0.25, distribution="constant"))


def test_which_terminals_pause() -> None:
    assert terminal(Keyed(0.0, 0.0), CLOSED).restless
    assert not terminal(Keyed(0.0, 0.1), CLOSED).restless
    of_schedule = terminal(Keyed(1.0, 1.0), dataclasses.replace(CLOSED, rate=10.0))
    assert (of_schedule.restless, of_schedule.pauses) == (False, None)
    kinds = [dataclasses.replace(kind, weight=float(at > 0)) for at, kind in enumerate(Keyed(0, 0).transactions)]
    kinds[0] = dataclasses.replace(kinds[0], thinking_s=5.0)
    assert not ThinkTimes.are_wanted(kinds, None), "the one that pauses is not in the mix"


def test_constant_think_times_replace_those_of_the_workload_and_keying_times_are_added() -> None:
    assert set(pauses_ns(terminal(Keyed(0.0, 9.0), CONSTANT), 50)) == {250_000_000}
    keyed = terminal(Keyed(0.5, 0.0), CONSTANT)
    assert set(pauses_ns(keyed, 50)) == {750_000_000}
    assert keyed.begins_ns(CONSTANT) == 500_000_000, "keying precedes the first transaction"


def test_exponential_think_times_have_their_mean_and_their_spread() -> None:
    drawn = np.array(pauses_ns(terminal(Keyed(0.0, 0.1), CLOSED), 20_000)) / 1e9
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

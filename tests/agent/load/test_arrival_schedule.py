"""The schedule of due terminals, and the loop on it: every due arrival begins once, as the transaction that was drawn."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import runpy
import select
import time
from types import SimpleNamespace

import pytest
from in_memory import LoopOf, Session, both_loops, run

from proveout.agent.engines.driver_contract import PURE_PYTHON
from proveout.agent.load.loop import arrival_schedule as schedule_module
from proveout.agent.load.loop.recorder import Recorder
from proveout.agent.load.loop.terminal import stream_of
from proveout.agent.load.loop.transaction import kinds, mix
from proveout.agent.load.pacing import Pacing
from proveout.dsl.plan.stages import Think
from proveout.dsl.workloads import hlr_workload as hlr
from proveout.dsl.workloads.hlr import Hlr

TERMINALS, ARRIVALS = 3, 40
THINK_S = 0.004
HLR = hlr.build(Hlr(population=100))
POISSON = Pacing(total=TERMINALS, ramp_s=0.0, rate=2_000.0, distribution="poisson", seed=5)


def drawn(number: int) -> list[int]:
    """The transactions of a terminal, by the mix alone."""
    stream = stream_of(1, number)
    mine = mix(kinds(HLR, HLR.keys(stream), Recorder(len(HLR.transactions)).times), HLR, stream)
    return [kind.number for kind in itertools.islice(mine, ARRIVALS)]


@both_loops
def test_every_due_arrival_begins_once_and_as_the_transaction_that_was_drawn(loop_of: LoopOf) -> None:
    sessions = [Session() for _ in range(TERMINALS)]
    ran = run(loop_of, HLR, sessions, lambda _: min(len(one.sent) for one in sessions) > 6 * ARRIVALS, pacing=POISSON)
    records = ran.records()
    assert ran.loop.start_skew_ns > 0
    assert all(intended <= started <= ended for _, intended, started, ended in records)
    found = {intended: number for number, intended, _, _ in records}
    assert len(found) == len(records)
    for terminal in range(TERMINALS):
        due = itertools.islice(POISSON.fire_times(terminal), ARRIVALS)
        assert [found[at_ns] for at_ns in due] == drawn(terminal)


@both_loops
def test_a_closed_loop_waits_for_the_think_time(loop_of: LoopOf) -> None:
    """The intended time is the start: response times leave the think time out."""
    pacing = dataclasses.replace(POISSON, total=1, rate=None, think=Think(mean_s=THINK_S, distribution="constant"))
    session = Session()
    records = run(loop_of, HLR, [session], lambda _: len(session.sent) > 20, pacing=pacing).records()
    assert all(intended == started for _, intended, started, _ in records)
    gaps = [after[1] - before[3] for before, after in itertools.pairwise(records)]
    assert min(gaps) >= THINK_S * 1e9


@pytest.mark.parametrize("pure", [True, False], ids=["python", "compiled"])
def test_a_schedule_gives_the_terminals_in_order_and_wakes_for_the_first(
    pure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not pure:
        pytest.importorskip("proveout.agent.load.loop.arrival_schedule_native", reason="it was not compiled here")
    monkeypatch.setenv(PURE_PYTHON, "1" if pure else "")
    schedule = runpy.run_path(schedule_module.__file__)["Schedule"]()
    assert ("native" in type(schedule).__module__) is not pure
    now = time.monotonic_ns()
    with contextlib.closing(schedule), contextlib.closing(select.epoll()) as epoll:
        epoll.register(schedule.fileno(), select.EPOLLIN)
        at = [(now - 1 - 7919 * n % 101, SimpleNamespace(number=n)) for n in range(300)]
        for at_ns, terminal in at:
            schedule.push(at_ns, terminal)
        schedule.arm(now + 10**12)
        assert epoll.poll(), "at once"
        schedule.fired()
        taken = []
        while (due := schedule.pop(now)) is not None:
            taken.append((due[0], due[1].number))
        assert taken == sorted((at_ns, terminal.number) for at_ns, terminal in at)
        schedule.push(now + 10**12, at[0][1])
        assert schedule.pop(now) is None
        schedule.arm(now + 2 * 10**12)
        assert not epoll.poll(0)
        schedule.arm(now)  # the limit is earlier
        assert epoll.poll(), "at once"

"""Systems that stop answering: every transaction that was due is in the result, with its time from the instant it was
due. No coordinated omission."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from eventually import PATIENCE_S
from in_memory import LOST, LoopOf, Session, both_loops, polled, run

from proveout.agent.load.loop import event_loop, thread_loop
from proveout.agent.load.pacing import Pacing
from proveout.agent.load.worker_messages import UNCONNECTED
from proveout.dsl.workloads import hlr_workload as hlr
from proveout.dsl.workloads.base import Statement
from proveout.dsl.workloads.hlr import Hlr

READ = hlr.build(Hlr(population=100, weights={"GetBasicSubscriberData": 1.0}))
TERMINALS, ANSWERS = 4, 3
RATE, MEASURE_S = 2_000.0, 0.05
OPEN, CLOSED = Pacing(total=TERMINALS, ramp_s=0.0, rate=RATE), Pacing(total=TERMINALS, ramp_s=0.0)
DUE_NS = [n * 500_000 for n in range(100)]
"""Every arrival of the window."""


@pytest.fixture(autouse=True)
def wait_at_the_end(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the wait for the last answers, s. Where all come, it is as long as that takes."""

    def sets(seconds: float) -> None:
        monkeypatch.setattr(event_loop, "DRAIN_S", seconds)
        monkeypatch.setattr(thread_loop, "JOIN_S", seconds)

    sets(PATIENCE_S)
    return sets


class Hanging(Session):
    """Answers so many statements and no more."""

    def __init__(self, answers: int = ANSWERS) -> None:
        super().__init__(self._counted, held=not answers)
        self._left = answers

    def _counted(self, _: Statement) -> None:
        self._left -= 1
        if not self._left:
            self.hold()
            self.waiting.clear()


def all_hang(sessions: list[Hanging]) -> bool:
    return all(session.waiting.is_set() and not session._free.is_set() for session in sessions)


@both_loops
def test_transactions_without_an_answer_and_arrivals_that_never_began_have_their_ages(
    loop_of: LoopOf, wait_at_the_end: Callable[[float], None]
) -> None:
    wait_at_the_end(0.05)
    sessions = [Hanging() for _ in range(TERMINALS)]

    def is_over(since_ns: int) -> bool:
        return all_hang(sessions) and since_ns > MEASURE_S * 1e9

    ran = run(loop_of, READ, sessions, is_over, pacing=OPEN, measure_s=MEASURE_S)
    answered = [intended for _, intended, _, _ in ran.records()]
    assert answered == DUE_NS[: ANSWERS * TERMINALS]
    unfinished = sorted(intended - ran.t0_ns for _, intended, _ in ran.loop.unfinished)
    assert unfinished == DUE_NS[len(answered) : len(answered) + TERMINALS]
    assert len(ran.loop.waiting) == TERMINALS
    assert len(ran.loop.unknown) == (TERMINALS if loop_of is polled else 0)
    ((missed,),) = ran.loop.missed()
    _, _, counts, sum_ns, least_ns, most_ns = missed
    left = [ran.loop.seen_ns - ran.t0_ns - due for due in DUE_NS[len(answered) + TERMINALS :]]
    assert (sum(counts), sum_ns, least_ns, most_ns) == (len(left), sum(left), min(left), max(left))


@both_loops
def test_an_answer_after_the_load_gives_the_transaction_its_true_time(loop_of: LoopOf) -> None:
    sessions = [Hanging() for _ in range(TERMINALS)]
    released: list[int] = []

    def release() -> None:
        released.append(time.monotonic_ns())
        for session in sessions:
            session.release()

    ran = run(loop_of, READ, sessions, lambda _: all_hang(sessions), pacing=CLOSED, at_end=release)
    assert ran.loop.unfinished == ran.loop.unknown == []
    assert ran.loop.missed() == ((),), "under closed arrival none is due that has not begun"
    late = [record for record in ran.records() if record[3] + ran.t0_ns >= released[0]]
    assert len(late) == TERMINALS


@both_loops
@pytest.mark.parametrize("pacing", [OPEN, CLOSED], ids=["open", "closed"])
def test_a_stall_is_in_the_response_times_of_all_due_transactions(loop_of: LoopOf, pacing: Pacing) -> None:
    """No answer comes until half of the window's arrivals are due. By the schedule all of these are slow; without one
    only those that each terminal had begun."""
    sessions = [Hanging(answers=0) for _ in range(TERMINALS)]
    half_ns = DUE_NS[len(DUE_NS) // 2]
    released: list[int] = []

    def is_over(since_ns: int) -> bool:
        if not released and since_ns > half_ns and all_hang(sessions):
            released.append(since_ns)
            for session in sessions:
                session.release()
        return min(len(session.sent) for session in sessions) >= len(DUE_NS) // TERMINALS

    ran = run(loop_of, READ, sessions, is_over, pacing=pacing)
    records = ran.records()
    slow = [intended for _, intended, _, ended in records if intended < released[0] <= ended]
    if pacing is CLOSED:
        assert len(slow) == TERMINALS
        return
    assert [intended for _, intended, _, _ in records][: len(DUE_NS)] == DUE_NS, "none was left out or moved"
    assert len(slow) > len(DUE_NS) // 2
    assert all(intended <= started <= ended for _, intended, started, ended in records)


def test_a_terminal_without_a_connection_is_listed() -> None:
    def connect(*_: object) -> Session:
        raise LOST

    session = Session(lambda _: LOST)
    ran = run(polled, READ, [session], lambda _: session.is_closed, connect=connect)
    assert [number for number, _, _ in ran.loop.unfinished] == [UNCONNECTED]

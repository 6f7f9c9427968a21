"""The loops of a load on sessions in memory: due arrivals, retries, lost connections, and systems that stop answering.

No coordinated omission: every transaction that was due is in the result, with its time from the instant it was due.
Errors of real servers and their kinds are in the drivers' conformance tests, a real server that is
gone in `test_load_task`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import runpy
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from eventually import PATIENCE_S, eventually
from in_memory import LOST, Fails, LoopOf, Ran, Sent, Session, both_loops, drawn, lent, polled, run, threaded

from proveout.agent.engines.driver_contract import PURE_PYTHON, FailureKind, StatementFailure
from proveout.agent.load.loop import arrival_schedule as schedule_module
from proveout.agent.load.loop import event_loop, thread_loop
from proveout.agent.load.loop.recorder import Recorder
from proveout.agent.load.loop.terminal import Terminal, stream_of
from proveout.agent.load.pacing import Pacing
from proveout.agent.load.worker_messages import UNCONNECTED
from proveout.dsl.plan.stages import Sessions, Think
from proveout.dsl.workloads import hlr_workload as hlr
from proveout.dsl.workloads import tptbm_workload as tptbm
from proveout.dsl.workloads.base import Statement, WorkloadKind
from proveout.dsl.workloads.hlr import Hlr
from proveout.dsl.workloads.tprocc import Tprocc
from proveout.dsl.workloads.tprocc import workload as tprocc
from proveout.dsl.workloads.tptbm import Tptbm

HLR = hlr.HlrWorkload(Hlr(population=100))
READ = hlr.HlrWorkload(Hlr(population=100, weights={"GetBasicSubscriberData": 1.0}))


@pytest.mark.server
def test_the_loops_in_python_do_the_same() -> None:
    """All of this module once more, with the hot loop in Python in place of the compiled one."""
    pytest.importorskip("proveout.agent.load.loop.transaction_loop_native", reason="the tests below ran in Python")
    path = Path(__file__)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-qx",
            "--noconftest",
            "-p",
            "no:cacheprovider",
            "-m",
            "not server",
            str(path),
        ],
        cwd=path.parents[3],
        env={**os.environ, PURE_PYTHON: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


# ---- due arrivals ----------------------------------------------------------------------------------------------------

ARRIVALS = 40
THINK_S = 0.004
POISSON = Pacing(total=3, ramp_s=0.0, rate=2_000.0, distribution="poisson", seed=5)


@both_loops
def test_every_due_arrival_begins_once_and_as_the_transaction_that_was_drawn(loop_of: LoopOf) -> None:
    sessions = [Session() for _ in range(POISSON.total)]
    ran = run(loop_of, HLR, sessions, lambda _: min(len(one.sent) for one in sessions) > 6 * ARRIVALS, pacing=POISSON)
    records = ran.records()
    assert ran.loop.start_skew_ns > 0
    assert all(intended <= started <= ended for _, intended, started, ended in records)
    found = {intended: number for number, intended, _, _ in records}
    assert len(found) == len(records)
    for terminal in range(POISSON.total):
        due = itertools.islice(POISSON.fire_times(terminal), ARRIVALS)
        transactions = itertools.islice(drawn(HLR, stream_of(1, terminal)), ARRIVALS)
        assert [found[at_ns] for at_ns in due] == list(transactions)


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


# ---- retries: the same inputs and intended time, for a failure of any statement ---------------------------------------

KINDS: dict[str, WorkloadKind] = {
    "hlr": HLR,  # single statements, and scripts of steps
    "tprocc": tprocc.TproccWorkload(Tprocc(warehouses=2)),
    "tprocc-pipeline": tprocc.TproccWorkload(Tprocc(warehouses=2, pipeline=True)),
    "tptbm-3": tptbm.TptbmWorkload(Tptbm(key=30, ops_per_transaction=3)),
}
SENT = 6_000
GAPS = (0, 1, 2, 4, 41, 3, 5, 97, 7, 11, 90, 13)
"""Numbers of successful statements before each failure: each statement of a transaction fails in turn, and BEGIN and
COMMIT."""
DEADLOCK = StatementFailure("40P01", "deadlock detected", FailureKind.RETRYABLE)


def deadlocks() -> Fails:
    """A deadlock after each of so many statements; a rollback never fails."""
    fails = itertools.chain.from_iterable((*[False] * gap, True) for gap in itertools.cycle(GAPS))
    return lambda statement: DEADLOCK if statement.name != "rollback" and next(fails) else None


BEGINNINGS = ("begin_write", "begin_read")
BRACKETS = {*BEGINNINGS, "commit", "rollback"}


def pairs(sent: Sent) -> Iterator[tuple[Sent, Sent]]:
    """For each failure: the statements that the transaction had sent up to the failed one, and the next ones, at most as
    many."""
    began: int | None = None
    for at, entry in enumerate(sent):
        if entry is None:
            start = at - 1 if began is None else began
            after = [one for one in sent[at + 1 :][: 2 * (at - start)] if one != ("rollback", ())]
            ends = after.index(None) if None in after else len(after)
            yield sent[start:at], after[: min(ends, at - start)]
        elif entry[0] in BRACKETS:
            began = at if entry[0] in BEGINNINGS else began if sent[at + 1 : at + 2] == [None] else None


@both_loops
@pytest.mark.parametrize("name", KINDS)
def test_a_retry_sends_the_same_statements_after_any_failure(name: str, loop_of: LoopOf) -> None:
    """Covers single statements, and all statements of transactions with BEGIN and COMMIT. Each retry has the intended
    time of the record with which its transaction ends."""
    session = Session(deadlocks())
    ran = run(loop_of, KINDS[name], [session], lambda _: len(session.sent) >= SENT)
    retries = ran.recorder.take_incidents()
    assert {incident.what for incident in retries} == {"retry"}
    assert len(retries) >= 30
    where = Counter[str]()
    for failed, again in list(pairs(session.sent[:SENT]))[:-1]:
        assert again == failed[: len(again)]
        assert again
        assert failed[-1] is not None
        where[failed[-1][0]] += 1
    assert where["commit"] > 0
    assert where["begin_write"] + where["begin_read"] > 0
    assert len(where) >= 3
    intended = {ran.t0_ns + record[1] for record in ran.records()}
    last = max(retry.intended_ns for retry in retries)  # may have been under way at the end
    assert all(retry.intended_ns in intended for retry in retries if retry.intended_ns != last)


@both_loops
def test_the_tenth_retry_is_the_last_one(loop_of: LoopOf) -> None:
    """Then the transaction is an error, and the next one begins."""
    session = Session(lambda statement: None if statement.name == "rollback" else DEADLOCK)
    ran = run(loop_of, HLR, [session], lambda _: len(session.sent) >= SENT // 2)
    whats = [incident.what for incident in ran.recorder.take_incidents()]
    runs = [(what, len(list(group))) for what, group in itertools.groupby(whats)]
    assert runs[:4] == [("retry", 10), ("error", 1)] * 2
    assert ran.records() == []


# ---- lost connections: what becomes of the transactions, and what is connected afterwards ----------------------------

REFUSED = StatementFailure("08001", "connection refused", FailureKind.LOST)
READ_ONLY = StatementFailure("25006", "cannot execute UPDATE in a read-only transaction", FailureKind.ERROR)
FIRST, ENOUGH = 30, 200
"""The statements before the connection is lost, and on the next one."""


def once(failure: StatementFailure) -> Fails:
    """A session that fails once."""
    statements = itertools.count()
    return lambda _: failure if next(statements) == FIRST else None


class Server:
    """Refuses the first attempts to connect again, then has a session for each."""

    def __init__(self, refusals: int = 2) -> None:
        self.sessions: list[Session] = []
        self.refusals = refusals

    def connect(self, number: int, *_: Any, **__: Any) -> Session:
        if self.refusals:
            self.refusals -= 1
            raise REFUSED
        self.sessions.append(Session())
        return self.sessions[-1]


def losing(
    loop_of: LoopOf, policy: Sessions, failure: StatementFailure = LOST, *, rate: float | None = None
) -> tuple[Ran, Session, Server]:
    """A load of one terminal that loses its connection once."""
    first, server = Session(once(failure)), Server()
    pacing = Pacing(total=1, ramp_s=0.0, rate=rate)

    def is_over(_: int) -> bool:
        return any(len(session.sent) > ENOUGH for session in server.sessions)

    return run(loop_of, HLR, [first], is_over, connect=server.connect, policy=policy, pacing=pacing), first, server


def codes(ran: Ran) -> Counter[str]:
    return Counter(one.code for one in ran.recorder.take_incidents() if one.what == "error")


@both_loops
@pytest.mark.parametrize("rate", [None, 20_000.0], ids=["closed", "open"])
def test_reconnect_counts_the_transaction_under_way_as_an_error(loop_of: LoopOf, rate: float | None) -> None:
    """An attempt to connect that fails is one too, except on an event loop under open arrival: due transactions wait
    there."""
    ran, first, _ = losing(loop_of, Sessions(), rate=rate)
    waits = rate is not None and loop_of is polled
    assert codes(ran) == Counter({"08006": 1} if waits else {"08006": 1, "08001": 2})
    assert len(ran.loop.unknown) == 1
    assert len(ran.recorder.reruns) == 0
    assert first.is_closed
    assert {text.partition(":")[0] for text in ran.recorder.first_errors} == {"08006", "08001"}


@both_loops
@pytest.mark.parametrize("rate", [None, 20_000.0], ids=["closed", "open"])
def test_retry_runs_the_same_transaction_again_and_its_time_counts_from_its_first_start(
    loop_of: LoopOf, rate: float | None
) -> None:
    ran, first, server = losing(loop_of, Sessions(on_disconnect="retry"), rate=rate)
    incidents = ran.recorder.take_incidents()
    assert [one.what for one in incidents] == ["retry"]
    lost = [entry for entry in first.sent if entry is not None][-1]
    assert lost in server.sessions[0].sent[:5], "the statement that had no answer, with its arguments"
    assert incidents[0].intended_ns - ran.t0_ns in {record[1] for record in ran.records()}
    assert len(ran.recorder.reruns) == 3, "one triple"
    assert len(ran.loop.unknown) == 1


@both_loops
def test_an_exception_of_a_driver_that_connects_again_ends_the_loop(loop_of: LoopOf) -> None:
    def refused(number: int, *_: Any) -> Session:
        raise ValueError(f"no greeting for terminal {number}")

    with pytest.raises(ValueError, match="no greeting for terminal 0"):
        run(loop_of, HLR, [Session(once(LOST))], lambda ns: ns > 5 * 10**9, connect=refused)


@both_loops
def test_fail_ends_the_load_with_the_reason(loop_of: LoopOf) -> None:
    policy = Sessions(on_disconnect="fail")
    ran = run(loop_of, HLR, [Session(once(LOST))], lambda _: False, policy=policy, connect=Server().connect)
    assert ran.loop.failure is LOST


def test_a_transaction_that_is_to_be_retried_when_the_load_fails_is_left() -> None:
    loops: list[Any] = []

    def kept(**common: Any) -> Any:
        loops.append(threaded(**common))
        return loops[0]

    def late_deadlock(_: Statement) -> StatementFailure:
        eventually(lambda: loops[0].failure is not None, "the load has failed")
        return DEADLOCK

    sessions = [Session(once(LOST)), Session(late_deadlock)]
    policy = Sessions(on_disconnect="fail")
    ran = run(kept, HLR, sessions, lambda _: False, policy=policy, connect=Server().connect)
    assert ran.loop.failure is LOST
    assert ran.loop._bugs == []


@pytest.mark.parametrize(("policy", "found"), [("retry", ("retry", "")), ("reconnect", ("error", "08006"))])
def test_a_deadlock_whose_rollback_is_lost_is_one_retry_or_one_error(policy: Any, found: tuple[str, str]) -> None:
    fails = {"commit": iter([DEADLOCK]), "rollback": iter([LOST])}
    server = Server(refusals=0)
    ran = run(
        polled,
        HLR,
        [Session(lambda statement: next(fails.get(statement.name, iter(())), None))],
        lambda _: any(len(session.sent) > ENOUGH for session in server.sessions),
        connect=server.connect,
        policy=Sessions(on_disconnect=policy),
    )
    assert [(one.what, one.code) for one in ran.recorder.take_incidents()] == [found]


@both_loops
def test_a_primary_that_has_become_a_standby_is_left(loop_of: LoopOf) -> None:
    """Where the load is for a member that accepts changes, the refusal of a change is like a lost connection, but its
    outcome is known."""
    ran, first, server = losing(loop_of, Sessions(on_disconnect="retry", access="read_write"), READ_ONLY)
    assert first.is_closed
    assert server.sessions
    assert codes(ran) == Counter()
    assert ran.loop.unknown == []

    stays = Session(once(READ_ONLY))
    ran = run(loop_of, HLR, [stays], lambda _: len(stays.sent) > ENOUGH, policy=Sessions(on_disconnect="retry"))
    assert codes(ran) == Counter({"25006": 1}), "an error of its transaction where no access was asked for"


def borrowing(pool: Sequence[Session], terminals: int, is_over: Callable[[], bool], **more: Any) -> Ran:
    """A load whose terminals borrow these connections."""
    policy = Sessions(pool=len(pool), connect_every=more.pop("connect_every", 0))
    return run(lent(pool), HLR, [Session() for _ in range(terminals)], lambda _: is_over(), policy=policy, **more)


def test_a_pool_of_connections_comes_back() -> None:
    """Both connections of four terminals are lost at once."""
    pool, server = [Session(once(LOST)) for _ in range(2)], Server(refusals=0)

    def is_over() -> bool:
        return len(server.sessions) == 2 and min(len(one.sent) for one in server.sessions) > ENOUGH

    ran = borrowing(pool, 4, is_over, connect=server.connect)
    assert all(session.is_closed for session in pool)
    assert codes(ran) == Counter({"08006": 2})


def test_terminals_wait_for_a_connection_of_the_pool_first_come_first_served() -> None:
    """Three terminals and one connection: they take turns, and the wait of each one that began late is recorded."""
    pool = [Session()]
    ran = borrowing(pool, 3, lambda: len(pool[0].sent) > ENOUGH)
    waits = memoryview(ran.recorder.waits.take()).cast("q").tolist()
    began, given = waits[1::3], waits[2::3]
    assert len(began) >= len(ran.records())
    assert given == sorted(given)
    assert began == sorted(began), "the first that waits is the first that is served"
    assert all(start <= end for start, end in zip(began, given, strict=True))
    assert sum(start < end for start, end in zip(began, given, strict=True)) > ENOUGH // 10


def test_a_connection_for_each_transaction_is_made_and_closed_again() -> None:
    own, server = [Session()], Server(refusals=0)
    ran = borrowing(own, 1, lambda: len(server.sessions) > 20, connect=server.connect, connect_every=2)
    assert all(session.is_closed for session in (*own, *server.sessions[:-1]))
    assert len(server.sessions) == pytest.approx(len(ran.records()) / 2, abs=1)


# ---- no answers ------------------------------------------------------------------------------------------------------

TERMINALS, ANSWERS = 4, 3
RATE, MEASURE_S = 2_000.0, 0.05
OPEN, CLOSED = Pacing(total=TERMINALS, ramp_s=0.0, rate=RATE), Pacing(total=TERMINALS, ramp_s=0.0)
DUE_NS = [n * 500_000 for n in range(100)]
"""Every arrival of the window."""


@pytest.fixture
def last_answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
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
    loop_of: LoopOf, last_answers: Callable[[float], None]
) -> None:
    last_answers(0.05)
    sessions = [Hanging() for _ in range(TERMINALS)]

    def is_over(since_ns: int) -> bool:
        return all_hang(sessions) and since_ns > MEASURE_S * 1e9

    ran = run(loop_of, READ, sessions, is_over, pacing=OPEN, measure_s=MEASURE_S)
    answered = [intended for _, intended, _, _ in ran.records()]
    assert answered == DUE_NS[: ANSWERS * TERMINALS]
    unfinished = sorted(intended - ran.t0_ns for _, intended, _ in ran.loop.unfinished)
    assert unfinished == DUE_NS[len(answered) : len(answered) + TERMINALS]
    assert len(ran.loop.waiting) == TERMINALS
    assert len(ran.loop.unknown) == TERMINALS, "one that is cancelled may have committed before"
    ((missed,),) = ran.loop.missed()
    _, _, counts, sum_ns, least_ns, most_ns = missed
    left = [ran.loop.seen_ns - ran.t0_ns - due for due in DUE_NS[len(answered) + TERMINALS :]]
    assert (sum(counts), sum_ns, least_ns, most_ns) == (len(left), sum(left), min(left), max(left))


def test_each_arrival_that_never_began_has_a_draw_of_its_own() -> None:
    recorder = Recorder(len(HLR.transactions))
    terminal = Terminal(0, workload=HLR, pacing=OPEN, recorder=recorder, seed=1, session=None, prepared={})
    dealt = {
        age: number for number, ages in terminal.deal([np.arange(900), np.arange(900, 1_800)]) for age in ages.tolist()
    }
    assert sorted(dealt) == list(range(1_800))
    assert [dealt[age] for age in range(900)] != [dealt[age] for age in range(900, 1_800)]


@both_loops
@pytest.mark.usefixtures("last_answers")
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
@pytest.mark.usefixtures("last_answers")
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

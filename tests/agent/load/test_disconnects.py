"""Loads that lose connections: what becomes of the transactions, and what is connected afterwards. The sessions are in
memory; a real server restarts in `test_load_task`."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import pytest
from in_memory import LOST, Fails, LoopOf, Ran, Session, both_loops, lent, polled, run

from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.agent.load.pacing import Pacing
from proveout.dsl.plan.stages import Sessions
from proveout.dsl.workloads import hlr_workload as hlr
from proveout.dsl.workloads.base import Statement
from proveout.dsl.workloads.hlr import Hlr

HLR = hlr.build(Hlr(population=100))
REFUSED = StatementFailure("08001", "connection refused", FailureKind.LOST)
READ_ONLY = StatementFailure("25006", "cannot execute UPDATE in a read-only transaction", FailureKind.ERROR)
ENOUGH = 200
FIRST = 30
"""The statements before the connection is lost."""


def after(count: int, failure: StatementFailure) -> Fails:
    """A session that fails once, at the statement after so many."""
    left = count

    def fails(_: Statement) -> StatementFailure | None:
        nonlocal left
        left -= 1
        return failure if left == -1 else None

    return fails


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

    def goes_on(self, _: int) -> bool:
        return any(len(session.sent) > ENOUGH for session in self.sessions)


def losing(
    loop_of: LoopOf, policy: Sessions, failure: StatementFailure = LOST, *, rate: float | None = None
) -> tuple[Ran, Session, Server]:
    """A load of one terminal that loses its connection once."""
    first, server = Session(after(FIRST, failure)), Server()
    pacing = Pacing(total=1, ramp_s=0.0, rate=rate)
    ran = run(loop_of, HLR, [first], server.goes_on, connect=server.connect, policy=policy, pacing=pacing)
    return ran, first, server


def codes(ran: Ran, what: Literal["error", "retry"]) -> Counter[str]:
    return Counter(one.code for one in ran.recorder.take_incidents() if one.what == what)


@both_loops
@pytest.mark.parametrize("rate", [None, 20_000.0], ids=["closed", "open"])
def test_reconnect_counts_the_transaction_under_way_as_an_error(loop_of: LoopOf, rate: float | None) -> None:
    """An attempt to connect that fails is one too, except on an event loop under open arrival: due transactions wait
    there."""
    ran, first, _ = losing(loop_of, Sessions(), rate=rate)
    waits = rate is not None and loop_of is polled
    assert codes(ran, "error") == Counter({"08006": 1} if waits else {"08006": 1, "08001": 2})
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
    assert [(one.what, one.code) for one in incidents] == [("retry", "08006")]
    lost = [entry for entry in first.sent if entry is not None][-1]
    assert lost in server.sessions[0].sent[:5], "the statement that had no answer, with its arguments"
    assert incidents[0].intended_ns - ran.t0_ns in {record[1] for record in ran.records()}
    assert len(ran.recorder.reruns) == 3, "one triple"
    assert len(ran.loop.unknown) == 1


@both_loops
def test_fail_ends_the_load_with_the_reason(loop_of: LoopOf) -> None:
    session = Session(after(FIRST, LOST))
    ran = run(loop_of, HLR, [session], lambda _: False, policy=Sessions(on_disconnect="fail"), connect=Server().connect)
    assert ran.loop.failure is LOST


@both_loops
def test_a_primary_that_has_become_a_standby_is_left(loop_of: LoopOf) -> None:
    """Where the load is for a member that accepts changes, the refusal of a change is like a lost connection, but its
    outcome is known."""
    ran, first, server = losing(loop_of, Sessions(on_disconnect="retry", access="read_write"), READ_ONLY)
    assert first.is_closed
    assert server.sessions
    assert codes(ran, "error") == Counter()
    assert ran.loop.unknown == []

    stays = Session(after(FIRST, READ_ONLY))
    ran = run(loop_of, HLR, [stays], lambda _: len(stays.sent) > ENOUGH, policy=Sessions(on_disconnect="retry"))
    assert codes(ran, "error") == Counter({"25006": 1}), "an error of its transaction where no access was asked for"


def test_a_pool_of_connections_comes_back() -> None:
    """Both connections of four terminals are lost at once."""
    pool, server = [Session(after(FIRST, LOST)) for _ in range(2)], Server(refusals=0)
    ran = run(
        lent(pool),
        HLR,
        [Session() for _ in range(4)],
        lambda _: len(server.sessions) == 2 and min(len(one.sent) for one in server.sessions) > ENOUGH,
        connect=server.connect,
        policy=Sessions(pool=2),
    )
    assert all(session.is_closed for session in pool)
    assert codes(ran, "error") == Counter({"08006": 2})


def test_terminals_wait_for_a_connection_of_the_pool_first_come_first_served() -> None:
    """Three terminals and one connection: they take turns, and the wait of each one that began late is recorded."""
    pool = [Session()]
    ran = run(
        lent(pool), HLR, [Session() for _ in range(3)], lambda _: len(pool[0].sent) > ENOUGH, policy=Sessions(pool=1)
    )
    waits = memoryview(ran.recorder.waits.take()).cast("q").tolist()
    began, given = waits[1::3], waits[2::3]
    assert len(waits) // 3 >= len(ran.records())
    assert given == sorted(given)
    assert began == sorted(began), "the first that waits is the first that is served"
    assert all(start <= end for start, end in zip(began, given, strict=True))
    assert sum(start < end for start, end in zip(began, given, strict=True)) > ENOUGH // 10


def test_a_connection_for_each_transaction_is_made_and_closed_again() -> None:
    server = Server(refusals=0)
    own = [Session()]
    ran = run(
        lent(own),
        HLR,
        [Session()],
        lambda _: len(server.sessions) > 20,
        connect=server.connect,
        policy=Sessions(pool=1, connect_every=2),
    )
    assert all(session.is_closed for session in (*own, *server.sessions[:-1]))
    transactions = len(ran.records())
    assert len(server.sessions) == pytest.approx(transactions / 2, abs=1)

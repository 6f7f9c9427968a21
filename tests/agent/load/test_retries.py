"""A retry is the same transaction: same inputs, same intended time, for a failure of any statement.

The errors of real servers and their kinds are in the drivers' conformance tests; `test_bad_servers` has real conflicts.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from in_memory import Fails, LoopOf, Ran, Sent, Session, both_loops, run

from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.dsl.workloads import hlr_workload as hlr
from proveout.dsl.workloads import tptbm_workload as tptbm
from proveout.dsl.workloads.base import Statement, WorkloadKind
from proveout.dsl.workloads.hlr import Hlr
from proveout.dsl.workloads.tprocc import Tprocc
from proveout.dsl.workloads.tprocc import workload as tprocc
from proveout.dsl.workloads.tptbm import Tptbm

KINDS: dict[str, WorkloadKind] = {
    "hlr": hlr.build(Hlr(population=100)),  # single statements, and scripts of steps
    "tprocc": tprocc.build(Tprocc(warehouses=2)),
    "tprocc-pipeline": tprocc.build(Tprocc(warehouses=2, pipeline=True)),
    "tptbm-3": tptbm.build(Tptbm(key=30, ops_per_transaction=3)),
}
SENT = 6_000
GAPS = (0, 1, 2, 4, 41, 3, 5, 97, 7, 11, 90, 13)
"""Numbers of successful statements before each failure: each statement of a transaction fails in turn, and BEGIN and
COMMIT."""
DEADLOCK = StatementFailure("40P01", "deadlock detected", FailureKind.RETRYABLE)


def deadlocks(gaps: Sequence[int] = GAPS) -> Fails:
    """A deadlock after each of so many statements; a rollback never fails."""
    cycle = itertools.cycle(gaps)
    left = next(cycle)

    def fails(statement: Statement) -> StatementFailure | None:
        nonlocal left
        left -= statement.name != "rollback"
        if left >= 0:
            return None
        left = next(cycle)
        return DEADLOCK

    return fails


def load(kind: WorkloadKind, loop_of: LoopOf, fails: Fails) -> tuple[Sent, Ran]:
    session = Session(fails)
    ran = run(loop_of, kind, [session], lambda _: len(session.sent) >= SENT)
    return session.sent[:SENT], ran


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
    """Covers single statements, and all statements of transactions with BEGIN and COMMIT."""
    sent, ran = load(KINDS[name], loop_of, deadlocks())
    incidents = ran.recorder.take_incidents()
    assert {incident.what for incident in incidents} == {"retry"}
    assert len(incidents) >= 30
    where = Counter[str]()
    for failed, again in list(pairs(sent))[:-1]:
        assert again == failed[: len(again)]
        assert again
        assert failed[-1] is not None
        where[failed[-1][0]] += 1
    assert where["commit"] > 0
    assert where["begin_write"] + where["begin_read"] > 0
    assert len(where) >= 3


@both_loops
def test_the_response_time_of_a_retry_begins_at_the_intended_time(loop_of: LoopOf) -> None:
    """Each retry has the intended time of the record with which its transaction ends."""
    _, ran = load(KINDS["hlr"], loop_of, deadlocks())
    intended = {ran.t0_ns + record[1] for record in ran.records()}
    retries = ran.recorder.take_incidents()
    last = max(retry.intended_ns for retry in retries)  # may have been under way at the end
    assert len(retries) > 20
    assert all(retry.intended_ns in intended for retry in retries if retry.intended_ns != last)


@both_loops
def test_the_tenth_retry_is_the_last_one(loop_of: LoopOf) -> None:
    """Then the transaction is an error, and the next one begins."""
    session = Session(lambda statement: None if statement.name == "rollback" else DEADLOCK)
    ran = run(loop_of, KINDS["hlr"], [session], lambda _: len(session.sent) >= SENT // 2)
    whats = [incident.what for incident in ran.recorder.take_incidents()]
    runs = [(what, len(list(group))) for what, group in itertools.groupby(whats)]
    assert runs[:4] == [("retry", 10), ("error", 1)] * 2
    assert ran.records() == []

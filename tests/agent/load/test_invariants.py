"""The invariants of a workload, checked on real engines: they hold, are broken, or cannot be checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import apsw
import psycopg
import pytest

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.errors import TaskFault
from proveout.agent.load import invariants
from proveout.dsl.engines import Dialect
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.base import Body, Invariant, Outcome, Statement, TransactionType
from proveout.proto.wire.results import InvariantCheck
from proveout.proto.wire.tasks import CheckInvariants, Endpoint

SCHEMA = "CREATE TABLE accounts (balance BIGINT NOT NULL)"
ROWS = "INSERT INTO accounts VALUES (10), (20)"
SUM = "SELECT CAST(sum(balance) AS BIGINT), $1 FROM accounts"
TEXTS: Mapping[Dialect, str] = {"postgres": SUM.replace("$1", "$1::bigint"), "sqlite": SUM}

COUNTS: dict[Dialect, str] = dict.fromkeys(("postgres", "sqlite"), "SELECT COUNT(*) FROM accounts")


def _nothing(_: object) -> Body:
    return Outcome.COMMIT
    yield


@dataclass(frozen=True)
class Kept:
    """The attributes of a workload that the handler reads."""

    total: int
    text: Mapping[Dialect, str]

    @property
    def transactions(self) -> tuple[TransactionType, ...]:
        """Three transactions, of which one in the mix is counted."""
        counted = Statement(name="count", text=COUNTS, arguments=(), columns=(int,))
        return tuple(
            TransactionType(name=name, weight=weight, body=_nothing, statements=(), counted=statement)
            for name, weight, statement in (("Move", 1.0, counted), ("Look", 1.0, None), ("Left out", 0.0, counted))
        )

    @property
    def invariants(self) -> tuple[Invariant, ...]:
        statement = Statement(name="sum", text=self.text, arguments=(int,), columns=(int, int))
        return (
            Invariant(
                name="balance",
                title="balances",
                left="sum of balances",
                right="initial",
                statement=statement,
                arguments=(self.total,),
            ),
        )


@pytest.fixture(params=[pytest.param("postgres", marks=pytest.mark.server), "sqlite"])
def endpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Endpoint:
    if request.param == "postgres":
        dsn: str = request.getfixturevalue("database")
        with psycopg.connect(dsn) as connection:
            connection.execute(SCHEMA)
            connection.execute(ROWS)
        return Endpoint(system="db", engine="postgres", dsn=dsn)
    path = tmp_path / "file.db"
    file = apsw.Connection(str(path))
    file.execute(SCHEMA)
    file.execute(ROWS)
    file.close()
    return Endpoint(system="db", engine="sqlite", dsn=str(path))


async def check(
    task_context: TaskContext,
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    total: int = 30,
    text: Mapping[Dialect, str] = TEXTS,
) -> tuple[InvariantCheck, ...]:
    monkeypatch.setattr(invariants, "build", lambda _: Kept(total, text))
    spec = CheckInvariants(workload=Workload(name="w", kind="kept", parameters=()), endpoint=endpoint)
    return (await invariants.check_invariants(task_context, spec)).checks


async def test_an_invariant_that_holds(
    task_context: TaskContext, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await check(task_context, endpoint, monkeypatch) == (
        InvariantCheck(name="balance", holds=True, evidence="sum of balances 30 = initial 30"),
    )


async def test_commits_are_counted_in_the_database(
    task_context: TaskContext, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invariants, "build", lambda _: Kept(30, TEXTS))
    spec = CheckInvariants(workload=Workload(name="w", kind="kept", parameters=()), endpoint=endpoint)
    assert (await invariants.check_invariants(task_context, spec)).tallies == (("Move", 2),)
    monkeypatch.setitem(COUNTS, endpoint.engine, COUNTS[endpoint.engine] + " WHERE 1 = 0 GROUP BY balance")
    with pytest.raises(TaskFault, match=r"returned .*, not one number"):
        await invariants.check_invariants(task_context, spec)


async def test_the_evidence_of_a_broken_invariant_has_both_numbers(
    task_context: TaskContext, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    (found,) = await check(task_context, endpoint, monkeypatch, total=1_031)
    assert not found.holds
    assert found.evidence == "sum of balances 30 is not initial 1,031"


async def test_a_missing_table_is_a_fault(
    task_context: TaskContext, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    text: Mapping[Dialect, str] = {name: of.replace("accounts", "nowhere") for name, of in TEXTS.items()}
    with pytest.raises(TaskFault, match=r"cannot check the invariants.*nowhere") as fault:
        await check(task_context, endpoint, monkeypatch, text=text)
    assert fault.value.code == "invalid"


async def test_an_answer_other_than_two_numbers_is_a_fault(
    task_context: TaskContext, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    text: Mapping[Dialect, str] = {name: of + " WHERE 1 = 0" for name, of in TEXTS.items()}
    with pytest.raises(TaskFault, match="not two numbers"):
        await check(task_context, endpoint, monkeypatch, text=text)


async def test_an_engine_without_a_statement_is_a_fault(
    task_context: TaskContext, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TaskFault, match="has no statement for") as fault:
        await check(task_context, endpoint, monkeypatch, text={"oracle": SUM})
    assert fault.value.code == "invalid"


async def test_an_unreachable_server_is_a_fault(
    task_context: TaskContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = Endpoint(system="db", engine="sqlite", dsn=str(tmp_path / "none.db"))
    with pytest.raises(TaskFault, match=r"cannot check the invariants of db .sqlite.") as fault:
        await check(task_context, gone, monkeypatch)
    assert fault.value.code == "unreachable"

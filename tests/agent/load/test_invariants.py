"""The invariants of a workload, asked of real engines: they hold, they are broken, they cannot be asked."""

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
    """Only what the handler reads of a workload."""

    total: int
    text: Mapping[Dialect, str]

    @property
    def transactions(self) -> tuple[TransactionType, ...]:
        """Of three in a workload, one in the mix is counted."""
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


@pytest.fixture(params=["postgres", "sqlite"])
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


async def ask(
    task_context: TaskContext,
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    total: int = 30,
    text: Mapping[Dialect, str] = TEXTS,
) -> tuple[InvariantCheck, ...]:
    monkeypatch.setattr(invariants, "build", lambda _: Kept(total, text))
    spec = CheckInvariants(workload=Workload(name="w", kind="kept", parameters=()), endpoint=endpoint)
    return (await invariants.check_invariants(task_context, spec)).checks


async def test_what_holds(task_context: TaskContext, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await ask(task_context, endpoint, monkeypatch) == (
        InvariantCheck(name="balance", holds=True, evidence="sum of balances 30 = initial 30"),
    )


async def test_what_the_database_counts_of_a_transaction(
    task_context: TaskContext, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invariants, "build", lambda _: Kept(30, TEXTS))
    spec = CheckInvariants(workload=Workload(name="w", kind="kept", parameters=()), endpoint=endpoint)
    assert (await invariants.check_invariants(task_context, spec)).tallies == (("Move", 2),)
    monkeypatch.setitem(COUNTS, endpoint.engine, COUNTS[endpoint.engine] + " WHERE 1 = 0 GROUP BY balance")
    with pytest.raises(TaskFault, match=r"returned .*, not one number"):
        await invariants.check_invariants(task_context, spec)


async def test_what_is_broken_says_by_how_much(
    task_context: TaskContext, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    (check,) = await ask(task_context, endpoint, monkeypatch, total=1_031)
    assert not check.holds
    assert check.evidence == "sum of balances 30 is not initial 1,031"


async def test_a_table_that_is_not_there(
    task_context: TaskContext, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    text: Mapping[Dialect, str] = {name: of.replace("accounts", "nowhere") for name, of in TEXTS.items()}
    with pytest.raises(TaskFault, match=r"cannot check the invariants.*nowhere") as fault:
        await ask(task_context, endpoint, monkeypatch, text=text)
    assert fault.value.code == "invalid"


async def test_an_answer_that_is_no_two_numbers(
    task_context: TaskContext, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    text: Mapping[Dialect, str] = {name: of + " WHERE 1 = 0" for name, of in TEXTS.items()}
    with pytest.raises(TaskFault, match="not two numbers"):
        await ask(task_context, endpoint, monkeypatch, text=text)


async def test_an_engine_that_it_is_not_written_for(
    task_context: TaskContext, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TaskFault, match="has no statement for") as fault:
        await ask(task_context, endpoint, monkeypatch, text={"oracle": SUM})
    assert fault.value.code == "invalid"


async def test_a_server_that_is_not_there(
    task_context: TaskContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = Endpoint(system="db", engine="sqlite", dsn=str(tmp_path / "none.db"))
    with pytest.raises(TaskFault, match=r"cannot check the invariants of db .sqlite.") as fault:
        await ask(task_context, gone, monkeypatch)
    assert fault.value.code == "unreachable"

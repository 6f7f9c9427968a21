"""The invariants of a workload, checked in a database: they hold, are broken, or cannot be checked. Those of the built-in
workloads on each engine are in `test_workloads_on_engines` and `test_tprocc_load`."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import apsw
import pytest

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.errors import TaskFault
from proveout.agent.load import invariants
from proveout.dsl.engines import Dialect
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.base import Body, Invariant, Outcome, Statement, TransactionType
from proveout.proto.wire.results import InvariantCheck, InvariantsChecked
from proveout.proto.wire.tasks import CheckInvariants, Endpoint

SCHEMA = "CREATE TABLE accounts (balance BIGINT NOT NULL)"
ROWS = "INSERT INTO accounts VALUES (10), (20)"
SUM = "SELECT CAST(sum(balance) AS BIGINT), $1 FROM accounts"
TEXTS: Mapping[Dialect, str] = {"sqlite": SUM}
COUNT = "SELECT COUNT(*) FROM accounts"
COUNTS: dict[Dialect, str] = {"sqlite": COUNT}


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


@pytest.fixture
def endpoint(tmp_path: Path) -> Endpoint:
    path = tmp_path / "file.db"
    with contextlib.closing(apsw.Connection(str(path))) as file:
        file.execute(SCHEMA)
        file.execute(ROWS)
    return Endpoint(system="db", engine="sqlite", dsn=str(path))


async def check(
    task_context: TaskContext,
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    total: int = 30,
    text: Mapping[Dialect, str] = TEXTS,
) -> InvariantsChecked:
    monkeypatch.setattr(invariants, "build", lambda _: Kept(total, text))
    spec = CheckInvariants(workload=Workload(name="w", kind="kept", parameters=()), endpoint=endpoint)
    return await invariants.check_invariants(task_context, spec)


async def test_an_invariant_holds_or_is_broken_with_both_numbers_as_evidence(
    task_context: TaskContext, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits are counted in the database beside it."""
    found = await check(task_context, endpoint, monkeypatch)
    assert found.checks == (InvariantCheck(name="balance", holds=True, evidence="sum of balances 30 = initial 30"),)
    assert found.tallies == (("Move", 2),)
    for total, text in ((1_031, "1,031"), (29, "29")):
        (broken,) = (await check(task_context, endpoint, monkeypatch, total=total)).checks
        assert not broken.holds
        assert broken.evidence == f"sum of balances 30 is not initial {text}"


@pytest.mark.parametrize(
    ("text", "counts", "code", "why"),
    [
        ({"sqlite": SUM.replace("accounts", "nowhere")}, COUNT, "invalid", r"cannot check the invariants.*nowhere"),
        ({"sqlite": f"{SUM} WHERE 1 = 0"}, COUNT, "", "not two numbers"),
        ({"oracle": SUM}, COUNT, "invalid", "has no statement for"),
        (TEXTS, f"{COUNT} WHERE 1 = 0 GROUP BY balance", "", r"returned .*, not one number"),
    ],
    ids=["a missing table", "another answer", "no text for the engine", "no count"],
)
async def test_an_invariant_that_cannot_be_checked_is_a_fault(
    task_context: TaskContext,
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    text: Mapping[Dialect, str],
    counts: str,
    code: str,
    why: str,
) -> None:
    monkeypatch.setitem(COUNTS, "sqlite", counts)
    with pytest.raises(TaskFault, match=why) as fault:
        await check(task_context, endpoint, monkeypatch, text=text)
    assert fault.value.code == code or not code


async def test_an_unreachable_server_is_a_fault(
    task_context: TaskContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = Endpoint(system="db", engine="sqlite", dsn=str(tmp_path / "none.db"))
    with pytest.raises(TaskFault, match=r"cannot check the invariants of db .sqlite.") as fault:
        await check(task_context, gone, monkeypatch)
    assert fault.value.code == "unreachable"

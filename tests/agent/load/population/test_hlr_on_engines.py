"""The HLR transactions on real databases: their shares of success match the specification, on fresh and aged data, and
all failures are logical.

Minimal drivers run them one at a time, so the tests cover the workload and its population only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import apsw
import psycopg
import pymysql
import pytest

from proveout.agent.engines.mysql import dsn as mysql_dsn
from proveout.agent.engines.mysql.binary_values import placeholders
from proveout.agent.load.population.handler import populate
from proveout.dsl.workloads.base import Outcome, Statement, TransactionType
from proveout.dsl.workloads.conformance import Seen, conform
from proveout.dsl.workloads.hlr.shares import shares
from proveout.dsl.workloads.hlr.workload import HlrWorkload
from proveout.dsl.workloads.kinds import build

pytestmark = pytest.mark.server

ROUNDS = 1_000


class Given:
    def __init__(self, count: int, values: list[tuple[Any, ...]]) -> None:
        self.count = count
        self._values = values

    def rows(self) -> list[tuple[Any, ...]]:
        return self._values


class Driver(Protocol):
    def begin(self) -> None: ...
    def end(self, commit: bool) -> None: ...
    def run(self, statement: Statement, arguments: tuple[Any, ...]) -> Given | None: ...


class Postgres:
    def __init__(self, dsn: str) -> None:
        self.connection = psycopg.connect(dsn, cursor_factory=psycopg.RawCursor)

    def begin(self) -> None:
        pass

    def end(self, commit: bool) -> None:
        if commit:
            self.connection.commit()
        else:
            self.connection.rollback()

    def run(self, statement: Statement, arguments: tuple[Any, ...]) -> Given | None:
        try:
            cursor = self.connection.execute(statement.text["postgres"], arguments, prepare=True)
        except psycopg.Error as error:
            assert error.sqlstate in statement.logical_errors
            return None
        return Given(cursor.rowcount, cursor.fetchall() if statement.reads else [])


class Mysql:
    def __init__(self, dsn: str) -> None:
        self.connection = Executing(mysql_dsn.connect(mysql_dsn.parse(dsn)))

    def begin(self) -> None:
        self.connection.execute("BEGIN")

    def end(self, commit: bool) -> None:
        self.connection.execute("COMMIT" if commit else "ROLLBACK")

    def run(self, statement: Statement, arguments: tuple[Any, ...]) -> Given | None:
        text, order = placeholders(statement.text["mysql"])
        try:
            cursor = self.connection.execute(text.replace("?", "%s"), [arguments[number] for number in order])
        except pymysql.err.IntegrityError as error:
            assert str(error.args[0]) in statement.logical_errors
            return None
        return Given(cursor.rowcount, cursor.fetchall() if statement.reads else [])


class Executing:
    """A PyMySQL connection with the `execute` of the other drivers."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.close = connection.close

    def execute(self, query: str, arguments: Any = None) -> Any:
        cursor = self._connection.cursor()
        cursor.execute(query, arguments)
        return cursor


class Sqlite:
    def __init__(self, path: Path) -> None:
        self.connection = apsw.Connection(str(path))
        self.connection.pragma("foreign_keys", "ON")
        self.connection.pragma("synchronous", "OFF")

    def begin(self) -> None:
        self.connection.execute("BEGIN IMMEDIATE")

    def end(self, commit: bool) -> None:
        self.connection.execute("COMMIT" if commit else "ROLLBACK")

    def run(self, statement: Statement, arguments: tuple[Any, ...]) -> Given | None:
        try:
            rows = self.connection.execute(statement.text["sqlite"], arguments).fetchall()
        except apsw.ConstraintError as error:
            assert apsw.mapping_extended_result_codes[error.extendedresult] in statement.logical_errors
            return None
        return Given(len(rows) if statement.reads else self.connection.changes(), rows)


def perform(driver: Driver, transaction: TransactionType, keys: Any, *, keep: bool) -> Outcome:
    """Run one transaction; commit it when it succeeds and `keep` is true, else roll it back."""
    driver.begin()
    body, result, outcome = transaction.body(transaction.inputs(keys)()), None, Outcome.LOGICAL_FAILURE
    try:
        while (answer := driver.run(*body.send(result))) is not None:
            result = answer
        body.close()
    except StopIteration as stop:
        outcome = stop.value
    driver.end(keep and outcome is Outcome.COMMIT)
    return outcome


def seen(driver: Driver, transaction: TransactionType, keys: Any, rounds: int, *, keep: bool) -> Seen:
    ok = sum(perform(driver, transaction, keys, keep=keep) is Outcome.COMMIT for _ in range(rounds))
    return Seen(name=transaction.name, ok=ok, logical_failures=rounds - ok)


@pytest.fixture(params=["postgres", "sqlite", "mysql"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(engine: str, request: pytest.FixtureRequest) -> str:
    return str(
        request.getfixturevalue({"postgres": "database", "mysql": "mysql_database", "sqlite": "wal_file"}[engine])
    )


def connect(engine: str, place: str) -> tuple[Driver, Any]:
    drivers: dict[str, Any] = {"postgres": Postgres, "sqlite": lambda path: Sqlite(Path(path)), "mysql": Mysql}
    driver = drivers[engine](place)
    return driver, driver.connection


async def loaded(context: Any, task: Any) -> HlrWorkload:
    await populate(context, task)
    built = build(task.workload)
    assert isinstance(built, HlrWorkload)
    return built


@pytest.mark.parametrize(
    ("engine", "parameters"),
    [
        ("postgres", {}),
        ("postgres", {"cardinality": "lab"}),
        ("mysql", {}),
        ("mysql", {"cardinality": "lab"}),
        ("sqlite", {}),
        ("sqlite", {"cardinality": "lab"}),
        ("sqlite", {"keys": "nurand"}),
        ("sqlite", {"range": [2_001, 6_000]}),
    ],
    ids=str,
    indirect=["engine"],
)
async def test_shares_of_success_on_fresh_data(
    engine: str, place: str, context: Any, spec: Any, parameters: dict[str, Any]
) -> None:
    """All transactions are rolled back, so the data stays fresh: within 4.5 standard deviations of the share for fresh data."""
    task = spec(place, engine=engine, population=20_000, seed=7, **parameters)
    workload = await loaded(context, task)
    driver, connection = connect(engine, place)
    keys = workload.keys(1)
    try:
        counted = [seen(driver, t, keys, ROUNDS, keep=False) for t in workload.transactions]
    finally:
        connection.close()
    expected = shares(workload.parameters)
    for one in counted:
        share = expected[one.name].fresh
        deviation = (share * (1 - share) / ROUNDS) ** 0.5
        assert one.ok / ROUNDS == pytest.approx(share, abs=4.5 * deviation), one
    finding = conform(task.workload, counted)[1]
    assert finding.ok, finding


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_shares_of_success_on_aged_data(engine: str, place: str, context: Any, spec: Any) -> None:
    """With few subscribers, a few thousand inserts and deletes change every slot several times."""
    task = spec(place, engine=engine, population=40, seed=7)
    workload = await loaded(context, task)
    driver, connection = connect(engine, place)
    kinds = {t.name: t for t in workload.transactions}
    keys = workload.keys(1)
    found = 0
    looks = 0
    try:
        for round_number in range(3_000):
            perform(driver, kinds["InsertCallForwarding"], keys, keep=True)
            perform(driver, kinds["DeleteCallForwarding"], keys, keep=True)
            if round_number >= 1_000:
                looks += 1
                found += perform(driver, kinds["GetNewDestination"], keys, keep=True) is Outcome.COMMIT
        exists, active = population_shares(connection)
    finally:
        connection.close()
    expected = shares(workload.parameters)["GetNewDestination"].steady / (0.625 * 0.85) * exists * active
    assert found / looks == pytest.approx(expected, abs=0.045)


def population_shares(connection: Any) -> tuple[float, float]:
    """The shares of the small population, 0.625 and 0.85 in a large one: facilities per slot, and active ones."""
    row = connection.execute("SELECT count(*), sum(is_active) FROM special_facility").fetchone()
    return row[0] / 160, row[1] / row[0]


async def test_updates_change_their_rows_and_failures_change_nothing(
    engine: str, place: str, context: Any, spec: Any
) -> None:
    task = spec(place, engine=engine, population=200, seed=7)
    workload = await loaded(context, task)
    driver, connection = connect(engine, place)
    kinds = {t.name: t for t in workload.transactions}
    counts = "SELECT count(*) FROM call_forwarding"
    try:
        before = connection.execute(counts).fetchone()[0]
        inserted = seen(driver, kinds["InsertCallForwarding"], workload.keys(1), 300, keep=True)
        deleted = seen(driver, kinds["DeleteCallForwarding"], workload.keys(2), 300, keep=True)
        after = connection.execute(counts).fetchone()[0]
        assert after - before == inserted.ok - deleted.ok
        assert 0 < inserted.ok < 300
        assert 0 < deleted.ok < 300
        start = subscribers(connection)
        assert seen(driver, kinds["UpdateLocation"], workload.keys(3), 300, keep=True).ok == 300
        moved = subscribers(connection)
        assert ([bit for _, bit, _ in moved], moved != start) == ([bit for _, bit, _ in start], True)
        seen(driver, kinds["UpdateSubscriberData"], workload.keys(4), 300, keep=True)
        changed = subscribers(connection)
        assert ([place for _, _, place in changed], changed != moved) == ([place for _, _, place in moved], True)
    finally:
        connection.close()


def subscribers(connection: Any) -> list[tuple[int, int, int]]:
    rows = connection.execute("SELECT s_id, bit_1, vlr_location FROM subscriber ORDER BY s_id").fetchall()
    return [tuple(row) for row in rows]

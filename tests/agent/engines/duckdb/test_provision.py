"""A DuckDB system: its file, settings, snapshot, sizes, and who has it open."""

from __future__ import annotations

import importlib.machinery
import subprocess
import sys
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from proveout.agent.engines import handlers
from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.agent.engines.duckdb import driver, sql
from proveout.agent.engines.duckdb.driver import DuckdbDriver, code_of
from proveout.agent.engines.duckdb.populate import DuckdbLoader
from proveout.agent.engines.duckdb.sql import DuckdbQueries, SizeCatalogue
from proveout.agent.errors import TaskFault
from proveout.agent.sandbox import privileges
from proveout.dsl.plan.topology import System
from proveout.dsl.rules.settings import split_dsn
from proveout.dsl.workloads.base import Population, Statement, Table
from proveout.proto.wire.tasks import Endpoint, RunSql, StartSystem

HOLD = """
import duckdb, sys
connection = duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "read")
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _made_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an agent without privileges, and in the helper of one that has some: this process makes the file."""
    monkeypatch.setattr(privileges, "account", lambda: None)


async def start(context: Any, root: Path) -> Any:
    system = System(name="duck", engine="duckdb", host="h", provision="embedded")
    return await handlers.start_system(context, StartSystem(system=system, data_root=str(root)))


async def run(context: Any, endpoint: Endpoint, *statements: str) -> tuple[int, ...]:
    return (await handlers.run_sql(context, RunSql(endpoint=endpoint, statements=statements))).counts


def held(path: str, way: str) -> subprocess.Popen[str]:
    """Another process that has the file open."""
    argv = [sys.executable, "-I", "-c", HOLD, path, way]
    other = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "open\n"
    return other


def test_arguments_do_not_look_for_pandas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB's client would import it twice for each value, and where it is not installed fail each time."""
    if importlib.machinery.PathFinder.find_spec("pandas") is not None:
        pytest.skip("pandas is installed: the import succeeds once")
    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    looked: list[str] = []

    class Watch:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            looked.append(name)

    with driver.open_database(str(tmp_path / "data.duckdb")) as connection:
        monkeypatch.setattr(sys, "meta_path", [Watch(), *sys.meta_path])
        assert connection.execute("SELECT $1 + $2, len($3)", [1, 2, ["a"] * 50]).fetchall() == [(3, 50)]
    assert "pandas" not in looked


async def test_sizes_are_those_of_the_file(task_context: Any, tmp_path: Path) -> None:
    endpoint = (await start(task_context, tmp_path)).endpoint
    texts = (
        "CREATE TABLE plain AS SELECT range AS n, hash(range) AS h, hash(range)::VARCHAR AS w FROM range(200000)",
        "CREATE TABLE constant AS SELECT 7 AS n FROM range(200000)",
        "CREATE SCHEMA s",
        'CREATE TABLE s."a b" (n INTEGER)',
        "CHECKPOINT",
    )
    await run(task_context, endpoint, *texts)
    parts = SizeCatalogue(endpoint).parts()
    assert parts is not None
    sizes = {name: size for name, _, _, size in parts}
    assert set(sizes) == {"plain", "constant", "s.a b"}
    assert sizes["constant"] < 0.1 * sizes["plain"]
    file = Path(split_dsn(endpoint.dsn)[0]).stat().st_size
    assert 0.7 * file < sum(sizes.values()) <= file


async def test_a_load_that_only_reads_leaves_the_file_to_captures(task_context: Any, tmp_path: Path) -> None:
    endpoint = (await start(task_context, tmp_path)).endpoint
    await run(task_context, endpoint, "CREATE TABLE t AS SELECT range AS n FROM range(1000)", "CHECKPOINT")
    dsn = DuckdbDriver().dsn_for_load(endpoint.dsn, [("threads", "1")], changes=False)
    other = held(split_dsn(endpoint.dsn)[0], "read")
    try:
        session = DuckdbDriver().connect(dsn)
        insert = Statement(name="i", text={"duckdb": "INSERT INTO t VALUES (1)"}, arguments=(), reads=False)
        with pytest.raises(StatementFailure, match="read-only"):
            session.execute(session.prepare(insert), ())
        session.close()
        assert SizeCatalogue(endpoint).parts()
        assert DuckdbQueries(endpoint).rows("SELECT n, n * 1.5 AS m FROM t ORDER BY n DESC", 2) == (
            ["n", "m"],
            [(999, Decimal("1498.5")), (998, Decimal("1497.0"))],
        )
        with pytest.raises(TaskFault, match="read-only"):
            DuckdbQueries(endpoint).rows("DELETE FROM t RETURNING n", 1)
    finally:
        other.communicate()


async def test_a_file_that_another_process_writes_to(
    task_context: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = (await start(task_context, tmp_path)).endpoint
    monkeypatch.setattr(driver, "OPEN_S", 0.05)
    monkeypatch.setattr(sql, "READ_WAIT_S", 0.05)
    monkeypatch.setattr(sql, "open_database", lambda dsn, **more: driver.open_database(dsn, wait_s=0.05))
    other = held(split_dsn(endpoint.dsn)[0], "write")
    try:
        with pytest.raises(StatementFailure, match="Conflicting lock") as raised:
            DuckdbDriver().connect(endpoint.dsn)
        assert raised.value.kind is FailureKind.LOST
        with pytest.raises(TaskFault, match="Conflicting lock") as caught:
            await run(task_context, endpoint, "SELECT 1")
        assert "one process at a time" in caught.value.way_out
        assert SizeCatalogue(endpoint).parts() is None
        with pytest.raises(TaskFault, match="Conflicting lock"):
            DuckdbQueries(endpoint).rows("SELECT 1", 1)
    finally:
        other.communicate()
    DuckdbDriver().connect(endpoint.dsn).close()


def test_a_table_of_the_user_is_not_replaced_and_one_of_proveout_is(tmp_path: Path) -> None:
    file = tmp_path / "own.duckdb"
    statements = {"before": "CREATE TABLE item (id int)", "drop": "DROP TABLE IF EXISTS item"}
    population = Population(
        units=1,
        tables=(Table(name="item", columns=(("id", "int4"),), rows=lambda first, count: ()),),
        after={},
        expected={"item": (0, 0)},
        **{step: {"duckdb": (statement,)} for step, statement in statements.items()},
    )

    def change(text: str) -> None:
        with driver.open_database(str(file)) as connection:
            connection.execute(text)

    def loaded(*steps: str) -> None:
        with closing(DuckdbLoader(str(file), population)) as loader:
            for step in steps:
                getattr(loader, step)()

    for kind, made in (
        ("table", "CREATE TABLE Item AS SELECT 7 AS id"),
        ("view", "CREATE VIEW item AS SELECT 1 AS id"),
    ):
        change(made)
        for step in ("prepare", "undo"):
            with pytest.raises(TaskFault, match=f"has a {kind} item that proveout did not make") as caught:
                loaded(step)
            assert caught.value.code == "refused"
        with driver.open_database(str(file)) as connection:
            assert connection.execute("SELECT count(*) FROM item").fetchall() == [(1,)]
        change(f"DROP {kind} item")
    loaded("prepare", "prepare", "undo")
    change("CREATE TABLE item (id int)")


def test_the_codes_of_errors(tmp_path: Path) -> None:
    connection = driver.open_database(f"{tmp_path}/a.duckdb")
    for text in (
        "CREATE TABLE parent (id INTEGER PRIMARY KEY, n INTEGER UNIQUE, m INTEGER NOT NULL CHECK (m > 0))",
        "CREATE TABLE child (id INTEGER REFERENCES parent (id))",
        "INSERT INTO parent VALUES (1, 1, 1)",
        "INSERT INTO child VALUES (1)",
    ):
        connection.execute(text)
    for text, code in (
        ("INSERT INTO parent VALUES (1, 1, 1)", "DUCKDB_PRIMARY_KEY"),
        ("INSERT INTO parent VALUES (2, 1, 1)", "DUCKDB_UNIQUE"),
        ("INSERT INTO parent VALUES (3, 3, -1)", "DUCKDB_CHECK"),
        ("INSERT INTO parent VALUES (3, 3, NULL)", "DUCKDB_NOT_NULL"),
        ("INSERT INTO child VALUES (9)", "DUCKDB_FOREIGN_KEY"),
        ("DELETE FROM parent", "DUCKDB_FOREIGN_KEY"),
        ("SELECT 1::INTEGER + 'x'::INTEGER", "ConversionException"),
    ):
        with pytest.raises(duckdb.Error) as raised:
            connection.execute(text)
        assert code_of(raised.value) == code
    connection.close()


def test_values_come_out_as_numbers_and_text(tmp_path: Path) -> None:
    driver.open_database(f"{tmp_path}/a.duckdb").close()
    session = DuckdbDriver().connect(f"{tmp_path}/a.duckdb")
    text = "SELECT 1.25::DECIMAL(9, 2), DATE '1998-12-01', TIMESTAMP '2020-01-01 10:00:00', sum(7::BIGINT), NULL, true"
    session.execute(session.prepare(Statement(name="s", text={"duckdb": text}, arguments=())), ())
    assert session.rows() == [(1.25, "1998-12-01", "2020-01-01 10:00:00", 7, None, True)]
    several = Statement(name="s", text={"duckdb": "SELECT 1; SELECT 2"}, arguments=())
    with pytest.raises(StatementFailure, match="2 statements"):
        session.prepare(several)
    session.close()

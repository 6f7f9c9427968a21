"""Systems that are files: a user's SQLite file keeps its settings and gets its content back; processes that share a DuckDB
file, its sizes, values and errors; and tables that proveout did not make stay, on both."""

from __future__ import annotations

import errno
import importlib.machinery
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import apsw
import duckdb
import pytest
from embedded_servers import system

from proveout.agent.engines import handlers
from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.agent.engines.duckdb import driver
from proveout.agent.engines.duckdb import sql as duckdb_sql
from proveout.agent.engines.duckdb.driver import DuckdbDriver
from proveout.agent.engines.duckdb.populate import DuckdbLoader
from proveout.agent.engines.duckdb.sql import DuckdbQueries, SizeCatalogue
from proveout.agent.engines.embedded import data_store
from proveout.agent.engines.sqlite import sql
from proveout.agent.engines.sqlite.driver import SqliteDriver
from proveout.agent.engines.sqlite.populate import SqliteLoader, marked
from proveout.agent.engines.table import COMMENT
from proveout.agent.errors import TaskFault
from proveout.agent.sandbox import helper, privileges
from proveout.dsl.plan.topology import System
from proveout.dsl.rules.settings import split_dsn
from proveout.dsl.workloads.base import Population, Statement, Table
from proveout.proto.wire.tasks import Checkpoint, Endpoint, InspectSystem, RunSql, SnapshotSystem, StartSystem


@pytest.fixture(autouse=True)
def _made_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an agent without privileges, and in the helper of one that has some: this process makes the files."""
    monkeypatch.setattr(privileges, "account", lambda: None)


async def start(context: Any, root: Path, engine: str) -> Endpoint:
    spec = StartSystem(system=system(engine), data_root=str(root))
    return (await handlers.start_system(context, spec)).endpoint


def change(path: Path, statements: str) -> list[Any]:
    """Run them, with the library that the engine uses: locks of two libraries in a process do not meet."""
    connection: Any = driver.open_database(str(path)) if path.suffix == ".duckdb" else apsw.Connection(str(path))
    with closing(connection):
        return list(connection.execute(statements).fetchall())


def endpoint(file: Path | str) -> Endpoint:
    return Endpoint(system="db", engine="sqlite", dsn=str(file))


def population(table: str, made_of: str = "(id int)") -> Population:
    made = (f"create  table if not exists {table} {made_of}",)
    dropped = (f"DROP TABLE IF EXISTS {table}",)
    return Population(
        units=1,
        tables=(Table(name=table, columns=(("id", "int4"),), rows=lambda first, count: ()),),
        before=dict.fromkeys(("sqlite", "duckdb"), made),
        after={},
        drop=dict.fromkeys(("sqlite", "duckdb"), dropped),
        expected={table: (0, 0)},
    )


# ---- a user's SQLite file --------------------------------------------------------------------------------------------


@pytest.fixture(params=["delete", "wal"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute(f"PRAGMA journal_mode = {request.param}")
        connection.execute("PRAGMA user_version = 7")
        connection.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)")
        with connection:  # one transaction, thus one wait for the disk
            connection.executemany("INSERT INTO item VALUES (?, ?)", ((i, "n" * (i % 90)) for i in range(1000)))
        connection.execute("CREATE INDEX item_name ON item (name)")
    return path


def dump(path: Path) -> list[object]:
    """Settings, objects and rows. By the library that the engine uses: locks of two libraries in a process do not meet."""
    with closing(apsw.Connection(str(path))) as connection:
        found: list[object] = [connection.pragma("journal_mode"), connection.pragma("user_version")]
        for kind, name, text in list(connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY 1, 2")):
            found.append((kind, name, text))
            found += connection.execute(f"SELECT * FROM {name}").fetchall() if kind == "table" else []
        return found


CHECKPOINTS = """
import fcntl, sys
with open(sys.argv[1], "r+b") as shared:
    fcntl.lockf(shared, fcntl.LOCK_EX, 1, 121)  # SQLite's lock of the one that writes the log back
    sys.stdout.write(".")
    sys.stdout.flush()
    sys.stdin.read()
"""


def test_a_restore_brings_the_content_back_and_keeps_the_file(file: Path, tmp_path: Path) -> None:
    status, copy = file.stat(), tmp_path / "copy"
    with closing(apsw.Connection(str(file))) as other:
        other.execute("INSERT INTO item VALUES (1000, 'in the log only, where there is one')")
        before = dump(file)
        sql.copy_file(file, copy)
        assert dump(copy) == dump(file) == before
        change(file, "DELETE FROM item WHERE id % 3 = 0; DROP INDEX item_name; CREATE TABLE made (n); VACUUM")
        assert other.execute("SELECT count(*) FROM made").fetchall() == [(0,)]
        sql.restore_file(file, copy)
        assert other.execute("SELECT count(*) FROM item").fetchall() == [(1001,)], "an open connection sees it too"
    assert dump(file) == before
    assert (file.stat().st_ino, file.stat().st_mode) == (status.st_ino, status.st_mode)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "shop.db"]
    assert change(file, "PRAGMA integrity_check") == [("ok",)]


def test_a_file_is_restored_while_another_program_writes_its_log_back(tmp_path: Path) -> None:
    path, copy = tmp_path / "x.db", tmp_path / "copy"
    change(path, "PRAGMA journal_mode = wal; CREATE TABLE t (a)")
    sql.copy_file(path, copy)
    before = dump(path)
    with closing(apsw.Connection(str(path))) as other:
        other.execute("INSERT INTO t VALUES (1)")
        command = [sys.executable, "-S", "-c", CHECKPOINTS, f"{path}-shm"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
            assert program.stdin is not None and program.stdout is not None
            assert program.stdout.read(1)
            sql.restore_file(path, copy)
            program.stdin.close()
    assert dump(path) == before


def test_a_locked_file_is_neither_copied_nor_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "BUSY_MS", 50)
    path, copy = tmp_path / "x.db", tmp_path / "copy"
    change(path, "CREATE TABLE t (a)")
    sql.copy_file(path, copy)
    with closing(apsw.Connection(str(path))) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(TaskFault, match="locked"):
            sql.restore_file(path, copy)
        with pytest.raises(TaskFault, match="locked"):
            sql.copy_file(path, copy)
        other.execute("ROLLBACK")
    assert dump(copy) == dump(path), "the copy of before is whole"


async def test_an_embedded_file_in_use_is_neither_replaced_nor_said_to_be_written_out(
    task_context: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "BUSY_MS", 50)
    path = Path((await start(task_context, tmp_path, "sqlite")).dsn)
    change(path, "CREATE TABLE t (n); INSERT INTO t VALUES (1)")
    with closing(apsw.Connection(str(path))) as reader:
        reader.execute("BEGIN").execute("SELECT * FROM t").fetchall()
        change(path, "INSERT INTO t VALUES (2)")
        spec = SnapshotSystem(system=system("sqlite"), data_root=str(tmp_path), action="save")
        with pytest.raises(TaskFault, match="still in use"):
            await handlers.snapshot_system(task_context, spec)
        with pytest.raises(TaskFault, match="still in use"):
            await handlers.checkpoint(task_context, Checkpoint(endpoint=endpoint(path)))


async def test_a_snapshot_without_room_leaves_the_file_its_own(
    task_context: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Path, half: Path) -> None:
        half.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    path = Path((await start(task_context, tmp_path, "sqlite")).dsn)
    spec = SnapshotSystem(system=system("sqlite"), data_root=str(tmp_path), action="save")
    await handlers.snapshot_system(task_context, spec)
    monkeypatch.setattr(shutil, "copyfile", full)
    for action in ("save", "restore"):
        with pytest.raises(OSError, match="No space left"):
            await handlers.snapshot_system(task_context, replace(spec, action=action))
    assert sorted(file.name for file in path.parent.iterdir()) == ["data.sqlite", "snapshot.sqlite"]


def test_the_rows_of_triggers_are_not_those_of_a_statement(tmp_path: Path) -> None:
    change(path := tmp_path / "x.db", "CREATE TABLE t (n); CREATE TABLE log (n); INSERT INTO t VALUES (1), (2), (3)")
    change(path, "CREATE TRIGGER noted AFTER DELETE ON t BEGIN INSERT INTO log VALUES (OLD.n); END")
    texts = ("DELETE FROM t WHERE n < 3", "CREATE TABLE u (n)", "SELECT * FROM log", "DELETE FROM t WHERE n = 9")
    assert sql.run_statements(endpoint(path), texts) == (2, 0, 2, 0)


async def test_a_file_whose_making_was_cut_short_is_made_again(
    task_context: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for a system that had been started before, and had another journal_mode."""
    spec = StartSystem(system=system("sqlite", ("page_size", "8192")), data_root=str(tmp_path))

    def cut(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sql, "_check_taken", cut)
        with pytest.raises(KeyboardInterrupt):
            sql.EmbeddedSqlite(spec.system, tmp_path)._start()
    folder = data_store.home(tmp_path, spec.system.name)
    with closing(sqlite3.connect(tmp_path / "gone.db")) as gone:
        gone.executescript(
            "PRAGMA page_size = 8192; PRAGMA journal_mode = wal; CREATE TABLE of_a_file_that_is_gone (n)"
        )
        shutil.copyfile(tmp_path / "gone.db-wal", folder / "data.sqlite-wal")
    started = await handlers.start_system(task_context, spec)
    assert started.fresh
    assert change(Path(started.endpoint.dsn), "SELECT * FROM pragma_journal_mode, pragma_page_size") == [("wal", 8192)]
    assert change(Path(started.endpoint.dsn), "SELECT * FROM sqlite_schema") == []
    assert [file.name for file in Path(started.endpoint.dsn).parent.iterdir()] == ["data.sqlite"]


def test_connections_leave_the_settings_of_the_file(file: Path) -> None:
    before = dump(file)
    session = SqliteDriver().connect(str(file))
    session.close()
    sql.run_statements(endpoint(file), ("SELECT count(*) FROM item",))
    sql.checkpoint_file(endpoint(file))
    with closing(SqliteLoader(str(file), population("stock"))) as loader:
        loader.prepare()
        loader.settle()
        loader.undo()
    assert dump(file) == before


@pytest.mark.parametrize("way", ["driver", "statements", "loader", "sizes"])
def test_no_connection_makes_a_file(way: str, tmp_path: Path) -> None:
    path = str(tmp_path / "gone.db")
    ways: dict[str, Any] = {
        "driver": lambda: SqliteDriver().connect(path),
        "statements": lambda: sql.run_statements(endpoint(path), ("SELECT 1",)),
        "loader": lambda: SqliteLoader(path, population("item")),
        "sizes": lambda: sql.file_settings(endpoint(path)),
    }
    with pytest.raises(Exception, match="unable to open database file"):
        ways[way]()
    assert not list(tmp_path.iterdir())


def found(path: Path, *, changes: bool = True) -> list[tuple[str, bool]]:
    return [(one.message.removeprefix(f"{path} "), one.warns) for one in sql.problems(path, changes=changes)]


async def test_texts_of_a_file_that_are_not_utf8(task_context: Any, tmp_path: Path) -> None:
    path, query = tmp_path / "x.db", "SELECT a FROM t"
    change(path, "CREATE TABLE t (a); INSERT INTO t VALUES (CAST(x'e9' AS TEXT))")
    with closing(SqliteDriver().connect(str(path))) as session:
        prepared = session.prepare(Statement(name="find", text={"sqlite": query}, arguments=(), columns=(str,)))
        with pytest.raises(StatementFailure, match="find: 'utf-8' codec") as failed:
            session.execute(prepared, ())
    assert failed.value.kind is FailureKind.ERROR
    endpoint = Endpoint(system="db", engine="sqlite", dsn=str(path))
    with closing(sql.SqliteQueries(endpoint)) as queries, pytest.raises(TaskFault, match="'utf-8' codec"):
        queries.rows(query, 1)
    change(path, "PRAGMA writable_schema = 1; UPDATE sqlite_schema SET sql = sql || CAST(x'202d2de9' AS TEXT)")
    assert (await handlers.inspect_system(task_context, InspectSystem(endpoint=endpoint, schema=True))).schema == ()
    assert "no tables and indexes of it" in task_context.logs[0][1]


def test_problems_of_a_file_are_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "LOOK_BUSY_MS", 50)
    mode = dump(file)[0]
    slow = f"has journal_mode {mode}, which stays: a transaction that writes locks all others out"
    assert found(file) == ([] if mode == "wal" else [(slow, True)])
    assert found(file, changes=False) == []
    with closing(apsw.Connection(str(file))) as other:
        other.execute("BEGIN IMMEDIATE")
        assert found(file) == [("is locked by another program", False)]
        assert found(file, changes=False) == [], "readers are not kept out"
        other.execute("ROLLBACK")
    file.write_bytes(b"not a database " * 100)
    assert found(file) == [("is not an SQLite database", False)]


async def test_an_agent_keeps_the_first_copy_and_restores_the_last(
    file: Path, tmp_path: Path, task_context: Any
) -> None:
    root, of_user = tmp_path / "systems", System(name="shop", engine="sqlite", host="h", dsn=str(file))

    async def snapshot(action: Any) -> None:
        await helper.snapshot(task_context, SnapshotSystem(system=of_user, data_root=str(root), action=action))

    with pytest.raises(TaskFault, match="has not copied"):
        await snapshot("restore")
    before = dump(file)
    await snapshot("keep")
    change(file, "DELETE FROM item")
    await snapshot("keep")
    await snapshot("restore")
    assert dump(file) == before
    change(file, "DELETE FROM item WHERE id > 5")
    await snapshot("save")
    change(file, "DELETE FROM item")
    await snapshot("restore")
    assert sum(isinstance(row, tuple) and isinstance(row[0], int) for row in dump(file)) == 6
    (copy,) = root.rglob("*.copy")
    assert copy.parent.stat().st_mode & 0o077 == 0


# ---- tables of a user, on both engines -------------------------------------------------------------------------------


@pytest.mark.parametrize(("suffix", "loads"), [(".db", SqliteLoader), (".duckdb", DuckdbLoader)])
def test_a_table_of_the_user_is_not_replaced_and_one_of_proveout_is(suffix: str, loads: Any, tmp_path: Path) -> None:
    file = tmp_path / f"own{suffix}"

    def steps(*names: str, made_of: str = "(id int)") -> None:
        with closing(loads(str(file), population("item", made_of))) as loader:
            for name in names:
                getattr(loader, name)()

    change(file, "CREATE TABLE kept AS SELECT 9 AS n")
    for kind, made in (
        ("table", "CREATE TABLE Item AS SELECT 7 AS id"),
        ("view", "CREATE VIEW ITEM AS SELECT 1 AS id"),
    ):
        change(file, made)
        for step in ("prepare", "undo"):
            with pytest.raises(TaskFault, match=f"has a {kind} item that proveout did not make") as caught:
                steps(step)
            assert caught.value.code == "refused"
        assert change(file, "SELECT count(*) FROM item") == [(1,)]
        change(file, f"DROP {kind} item")
    steps("prepare", "prepare", made_of="AS SELECT 7 AS id")
    assert change(file, "SELECT id FROM item") == [(7,)]
    steps("prepare", "prepare")
    change(file, "ALTER TABLE item ADD COLUMN note TEXT; VACUUM")
    steps("prepare", "undo")
    assert change(file, "SELECT name FROM sqlite_master") == [("kept",)]
    assert change(file, "SELECT n FROM kept") == [(9,)]


def test_only_the_tables_of_the_population_are_marked() -> None:
    assert marked('CREATE TABLE "Item" (id int)', {"item"}) == f'CREATE TABLE "Item" /* {COMMENT} */ (id int)'
    assert marked("CREATE TABLE item_log (id int)", {"item"}) == "CREATE TABLE item_log (id int)"
    begun = "-- of the lab\n/* CREATE TABLE x */ create Table if not exists main.item"
    assert marked(f"{begun}(id int)", {"item"}) == f"{begun} /* {COMMENT} */(id int)"
    for other in ("CREATE TABLE", "CREATE INDEX item ON x (id)", "-- nothing"):
        assert marked(other, {"item"}) == other
    assert marked("CREATE INDEX i ON item (id)", {"item"}) == "CREATE INDEX i ON item (id)"


# ---- DuckDB ----------------------------------------------------------------------------------------------------------


def test_a_table_in_another_schema_is_not_in_the_way_of_a_load(tmp_path: Path) -> None:
    file = tmp_path / "own.duckdb"
    change(file, "CREATE SCHEMA archive")
    change(file, "CREATE TABLE archive.item AS SELECT 7 AS id")
    with closing(DuckdbLoader(str(file), population("item"))) as loader:
        assert not loader.table_exists("item")
        loader.prepare()
        loader.undo()
    assert change(file, "SELECT id FROM archive.item") == [(7,)]


HOLD = """
import duckdb, sys
connection = duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "read")
print("open", flush=True)
sys.stdin.read()
"""


@contextmanager
def held(dsn: str, way: str) -> Iterator[None]:
    """Another process has the file open."""
    argv = [sys.executable, "-I", "-c", HOLD, split_dsn(dsn)[0], way]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        yield
        other.communicate()


async def run(context: Any, endpoint: Endpoint, *statements: str) -> tuple[int, ...]:
    return (await handlers.run_sql(context, RunSql(endpoint=endpoint, statements=statements))).counts


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
    endpoint = await start(task_context, tmp_path, "duckdb")
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
    endpoint = await start(task_context, tmp_path, "duckdb")
    await run(task_context, endpoint, "CREATE TABLE t AS SELECT range AS n FROM range(1000)", "CHECKPOINT")
    dsn = DuckdbDriver().dsn_for_load(endpoint.dsn, [("threads", "1")], changes=False)
    with held(dsn, "read"):
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


async def test_a_file_that_another_process_writes_to(
    task_context: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = await start(task_context, tmp_path, "duckdb")
    monkeypatch.setattr(driver, "OPEN_S", 0.05)
    monkeypatch.setattr(duckdb_sql, "READ_WAIT_S", 0.05)
    monkeypatch.setattr(duckdb_sql, "open_database", lambda dsn, **more: driver.open_database(dsn, wait_s=0.05))
    with held(endpoint.dsn, "write"):
        with pytest.raises(StatementFailure, match="Conflicting lock") as raised:
            DuckdbDriver().connect(endpoint.dsn)
        assert raised.value.kind is FailureKind.LOST
        with pytest.raises(TaskFault, match="Conflicting lock") as caught:
            await run(task_context, endpoint, "SELECT 1")
        assert "one process at a time" in caught.value.way_out
        assert SizeCatalogue(endpoint).parts() is None
        with pytest.raises(TaskFault, match="Conflicting lock"):
            DuckdbQueries(endpoint).rows("SELECT 1", 1)
    DuckdbDriver().connect(endpoint.dsn).close()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("INSERT INTO parent VALUES (1, 1, 1)", "DUCKDB_PRIMARY_KEY"),
        ("INSERT INTO parent VALUES (2, 1, 1)", "DUCKDB_UNIQUE"),
        ("INSERT INTO parent VALUES (3, 3, -1)", "DUCKDB_CHECK"),
        ("INSERT INTO parent VALUES (3, 3, NULL)", "DUCKDB_NOT_NULL"),
        ("INSERT INTO child VALUES (9)", "DUCKDB_FOREIGN_KEY"),
        ("DELETE FROM parent", "DUCKDB_FOREIGN_KEY"),
        ("SELECT 1::INTEGER + 'x'::INTEGER", "ConversionException"),
    ],
)
def test_the_codes_of_errors(text: str, code: str, tmp_path: Path) -> None:
    with driver.open_database(f"{tmp_path}/a.duckdb") as connection:
        connection.execute(
            "CREATE TABLE parent (id INTEGER PRIMARY KEY, n INTEGER UNIQUE, m INTEGER NOT NULL CHECK (m > 0));"
            "CREATE TABLE child (id INTEGER REFERENCES parent (id));"
            "INSERT INTO parent VALUES (1, 1, 1); INSERT INTO child VALUES (1)"
        )
        with pytest.raises(duckdb.Error) as raised:
            connection.execute(text)
    assert driver.code_of(raised.value) == code


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

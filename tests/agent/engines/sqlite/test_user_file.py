"""A user's SQLite file: it keeps its settings, its tables are not replaced, and a restore brings its content back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from proveout.agent.engines import handlers
from proveout.agent.engines.sqlite import sql
from proveout.agent.engines.sqlite.driver import SqliteDriver
from proveout.agent.engines.sqlite.populate import COMMENT, SqliteLoader, marked
from proveout.agent.errors import TaskFault
from proveout.agent.sandbox import helper
from proveout.dsl.plan.topology import System
from proveout.dsl.workloads.base import Population, Table
from proveout.proto.wire.tasks import Endpoint, SnapshotSystem, StartSystem


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


def change(path: Path, statements: str) -> None:
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute(statements)


def test_a_restore_brings_the_content_back_and_keeps_the_file(file: Path, tmp_path: Path) -> None:
    before, mode, copy = dump(file), file.stat().st_mode, tmp_path / "copy"
    number = file.stat().st_ino
    sql.copy_file(file, copy)
    assert dump(file) == before
    change(file, "DELETE FROM item WHERE id % 3 = 0; DROP INDEX item_name; CREATE TABLE made (n); VACUUM")
    with closing(apsw.Connection(str(file))) as other:
        assert other.execute("SELECT count(*) FROM made").fetchall() == [(0,)]
        sql.restore_file(file, copy)
        assert other.execute("SELECT count(*) FROM item").fetchall() == [(1000,)], "an open connection sees it too"
    assert dump(file) == before
    assert (file.stat().st_ino, file.stat().st_mode) == (number, mode)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "shop.db"]
    with closing(apsw.Connection(str(file))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_rows_that_are_only_in_the_log_are_copied(tmp_path: Path) -> None:
    path, copy = tmp_path / "x.db", tmp_path / "copy"
    with closing(apsw.Connection(str(path))) as open_one:
        open_one.execute("PRAGMA journal_mode = wal; CREATE TABLE t (a); INSERT INTO t VALUES (1)")
        sql.copy_file(path, copy)
        assert dump(copy) == dump(path)


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


async def test_an_embedded_file_in_use_is_not_replaced(
    task_context: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helper.privileges, "account", lambda: None)
    monkeypatch.setattr("proveout.agent.engines.sqlite.sql.BUSY_MS", 50)
    system = System(name="lite", engine="sqlite", host="h", provision="embedded")
    started = await handlers.start_system(task_context, StartSystem(system=system, data_root=str(tmp_path)))
    path = Path(started.endpoint.dsn)
    change(path, "CREATE TABLE t (n); INSERT INTO t VALUES (1)")
    with closing(apsw.Connection(str(path))) as reader:
        reader.execute("BEGIN").execute("SELECT * FROM t").fetchall()
        change(path, "INSERT INTO t VALUES (2)")
        spec = SnapshotSystem(system=system, data_root=str(tmp_path), action="save")
        with pytest.raises(TaskFault, match="still in use"):
            await handlers.snapshot_system(task_context, spec)


def endpoint(file: Path | str) -> Endpoint:
    return Endpoint(system="db", engine="sqlite", dsn=str(file))


def test_connections_leave_the_settings_of_the_file(file: Path) -> None:
    before = dump(file)
    session = SqliteDriver().connect(str(file))
    session.close()
    sql.run_statements(endpoint(file), ("SELECT count(*) FROM item",))
    sql.checkpoint_file(endpoint(file))
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


# ---- populate ----------------------------------------------------------------------------------------------------------


def population(table: str) -> Population:
    return Population(
        units=1,
        tables=(Table(name=table, columns=(("id", "int4"),), rows=lambda first, count: ()),),
        before={"sqlite": (f"create  table if not exists {table} (id int)",)},
        after={},
        drop={"sqlite": (f"DROP TABLE IF EXISTS {table}",)},
        expected={table: (0, 0)},
    )


@pytest.fixture
def loader(file: Path) -> Iterator[SqliteLoader]:
    one = SqliteLoader(str(file), population("item"))
    yield one
    one.close()


def test_a_table_of_the_user_is_not_replaced(file: Path, loader: SqliteLoader) -> None:
    before = dump(file)
    for step in (loader.prepare, loader.undo):
        with pytest.raises(TaskFault, match="has a table item that proveout did not make") as caught:
            step()
        assert caught.value.code == "refused"
    assert dump(file) == before
    change(file, "DROP TABLE item; CREATE VIEW ITEM AS SELECT 1 AS id")
    with pytest.raises(TaskFault, match="has a view item"):
        loader.prepare()


def test_a_table_that_proveout_made_is_replaced_and_removed(file: Path) -> None:
    before = dump(file)
    loader = SqliteLoader(str(file), population("stock"))
    for _ in range(2):
        loader.prepare()
    change(file, "ALTER TABLE stock ADD COLUMN note TEXT; VACUUM")
    loader.prepare()
    assert any(COMMENT in str(line) for line in dump(file))
    loader.undo()
    loader.close()
    assert dump(file) == before


def test_only_the_tables_of_the_population_are_marked() -> None:
    assert marked('CREATE TABLE "Item" (id int)', {"item"}) == f'CREATE TABLE "Item" /* {COMMENT} */ (id int)'
    assert marked("CREATE TABLE item_log (id int)", {"item"}) == "CREATE TABLE item_log (id int)"
    assert marked("CREATE INDEX i ON item (id)", {"item"}) == "CREATE INDEX i ON item (id)"


# ---- copies of an agent ------------------------------------------------------------------------------------------------


async def test_an_agent_keeps_the_first_copy_and_restores_the_last(
    file: Path, tmp_path: Path, task_context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helper.privileges, "account", lambda: None)
    system = System(name="shop", engine="sqlite", host="h", dsn=str(file))
    root = str(tmp_path / "systems")

    async def snapshot(action: Any) -> None:
        await helper.snapshot(task_context, SnapshotSystem(system=system, data_root=root, action=action))

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
    with closing(apsw.Connection(str(file))) as connection:
        assert connection.execute("SELECT count(*) FROM item").fetchall() == [(6,)]
    copies = list(Path(root).rglob("*.copy"))
    assert len(copies) == 1
    assert copies[0].parent.stat().st_mode & 0o077 == 0

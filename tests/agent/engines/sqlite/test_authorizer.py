"""SQL of a plan reaches only its own SQLite file: every escape on one connection; every code path that opens such a
file has the same authorizer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from sqlite_escapes import ESCAPES, SqliteEscape

from proveout.agent.engines.driver_contract import StatementFailure
from proveout.agent.engines.sqlite import sql
from proveout.agent.engines.sqlite.driver import DENIED_HINT, SWITCHES, SqliteDriver, open_database
from proveout.agent.engines.sqlite.populate import SqliteLoader
from proveout.agent.engines.sqlite.sql import SizeCatalogue
from proveout.agent.errors import TaskFault
from proveout.dsl.workloads.base import Population, Statement
from proveout.proto.wire.tasks import Endpoint

CANARY = "CANARY"
Connect = Callable[[str], apsw.Connection]


PATHS: dict[str, Connect] = {
    "transactions": lambda path: SqliteDriver().connect(path)._connection,
    "populate": lambda path: (
        SqliteLoader(path, Population(units=0, tables=(), before={}, after={}, drop={}, expected={}))._connection
    ),
    "sql stages, checkpoints, snapshots, settings": sql.open_file,
    "the capture of sizes": lambda path: SizeCatalogue(Endpoint(system="lite", engine="sqlite", dsn=path))._connection,
}


@pytest.fixture
def path(tmp_path: Path) -> str:
    return made(tmp_path / "own" / "a.db", "one")


def made(path: Path, word: str) -> str:
    path.parent.mkdir()
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, word TEXT)")
    connection.execute("INSERT INTO item VALUES (1, ?)", (word,))
    connection.close()
    return str(path)


def tried(connection: apsw.Connection, escape: SqliteEscape, folder: Path) -> str:
    """Run the escape; describe its effect, "" for none."""
    secret = made(folder / "other" / "secret.db", CANARY)
    outside = folder / "outside"
    names = {"outside": outside, "secret": secret, "folder": folder}
    rows: list[object] = []
    for text in escape.statements:
        with contextlib.suppress(apsw.Error):
            rows += connection.execute(text.format(**names)).fetchall()
    if CANARY in repr(rows):
        return "read another file"
    if outside.exists():
        return "wrote a file"
    if escape.after:
        try:
            answer = connection.execute(escape.after).get
        except apsw.AuthError:  # this query is denied as well
            return ""
        except apsw.Error:
            answer = "error"
        expected = escape.broken.format(**names) if isinstance(escape.broken, str) else escape.broken
        if escape.broken is not None and answer == expected:
            return f"changed what it must not: {answer}"
    return ""


@pytest.mark.escape
@pytest.mark.parametrize("escape", ESCAPES, ids=lambda escape: escape.name)
def test_an_escape_reaches_nothing(escape: SqliteEscape, path: str, tmp_path: Path) -> None:
    connection = open_database(path)
    try:
        assert tried(connection, escape, tmp_path) == ""
    finally:
        connection.close(True)


@pytest.mark.parametrize("connect", PATHS.values(), ids=PATHS)
def test_every_path_installs_the_same_authorizer(connect: Connect, path: str) -> None:
    connection, expected = connect(path), open_database(path)
    assert expected.authorizer is not None
    assert connection.authorizer == expected.authorizer
    assert [connection.config(switch, -1) for switch, _ in SWITCHES] == [value for _, value in SWITCHES]
    connection.close(True)
    expected.close(True)


def test_without_the_authorizer_the_escapes_succeed(path: str, tmp_path: Path) -> None:
    """Check of the corpus: on a plain connection many of them succeed."""
    reached = 0
    for number, escape in enumerate(ESCAPES):
        folder = tmp_path / str(number)
        folder.mkdir()
        connection = apsw.Connection(made(folder / "own" / "a.db", "one"))
        reached += tried(connection, escape, folder) != ""
        connection.close(True)
    assert reached >= 9


@pytest.mark.parametrize(
    "text",
    [
        "VACUUM",
        "CREATE INDEX by_word ON item (word)",
        "CREATE TABLE more (a, b DEFAULT (random()))",
        "CREATE TEMP TABLE t AS SELECT * FROM item",
        "CREATE VIRTUAL TABLE f USING fts5(a)",
        "CREATE VIRTUAL TABLE r USING rtree(id, a, b)",
        "ATTACH ':memory:' AS memory",
        "PRAGMA cache_size = -4000",
        "PRAGMA wal_checkpoint(TRUNCATE)",
        "SELECT * FROM pragma_table_info('item')",
        "ANALYZE",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9) SELECT sum(i) FROM n",
        "SELECT json_extract('{\"a\": 1}', '$.a')",
    ],
)
def test_ordinary_statements_work(text: str, path: str) -> None:
    connection = open_database(path)
    connection.execute(text).fetchall()
    connection.close(True)


def test_the_error_of_a_denied_statement_names_the_restriction(path: str, tmp_path: Path) -> None:
    attach = f"ATTACH '{tmp_path}/x' AS other"
    with pytest.raises(TaskFault, match="not authorized") as caught:
        sql.run_statements(Endpoint(system="db", engine="sqlite", dsn=path), (attach,))
    assert (caught.value.code, caught.value.way_out) == ("refused", DENIED_HINT)
    with pytest.raises(StatementFailure, match="VACUUM INTO"):
        SqliteDriver().connect(path).prepare(Statement(name="s", text={"sqlite": attach}, arguments=(), reads=False))


def test_a_uri_is_not_a_path(tmp_path: Path) -> None:
    with pytest.raises(apsw.CantOpenError, match="not a file: URI"):
        open_database(f"file:{tmp_path}/a.db?mode=rwc")


def test_only_the_authorizer_module_opens_sqlite_files() -> None:
    """Every `apsw.Connection(` of the sources is in the module of the authorizer."""
    agent = Path(__file__).parents[4] / "agent"
    found = {file.name for file in agent.rglob("*.py") if "apsw.Connection(" in file.read_text()}
    assert found == {"driver.py"}

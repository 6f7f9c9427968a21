"""SQL of a plan stays in the SQLite or DuckDB file that it is for: every escape of `escapes` on one connection; every path
that opens such a file has the same confinement (ADR 58)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import duckdb
import pytest
import thorough
from escapes import CANARY, DUCKDB, SQLITE, Escape

from proveout.agent.engines.driver_contract import StatementFailure
from proveout.agent.engines.duckdb import driver as confined_duckdb
from proveout.agent.engines.duckdb.populate import DuckdbLoader
from proveout.agent.engines.duckdb.sql import run_statements as run_on_duckdb
from proveout.agent.engines.sqlite import driver as confined_sqlite
from proveout.agent.engines.sqlite import sql as sqlite_sql
from proveout.agent.engines.sqlite.populate import SqliteLoader
from proveout.agent.errors import TaskFault
from proveout.dsl.workloads.base import Population, Statement
from proveout.proto.wire.tasks import Endpoint

NONE = Population(units=0, tables=(), before={}, after={}, drop={}, expected={})
TRIES = """
import json, os, signal, sys
import apsw, duckdb, pyarrow
from proveout.agent.engines.duckdb.driver import open_database as confined_duckdb
from proveout.agent.engines.sqlite.driver import open_database as confined_sqlite
OPEN = {"duckdb": (duckdb.connect, confined_duckdb), "sqlite": (apsw.Connection, confined_sqlite)}
canary = pyarrow.table({"word": [os.environ["THE_WORD"]]})
def tried(engine, confined, path, statements, home):
    os.environ["HOME"] = home
    connection = OPEN[engine][confined](path)
    for statement in statements:
        try:
            print(connection.execute(statement).fetchall(), flush=True)
        except (apsw.Error, duckdb.Error) as error:
            print(error, file=sys.stderr, flush=True)
    connection.close()
for line in sys.stdin:
    output, *arguments = json.loads(line)
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        for number, name in ((1, output), (2, f"{output}.err")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), number)
        tried(*arguments)
        os._exit(0)
    print(os.waitpid(pid, 0)[1], flush=True)
"""
"""Tries each escape in a process of its own, because logging to a file aborts it (DuckDB 1.5.5); forked before DuckDB
has any thread, because importing takes half a second."""


class Tries(NamedTuple):
    """The process that tries escapes, and a folder with a database of each engine for each word."""

    process: subprocess.Popen[str]
    databases: Path


def made(engine: str, path: Path, word: str = "one") -> str:
    """A file with the table of the escapes."""
    connection: Any = apsw.Connection(str(path)) if engine == "sqlite" else duckdb.connect(path)
    connection.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, word VARCHAR)")
    connection.execute("INSERT INTO item VALUES (1, ?)", [word])
    connection.close()
    return str(path)


@pytest.fixture(scope="module")
def tries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tries]:
    folder, pipe = tmp_path_factory.mktemp("databases"), subprocess.PIPE
    for engine in ("sqlite", "duckdb"):
        for word in ("one", CANARY):
            made(engine, folder / f"{engine} {word}", word)
    argv = [sys.executable, "-I", "-c", TRIES]
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True, env={"THE_WORD": CANARY}) as process:
        yield Tries(process, folder)
        assert process.stdin is not None
        process.stdin.close()


def reached(tries: Tries, escape: Escape, folder: Path, *, confined: bool) -> bool:
    """Whether the escape has written a file, or read what it must not."""
    secret, outside, home, output = (folder / name for name in ("secret.csv", "outside", "elsewhere", "output"))
    own, other = folder / "own" / f"a.{escape.engine}", folder / "other" / f"other.{escape.engine}"
    for path, word in ((own, "one"), (other, CANARY)):
        path.parent.mkdir(parents=True)
        shutil.copy(tries.databases / f"{escape.engine} {word}", path)
    secret.write_text(f"{CANARY}\n")
    statements = escape.filled({"secret": secret, "outside": outside, "folder": folder, "database": other})
    process = tries.process
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps([str(output), escape.engine, confined, str(own), statements, str(home)]) + "\n")
    process.stdin.flush()
    status = int(process.stdout.readline())
    assert not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM), "it took longer than a minute"
    rows, errors = output.read_text(), output.with_suffix(".err").read_text()
    assert "Traceback" not in errors, errors
    return CANARY in rows + errors or str(secret) in rows or outside.exists() or home.exists()


@pytest.mark.escape
@pytest.mark.parametrize("escape", (*SQLITE, *DUCKDB), ids=lambda escape: escape.name)
def test_an_escape_reaches_nothing(tries: Tries, escape: Escape, tmp_path: Path) -> None:
    assert not reached(tries, escape, tmp_path, confined=True)


@pytest.mark.thorough
@pytest.mark.parametrize(("corpus", "step"), [(SQLITE, 1), (DUCKDB, 3)], ids=["sqlite", "duckdb"])
def test_without_the_confinement_escapes_work(
    tries: Tries, corpus: tuple[Escape, ...], step: int, tmp_path: Path
) -> None:
    """The corpus can fail: on a plain connection much of it reaches something."""
    tried = thorough.every(step, corpus)
    worked = [
        one.name for number, one in enumerate(tried) if reached(tries, one, tmp_path / f"{number}", confined=False)
    ]
    assert len(worked) >= 0.39 * len(tried), worked


SQLITE_PATHS: dict[str, Callable[[str], apsw.Connection]] = {
    "transactions": lambda path: confined_sqlite.SqliteDriver().connect(path)._connection,
    "populate": lambda path: SqliteLoader(path, NONE)._connection,
    "sql stages, checkpoints, snapshots, settings": sqlite_sql.open_file,
    "the capture of sizes": lambda path: (
        sqlite_sql.SizeCatalogue(Endpoint(system="db", engine="sqlite", dsn=path))._connection
    ),
}
DUCKDB_PATHS: dict[str, Callable[[str], duckdb.DuckDBPyConnection]] = {
    "transactions": lambda dsn: confined_duckdb.DuckdbDriver().connect(dsn)._connection,
    "populate": lambda dsn: DuckdbLoader(dsn, NONE)._connection,
    "sql stages, settings, checkpoints, captures": confined_duckdb.open_database,
}


@pytest.mark.parametrize("connect", SQLITE_PATHS.values(), ids=SQLITE_PATHS)
def test_every_path_to_an_sqlite_file_has_the_authorizer_and_the_switches(
    connect: Callable[[str], apsw.Connection], tmp_path: Path
) -> None:
    connection = connect(made("sqlite", tmp_path / "a.db"))
    assert connection.authorizer == confined_sqlite.authorize
    switches = confined_sqlite.SWITCHES
    assert [connection.config(switch, -1) for switch, _ in switches] == [value for _, value in switches]
    connection.close(True)


@pytest.mark.parametrize("connect", DUCKDB_PATHS.values(), ids=DUCKDB_PATHS)
def test_every_path_to_a_duckdb_file_has_the_settings_of_the_confinement_and_of_the_dsn(
    connect: Callable[[str], duckdb.DuckDBPyConnection], tmp_path: Path
) -> None:
    path = made("duckdb", tmp_path / "a.duckdb")
    connection = connect(f"{path}?threads=1&memory_limit=64MiB&preserve_insertion_order=off")
    found = dict(connection.execute("SELECT name, value FROM duckdb_settings()").fetchall())
    connection.close()
    assert {name: found[name] for name in confined_duckdb.CONFINED} == dict(confined_duckdb.CONFINED)
    assert (found["threads"], found["memory_limit"], found["preserve_insertion_order"]) == ("1", "64.0 MiB", "false")


@pytest.mark.parametrize("opens", ["apsw.Connection(", "duckdb.connect("])
def test_only_the_driver_opens_files(opens: str) -> None:
    """So every way that is tried above goes there."""
    agent = Path(__file__).parents[3] / "agent"
    assert {file.name for file in agent.rglob("*.py") if opens in file.read_text()} == {"driver.py"}


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
def test_ordinary_statements_work_on_sqlite(text: str, tmp_path: Path) -> None:
    connection = confined_sqlite.open_database(made("sqlite", tmp_path / "a.db"))
    connection.execute(text).fetchall()
    connection.close(True)


def test_rows_beyond_the_memory_limit_of_duckdb_are_spilled_beside_the_file(tmp_path: Path) -> None:
    connection = confined_duckdb.open_database(f"{tmp_path}/a.duckdb?threads=1&memory_limit=40MiB")
    query = "SELECT count(*) FROM (SELECT DISTINCT hash(range) || 'abcdefghijkl' FROM range(1500000))"
    assert connection.execute(query).fetchall() == [(1_500_000,)]
    assert {path.name for path in tmp_path.iterdir()} <= {"a.duckdb", "a.duckdb.wal", "a.duckdb.tmp"}


@pytest.mark.parametrize("path", ["md:others", ":memory:", "a.duckdb", "http://127.0.0.1:9/a.duckdb", ""])
def test_only_an_absolute_path_of_duckdb_is_opened(path: str) -> None:
    with pytest.raises(duckdb.IOException, match="not the absolute path"):
        confined_duckdb.open_database(path)


@pytest.mark.parametrize("settings", ["enable_external_access=true", "temp_directory=x", "threads=0"])
def test_settings_in_a_dsn_of_duckdb_that_a_plan_may_not_give_are_refused(settings: str, tmp_path: Path) -> None:
    with pytest.raises(duckdb.InvalidInputException):
        confined_duckdb.open_database(f"{tmp_path}/a.duckdb?{settings}")


def test_a_uri_in_place_of_a_path_of_sqlite_is_refused(tmp_path: Path) -> None:
    with pytest.raises(apsw.CantOpenError, match="not a file: URI"):
        confined_sqlite.open_database(f"file:{tmp_path}/a.db?mode=rwc")


@pytest.mark.parametrize(
    ("engine", "run", "statement", "words", "hint"),
    [
        ("sqlite", sqlite_sql.run_statements, "ATTACH '/x' AS other", "not authorized", confined_sqlite.DENIED_HINT),
        ("duckdb", run_on_duckdb, "COPY (SELECT 1) TO '/x'", "disabled", confined_duckdb.DENIED_HINT),
    ],
)
def test_the_error_of_a_denied_statement_names_the_restriction(
    engine: Any, run: Any, statement: str, words: str, hint: str, tmp_path: Path
) -> None:
    path = made(engine, tmp_path / "a")
    with pytest.raises(TaskFault, match=words) as caught:
        run(Endpoint(system="db", engine=engine, dsn=path), (statement,))
    assert (caught.value.code, caught.value.way_out) == ("refused", hint)
    if engine == "sqlite":
        with pytest.raises(StatementFailure, match="VACUUM INTO"):
            confined_sqlite.SqliteDriver().connect(path).prepare(
                Statement(name="s", text={"sqlite": statement}, arguments=())
            )

"""SQL of a plan stays in the DuckDB file that it is for: every escape on one connection; every path that opens such a
file has the same settings (ADR 58)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest
import thorough
from duckdb_escapes import ESCAPES

from proveout.agent.engines.duckdb.driver import CONFINED, DENIED_HINT, DuckdbDriver, open_database
from proveout.agent.engines.duckdb.populate import DuckdbLoader
from proveout.agent.engines.duckdb.sql import run_statements
from proveout.agent.errors import TaskFault
from proveout.dsl.workloads.base import Population
from proveout.proto.wire.tasks import Endpoint

pytestmark = pytest.mark.server
CANARY = "CANARY"
TRIES = """
import contextlib, json, os, signal, sys
import duckdb, pyarrow
from proveout.agent.engines.duckdb.driver import open_database
OPEN = {"confined": open_database, "plain": duckdb.connect}
canary = pyarrow.table({"word": ["CANARY"]})
def tried(path, way, statements, home):
    os.environ["HOME"] = home
    connection = OPEN[way](path)
    for statement in statements:
        with contextlib.suppress(duckdb.Error):
            print(connection.execute(statement).fetchall(), flush=True)
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


@dataclass(frozen=True)
class Tries:
    """The process that tries escapes, and a folder with a database for each word."""

    process: subprocess.Popen[str]
    databases: Path


@pytest.fixture(scope="module")
def tries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tries]:
    folder = tmp_path_factory.mktemp("databases")
    for word in ("one", CANARY):
        with duckdb.connect(folder / word) as connection:
            connection.execute("CREATE TABLE item (id INTEGER, word VARCHAR)")
            connection.execute("INSERT INTO item VALUES (1, ?)", [word])
    with subprocess.Popen(
        [sys.executable, "-I", "-c", TRIES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"CANARY_NAME": CANARY},
    ) as process:
        yield Tries(process, folder)
        assert process.stdin is not None
        process.stdin.close()


def reached(tries: Tries, way: str, escape: tuple[str, ...], folder: Path) -> bool:
    """Whether the escape has written a file, or read what it must not."""
    secret, outside, home, output = (folder / name for name in ("secret.csv", "outside", "elsewhere", "output"))
    own, other = folder / "own" / "a.duckdb", folder / "other" / "other.duckdb"
    for path, word in ((own, "one"), (other, CANARY)):
        path.parent.mkdir(parents=True)
        shutil.copy(tries.databases / word, path)
    secret.write_text(f"{CANARY}\n")
    names = {"secret": secret, "outside": outside, "folder": folder, "database": other}
    statements = [text.format(**names) for text in escape]
    process = tries.process
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps([str(output), str(own), way, statements, str(home)]) + "\n")
    process.stdin.flush()
    status = int(process.stdout.readline())
    assert not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM), "it took longer than a minute"
    assert "ImportError" not in output.with_suffix(".err").read_text()
    printed = output.read_text()
    return CANARY in printed or str(secret) in printed or outside.exists() or home.exists()


@pytest.mark.escape
@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES)
def test_an_escape_reaches_nothing(tries: Tries, escape: tuple[str, ...], tmp_path: Path) -> None:
    assert not reached(tries, "confined", escape, tmp_path)


@pytest.mark.thorough
def test_without_the_confinement_the_escapes_work(tries: Tries, tmp_path: Path) -> None:
    """The list can fail: on a plain connection much of it reaches something."""
    tried = thorough.every(3, list(ESCAPES.items()))
    worked = [name for name, escape in tried if reached(tries, "plain", escape, tmp_path / name.replace(" ", "-"))]
    assert len(worked) >= 0.4 * len(tried), worked


NONE = Population(units=0, tables=(), before={}, after={}, drop={}, expected={})
PATHS: dict[str, Callable[[str], duckdb.DuckDBPyConnection]] = {
    "transactions": lambda dsn: DuckdbDriver().connect(dsn)._connection,
    "populate": lambda dsn: DuckdbLoader(dsn, NONE)._connection,
    "sql stages, settings, checkpoints, captures": open_database,
}


@pytest.mark.parametrize("connect", PATHS.values(), ids=PATHS)
def test_every_path_has_the_settings_of_the_confinement_and_of_the_dsn(
    connect: Callable[[str], duckdb.DuckDBPyConnection], tmp_path: Path
) -> None:
    open_database(f"{tmp_path}/a.duckdb").close()
    connection = connect(f"{tmp_path}/a.duckdb?threads=1&memory_limit=64MiB&preserve_insertion_order=off")
    found = dict(connection.execute("SELECT name, value FROM duckdb_settings()").fetchall())
    connection.close()
    assert {name: found[name] for name in CONFINED} == dict(CONFINED)
    assert (found["threads"], found["memory_limit"], found["preserve_insertion_order"]) == ("1", "64.0 MiB", "false")


def test_rows_beyond_the_memory_limit_are_spilled_beside_the_file(tmp_path: Path) -> None:
    connection = open_database(f"{tmp_path}/a.duckdb?threads=1&memory_limit=40MiB")
    query = "SELECT count(*) FROM (SELECT DISTINCT hash(range) || 'abcdefghijkl' FROM range(1500000))"
    assert connection.execute(query).fetchall() == [(1_500_000,)]
    assert {path.name for path in tmp_path.iterdir()} <= {"a.duckdb", "a.duckdb.wal", "a.duckdb.tmp"}


def test_only_an_absolute_path_is_opened_with_settings_that_a_plan_may_give(tmp_path: Path) -> None:
    for path in ("md:others", ":memory:", "a.duckdb", "http://127.0.0.1:9/a.duckdb", ""):
        with pytest.raises(duckdb.IOException, match="not the absolute path"):
            open_database(path)
    for settings in ("enable_external_access=true", "temp_directory=x", "threads=0"):
        with pytest.raises(duckdb.InvalidInputException):
            open_database(f"{tmp_path}/a.duckdb?{settings}")


def test_a_denied_statement_says_what_plans_cannot_do(tmp_path: Path) -> None:
    with pytest.raises(TaskFault, match="disabled") as caught:
        end = Endpoint(system="db", engine="duckdb", dsn=f"{tmp_path}/a.duckdb")
        run_statements(end, (f"COPY (SELECT 1) TO '{tmp_path}/x'",))
    assert (caught.value.code, caught.value.way_out) == ("refused", DENIED_HINT)


def test_nothing_opens_a_duckdb_file_elsewhere() -> None:
    """Every `duckdb.connect(` of the agent is in `driver`, and every way that is tried above
    goes there."""
    agent = Path(__file__).parents[4] / "agent"
    found = {file.name for file in agent.rglob("*.py") if "duckdb.connect(" in file.read_text()}
    assert found == {"driver.py"}

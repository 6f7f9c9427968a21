"""SQL of a plan stays in the DuckDB file that it is for: every escape, on every path that opens such a file (ADR 58,
75)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from duckdb_escapes import ESCAPES

from proveout.agent.engines.duckdb.driver import DuckdbDriver
from proveout.agent.engines.duckdb.external_access import CONFINED, DENIED_HINT, open_database
from proveout.agent.engines.duckdb.populate import DuckdbLoader
from proveout.agent.engines.duckdb.sql import run_statements
from proveout.agent.errors import TaskFault
from proveout.dsl.workloads.base import Population

pytestmark = pytest.mark.server
CANARY = "CANARY"
TRY = """
import contextlib, json, sys
path, ways, statements = json.loads(sys.argv[1])
import duckdb, pyarrow
from proveout.agent.engines.duckdb.external_access import open_database
from proveout.agent.engines.duckdb.driver import DuckdbDriver
from proveout.agent.engines.duckdb.populate import DuckdbLoader
OPEN = {
    "driver": lambda: DuckdbDriver().connect(path)._connection,  # transactions of a load
    "populate": lambda: DuckdbLoader(path, None)._connection,
    "sql": lambda: open_database(path),  # sql stages, settings, checkpoints, captures
    "plain": lambda: duckdb.connect(path),
}
canary = pyarrow.table({"word": ["CANARY"]})
for way in ways:
    connection = OPEN[way]()
    for statement in statements:
        with contextlib.suppress(duckdb.Error):
            print(connection.execute(statement).fetchall(), flush=True)
    connection.close()
"""
WAYS = ("driver", "populate", "sql")


def database(path: Path, word: str) -> str:
    path.parent.mkdir(exist_ok=True)
    with duckdb.connect(path) as connection:
        connection.execute("CREATE TABLE item (id INTEGER, word VARCHAR)")
        connection.execute("INSERT INTO item VALUES (1, ?)", [word])
    return str(path)


def reached(ways: tuple[str, ...], escape: tuple[str, ...], folder: Path) -> bool:
    """Whether the escape has written a file, or read what it must not. In a process of its own: logging to a file
    aborts it (DuckDB 1.5.5)."""
    folder.mkdir(exist_ok=True)
    secret, outside = folder / "secret.csv", folder / "outside"
    secret.write_text(f"{CANARY}\n")
    names = {"secret": secret, "outside": outside, "folder": folder}
    names["database"] = Path(database(folder / "other" / "other.duckdb", CANARY))
    statements = [text.format(**names) for text in escape]
    told = json.dumps([database(folder / "own" / "a.duckdb", "one"), ways, statements])
    done = subprocess.run(
        [sys.executable, "-I", "-c", TRY, told],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={"CANARY_NAME": CANARY, "HOME": str(folder / "elsewhere")},
    )
    assert "ImportError" not in done.stderr
    seen = CANARY in done.stdout or str(secret) in done.stdout
    return seen or outside.exists() or (folder / "elsewhere").exists()


@pytest.mark.escape
@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES)
def test_an_escape_reaches_nothing(
    escape: tuple[str, ...], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    assert not reached(WAYS, escape, tmp_path)
    record_property("escapes", len(WAYS))


def test_without_the_confinement_the_escapes_work(tmp_path: Path) -> None:
    """The list can fail: on a plain connection most of it reaches something."""
    worked = [
        name for name, escape in ESCAPES.items() if reached(("plain",), escape, tmp_path / name.replace(" ", "-"))
    ]
    assert len(worked) >= 20, worked


def test_the_settings_are_those_of_the_connection(tmp_path: Path) -> None:
    connection = open_database(f"{tmp_path}/a.duckdb?threads=1&memory_limit=64MiB&preserve_insertion_order=off")
    read = "SELECT name, value FROM duckdb_settings()"
    found = dict(connection.execute(read).fetchall())
    assert {name: found[name] for name in CONFINED} == dict(CONFINED)
    assert (found["threads"], found["memory_limit"], found["preserve_insertion_order"]) == ("1", "64.0 MiB", "false")


def test_rows_beyond_the_memory_limit_are_spilled_beside_the_file(tmp_path: Path) -> None:
    connection = open_database(f"{tmp_path}/a.duckdb?threads=1&memory_limit=60MiB")
    query = "SELECT count(*) FROM (SELECT DISTINCT hash(range) || 'abcdefghijkl' FROM range(3000000))"
    assert connection.execute(query).fetchall() == [(3_000_000,)]
    assert {path.name for path in tmp_path.iterdir()} <= {"a.duckdb", "a.duckdb.wal", "a.duckdb.tmp"}


@pytest.mark.parametrize("path", ["md:others", ":memory:", "a.duckdb", "http://127.0.0.1:9/a.duckdb", ""])
def test_only_an_absolute_path_is_opened(path: str) -> None:
    with pytest.raises(duckdb.IOException, match="not the absolute path"):
        open_database(path)


@pytest.mark.parametrize("settings", ["enable_external_access=true", "temp_directory=x", "threads=0"])
def test_a_dsn_has_no_other_settings(settings: str, tmp_path: Path) -> None:
    with pytest.raises(duckdb.InvalidInputException):
        open_database(f"{tmp_path}/a.duckdb?{settings}")


def test_a_denied_statement_says_what_plans_cannot_do(tmp_path: Path) -> None:
    with pytest.raises(TaskFault, match="disabled") as caught:
        run_statements(f"{tmp_path}/a.duckdb", (f"COPY (SELECT 1) TO '{tmp_path}/x'",))
    assert (caught.value.code, caught.value.way_out) == ("refused", DENIED_HINT)


def test_nothing_opens_a_duckdb_file_elsewhere() -> None:
    """Every `duckdb.connect(` of the agent is in `external_access`, and every way that is tried above
    goes there."""
    agent = Path(__file__).parents[4] / "agent"
    found = {file.name for file in agent.rglob("*.py") if "duckdb.connect(" in file.read_text()}
    assert found == {"external_access.py"}


def test_the_loader_and_the_driver_open_the_same_file(tmp_path: Path) -> None:
    path = str(tmp_path / "a.duckdb")
    none = Population(units=0, tables=(), before={}, after={}, drop={}, expected={})
    DuckdbLoader(path, none).close()
    DuckdbDriver().connect(path).close()

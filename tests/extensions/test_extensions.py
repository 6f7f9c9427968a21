"""Packages with a workload, a driver and an engine of their own, installed in a folder: checked, explained, and run
from the command line.

The second half follows docs/guide/driver.md and docs/extend/engine.md literally: their code blocks are the toy engine
that is run.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sqlite3
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from proveout.agent.engines import handlers, table
from proveout.agent.engines.adapter import CapturesSizes, Checkpoints, OpensCursors, Populates, Provisions
from proveout.dsl import engines
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.kinds import build
from proveout.proto.wire.tasks import Checkpoint, Endpoint, InspectSystem, RunSql

pytestmark = pytest.mark.server

MODULE = '''
"""Announces a workload; light: no numpy."""
from typing import Annotated
from pydantic import BaseModel, ConfigDict, Field
from proveout.dsl.extensions import WorkloadExtension


class Counters(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    counters: Annotated[int, Field(ge=1)] = 100
    seed: int = 1


COUNTERS = WorkloadExtension(
    parameters=Counters,
    transactions=lambda _: ("Count", "Look"),
    build="shoutdb.workload:build",
    engine_problem=lambda model, engine: "counters are for shoutdb" if engine == "postgres" else None,
    rows=lambda model: float(model.counters),
)
NO_EXTENSION = 5
'''

WORKLOAD = """
from dataclasses import dataclass
from itertools import count
import numpy as np
from proveout.dsl.workloads.base import Outcome, Population, Statement, Table, TransactionType

ADD = Statement(
    name="add", text={"sqlite": "UPDATE counter SET n = n + 1 WHERE id = $1"}, arguments=(int,), reads=False
)
GET = Statement(name="get", text={"sqlite": "SELECT n FROM counter WHERE id = $1"}, arguments=(int,), columns=(int,))


def one(statement):
    def body(keys):
        result = yield statement, (next(keys),)
        return Outcome.COMMIT if result.count else Outcome.LOGICAL_FAILURE
    return body


@dataclass(frozen=True)
class Workload:
    parameters: object
    invariants = ()

    @property
    def transactions(self):
        return tuple(
            TransactionType(name=name, weight=1.0, body=one(of), statements=(of,), single=True)
            for name, of in (("Count", ADD), ("Look", GET))
        )

    @property
    def population(self):
        n = self.parameters.counters
        def rows(first, count):
            return [np.arange(first, first + count), np.zeros(count, dtype=np.int64)]
        return Population(
            units=n,
            tables=(Table(name="counter", columns=(("id", "int4"), ("n", "int8")), rows=rows),),
            before={"sqlite": ("CREATE TABLE counter (id INTEGER PRIMARY KEY, n INTEGER)",)},
            after={"sqlite": ()},
            drop={"sqlite": ("DROP TABLE IF EXISTS counter",)},
            expected={"counter": (n, n)},
        )

    def keys(self, stream):
        return (1 + (stream + i) % self.parameters.counters for i in count())


def build(parameters):
    return Workload(parameters)
"""

DRIVER = '''
from pathlib import Path

from proveout.agent.engines.sqlite.driver import SqliteDriver
from proveout.agent.engines.sqlite.populate import SqliteLoader


class ShoutDriver(SqliteDriver):
    """An engine of another package: a file, reached by its path."""

    def version(self, dsn):
        return "shout 7"

    def loader(self, dsn, population):
        Path(dsn).touch()
        return SqliteLoader(dsn, population)
'''

METADATA = "Metadata-Version: 2.1\nName: shoutdb\nVersion: 7.0\n"
ENTRY_POINTS = """[proveout.workloads]
counters = shoutdb:COUNTERS
broken = shoutdb.nowhere:THING
stray = shoutdb:NO_EXTENSION

[proveout.drivers]
shoutdb = shoutdb.driver:ShoutDriver
"""

PLAN = """proveout: 1
name: other
topology:
  hosts:
    here: {{roles: [client], address: local}}
  systems:
    db: {{engine: shoutdb, host: here, dsn: {file}}}
workloads:
  w: {{kind: {kind}, {more}}}
stages:
  - populate: {{workload: w, into: db}}
  - sql: {{system: db, statements: [UPDATE counter SET n = n + 0, SELECT n FROM counter]}}
  - ladder: {{workload: w, target: db, threads: [1], ramp_up: 0s, measure: 500ms, ramp_down: 0s, repeat: 2, retries: 3,
             limits: {{start_skew: 10s, tps_slope: 10000%, tps_cv: 10000%}}}}
verdicts:
  - {{id: counts, check: ladder.at(1).transactions.Count.tps.mean > 0}}
  - {{id: rows, check: sql.rows > 0}}
"""


@pytest.fixture
def package(package_folder: Path) -> Path:
    """Create the package in a folder that is not on `sys.path` yet."""
    site = package_folder
    (site / "shoutdb").mkdir(parents=True)
    (site / "shoutdb-7.0.dist-info").mkdir()
    for name, text in {
        "shoutdb/__init__.py": MODULE,
        "shoutdb/workload.py": WORKLOAD,
        "shoutdb/driver.py": DRIVER,
        "shoutdb-7.0.dist-info/METADATA": METADATA,
        "shoutdb-7.0.dist-info/entry_points.txt": ENTRY_POINTS,
    }.items():
        (site / name).write_text(text, encoding="utf-8")
    return site


def proveout(*arguments: str, cwd: Path, site: Path | None) -> subprocess.CompletedProcess[str]:
    # Workers get PYTHONPATH only when it is named; an installed package needs neither.
    more = {"PYTHONPATH": str(site), "PROVEOUT_PASS_ENV": "PYTHONPATH"} if site else {}
    environment = os.environ | more
    argv = [sys.executable, "-m", "proveout", *arguments]
    return subprocess.run(argv, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False)


def plan(folder: Path, *, kind: str = "counters", more: str = "counters: 50", database_in: Path | None = None) -> str:
    database = (database_in or folder) / "counters.db"
    apsw.Connection(str(database)).close()
    text = PLAN.format(file=database, kind=kind, more=more)
    (folder / "plan.yaml").write_text(text, encoding="utf-8")
    return "plan.yaml"


def test_check_and_explain(package: Path, tmp_path: Path) -> None:
    checked = proveout("check", plan(tmp_path), cwd=tmp_path, site=package)
    assert checked.returncode == 0, checked.stderr
    explained = proveout("explain", "plan.yaml", cwd=tmp_path, site=package)
    assert "about 50 rows" in explained.stdout
    assert "shoutdb on here, runs already" in explained.stdout


def test_without_the_package(tmp_path: Path) -> None:
    checked = proveout("check", plan(tmp_path), cwd=tmp_path, site=None)
    assert checked.returncode == 2
    assert "plan.yaml:7:18: `engine` cannot be shoutdb" in checked.stderr
    assert "plan.yaml:9:13: there is no workload kind `counters`" in checked.stderr


@pytest.mark.parametrize(
    ("kind", "more", "message"),
    [
        ("counters", "counter: 50", "plan.yaml:9:23: unknown key `counter`"),
        ("broken", "counters: 5", "'broken' of package shoutdb cannot be loaded: ModuleNotFoundError"),
        ("stray", "counters: 5", "the workload 'stray' is announced as int"),
    ],
)
def test_problems_have_their_place(package: Path, tmp_path: Path, kind: str, more: str, message: str) -> None:
    checked = proveout("check", plan(tmp_path, kind=kind, more=more), cwd=tmp_path, site=package)
    assert checked.returncode == 2
    assert message in checked.stderr


def test_it_is_not_started_and_has_no_waits(package: Path, tmp_path: Path) -> None:
    plan(tmp_path)
    text = (tmp_path / "plan.yaml").read_text(encoding="utf-8")
    text = text.replace(f"dsn: {tmp_path / 'counters.db'}", "provision: embedded")
    text = text.replace("stages:", "captures: {waits: {kind: waits, system: other}}\nstages:")
    text = text.replace("workloads:", f"    other: {{engine: shoutdb, host: here, dsn: {tmp_path}}}\nworkloads:")
    (tmp_path / "plan.yaml").write_text(text, encoding="utf-8")
    checked = proveout("check", "plan.yaml", cwd=tmp_path, site=package)
    assert "proveout cannot start shoutdb" in checked.stderr
    assert "wait events of shoutdb are not captured" in checked.stderr


def test_a_plan_without_the_extension_does_not_import_it(package: Path, tmp_path: Path) -> None:
    """The entry point would fail when it is imported."""
    (package / "shoutdb/__init__.py").write_text("raise SystemExit('imported')", encoding="utf-8")
    text = PLAN.format(file="x", kind="sql", more="transactions: {Count: {statements: {a: SELECT 1}}}")
    text = text.replace("shoutdb", "postgres").replace("dsn: x", "dsn: host=db")
    text = text.replace("  - populate: {workload: w, into: db}\n", "")
    (tmp_path / "plan.yaml").write_text(text, encoding="utf-8")
    checked = proveout("check", "plan.yaml", cwd=tmp_path, site=package)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.slow
def test_a_whole_run(package: Path, tmp_path: Path, database_folder: Path, hand_over: Callable[[Path], None]) -> None:
    """Coordinator, agent, populate workers and load workers import the package; its database has the counts."""
    name = plan(tmp_path, database_in=database_folder)
    hand_over(database_folder)
    ran = proveout("run", name, "--headless", cwd=tmp_path, site=package)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "shout 7" in ran.stdout
    (result,) = (tmp_path / "runs").glob("*/result.json")
    verdicts = {verdict["id"]: verdict["outcome"] for verdict in json.loads(result.read_text())["verdicts"]}
    assert set(verdicts.values()) == {"PASS"}
    connection = apsw.Connection(str(database_folder / "counters.db"))
    try:
        assert connection.execute("SELECT count(*) FROM counter").get == 50
        assert connection.execute("SELECT sum(n) FROM counter").get > 0
    finally:
        connection.close()


# ---- the pages -----------------------------------------------------------------------------------------------------

DOCS = Path(__file__).parents[2] / "docs"
DRIVER_PAGE, ENGINE_PAGE = DOCS / "guide" / "driver.md", DOCS / "extend" / "engine.md"


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture
def toy_package(package_folder: Path) -> Path:
    """The folder with the package of the driver's page, as an installer lays it out."""
    site = package_folder
    (announced,), (driver,) = blocks(DRIVER_PAGE, "toml"), blocks(DRIVER_PAGE, "python")
    points = tomllib.loads(announced)["project"]["entry-points"]["proveout.drivers"]
    for name, text in {
        "toydb/__init__.py": "",
        "toydb/driver.py": driver,
        "toydb-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: toydb\nVersion: 1.0\n",
        "toydb-1.0.dist-info/entry_points.txt": "[proveout.drivers]\n"
        + "".join(f"{name} = {place}\n" for name, place in points.items()),
    }.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text, encoding="utf-8")
    return site


@pytest.mark.slow
def test_the_drivers_page(
    toy_package: Path, tmp_path: Path, database_folder: Path, hand_over: Callable[[Path], None]
) -> None:
    """The plan of the page runs on the driver of the page, with a database at the place that the test has."""
    (plan,) = blocks(DRIVER_PAGE, "yaml")
    database = database_folder / "toy.db"
    sqlite3.connect(database).close()
    hand_over(database_folder)
    (tmp_path / "toy.yaml").write_text(plan.replace("/srv/toy/toy.db", str(database)), encoding="utf-8")
    ran = proveout("run", "toy.yaml", "--headless", cwd=tmp_path, site=toy_package)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"toy {sqlite3.sqlite_version}" in ran.stdout
    (result,) = (tmp_path / "runs").glob("*/result.json")
    assert [verdict["outcome"] for verdict in json.loads(result.read_text())["verdicts"]] == ["PASS"]


@pytest.fixture
def engine(toy_package: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[engines.Engine]:
    """The engine of the engine's page, in both tables."""
    stated, written, entered = blocks(ENGINE_PAGE, "python")
    monkeypatch.syspath_prepend(str(toy_package))
    found: engines.Engine = eval(textwrap.dedent(stated), dict(vars(engines)))
    ((name, place),) = eval(entered).items()
    module, _, adapter = place.partition(":")
    assert name == found.name
    path = toy_package / "adapter.py"
    path.write_text(written, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(module, path)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    monkeypatch.setitem(sys.modules, module, loaded)
    monkeypatch.setattr(engines, "ENGINES", {**engines.ENGINES, name: found})
    monkeypatch.setattr(table, "ADAPTERS", {**table.ADAPTERS, name: f"{module}:{adapter}"})
    table.adapter.cache_clear()
    yield found
    table.adapter.cache_clear()
    for module in [module for module in sys.modules if module.partition(".")[0] == "toydb"]:
        del sys.modules[module]


async def test_the_engines_page(engine: engines.Engine, tmp_path: Path, task_context: Any) -> None:
    """It populates, runs statements, writes pages out and is measured, and implements what it states."""
    database = tmp_path / "toy.db"
    sqlite3.connect(database).close()
    end = Endpoint(system="db", engine=engine.name, dsn=str(database))
    found = table.adapter(engine.name)
    assert isinstance(found, Populates) and isinstance(found, CapturesSizes) and isinstance(found, Checkpoints)
    assert not isinstance(found, Provisions) and not isinstance(found, OpensCursors)
    assert (engine.populate, engine.sizes, engine.checkpoint, engine.embedded, engine.tune) == (
        True,
        True,
        True,
        None,
        False,
    )
    assert table.is_in_files(engine.name)

    population = build(Workload(name="w", kind="hlr", parameters=(("population", 100),))).population
    loader = found.loader(end.dsn, population)
    loader.prepare()
    loaded = {of.name: loader.load(of, 1, population.units, lambda _: None) for of in population.tables}
    assert loaded == {of.name: loader.count(of.name) for of in population.tables}
    loader.close()

    inspected = await handlers.inspect_system(task_context, InspectSystem(endpoint=end))
    assert inspected.endpoint.version == f"toy {sqlite3.sqlite_version}"
    statement = RunSql(endpoint=end, statements=("SELECT * FROM subscriber LIMIT 7",))
    assert (await handlers.run_sql(task_context, statement)).counts == (7,)
    await handlers.checkpoint(task_context, Checkpoint(endpoint=end))
    catalogue = found.size_catalogue(end)
    ((*_, size),) = catalogue.parts() or ()
    assert size > 4096
    catalogue.close()

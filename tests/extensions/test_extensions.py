"""Packages with a workload, a driver and an engine of their own: checked, explained, and run from the command line.

They are those of docs/extend/driver.md, docs/extend/workload.md and docs/extend/engine.md, whose code blocks are used
unchanged. The examples of the other pages are parts of modules: their names and calls are held against these modules.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import inspect
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

import pytest

from proveout.agent.engines import handlers, table
from proveout.cli import execute
from proveout.dsl import engines, extensions
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.kinds import build
from proveout.proto.wire.tasks import Checkpoint, Endpoint, InspectSystem, RunSql

pytestmark = pytest.mark.server

DOCS = Path(__file__).parents[2] / "docs"
DRIVER_PAGE, ENGINE_PAGE = DOCS / "extend" / "driver.md", DOCS / "extend" / "engine.md"
WORKLOAD_PAGE = DOCS / "extend" / "workload.md"
PACKAGES = ("toydb", "shop_bench")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


FILES = dict(
    re.findall(r'^```\w+ title="([\w./]+)"\n(.*?)^```$', WORKLOAD_PAGE.read_text(encoding="utf-8"), re.DOTALL | re.M)
)
"""The files of the workload's page, by name."""
(TOY_PLAN,) = blocks(DRIVER_PAGE, "yaml")
PLANS = {"toy.yaml": TOY_PLAN, "counters.yaml": FILES["counters.yaml"]}


def entry_points(metadata: str) -> str:
    groups = tomllib.loads(metadata)["project"]["entry-points"]
    lines = {group: "".join(f"{name} = {place}\n" for name, place in found.items()) for group, found in groups.items()}
    return "".join(f"[{group}]\n{entries}" for group, entries in lines.items())


@pytest.fixture
def site(package_folder: Path) -> Path:
    """The folder with the packages of both pages, as an installer lays them out."""
    (announced,), (driver,) = blocks(DRIVER_PAGE, "toml"), blocks(DRIVER_PAGE, "python")
    faulty = "[proveout.workloads]\nbroken = shop_bench.nowhere:THING\nstray = shop_bench:TRANSACTIONS\n"
    for name, text in {
        **{name: text for name, text in FILES.items() if "/" in name},
        "toydb/__init__.py": "",
        "toydb/driver.py": driver,
        "toydb-1.0.dist-info/entry_points.txt": entry_points(announced),
        "shop_bench-1.0.dist-info/entry_points.txt": entry_points(FILES["pyproject.toml"]),
        "faulty-1.0.dist-info/entry_points.txt": faulty,
    }.items():
        (package_folder / name).parent.mkdir(parents=True, exist_ok=True)
        (package_folder / name).write_text(text, encoding="utf-8")
    for folder in package_folder.glob("*.dist-info"):
        metadata = f"Metadata-Version: 2.1\nName: {folder.name.partition('-')[0]}\nVersion: 1.0\n"
        (folder / "METADATA").write_text(metadata, encoding="utf-8")
    return package_folder


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory, with the plans of both pages; nothing of a package stays in this process."""
    monkeypatch.chdir(tmp_path)
    for name, text in PLANS.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    extensions.load.cache_clear()
    yield tmp_path
    extensions.load.cache_clear()
    for module in [module for module in sys.modules if module.partition(".")[0] in PACKAGES]:
        del sys.modules[module]


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same folder, in the path of this process."""
    monkeypatch.syspath_prepend(str(site))
    return site


def errors_of(plan: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the errors that `check` prints for a wrong plan."""
    Path("plan.yaml").write_text(plan, encoding="utf-8")
    assert execute(["check", "plan.yaml"]) == 2
    return capsys.readouterr().err


@pytest.mark.usefixtures("installed")
def test_check_and_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["check", *PLANS]) == 0, capsys.readouterr().err
    assert execute(["explain", "counters.yaml"]) == 0
    assert "about 50 rows" in capsys.readouterr().out
    assert execute(["explain", "toy.yaml"]) == 0
    assert "toydb on here, runs already" in capsys.readouterr().out


def test_without_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["check", *PLANS]) == 2
    said = capsys.readouterr().err
    assert "toy.yaml:7:18: `engine` cannot be toydb" in said
    assert "counters.yaml:9:19: there is no workload kind `counters`" in said


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("kind: counters, counters: 0", "plan.yaml:9:39: `counters` must be at least 1"),
        ("kind: broken", "'broken' of package faulty cannot be loaded: ModuleNotFoundError"),
        ("kind: stray", "the workload 'stray' is announced as tuple"),
    ],
)
def test_problems_have_their_place(parameters: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    plan = PLANS["counters.yaml"].replace("kind: counters, counters: 50", parameters)
    assert message in errors_of(plan, capsys)


@pytest.mark.usefixtures("installed")
def test_it_is_not_started_and_has_no_waits(capsys: pytest.CaptureFixture[str]) -> None:
    plan = TOY_PLAN.replace("dsn: /srv/toy/toy.db", "provision: embedded")
    plan = plan.replace("stages:", "captures: {waits: {kind: waits, system: other}}\nstages:")
    plan = plan.replace("workloads:", "    other: {engine: toydb, host: here, dsn: /srv/toy/toy.db}\nworkloads:")
    said = errors_of(plan, capsys)
    assert "proveout cannot start toydb" in said
    assert "wait events of toydb are not captured" in said


def test_a_plan_without_the_extension_does_not_import_it(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The entry point would fail when it is imported."""
    (installed / "shop_bench" / "__init__.py").write_text("raise SystemExit('imported')", encoding="utf-8")
    plan = PLANS["counters.yaml"].partition("verdicts:")[0].replace("kind: counters, counters", "kind: hlr, population")
    Path("plan.yaml").write_text(plan.replace("population: 50", "population: 100"), encoding="utf-8")
    assert execute(["check", "plan.yaml"]) == 0, capsys.readouterr().err


def test_the_description_imports_no_numpy(site: Path) -> None:
    code = "import sys, shop_bench; print('numpy' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(site)}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


def verdicts_of_a_run(plan: str, site: Path) -> dict[str, str]:
    # Workers get PYTHONPATH only when it is named; an installed package needs neither.
    environment = os.environ | {"PYTHONPATH": str(site), "PROVEOUT_PASS_ENV": "PYTHONPATH"}
    argv = [sys.executable, "-m", "proveout", "run", plan, "--headless", "--json", "result.json"]
    ran = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert plan != "toy.yaml" or f"toy {sqlite3.sqlite_version}" in ran.stdout
    verdicts = json.loads(Path("result.json").read_text())["verdicts"]
    return {verdict["id"]: verdict["outcome"] for verdict in verdicts}


@pytest.fixture
def toy_file(database_folder: Path, hand_over: Callable[[Path], None]) -> Path:
    """The database of the plan `toy.yaml`, at a place that the test has."""
    file = database_folder / "toy.db"
    sqlite3.connect(file).close()
    hand_over(database_folder)
    Path("toy.yaml").write_text(TOY_PLAN.replace("/srv/toy/toy.db", str(file)), encoding="utf-8")
    return file


def test_a_run_of_the_workload_on_the_driver(site: Path, toy_file: Path) -> None:
    """Coordinator, agent, populate workers and load workers import both packages; the database has the counts."""
    plan = Path("toy.yaml").read_text(encoding="utf-8").replace("ladder: {workload: hlr", "ladder: {workload: numbers")
    plan = plan.replace("workloads:\n", "workloads:\n  numbers: {kind: counters, counters: 50}\n")
    plan = plan.replace("populate: {workload", "populate: {id: first, workload")
    plan = plan.replace("  - ladder:", "  - populate: {id: fill, workload: numbers, into: db}\n  - ladder:")
    plan += "  - {id: counts, check: ladder.at(1).transactions.Count.tps.mean > 0}\nreport: {without: [others]}\n"
    Path("toy.yaml").write_text(plan, encoding="utf-8")
    verdicts = verdicts_of_a_run("toy.yaml", site)
    assert verdicts.keys() >= {"runs", "counts", "invariants:db"}
    assert set(verdicts.values()) == {"PASS"}
    connection = sqlite3.connect(toy_file)
    assert connection.execute("SELECT count(*), sum(n) > 0 FROM counter").fetchone() == (50, 1)
    connection.close()


@pytest.mark.soak
@pytest.mark.usefixtures("toy_file")
@pytest.mark.parametrize("plan", PLANS)
def test_the_plan_of_a_page_runs_unchanged(plan: str, site: Path) -> None:
    assert set(verdicts_of_a_run(plan, site).values()) == {"PASS"}


@pytest.fixture
def engine(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[engines.Engine]:
    """The engine of the engine's page, in the table."""
    stated, written = blocks(ENGINE_PAGE, "python")
    found: engines.Engine = eval(textwrap.dedent(stated), dict(vars(engines)))
    module = f"proveout.agent.engines.{found.driver.partition(':')[0]}"
    path = installed / "parts.py"
    path.write_text(written, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(module, path)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    monkeypatch.setitem(sys.modules, module, loaded)
    monkeypatch.setattr(engines, "ENGINES", {**engines.ENGINES, found.name: found})
    table.adapter.cache_clear()
    yield found
    table.adapter.cache_clear()


async def test_the_engines_page(engine: engines.Engine, tmp_path: Path, task_context: Any) -> None:
    """It populates, runs statements, writes pages out and is measured."""
    database = tmp_path / "toy.db"
    sqlite3.connect(database).close()
    end = Endpoint(system="db", engine=engine.name, dsn=str(database))
    found = table.adapter(engine.name)
    assert not engine.provision and not engine.tune
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


@pytest.mark.parametrize(
    ("page", "begin", "module"),
    [
        ("capture.md", "class LockObserver", "agent.engines.postgres.captures"),
        ("capture.md", "async def locks", "agent.capture.databases"),
        ("capture.md", "def locks_metrics", "coordinator.measure.captures"),
        ("tuning-operation.md", "class Smt", "dsl.operations.kernel"),
        ("stage-kind.md", "class CheckpointStage", "dsl.plan.stages"),
        ("stage-kind.md", "def checkpoint_part", "coordinator.schedule.setup_stages"),
        ("figure.md", "def tps_by_repeat", "core"),
    ],
)
def test_names_and_calls_of_an_example_are_those_of_its_module(page: str, begin: str, module: str) -> None:
    trees = [ast.parse(block) for block in blocks(DOCS / "extend" / page, "python")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    own = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    own |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    known = {**vars(builtins), **vars(importlib.import_module(f"proveout.{module}"))}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            exec(ast.unparse(node), known)
    (example,) = [
        part
        for tree in trees
        for part in tree.body
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and begin.endswith(f" {part.name}")
    ]
    for node in ast.walk(example):
        if isinstance(node, ast.Name):
            assert node.id in own or node.id in known, node.id
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id not in {*own, *vars(builtins)}
        ):
            named = {keyword.arg: None for keyword in node.keywords if keyword.arg}
            inspect.signature(known[node.func.id]).bind(*node.args, **named)

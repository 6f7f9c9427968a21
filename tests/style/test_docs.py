"""Checks of the documents: the reference agrees with the code, every command in README and guide is run or at least
parsed, the CI jobs run in a repository of their user, the lab plans have the values of the studies, and the site is built
without a broken link.

Commands are in fenced blocks, ```` ```sh ```` (every line is one) or ```` ```console ```` (the lines after `$ `; the
rest is their output, which is compared: `as_shown` says what may differ). A block is run here, in a folder with
`plans/`, the whole plans of the pages under their names, and, in `runs/`, one run of a small plan. A block that cannot
be run has the reason in a comment on the line before it:

    <!-- only parsed: it takes three minutes -->      its proveout commands are parsed, plans and parameters compiled
    <!-- not run: it needs an Oracle server -->       as above, and it may have commands of other programs
"""

from __future__ import annotations

import importlib
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any
from xml.etree import ElementTree as ET

import compiled_plans
import pytest
import yaml
from shell_blocks import Block, as_shown, blocks, commands_of_workflow

from proveout import cli
from proveout.cli.options import parse_overrides
from proveout.dsl.compile.compiler import compile_plan

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *(page for folder in ("guide", "extend") for page in sorted((ROOT / "docs" / folder).glob("*.md"))),
]
BLOCKS = [block for page in PAGES for block in blocks(page)]
SHELL = [block for block in BLOCKS if block.language in {"sh", "console"}]
COMMAND = re.compile(r"(\$ |([A-Z_]+=\S+ )*(proveout|pip|python3?|make|git|docker|systemctl|sudo|cd|export) )")
LIMIT_S = 240.0
Ended = subprocess.CompletedProcess[str]
TINY = """\
proveout: 1
name: tiny
title: A file and a client
topology:
  hosts: {box: {roles: [server, client], address: local}}
  systems: {db: {engine: sqlite, host: box, provision: embedded}}
workloads: {hlr: {kind: hlr, population: 100}}
stages:
  - populate: {workload: hlr, into: db}
  - ladder: {workload: hlr, target: db, threads: [1], ramp_up: 100ms, measure: 1s, ramp_down: 100ms, repeat: 1}
verdicts: [{id: no-errors, check: ladder.at(1).errors.count == 0}]
"""
"""A plan of which a run takes two seconds."""


IN_ONE_PROCESS = """
import contextlib, io, sys
import generate
from proveout.cli import execute

def help_of(*verb):
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        execute([*verb, "--help"])
    return "\\n".join(line.rstrip() for line in shown.getvalue().strip().splitlines())

generate._help = help_of
page = generate.cli_page()
generate.cli_page = lambda: page
sys.argv = ["generate.py", "--check"]
sys.exit(generate.main())
"""
"""`docs/generate.py --check`, which otherwise starts a process for the help of each verb."""


def test_reference_is_up_to_date() -> None:
    variables = {"PYTHONPATH": str(ROOT / "docs"), "COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1"}
    checked = subprocess.run(
        [sys.executable, "-c", IN_ONE_PROCESS],
        env={**os.environ, **variables}, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stderr


@pytest.mark.soak
def test_the_site_is_built_without_broken_links(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert built.returncode == 0, built.stderr
    home = (tmp_path / "site" / "index.html").read_text()
    assert "guide/first-plan.html" in home
    elsewhere = re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"(https?:[^\"]+)", home)
    assert not elsewhere, "nothing is loaded from elsewhere"


def test_commands_are_in_checked_blocks() -> None:
    """Put commands into a fenced block, ```sh or ```console: see the top of this file."""
    others = [block for block in BLOCKS if block not in SHELL]
    assert [str(block) for block in others if block.language in {"bash", "shell"}] == [], "write ```sh"
    plain = [block for block in others if block.language in {"", "indented", "text"}]
    assert [f"{block}: {line}" for block in plain for line in block.lines if COMMAND.match(line)] == []
    compared = {"lab-first-run.md"}  # by tests/lab
    guide = [block for block in plain if block.page.parent.name == "guide" and block.page.name not in compared]
    assert [str(block) for block in guide] == [], "output that is not compared: write ```console"
    assert [str(block) for block in SHELL if not block.commands] == [], "the block has no command"


def test_commands_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = []
    for block, command in [(one, command) for one in SHELL for command in one.commands]:
        with monkeypatch.context() as variables:
            try:
                wrong += [f"{block}: {command}: {why}" for why in problems(block, command, variables)]
            except Exception as error:
                wrong.append(f"{block}: {command}: {error}")
    assert wrong == [], "\n".join(wrong)


def problems(block: Block, command: str, variables: pytest.MonkeyPatch) -> Iterator[str]:
    """The faults of a command of a block; those that the parser or the compiler finds are raised."""
    words = shlex.split(command, comments=True)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        name, _, value = words.pop(0).partition("=")
        variables.setenv(name, value)
    if words[0] == "proveout":
        yield from parse(words[1:])
    elif words[0] != "echo":
        if block.tag == "only parsed":
            yield "is not parsed: write `not run: …`"
        yield from not_there(words)


def parse(words: Sequence[str]) -> Iterator[str]:
    """Parse a command line of proveout, and compile its plan; the plans that are not there."""
    group: Any = cli.typer.main.get_command(cli._application(words))
    context = group.make_context("proveout", list(words), resilient_parsing=True)
    name, command, rest = group.resolve_command(context, list(words))
    while hasattr(command, "resolve_command"):  # `proveout pki init`
        context = command.make_context(name, rest, parent=context, resilient_parsing=True)
        name, command, rest = command.resolve_command(context, rest)
    given = command.make_context(name, rest, parent=context).params
    files = [Path(value) for value in given.values() if isinstance(value, Path) and "plans" in value.parts]
    yield from (f"there is no {file}" for file in files if not (ROOT / file).is_file())
    if name in {"run", "check", "explain"} and files:
        plan, inventory, overrides = ROOT / given["plan"], given.get("inventory"), given.get("parameters")
        if not overrides and not inventory and plan.parent == compiled_plans.FOLDER:
            compiled_plans.compiled(plan.stem)
        else:
            of = ROOT / inventory if inventory else None
            compile_plan(plan, overrides=parse_overrides(overrides), inventory=of)


def not_there(words: Sequence[str]) -> Iterator[str]:
    """The names of the project in a command of another program that are not there: a target of the Makefile, a file,
    an extra."""
    if words[0] == "make" and not re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE):
        yield f"there is no `make {words[1]}`"
    if words[0] in {"python", "python3"} and not words[1].startswith("-") and not (ROOT / words[1]).is_file():
        yield f"there is no {words[1]}"
    if words[:3] == ["python", "-m", "pytest"] and not (ROOT / words[3]).exists():
        yield f"there is no {words[3]}"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = re.findall(r"proveout\[(\w+)\]", " ".join(words))
    yield from (f"there is no extra {extra}" for extra in named if extra not in extras)


def test_options_named_in_sentences_exist() -> None:
    wrong = []
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for span in re.findall(r"`proveout ([a-z]+(?: [^`]+)?)`", text):
            words = span.split()
            if words[0] not in cli.VERBS:
                wrong.append(f"{page.name}: there is no `proveout {words[0]}`")
                continue
            command: Any = cli.typer.main.get_command(cli._application(words))
            for word in words:
                command = getattr(command, "commands", {}).get(word, command)
            options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
            named = {word.partition("=")[0] for word in words if word.startswith("--")}
            wrong += [f"{page.name}: `proveout {span}` has no {option}" for option in sorted(named - options)]
    assert wrong == []


def test_the_commands_of_workflows_are_valid_and_their_artifacts_are_written() -> None:
    for name in ("github-workflow.yml", "gitlab-ci.yml"):
        text = (ROOT / "docs" / "ci" / name).read_text()
        written: set[str] = set()
        for command in commands_of_workflow(yaml.safe_load(text)):
            words = shlex.split(command)
            if words[0].rpartition("/")[2] == "proveout":
                assert list(parse(words[1:])) == []
                written |= {word for before, word in pairwise(words) if before[:2] == "--" and word[:2] != "--"}
        kept = set(re.findall(r"[a-z]+\.(?:xml|json|txt|md)\b", text)) - {"constraints.txt"}
        assert kept == written
    steps = [block for block in BLOCKS if block.language == "yaml" and "- run: " in "\n".join(block.lines)]
    assert steps, "docs/guide/ci.md has the steps of a regression"
    for command in commands_of_workflow([yaml.safe_load("\n".join(block.lines)) for block in steps]):
        if command.startswith("proveout "):
            assert list(parse(shlex.split(command.replace("\\\n", " "))[1:])) == []


def whole_plans(folder: Path) -> dict[str, Path]:
    """Write the whole plans of the pages into a folder, each under its name: by the place on its page."""
    shutil.copytree(ROOT / "plans", folder / "plans")
    written = {}
    for block in BLOCKS:
        if block.language == "yaml" and "proveout: 1" in block.lines:
            name = next(line.partition("name: ")[2] for line in block.lines if line.startswith("name: "))
            written[str(block)] = folder / f"{name}.yaml"
            written[str(block)].write_text("\n".join(block.lines))
    return written


def test_whole_plans_compile(tmp_path: Path) -> None:
    for place, plan in whole_plans(tmp_path).items():
        assert compile_plan(plan).stages, place


@pytest.mark.parametrize(
    ("shown", "output", "same"),
    [
        ("12,000 TPS, 0.8 ms", "9 TPS, 57 µs", True),
        ("PASS  quick …, limit ≤ 10 ms", "FAIL quick 2.4 ms (n = 3),\n limit ≤ 10 ms", True),
        ("runs/first-20261128-024658-895b", "runs/first-20270101-000000-0a1f", True),
        ("3 problems", "problems", False),
        ("fine (2 stages)", "fine (no stages)", False),
        ("a = 1", "a == 1", False),
    ],
)
def test_shown_output_may_differ_in_numbers_outcomes_and_names_of_runs(shown: str, output: str, same: bool) -> None:
    assert bool(as_shown(shown).search(output)) is same


@pytest.mark.soak
@pytest.mark.server
def test_commands_without_a_tag_are_run_and_have_the_output_of_the_page(tmp_path: Path) -> None:
    whole_plans(tmp_path)
    (tmp_path / "tiny.yaml").write_text(TINY)
    assert shell(tmp_path, "proveout run tiny.yaml --headless").returncode == 0
    wrong = []
    for block in SHELL:
        if not block.tag:
            ended = shell(tmp_path, "\n".join(block.commands), stops=not block.output)
            if ended.returncode if not block.output else not as_shown(block.output).search(ended.stdout):
                wrong.append(f"{block}\n{ended.stdout}")
    assert wrong == [], "\n".join(wrong)


def shell(folder: Path, command: str, *, stops: bool = True, more: Mapping[str, str] = MappingProxyType({})) -> Ended:
    """Run commands without a terminal, to the first that fails where it `stops`; `more`: variables."""
    beside = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "NO_COLOR": "1",
        **more,
    }
    return subprocess.run(
        ["bash", "-euc" if stops else "-uc", command],
        cwd=folder, env=beside, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip


def test_figures_of_benchmarks_are_shown_beside_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state before is what the file had first, until a new comparison; a missed target is bold."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    benchmarks, generate = (runpy.run_path(str(ROOT / name)) for name in ("benchmarks/all.py", "docs/generate.py"))
    kept_of, shown = benchmarks["kept"], generate["figures_table"]
    columns = {"rate": [">= 1.00", ".2f"], "TPS": ["", ",.0f"]}
    first, second, third = (
        {"commit": name, "machine": "2 cores", "quick": False, "figures": columns, "rows": {"4": {"rate": rate}}}
        for name, rate in (("one", 0.9), ("two", 0.95), ("three", 1.0))
    )
    kept = kept_of(first, second, rebase=False)
    again = kept_of(kept, third, rebase=False)
    assert "| 4 | 0.90 → **0.95** |" in shown(kept)
    assert "| 4 | 0.90 → 1.00 |" in shown(again)
    assert "before the arrow commit `one`" in shown(again)
    assert "| 4 | 0.95 → 1.00 |" in shown(kept_of(kept, third, rebase=True))
    assert "| 4 | 0.90 |" not in shown(kept_of({}, third, rebase=False))


# ---- the CI jobs of the guide

RECIPES = ["github-workflow.yml", "gitlab-ci.yml", "Jenkinsfile"]
INSTALLS = re.compile(r"python3 -m venv |(\S*/)?pip install ")


def lines(name: str) -> list[str]:
    """The shell lines of a job, in order."""
    text = (ROOT / "docs" / "ci" / name).read_text()
    if name == "Jenkinsfile":
        return re.findall(r"sh '([^']*)'", text)
    return list(commands_of_workflow(yaml.safe_load(text)))


def test_each_recipe_installs_checks_and_runs() -> None:
    for name in RECIPES:
        kinds = ["install" if INSTALLS.match(line) else line.split()[1] for line in lines(name)]
        assert [kind for kind in kinds if kind in ("install", "check", "run")][-2:] == ["check", "run"], name
        assert "install" in kinds, name


@pytest.mark.soak
@pytest.mark.server
@pytest.mark.parametrize("name", RECIPES)
def test_the_lines_of_a_recipe_run_in_a_repository_of_its_user(name: str, tmp_path: Path) -> None:
    """Only `plans/` and the job are there. The lines that install are left out, as they need the source's address: the
    environment of the tests is on the PATH, and is `.venv` of the repository."""
    repository = tmp_path / "checkout"
    (repository / "plans").mkdir(parents=True)
    (repository / "plans" / "smoke.yaml").write_text(TINY)
    (repository / ".venv").symlink_to(Path(sys.executable).parents[1])
    summary = tmp_path / "step-summary.md"
    github = {
        "GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(repository), "GITHUB_STEP_SUMMARY": str(summary),
        "HOME": str(tmp_path),
    }  # fmt: skip
    for line in lines(name):
        if not INSTALLS.match(line):
            ended = shell(repository, line, more=github)
            assert ended.returncode == 0, f"{line}\n{ended.stdout}"
    (checked,) = ET.parse(repository / "check.xml").getroot()
    assert [case.attrib["name"] for case in checked.iter("testcase")] == ["plans/smoke.yaml"]
    (suite,) = ET.parse(repository / "junit.xml").getroot()
    assert (suite.attrib["failures"], suite.attrib["errors"]) == ("0", "0")
    assert json.loads((repository / "result.json").read_text())["format"] == "proveout.result/1"
    assert (repository / "summary.md").read_text()
    if name == "github-workflow.yml":
        assert summary.read_text() == (repository / "summary.md").read_text()
    if name == "gitlab-ci.yml":
        assert json.loads((repository / "codequality.json").read_text()) == []
        assert "proveout_tps" in (repository / "metrics.txt").read_text()
    (repository / "plans" / "wrong.yaml").write_text(TINY.replace("measure: 1s", "measure: 1sec"))
    ended = shell(repository, next(line for line in lines(name) if " check " in line), more=github)
    assert ended.returncode == 2, "a wrong plan ends a job at its check"
    assert "::error file=plans/wrong.yaml,line=10,col=80,title=plan::" in ended.stdout


# ---- the studies


def test_lab_plans_have_the_values_of_the_studies_and_each_other_value_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`docs/generate.py --check` holds the pages against the rows."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    study_values = importlib.import_module("study_values")
    monkeypatch.setattr(study_values, "compile_plan", lambda path: compiled_plans.compiled(path.stem))
    studies = study_values.studies()
    assert [study.name for study in studies] == ["appliance", "exalogic", "hlr-cache", "in-memory", "xe"]
    assert [f"{one.name}: {found}" for one in studies for found in study_values.differences(one)] == []
    assert [found for one in studies for found in study_values.absent_charts(one)] == []
    invented = replace(studies[0], figures=({"figure": "1", "lab": "storage-lab: random, nothing", "axes": "same"},))
    assert [*study_values.absent_charts(invented)] == ["storage-lab: nothing"]
    for study in studies:
        for row in study.rows:
            changed = replace(study, rows=(replace(row, plan=f"not {row.plan}"),))
            assert not row.at or list(study_values.differences(changed)), row.what

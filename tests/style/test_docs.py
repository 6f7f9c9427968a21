"""Checks of the documents: the reference agrees with the code, every command in README and guide is run or at least
parsed, and the site is built without a broken link.

Commands are in fenced blocks, ```` ```sh ```` (every line is one) or ```` ```console ```` (the lines after `$ `; the
rest is their output). A block is run here, in a folder with `plans/` and, in `runs/`, one run of a small plan. A block
that cannot be run has the reason in a comment on the line before it:

    <!-- only parsed: it takes three minutes -->      its proveout commands are parsed, plans and parameters compiled
    <!-- not run: it needs an Oracle server -->       as above, and it may have commands of other programs
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from proveout import cli
from proveout.cli.common.options import parse_overrides
from proveout.dsl.compile.compiler import compile_plan

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("guide", "extend")
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *(page for folder in FOLDERS for page in sorted((ROOT / "docs" / folder).glob("*.md"))),
]
TAG = re.compile(r"<!-- (only parsed|not run): (\S.*?) -->")
COMMAND = re.compile(r"(\$ |([A-Z_]+=\S+ )*(proveout|pip|python3?|make|git|docker|systemctl|sudo|cd|export) )")
LIMIT_S = 120.0
TINY = """
proveout: 1
name: tiny
title: A file and a client
topology:
  hosts:
    box: {roles: [server, client], address: local}
  systems:
    db: {engine: sqlite, host: box, provision: embedded}
workloads:
  hlr: {kind: hlr, population: 100}
stages:
  - populate: {workload: hlr, into: db}
  - ladder: {workload: hlr, target: db, threads: [1], ramp_up: 100ms, measure: 1s, ramp_down: 100ms, repeat: 1}
"""


@pytest.mark.slow
def test_reference_is_up_to_date() -> None:
    argv = [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"]
    checked = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.slow
def test_the_site_is_built_without_broken_links(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert built.returncode == 0, built.stderr
    home = (tmp_path / "site" / "index.html").read_text()
    assert "guide/first-plan.html" in home
    elsewhere = re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"(https?:[^\"]+)", home)
    assert not elsewhere, "nothing is loaded from elsewhere"


# ---- blocks and the commands in them -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """A block of a page: its language ("" for none, "indented"), its lines, and the tag before it."""

    page: Path
    line: int
    language: str
    lines: tuple[str, ...]
    tag: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"

    @property
    def commands(self) -> tuple[str, ...]:
        """The command lines; lines continued by a backslash are joined."""
        text = "\n".join(self.lines).replace("\\\n", " ")
        lines = [line.strip() for line in text.splitlines()]
        if self.language == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        return tuple(line for line in lines if line and not line.startswith("#"))


def blocks(page: Path) -> Iterator[Block]:
    lines = page.read_text().splitlines()
    at = 0
    while at < len(lines):
        begin, at = at, at + 1
        fence = re.match(r"( *)(```+)(\S*)", lines[begin])
        if fence:
            while not lines[at].strip().startswith(fence[2]):
                at += 1
            inside = tuple(line.removeprefix(fence[1]) for line in lines[begin + 1 : at])
            yield Block(page, begin + 1, fence[3], inside, tag_before(lines, begin))
            at += 1
        elif re.match(r"    \S", lines[begin]) and (begin == 0 or not lines[begin - 1].strip()):
            while at < len(lines) and (lines[at].startswith("    ") or not lines[at].strip()):
                at += 1
            yield Block(page, begin + 1, "indented", tuple(line[4:] for line in lines[begin:at]), "")


def tag_before(lines: Sequence[str], at: int) -> str:
    found = TAG.search(lines[at - 1]) if at else None
    return found[1] if found else ""


BLOCKS = [block for page in PAGES for block in blocks(page)]
SHELL = [block for block in BLOCKS if block.language in {"sh", "console"}]
RUN = [block for block in SHELL if not block.tag]


@pytest.mark.parametrize("block", [block for block in BLOCKS if block not in SHELL], ids=str)
def test_commands_are_in_checked_blocks(block: Block) -> None:
    """Put commands into a fenced block, ```sh or ```console: see the top of this file."""
    assert not (block.language == "bash" or block.language == "shell"), "write ```sh"
    if block.language in {"", "indented", "text"}:
        assert not [line for line in block.lines if COMMAND.match(line)]


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_commands_are_valid(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    assert block.commands, "the block has no command"
    for command in block.commands:
        words = shlex.split(command, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            name, _, value = words.pop(0).partition("=")
            monkeypatch.setenv(name, value)
        if words[0] == "proveout":
            parse(words[1:])
        elif words[0] != "echo":
            assert block.tag != "only parsed", f"`{command}` is not parsed: write `not run: …`"
            assert_is_there(words)


def parse(words: Sequence[str]) -> None:
    """Parse a command line of proveout, and compile its plan."""
    group: Any = cli.typer.main.get_command(cli._application(words))
    context = group.make_context("proveout", list(words), resilient_parsing=True)
    name, command, rest = group.resolve_command(context, list(words))
    while hasattr(command, "resolve_command"):  # `proveout pki init`
        context = command.make_context(name, rest, parent=context, resilient_parsing=True)
        name, command, rest = command.resolve_command(context, rest)
    given = command.make_context(name, rest, parent=context).params
    files = [Path(value) for value in given.values() if isinstance(value, Path) and "plans" in value.parts]
    for file in files:
        assert (ROOT / file).is_file(), f"there is no {file}"
    if name in {"run", "check", "explain"} and files:
        inventory = given.get("inventory")
        compile_plan(
            ROOT / given["plan"],
            overrides=parse_overrides(given.get("parameters")),
            inventory=ROOT / inventory if inventory else None,
        )


def assert_is_there(words: Sequence[str]) -> None:
    """Check the names of the project in a command of another program: a target of the Makefile, a file, an extra."""
    if words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert words[1] in targets, f"there is no `make {words[1]}`"
    if words[0] in {"python", "python3"} and not words[1].startswith("-"):
        assert (ROOT / words[1]).is_file(), f"there is no {words[1]}"
    if words[:3] == ["python", "-m", "pytest"]:
        assert (ROOT / words[3]).exists(), f"there is no {words[3]}"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra in re.findall(r"proveout\[(\w+)\]", " ".join(words)):
        assert extra in extras, f"there is no extra {extra}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_named_in_sentences_exist(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for span in re.findall(r"`proveout ([^`]+)`", text):
        words = span.split()
        if not re.fullmatch(r"[a-z]+", words[0]):
            continue
        assert words[0] in cli.VERBS, f"there is no `proveout {words[0]}`"
        command: Any = cli.typer.main.get_command(cli._application(words))
        for word in words:
            command = getattr(command, "commands", {}).get(word, command)
        options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= options, span


@pytest.mark.parametrize("name", ["github-workflow.yml", "gitlab-ci.yml"])
def test_workflows_in_pages_equal_their_files_and_their_artifacts_are_written(name: str) -> None:
    text = (ROOT / "docs" / "ci" / name).read_text()
    shown = [block for block in BLOCKS if block.page.name == "ci.md" and "\n".join(block.lines) == text.rstrip()]
    assert len(shown) == 1, f"docs/guide/ci.md does not show docs/ci/{name} as it is"
    written: set[str] = set()
    for command in commands_in(yaml.safe_load(text)):
        words = shlex.split(command)
        if words[0].rpartition("/")[2] == "proveout":
            parse(words[1:])
            written |= {word for before, word in pairwise(words) if before[:2] == "--" and word[:2] != "--"}
    kept = set(re.findall(r"[a-z]+\.(?:xml|json|txt|md)\b", text)) - {"constraints.txt"}
    assert kept == written


def commands_in(node: Any) -> Iterator[str]:
    """The shell commands of a workflow: `run` of steps, lines of scripts."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "run" and isinstance(value, str):
                yield value
            elif key in {"script", "before_script"}:
                yield from value
            else:
                yield from commands_in(value)
    elif isinstance(node, list):
        for item in node:
            yield from commands_in(item)


WHOLE_PLANS = [block for block in BLOCKS if block.language == "yaml" and "proveout: 1" in block.lines]


@pytest.mark.parametrize("block", WHOLE_PLANS, ids=str)
def test_whole_plans_compile(block: Block, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "plans", tmp_path / "plans")
    written = tmp_path / "plans" / "of-the-page.yaml"
    written.write_text("\n".join(block.lines))
    assert compile_plan(written).stages


# ---- running them ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the plans and one run."""
    folder = tmp_path_factory.mktemp("docs")
    shutil.copytree(ROOT / "plans", folder / "plans")
    (folder / "tiny.yaml").write_text(TINY)
    shell(folder, "proveout run tiny.yaml --headless")
    return folder


def shell(folder: Path, command: str) -> str:
    """Run a command without a terminal; return its output."""
    beside = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(folder), "NO_COLOR": "1"}
    ended = subprocess.run(
        ["bash", "-euc", command],
        cwd=folder, env=beside, capture_output=True, text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, f"{command}\n{ended.stdout}{ended.stderr}"
    return ended.stdout


@pytest.mark.server
@pytest.mark.parametrize("block", RUN, ids=str)
def test_commands_without_a_tag_are_run(block: Block, place: Path) -> None:
    shell(place, "\n".join(block.commands))

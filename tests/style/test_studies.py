"""docs/studies.md: every element has a state, and every entry of "shown by" leads to something that exists."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from synthetic_run import synthetic_results, synthetic_timeline

from proveout.coordinator.report.figures import selection
from proveout.dsl.compile.compiler import compile_plan

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/studies.md"
pytestmark = pytest.mark.slow

STATES = {"ran", "on paper", "declared", "not there"}
ROWS = [
    tuple(cell.strip() for cell in line.strip("|\n ").split(" | "))
    for line in PAGE.read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| element")
]


def flat(text: str) -> str:
    """The text with each run of blanks and line ends as one blank, without the backslashes of a table."""
    return " ".join(text.replace("\\|", "|").split())


@cache
def figures(plan: str) -> frozenset[str]:
    results = synthetic_results(compile_plan(ROOT / "plans" / f"{plan}.yaml"))
    return frozenset(one.slug for one in selection.figures(results, synthetic_timeline(results))[0])


def objection(entry: str) -> str:
    """The fault of one entry; "" without one."""
    if named := re.fullmatch(r"(tests/[\w/]+\.py)::(\w+)", entry):
        text = (ROOT / named[1]).read_text() if (ROOT / named[1]).is_file() else ""
        return "" if f"def {named[2]}(" in text else "there is no such test"
    kind, _, rest = entry.partition(" ")
    name, _, wanted = rest.partition(": ")
    if kind == "figure":
        return "" if wanted in figures(name) else f"the plan has {sorted(figures(name))}"
    files = {
        "explain": ROOT / "tests/golden/explain" / f"{name}.txt",
        "plan": ROOT / "plans" / f"{name}.yaml",
        "page": ROOT / name,
    }
    if kind not in files or not wanted:
        return "not explain, plan, page, figure or a test"
    return "" if flat(wanted) in flat(files[kind].read_text()) else f"{files[kind].name} does not have it"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:60])
def test_a_row_has_its_state_and_its_evidence(row: tuple[str, ...]) -> None:
    assert len(row) == 4
    _, way, state, shown = row
    assert state in STATES
    entries = re.findall(r"`([^`]+)`", shown)
    assert entries or state == "not there", "nothing shows it"
    assert way != "" or state == "not there"
    assert {entry: problem for entry in entries if (problem := objection(entry))} == {}
    if state == "ran":
        assert any(entry.startswith(("tests/", "figure ", "explain")) for entry in entries)


def test_all_studies_are_there() -> None:
    headings = re.findall(r"^## (.+)$", PAGE.read_text(), re.MULTILINE)
    assert len(headings) == 5
    assert len(ROWS) > 150

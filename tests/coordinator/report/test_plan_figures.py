"""The figures that come out of each shipped plan, from the results of an invented run: no server, no run."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest
from synthetic_run import synthetic_results, synthetic_timeline

from proveout.coordinator.report.figures import selection
from proveout.coordinator.report.figures.chart_figures import NAME
from proveout.coordinator.report.figures.figure import Figure
from proveout.dsl.compile.compiler import compile_plan

pytestmark = pytest.mark.slow

PLANS = Path(__file__).parents[3] / "plans"
ALL = sorted(path.relative_to(PLANS).with_suffix("").as_posix() for path in PLANS.glob("**/*.yaml")
             if path.parent.name in ("plans", "starters"))  # fmt: skip

GOLDEN = Path(__file__).parents[2] / "golden" / "figures"
UPDATE = bool(os.environ.get("PROVEOUT_UPDATE_GOLDEN"))


@cache
def drawn(name: str) -> tuple[list[Figure], dict[str, str], tuple[str, ...]]:
    """(figures, missing ones, names of the figures that the plan names and of its charts) of a plan's report."""
    plan = compile_plan(PLANS / f"{name}.yaml")
    results = synthetic_results(plan)
    found, missing = selection.figures(results, synthetic_timeline(results))
    return found, missing, (*plan.figures, *([NAME] if plan.charts else []))


@pytest.mark.parametrize("name", ALL)
def test_every_figure_that_a_plan_names_comes_out(name: str) -> None:
    found, missing, wanted = drawn(name)
    assert not missing
    assert set(wanted) <= {one.name for one in found}
    assert found, "a plan without a figure shows nothing"
    assert len({one.slug for one in found}) == len(found)


@pytest.mark.parametrize("name", ALL)
def test_the_figures_of_a_plan(name: str) -> None:
    """`tests/golden/figures` has the figures of each plan: PROVEOUT_UPDATE_GOLDEN=1 writes them again."""
    found, *_ = drawn(name)
    text = "".join(f"{one.slug}: {one.title}\n" for one in found)
    path = GOLDEN / f"{name.replace('/', '-')}.txt"
    if UPDATE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), "PROVEOUT_UPDATE_GOLDEN=1 writes the file again: read the diff"


def test_every_file_of_figures_has_its_plan() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == {name.replace("/", "-") for name in ALL}


def test_a_ladder_without_response_times_has_no_figure_of_them() -> None:
    """As of a program whose output has none."""
    results = synthetic_results(compile_plan(PLANS / "pgbench-embedded.yaml"))
    for rung in (rung for stage in results.stages.values() for rung in stage.rungs):
        for tree in (rung.tree, *rung.tree["transactions"].values()):
            tree.pop("response")
    found, _ = selection.figures(results, synthetic_timeline(results))
    figures = {one.name: one for one in found}
    assert "latency-by-transaction" not in figures
    assert "right axis" not in figures["relative-tps-latency"].caption
    assert "response" not in str(figures["relative-tps-latency"].spec)

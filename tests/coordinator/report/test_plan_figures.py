"""The figures that come out of shipped plans, from the results of an invented run: no server, no run."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_run import synthetic_results, synthetic_timeline

from proveout.coordinator.report.figures import selection
from proveout.coordinator.report.figures.stage_figures import NAME
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.schema.models import FIGURES

PLANS = Path(__file__).parents[3] / "plans"
KINDS = (
    "calibrate-io-lab", "failover-embedded", "hlr-cache-embedded", "htap-embedded", "settings-sweep-embedded",
    "spike-embedded", "storage-embedded", "storage-forms-embedded",
)  # fmt: skip
ELSEWHERE = {"search", "update-time", "latency-at-peak"}
"""Figures that come out of none of these: `test_load_over_time`, `test_html_report` and `test_panels` have them."""
OTHERS = sorted(path.relative_to(PLANS).with_suffix("").as_posix() for path in PLANS.glob("**/*.yaml")
                if path.parent.name in ("plans", "starters") and path.stem not in KINDS)  # fmt: skip


def drawn(name: str) -> dict[str, int]:
    """The figures of a plan's report, with the rows of their tables; all that the plan names are among them."""
    plan = compile_plan(PLANS / f"{name}.yaml")
    results = synthetic_results(plan)
    found, missing = selection.figures(results, synthetic_timeline(results))
    assert not missing
    assert {*plan.figures, *([NAME] if plan.charts else [])} <= {one.name for one in found}
    assert len({one.slug for one in found}) == len(found) > 0, "a plan without a figure shows nothing"
    assert all(len(row) == len(one.heads) for one in found for row in one.rows)
    return {one.name: len(one.rows) for one in found}


def test_every_kind_of_figure_comes_out_of_a_shipped_plan() -> None:
    rows = {name: count for plan in KINDS for name, count in drawn(plan).items()}
    assert set(rows) - {NAME} == set(FIGURES) - ELSEWHERE
    assert min(rows.values()) > 0


@pytest.mark.soak
@pytest.mark.parametrize("name", OTHERS)
def test_every_figure_that_a_plan_names_comes_out(name: str) -> None:
    assert drawn(name)


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

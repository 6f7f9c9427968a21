"""The figures that come out of each shipped plan, from the results of an invented run: no server, no run."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_run import synthetic_results, synthetic_timeline

from proveout.coordinator.report.figures import selection
from proveout.coordinator.report.figures.chart_figures import NAME
from proveout.dsl.compile.compiler import compile_plan

PLANS = Path(__file__).parents[3] / "plans"
ALL = sorted(path.relative_to(PLANS).with_suffix("").as_posix() for path in PLANS.glob("**/*.yaml")
             if path.parent.name in ("plans", "starters"))  # fmt: skip

STUDIES = {
    "hlr-cache-lab": [
        "relative-tps-latency-baseline", "relative-tps-latency-capped", "relative-tps-latency-cached",
        "latency-by-threads-baseline", "latency-by-transaction-baseline", "latency-by-transaction-capped",
        "latency-by-transaction-cached", "host-cpu", "peak-cpu", "wait-events-baseline", "wait-events-capped",
        "wait-events-cached", "lag-cached", "chart-unlike-threads", "chart-relative-latency", "chart-node-cpu",
    ],
    "tprocc-lab": [
        "nopm-art-one_node", "latency-by-transaction-one_node", "latency-by-transaction-two_nodes",
        "latency-by-transaction-four_nodes", "host-cpu", "peak-cpu", "wait-events-one_node", "wait-events-two_nodes",
        "wait-events-four_nodes", "chart-nodes", "chart-scaling",
    ],
    "hlr-cache-embedded": ["latency-by-threads-baseline", "latency-by-transaction-uncached", "peak-cpu",
        "chart-unlike-threads"],
    "tprocc-embedded": ["nopm-art-ladder", "latency-by-threads-ladder", "peak-cpu"],
    "members-embedded": ["host-cpu", "chart-members", "chart-member-scaling"],
    "calibrate-io-lab": ["stage-values-calibrate"],
    "tptbm-exalogic-lab": [
        "relative-tps-latency-reading", "latency-by-threads-reading", "latency-by-threads-mixing", "host-cpu",
        "chart-members", "chart-member-scaling",
    ],
    "tptbm-xe-lab": ["scaling-reading1", "scaling-reading2", "chart-reads-by-cpu", "chart-updates-by-cpu",
        "chart-latency"],
}  # fmt: skip
"""The figures of the published studies by plan: slugs, in their order."""


def drawn(name: str) -> tuple[list[str], list[str], dict[str, str], tuple[str, ...]]:
    """(names, slugs, missing, figures that the plan names and its charts) of a plan's report."""
    plan = compile_plan(PLANS / f"{name}.yaml")
    results = synthetic_results(plan)
    found, missing = selection.figures(results, synthetic_timeline(results))
    wanted = (*plan.figures, *([NAME] if plan.charts else []))
    return [one.name for one in found], [one.slug for one in found], missing, wanted


@pytest.mark.parametrize("name", ALL)
def test_every_figure_that_a_plan_names_comes_out(name: str) -> None:
    names, slugs, missing, wanted = drawn(name)
    assert not missing
    assert set(wanted) <= set(names)
    assert names, "a plan without a figure shows nothing"
    assert len(set(slugs)) == len(slugs)


@pytest.mark.parametrize("name", STUDIES)
def test_the_figures_of_the_studies(name: str) -> None:
    _, slugs, _, _ = drawn(name)
    assert [slug for slug in slugs if slug in STUDIES[name]] == STUDIES[name]

"""The interference of loads: from the iterations of a ladder and of each of its loads alone to ratios, verdicts and
tables, against the same arithmetic by hand."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import pytest
from records import begun, ended, iteration, run_started

from proveout.coordinator.report import markdown
from proveout.coordinator.report.figures.grammar import groups
from proveout.coordinator.report.figures.load_figures import interference, ratio_rows
from proveout.coordinator.report.run_document import run_document
from proveout.coordinator.report.summary import ladder_comparisons
from proveout.coordinator.results.results import RunResults, environment, load_results, stage_metrics
from proveout.coordinator.verdict.checks import judge
from proveout.coordinator.verdict.provenance import provenance
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder
from proveout.proto.events import Event

TWO_LOADS = Path(__file__).parents[2] / "statistics" / "two_loads.yaml"
TOGETHER = {"one": (80.0, 82.0, 70.0), "two": (20.0, 22.0, 26.0)}
ALONE = {"one": (100.0, 110.0, 90.0), "two": (40.0, 44.0, 40.0)}
TPS_RATIO = "mix.at(4).loads.one.interference.tps_ratio"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return compile_plan(TWO_LOADS)


def results(plan: Plan, *, void: str = "", rate: float = 0.0) -> RunResults:
    """A finished run; the iteration `void` (`stage/repeat`) is invalid."""
    events: list[Event] = [run_started(plan)]
    ladders = [stage for stage in plan.stages if isinstance(stage, Ladder)]
    for stage in ladders:
        events.append(begun(stage.id))
        for repeat in (1, 2, 3):
            found = ALONE if stage.alone else TOGETHER
            loads = {n: numbers(found[n][repeat - 1], rate) for n in found if stage.alone in ("", n)}
            metrics = {**numbers(sum(load["tps"] for load in loads.values()), 0.0), "loads": loads}
            events.append(iteration(stage.id, 4, repeat, metrics, valid=void != f"{stage.id}/{repeat}"))
    for stage in ladders:
        events.append(ended(stage.id, stage_metrics(stage, load_results(events), seconds=1.0)))
    return load_results(events)


def numbers(tps: float, rate: float) -> dict[str, Any]:
    return {"tps": tps, "rate": rate, "response": dict.fromkeys(("avg_us", "p50_us", "p99_us"), 1000000.0 / tps)}


def test_the_ratio_is_that_of_the_pairs_of_the_same_repeat(plan: Plan) -> None:
    (rung,) = results(plan).stages["mix"].rungs
    together, alone = TOGETHER["one"], ALONE["one"]
    shares = [a * 3.0 / sum(together) - b * 3.0 / sum(alone) for a, b in zip(together, alone, strict=True)]
    logs = [math.log(a / b) for a, b in zip(together, alone, strict=True)]
    variance = max(statistics.variance(shares), statistics.variance(logs))
    half, centre = 4.302653 * math.sqrt(variance / 3.0), sum(together) / sum(alone)
    found = rung.tree["loads"]["one"]["interference"]["tps_ratio"]
    assert found["mean"] == pytest.approx(centre) and found["method"] == "paired" and found["n"] == 3
    assert (found["lower"], found["upper"]) == pytest.approx((centre * math.exp(-half), centre * math.exp(half)))
    times = rung.tree["loads"]["one"]["interference"]["p99_ratio"]
    assert times["mean"] == pytest.approx(sum(1.0 / tps for tps in together) / sum(1.0 / tps for tps in alone))


def test_verdicts_read_it_at_a_rung_and_at_the_peak_with_the_iterations_of_both_ladders(plan: Plan) -> None:
    run = results(plan)
    tree = environment(run)
    assert judge(f"{TPS_RATIO} < 0.95", tree).outcome == "PASS"
    assert judge(f"{TPS_RATIO} > 0.95", tree).outcome == "FAIL"
    assert judge(f"{TPS_RATIO} < 0.77", tree).outcome == "INCONCLUSIVE"
    for text in (TPS_RATIO, TPS_RATIO.replace("at(4)", "peak")):
        found = provenance(f"{text} < 0.95", run)
        assert found.stages == ("mix", "mix__one_alone") and len(found.iterations) == 6
        assert not found.remarks


def test_a_pair_without_a_valid_side_is_left_out_and_named(plan: Plan) -> None:
    run = results(plan, void="mix__one_alone/2")
    (rung,) = run.stages["mix"].rungs
    assert rung.tree["loads"]["one"]["interference"]["tps_ratio"]["n"] == 2
    assert rung.tree["loads"]["two"]["interference"]["tps_ratio"]["n"] == 3
    assert [text[:20] for text in provenance(f"{TPS_RATIO} < 0.95", run).excluded] == ["mix__one_alone/4/2/1"]


def test_a_load_at_a_fixed_rate_has_no_ratio_of_its_throughput(plan: Plan) -> None:
    (rung,) = results(plan, rate=5.0).stages["mix"].rungs
    assert rung.tree["loads"]["one"]["interference"].keys() == {"avg_ratio", "p50_ratio", "p99_ratio"}


def test_reports_show_each_load_together_and_alone_and_not_the_ladders_of_one_load(plan: Plan) -> None:
    run = results(plan)
    rows = ratio_rows(run.stages["mix"], "interference")
    assert [(row.load, row.name) for row in rows][:3] == [("one", n) for n in ("tps_ratio", "avg_ratio", "p99_ratio")]
    text = markdown.render(run_document(run))
    assert "Interference: each load together with the others, and alone" in text
    assert "| 4 | one | throughput | 77/s | 100/s | 0.773 × | 0.705 … 0.848 |" in text, text
    assert "mix__one_alone" not in text.split("Validity")[0]
    (figure,) = interference(run)
    assert figure.slug == "interference-mix" and len(figure.rows) == 6
    assert [[stage.id for stage in group] for group in groups(run)] == [["mix"]] and not ladder_comparisons(run)

"""Results of invented runs: peak and knee, faults over repeats, the interference of loads, cells of a matrix, growth of
the data and published numbers, each against the same arithmetic by hand, with verdicts on them and where people read
them."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from records import begun, ended, iteration, ladder_metrics, run_started, whole_ladder
from rich.console import Console
from verdict_histories import finish, ladder

from proveout.coordinator import comparison
from proveout.coordinator.comparison import compare
from proveout.coordinator.measure.faults import fault_bounds, fault_metrics
from proveout.coordinator.report import csv_export, json_documents, markdown, terminal
from proveout.coordinator.report.figures.grammar import groups
from proveout.coordinator.report.figures.load_figures import interference, ratio_rows
from proveout.coordinator.report.run_document import run_document
from proveout.coordinator.report.summary import ladder_comparisons
from proveout.coordinator.report.tables import size_rows
from proveout.coordinator.results.published import Reproduction, growth_notes, reproductions
from proveout.coordinator.results.results import (
    RunResults,
    environment,
    load_results,
    stage_metrics,
)
from proveout.coordinator.verdict.checks import Judged, judge
from proveout.coordinator.verdict.provenance import provenance
from proveout.coordinator.verdict.verdicts import reach
from proveout.core.numbers import interval
from proveout.core.statistics import estimate
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.expr.syntax import ExpressionFault
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder
from proveout.proto.events import (
    Event,
    FaultMeasured,
    FaultOnLoad,
    IterationFinished,
    IterationVoided,
    LadderCut,
    SizeLine,
)

TESTS = Path(__file__).parents[2]
GOOD = TESTS / "golden" / "good"
Fields = dict[str, Any]

# ---- peak and knee: their bounds hold for all rungs that could have been chosen ----------------------------------


def climbed(*values: Sequence[float]) -> list[IterationFinished]:
    return [
        iteration("s", rung, n, {"tps": float(tps)})
        for rung, row in enumerate(values, 1)
        for n, tps in enumerate(row, 1)
    ]


BEST = (100.0, 101.0, 99.0)
RIVAL = (99.0, 100.0, 98.0)


def test_a_peak_pays_only_for_rungs_that_could_have_been_the_best() -> None:
    alone = ladder_metrics(climbed((10.0, 10.1, 9.9), (50.0, 50.5, 49.5), BEST))
    assert alone["peak"]["tps"] == alone["rungs"]["3"]["tps"]
    assert "chosen_from" not in alone["peak"]["tps"]
    rivals = ladder_metrics(climbed((10.0, 10.1, 9.9), RIVAL, BEST))
    assert rivals["peak"]["tps"]["chosen_from"] == 2
    assert rivals["peak"]["tps"]["lower"] < rivals["rungs"]["3"]["tps"]["lower"]


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_a_throughput_that_is_not_a_number_is_left_out() -> None:
    nan = float("nan")
    found = ladder_metrics(climbed((nan, nan, nan), RIVAL, BEST, (nan, 1.0, 1.0)))
    peak = found["peak"]["tps"]
    assert peak == found["rungs"]["3"]["tps"] | {name: peak[name] for name in ("chosen_from", "lower", "upper")}
    assert peak["chosen_from"] == 2
    assert "peak" not in ladder_metrics(climbed((nan, nan, nan)))


def test_a_ladder_does_not_end_at_a_rung_whose_iteration_is_voided_later() -> None:
    cut = LadderCut(stage="a", at_rung=4, skipped=(8,), evidence="errors")
    for rung, left in ((4, None), (2, cut)):
        ran = [iteration("a", 2, 1, {}), iteration("a", 4, 1, {})]
        (voided,) = (one.id for one in ran if one.id.rung == rung)
        undone = IterationVoided(id=voided, reason="the disk was full", rerun=False)
        assert load_results([run_started({}), begun("a"), *ran, cut, undone]).stages["a"].cut == left


def test_a_metric_that_a_repeat_lacks_is_counted() -> None:
    items = climbed(BEST)
    for at, size in ((0, 5.0), (2, 7.0)):
        items[at].metrics["sizes"] = {"total_bytes": size}
    rung = ladder_metrics(items)["rungs"]["1"]
    found = rung["sizes"]["total_bytes"]
    assert (found["n"], found["repeats"], found["missing"]) == (2, [1, 3], 1)
    assert "missing" not in rung["tps"]


def test_the_interval_of_what_a_counter_grew_by_has_nothing_below_0() -> None:
    items = climbed(BEST)
    for item, rate in zip(items, (0.5, 1.0, 3.0), strict=True):
        item.metrics["prometheus"] = {"node": {"reads": {"per_s": rate, "delta": 10.0 * rate}}}
    found = ladder_metrics(items)["rungs"]["1"]["prometheus"]["node"]["reads"]
    assert found["per_s"]["lower"] > 0.0 < found["delta"]["lower"]


def test_no_event_has_the_rule_of_three_of_the_transactions_that_were_counted() -> None:
    """Not of the throughput, which is that of a phase, or of the slices of a load, over the whole window."""
    none = {"count": 0, "fraction": 0.0}
    load = {"tps": 1_000.0, "errors": none, "ended": {"count": 990}, "late": {"count": 10}}
    load["transactions"] = {"Get": {"tps": 1_000.0, "ok": 500, "logical_fraction": 0.0}}
    whole = load | {"ended": {"count": 59_990}, "phases": {"spike": load}}
    tree = ladder_metrics([iteration("s", 1, n, whole, measure_s=60.0) for n in (1, 2, 3)])["rungs"]["1"]
    spike = tree["phases"]["spike"]
    found = (tree["errors"], spike["errors"], {"fraction": spike["transactions"]["Get"]["logical_fraction"]})
    assert [3.0 / one["fraction"]["upper"] for one in found] == pytest.approx([180_000, 3_000, 1_500], rel=0.002)


# ---- faults: each occurrence is a sample, the repeat is the unit -------------------------------------------------


def faulted(repeat: int, *each: Fields, loads: Sequence[str] = (), rung: int = 4) -> IterationFinished:
    found = tuple(
        FaultMeasured(
            fault="crash", number=n, begins_s=10.0 * n, **fields,
            loads=tuple(FaultOnLoad(load=load, **fields) for load in loads),
        )
        for n, fields in enumerate(each, 1)
    )  # fmt: skip
    below = {load: {"tps": 50.0, "faults": fault_metrics(found, load)} for load in loads}
    metrics = {"tps": 100.0, "faults": fault_metrics(found)} | ({"loads": below} if loads else {})
    return iteration("run", rung, repeat, metrics, faults=found, at_least=fault_bounds(found))


def outages(*repeats: Sequence[float]) -> list[IterationFinished]:
    return [faulted(n, *({"outage_s": value} for value in each)) for n, each in enumerate(repeats, 1)]


def crash(iterations: Sequence[IterationFinished]) -> Fields:
    found: Fields = ladder_metrics(iterations)["rungs"]["4"]["faults"]["crash"]
    return found


def judged(check: str, iterations: Sequence[IterationFinished]) -> Judged:
    """A check of numbers of the fault."""
    return judge(f'run.at(4).faults["crash"].{check}', {"run": ladder_metrics(iterations)})


def test_the_interval_is_that_of_the_means_of_the_repeats() -> None:
    found = crash(outages([3.0, 3.4], [2.8, 3.0], [3.1, 3.9]))
    held, of_means, ends = found["outage_s"], estimate([3.2, 2.9, 3.5]), ("mean", "lower", "upper")
    assert (held["n"], held["occurrences"], found["occurrences"]) == (3, 6, 6)
    assert [held[end] for end in ends] == pytest.approx([of_means[end] for end in ends])
    assert held["median"] == pytest.approx(3.05)
    assert held["samples"] == [[3.0, 3.4], [2.8, 3.0], [3.1, 3.9]]
    assert found["max"] == {"outage_s": 3.9}
    assert interval(held, "outage_s").endswith("n = 3, 6 occurrences)")


def test_of_one_repeat_the_occurrences_are_the_unit_and_the_evidence_states_it() -> None:
    iterations = outages([3.0, 3.4, 3.2])
    held, of_occurrences = crash(iterations)["outage_s"], estimate([3.0, 3.4, 3.2])
    assert (held["n"], held["unit"]) == (3, "occurrences")
    assert (held["lower"], held["upper"]) == (of_occurrences["lower"], of_occurrences["upper"])
    found = judged("outage_s <= 5", iterations)
    assert found.outcome == "PASS" and "n = 3 occurrences of one repeat" in found.evidence


def test_the_numbers_of_a_fault_at_the_peak_hold_for_all_rungs_that_could_be_it() -> None:
    peak = ladder_metrics([faulted(n, BOUND | {"outage_s": 2.0 + n}, rung=rung) for rung in (4, 8) for n in (1, 2, 3)])[
        "peak"
    ]
    bound = peak["at_least"]["faults"]["crash"]["recovery_s"]["estimate"]
    assert {one.get("chosen_from") for one in (peak["tps"], peak["faults"]["crash"]["outage_s"], bound)} == {2}


KNOWN = {"recovery_s": 4.0}
BOUND = {"recovery_s": None, "recovery_at_least_s": 30.0}
OPEN = {"outage_s": 12.0, "outage_at_least": True}
LOSSLESS = [faulted(n, {"failed": 4, "lost": 0}, {"failed": 9, "lost": 0}) for n in (1, 2)]
PARTLY = [faulted(1, KNOWN, KNOWN), faulted(2, KNOWN, BOUND), faulted(3, KNOWN, KNOWN)]
LACKING = [faulted(n, {"detection_s": each}) for n, each in enumerate((0.1, None, 0.1), 1)]
AT_LEAST = "occurrences that did not end within the observed time make it a lower bound"


@pytest.mark.parametrize(
    ("check", "iterations", "outcome", "evidence"),
    [
        ("lost == 0", LOSSLESS, "PASS", ""),
        ("failed <= 9", LOSSLESS, "PASS", ""),
        ("failed <= 8", LOSSLESS, "FAIL", ""),  # it must hold in each occurrence
        ("lost == 0", [faulted(1, {"lost": 0}), faulted(2, {"lost": 1})], "FAIL", ""),
        ("recovery_s <= 60", PARTLY, "INCONCLUSIVE", AT_LEAST),
        ("max.recovery_s <= 20", PARTLY, "FAIL", ""),
        ("max.recovery_s <= 40", PARTLY, "INCONCLUSIVE", ""),
        ("max.outage_s <= 10", [faulted(n, {"outage_s": 3.0}, OPEN) for n in (1, 2)], "FAIL", ""),
        ("max.outage_s <= 20", [faulted(n, {"outage_s": 3.0}, OPEN) for n in (1, 2)], "INCONCLUSIVE", ""),
        ("recovery_s <= 10", [faulted(n, BOUND, {**BOUND, "recovery_at_least_s": 31.0 + n}) for n in (1, 2, 3)], "FAIL",
             ""),
        ("detection_s <= 1", LACKING, "INCONCLUSIVE", "missing in 1 of 3 repeats"),
    ],
)  # fmt: skip
def test_verdicts_on_faults(check: str, iterations: list[IterationFinished], outcome: str, evidence: str) -> None:
    found = judged(check, iterations)
    assert found.outcome == outcome, found.evidence
    assert evidence in found.evidence


def test_a_number_that_some_occurrence_lacks_and_the_numbers_of_each_of_several_loads() -> None:
    assert "recovery_s" not in crash(PARTLY[1:2])
    assert (crash(LACKING)["detection_s"]["missing"], crash(LACKING)["max"]) == (1, {})
    several = [faulted(n, {"outage_s": 2.0 + n}, loads=["orders", "reports"]) for n in (1, 2)]
    found = ladder_metrics(several)["rungs"]["4"]["loads"]["orders"]["faults"]["crash"]
    assert (found["outage_s"]["mean"], found["max"]["outage_s"]) == (3.5, 4.0)


# ---- the interference of loads -----------------------------------------------------------------------------------

TOGETHER = {"one": (80.0, 82.0, 70.0), "two": (20.0, 22.0, 26.0)}
ALONE = {"one": (100.0, 110.0, 90.0), "two": (40.0, 44.0, 40.0)}
TPS_RATIO = "mix.at(4).loads.one.interference.tps_ratio"


@pytest.fixture(scope="module")
def two_loads() -> Plan:
    return compile_plan(TESTS / "statistics" / "two_loads.yaml")


def mixed(plan: Plan, *, void: str = "", endless: str = "", rate: float = 0.0) -> RunResults:
    """A finished run; the iteration `void` (`stage/repeat`) is invalid. With an `endless` one, which has no mean response
    time, the loads together have ratios of slices."""

    def numbers(tps: float, rate: float) -> Fields:
        return {"tps": tps, "rate": rate, "response": dict.fromkeys(("avg_us", "p50_us", "p99_us"), 1e6 / tps)}

    events: list[Event] = [run_started(plan)]
    ladders = [stage for stage in plan.stages if isinstance(stage, Ladder)]
    for stage in ladders:
        events.append(begun(stage.id))
        for repeat in (1, 2, 3):
            found = ALONE if stage.alone else TOGETHER
            loads = {n: numbers(found[n][repeat - 1], rate) for n in found if stage.alone in ("", n)}
            metrics = {**numbers(sum(load["tps"] for load in loads.values()), 0.0), "loads": loads}
            bounds = (
                {f"loads.{name}.response.avg_us": 1.0 for name in loads} if endless == f"{stage.id}/{repeat}" else {}
            )
            for load in loads.values() if bounds else ():
                del load["response"]["avg_us"]
            if endless and not stage.alone:
                loads["two"]["versus"] = {"tps_ratio": 0.5} | ({} if bounds else {"avg_ratio": 2.0})
            finished = iteration(stage.id, 4, repeat, metrics, valid=void != f"{stage.id}/{repeat}")
            events.append(replace(finished, at_least=bounds))
    for stage in ladders:
        events.append(ended(stage.id, stage_metrics(stage, load_results(events), seconds=1.0)))
    return load_results(events)


def ratios(run: RunResults, load: str = "one") -> Fields:
    (rung,) = run.stages["mix"].rungs
    found: Fields = rung.tree["loads"][load]["interference"]
    return found


def test_the_ratio_is_that_of_the_pairs_of_the_same_repeat(two_loads: Plan) -> None:
    together, alone = TOGETHER["one"], ALONE["one"]
    shares = [a * 3.0 / sum(together) - b * 3.0 / sum(alone) for a, b in zip(together, alone, strict=True)]
    logs = [math.log(a / b) for a, b in zip(together, alone, strict=True)]
    variance = max(statistics.variance(shares), statistics.variance(logs))
    half, centre = 4.302653 * math.sqrt(variance / 3.0), sum(together) / sum(alone)
    found = ratios(mixed(two_loads))
    tps = found["tps_ratio"]
    assert tps["mean"] == pytest.approx(centre) and tps["method"] == "paired" and tps["n"] == 3
    assert (tps["lower"], tps["upper"]) == pytest.approx((centre * math.exp(-half), centre * math.exp(half)))
    times = sum(1.0 / tps for tps in together) / sum(1.0 / tps for tps in alone)
    assert found["p99_ratio"]["mean"] == pytest.approx(times)
    fixed = ratios(mixed(two_loads, rate=5.0))
    assert fixed.keys() == {"avg_ratio", "p50_ratio", "p99_ratio"}, "a fixed rate has no ratio of its throughput"


def test_verdicts_read_it_at_a_rung_and_at_the_peak_with_the_iterations_of_both_ladders(two_loads: Plan) -> None:
    run = mixed(two_loads)
    tree = environment(run)
    for limit, outcome in (("< 0.95", "PASS"), ("> 0.95", "FAIL"), ("< 0.77", "INCONCLUSIVE")):
        assert judge(f"{TPS_RATIO} {limit}", tree).outcome == outcome
    for text in (TPS_RATIO, TPS_RATIO.replace("at(4)", "peak")):
        found = provenance(f"{text} < 0.95", run)
        assert found.stages == ("mix", "mix__one_alone") and len(found.iterations) == 6
        assert not found.remarks


def test_a_pair_without_a_valid_side_is_left_out_and_named(two_loads: Plan) -> None:
    run = mixed(two_loads, void="mix__one_alone/2")
    assert [ratios(run, load)["tps_ratio"]["n"] for load in ("one", "two")] == [2, 3]
    assert [text[:20] for text in provenance(f"{TPS_RATIO} < 0.95", run).excluded] == ["mix__one_alone/4/2/1"]


def test_a_ratio_is_shown_where_a_repeat_lacks_a_number_of_its_sides(two_loads: Plan) -> None:
    text = markdown.render(run_document(mixed(two_loads, endless="mix/2")))
    assert "| 4 | two | response avg | - | - | 2 × |" in text, text


def test_reports_show_each_load_together_and_alone_and_not_the_ladders_of_one_load(two_loads: Plan) -> None:
    run = mixed(two_loads)
    rows = ratio_rows(run.stages["mix"], "interference")
    assert [(row.load, row.name) for row in rows][:3] == [("one", n) for n in ("tps_ratio", "avg_ratio", "p99_ratio")]
    text = markdown.render(run_document(run))
    assert "Interference: each load together with the others, and alone" in text
    assert "| 4 | one | throughput | 77/s | 100/s | 0.773 × | 0.705 … 0.848 |" in text, text
    assert "mix__one_alone" not in text.split("Validity")[0]
    (figure,) = interference(run)
    assert figure.slug == "interference-mix" and len(figure.rows) == 6
    assert [[stage.id for stage in group] for group in groups(run)] == [["mix"]] and not ladder_comparisons(run)


# ---- a matrix ----------------------------------------------------------------------------------------------------

CELLS = {
    "solve__plain__users_1": 100.0,
    "solve__plain__users_2": 180.0,
    "solve__lz4__users_1": 90.0,
    "solve__lz4__users_2": 400.0,
}


@pytest.fixture(scope="module")
def matrix() -> Plan:
    return compile_plan(GOOD / "matrix.yaml")


def celled(plan: Plan, cells: Mapping[str, float] = CELLS, run_id: str = "r") -> RunResults:
    stages = [event for name, tps in cells.items() for event in ladder(name, {8: [tps, tps * 1.01, tps * 0.99]})]
    return load_results([run_started(plan, run_id), *stages])


def test_the_labels_of_cells_are_in_rows_and_documents_and_neighbours_are_compared(matrix: Plan) -> None:
    run = celled(matrix)
    read = list(csv.DictReader(io.StringIO(csv_export.to_csv(run))))
    assert {(row["matrix"], row["matrix.mode"], row["matrix.users"]) for row in read} == {
        ("solve", mode, users) for mode in ("plain", "lz4") for users in ("1", "2")
    }
    assert csv_export.to_table(run).column("matrix.mode").to_pylist() == [row["matrix.mode"] for row in read]
    document = json.loads(json_documents.result_to_json(run))
    jsonschema.validate(document, json_documents.result_schema())
    assert [stage["cell"] for stage in document["stages"]][-1] == {"of": "solve", "labels": {"mode": "lz4", "users": 2}}
    assert [(pair.base, pair.other) for pair in ladder_comparisons(run)] == [
        ("solve__plain__users_1", "solve__lz4__users_1"),
        ("solve__plain__users_2", "solve__lz4__users_2"),
    ]


def test_a_condition_over_two_runs_names_a_cell_by_its_labels(matrix: Plan) -> None:
    compared = compare(celled(matrix), celled(matrix, CELLS | {"solve__lz4__users_2": 200.0}, "s"))
    for users, holds in ((2, True), (1, False)):
        condition = comparison.check(f'solve.mode("lz4").users({users}).at(8).tps.change.upper < -5%', matrix)
        assert condition.text == f"solve__lz4__users_{users}.at(8).tps.change.upper < -5%"
        assert comparison.judge(condition, compared).holds is holds
    with pytest.raises(ExpressionFault, match="has no value") as caught:
        comparison.check('solve.mode("lz").users(2).at(8).tps.change.upper < -5%', matrix)
    assert "lz4" in caught.value.way_out


# ---- growth of the data between compared measurements ------------------------------------------------------------

GROWTH = """
proveout: 1
name: growth
topology:
  hosts: {h: {roles: [client], address: local}}
  systems: {db: {engine: sqlite, host: h, provision: embedded}}
workloads: {w: {kind: tptbm, key: 4}}
captures: {sizes: {kind: sizes, system: db}}
stages:
  - populate: {id: load, workload: w, into: db}
  - ladder:
      {id: m, workload: w, target: db, threads: [1, 2], measure: 5s, repeat: 2, capture: sizes,
       session: {cache_size: "${matrix.cache}"}, matrix: {cache: [100, 200]}STEPS}
"""
MIB = 2**20
Grown = Mapping[str, Sequence[tuple[int, int, float, float]]]


def grown(folder: Path, sizes: Grown, steps: str = "") -> RunResults:
    """A run with (rung, repeat, MiB at the start, MiB at the end) of the iterations of each cell."""

    def item(stage: str, rung: int, repeat: int, start: float, end: float) -> IterationFinished:
        line = SizeLine(system="db", table="t", part="table", name="t", start_bytes=start * MIB, end_bytes=end * MIB)
        return iteration(stage, rung, repeat, {"tps": 100.0}, sizes=(line,), started_unix_s=start)

    (folder / "plan.yaml").write_text(GROWTH.replace("STEPS", steps))
    history: list[Event] = [run_started(compile_plan(folder / "plan.yaml", overrides={}))]
    for stage, rows in sizes.items():
        history += whole_ladder(stage, [item(stage, *row) for row in rows])
    return load_results(history)


GREW: Grown = {
    "m__cache_100": [(1, 1, 10.0, 10.5), (2, 1, 10.5, 11.0)],
    "m__cache_200": [(1, 1, 14.0, 14.5), (2, 1, 14.5, 15.0)],
}


def test_growth_between_cells_is_a_finding_and_not_a_factor_of_the_matrix(tmp_path: Path) -> None:
    results = grown(tmp_path, GREW)
    (note,) = growth_notes(results)
    assert note.startswith(
        "the cells of m: the tables and indexes of db were 10.3 MiB at the start of cache 100 and 14.3 MiB at the start "
        "of cache 200, 39 % more (limit 10 %)"
    )
    assert "the tables and indexes of db" in markdown.render(run_document(results))
    (rows,) = size_rows(results).values()
    assert {(row.mode, row.total_bytes) for row in rows} == {("db", 15.0 * MIB)}  # the latest, and one mode only
    loading = grown(tmp_path, GREW, ", before: [populate: {workload: w, into: db}]")
    assert growth_notes(loading) == []
    (rows,) = size_rows(loading).values()
    assert {row.mode for row in rows} == {"100", "200"}, "cells whose steps load their data are modes"


def test_growth_from_rung_to_rung_is_a_finding_and_turns_balance_it_between_cells(tmp_path: Path) -> None:
    balanced: Grown = {
        "m__cache_100": [(1, 1, 10.0, 11.0), (2, 1, 12.0, 13.0), (1, 2, 16.0, 17.0), (2, 2, 18.0, 19.0)],
        "m__cache_200": [(1, 1, 13.0, 14.0), (2, 1, 14.0, 15.0), (1, 2, 13.0, 14.0), (2, 2, 14.0, 15.0)],
    }
    (note,) = growth_notes(grown(tmp_path, balanced))
    assert note.startswith("m__cache_100: ")
    assert "13 MiB at the start of 1 thread and 15 MiB at the start of 2 threads, 15.4 % more" in note
    fine: tuple[Grown, ...] = ({}, {"m__cache_100": [(1, 1, 10.0, 20.0)]}, {"m__cache_100": GREW["m__cache_100"]})
    assert [growth_notes(grown(tmp_path, each)) for each in fine] == [[], [], []]


# ---- published numbers beside measured ones ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def published() -> Plan:
    return compile_plan(GOOD / "published.yaml", overrides={})


def reproduced(plan: Plan, four: Sequence[float]) -> RunResults:
    """The results of a run of the plan with 100/s at one thread and `four` at four threads."""
    events: list[Event] = [run_started(plan), *finish("ladder", ladder("ladder", {1: [100.0, 101.0, 99.0], 4: four}))]
    return replace(load_results(events), verdicts=reach(plan, events))


def found(plan: Plan, *four: float) -> dict[str, Reproduction]:
    return {one.id: one for one in reproductions(reproduced(plan, four))}


def test_a_number_is_reproduced_when_its_whole_interval_is_near_enough(published: Plan) -> None:
    cases = {"PASS": (350.0, 351.0, 349.0), "FAIL": (450.0, 451.0, 449.0), "INCONCLUSIVE": (350.0, 390.0, 310.0)}
    assert [found(published, *four)["scaling"].outcome for four in cases.values()] == list(cases)
    scaling = found(published, 385.0, 386.0, 384.0)["scaling"]
    assert scaling.factor["mean"] == pytest.approx(1.1, rel=0.01)
    assert scaling.factor["lower"] < scaling.factor["mean"] < scaling.factor["upper"]
    assert scaling.measured is not None
    assert scaling.factor["upper"] == pytest.approx(scaling.measured["upper"] / 3.5)
    mean = found(published, 360.0, 361.0, 359.0)["per-thread"]
    assert mean.factor == {"mean": pytest.approx(1.0)}, "a mean is a number without an interval"


def test_the_factor_of_a_maximum_is_of_the_number_that_its_interval_is_of_and_keeps_its_level() -> None:
    longest = estimate([1.0, 1.1, 1.2, 1.05, 1.15, 40.0], kind="extreme", confidence=0.96)
    about: dict[str, Any] = {"id": "longest", "title": "", "source": "", "metric": "max_us", "missing": ""}
    one = Reproduction(published=2.0, within=None, measured=longest, outcome=None, **about)
    assert one.factor == {"mean": pytest.approx(1.125 / 2.0), "lower": 0.5, "upper": 20.0, "confidence": 0.96}


def test_without_within_there_is_no_verdict(published: Plan) -> None:
    assert [(check.id, check.severity) for check in published.verdicts] == [("scaling", "warn"), ("per-thread", "fail")]
    updates = found(published, 350.0, 351.0, 349.0)["updates"]
    assert updates.outcome is None
    assert (updates.metric, updates.measured, updates.factor) == ("tps", None, {}), "no such transaction was run"
    assert updates.missing == "`ladder.at(4).transactions` has no data"


def test_the_report_has_them_beside_each_other(published: Plan) -> None:
    results, stream = reproduced(published, [350.0, 351.0, 349.0]), io.StringIO()
    terminal.render(run_document(results), Console(file=stream, width=140))
    text = stream.getvalue()
    assert "Published numbers" in text
    headline, line = (line for line in text.splitlines() if line.startswith("4 threads over 1"))
    assert headline.split("  ")[-2:] == [" 1.000 ×", "95 % CI 0.978 … 1.023"]
    assert " ".join(line.split()[4:]) == "Table 1 3.5 × 3.500 × 1.000 × (0.978 … 1.023) 7 %: PASS"
    assert "updates a second: " in text, "the reason for which the number is missing"
    document = json.loads(json_documents.result_to_json(results))
    assert [one["id"] for one in document["published"]] == ["scaling", "per-thread", "updates"]

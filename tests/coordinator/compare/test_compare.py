"""Comparison of runs: changes with intervals, comparability, conditions, and their report: short names, headline, one
notation, directions, forest plot, what differs."""

from __future__ import annotations

import io
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import records
from compiled_plans import compiled

from proveout.coordinator import comparison
from proveout.coordinator.comparability import NotComparable, between, differences, refused, together
from proveout.coordinator.comparison import ComparedRuns, Judgement, Row, compare, legend, short_name
from proveout.coordinator.report import html, json_documents, markdown, terminal
from proveout.coordinator.report.comparison_document import ROWS_MAX, answer, comparison_document, sentence, tiles
from proveout.coordinator.report.comparison_tables import (
    DIRECTIONS,
    MainNumber,
    finding,
    forest,
    heads,
    level_note,
    main_numbers,
    outcome,
    overlaid,
    ratio_in_words,
)
from proveout.coordinator.report.figures.grammar import TONES
from proveout.coordinator.results.results import RunResults, load_results
from proveout.core.numbers import Sought, confirmed
from proveout.core.statistics import estimate
from proveout.dsl.expr.syntax import ExpressionFault
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder
from proveout.proto.events import Event, FactsTaken, IterationFinished, SearchFinished

HOSTILE = "\x1b[31m<b>|`[bold]\u202e"
IDS = "smoke-20261122-204155-7a87", "smoke-20261122-204257-3576", "smoke-20261123-101112-9f9f"
FACTS = {"kernel": "6.1", "cpus": 2, "boot_id": "one", "host_name": "a"}
PLAN = compiled("smoke")
BASE = {1: [1000.0, 1010.0, 990.0, 1005.0], 4: [3000.0, 3050.0, 2980.0, 3010.0]}
Rungs = Mapping[int, Sequence[float]]
_NUMBERS = itertools.count(1)
"""Runs begin at different times, and without a name have one of their own."""


def iteration(threads: int, repeat: int, tps: float, stage: str = "ladder", **fields: Any) -> IterationFinished:
    avg_us = threads / tps * 1e6
    latency = {"avg_us": avg_us, "p50_us": avg_us, "p95_us": avg_us * 2.0, "p99_us": avg_us * 3.0}
    metrics = {
        "tps": tps,
        "response": latency,
        "errors": {"count": 0, "fraction": 0.0},
        "transactions": {"GetAccessData": {"tps": tps / 2.0, "response": latency}},
    }
    return records.iteration(stage, threads, repeat, metrics, **fields)


def results(
    rungs: Rungs = BASE,
    run_id: str = "",
    *,
    plan: Plan = PLAN,
    facts: Mapping[str, Any] = FACTS,
    version: str = "1.0",
    finished: bool = True,
) -> RunResults:
    number = next(_NUMBERS)
    items = [
        iteration(n, i + 1, tps, started_unix_s=float(number))
        for n, values in rungs.items()
        for i, tps in enumerate(values)
    ]
    *begun, ended = records.whole_ladder("ladder", items)
    started = records.run_started(plan, run_id or f"run-{number}", version=version)
    events: list[Event] = [started, FactsTaken(when="start", host="db1", system="", facts=dict(facts)), *begun]
    events += [ended, records.run_finished()] if finished else []
    return load_results(events)


def slower(factor: float, rungs: Rungs = BASE) -> dict[int, list[float]]:
    return {threads: [value * factor for value in values] for threads, values in rungs.items()}


def searched(
    whole: RunResults, rate: float | None, upper: float | None, over: Sought = "rate", reason: str = ""
) -> RunResults:
    """The run with a search `cap` that found a rate, or a number of threads, or nothing."""
    found = {} if rate is None else {over: confirmed(rate, upper, 9, over)}
    answer = SearchFinished(
        stage="cap", rate=rate, probes=30, reason=reason, upper=upper, confirmations=9, over=over,
        outcome="none" if rate is None else "found",
    )  # fmt: skip
    events = [records.begun("cap", "search"), answer, records.ended("cap", found | {"probes": 30})]
    return replace(whole, stages={**whole.stages, **load_results(events).stages})


def run(factor: float = 1.0, rate: float = 1_000.0, run_id: str = IDS[0], **more: Any) -> RunResults:
    """A ladder whose throughput is `factor` times the usual one, and a search that found `rate`."""
    return searched(results(slower(factor), run_id, **more), rate, rate * 1.02)


def rows(compared: ComparedRuns, threads: int) -> dict[str, Row]:
    rung = next(rung for rung in compared.stages[0].rungs if rung.threads == threads)
    return {".".join(row.path): row for row in rung.rows}


def cap(compared: ComparedRuns) -> Row:
    (row,) = next(stage.values for stage in compared.stages if stage.id == "cap")
    return row


def written(*compared: ComparedRuns) -> str:
    return markdown.render(comparison_document(compared, []))


def document(compared: Sequence[ComparedRuns], judged: Sequence[Judgement] = ()) -> Any:
    return json.loads(json_documents.comparison_to_json(compared, judged))


def short(compared: Sequence[ComparedRuns]) -> str:
    """The short form, as a terminal of 100 columns prints it."""
    out = io.StringIO()
    terminal.show(comparison_document(compared, []).brief("proveout compare x y --full"), out)
    return out.getvalue()


def page(compared: Sequence[ComparedRuns], runs: Sequence[RunResults], judged: Sequence[Judgement] = ()) -> str:
    return html.render(comparison_document(compared, judged, runs))


# ---- changes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "direction", "interval"),
    [((900.0, 950.0), "worse", (900.0 / 1_100.0, 0.95)), ((1_050.0, 1_150.0), "none", (1_050.0 / 1_100.0, 1.15))],
)
def test_the_rates_of_searches_are_compared_by_their_intervals(
    other: tuple[float, float], direction: str, interval: tuple[float, float]
) -> None:
    compared = compare(searched(results(), 1_000.0, 1_100.0), searched(results(), *other))
    row = cap(compared)
    assert row.direction == direction
    assert (1.0 + row.change["lower"], 1.0 + row.change["upper"]) == pytest.approx(interval)
    assert re.search(r"cap, search \(intervals of 80 %\)\n+\|  \| A \| B \| B / A \| CI \|", written(compared))
    stages = {stage["id"]: stage for stage in document([compared])["comparisons"][0]["stages"]}
    (found,) = stages["cap"]["values"]
    assert (found["metric"], [side["upper"] for side in found["intervals"]]) == ("rate", [1_100.0, other[1]])


def test_the_threads_of_searches_are_compared_and_open_ends_and_no_answer_are_said() -> None:
    one, two = (searched(results(), most / 1.1, most, "threads") for most in (44.0, 22.0))
    row = cap(compare(one, two))
    assert (row.path, row.base, row.other, row.direction) == (("threads",), 40.0, 20.0, "worse")
    assert "threads (80 % CI)" in written(compare(one, two))
    assert "The number of threads of cap is 0.500 × (" in answer([compare(one, two)]).text
    alone = [number for number in main_numbers(compare(one, two)) if number.place == "search"]
    assert sentence("B", alone).startswith("The number of threads of B is 0.500 × (")
    found = searched(results(), 1_000.0, 1_100.0)
    assert "| upper end | 1,100 | open |" in written(compare(found, searched(results(), 900.0, None)))
    row = cap(compare(searched(results(), None, None), one))
    assert (row.path, row.base, row.other) == (("rate",), None, None), "40 threads are not a rate"
    none = compare(found, searched(results(), None, None, reason="1,000/s was refused"))
    row = cap(none)
    assert (row.base, row.other, row.direction) == (1_000.0, None, "unknown")
    assert "cap found no rate in B: 1,000/s was refused" in none.notes
    assert "none found" in written(none)


def test_a_shift_is_found_and_has_its_size_and_direction() -> None:
    found = rows(compare(results(), results(slower(0.8))), 4)
    assert found["tps"].change["mean"] == pytest.approx(-0.2)
    assert found["tps"].change["lower"] < -0.2 < found["tps"].change["upper"] < 0.0
    assert found["response.avg_us"].change["mean"] == pytest.approx(0.25)
    names = ("tps", "response.avg_us", "transactions.GetAccessData.tps")
    assert {found[name].direction for name in names} == {"worse"}
    back = rows(compare(results(slower(0.8)), results()), 4)
    assert {back[name].direction for name in names} == {"better"}


def test_the_levels_are_corrected_over_the_rungs_and_over_the_tables() -> None:
    """Bonferroni over the rungs, Benjamini-Hochberg over the main numbers and over all others; an interval excludes 1
    where its p value is within the level."""
    base = results()
    moved = compare(base, results(slower(0.8)))
    assert moved.judged == (6, 10)
    assert moved.levels == pytest.approx((1.0 - 0.04 / 2, 1.0 - 0.05 / 2))
    one_rung = compare(base, results({1: slower(1.0001)[1], 4: slower(0.8)[4]}))
    assert one_rung.levels == pytest.approx((1.0 - 0.04 * 3 / 6, 1.0 - 0.05 * 5 / 10))
    equal = compare(base, results(slower(1.0001)))
    assert equal.levels == pytest.approx((1.0 - 0.04 / 6, 1.0 - 0.01 / 10))
    assert "99.3 % for the 6 main numbers and 99.9 % for the 10 other numbers" in level_note(equal)
    for compared in (moved, one_rung, equal):
        for name, row in (*rows(compared, 1).items(), *rows(compared, 4).items()):
            missed = 1.0 - compared.levels[name not in ("tps", "response.avg_us", "response.p99_us")]
            assert row.change["confidence"] == pytest.approx(1.0 - missed)
            assert (row.direction in ("better", "worse")) == (row.change["p_value"] <= missed)


def test_the_higher_level_of_automatic_repeats_is_said() -> None:
    stages = (replace(one, repeat=10, repeat_min=3) if isinstance(one, Ladder) else one for one in PLAN.stages)
    auto = replace(PLAN, stages=tuple(stages))
    compared = compare(*(results(rungs, plan=auto, finished=False) for rungs in (BASE, slower(0.99))))
    assert rows(compared, 4)["tps"].change["confidence"] > compared.levels[0]
    assert level_note(compared).endswith("Those of ladders with `repeat: auto` are of up to 99.4 %.")
    assert heads(compared, main=True)[4] == "CI"
    assert heads(compare(results(), results(slower(0.99))), main=True)[4].endswith(" % CI")


def lacking(number: str, *repeats: int) -> RunResults:
    """A run of one rung whose `repeats` have no such response time."""
    items = [iteration(4, repeat, 3_000.0 + repeat) for repeat in (1, 2, 3)]
    for item in (one for one in items if one.id.repeat in repeats):
        item.metrics["response"] = {name: us for name, us in item.metrics["response"].items() if name != number}
    *begun, ended = records.whole_ladder("ladder", items)
    facts = FactsTaken(when="start", host="db1", system="", facts=dict(FACTS))
    started = records.run_started(PLAN, f"run-{next(_NUMBERS)}", version="1.0")
    return load_results([started, facts, *begun, ended, records.run_finished()])


@pytest.mark.parametrize(("repeats", "reason"), [((3,), "missing in 1 repeat"), ((1, 2, 3), "none in B"), ((), "")])
def test_a_number_that_repeats_lack_is_in_the_table_and_not_judged(repeats: Sequence[int], reason: str) -> None:
    """It may be missing because these repeats were the worst."""
    compared = compare(results({4: [2_000.0, 2_001.0, 2_002.0]}), lacking("p99_us", *repeats))
    row = rows(compared, 4)["response.p99_us"]
    assert (row.direction, row.reason("B")) == ("unknown" if reason else "better", reason)
    counted = "3 better" if not reason else "2 better, 1 not judged"
    assert f"Of 3 main numbers: {counted}" in answer([compared]).text
    judged = comparison.judge(comparison.check("response.p99_us.ratio.upper < 0.95", PLAN), compared)
    assert judged.outcome == ("INCONCLUSIVE" if reason else "PASS")


# ---- what may be compared ----------------------------------------------------------------------------------------


def test_another_environment_is_refused_until_it_is_allowed() -> None:
    one, two = results(), results(facts=FACTS | {"kernel": "6.2", "boot_id": "x"})
    with pytest.raises(NotComparable, match=r"kernel: 6\.1 -> 6\.2") as raised:
        compare(one, two)
    assert "boot_id" not in str(raised.value)
    assert "--allow 'kernel'" in str(raised.value)
    for names in (["kernel"], ["db1:kernel"], ["ker*"]):
        assert [found.name for found in compare(one, two, allow=names).differences] == ["kernel"]
    with pytest.raises(NotComparable):
        compare(one, two, allow=["db2:kernel", "cpus"])
    assert compare(one, two, despite=True).differences


def test_a_run_is_not_compared_with_itself_or_its_copy_or_one_that_has_measured_nothing() -> None:
    """`despite` does not help: a copy shows nothing whatever else differs."""
    one, other = results(), results()
    renamed = replace(one, run=one.run and replace(one.run, run_id="renamed"))
    resumed = replace(other, run=other.run and one.run and replace(other.run, run_id=one.run.run_id))
    for copy, words in ((one, "both runs are"), (resumed, "both runs are"), (renamed, "iteration for iteration")):
        with pytest.raises(NotComparable, match=words) as raised:
            compare(one, copy, despite=True)
        assert "--despite" not in str(raised.value)
    assert compare(one, other).stages
    failed = replace(results(BASE, "two", facts=FACTS | {"kernel": "6.2"}), stages={})
    with pytest.raises(NotComparable, match="two has no iteration"):
        compare(one, failed)


def test_other_engines_and_workloads_are_named_first_and_in_words() -> None:
    system, workload = PLAN.systems[0], PLAN.workloads[0]
    sqlite = replace(PLAN, name="lite", systems=(replace(system, engine="sqlite"),))
    one, facts = results(), FACTS | {"kernel": "6.2"}
    with pytest.raises(NotComparable) as raised:
        compare(one, results(plan=sqlite, facts=facts))
    assert "they have different plans (smoke, lite) and engines (postgres, sqlite), so that" in str(raised.value)
    assert "--despite" in str(raised.value) and "--allow" not in str(raised.value)
    other = results(plan=replace(PLAN, workloads=(replace(workload, kind="tpcb"),)), facts=facts)
    with pytest.raises(NotComparable, match=r"they have different workloads \(hlr, tpcb\)"):
        compare(one, other)
    assert [item.name for item in differences(one, other)] == ["plan.workloads.hlr.kind", "kernel"]


def test_another_program_and_an_unknown_environment_are_refused() -> None:
    one = results()
    for other, name in ((results(version="2"), "proveout"), (replace(one, taken=()), "environment")):
        assert [item.name for item in refused(differences(one, other))] == [name]


def test_another_plan_is_refused_where_figures_depend_on_it() -> None:
    told = replace(PLAN, title="Another title", verdicts=())
    assert told.digest != PLAN.digest
    one = results()
    assert not differences(one, results(plan=told))
    ladder = PLAN.stage("ladder")
    other = replace(PLAN, stages=tuple(replace(s, threads=(1, 8)) if s is ladder else s for s in PLAN.stages))  # type: ignore[call-arg]
    found = differences(one, results(plan=other))
    assert [str(item) for item in found] == ["plan.stages.ladder.threads: [1, 4] -> [1, 8]"]
    system = replace(PLAN.systems[0], settings=(("synchronous_commit", "on"),))
    found = differences(one, results(plan=replace(PLAN, systems=(system,))), ["plan.systems.*"])
    assert [item.name for item in found] == ["plan.systems.db.settings.synchronous_commit"]
    assert not refused(found)


def test_an_installed_client_that_no_system_uses_does_not_matter() -> None:
    """The smoke plan has a PostgreSQL only."""
    one, two, other = (
        results(facts=FACTS | drivers)
        for drivers in (
            {"driver.duckdb": "1.4", "driver.psycopg": "3.2"},
            {"driver.apsw": "3.50", "driver.psycopg": "3.2"},
            {"driver.psycopg": "3.3"},
        )
    )
    assert compare(one, two).differences == ()
    assert [str(found) for found in refused(differences(one, other))] == ["db1: driver.psycopg: 3.2 -> 3.3"]


# ---- conditions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "factor", "outcome"),
    [
        ("tps.change.upper < -5%", 0.8, "PASS"),
        ("tps.change.upper < -5%", 1.0, "FAIL"),
        ("tps.change < -5%", 0.95, "INCONCLUSIVE"),
        ("ladder.at(4).tps.change.upper < -5%", 0.8, "PASS"),
        ("ladder.peak.tps.other.mean < ladder.peak.tps.base.mean", 0.8, "PASS"),
        ("cpu.busy_fraction.change.mean > 1%", 0.8, "INCONCLUSIVE"),  # captured by the plan, missing in these results
        ("errors.fraction.change.mean > 0", 0.8, "INCONCLUSIVE"),  # the baseline is 0
    ],
)
def test_a_condition_is_judged(text: str, factor: float, outcome: str) -> None:
    compared = compare(results(), results(slower(factor)))
    judged = comparison.judge(comparison.check(text, PLAN), compared)
    assert judged.outcome == outcome, judged.evidence
    assert comparison.exit_code([judged]) == {"PASS": 1, "FAIL": 0, "INCONCLUSIVE": 3}[outcome]


def test_a_condition_holds_when_it_holds_at_one_rung() -> None:
    compared = compare(results(), results({1: BASE[1], 4: slower(0.8)[4]}))
    judged = comparison.judge(comparison.check("tps.change.upper < -5%", PLAN), compared)
    (evidence,) = judged.evidence
    assert judged.holds and "ladder at 4 threads" in evidence


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tps.chnge < -5%", "change"),
        ("tsp.change < -5%", "tps"),
        ("ladder.at(3).tps.change.upper < 0", "no rung of 3"),
        ("tps.change.upper", "condition"),
    ],
)
def test_a_wrong_condition_is_refused_before_the_comparison(text: str, words: str) -> None:
    with pytest.raises(ExpressionFault) as raised:
        comparison.check(text, PLAN)
    assert words in str(raised.value)


def offered(rates: Mapping[int, float]) -> RunResults:
    """A run of a ladder whose offered rate is 80 % of a search's answer; the system delivers it with a response time
    that has nothing to do with the rate."""
    whole = results({n: [rate, rate * 1.001, rate * 0.999] for n, rate in rates.items()})
    assert whole.run is not None
    data = json.loads(json.dumps(whole.run.plan))
    ladder = next(stage for stage in data["stages"] if stage["id"] == "ladder")
    rate = {"text": "cap.rate * 0.8", "needs": ["cap"]}
    ladder["arrival"] = {"kind": "open", "rate": rate, "distribution": "poisson"}
    iterations = tuple(replace(one, rate=rates[one.id.rung]) for one in whole.stages["ladder"].iterations)
    stage = replace(whole.stages["ladder"], iterations=iterations)
    return replace(whole, run=replace(whole.run, plan=data), stages={**whole.stages, "ladder": stage})


def test_throughput_that_follows_another_offered_rate_is_not_judged() -> None:
    compared = compare(offered({1: 1_000.0, 4: 4_000.0}), offered({1: 900.0, 4: 3_960.0}), despite=True)
    assert {row.direction for row in rows(compared, 1).values()} == {"offered"}  # 10 % apart
    near = rows(compared, 4)  # 1 % apart
    assert (near["tps"].direction, near["transactions.GetAccessData.tps"].direction) == ("offered", "offered")
    assert near["response.avg_us"].direction == "worse"
    (note,) = [note for note in compared.notes if "offered" in note]
    assert "1,000 and 900 a second, from ${cap.rate * 0.8}" in note
    assert "more than 2 % apart" in note
    assert "rates differ" in written(compared)
    (stage,) = document([compared])["comparisons"][0]["stages"]
    assert stage["rungs"][0]["offered"] == {"base": 1_000.0, "other": 900.0, "origin": "cap.rate * 0.8"}


def test_a_condition_on_what_follows_another_offered_rate_is_undecidable() -> None:
    compared = compare(offered({4: 4_000.0}), offered({4: 3_000.0}), despite=True)
    for text in ("ladder.peak.tps.change.upper < -5%", "ladder.at(4).tps.change < -5%", "tps.change.upper < -5%"):
        judged = comparison.judge(comparison.check(text, PLAN), compared)
        assert judged.outcome == "INCONCLUSIVE"
    (evidence,) = judged.evidence
    assert "the offered rates differ (4,000 and 3,000 a second, from ${cap.rate * 0.8})" in evidence


# ---- words -------------------------------------------------------------------------------------------------------


def change(mean: float, lower: float | None = None, upper: float | None = None) -> dict[str, Any]:
    ends = {name: end for name, end in (("lower", lower), ("upper", upper)) if end is not None}
    return {"mean": mean, "n": 5, "method": "welch", "confidence": 0.95, **ends}


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        ({"mean": 1.183, "lower": 1.121, "upper": 1.249}, "1.183 × (1.121 … 1.249)"),
        ({"mean": 4.84, "lower": 2.1, "upper": 10.6}, "4.8 × (2.1 … 10.6)"),
        ({"mean": 1.5, "lower": 0.01, "upper": 80.0}, "1.5 × (← … →)"),
        ({"mean": 1.1, "lower": 1.05}, "1.1 × (1.05 or more)"),
        ({}, "-"),
    ],
)
def test_a_ratio_has_one_notation(ratio: dict[str, float], words: str) -> None:
    assert ratio_in_words(ratio) == words


@pytest.mark.parametrize(
    ("path", "lower", "upper", "band", "words"),
    [
        ("tps", 0.1, 0.2, 0.0, "▲ better"),
        ("tps", -0.2, -0.1, 0.0, "▼ worse"),
        ("errors.fraction", 0.1, 0.2, 0.0, "▼ worse"),
        ("solve_s", 0.1, 0.2, 0.0, "▼ worse"),
        ("sizes.total_bytes", 0.1, 0.2, 0.0, "≠ changed"),
        ("tps", -0.1, 0.2, 0.0, "= not distinguishable"),
        ("tps", None, None, 0.0, "… not judged (no interval)"),
        ("tps", -0.0476, 0.05, 0.05, "≈ equal within 5 %"),
        ("tps", -0.06, 0.04, 0.05, "= not distinguishable"),
        ("tps", 0.01, 0.06, 0.05, "▲ better"),
    ],
)
def test_sign_and_words_follow_the_direction_of_the_metric(
    path: str, lower: float | None, upper: float | None, band: float, words: str
) -> None:
    row = Row(path=tuple(path.split(".")), base=100.0, other=115.0, change=change(0.15, lower, upper), band=band)
    assert outcome(row, "B") == words


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (Row(path=("tps",), base=1.0, other=2.0, change={"mean": 1.0, "n": 1}), "1 repeat"),
        (Row(path=("rate",), base=1.0, other=None, change={}), "none in C"),
        (Row(path=("errors", "fraction"), base=0.0, other=0.1, change={}), "0 in A"),
        (Row(path=("tps",), base=1.0, other=2.0, change=change(1.0, 0.5, 1.5), offered=True), "rates differ"),
        (Row(path=("tps",), base=1.0, other=2.0, change=change(1.0, 0.5, 1.5)), ""),
    ],
)
def test_what_is_not_judged_has_its_reason(row: Row, reason: str) -> None:
    assert row.reason("C") == reason
    assert (reason in outcome(row, "C")) and ("not judged" in outcome(row, "C")) == bool(reason)


@pytest.mark.parametrize(
    ("text", "outcome", "words"),
    [
        ("tps.ratio.lower > 1.5", "PASS", "TPS rose above 1.5 × at 2 of 3 rungs"),
        ("tps.ratio.lower > 1.5", "FAIL", "TPS is not shown to have risen above 1.5 × at any of 3 rungs"),
        ("response.p99_us.change.upper > 5%", "PASS", "response p99 may have risen by more than 5 % at 2 of 3 rungs"),
        ("response.p99_us.change.upper > 5%", "FAIL", "response p99 has not risen by more than 5 % at any of 3 rungs"),
        ("tps.change < -5%", "INCONCLUSIVE", "whether TPS fell by more than 5 % is undecided at 2 of 3 rungs"),
        ("tps.change < -0.07", "PASS", "TPS fell by more than 7 % at 2 of 3 rungs"),
        ("tps.ratio > 105%", "PASS", "TPS rose above 1.05 × at 2 of 3 rungs"),
        ("ladder.at(4).tps.ratio.upper < 0.95", "PASS", "TPS of ladder at 4 threads fell below 0.95 × at 2 of 3 rungs"),
        ("loads.get.tps.ratio.upper < 0.95", "PASS", "get: TPS fell below 0.95 × at 2 of 3 rungs"),
        (
            "ladder.peak.tps.ratio < 0.9",
            "FAIL",
            "ladder.peak.tps is not shown to have fallen below 0.9 × at any of 3 rungs",
        ),
        ("tps.ratio.upper < 1.2", "PASS", "tps.ratio.upper < 1.2 holds at 2 of 3 rungs"),
        ("a.tps.other.mean < 9", "FAIL", "a.tps.other.mean < 9 does not hold at any of 3 rungs"),
    ],
)
def test_a_condition_is_worded_by_what_happened(text: str, outcome: Any, words: str) -> None:
    assert finding(Judgement(text=text, outcome=outcome, evidence=("one", "two"), rungs=3)) == words


def test_the_answer_is_the_numbers_then_what_else_differs() -> None:
    text = answer([compare(run(), run(1.2, 1_100.0, IDS[1]))]).text
    assert text.startswith("B is faster at all 2 rungs, by 1.200 ×. Response p99 is better at all 2 rungs, by 0.833 ×.")
    assert " The rate of cap is 1.100 × (" in text
    assert text.endswith("), better. Of 7 main numbers: 7 better. A and B: same plan and environment.")
    numbers = main_numbers(compare(run(), run(1.2, run_id=IDS[1])))
    two = sentence("B", [*numbers, *(replace(one, stage="other") for one in numbers if one.place != "search")])
    assert "B in other is faster at all 2 rungs" in two and "Response p99 in ladder is better" in two
    one = {4: BASE[4]}
    text = answer([compare(results(one), results(slower(1.2, one)))]).text
    assert "B is 1.200 × (" in text
    assert ") as fast as A with 4 threads. Response p99 is 0.833 × (" in text
    text = answer([compare(results({4: [1_000.0]}), results({4: [1_100.0]}))]).text
    assert "B is 1.1 × as fast as A with 4 threads, not judged (1 repeat)" in text
    assert "Response p99 is not judged (1 repeat), 0.9091 ×" in text


def test_a_shorter_time_is_better_and_not_faster_by_a_ratio_below_1() -> None:
    row = Row(path=("solve_s",), base=10.0, other=5.0, change=change(-0.5, -0.6, -0.4))
    numbers = [
        MainNumber(run="B", stage="set", place=f"{n} threads", family="time to solve", row=row, threads=n)
        for n in (1, 2)
    ]
    assert sentence("B", numbers).startswith("Time to solve of B is better at all 2 rungs, by 0.50 ×. ")


def test_the_answer_names_differences_and_conditions() -> None:
    compared = compare(run(), run(0.8, run_id=IDS[1], facts=FACTS | {"kernel": "6.2"}), despite=True)
    judged = [comparison.judge(comparison.check("tps.ratio.upper < 0.95", PLAN), compared)]
    found = answer([compared], judged)
    assert found.text.startswith(
        "Failed: TPS fell below 0.95 × at 2 of 2 rungs. B is slower at all 2 rungs, by 0.800 ×."
    )
    assert " A and B are compared despite 1 difference of plan or environment (" in found.text
    assert found.tone == "bad"


@pytest.mark.parametrize(
    ("factors", "words", "by_rung"),
    [
        (
            (4.2, 4.4, 5.0, 4.7, (0.5, 1.0, 9.0, 20.0)),
            r"B is faster at 4 of 5 rungs, by 4\.2\S* to 5\.0\S* ×; 16 threads undecided, \S+ × \(",
            {"better": [1, 2, 4, 8], "undecided": [16]},
        ),
        (
            (1.2, 1.3, 1.5, 0.8, (0.5, 0.6, 2.0, 1.0)),
            r"B is faster at 3, by 1\.2\S* to 1\.5\S* ×, and slower at 1 of 5 rungs, by 0\.80* ×; 16 threads undecided, ",
            {"better": [1, 2, 4], "worse": [8], "undecided": [16]},
        ),
    ],
)
def test_the_answer_is_over_all_rungs(factors: tuple[Any, ...], words: str, by_rung: dict[str, list[int]]) -> None:
    """The rung with the highest throughput of A, which is the noisy one, does not stand for the others."""
    rungs = {threads: [threads * one for one in BASE[1]] for threads in (1, 2, 4, 8, 16)}
    other = {
        threads: [value * one for value, one in zip(values, np.broadcast_to(factor, 4), strict=True)]
        for (threads, values), factor in zip(rungs.items(), factors, strict=True)
    }
    compared = [compare(results(rungs), results(other))]
    (data,) = document(compared)["comparisons"]
    for text in (short(compared), written(*compared), data["answer"]):
        assert re.search(words, " ".join(text.replace("\u00a0", " ").split()))
    for across in data["over_rungs"]:
        assert {name: across[name] for name in ("better", "worse", "undecided") if across[name]} == by_rung
    tile = tiles(compared)[0]
    assert tile.about == ", ".join(f"{name} at {len(rungs)}" for name, rungs in by_rung.items()) + " of 5 rungs"
    longest = max(len(word) for one in tiles(compared) for word in one.value.split(" "))
    assert longest <= len("0.6049"), "a narrow tile breaks a longer word in the middle of it"
    assert tile.tone == ("warn" if "worse" in by_rung else "good")


# ---- reports -----------------------------------------------------------------------------------------------------


def test_all_reports_contain_the_change_and_no_control_characters() -> None:
    odd = results(slower(0.8), HOSTILE, facts=FACTS | {"kernel": HOSTILE})
    compared = [compare(results(), odd, despite=True)]
    judged = [comparison.judge(comparison.check("tps.change.upper < -5%", PLAN), compared[0])]
    text, stream = markdown.render(comparison_document(compared, judged)), io.StringIO()
    for words in ("| TPS | 3,010 | 2,408 | 0.800 × | (", "❌ FAILED", "TPS fell by more than 5 % at 2 of 2 rungs"):
        assert words in text
    data = document(compared, judged)
    assert (data["format"], data["exit_code"]) == ("proveout.compare/1", 1)
    row = data["comparisons"][0]["stages"][0]["rungs"][1]["rows"][0]
    assert row["metric"] == "tps"
    assert (row["change"]["mean"], row["ratio"]["mean"]) == pytest.approx((-0.2, 0.8))
    terminal.show(comparison_document(compared, judged), stream)
    shown = stream.getvalue()
    assert "worse" in shown
    assert shown.index("db1: kernel") < shown.index("response p95")
    assert not {"\x1b", "\u202e"} & {*text, *shown}
    table = [line for line in text.partition("## All numbers")[2].splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1


@pytest.mark.screen
def test_a_transaction_may_have_the_name_of_a_statistic_where_runs_are_the_unit() -> None:
    rung = {"transactions": {"mean": {"tps": estimate([9.0, 11.0])}, "other": {"tps": estimate([5.0, 7.0])}}}
    found = together([{"ladder": {"rungs": {"1": rung}}}] * 2)["ladder"]["rungs"]["1"]["transactions"]
    assert [(name, one["tps"]["values"]) for name, one in found.items()] == [("mean", [10.0] * 2), ("other", [6.0] * 2)]


def test_runs_of_one_repeat_have_intervals_of_the_kind_of_their_number() -> None:
    """The method of one repeat does not tell the kind: no error in three runs was an interval from 0 to 0."""
    rung = {"errors": {"count": estimate([0.0])}, "response": {"max_us": estimate([5.0])}}
    rung |= {"cpu": {"peak": {"busy_fraction": estimate([0.5])}}}
    ladder = together([{"ladder": {"rungs": {"1": rung}, "peak": rung}}] * 3)["ladder"]
    for found in (ladder["rungs"]["1"], ladder["peak"]):
        errors, busiest = found["errors"]["count"], found["cpu"]["peak"]["busy_fraction"]
        assert (errors["method"], errors["upper"]) == ("zero events", pytest.approx(1.0, abs=0.002))
        assert {found["response"]["max_us"]["method"], busiest["method"]} == {"not estimated"}


def test_the_page_overlays_the_runs_and_escapes_names() -> None:
    runs = [results(), results(slower(0.8), "<script>x</script>")]
    compared = [compare(*runs)]
    judged = [comparison.judge(comparison.check("tps.change.upper < -5%", PLAN), compared[0])]
    assert list(overlaid(runs).stages) == ["A: ladder", "B: ladder"]
    text = page(compared, runs, judged)
    assert "<script>x" not in text
    assert "&lt;script&gt;x" in text
    specs = json.loads(text.split('id="specs">')[1].split("</script>")[0])
    assert set(specs) == {"ratios", "relative-tps-latency-A--ladder", "latency-by-transaction-A--ladder"}
    values = specs["relative-tps-latency-A--ladder"]["concat"][0]["data"]["values"]
    relative = {(value["series"][0], value["at"]): value["value"] for value in values}
    assert relative["B", "4"] == pytest.approx(relative["A", "4"] * 0.8)
    places = [text.index(part) for part in ('id="overview"', "FAILED", "<figure", 'id="figures"', 'id="numbers"')]
    assert places == sorted(places)
    assert "<td>0.800 ×</td>" in text


def test_one_repeat_shows_a_change_where_the_spread_of_runs_is_known() -> None:
    known = between(
        {(("ladder", 4), name): [98.0, 100.0, 102.0, 99.0, 101.0] for name in ("tps", "response.avg_us")}, 5
    )
    compared = compare(results({4: [1_000.0]}), results({4: [500.0]}), known=known)
    assert rows(compared, 4)["tps"].direction == "worse"
    assert not any("1 repeat" in note for note in compared.notes)


def of_three(factors: Sequence[float], facts: Sequence[Mapping[str, Any]]) -> list[RunResults]:
    return [run(each, run_id=name, facts=of) for each, name, of in zip(factors, IDS, facts, strict=True)]


def compared_with_first(runs: Sequence[RunResults]) -> list[ComparedRuns]:
    return [compare(runs[0], one, despite=True, name=short_name(at)) for at, one in enumerate(runs[1:], 1)]


def test_long_ids_stand_in_the_legend_alone() -> None:
    runs = of_three((1.0, 0.8, 1.1), (FACTS, FACTS, FACTS | {"kernel": "6.2"}))
    compared = compared_with_first(runs)
    text = written(*compared)
    for shown in (text, short(compared), page(compared, runs)):
        assert [shown.count(run_id) for run_id in IDS] == [1, 1, 1]
    assert "| A | smoke-20261122-204155-7a87 |" in text and "C / A" in text
    assert legend(compared) == f"A = {IDS[0]}, B = {IDS[1]}, C = {IDS[2]}"


def test_only_what_differs_is_listed_with_a_column_for_each_run() -> None:
    runs = of_three((1.0, 1.0, 1.0), (FACTS, FACTS | {"kernel": "6.2"}, FACTS | {"cpus": 4}))
    table = written(*compared_with_first(runs)).partition("## Differences")[2].partition("##")[0]
    assert "| db1: kernel | 6.1 | **6.2** | 6.1 |" in table
    assert "| db1: cpus | 2 | 2 | **4** |" in table
    assert table.count("\n| ") == 4
    assert "Differences" not in short([compare(runs[0], run(run_id=IDS[1]))])


def test_conditions_and_notes_have_short_names_and_the_json_has_the_ids() -> None:
    other = results({4: BASE[4]}, IDS[1], finished=False)
    compared = compare(results(), other)
    assert "B did not finish: no end is recorded" in compared.notes
    judged = comparison.judge(comparison.check("tps.ratio.upper < 0.95", PLAN), compared)
    assert judged.outcome == "INCONCLUSIVE"
    assert "B has no valid iteration of ladder at 1 thread" in judged.evidence
    assert not any(IDS[1] in piece for piece in judged.evidence)
    (data,) = document([compared], [judged])["comparisons"]
    assert (data["other"], data["names"]) == (IDS[1], ["A", "B"])
    assert data["stages"][0]["missing"] == [{"threads": 1, "run": IDS[1]}]


def test_a_long_table_keeps_what_moved_and_says_what_it_leaves_out() -> None:
    base = {threads: [1_000.0 * threads + at for at in range(3)] for threads in range(1, 21)}
    compared = [compare(results(base), results(base | {7: [2 * one for one in base[7]]}))]
    text = short(compared)
    assert len(main_numbers(compared[0])) == 60 > ROWS_MAX
    rows = [line for line in text.splitlines() if " thread" in line and " × " in line and "(" in line]
    for kept in ("7 threads: TPS", "20 threads: TPS"):
        assert [line for line in rows if line.startswith(kept)]
    assert "54 more main numbers are not shown." in text


def test_the_forest_plot_has_every_number_and_says_what_is_seen() -> None:
    (figure,) = forest([compare(run(), run(1.2, 900.0, IDS[1]), band=0.05)])
    panels = figure.spec["concat"]
    assert [panel["title"]["text"] for panel in panels] == [
        "Throughput: more is better", "Response avg: less is better", "Response p99: less is better",
    ]  # fmt: skip
    assert [(value["at"], value["series"]) for value in panels[0]["data"]["values"]] == [
        ("search cap", "worse"), ("1 thread", "better"), ("4 threads", "better"),
    ]  # fmt: skip
    axes = [json.dumps(layer["encoding"]["x"]["scale"]) for panel in panels for layer in panel["layer"][::2]]
    assert len(set(axes)) == 1
    looks = {words: TONES.get(words, "grey circle") for _, words, _ in DIRECTIONS.values()}
    assert len(set(looks.values())) == len(looks), "each word of the legend has a look of its own"
    assert figure.alt.startswith("Throughput: more is better, worse: 0.9 × at search cap. ")
    assert "Ratios within 5 % of 1 do not matter" in figure.caption


def test_nothing_in_common_is_said() -> None:
    runs = [results({1: BASE[1]}), results({4: BASE[4]})]
    compared = [compare(*runs)]
    assert list(forest(compared)) == []
    assert "No number can be compared." in short(compared)
    assert "No rung was measured in both." in page(compared, runs)


def test_stages_of_one_name_and_two_kinds_are_not_compared() -> None:
    ladder, search = results(), run(run_id=IDS[1])
    both = [replace(ladder, stages={"cap": replace(ladder.stages["ladder"], id="cap")}), search]
    says = "stage cap is not compared: ladder in A, search in B"
    for runs in (both, both[::-1]):
        compared = [compare(*runs, despite=True)]
        assert not compared[0].stages
        assert "stage cap is not compared: " in page(compared, runs)
    assert says in compare(*both, despite=True).notes
    assert not compare(both[0], results(), more=((search,), ()), despite=True).stages


def test_a_stage_that_one_of_several_runs_has_left_out_has_no_rung_in_common() -> None:
    skipped = results()
    (ladder,) = skipped.stages.values()
    ended = records.ended("ladder")
    skipped = replace(skipped, stages={"ladder": replace(ladder, iterations=(), finished=ended)})
    (stage,) = compare(results(), results(), more=((skipped,), ())).stages
    assert not stage.rungs


def test_a_rung_that_one_of_several_runs_lacks_is_missing_on_its_side() -> None:
    compared = compare(results(), results(), more=((), (results({1: BASE[1]}),)))
    (stage,) = compared.stages
    assert (stage.missing, stage.rungs[0].repeats) == (((4, "B"),), (4, 8))
    assert comparison.judge(comparison.check("tps.ratio.upper < 0.95", PLAN), compared).outcome == "INCONCLUSIVE"


def test_the_offered_rates_of_all_runs_of_a_side_count() -> None:
    other = offered({4: 3_000.0})
    compared = compare(offered({4: 4_000.0}), offered({4: 4_000.0}), more=((), (other,)), despite=True)
    assert rows(compared, 4)["tps"].direction == "offered"


def test_hostile_names_are_harmless_everywhere() -> None:
    odd = [iteration(4, at, 1_000.0 + at, HOSTILE) for at in (1, 2, 3)]
    stage = replace(results().stages["ladder"], id=HOSTILE, iterations=tuple(odd))
    finished = stage.finished and replace(stage.finished, stage=HOSTILE, metrics=records.ladder_metrics(odd))
    evil = results({}, HOSTILE, facts=FACTS | {HOSTILE: HOSTILE})
    evil = replace(evil, stages={HOSTILE: replace(stage, finished=finished)})
    run = evil.run and replace(evil.run, run_id=f"{HOSTILE} again")
    compared = [compare(evil, replace(evil, run=run, stages={HOSTILE: replace(evil.stages[HOSTILE], iterations=())}))]
    shown = page(compared, [evil, evil])
    assert not {"\x1b", "\u202e"} & {*short(compared), *written(*compared), *shown}
    assert "<b>|" not in shown

"""Comparison of runs: changes with intervals, comparability, conditions, reports."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from compiled_plans import compiled
from records import begun
from records import ended as stage_ended
from runs_to_compare import BASE, FACTS, HOSTILE, results, searched, slower

from proveout.coordinator import comparison
from proveout.coordinator import comparison as comparing
from proveout.coordinator.comparability import NotComparable, differences, refused
from proveout.coordinator.comparison import ComparedRuns, compare
from proveout.coordinator.report import html as html_renderer
from proveout.coordinator.report import json_documents, terminal
from proveout.coordinator.report import markdown as markdown_renderer
from proveout.coordinator.report.comparison_document import comparison_document
from proveout.coordinator.report.comparison_tables import level_note, overlaid
from proveout.coordinator.results.results import RunResults, load_results
from proveout.dsl.expr.syntax import ExpressionFault
from proveout.dsl.plan.plan import Plan
from proveout.proto.events import SearchFinished


@pytest.fixture(scope="module")
def plan() -> Plan:
    return compiled("smoke")


def rows(compared: ComparedRuns, threads: int) -> dict[str, comparing.Row]:
    rung = next(rung for rung in compared.stages[0].rungs if rung.threads == threads)
    return {".".join(row.path): row for row in rung.rows}


@pytest.mark.parametrize(
    ("other", "direction", "interval"),
    [((900.0, 950.0), "worse", (900.0 / 1_100.0, 0.95)), ((1_050.0, 1_150.0), "none", (1_050.0 / 1_100.0, 1.15))],
)
def test_the_rates_of_searches_are_compared_by_their_intervals(
    plan: Plan, other: tuple[float, float], direction: str, interval: tuple[float, float]
) -> None:
    compared = compare(searched(plan, 1_000.0, 1_100.0, "one"), searched(plan, *other, "two"))
    (row,) = next(stage.values for stage in compared.stages if stage.id == "cap")
    assert row.direction == direction
    assert (1.0 + row.change["lower"], 1.0 + row.change["upper"]) == pytest.approx(interval)
    text = markdown_renderer.render(comparison_document([compared], []))
    assert "cap, search (intervals of 80 %)" in text
    document = json.loads(json_documents.comparison_to_json([compared], []))
    stages = {stage["id"]: stage for stage in document["comparisons"][0]["stages"]}
    assert [row["metric"] for row in stages["cap"]["values"]] == ["rate"]


def test_the_threads_of_searches_are_compared_too(plan: Plan) -> None:
    compared = compare(searched(plan, 40.0, 44.0, "one", "threads"), searched(plan, 20.0, 22.0, "two", "threads"))
    (row,) = next(stage.values for stage in compared.stages if stage.id == "cap")
    assert (row.path, row.base, row.other, row.direction) == (("threads",), 40.0, 20.0, "worse")
    text = markdown_renderer.render(comparison_document([compared], []))
    assert "threads (80 % CI)" in text, text


def test_a_shift_is_found_and_has_its_size_and_direction(plan: Plan) -> None:
    compared = compare(results(plan, BASE), results(plan, slower(0.8), run_id="two"))
    found = rows(compared, 4)
    assert found["tps"].change["mean"] == pytest.approx(-0.2)
    assert found["tps"].change["lower"] < -0.2 < found["tps"].change["upper"] < 0.0
    assert found["response.avg_us"].change["mean"] == pytest.approx(0.25)
    assert found["tps"].direction == found["response.avg_us"].direction == "worse"
    assert found["transactions.GetAccessData.tps"].direction == "worse"
    back = rows(compare(results(plan, slower(0.8)), results(plan, BASE)), 4)
    assert back["tps"].direction == back["response.avg_us"].direction == "better"


def test_the_levels_are_corrected_over_the_rungs_and_over_the_tables(plan: Plan) -> None:
    """Bonferroni over the rungs, Benjamini-Hochberg over the main numbers and over all others; an interval excludes 1
    where its p value is within the level."""
    moved = compare(results(plan, BASE), results(plan, slower(0.8), run_id="two"))
    assert moved.judged == (6, 10)
    assert moved.levels == pytest.approx((1.0 - 0.04 / 2, 1.0 - 0.05 / 2))
    one_rung = compare(results(plan, BASE), results(plan, {1: slower(1.0001)[1], 4: slower(0.8)[4]}, run_id="two"))
    assert one_rung.levels == pytest.approx((1.0 - 0.04 * 3 / 6, 1.0 - 0.05 * 5 / 10))
    equal = compare(results(plan, BASE), results(plan, slower(1.0001), run_id="two"))
    assert equal.levels == pytest.approx((1.0 - 0.04 / 6, 1.0 - 0.01 / 10))
    assert "99.3 % for the 6 main numbers and 99.9 % for the 10 other numbers" in level_note(equal)
    for compared in (moved, one_rung, equal):
        for name, row in (*rows(compared, 1).items(), *rows(compared, 4).items()):
            missed = 1.0 - compared.levels[name not in ("tps", "response.avg_us", "response.p99_us")]
            assert row.change["confidence"] == pytest.approx(1.0 - missed)
            assert (row.direction in ("better", "worse")) == (row.change["p_value"] <= missed)


def test_another_environment_is_refused_until_it_is_allowed(plan: Plan) -> None:
    one, two = results(plan, BASE), results(plan, BASE, run_id="two", facts=FACTS | {"kernel": "6.2", "boot_id": "x"})
    with pytest.raises(NotComparable, match=r"kernel: 6\.1 -> 6\.2") as raised:
        compare(one, two)
    assert "boot_id" not in str(raised.value)
    assert "--allow 'kernel'" in str(raised.value)
    for names in (["kernel"], ["db1:kernel"], ["ker*"]):
        assert [found.name for found in compare(one, two, allow=names).differences] == ["kernel"]
    with pytest.raises(NotComparable):
        compare(one, two, allow=["db2:kernel", "cpus"])
    assert compare(one, two, despite=True).differences


def test_a_run_is_not_compared_with_itself_or_its_copy(plan: Plan) -> None:
    """`despite` does not help: a copy shows nothing whatever else differs."""
    one, other = results(plan, BASE), results(plan, BASE)
    renamed = replace(one, run=one.run and replace(one.run, run_id="renamed"))
    resumed = replace(other, run=other.run and one.run and replace(other.run, run_id=one.run.run_id))
    for copy, words in ((one, "both runs are"), (resumed, "both runs are"), (renamed, "iteration for iteration")):
        with pytest.raises(NotComparable, match=words) as raised:
            compare(one, copy, despite=True)
        assert "--despite" not in str(raised.value)
    assert compare(one, other).stages


def test_a_run_that_has_measured_nothing_is_refused_for_that(plan: Plan) -> None:
    failed = results(plan, BASE, run_id="two", facts=FACTS | {"kernel": "6.2"})
    with pytest.raises(NotComparable, match="two has no iteration"):
        compare(results(plan, BASE), replace(failed, stages={}))


def test_other_engines_and_workloads_are_named_first_and_in_words(plan: Plan) -> None:
    system, workload = plan.systems[0], plan.workloads[0]
    sqlite = replace(plan, name="lite", systems=(replace(system, engine="sqlite"),))
    one = results(plan, BASE)
    with pytest.raises(NotComparable) as raised:
        compare(one, results(sqlite, BASE, facts=FACTS | {"kernel": "6.2"}))
    assert "they have different plans (smoke, lite) and engines (postgres, sqlite), so that" in str(raised.value)
    assert "--despite" in str(raised.value)
    assert "--allow" not in str(raised.value)
    other = results(replace(plan, workloads=(replace(workload, kind="tpcb"),)), BASE, facts=FACTS | {"kernel": "6.2"})
    with pytest.raises(NotComparable, match=r"they have different workloads \(hlr, tpcb\)"):
        compare(one, other)
    assert [item.name for item in differences(one, other)] == ["plan.workloads.hlr.kind", "kernel"]


def test_another_program_and_an_unknown_environment_are_refused(plan: Plan) -> None:
    one = results(plan, BASE)
    assert [item.name for item in refused(differences(one, results(plan, BASE, version="2")))] == ["proveout"]
    unseen = replace(one, taken=())
    assert [item.name for item in refused(differences(one, unseen))] == ["environment"]


def test_another_plan_is_refused_where_figures_depend_on_it(plan: Plan) -> None:
    told = replace(plan, title="Another title", verdicts=())
    assert told.digest != plan.digest
    assert not differences(results(plan, BASE), results(told, BASE))
    ladder = plan.stage("ladder")
    other = replace(plan, stages=tuple(replace(s, threads=(1, 8)) if s is ladder else s for s in plan.stages))  # type: ignore[call-arg]
    found = differences(results(plan, BASE), results(other, BASE))
    assert [str(item) for item in found] == ["plan.stages.ladder.threads: [1, 4] -> [1, 8]"]
    system = replace(plan.systems[0], settings=(("synchronous_commit", "on"),))
    found = differences(results(plan, BASE), results(replace(plan, systems=(system,)), BASE), ["plan.systems.*"])
    assert [item.name for item in found] == ["plan.systems.db.settings.synchronous_commit"]
    assert not refused(found)


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
def test_a_condition_is_judged(plan: Plan, text: str, factor: float, outcome: str) -> None:
    compared = compare(results(plan, BASE), results(plan, slower(factor), run_id="two"))
    judged = comparison.judge(comparison.check(text, plan), compared)
    assert judged.outcome == outcome, judged.evidence
    assert comparison.exit_code([judged]) == {"PASS": 1, "FAIL": 0, "INCONCLUSIVE": 3}[outcome]


def test_a_condition_holds_when_it_holds_at_one_rung(plan: Plan) -> None:
    compared = compare(results(plan, BASE), results(plan, {1: BASE[1], 4: slower(0.8)[4]}, run_id="two"))
    judged = comparison.judge(comparison.check("tps.change.upper < -5%", plan), compared)
    assert judged.holds
    assert len(judged.evidence) == 1
    assert "ladder at 4 threads" in judged.evidence[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tps.chnge < -5%", "change"),
        ("tsp.change < -5%", "tps"),
        ("ladder.at(3).tps.change.upper < 0", "no rung of 3"),
        ("tps.change.upper", "condition"),
    ],
)
def test_a_wrong_condition_is_refused_before_the_comparison(plan: Plan, text: str, words: str) -> None:
    with pytest.raises(ExpressionFault) as raised:
        comparison.check(text, plan)
    assert words in str(raised.value)


def test_all_reports_contain_the_change_and_no_control_characters(plan: Plan) -> None:
    odd = FACTS | {"kernel": HOSTILE}
    compared = [compare(results(plan, BASE), results(plan, slower(0.8), run_id=HOSTILE, facts=odd), despite=True)]
    judged = [comparison.judge(comparison.check("tps.change.upper < -5%", plan), compared[0])]
    markdown = markdown_renderer.render(comparison_document(compared, judged))
    assert "| TPS | 3,010 | 2,408 | 0.800 × | (" in markdown
    assert "❌ FAILED" in markdown
    assert "TPS fell by more than 5 % at 2 of 2 rungs" in markdown
    data = json.loads(json_documents.comparison_to_json(compared, judged))
    assert data["format"] == "proveout.compare/1"
    assert data["exit_code"] == 1
    rung = data["comparisons"][0]["stages"][0]["rungs"][1]
    assert rung["rows"][0]["metric"] == "tps"
    assert rung["rows"][0]["change"]["mean"] == pytest.approx(-0.2)
    assert rung["rows"][0]["ratio"]["mean"] == pytest.approx(0.8)
    stream = io.StringIO()
    terminal.show(comparison_document(compared, judged), stream)
    shown = stream.getvalue()
    assert "worse" in shown
    assert shown.index("db1: kernel") < shown.index("response p95")
    for text in (markdown, shown):
        assert "\x1b" not in text
        assert "\u202e" not in text
    table = [line for line in markdown.partition("## All numbers")[2].splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1


@pytest.mark.screen
def test_the_page_overlays_the_runs_and_escapes_names(plan: Plan) -> None:
    runs = [results(plan, BASE, run_id="first"), results(plan, slower(0.8), run_id="<script>x</script>")]
    compared = [compare(*runs)]
    judged = [comparison.judge(comparison.check("tps.change.upper < -5%", plan), compared[0])]
    together = overlaid(runs)
    assert list(together.stages) == ["A: ladder", "B: ladder"]
    html = html_renderer.render(comparison_document(compared, judged, runs))
    assert "<script>x" not in html
    assert "&lt;script&gt;x" in html
    specs = json.loads(html.split('id="specs">')[1].split("</script>")[0])
    assert set(specs) == {"ratios", "relative-tps-latency-a--ladder", "latency-by-transaction-a--ladder"}
    values = specs["relative-tps-latency-a--ladder"]["concat"][0]["data"]["values"]
    relative = {(value["series"][0], value["at"]): value["value"] for value in values}
    assert relative["B", "4"] == pytest.approx(relative["A", "4"] * 0.8)
    places = [html.index(text) for text in ('id="overview"', "FAILED", "<figure", 'id="figures"', 'id="numbers"')]
    assert places == sorted(places)
    assert "<td>0.800 ×</td>" in html


def offered(plan: Plan, rates: Mapping[int, float], run_id: str) -> RunResults:
    """A run of a ladder whose offered rate is 80 % of a search's answer; the system delivers it with a response time
    that has nothing to do with the rate."""
    whole = results(plan, {n: [rate, rate * 1.001, rate * 0.999] for n, rate in rates.items()}, run_id=run_id)
    assert whole.run is not None
    data = json.loads(json.dumps(whole.run.plan))
    ladder = next(stage for stage in data["stages"] if stage["id"] == "ladder")
    rate = {"text": "cap.rate * 0.8", "needs": ["cap"]}
    ladder["arrival"] = {"kind": "open", "rate": rate, "distribution": "poisson"}
    iterations = tuple(replace(one, rate=rates[one.id.rung]) for one in whole.stages["ladder"].iterations)
    stage = replace(whole.stages["ladder"], iterations=iterations)
    return replace(whole, run=replace(whole.run, plan=data), stages={**whole.stages, "ladder": stage})


def test_throughput_that_follows_another_offered_rate_is_not_judged(plan: Plan) -> None:
    one, two = offered(plan, {1: 1_000.0, 4: 4_000.0}, "one"), offered(plan, {1: 900.0, 4: 3_960.0}, "two")
    compared = compare(one, two, despite=True)
    assert {row.direction for row in rows(compared, 1).values()} == {"offered"}  # 10 % apart
    near = rows(compared, 4)  # 1 % apart
    assert (near["tps"].direction, near["transactions.GetAccessData.tps"].direction) == ("offered", "offered")
    assert near["response.avg_us"].direction == "worse"
    (note,) = [note for note in compared.notes if "offered" in note]
    assert "1,000 and 900 a second, from ${cap.rate * 0.8}" in note
    assert "more than 2 % apart" in note
    text = markdown_renderer.render(comparison_document([compared], []))
    assert "rates differ" in text
    document = json.loads(json_documents.comparison_to_json([compared], []))
    (stage,) = document["comparisons"][0]["stages"]
    assert stage["rungs"][0]["offered"] == {"base": 1_000.0, "other": 900.0, "origin": "cap.rate * 0.8"}


def test_a_condition_on_what_follows_another_offered_rate_is_undecidable(plan: Plan) -> None:
    one, two = offered(plan, {4: 4_000.0}, "one"), offered(plan, {4: 3_000.0}, "two")
    compared = compare(one, two, despite=True)
    for text in ("tps.change.upper < -5%", "ladder.peak.tps.change.upper < -5%", "ladder.at(4).tps.change < -5%"):
        judged = comparison.judge(comparison.check(text, plan), compared)
        assert judged.outcome == "INCONCLUSIVE"
    (evidence,) = comparison.judge(comparison.check("tps.change.upper < -5%", plan), compared).evidence
    assert "the offered rates differ (4,000 and 3,000 a second, from ${cap.rate * 0.8})" in evidence


def test_a_search_without_an_answer_is_a_row_and_a_note(plan: Plan) -> None:
    none, ended = begun("cap", "search"), stage_ended("cap", {"probes": 30})
    answer = SearchFinished(stage="cap", rate=None, probes=30, reason="1,000/s was refused", outcome="none")
    whole = results(plan, BASE, run_id="two")
    other = replace(whole, stages={**whole.stages, **load_results([none, answer, ended]).stages})
    compared = compare(searched(plan, 1_000.0, 1_100.0, "one"), other)
    (row,) = next(stage.values for stage in compared.stages if stage.id == "cap")
    assert (row.base, row.other, row.direction) == (1_000.0, None, "unknown")
    assert "cap found no rate in B: 1,000/s was refused" in compared.notes
    text = markdown_renderer.render(comparison_document([compared], []))
    assert "none found" in text


def test_the_interval_of_each_answer_is_shown(plan: Plan) -> None:
    compared = compare(searched(plan, 1_000.0, 1_100.0, "one"), searched(plan, 900.0, None, "two"))
    assert "| upper end | 1,100 | open |" in markdown_renderer.render(comparison_document([compared], []))
    stages = json.loads(json_documents.comparison_to_json([compared], []))["comparisons"][0]["stages"]
    (found,) = next(stage["values"] for stage in stages if stage["id"] == "cap")
    assert [side["upper"] for side in found["intervals"]] == [1_100.0, None]


def test_an_installed_client_that_no_system_uses_does_not_matter(plan: Plan) -> None:
    """The smoke plan has a PostgreSQL only."""
    one = results(plan, BASE, facts=FACTS | {"driver.duckdb": "1.4", "driver.psycopg": "3.2"})
    two = results(plan, BASE, run_id="two", facts=FACTS | {"driver.apsw": "3.50", "driver.psycopg": "3.2"})
    assert compare(one, two).differences == ()
    other = results(plan, BASE, facts=FACTS | {"driver.psycopg": "3.3"})
    assert [str(found) for found in refused(differences(one, other))] == ["db1: driver.psycopg: 3.2 -> 3.3"]

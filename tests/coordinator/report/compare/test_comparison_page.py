"""The report of a comparison: short names, headline, one notation, directions, forest plot, what differs."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from compiled_plans import compiled
from runs_to_compare import BASE, FACTS, HOSTILE, iteration, results, searched, slower

from proveout.coordinator import comparison
from proveout.coordinator.comparison import ComparedRuns, Judgement, Row, compare, legend, short_name
from proveout.coordinator.report import html, json_documents, markdown, terminal
from proveout.coordinator.report.comparison_document import ROWS_MAX, answer, comparison_document, tiles
from proveout.coordinator.report.comparison_tables import finding, forest, main_numbers, outcome, ratio_in_words
from proveout.coordinator.results.results import RunResults, ladder_metrics
from proveout.dsl.plan.plan import Plan

IDS = "smoke-20261122-204155-7a87", "smoke-20261122-204257-3576", "smoke-20261123-101112-9f9f"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return compiled("smoke")


def run(plan: Plan, factor: float = 1.0, rate: float = 1_000.0, run_id: str = IDS[0], **more: Any) -> RunResults:
    """A ladder whose throughput is `factor` times the usual one, and a search that found `rate`."""
    ladder = results(plan, slower(factor), run_id=run_id, **more)
    search = searched(plan, rate, rate * 1.02, run_id)
    return replace(ladder, stages={**ladder.stages, "cap": search.stages["cap"]})


def short(compared: Sequence[ComparedRuns]) -> str:
    """The short form, as a terminal of 100 columns prints it."""
    out = io.StringIO()
    terminal.show(comparison_document(compared, []).brief("proveout compare x y --full"), out)
    return out.getvalue()


def page(compared: Sequence[ComparedRuns], runs: Sequence[RunResults]) -> str:
    return html.render(comparison_document(compared, [], runs))


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
        (("tps",), 0.1, 0.2, 0.0, "▲ better"),
        (("tps",), -0.2, -0.1, 0.0, "▼ worse"),
        (("errors", "fraction"), 0.1, 0.2, 0.0, "▼ worse"),
        (("sizes", "total_bytes"), 0.1, 0.2, 0.0, "≠ changed"),
        (("tps",), -0.1, 0.2, 0.0, "= not distinguishable"),
        (("tps",), None, None, 0.0, "… not judged (no interval)"),
        (("tps",), -0.0476, 0.05, 0.05, "≈ equal within 5 %"),
        (("tps",), -0.06, 0.04, 0.05, "= not distinguishable"),
        (("tps",), 0.01, 0.06, 0.05, "▲ better"),
    ],
)
def test_sign_and_words_follow_the_direction_of_the_metric(
    path: tuple[str, ...], lower: float | None, upper: float | None, band: float, words: str
) -> None:
    row = Row(path=path, base=100.0, other=115.0, change=change(0.15, lower, upper), band=band)
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


def test_the_answer_is_the_numbers_then_what_else_differs(plan: Plan) -> None:
    text = answer([compare(run(plan), run(plan, 1.2, 1_100.0, IDS[1]))]).text
    assert text.startswith("B is faster at all 2 rungs, by 1.200 ×. Response p99 is better at all 2 rungs, by 0.833 ×.")
    assert " The rate of cap is 1.100 × (" in text
    assert text.endswith("), better. Of 7 main numbers: 7 better. A and B: same plan and environment.")
    one = {4: BASE[4]}
    text = answer([compare(results(plan, one), results(plan, slower(1.2, one), run_id=IDS[1]))]).text
    assert "B is 1.200 × (" in text
    assert ") as fast as A with 4 threads. Response p99 is 0.833 × (" in text


def test_the_answer_names_differences_and_conditions(plan: Plan) -> None:
    compared = compare(run(plan), run(plan, 0.8, run_id=IDS[1], facts=FACTS | {"kernel": "6.2"}), despite=True)
    judged = [comparison.judge(comparison.check("tps.ratio.upper < 0.95", plan), compared)]
    found = answer([compared], judged)
    assert found.text.startswith(
        "Failed: TPS fell below 0.95 × at 2 of 2 rungs. B is slower at all 2 rungs, by 0.800 ×."
    )
    assert " A and B are compared despite 1 difference of plan or environment (" in found.text
    assert found.tone == "bad"


@pytest.mark.parametrize(
    ("text", "outcome", "words"),
    [
        ("tps.ratio.lower > 1.5", "PASS", "TPS rose above 1.5 × at 2 of 3 rungs"),
        ("tps.ratio.lower > 1.5", "FAIL", "TPS is not shown to have risen above 1.5 × at any of 3 rungs"),
        ("response.p99_us.change.upper > 5%", "PASS", "response p99 may have risen by more than 5 % at 2 of 3 rungs"),
        ("response.p99_us.change.upper > 5%", "FAIL", "response p99 has not risen by more than 5 % at any of 3 rungs"),
        ("tps.change < -5%", "INCONCLUSIVE", "whether TPS fell by more than 5 % is undecided at 2 of 3 rungs"),
        ("ladder.at(4).tps.ratio.upper < 0.95", "PASS", "TPS of ladder at 4 threads fell below 0.95 × at 2 of 3 rungs"),
        ("tps.ratio.upper < 1.2", "PASS", "tps.ratio.upper < 1.2 holds at 2 of 3 rungs"),
        ("a.tps.other.mean < 9", "FAIL", "a.tps.other.mean < 9 does not hold at any of 3 rungs"),
    ],
)
def test_a_condition_is_worded_by_what_happened(text: str, outcome: Any, words: str) -> None:
    assert finding(Judgement(text=text, outcome=outcome, evidence=("one", "two"), rungs=3)) == words


def test_one_repeat_is_shown_and_not_judged(plan: Plan) -> None:
    one = {4: [1_000.0]}
    text = answer([compare(results(plan, one), results(plan, {4: [1_100.0]}, run_id=IDS[1]))]).text
    assert "B is 1.1 × as fast as A with 4 threads, not judged (1 repeat)" in text
    assert "Response p99 is not judged (1 repeat), 0.9091 ×" in text


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
def test_the_answer_is_over_all_rungs(
    plan: Plan, factors: tuple[Any, ...], words: str, by_rung: dict[str, list[int]]
) -> None:
    """The rung with the highest throughput of A, which is the noisy one, does not stand for the others."""
    rungs = {threads: [threads * one for one in BASE[1]] for threads in (1, 2, 4, 8, 16)}
    other = {
        threads: [value * one for value, one in zip(values, np.broadcast_to(factor, 4), strict=True)]
        for (threads, values), factor in zip(rungs.items(), factors, strict=True)
    }
    compared = [compare(results(plan, rungs), results(plan, other, run_id=IDS[1]))]
    for text in (short(compared), markdown.render(comparison_document(compared, []))):
        assert re.search(words, " ".join(text.replace("\u00a0", " ").split()))
    (written,) = json.loads(json_documents.comparison_to_json(compared, []))["comparisons"]
    assert re.search(words, written["answer"])
    for across in written["over_rungs"]:
        assert {name: across[name] for name in ("better", "worse", "undecided") if across[name]} == by_rung
    tile = tiles(compared)[0]
    assert tile.about == ", ".join(f"{name} at {len(rungs)}" for name, rungs in by_rung.items()) + " of 5 rungs"
    assert tile.tone == ("warn" if "worse" in by_rung else "good")


def test_long_ids_stand_in_the_legend_alone(plan: Plan) -> None:
    runs = [run(plan), run(plan, 0.8, run_id=IDS[1]), run(plan, 1.1, run_id=IDS[2], facts=FACTS | {"kernel": "6.2"})]
    compared = [compare(runs[0], one, despite=True, name=short_name(at)) for at, one in enumerate(runs[1:], 1)]
    document = comparison_document(compared, [])
    shown = (markdown.render(document), short(compared), page(compared, runs))
    for text in shown:
        for run_id in IDS:
            assert text.count(run_id) == 1
    assert "| A | smoke-20261122-204155-7a87 |" in shown[0]
    assert "C / A" in shown[0]
    assert legend(compared) == f"A = {IDS[0]}, B = {IDS[1]}, C = {IDS[2]}"


def test_conditions_and_notes_have_short_names_and_the_json_has_the_ids(plan: Plan) -> None:
    other = results(plan, {4: BASE[4]}, run_id=IDS[1], finished=False)
    compared = compare(results(plan, BASE, run_id=IDS[0]), other)
    assert "B did not finish: no end is recorded" in compared.notes
    judged = comparison.judge(comparison.check("tps.ratio.upper < 0.95", plan), compared)
    assert judged.outcome == "INCONCLUSIVE"
    assert "B has no valid iteration of ladder at 1 thread" in judged.evidence
    assert not any(IDS[1] in piece for piece in judged.evidence)
    (written,) = json.loads(json_documents.comparison_to_json([compared], [judged]))["comparisons"]
    assert (written["other"], written["names"]) == (IDS[1], ["A", "B"])
    assert written["stages"][0]["missing"] == [{"threads": 1, "run": IDS[1]}]


def test_only_what_differs_is_listed_with_a_column_for_each_run(plan: Plan) -> None:
    facts = [FACTS, FACTS | {"kernel": "6.2"}, FACTS | {"cpus": 4}]
    runs = [run(plan, run_id=run_id, facts=one) for run_id, one in zip(IDS, facts, strict=True)]
    compared = [compare(runs[0], one, despite=True, name=short_name(at)) for at, one in enumerate(runs[1:], 1)]
    text = markdown.render(comparison_document(compared, []))
    table = text.partition("## Differences")[2].partition("##")[0]
    assert "| db1: kernel | 6.1 | **6.2** | 6.1 |" in table
    assert "| db1: cpus | 2 | 2 | **4** |" in table
    assert table.count("\n| ") == 4
    assert "Differences" not in short([compare(runs[0], run(plan, run_id=IDS[1]))])


def test_a_long_table_keeps_what_moved_and_says_what_it_leaves_out(plan: Plan) -> None:
    base = {threads: [1_000.0 * threads + at for at in range(3)] for threads in range(1, 21)}
    other = base | {7: [2 * one for one in base[7]]}
    compared = [compare(results(plan, base), results(plan, other, run_id=IDS[1]))]
    text = short(compared)
    numbers = len(main_numbers(compared[0]))
    rows = [line for line in text.splitlines() if " thread" in line and " × " in line and "(" in line]
    assert numbers == 60 > ROWS_MAX
    assert [line for line in rows if line.startswith("7 threads: TPS")]
    assert [line for line in rows if line.startswith("20 threads: TPS")]
    assert "54 more main numbers are not shown." in text


def test_the_forest_plot_has_every_number_and_says_what_is_seen(plan: Plan) -> None:
    (figure,) = forest([compare(run(plan), run(plan, 1.2, 900.0, IDS[1]), band=0.05)])
    panels = figure.spec["concat"]
    assert [panel["title"]["text"] for panel in panels] == [
        "Throughput: more is better", "Response avg: less is better", "Response p99: less is better",
    ]  # fmt: skip
    assert [value["at"] for value in panels[0]["data"]["values"]] == ["search cap", "1 thread", "4 threads"]
    assert [value["series"] for value in panels[0]["data"]["values"]] == ["worse", "better", "better"]
    axes = [json.dumps(layer["encoding"]["x"]["scale"]) for panel in panels for layer in panel["layer"][::2]]
    assert len(set(axes)) == 1
    assert figure.alt.startswith("Throughput: more is better, worse: 0.9 × at search cap. ")
    assert "Ratios within 5 % of 1 do not matter" in figure.caption


def test_nothing_in_common_is_said(plan: Plan) -> None:
    runs = [results(plan, {1: BASE[1]}), results(plan, {4: BASE[4]}, run_id=IDS[1])]
    compared = [compare(*runs)]
    assert list(forest(compared)) == []
    assert "No number can be compared." in short(compared)
    assert "No rung was measured in both." in page(compared, runs)


def test_hostile_names_are_harmless_everywhere(plan: Plan) -> None:
    evil = results(plan, {}, run_id=HOSTILE, facts=FACTS | {HOSTILE: HOSTILE})
    odd = [iteration(4, at, 1_000.0 + at, HOSTILE) for at in (1, 2, 3)]
    stage = replace(results(plan, BASE).stages["ladder"], id=HOSTILE, iterations=tuple(odd))
    finished = stage.finished and replace(stage.finished, stage=HOSTILE, metrics=ladder_metrics(odd))
    evil = replace(evil, stages={HOSTILE: replace(stage, finished=finished)})
    run = evil.run and replace(evil.run, run_id=f"{HOSTILE} again")
    compared = [compare(evil, replace(evil, run=run, stages={HOSTILE: replace(evil.stages[HOSTILE], iterations=())}))]
    for text in (short(compared), markdown.render(comparison_document(compared, [])), page(compared, [evil, evil])):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "<b>|" not in page(compared, [evil, evil])

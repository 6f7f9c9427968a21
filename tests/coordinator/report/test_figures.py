"""Figures of invented runs: those made of panels, of stored histograms, of searches, matrices and faults; which places and
series they have, their numbers, alternative text and pictures; and what comes out of shipped plans, in which colours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import verdict_histories as made
from compiled_plans import FOLDER, compiled
from hostile_run import HOSTILE, history, load_row, run_directory
from records import begun, ended, iteration, ladder_metrics, run_started
from synthetic_run import number, results_of, synthetic_results, synthetic_timeline

from proveout.coordinator.report import markdown
from proveout.coordinator.report.figures import (
    fault_figures,
    load_figures,
    selection,
    stage_figures,
    system_figures,
)
from proveout.coordinator.report.figures import figure as pictures
from proveout.coordinator.report.figures import timeline as timelines
from proveout.coordinator.report.figures.figure import CAPTION_WORDS, PALETTE, Figure, Spec, category, chart, layer
from proveout.coordinator.report.figures.grammar import Point, cases, named_apart, panels, table
from proveout.coordinator.report.figures.load_figures import latency_at_peak, latency_by_transaction
from proveout.coordinator.report.figures.over_time_figures import (
    POINTS_MAX,
    _course,
    latency_heat_map,
    percentiles,
    phases,
    rung_timeline,
)
from proveout.coordinator.report.figures.stage_figures import NAME, matrix_overview, search, stage_values
from proveout.coordinator.report.figures.system_figures import wait_events
from proveout.coordinator.report.figures.timeline import Line, Span, Timeline, read_timeline
from proveout.coordinator.report.run_document import run_document
from proveout.coordinator.results.results import RunResults, load_results
from proveout.core.numbers import safe
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.metrics import PEAK
from proveout.dsl.plan.phases import Level
from proveout.dsl.schema.models import FIGURES
from proveout.proto.events import FaultMeasured, ProbeFinished, SearchFinished
from proveout.proto.wire import histogram


def charts(figure: Figure) -> Iterator[dict[str, Any]]:
    yield from figure.spec.get("concat", [figure.spec])


def shown(chart: dict[str, Any]) -> list[tuple[str, str, float]]:
    return [(value["series"], value["at"], round(value["value"], 3)) for value in chart["data"]["values"]]


def charts_of(results: RunResults) -> list[Figure]:
    """The declared charts of a run, all of them drawn."""
    found, missing = stage_figures.charts(results)
    assert not missing
    return found


def declared(results: RunResults, of: str) -> Figure:
    return next(one for one in charts_of(results) if one.of == (of,))


def figures(results: RunResults) -> list[Figure]:
    found, _ = selection.figures(results, synthetic_timeline(results))
    return found


# ---- panels ------------------------------------------------------------------------------------------------------


def point(panel: str, metric: str, at: str, mean: float, **more: Any) -> Point:
    return Point(panel=panel, metric=metric, at=at, estimate={"mean": mean, "n": 3, **more})


def test_names_are_values_and_harmless() -> None:
    hostile = "{{datum}}'\"\x1b[2J</script>"
    found = replace(point(hostile, "tps", hostile, 1.0), series=hostile)
    for points in ([found], [found, point("b", "tps", "x", 2.0)]):
        figure = Figure(name="a", title="", caption="", spec=panels(points, place=hostile), heads=(), rows=())
        assert "\x1b" not in str(figure.spec) + pictures.svg(figure)
        assert pictures.png(figure).startswith(b"\x89PNG")
    _, rows = table([found], place="")
    assert "\x1b" not in str(rows)


def test_figures_of_long_names_and_of_names_in_capitals_have_a_file_each() -> None:
    of = [("s" * 64, f"{'f' * 60}{number}") for number in (1, 2)] + [("read",), ("Read",)]
    empty = {"title": "", "caption": "", "spec": {}, "heads": (), "rows": ()}
    assert len({Figure(name="fault-occurrences", of=one, **empty).slug for one in of}) == len(of)


def test_the_axis_is_not_stretched_by_an_ideal_or_a_wide_interval_and_ends_at_its_arrows() -> None:
    of_one_repeat = [replace(point("TPS", "tps", at, tps), line=True, tick=100.0 * int(at))
                     for at, tps in (("1", 100.0), ("4", 150.0))]  # fmt: skip
    wide = [point("TPS", "tps", "1", 100.0, lower=1.0, upper=9_000.0)]
    below_a_tick = [replace(wide[0], tick=600.0)]  # ten times the bar would be an end within the axis
    for points, most in ((of_one_repeat, 195), (wide, 150), (below_a_tick, 900)):
        scales = [one.get("scale", {}) for axis, one in parts(panels(points, place="threads")) if axis == "y"]
        ends = {(round(scale["domainMax"]), scale["nice"]) for scale in scales if "domainMax" in scale}
        assert ends == {(most, False)}, "a longer axis would have its arrows below its end"


def test_a_legend_names_no_series_without_a_name() -> None:
    """Two panels of a chart: bars with a name each, and bars side by side."""
    found = [point("TPS", "tps", "a", 1.0), replace(point("each", "tps", "Get", 1.0), series="a")]
    legends = {str(one["legend"]["values"]) for axis, one in parts(panels(found, place="")) if axis == "color"}
    assert legends == {"['a']"}
    (alone,) = (one for axis, one in parts(panels(found[1:], place="", stacked=True)) if axis == "color")
    assert alone["legend"] is not None, "the only part of a stack, such as one wait event, has its name"


def test_rungs_of_a_ladder_with_a_long_name_differ_beside_their_bars() -> None:
    names = [f"apart on orders + replica, {count} threads" for count in (2, 16)]
    found = [point(panel, "tps", name, 1.0) for panel in ("sessions", "time") for name in names]
    drawn = [Figure(title="", caption="", spec=panels(of, place=""), heads=(), rows=()) for of in (found, found[:2])]
    assert [pictures.svg(figure).count("6 threads<") for figure in drawn] == [2, 1]


def test_the_table_has_the_numbers_with_units_intervals_and_repeats() -> None:
    mean = point("mean", "avg_us", "1", 1_500.0, lower=1_400.0, upper=1_600.0)
    heads, rows = table([mean, point("count", "nopm", "1", 7.0)], place="nodes")
    assert heads == ("nodes", "metric", "mean", "95 % CI", "repeats")
    assert rows == (("1", "mean", "1.50 ms", "1.40 ms … 1.60 ms", "3"), ("1", "count", "7", "-", "3"))
    slowest = point("slowest", "max_us", "1", 9.0, of="median", median=7.0, lower=6.0, upper=8.0)
    for points, over in (([slowest], "median"), ([mean, slowest], "mean or median")):
        assert over in table(points, place="")[0], "the interval of an extreme is of the median"


def test_a_chart_of_extremes_has_their_medians_and_the_word() -> None:
    def run(repeat: int) -> dict[str, Any]:
        return {
            "tps": 100.0,
            "response": {"max_us": 1e3 * repeat},
            "hosts": {"h": {"cpu": {PEAK: {"busy_fraction": 0.1 * repeat}}}},
        }

    chart = {"id": "c", "points": [{"number": {"text": "a.at(1).response.max_us"}}]}
    plan = {"stages": [{"id": "a", "kind": "ladder"}], "charts": [chart]}
    items = [iteration("a", 1, repeat, run(repeat)) for repeat in range(1, 8)]
    whole = [begun("a"), *items, ended("a", ladder_metrics(items))]
    results = load_results([run_started(plan), *whole])
    (figure,), (cpu,) = charts_of(results), list(system_figures.peak_cpu(results, Timeline()))
    assert figure.caption.startswith("Medians over the repeats, with the 95 % confidence")
    assert "Median over the repeats, with the 95 % confidence" in cpu.caption and "median" in cpu.heads


@pytest.mark.parametrize(("name", "word"), [("latency-by-threads", "ladder"), ("peak-cpu", "machine")])
def test_the_table_of_a_figure_names_its_panels_by_what_they_are(name: str, word: str) -> None:
    heads = {head for one in figures(results_of("hlr-cache-lab")) if one.name == name for head in one.heads}
    assert word in heads and "metric" not in heads


def test_which_names_are_places_and_which_are_series() -> None:
    (matrix,) = cases(results_of("storage-forms-embedded"))
    assert (matrix.of, matrix.place) == ("solve", "degree"), "the first axis is the series"
    assert [(case.series, case.at) for case in matrix.found] == [
        ("plain", "0"), ("pglz", "0"), ("plain", "2"), ("pglz", "2"),
    ]  # fmt: skip
    users = {"users1": "100", "users2": "200", "users4": "400"}
    (single,) = cases(synthetic_results(compile_plan(FOLDER / "tprocc-lab.yaml", overrides=users)))
    assert [(case.series, case.at) for case in single.found] == [
        ("", "one_node, 100 threads"), ("", "two_nodes, 200 threads"), ("", "four_nodes, 400 threads"),
    ]  # fmt: skip
    (ladders,) = cases(results_of("hlr-cache-embedded"))
    assert ladders.place == "threads"
    assert [(case.series, case.at) for case in ladders.found] == [
        ("baseline", "1"), ("baseline", "4"), ("uncached", "4"), ("cached", "4"), ("baseline", "8"),
    ]  # fmt: skip


PAIR = """
proveout: 1
name: pair
topology:
  hosts: {db1: {address: local, roles: [client, server]}}
  systems:
    back: {engine: postgres, host: db1, provision: embedded}
    cache: {engine: postgres, host: db1, provision: embedded}
workloads: {hlr: {kind: hlr, population: 1000}}
stages:
  - populate: {workload: hlr, into: [back, cache]}
  - ladder: {id: baseline, workload: hlr, target: back, threads: [4, 32], measure: 5s, repeat: 3}
  - ladder: {id: cached, workload: hlr, target: cache, threads: [4], measure: 5s, repeat: 3}
"""


def test_ladders_with_unlike_peaks_are_beside_each_other(tmp_path: Path) -> None:
    (tmp_path / "pair.yaml").write_text(PAIR)
    (figure,) = latency_at_peak(synthetic_results(compile_plan(tmp_path / "pair.yaml")))
    values = figure.spec["data"]["values"]
    names = {value["series"] for value in values}
    assert names == {"baseline on back, 32 threads", "cached on cache, 4 threads"}
    assert all(value["lower"] < value["value"] < value["upper"] for value in values)
    assert not list(latency_at_peak(results_of("tprocc-embedded")))


def test_a_chart_has_its_results_as_places_and_a_panel_for_each_metric() -> None:
    results = results_of("tprocc-lab")
    nodes, scaling = charts_of(results)
    found = {chart["title"]["text"]: shown(chart) for chart in charts(nodes)}
    assert list(found) == ["NOPM", "TPM", "ART"]
    assert [at for _, at, _ in found["TPM"]] == ["1", "2", "4"]
    assert next(charts(nodes))["layer"][0]["encoding"]["x"]["title"] == "nodes"
    one, two = (results.stages[name].rungs[0].tree["nopm"]["mean"] for name in ("one_node", "two_nodes"))
    assert [value for *_, value in shown(scaling.spec)][:2] == [1.0, pytest.approx(two / one, rel=0.01)]
    second = scaling.spec["data"]["values"][1]
    assert second["lower"] < second["value"] < second["upper"], "the interval of the ratio"
    assert f"| {' | '.join(nodes.rows[0][:3])} |" in markdown.render(run_document(results))


def test_all_numbers_of_a_chart_relative_to_one_transaction_with_its_threads() -> None:
    results = results_of("hlr-cache-embedded")
    figure = declared(results, "relative-latency")
    rungs = {str(rung.threads): rung.tree["transactions"] for rung in results.stages["baseline"].rungs}
    base = rungs["1"]["InsertCallForwarding"]["response"]["avg_us"]["mean"]
    for series, at, value in shown(next(charts(figure))):
        assert value == pytest.approx(rungs[at][series]["response"]["avg_us"]["mean"] / base, rel=0.01)
    assert "relative to InsertCallForwarding with 1 thread = 1" in figure.caption


def test_up_is_better_divides_the_time_of_the_same_cell_of_the_first_mode() -> None:
    results = results_of("analytics-embedded")
    figure = declared(results, "speed")
    found = {(series, at): value for series, at, value in shown(next(charts(figure)))}
    took = {
        name: results.stages[f"solve__{name}__degree_2"].rungs[1].tree["elapsed_s"]["mean"]
        for name in ("rows", "columns", "packed")
    }
    for name, own in took.items():
        assert found[name, "2, 5 threads"] == pytest.approx(took["rows"] / own, rel=0.01)
    assert figure.rows[0][2] == "100 %"
    assert "= 100 % (half the time is 200 %; higher is better)" in figure.caption
    assert "confidence interval (n = 3 repeats)" in figure.caption, "the base is a number without an interval"


def test_published_numbers_are_drawn_beside_those_that_they_are_of_with_their_source() -> None:
    first, second = results_of("hlr-cache-lab"), results_of("hlr-cache-lab-2")
    figure = declared(first, "relief")
    busy, *_ = charts(figure)
    found = [(value["at"], value["published"], value["source"]) for value in busy["data"]["values"]]
    assert found == [("without", 0.123, "figure 5"), ("with", 0.08, "figure 5")]
    (hollow,) = (one for one in busy["layer"] if "stroke" in one.get("encoding", {}))
    assert hollow["mark"]["fill"] == "white"
    assert hollow["encoding"]["stroke"]["scale"]["domain"] == ["figure 5"]
    assert figure.rows[0][-2:] == ("12.3 %", "figure 5")
    assert "Hollow: published numbers" in figure.caption
    (both,) = (one for one in stage_figures.charts_together({"A": first, "B": second}) if one.of == ("relief",))
    places = [(series, at) for series, at, _ in shown(next(charts(both)))]
    assert places == [("A", "without"), ("A", "with"), ("B", "without"), ("B", "with")], "of a comparison, in one"
    assert {value["published"] for value in next(charts(both))["data"]["values"]} == {0.123, 0.08, 0.19, 0.1}
    assert pictures.png(both).startswith(b"\x89PNG")


def test_numbers_that_were_not_measured_are_left_out_and_counted() -> None:
    results = results_of("tprocc-lab")
    kept = {name: stage for name, stage in results.stages.items() if name != "four_nodes"}
    found = charts_of(replace(results, stages=kept))
    assert [row[0] for row in found[0].rows] == ["1", "2"] * 3
    assert found[0].captions[0].startswith("Not measured: 3 of 9 numbers.")
    why = dict.fromkeys(["nodes", "scaling"], "none of its results has a number")
    assert stage_figures.charts(replace(results, stages={})) == ([], why)


def test_a_stage_by_itself_shows_its_repeats_and_their_mean() -> None:
    results = results_of("calibrate-io-lab")
    (figure,) = stage_values(replace(results, stages={"one": results.stages["one"]}))
    first = next(charts(figure))["data"]["values"]
    assert [value["at"] for value in first] == ["1", "2", "3", "4", "5", "mean"]
    assert first[1]["value"] == number("one", 0, 2, "max_iops", lambda *_: 1.0)
    assert first[5]["lower"] < first[5]["value"] < first[5]["upper"]
    assert figure.caption.endswith("with the 95 % confidence interval (n = 5 repeats).")
    assert {(row[0], row[-1]) for row in figure.rows} >= {("1", "-"), ("mean", "5")}


def test_loads_that_share_transactions_stand_side_by_side_and_others_have_the_name_of_their_load() -> None:
    figure = next(one for one in latency_by_transaction(results_of("hlr-cache-lab")) if one.slug.endswith("baseline"))
    values = figure.spec["data"]["values"]
    assert {value["series"] for value in values} == {"one", "two"}
    assert len({value["at"] for value in values}) == 7 and len(values) == 14
    values = next(iter(latency_by_transaction(results_of("htap-embedded")))).spec["data"]["values"]
    assert {"orders.NewOrder", "queries.low_stock"} <= {value["at"] for value in values}


# ---- from stored histograms --------------------------------------------------------------------------------------


@pytest.fixture
def read(tmp_path: Path) -> tuple[RunResults, Timeline]:
    results = load_results(history())
    return results, read_timeline(results, run_directory(tmp_path).samples)


def test_a_rung_is_shown_by_its_median_repeat_and_has_the_response_times_of_all(
    read: tuple[RunResults, Timeline],
) -> None:
    loads = {(one.stage, one.rung): one for one in read[1].loads}
    first = loads["slow", 1]
    assert [(point.start_s, point.end_s) for point in first.points] == [(-1, 0), (0, 1), (1, 2), (2, 3)]
    assert [(point.tps, point.errors) for point in first.points] == [(100.0, 1.0)] * 4
    assert (first.points[0].p50_ms, first.points[0].p99_ms) == pytest.approx((1.0, 20.0), rel=1e-3)
    assert first.end_s == 2.0
    assert (first.repeats, histogram.count(first.responses)) == (2, 2 * 2 * 100), "two repeats, two measured seconds"
    assert loads["slow", 4].repeats == 1, "the other repeat does not count"


def test_the_window_begins_within_a_second_after_a_ramp_up_of_half_a_second(
    read: tuple[RunResults, Timeline], tmp_path: Path
) -> None:
    """`ramp_up: 0.5s`: the first second that begins in the window begins half a second after it."""
    results, whole = read
    assert results.run is not None
    stages = [stage | {"windows": {"ramp_up_s": 0.5}} for stage in results.run.plan["stages"]]
    run = replace(results.run, plan={**results.run.plan, "stages": stages})
    timeline = read_timeline(replace(results, run=run), tmp_path / "r-1" / "samples")
    first = next(one for one in timeline.loads if (one.stage, one.rung) == ("slow", 1))
    assert [point.start_s for point in first.points] == [-0.5, 0.5, 1.5, 2.5]
    assert first.end_s == 2.0
    spans = [(span.start_s, span.end_s) for span in (timeline.windows[0], whole.windows[0])]
    assert spans[0] == pytest.approx((spans[1][0] - 0.5, spans[1][1] - 0.5))


def test_the_points_of_a_long_load_are_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(timelines, "SERIES_POINTS_MAX", 10)
    monkeypatch.setattr(timelines, "COLUMNS_MAX", 5)
    rows = [load_row(n * 10**9, n, "ramp_up" if n < 9 else "measure", 1) for n in range(33)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "slow-1-1-1.load.parquet")
    (one,) = timelines.read_load_series(load_results(history()), tmp_path)
    assert [point.tps for point in one.points] == [100.0] * 9, "ramps too, which end before the measure window"
    assert len({cell.start_s for cell in one.cells}) == 5
    assert sum(cell.count for cell in one.cells) == 33 * 100


def test_a_rung_is_chosen_by_its_number_and_never_by_a_name(read: tuple[RunResults, Timeline]) -> None:
    """A name of a plan in an expression could be code."""
    for figure in (*latency_heat_map(*read), *rung_timeline(*read)):
        (chooser,) = [one for one in figure.spec["params"] if "bind" in one]
        assert chooser["bind"]["options"] == [0, 1, 2, 3]
        assert chooser["bind"]["labels"][3].startswith("fast on cache, 4 threads")
        assert chooser["value"] == 1, "the rung with the highest throughput of the first ladder"


def test_the_axis_of_a_long_window_has_no_powers_of_ten(read: tuple[RunResults, Timeline]) -> None:
    """A tick every 10 s or more was `1e+1`."""
    results, timeline = read

    def scaled(parts: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(replace(one, start_s=25.0 * one.start_s, end_s=25.0 * one.end_s) for one in parts)

    loads = (replace(one, points=scaled(one.points), cells=scaled(one.cells), end_s=50.0) for one in timeline.loads)
    long = replace(timeline, loads=tuple(loads))
    for figure in (*latency_heat_map(results, long), *rung_timeline(results, long)):
        drawn = pictures.svg(figure)
        assert ">40<" in drawn and "e+1<" not in drawn


def test_phases_have_the_offered_rate_beside_the_completed_one(read: tuple[RunResults, Timeline]) -> None:
    """A window of two phases in both ladders, the first of them 0.5 s long."""
    results, timeline = read
    assert results.run is not None
    levels = [
        {"for_s": 0.5, "values": [40.0], "at_s": [0.0]},
        {"for_s": 1.5, "values": [40.0, 100.0], "at_s": [0.0, 1.5]},
    ]
    more = {"windows": {"phases": [[HOSTILE, 0.5], ["spike", 1.5]]}, "arrival": {"of": "rate", "levels": levels}}
    plan = {**results.run.plan, "stages": [stage | more for stage in results.run.plan["stages"]]}
    back = {"phases": {"spike": {"recovery_s": 0.25}}}
    loads = tuple(replace(one, iteration=replace(one.iteration, metrics=back)) for one in timeline.loads)
    (figure,) = phases(replace(results, run=replace(results.run, plan=plan)), replace(timeline, loads=loads))
    ribbon, throughput, response = figure.spec["concat"]
    spans = [(row["t"], row["u"], row["label"]) for row in ribbon["data"]["values"] if row["of"] == 0]
    assert spans == [(0, 0.5, ""), (0.5, 2, "spike"), (-1, 0, ""), (2, 3, "")], "a name that does not fit is a tooltip"
    _, rule, lines, offered = throughput["layer"]
    assert [(row["t"], row["shown"]) for row in rule["data"]["values"] if row["of"] == 0] == [(2.25, "0.25 s")]
    rates = [(row["t"], row["v"]) for row in offered["data"]["values"] if row["of"] == 0]
    assert rates == [(0, 40), (0.5, 40), (0.5, 40), (2, 100)]
    assert (lines["mark"]["interpolate"], offered["mark"]["interpolate"]) == ("step", "linear")
    assert lines["encoding"]["color"]["scale"]["domain"] == ["completed", "offered", "errors"]
    assert response["layer"][2]["encoding"]["y"]["title"] == "response, ms"
    first, second = figure.rows[:2]
    assert first[1:5] == (safe(HOSTILE), "0 s", "0.5 s", "40")
    assert second[1:6] == ("spike", "0.5 s", "2 s", "70", "100")
    assert "offered: 40/s (lowest) at" in figure.alt


def test_the_level_of_a_long_phase_is_bounded() -> None:
    sine = Level(for_s=86_400.0, values=(100.0,), amplitude=50.0, period_s=3_600.0)
    every = tuple(map(float, range(5_000)))
    assert all(len(_course(level)) <= POINTS_MAX for level in (sine, Level(for_s=5_000.0, values=every, at_s=every)))


def test_waits_are_sessions_and_time_per_transaction() -> None:
    (figure,) = wait_events(load_results(history()))
    (row,) = [row for row in figure.rows if row[0].startswith("slow") and ", 4 threads" in row[0]]
    assert row[3] == "0.75", "1.5 s of waits in 2 s"
    assert row[4] == "3.73 ms", "of 201 transactions a second"


# ---- searches and matrices ---------------------------------------------------------------------------------------


def probe(number: int, rate: float, accepted: bool) -> ProbeFinished:
    return ProbeFinished(stage="cap", probe=number, phase="bisect", rate=rate, accepted=accepted, evidence=HOSTILE)


def test_a_search_has_its_probes_the_bracket_after_each_and_its_answer() -> None:
    tried = ((100.0, True), (400.0, False), (200.0, True), (200.0, False), (150.0, True))
    answer = SearchFinished(stage="cap", rate=150.0, probes=5, reason="", upper=200.0, confirmations=2)
    probes = [probe(n, *each) for n, each in enumerate(tried, 1)]
    (figure,) = search(load_results([*history()[:1], begun("cap", "search"), *probes, answer]))
    values = figure.spec["data"]["values"]
    assert [(row["lower"], row["upper"]) for row in values] == [
        (None, None), (100.0, 400.0), (200.0, 400.0), (100.0, 200.0), (150.0, 200.0),
    ]  # fmt: skip
    assert {row["tick"] for row in values} == {150.0}
    assert [(row["at"], row["series"]) for row in values[:2]] == [("1", "accepted"), ("2 ✗", "refused")]
    assert "rate, refused: 400/s (highest) at 2 ✗, 200/s (lowest) at 4 ✗." in figure.alt
    none = replace(answer, rate=None, outcome="none")
    for end, ticks in (([answer], True), ([none], False), ([], False)):
        (figure,) = search(load_results([*history()[:1], begun("cap", "search"), *probes, *end]))
        assert ("ticks: the answer" in figure.caption) == ticks


def test_the_lag_of_a_search_is_one_strip_with_the_refused_marked() -> None:
    cap = {"id": "cap", "kind": "search", "workload": "hlr", "target": "cache"}
    items = [made.iteration("cap", 4, at, 1000.0, lag={"avg_s": 0.01 * at}) for at in (1, 2, 3)]
    said = [probe(at, 1000.0 * at, at < 3) for at in (1, 2, 3)]
    results = load_results([run_started({"stages": [cap]}), begun("cap", "search"), *items, *said])
    starts = [(100.0 * at, one) for at, one in enumerate(items)]
    lines = (Line(iteration=one, name="box", times=(at, at + 1), values=(0.01, 0.03)) for at, one in starts)
    windows = (Span(iteration=one, start_s=at, end_s=at + 2) for at, one in starts)
    (strip,) = system_figures.lag(results, Timeline(lag=tuple(lines), windows=tuple(windows)))
    assert "concat" not in strip.spec
    names = ("at", "lower", "value", "upper", "series")
    assert [tuple(value[name] for name in names) for value in strip.spec["data"]["values"]] == [
        ("1", 10.0, 20.0, 30.0, "accepted"), ("2", 10.0, 20.0, 30.0, "accepted"), ("3 ✗", 10.0, 20.0, 30.0, "refused")
    ]  # fmt: skip


def test_the_cells_of_a_matrix_stand_on_one_axis_against_the_first() -> None:
    results = results_of("storage-forms-embedded")
    (figure,) = matrix_overview(results)
    base, other = (results.stages[f"solve__plain__degree_{n}"].rungs[0].tree["solve_s"]["mean"] for n in (0, 2))
    values = [value["value"] for value in figure.spec["data"]["values"]]
    assert values[:2] == [1.0, pytest.approx(base / other)], "a shorter time is better"
    assert len(figure.rows) == len(values) == 4
    assert figure.alt.startswith("time to solve, undecided: 1 × at ")


# ---- faults ------------------------------------------------------------------------------------------------------

TPS, RAMP_S, MEASURE_S, BEGINS_S, DOWN_S, HEALED_S = 1_000, 2, 40, 15.0, 4.0, 3.0
T0_NS = 7_000_000_000
OUTCOME = FaultMeasured(
    fault="crash", number=1, begins_s=BEGINS_S, in_place_s=BEGINS_S + 0.01, healing_s=BEGINS_S + 2.9,
    healed_s=BEGINS_S + HEALED_S, detection_s=0.02, outage_s=DOWN_S, outage_from_s=BEGINS_S, recovery_s=5.0,
    tps_before=1000.0, failed=12, lost=3,
)  # fmt: skip


def faulted() -> RunResults:
    stage = {"id": "run", "kind": "ladder", "workload": "w", "threads": [4], "target": "db"}
    about: dict[str, Any] = {"measure_s": MEASURE_S, "faults": (OUTCOME,)}
    repeats = [iteration("run", 4, n, {"tps": 900.0}, started_unix_s=float(n), **about) for n in (1, 2)]
    return load_results([run_started({"stages": [stage]}), begun("run"), *repeats])


def store(folder: Path, repeat: int) -> None:
    """Tenths of a second of a load of two hosts that has no answer for `DOWN_S` from `BEGINS_S`; errors meanwhile."""
    whole, down = RAMP_S + MEASURE_S + 1, (RAMP_S + BEGINS_S, RAMP_S + BEGINS_S + DOWN_S)
    nothing = dict.fromkeys(("first_ns", "last_ns", "oldest_ns", "slowest_ns", "error_ns", "error_oldest_ns"), 0)
    tenths, seconds = [], []
    for host in ("c1", "c2"):
        for bin in range(whole * 10):
            answers, at_ns = not down[0] <= bin / 10 < down[1], T0_NS + bin * 100_000_000
            about: dict[str, Any] = {"host": host, "load": "", "host_ns": at_ns, "coordinator_ns": at_ns}
            tenths.append(about | {"answered": TPS // 20 * answers, "failed": 2 * (not answers)} | nothing)
        for second in range(whole):
            window = "ramp_up" if second < RAMP_S else "measure" if second < RAMP_S + MEASURE_S else "ramp_down"
            answers = not down[0] <= second < down[1]
            row: dict[str, Any] = load_row(T0_NS + second * 1_000_000_000, second, window, 1)
            times: dict[str, Any] = {"response_indices": [1024] * answers, "response_counts": [99] * answers}
            seconds.append(row | {"host": host, "transaction": "GET"} | times)
    pq.write_table(pa.Table.from_pylist(tenths), folder / f"run-4-{repeat}-1.bins.parquet")
    pq.write_table(pa.Table.from_pylist(seconds), folder / f"run-4-{repeat}-1.load.parquet")


@pytest.fixture(scope="module")
def timeline(tmp_path_factory: pytest.TempPathFactory) -> Timeline:
    folder = tmp_path_factory.mktemp("samples")
    for repeat in (1, 2):
        store(folder, repeat)
    return read_timeline(faulted(), folder)


def test_the_lowest_throughput_of_a_rung_in_words_is_that_of_its_table(timeline: Timeline) -> None:
    (load,) = timeline.loads
    points = [replace(one, tps=0.0) if one.start_s == 1.0 else one for one in load.points]
    alone = replace(timeline, loads=(replace(load, points=tuple(points)),))
    (rung,), (tails,) = (list(one(faulted(), alone)) for one in (rung_timeline, percentiles))
    assert (tails.heads[0], tails.rows[0][0]) == ("ladder", "run on db, 4 threads")
    assert "the seconds that begin in the measure windows" in tails.caption, "not all, after a ramp-up of 0.5 s"
    assert rung.rows[0][1] == "0" and ", 0/s (lowest) at 1 s, " in rung.alt


def test_throughput_of_all_hosts_around_a_fault_is_on_the_time_of_the_fault(timeline: Timeline) -> None:
    first, second = timeline.faults
    assert (first.iteration.id.repeat, second.iteration.id.repeat) == (1, 2)
    assert (first.outage, first.healed_s) == ((0.0, DOWN_S), HEALED_S)
    values = {round(at, 2): value for at, value in first.answered}
    assert [values[at] for at in (-0.05, 0.05, 3.95, 4.05)] == pytest.approx([TPS, 0.0, 0.0, TPS]), "both hosts"
    errors = {round(at, 2): value for at, value in first.failed}
    assert (errors[-0.05], errors[2.05]) == (0.0, 40.0)
    assert not [at for at, _ in first.p99_ms if 0.0 < at < DOWN_S], "no percentile of seconds without an answer"
    assert first.answered[0][0] >= -5.1, "as much before it as it lasts"


def test_a_fault_has_a_figure_of_one_occurrence_and_one_of_all(timeline: Timeline) -> None:
    (one,) = fault_figures.fault_timeline(faulted(), timeline)
    (every,) = fault_figures.fault_occurrences(faulted(), timeline)
    assert [panel["layer"][-1]["encoding"]["y"]["title"] for panel in one.spec["concat"]] == [
        "transactions/s", "errors/s", "p99, ms",
    ]  # fmt: skip
    assert "Detection 20.0 ms, outage 4 s, recovery 5 s." in one.caption
    assert len(every.spec["concat"]) == len(one.rows) == len(every.rows) == 2
    assert one.rows[0][0] == "4 threads, repeat 1, occurrence 1"
    for figure in (one, every):
        assert pictures.svg(figure).startswith("<svg")
    lasting = replace(OUTCOME, recovery_s=None, recovery_at_least_s=6.0, outage_at_least=True, healed_s=None)
    unhealed = Timeline(faults=(replace(timeline.faults[0], fault=lasting),))
    (one,) = fault_figures.fault_timeline(faulted(), unhealed)
    assert one.caption.endswith("outage ≥ 4 s, recovery ≥ 6 s."), "lower bounds, as in the table"
    shades = next(layer for layer in one.spec["concat"][0]["layer"] if layer["mark"]["type"] == "rect")
    spans = {row["what"]: (row["t"], row["u"]) for row in shades["data"]["values"]}
    assert spans["until recovered"] == (0.01, 6.0) and "after" not in spans, "nothing is known of it behind the bound"
    assert one.rows[0][3:5] == ("≥ 4 s", "≥ 6 s")


# ---- what comes out of shipped plans: no server, no run ----------------------------------------------------------

KINDS = (
    "calibrate-io-lab", "failover-embedded", "hlr-cache-embedded", "htap-embedded", "settings-sweep-embedded",
    "spike-embedded", "storage-embedded", "storage-forms-embedded",
)  # fmt: skip
ELSEWHERE = {"search", "update-time", "latency-at-peak", "versus"}
"""Figures that come out of none of these: the tests above, `test_html_report` and `test_phases` have them."""
OTHERS = sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.glob("**/*.yaml")
                if path.parent.name in ("plans", "starters") and path.stem not in KINDS)  # fmt: skip


def drawn(name: str) -> dict[str, int]:
    """The figures of a plan's report, with the rows of their tables; all that the plan names are among them."""
    plan, results = compiled(name), results_of(name)
    found, missing = selection.figures(results, synthetic_timeline(results))
    assert not missing
    assert {*plan.figures, *([NAME] if plan.charts else [])} <= {one.name for one in found}
    assert len({one.slug for one in found}) == len(found) > 0, "a plan without a figure shows nothing"
    assert all(len(row) == len(one.heads) for one in found for row in one.rows)
    long = [one.captions[0] for one in found if len(one.captions[0].split()) > CAPTION_WORDS]
    assert long == [], "how to read a figure is behind a question mark"
    assert all(" ".join(filter(None, one.captions)) == one.caption for one in found)
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
    results = synthetic_results(compiled("pgbench-embedded"))
    for rung in (rung for stage in results.stages.values() for rung in stage.rungs):
        for tree in (rung.tree, *rung.tree["transactions"].values()):
            tree.pop("response")
    found = {one.name: one for one in figures(results)}
    assert "latency-by-transaction" not in found
    assert "response" not in found["relative-tps-latency"].caption + str(found["relative-tps-latency"].spec)


def parts(spec: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The named mappings of a chart, at any depth."""
    for name, one in spec.items() if isinstance(spec, Mapping) else (("", each) for each in spec):
        if isinstance(one, Mapping):
            yield name, one
        if isinstance(one, Mapping | list):
            yield from parts(one)


@pytest.mark.parametrize(
    ("name", "word", "other"), [("tptbm-embedded", "processes", "threads"), ("tpcb-embedded", "threads", "processes")]
)
def test_the_axis_of_a_ladder_has_the_word_of_the_plan(name: str, word: str, other: str) -> None:
    found = figures(results_of(name))
    titles = {one.get("title") for figure in found for axis, one in parts(figure.spec) if axis in ("x", "y")}
    assert word in titles and other not in titles
    assert not any(other in (figure.title, *figure.heads) for figure in found)


# ---- what is drawn, in which colours, and what is folded ----------------------------------------------------------


def test_the_charts_of_the_plan_come_first_then_the_figures_that_it_names_and_the_others_by_subject() -> None:
    results = results_of("hlr-cache-embedded")
    found = figures(results)
    first, folded = selection.shown(results, found)
    charts = len(results.plan["charts"])
    assert [one.name for one in first[:charts]] == [NAME] * charts
    assert list(dict.fromkeys(one.name for one in first[charts:])) == results.plan["figures"]
    assert {one.slug for one in (*first, *(one for of in folded.values() for one in of))} == {one.slug for one in found}
    assert {"Hosts, waits and replication", "Response times and rungs over time"} <= folded.keys()
    assert results.run is not None
    unnamed = replace(results, run=replace(results.run, plan={**results.plan, "figures": []}))
    first, _ = selection.shown(unnamed, figures(unnamed))
    assert len(first) == charts + selection.SHOWN_MAX


def test_bars_that_are_equal_because_one_rate_was_offered_are_not_drawn() -> None:
    stages = [
        {"id": name, "kind": "ladder", "workload": "hlr", "target": target, "threads": [4], "repeat": 3}
        for name, target in (("base", "backend"), ("fast", "cache"))
    ]

    def relative(*arrival: dict[str, Any]) -> list[Figure]:
        plan = {"stages": [stage | more for stage in stages for more in arrival]}
        ladders = [*made.ladder("base", {4: (899, 900, 901)}), *made.ladder("fast", {4: (900, 901, 902)})]
        return [*load_figures.relative_tps_latency(load_results([run_started(plan), *ladders]))]

    (figure,) = relative({})
    assert figure.spec["columns"] == 1, "latency below, at the same places"
    assert {one["title"]["text"] for one in figure.spec["concat"]} == {"throughput, relative", "response avg"}
    assert not relative({"arrival": {"rate": 900.0}})


def test_a_first_rung_without_a_valid_repeat_is_the_base_of_nothing() -> None:
    def numbers(tps: float) -> dict[str, Any]:
        return {"tps": tps, "response": {"avg_us": 1e6 / tps, "p50_us": 1e6 / tps, "p99_us": 2e6 / tps}}

    def both(repeat: int) -> dict[str, Any]:
        ratios = {"versus": {"tps_ratio": 1.05 + repeat / 100, "avg_ratio": 0.95}}
        return numbers(205.0) | {"loads": {"plain": numbers(100.0), "quick": numbers(105.0 + repeat) | ratios}}

    repeats = [(rung, repeat) for rung in (1, 4, 8) for repeat in (1, 2, 3)]
    ladder = [begun("duet"), *(iteration("duet", *at, both(at[1]), valid=at[0] > 1) for at in repeats)]
    ladder.append(iteration("duet", 16, 1, {"response": numbers(1.0)["response"]}))  # without a throughput
    plan = {"stages": [{"id": "duet", "kind": "ladder", "workload": "hlr", "target": "db", "repeat": 3}]}
    results = load_results([run_started(plan), *ladder])
    text = markdown.render(run_document(results))
    assert "In turns: each load over the first, plain" in text
    assert "Throughput of quick over plain at 4 threads: 1.070 ×" in text
    assert "By transaction" not in text, "a program tells none"
    (relative,), (turns,) = (
        list(one(results, Timeline())) for one in (load_figures.relative_tps_latency, load_figures.versus)
    )
    assert "in units of duet with 4 threads" in relative.caption
    assert [at for _, at, _ in shown(next(charts(relative)))] == ["4", "8"]
    assert "over plain" in turns.title and turns.caption.endswith("over repeats.")


def colours(spec: Any) -> Iterator[dict[str, str]]:
    """The colours of names, of each channel of a chart."""
    for name, one in parts(spec):
        if name in ("color", "stroke") and "range" in one.get("scale", {}):
            yield dict(zip(one["scale"]["domain"], one["scale"]["range"], strict=False))


def colours_of(results: RunResults) -> dict[str, set[str]]:
    """The colours of each name in all figures."""
    seen: dict[str, set[str]] = {}
    for names in (names for one in figures(results) for names in colours(one.spec)):
        if set(names.values()) <= set(PALETTE):
            assert len(set(names.values())) == len(names) or len(names) > len(PALETTE)
            for name, colour in names.items():
                seen.setdefault(name.partition(" on ")[0], set()).add(colour)
    assert {name: of for name, of in seen.items() if len(of) > 1} == {}
    return seen


def test_a_name_has_one_colour_in_all_figures_of_a_report() -> None:
    assert {"UpdateLocation", "uncached", "cached"} <= colours_of(results_of("hlr-cache-embedded")).keys()
    ladder: tuple[tuple[str, Callable[[int], str]], ...] = (
        ("warehouse-sweep-embedded", lambda n: f"sweep (warehouses {n})"),
        ("members-embedded", lambda n: f"members{n}"),
    )
    for plan, name in ladder:
        found = colours_of(results_of(plan))
        assert [found[name(n)] for n in (1, 2, 4)] == [{one} for one in PALETTE[:3]]
        assert "2 threads" not in found


def test_colours_with_a_meaning_of_their_own_stay_and_events_keep_theirs_in_another_order() -> None:
    def bars(*events: str, **scale: Any) -> Spec:
        rows: Sequence[dict[str, Any]] = [{"event": one} for one in events]
        return chart(rows, [layer("bar", color=category("event", scale={"domain": [*events], **scale}))])

    base = figures(results_of("hlr-cache-embedded"))[0]
    specs = (bars("CPU", "WalSync"), bars("WalSync", "CPU"), bars("yes", "no", range=["#111111", "#222222"]))
    coloured = selection.coloured([replace(base, spec=one) for one in specs], {"event": {"CPU", "WalSync"}}, ())
    first, second, third = (next(colours(one.spec)) for one in coloured)
    assert first == second == {"CPU": PALETTE[0], "WalSync": PALETTE[1]}
    assert third == {"yes": "#111111", "no": "#222222"}
    shades = chart([{"shade": "#cfe5ee"}], [layer("rect", color=category("shade", scale=None))])
    assert selection.coloured([replace(base, spec=shades)], {}, ())[0].spec == shades, "the field is the colour itself"


def test_events_that_differ_only_in_case_have_their_class() -> None:
    events = [("WALWrite", "LWLock"), ("WalWrite", "IO"), ("CPU", "CPU")]
    names = ["WALWrite (LWLock)", "WalWrite (IO)", "CPU"]
    assert named_apart(events) == dict(zip(events, names, strict=True))

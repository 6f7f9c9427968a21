"""The figures from stored histograms, of searches and of matrices, and what is said of all figures: alternative text,
tooltips, intervals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hostile_run import HOSTILE, history, iterations, load_row, run_directory
from synthetic_run import synthetic_results

from proveout.coordinator.report.figures.descriptions import course, ends, intervals, joined
from proveout.coordinator.report.figures.figure import chart, logarithmic, quantity, tips
from proveout.coordinator.report.figures.latency.distribution_figures import latency_heat_map, percentiles
from proveout.coordinator.report.figures.load.matrix_figures import matrix_overview
from proveout.coordinator.report.figures.load.scaling_figures import scaling
from proveout.coordinator.report.figures.load.search_figures import search
from proveout.coordinator.report.figures.over_time import load_series
from proveout.coordinator.report.figures.over_time.rung_timeline import rung_timeline
from proveout.coordinator.report.figures.over_time.timeline import Timeline, read_timeline
from proveout.coordinator.report.figures.system.wait_figures import wait_events
from proveout.coordinator.report.phases.phase_figure import POINTS_MAX, _course, phases
from proveout.coordinator.results.results import RunResults, load_results
from proveout.core.numbers import safe
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.phases import Level
from proveout.proto.events import ProbeFinished, SearchFinished, StageStarted
from proveout.proto.wire import histogram

PLANS = Path(__file__).parents[3] / "plans"


@pytest.fixture
def read(tmp_path: Path) -> tuple[RunResults, Timeline]:
    results = load_results(history())
    return results, read_timeline(results, run_directory(tmp_path).samples)


# ---- stored histograms -------------------------------------------------------------------------------------------


def test_a_rung_is_shown_by_its_median_repeat_and_has_the_response_times_of_all(
    read: tuple[RunResults, Timeline],
) -> None:
    _, timeline = read
    first = next(one for one in timeline.loads if (one.stage, one.rung) == ("slow", 1))
    assert [(point.start_s, point.end_s) for point in first.points] == [(-1, 0), (0, 1), (1, 2), (2, 3)]
    assert [point.tps for point in first.points] == [100.0] * 4
    assert [point.errors for point in first.points] == [1.0] * 4
    assert first.points[0].p50_ms == pytest.approx(1.0, rel=1e-3)
    assert first.points[0].p99_ms == pytest.approx(20.0, rel=1e-3)
    assert first.end_s == 2.0
    assert (first.repeats, histogram.count(first.responses)) == (2, 2 * 2 * 100), "two repeats, two measured seconds"
    (top,) = [one for one in timeline.loads if (one.stage, one.rung) == ("slow", 4)]
    assert top.repeats == 1, "the other repeat does not count"


def test_every_transaction_is_in_one_cell_of_the_grid(read: tuple[RunResults, Timeline]) -> None:
    _, timeline = read
    one = timeline.loads[0]
    assert sum(cell.count for cell in one.cells) == 4 * 100
    assert all(cell.upper_ms / cell.lower_ms == pytest.approx(10 ** (1 / load_series.PER_DECADE)) for cell in one.cells)
    slow = [cell for cell in one.cells if cell.lower_ms < 20.0 <= cell.upper_ms]
    assert [cell.count for cell in slow] == [10] * 4


def test_waits_are_average_active_sessions(read: tuple[RunResults, Timeline]) -> None:
    _, timeline = read
    waits = timeline.loads[0].waits
    assert {event: {value for *_, value in times} for event, times in waits.items()} == {
        "CPU": {2.0}, f"IO:{HOSTILE}": {1.0},
    }  # fmt: skip


def test_the_points_of_a_long_load_are_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.setattr(load_series, "POINTS_MAX", 10)
    monkeypatch.setattr(load_series, "COLUMNS_MAX", 5)
    results = load_results(history())
    (item,) = [item for item in iterations(results) if (item.id.stage, item.id.rung, item.id.repeat) == ("slow", 1, 1)]
    rows = [load_row(n * 10**9, n, "measure", 1) for n in range(33)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"slow-1-{item.id.repeat}-1.load.parquet")
    (one,) = load_series.read_load_series(results, tmp_path)
    assert len(one.points) == 9
    assert [point.tps for point in one.points] == [100.0] * 9
    assert len({cell.start_s for cell in one.cells}) == 5
    assert sum(cell.count for cell in one.cells) == 33 * 100


def test_of_many_rungs_the_first_the_last_and_the_peak_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    (stage, first), *_ = load_series.chosen(load_results(history()))
    rungs = [replace(first, threads=count) for count in range(1, 31)]
    kept = [rung.threads for rung in load_series._some(rungs, rungs[16])]
    assert kept[0] == 1 and kept[-1] == 30 and 17 in kept and len(kept) <= load_series.RUNGS_MAX
    monkeypatch.setattr(load_series, "SERIES_MAX", 3)
    few = load_series.chosen(load_results(history()))
    assert [(one.id, rung.threads) for one, rung in few] == [("slow", 4), ("fast", 4)], "the peaks alone"
    assert stage.id == "slow"


def test_each_nine_is_as_far_as_the_one_before(read: tuple[RunResults, Timeline]) -> None:
    (figure,) = percentiles(*read)
    values = figure.spec["data"]["values"]
    at = {value["percentile"]: value["nines"] for value in values}
    assert (at["p0"], at["p90"], at["p95"]) == (0.0, 1.0, pytest.approx(1.301, abs=1e-3))
    assert "p99.9" not in at, "of 400 transactions fewer than 10 are above it"
    assert {value["ladder"] for value in values} == {"slow on base, 4 threads", "fast on cache, 4 threads"}
    assert "p50 1.00 ms" in figure.alt


def test_a_rung_is_chosen_by_its_number_and_never_by_a_name(read: tuple[RunResults, Timeline]) -> None:
    """A name of a plan in an expression could be code."""
    for figure in (*latency_heat_map(*read), *rung_timeline(*read)):
        (chooser,) = [one for one in figure.spec["params"] if "bind" in one]
        assert chooser["bind"]["options"] == [0, 1, 2, 3]
        assert chooser["bind"]["labels"][3].startswith("fast on cache, 4 threads")
        assert chooser["value"] == 1, "the rung with the highest throughput of the first ladder"


def test_the_panels_of_a_timeline_are_below_each_other_on_one_time(read: tuple[RunResults, Timeline]) -> None:
    (figure,) = rung_timeline(*read)
    strip, *panels = figure.spec["concat"]
    assert strip["params"][0]["select"]["type"] == "interval"
    titles = [panel["layer"][1]["encoding"]["y"]["title"] for panel in panels]
    assert titles == ["per second", "response, ms", "CPU busy", "lag, ms", "active sessions"]
    domains = [layer["encoding"]["x"]["scale"]["domain"] for panel in panels for layer in panel["layer"]]
    assert all(domain == {"param": "brush"} for domain in domains)
    stacked = [row for row in panels[-1]["layer"][1]["data"]["values"] if row["of"] == 0]
    assert {(row["v"], row["w"]) for row in stacked} == {(0.0, 2.0), (2.0, 3.0)}
    assert all(-1.0 <= row["t"] < row["u"] <= 3.0 for row in stacked), "within the load"


def phased(
    read: tuple[RunResults, Timeline], arrival: dict[str, Any], recovery_s: float | None = None
) -> tuple[RunResults, Timeline]:
    """The run with a window of two phases in both ladders, the first of them 0.5 s long."""
    results, timeline = read
    assert results.run is not None
    windows = {"phases": [[HOSTILE, 0.5], ["spike", 1.5]]}
    stages = [{**stage, "windows": windows, "arrival": arrival} for stage in results.run.plan["stages"]]
    run = replace(results.run, plan={**results.run.plan, "stages": stages})
    metrics = {"phases": {"spike": {"recovery_s": recovery_s}}} if recovery_s is not None else {}
    loads = (replace(one, iteration=replace(one.iteration, metrics=metrics)) for one in timeline.loads)
    return replace(results, run=run), replace(timeline, loads=tuple(loads))


RATES = {"of": "rate", "levels": [{"for_s": 0.5, "values": [40.0], "at_s": [0.0]},
         {"for_s": 1.5, "values": [40.0, 100.0], "at_s": [0.0, 1.5]}]}  # fmt: skip


def test_phases_have_the_offered_rate_beside_the_completed_one(read: tuple[RunResults, Timeline]) -> None:
    (figure,) = phases(*phased(read, RATES, recovery_s=0.25))
    ribbon, throughput, response = figure.spec["concat"]
    shown = [row for row in ribbon["data"]["values"] if row["of"] == 0]
    assert [(row["t"], row["u"]) for row in shown] == [(0, 0.5), (0.5, 2), (-1, 0), (2, 3)]
    assert [row["label"] for row in shown] == ["", "spike", "", ""], "a name that does not fit is in the tooltip alone"
    _, rule, lines, levels = throughput["layer"]
    assert [(row["t"], row["shown"]) for row in rule["data"]["values"] if row["of"] == 0] == [(2.25, "0.25 s")]
    offered = [(row["t"], row["v"]) for row in levels["data"]["values"] if row["of"] == 0]
    assert offered == [(0, 40), (0.5, 40), (0.5, 40), (2, 100)]
    assert (lines["mark"]["interpolate"], levels["mark"]["interpolate"]) == ("step", "linear")
    assert lines["encoding"]["color"]["scale"]["domain"] == ["completed", "offered", "errors"]
    assert response["layer"][2]["encoding"]["y"]["title"] == "response, ms"
    first, second = figure.rows[:2]
    assert first[1:5] == (safe(HOSTILE), "0 s", "0.5 s", "40")
    assert second[1:6] == ("spike", "0.5 s", "2 s", "70", "100")
    assert "offered rises from 40/s" in figure.alt


def test_phases_of_threads_have_a_panel_of_their_own(read: tuple[RunResults, Timeline]) -> None:
    (figure,) = phases(*phased(read, {**RATES, "of": "threads"}))
    titles = [panel["layer"][1]["encoding"]["y"]["title"] for panel in figure.spec["concat"][1:]]
    assert titles == ["per second", "active threads", "response, ms"]
    (figure,) = phases(*phased(read, {"kind": "closed"}))
    assert [row[4] for row in figure.rows[:2]] == ["-", "-"], "a load of other ladders' phases has no level"
    assert not list(phases(*read)), "without phases"


def test_the_level_of_a_long_phase_is_bounded() -> None:
    sine = Level(for_s=86_400.0, values=(100.0,), amplitude=50.0, period_s=3_600.0)
    table = Level(for_s=5_000.0, values=tuple(map(float, range(5_000))), at_s=tuple(map(float, range(5_000))))
    assert all(len(_course(level)) <= POINTS_MAX for level in (sine, table))


# ---- ladders, waits, searches, matrices --------------------------------------------------------------------------


def test_scaling_has_the_ideal_line_and_the_response_on_the_same_axis() -> None:
    (figure,) = scaling(load_results(history()))
    above, below = figure.spec["concat"]
    ideal = above["layer"][0]["data"]["values"]
    first = [value for value in ideal if value["ladder"].startswith("slow")]
    assert first[0]["tps"] / first[0]["threads"] == pytest.approx(first[-1]["tps"] / first[-1]["threads"])
    axes = [layer["encoding"]["x"]["scale"] for layer in (above["layer"][2], below["layer"][1])]
    assert axes[0] == axes[1]
    assert above["layer"][1]["layer"][0]["encoding"]["y"]["scale"]["domainMin"] == 0
    assert "TPS rises from" in figure.alt


def test_waits_are_sessions_and_time_per_transaction() -> None:
    (figure,) = wait_events(load_results(history()))
    rows = [row for row in figure.rows if row[0].startswith("slow") and ", 4 threads" in row[0]]
    (row,) = rows
    assert row[3] == "0.75", "1.5 s of waits in 2 s"
    assert row[4] == "3.73 ms", "of 201 transactions a second"


def probes(*found: tuple[float, bool]) -> RunResults:
    results = load_results(history()[:1])
    made = tuple(
        ProbeFinished(stage="cap", probe=n, phase="bisect", rate=rate, accepted=accepted, evidence=HOSTILE)
        for n, (rate, accepted) in enumerate(found, 1)
    )
    answer = SearchFinished(stage="cap", rate=150.0, probes=len(made), reason="", upper=200.0, confirmations=2)
    events = [*history()[:1], StageStarted(stage="cap", kind="search", iterations=0, estimate_s=1.0), *made, answer]
    assert not results.stages
    return load_results(events)


def test_a_search_has_its_probes_the_bracket_after_each_and_its_answer() -> None:
    (figure,) = search(probes((100.0, True), (400.0, False), (200.0, True), (200.0, False), (150.0, True)))
    band, line, _, points = figure.spec["layer"]
    assert [(row["low"], row["high"]) for row in band["data"]["values"]] == [
        (100.0, 400.0), (200.0, 400.0), (100.0, 200.0), (150.0, 200.0),
    ]  # fmt: skip
    assert line["data"]["values"][0]["rate"] == 150.0
    assert points["encoding"]["shape"]["scale"]["domain"] == ["accepted", "refused"]
    assert figure.spec["layer"][3]["encoding"]["y"]["scale"]["domain"][0] == 0
    assert "5 probes between 100/s and 400/s: 3 accepted, 2 refused" in figure.alt


def test_a_search_over_a_wide_range_has_a_logarithmic_axis() -> None:
    (figure,) = search(probes((10.0, True), (400.0, False)))
    assert figure.spec["layer"][0]["encoding"]["y"]["scale"]["type"] == "log"


def test_the_cells_of_a_matrix_stand_on_one_axis_against_the_first() -> None:
    results = synthetic_results(compile_plan(PLANS / "storage-forms-embedded.yaml"))
    (figure,) = matrix_overview(results)
    (panel,) = figure.spec["concat"]
    assert panel["title"]["text"] == "time to solve"
    values = panel["data"]["values"]
    assert [value["factor"] for value in values][:1] == [1.0]
    base, other = (results.stages[f"solve__{name}"].rungs[0].tree["solve_s"]["mean"] for name in (
        "plain__degree_0", "plain__degree_2"))  # fmt: skip
    assert values[1]["factor"] == pytest.approx(base / other), "a shorter time is better"
    assert len(figure.rows) == len(values) == 4
    assert "of 4 cells differ from the first" in figure.alt


# ---- words and tooltips ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([100.0, 450.0, 400.0], "TPS rises from 100/s at 1 to 450/s at 2, then falls to 400/s at 3."),
        ([100.0, 101.0, 100.5], "TPS stays near 100/s from 1 to 3."),
        ([5.0], "TPS is 5/s at 1."),
        ([], "TPS: no number."),
        ([1.0, 9.0, 1.0, 9.0, 2.0], "TPS rises from 1/s at 1 to 9/s at 2, then falls to 1/s at 3, then rises to 9/s "
         "at 4, and goes on up and down to 2/s at 5."),
    ],
)  # fmt: skip
def test_a_course_in_words(values: list[float], text: str) -> None:
    assert course("TPS", "tps", [(str(n), value) for n, value in enumerate(values, 1)]) == text


def test_many_series_are_counted_and_places_without_an_order_have_their_ends() -> None:
    assert ends("mean", "avg_us", [("A", 3000.0), ("B", 12000.0)]) == "mean: highest 12.0 ms at B, lowest 3.00 ms at A."
    assert joined(f"{n}." for n in range(9)) == "0. 1. 2. 3. 5 more in the table."


def test_a_caption_has_the_level_and_the_repeats_of_its_whiskers() -> None:
    bounded = {"mean": 1.0, "lower": 0.5, "upper": 2.0, "n": 3}
    assert intervals([bounded]) == "the 95 % confidence interval (n = 3 repeats)"
    assert intervals([bounded, {**bounded, "n": 5}]) == "the 95 % confidence interval (n = 3 to 5 repeats)"
    assert intervals([{"mean": 1.0, "n": 1}]) == "no confidence interval: n = 1 repeat"


def test_tooltips_have_rounded_numbers_and_a_missing_one_is_not_shown_as_0() -> None:
    values: list[dict[str, Any]] = [{"a": 1.23456789, "b": 1.5, "n": 3}, {"a": 2.0, "b": None, "n": 4}]
    about = {"tooltip": tips(a="a", b="b", n="n"), "y": quantity("a", "", axis={"format": "%"})}
    spec = chart(values, [{"mark": "point", "encoding": about}, {"mark": "line", "encoding": {"tooltip": tips(a="a")}}])
    first, second = (layer["encoding"]["tooltip"] for layer in spec["layer"])
    assert [item.get("format") for item in first] == [".3~p", None, None]
    assert second[0]["format"] == ",.4~r"


@pytest.mark.parametrize(
    ("values", "ticks"), [((1.0, 90.0), [1, 2, 5, 10, 20, 50, 100]), ((0.01, 100.0), [0.01, 0.1, 1, 10, 100])]
)
def test_logarithmic_axes_have_few_ticks(values: tuple[float, float], ticks: list[float]) -> None:
    assert logarithmic("ms", "", values)["axis"]["values"] == ticks

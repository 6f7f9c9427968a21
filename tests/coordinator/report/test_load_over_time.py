"""The figures from stored histograms, of searches and of matrices, and what is said of all figures: alternative text,
tooltips, intervals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hostile_run import HOSTILE, history, iterations, load_row, run_directory
from records import begun
from synthetic_run import results_of

from proveout.coordinator.report.figures import timeline as figures_timeline
from proveout.coordinator.report.figures.over_time_figures import (
    POINTS_MAX,
    _course,
    latency_heat_map,
    phases,
    rung_timeline,
)
from proveout.coordinator.report.figures.stage_figures import matrix_overview, search
from proveout.coordinator.report.figures.system_figures import wait_events
from proveout.coordinator.report.figures.timeline import Timeline, read_timeline
from proveout.coordinator.results.results import RunResults, load_results
from proveout.core.numbers import safe
from proveout.dsl.plan.phases import Level
from proveout.proto.events import ProbeFinished, SearchFinished
from proveout.proto.wire import histogram


@pytest.fixture
def read(tmp_path: Path) -> tuple[RunResults, Timeline]:
    results = load_results(history())
    return results, read_timeline(results, run_directory(tmp_path).samples)


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


def test_the_points_of_a_long_load_are_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(figures_timeline, "SERIES_POINTS_MAX", 10)
    monkeypatch.setattr(figures_timeline, "COLUMNS_MAX", 5)
    results = load_results(history())
    (item,) = [item for item in iterations(results) if (item.id.stage, item.id.rung, item.id.repeat) == ("slow", 1, 1)]
    rows = [load_row(n * 10**9, n, "measure", 1) for n in range(33)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"slow-1-{item.id.repeat}-1.load.parquet")
    (one,) = figures_timeline.read_load_series(results, tmp_path)
    assert len(one.points) == 9
    assert [point.tps for point in one.points] == [100.0] * 9
    assert len({cell.start_s for cell in one.cells}) == 5
    assert sum(cell.count for cell in one.cells) == 33 * 100


def test_a_rung_is_chosen_by_its_number_and_never_by_a_name(read: tuple[RunResults, Timeline]) -> None:
    """A name of a plan in an expression could be code."""
    for figure in (*latency_heat_map(*read), *rung_timeline(*read)):
        (chooser,) = [one for one in figure.spec["params"] if "bind" in one]
        assert chooser["bind"]["options"] == [0, 1, 2, 3]
        assert chooser["bind"]["labels"][3].startswith("fast on cache, 4 threads")
        assert chooser["value"] == 1, "the rung with the highest throughput of the first ladder"


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
    assert "offered: 40/s (lowest) at" in figure.alt


def test_the_level_of_a_long_phase_is_bounded() -> None:
    sine = Level(for_s=86_400.0, values=(100.0,), amplitude=50.0, period_s=3_600.0)
    table = Level(for_s=5_000.0, values=tuple(map(float, range(5_000))), at_s=tuple(map(float, range(5_000))))
    assert all(len(_course(level)) <= POINTS_MAX for level in (sine, table))


def test_waits_are_sessions_and_time_per_transaction() -> None:
    (figure,) = wait_events(load_results(history()))
    rows = [row for row in figure.rows if row[0].startswith("slow") and ", 4 threads" in row[0]]
    (row,) = rows
    assert row[3] == "0.75", "1.5 s of waits in 2 s"
    assert row[4] == "3.73 ms", "of 201 transactions a second"


def probes(*found: tuple[float, bool]) -> RunResults:
    made = tuple(
        ProbeFinished(stage="cap", probe=n, phase="bisect", rate=rate, accepted=accepted, evidence=HOSTILE)
        for n, (rate, accepted) in enumerate(found, 1)
    )
    answer = SearchFinished(stage="cap", rate=150.0, probes=len(made), reason="", upper=200.0, confirmations=2)
    return load_results([*history()[:1], begun("cap", "search"), *made, answer])


def test_a_search_has_its_probes_the_bracket_after_each_and_its_answer() -> None:
    (figure,) = search(probes((100.0, True), (400.0, False), (200.0, True), (200.0, False), (150.0, True)))
    values = figure.spec["data"]["values"]
    assert [(row["lower"], row["upper"]) for row in values] == [
        (None, None), (100.0, 400.0), (200.0, 400.0), (100.0, 200.0), (150.0, 200.0),
    ]  # fmt: skip
    assert {row["tick"] for row in values} == {150.0}
    assert [(row["at"], row["series"]) for row in values[:2]] == [("1", "accepted"), ("2 ✗", "refused")]
    assert "rate, refused: 400/s (highest) at 2 ✗, 200/s (lowest) at 4 ✗." in figure.alt


def test_the_cells_of_a_matrix_stand_on_one_axis_against_the_first() -> None:
    results = results_of("storage-forms-embedded")
    (figure,) = matrix_overview(results)
    values = figure.spec["data"]["values"]
    assert [value["value"] for value in values][:1] == [1.0]
    base, other = (results.stages[f"solve__{name}"].rungs[0].tree["solve_s"]["mean"] for name in (
        "plain__degree_0", "plain__degree_2"))  # fmt: skip
    assert values[1]["value"] == pytest.approx(base / other), "a shorter time is better"
    assert len(figure.rows) == len(values) == 4
    assert figure.alt.startswith("time to solve, undecided: 1 × at ")

"""Figures made of panels: which places, series and panels a matrix, ladders and stages give, their numbers and their
pictures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compiled_plans import FOLDER
from synthetic_run import number, results_of, synthetic_results

from proveout.coordinator.report import markdown
from proveout.coordinator.report.figures import figure as pictures
from proveout.coordinator.report.figures import stage_figures
from proveout.coordinator.report.figures.figure import Figure
from proveout.coordinator.report.figures.grammar import Point, cases, panels, table
from proveout.coordinator.report.figures.load_figures import latency_at_peak, latency_by_transaction
from proveout.coordinator.report.figures.stage_figures import stage_values
from proveout.coordinator.report.run_document import run_document
from proveout.coordinator.results.results import RunResults
from proveout.dsl.compile.compiler import compile_plan


def charts(figure: Figure) -> Iterator[dict[str, Any]]:
    yield from figure.spec.get("concat", [figure.spec])


def shown(chart: dict[str, Any]) -> list[tuple[str, str, float]]:
    return [(value["series"], value["at"], round(value["value"], 3)) for value in chart["data"]["values"]]


def charts_of(results: RunResults) -> list[Figure]:
    """The declared charts of a run, all of them drawn."""
    found, missing = stage_figures.charts(results)
    assert not missing
    return found


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


def test_the_table_has_the_numbers_with_units_intervals_and_repeats() -> None:
    heads, rows = table(
        [point("mean", "avg_us", "1", 1_500.0, lower=1_400.0, upper=1_600.0), point("count", "nopm", "1", 7.0)],
        place="nodes",
    )
    assert heads == ("nodes", "metric", "mean", "95 % CI", "repeats")
    assert rows == (("1", "mean", "1.50 ms", "1.40 ms … 1.60 ms", "3"), ("1", "count", "7", "-", "3"))


def test_in_a_matrix_the_first_axis_is_the_series_and_the_other_the_axis() -> None:
    (group,) = cases(results_of("storage-forms-embedded"))
    assert (group.of, group.place) == ("solve", "degree")
    assert [(case.series, case.at) for case in group.found] == [
        ("plain", "0"), ("pglz", "0"), ("plain", "2"), ("pglz", "2"),
    ]  # fmt: skip


def test_ladders_of_one_rung_are_the_places_and_ladders_of_many_the_series() -> None:
    users = {"users1": "100", "users2": "200", "users4": "400"}
    (nodes,) = cases(synthetic_results(compile_plan(FOLDER / "tprocc-lab.yaml", overrides=users)))
    assert [(case.series, case.at) for case in nodes.found] == [
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
    assert {value["series"] for value in values} == {
        "baseline on back, 32 threads", "cached on cache, 4 threads",
    }  # fmt: skip
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
    text, row = markdown.render(run_document(results)), nodes.rows[0]
    assert f"| {row[0]} | {row[1]} | {row[2]} |" in text


def test_all_numbers_of_a_chart_relative_to_one_transaction_with_its_threads() -> None:
    results = results_of("hlr-cache-embedded")
    (figure,) = (one for one in charts_of(results) if one.of == ("relative-latency",))
    rungs = {str(rung.threads): rung.tree["transactions"] for rung in results.stages["baseline"].rungs}
    base = rungs["1"]["InsertCallForwarding"]["response"]["avg_us"]["mean"]
    for series, at, value in shown(next(charts(figure))):
        assert value == pytest.approx(rungs[at][series]["response"]["avg_us"]["mean"] / base, rel=0.01)
    assert "relative to InsertCallForwarding with 1 thread = 1" in figure.caption


def test_up_is_better_divides_the_time_of_the_same_cell_of_the_first_mode() -> None:
    results = results_of("analytics-embedded")
    (figure,) = (one for one in charts_of(results) if one.of == ("speed",))
    found = {(series, at): value for series, at, value in shown(next(charts(figure)))}
    for mode in ("rows", "columns", "packed"):
        disk, own = (
            results.stages[f"solve__{name}__degree_2"].rungs[1].tree["elapsed_s"]["mean"] for name in ("rows", mode)
        )
        assert found[mode, "2, 5 threads"] == pytest.approx(disk / own, rel=0.01)
    assert figure.rows[0][2] == "100 %"
    assert "= 100 % (half the time is 200 %; higher is better)" in figure.caption


def test_published_numbers_are_drawn_beside_those_that_they_are_of_with_their_source() -> None:
    (figure,) = (one for one in charts_of(results_of("hlr-cache-lab")) if one.of == ("relief",))
    busy, *_ = charts(figure)
    found = [(value["at"], value["published"], value["source"]) for value in busy["data"]["values"]]
    assert found == [("without", 0.123, "figure 5"), ("with", 0.08, "figure 5")]
    (hollow,) = (one for one in busy["layer"] if "stroke" in one.get("encoding", {}))
    assert hollow["mark"]["fill"] == "white"
    assert hollow["encoding"]["stroke"]["scale"]["domain"] == ["figure 5"]
    assert figure.rows[0][-2:] == ("12.3 %", "figure 5")
    assert "Hollow: published numbers" in figure.caption


def test_a_comparison_draws_the_charts_of_both_runs_in_one() -> None:
    first, second = results_of("hlr-cache-lab"), results_of("hlr-cache-lab-2")
    (figure,) = (one for one in stage_figures.charts_together({"A": first, "B": second}) if one.of == ("relief",))
    places = [(series, at) for series, at, _ in shown(next(charts(figure)))]
    assert places == [("A", "without"), ("A", "with"), ("B", "without"), ("B", "with")]
    assert {value["published"] for value in next(charts(figure))["data"]["values"]} == {0.123, 0.08, 0.19, 0.1}
    assert pictures.png(figure).startswith(b"\x89PNG")


def test_numbers_that_were_not_measured_are_left_out_and_counted() -> None:
    results = results_of("tprocc-lab")
    kept = {name: stage for name, stage in results.stages.items() if name != "four_nodes"}
    found, missing = stage_figures.charts(replace(results, stages=kept))
    assert [row[0] for row in found[0].rows] == ["1", "2"] * 3
    assert found[0].captions[0].startswith("Not measured: 3 of 9 numbers.")
    assert not missing
    found, missing = stage_figures.charts(replace(results, stages={}))
    assert not found
    assert missing == dict.fromkeys(["nodes", "scaling"], "none of its results has a number")


def test_a_stage_by_itself_shows_its_repeats_and_their_mean() -> None:
    results = results_of("calibrate-io-lab")
    (figure,) = stage_values(replace(results, stages={"one": results.stages["one"]}))
    found = [at for _, at, _ in shown(next(charts(figure)))]
    assert found == ["1", "2", "3", "4", "5", "mean"]
    first = next(charts(figure))["data"]["values"]
    assert first[1]["value"] == number("one", 0, 2, "max_iops", lambda *_: 1.0)
    assert first[5]["lower"] < first[5]["value"] < first[5]["upper"]


def test_loads_that_share_transactions_stand_side_by_side_and_others_have_the_name_of_their_load() -> None:
    shared = results_of("hlr-cache-lab")
    figure = next(one for one in latency_by_transaction(shared) if one.slug.endswith("baseline"))
    values = figure.spec["data"]["values"]
    assert sorted({value["series"] for value in values}) == ["one", "two"]
    assert len({value["at"] for value in values}) == 7 and len(values) == 14
    unlike = results_of("htap-embedded")
    values = next(iter(latency_by_transaction(unlike))).spec["data"]["values"]
    assert {"orders.NewOrder", "queries.low_stock"} <= {value["at"] for value in values}

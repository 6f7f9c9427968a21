"""Figures made of panels: which places, series and panels a matrix, ladders and stages give, their numbers and their
pictures.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from synthetic_run import number, synthetic_results, synthetic_timeline

from proveout.coordinator.report import markdown
from proveout.coordinator.report.figures import chart_figures, vega
from proveout.coordinator.report.figures.cases import cases
from proveout.coordinator.report.figures.figure import Figure
from proveout.coordinator.report.figures.load_figures import (
    latency_at_peak,
    latency_by_threads,
    latency_by_transaction,
    nopm_art,
)
from proveout.coordinator.report.figures.panels import Point, panels, table
from proveout.coordinator.report.figures.stage_figures import stage_times, stage_values
from proveout.coordinator.report.figures.system.cpu_figures import host_cpu, peak_cpu
from proveout.coordinator.report.run_document import run_document
from proveout.coordinator.results.results import RunResults
from proveout.dsl.compile.compiler import compile_plan

PLANS = Path(__file__).parents[3] / "plans"


def results_of(name: str) -> RunResults:
    return synthetic_results(compile_plan(PLANS / f"{name}.yaml"))


def one_rung_a_node() -> RunResults:
    users = {"users1": "100", "users2": "200", "users4": "400"}
    return synthetic_results(compile_plan(PLANS / "tprocc-lab.yaml", overrides=users))


def charts(figure: Figure) -> Iterator[dict[str, Any]]:
    """The single charts of a figure."""
    yield from figure.spec.get("concat", [figure.spec])


def shown(chart: dict[str, Any]) -> list[tuple[str, str, float]]:
    return [(value["series"], value["at"], round(value["value"], 3)) for value in chart["data"]["values"]]


def marks(chart: dict[str, Any]) -> list[str]:
    """The types of the marks of a chart, layer by layer."""
    return [one["mark"]["type"] for layer in chart["layer"] for one in layer.get("layer", [layer])]


def charts_of(results: RunResults) -> list[Figure]:
    """The declared charts of a run, all of them drawn."""
    found, missing = chart_figures.charts(results)
    assert not missing
    return found


# ---- panels ------------------------------------------------------------------------------------------------------


def point(panel: str, metric: str, at: str, mean: float, **more: Any) -> Point:
    return Point(panel=panel, metric=metric, at=at, estimate={"mean": mean, "n": 3, **more})


def test_each_panel_has_its_own_unit_and_its_own_axis() -> None:
    spec = panels(
        [point("NOPM", "nopm", "1", 9e5), point("ART", "avg_us", "1", 9_800.0), point("ART", "avg_us", "2", 10_200.0)],
        place="nodes",
    )
    first, second = spec["concat"]
    assert [value["value"] for value in second["data"]["values"]] == [9.8, 10.2]
    assert second["layer"][0]["encoding"]["y"]["title"] == "ms"
    assert first["data"]["values"][0]["value"] == 9e5
    assert (first["title"]["text"], second["title"]["text"]) == ("NOPM", "ART")


def test_intervals_are_drawn_where_there_are_any_and_wide_ones_are_cut() -> None:
    one = panels([point("a", "tps", "1", 10.0)], place="")
    assert [layer["mark"]["type"] for layer in one["layer"]] == ["bar"]
    both = panels([point("a", "tps", "1", 10.0), point("a", "tps", "2", 10.0, lower=0.0, upper=90.0)], place="")
    assert marks(both) == ["bar", "rule", "tick", "tick", "point"], "a cap at each end, an arrow beyond the axis"
    assert both["layer"][1]["transform"] == [{"filter": "isValid(datum.lower) && isValid(datum.upper)"}]
    *caps, arrow = both["layer"][1]["layer"]
    assert all(part["mark"]["clip"] for part in caps)
    assert arrow["transform"] == [{"filter": "datum.upper > 15.0"}]
    assert arrow["encoding"]["y"]["datum"] == 15.0
    assert both["layer"][0]["encoding"]["y"]["scale"]["domainMax"] == 15.0


def test_long_names_lie_beside_their_bars() -> None:
    short = panels([point("a", "tps", str(n), 1.0) for n in range(6)], place="threads")
    long = panels([point("a", "tps", f"a transaction of that name {n}", 1.0) for n in range(6)], place="")
    assert short["layer"][0]["encoding"]["x"]["field"] == "at"
    assert long["layer"][0]["encoding"]["y"]["field"] == "at"


def test_names_are_values_and_harmless() -> None:
    hostile = "{{datum}}'\"\x1b[2J</script>"
    found = replace(point(hostile, "tps", hostile, 1.0), series=hostile)
    for points in ([found], [found, point("b", "tps", "x", 2.0)]):
        figure = Figure(name="a", slug="a", title="", caption="", spec=panels(points, place=hostile), heads=(), rows=())
        assert "\x1b" not in str(figure.spec) + vega.svg(figure)
        assert vega.png(figure).startswith(b"\x89PNG")
    _, rows = table([found], place="")
    assert "\x1b" not in str(rows)


def test_the_table_has_the_numbers_with_units_intervals_and_repeats() -> None:
    heads, rows = table(
        [point("mean", "avg_us", "1", 1_500.0, lower=1_400.0, upper=1_600.0), point("count", "nopm", "1", 7.0)],
        place="nodes",
    )
    assert heads == ("nodes", "metric", "mean", "95 % CI", "repeats")
    assert rows == (("1", "mean", "1.50 ms", "1.40 ms … 1.60 ms", "3"), ("1", "count", "7", "-", "3"))


def test_the_caption_of_a_chart_names_the_rates_that_its_ladders_were_offered() -> None:
    """The label of a series may say "share of the rate"; the caption has the rate."""
    found = results_of("hlr-cache-embedded")
    assert "Offered" not in charts_of(found)[0].caption
    stages = dict(found.stages)
    for name in ("uncached", "cached"):
        iterations = tuple(replace(item, rate=2_501.0) for item in stages[name].iterations)
        stages[name] = replace(stages[name], iterations=iterations)
    unlike, *_ = charts_of(replace(found, stages=stages))
    assert " Offered: uncached 2,501/s, cached 2,501/s." in unlike.caption


# ---- cases -------------------------------------------------------------------------------------------------------


def test_in_a_matrix_the_first_axis_is_the_series_and_the_other_the_axis() -> None:
    (group,) = cases(results_of("storage-forms-embedded"))
    assert (group.of, group.place) == ("solve", "degree")
    assert [(case.series, case.at) for case in group.found] == [
        ("plain", "0"), ("pglz", "0"), ("plain", "2"), ("pglz", "2"),
    ]  # fmt: skip


def test_ladders_of_one_rung_are_the_places_and_ladders_of_many_the_series() -> None:
    (nodes,) = cases(one_rung_a_node())
    assert [(case.series, case.at) for case in nodes.found] == [
        ("", "one_node, 100 threads"), ("", "two_nodes, 200 threads"), ("", "four_nodes, 400 threads"),
    ]  # fmt: skip
    (ladders,) = cases(results_of("hlr-cache-embedded"))
    assert ladders.place == "threads"
    assert [(case.series, case.at) for case in ladders.found] == [
        ("baseline", "1"), ("baseline", "4"), ("uncached", "4"), ("cached", "4"), ("baseline", "8"),
    ]  # fmt: skip


# ---- peak CPU ----------------------------------------------------------------------------------------------------


def test_peak_cpu_has_a_panel_a_machine_with_the_mean_as_a_tick() -> None:
    results = results_of("storage-forms-embedded")
    (figure,) = peak_cpu(results)
    hosts = {"client1", "db1"}
    assert {chart["title"]["text"] for chart in charts(figure)} == hosts
    first = next(charts(figure))
    rung = results.stages["solve__plain__degree_0"].rungs[0]
    cpu = rung.tree["hosts"][first["title"]["text"]]["cpu"]
    value = first["data"]["values"][0]
    assert (value["value"], value["tick"]) == (cpu["peak"]["busy_fraction"]["mean"], cpu["busy_fraction"]["mean"])
    assert marks(first)[-1] == "tick"
    assert len(figure.rows) == 4 * len(hosts)
    assert figure.heads[-2:] == ("mean busy", "repeats")


# ---- latency and orders ------------------------------------------------------------------------------------------


def test_each_transaction_is_a_line_over_the_threads_with_its_intervals() -> None:
    results = results_of("hlr-cache-lab")
    (figure,) = latency_by_threads(results)
    one, _ = charts(figure)
    assert figure.title == "Latency by threads: baseline on instance1 + instance2"
    assert [chart["title"]["text"] for chart in charts(figure)] == [
        "baseline on instance1 + instance2, one", "baseline on instance1 + instance2, two",
    ]  # fmt: skip
    assert len(figure.rows) == 2 * 7 * 7
    assert marks(one) == ["rule", "tick", "tick", "line", "point"]
    places = one["layer"][1]["encoding"]["x"]["scale"]["domain"]
    assert places == ["2", "4", "8", "16", "32", "48", "64"]
    load = results.stages["baseline"].rungs[-1].tree["loads"]["one"]
    tree = load["transactions"]["GetAccessData"]["response"]["avg_us"]
    found = {(series, at): value for series, at, value in shown(one)}
    assert found["GetAccessData", "64"] == pytest.approx(tree["mean"] / 1e3, abs=1e-3)


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
    assert {value["ladder"] for value in values} == {
        "baseline on back, 32 threads", "cached on cache, 4 threads",
    }  # fmt: skip
    assert all(value["lower"] < value["ms"] < value["upper"] for value in values)
    assert not list(latency_at_peak(results_of("tprocc-embedded")))


def test_orders_of_one_two_and_four_nodes_are_one_figure() -> None:
    results = one_rung_a_node()
    (figure,) = nopm_art(results)
    found = {chart["title"]["text"]: shown(chart) for chart in charts(figure)}
    assert list(found) == ["NOPM", "TPM", "ART"]
    assert [at for _, at, _ in found["ART"]] == [
        "one_node, 100 threads", "two_nodes, 200 threads", "four_nodes, 400 threads",
    ]  # fmt: skip
    assert found["NOPM"][2][2] == round(results.stages["four_nodes"].rungs[0].tree["nopm"]["mean"], 3)
    (users,) = nopm_art(results_of("tprocc-embedded"))
    assert next(charts(users))["layer"][0]["encoding"]["x"]["title"] == "users"


# ---- charts that a plan declares ---------------------------------------------------------------------------------


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


def test_a_star_stands_for_every_transaction_and_a_ladder_for_its_rungs() -> None:
    results = results_of("hlr-cache-lab")
    relative, unlike, cpu = charts_of(results)
    labels = ["instance 1, 32 threads", "instance 2, 32 threads", "cache, 4 threads"]
    assert [(series, at) for series, at, _ in shown(unlike.spec)][:8:7] == [
        (labels[0], "GetBasicSubscriberData"), (labels[1], "GetBasicSubscriberData"),
    ]  # fmt: skip
    assert len(unlike.rows) == 3 * 7
    panels_of = [chart["title"]["text"] for chart in charts(relative)]
    assert panels_of == ["instance 1", "instance 2"]
    assert [chart["title"]["text"] for chart in charts(cpu)][2:] == ["user", "system", "waiting for I/O", "idle"]


def test_a_number_divides_all_numbers_of_a_chart() -> None:
    results = results_of("hlr-cache-lab")
    relative, _, _ = charts_of(results)
    first = results.stages["baseline"].rungs[0].tree["loads"]["one"]["transactions"]
    base = first["InsertCallForwarding"]["response"]["avg_us"]["mean"]
    read = first["GetAccessData"]["response"]["avg_us"]["mean"]
    found = {series: value for series, at, value in shown(next(charts(relative))) if at == "2"}
    assert found["InsertCallForwarding"] == 1.0
    assert found["GetAccessData"] == pytest.approx(read / base, rel=0.01) != 1.0
    assert (
        "relative to baseline.at(2).loads.one.transactions.InsertCallForwarding.response.avg_us = 1" in relative.caption
    )


def test_a_matrix_has_its_first_axis_as_series(tmp_path: Path) -> None:
    text = (PLANS / "storage-forms-embedded.yaml").read_text().partition("\nreport:")[0]
    chart = "{{id: {0}, of: {{all: '{1}'}}, metrics: {{solve: solve_s}}, relative_to: {2}}}"
    entries = ["{id: all, of: {all: solve}, metrics: {solve: solve_s}}"]
    entries.append(chart.format("plain", 'solve.mode("plain")', "'solve.mode(\"plain\").degree(0).at(1)'"))
    shutil.copytree(PLANS / "fragments", tmp_path / "fragments")
    (tmp_path / "matrix.yaml").write_text(f"{text}\nreport: {{charts: [{', '.join(entries)}]}}\n")
    every, plain = charts_of(synthetic_results(compile_plan(tmp_path / "matrix.yaml")))
    assert [(series, at) for series, at, _ in shown(every.spec)] == [
        ("plain", "0"), ("pglz", "0"), ("plain", "2"), ("pglz", "2"),
    ]  # fmt: skip
    assert every.spec["layer"][0]["encoding"]["x"]["title"] == "degree"
    assert [(series, at) for series, at, _ in shown(plain.spec)] == [("", "0"), ("", "2")]


def test_numbers_that_were_not_measured_are_left_out_and_counted() -> None:
    results = results_of("tprocc-lab")
    kept = {name: stage for name, stage in results.stages.items() if name != "four_nodes"}
    found, missing = chart_figures.charts(replace(results, stages=kept))
    assert [row[0] for row in found[0].rows] == ["1", "2"] * 3
    assert "3 of 9 numbers were not measured" in found[0].caption
    assert not missing
    found, missing = chart_figures.charts(replace(results, stages={}))
    assert not found
    assert missing == dict.fromkeys(["nodes", "scaling"], "none of its results has a number")


def test_the_terminal_and_markdown_have_the_numbers_of_charts() -> None:
    results = results_of("tprocc-lab")
    text = markdown.render(run_document(results))
    assert "New orders, transactions and response time by nodes" in text
    row = charts_of(results)[0].rows[0]
    assert f"| {row[0]} | {row[1]} | {row[2]} |" in text


# ---- numbers of stages -------------------------------------------------------------------------------------------


def test_a_stage_by_itself_shows_its_repeats_and_their_mean() -> None:
    results = results_of("calibrate-io-lab")
    (figure,) = stage_values(replace(results, stages={"one": results.stages["one"]}))
    names = [chart["title"]["text"] for chart in charts(figure)]
    assert names == ["max_iops", "max_mb_per_s", "latency_ms"]
    found = [at for _, at, _ in shown(next(charts(figure)))]
    assert found == ["1", "2", "3", "4", "5", "mean"]
    first = next(charts(figure))["data"]["values"]
    assert first[1]["value"] == number("one", 0, 2, "max_iops", lambda *_: 1.0)
    assert first[5]["lower"] < first[5]["value"] < first[5]["upper"]


def test_stages_with_the_same_metrics_share_a_figure() -> None:
    results = results_of("calibrate-io-lab")
    (figure,) = stage_values(results)
    iops = next(charts(figure))
    assert [at for _, at, _ in shown(iops)] == ["one", "two", "four"]
    means = [fmean(each.values["max_iops"] for each in results.stages[name].values) for name in ("one", "four")]
    values = [value for *_, value in shown(iops)]
    assert values[2] / values[0] == pytest.approx(means[1] / means[0], rel=1e-3)
    assert figure.title == "Measured values: one, two, four"


def test_the_cells_of_a_large_matrix_share_a_shade() -> None:
    for plan, stages in (
        ("in-memory-lab", {"solve", "together"}),
        ("tprocc-lab", {"one_node", "two_nodes", "four_nodes"}),
    ):
        results = results_of(plan)
        (figure,) = host_cpu(results, synthetic_timeline(results))
        assert {span["stage"] for span in figure.spec["layer"][0]["data"]["values"]} == stages


def test_sizes_share_a_panel() -> None:
    results = results_of("values-embedded")
    (figure,) = stage_values(replace(results, stages={"build": results.stages["build"]}))
    assert [at for _, at, _ in shown(figure.spec)] == ["subscriber_bytes", "access_info_bytes", "index_bytes"]
    assert figure.spec["layer"][0]["encoding"]["y"]["title"] == "MB"


def test_times_of_the_steps_of_a_matrix_have_its_cells_as_places(tmp_path: Path) -> None:
    step = "      before: [{sql: {system: plain, statements: [ANALYZE], repeatable: true}}]\n"
    text = (
        (PLANS / "storage-forms-embedded.yaml").read_text().replace("      threads: 1\n", f"      threads: 1\n{step}")
    )
    shutil.copytree(PLANS / "fragments", tmp_path / "fragments")
    (tmp_path / "steps.yaml").write_text(text)
    (figure,) = stage_times(synthetic_results(compile_plan(tmp_path / "steps.yaml")))
    found = {chart["title"]["text"]: [at for _, at, _ in shown(chart)] for chart in charts(figure)}
    assert found == {
        "stages": ["uncompressed", "compressed"],
        "solve, before 1": [f"mode {mode}, degree {degree}" for mode in ("plain", "pglz") for degree in (0, 2)],
    }


def test_a_stage_that_only_waits_has_no_time_of_statements() -> None:
    (figure,) = stage_times(results_of("calibrate-io-lab"))
    assert [row[0] for row in figure.rows] == ["one", "two", "four"]


@pytest.mark.parametrize(
    ("plan", "draw"),
    [("storage-forms-embedded", peak_cpu), ("calibrate-io-lab", stage_values), ("values-embedded", stage_times)],
)
def test_the_figures_can_be_drawn(plan: str, draw: Any) -> None:
    for figure in draw(results_of(plan)):
        assert {len(row) for row in figure.rows} == {len(figure.heads)}
        assert vega.svg(figure).count("<path") > len(figure.rows)


def test_loads_that_share_transactions_stand_side_by_side_and_others_have_the_name_of_their_load() -> None:
    shared = results_of("hlr-cache-lab")
    figure = next(one for one in latency_by_transaction(shared) if one.slug.endswith("baseline"))
    values = figure.spec["data"]["values"]
    assert sorted({value["ladder"] for value in values}) == ["one", "two"]
    assert len({value["transaction"] for value in values}) == 7 and len(values) == 14
    unlike = results_of("htap-embedded")
    values = next(iter(latency_by_transaction(unlike))).spec["data"]["values"]
    assert {"orders.NewOrder", "queries.low_stock"} <= {value["transaction"] for value in values}

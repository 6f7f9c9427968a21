"""Time to solve and sizes: from the means of queries to rows, figures and tables, each against the same arithmetic by
hand.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from compiled_plans import compiled
from records import iteration, run_started, whole_ladder
from synthetic_run import results_of, synthetic_results

from proveout.coordinator.comparison import compare
from proveout.coordinator.measure.captures import Recording, sizes_metrics
from proveout.coordinator.measure.summarise import set_metrics
from proveout.coordinator.report import csv_export as rows
from proveout.coordinator.report import json_documents as report
from proveout.coordinator.report import markdown
from proveout.coordinator.report.figures.stage_figures import time_to_solve
from proveout.coordinator.report.run_document import run_document
from proveout.coordinator.report.summary import ComparisonRow, LaddersCompared
from proveout.coordinator.report.tables import size_rows, solve_rows
from proveout.coordinator.results.results import RunResults, load_results
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.plan import Plan
from proveout.proto.events import Event, IterationFinished, SizeLine
from proveout.proto.wire.histogram import bin_ns
from proveout.proto.wire.results import CaptureSample, Reading, TransactionCounts, TransactionLoad

QUERIES = ("RevenueByStore", "FamiliesOfAMonth", "LettersByProduct", "StarsByProduct", "DearestDays")
MB = 1_000_000


@pytest.fixture(scope="module")
def plan() -> Plan:
    return compiled("storage-forms-embedded")


def loads(seconds: Mapping[str, float]) -> list[TransactionLoad]:
    return [
        TransactionLoad(counts=TransactionCounts(name=name), response=bin_ns([round(each * 1e9)] * 3 if each else []))
        for name, each in seconds.items()
    ]


def lines(mode: str, review_mb: float, sale_mb: float) -> tuple[SizeLine, ...]:
    parts = (
        ("review", "table", review_mb),
        ("review", "toast", 1.0),
        ("sale", "table", sale_mb),
        ("sale", "index", 2.0),
    )
    return tuple(
        SizeLine(system=mode, table=table, part=part, name=table, start_bytes=0.0, end_bytes=size * MB)
        for table, part, size in parts
    )


def run(plan: Plan, solve_s: Mapping[tuple[str, int], float]) -> RunResults:
    """Each cell with three repeats around a time to solve, and the sizes of its mode."""
    sizes = {"plain": lines("plain", 25.0, 6.0), "pglz": lines("pglz", 2.0, 6.0)}
    history: list[Event] = [run_started(plan)]
    for (mode, degree), mean in solve_s.items():
        stage = f"solve__{mode}__degree_{degree}"
        repeats = enumerate((0.99, 1.0, 1.01), 1)
        history += whole_ladder(
            stage, [solved(stage, repeat, mean * factor, sizes[mode]) for repeat, factor in repeats]
        )
    return load_results(history)


def solved(
    stage: str, repeat: int, solve_s: float, sizes: tuple[SizeLine, ...] = (), **more: float
) -> IterationFinished:
    metrics = {"tps": 5.0 / solve_s, "solve_s": solve_s, "geomean_s": solve_s / 10.0, **more}
    metrics |= {"response": {"avg_us": solve_s * 2e5}}
    return iteration(stage, 1, repeat, metrics, sizes=sizes, started_unix_s=float(repeat))


TIMES = {("plain", 0): 1.0, ("plain", 2): 0.5, ("pglz", 0): 1.2, ("pglz", 2): 0.25}


def test_the_time_to_solve_is_the_sum_of_the_means_and_the_geometric_mean_weighs_all_alike(plan: Plan) -> None:
    seconds = dict(zip(QUERIES, (0.1, 0.2, 0.4, 0.8, 1.6), strict=True))
    found = set_metrics(plan.workload("queries"), loads(seconds))
    assert found.pop("geomean_rows_s") is None  # no query is known to have returned rows
    assert found == pytest.approx({"solve_s": 3.1, "geomean_s": math.prod(seconds.values()) ** 0.2})


def test_a_query_without_a_time_leaves_the_set_without_one(plan: Plan) -> None:
    seconds = dict.fromkeys(QUERIES, 0.1)
    assert set_metrics(plan.workload("queries"), loads(seconds | {"DearestDays": 0.0})) == {}
    assert set_metrics(plan.workload("queries"), loads(seconds)[:-1]) == {}


def test_sizes_are_taken_at_both_ends_of_the_capture_and_by_table_in_lower_case() -> None:
    def sample(at: int, sizes: Mapping[str, float]) -> CaptureSample:
        readings = tuple(Reading(metric="size.bytes", label=label, value=size) for label, size in sizes.items())
        return CaptureSample(capture="sizes", at_ns=at, readings=readings)

    first = sample(1, {"Sale\ttable\tSale": 100.0, "gone\ttable\tgone": 7.0})
    between = sample(2, {"Sale\ttable\tSale": 900.0})
    last = sample(3, {"Sale\ttable\tSale": 160.0, "Sale\tindex\tby_day": 40.0})
    tree, found = sizes_metrics(Recording([last, first, between]), "db")
    assert tree["tables"]["sale"] == {
        "total_bytes": 200.0, "table_bytes": 160.0, "index_bytes": 40.0, "start_bytes": 100.0, "grown_bytes": 100.0,
    }  # fmt: skip
    assert (tree["total_bytes"], tree["start_bytes"], tree["grown_bytes"]) == (200.0, 107.0, 93.0)
    assert [(line.table, line.part, line.name) for line in found] == [
        ("Sale", "table", "Sale"), ("Sale", "index", "by_day"), ("gone", "table", "gone"),
    ]  # fmt: skip


def test_each_mode_is_held_against_the_first_with_the_same_degree(plan: Plan) -> None:
    (rows,) = solve_rows(run(plan, TIMES)).values()
    assert [(row.at, row.mode) for row in rows] == [
        ("degree 0", "plain"), ("degree 0", "pglz"), ("degree 2", "plain"), ("degree 2", "pglz"),
    ]  # fmt: skip
    assert [row.relative["mean"] for row in rows] == pytest.approx([1.0, 1 / 1.2, 1.0, 2.0]), "half the time is 2"
    assert rows[1].relative["method"] == "paired", "the cells took turns"
    bounds = [rows[1].relative[name] for name in ("lower", "upper")]
    assert bounds == pytest.approx([1 / 1.2, 1 / 1.2]), "in each repeat the one takes 1.2 times as long as the other"
    assert "lower" not in rows[0].relative


def test_compression_is_the_first_modes_size_over_the_others(plan: Plan) -> None:
    (rows,) = size_rows(run(plan, TIMES)).values()
    assert [(row.table, row.mode, row.total_bytes / MB) for row in rows] == [
        ("review", "plain", 26.0), ("review", "pglz", 3.0), ("sale", "plain", 8.0), ("sale", "pglz", 8.0),
        ("", "plain", 34.0), ("", "pglz", 11.0),
    ]  # fmt: skip
    assert [row.factor for row in rows] == pytest.approx([1.0, 26 / 3, 1.0, 1.0, 1.0, 34 / 11])
    assert rows[-1].index_bytes == 2.0 * MB
    assert [row.table_factor for row in rows[-2:]] == pytest.approx([1.0, 32 / 9]), "of the tables without indexes"


def test_markdown_and_json_have_the_same_numbers(plan: Plan) -> None:
    found = run(plan, TIMES)
    text = markdown.render(run_document(found))
    assert "| pglz | degree 2 | 0.2500 |" in text
    assert "| review | pglz | 3 | 8.667 × | 0 | 3 | 8.667 × |" in text
    document = json.loads(report.result_to_json(found))
    assert document["stages"][0]["iterations"][0]["sizes"][0]["end_bytes"] == 25.0 * MB


def test_csv_has_the_times_in_the_row_of_all_and_sizes_have_a_file_of_their_own(plan: Plan) -> None:
    found = run(plan, TIMES)
    read = list(csv.DictReader(io.StringIO(rows.to_csv(found))))
    assert [(row["matrix.mode"], row["matrix.degree"], row["solve_s"]) for row in read if row["repeat"] == "2"] == [
        (mode, str(degree), str(time)) for (mode, degree), time in TIMES.items()
    ]
    assert rows.to_table(found).column("geomean_s").to_pylist() == [float(row["geomean_s"]) for row in read]
    sizes = list(csv.DictReader(io.StringIO(rows.to_csv(found, "sizes"))))
    assert len(sizes) == 4 * 3 * 4
    last = sizes[-1]
    about = (last["matrix.mode"], last["table"], last["part"], float(last["end_bytes"]))
    assert about == ("pglz", "sale", "index", 2.0 * MB)


def test_more_time_to_solve_is_worse_in_a_comparison_of_runs(plan: Plan) -> None:
    other = run(plan, TIMES | {("pglz", 2): 0.5})
    compared = compare(run(plan, TIMES), replace(other, run=other.run and replace(other.run, run_id="s")))
    stage = next(stage for stage in compared.stages if stage.id == "solve__pglz__degree_2")
    directions = {row.path: row.direction for row in stage.rungs[0].rows}
    assert directions["solve_s",] == "worse"
    assert directions["tps",] == "worse"


def test_stages_that_took_the_same_sizes_are_compared(tmp_path: Path) -> None:
    stage = """
  - sql: {id: %s, system: db, query: SELECT 1 AS a, metrics: {wide_bytes: {column: a}, thin_bytes: {column: a}}}"""
    path = tmp_path / "plan.yaml"
    path.write_text(
        "proveout: 1\nname: p\ntopology: {hosts: {h: {roles: [server], address: local}}, systems: "
        "{db: {engine: postgres, host: h, provision: embedded}}}\nstages:" + stage % "plain" + stage % "packed",
        encoding="utf-8",
    )
    size = {("plain", "wide_bytes"): 8.0, ("plain", "thin_bytes"): 2.0, ("packed", "wide_bytes"): 2.0}
    found = synthetic_results(compile_plan(path), lambda stage, _rung, path: size.get((stage, path), 1.0))
    (rows,) = size_rows(found).values()
    assert [(row.table, row.mode) for row in rows] == [
        (table, mode) for table in ("wide", "thin", "") for mode in ("plain", "packed")
    ]
    total = {row.mode: row.total_bytes for row in rows if not row.table}
    assert total["plain"] == pytest.approx(sum(row.total_bytes for row in rows if row.mode == "plain" and row.table))
    assert rows[-1].factor == pytest.approx(total["plain"] / total["packed"])


def test_a_set_of_queries_that_is_one_of_several_loads_has_rows_and_a_figure() -> None:
    found = results_of("htap-embedded")
    (rows,) = solve_rows(found).values()
    assert [(row.mode, row.at) for row in rows] == [("together", "queries"), ("apart", "queries")]
    assert rows[1].relative["lower"] < rows[1].relative["mean"] < rows[1].relative["upper"]
    assert [(row[0], row[1]) for figure in time_to_solve(found) for row in figure.rows] == [
        ("together", "queries"), ("apart", "queries"),
    ]  # fmt: skip


@pytest.mark.parametrize(("transactions", "shown"), [(8, 8), (9, 6), (22, 6)])
def test_a_comparison_of_many_transactions_shows_the_lowest_and_the_highest_factors(
    transactions: int, shown: int
) -> None:
    numbers = {f"Q{number}": 1.0 + (number * 7 % transactions) / 100.0 for number in range(transactions)}
    rows = [ComparisonRow(label="throughput", metric="tps", base={}, other={}, factor={"mean": 9.0})]
    rows += [
        ComparisonRow(label=name, metric="avg_us", base={}, other={}, factor={"mean": mean}, transaction=True)
        for name, mean in numbers.items()
    ]
    pair = LaddersCompared(base="a", other="b", threads=1, rows=tuple(rows))
    assert pair.shortened[0] is rows[0] and len(pair.shortened) == 1 + shown
    kept = [row.label for row in pair.shortened[1:]]
    ranked = sorted(numbers, key=lambda name: numbers[name])
    assert set(kept) == set(ranked if shown == transactions else [*ranked[:3], *ranked[-3:]])
    assert kept == [name for name in numbers if name in kept], "in the order of the plan"

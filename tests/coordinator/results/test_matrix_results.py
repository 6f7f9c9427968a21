"""Results of a matrix: labels in rows, JSON and figures, comparisons between neighbours only, and conditions over two
runs.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from records import run_started
from verdict_histories import ladder

from proveout.coordinator import comparison
from proveout.coordinator.comparison import compare
from proveout.coordinator.report import csv_export, json_documents
from proveout.coordinator.report.summary import ladder_comparisons
from proveout.coordinator.results.results import RunResults, load_results
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.expr.syntax import ExpressionFault
from proveout.dsl.plan.plan import Plan

ROOT = Path(__file__).parents[3]
CELLS = {
    "solve__plain__users_1": 100.0,
    "solve__plain__users_2": 180.0,
    "solve__lz4__users_1": 90.0,
    "solve__lz4__users_2": 400.0,
}


@pytest.fixture(scope="module")
def plan() -> Plan:
    return compile_plan(ROOT / "tests" / "golden" / "good" / "matrix.yaml")


def run(plan: Plan, cells: Mapping[str, float] = CELLS) -> RunResults:
    stages = [event for name, tps in cells.items() for event in ladder(name, {8: [tps, tps * 1.01, tps * 0.99]})]
    return load_results([run_started(plan), *stages])


def test_rows_have_a_column_for_each_axis(plan: Plan) -> None:
    read = list(csv.DictReader(io.StringIO(csv_export.to_csv(run(plan)))))
    assert {(row["matrix"], row["matrix.mode"], row["matrix.users"]) for row in read} == {
        ("solve", mode, users) for mode in ("plain", "lz4") for users in ("1", "2")
    }
    assert csv_export.to_table(run(plan)).column("matrix.mode").to_pylist() == [row["matrix.mode"] for row in read]


def test_json_has_the_labels_with_their_types(plan: Plan) -> None:
    document = json.loads(json_documents.result_to_json(run(plan)))
    jsonschema.validate(document, json_documents.result_schema())
    assert [stage["cell"] for stage in document["stages"]][-1] == {"of": "solve", "labels": {"mode": "lz4", "users": 2}}


def test_only_cells_that_differ_in_one_label_are_compared(plan: Plan) -> None:
    assert [(pair.base, pair.other) for pair in ladder_comparisons(run(plan))] == [
        ("solve__plain__users_1", "solve__lz4__users_1"),
        ("solve__plain__users_2", "solve__lz4__users_2"),
    ]


def test_a_condition_over_two_runs_names_a_cell_by_its_labels(plan: Plan) -> None:
    slower = run(plan, CELLS | {"solve__lz4__users_2": 200.0})
    compared = compare(run(plan), replace(slower, run=slower.run and replace(slower.run, run_id="s")))
    condition = comparison.check('solve.mode("lz4").users(2).at(8).tps.change.upper < -5%', plan)
    assert condition.text == "solve__lz4__users_2.at(8).tps.change.upper < -5%"
    assert comparison.judge(condition, compared).holds
    assert not comparison.judge(
        comparison.check('solve.mode("lz4").users(1).at(8).tps.change.upper < -5%', plan), compared
    ).holds
    with pytest.raises(ExpressionFault, match="has no value") as caught:
        comparison.check('solve.mode("lz").users(2).at(8).tps.change.upper < -5%', plan)
    assert "lz4" in caught.value.way_out

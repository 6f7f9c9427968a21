"""Growth of the data between compared measurements: a finding above the limit, and no factor of a matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from records import iteration, run_started, whole_ladder

from proveout.coordinator.report import markdown
from proveout.coordinator.report.run_document import run_document
from proveout.coordinator.report.tables import size_rows
from proveout.coordinator.results.published import growth_notes
from proveout.coordinator.results.results import RunResults, load_results
from proveout.dsl.compile.compiler import compile_plan
from proveout.proto.events import Event, IterationFinished, SizeLine

PLAN = """
proveout: 1
name: growth
topology:
  hosts: {h: {roles: [client], address: local}}
  systems: {db: {engine: sqlite, host: h, provision: embedded}}
workloads: {w: {kind: tptbm, key: 4}}
captures: {sizes: {kind: sizes, system: db}}
stages:
  - populate: {id: load, workload: w, into: db}
  - ladder:
      id: m
      workload: w
      target: db
      threads: [1, 2]
      measure: 5s
      repeat: 2
      capture: sizes
      session: {cache_size: "${matrix.cache}"}
      matrix: {cache: [100, 200]}STEPS
"""
MIB = 2**20


def item(stage: str, rung: int, repeat: int, start: float, end: float, at: float) -> IterationFinished:
    line = SizeLine(system="db", table="t", part="table", name="t", start_bytes=start * MIB, end_bytes=end * MIB)
    return iteration(stage, rung, repeat, {"tps": 100.0}, sizes=(line,), started_unix_s=at)


def run(folder: Path, sizes: Mapping[str, Sequence[tuple[int, int, float, float]]], steps: str = "") -> RunResults:
    """A run with (rung, repeat, MiB at the start, MiB at the end) of the iterations of each cell."""
    path = folder / "plan.yaml"
    path.write_text(PLAN.replace("STEPS", steps))
    history: list[Event] = [run_started(compile_plan(path, overrides={}))]
    for stage, rows in sizes.items():
        history += whole_ladder(stage, [item(stage, *row, at=row[2]) for row in rows])
    return load_results(history)


GROWN = {
    "m__cache_100": [(1, 1, 10.0, 10.5), (2, 1, 10.5, 11.0)],
    "m__cache_200": [(1, 1, 14.0, 14.5), (2, 1, 14.5, 15.0)],
}


def test_growth_between_cells_is_a_finding_and_not_a_factor_of_the_matrix(tmp_path: Path) -> None:
    results = run(tmp_path, GROWN)
    (note,) = growth_notes(results)
    assert note.startswith(
        "the cells of m: the tables and indexes of db were 10.3 MiB at the start of cache 100 and 14.3 MiB at the start "
        "of cache 200, 39 % more (limit 10 %)"
    )
    assert "the tables and indexes of db" in markdown.render(run_document(results))
    (rows,) = size_rows(results).values()
    assert {(row.mode, row.total_bytes) for row in rows} == {("db", 15.0 * MIB)}  # the latest, and one mode only


def test_cells_whose_steps_load_their_data_are_modes(tmp_path: Path) -> None:
    steps = "\n      before: [populate: {workload: w, into: db}]"
    results = run(tmp_path, GROWN, steps)
    assert growth_notes(results) == []
    (rows,) = size_rows(results).values()
    assert {row.mode for row in rows} == {"100", "200"}


def test_growth_from_rung_to_rung_is_a_finding_and_turns_balance_it_between_cells(tmp_path: Path) -> None:
    balanced = {
        "m__cache_100": [(1, 1, 10.0, 11.0), (2, 1, 12.0, 13.0), (1, 2, 16.0, 17.0), (2, 2, 18.0, 19.0)],
        "m__cache_200": [(1, 1, 13.0, 14.0), (2, 1, 14.0, 15.0), (1, 2, 13.0, 14.0), (2, 2, 14.0, 15.0)],
    }
    (note,) = growth_notes(run(tmp_path, balanced))
    assert note.startswith("m__cache_100: ")
    assert "13 MiB at the start of 1 thread and 15 MiB at the start of 2 threads, 15.4 % more" in note


@pytest.mark.parametrize("grown", [{}, {"m__cache_100": [(1, 1, 10.0, 20.0)]}, {"m__cache_100": GROWN["m__cache_100"]}])
def test_data_that_hardly_grew_has_no_note(
    tmp_path: Path, grown: Mapping[str, Sequence[tuple[int, int, float, float]]]
) -> None:
    assert growth_notes(run(tmp_path, grown)) == []

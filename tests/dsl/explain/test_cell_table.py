"""`explain` of a matrix: its sum, one cell in full, and of the others what is different apart from their labels. (Those
of shipped plans are in tests/golden/explain.)"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from matrix_plans import compiled, ladder

from proveout.core.units import format_duration
from proveout.dsl.explain.cell_table import alike
from proveout.dsl.explain.text import render
from proveout.dsl.explain.timetable import CellLine, timetable

TWO = CellLine(of="m", id="m__query_low__n_2", labels=(("mode", "query low"), ("n", "2")))
FIVE = CellLine(of="m", id="m__disk__n_5", labels=(("mode", "disk"), ("n", "5")))


@pytest.mark.parametrize(
    ("line", "other", "same"),
    [
        ("load on db, degree = 2", "load on db, degree = 5", True),
        ("runs before each turn of m__query_low__n_2, 2 times", "runs before each turn of m__disk__n_5, 2 times", True),
        ("CASE 'query low' WHEN 'disk'", "CASE 'disk' WHEN 'disk'", True),
        ("rows of w__query_low", "rows of w__disk", True),
        ("2 statements, 2 times", "2 statements, 3 times", False),
        ("20 threads", "50 threads", False),
        ("about 1,000 rows", "about 2,000 rows", False),
    ],
)
def test_a_line_is_the_same_when_only_the_labels_differ(line: str, other: str, same: bool) -> None:
    assert alike(line, other, TWO, FIVE) is same


def test_the_sum_of_a_matrix_is_that_of_its_cells_and_each_cell_has_its_own(tmp_path: Path) -> None:
    """The steps of the cell in memory are not run on disk; a cell with a longer step takes longer."""
    steps = [
        {"sql": {"system": "db", "statements": ["ANALYZE"], "when": '"${matrix.mode}" != "disk"'}},
        {"pause": {"duration": "${matrix.wait}"}},
    ]
    axes = {"mode": ["disk", "memory", "memory 2"], "wait": ["4s", "5s", "9s"]}
    matrix = {"axes": axes, "combine": "zip"}
    plan = compiled(tmp_path, ladder("m", matrix=matrix, before=steps, order="shuffled", seed=1, threads=[1, 2]))
    table = timetable(plan)
    text = render(table)
    assert f"  2-{len(table.stages)}. m (matrix): 3 cells\n" in text
    seconds: dict[str, float] = {}
    for stage in table.stages[1:]:
        assert stage.cell is not None
        seconds[stage.cell.id] = seconds.get(stage.cell.id, 0.0) + stage.seconds
    assert f"       about {format_duration(sum(seconds.values()))}, 18 iterations\n" in text
    shown = text[text.index("one cell in full, mode memory, wait 5s:") :]
    rows = dict(re.findall(r"^ +\d+-\d+ +(m__\w+) .* (\w+(?: \w+)?) +6$", shown, re.MULTILINE))
    others = {cell: format_duration(length) for cell, length in seconds.items() if cell != "m__memory__wait_5s"}
    assert rows == others
    assert shown.count("without before_1") == 1
    assert text.count("drawn by seed 1") == 1, "the order is stated once, above"

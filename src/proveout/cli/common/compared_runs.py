"""Two runs side by side as plain data of the comparison screen.

Data flow: two run directories -> their results -> `coordinator.compare` -> `tui.home.services.Comparison`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from proveout.core.errors import ProveoutError
from proveout.tui.home import services as shown

if TYPE_CHECKING:
    from proveout.coordinator.compare.comparison import ComparedRuns, Row
    from proveout.coordinator.report.compare.main_numbers import MainNumber
    from proveout.coordinator.results.results import RunResults


def compared(reference: str, other: str, *, despite: bool) -> shown.Comparison:
    """Run `other` against run `reference`, directories. JournalFault, or ProveoutError when one has not begun."""
    from proveout.coordinator.compare import comparison as comparing
    from proveout.coordinator.compare.comparability import NotComparable, differences, refuse_a_copy, unlike
    from proveout.coordinator.report.compare.change_tables import heads, level_note
    from proveout.coordinator.report.compare.comparison_headline import sentence
    from proveout.coordinator.report.compare.main_numbers import main_numbers

    before, after = _results(Path(reference)), _results(Path(other))
    names = Path(reference).name, Path(other).name
    found_differences = differences(before, after, names=(comparing.REFERENCE, comparing.short_name(1)))
    differing = tuple(map(str, found_differences))
    try:
        refuse_a_copy(before, after)
    except NotComparable as fault:
        return shown.Comparison(reference=names[0], other=names[1], refused=fault.what)
    try:
        found = comparing.compare(before, after, despite=despite)
    except NotComparable:
        apart = unlike(before, after, found_differences)
        refused = f"The runs differ in their plan or environment{apart and f': {apart}'}."
        return shown.Comparison(reference=names[0], other=names[1], refused=refused, differences=differing)
    numbers = main_numbers(found)
    return shown.Comparison(
        reference=names[0],
        other=names[1],
        differences=differing,
        notes=found.notes,
        headline=sentence(found.names[1], numbers),
        level=level_note(found),
        ratios=tuple(_ratios(numbers)),
        heads=heads(found),
        parts=tuple(_parts(found)),
    )  # fmt: skip


def _results(directory: Path) -> RunResults:
    from proveout.coordinator.results.results import load_results
    from proveout.coordinator.storage.journal import read

    results = load_results(read(directory))
    if results.run is None:
        raise ProveoutError(f"{directory.name} has not started", where=str(directory), way_out="Name another run.")
    return results


def _ratios(numbers: Sequence[MainNumber]) -> Iterator[shown.Ratio]:
    """The main numbers that have a ratio."""
    from proveout.coordinator.report.compare.main_numbers import places
    from proveout.coordinator.report.compare.ratio_notation import interval_text, ratio_text

    named = places(numbers)
    for one in numbers:
        ratio = one.row.ratio
        if ratio.get("mean", 0.0) > 0.0 and one.row.direction != "offered":
            yield shown.Ratio(
                of=named[id(one)], what=one.what, ratio=ratio["mean"], lower=ratio.get("lower"),
                upper=ratio.get("upper"), text=ratio_text(ratio), interval=interval_text(ratio),
                tone=one.row.direction,
            )  # fmt: skip


def _parts(found: ComparedRuns) -> Iterator[shown.ComparedPart]:
    from proveout.coordinator.report.compare.change_tables import missing_rungs, rung_title, values_title

    for stage in found.stages:
        for rung in stage.rungs:
            yield shown.ComparedPart(head=rung_title(stage, rung), rows=tuple(_rows(rung.rows, found.names[1])))
        if stage.values:
            yield shown.ComparedPart(head=values_title(stage), rows=tuple(_rows(stage.values, found.names[1])))
        yield from (shown.ComparedPart(head=line, rows=()) for line in missing_rungs(stage))


def _rows(rows: Sequence[Row], other: str) -> Iterator[shown.ComparedRow]:
    from proveout.coordinator.report.compare.change_tables import cells

    for row in rows:
        yield shown.ComparedRow(cells=cells(row, other), tone=row.direction)

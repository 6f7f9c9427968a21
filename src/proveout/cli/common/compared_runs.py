"""Two runs side by side as plain data of the comparison screen.

Data flow: two run directories -> their results -> `coordinator.compare` -> `tui.home.services.Comparison`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from proveout.core.errors import ProveoutError
from proveout.tui.home import services as shown

if TYPE_CHECKING:
    from proveout.coordinator.compare.comparison import ComparedRuns, Row
    from proveout.coordinator.results.results import RunResults


def compared(reference: str, other: str, *, despite: bool) -> shown.Comparison:
    """Run `other` against run `reference`, directories. JournalFault, or ProveoutError when one has not begun."""
    from proveout.coordinator.compare import comparison as comparing
    from proveout.coordinator.compare.comparability import NotComparable, differences
    from proveout.coordinator.report.compare.comparison_document import heads
    from proveout.coordinator.report.summary.ratios import ratios, sentence

    before, after = _results(Path(reference)), _results(Path(other))
    names = Path(reference).name, Path(other).name
    differing = tuple(map(str, differences(before, after)))
    try:
        found = comparing.compare(before, after, despite=despite)
    except NotComparable:
        refused = "The runs differ in their plan or environment."
        return shown.Comparison(reference=names[0], other=names[1], refused=refused, differences=differing)
    rows = ratios(found)
    return shown.Comparison(
        reference=names[0],
        other=names[1],
        differences=differing,
        notes=found.notes,
        headline=sentence(rows),
        ratios=tuple(
            shown.Ratio(
                of=one.of, what=one.what, ratio=one.ratio, lower=one.lower, upper=one.upper, text=one.text,
                interval=one.interval, tone=one.direction,
            )
            for one in rows
        ),
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


def _parts(found: ComparedRuns) -> Iterator[shown.ComparedPart]:
    from proveout.coordinator.report.compare.comparison_document import missing_rungs, rung_title, values_title

    for stage in found.stages:
        for rung in stage.rungs:
            yield shown.ComparedPart(head=rung_title(stage, rung), rows=tuple(map(_row, rung.rows)))
        if stage.values:
            yield shown.ComparedPart(head=values_title(stage), rows=tuple(map(_row, stage.values)))
        yield from (shown.ComparedPart(head=line, rows=()) for line in missing_rungs(stage))


def _row(row: Row) -> shown.ComparedRow:
    from proveout.coordinator.report.compare.comparison_document import cells

    return shown.ComparedRow(cells=cells(row), tone=row.direction)

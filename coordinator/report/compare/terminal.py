"""Runs side by side on a terminal: what they differ in first, then the conditions, then a table per stage and rung.

Data flow: `ComparedRuns`, judged conditions -> rich renderables -> a console, at its width. Text from outside goes into `Text` after
`wording.safe`; colour is never the only sign.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TextIO

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from proveout.coordinator.compare.comparability import SHOWN_MAX
from proveout.coordinator.compare.comparison import ComparedRuns, RungPair
from proveout.coordinator.compare.fail_if import Judgement
from proveout.coordinator.report.compare.document import HELD, SAID, bounds, change, label, value
from proveout.core.numbers import percent, rung_name, safe

_STYLES = {"better": "bold green", "worse": "bold red", "changed": "bold yellow", "none": "", "unknown": "dim"}
_HELD_STYLES = {"PASS": "bold red", "FAIL": "green", "INCONCLUSIVE": "bold yellow"}


def show(compared: Sequence[ComparedRuns], judged: Sequence[Judgement], stream: TextIO) -> None:
    """Print the comparison: as wide as the stream's terminal, 100 columns when it is none."""
    console = Console(file=stream, width=None if stream.isatty() else 100, markup=False, highlight=False, emoji=False)
    with console.capture() as captured:
        for one in compared:
            for part in _parts(one):
                console.print(part)
        for judgement in judged:
            for part in _judged(judgement):
                console.print(part)
    # rich fills lines up to their block's width; nobody who copies from a log wants that.
    stream.write(re.sub(r"[ \t]+$", "", captured.get(), flags=re.MULTILINE))


def _parts(one: ComparedRuns) -> Iterator[RenderableType]:
    yield Text(safe(f"{one.other} against {one.reference}"), style="bold")
    yield from _differing(one)
    for note in one.notes:
        yield Text(safe(f"note: {note}"), style="yellow", overflow="fold")
    for stage in one.stages:
        for rung in stage.rungs:
            yield Text()
            head = f"{stage.id}, {rung_name(stage.kind, rung.threads)}, {rung.repeats[0]} and {rung.repeats[1]} repeats"
            yield Text(safe(head), style="bold")
            yield _table(one, rung)
        for count, run in stage.missing:
            yield Text(
                safe(f"{stage.id} at {rung_name(stage.kind, count)}: no valid iteration in {run}"), style="yellow"
            )
    yield Text()


def _differing(one: ComparedRuns) -> Iterator[Text]:
    if not one.differences:
        yield Text("the same plan in the same environment")
    for found in one.differences[:SHOWN_MAX]:
        yield Text(safe(f"differs: {found}"), style="yellow", overflow="fold")
    if len(one.differences) > SHOWN_MAX:
        yield Text(f"differs: {len(one.differences) - SHOWN_MAX} things more", style="yellow")


def _table(one: ComparedRuns, rung: RungPair) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="")
    table.add_column("", overflow="fold")
    for head in ("reference", "this run", "change", f"{percent(one.confidence)} CI"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("")
    for row in rung.rows:
        table.add_row(
            Text(safe(label(row)), overflow="fold"),
            value(row, row.base),
            value(row, row.other),
            change(row),
            bounds(row),
            Text(SAID[row.direction], style=_STYLES[row.direction]),
        )
    return table


def _judged(one: Judgement) -> Iterator[Text]:
    yield Text.assemble((HELD[one.outcome], _HELD_STYLES[one.outcome]), safe(f"  fails if {one.text}"))
    for words in one.evidence:
        yield Text(f"    {safe(words)}", overflow="fold")

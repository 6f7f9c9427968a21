"""Several loads of the stage that runs, one row each: what each does now, beside what it is to do.

Data flow: `RunView` -> `rows` (pure) -> a `Rows` that is there only where the stage has several loads.
"""

from __future__ import annotations

from proveout.core.numbers import column, number, safe
from proveout.proto.events import LoadLine
from proveout.tui.live_numbers import live_numbers
from proveout.tui.run_view import RunView
from proveout.tui.stage_view import LoadView
from proveout.tui.widgets.rows import Column, Row, Rows

LOADS = (
    Column("load"),
    Column("on", rank=3),
    Column("threads", rank=4, right=True),
    Column("TPS", right=True),
    Column("of", rank=2, right=True),
    Column("p50", rank=2, right=True),
    Column("p95", rank=5, right=True),
    Column("p99", rank=1, right=True),
    Column("errors/s", rank=1, right=True),
)


def rows(view: RunView) -> list[Row]:
    """The loads of the iteration under way, with its newest second; [] where the stage has one."""
    going = view.iteration
    stage = None if going is None else view.stage(going.id.stage)
    if going is None or stage is None or not stage.loads or (len(stage.loads) < 2 and not view.shown):
        return []
    newest = view.seconds[-1].tick if view.seconds and view.seconds[-1].tick.id == going.id else None
    lines = {line.name: line for line in newest.loads} if newest is not None else {}
    found = [lines.get(load.name) for load in stage.loads]
    now = live_numbers(view)
    rate = going.rate if now is None else now.of
    times = [column("_us", [getattr(line, key) if line else None for line in found]) for key in _TIMES]
    return [
        _row(load, line, rate, each)
        for load, line, each in zip(stage.loads, found, zip(*times, strict=True), strict=True)
    ]


_TIMES = ("p50_us", "p95_us", "p99_us")


def _row(load: LoadView, line: LoadLine | None, rate: float | None, times: Row) -> Row:
    of = load.rate_of(rate)
    return (
        safe(load.name),
        safe(f"{load.workload} → {load.target}"),
        number(load.threads) if load.threads is not None else "share",
        "-" if line is None else number(round(line.tps)),
        "closed" if of is None else f"{number(round(of))}",
        *times,
        "-" if line is None else number(line.errors),
    )


class LoadRows(Rows):
    """The loads, where there are several."""

    def __init__(self, *, id: str) -> None:
        super().__init__(LOADS, rows, id=id)
        self.display = False

    def show(self, view: RunView) -> None:
        """Bring it up to date, or hide it."""
        self.display = bool(rows(view))
        if self.display:
            super().show(view)

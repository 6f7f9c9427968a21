"""Screen with two runs side by side: the answer in a sentence, a forest plot, their differences, and folded tables."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from rich import box
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.screen import Screen
from textual.widgets import Collapsible, Static

from proveout.core.errors import ProveoutError
from proveout.core.numbers import clock, count_of, number, safe
from proveout.tui.charts import interval
from proveout.tui.services import ComparedPart, Comparison, HomeServices, Ratio, RunServices
from proveout.tui.style import MUTED, Keys, text_line

TONES = {
    "better": ("▲", "green"),
    "worse": ("▼", "red"),
    "changed": ("≠", "yellow"),
    "same": ("≈", ""),
    "none": ("=", ""),
    "unknown": ("…", MUTED),
    "offered": ("…", MUTED),
}
WIDEST = 20.0
"""The axis ends at this ratio and its inverse: an interval of two repeats may be wider than any use."""
NARROWEST = 1.05
PLOT_LEAST = 20
TICKS = (1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 5.0, 10.0, 20.0)


def forest_plot(ratios: Sequence[Ratio], width: int) -> Text:
    """The plot: rungs with their numbers below them; numbers are never cut, the picture takes the room that is left."""
    if not ratios:
        return Text("No number can be compared.")
    name = max(cell_len(one.what) for one in ratios) + 4
    text, ends = (max(cell_len(getattr(one, part)) for one in ratios) for part in ("text", "interval"))
    room = width - name - text - 3
    with_ends = room - ends - 2 >= PLOT_LEAST
    plot = max(room - (ends + 2 if with_ends else 0), 8)
    reach = _reach(ratios)
    lines = []
    for of, rows in groupby(ratios, key=lambda one: one.of):
        lines.append(text_line(safe(of), "bold"))
        for one in rows:
            sign, style = TONES[one.tone]
            line = text_line()
            line.append(f"{sign} ", style=style)
            line.append(f"{safe(one.what):<{name - 2}}")
            line.append(f"{one.text:>{text}} ", style=f"bold {style}".strip())
            line.append_text(_line(one, plot, reach, style))
            line.append(f"  {one.interval:<{ends}}" if with_ends else "", style=MUTED)
            lines.append(line)
    lines += _axis(plot, reach, name + text + 1)
    return Text("\n").join(lines)


def _reach(ratios: Sequence[Ratio]) -> float:
    """The end of the axis, whose other end is its inverse."""
    seen = [value for one in ratios for value in (one.ratio, one.lower, one.upper) if value and value > 0.0]
    most = max((max(value, 1.0 / value) for value in seen), default=NARROWEST)
    return min(max(most * 1.02, NARROWEST), WIDEST)


def cell(value: float, width: int, reach: float) -> int:
    """The cell of a ratio on an axis of `width` cells from 1 / reach to reach; 1 is in the middle."""
    share = (math.log(value) / math.log(reach) + 1.0) / 2.0 if value > 0.0 else 0.0
    return min(max(round(share * (width - 1)), 0), width - 1)


def _line(one: Ratio, width: int, reach: float, style: str) -> Text:
    cells: list[tuple[str, str]] = [(" ", "")] * width
    middle = cell(1.0, width, reach)
    cells[middle] = ("│", MUTED)
    if one.lower is not None and one.upper is not None:
        left, right = cell(one.lower, width, reach), cell(one.upper, width, reach)
        ends = ("◀" if one.lower < 1.0 / reach else "├") + ("▶" if one.upper > reach else "┤")
        interval(cells, left, right, ends, style)
        if left < middle < right:
            cells[middle] = ("┼", style)
    cells[cell(one.ratio, width, reach)] = ("●", f"bold {style}".strip())
    return Text.assemble(*cells, no_wrap=True)


def _axis(width: int, reach: float, indent: int) -> list[Text]:
    """The axis with 1 and a few ratios beside it, and what lies on its two sides."""
    shown = [tick for tick in TICKS if tick <= reach][-2:]
    marks = sorted({1.0, *shown, *(1.0 / tick for tick in shown)})
    line, labels = ["─"] * width, [" "] * (width + 6)
    free = -1
    for mark in marks if width >= 40 else [1.0, marks[0], marks[-1]]:
        at = cell(mark, width, reach)
        line[at] = "┼" if mark == 1.0 else "┴"
        written = number(float(f"{mark:.3g}"))
        start = max(at - len(written) // 2, 0)
        if mark == 1.0 or start > free:
            labels[start : start + len(written)] = list(written)
            free = start + len(written) if mark != 1.0 else free
    pad = " " * indent
    return [text_line(pad + "".join(line), MUTED), text_line(pad + "".join(labels).rstrip(), MUTED)]


SIGNS = "▲ better  ▼ worse  ≠ changed  = not distinguishable  … not judged   ├●┤ B / A with its interval"
DIFFERENCES_OPEN = 6
"""As many differences or fewer are not folded."""


def rendered(found: Comparison) -> RenderableType:
    """The head of the comparison: the names of the runs, the answer, notes; of a refusal all differences."""
    parts: list[RenderableType] = [
        Text.assemble((f"{name} ", "bold"), safe(run))
        for name, run in (("A", f"{found.reference} (reference)"), ("B", found.other))
    ]
    if found.refused:
        parts.append(Text(f"✗ {safe(found.refused)}", style="bold red"))
        return Group(*parts, *((differences(found), Text(DESPITE)) if found.differences else ()))
    if found.headline:
        parts.append(Text(safe(found.headline), style="bold"))
    parts += [Text(f"! {safe(note)}", style="yellow") for note in found.notes]
    if not found.differences:
        parts.append(Text("The same plan in the same environment."))
    return Group(*parts)


DESPITE = "\nd compares them all the same."


def differences(found: Comparison) -> Text:
    """A line for each difference of plan and environment."""
    return Text("\n").join(Text(f"≠ {safe(line)}", style="yellow") for line in found.differences)


def _table(heads: tuple[str, ...], part: ComparedPart) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False, header_style=MUTED)
    for index, head in enumerate(heads):
        is_text = index in (0, len(heads) - 1)  # it wraps, so that no number is cut on a narrow screen
        table.add_column(Text(head), justify="left" if is_text else "right", no_wrap=not is_text, overflow="fold")
    for row in part.rows:
        cells = [Text(safe(cell)) for cell in row.cells[:-1]]
        table.add_row(*cells, Text(safe(row.cells[-1]), style=TONES[row.tone][1]))
    return table


class Forest(Static):
    """The forest plot, as wide as its room."""

    def __init__(self, found: Comparison) -> None:
        super().__init__()
        self._found = found

    def on_resize(self) -> None:
        self.update(forest_plot(self._found.ratios, self.size.width))


class ComparedScreen(Screen[None]):
    """A page that scrolls."""

    DEFAULT_CSS = """
    ComparedScreen #compared { padding: 0 1; }
    ComparedScreen Static, ComparedScreen #compared-parts { height: auto; }
    ComparedScreen #forest-signs, ComparedScreen Forest { margin-top: 1; }
    ComparedScreen Collapsible { background: $background; border-top: none; padding: 0; margin: 1 0 0 0; }
    """
    BINDINGS = [  # noqa: RUF012 - Textual's form
        Binding("escape", "app.pop_screen", "Back"),
        Binding("d", "despite", "Compare all the same"),
        Binding("x", "swap", "Swap"),
        Binding("e", "fold", "Open/close all"),
    ]

    def __init__(self, services: HomeServices | RunServices, reference: str, other: str) -> None:
        super().__init__()
        self._services, self._reference, self._other = services, reference, other
        self.found: Comparison | None = None

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="compared"):
            yield Static(id="compared-head")
            yield Vertical(id="compared-parts")
        yield Keys()

    def on_mount(self) -> None:
        self._compare(despite=False)

    def _reading(self, began_s: float) -> None:
        names = " and ".join(safe(Path(one).name) for one in (self._reference, self._other) if one)
        this = "" if self._reference and self._other else " and this run"
        gone = clock(time.monotonic() - began_s)
        self.query_one("#compared-head", Static).update(Text(f"… {gone}  reading the journals of {names}{this}"))

    @work(exclusive=True, group="compare")
    async def _compare(self, *, despite: bool) -> None:
        head = self.query_one("#compared-head", Static)
        began_s = time.monotonic()
        self._reading(began_s)
        ticking = self.set_interval(1.0, lambda: self._reading(began_s))
        try:
            found = await asyncio.to_thread(self._services.compare, self._reference, self._other, despite=despite)
        except ProveoutError as fault:
            head.update(
                Text.assemble((f"✗ {safe(fault.where)}: {safe(fault.what)}\n{safe(fault.way_out)}", "bold red"))
            )
            return
        finally:
            ticking.stop()
        self.found = found
        await self._show(found)
        self.query_one("#compared").focus()
        self.refresh_bindings()

    async def _show(self, found: Comparison) -> None:
        self.query_one("#compared-head", Static).update(rendered(found))
        parts = self.query_one("#compared-parts")
        await parts.remove_children()
        if not found.refused:
            await parts.mount_all(self._parts(found))

    def _parts(self, found: Comparison) -> list[Static | Collapsible]:
        signs = Text.assemble((f"{SIGNS}\n{safe(found.level)}".rstrip(), MUTED))
        parts: list[Static | Collapsible] = [Forest(found), Static(signs, id="forest-signs")]
        if found.differences:
            count = len(found.differences)
            title = f"{count_of(count, 'difference')} of plan and environment"
            parts.append(Collapsible(Static(differences(found)), title=title, collapsed=count > DIFFERENCES_OPEN))
        for part in found.parts:
            if part.rows:
                parts.append(Collapsible(Static(_table(found.heads, part)), title=safe(part.head), collapsed=True))
            else:
                parts.append(Static(Text.assemble((f"! {safe(part.head)}", "yellow"))))
        return parts

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer `despite` only after a refusal that it can overrule: not for a run and its copy."""
        if action != "despite":
            return True
        return self.found is not None and bool(self.found.refused and self.found.differences)

    def action_despite(self) -> None:
        self._compare(despite=True)

    def action_fold(self) -> None:
        tables = self.query(Collapsible)
        close = all(not one.collapsed for one in tables)
        for one in tables:
            one.collapsed = close

    def action_swap(self) -> None:
        self._reference, self._other = self._other, self._reference
        self._compare(despite=self.found is not None and not self.found.refused and bool(self.found.differences))

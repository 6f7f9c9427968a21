"""Screen with two runs side by side: their differences first, then a table per rung.

Data flow: `HomeServices.compare` in a thread -> `Comparison` -> text. A refusal lists the differences; a key compares
anyway.
"""

from __future__ import annotations

import asyncio

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Static

from proveout.core.errors import ProveoutError
from proveout.core.numbers import safe
from proveout.tui.home.services import ComparedPart, Comparison, HomeServices

TONES = {
    "better": ("▲", "bold green"),
    "worse": ("▼", "bold red"),
    "changed": ("≠", "bold yellow"),
    "none": (" ", ""),
    "unknown": ("?", "dim"),
    "offered": ("-", "dim"),
}


def rendered(found: Comparison) -> RenderableType:
    """The comparison: the names of the runs, their differences, the tables."""
    parts: list[RenderableType] = [Text(safe(f"{found.other} against {found.reference}"), style="bold")]
    if found.refused:
        return Group(*parts, Text(f"✗ {safe(found.refused)}", style="bold red"), *_differing(found), Text(DESPITE))
    parts += _differing(found) or [Text("the same plan in the same environment")]
    parts += [Text(f"! {safe(note)}", style="yellow") for note in found.notes]
    for part in found.parts:
        parts += [Text(f"\n{safe(part.head)}", style="bold"), _table(found.heads, part)]
    return Group(*parts)


DESPITE = "\nd compares them all the same."


def _differing(found: Comparison) -> list[RenderableType]:
    return [Text(f"≠ {safe(line)}", style="yellow") for line in found.differences]


def _table(heads: tuple[str, ...], part: ComparedPart) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
    for index, head in enumerate(heads):
        table.add_column(Text(head), justify="left" if index in (0, len(heads) - 1) else "right", no_wrap=index > 0)
    for row in part.rows:
        sign, style = TONES[row.tone]
        cells = [Text(safe(cell)) for cell in row.cells[:-1]]
        table.add_row(*cells, Text(f"{sign} {safe(row.cells[-1])}", style=style))
    return table


class ComparedScreen(Screen[None]):
    """A page that scrolls."""

    BINDINGS = [  # noqa: RUF012 - Textual's form
        Binding("escape", "app.pop_screen", "Back"),
        Binding("d", "despite", "Compare all the same"),
        Binding("x", "swap", "Swap"),
    ]

    def __init__(self, services: HomeServices, reference: str, other: str) -> None:
        super().__init__()
        self._services, self._reference, self._other = services, reference, other
        self.found: Comparison | None = None

    def compose(self) -> ComposeResult:
        """One block of text."""
        with VerticalScroll(id="compared"):
            yield Static(Text("… both journals are being read"))
        yield Footer()

    def on_mount(self) -> None:
        """Begin to read."""
        self._compare(despite=False)

    @work(exclusive=True, group="compare")
    async def _compare(self, *, despite: bool) -> None:
        page = self.query_one("#compared Static", Static)
        try:
            found = await asyncio.to_thread(self._services.compare, self._reference, self._other, despite=despite)
        except ProveoutError as fault:
            page.update(Text(f"✗ {safe(fault.where)}: {safe(fault.what)}\n{safe(fault.way_out)}", style="bold red"))
            return
        self.found = found
        page.update(rendered(found))
        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer `despite` only after a refusal."""
        return self.found is not None and bool(self.found.refused) if action == "despite" else True

    def action_despite(self) -> None:
        """Compare despite all differences; they stay listed."""
        self._compare(despite=True)

    def action_swap(self) -> None:
        """Make the other run the reference."""
        self._reference, self._other = self._other, self._reference
        self._compare(despite=self.found is not None and not self.found.refused and bool(self.found.differences))

"""A table that gets all rows, and writes only the cells that have changed.

Data flow: `RunView` -> rows of plain text -> `Rows`. Where the columns do not fit, those of the highest rank are left
out as wholes: a number that is cut reads as another number. Numbers are at the right of their column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rich.cells import cell_len
from rich.text import Text
from textual.widgets import DataTable

from proveout.tui.colours import ACCENT, MUTED, sign_style
from proveout.tui.run_view import RunView

Row: TypeAlias = tuple[str, ...]
CALM_ROWS = 32
"""A longer table changes in every second frame only, because drawing its cells is the main cost of the screen."""
_PADDING = 2
"""Cells beside the text of a cell."""
_SLACK = 8
"""Cells by which a table may be wider than its rows need, so that it does not change with every number."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, its rank (0 stays, the highest is the first to go), whether it has numbers."""

    title: str
    rank: int = 0
    right: bool = False
    key: str = ""

    @property
    def name(self) -> str:
        """Its key in the table."""
        return self.key or self.title


def column_widths(columns: Sequence[Column], rows: Sequence[Row]) -> list[int]:
    """The cells that each column needs, without its padding."""
    return [
        max(cell_len(column.title), max((cell_len(row[place]) for row in rows), default=0))
        for place, column in enumerate(columns)
    ]


def shown_columns(columns: Sequence[Column], widths: Sequence[int], width: int) -> tuple[int, ...]:
    """The places of the columns that fit into `width` cells."""
    left = list(range(len(columns)))
    while sum(widths[place] + _PADDING for place in left) > width:
        worst = max(left, key=lambda place: (columns[place].rank, place))
        if columns[worst].rank == 0:
            break
        left.remove(worst)
    return tuple(left)


class Rows(DataTable[Text]):
    """A table of the rows that `made` gives; `titled` gives its title."""

    def __init__(
        self,
        columns: Sequence[Column],
        made: Callable[[RunView], list[Row]],
        *,
        id: str,
        titled: Callable[[RunView], str] | None = None,
    ) -> None:
        super().__init__(id=id, cursor_type="row", zebra_stripes=True)
        self._all, self._made, self._titled = columns, made, titled
        self._places: tuple[int, ...] = ()
        self._widths: list[int] = []
        self._shown: list[Row] = []
        self._calm = False
        self._title = ""

    def watch_has_focus(self, has_focus: bool) -> None:
        """The cursor is there while it can be moved."""
        super().watch_has_focus(has_focus)
        self.show_cursor = has_focus

    def on_mount(self) -> None:
        """The columns that always stay."""
        self.show_cursor = False
        self._widths = column_widths(self._all, ())
        self._arrange(tuple(range(len(self._all))))

    def show(self, view: RunView) -> None:
        """Bring the cells up to date."""
        if self._titled is not None and (title := self._titled(view)) != self._title:
            self._title, self.border_title = title, Text(title)
        rows = self._made(view)
        places, wider = self._fitting(rows)
        self._calm = not wider and len(rows) == len(self._shown) > CALM_ROWS and not self._calm
        if (rows == self._shown and not wider) or self._calm:
            return
        if wider:
            self._arrange(places)
        elif len(rows) < len(self._shown):
            self.clear()
            self._shown = []
        for index, row in enumerate(rows):
            if index >= len(self._shown):
                self.add_row(*(self._cell(place, row[place]) for place in self._places), key=str(index))
            elif row != self._shown[index]:
                self._change(index, row)
        self._shown = rows

    def _fitting(self, rows: Sequence[Row]) -> tuple[tuple[int, ...], bool]:
        """The columns that fit, and whether they or their widths are others than now: wider, or much narrower."""
        needed = column_widths(self._all, rows)
        kept = [max(one, before) for one, before in zip(needed, self._widths, strict=True)]
        widths = needed if sum(kept) - sum(needed) > _SLACK else kept
        places = shown_columns(self._all, widths, self.scrollable_content_region.width or 1 << 16)
        changed = places != self._places or widths != self._widths
        self._widths = widths
        return places, changed

    def _arrange(self, places: tuple[int, ...]) -> None:
        """Begin again with these columns."""
        self.clear(columns=True)
        self._places, self._shown = places, []
        for place in places:
            column = self._all[place]
            title = Text(column.title, justify="right" if column.right else "left")
            self.add_column(title, width=self._widths[place], key=column.name)

    def _change(self, index: int, row: Row) -> None:
        for place in self._places:
            before, after = self._shown[index][place], row[place]
            if before != after:
                self.update_cell(str(index), self._all[place].name, self._cell(place, after))

    def _cell(self, place: int, text: str) -> Text:
        style = sign_style(text) or (MUTED if text == "-" else ACCENT if not self._all[place].title else "")
        return Text(text, style=style, no_wrap=True, justify="right" if self._all[place].right else "left")

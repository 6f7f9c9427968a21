"""A table that gets all rows, and writes only the cells that have changed.

Data flow: `RunView` -> rows of plain text -> `Rows`. Where the columns do not fit, those of the highest rank are left
out as wholes: a number that is cut reads as another number. Numbers are at the right of their column. For Textual a row
is one cell, because drawing cells is the main cost of the screen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from rich.cells import cell_len
from rich.text import Text
from textual.geometry import Size
from textual.widgets import DataTable

from proveout.core.data_classes import dataclass
from proveout.tui.colours import ACCENT, MUTED, sign_style
from proveout.tui.run_view import RunView

Row: TypeAlias = tuple[str, ...]
CALM_ROWS = 32
"""A longer table changes in every second frame only."""
_GAP = 2
"""Cells between two columns."""
_LINE = "line"
_SLACK = 8
"""Cells by which a table may be wider than its rows need, so that it does not change with every number."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, its rank (0 stays, the highest is the first to go), whether it has numbers."""

    title: str
    rank: int = 0
    right: bool = False


def column_widths(columns: Sequence[Column], rows: Sequence[Row]) -> list[int]:
    """The cells that each column needs, without its padding."""
    return [
        max(cell_len(column.title), max((cell_len(row[place]) for row in rows), default=0))
        for place, column in enumerate(columns)
    ]


def shown_columns(columns: Sequence[Column], widths: Sequence[int], width: int) -> tuple[int, ...]:
    """The places of the columns that fit into `width` cells."""
    left = list(range(len(columns)))
    while sum(widths[place] + _GAP for place in left) > width:
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
        self._of: tuple[str, Size] | None = None
        self._title = ""
        self._view: RunView | None = None

    def watch_has_focus(self, has_focus: bool) -> None:
        """The cursor is there while it can be moved."""
        super().watch_has_focus(has_focus)
        self.show_cursor = has_focus

    def on_mount(self) -> None:
        """The columns that always stay."""
        self.show_cursor = False
        self._widths = column_widths(self._all, ())
        self._arrange(tuple(range(len(self._all))))

    def on_resize(self) -> None:
        """Select the columns again: the first ones are selected before the width is known."""
        if self._view is not None:
            self.show(self._view)

    def show(self, view: RunView) -> None:
        """Bring the cells up to date."""
        self._view = view
        if self._titled is not None and (title := self._titled(view)) != self._title:
            self._title, self.border_title = title, Text(title)
        if self._is_calm(view):
            return
        rows = self._made(view)
        places, wider = self._fitting(rows)
        if rows == self._shown and not wider:
            return
        if wider:
            self._arrange(places)
        elif len(rows) < len(self._shown):
            self.clear()
            self._shown = []
        for index, row in enumerate(rows):
            if index >= len(self._shown):
                self.add_row(self._line(row), key=str(index))
            elif row != self._shown[index]:
                self.update_cell(str(index), _LINE, self._line(row))
        self._shown = rows

    def _is_calm(self, view: RunView) -> bool:
        """Whether a long table leaves this frame out; never the first one of another part of the plan or size."""
        of = (view.shown, self.size)
        self._calm = of == self._of and len(self._shown) > CALM_ROWS and not self._calm
        self._of = of
        return self._calm

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
        titles = tuple(column.title for column in self._all)
        width = sum(self._widths[place] + _GAP for place in places) - _GAP
        self.add_column(self._line(titles, head=True), width=max(width, 0), key=_LINE)

    def _line(self, row: Row, *, head: bool = False) -> Text:
        """The shown cells of a row, each as wide as its column."""
        text = Text(no_wrap=True, end="")
        for number, place in enumerate(self._places):
            column, cell = self._all[place], row[place]
            blank = " " * (self._widths[place] - cell_len(cell))
            style = "" if head else sign_style(cell) or (MUTED if cell == "-" else "" if column.title else ACCENT)
            text.append((" " * _GAP if number else "") + (blank if column.right else ""))
            text.append(cell, style=style)
            text.append("" if column.right else blank)
        return text

    def cells(self, index: int) -> Row:
        """A row that is shown, all of its cells."""
        return self._shown[index]

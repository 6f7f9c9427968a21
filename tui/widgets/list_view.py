"""A list of plans or runs that keeps its cursor when its rows are replaced.

Data flow: rows by key (`home.model`) -> `Listing.show` -> only what differs is written; the row under the cursor stays
under it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text
from textual.binding import Binding
from textual.widgets import DataTable

Cells = tuple[Text, ...]


class Listing(DataTable[Text]):
    """Rows by key, with a cursor on one of them."""

    BINDINGS = [Binding("enter", "select_cursor", "Open")]  # noqa: RUF012 - Textual's form

    def __init__(self, head: Sequence[str], *, id: str) -> None:
        super().__init__(id=id, cursor_type="row", zebra_stripes=True)
        self._head = head
        self._shown: dict[str, Cells] = {}

    def on_mount(self) -> None:
        """The columns."""
        for name in self._head:
            self.add_column(name, key=name)

    @property
    def here(self) -> str:
        """The key of the row under the cursor; "" when there is no row."""
        keys = list(self._shown)
        return keys[self.cursor_row] if 0 <= self.cursor_row < len(keys) else ""

    def show(self, rows: Mapping[str, Cells]) -> None:
        """Bring the rows up to date."""
        if list(rows) != list(self._shown):
            self._again(rows)
        else:
            for key, cells in rows.items():
                self._change(key, self._shown[key], cells)
        self._shown = dict(rows)
        self._fit()

    def go(self, key: str) -> None:
        """Put the cursor on a row, if it exists."""
        if key in self._shown:
            self.move_cursor(row=list(self._shown).index(key), animate=False)

    def _again(self, rows: Mapping[str, Cells]) -> None:
        here = self.here
        self.clear()
        for key, cells in rows.items():
            self.add_row(*cells, key=key)
        if here in rows:
            self.move_cursor(row=list(rows).index(here), animate=False)

    def _fit(self) -> None:
        """Set the widths to the widest cells: the table itself measures later, and would cut cells off until then."""
        for index, column in enumerate(self.ordered_columns):
            widest = max((cells[index].cell_len for cells in self._shown.values()), default=0)
            column.auto_width, column.width = False, max(column.label.cell_len, widest)

    def _change(self, key: str, before: Cells, cells: Cells) -> None:
        for name, old, new in zip(self._head, before, cells, strict=True):
            if old != new:
                self.update_cell(key, name, new, update_width=True)

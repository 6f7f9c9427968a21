"""Render a document on a terminal: 80 columns are enough; colour is never the only sign.

Data flow: `Document.summary` -> rich renderables -> a console, at its width. Text goes into `Text` objects after
`numbers.safe`: neither markup nor ANSI escapes in it have any effect. The status of the run and its directory come
last, where a reader looks first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from proveout.coordinator.report.document import (
    Block,
    Cell,
    Column,
    Document,
    Notes,
    Outcome,
    Outcomes,
    Paragraph,
    Section,
    Table,
    Tone,
    Value,
)
from proveout.core.data_classes import dataclass
from proveout.core.numbers import ranged, safe

_STYLES: Mapping[Tone, str] = {"": "", "good": "bold green", "bad": "bold red", "warn": "bold yellow", "dim": "dim"}
_INDENT = 2
_APART = 2
"""Blanks between two columns."""
_NAMES_OF_NUMBERS = 3
"""The columns that name a row of numbers alone: of an occurrence of a fault its rung, repeat and fault."""
_NAME, _WORD = 24, 12
"""The width up to which the names of rows, and other text, do not wrap where a table has numbers."""
PLAIN_WIDTH = 100
"""Columns when the stream is not a terminal."""


def show(document: Document, stream: TextIO) -> None:
    """Print the document: as wide as the stream's terminal; colour on a terminal alone, by it and NO_COLOR."""
    is_terminal = stream.isatty()  # rich takes a file for one where FORCE_COLOR is set, as in many CI jobs
    width = None if is_terminal else PLAIN_WIDTH
    console = Console(file=stream, width=width, force_terminal=is_terminal, markup=False, highlight=False, emoji=False)
    render(document, console)


def render(document: Document, console: Console) -> None:
    """Print the document's summary on the console."""
    summary = document.summary()
    with console.capture() as captured:
        if summary.answer is not None:
            console.print(
                Text(safe(summary.answer.text), style=_STYLES[summary.answer.tone] or "bold", overflow="fold")
            )
        for section in summary.sections:
            for part in _section(section):
                console.print(part)
        for part in _end(summary):
            console.print(part, soft_wrap=isinstance(part, Text) and part.no_wrap is True)
    # rich fills lines up to their block's width; such blanks are in the way when a log is copied.
    console.file.write(re.sub(r"[ \t]+$", "", captured.get(), flags=re.MULTILINE))


def _text(words: str, tone: Tone = "") -> Text:
    return Text(safe(words), style=_STYLES[tone], overflow="fold")


def _section(section: Section) -> Iterator[RenderableType]:
    """The blocks below their heading. A section of sections has no heading of its own, and verdicts need none."""
    if not isinstance(section.blocks[0], Section):
        yield Text()
        if section.anchor != "verdicts":
            yield Text(safe(section.title), style="bold", overflow="fold")
    for index, block in enumerate(section.blocks):
        yield from _block(block, first=index == 0)


def _block(block: Block, *, first: bool) -> Iterator[RenderableType]:
    match block:
        case Paragraph():
            yield _text(block.text, block.tone)
        case Notes():
            yield from (Text("· ") + _text(item, block.tone) for item in block.items[: block.most])
            if len(block.items) > block.most:
                yield _text(f"… and {len(block.items) - block.most} more in the HTML report")
        case Table():
            if block.title:
                yield from () if first else (Text(),)
                yield _text(block.title)
            yield _Fitted(block)
        case Outcomes():
            yield _outcomes(block)
            yield from (_evidence(one) for one in block.items if one.evidence)
        case Section():
            yield from _section(block)
        case _:  # a block of the page alone
            return


def _outcomes(block: Outcomes) -> RichTable:
    """A row for each outcome, with a line for each of its numbers and their limits."""
    told = any(one.claims for one in block.items)
    heads = ("", block.head.lower(), *(("value", "limit") if told else ()))
    rows = tuple(_row(one)[: len(heads)] for one in block.items)
    return _table(Table(heads=heads, rows=rows, layout="llll"[: len(heads)]))


def _row(one: Outcome) -> tuple[Value, ...]:
    values = tuple(ranged(claim.value, claim.interval) for claim in one.claims)
    title = f"{one.title or one.id}{f' ({one.remark})' if one.remark else ''}"
    return Cell(one.outcome, one.tone), title, values or "-", tuple(claim.limit for claim in one.claims) or "-"


def _evidence(one: Outcome) -> RenderableType:
    pieces = (Text("· ") + _text(piece) for piece in one.evidence)
    head = Text(safe(one.id or one.check or one.title), style="bold", overflow="fold")
    return Group(head, *(Padding(piece, (0, 0, 0, _INDENT), expand=False) for piece in pieces))


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A table in which no number is cut: with more columns than fit, several tables below each other, each with the
    names of the rows."""

    table: Table

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        letters = zip(self.table.heads, self.table.columns, strict=True)
        columns = [(head, letter, [row[at] for row in self.table.rows]) for at, (head, letter) in enumerate(letters)]
        named = re.match("r*l+", self.table.columns)
        names = named.end() if named else _NAMES_OF_NUMBERS
        widths = [_width(column, _NAME if at < names else _WORD) + _APART for at, column in enumerate(columns)]
        most = options.max_width + _APART if "r" in self.table.columns else sum(widths)
        held = list(range(names))
        for at in range(names, len(columns)):
            if len(held) > names and sum(widths[one] for one in (*held, at)) > most:
                yield _table(Table.of(*(columns[one] for one in held)))
                held = list(range(names))
            held.append(at)
        yield _table(Table.of(*(columns[one] for one in held)))


def _width(column: Column, most: int) -> int:
    """The width that a column needs: its longest line, of text that wraps not more than `most`."""
    head, kind, cells = column
    longest = max(cell_len(line) for value in (head, *cells) for line in _cell(value).plain.split("\n"))
    return longest if kind == "r" else min(longest, most)


def _table(table: Table) -> RichTable:
    made = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False, header_style="")
    for head, column in zip(table.heads, table.columns, strict=True):
        is_text = column == "l"
        made.add_column(_text(head), justify="left" if is_text else "right", no_wrap=not is_text, overflow="fold")
    for row in table.rows:
        made.add_row(*map(_cell, row))
    return made


def _cell(value: Value) -> Text:
    if isinstance(value, Cell):
        return _text(value.text, value.tone)
    return Text("\n").join(map(_text, value)) if isinstance(value, tuple) else _text(value)


def _end(document: Document) -> Iterator[RenderableType]:
    yield Text()
    if document.status is not None:
        yield Text(safe(document.status.text), style=f"bold {_STYLES[document.status.tone]}", overflow="fold")
    # Not folded: a path or a command that is cut in two cannot be copied.
    if document.files:
        yield Text(f"All recorded data: {safe(document.files)}", no_wrap=True, overflow="ignore")
    if document.whole:
        yield Text(f"Evidence and all tables: {safe(document.whole)}", no_wrap=True, overflow="ignore")
    if document.next_step:
        yield Text(f"Continue with: {safe(document.next_step)}", no_wrap=True, overflow="ignore")
    for line in document.closing:
        yield Text(safe(line.text), style=_STYLES[line.tone], no_wrap=True, overflow="ignore")

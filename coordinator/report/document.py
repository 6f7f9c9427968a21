"""The model of a report: sections with paragraphs, tables, outcomes, notes and figures. Frozen data without layout.

Data flow: results -> `run_document`, `report.comparison_document` -> `Document` -> one renderer for each format:
`terminal`, `markdown`, `html`. The builders hold all wording; a renderer adds none, so that the formats agree.

Text is stored as it was recorded. Renderers pass each text through `numbers.safe` and escape it for their format.

Two blocks differ by format: a `Table` with a title is folded on the HTML page, and `PAGE_ONLY` blocks are on the HTML
page alone, where the evidence of an `Outcome` is folded below its claims. `Document.brief` is the short form, which a
run prints at its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Literal, TypeAlias

from proveout.coordinator.report.figures.figure import Figure
from proveout.core.data_classes import dataclass, record
from proveout.proto.events import Claim, HeadlineNumber

Tone: TypeAlias = Literal["", "good", "bad", "warn", "dim"]
BRIEF_NOTES = 4
"""Remarks of a list in the short form."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table that a renderer emphasises: by colour on the terminal, in bold in Markdown."""

    text: str
    tone: Tone


Value: TypeAlias = str | Cell | tuple[str, ...]
"""A cell: one line, one line with emphasis, or several lines."""
Column: TypeAlias = tuple[str, str, Iterable[Value]]
"""A head, `l` text that wraps or `r` a number, and the cells."""


@record
class Table:
    """Rows under heads.

    `layout` has a letter for each column: `l` text that wraps, `r` a number; by default only the first is text.
    """

    heads: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    title: str = ""
    layout: str = ""

    @classmethod
    def of(cls, *columns: Column, title: str = "") -> Table:
        """The table of these columns, each with its head, its letter of the layout and its cells."""
        heads, letters, cells = zip(*columns, strict=True)
        return cls(heads=heads, rows=tuple(zip(*cells, strict=True)), title=title, layout="".join(letters))

    @property
    def columns(self) -> str:
        """The layout, one letter for each column."""
        return self.layout or "l" + "r" * (len(self.heads) - 1)


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A line of text."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Notes:
    """A list of remarks. The terminal shows the first `most` and how many more there are."""

    items: tuple[str, ...]
    tone: Tone = ""
    most: int = 12


def notes(items: Iterable[str], tone: Tone = "") -> tuple[Notes, ...]:
    """A list of these remarks, none without any."""
    found = tuple(items)
    return (Notes(found, tone),) if found else ()


@record
class Outcome:
    """A verdict of a run, or a condition of a comparison: a row of a table, with a line for each of its `claims`.
    `check` and `iterations` are on the page alone.

    `brief`: the lines of the short form in place of the evidence.
    """

    outcome: str
    tone: Tone
    title: str
    id: str = ""
    remark: str = ""
    evidence: tuple[str, ...] = ()
    brief: tuple[str, ...] = ()
    check: str = ""
    iterations: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Outcomes below each other; `head` says what they are the outcomes of."""

    items: tuple[Outcome, ...]
    head: str = "Verdict"


@dataclass(frozen=True, slots=True)
class Tiles:
    """The headline numbers beside each other."""

    items: tuple[HeadlineNumber, ...]


@dataclass(frozen=True, slots=True)
class Drawing:
    """An `<svg>` element that is safe to embed."""

    svg: str


@dataclass(frozen=True, slots=True)
class Preformatted:
    """Lines of a file or a command."""

    text: str


@record
class Download:
    """A file that the page carries."""

    label: str
    name: str
    media_type: str
    data: bytes


@record
class FileLinks:
    """Files of the run directory: each with its path there, which is relative to the page, and its size in bytes."""

    paths: tuple[tuple[str, int], ...]


@record
class Details:
    """Blocks that are folded below a title."""

    title: str
    blocks: tuple[Block, ...]
    open: bool = False


@record
class Section:
    """Blocks below a heading. With an `anchor` the page's navigation links to it.

    `brief`: the blocks of the short form, () for none of the section; None for all its blocks.
    """

    title: str
    blocks: tuple[Block, ...]
    anchor: str = ""
    brief: tuple[Block, ...] | None = None


Block: TypeAlias = (
    Paragraph
    | Notes
    | Table
    | Outcomes
    | Tiles
    | Figure
    | Drawing
    | Preformatted
    | Download
    | FileLinks
    | Details
    | Section
)
PAGE_ONLY = (Tiles, Figure, Drawing, Preformatted, Download, FileLinks, Details)


def kept(sections: Iterable[Section]) -> tuple[Section, ...]:
    """The sections that have blocks."""
    return tuple(one for one in sections if one.blocks)


@record
class Document:
    """A report.

    `about` identifies it; `answer` is its outcome in a sentence; `status` is how the run ended; `files` is
    the directory of all recorded data, "" for none; `whole`, of a short form, is the command that prints all of it, and
    `closing` its last lines: each verdict with its answer, and the path of the page.
    """

    title: str
    about: str
    sections: tuple[Section, ...]
    status: Paragraph | None = None
    answer: Paragraph | None = None
    files: str = ""
    next_step: str = ""
    whole: str = ""
    closing: tuple[Paragraph, ...] = ()

    def brief(self, whole: str = "") -> Document:
        """The short form: of each section the blocks that answer; `whole` is the command that prints the rest."""
        return replace(self, sections=tuple(_brief(self.sections)), whole=whole)

    def extended(self, more: tuple[Section, ...]) -> Document:
        """The document with more sections at its end."""
        return replace(self, sections=(*self.sections, *more))

    def summary(self) -> Document:
        """The document without the blocks that only a page has, and without sections that are empty then."""
        return replace(self, sections=tuple(_summaries(self.sections)))


def _brief(sections: Iterable[Section]) -> Iterator[Section]:
    for section in sections:
        chosen = section.blocks if section.brief is None else section.brief
        kept: list[Block] = []
        for block in chosen:
            match block:
                case Section():
                    kept += _brief([block])
                case Outcomes():
                    kept.append(replace(block, items=tuple(replace(one, evidence=one.brief) for one in block.items)))
                case Notes():
                    kept.append(replace(block, most=BRIEF_NOTES))
                case _:
                    kept.append(block)
        if kept:
            yield replace(section, blocks=tuple(kept), brief=None)


def _summaries(sections: Iterable[Section]) -> Iterator[Section]:
    for section in sections:
        kept: list[Block] = []
        for block in section.blocks:
            if isinstance(block, Section):
                kept += _summaries([block])
            elif not isinstance(block, PAGE_ONLY):
                kept.append(block)
        if kept:
            yield replace(section, blocks=tuple(kept))

"""Render a document as Markdown: for a pull request, a wiki, the summary page of a CI job.

Data flow: `Document.summary` -> blocks of text. All text is escaped: it cannot break a table, and HTML in it does not
come through.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from proveout.coordinator.report.document import (
    Block,
    Cell,
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
from proveout.core.numbers import ranged, safe

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~]|&(?=#?\w+;))")
_MARKS: Mapping[Tone, str] = {"good": "✅ ", "bad": "❌ ", "warn": "❔ "}


def escape(text: str) -> str:
    """Text that Markdown shows literally, in one line."""
    return _SPECIAL.sub(r"\\\1", safe(text))


def render(document: Document) -> str:
    """The document's summary, ends with a newline."""
    summary = document.summary()
    blocks = [f"# {escape(summary.title)}", escape(summary.about)]
    if summary.answer is not None:
        blocks.append(f"**{escape(summary.answer.text)}**")
    if summary.status is not None:
        blocks.append(f"**{escape(summary.status.text)}**")
    for section in summary.sections:
        blocks += _section(section, 2)
    if summary.files:
        blocks.append(f"All recorded data: `{safe(summary.files).replace('`', '')}`")
    return "\n\n".join(filter(None, blocks)) + "\n"


def _section(section: Section, depth: int) -> Iterator[str]:
    """The section; what its short form leaves out is folded."""
    yield f"{'#' * depth} {escape(section.title)}"
    shown = section.blocks if section.brief is None else section.brief
    for block in shown:
        yield from _block(block, depth)
    folded = [part for block in section.blocks if block not in shown for part in _block(block, depth)]
    if folded:
        yield from ("<details><summary>more</summary>", *folded, "</details>")


def _block(block: Block, depth: int) -> Iterator[str]:
    match block:
        case Paragraph():
            yield escape(block.text)
        case Notes():
            yield "\n".join(f"- {escape(item)}" for item in block.items)
        case Table():
            if block.title:
                yield f"**{escape(block.title)}**"
            yield _rows(block.heads, block.columns, (map(_cell, row) for row in block.rows))
        case Outcomes():
            told = any(one.claims for one in block.items)
            heads = ("Outcome", block.head, *(("Value", "Limit") if told else ()), "Evidence")
            yield _rows(heads, "l" * len(heads), (_outcome(one, told=told) for one in block.items))
            whole = [line for one in block.items if one.brief or one.claims for line in _evidence(one)]
            if whole:
                yield from ("<details><summary>all evidence</summary>", "\n".join(whole), "</details>")
        case Section():
            yield from _section(block, depth + 1)
        case _:  # a block of the page alone
            return


def _rows(heads: Sequence[str], columns: str, rows: Iterable[Iterable[str]]) -> str:
    rules = ("---" if column == "l" else "---:" for column in columns)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (map(escape, heads), rules, *rows))


def _outcome(one: Outcome, *, told: bool) -> Iterator[str]:
    remark = f" ({escape(one.remark)})" if one.remark else ""
    yield f"{_MARKS.get(one.tone, '')}{escape(one.outcome)}{remark}"
    yield escape(one.title or one.id)
    if told:
        yield "<br>".join(escape(ranged(claim.value, claim.interval)) for claim in one.claims)
        yield "<br>".join(escape(claim.limit) for claim in one.claims)
    yield "<br>".join(map(escape, one.brief if one.claims or one.brief else one.evidence))


def _evidence(one: Outcome) -> Iterator[str]:
    yield f"- {escape(one.title or one.id)}"
    yield from (f"  - {escape(piece)}" for piece in one.evidence)


def _cell(value: Value) -> str:
    if isinstance(value, Cell):
        text = escape(value.text)
        return text if value.tone in ("", "dim") else f"**{text}**"
    return "<br>".join(map(escape, value)) if isinstance(value, tuple) else escape(value)

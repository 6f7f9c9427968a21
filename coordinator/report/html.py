"""Render a document as one HTML file that needs nothing else: no network, no other file. Where
scripts are off, each figure has its numbers as a table.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

import jinja2
from markupsafe import Markup, escape

from proveout.coordinator.report.document import (
    Block,
    Cell,
    Details,
    Document,
    Download,
    Drawing,
    FileLinks,
    Notes,
    Outcome,
    Outcomes,
    Paragraph,
    Preformatted,
    Section,
    Table,
    Tiles,
    Tone,
    Value,
)
from proveout.coordinator.report.figures import figure as pictures
from proveout.coordinator.report.figures.figure import IN_THE_DARK, Figure
from proveout.coordinator.report.summary import claim_in_words
from proveout.core.numbers import quantity, safe, safe_lines
from proveout.proto.events import Claim, HeadlineNumber

WIDTH, HEIGHT = 200, 22
_EDGE = 8.0
_MIDDLE = HEIGHT / 2.0


def claim_svg(claim: Claim) -> str:
    """The drawing; "" without a value or without a limit."""
    if claim.mean is None or claim.bound is None or not claim.operator:
        return ""
    if not all(math.isfinite(number) for number in (claim.mean, claim.bound)):
        return ""
    ends = [end for end in (claim.lower, claim.upper) if end is not None and math.isfinite(end)]
    place = _axis([claim.mean, claim.bound, *ends], claim)
    limit, dot = place(claim.bound), place(claim.mean)
    parts = [*_side(claim.operator, limit)]
    if claim.lower is not None or claim.upper is not None:
        low, high = (
            None if end is None or not math.isfinite(end) else place(end) for end in (claim.lower, claim.upper)
        )
        left, right = (low if low is not None else 0.0), (high if high is not None else float(WIDTH))
        parts.append(_line("interval", left, _MIDDLE, right, _MIDDLE))
        parts += [
            _line("cap", at, _MIDDLE - 5, at, _MIDDLE + 5)
            for at in (low, high)
            if at is not None and _EDGE / 2 < at < WIDTH - _EDGE / 2
        ]
    parts.append(_line("limit", limit, 1, limit, HEIGHT - 1))
    parts.append(f'<circle class="dot" cx="{dot:.1f}" cy="{_MIDDLE:.1f}" r="4.5"/>')
    return (
        f'<svg class="claim" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" aria-hidden="true">'
        f"{''.join(parts)}</svg>"
    )


def _axis(numbers: list[float], claim: Claim) -> Callable[[float], float]:
    """number -> pixel, at the edge for a number beyond the axis."""
    assert claim.mean is not None and claim.bound is not None  # noqa: S101
    reach = 16.0 * (abs(claim.mean - claim.bound) or abs(claim.mean) or 1.0)
    centre = (claim.mean + claim.bound) / 2.0
    low, high = max(min(numbers), centre - reach), min(max(numbers), centre + reach)
    margin = 0.08 * (high - low) or abs(high) * 0.1 or 1.0
    low, high = low - margin, high + margin

    def place(number: float) -> float:
        at = _EDGE + (number - low) / (high - low) * (WIDTH - 2 * _EDGE)
        return min(max(at, 0.0), float(WIDTH))

    return place


def _side(operator: str, limit: float) -> list[str]:
    """The side of the limit on which the claim holds."""
    if operator in ("<", "<="):
        return [f'<rect class="holds" x="0" y="3" width="{limit:.1f}" height="{HEIGHT - 6}"/>']
    if operator in (">", ">="):
        return [f'<rect class="holds" x="{limit:.1f}" y="3" width="{WIDTH - limit:.1f}" height="{HEIGHT - 6}"/>']
    return []


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


_SIGNS: Mapping[Tone, str] = {"good": "✓", "bad": "✗", "warn": "?"}
_NUMBERS = "Numbers of the figure"


def render(document: Document) -> str:
    loader = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    figures = list(_figures(document.sections))
    lacking = pictures.lacking() if figures else ""
    return environment.get_template("page.html.j2").render(
        title=safe(document.title),
        about=safe(document.about),
        status=document.status and Paragraph(safe(document.status.text), document.status.tone),
        answer=document.answer and Paragraph(_prose(document.answer.text), document.answer.tone),
        colours=IN_THE_DARK,
        links=[(section.anchor, safe(section.title)) for section in document.sections if section.anchor],
        body=_join(map(_section, document.sections)),
        lacking=lacking,
        specs={} if lacking else {figure.slug: figure.spec for figure in figures},
        javascript=Markup(pictures.javascript()) if figures and not lacking else "",  # noqa: S704 - the libraries' own script
    )


def _figures(blocks: Iterable[Block]) -> Iterator[Figure]:
    for block in blocks:
        if isinstance(block, Figure):
            yield block
        elif isinstance(block, Section | Details):
            yield from _figures(block.blocks)


def _join(parts: Iterable[Markup]) -> Markup:
    return Markup("\n").join(parts)


def _section(section: Section) -> Markup:
    """A heading, and cards below it: outcomes, figures and inner sections are cards by themselves."""
    anchor = Markup(' id="{}"').format(section.anchor) if section.anchor else ""
    parts = [Markup("<h2{}>{}</h2>").format(anchor, safe(section.title))]
    for is_card, blocks in groupby(
        section.blocks, lambda block: isinstance(block, Outcomes | Tiles | Figure | Section)
    ):
        inner = _join(map(_block, blocks))
        parts.append(inner if is_card else Markup('<div class="card">{}</div>').format(inner))
    return _join(parts)


def _block(block: Block) -> Markup:  # noqa: PLR0911, PLR0912 - one arm per kind of block
    match block:
        case Paragraph():
            return Markup('<p class="{}">{}</p>').format(block.tone, safe(block.text))
        case Notes():
            items = _join(Markup("<li>{}</li>").format(safe(item)) for item in block.items)
            return Markup('<ul class="notes">{}</ul>').format(items)
        case Table(title=""):
            return _table(block)
        case Table():
            return _folded(block.title, _table(block), kind="data")
        case Outcomes():
            return Markup('<div class="card verdicts">{}</div>').format(_join(map(_outcome, block.items)))
        case Tiles():
            return Markup('<div class="tiles">{}</div>').format(_join(map(_tile, block.items)))
        case Figure():
            return _figure(block)
        case Drawing():
            drawing = Markup(block.svg)  # noqa: S704 - `system_figures` has escaped its text
            return Markup('<div class="scroll">{}</div>').format(drawing)
        case Preformatted():
            return Markup("<pre>{}</pre>").format(safe_lines(block.text))
        case Download():
            uri = f"data:{block.media_type};base64,{base64.b64encode(block.data).decode()}"
            return Markup('<p><a href="{}" download="{}">{}</a></p>').format(uri, safe(block.name), safe(block.label))
        case FileLinks():
            form = Markup('<li><a href="{}">{}</a>, {}</li>')
            lines = (
                form.format(quote(path, errors="surrogateescape"), safe(path), quantity(size, "file_bytes"))
                for path, size in block.paths
            )
            return Markup("<ul>\n{}\n</ul>").format(_join(lines))
        case Details():
            return _folded(block.title, _join(map(_block, block.blocks)), opened=block.open)
        case Section():
            inner = _join(map(_block, block.blocks))
            return Markup('<section class="card"><h3>{}</h3>\n{}</section>').format(safe(block.title), inner)


def _folded(title: str, inner: Markup, *, kind: str = "", opened: bool = False) -> Markup:
    state = Markup(" open") if opened else ""
    form = Markup('<details class="{}"{}><summary>{}</summary>{}</details>')
    return form.format(kind, state, safe(title), inner)


def _table(table: Table) -> Markup:
    texts = [Markup(' class="text"') if column == "l" else "" for column in table.columns]
    cells = zip(texts, table.heads, strict=True)
    heads = Markup("").join(Markup('<th scope="col"{}>{}</th>').format(text, safe(head)) for text, head in cells)
    rows = _join(Markup("<tr>{}</tr>").format(Markup("").join(map(_cell, texts, row))) for row in table.rows)
    return Markup(
        '<div class="scroll"><table>\n<thead><tr>{}</tr></thead>\n<tbody>\n{}\n</tbody></table></div>'
    ).format(heads, rows)


def _cell(text: str, value: Value) -> Markup:
    if isinstance(value, Cell) and value.tone:
        return Markup('<td{}><span class="{}">{}</span></td>').format(text, value.tone, safe(value.text))
    lines = value if isinstance(value, tuple) else (value.text if isinstance(value, Cell) else value,)
    return Markup("<td{}>{}</td>").format(text, Markup("<br>").join(map(safe, lines)))


def _tile(one: HeadlineNumber) -> Markup:
    lines = _join(Markup("<small>{}</small>").format(safe(text)) for text in (one.interval, one.about) if text)
    return Markup('<div class="tile {}"><span>{}</span><b>{}</b>{}</div>').format(
        one.tone, safe(one.label), safe(one.value), lines
    )


def _outcome(one: Outcome) -> Markup:
    """A row: the outcome, what is claimed, and each number against its limit; behind "Why" check and evidence."""
    prose = not one.claims and one.evidence
    rest = one.evidence[1:] if prose else one.evidence
    evidence = Markup('<ul class="evidence">{}</ul>').format(
        _join(Markup("<li>{}</li>").format(_prose(piece)) for piece in rest)
    )
    why = _join([*([evidence] if rest else []), *([_check(one)] if one.check else [])])
    named = len(one.claims) > 1
    return Markup(
        '<section class="verdict {}"><div class="outcome">{} {}{}</div>\n<div><h3>{}</h3>{}</div>\n'
        "<div>{}{}</div></section>"
    ).format(
        one.tone,
        _SIGNS.get(one.tone, ""),
        safe(one.outcome),
        Markup("<small>{}</small>").format(safe(one.remark)) if one.remark else "",
        safe(one.title or one.id),
        _folded("Why", why, kind="why") if why else "",
        Markup('<p class="evidence">{}</p>').format(_prose(one.evidence[0])) if prose else "",
        _join(_claim(claim, named=named) for claim in one.claims),
    )


def _prose(text: str) -> Markup:
    """A text, in which words between backticks are code."""
    words = safe(text).split("`")
    if len(words) % 2 == 0:
        return escape(safe(text))
    return Markup().join(
        Markup("<code>{}</code>").format(one) if at % 2 else escape(one) for at, one in enumerate(words)
    )


def _claim(claim: Claim, *, named: bool) -> Markup:
    """The picture of a claim, its value and limit as text, and where it is `named` what is compared."""
    name = Markup("<code>{}</code>").format(safe(claim.of)) if named else ""
    return Markup('<div class="claim">{}<span><b>{}</b>{}{}</span></div>').format(
        Markup(claim_svg(claim)),  # noqa: S704 - numbers and fixed names alone
        safe(claim.value),
        safe(claim_in_words(claim).removeprefix(claim.value)),
        name,
    )


def _check(one: Outcome) -> Markup:
    parts = [Markup("<p><code>{}</code></p>").format(safe(one.check))]
    if one.iterations:
        parts.append(Markup('<p class="dim">Iterations: {}</p>').format(safe(", ".join(one.iterations))))
    return _join(parts)


def _is_tall(figure: Figure) -> bool:
    """Whether it has three rows of small panels or more, which need more of a printed page than others."""
    panels, columns = len(figure.spec.get("concat") or ()), figure.spec.get("columns", 1)
    return bool(columns > 1 and panels > 2 * columns)


def _figure(figure: Figure) -> Markup:
    """A figure with the place in which the browser draws it: a picture of each would take a tenth of a second."""
    caption, how = figure.captions
    table, plot = _table(Table(heads=figure.heads, rows=figure.rows)), Markup()
    if not pictures.lacking():
        below = "The table below has the numbers." if figure.rows else ""
        alt = " ".join(filter(None, (f"{safe(figure.title)}.", safe(figure.alt), below)))
        plot = Markup('<div class="plot" id="plot-{}" data-alt="{}"></div>\n').format(figure.slug, alt)
        table = _folded(_NUMBERS, table, kind="data")
    return Markup(
        '<figure class="card{tall}" id="{slug}"><h3>{title}</h3>\n<figcaption>{caption}{how}</figcaption>\n'
        "{plot}{table}</figure>"
    ).format(
        slug=figure.slug,
        tall=" tall" if _is_tall(figure) else "",
        title=safe(figure.title),
        caption=safe(caption),
        how=Markup('<details class="how"><summary aria-label="How to read it">?</summary>{}</details>').format(
            safe(how)
        )
        if how
        else "",
        plot=plot,
        table=table,
    )

"""A figure of the report: a Vega-Lite chart and a table with the same numbers. Pure; draws nothing.

Data flow: `load_figures`, `system_figures`, … -> `Figure` -> `vega` (SVG, PNG) and `html` (interactive, with the table
below it). Charts get numbers in the units of their axes, and text after `numbers.safe`; field names are fixed, so that
no name from outside becomes part of an expression.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Spec: TypeAlias = dict[str, Any]

PALETTE = ("#0b6e99", "#e08a00", "#4b9b5f", "#b3446c", "#6a5acd", "#8c6d46", "#5f6b76", "#c0392b")
"""Colours that differ with the usual colour blindness, and in print by lightness.

Lines differ in dash or point as well.
"""
PALE = ("#cfe5ee", "#fae3bf", "#d4ead9", "#eed0dc", "#dcd8f3", "#e6dccf", "#dadde0", "#f2d3cf")
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_CONFIG: Spec = {
    "background": "white",
    "font": FONT,
    "view": {"stroke": None},
    "axis": {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "gridColor": "#e8ecef",
    "domainColor": "#8a949c"},
    "legend": {"orient": "top", "title": None, "labelFontSize": 12, "labelLimit": 320, "columns": 4},
    "range": {"category": list(PALETTE)},
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """`name` is the name in plans; `slug` is unique within a report and names the file; `spec` is Vega-Lite.

    `caption` explains the chart. `heads` and `rows` are the table, as text: its first column names the row.
    """

    name: str
    slug: str
    title: str
    caption: str
    spec: Spec
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def chart(values: Sequence[Mapping[str, Any]], layers: Sequence[Spec], *, height: int = 300, **more: Any) -> Spec:
    """A layered chart over one list of rows, as wide as its container."""
    return {
        "$schema": _SCHEMA,
        "config": _CONFIG,
        "data": {"values": [dict(value) for value in values]},
        "width": "container",
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "layer": list(layers),
        **more,
    }


def grid(charts: Sequence[Spec], *, columns: int) -> Spec:
    """Charts with data, widths and heights of their own, in rows of `columns`; colours are shared."""
    return {"$schema": _SCHEMA, "config": _CONFIG, "columns": columns, "spacing": 28, "concat": list(charts)}


def quantity(field: str, title: str, **more: Any) -> Spec:
    """A channel that shows a number."""
    return {"field": field, "type": "quantitative", "title": title, **more}


def category(field: str, title: str | None = None, **more: Any) -> Spec:
    """A channel that shows a name, in the order of the rows."""
    return {"field": field, "type": "nominal", "title": title, "sort": None, **more}


def tips(**fields: str) -> list[Spec]:
    """A tooltip with a title for each field."""
    return [{"field": field, "title": title} for field, title in fields.items()]


def slug(*parts: str) -> str:
    """A name that is safe for a file and for an anchor."""
    text = "-".join(parts).lower()
    return "".join(letter if letter.isascii() and (letter.isalnum() or letter in "-_") else "-" for letter in text)[:80]

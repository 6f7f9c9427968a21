"""A figure of a report: its Vega-Lite specification, its data as a table, its caption, its description in words, and
its picture.

Data flow: a `Figure`'s Vega-Lite -> SVG or PNG (Vega runs inside vl-convert, without a network); `javascript()` ->
Vega, Vega-Lite and Vega-Embed as one script for the report. The script takes seconds to build and is the same for a
version of vl-convert, so it is cached in the user's cache directory.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, TypeAlias

from proveout.coordinator.storage.run_directory import write_whole
from proveout.core.data_classes import record
from proveout.core.errors import NotInstalled, loaded, one_line
from proveout.core.numbers import half_width, level, notation, safe

SERIES_MAX = 4
"""Series that a text describes; it counts the others."""
LETTERS_MAX = 900
SLUG_MAX = 200
CAPTION_WORDS = 20
"""Words that stand below the title of a figure; the others are behind a question mark."""
_SENTENCE = re.compile(r"(?<=[.!?]) (?=[A-Z0-9])")


def seen(what: str, metric: str, points: Sequence[tuple[str, float]]) -> str:
    """A series in words: its first and last number along the axis, the highest and the lowest. `points` are (place,
    value), `metric` gives the unit.

    >>> seen("TPS", "tps", [("1", 100.0), ("4", 300.0), ("8", 450.0), ("16", 400.0)])
    'TPS: 100/s (lowest) at 1, 450/s (highest) at 8, 400/s at 16.'
    """
    values = [value for _, value in points]
    if not values:
        return f"{what}: no number."
    words, least, most = notation(metric, *values), min(values), max(values)
    marks = {values.index(least): " (lowest)", values.index(most): " (highest)"} if most > least else {}
    shown = sorted({0, len(points) - 1, *marks})
    texts = (f"{words.text(values[at])}{marks.get(at, '')} at {safe(points[at][0])}" for at in shown)
    return f"{what}: {', '.join(texts)}."


def joined(sentences: Iterable[str]) -> str:
    """The first sentences and how many more there are, below `LETTERS_MAX` letters."""
    every = list(sentences)
    kept = every[:SERIES_MAX]
    while len(kept) > 1 and sum(map(len, kept)) > LETTERS_MAX:
        kept.pop()
    more = len(every) - len(kept)
    return " ".join([*kept, *([f"{more} more in the table."] if more else [])])[: 2 * LETTERS_MAX]


def intervals(estimates: Iterable[Mapping[str, Any]]) -> str:
    """The whiskers of a caption: `the 95 % confidence interval (n = 3 repeats)`; or that there is none. A number that
    is not of repeats, as the base of ratios, has no `n`."""
    found = [one for one in estimates if one]
    counts = sorted({round(float(one["n"])) for one in found if "n" in one})
    levels = sorted({level(one) for one in found if half_width(one) is not None})
    if not counts:
        return "no confidence interval"
    over = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    plural = "repeat" if counts == [1] else "repeats"
    if not levels:
        return f"no confidence interval: n = {over} {plural}"
    return f"the {' and '.join(levels)} confidence interval (n = {over} {plural})"


Spec: TypeAlias = dict[str, Any]
Rows: TypeAlias = Sequence[Mapping[str, Any]]
"""The data of a chart or of a layer."""

PALETTE = ("#0b6e99", "#e08a00", "#4b9b5f", "#b3446c", "#6a5acd", "#8c6d46", "#5f6b76", "#c0392b")
"""Colours that differ with the usual colour blindness, and in print by lightness.

Lines differ in dash or point as well.
"""
PALE = ("#cfe5ee", "#fae3bf", "#d4ead9", "#eed0dc", "#dcd8f3", "#e6dccf", "#dadde0", "#f2d3cf")
INK = "#1d2a33"
"""Whiskers, ticks and other marks in the colour of text."""
GREY = "#8a949c"
DASHES = ([1, 0], [6, 3], [2, 2], [9, 3, 2, 3], [4, 4], [1, 3], [12, 4], [6, 2, 2, 2, 2, 2])
"""Dashes of lines, which differ with the colours of `PALETTE`."""
STROKES = {"columns": 2, "symbolType": "stroke", "symbolSize": 700}
"""The legend of two kinds of lines."""
IN_THE_DARK: Mapping[str, str] = {
    **dict(
        zip(
            PALETTE,
            ("#4bb3dd", "#f0a63a", "#73c487", "#dd7ba3", "#a79bf2", "#c7a574", "#a9b5bf", "#f07f74"),
            strict=True,
        )
    ),
    **dict(
        zip(
            PALE,
            ("#16384a", "#473312", "#1c3a25", "#452233", "#2f2b52", "#3a3022", "#333b43", "#4a2623"),
            strict=True,
        )
    ),
    INK: "#dfe6eb",
    GREY: "#8a949c",
    "white": "#18222a",
}
"""The colour on a dark page for each colour of a chart: `html` makes style rules of them, which also hold in print."""
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
LABEL_MAX = 280
"""Pixels of the label of a place; of a longer one the end is not shown."""
_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_CONFIG: Spec = {
    "background": "white",
    "font": FONT,
    "view": {"stroke": None},
    "axis": {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "gridColor": "#e8ecef",
    "domainColor": "#8a949c", "tickCount": 5, "labelLimit": LABEL_MAX},
    "legend": {"orient": "top", "title": None, "labelFontSize": 12, "labelLimit": 320, "columns": 4},
    "range": {"category": list(PALETTE)},
}  # fmt: skip


@record
class Figure:
    """`name` is the name in plans, which `grammar.figure` gives; `of` tells figures of one name apart; `spec` is
    Vega-Lite.

    `caption` explains the chart. `heads` and `rows` are the table, as text: its first column names the row. `alt` is
    the text for readers without the picture: made of the data.
    """

    name: str = ""
    of: tuple[str, ...] = ()
    title: str
    caption: str
    spec: Spec
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    alt: str = ""

    @property
    def captions(self) -> tuple[str, str]:
        """The sentences of the caption up to `CAPTION_WORDS`, and the others, which explain how to read the chart."""
        kept: list[str] = []
        sentences = _SENTENCE.split(self.caption)
        while sentences and (not kept or len(" ".join([*kept, sentences[0]]).split()) <= CAPTION_WORDS):
            kept.append(sentences.pop(0))
        return " ".join(kept), " ".join(sentences)

    @property
    def slug(self) -> str:
        """Unique within a report, where names have up to 64 letters, and safe for a file and for an anchor."""
        text = "-".join((self.name, *self.of))
        return "".join(one if one.isascii() and (one.isalnum() or one in "-_") else "-" for one in text)[:SLUG_MAX]


def layer(mark: str, look: Spec | None = None, *, rows: Any = None, only: Any = None, **channels: Any) -> Spec:
    """Marks with a look and channels: of `rows`, else of those of the chart; `only` are transforms that leave some."""
    own: Spec = {} if rows is None else {"data": {"values": list(rows)}}
    chosen: Spec = {"transform": list(only)} if only else {}
    return {**own, **chosen, "mark": {"type": mark, **(look or {})}, "encoding": channels}


def panel(
    layers: Sequence[Spec], width: float, height: float, title: str = "", rows: Rows | None = None, **heading: Any
) -> Spec:
    """A chart of a grid, px; `heading` is the look of its title."""
    head = {"text": title, "anchor": "start", "fontSize": 13, "fontWeight": "normal", **heading}
    own: Spec = {} if rows is None else {"data": {"values": list(rows)}}
    return {**({"title": head} if title else {}), **own, "width": width, "height": height, "layer": list(layers)}


def chart(values: Rows, layers: Sequence[Spec], *, height: int = 300, **more: Any) -> Spec:
    """A layered chart over one list of rows, as wide as its container."""
    return {
        "$schema": _SCHEMA,
        "config": _CONFIG,
        "data": {"values": list(values)},
        "width": "container",
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "layer": list(layers),
        **more,
    }


def grid(charts: Sequence[Spec], *, columns: int, spacing: int = 28, **more: Any) -> Spec:
    """Charts with data, widths and heights of their own, in rows of `columns`; colours are shared."""
    return {
        "$schema": _SCHEMA, "config": _CONFIG, "columns": columns, "spacing": spacing, "concat": list(charts), **more,
    }  # fmt: skip


def quantity(field: str, title: str, **more: Any) -> Spec:
    """A channel that shows a number."""
    return {"field": field, "type": "quantitative", "title": title, **more}


def category(field: str, title: str | None = None, **more: Any) -> Spec:
    """A channel that shows a name, in the order of the rows."""
    return {"field": field, "type": "nominal", "title": title, "sort": None, **more}


def tips(**fields: str) -> list[Spec]:
    """A tooltip with a title for each field."""
    return [{"field": field, "title": title} for field, title in fields.items()]


TICKS_MAX = 7


def logarithmic(field: str, title: str, values: Sequence[float], *, margin: float = 1.3, **more: Any) -> Spec:
    """A channel on a logarithmic axis, with ticks at 1, 2 and 5, or at powers of ten where those are many. `values` are
    the numbers that it has to show, above 0."""
    least, most = min(values) / margin, max(values) * margin
    decades = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = [round(step * 10.0**decade, 12) for decade in decades for step in steps]
        ticks = [tick for tick in ticks if least <= tick <= most]
        if len(ticks) <= TICKS_MAX:
            break
    # Vega writes no more labels at a logarithmic axis than `tickCount`, also of given values
    few = {} if len(ticks) > 1 else {"values": None, "tickCount": 5}
    axis = {"values": ticks, "format": "~r", "tickCount": 10 * TICKS_MAX, **few, **more.pop("axis", {})}
    scale = {"type": "log", "domain": [least, most], "nice": False}
    return quantity(field, title, scale=scale, axis=axis, **more)


def whiskers(shared: Spec, across: str, number: Spec, colour: Spec, *, size: int = 9) -> Spec:
    """An interval as a layer: a rule from `lower` to `upper` with a cap at each end, where the row has both.

    `across` is the channel of the number, "x" or "y"; `shared` are the other channels. Where the scale of `number` has
    a `domain` or `domainMax`, an end beyond it has an arrow at the edge in place of the cap.
    """
    scale = number.get("scale", {})
    least, most = scale.get("domain") or (None, scale.get("domainMax"))
    edge = {name: value for name, value in number.items() if name not in ("field", "scale")}
    arrows = [
        layer(
            "point",
            {"shape": f"triangle-{towards[across == 'y']}", "filled": True, "size": 8 * size, "opacity": 1,
             "clip": False},
            only=[{"filter": f"datum.{end} {beyond} {at}"}], **shared, **{across: {**edge, "datum": at}}, **colour,
        )
        for end, beyond, at, towards in (
            ("lower", "<", least, ("left", "down")), ("upper", ">", most, ("right", "up")))
        if at is not None
    ]  # fmt: skip
    span = {across: {**number, "field": "lower"}, f"{across}2": {"field": "upper"}}
    cap = {"thickness": 1.5, "size": size, "clip": True, "orient": "horizontal" if across == "y" else "vertical"}
    caps = (layer("tick", cap, **shared, **{across: {**number, "field": end}}, **colour) for end in ("lower", "upper"))
    return {
        "transform": [{"filter": "isValid(datum.lower) && isValid(datum.upper)"}],
        "layer": [layer("rule", {"strokeWidth": 1.5, "clip": True}, **shared, **span, **colour), *caps, *arrows],
    }


WIDTH = 760
"""Width of a picture in pixels; on a page a figure is as wide as its column."""
PNG_SCALE = 2.0
_SNIPPET = "window.vegaEmbed = vegaEmbed;"


def lacking() -> str:
    """A sentence with the command that installs what draws figures; "" where it is installed."""
    try:
        _converter()
    except NotInstalled as missing:
        return f"Figures are shown as tables: {one_line(missing)}."
    return ""


def _converter() -> Any:
    return loaded("vl_convert", "a picture")  # takes 150 ms; only a report needs it


def svg(figure: Figure) -> str:
    return str(_converter().vegalite_to_svg(_fixed(figure.spec)))


def png(figure: Figure) -> bytes:
    """The figure as a PNG, at twice the resolution of the page."""
    return bytes(_converter().vegalite_to_png(_fixed(figure.spec), scale=PNG_SCALE))


def picture(figure: Figure, kind: Literal["svg", "png"]) -> bytes:
    return svg(figure).encode() if kind == "svg" else png(figure)


def javascript() -> str:
    """The script that makes `window.vegaEmbed`; safe inside a `<script>` element. Without a cache the next report only
    takes longer."""
    kept: Path | None = None
    with suppress(OSError, UnicodeDecodeError, RuntimeError):  # the last for a user without an account and without HOME
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        kept = Path(home, "proveout", f"vega-{metadata.version('vl-convert-python')}.js")
        return kept.read_text(encoding="utf-8")
    made = str(_converter().javascript_bundle(_SNIPPET)).replace("</script", "<\\/script").replace("<!--", "<\\!--")
    if kept is not None:
        with suppress(OSError):
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_whole(kept, made)
    return made


def _fixed(spec: Spec) -> Spec:
    """The same chart with a fixed width, for a picture without a page; panels have one."""
    return spec if "concat" in spec else {**spec, "width": WIDTH}

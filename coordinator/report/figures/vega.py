"""Render figures as pictures, and provide the libraries that draw them in a browser: from vl-convert, without a
network.

Data flow: a `Figure`'s Vega-Lite -> SVG or PNG (Vega runs inside vl-convert); `javascript()` -> Vega, Vega-Lite and
Vega-Embed as one script for the report. The script takes seconds to build and is the same for a version of vl-convert,
so it is cached in the user's cache directory.
"""

from __future__ import annotations

import copy
import os
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from proveout.coordinator.report.figures.figure import Figure, Spec
from proveout.core.errors import NotInstalled, loaded, one_line

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
    """The script that makes `window.vegaEmbed`; safe inside a `<script>` element."""
    kept = cache_directory() / f"vega-{metadata.version('vl-convert-python')}.js"
    try:
        return kept.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        made = str(_converter().javascript_bundle(_SNIPPET)).replace("</script", "<\\/script").replace("<!--", "<\\!--")
    _keep(kept, made)
    return made


def cache_directory() -> Path:
    """`$XDG_CACHE_HOME/proveout`, by default below `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "proveout"


def _keep(path: Path, text: str) -> None:
    """Write the cache; without it the next report only takes longer."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError:
        return


def _fixed(spec: Spec) -> Spec:
    """The same chart with a fixed width, for a picture without a page; panels have one."""
    if "concat" in spec:
        return copy.deepcopy(spec)
    return {**copy.deepcopy(spec), "width": WIDTH, "autosize": {"type": "fit-x", "contains": "padding"}}

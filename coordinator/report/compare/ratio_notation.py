"""The one notation of a ratio of two runs, `1.18 × (1.12 … 1.25)`, and the sign and words of its direction. Pure.

Data flow: an estimate of other / reference -> text of tables, tiles, figures and sentences; a `Row` -> `▲ better`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proveout.coordinator.compare.comparison import Direction, Row
from proveout.coordinator.report.document import Tone
from proveout.core.numbers import notation, percent

FAR = 20.0
"""An end of an interval this many times away from its ratio is of no use; it is shown as an arrow."""

DIRECTIONS: Mapping[Direction, tuple[str, str, Tone]] = {
    "better": ("▲", "better", "good"),
    "worse": ("▼", "worse", "bad"),
    "changed": ("≠", "changed", "warn"),
    "same": ("≈", "equal", ""),
    "none": ("=", "not distinguishable", ""),
    "unknown": ("…", "not judged", "dim"),
    "offered": ("…", "not judged", "dim"),
}
"""The sign, the words and the colour of each direction."""


def ratio_text(ratio: Mapping[str, Any]) -> str:
    """`1.18 ×`; `-` for none."""
    mean = ratio.get("mean")
    return "-" if mean is None else f"{notation('', ratio).text(mean)} ×"


def interval_text(ratio: Mapping[str, Any]) -> str:
    """`(1.12 … 1.25)`, `(1.12 … →)` for an end that is too far away, `(1.12 or more)`; "" without both ends."""
    mean, lower, upper = (ratio.get(name) for name in ("mean", "lower", "upper"))
    if mean is None or (lower is None and upper is None):
        return ""
    same = notation("", ratio)
    if lower is None or upper is None:
        return f"({same.bounds(lower, upper)})"
    return f"({'←' if lower < mean / FAR else same.text(lower)} … {'→' if upper > mean * FAR else same.text(upper)})"


def ratio_in_words(ratio: Mapping[str, Any]) -> str:
    """`1.18 × (1.12 … 1.25)`, without an interval `1.18 ×`."""
    return f"{ratio_text(ratio)} {interval_text(ratio)}".rstrip()


def outcome(row: Row, other: str) -> str:
    """`▲ better`, `≈ equal within 5 %`, `… not judged (1 repeat)`; `other` is the short name of the run."""
    sign, words, _ = DIRECTIONS[row.direction]
    if row.direction == "same":
        return f"{sign} {words} within {percent(row.band)}"
    reason = row.reason(other)
    return f"{sign} {words}{f' ({reason})' if reason else ''}"

"""Text for screens: numbers short enough for a column, and words from outside that can neither act on the terminal nor be markup.

Pure. Whatever is shown goes through `rich.text.Text`, never through markup; `safe` shows control characters as `\\x1b`.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping

_TIMES = ((1e6, "s"), (1e3, "ms"))
_BYTES = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"))
_T95 = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""Student's t, two-sided 95 %, for 1 … 15 degrees of freedom."""


def terminal_colours(environment: Mapping[str, str]) -> bool | None:
    """For Textual's `ansi_color`: with NO_COLOR the terminal's own colours and no others, else what the theme says.

    Textual would turn its colours into greys, some of which are as dark as what is behind them.
    """
    return True if "NO_COLOR" in environment else None


def safe(text: str) -> str:
    """One line; control characters, bidirectional overrides and the like are shown as escapes."""
    return "".join(
        c if unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"} else _shown(c) for c in text
    )


def _shown(character: str) -> str:
    return "\\n" if character == "\n" else character.encode("unicode_escape", "replace").decode()


def number(value: float | None) -> str:
    """12,340; 12.3; 0.012; `-` when there is none."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100.0 or value == 0.0 else f"{value:.3g}"


def latency(value_us: float | None) -> str:
    """A time given in µs, with 3 digits and the unit that fits."""
    if value_us is None or not math.isfinite(value_us):
        return "-"
    factor, unit = next(((f, u) for f, u in _TIMES if abs(value_us) >= f), (1.0, "µs"))
    value = value_us / factor
    return f"{value:.{0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2}f} {unit}"


def size(value: float | None) -> str:
    """Bytes in the unit that fits."""
    if value is None or not math.isfinite(value):
        return "-"
    factor, unit = next(((f, u) for f, u in _BYTES if abs(value) >= f), (1.0, "B"))
    return f"{value / factor:.3g} {unit}"


def sizes(one: float | None, other: float | None) -> str:
    """Two numbers of bytes side by side, short: `977K / 47.7M`."""
    return " / ".join(size(value).removesuffix("iB").replace(" ", "") for value in (one, other))


def percent(fraction: float | None) -> str:
    """0.123 -> 12.3 %."""
    return "-" if fraction is None or not math.isfinite(fraction) else f"{fraction * 100.0:.1f} %"


def clock(duration_s: float) -> str:
    """1:05, 1:02:05."""
    whole = max(int(duration_s), 0)
    if whole >= 3600:
        return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"
    return f"{whole // 60}:{whole % 60:02d}"


def bar(share: float, width: int) -> str:
    """A bar of `width` cells that is readable without colour."""
    full = round(min(max(share, 0.0), 1.0) * width)
    return "█" * full + "░" * (width - full)


def mean_and_half(values: list[float]) -> tuple[float, float | None]:
    """Mean and half of its 95 % interval over repeats (Student's t); no interval from one repeat."""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, None
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    degrees = len(values) - 1
    quantile = _T95[degrees - 1] if degrees <= len(_T95) else 1.96 + 2.4 / degrees
    return mean, quantile * spread / math.sqrt(len(values))

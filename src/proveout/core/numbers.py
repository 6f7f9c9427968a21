"""Format numbers, times, rates, sizes and intervals for people, and make text from outside harmless. Pure.

Every surface uses these functions: terminal, TUI, HTML, Markdown, log, evidence. A number has at most 4 significant
digits and the unit that fits; a number that is not there, or not finite, is `-`.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

_SIZES = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"))


def number(value: float | None) -> str:
    """4 significant digits, thousands with thin separators: 12,340; 0.0123; 1.235; `-` when there is none."""
    if value is None or not math.isfinite(value):
        return "-"
    if value == 0.0:
        return "0"
    size = abs(value)
    if size >= 1000:
        return f"{float(f'{value:.4g}'):,.0f}"
    if size >= 1e-4:
        decimals = max(3 - math.floor(math.log10(size)), 0)
        return f"{value:.{decimals}f}".rstrip("0").rstrip(".")
    return f"{value:.3g}"


def short(value: float | None) -> str:
    """At most 6 characters for narrow columns: 3 digits, thousands as k."""
    if value is None or not math.isfinite(value):
        return "-"
    if abs(value) >= 99_950:
        return f"{value / 1e3:,.0f}k"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 0.001 or value == 0.0 else "<.001"


def microseconds(value: float | None) -> str:
    """A latency, given in µs, in µs, ms or s, with 3 digits."""
    if value is None or not math.isfinite(value):
        return "-"
    for factor, unit in ((1e6, "s"), (1e3, "ms")):
        if abs(value) >= factor:
            return f"{_three(value / factor)} {unit}"
    return f"{_three(value)} µs"


def _three(value: float) -> str:
    decimals = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:.{decimals}f}"


def percent(fraction: float | None) -> str:
    """A fraction as 12.3 %."""
    if fraction is None or not math.isfinite(fraction):
        return "-"
    return f"{number(float(f'{fraction * 100:.3g}'))} %"


def seconds(value: float | None) -> str:
    """A duration: 0.42 s, 12 s, 2 min 05 s, 1 h 02 min."""
    if value is None or not math.isfinite(value):
        return "-"
    if value < 10:
        return f"{value:.2g} s"
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def clock(duration_s: float) -> str:
    """Elapsed time to the second: 1:05, 1:02:05."""
    whole = max(int(duration_s), 0)
    if whole >= 3600:
        return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"
    return f"{whole // 60}:{whole % 60:02d}"


def size(value: float | None) -> str:
    """Bytes with 3 digits in the unit that fits: 47.7 MiB."""
    if value is None or not math.isfinite(value):
        return "-"
    factor, unit = next(((f, u) for f, u in _SIZES if abs(value) >= f), (1.0, "B"))
    return f"{value / factor:.3g} {unit}"


def quantity(value: float | None, name: str) -> str:
    """A number with the unit that its metric's name ends in (`avg_us`, `busy_fraction`, `max_bytes`, `drain_s` …)."""
    if name.endswith("_us"):
        return microseconds(value)
    if name in ("fraction", "change") or name.endswith("_fraction"):
        return percent(value)
    whole = f"_{name}"  # an exporter's counter has a bare `per_s`
    if name.endswith("_s") and not whole.endswith("_per_s") and value is not None and 0.0 < abs(value) < 1.0:
        return microseconds(value * 1e6)
    for ending, unit in (("_bytes_per_s", "B/s"), ("_per_s", "/s"), ("_bytes", "B"), ("_ms", "ms"), ("_s", "s")):
        if whole.endswith(ending):
            return f"{number(value)}{unit}" if unit == "/s" else f"{number(value)} {unit}"
    return f"{number(value)}/s" if name in ("tps", "rate") else number(value)


def interval(estimate: Mapping[str, Any], name: str = "") -> str:
    """An estimate in words: `1,234/s (95 % CI 1,200/s … 1,270/s, n = 3)`; says so when there is no interval."""
    mean = quantity(estimate.get("mean"), name)
    lower, upper, repeats = estimate.get("lower"), estimate.get("upper"), round(float(estimate.get("n", 0)))
    if lower is None or upper is None:
        return f"{mean} (no interval, n = {repeats})"
    how = ", bootstrap over seconds" if estimate.get("method") == "bootstrap" else ""
    return f"{mean} ({level(estimate)} CI {quantity(lower, name)} … {quantity(upper, name)}, n = {repeats}{how})"


def bounds(lower: float | None, upper: float | None, form: Callable[[float], str] = number) -> str:
    """The ends of an interval: `1,200 … 1,270`; `-` when one is missing."""
    return "-" if lower is None or upper is None else f"{form(lower)} … {form(upper)}"


def level(estimate: Mapping[str, Any]) -> str:
    """The confidence of an estimate's interval: 95 %, or 99.4 % where repeats are bought until a verdict is decided."""
    return percent(float(estimate.get("confidence", 0.95)))


def rung_name(kind: str, count: int) -> str:
    """A rung of a stage of this kind: `4 threads`, of a tool `I/O depth 4`."""
    return f"I/O depth {count}" if kind == "tool" else threads(count)


def rate_unit(kind: str) -> str:
    """The throughput unit of a stage of this kind: TPS, of a tool IOPS."""
    return "IOPS" if kind == "tool" else "TPS"


def search_answer(rate: float | None, upper: float | None, outcome: str) -> str:
    """The answer of a search with its interval: `9,000/s (9,000 … 9,400/s)`, `no rate`, `undecided`."""
    if rate is None:
        return "undecided" if outcome == "undecided" else "no rate"
    return f"{number(rate)}/s ({number(rate)} … {'not known' if upper is None else f'{number(upper)}/s'})"


def threads(count: int) -> str:
    """1 thread, 4 threads."""
    return f"{count} thread{'s' if count != 1 else ''}"


def counted(repeats: int, excluded: int) -> str:
    """How many repeats an estimate is made of: `3`, `2 (1 invalid)`."""
    return f"{repeats} ({excluded} invalid)" if excluded else f"{repeats}"


def pieces(evidence: str) -> list[str]:
    """Split evidence at its semicolons, except those inside parentheses."""
    found, depth = [""], 0
    for part in re.split(r"([()]|; )", evidence):
        depth += (part == "(") - (part == ")")
        if part == "; " and depth <= 0:
            found.append("")
        else:
            found[-1] += part
    return found


def safe(text: str) -> str:
    """Text from outside (host names, a database's messages) as one line that cannot act on a terminal.

    Control characters (ANSI escapes, newlines) and bidirectional overrides become escapes such as `\\x1b`; the rest
    stays as it is.
    """
    return "".join(character if _is_harmless(character) else _escaped(character) for character in text)


def safe_lines(text: str) -> str:
    """As `safe`, but newlines stay."""
    return "\n".join(map(safe, text.split("\n")))


def _is_harmless(character: str) -> bool:
    return unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


def _escaped(character: str) -> str:
    return {"\n": "\\n", "\t": " ", "\r": "\\r"}.get(character, character.encode("unicode_escape", "replace").decode())

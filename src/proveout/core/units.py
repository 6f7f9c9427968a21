"""Typed scalars of the plan language: durations, sizes, rates, percentages. Text -> number in the base unit, and back.

`90s 2m 1h30m 500ms` are seconds; `8k 1MiB 15GB` are bytes (`k` and `KiB` are 1024, `kB` is 1000); `220_000/s` is per
second; `5%` is a fraction. A bare number is refused: `10` could be anything. Each parser raises ValueError with what it
expected.
"""

from __future__ import annotations

import re

DAY_S = 86_400.0

_NUMBER = r"\d[\d_]*(?:\.\d+)?"
_DURATION_UNITS = {"d": DAY_S, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
_DURATION_PART = re.compile(rf"({_NUMBER})(ms|us|[dhms])")
_DURATION = re.compile(rf"(?:{_NUMBER}(?:ms|us|[dhms]))+")
_SIZE = re.compile(rf"({_NUMBER})\s?([A-Za-z]+)")
_RATE = re.compile(rf"({_NUMBER})/(s|m|h)")
_PERCENTAGE = re.compile(rf"({_NUMBER})%")
_SIZE_UNITS: dict[str, int] = {"b": 1} | {
    name: int(factor**power)
    for power, letter in enumerate("kmgt", 1)
    for name, factor in ((letter, 1024), (f"{letter}ib", 1024), (f"{letter}b", 1000))
}

DURATION_PATTERN = rf"^{_DURATION.pattern}$"
SIZE_PATTERN = rf"^{_NUMBER}\s?([kKmMgGtT]([iI]?[bB])?|[bB])$"
RATE_PATTERN = rf"^{_NUMBER}/[smh]$"
PERCENTAGE_PATTERN = rf"^{_NUMBER}%$"


def duration_s(text: object) -> float:
    """Seconds of `1h30m`; the units come in falling order, each once."""
    wrong = ValueError(f"expected a duration such as 10s, 500ms or 1h30m, not {_shown(text)}{_unit_hint(text, 's')}")
    if not isinstance(text, str) or not _DURATION.fullmatch(text):
        raise wrong
    parts = [(float(number.replace("_", "")), _DURATION_UNITS[unit]) for number, unit in _DURATION_PART.findall(text)]
    factors = [factor for _, factor in parts]
    if factors != sorted(set(factors), reverse=True):
        raise wrong
    return sum(number * factor for number, factor in parts)


def size_bytes(text: object) -> int:
    """Bytes of `8k`, `1MiB`, `15GB`."""
    match = _SIZE.fullmatch(text) if isinstance(text, str) else None
    factor = _SIZE_UNITS.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ValueError(f"expected a size such as 8k, 1MiB or 15GB, not {_shown(text)}{_unit_hint(text, 'MiB')}")
    return round(float(match[1].replace("_", "")) * factor)


def rate_per_s(text: object) -> float:
    """Transactions a second of `220_000/s` (or `/m`, `/h`)."""
    match = _RATE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"expected a rate such as 500/s, not {_shown(text)}{_unit_hint(text, '/s')}")
    return float(match[1].replace("_", "")) / _DURATION_UNITS[match[2]]


def fraction(text: object) -> float:
    """The fraction that `5%` is."""
    match = _PERCENTAGE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"expected a percentage such as 5%, not {_shown(text)}{_unit_hint(text, '%')}")
    return float(match[1].replace("_", "")) / 100.0


def format_duration(seconds: float) -> str:
    """Seconds as people say them: `350ms`, `7.5s`, `2m 5s`, `1h 30m`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.3g}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (rest, "s")]
    return " ".join([f"{number}{unit}" for number, unit in parts if number][:2])


def format_size(size_bytes: int) -> str:
    """Bytes in the largest unit that says them exactly: `8k`, `1MiB`, `5GB`."""
    for power, letter in ((4, "T"), (3, "G"), (2, "M")):
        for factor, unit in ((1024, f"{letter}iB"), (1000, f"{letter}B")):
            if size_bytes and size_bytes % factor**power == 0:
                return f"{size_bytes // factor**power}{unit}"
    return f"{size_bytes // 1024}k" if size_bytes and size_bytes % 1024 == 0 else f"{size_bytes}b"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "a list"
    return "a mapping" if isinstance(value, dict) else "nothing" if value is None else str(value)


def _unit_hint(value: object, unit: str) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"; did you mean {value}{unit}?"
    return ""

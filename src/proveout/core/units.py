"""Typed scalars of the plan language: durations, sizes, rates, percentages. Text -> number in the base unit, and back.

`90s 2m 1h30m 500ms` are seconds; `8k 1MiB 15GB` are bytes (`k` and `KiB` are 1024, `kB` is 1000); `220_000/s` is per
second; `5%` is a fraction. A bare number is refused: `10` could be anything. Each parser raises ValueError with what it
expected.
"""

from __future__ import annotations

import re
from collections.abc import Callable

DAY_S = 86_400.0

_NUMBER = r"\d[\d_]*(?:\.\d+)?"
_DURATION_UNITS = {"d": DAY_S, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
_DURATION = re.compile("(?=.)" + "".join(rf"(?:({_NUMBER}){unit})?" for unit in _DURATION_UNITS), re.ASCII)
_SIZE = re.compile(rf"({_NUMBER})\s?([kmgt](?:i?b)?|b)", re.ASCII | re.IGNORECASE)
_RATE = re.compile(rf"({_NUMBER})/(s|m|h)", re.ASCII)
_PERCENTAGE = re.compile(rf"({_NUMBER})%", re.ASCII)
_SIZE_UNITS: dict[str, int] = {"b": 1} | {
    name: int(factor**power)
    for power, letter in enumerate("kmgt", 1)
    for name, factor in ((letter, 1024), (f"{letter}ib", 1024), (f"{letter}b", 1000))
}

DURATION_PATTERN = rf"^(?:{_NUMBER}(?:ms|us|[dhms]))+$"
SIZE_PATTERN = rf"^{_NUMBER}\s?([kKmMgGtT]([iI]?[bB])?|[bB])$"
RATE_PATTERN = rf"^{_NUMBER}/[smh]$"
PERCENTAGE_PATTERN = rf"^{_NUMBER}%$"


def duration_s(text: object) -> float:
    """Seconds of `1h30m`; the units come in falling order, each once."""
    numbers = _matched(_DURATION, text, "a duration such as 10s, 500ms or 1h30m", "s").groups("0")
    return sum(_number(one, factor) for one, factor in zip(numbers, _DURATION_UNITS.values(), strict=True))


def size_bytes(text: object) -> int:
    """Bytes of `8k`, `1MiB`, `15GB`."""
    match = _matched(_SIZE, text, "a size such as 8k, 1MiB or 15GB", "MiB")
    return round(_number(match[1], _SIZE_UNITS[match[2].lower()]))


def rate_per_s(text: object) -> float:
    """Transactions a second of `220_000/s` (or `/m`, `/h`)."""
    match = _matched(_RATE, text, "a rate such as 500/s", "/s")
    return _number(match[1]) / _DURATION_UNITS[match[2]]


def fraction(text: object) -> float:
    """The fraction that `5%` is."""
    return _number(_matched(_PERCENTAGE, text, "a percentage such as 5%", "%")[1]) / 100.0


def _matched(pattern: re.Pattern[str], text: object, expected: str, unit: str) -> re.Match[str]:
    match = pattern.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"expected {expected}, not {shown(text)}{_unit_hint(text, unit)}")
    return match


def _number(text: str, factor: float = 1.0) -> float:
    number = float(text.replace("_", "")) * factor
    if number == float("inf"):
        raise ValueError(f"a number of {len(text)} digits is beyond all that can be")
    return number


def format_duration(seconds: float) -> str:
    """Seconds as people say them: `350ms`, `7.5s`, `2m 5s`, `1h 30m`."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g}ms" if seconds < 0.01 else f"{seconds * 1000:.0f}ms"
    if seconds < 59.95:
        return f"{seconds:.3g}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (rest, "s")]
    return " ".join([f"{number}{unit}" for number, unit in parts if number][:2])


def written_duration(seconds: float) -> str:
    """Seconds as a plan writes them, to the microsecond: `350ms`, `7.5s`, `1m30s`.

    >>> written_duration(0.25), written_duration(31.92), written_duration(90.5), written_duration(7200.0)
    ('250ms', '31.92s', '1m30.5s', '2h')
    """
    if seconds < 1.0:
        return f"{_decimal(seconds * 1e3)}ms" if seconds > 0.0 else "0s"
    minutes, rest = divmod(round(seconds, 6), 60)
    hours, minutes = divmod(int(minutes), 60)
    days, hours = divmod(hours, 24)
    parts = ((str(days), "d"), (str(hours), "h"), (str(minutes), "m"), (_decimal(rest), "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number != "0")


def _decimal(number: float) -> str:
    return f"{number:.6f}".rstrip("0").rstrip(".")


def length(seconds: float) -> str:
    """A length of time that may be none: `0s`, `1m 30s`."""
    return "0s" if seconds <= 0.0 else format_duration(seconds)


def format_rate(per_s: float) -> str:
    """A rate of a plan: `0.5/s`, `1,234,567/s`."""
    return f"{per_s:,.6g}/s" if per_s < 1e6 else f"{per_s:,.0f}/s"


def format_size(size_bytes: int) -> str:
    """Bytes in the largest unit that says them exactly: `8k`, `1MiB`, `5GB`."""
    for power, letter in ((4, "T"), (3, "G"), (2, "M")):
        for factor, unit in ((1024, f"{letter}iB"), (1000, f"{letter}B")):
            if size_bytes and size_bytes % factor**power == 0:
                return f"{size_bytes // factor**power}{unit}"
    return f"{size_bytes // 1024}k" if size_bytes and size_bytes % 1024 == 0 else f"{size_bytes}b"


def shown(value: object) -> str:
    """A value of another type in a message."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "a list"
    return "a mapping" if isinstance(value, dict) else "nothing" if value is None else str(value)


_WORDS = {
    "s": "s sec secs second seconds",
    "ms": "ms msec msecs millis millisecond milliseconds",
    "us": "us usec usecs µs μs micros microsecond microseconds",
    "m": "m min mins minute minutes",
    "h": "h hr hrs hour hours",
    "d": "d day days",
}
_UNIT_OF = {word: unit for unit, words in _WORDS.items() for word in words.split()}
_LOOSE_NUMBER = r"\d[\d_,']*(?:\.\d+)?"
_LOOSE_PART = re.compile(rf"\s*({_LOOSE_NUMBER})\s*([A-Za-zµμ]+)\s*(?:,|and\b)?")
_LOOSE_RATE = re.compile(rf"({_LOOSE_NUMBER})\s*(k|m(?!in))?\s*(?:[a-z]+)?\s*(?:(?:/|per)\s*([a-z]+))?")
_LOOSE_SIZE = re.compile(rf"({_LOOSE_NUMBER})\s*([kmgt])(?:i?b|ilobytes?|egabytes?|igabytes?|erabytes?)?")


def plain_number(text: str) -> str:
    """A number with its thousands grouped as plans group them: `1,000` -> `1_000`; a decimal comma becomes a point.

    >>> plain_number("12,500"), plain_number("1,4"), plain_number("3.5")
    ('12_500', '1.4', '3.5')
    """
    if re.fullmatch(r"\d{1,3}(?:[,'_]\d{3})+(?:\.\d+)?", text):
        return re.sub("[,']", "_", text)
    return text.replace(",", ".") if re.fullmatch(r"\d+,\d+", text) else text


def _meant_duration(text: str) -> str:
    parts, at = [], 0
    while match := _LOOSE_PART.match(text, at):
        unit = _UNIT_OF.get(match[2]) or _UNIT_OF.get(match[2].lower())
        if unit is None:
            return ""
        parts.append(f"{plain_number(match[1])}{unit}")
        at = match.end()
    whole = "".join(parts)
    return whole if at == len(text) and _DURATION.fullmatch(whole) else ""


def _meant_rate(text: str) -> str:
    match = _LOOSE_RATE.fullmatch(text.lower())
    if match is None:
        return ""
    unit = _UNIT_OF.get(match[3] or "s", "")
    number = plain_number(match[1])
    if match[2] and not set(",'") & set(number):
        number = f"{round(float(number.replace('_', '')) * {'k': 1_000, 'm': 1_000_000}[match[2]]):_}"
    return f"{number}/{unit}" if unit in ("s", "m", "h") else ""


def _meant_size(text: str) -> str:
    match = _LOOSE_SIZE.fullmatch(text.lower())
    if match is None:
        return ""
    return f"{plain_number(match[1])}{match[2].upper()}{'B' if text.lower().endswith('b') else 'iB'}"


def _meant_percentage(text: str) -> str:
    match = re.fullmatch(rf"({_LOOSE_NUMBER})\s*(?:%|percent|per cent)", text.lower())
    return f"{plain_number(match[1])}%" if match else ""


_MEANT: dict[str, Callable[[str], str]] = {
    "s": _meant_duration, "MiB": _meant_size, "/s": _meant_rate, "%": _meant_percentage
}  # fmt: skip


def _unit_hint(value: object, unit: str) -> str:
    """The likely meaning of a value without a known unit; "" when none is likely."""
    if isinstance(value, bool):
        return ""
    if isinstance(value, (int, float)):
        is_fraction = unit == "%" and isinstance(value, float) and 0 < value < 1
        number = f"{value * 100:.6g}" if is_fraction else str(value)
        return f"; did you mean {_with_unit(number, unit)}?" if re.fullmatch(_NUMBER, number) else ""
    if not isinstance(value, str) or len(text := value.strip()) > _MEANT_LENGTH_MAX:
        return ""
    meant = _MEANT[unit](text)
    if not meant and re.fullmatch(_LOOSE_NUMBER, text):
        meant = _with_unit(plain_number(text), unit)
    readable = meant and meant != value and not set(",'") & set(meant)
    return f"; did you mean {meant}?" if readable else ""


_MEANT_LENGTH_MAX = 60
"""Characters of a value above which nothing is likely: the patterns take a time that grows with a power of them."""
_BYTES_MEANT = 512
"""From this number on, a size without a unit is likely in bytes."""


def _with_unit(number: str, unit: str) -> str:
    """A number with the unit that is likely."""
    whole = number.replace("_", "")
    if unit == "MiB" and whole.isdecimal() and int(whole) >= _BYTES_MEANT:
        return format_size(int(whole))
    return f"{number}{unit}"

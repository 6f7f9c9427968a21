"""Notations of other languages in an expression: `=`, `and`, `4ms`, `100/s`, `1,000` -> what CEL has in their place.

Data flow: characters that begin no word (`of_character`) and the words of a text (`first_of`) -> a `Mistake` with the
characters to put in its place, so that the checker tells it and goes on with the rest of the expression.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from proveout.core.data_classes import dataclass
from proveout.core.units import plain_number


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A word of the text: `kind` is number, name, string, operator or end."""

    kind: str
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A wrong notation, the characters `start` … `end`, and the text in its place; None where it is not certain."""

    start: int
    end: int
    message: str
    hint: str
    meant: str | None


_OPERATORS = {"and": "&&", "or": "||", "not": "!", "is": "=="}
_CHARACTERS = {
    "≥": ">=", "≤": "<=", "≠": "!=", "×": "*", "÷": "/", "−": "-", "–": "-", "“": '"', "”": '"', "‘": "'", "’": "'",
    "&": "&&", "|": "||",
}  # fmt: skip
_EQUALS = (("===", "=="), ("=>", ">="), ("=<", "<="), ("=", "=="))
_PER = {"s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hour": 3600}
_US = {
    "us": 1, "µs": 1, "usec": 1, "ms": 1_000, "msec": 1_000, "s": 1_000_000, "sec": 1_000_000, "second": 1_000_000,
    "seconds": 1_000_000, "m": 60_000_000, "min": 60_000_000, "minutes": 60_000_000, "h": 3_600_000_000,
}  # fmt: skip
_METRIC_UNITS = {"_us": 1, "_ms": 1_000, "_s": 1_000_000}
_SCALES = {
    "k": 1_000, "K": 1_000, "M": 1_000_000, "kB": 1_000, "KB": 1_000, "MB": 10**6, "GB": 10**9,
    "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "G": 10**9,
}  # fmt: skip
_COUNTED = frozenset({"tps", "qps", "rps", "ops", "iops", "rows", "tx", "TPS", "QPS", "IOPS"})


def of_character(text: str, offset: int) -> Mistake | None:
    """The mistake at a character that begins no word; None when nothing is likely."""
    for written, meant in _EQUALS:
        if text.startswith(written, offset):
            message = f"`{written}` does not compare" if written == "=" else f"`{written}` is not an operator"
            return _swap(offset, offset + len(written), message, meant)
    sign = text[offset : offset + 1]
    if sign == "%":
        hint = "a percentage is written without a space: 5%; there is no remainder"
        return Mistake(start=offset, end=offset + 1, message="`%` is not an operator", hint=hint, meant=None)
    if text.startswith("${", offset):
        hint = "this is an expression already: write it without ${ }"
        return Mistake(start=offset, end=offset + 2, message="`${` cannot be used here", hint=hint, meant=None)
    if sign in _CHARACTERS:
        return _swap(offset, offset + 1, f"`{sign}` is not used in expressions", _CHARACTERS[sign])
    return None


def first_of(words: Sequence[Token], text: str) -> Mistake | None:
    """The first word that another language would have; None when there is none. `words` end with an `end`."""
    calls: list[bool] = []
    for index, word in enumerate(words[:-1]):
        before, after = words[index - 1] if index else words[-1], words[index + 1]
        if word.text == "(":
            calls.append(before.kind == "name" and before.text.lower() not in _OPERATORS)
        elif word.text == ")" and calls:
            calls.pop()
        found = _name(before, word, after) if word.kind == "name" else _sign(words, index, text, any(calls))
        if found is None and word.kind == "number" and after.kind == "name":
            found = _unit(word, after, text)
        if found is not None:
            return found
    return None


def _swap(start: int, end: int, message: str, meant: str) -> Mistake:
    return Mistake(start=start, end=end, message=message, hint=f"write {meant}", meant=meant)


def _name(before: Token, word: Token, after: Token) -> Mistake | None:
    """An operator that is written as a word. A stage may have the same name: `or.at(4)`."""
    lower = word.text.lower()
    if before.text == "." or after.text == ".":
        return None
    if lower == "between":
        hint = "two comparisons joined with &&: x >= 1 && x <= 9"
        return Mistake(start=word.start, end=word.end, message="`between` is not an operator", hint=hint, meant=None)
    if lower not in _OPERATORS or (lower != "not" and before.kind == "end"):
        return None
    return _swap(word.start, word.end, f"`{word.text}` is not an operator", _OPERATORS[lower])


def _sign(words: Sequence[Token], index: int, text: str, in_call: bool) -> Mistake | None:
    """`<>`, `100/s` and `1,000`."""
    word, after = words[index], words[index + 1]
    before, second = words[index - 1] if index else words[-1], words[min(index + 2, len(words) - 1)]
    if word.text == "<" and after.text == ">" and after.start == word.end:
        return _swap(word.start, after.end, "`<>` is not an operator", "!=")
    if before.kind != "number":
        return None
    number = before.text
    if word.text == "/" and after.text in _PER and second.text not in (".", "("):
        per = _PER[after.text]
        meant = number if per == 1 else f"{number} / {per}"
        message = f"`{text[before.start : after.end]}` is not a number: rates are per second, without a unit"
        return _swap(before.start, after.end, message, meant)
    digits = after.kind == "number" and word.start == before.end and after.start == word.end
    if word.text == "," and digits and not in_call:
        written = text[before.start : after.end]
        return _swap(before.start, after.end, f"`{written}` is not a number", plain_number(written))
    return None


def _unit(number: Token, unit: Token, text: str) -> Mistake | None:
    """`4ms`, `1000 tps`, `2GB`: a number with a unit."""
    written = text[number.start : unit.end]
    message = f"`{written}` is not a number: the name of a metric says its unit"
    name = unit.text
    value = float(number.text.replace("_", "").rstrip("%"))
    if name in _US:
        return _swap(number.start, unit.end, message, _time(number.text, value, name, text[: number.start]))
    if name in _SCALES:
        return _swap(number.start, unit.end, message, f"{round(value * _SCALES[name]):_}")
    if name in _COUNTED:
        return _swap(number.start, unit.end, message, number.text)
    return None


def _time(number: str, value: float, unit: str, before: str) -> str:
    """A time in the unit of the metric on its left; without one in microseconds, as of response times."""
    named = re.findall(r"_(?:us|ms|s)\b", before)
    scale = _METRIC_UNITS[named[-1]] if named else 1
    function = {1: "us", 1_000: "ms", 1_000_000: "s"}.get(_US[unit])
    if scale == 1 and function is not None:
        return f"{function}({number})"
    return f"{value * _US[unit] / scale:.12g}"

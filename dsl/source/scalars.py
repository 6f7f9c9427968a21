"""Plain YAML scalars -> values, and the YAML 1.1 readings that surprise people, each with the error that explains it.

Only `true`, `false`, `null`, decimal ints (`20_000`) and decimal fractions are anything but text. What YAML 1.1 would
turn into something else than it looks like (`no`, `22:22`, `0644`, `1e3`, a date …) is refused: quietly reading it as
text would be as surprising as YAML's own reading.
"""

from __future__ import annotations

import re
import unicodedata

DIGITS_MAX = 18
NULL = "null"
"""Drops an entry of a plan that is extended (`inheritance`); anywhere else it is a problem."""

_INT = re.compile(r"[-+]?(0|[1-9]\d*(_\d+)*)")
_FLOAT = re.compile(r"[-+]?(0|[1-9]\d*(_\d+)*)\.\d+")

_SURPRISES: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (
        re.compile(r"yes|no|on|off", re.IGNORECASE),
        "`{0}` is a boolean in YAML 1.1 and a word elsewhere",
        'write true or false, or quote it: "{0}"',
    ),
    (re.compile(r"true|false", re.IGNORECASE), "`{0}` is not how a plan writes a boolean", "write true or false"),
    (re.compile(r"~|null", re.IGNORECASE), "`{0}` means null in YAML", 'leave the key out, or quote it: "{0}"'),
    (
        re.compile(r"[-+]?0[\d_]+"),
        "`{0}` has a leading zero, which YAML 1.1 reads as an octal number",
        'write it without the zero, or quote it: "{0}"',
    ),
    (
        re.compile(r"[-+]?\d[\d_]*(:[0-5]?\d)+(\.\d*)?"),
        "`{0}` is a number to the base 60 in YAML 1.1",
        'quote it: "{0}"; durations are written 1h30m',
    ),
    (
        re.compile(r"\d{4}-\d\d?-\d\d?([Tt ].*)?"),
        "`{0}` is a date in YAML 1.1",
        'quote it: "{0}"',
    ),
    (
        re.compile(r"[-+]?(\d[\d_]*\.?\d*|\.\d+)[eE][-+]?\d+"),
        "`{0}` is a number in some YAML readers and text in others",
        "write it out: 1_000 or 0.001",
    ),
    (re.compile(r"[-+]?\.(inf|nan)", re.IGNORECASE), "`{0}` is not a number that a plan can use", ""),
    (re.compile(r"[-+]?0[xXoObB][\da-fA-F_]+"), "`{0}` is not a decimal number", "write it in decimal"),
    (re.compile(r"[-+]?(\.\d+|\d[\d_]*\.)"), "`{0}` lacks a digit beside the point", "write 0.5 or 5.0"),
    (re.compile(r"[-+]?\d[\d_]*_|[-+]?\d+(_+\d+)*_*"), "`{0}` has stray underscores", "write 20_000"),
)

# Direction overrides, isolates and zero-width characters: text that does not read as it compiles.
_INVISIBLE = frozenset("\u061c\u200b\u200c\u200d\u200e\u200f\u2028\u2029\ufeff") | {
    chr(code) for code in (*range(0x202A, 0x202F), *range(0x2060, 0x206A))
}


def read_plain(text: str) -> tuple[str | int | float | bool | None, str, str]:
    """(value, problem, hint) of an unquoted scalar; problem is "" when there is none."""
    if text == "":
        return None, "", ""
    if text in ("true", "false"):
        return text == "true", "", ""
    if _INT.fullmatch(text) or _FLOAT.fullmatch(text):
        if sum(character.isdigit() for character in text) > DIGITS_MAX:
            return text, f"the number has more than {DIGITS_MAX} digits", ""
        digits = text.replace("_", "")
        return (float(digits) if "." in digits else int(digits)), "", ""
    for pattern, problem, hint in _SURPRISES:
        if pattern.fullmatch(text):
            return text, problem.format(text), hint.format(text)
    return text, "", ""


def hidden_character(text: str) -> tuple[int, str] | None:
    """(offset, name) of the first character that a reader could not see or that could mislead a terminal; None if
    fine."""
    for offset, character in enumerate(text):
        if character in "\n\r":
            continue
        if character in _INVISIBLE or unicodedata.category(character) in ("Cc", "Cs", "Co"):
            name = unicodedata.name(character, "control character")
            return offset, f"U+{ord(character):04X} ({name.lower()})"
    return None

"""Mistakes in a file that is not YAML: their place, rather than where the parser noticed them.

Data flow: PyYAML's error (what it expected, the place, the place where the construct began) and the text -> one rule
for each frequent mistake -> position, message, way out, and where it is certain the characters that are missing
(`Repair`), so that the rest of the file can be read. Other errors keep PyYAML's words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import yaml

from proveout.core.data_classes import record

_WORD = re.compile(r"[^\s:,\[\]{}]+")
_KEY_WITHOUT_SPACE = re.compile(r"([A-Za-z_][\w.-]*):([^\s:/].*)")
_SIGNS = "%@`*&!>|"
_CANNOT_START = re.compile(r"found character '(.)' that cannot start any token")


@record
class Repair:
    """Characters that are missing at a place; `line` and `column` count from 0."""

    line: int
    column: int
    text: str

    def applied(self, whole: str) -> str:
        """The text of a file with the missing characters."""
        lines = whole.split("\n")
        line = lines[self.line]
        lines[self.line] = f"{line[: self.column]}{self.text}{line[self.column :]}"
        return "\n".join(lines)


@record
class SyntaxProblem:
    """`line` and `column` count from 1; without a `repair` the rest of the file cannot be read."""

    line: int
    column: int
    message: str
    hint: str = ""
    repair: Repair | None = None


@record
class _Place:
    """The error with its marks; lines and columns count from 0. `begin` is where the construct began."""

    lines: Sequence[str]
    text: str
    context: str
    problem: str
    begin: tuple[int, int]
    at: tuple[int, int]

    def line(self, number: int) -> str:
        return self.lines[number] if 0 <= number < len(self.lines) else ""

    def before(self, number: int) -> int:
        """The last line before `number` that holds more than a comment; -1 when there is none."""
        found = (back for back in range(number - 1, -1, -1) if self.line(back).split("#")[0].strip())
        return next(found, -1)


def explain(error: yaml.MarkedYAMLError, text: str) -> SyntaxProblem:
    """The mistake behind an error of PyYAML's in `text`."""
    mark = error.problem_mark or error.context_mark
    at = (mark.line, mark.column) if mark else (0, 0)
    begin = (error.context_mark.line, error.context_mark.column) if error.context_mark else at
    place = _Place(
        lines=text.split("\n"),
        text=text,
        context=error.context or "",
        problem=error.problem or "",
        begin=begin,
        at=at,
    )
    for rule in _RULES:
        if (found := rule(place)) is not None:
            return found
    return _problem(at, f"not valid YAML: {error.problem}", error.context or "")


def missing_space(key: str) -> tuple[str, str] | None:
    """(key, value) of `kind:hlr`, which YAML reads as one word; None for other words."""
    found = _KEY_WITHOUT_SPACE.fullmatch(key)
    return (found[1], found[2]) if found else None


def _problem(place: tuple[int, int], message: str, hint: str = "", repair: Repair | None = None) -> SyntaxProblem:
    return SyntaxProblem(line=place[0] + 1, column=place[1] + 1, message=message, hint=hint, repair=repair)


def _at_end(place: _Place, number: int, text: str) -> Repair:
    return Repair(line=number, column=len(place.line(number).rstrip()), text=text)


def _open_quote(place: _Place) -> SyntaxProblem | None:
    if place.context != "while scanning a quoted scalar":
        return None
    message, hint = "a quote opens here and is not closed", "close it at the end of the text"
    return _problem(place.begin, message, hint, _closing_quote(place, place.begin))


def _closing_quote(place: _Place, begin: tuple[int, int]) -> Repair | None:
    """The missing quote at the end of its line, where no bracket may be meant to close after it."""
    line = place.line(begin[0])
    return None if set("[{") & set(line[: begin[1]]) else _at_end(place, begin[0], line[begin[1] : begin[1] + 1])


def _quoted_before(place: _Place) -> tuple[tuple[int, int], tuple[int, int], str] | None:
    """(begin, end, style) of the quoted text that ends right before the error; None when there is none."""
    last: tuple[tuple[int, int], tuple[int, int], str] | None = None
    try:
        for token in yaml.scan(place.text, Loader=yaml.SafeLoader):
            if isinstance(token, yaml.ScalarToken) and token.style in ("'", '"'):
                begin, end = token.start_mark, token.end_mark
                if (end.line, end.column) <= place.at:
                    last = ((begin.line, begin.column), (end.line, end.column), token.style)
            if (token.start_mark.line, token.start_mark.column) >= place.at:
                break
    except yaml.YAMLError:
        pass
    if last is None or last[1][0] != place.at[0]:
        return None
    between = place.line(place.at[0])[last[1][1] : place.at[1]]
    return None if between.strip() else last


def _text_after_quote(place: _Place) -> SyntaxProblem | None:
    if not place.problem.endswith(("found '<scalar>'", "got '<scalar>'")):
        return None
    quoted = _quoted_before(place)
    if quoted is None:
        return None
    begin, end, style = quoted
    if begin[0] != end[0]:
        message = f"a quote opens here and closes only in line {end[0] + 1}"
        return _problem(begin, message, "close it in its own line", _closing_quote(place, begin))
    hint = "inside '…' a quote is written twice: ''" if style == "'" else 'inside "…" a quote is written \\"'
    return _problem(place.at, "the quotes are closed before this", f"{hint}; or put all of it into the other quotes")


def _missing_colon(place: _Place) -> SyntaxProblem | None:
    if place.problem != "could not find expected ':'":
        return None
    return _without_space(place, place.begin[0]) or _without_colon(place, place.begin)


def _without_colon(place: _Place, begin: tuple[int, int]) -> SyntaxProblem | None:
    """A line `name t`, from where it begins."""
    rest = place.line(begin[0])[begin[1] :].strip()
    word = _WORD.match(rest)
    if word is None:
        return None
    after = rest[word.end() :].strip()
    shown = f"{word[0]}: {after}" if after else f"{word[0]}:"
    where = (begin[0], begin[1] + word.end())
    repair = Repair(line=where[0], column=where[1], text=":")
    return _problem(where, f"a `:` is missing after `{word[0]}`", shown, repair)


def _without_space(place: _Place, number: int) -> SyntaxProblem | None:
    """A line `kind:hlr`."""
    line = place.line(number)
    bare = line.lstrip(" -")
    split = missing_space(bare.rstrip())
    if split is None:
        return None
    where = (number, len(line) - len(bare) + len(split[0]) + 1)
    repair = Repair(line=where[0], column=where[1], text=" ")
    return _problem(where, f"a space is missing after `{split[0]}:`", f"{split[0]}: {split[1]}", repair)


def _colon_in_text(place: _Place) -> SyntaxProblem | None:
    if place.problem != "mapping values are not allowed here":
        return None
    number, column = place.at
    line = place.line(number)
    key = re.match(r"\s*(?:- )*[\w.-]+: +(?=\S)", line)
    if key is not None and key.end() <= column:
        text = line[key.end() :].strip()
        quote = "'" if '"' in text else '"'
        return _problem((number, column), "a `:` inside a text", f"quote the text: {quote}{text}{quote}")
    before = place.before(number)
    if found := _without_space(place, before):
        return found
    if before >= 0 and ":" not in place.line(before):
        above = place.line(before)
        return _without_colon(place, (before, len(above) - len(above.lstrip(" -"))))
    if before >= 0 and _indent(line) > _indent(place.line(before)):
        return _indentation(place, number)
    return None


_BARE_TEMPLATE = re.compile(r"[:,\[]\s*(\$\{[^{}\"']*\})")


def _template(place: _Place) -> SyntaxProblem | None:
    """`${…}` without quotes inside brackets, where YAML reads its brace as a mapping."""
    inside = place.context.startswith("while parsing a flow ") and ", but got " in place.problem
    for number in sorted({place.begin[0], place.at[0]}) if inside else ():
        found = _BARE_TEMPLATE.search(place.line(number))
        if found is not None and set("[{") & set(place.line(number)[: found.start(1)]):
            message = "`${…}` inside brackets must be quoted"
            return _problem((number, found.start(1)), message, f'quote it: "{found[1]}"')
    return None


_VALUE = re.compile(r"[^,\[\]{}]*(?:(?:\[[^\[\]{}]*\]|\{[^\[\]{}]*\})[^,\[\]{}]*)*")
"""A text with pairs of brackets, up to a comma or a bracket that closes."""


def _flow(place: _Place) -> SyntaxProblem | None:
    """A list or mapping in brackets that goes on without a comma, or is not closed."""
    if not place.context.startswith("while parsing a flow ") or ", but got " not in place.problem:
        return None
    got = place.problem.partition(", but got ")[2].strip("'")
    number, column = place.at
    inside = number == place.begin[0] or _indent(place.line(number)) > _indent(place.line(place.begin[0]))
    line = place.line(number)
    if inside and got == ":":
        before = line[:column].rstrip()
        if word := re.split(r"[\s,\[\]{}]", before)[-1]:
            return _problem((number, len(before) - len(word)), f"a comma is missing before `{word}`")
    if inside and got == "<scalar>":
        found = _WORD.match(line, column)
        return _problem(place.at, f"a comma is missing before `{found[0] if found else line[column:].strip()}`")
    if inside and got in ("[", "{", "?") and (begun := re.split(r"[,\[\]{}]\s*|:\s+", line[:column])[-1].rstrip()):
        start = line.rindex(begun, 0, column)
        value = _VALUE.match(line, start)
        text = value[0].rstrip() if value is not None and value.end() > column else begun + got
        quote = "'" if '"' in text else '"'
        return _problem((number, start), f"`{text}` inside brackets must be quoted", f"quote it: {quote}{text}{quote}")
    opened = place.line(place.begin[0])[place.begin[1] : place.begin[1] + 1]
    closing = {"[": "]", "{": "}"}.get(opened)
    if closing is None:
        return None
    rest = place.line(place.begin[0])[place.begin[1] :]
    filled = number > place.begin[0] and rest[1:].strip()
    alone = filled and len(re.findall(r"[\[{]", rest)) - len(re.findall(r"[\]}]", rest)) == 1
    repair = _at_end(place, place.begin[0], closing) if alone else None
    return _problem(place.begin, f"`{opened}` opens here and is not closed", f"the `{closing}` is missing", repair)


def _block(place: _Place) -> SyntaxProblem | None:
    """A line that fits none of the mappings and lists around it."""
    if not place.problem.startswith("expected <block end>, but found "):
        return None
    got = place.problem.rpartition(" found ")[2].strip("'")
    if got in ("}", "]"):
        return _problem(place.at, f"this `{got}` closes nothing", "remove it")
    if got in ("<block mapping start>", "<block sequence start>"):
        return _indentation(place, place.at[0])
    if got == "-":
        return _problem(place.at, "a list item, where a key should be", "the items of a list stand under its key")
    if got == "?":
        hint = "indent it under the item before it, or begin an item with `- `"
        return _problem(place.at, "a key, where an item of the list should be", hint)
    return None


def _indentation(place: _Place, number: int) -> SyntaxProblem:
    before = place.before(number)
    indent = _indent(place.line(number))
    hint = "keys that belong together begin in one column"
    if before >= 0:
        hint = f"line {before + 1} begins in column {_indent(place.line(before)) + 1}: {hint}"
    return _problem((number, indent), f"this line begins in column {indent + 1}, which fits no line before it", hint)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _sign(place: _Place) -> SyntaxProblem | None:
    """A value that begins with a character that means something to YAML."""
    where = place.at if place.context == "while scanning for the next token" else place.begin
    tagged = re.match(r"\s*(?:- )*[\w.-]+: +(?=!)", place.line(where[0]))
    where = (where[0], tagged.end()) if tagged is not None else where
    sign = place.line(where[0])[where[1] : where[1] + 1]
    started = _CANNOT_START.fullmatch(place.problem) or place.context in (
        "while scanning an alias",
        "while scanning an anchor",
        "while scanning a block scalar",
        "while scanning a tag",
    )
    if not (started and sign and sign in _SIGNS):
        return None
    text = place.line(where[0])[where[1] :].strip().rstrip("}],")
    quote = "'" if '"' in text else '"'
    return _problem(where, f"a value cannot begin with `{sign}`", f"quote it: {quote}{text.strip()}{quote}")


def _escape(place: _Place) -> SyntaxProblem | None:
    if not place.problem.startswith("found unknown escape character"):
        return None
    number, column = place.at
    shown = place.line(number)[max(column - 1, 0) : column + 1]
    where = (number, max(column - 1, 0))
    return _problem(where, f'`{shown}` is not an escape in "…"', r"use '…', in which \ is a plain character")


_RULES: tuple[Callable[[_Place], SyntaxProblem | None], ...] = (
    _open_quote,
    _text_after_quote,
    _missing_colon,
    _colon_in_text,
    _template,
    _flow,
    _block,
    _sign,
    _escape,
)

"""Expression text -> syntax tree: the part of CEL that plans use, with positions, and the notations of other languages.

Data flow: text -> `tokens` -> `parse` -> nodes, each with its position in the text -> `render` back to text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, TypeAlias

from proveout.core.data_classes import record
from proveout.core.errors import ProveoutError
from proveout.core.units import plain_number
from proveout.dsl.plan.scalars import RESERVED


@record
class Token:
    """A word of the text: `kind` is number, name, string, operator or end."""

    kind: str
    text: str
    start: int
    end: int


@record
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
    found = _swap(word.start, word.end, f"`{word.text}` is not an operator", _OPERATORS[lower])
    return replace(found, hint="write !(…) around what it negates") if lower == "not" and after.text != "(" else found


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
    if value == float("inf"):
        return None  # which has a message of its own
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


# Left out of CEL on purpose: macros, list and map literals, `in`, the remainder, null and bytes. Nothing in a result
# needs them.

TEXT_MAX = 4096
DEPTH_MAX = 64
LINKS_MAX = 150
"""The most operators, dots and brackets of one expression: each is a level of the syntax tree."""

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>(?:\d[\d_]*\.\d+|\d[\d_]*)(?:[eE][+-]?\d+)?%?)
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<string>"[^"\\\n]*"|'[^'\\\n]*')
  | (?P<operator>&&|\|\||<=|>=|==|!=|[-+*/<>!?:().,\[\]])
    )""",
    re.VERBOSE,
)

_LEVELS: tuple[tuple[str, ...], ...] = (("||",), ("&&",), ("<", "<=", ">", ">=", "==", "!="), ("+", "-"), ("*", "/"))
COMPARISONS = _LEVELS[2]


class ExpressionFault(ProveoutError):
    """An expression that cannot be used or evaluated: `offset` characters into it, with a `way_out`; a `mistake` where
    it is a notation of another language."""

    exit_code = 2

    def __init__(self, what: str, *, offset: int = 0, way_out: str = "", mistake: Mistake | None = None) -> None:
        self.offset, self.mistake = offset, mistake
        super().__init__(what, way_out=way_out)


@record
class Node:
    """A piece of syntax and the characters `start` … `end` it was read from."""

    start: int
    end: int


@record
class Number(Node):
    """A number; always a double."""

    value: float


@record
class Text(Node):
    """A quoted string, as in `hosts["db-1"]`."""

    value: str


@record
class Flag(Node):
    """`true` or `false`."""

    value: bool


@record
class Name(Node):
    """A root name: a stage, or a metric of the iteration."""

    name: str


@record
class Member(Node):
    """`of.name`; `name_start` is where the name stands."""

    of: Syntax
    name: str
    name_start: int


@record
class Index(Node):
    """`of["key"]`."""

    of: Syntax
    key: Text


@record
class Call(Node):
    """`function(arguments)`; `x.at(4)` is `at(x, 4)`."""

    function: str
    arguments: tuple[Syntax, ...]


@record
class Group(Node):
    """Something in parentheses."""

    inner: Syntax


@record
class Unary(Node):
    """`!x` or `-x`."""

    operator: str
    operand: Syntax


@record
class Binary(Node):
    """`left operator right`."""

    operator: str
    left: Syntax
    right: Syntax


@record
class Choice(Node):
    """`condition ? then : otherwise`."""

    condition: Syntax
    then: Syntax
    otherwise: Syntax


Syntax: TypeAlias = Number | Text | Flag | Name | Member | Index | Call | Group | Unary | Binary | Choice


def tokens(text: str) -> tuple[Token, ...]:
    """The words of `text` and an `end`. Raises ExpressionFault at the first character that no word begins with."""
    if len(text) > TEXT_MAX:
        raise ExpressionFault(f"the expression is longer than {TEXT_MAX} characters")
    found: list[Token] = []
    offset, size = 0, len(text.rstrip())
    while offset < size:
        match = _TOKEN.match(text, offset)
        if match is None or match.lastgroup is None:
            at = offset + len(text[offset:]) - len(text[offset:].lstrip())
            if (mistake := of_character(text, at)) is not None:
                raise _foreign(mistake)
            raise ExpressionFault(f"unexpected character {text[at]!r} in the expression", offset=at)
        kind = match.lastgroup
        found.append(Token(kind=kind, text=match[kind], start=match.start(kind), end=match.end(kind)))
        offset = match.end()
    return (*found, Token(kind="end", text="", start=size, end=size))


def _foreign(mistake: Mistake) -> ExpressionFault:
    return ExpressionFault(mistake.message, offset=mistake.start, way_out=mistake.hint, mistake=mistake)


@lru_cache(maxsize=1024)  # checks are evaluated again after each stage and probe
def parse(text: str) -> Syntax:
    """The syntax tree of a whole expression. Raises ExpressionFault with the offset of what does not fit."""
    reader = _Reader(text)
    node = reader.choice()
    if reader.here.kind != "end":
        raise reader.fault("the expression should end before")
    return node


def children(node: Syntax) -> Iterator[Syntax]:
    """The direct parts of a node, in reading order."""
    for field in fields(node):
        value = getattr(node, field.name)
        if isinstance(value, Node):
            yield value  # type: ignore[misc]  # every concrete Node is in Syntax
        elif isinstance(value, tuple):
            yield from value


def walk(node: Syntax) -> Iterator[Syntax]:
    """The node and all below it."""
    yield node
    for part in children(node):
        yield from walk(part)


def rebuilt(node: Syntax, change: Callable[[Syntax], Syntax]) -> Syntax:
    """The tree with `change(part)` in the place of each part, the parts below it first."""
    changes: dict[str, Any] = {}
    for item in fields(node):
        value = getattr(node, item.name)
        if isinstance(value, Node):
            changes[item.name] = rebuilt(value, change)  # type: ignore[arg-type]  # every concrete Node is in Syntax
        elif isinstance(value, tuple):
            changes[item.name] = tuple(rebuilt(part, change) for part in value)
    return change(replace(node, **changes))


def renamed(text: str, rename: Callable[[str], str]) -> str:
    """The expression with the last member of every path renamed: stages and loads may have the names of statistics."""
    tree = parse(text)
    within = {(node.of.start, node.of.end) for node in walk(tree) if isinstance(node, Member | Index)}

    def changed(node: Syntax) -> Syntax:
        if isinstance(node, Member) and (node.start, node.end) not in within:
            return replace(node, name=rename(node.name))
        return node

    return render(rebuilt(tree, changed))


def ungroup(node: Syntax) -> Syntax:
    """The node without parentheses around it."""
    while isinstance(node, Group):
        node = node.inner
    return node


def quoted(text: str) -> str:
    """A text as an expression has it, in the quotes that are not in it."""
    return f"'{text}'" if '"' in text else f'"{text}"'


def render(node: Syntax) -> str:  # noqa: PLR0911 - one line per kind of node
    """The node as CEL."""
    match node:
        case Number(value=number):
            return repr(number)
        case Text(value=string):
            return quoted(string)
        case Flag(value=flag):
            return "true" if flag else "false"
        case Name(name=name):
            return name
        case Member(of=of, name=name):
            return f"{render(of)}.{name}"
        case Index(of=of, key=key):
            return f"{render(of)}[{render(key)}]"
        case Call(function=function, arguments=arguments):
            return f"{function}({', '.join(render(argument) for argument in arguments)})"
        case Group(inner=inner):
            return f"({render(inner)})"
        case Unary(operator=operator, operand=operand):
            return f"{operator}{render(operand)}"
        case Binary(operator=operator, left=left, right=right):
            return f"{render(left)} {operator} {render(right)}"
        case Choice(condition=condition, then=then, otherwise=otherwise):
            return f"{render(condition)} ? {render(then)} : {render(otherwise)}"


class _Reader:
    """Recursive descent over the tokens of one text; one method per level of precedence."""

    def __init__(self, text: str) -> None:
        self.words = tokens(text)
        if (mistake := first_of(self.words, text)) is not None:
            raise _foreign(mistake)
        self.position = 0
        self.depth = 0
        self.links = 0

    @property
    def here(self) -> Token:
        return self.words[self.position]

    def fault(self, what: str) -> ExpressionFault:
        seen = f"`{self.here.text}`" if self.here.kind != "end" else "its end"
        return ExpressionFault(f"{what} {seen}", offset=self.here.start)

    def link(self, token: Token) -> None:
        """Count one more operator of a chain."""
        self.links += 1
        if self.links > LINKS_MAX:
            what = f"the expression has more than {LINKS_MAX} operators, dots and brackets, counted to `{token.text}`"
            raise ExpressionFault(what, offset=token.start, way_out="make several of it")

    def take(self, *texts: str) -> Token | None:
        """The next token if it is an operator of `texts`, else None."""
        token = self.here
        if token.kind == "operator" and token.text in texts:
            self.position += 1
            return token
        return None

    def expect(self, text: str) -> Token:
        token = self.take(text)
        if token is None:
            raise self.fault(f"expected `{text}` but found")
        return token

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise self.fault(f"the expression is nested deeper than {DEPTH_MAX} levels at")

    def choice(self) -> Syntax:
        self.deeper()
        condition = self.binary(0)
        if self.take("?"):
            then = self.choice()
            self.expect(":")
            otherwise = self.choice()
            condition = Choice(
                start=condition.start, end=otherwise.end, condition=condition, then=then, otherwise=otherwise
            )
        self.depth -= 1
        return condition

    def binary(self, level: int) -> Syntax:
        if level == len(_LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while token := self.take(*_LEVELS[level]):
            self.link(token)
            if _LEVELS[level] is COMPARISONS and isinstance(left, Binary) and left.operator in COMPARISONS:
                what = f"a chain of comparisons: `{token.text}` compares the outcome of another comparison"
                raise ExpressionFault(what, offset=token.start, way_out="join two comparisons with &&")
            right = self.binary(level + 1)
            left = Binary(start=left.start, end=right.end, operator=token.text, left=left, right=right)
        return left

    def unary(self) -> Syntax:
        if token := self.take("!", "-"):
            self.deeper()
            operand = self.unary()
            self.depth -= 1
            return Unary(start=token.start, end=operand.end, operator=token.text, operand=operand)
        node = self.primary()
        while token := self.take(".", "["):
            self.link(token)
            node = self.member(node) if token.text == "." else self.index(node)
        return node

    def member(self, of: Syntax) -> Syntax:
        name = self.here
        if name.kind != "name":
            raise self.fault("expected a name after `.` but found")
        self.position += 1
        if self.take("("):
            arguments, end = self.arguments()
            return Call(start=of.start, end=end, function=name.text, arguments=(of, *arguments))
        return Member(start=of.start, end=name.end, of=of, name=name.text, name_start=name.start)

    def index(self, of: Syntax) -> Syntax:
        key = self.here
        if key.kind != "string":
            raise self.fault('expected a quoted name in `[…]`, as in hosts["db-1"], but found')
        self.position += 1
        end = self.expect("]").end
        return Index(start=of.start, end=end, of=of, key=Text(start=key.start, end=key.end, value=key.text[1:-1]))

    def arguments(self) -> tuple[tuple[Syntax, ...], int]:
        found: list[Syntax] = []
        while not (closing := self.take(")")):
            if found:
                self.expect(",")
            found.append(self.choice())
        return tuple(found), closing.end

    def primary(self) -> Syntax:
        token = self.here
        if token.kind == "operator" and token.text == "(":
            self.position += 1
            inner = self.choice()
            return Group(start=token.start, end=self.expect(")").end, inner=inner)
        if token.kind in ("end", "operator"):
            raise self.fault("expected a value but found")
        self.position += 1
        if token.kind == "number":
            return Number(start=token.start, end=token.end, value=_number(token))
        if token.kind == "string":
            return Text(start=token.start, end=token.end, value=token.text[1:-1])
        return self.word(token)

    def word(self, token: Token) -> Syntax:
        if token.text in ("true", "false"):
            return Flag(start=token.start, end=token.end, value=token.text == "true")
        if token.text in RESERVED:
            raise ExpressionFault(f"`{token.text}` is not available here", offset=token.start)
        if self.take("("):
            arguments, end = self.arguments()
            return Call(start=token.start, end=end, function=token.text, arguments=arguments)
        return Name(start=token.start, end=token.end, name=token.text)


def _number(token: Token) -> float:
    value = float(token.text.rstrip("%").replace("_", "")) / (100.0 if token.text.endswith("%") else 1.0)
    if value == float("inf"):
        raise ExpressionFault(f"the number {token.text} is too large", offset=token.start)
    return value


MISTAKES_MAX = 20


@record
class Mended:
    """The faults, with offsets into the text as written, and the tree of `text`; None where it cannot be parsed."""

    text: str
    tree: Syntax | None
    faults: tuple[ExpressionFault, ...] = ()
    mistakes: tuple[Mistake, ...] = ()

    def written(self, offset: int) -> int:
        """The place in the text as written of a place in `text`."""
        return _written(offset, self.mistakes)


def mend(text: str) -> Mended:
    """The tree of an expression, past what can be replaced."""
    faults: list[ExpressionFault] = []
    mistakes: list[Mistake] = []
    tree: Syntax | None = None
    while tree is None:
        try:
            tree = parse(text)
        except ExpressionFault as fault:
            mistake = fault.mistake
            fault.offset = _written(fault.offset, mistakes)
            faults.append(fault)
            if mistake is None or mistake.meant is None or len(mistakes) == MISTAKES_MAX:
                break
            mistakes.append(mistake)
            text = f"{text[: mistake.start]}{mistake.meant}{text[mistake.end :]}"
    return Mended(text=text, tree=tree, faults=tuple(faults), mistakes=tuple(mistakes))


def _written(offset: int, mistakes: Sequence[Mistake]) -> int:
    for mistake in reversed(mistakes):
        grown = len(mistake.meant or "") - (mistake.end - mistake.start)
        if offset >= mistake.end + grown:
            offset -= grown
        elif offset > mistake.start:
            offset = mistake.start
    return offset

"""Expression text -> syntax tree: the part of CEL that plans use, with positions for messages.

Data flow: text -> `tokens` -> `parse` -> nodes, each with its position in the text -> `render` back to CEL, in
which every number is a double (CEL does not mix int and double; in a plan `2 * x` just works; `5%` is 0.05). The tree
serves three
users: the compiler resolves names in it, the verdict judge splits it into comparisons, and a fault at run time is
explained with it. The CEL library evaluates (`evaluation`).

Left out of CEL on purpose: macros, list and map literals, `in`, the remainder, null and bytes. Nothing in a result
needs them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, TypeAlias

from proveout.core.data_classes import dataclass
from proveout.core.errors import ProveoutError
from proveout.dsl.expr import other_notations
from proveout.dsl.expr.other_notations import Mistake, Token

TEXT_MAX = 4096
DEPTH_MAX = 64
LINKS_MAX = 150
"""The most operators, dots and brackets of one expression: each is a level of the syntax tree."""

RESERVED = frozenset(
    {
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    }
)

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
    """An expression that cannot be used or evaluated: `offset` characters into `text`, with a `way_out`; a `mistake`
    where it is a notation of another language."""

    exit_code = 2

    def __init__(
        self, what: str, *, text: str = "", offset: int = 0, way_out: str = "", mistake: Mistake | None = None
    ) -> None:
        self.text, self.offset, self.mistake = text, offset, mistake
        super().__init__(what, way_out=way_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A piece of syntax and the characters `start` … `end` it was read from."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Number(Node):
    """A number; always a double."""

    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(Node):
    """A quoted string, as in `hosts["db-1"]`."""

    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag(Node):
    """`true` or `false`."""

    value: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Name(Node):
    """A root name: a stage, or a metric of the iteration."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Member(Node):
    """`of.name`; `name_start` is where the name stands."""

    of: Syntax
    name: str
    name_start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Index(Node):
    """`of["key"]`."""

    of: Syntax
    key: Syntax


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Node):
    """`function(arguments)`; `x.at(4)` is `at(x, 4)`."""

    function: str
    arguments: tuple[Syntax, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(Node):
    """Something in parentheses."""

    inner: Syntax


@dataclass(frozen=True, slots=True, kw_only=True)
class Unary(Node):
    """`!x` or `-x`."""

    operator: str
    operand: Syntax


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary(Node):
    """`left operator right`."""

    operator: str
    left: Syntax
    right: Syntax


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(Node):
    """`condition ? then : otherwise`."""

    condition: Syntax
    then: Syntax
    otherwise: Syntax


Syntax: TypeAlias = Number | Text | Flag | Name | Member | Index | Call | Group | Unary | Binary | Choice


def tokens(text: str) -> tuple[Token, ...]:
    """The words of `text` and an `end`. Raises ExpressionFault at the first character that no word begins with."""
    if len(text) > TEXT_MAX:
        raise ExpressionFault(f"the expression is longer than {TEXT_MAX} characters", text=text)
    found: list[Token] = []
    offset, size = 0, len(text.rstrip())
    while offset < size:
        match = _TOKEN.match(text, offset)
        if match is None or match.lastgroup is None:
            at = offset + len(text[offset:]) - len(text[offset:].lstrip())
            if (mistake := other_notations.of_character(text, at)) is not None:
                raise _foreign(mistake, text)
            raise ExpressionFault(f"unexpected character {text[at]!r} in the expression", text=text, offset=at)
        kind = match.lastgroup
        found.append(Token(kind=kind, text=match[kind], start=match.start(kind), end=match.end(kind)))
        offset = match.end()
    return (*found, Token(kind="end", text="", start=size, end=size))


def _foreign(mistake: Mistake, text: str) -> ExpressionFault:
    return ExpressionFault(mistake.message, text=text, offset=mistake.start, way_out=mistake.hint, mistake=mistake)


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


def renamed(text: str, rename: Callable[[str], str]) -> str:
    """The expression with every name and member renamed."""

    def changed(node: Syntax) -> Syntax:
        changes: dict[str, Any] = {}
        for item in fields(node):
            value = getattr(node, item.name)
            if isinstance(value, Node):
                changes[item.name] = changed(value)  # type: ignore[arg-type]  # every concrete Node is in Syntax
            elif isinstance(value, tuple):
                changes[item.name] = tuple(changed(part) for part in value)
        if isinstance(node, Member | Name):
            changes["name"] = rename(node.name)
        return replace(node, **changes)

    return render(changed(parse(text)))


def ungroup(node: Syntax) -> Syntax:
    """The node without parentheses around it."""
    while isinstance(node, Group):
        node = node.inner
    return node


def render(node: Syntax) -> str:  # noqa: PLR0911 - one line per kind of node
    """The node as CEL."""
    match node:
        case Number(value=number):
            return repr(number)
        case Text(value=string):
            return f'"{string}"'
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
        self.text = text
        self.words = tokens(text)
        if (mistake := other_notations.first_of(self.words, text)) is not None:
            raise _foreign(mistake, text)
        self.position = 0
        self.depth = 0
        self.links = 0

    @property
    def here(self) -> Token:
        return self.words[self.position]

    def fault(self, what: str) -> ExpressionFault:
        seen = f"`{self.here.text}`" if self.here.kind != "end" else "its end"
        return ExpressionFault(f"{what} {seen}", text=self.text, offset=self.here.start)

    def link(self, token: Token) -> None:
        """Count one more operator of a chain."""
        self.links += 1
        if self.links > LINKS_MAX:
            what = f"the expression has more than {LINKS_MAX} operators, dots and brackets, counted to"
            raise ExpressionFault(
                f"{what} `{token.text}`", text=self.text, offset=token.start, way_out="make several of it"
            )

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

    def choice(self) -> Syntax:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise self.fault(f"the expression is nested deeper than {DEPTH_MAX} levels at")
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
                raise ExpressionFault(
                    f"a chain of comparisons: `{token.text}` compares the outcome of another comparison",
                    text=self.text,
                    offset=token.start,
                    way_out="join two comparisons with &&",
                )
            right = self.binary(level + 1)
            left = Binary(start=left.start, end=right.end, operator=token.text, left=left, right=right)
        return left

    def unary(self) -> Syntax:
        if token := self.take("!", "-"):
            self.depth += 1
            if self.depth > DEPTH_MAX:
                raise self.fault(f"the expression is nested deeper than {DEPTH_MAX} levels at")
            operand = self.unary()
            self.depth -= 1
            return Unary(start=token.start, end=operand.end, operator=token.text, operand=operand)
        return self.postfix()

    def postfix(self) -> Syntax:
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
            return Number(start=token.start, end=token.end, value=_number(token, self.text))
        if token.kind == "string":
            return Text(start=token.start, end=token.end, value=token.text[1:-1])
        return self.word(token)

    def word(self, token: Token) -> Syntax:
        if token.text in ("true", "false"):
            return Flag(start=token.start, end=token.end, value=token.text == "true")
        if token.text in RESERVED:
            raise ExpressionFault(f"`{token.text}` is not available here", text=self.text, offset=token.start)
        if self.take("("):
            arguments, end = self.arguments()
            return Call(start=token.start, end=end, function=token.text, arguments=arguments)
        return Name(start=token.start, end=token.end, name=token.text)


def _number(token: Token, text: str) -> float:
    value = float(token.text.rstrip("%").replace("_", "")) / (100.0 if token.text.endswith("%") else 1.0)
    if value == float("inf"):
        raise ExpressionFault(f"the number {token.text} is too large", text=text, offset=token.start)
    return value

"""The parts of SQL that the plan checks need: binds, number of statements, result columns. Not a
parser.

Flow: text -> `scan` -> tokens, in which literals, comments and casts cannot be mistaken for binds -> questions about
them: `binds`, `positional` (`:name` -> `$1`), `placed` (`$1` -> the form of an engine), `reads`, `writes`, `columns`,
`table`. Text that is not understood gives no answer rather than a wrong one.

The lexical rules are those of SQL-92 with what the engines add: PostgreSQL's `E'…'`, `$tag$…$tag$` and `::type`, nested
comments but in texts for an engine without them, Oracle's `q'[…]'`, MySQL's backquotes, and in texts for MySQL alone
its `\\` before a quote, `#`, and the space after `--`. Sources: PostgreSQL, "Lexical Structure"; Oracle SQL
Language Reference, "Text Literals", "Comments"; MySQL, "String Literals", "Comments"; SQLite, "SQL Comment Syntax".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal, TypeAlias

from proveout.core.data_classes import dataclass

Kind: TypeAlias = Literal["word", "quoted", "bind", "positional", "literal", "number", "mark"]

_FORM = r"""
    (?P<space>\s+|--[^\n]*)
  | (?P<comment>/\*)
  | (?P<literal>[eE]'(?:[^'\\]|\\.|'')*'|[xXbBnN]?'(?:[^']|'')*'
      |[nN]?[qQ]'(?:\[.*?\]|\{.*?\}|\(.*?\)|<.*?>|(?P<mine>[^\s\[{(<]).*?(?P=mine))')
  | (?P<dollar>\$(?:[A-Za-z_]\w*)?\$)
  | (?P<quoted>"(?:[^"]|"")*"|`(?:[^`]|``)*`)
  | (?P<positional>\$\d+)
  | (?P<bind>:[A-Za-z_]\w*)
  | (?P<word>[^\W\d]\w*)
  | (?P<number>\d+(?:\.\d*)?|\.\d+)
  | (?P<mark>::|:=|.)
    """
_ESCAPED = (
    _FORM.replace("--[", r"(?:--(?=\s|$)|\#)[")
    .replace("(?:[^']|", r"(?:[^'\\]|\\.|")
    .replace('(?:[^"]|', r'(?:[^"\\]|\\.|')
)
_TOKENS = {dialect: re.compile(form, re.VERBOSE | re.DOTALL) for dialect, form in (("", _FORM), ("mysql", _ESCAPED))}
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_FLAT_COMMENTS = frozenset({"mysql", "oracle", "sqlite"})
_READERS = frozenset({"SELECT", "FROM", "VALUES", "TABLE", "SHOW"})  # DuckDB's queries may begin with FROM
_WRITERS = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE"})
_MAIN = _READERS | _WRITERS
_AFTER_LIST = frozenset(
    {"FROM", "WHERE", "UNION", "INTERSECT", "EXCEPT", "MINUS", "ORDER", "LIMIT", "FOR", "INTO", "GROUP", "FETCH"}
)
_CONTROLS = frozenset({"COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "START", "END", "ABORT"})
_BEGINNINGS = frozenset({"WORK", "TRANSACTION", "IMMEDIATE", "DEFERRED", "EXCLUSIVE", "ISOLATION", "READ"})
_BODIES = frozenset({"TRIGGER", "FUNCTION", "PROCEDURE", "PACKAGE"})
_NO_COLUMN = frozenset(
    {"PRIMARY", "FOREIGN", "UNIQUE", "CHECK", "CONSTRAINT", "EXCLUDE", "LIKE", "KEY", "INDEX", "PERIOD"}
)


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a statement that means something; `start` is its offset in the text, `depth` the parentheses around
    it."""

    kind: Kind
    text: str
    start: int
    depth: int

    @property
    def upper(self) -> str:
        """A word as keywords are compared; "" for anything else."""
        return self.text.upper() if self.kind == "word" else ""

    @property
    def name(self) -> str:
        return self.text[1:-1] if self.kind == "quoted" else self.text


@dataclass(frozen=True, slots=True)
class Fault:
    """The reason why a text cannot be used as one statement; `offset` is the position in it."""

    message: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a CREATE TABLE: name, the first word of its type in capitals ("" for an array), and the number in
    parentheses after it."""

    name: str
    type: str
    length: int | None


def scan(text: str, dialect: str = "") -> tuple[Token, ...]:
    """The tokens of a text, which may be for one dialect alone, without space and comments. What does not end runs to
    the end of the text (see `fault`)."""
    tokens: list[Token] = []
    form = _TOKENS.get(dialect, _TOKENS[""])
    at = depth = 0
    while at < len(text):
        found = form.match(text, at)
        assert found is not None  # noqa: S101 - the last alternative takes any character
        kind, start, at = str(found.lastgroup), at, found.end()
        if kind == "comment":
            at = _end_of_comment(text, at, nests=dialect not in _FLAT_COMMENTS)
        elif kind == "dollar":
            end = text.find(found[0], at)
            at = len(text) if end < 0 else end + len(found[0])
            tokens.append(Token("literal" if end >= 0 else "mark", text[start:at], start, depth))
        elif kind != "space":
            depth -= found[0] == ")"
            tokens.append(Token(kind, found[0], start, depth))  # type: ignore[arg-type]  # the groups are the kinds
            depth += found[0] == "("
    return tuple(tokens)


def fault(tokens: Sequence[Token]) -> Fault | None:
    """The reason why this text cannot be sent as one statement of a transaction; None when it can."""
    return _nothing(tokens) or _broken(tokens) or _control(tokens) or _input(tokens) or _second(tokens)


def script_fault(tokens: Sequence[Token]) -> Fault | None:
    """Like `fault`, for a statement that runs by itself beside the load: DDL, with bodies of triggers and functions."""
    bind = next((token for token in tokens if token.kind == "bind"), None)
    if bind is not None and not _has_body(tokens):
        return Fault(f"`{bind.text}`: only the statements of transactions have binds", bind.start)
    return _nothing(tokens) or _broken(tokens) or _second(tokens)


def binds(tokens: Sequence[Token]) -> tuple[Token, ...]:
    """Every use of a bind, in order."""
    return tuple(token for token in tokens if token.kind == "bind")


def positional(text: str, order: Sequence[str] = (), dialect: str = "") -> tuple[str, tuple[str, ...]]:
    """(the text with `$1, $2 …` in place of its binds and no semicolon after it, their names in that order).

    Names in `order` are numbered by their order there, others after them by first use.
    """
    names = {name: number for number, name in enumerate(order, 1)}
    parts: list[str] = []
    at = 0
    tokens = scan(text, dialect)
    for token in binds(tokens):
        number = names.setdefault(token.text[1:], len(names) + 1)
        parts += (text[at : token.start], f"${number}")
        at = token.start + len(token.text)
    rest = text[at:]
    if tokens and tokens[-1].text == ";" and not _is_block(tokens):
        rest = text[at : tokens[-1].start]
    return "".join((*parts, rest)).strip(), tuple(names)


@lru_cache(maxsize=1024)  # each connection of a load prepares the same texts
def placed(text: str, form: str, dialect: str = "") -> tuple[str, tuple[int, ...]]:
    """(the text with `form`, that has n in place of `{}`, for each `$n`, these numbers in the order of their places).

    >>> placed("SELECT a /* it's b */ FROM t WHERE a = $2 AND b = $1 AND c = '$3'", ":p{}")
    ("SELECT a /* it's b */ FROM t WHERE a = :p2 AND b = :p1 AND c = '$3'", (2, 1))
    """
    parts: list[str] = []
    numbers: list[int] = []
    at = 0
    for token in scan(text, dialect):
        if token.kind == "positional":
            numbers.append(int(token.text[1:]))
            parts += (text[at : token.start], form.format(numbers[-1]))
            at = token.start + len(token.text)
    return "".join((*parts, text[at:])), tuple(numbers)


def reads(tokens: Sequence[Token]) -> bool:
    """Whether rows come back: a query, or RETURNING."""
    return _verb(tokens) in _READERS or _returning(tokens) is not None


def counts(tokens: Sequence[Token]) -> bool:
    """Whether the engine counts the rows that are affected."""
    return _verb(tokens) in _WRITERS


def writes(tokens: Sequence[Token]) -> bool:
    """Whether rows are changed, by the words of the text; a function that a query calls may change rows unseen."""
    if _verb(tokens) not in _READERS:
        return True
    words = [token.upper for token in tokens]
    changing = (position for position, word in enumerate(words) if word in _WRITERS and word != "REPLACE")
    return any(not _is_lock(words, position) and not _is_call(tokens, position) for position in changing)


def changes(text: str, dialect: str = "") -> bool:
    return writes(scan(text, dialect))


def columns(tokens: Sequence[Token]) -> tuple[tuple[str | None, ...], bool]:
    """(names of the result's columns, None where the text gives none; whether a `*` follows those that are known)."""
    start = _returning(tokens)
    if start is None:
        start = _query(tokens)
    if start is None:
        return (), _verb(tokens) in {"FROM", "TABLE"}
    names: list[str | None] = []
    for item in _items(tokens, start):
        if item[-1].text == "*":
            return tuple(names), True
        names.append(_name(item))
    return tuple(names), False


def table(tokens: Sequence[Token]) -> tuple[str, tuple[Column, ...]] | None:
    """Name and columns of a CREATE TABLE; None for anything else, and for `CREATE TABLE … AS`."""
    words = [token.upper for token in tokens]
    if words[:1] != ["CREATE"] or "TABLE" not in words[:4]:
        return None
    at = words.index("TABLE") + 1
    if words[at : at + 3] == ["IF", "NOT", "EXISTS"]:
        at += 3
    open_at = next((i for i in range(at, len(tokens)) if tokens[i].text == "("), None)
    if open_at is None or open_at == at:
        return None
    name = tokens[open_at - 1].name
    return name, tuple(column for item in _items(tokens, open_at + 1) if (column := _column(item)) is not None)


# ---- pieces ---------------------------------------------------------------------------------------------------------


def _end_of_comment(text: str, at: int, *, nests: bool) -> int:
    depth = 1
    while depth and (edge := _COMMENT_EDGE.search(text, at)):
        depth += nests if edge[0] == "/*" else -1
        at = edge.end()
    return at if not depth else len(text)


def _nothing(tokens: Sequence[Token]) -> Fault | None:
    return Fault("there is no statement here") if all(token.text == ";" for token in tokens) else None


def _broken(tokens: Sequence[Token]) -> Fault | None:
    for token in tokens:
        if token.kind == "positional":
            return Fault(f"`{token.text}`: binds are written by name, as :id", token.start)
        if token.kind == "mark" and (token.text in "'\"`" or (token.text[0] == "$" and len(token.text) > 1)):
            return Fault("a quotation begins here and does not end", token.start)
    return None


def _control(tokens: Sequence[Token]) -> Fault | None:
    first, second = tokens[0].upper, tokens[1].upper if len(tokens) > 1 else ""
    begins = first == "BEGIN" and (second in _BEGINNINGS or len(tokens) == 1 or tokens[1].text == ";")
    if begins or first in _CONTROLS or (first == "SET" and second == "TRANSACTION"):
        return Fault(f"`{tokens[0].text}`: a transaction begins and ends by itself", tokens[0].start)
    return None


def _input(tokens: Sequence[Token]) -> Fault | None:
    """PostgreSQL's COPY … FROM STDIN, after which the server waits for rows."""
    if tokens[0].upper != "COPY":
        return None
    found = next((b for a, b in pairwise(tokens) if (a.upper, b.upper, b.depth) == ("FROM", "STDIN", 0)), None)
    return None if found is None else Fault(f"`{found.text}`: a load sends no rows after a statement", found.start)


def _second(tokens: Sequence[Token]) -> Fault | None:
    end = next((i for i, token in enumerate(tokens) if token.text == ";" and token.kind == "mark"), None)
    if end is None or _is_block(tokens) or _has_body(tokens):
        return None
    after = next((token for token in tokens[end:] if token.text != ";"), None)
    return None if after is None else Fault("a second statement in the same text", after.start)


def _is_block(tokens: Sequence[Token]) -> bool:
    """Whether it is an anonymous PL/SQL block, which is full of semicolons."""
    return tokens[0].upper in {"BEGIN", "DECLARE"}


def _has_body(tokens: Sequence[Token]) -> bool:
    return tokens[0].upper == "CREATE" and any(token.upper in _BODIES for token in tokens[:6])


def _verb(tokens: Sequence[Token]) -> str:
    """The word that names the action of the statement; of a WITH, that of its last part."""
    words = (token for token in tokens if token.kind == "word")
    first = next(words, None)
    if first is None or first.upper != "WITH":
        return first.upper if first else ""
    return next((token.upper for token in tokens if token.depth == first.depth and token.upper in _MAIN), "")


def _query(tokens: Sequence[Token]) -> int | None:
    """The start of the list of a query's columns."""
    depth = tokens[0].depth if tokens[0].upper in {"WITH", "FROM"} else None
    for position, token in enumerate(tokens):
        if token.upper == "SELECT" and (depth is None or token.depth == depth):
            after = position + 1
            return after + (tokens[after].upper in {"DISTINCT", "ALL"} if after < len(tokens) else 0)
    return None


def _returning(tokens: Sequence[Token]) -> int | None:
    """The start of the list after RETURNING; None also for Oracle's RETURNING … INTO, which gives no rows."""
    at = next((i for i, token in enumerate(tokens) if token.upper == "RETURNING" and token.depth == 0), None)
    if at is None or any(token.upper == "INTO" for token in tokens[at:]):
        return None
    return at + 1


def _items(tokens: Sequence[Token], start: int) -> Iterator[Sequence[Token]]:
    """The parts between commas at the depth of `tokens[start]`, up to where the list ends."""
    if start >= len(tokens):
        return
    depth, item = tokens[start].depth, start
    for position in range(start, len(tokens)):
        token = tokens[position]
        ends = token.depth < depth or (token.depth == depth and (token.upper in _AFTER_LIST or token.text == ";"))
        if ends or (token.depth == depth and token.text == ","):
            if position > item:
                yield tokens[item:position]
            item = position + 1
        if ends:
            return
    if item < len(tokens):
        yield tokens[item:]


def _name(item: Sequence[Token]) -> str | None:
    """The name of a result column: its alias, or the column's own name."""
    named = item[-1].kind in ("word", "quoted")
    if not named:
        return None
    if len(item) > 1 and item[-2].upper == "AS":
        return item[-1].name
    plain = all(token.text == "." if i % 2 else token.kind in ("word", "quoted") for i, token in enumerate(item))
    return item[-1].name if plain else None


def _column(item: Sequence[Token]) -> Column | None:
    if len(item) < 2 or item[0].upper in _NO_COLUMN or item[0].kind not in ("word", "quoted"):
        return None
    length = int(item[3].text) if len(item) > 4 and item[2].text == "(" and item[3].text.isdigit() else None
    kind = "" if any(token.text == "[" for token in item) else item[1].upper  # an array has values of another form
    return Column(item[0].name, kind, length)


def _is_lock(words: Sequence[str], position: int) -> bool:
    """FOR UPDATE, FOR NO KEY UPDATE."""
    return words[position] == "UPDATE" and "FOR" in words[max(0, position - 3) : position]


def _is_call(tokens: Sequence[Token], position: int) -> bool:
    """A function of that name, as in insert(text, 1, 2, 'x')."""
    return position + 1 < len(tokens) and tokens[position + 1].text == "("

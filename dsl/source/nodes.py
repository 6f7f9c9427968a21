"""The nodes of a plan file with their positions, before they are interpreted, and the problems found so far.

Data flow: `loader` makes nodes of a file, `includes` and `schema.parameters` rewrite them, `schema` reads their plain
values (`plain`) and finds its way back to a position with `locate`. `Problems` collects from all of these; the caller
at the edge raises one `PlanError` of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from typing import TypeAlias

from proveout.core.data_classes import dataclass, field, record
from proveout.core.errors import NOWHERE, PlanError, PlanProblem, Where

SHOWN_MAX = 100
FOUND_MAX = 1_000
MESSAGE_MAX = 400

Plain: TypeAlias = "str | int | float | bool | list[Plain] | dict[str, Plain] | None"


@record
class Scalar:
    """A value as written (`text`) and as read (`value`).

    `places`: (offset in `text`, line, column) of each line of the file, where `text` is there unchanged; () where it
    is not (escapes). `faulty`: its problem is reported already and must not be reported twice.
    """

    value: str | int | float | bool | None
    text: str
    where: Where
    quoted: bool = False
    places: tuple[tuple[int, int, int], ...] = ()
    faulty: bool = False

    @property
    def broken(self) -> Scalar:
        """The same, of which a problem is reported."""
        return replace(self, faulty=True)

    def written(self, text: str) -> Scalar:
        """A text in its place, which does not stand there so."""
        return replace(self, value=text, text=text, places=())

    @property
    def in_text(self) -> str:
        """It as part of a text: a number as the plan writes it, without underscores and never with an exponent."""
        return self.text if isinstance(self.value, str | bool) else self.text.replace("_", "").removeprefix("+")

    def at(self, offset: int) -> Where:
        """The position of the character `offset` of the text."""
        if not self.places:
            return self.where
        begin, line, column = next((one for one in reversed(self.places) if one[0] <= offset), self.places[0])
        return Where(file=self.where.file, line=line, column=column + offset - begin)


@record
class Seq:
    """A list."""

    items: tuple[Node, ...]
    where: Where


@record
class Map:
    """A mapping, in the order of the file; keys are unique."""

    entries: tuple[tuple[Scalar, Node], ...]
    where: Where

    def entry(self, key: str) -> tuple[Scalar, Node] | None:
        """(the key with its position, the node under it), None when there is none."""
        return next((entry for entry in self.entries if entry[0].text == key), None)

    def get(self, key: str) -> Node | None:
        """The node under `key`, None when there is none."""
        entry = self.entry(key)
        return entry[1] if entry else None

    def keys(self) -> tuple[str, ...]:
        return tuple(name.text for name, _ in self.entries)


Node: TypeAlias = Scalar | Seq | Map
Steps: TypeAlias = tuple[str | int, ...]


def listed(node: Node | None) -> tuple[Node, ...]:
    """The items of a list, or a value that stands without one."""
    return node.items if isinstance(node, Seq) else () if node is None else (node,)


def plain(node: Node) -> Plain:
    """The node as plain data, for the models."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Seq):
        return [plain(item) for item in node.items]
    return {key.text: plain(item) for key, item in node.entries}


def locate(root: Node, path: Iterable[str | int]) -> tuple[Node, Scalar | None]:
    """(the deepest node on `path`, the key that leads to it); steps that lead nowhere are skipped."""
    node: Node = root
    key: Scalar | None = None
    for step in path:
        if isinstance(node, Map) and isinstance(step, str):
            found = node.entry(step)
            if found is not None:
                key, node = found
        elif isinstance(node, Seq) and isinstance(step, int) and step < len(node.items):
            node, key = node.items[step], None
    return node, key


def node_at(root: Node, *path: str | int) -> Node | None:
    """The node at a path of keys; None when there is none."""
    node: Node | None = root
    for step in path:
        node = node.get(str(step)) if isinstance(node, Map) else None
    return node


def below(node: Node) -> Iterator[tuple[str | int, Node]]:
    """The nodes right below a node, by key or by number."""
    if isinstance(node, Map):
        yield from ((key.text, value) for key, value in node.entries)
    elif isinstance(node, Seq):
        yield from enumerate(node.items)


def scalars(node: Node, path: Steps = ()) -> Iterator[tuple[Steps, Scalar]]:
    """The scalars at and below a node, which is at `path`, in the order of the file, each with its path."""
    if isinstance(node, Scalar):
        yield path, node
    for step, one in below(node):
        yield from scalars(one, (*path, step))


def last_key(path: Steps) -> str:
    """The key of a value at a path, or of the list that it is in."""
    return next((step for step in reversed(path) if isinstance(step, str)), "")


def rewritten(node: Node, change: Callable[[Scalar, Steps], Node], path: Steps = ()) -> Node:
    """The node with `change(scalar, path)` in the place of each scalar."""
    if isinstance(node, Scalar):
        return change(node, path)
    found = [rewritten(one, change, (*path, step)) for step, one in below(node)]
    if isinstance(node, Seq):
        return replace(node, items=tuple(found))
    return replace(node, entries=tuple(zip((key for key, _ in node.entries), found, strict=True)))


def where_of(node: Node, *path: str | int) -> Where:
    """The position of the deepest node on `path` below `node`; steps that lead nowhere are skipped."""
    return locate(node, path)[0].where


def is_given(node: Node, key: str) -> bool:
    """Whether a mapping has a key with a value, which is not null."""
    found = node.get(key) if isinstance(node, Map) else None
    return found is not None and not (isinstance(found, Scalar) and found.value is None)


SYNONYMS = {
    "clients": "threads", "concurrency": "threads", "connections": "threads", "users": "threads",
    "database": "target", "db": "target", "system": "target", "duration": "measure", "time": "measure",
    "warmup": "ramp_up", "warm_up": "ramp_up", "cooldown": "ramp_down", "iterations": "repeat", "runs": "repeat",
    "monitor": "capture", "monitoring": "capture", "ddl": "create", "schema": "create", "queries": "statements",
    "query": "statements", "sql": "statements", "scale": "population", "hosts": "topology", "systems": "topology",
    "mariadb": "mysql", "pg": "postgres", "postgresql": "postgres", "tpcc": "tprocc", "tpc-c": "tprocc",
    "tpch": "tproch", "tpc-h": "tproch", "localhost": "local",
}  # fmt: skip
"""Words of other tools and of everyday speech -> those of the plan language."""


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """A hint: the word of the plan language for this one, the closest known names, or all of them when none is
    close."""
    names = sorted(known)
    if (meant := SYNONYMS.get(wrong.lower(), "")) in names or (wrong == "target" and "into" in names):
        return f"did you mean `{meant or 'into'}`?"
    close = get_close_matches(wrong.lower(), [name.lower() for name in names], n=2, cutoff=0.6)
    if close:
        by_lower = {name.lower(): name for name in names}
        return f"did you mean {' or '.join(f'`{by_lower[name]}`' for name in close)}?"
    if not names:
        return ""
    shown = ", ".join(names[:20])
    return f"known: {shown}{', …' if len(names) > 20 else ''}"


LITERAL_PASSWORD = "a literal password"  # noqa: S105 - words of a message
"""The begin of a message about a line that no message shows."""
_PASSWORD = re.compile(
    r"(://[^:/@\s]*:(?=.{0,300}@)|\b\w+/(?=[^/@\s]+@))(?!\$)([^/@\s&;\"]+)"
    r"|((?:password|passwd|pwd)[\"']?\s*[:=]\s*[\"']?)(?![\[{$])((?<=\")[^\"]*|(?<=')[^']*|[^\s&;\"]+)",
    re.I,
)
"""A password as a dsn or a key may have it, in a line that is shown for another reason."""


_SPACES = re.compile(r"[^\S \n]")
"""Spaces that look like the one that separates words, and do not: in a message they are seen."""


@dataclass(slots=True)
class Problems:
    """The problems found so far and the text of the files they lie in (name -> lines)."""

    sources: dict[str, Sequence[str]] = field(default_factory=dict)
    found: dict[PlanProblem, None] = field(default_factory=dict)
    places: set[Where] = field(default_factory=set)

    def add(self, where: Where, message: str, *, key: str = "", hint: str = "") -> None:
        """Note a problem; the same problem at the same place only once, and FOUND_MAX problems at most."""
        if len(self.found) < FOUND_MAX:
            text = message if len(message) <= MESSAGE_MAX else f"{message[:MESSAGE_MAX]}…"
            text = _SPACES.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
            if not any(one.message == text and one.where == where for one in self.found if where in self.places):
                self.found[PlanProblem(message=text, where=where, key=key, hint=hint)] = None
            self.places.add(where)

    def at(self, where: Where) -> bool:
        """Whether something is wrong at exactly that place already."""
        return where in self.places

    def line(self, where: Where) -> str:
        """The line of the file that `where` points at, "" when it is not known."""
        lines = self.sources.get(where.file, ())
        return lines[where.line - 1] if 0 < where.line <= len(lines) else ""

    def error(self) -> PlanError:
        """All problems as one error, in file order, each with its line."""
        files = list(self.sources)

        def order(problem: PlanProblem) -> tuple[int, int, int]:
            where = problem.where
            return (files.index(where.file) if where.file in files else -1, where.line, where.column)

        def line(problem: PlanProblem) -> str:
            hidden = (problem.where.file, problem.where.line) in private
            return "" if hidden else masked(self.line(problem.where))

        @cache  # a plan of one long line may have many problems
        def masked(text: str) -> str:
            return _PASSWORD.sub(lambda found: (found[1] or found[3]) + "*" * len(found[2] or found[4]), text)

        private = {  # a secret itself may stand there
            (one.where.file, one.where.line)
            for one in self.found
            if one.message.startswith(LITERAL_PASSWORD) or one.key.partition(".")[0] == "secrets"
        }
        ordered = [replace(one, source_line=line(one)) for one in sorted(self.found, key=order)]
        if len(ordered) > SHOWN_MAX:
            rest = PlanProblem(message=f"… and {len(ordered) - SHOWN_MAX} more problems", where=NOWHERE)
            ordered = [*ordered[:SHOWN_MAX], rest]
        return PlanError(tuple(ordered))

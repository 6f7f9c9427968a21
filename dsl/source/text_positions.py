"""The positions of the texts of a plan that only a database can judge: statements, queries, settings.

Data flow: nodes after substitution -> `text_positions` -> `TextPosition`s -> `positions.position`, when a
database refuses one of the texts.
"""

from __future__ import annotations

from collections.abc import Iterator

from proveout.core.errors import Where
from proveout.dsl.plan.values import TextPosition
from proveout.dsl.source.nodes import Map, Node, Problems, Scalar, Seq

JUDGED = frozenset({"dsn", "query", "session", "settings", "sql", "statements"})
"""Keys of the language whose values, with all that is below them, are for a database."""
_LITERAL, _FOLDED = "|", ">"


def text_positions(path: str, node: Node, problems: Problems) -> Iterator[TextPosition]:
    """The positions of the texts below `node`, which is at `path`."""
    for key, below in _below(node):
        if key in JUDGED:
            yield from _all(f"{path}.{key}", below, problems)
        else:
            yield from text_positions(f"{path}.{key}", below, problems)


def maps_below(node: Node | None) -> Iterator[Map]:
    """The mappings at and below a node."""
    if isinstance(node, Map):
        yield node
    for _, below in _below(node) if node is not None else ():
        yield from maps_below(below)


def _all(path: str, node: Node, problems: Problems) -> Iterator[TextPosition]:
    if isinstance(node, Scalar):
        yield _position(path, node, problems)
        return
    for key, below in _below(node):
        yield from _all(f"{path}.{key}", below, problems)


def _below(node: Node) -> Iterator[tuple[str, Node]]:
    if isinstance(node, Map):
        yield from ((key.text, value) for key, value in node.entries)
    elif isinstance(node, Seq):
        yield from ((str(number), item) for number, item in enumerate(node.items))


def _position(path: str, scalar: Scalar, problems: Problems) -> TextPosition:
    where = scalar.where
    style = problems.line(where)[where.column - 1 : where.column]
    if style not in (_LITERAL, _FOLDED):
        return TextPosition(path=path, where=scalar.at(0))
    first = Where(file=where.file, line=where.line + 1, column=1)
    line = problems.line(first)
    column = len(line) - len(line.lstrip()) + 1
    return TextPosition(
        path=path, where=Where(file=where.file, line=first.line, column=column), literal=style == _LITERAL
    )

"""The environment of an expression: the part of a run's results that it reads, as CEL should see it.

Data flow: syntax tree -> the paths that it reads -> `needed` copies just those out of the environment (a run's results
are much larger), with every number a double and what has no data left out -> the CEL library. `first_missing` finds the
path that led nowhere when evaluation has failed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from proveout.dsl.expr.syntax import Call, Index, Member, Name, Number, Syntax, Text, children, ungroup

RUNGS = "rungs"
"""Under which key a ladder's tree holds its rungs, by threads as text."""


def needed(node: Syntax, environment: Mapping[str, Any]) -> dict[str, Any]:
    """The part of the environment that `node` reads, as CEL should see it; a run's results are much larger than
    that."""
    paths = sorted(set(_paths(node)), key=len)
    data: dict[str, Any] = {}
    for index, path in enumerate(paths):
        if not any(path[: len(shorter)] == shorter for shorter in paths[:index]):
            _copy(path, environment, data)
    return data


def _copy(path: tuple[str, ...], source: Any, target: dict[str, Any]) -> None:
    """Copy the value at `path` of `source` to the same place of `target`, if it exists."""
    *above, last = path
    for step in above:
        if not isinstance(source, Mapping) or step not in source:
            return
        source = source[step]
        if not isinstance(source, Mapping):  # the path goes on below a number: leave it to the type error
            value = as_data(source)
            if value is not None:
                target[step] = value
            return
        target = target.setdefault(step, {})
    value = as_data(source[last]) if isinstance(source, Mapping) and last in source else None
    if value is not None:
        target[last] = value


def _paths(node: Syntax) -> list[tuple[str, ...]]:
    """The longest paths into the environment that `node` reads."""
    steps = _steps(node)
    if steps is not None:
        return [steps]
    return [path for part in children(node) for path in _paths(part)]


def _steps(node: Syntax) -> tuple[str, ...] | None:
    """The keys that lead to a node from the environment's root; None for what is not a path."""
    above: tuple[str, ...] | None
    match node:
        case Name(name=name):
            return (name,)
        case Member(of=of, name=name):
            above = _steps(of)
            return None if above is None else (*above, name)
        case Index(of=of, key=key):
            above = _steps(of)
            return None if above is None else (*above, _key(key))
        case Call(function="at", arguments=(ladder, rung)):
            above, threads = _steps(ladder), ungroup(rung)
            if above is None or not isinstance(threads, Number):
                return None
            return (*above, RUNGS, str(int(threads.value)))
        case _:
            return None


def as_data(value: Any) -> Any:
    """`value` as CEL should see it: numbers as doubles, entries without data left out."""
    if isinstance(value, Mapping):
        found = {str(key): as_data(item) for key, item in value.items()}
        return {key: item for key, item in found.items() if item is not None}
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [item for item in map(as_data, value) if item is not None]
    return None


def first_missing(node: Syntax, data: Mapping[str, Any]) -> Syntax | None:
    """The shortest path in `node` that leads to nothing, None when every path leads somewhere."""
    for part in _parts_of_path(node) if _steps(node) is not None else children(node):
        missing = first_missing(part, data)
        if missing is not None:
            return missing
    steps = _steps(node)
    return node if steps is not None and _reach(steps, data) is None else None


def _parts_of_path(node: Syntax) -> tuple[Syntax, ...]:
    match node:
        case Member(of=of) | Index(of=of):
            return (of,)
        case Call(arguments=(ladder, *_)):
            return (ladder,)
        case _:
            return ()


def _reach(steps: tuple[str, ...], data: Any) -> Any:
    for step in steps:
        if not isinstance(data, Mapping) or step not in data:
            return None
        data = data[step]
    return data


def _key(node: Syntax) -> str:
    return node.value if isinstance(node, Text) else ""

"""Expressions at run time: text + environment -> value, and the comparisons that a verdict is judged by.

Data flow: `evaluate` parses the text (`syntax`), hands it to the CEL library with the environment (all numbers doubles,
what has no data left out) and gives a plain value back. `comparisons` gives the logical skeleton of a check, whose
leaves are evaluated side by side to tell FAIL from INCONCLUSIVE.

Environment: root name -> number, bool or nested mapping of such, in the names of `metrics`. A ladder's tree holds its
rungs under `rungs`, keyed by threads as text: `{"peak": {…}, "rungs": {"1": {…}, "4": {…}}}`; `ladder.at(4)` reads it.
A value of None or NaN is *no data*: reading it is `MissingData`, never false and never true.

`needed` copies only the paths that an expression reads out of the environment (a run's results are much larger), with
every number a double and what has no data left out. `first_missing` finds the path that led nowhere when evaluation has
failed.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any, TypeAlias

from proveout.core.data_classes import record
from proveout.core.numbers import RATIO, is_estimate, quantity
from proveout.core.numbers import threads as counted
from proveout.dsl.expr.syntax import (
    COMPARISONS,
    Binary,
    Call,
    Choice,
    Index,
    Member,
    Name,
    Number,
    Syntax,
    Unary,
    children,
    parse,
    rebuilt,
    render,
    ungroup,
)
from proveout.dsl.expr.syntax import ExpressionFault as ExpressionFault  # noqa: PLC0414 - it is raised here

Result: TypeAlias = "float | bool | str | dict[str, Any]"
Function: TypeAlias = Callable[..., Any]


class MissingData(ExpressionFault):
    """An expression read something that has no data."""

    exit_code = 3


# ---- the logical skeleton ----------------------------------------------------------------------------------------


@record
class Comparison:
    """A leaf `left operator right`; both sides are expressions of their own."""

    text: str
    left: str
    operator: str
    right: str


@record
class Bare:
    """A leaf that is a boolean by itself."""

    text: str


@record
class Joined:
    """`a && b`, `a || b`, `!a`, or with the operator `?` a choice of condition, then and otherwise; its parts are
    logical too."""

    text: str
    operator: str
    parts: tuple[Logic, ...]


Logic: TypeAlias = Comparison | Bare | Joined


def comparisons(text: str) -> Logic:
    """The logical tree of a check; every node carries its own text. Raises ExpressionFault when it does not parse."""
    return _logic(parse(text), text)


def _logic(node: Syntax, text: str) -> Logic:
    node = ungroup(node)
    own = text[node.start : node.end]
    match node:
        case Binary(operator="&&" | "||" as operator):
            parts = _flat(node, operator)
        case Unary(operator="!" as operator, operand=operand):
            parts = [operand]
        case Choice(condition=condition, then=then, otherwise=otherwise):
            operator, parts = "?", [condition, then, otherwise]
        case Binary(operator=operator, left=left, right=right) if operator in COMPARISONS:
            sides = (text[side.start : side.end] for side in (left, right))
            return Comparison(text=own, left=next(sides), operator=operator, right=next(sides))
        case _:
            return Bare(text=own)
    return Joined(text=own, operator=operator, parts=tuple(_logic(part, text) for part in parts))


def leaves(node: Logic, *, holds: bool = True) -> Iterator[tuple[Comparison | Bare, bool]]:
    """Each leaf, and whether it has to hold as it is written, or its opposite."""
    if not isinstance(node, Joined):
        yield node, holds
        return
    for part in node.parts:
        yield from leaves(part, holds=holds != (node.operator == "!"))


def _flat(node: Syntax, operator: str) -> list[Syntax]:
    inner = ungroup(node)
    if isinstance(inner, Binary) and inner.operator == operator:
        return _flat(inner.left, operator) + _flat(inner.right, operator)
    return [node]


# ---- evaluation --------------------------------------------------------------------------------------------------


def evaluate(text: str, environment: Mapping[str, Any], *, functions: Mapping[str, Function] | None = None) -> Result:
    """The value of `text`: a float, bool, string, or a mapping (an estimate, a group of metrics).

    `functions` adds to or replaces the built-in ones (`at abs min max us ms s`); `ratio` has no built-in body: pass one
    that takes two estimates and gives an estimate. Raises MissingData when a name, metric or rung has no data,
    ExpressionFault for anything else that stands in the way of a value.
    """
    node = parse(text)
    data = needed(node, environment)

    def over(above: Any, below: Any) -> float:
        if not isinstance(above, float) or not isinstance(below, float):
            raise ExpressionFault(f"`{text}` divides values that are not numbers")
        if below == 0.0:  # CEL has infinity there, and comparisons with it hold
            raise MissingData(f"`{text}` divides by zero")
        return above / below

    table = {**FUNCTIONS, **(functions or {}), _OVER: over}
    faults: list[ExpressionFault] = []
    guarded = {name: _guard(name, function, faults) for name, function in table.items()}
    engine = _cel()
    try:
        value = _program(text).execute(engine.Context(variables=data, functions=guarded))
    except Exception as error:  # noqa: BLE001 - the library raises KeyError, TypeError, ValueError, RuntimeError …
        raise _explain(node, text, data, faults, error) from None
    if faults:
        raise faults[0]
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)):
        if not math.isfinite(value):
            raise MissingData(f"`{text}` is not a finite number")
        return float(value)
    if isinstance(value, dict):
        return value
    raise ExpressionFault(f"`{text}` has no value")


def _guard(name: str, function: Function, faults: list[ExpressionFault]) -> Function:
    """`function`, its failure noted in `faults`: an exception would not get through the CEL library, which logs it."""

    def guarded(*arguments: Any) -> Any:
        try:
            return as_data(function(*arguments))
        except ExpressionFault as fault:
            faults.append(fault)
        except (ArithmeticError, KeyError, TypeError, ValueError) as error:
            faults.append(MissingData(f"{name}(…) has no value: {error}"))
        return None

    return guarded


def _explain(
    node: Syntax, text: str, data: Mapping[str, Any], faults: list[ExpressionFault], error: Exception
) -> ExpressionFault:
    if faults:
        return faults[0]
    missing = first_missing(node, data)
    if missing is not None:
        return MissingData(f"`{text[missing.start : missing.end]}` has no data")
    if isinstance(error, KeyError):  # a member of a function's result, as in ratio(a, b).lower
        return MissingData(f"`{text}` reads {error}, which has no data")
    return ExpressionFault(f"`{text}` cannot be evaluated: {str(error).partition('.')[0]}")


# ---- functions ---------------------------------------------------------------------------------------------------


def _at(ladder: Any, threads: float) -> Any:
    rungs = ladder.get(RUNGS, {}) if isinstance(ladder, Mapping) else {}
    tree = rungs.get(str(int(threads)))
    if tree is None:
        raise MissingData(f"at({threads:g}) has no data: no valid iteration with {counted(int(threads))}")
    return tree


FUNCTIONS: Mapping[str, Function] = {
    "at": _at,
    "abs": abs,
    "min": min,
    "max": max,
    "us": lambda number: number,
    "ms": lambda number: number * 1e3,
    "s": lambda number: number * 1e6,
}
"""Built-in functions; `us ms s` turn a time into microseconds, the unit of all latencies."""


_OVER = "_over"
"""The function that stands for a division."""


@lru_cache(maxsize=1024)
def _program(text: str) -> Any:
    """The compiled expression."""

    def divided(node: Syntax) -> Syntax:
        if not isinstance(node, Binary) or node.operator != "/":
            return node
        return Call(start=node.start, end=node.end, function=_OVER, arguments=(node.left, node.right))

    return _cel().compile(render(rebuilt(parse(text), divided)))


@lru_cache(maxsize=1)
def _cel() -> ModuleType:
    """The CEL library without its command line, whose imports (a prompt toolkit) would double the start-up time."""
    name = "cel.cli"
    blank = name not in sys.modules
    if blank:
        sys.modules[name] = ModuleType(name)
    try:
        import cel  # noqa: PLC0415
    finally:
        if blank:
            del sys.modules[name]
    logging.getLogger("cel").setLevel(logging.CRITICAL)
    return cel


RUNGS = "rungs"
"""Under which key a ladder's tree holds its rungs, by threads as text."""


def needed(node: Syntax, environment: Mapping[str, Any]) -> dict[str, Any]:
    """The part of the environment that `node` reads, as CEL should see it; a run's results are much larger than
    that."""
    paths = sorted(set(_paths(node)), key=len)
    data: dict[str, Any] = {}
    for index, path in enumerate(paths):
        if any(path[: len(shorter)] == shorter for shorter in paths[:index]):
            continue
        source, target = environment, data
        for number, step in enumerate(path, 1):
            value = source.get(step)
            if number == len(path) or not isinstance(value, Mapping):  # a path below a number is left to the type error
                if (found := as_data(value)) is not None:
                    target[step] = found
                break
            source, target = value, target.setdefault(step, {})
    return data


def _paths(node: Syntax) -> list[tuple[str, ...]]:
    """The longest paths into the environment that `node` reads."""
    steps = _steps(node)
    if steps is not None:
        return [steps]
    return [path for part in children(node) for path in _paths(part)]


def _steps(node: Syntax) -> tuple[str, ...] | None:
    """The keys that lead to a node from the environment's root; None for what is not a path."""
    above: tuple[str, ...] | None
    match ungroup(node):
        case Name(name=name):
            return (name,)
        case Member(of=of, name=name):
            above = _steps(of)
            return None if above is None else (*above, name)
        case Index(of=of, key=key):
            above = _steps(of)
            return None if above is None else (*above, key.value)
        case Call(function="at", arguments=(ladder, rung)):
            above, threads = _steps(ladder), ungroup(rung)
            if above is None or not isinstance(threads, Number):
                return None
            return (*above, RUNGS, str(int(threads.value)))
        case _:
            return None


def by_mean(text: str, environment: Mapping[str, Any]) -> str:
    """The text with `.mean` behind every estimate of which no statistic is read; arguments of `ratio` stay.

    >>> by_mean("cap.rate * 0.8 + cap.rate.lower", {"cap": {"rate": {"mean": 9.0, "lower": 8.0}}})
    'cap.rate.mean * 0.8 + cap.rate.lower'
    """
    cuts: list[int] = []

    def visit(node: Syntax) -> None:
        if _is_estimate(node, environment):
            cuts.append(node.end)
        elif not (isinstance(node, Member) and _is_estimate(ungroup(node.of), environment)):
            for part in children(node):
                visit(part)

    visit(parse(text))
    for cut in sorted(cuts, reverse=True):
        text = f"{text[:cut]}.mean{text[cut:]}"
    return text


def metric_of(text: str) -> str:
    """The name of a number, which has its unit: `tps` of `base.at(4).tps.lower`, `ratio` of a ratio of two numbers of
    one metric or unit; "" for what else is computed.
    """
    return _metric(parse(text))


def _metric(node: Syntax) -> str:
    node = ungroup(node)
    if isinstance(node, Member) and node.name in ("cv", "n"):
        return ""
    if isinstance(node, Member) and node.name in ("mean", "median", "lower", "upper"):
        node = ungroup(node.of)
    if isinstance(node, Call) and node.function == "ratio":
        one, other = map(_metric, node.arguments)
        same = "per_s" not in (one, other) and "1" != quantity(1.0, one) == quantity(1.0, other)
        return RATIO if same or one == other or not (one and other) else ""
    if isinstance(node, Binary) and node.operator == "/":
        one, other = _metric(node.left), _metric(node.right)
        return RATIO if one and one == other else ""
    return node.name if isinstance(node, Member | Name) else ""


def _is_estimate(node: Syntax, environment: Mapping[str, Any]) -> bool:
    if isinstance(node, Call) and node.function == "ratio":
        return True
    return is_estimate(value_at(node, environment))


def value_at(node: Syntax, environment: Mapping[str, Any]) -> Any:
    """The part of the environment to which a path leads; None for what is not a path, or leads nowhere."""
    steps = _steps(node)
    return None if steps is None else _reach(steps, environment)


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
    for part in children(node):
        missing = first_missing(part, data)
        if missing is not None:
            return missing
    steps = _steps(node)
    return node if steps is not None and _reach(steps, data) is None else None


def _reach(steps: tuple[str, ...], data: Any) -> Any:
    for step in steps:
        if not isinstance(data, Mapping) or step not in data:
            return None
        data = data[step]
    return data

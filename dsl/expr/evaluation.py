"""Expressions at run time: text + environment -> value, and the comparisons that a verdict is judged by.

Data flow: `evaluate` parses the text (`syntax`), hands it to the CEL library with the environment (all numbers doubles,
what has no data left out) and gives a plain value back. `comparisons` gives the logical skeleton of a check, whose
leaves are evaluated side by side to tell FAIL from INCONCLUSIVE.

Environment: root name -> number, bool or nested mapping of such, in the names of `metrics`. A ladder's tree holds its
rungs under `rungs`, keyed by threads as text: `{"peak": {…}, "rungs": {"1": {…}, "4": {…}}}`; `ladder.at(4)` reads it.
A value of None or NaN is *no data*: reading it is `MissingData`, never false and never true.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any, TypeAlias

from proveout.dsl.expr.environment import RUNGS, as_data, first_missing, needed
from proveout.dsl.expr.syntax import COMPARISONS, Binary, Choice, ExpressionFault, Syntax, Unary, parse, render, ungroup

__all__ = [
    "RUNGS",
    "AllOf",
    "AnyOf",
    "Bare",
    "Comparison",
    "Either",
    "ExpressionFault",
    "Logic",
    "MissingData",
    "Not",
    "comparisons",
    "evaluate",
]

Result: TypeAlias = "float | bool | str | dict[str, Any]"
Function: TypeAlias = Callable[..., Any]


class MissingData(ExpressionFault):
    """An expression read something that has no data: `path` as written in the expression."""

    exit_code = 3

    def __init__(self, what: str, *, path: str, text: str = "", offset: int = 0, way_out: str = "") -> None:
        self.path = path
        super().__init__(what, text=text, offset=offset, way_out=way_out)


# ---- the logical skeleton ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A leaf `left operator right`; both sides are expressions of their own."""

    text: str
    left: str
    operator: str
    right: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bare:
    """A leaf that is a boolean by itself."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AllOf:
    """`a && b`: holds when every part holds."""

    text: str
    parts: tuple[Logic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyOf:
    """`a || b`: holds when one part holds."""

    text: str
    parts: tuple[Logic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Not:
    """`!a`."""

    text: str
    part: Logic


@dataclass(frozen=True, slots=True, kw_only=True)
class Either:
    """`condition ? then : otherwise`, all three logical."""

    text: str
    condition: Logic
    then: Logic
    otherwise: Logic


Logic: TypeAlias = Comparison | Bare | AllOf | AnyOf | Not | Either


def comparisons(text: str) -> Logic:
    """The logical tree of a check; every node carries its own text. Raises ExpressionFault when it does not parse."""
    return _logic(parse(text), text)


def _logic(node: Syntax, text: str) -> Logic:
    node = ungroup(node)
    own = text[node.start : node.end]
    match node:
        case Binary(operator="&&"):
            return AllOf(text=own, parts=tuple(_logic(part, text) for part in _flat(node, "&&")))
        case Binary(operator="||"):
            return AnyOf(text=own, parts=tuple(_logic(part, text) for part in _flat(node, "||")))
        case Unary(operator="!", operand=operand):
            return Not(text=own, part=_logic(operand, text))
        case Choice(condition=condition, then=then, otherwise=otherwise):
            parts = [_logic(part, text) for part in (condition, then, otherwise)]
            return Either(text=own, condition=parts[0], then=parts[1], otherwise=parts[2])
        case Binary(operator=operator, left=left, right=right) if operator in COMPARISONS:
            sides = (text[side.start : side.end] for side in (left, right))
            return Comparison(text=own, left=next(sides), operator=operator, right=next(sides))
        case _:
            return Bare(text=own)


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
    table = {**FUNCTIONS, **(functions or {})}
    faults: list[ExpressionFault] = []
    guarded = {name: _guard(name, function, faults) for name, function in table.items()}
    engine = _cel()
    try:
        value = engine.compile(render(node)).execute(engine.Context(variables=data, functions=guarded))
    except Exception as error:  # noqa: BLE001 - the library raises KeyError, TypeError, ValueError, RuntimeError …
        raise _explain(node, text, data, faults, error) from None
    if faults:
        raise faults[0]
    return _checked(value, node, text)


def _checked(value: Any, node: Syntax, text: str) -> Result:
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)):
        if not math.isfinite(value):
            raise MissingData(f"`{text}` is not a finite number", path=text, text=text, offset=node.start)
        return float(value)
    if isinstance(value, dict):
        return value
    raise ExpressionFault(f"`{text}` has no value", text=text, offset=node.start)


def _guard(name: str, function: Function, faults: list[ExpressionFault]) -> Function:
    """`function`, its failure noted in `faults`: an exception would not get through the CEL library, which logs it."""

    def guarded(*arguments: Any) -> Any:
        try:
            return as_data(function(*arguments))
        except ExpressionFault as fault:
            faults.append(fault)
        except (ArithmeticError, KeyError, TypeError, ValueError) as error:
            faults.append(MissingData(f"{name}(…) has no value: {error}", path=f"{name}(…)"))
        return None

    return guarded


def _explain(
    node: Syntax, text: str, data: Mapping[str, Any], faults: list[ExpressionFault], error: Exception
) -> ExpressionFault:
    if faults:
        return faults[0]
    missing = first_missing(node, data)
    if missing is not None:
        path = text[missing.start : missing.end]
        return MissingData(f"`{path}` has no data", path=path, text=text, offset=missing.start)
    if isinstance(error, KeyError):  # a member of a function's result, as in ratio(a, b).lower
        return MissingData(f"`{text}` reads {error}, which has no data", path=text, text=text, offset=node.start)
    if isinstance(error, ZeroDivisionError):
        return MissingData(f"`{text}` divides by zero", path=text, text=text, offset=node.start)
    return ExpressionFault(f"`{text}` cannot be evaluated: {str(error).partition('.')[0]}", text=text)


# ---- functions ---------------------------------------------------------------------------------------------------


def _at(ladder: Any, threads: float) -> Any:
    rungs = ladder.get(RUNGS, {}) if isinstance(ladder, Mapping) else {}
    tree = rungs.get(str(int(threads)))
    if tree is None:
        path = f"at({threads:g})"
        raise MissingData(f"{path} has no data: no valid iteration with {threads:g} threads", path=path)
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

"""The declared types of a statement's parameters against those that the server reports, and the decoding of its
columns.

The server reports the types when a statement is prepared. A whole number for an integer parameter is sent in binary;
other values are sent as text, which the server converts. Types that can never match are refused here, before the load,
so that they do not fail in every transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.dsl.workloads.base import Statement

AS_TEXT = 0  # no type's oid
# oid -> (name, smallest, largest)
_INTEGERS = {
    21: ("smallint", -(2**15), 2**15 - 1),
    23: ("integer", -(2**31), 2**31 - 1),
    20: ("bigint", -(2**63), 2**63 - 1),
    26: ("oid", 0, 2**32 - 1),
}
# oid of float4, float8. numeric is left as text: it may hold more digits than a float, and is sent back just as it
# came.
_FLOATS = frozenset({700, 701})
NUMERIC_OUT_OF_RANGE, INVALID_TEXT = "22003", "22P02"


def travels(statement: Statement, oids: Sequence[int]) -> list[int]:
    """The oid of each parameter that travels as what it is, AS_TEXT for the others. StatementFailure for a misfit."""
    ranges = statement.ranges or (None,) * len(oids)
    kinds = statement.arguments
    if len(kinds) != len(oids):
        what = f"statement {statement.name} has {len(kinds)} arguments, but the server finds {len(oids)} in it"
        raise StatementFailure("08P01", what, FailureKind.ERROR)
    for number, (oid, kind, bounds) in enumerate(zip(oids, kinds, ranges, strict=True), 1):
        _check(statement, number, oid, kind, bounds)
    return [oid if kind is int else AS_TEXT for oid, kind in zip(oids, kinds, strict=True)]


def described(oids: Sequence[int]) -> tuple[Callable[[bytes], Any], ...]:
    """Decoders of columns that come as text: int, float, or the text itself."""
    return tuple(int if oid in _INTEGERS else float if oid in _FLOATS else bytes.decode for oid in oids)


def _check(statement: Statement, number: int, oid: int, kind: type[object], bounds: tuple[int, int] | None) -> None:
    if oid not in _INTEGERS:
        return
    name, low, high = _INTEGERS[oid]
    if kind is float:
        what = f"argument {number} has fractions, but the server takes {name} there"
        raise StatementFailure(INVALID_TEXT, f"statement {statement.name}: {what}", FailureKind.ERROR)
    if bounds is not None and not low <= bounds[0] <= bounds[1] <= high:
        what = f"argument {number} goes from {bounds[0]} to {bounds[1]}, but the server takes {name} there"
        raise StatementFailure(NUMERIC_OUT_OF_RANGE, f"statement {statement.name}: {what}", FailureKind.ERROR)

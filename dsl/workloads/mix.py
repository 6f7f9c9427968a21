"""The mix of a workload: the `weights` of its transactions, read and checked alike for every kind that has them.

`Annotated[dict[str, float], mix(TRANSACTIONS)]` is the type of the field. No numpy here: `proveout check` imports this
module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidatorFunctionWrapHandler, WrapValidator


def mix(names: Sequence[str], *, empty: bool = False) -> WrapValidator:
    """The validator of a mix of these transactions: all of them in this order, 0 for those left out; `empty`: {} stays
    {}."""

    def read(value: object, handler: ValidatorFunctionWrapHandler) -> dict[str, float]:
        if empty and value == {}:
            return {}
        return _checked(handler(_in_order(value, names)), names)

    return WrapValidator(read)


def runs_any(transactions: Iterable[str]) -> Callable[[Any], bool]:
    """A function of a parameter model: whether its `weights` run one of these transactions."""
    chosen = tuple(transactions)
    return lambda model: any(model.weights[name] > 0 for name in chosen)


def _in_order(value: object, names: Sequence[str]) -> object:
    """All transactions in the kind's order; unknown names stay last, for `_checked` to report."""
    if not isinstance(value, Mapping):
        return value
    known = {name: value.get(name, 0.0) for name in names}
    return known | {name: weight for name, weight in value.items() if name not in known}


def _checked(value: dict[str, float], names: Sequence[str]) -> dict[str, float]:
    """Raise ValueError for an unknown transaction, a weight outside 0 … 1e9, or a sum of 0."""
    unknown = [name for name in value if name not in names]
    if unknown:
        raise ValueError(f"no transaction is called {', '.join(unknown)}; there are {', '.join(names)}")
    if any(not 0.0 <= weight <= 1e9 for weight in value.values()):
        raise ValueError("weights must be numbers from 0 to 1e9")
    if sum(value.values()) <= 0.0:
        raise ValueError("the weights sum to 0, so nothing would run; give at least one transaction a weight over 0")
    return value


def run_of(first: int, last: int, index: int, count: int) -> tuple[int, int]:
    """The `index`-th of `count` runs of the keys `first` … `last`: disjoint, in order, unlike by one key at most.

    >>> [run_of(1, 7, index, 3) for index in range(3)]
    [(1, 3), (4, 5), (6, 7)]
    """
    size, rest = divmod(last - first + 1, count)
    low = first + index * size + min(index, rest)
    return low, low + size + (index < rest) - 1

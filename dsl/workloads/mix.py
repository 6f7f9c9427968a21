"""The mix of a workload, the `weights` of its transactions, and the `range` of its keys: read and checked alike for
every kind that has them.

`Annotated[dict[str, float], mix(TRANSACTIONS)]` is the type of the weights; a model with a `range: Range` is a
`Ranged`. No numpy here: `proveout check` imports this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeAlias, TypeVar

from pydantic import (
    BeforeValidator,
    Field,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from proveout.dsl.plan.model_values import Strict
from proveout.dsl.workloads import sql_text
from proveout.dsl.workloads.base import Sql

Positive: TypeAlias = Annotated[int, Field(ge=1)]


def as_tuple(value: object) -> object:
    """YAML has lists; strict mode wants the tuple."""
    return tuple(value) if isinstance(value, list) else value


Range: TypeAlias = Annotated[tuple[Positive, Positive] | None, BeforeValidator(as_tuple)]
"""First and last key that a load touches; None for all."""


def mix(names: Sequence[str], *, empty: bool = False) -> WrapValidator:
    """The validator of a mix of these transactions: all of them in this order, 0 for those left out; `empty`: {} stays
    {}."""

    def read(value: object, handler: ValidatorFunctionWrapHandler) -> dict[str, float]:
        if empty and value == {}:
            return {}
        if isinstance(value, Mapping):  # unknown names stay last, for `_checked` to report
            value = {**dict.fromkeys(names, 0.0), **value}
        return _checked(handler(value), names)

    return WrapValidator(read)


def runs_any(transactions: Iterable[str]) -> Callable[[Any], bool]:
    """A function of a parameter model: whether its `weights` run one of these transactions."""
    chosen = tuple(transactions)
    return lambda model: any(model.weights[name] > 0 for name in chosen)


def writers(declared: Mapping[str, Sequence[Sql]]) -> tuple[str, ...]:
    """The transactions of which a statement changes rows."""
    return tuple(name for name, every in declared.items() if any(sql_text.changes(one.text) for one in every))


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


class Ranged(Strict):
    """Parameters of a load on a `range` of keys."""

    KEYS: ClassVar[tuple[str, str]]
    """The field with the number of keys, and their name."""
    if TYPE_CHECKING:
        range: tuple[int, int] | None

    @model_validator(mode="after")
    def _within_the_keys(self) -> Self:
        number, keys = self.KEYS
        if self.range is not None and not self.range[0] <= self.range[1] <= getattr(self, number):
            first, last = self.range
            raise ValueError(f"range [{first}, {last}] does not lie within the {keys} 1..{getattr(self, number)}")
        return self

    def span(self, each: int) -> tuple[int, int]:
        """The first and the last row that the load touches, of a table with `each` rows for a key."""
        return (self.first - 1) * each + 1, self.last * each

    @property
    def first(self) -> int:
        """The lowest key that the load touches."""
        return self.range[0] if self.range else 1

    @property
    def last(self) -> int:
        """The highest key that the load touches."""
        return self.range[1] if self.range else int(getattr(self, self.KEYS[0]))


R = TypeVar("R", bound=Ranged)


def division_problem(model: Ranged, instances: int) -> str | None:
    keys = model.last - model.first + 1
    return None if keys >= instances else f"{keys} {model.KEYS[1]} cannot be divided over {instances} instances"


def part(model: R, index: int, count: int) -> R:
    """The `index`-th of `count` runs of keys. ValueError when some would be empty."""
    if problem := division_problem(model, count):
        raise ValueError(problem)
    return model.model_copy(update={"range": run_of(model.first, model.last, index, count)})

"""What a plan may say about each kind of workload: strict models, transaction names, and the facts the compiler needs.

Data flow: the compiler validates a plan's `workloads:` entry with `KINDS[kind]` and stores `to_values(model)` in
`plan.Workload.parameters`; agents and the coordinator turn it back with `of_workload(workload)`. Only pydantic is
imported here, never numpy: `proveout check` starts in a fraction of a second.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from proveout.dsl.plan import Value, Workload

HLR_TRANSACTIONS: tuple[str, ...] = (
    "GetBasicSubscriberData",
    "GetAccessData",
    "GetNewDestination",
    "UpdateSubscriberData",
    "UpdateLocation",
    "InsertCallForwarding",
    "DeleteCallForwarding",
)
HLR_WEIGHTS: Mapping[str, float] = dict(zip(HLR_TRANSACTIONS, (35.0, 35.0, 10.0, 2.0, 14.0, 2.0, 2.0), strict=True))
HLR_WRITERS: frozenset[str] = frozenset(HLR_TRANSACTIONS[3:])

Positive: TypeAlias = Annotated[int, Field(ge=1)]


class Hlr(BaseModel):
    """Parameters of `kind: hlr` (the home location register workload, TATP)."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    population: int = Field(default=100_000, ge=1, le=10_000_000_000, description="Subscribers: rows in SUBSCRIBER.")
    keys: Literal["uniform", "nurand"] = Field(
        default="uniform", description="How subscribers are drawn: all alike, or with the specification's hot spots."
    )
    cardinality: Literal["tatp", "lab"] = Field(
        default="tatp",
        description="Rows beside each subscriber: the specification's 2.5 / 2.5 / 3.75 on average, or exactly 5 / 5 and 0.1.",
    )
    seed: int = Field(default=1, ge=0, lt=2**63, description="Seed of the data and of the keys drawn.")
    partitions: int = Field(default=1, ge=1, le=1_000, description="Range partitions of every table, by subscriber.")
    range: tuple[Positive, Positive] | None = Field(
        default=None, description="First and last subscriber that the load touches; all of them by default."
    )
    weights: dict[str, float] = Field(
        default_factory=lambda: dict(HLR_WEIGHTS),
        description="The mix: a weight per transaction; a transaction that is left out does not run.",
    )

    @field_validator("range", mode="before")
    @classmethod
    def _range_from_list(cls, value: object) -> object:
        """YAML has lists; strict mode wants the tuple."""
        return tuple(value) if isinstance(value, list) else value

    @field_validator("weights", mode="before")
    @classmethod
    def _weights_in_order(cls, value: object) -> object:
        """All seven, in the specification's order; unknown names stay, for the next validator to name them."""
        if not isinstance(value, Mapping):
            return value
        known = {name: value.get(name, 0.0) for name in HLR_TRANSACTIONS}
        return known | {name: weight for name, weight in value.items() if name not in known}

    @field_validator("weights")
    @classmethod
    def _weights_make_a_mix(cls, value: dict[str, float]) -> dict[str, float]:
        unknown = [name for name in value if name not in HLR_WEIGHTS]
        if unknown:
            raise ValueError(f"no transaction is called {', '.join(unknown)}; there are {', '.join(HLR_TRANSACTIONS)}")
        if any(not 0.0 <= weight <= 1e9 for weight in value.values()):
            raise ValueError("weights must be numbers from 0 to 1e9")
        if sum(value.values()) <= 0.0:
            raise ValueError(
                "the weights sum to 0, so nothing would run; give at least one transaction a weight over 0"
            )
        return value

    @model_validator(mode="after")
    def _within_the_population(self) -> Self:
        if self.partitions > self.population:
            raise ValueError(f"{self.partitions} partitions of {self.population} subscribers would leave some empty")
        if self.range is not None and not self.range[0] <= self.range[1] <= self.population:
            first, last = self.range
            raise ValueError(f"range [{first}, {last}] does not lie within the subscribers 1..{self.population}")
        return self

    @property
    def first(self) -> int:
        """The lowest subscriber that the load touches."""
        return self.range[0] if self.range else 1

    @property
    def last(self) -> int:
        """The highest subscriber that the load touches."""
        return self.range[1] if self.range else self.population


KINDS: Mapping[str, type[BaseModel]] = {"hlr": Hlr}
TRANSACTIONS: Mapping[str, tuple[str, ...]] = {"hlr": HLR_TRANSACTIONS}
WRITERS: Mapping[str, frozenset[str]] = {"hlr": HLR_WRITERS}
CHECKED_AFTER: Mapping[str, Literal["iteration", "stage"]] = {}
"""Kinds that have invariants (`base.Invariant`): looked at after the population, and then after every iteration, or where that
costs too much, at the end of every stage that ran a load."""


def to_values(model: BaseModel) -> tuple[tuple[str, Value], ...]:
    """A validated model as `plan.Workload.parameters`: every field, defaults too, sorted; mappings as (name, value) pairs."""
    return tuple(sorted((name, _value(value)) for name, value in model.model_dump().items()))


def of_workload(workload: Workload) -> BaseModel:
    """The parameter model of a compiled workload. Raises pydantic.ValidationError when it was not made by `to_values`."""
    model = KINDS[workload.kind]
    data: dict[str, Any] = {name: _field(model, name, value) for name, value in workload.parameters}
    return model.model_validate(data)


def writes(workload: Workload) -> bool:
    """Whether running this workload changes data, which its weights decide."""
    weights = dict(workload.parameters).get("weights")
    if not isinstance(weights, tuple):
        return bool(WRITERS[workload.kind])
    return any(pair[1] > 0 for pair in weights if pair[0] in WRITERS[workload.kind])  # type: ignore[index,operator]


def part_of(workload: Workload, index: int, count: int) -> Workload:
    """The share of one of `count` instances in a load: the same workload on its own run of the keys, equal in size to the others'.

    The runs are disjoint, in order, and differ by one key at most. Raises ValueError when there are fewer keys than instances.
    """
    model = of_workload(workload)
    if count == 1 or not isinstance(model, Hlr):
        return workload
    size, rest = divmod(model.last - model.first + 1, count)
    if not size:
        raise ValueError(f"{model.last - model.first + 1} subscribers cannot be divided over {count} instances")
    first = model.first + index * size + min(index, rest)
    part = model.model_copy(update={"range": (first, first + size + (index < rest) - 1)})
    return dataclasses.replace(workload, parameters=to_values(part))


def division_problem(model: BaseModel, kind: str, instances: int) -> str | None:
    """Why a workload cannot be run on a system of so many instances, or None when it can."""
    if instances < 2:
        return None
    if not isinstance(model, Hlr):
        return f"workload kind `{kind}` cannot give each instance its own keys; hlr can"
    if model.last - model.first + 1 < instances:
        return f"{model.last - model.first + 1} subscribers cannot be divided over {instances} instances"
    return None


def engine_problem(model: BaseModel, engine: str) -> str | None:
    """Why a workload with these parameters cannot be loaded into `engine`, or None when it can."""
    if engine == "sqlite" and isinstance(model, Hlr) and model.partitions > 1:
        return f"SQLite has no partitioned tables, but the workload asks for {model.partitions} partitions"
    if engine == "timesten":
        return (
            "populate does not load TimesTen in this release; an sql stage can: "
            "LOAD CACHE GROUP … COMMIT EVERY 256 ROWS PARALLEL 8"
        )
    return None


def _value(value: Any) -> Value:
    if isinstance(value, Mapping):
        return tuple((name, _value(item)) for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(_value(item) for item in value)
    plain: Value = value
    return plain


def _field(model: type[BaseModel], name: str, value: Value) -> Any:
    """A mapping field comes back from its pairs; lists (after a trip through JSON) come back as tuples."""
    field = model.model_fields.get(name)
    is_mapping = field is not None and getattr(field.annotation, "__origin__", None) is dict
    if is_mapping and isinstance(value, (tuple, list)):
        return {pair[0]: pair[1] for pair in value}  # type: ignore[index]
    return tuple(value) if isinstance(value, list) else value

"""What a plan may say about each kind of workload: strict models, transaction names, and the facts the compiler needs.

Data flow: the compiler validates a plan's `workloads:` entry with `KINDS[kind]` and stores `to_values(model)` in
`plan.Workload.parameters`; agents and the coordinator turn it back with `of_workload(workload)`. Only pydantic is
imported here, never numpy: `proveout check` starts in a fraction of a second.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from proveout.core.errors import ProveoutError
from proveout.dsl import extensions
from proveout.dsl.plan.plan import Workload
from proveout.dsl.schema.model_values import from_values
from proveout.dsl.schema.model_values import to_values as to_values  # noqa: PLC0414 - one place to import a workload from
from proveout.dsl.workloads import weights
from proveout.dsl.workloads.prepaid.parameters import PREPAID_TRANSACTIONS, PREPAID_WRITERS, Prepaid
from proveout.dsl.workloads.sql import sql_text
from proveout.dsl.workloads.sql.parameters import Custom, missing_table, missing_text
from proveout.dsl.workloads.tprocc.parameters import TPROCC_TRANSACTIONS, TPROCC_WRITERS, Tprocc
from proveout.dsl.workloads.tptbm.parameters import TPTBM_TRANSACTIONS, TPTBM_WRITERS, Tptbm

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
        return weights.in_order(value, HLR_TRANSACTIONS)

    @field_validator("weights")
    @classmethod
    def _weights_make_a_mix(cls, value: dict[str, float]) -> dict[str, float]:
        return weights.mix(value, HLR_TRANSACTIONS)

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


KINDS: Mapping[str, type[BaseModel]] = {"hlr": Hlr, "prepaid": Prepaid, "sql": Custom, "tprocc": Tprocc, "tptbm": Tptbm}
TRANSACTIONS: Mapping[str, tuple[str, ...]] = {
    "hlr": HLR_TRANSACTIONS,
    "prepaid": PREPAID_TRANSACTIONS,
    "tprocc": TPROCC_TRANSACTIONS,
    "tptbm": TPTBM_TRANSACTIONS,
}
"""Names of the transactions of kinds where the plan does not give them."""
WRITERS: Mapping[str, frozenset[str]] = {
    "hlr": HLR_WRITERS,
    "prepaid": PREPAID_WRITERS,
    "tprocc": TPROCC_WRITERS,
    "tptbm": TPTBM_WRITERS,
}
DIALECT_OF_ENGINE: Mapping[str, str] = {
    "postgres": "postgres", "sqlite": "sqlite", "oracle": "oracle", "timesten": "oracle", "mysql": "mysql",
    "duckdb": "duckdb",
}  # fmt: skip
"""In which dialect an engine is spoken to; that of an engine of another package its driver says, when a load is armed."""
CHECKED_AFTER: Mapping[str, Literal["iteration", "stage"]] = {"prepaid": "iteration", "tprocc": "stage"}
"""Kinds that have invariants (`base.Invariant`): looked at after the population, and then after every iteration, or where that
costs too much, at the end of every stage that ran a load."""
OF_OUR_ROWS: frozenset[str] = frozenset({"prepaid"})
"""Kinds whose invariants speak of the very rows that `populate` makes: not looked at where the plan populates nothing."""


def model_of(kind: str) -> type[BaseModel] | None:
    """The parameters of a kind, built in or of another package; None when there is none. ProveoutError: it cannot be loaded."""
    if kind in KINDS:
        return KINDS[kind]
    extension = extensions.workload(kind)
    return extension.parameters if extension is not None else None


def kinds() -> tuple[str, ...]:
    """The names of all kinds that there are here."""
    return (*KINDS, *(kind for kind in extensions.announced(extensions.WORKLOADS) if kind not in KINDS))


def _extension(kind: str) -> extensions.WorkloadExtension | None:
    return None if kind in KINDS else extensions.workload(kind)


def of_workload(workload: Workload) -> BaseModel:
    """The parameter model of a compiled workload. Raises pydantic.ValidationError when it was not made by `to_values`."""
    model = model_of(workload.kind)
    if model is None:
        raise ProveoutError(
            f"no workload kind is called {workload.kind!r}",
            where=f"workload {workload.name}",
            way_out=f"there are {', '.join(kinds())}; have the same release and packages on coordinator and agents",
        )
    return from_values(model, workload.parameters)


def transactions(workload: Workload) -> tuple[str, ...]:
    """The names of a workload's transactions."""
    model = of_workload(workload)
    if isinstance(model, Custom):
        return tuple(model.transactions)
    extension = _extension(workload.kind)
    return tuple(extension.transactions(model)) if extension else TRANSACTIONS[workload.kind]


def writes(workload: Workload) -> bool:
    """Whether running this workload changes data, which its weights (or the words of its SQL) decide."""
    model = of_workload(workload)
    if isinstance(model, Custom):
        return any(sql_text.writes(sql_text.scan(text)) for text in _texts(model))
    if extension := _extension(workload.kind):
        return extension.writes(model)
    mix = dict(workload.parameters).get("weights")
    if not isinstance(mix, tuple):
        return bool(WRITERS[workload.kind])
    return any(pair[1] > 0 for pair in mix if pair[0] in WRITERS[workload.kind])  # type: ignore[index,operator]


def expected_rows(workload: Workload) -> float:
    """Rows that a population has on average, all tables."""
    match of_workload(workload):
        case Hlr() as hlr:
            return hlr.population * (11.1 if hlr.cardinality == "lab" else 9.75)
        case Prepaid() as prepaid:
            return float(prepaid.population + prepaid.accounts)
        case Tptbm() as tptbm:
            return float(tptbm.rows)
        case Custom() as custom:
            return float(sum(table.rows for table in custom.tables.values()))
        case model:
            extension = _extension(workload.kind)
            return float(extension.rows(model)) if extension else 0.0


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
    if isinstance(model, Tprocc):
        return _warehouses_problem(model, instances)
    if not isinstance(model, Hlr):
        return f"workload kind `{kind}` cannot give each instance its own keys; hlr and tprocc can"
    if model.last - model.first + 1 < instances:
        return f"{model.last - model.first + 1} subscribers cannot be divided over {instances} instances"
    return None


def _warehouses_problem(model: Tprocc, instances: int) -> str | None:
    """Terminal n works at warehouse n mod warehouses and on instance n mod instances: each instance has warehouses of its own."""
    if model.home == "fixed" and model.warehouses % instances == 0:
        return None
    return f"{instances} instances need `home: fixed` and a number of warehouses that {instances} divides"


def is_in_order(workload: Workload) -> bool:
    """Whether its transactions are a set of queries, run in order, and not a mix."""
    model = of_workload(workload)
    return isinstance(model, Custom) and model.in_order


def table_names(workload: Workload) -> tuple[str, ...]:
    """The tables that a plan's author named; () for the workloads that are built in."""
    model = of_workload(workload)
    return tuple(model.tables) if isinstance(model, Custom) else ()


def has_tables(workload: Workload) -> bool:
    """Whether there is anything to populate."""
    model = of_workload(workload)
    return not isinstance(model, Custom) or bool(model.tables)


def population_problem(workload: Workload, engine: str) -> str | None:
    """Why a workload cannot be loaded into `engine`, or None when it can."""
    model = of_workload(workload)
    extension = _extension(workload.kind)
    own = extension.engine_problem(model, engine) if extension else None
    return own or engine_problem(model, engine)


def engine_problem(model: BaseModel, engine: str) -> str | None:
    """Why a workload with these parameters cannot be loaded into `engine`, or None when it can."""
    if engine == "timesten":
        return (
            "populate does not load TimesTen in this release; an sql stage can: "
            "LOAD CACHE GROUP … COMMIT EVERY 256 ROWS PARALLEL 8"
        )
    if isinstance(model, Custom):
        dialect = DIALECT_OF_ENGINE.get(engine)
        return missing_table(model, dialect) if dialect else None
    if engine == "sqlite" and isinstance(model, Hlr) and model.partitions > 1:
        return f"SQLite has no partitioned tables, but the workload asks for {model.partitions} partitions"
    if engine == "mysql" and isinstance(model, Hlr) and model.partitions > 1:
        return (
            "MySQL's partitioned tables have no foreign keys, by which this workload's inserts fail where they should; "
            f"the workload asks for {model.partitions} partitions"
        )
    if isinstance(model, Tprocc) and model.procedures and engine not in {"postgres", "oracle"}:
        return f"TPROC-C's procedures are written for PostgreSQL and Oracle, not for {engine}; leave `procedures` out"
    return None


def load_problem(model: BaseModel, engine: str) -> str | None:
    """Why a workload with these parameters cannot be run on `engine`, or None when it can."""
    dialect = DIALECT_OF_ENGINE.get(engine)
    return missing_text(model, dialect) if isinstance(model, Custom) and dialect else None


def _texts(model: Custom) -> list[str]:
    """All texts of the statements that run."""
    entries = [entry for entry in model.transactions.values() if entry.weight > 0]
    return [text for entry in entries for one in entry.statements.values() for text in one.sql.values()]

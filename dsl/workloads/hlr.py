"""The HLR workload (TATP): its parameters and its description for the compiler. No numpy here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from proveout.dsl import engines
from proveout.dsl.extensions import WorkloadExtension
from proveout.dsl.workloads.mix import Range, Ranged, division_problem, mix, part, runs_any

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


class Hlr(Ranged):
    """Parameters of `kind: hlr` (the home location register workload, TATP)."""

    KEYS = ("population", "subscribers")

    population: int = Field(default=100_000, ge=1, le=10_000_000_000, description="Subscribers: rows in SUBSCRIBER.")
    keys: Literal["uniform", "nurand"] = Field(
        default="uniform", description="Distribution of subscribers: all alike, or with the specification's hot spots."
    )
    cardinality: Literal["tatp", "lab"] = Field(
        default="tatp",
        description="Rows beside each subscriber: the specification's 2.5 / 2.5 / 3.75 on average, or exactly 5 / 5 "
        "and 0.1.",
    )
    seed: int = Field(default=1, ge=0, lt=2**63, description="Seed of the data and of the keys drawn.")
    partitions: int = Field(default=1, ge=1, le=1_000, description="Range partitions of every table, by subscriber.")
    range: Range = Field(
        default=None, description="First and last subscriber that the load touches; all of them by default."
    )
    weights: Annotated[dict[str, float], mix(HLR_TRANSACTIONS)] = Field(
        default_factory=lambda: dict(HLR_WEIGHTS),
        description="The mix: a weight per transaction; a transaction that is left out does not run.",
    )

    @model_validator(mode="after")
    def _no_empty_partitions(self) -> Self:
        if self.partitions > self.population:
            raise ValueError(f"{self.partitions} partitions of {self.population} subscribers would leave some empty")
        return self


def _engine_problem(model: Hlr, engine: str) -> str | None:
    if model.partitions == 1:
        return None
    if engine in {"sqlite", "duckdb", "timesten"}:
        title = engines.of(engine).title
        return f"{title} has no partitioned tables, but the workload asks for {model.partitions} partitions"
    if engine == "mysql":
        return (
            "MySQL's partitioned tables have no foreign keys, by which this workload's inserts fail where they should; "
            f"the workload asks for {model.partitions} partitions"
        )
    return None


KIND = WorkloadExtension(
    parameters=Hlr,
    transactions=lambda _: HLR_TRANSACTIONS,
    build="proveout.dsl.workloads.hlr_workload:build",
    writes=runs_any(HLR_WRITERS),
    rows=lambda model: model.population * (11.1 if model.cardinality == "lab" else 9.75),
    tables=lambda _: ("subscriber", "access_info", "special_facility", "call_forwarding"),
    load_only=frozenset({"keys", "range", "weights"}),
    engine_problem=_engine_problem,
    division_problem=division_problem,
    part=part,
)

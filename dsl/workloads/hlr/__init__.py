"""The HLR workload (home location register, TATP): its description for the compiler. No numpy here."""

from __future__ import annotations

from proveout.dsl import engines
from proveout.dsl.extensions import WorkloadExtension
from proveout.dsl.workloads.hlr.parameters import HLR_TRANSACTIONS, HLR_WRITERS, Hlr
from proveout.dsl.workloads.mix import runs_any


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


def _division_problem(model: Hlr, instances: int) -> str | None:
    subscribers = model.last - model.first + 1
    return (
        None if subscribers >= instances else f"{subscribers} subscribers cannot be divided over {instances} instances"
    )


def _part(model: Hlr, index: int, count: int) -> Hlr:
    """The `index`-th of `count` runs of subscribers."""
    size, rest = divmod(model.last - model.first + 1, count)
    if problem := _division_problem(model, count):
        raise ValueError(problem)
    first = model.first + index * size + min(index, rest)
    return model.model_copy(update={"range": (first, first + size + (index < rest) - 1)})


KIND = WorkloadExtension(
    parameters=Hlr,
    transactions=lambda _: HLR_TRANSACTIONS,
    build="proveout.dsl.workloads.hlr.workload:build",
    writes=runs_any(HLR_WRITERS),
    rows=lambda model: model.population * (11.1 if model.cardinality == "lab" else 9.75),
    tables=lambda _: ("subscriber", "access_info", "special_facility", "call_forwarding"),
    load_only=frozenset({"keys", "range", "weights"}),
    engine_problem=_engine_problem,
    division_problem=_division_problem,
    part=_part,
)

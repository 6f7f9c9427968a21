"""The TPC-B-like workload of pgbench: its description for the compiler. No numpy here."""

from __future__ import annotations

from proveout.dsl.extensions import WorkloadExtension
from proveout.dsl.workloads.mix import run_of, runs_any
from proveout.dsl.workloads.tpcb.parameters import TABLES, TPCB_TRANSACTIONS, TPCB_WRITERS, Tpcb, with_loads_of


def _division_problem(model: Tpcb, instances: int) -> str | None:
    branches = model.last - model.first + 1
    return None if branches >= instances else f"{branches} branches cannot be divided over {instances} instances"


def _part(model: Tpcb, index: int, count: int) -> Tpcb:
    """The `index`-th of `count` runs of branches."""
    if problem := _division_problem(model, count):
        raise ValueError(problem)
    return model.model_copy(update={"range": run_of(model.first, model.last, index, count)})


KIND = WorkloadExtension(
    parameters=Tpcb,
    transactions=lambda _: TPCB_TRANSACTIONS,
    build="proveout.dsl.workloads.tpcb.workload:build",
    writes=runs_any(TPCB_WRITERS),
    rows=lambda model: model.scale + model.tellers + model.accounts,
    tables=lambda _: TABLES,
    load_only=frozenset({"range", "weights"}),
    invariants_after="stage",
    invariants_of_population=True,
    invariants_beside=with_loads_of,
    division_problem=_division_problem,
    part=_part,
)

"""The prepaid workload (prepaid mobile or online banking): its description for the compiler. No numpy here."""

from __future__ import annotations

from proveout.dsl.extensions import WorkloadExtension
from proveout.dsl.workloads.mix import run_of, runs_any
from proveout.dsl.workloads.prepaid.parameters import PREPAID_TRANSACTIONS, PREPAID_WRITERS, Prepaid


def _division_problem(model: Prepaid, instances: int) -> str | None:
    customers = model.last - model.first + 1
    return None if customers >= instances else f"{customers} customers cannot be divided over {instances} instances"


def _part(model: Prepaid, index: int, count: int) -> Prepaid:
    """The `index`-th of `count` runs of customers."""
    if problem := _division_problem(model, count):
        raise ValueError(problem)
    return model.model_copy(update={"range": run_of(model.first, model.last, index, count)})


KIND = WorkloadExtension(
    parameters=Prepaid,
    transactions=lambda _: PREPAID_TRANSACTIONS,
    build="proveout.dsl.workloads.prepaid.workload:build",
    writes=runs_any(PREPAID_WRITERS),
    rows=lambda model: model.population + model.accounts,
    tables=lambda _: ("account_type", "account_status", "customers", "accounts", "transactions"),
    load_only=frozenset({"profile", "range", "weights"}),
    invariants_after="iteration",
    invariants_of_population=True,
    division_problem=_division_problem,
    part=_part,
)

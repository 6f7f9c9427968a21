"""The prepaid workload (prepaid mobile or online banking): its description for the compiler. No numpy here."""

from __future__ import annotations

from proveout.dsl.extensions import WorkloadExtension
from proveout.dsl.workloads.mix import runs_any
from proveout.dsl.workloads.prepaid.parameters import PREPAID_TRANSACTIONS, PREPAID_WRITERS, Prepaid

KIND = WorkloadExtension(
    parameters=Prepaid,
    transactions=lambda _: PREPAID_TRANSACTIONS,
    build="proveout.dsl.workloads.prepaid.workload:build",
    writes=runs_any(PREPAID_WRITERS),
    rows=lambda model: model.population + model.accounts,
    tables=lambda _: ("account_type", "account_status", "customers", "accounts", "transactions"),
    load_only=frozenset({"profile", "weights"}),
    invariants_after="iteration",
    invariants_of_population=True,
)

"""The TPROC-H workload (HammerDB's derivative of TPC-H): its description for the compiler. No numpy here."""

from __future__ import annotations

from proveout.dsl.extensions import WorkloadExtension
from proveout.dsl.workloads.tproch.parameters import (
    REFRESH_FUNCTIONS,
    TABLES,
    Tproch,
    refreshes,
    transactions,
)

KIND = WorkloadExtension(
    parameters=Tproch,
    transactions=transactions,
    build="proveout.dsl.workloads.tproch.workload:build",
    writes=refreshes,
    rows=lambda model: sum(model.rows(table) for table in TABLES),
    tables=lambda _: TABLES,
    load_only=frozenset({"queries", "refresh", "seed", "test"}),
    in_order=lambda _: True,
    updates=lambda model: REFRESH_FUNCTIONS if refreshes(model) else (),
    invariants_after="stage",
    invariants_of_population=True,
)

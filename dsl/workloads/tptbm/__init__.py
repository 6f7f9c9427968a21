"""The TPTBM workload (TimesTen's throughput benchmark): its description for the compiler. No numpy here."""

from __future__ import annotations

from proveout.dsl.extensions import WorkloadExtension
from proveout.dsl.workloads.mix import runs_any
from proveout.dsl.workloads.tptbm.parameters import TPTBM_TRANSACTIONS, TPTBM_WRITERS, Tptbm

KIND = WorkloadExtension(
    parameters=Tptbm,
    transactions=lambda _: TPTBM_TRANSACTIONS,
    build="proveout.dsl.workloads.tptbm.workload:build",
    writes=runs_any(TPTBM_WRITERS),
    rows=lambda model: model.rows,
    tables=lambda _: ("vpn_users",),
    load_only=frozenset({"ops_per_transaction", "weights"}),
    invariants_after="stage",
    invariants_of_population=True,
)

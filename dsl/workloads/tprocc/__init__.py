"""The TPROC-C workload (HammerDB's derivative of TPC-C): its description for the compiler. No numpy here."""

from __future__ import annotations

from proveout.dsl import engines
from proveout.dsl.extensions import WorkloadExtension
from proveout.dsl.workloads.mix import runs_any
from proveout.dsl.workloads.tprocc.parameters import (
    CUSTOMERS,
    DISTRICTS,
    ITEMS,
    NEW_ORDERS,
    TPROCC_TRANSACTIONS,
    TPROCC_WRITERS,
    Tprocc,
)

TABLES = ("item", "warehouse", "stock", "district", "customer", "history", "orders", "new_order", "order_line")


def _rows(model: Tprocc) -> float:
    """Rows of all tables; on average ten lines for an order (4.3.3.1)."""
    customers = model.warehouses * DISTRICTS * CUSTOMERS
    new_orders = model.warehouses * DISTRICTS * NEW_ORDERS
    return ITEMS + model.warehouses * (1 + ITEMS + DISTRICTS) + customers * (1 + 1 + 1 + 10) + new_orders


def _engine_problem(model: Tprocc, engine: str) -> str | None:
    if model.procedures and not engines.of(engine).procedures:
        return f"TPROC-C's procedures are written for PostgreSQL and Oracle, not for {engine}; leave `procedures` out"
    return None


def _load_problem(model: Tprocc, engine: str) -> str | None:
    if model.pipeline and not engines.of(engine).pipelines:
        return f"`pipeline` sends statements together over PostgreSQL's protocol, not to {engine}; leave it out"
    return None


def _division_problem(model: Tprocc, instances: int) -> str | None:
    """Terminal n works at warehouse n mod warehouses and on instance n mod instances: each instance has its own
    warehouses."""
    if model.home == "fixed" and model.warehouses % instances == 0:
        return None
    return f"{instances} instances need `home: fixed` and a number of warehouses that {instances} divides"


KIND = WorkloadExtension(
    parameters=Tprocc,
    transactions=lambda _: TPROCC_TRANSACTIONS,
    build="proveout.dsl.workloads.tprocc.workload:build",
    writes=runs_any(TPROCC_WRITERS),
    rows=_rows,
    tables=lambda _: TABLES,
    load_only=frozenset({"keys", "mix", "pipeline", "weights"}),
    engine_problem=_engine_problem,
    load_problem=_load_problem,
    division_problem=_division_problem,
    invariants_after="stage",
)

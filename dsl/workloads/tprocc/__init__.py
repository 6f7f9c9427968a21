"""The TPROC-C workload (HammerDB's derivative of TPC-C): its parameters and its description. No numpy here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from proveout.dsl import engines
from proveout.dsl.extensions import WorkloadExtension
from proveout.dsl.plan.model_values import Strict
from proveout.dsl.workloads.mix import mix as mix_of
from proveout.dsl.workloads.mix import runs_any

# Sources: TPC-C Standard Specification 5.11 (clause numbers in comments are its own); HammerDB's TPROC-C for what it
# leaves out: keying and think times are off by default, and customers and items are drawn uniformly (`keys: tproc`).

TPROCC_TRANSACTIONS: tuple[str, ...] = ("NewOrder", "Payment", "OrderStatus", "Delivery", "StockLevel")
MIXES: Mapping[str, Mapping[str, float]] = {
    # HammerDB draws U(1..23): ten of it are new orders, ten payments, one each of the others
    "hammerdb": dict(zip(TPROCC_TRANSACTIONS, (10.0, 10.0, 1.0, 1.0, 1.0), strict=True)),
    # as the study of the acceleration appliance prints it: 43 % order status and 4 % payments
    "paper": dict(zip(TPROCC_TRANSACTIONS, (45.0, 4.0, 43.0, 4.0, 4.0), strict=True)),
}
# 5.2.5.7: keying time before a transaction, and mean think time after it, s
KEYING_S: Mapping[str, float] = dict(zip(TPROCC_TRANSACTIONS, (18.0, 3.0, 2.0, 2.0, 2.0), strict=True))
THINKING_S: Mapping[str, float] = dict(zip(TPROCC_TRANSACTIONS, (12.0, 12.0, 10.0, 5.0, 5.0), strict=True))

ROLLED_BACK = 0.01
"""Of New Orders (2.4.1.4)."""
DISTRICTS = 10
CUSTOMERS = 3_000
"""Customers of a district; as many orders it has at the start."""
NEW_ORDERS = 900
"""Orders of a district that are not delivered at the start (4.3.3.1)."""
ITEMS = 100_000
UNITS_PER_WAREHOUSE = DISTRICTS * CUSTOMERS
"""A population's unit is a customer: a warehouse is too coarse to deal out, or to keep in memory."""


class Tprocc(Strict):
    """Parameters of `kind: tprocc` (TPROC-C, the order entry workload)."""

    warehouses: int = Field(
        default=1, ge=1, le=100_000, description="Warehouses: about 100 MB each; HammerDB advises 4 to 5 for each user."
    )
    keys: Literal["tproc", "tpc"] = Field(
        default="tproc",
        description="Distribution of customers and items: all alike as HammerDB does, or with the TPC specification's "
        "hot spots.",
    )
    procedures: bool = Field(
        default=False, description="Each transaction as one call of a stored procedure, instead of SQL from the client."
    )
    pipeline: bool = Field(
        default=False,
        description="SQL from the client on PostgreSQL: the statements of a transaction that do not need each other's "
        "results travel together, COMMIT with the last ones; by default each is a round trip.",
    )
    keying: bool = Field(
        default=False, description="Wait before each transaction for its keying time: 18, 3, 2, 2, 2 s."
    )
    thinking: bool = Field(
        default=False, description="Wait after each transaction: exponential, on average 12, 12, 10, 5, 5 s."
    )
    home: Literal["fixed", "all"] = Field(
        default="fixed", description="A user's warehouse: one of its own, or another one for each transaction."
    )
    seed: int = Field(default=1, ge=0, lt=2**63, description="Seed of the data and of the keys drawn.")
    mix: Literal["hammerdb", "paper"] = Field(
        default="hammerdb",
        description="The weights by name: HammerDB's 10, 10, 1, 1, 1 of 23, or the 45, 4, 43, 4, 4 that a published "
        "study prints for it.",
    )
    weights: Annotated[dict[str, float], mix_of(TPROCC_TRANSACTIONS)] = Field(
        default_factory=lambda data: dict(MIXES[data.get("mix", "hammerdb")]),
        description="A mix of one's own, not with `mix`: a weight per transaction; one that is left out does not run.",
    )

    @model_validator(mode="after")
    def _one_mix(self) -> Tprocc:
        if self.mix != "hammerdb" and self.weights != MIXES[self.mix]:
            raise ValueError("`mix` names weights, and `weights` states others: give one of them")
        return self

    @model_validator(mode="after")
    def _pipelined_statements(self) -> Tprocc:
        if self.pipeline and self.procedures:
            raise ValueError(
                "`procedures` sends each transaction as one call, so there is nothing for `pipeline` to send together"
            )
        return self


TABLES = ("item", "warehouse", "stock", "district", "customer", "history", "orders", "new_order", "order_line")


def row_counts(model: Tprocc) -> dict[str, int]:
    """Of each table (4.3.3.1); on average ten lines for an order."""
    warehouses, orders = model.warehouses, model.warehouses * UNITS_PER_WAREHOUSE
    fixed = (ITEMS, warehouses, warehouses * ITEMS, warehouses * DISTRICTS)
    counts = (*fixed, orders, orders, orders, warehouses * DISTRICTS * NEW_ORDERS, 10 * orders)
    return dict(zip(TABLES, counts, strict=True))


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
    build="proveout.dsl.workloads.tprocc.workload:TproccWorkload",
    writes=runs_any(("NewOrder", "Payment", "Delivery")),
    rows=lambda model: sum(row_counts(model).values()),
    tables=lambda _: TABLES,
    load_only=frozenset({"home", "keying", "keys", "mix", "pipeline", "thinking", "weights"}),
    engine_problem=_engine_problem,
    load_problem=_load_problem,
    division_problem=_division_problem,
    invariants_after="stage",
)

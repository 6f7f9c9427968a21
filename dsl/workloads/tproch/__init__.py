"""The TPROC-H workload (HammerDB's derivative of TPC-H): its parameters and its description. No numpy here."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from proveout.dsl.extensions import WorkloadExtension
from proveout.dsl.plan.model_values import Strict

# Source: TPC-H Standard Specification 3.0; clause numbers in comments are its own.

QUERIES: tuple[int, ...] = tuple(range(1, 23))
REFRESH_INSERT, REFRESH_DELETE = "RF1", "RF2"
REFRESH_FUNCTIONS = (REFRESH_INSERT, REFRESH_DELETE)

ORDERS_PER_SCALE = 1_500_000
"""Rows of ORDERS at scale factor 1 (4.2.5)."""
SETS = 1_000
"""Refresh sets after which every order of the population has been replaced: a set is 0.1 % of the orders (2.5.2)."""
UNITS_PER_SCALE = 100
"""A population's unit is a slice of all tables with 15,000 orders: scale factor 0.01 has one."""

TABLE_ROWS = {
    "region": 5,
    "nation": 25,
    "supplier": 10_000,
    "customer": 150_000,
    "part": 200_000,
    "partsupp": 800_000,
    "orders": ORDERS_PER_SCALE,
    "lineitem": 4 * ORDERS_PER_SCALE,
}
"""Rows at scale factor 1; of LINEITEM on average."""
FIXED = frozenset(("region", "nation"))
STATE = "refresh_state"
TABLES: tuple[str, ...] = (*TABLE_ROWS, STATE)


def _in_hundredths(value: float) -> float:
    if abs(value * UNITS_PER_SCALE - round(value * UNITS_PER_SCALE)) > 1e-6:
        raise ValueError("a scale factor is a multiple of 0.01, so that all tables have whole numbers of rows")
    if value > 1.0 and value != round(value):
        raise ValueError("a scale factor above 1 is a whole number: TPC-H's generator leaves a fraction out")
    return value


def _queries(value: list[int]) -> list[int]:
    unknown = [number for number in value if number not in QUERIES]
    if unknown:
        raise ValueError(f"query {unknown[0]} does not exist; the queries are 1 to {QUERIES[-1]}")
    if len(set(value)) < len(value):
        raise ValueError("a query is there twice")
    return sorted(value)


class Tproch(Strict):
    """Parameters of `kind: tproch` (TPROC-H, the decision support workload)."""

    scale: Annotated[float, AfterValidator(_in_hundredths)] = Field(
        default=0.01, ge=0.01, le=10_000, description="Scale factor: 1 is 1.5 million orders, about 1 GB of raw data."
    )
    test: Literal["power", "throughput", "refresh"] = Field(
        default="power",
        description="The pass of a terminal: the queries in the order of stream 0, between RF1 and RF2; the "
        "queries in the order of its own stream (1, 2, …); or RF1 and RF2 only.",
    )
    refresh: bool = Field(
        default=True, description="test: power: run RF1 before and RF2 after the queries; false: queries only."
    )
    queries: Annotated[list[int], AfterValidator(_queries)] = Field(
        default=list(QUERIES), min_length=1, description="The queries that run, by number; by default all 22."
    )
    seed: int = Field(
        default=1, ge=0, lt=2**63, description="Seed of the queries' parameters and of the rows of refresh sets."
    )

    @property
    def units(self) -> int:
        return round(self.scale * UNITS_PER_SCALE)

    @property
    def orders(self) -> int:
        """Rows of ORDERS after the load."""
        return self.units * ORDERS_PER_SCALE // UNITS_PER_SCALE

    @property
    def set_orders(self) -> int:
        """Orders of a refresh set."""
        return self.orders // SETS

    def rows(self, table: str) -> int:
        """Rows of a table after the load; of LINEITEM the average."""
        if table == STATE:
            return 1
        return TABLE_ROWS[table] if table in FIXED else TABLE_ROWS[table] * self.units // UNITS_PER_SCALE


def transactions(parameters: Tproch) -> tuple[str, ...]:
    """The names of the transactions of a pass, RF1 first, then the queries by number, then RF2."""
    queries = () if parameters.test == "refresh" else tuple(query_name(number) for number in parameters.queries)
    return (REFRESH_INSERT, *queries, REFRESH_DELETE) if refreshes(parameters) else queries


def refreshes(parameters: Tproch) -> bool:
    """Whether a pass has the refresh functions, which change rows."""
    return parameters.test == "refresh" or (parameters.test == "power" and parameters.refresh)


def query_name(number: int) -> str:
    """The name of a query's transaction."""
    return f"Q{number}"


KIND = WorkloadExtension(
    parameters=Tproch,
    transactions=transactions,
    build="proveout.dsl.workloads.tproch.workload:TprochWorkload",
    writes=refreshes,
    rows=lambda model: sum(model.rows(table) for table in TABLES),
    tables=lambda _: TABLES,
    load_only=frozenset({"queries", "refresh", "seed", "test"}),
    in_order=lambda _: True,
    updates=lambda model: REFRESH_FUNCTIONS if refreshes(model) else (),
    invariants_after="stage",
    invariants_of_population=True,
)

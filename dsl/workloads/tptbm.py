"""The TPTBM workload (TimesTen's throughput benchmark): its parameters and its description. No numpy here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from proveout.dsl.extensions import WorkloadExtension
from proveout.dsl.workloads.mix import mix, runs_any

TPTBM_TRANSACTIONS: tuple[str, ...] = ("Read", "Update", "Insert", "Delete")
TPTBM_WEIGHTS: Mapping[str, float] = dict(zip(TPTBM_TRANSACTIONS, (80.0, 10.0, 5.0, 5.0), strict=True))
TPTBM_WRITERS: frozenset[str] = frozenset(TPTBM_TRANSACTIONS[1:])


class Tptbm(BaseModel):
    """Parameters of `kind: tptbm` (TimesTen's throughput benchmark): one table of `key` × `key` rows."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    key: int = Field(default=100, ge=2, le=100_000, description="VPN_USERS has key × key rows; 3163 makes 10 million.")
    seed: int = Field(default=1, ge=0, lt=2**63, description="Seed of the keys drawn.")
    ops_per_transaction: int = Field(
        default=1, ge=1, le=10_000, description="Statements in a transaction, all of its own kind."
    )
    weights: Annotated[dict[str, float], mix(TPTBM_TRANSACTIONS)] = Field(
        default_factory=lambda: dict(TPTBM_WEIGHTS),
        description="The mix: a weight per transaction; one that is left out does not run. By default 80-10-5-5.",
    )

    @property
    def rows(self) -> int:
        """Rows that are loaded."""
        return self.key * self.key


KIND = WorkloadExtension(
    parameters=Tptbm,
    transactions=lambda _: TPTBM_TRANSACTIONS,
    build="proveout.dsl.workloads.tptbm_workload:build",
    writes=runs_any(TPTBM_WRITERS),
    rows=lambda model: model.rows,
    tables=lambda _: ("vpn_users",),
    load_only=frozenset({"ops_per_transaction", "weights"}),
    invariants_after="stage",
    invariants_of_population=True,
)

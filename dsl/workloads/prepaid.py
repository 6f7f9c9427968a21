"""The prepaid workload (prepaid mobile or online banking): its parameters and its description. No numpy here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from proveout.dsl.extensions import WorkloadExtension
from proveout.dsl.workloads.mix import Range, Ranged, division_problem, mix, part, runs_any

PREPAID_TRANSACTIONS: tuple[str, ...] = (
    "Authorize",
    "CheckBalance",
    "UpdateProfile",
    "ChangeBalance",
    "FindLowBalances",
)
PREPAID_WRITERS: frozenset[str] = frozenset(("UpdateProfile", "ChangeBalance"))
PROFILES: Mapping[str, Mapping[str, float]] = {
    "prepaid": dict(zip(PREPAID_TRANSACTIONS, (65.0, 10.0, 5.0, 15.0, 5.0), strict=True)),
    "banking": dict(zip(PREPAID_TRANSACTIONS, (20.0, 40.0, 10.0, 25.0, 5.0), strict=True)),
}
"""Ours: the published studies give no weights."""


class Prepaid(Ranged):
    """Parameters of `kind: prepaid` (prepaid mobile or online banking): customers, their accounts, a history that adds
    up."""

    KEYS = ("population", "customers")

    population: int = Field(default=100_000, ge=1, le=1_000_000_000, description="Customers: rows in CUSTOMERS.")
    accounts_per_customer: int = Field(default=1, ge=1, le=10, description="Accounts of each customer.")
    profile: Literal["prepaid", "banking"] = Field(
        default="prepaid", description="The amounts that are moved, and the default mix."
    )
    seed: int = Field(default=1, ge=0, lt=2**63, description="Seed of the data and of the keys drawn.")
    range: Range = Field(
        default=None, description="First and last customer that the load touches; all of them by default."
    )
    weights: Annotated[dict[str, float], mix(PREPAID_TRANSACTIONS, empty=True)] = Field(
        default_factory=dict,
        description="The mix: a weight per transaction; one that is left out does not run. By default the profile's.",
    )

    @model_validator(mode="after")
    def _weights_of_the_profile(self) -> Self:
        if not self.weights:
            self.weights.update(PROFILES[self.profile])
        return self

    @property
    def accounts(self) -> int:
        return self.population * self.accounts_per_customer

    @property
    def first_account(self) -> int:
        """The lowest account that the load touches."""
        return (self.first - 1) * self.accounts_per_customer + 1

    @property
    def last_account(self) -> int:
        """The highest account that the load touches."""
        return self.last * self.accounts_per_customer


KIND = WorkloadExtension(
    parameters=Prepaid,
    transactions=lambda _: PREPAID_TRANSACTIONS,
    build="proveout.dsl.workloads.prepaid_workload:build",
    writes=runs_any(PREPAID_WRITERS),
    rows=lambda model: model.population + model.accounts,
    tables=lambda _: ("account_type", "account_status", "customers", "accounts", "transactions"),
    load_only=frozenset({"profile", "range", "weights"}),
    invariants_after="iteration",
    invariants_of_population=True,
    division_problem=division_problem,
    part=part,
)

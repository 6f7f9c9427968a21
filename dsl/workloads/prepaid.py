"""The prepaid workload (prepaid mobile or online banking) as data: tables, statements, shares of success, parameters,
description. No numpy here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from proveout.core.data_classes import record
from proveout.dsl.extensions import WorkloadExtension
from proveout.dsl.workloads import ddl
from proveout.dsl.workloads.base import Invariant, Sql, numbers, sums
from proveout.dsl.workloads.mix import Range, Ranged, division_problem, mix, part, runs_any, writers

# They are those of the TimesTen Scaleout sample GridSample (oracle-samples/oracle-timesten-samples, cr_schema.sql),
# whose CUSTOMERS, ACCOUNTS, ACCOUNT_TYPE, ACCOUNT_STATUS and TRANSACTIONS are the ones that the prepaid and banking
# studies name. Ours: money is whole cents; dates are whole numbers yyyymmdd; a history row is named by the session (one
# terminal in one iteration) and its count there, where the sample takes a sequence and a time stamp; texts have one
# width.

TYPES: Mapping[str, str] = {
    "I": "Individual",
    "F": "Family",
    "H": "Home",
    "B": "Business",
    "P": "Prepaid Individual",
    "Q": "Prepaid Family",
}
STATUSES: Mapping[int, str] = {10: "Active", 20: "Pending", 30: "Grace", 40: "Suspended", 50: "Disconnected"}
ACTIVE = 10
DESCRIPTION_WIDTH = 20
SHAPES: tuple[ddl.TableShape, ...] = (
    ddl.table("account_type", f"account_type char(1), description char({DESCRIPTION_WIDTH})", "account_type"),
    ddl.table("account_status", f"status int2, description char({DESCRIPTION_WIDTH})", "status"),
    ddl.table(
        "customers",
        "cust_id int8, first_name char(8), last_name char(10), addr1 char(15), zipcode char(5), member_since int4",
        "cust_id",
    ),
    ddl.table(
        "accounts",
        "account_id int8, phone char(15), account_type char(1), status int2, current_balance int8, prev_balance int8, "
        "date_created int4, cust_id int8",
        "account_id",
        foreign_keys=(("cust_id", "customers"), ("account_type", "account_type"), ("status", "account_status")),
    ),
    ddl.table(
        "transactions",
        "account_id int8, session_id int8, transaction_nb int4, optype char(1), amount int8",
        "account_id, session_id, transaction_nb",
        foreign_keys=(("account_id", "accounts"),),
    ),
)
TABLES = tuple(shape.name for shape in SHAPES)

# In `change` the old balance is kept before the new one is set, because MySQL assigns from left to right; the others
# take all values from the old row.

SEARCHED = 100  # accounts that one search looks at

DECLARED: Mapping[str, Sequence[Sql]] = {
    # The user of an account, if it is active
    "Authorize": (
        Sql(
            "authorize",
            "SELECT c.cust_id, c.last_name, a.account_type, s.description"  # noqa: S608 - a constant of ours
            " FROM accounts a, customers c, account_status s"
            f" WHERE a.account_id = :account AND a.status = {ACTIVE} AND c.cust_id = a.cust_id AND s.status = a.status",
        ),
    ),
    "CheckBalance": (Sql("balance", "SELECT current_balance, prev_balance FROM accounts WHERE account_id = :account"),),
    "UpdateProfile": (Sql("profile", "UPDATE customers SET addr1 = :addr, zipcode = :zip WHERE cust_id = :customer"),),
    # Refill, credit or debit: the balance, and the history that it adds up with; neither when there is too little
    "ChangeBalance": (
        Sql(
            "change",
            "UPDATE accounts SET prev_balance = current_balance, current_balance = current_balance + :amount"
            " WHERE account_id = :account AND current_balance >= :needed",
        ),
        Sql(
            "record",
            "INSERT INTO transactions (account_id, session_id, transaction_nb, optype, amount)"
            " VALUES (:account, :session, :number, :code, :amount)",
        ),
    ),
    # The accounts of a run that have little left; there may be none
    "FindLowBalances": (
        Sql(
            "low",
            "SELECT account_id, cust_id, phone, current_balance FROM accounts"
            " WHERE account_id BETWEEN :account AND :last AND current_balance < :low",
            least=0,
            rows_max=SEARCHED,
        ),
    ),
}
PREPAID_TRANSACTIONS: tuple[str, ...] = tuple(DECLARED)
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


# Money is conserved: the balances sum to the opening balances and the movements of the history. That is an invariant,
# and so is that no account is overdrawn. A debit that is more than there is fails *logically*, as does an authorisation
# of an account that is not active.
#
# The transactions are those that Oracle's white papers on TimesTen Scaleout name; statements, amounts and weights are
# ours, after the sample GridSample.
#
# The amounts depend on the profile, in cents (ours): *prepaid* charges 0.10 … 0.95 nineteen times in twenty and refills
# 10.00 once, so that an account is used up about as fast as it is filled; *banking* credits and debits 1.00 … 100.00
# equally often.

LOW_BALANCE = 1_000  # cents
OPENING_MAX = 100_000  # cents
ACTIVE_SHARE = 0.9


@record
class Amounts:
    """The amounts of a profile: credits with that probability, from … to (cents, both included); likewise debits."""

    credit_share: float
    credit: tuple[int, int]
    debit: tuple[int, int]
    codes: str

    @property
    def debit_mean(self) -> float:
        """Mean of a debit, cents."""
        return sum(self.debit) / 2


AMOUNTS: Mapping[str, Amounts] = {
    "prepaid": Amounts(credit_share=0.05, credit=(1_000, 1_000), debit=(10, 95), codes="TC"),
    "banking": Amounts(credit_share=0.5, credit=(100, 10_000), debit=(100, 10_000), codes="CD"),
}


def expected_shares(parameters: Prepaid) -> Mapping[str, tuple[float, float]]:
    """The range of each transaction's success share, at any age of the data.

    An authorisation finds the accounts that are active. A change of balance fails when a debit is more than the
    balance: at most for the accounts that are emptier than the largest debit. With opening balances all alike over
    0 … M, the share of debits that fail stays below (mean debit + largest credit) / M, because any credit takes an
    account out of that range. A test holds that against simulated ageing.
    """
    kinds = AMOUNTS[parameters.profile]
    failing = (1.0 - kinds.credit_share) * (kinds.debit_mean + kinds.credit[1]) / OPENING_MAX
    some = {"Authorize": (ACTIVE_SHARE, ACTIVE_SHARE), "ChangeBalance": (1.0 - failing, 1.0)}
    return dict.fromkeys(PREPAID_TRANSACTIONS, (1.0, 1.0)) | some


def invariants(opening: int) -> tuple[Invariant, ...]:
    """Money is conserved, to the cent, since balances of that sum were opened; and no account is overdrawn."""
    balances = "(SELECT coalesce(sum(current_balance), 0) FROM accounts)"
    moved = "(SELECT coalesce(sum(amount), 0) FROM transactions)"
    covered = "SELECT count(CASE WHEN current_balance >= 0 THEN 1 END), count(*) FROM accounts"
    return (
        Invariant(
            name="balance",
            title="The balances sum to what they opened with and what the history has moved",
            left="balances",
            right="opening balances and history",
            statement=sums("totals", [balances], ["$1", moved], int),
            arguments=(opening,),
        ),
        Invariant(
            name="overdrawn",
            title="No account is overdrawn",
            left="accounts not overdrawn",
            right="accounts",
            statement=numbers("overdrawn", covered, rows_max=1),
        ),
    )


KIND = WorkloadExtension(
    parameters=Prepaid,
    transactions=lambda _: PREPAID_TRANSACTIONS,
    build="proveout.dsl.workloads.prepaid_workload:PrepaidWorkload",
    writes=runs_any(writers(DECLARED)),
    rows=lambda model: model.population + model.accounts,
    tables=lambda _: TABLES,
    load_only=frozenset({"profile", "range", "weights"}),
    invariants_after="iteration",
    invariants_of_population=True,
    division_problem=division_problem,
    part=part,
)

"""The prepaid workload (PPM/OLB, prepaid mobile or online banking): five transactions on customers and accounts.

Flow: `build(parameters)` -> `PrepaidWorkload`; a driver takes `keys(stream)` for each terminal, picks a
`TransactionType` by weight and runs it. Authorise a user, check a balance, update a profile, change a balance (refill,
credit or debit: the balance and a row of history in one transaction), search a run of accounts for low balances.

Money is conserved: the balances sum to the opening balances and the movements of the history. That
is an invariant, and so is that no account is overdrawn. A debit that is more than there is fails *logically*, as does
an authorisation of an account that is not active.

The transactions are those that Oracle's white papers on TimesTen Scaleout name; statements, amounts and weights are
ours, after the sample GridSample (see `prepaid.tables`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from operator import attrgetter
from typing import Any

from proveout.core.data_classes import dataclass
from proveout.dsl.workloads import ddl
from proveout.dsl.workloads.base import (
    Body,
    Invariant,
    Outcome,
    Population,
    Request,
    Statement,
    Step,
    Table,
    TransactionType,
    walk,
)
from proveout.dsl.workloads.conformance import Finding, Seen, judge_expected, judge_mix
from proveout.dsl.workloads.prepaid import rows as prepaid_rows
from proveout.dsl.workloads.prepaid.keys import AMOUNTS, Keys
from proveout.dsl.workloads.prepaid.parameters import Prepaid
from proveout.dsl.workloads.prepaid.rows import ACTIVE_SHARE, OPENING_MAX
from proveout.dsl.workloads.prepaid.statements import (
    AUTHORIZE,
    BALANCE,
    CHANGE,
    LOW,
    OVERDRAWN,
    PROFILE,
    RECORD,
    TOTALS,
)
from proveout.dsl.workloads.prepaid.tables import SHAPES, STATUSES, TYPES

COMMIT, LOGICAL_FAILURE = Outcome.COMMIT, Outcome.LOGICAL_FAILURE


def one_row(request: Request) -> Body:
    """One statement: the user of an account, if it is active; both balances of an account; a customer's new address."""
    result = yield request
    return COMMIT if result.count else LOGICAL_FAILURE


# Refill, credit or debit: the balance, and the history that it adds up with; neither when there is too little.
CHANGE_BALANCE = (Step(CHANGE), Step(RECORD))


def find_low_balances(request: Request) -> Body:
    """The accounts of a run that have little left; there may be none."""
    yield request
    return COMMIT


# Of each transaction: which of the keys its inputs are, its body, its statements
_BODIES: Mapping[str, tuple[str, Callable[[Any], Body], tuple[Statement, ...]]] = {
    "Authorize": ("authorize", one_row, (AUTHORIZE,)),
    "CheckBalance": ("balance", one_row, (BALANCE,)),
    "UpdateProfile": ("profile", one_row, (PROFILE,)),
    "ChangeBalance": ("change", partial(walk, CHANGE_BALANCE), (CHANGE, RECORD)),
    "FindLowBalances": ("low", find_low_balances, (LOW,)),
}


@dataclass(frozen=True)
class PrepaidWorkload:
    """A `base.WorkloadKind`: the prepaid workload with its parameters."""

    parameters: Prepaid

    @cached_property
    def transactions(self) -> tuple[TransactionType, ...]:
        """All five; those the plan leaves out have weight 0."""
        expected = expected_shares(self.parameters)
        fresh = {name: high for name, (_, high) in expected.items()}
        fresh["ChangeBalance"] = fresh_change(self.parameters)
        return tuple(
            TransactionType(
                name=name,
                weight=self.parameters.weights[name],
                inputs=attrgetter(source),
                body=body,
                statements=statements,
                single=len(statements) == 1,
                bare=body is one_row,
                steps=CHANGE_BALANCE if name == "ChangeBalance" else (),
                logical_failure=(1.0 - fresh[name], 1.0 - expected[name][0]),
            )
            for name, (source, body, statements) in _BODIES.items()
        )

    @cached_property
    def population(self) -> Population:
        """The five tables; `rows` makes their contents."""
        parameters = self.parameters
        tables = (
            Table(name=one.name, columns=one.columns, rows=partial(getattr(prepaid_rows, one.name), parameters))
            for one in SHAPES
        )
        rows = {
            "account_type": len(TYPES),
            "account_status": len(STATUSES),
            "customers": parameters.population,
            "accounts": parameters.accounts,
            "transactions": 0,
        }
        return Population(
            units=parameters.population,
            tables=tuple(tables),
            before=ddl.before(SHAPES),
            after=ddl.after(SHAPES),
            drop=ddl.drop(SHAPES),
            expected={name: (count, count) for name, count in rows.items()},
        )

    @cached_property
    def invariants(self) -> tuple[Invariant, ...]:
        """Money is conserved, to the cent; and no account is overdrawn."""
        conserved = Invariant(
            name="balance",
            title="The balances sum to what they opened with and what the history has moved",
            left="balances",
            right="opening balances and history",
            statement=TOTALS,
            arguments=(prepaid_rows.opening_total(self.parameters),),
        )
        covered = Invariant(
            name="overdrawn",
            title="No account is overdrawn",
            left="accounts not overdrawn",
            right="accounts",
            statement=OVERDRAWN,
        )
        return (conserved, covered)

    def keys(self, stream: int) -> Keys:
        """Arguments for one terminal; `stream` sets terminals (and repeats) apart."""
        return Keys(self.parameters, stream)

    def findings(self, seen: Sequence[Seen], _: Sequence[Prepaid]) -> tuple[Finding, ...]:
        """Whether the mix and the success shares are the expected ones, whatever the age of the data; see
        `conformance`."""
        expected, accounts = expected_shares(self.parameters), self.parameters.last_account
        accounts -= self.parameters.first_account - 1
        return judge_mix(self.parameters.weights, seen), judge_expected(expected, seen, accounts)


def build(parameters: Prepaid) -> PrepaidWorkload:
    """The workload of these parameters."""
    return PrepaidWorkload(parameters)


ALWAYS = (1.0, 1.0)


def fresh_change(parameters: Prepaid) -> float:
    """The share of balance changes that succeed on a fresh load."""
    kinds = AMOUNTS[parameters.profile]
    return 1.0 - (1.0 - kinds.credit_share) * kinds.debit_mean / (OPENING_MAX + 1)


def expected_shares(parameters: Prepaid) -> Mapping[str, tuple[float, float]]:
    """The range of each transaction's success share, at any age of the data.

    An authorisation finds the accounts that are active. A change of balance fails when a debit is more than the
    balance: at most for the accounts that are emptier than the largest debit. With opening balances all alike over
    0 … M, the share of debits that fail stays below (mean debit + largest credit) / M, because any credit takes an
    account out of that range. A test holds that against simulated ageing.
    """
    kinds = AMOUNTS[parameters.profile]
    failing = (1.0 - kinds.credit_share) * (kinds.debit_mean + kinds.credit[1]) / OPENING_MAX
    return {
        "Authorize": (ACTIVE_SHARE, ACTIVE_SHARE),
        "CheckBalance": ALWAYS,
        "UpdateProfile": ALWAYS,
        "ChangeBalance": (1.0 - failing, 1.0),
        "FindLowBalances": ALWAYS,
    }

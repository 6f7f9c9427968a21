"""Random arguments of the prepaid transactions, drawn ahead in numpy batches. Customers and accounts are drawn all
alike.

The amounts depend on the profile, in cents (ours): *prepaid* charges 0.10 … 0.95 nineteen times in twenty and refills
10.00 once, so that an account is used up about as fast as it is filled; *banking* credits and debits 1.00 … 100.00
equally often. A history row is named by the terminal's stripe (see `random_streams.stripe`: no two terminals of a load,
and no two iterations of a run, share one) and a count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import count as counted
from itertools import repeat

import numpy as np

from proveout.core.data_classes import dataclass
from proveout.dsl.workloads.base import Request, Row
from proveout.dsl.workloads.prepaid.parameters import PREPAID_TRANSACTIONS, Prepaid
from proveout.dsl.workloads.prepaid.statements import AUTHORIZE, BALANCE, LOW, PROFILE, SEARCHED
from proveout.dsl.workloads.random_streams import Draw, Ints, RowDraw, Rows, row, sources, stripe

PURPOSE = 200  # of the first transaction; other workloads' keys have others
LOW_BALANCE = 1_000  # cents


@dataclass(frozen=True, slots=True, kw_only=True)
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


class Keys:
    """One terminal's arguments: each attribute gives the next ones of a transaction."""

    __slots__ = ("authorize", "balance", "change", "low", "profile")

    def __init__(self, parameters: Prepaid, stream: int) -> None:
        account = partial(_between, parameters.first_account, parameters.last_account)
        customer = partial(_between, parameters.first, parameters.last)
        history = zip(repeat(stripe(stream)), counted())
        draws: tuple[Draw | RowDraw, ...] = (
            RowDraw(row("i8"), lambda random, n: ((account(random, n),),), AUTHORIZE),
            RowDraw(row("i8"), lambda random, n: ((account(random, n),),), BALANCE),
            lambda random, n: _profiles(random, n, customer(random, n)),
            lambda random, n: _changes(random, n, account(random, n), AMOUNTS[parameters.profile], history),
            RowDraw(
                row("i8", "i8", "i8"), lambda random, n: (_searches(account(random, n), parameters.last_account),), LOW
            ),
        )
        weights = parameters.weights
        chosen = [weights[name] for name in PREPAID_TRANSACTIONS]
        drawn = sources(draws, chosen, sum(weights.values()), seed=parameters.seed, purpose=PURPOSE, stream=stream)
        self.authorize: Callable[[], Request] = drawn[0]
        self.balance: Callable[[], Request] = drawn[1]
        self.profile: Callable[[], Request] = drawn[2]
        self.change: Callable[[], tuple[Row, Row]] = drawn[3]
        self.low: Callable[[], Request] = drawn[4]


def amounts(random: np.random.Generator, count: int, kinds: Amounts) -> Ints:
    """The amounts moved, in cents: credits above 0, debits below."""
    credits_ = random.integers(kinds.credit[0], kinds.credit[1] + 1, count)
    debits = random.integers(kinds.debit[0], kinds.debit[1] + 1, count)
    return np.where(random.random(count) < kinds.credit_share, credits_, -debits)


def _between(low: int, high: int, random: np.random.Generator, count: int) -> Ints:
    return random.integers(low, high + 1, count)


def _profiles(random: np.random.Generator, count: int, customers: Ints) -> Iterable[Request]:
    addresses = random.integers(0, 10**15, count).tolist()
    zips = random.integers(0, 10**5, count).tolist()
    return [
        (PROFILE, (f"{address:015d}", f"{code:05d}", customer))
        for address, code, customer in zip(addresses, zips, customers.tolist(), strict=True)
    ]


def _changes(
    random: np.random.Generator, count: int, accounts: Ints, kinds: Amounts, history: Iterator[tuple[int, int]]
) -> Iterable[tuple[Row, Row]]:
    """The change, which needs a balance of at least the amount debited, and its history row."""
    for account, amount in zip(accounts.tolist(), amounts(random, count, kinds).tolist(), strict=True):
        code = kinds.codes[amount < 0]
        yield (amount, account, max(0, -amount)), (account, *next(history), code, amount)


def _searches(accounts: Ints, last: int) -> Rows:
    """A run of accounts; at the end of those that the load touches it is shorter."""
    ends = np.minimum(accounts + (SEARCHED - 1), last)
    return accounts, ends, np.full(len(accounts), LOW_BALANCE)

"""The prepaid workload: the values of its statements' binds, and its rows."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np

from proveout.dsl.workloads import ddl, prepaid
from proveout.dsl.workloads.base import Invariant, Population
from proveout.dsl.workloads.prepaid import (
    ACTIVE,
    ACTIVE_SHARE,
    AMOUNTS,
    DESCRIPTION_WIDTH,
    LOW_BALANCE,
    OPENING_MAX,
    SEARCHED,
    SHAPES,
    STATUSES,
    TABLES,
    TYPES,
    Amounts,
    Prepaid,
)
from proveout.dsl.workloads.random_streams import (
    Ints,
    Rows,
    Words,
    choice,
    digits15,
    field,
    five_digits,
    letters,
    stripe,
    words,
)
from proveout.dsl.workloads.transactions import (
    WHOLE,
    Bind,
    Declared,
    constant,
    counting,
    derived,
    figures,
    whole,
)

# Customer c (from 1) has the accounts (c - 1)·n + 1 … c·n. Balances open at 0 … 1,000.00, all alike; nine accounts in
# ten are active, the others in one of the four other states; both are ours. The two tables of codes come with customer
# 1, and the history begins empty.

SLICE = 250_000
FIRST_YEAR, YEARS = 2000, 20


class Purpose(IntEnum):
    """The purpose of a stream: a part of the Philox key, so never renumbered. Other workloads have other purposes."""

    CUSTOMER = 31
    ACCOUNT = 32


def _codes(texts: Mapping[Any, str], kind: str, _: Prepaid, first: int, count: int) -> Rows:
    """ACCOUNT_TYPE, ACCOUNT_STATUS: code and description."""
    there = texts if first == 1 and count else {}
    described = [text.ljust(DESCRIPTION_WIDTH) for text in there.values()]
    return [np.array(list(there), kind), np.array(described, f"S{DESCRIPTION_WIDTH}")]


def customers(parameters: Prepaid, first: int, count: int) -> Rows:
    """CUSTOMERS: cust_id, two names in letters, an address in digits, a zip code, a date."""
    word = words(parameters.seed, Purpose.CUSTOMER, first, count, 4)
    return [
        np.arange(first, first + count, dtype=np.int64),
        letters(word[:, 0] % np.uint64(26**8), 8),
        letters(word[:, 1] % np.uint64(26**10), 10),
        digits15((word[:, 2] % np.uint64(10**15)).astype(np.int64)),
        five_digits()[choice(word[:, 3], 10**5)],
        _date(word[:, 3]),
    ]


def accounts(parameters: Prepaid, first: int, count: int) -> Rows:
    """ACCOUNTS: account_id, a phone number, type, status, both balances (cents), a date, cust_id."""
    each = parameters.accounts_per_customer
    ids = np.arange((first - 1) * each + 1, (first - 1 + count) * each + 1, dtype=np.int64)
    word = words(parameters.seed, Purpose.ACCOUNT, (first - 1) * each + 1, count * each, 2)
    codes = np.array(list(TYPES), dtype="S1")
    balance = _opening(word)
    return [
        ids,
        digits15(ids),
        codes[choice(word[:, 1], len(codes), 16)],
        _status(field(word[:, 1], 32, 16)),
        balance,
        balance,
        _date(word[:, 1]),
        (ids - 1) // each + 1,
    ]


def transactions(_: Prepaid, first: int, count: int) -> Rows:
    """TRANSACTIONS: none yet."""
    none = np.array([], dtype=np.int64)
    return [none, none, none, np.array([], dtype="S1"), none]


ROWS = {
    "account_type": partial(_codes, TYPES, "S1"),
    "account_status": partial(_codes, STATUSES, "i8"),
    **{one.__name__: one for one in (customers, accounts, transactions)},
}
"""The functions that make the rows, by table."""


@lru_cache(maxsize=16)
def opening_total(seed: int, accounts_count: int) -> int:
    """The sum of all opening balances, cents."""
    firsts = range(1, accounts_count + 1, SLICE)
    slices = ((first, min(SLICE, accounts_count - first + 1)) for first in firsts)
    return sum(int(_opening(words(seed, Purpose.ACCOUNT, first, count, 2)).sum()) for first, count in slices)


def _opening(word: Words) -> Ints:
    return choice(word[:, 0], OPENING_MAX + 1)


def _status(drawn: Ints) -> Ints:
    """From 16 bits: active below the share's edge, the four other states in turn above it."""
    edge = round(ACTIVE_SHARE * 2**16)
    others = np.array([code for code in STATUSES if code != ACTIVE], dtype=np.int64)
    return np.where(drawn < edge, ACTIVE, others[(drawn - edge) % len(others)])


def _date(word: Words) -> Ints:
    """yyyymmdd of twenty years' days, from the low 32 bits."""
    year = FIRST_YEAR + choice(word << np.uint64(48), YEARS, 16)
    return year * 10_000 + (1 + field(word, 16, 8) % 12) * 100 + 1 + field(word, 24, 8) % 28


def amounts(random: np.random.Generator, count: int, kinds: Amounts) -> Ints:
    """The amounts moved, in cents: credits above 0, debits below."""
    credits_ = random.integers(kinds.credit[0], kinds.credit[1] + 1, count)
    debits = random.integers(kinds.debit[0], kinds.debit[1] + 1, count)
    return np.where(random.random(count) < kinds.credit_share, credits_, -debits)


class PrepaidWorkload(Declared):
    """A `base.WorkloadKind`: the prepaid workload with its parameters. A history row is named by the terminal's stripe
    (see `random_streams.stripe`: no two terminals of a load, and no two iterations of a run, share one) and a count."""

    parameters: Prepaid
    declared = prepaid.DECLARED
    purpose = 200

    def binds(self, transaction: str, stream: int) -> Mapping[str, Bind]:
        """Accounts and customers of the load's range, all alike; a search is shorter at the end of the range."""
        parameters, kinds = self.parameters, AMOUNTS[self.parameters.profile]
        first, last = parameters.span(parameters.accounts_per_customer)
        return {
            "account": whole(first, last),
            "customer": whole(parameters.first, parameters.last),
            "addr": figures(15),
            "zip": figures(5),
            "amount": Bind(WHOLE, lambda random, count, _: amounts(random, count, kinds)),
            "needed": derived(WHOLE, lambda drawn: np.maximum(0, -drawn["amount"])),
            "session": constant(WHOLE, stripe(stream)),
            "number": counting(),
            "code": derived("U1", lambda drawn: np.where(drawn["amount"] < 0, kinds.codes[1], kinds.codes[0])),
            "last": derived(WHOLE, lambda drawn: np.minimum(drawn["account"] + (SEARCHED - 1), last)),
            "low": constant(WHOLE, LOW_BALANCE),
        }

    def failures(self, transaction: str) -> tuple[float, float]:
        low, high = prepaid.expected_shares(self.parameters)[transaction]
        return 1.0 - high, 1.0 - low

    @property
    def sample(self) -> float:
        first, last = self.parameters.span(self.parameters.accounts_per_customer)
        return last - first + 1

    @cached_property
    def population(self) -> Population:
        """The five tables, in units of customers."""
        own = self.parameters
        counts = dict(zip(TABLES, (len(TYPES), len(STATUSES), own.population, own.accounts, 0), strict=True))
        return ddl.population(own.population, SHAPES, lambda name, *units: ROWS[name](own, *units), counts)

    @cached_property
    def invariants(self) -> tuple[Invariant, ...]:
        return prepaid.invariants(opening_total(self.parameters.seed, self.parameters.accounts))

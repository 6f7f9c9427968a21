"""The rows of the prepaid workload, made by arithmetic from customer numbers: see `random_streams` for how slices stay
independent.

Customer c (from 1) has the accounts (c - 1)·n + 1 … c·n. Balances open at 0 … 1,000.00, all alike; nine accounts in ten
are active, the others in one of the four other states; both are ours. The two tables of codes come with customer 1, and
the history begins empty.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache

import numpy as np

from proveout.dsl.workloads.prepaid.parameters import Prepaid
from proveout.dsl.workloads.prepaid.tables import ACTIVE, DESCRIPTION_WIDTH, STATUSES, TYPES
from proveout.dsl.workloads.random_streams import (
    Ints,
    Rows,
    Words,
    choice,
    digits15,
    field,
    five_digits,
    letters,
    words,
)

OPENING_MAX = 100_000  # cents
ACTIVE_SHARE = 0.9
SLICE = 250_000
FIRST_YEAR, YEARS = 2000, 20


class Purpose(IntEnum):
    """The purpose of a stream: a part of the Philox key, so never renumbered. Other workloads have other purposes."""

    CUSTOMER = 31
    ACCOUNT = 32


def account_type(_: Prepaid, first: int, count: int) -> Rows:
    """ACCOUNT_TYPE: code and description."""
    codes = list(TYPES) if first == 1 and count else []
    texts = [TYPES[code].ljust(DESCRIPTION_WIDTH) for code in codes]
    return [np.array(codes, dtype="S1"), np.array(texts, dtype=f"S{DESCRIPTION_WIDTH}")]


def account_status(_: Prepaid, first: int, count: int) -> Rows:
    """ACCOUNT_STATUS: code and description."""
    codes = list(STATUSES) if first == 1 and count else []
    texts = [STATUSES[code].ljust(DESCRIPTION_WIDTH) for code in codes]
    return [np.array(codes, dtype=np.int64), np.array(texts, dtype=f"S{DESCRIPTION_WIDTH}")]


def customers(parameters: Prepaid, first: int, count: int) -> Rows:
    """CUSTOMERS: cust_id, two names in letters, an address in digits, a zip code, a date."""
    word = words(parameters.seed, Purpose.CUSTOMER, first, count, 4)
    return [
        np.arange(first, first + count, dtype=np.int64),
        letters(word[:, 0] % np.uint64(26**8), 8),
        letters(word[:, 1] % np.uint64(26**10), 10),
        digits15((word[:, 2] % np.uint64(10**15)).astype(np.int64)),
        five_digits()[choice(word[:, 3] >> np.uint64(32), 10**5, 32)],
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
        codes[choice(word[:, 1] >> np.uint64(48), len(codes), 16)],
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


def opening_total(parameters: Prepaid) -> int:
    """The sum of all opening balances, cents."""
    return _total(parameters.seed, parameters.accounts)


@lru_cache(maxsize=16)
def _total(seed: int, accounts_count: int) -> int:
    firsts = range(1, accounts_count + 1, SLICE)
    slices = ((first, min(SLICE, accounts_count - first + 1)) for first in firsts)
    return sum(int(_opening(words(seed, Purpose.ACCOUNT, first, count, 2)).sum()) for first, count in slices)


def _opening(word: Words) -> Ints:
    return choice(word[:, 0] >> np.uint64(32), OPENING_MAX + 1, 32)


def _status(drawn: Ints) -> Ints:
    """From 16 bits: active below the share's edge, the four other states in turn above it."""
    edge = round(ACTIVE_SHARE * 2**16)
    others = np.array([code for code in STATUSES if code != ACTIVE], dtype=np.int64)
    return np.where(drawn < edge, ACTIVE, others[(drawn - edge) % len(others)])


def _date(word: Words) -> Ints:
    """yyyymmdd of twenty years' days, from the low 32 bits."""
    year = FIRST_YEAR + choice(word & np.uint64(0xFFFF), YEARS, 16)
    return year * 10_000 + (1 + field(word, 16, 8) % 12) * 100 + 1 + field(word, 24, 8) % 28

"""Random arguments of the TPC-B-like transactions, drawn ahead in numpy batches.

As in pgbench, account, teller and branch of a transaction are drawn apart, each of all alike, and so is the amount,
-5,000 … 5,000: an account's own branch is another one as a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from proveout.dsl.workloads.base import Request
from proveout.dsl.workloads.random_streams import Ints, RowDraw, Rows, row, sources, steps
from proveout.dsl.workloads.tpcb.parameters import TELLERS_PER_BRANCH, TPCB_TRANSACTIONS, Tpcb
from proveout.dsl.workloads.tpcb.statements import GET_BALANCE

PURPOSE = 300  # of the first transaction; other workloads' keys have others
DELTA_MAX = 5_000
_CHANGE, _KEY, _HISTORY = row("i8", "i8"), row("i8"), row("i8", "i8", "i8", "i8")


class Keys:
    """One terminal's arguments: each attribute gives the next ones of a transaction."""

    __slots__ = ("select_only", "simple_update", "tpcb_like")

    def __init__(self, parameters: Tpcb, stream: int) -> None:
        change = _Changes(parameters)
        draws = (
            RowDraw(steps(_CHANGE, _KEY, _CHANGE, _CHANGE, _HISTORY), change.of_all),
            RowDraw(steps(_CHANGE, _KEY, _HISTORY), change.of_account),
            RowDraw(_KEY, lambda random, n: ((change.account(random, n),),), GET_BALANCE),
        )
        weights = [parameters.weights[name] for name in TPCB_TRANSACTIONS]
        drawn = sources(draws, weights, sum(weights), seed=parameters.seed, purpose=PURPOSE, stream=stream)
        self.tpcb_like: Callable[[], tuple[Any, ...]] = drawn[0]
        self.simple_update: Callable[[], tuple[Any, ...]] = drawn[1]
        self.select_only: Callable[[], Request] = drawn[2]


class _Changes:
    """Draws within the branches of a load."""

    def __init__(self, parameters: Tpcb) -> None:
        self._first, self._last = parameters.first, parameters.last
        self._accounts = parameters.accounts_per_branch

    def account(self, random: np.random.Generator, count: int) -> Ints:
        """Accounts of the branches."""
        return self._among(self._accounts, random, count)

    def of_all(self, random: np.random.Generator, count: int) -> Sequence[Rows]:
        """The arguments of account, balance, teller, branch and history."""
        aids, bids, tids, deltas = self._draw(random, count)
        return (deltas, aids), (aids,), (deltas, tids), (deltas, bids), (tids, bids, aids, deltas)

    def of_account(self, random: np.random.Generator, count: int) -> Sequence[Rows]:
        """The arguments of account, balance and history."""
        aids, bids, tids, deltas = self._draw(random, count)
        return (deltas, aids), (aids,), (tids, bids, aids, deltas)

    def _draw(self, random: np.random.Generator, count: int) -> tuple[Ints, Ints, Ints, Ints]:
        return (
            self.account(random, count),
            self._among(1, random, count),
            self._among(TELLERS_PER_BRANCH, random, count),
            random.integers(-DELTA_MAX, DELTA_MAX + 1, count),
        )

    def _among(self, each: int, random: np.random.Generator, count: int) -> Ints:
        """Numbers from 1 of rows of which each branch has `each`."""
        return random.integers((self._first - 1) * each + 1, self._last * each + 1, count)

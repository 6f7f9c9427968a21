"""Think time of closed arrival: keying before a transaction and thinking after it, per transaction type, drawn per
terminal.

Flow: (workload, think time of the ladder, stream) -> `ThinkTimes`, between a terminal and its mix: the next transaction
is drawn when the last one ends, because its keying time depends on its type -> `next_ns()`, the wait of the terminal ->
`next_kind()`, the next transaction. A terminal without think time does not use this.

Exponential times are cut at ten times their mean, as TPC-C (5.2.5.4) allows; this lowers the mean by 0.005 %. Keying
time is constant (5.2.5.2). Neither is part of a response time: under closed arrival a transaction is intended when it
starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from proveout.dsl.plan.stages import Think
from proveout.dsl.workloads.base import TransactionType

if TYPE_CHECKING:
    from proveout.agent.load.loop.transaction import Kind

THINK_PURPOSE = 4_000  # separates this stream from those of keys, arrivals and the mix
MEANS_MAX = 10.0
BATCH = 64


class ThinkTimes:
    """Think times of one terminal, and its mix, drawn one transaction ahead."""

    __slots__ = ("_draw", "_keying_ns", "_thinking", "_upcoming")

    def __init__(
        self, transactions: Sequence[TransactionType], think: Think | None, stream: int, draw: Callable[[], Kind]
    ) -> None:
        self._draw = draw
        self._keying_ns = [round(kind.keying_s * 1e9) for kind in transactions]
        self._thinking = [_thinking(kind, think, stream, number) for number, kind in enumerate(transactions)]
        self._upcoming = draw()

    @staticmethod
    def are_wanted(transactions: Sequence[TransactionType], think: Think | None) -> bool:
        """Whether terminals of this mix have think time."""
        own = any(kind.keying_s > 0 or kind.thinking_s > 0 for kind in transactions if kind.weight > 0)
        return own or (think is not None and think.mean_s > 0)

    def next_kind(self) -> Kind:
        """The next transaction."""
        kind, self._upcoming = self._upcoming, self._draw()
        return kind

    def first_ns(self) -> int:
        """Keying time of the first transaction, ns."""
        return self._keying_ns[self._upcoming.number]

    def next_ns(self, ended: Kind) -> int:
        """Wait after a transaction: its think time plus the keying time of the next one, ns."""
        return next(self._thinking[ended.number]) + self._keying_ns[self._upcoming.number]


def _thinking(kind: TransactionType, think: Think | None, stream: int, number: int) -> Iterator[int]:
    """Endless think times after one type of transaction, ns."""
    chosen = Think(mean_s=kind.thinking_s) if think is None else think
    mean_ns = chosen.mean_s * 1e9
    counter = np.array((0, 0, stream & (2**64 - 1), stream >> 64), dtype=np.uint64)
    random = np.random.Generator(
        np.random.Philox(key=np.array((number, THINK_PURPOSE), dtype=np.uint64), counter=counter)
    )
    while True:
        if chosen.distribution == "constant" or not mean_ns:
            yield round(mean_ns)
        else:
            drawn = np.minimum(random.standard_exponential(BATCH), MEANS_MAX) * mean_ns
            yield from np.rint(drawn).astype(np.int64).tolist()

"""The pauses of closed arrival: keying before a transaction, thinking after it, per transaction type, drawn per terminal.

Flow: (workload, the ladder's think time, stream) -> `Pauses`, which stands between a terminal and its mix: the kind of the next
transaction is drawn when the last one ends, because the time to key it in depends on it -> `next_ns()`, how long the
terminal waits -> `next_kind()`, the transaction that it waited for. A terminal without pauses has none of this.

Exponential times are cut at ten times their mean, as TPC-C (5.2.5.4) allows; that takes 0.005 % off the mean. Keying is
constant (5.2.5.2). Neither is part of a response time: closed arrival intends a transaction when it begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from proveout.dsl.plan.stages import Think
from proveout.dsl.workloads.base import TransactionType

if TYPE_CHECKING:
    from proveout.agent.load.loop.transaction import Kind

THINK_PURPOSE = 4_000  # keeps this stream apart from those of keys, arrivals and the mix
MEANS_MAX = 10.0
BATCH = 64


class Pauses:
    """The pauses of one terminal, and its mix drawn one ahead."""

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
        """Whether terminals of this mix wait at all."""
        own = any(kind.keying_s > 0 or kind.thinking_s > 0 for kind in transactions if kind.weight > 0)
        return own or (think is not None and think.mean_s > 0)

    def next_kind(self) -> Kind:
        """The transaction that the terminal has waited for."""
        kind, self._upcoming = self._upcoming, self._draw()
        return kind

    def first_ns(self) -> int:
        """How long the first transaction is keyed in."""
        return self._keying_ns[self._upcoming.number]

    def next_ns(self, ended: Kind) -> int:
        """How long to wait after a transaction: it is thought about, and the next one keyed in; ns."""
        return next(self._thinking[ended.number]) + self._keying_ns[self._upcoming.number]


def _thinking(kind: TransactionType, think: Think | None, stream: int, number: int) -> Iterator[int]:
    """The think times after one type of transaction, ns, without end."""
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

"""A terminal: one simulated user with a connection, random streams of arrivals, transactions and keys, and state.

Terminals are numbered over all agents, and all random values of a terminal depend on (seed, number) only: the division
of a load among agents and workers does not change its transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from proveout.agent.engines.driver_contract import CarriesCommit
from proveout.agent.load.commit_tally import Tally
from proveout.agent.load.intensity import Int64s
from proveout.agent.load.loop.recorder import Recorder
from proveout.agent.load.loop.transaction import Kind, kinds, mix
from proveout.agent.load.loop.transaction_loop import TerminalState
from proveout.agent.load.pacing import Pacing
from proveout.agent.load.think_time import ThinkTimes
from proveout.dsl.workloads.base import WorkloadKind

RETRIES_MAX = 10


class Terminal(TerminalState):
    """State of one terminal; the hot loop reads and writes the fields of `TerminalState`.

    `body` is the generator of the running transaction (None: its only statement was sent directly). `pending_ns` is the
    intended time of the next transaction while the terminal waits for it. `busy`: a transaction is running. `attempts`
    counts the attempts of the transaction that started at `failing_ns`, all with the same `inputs`. A `restless`
    terminal starts the next transaction as soon as one has ended; other terminals follow a schedule (`fires`), have
    `pauses`, until `until_ns`, or begin transactions only in the times of their `activity`. The compiled loop
    starts the transactions of a `timed` terminal itself: it only has a schedule or pauses. With `passes`, `left` counts
    the transactions until the end of the last one, and `passes_s` has the time of each pass; the next one begins at
    `pass_began_ns`. Where connections are lent, `session` is None between two transactions. `carries`: the session
    `CarriesCommit`. `tally`: the account of its commits, where they are tracked.
    """

    __slots__ = (
        "_kinds",
        "_weights",
        "activity",
        "attempts",
        "carries",
        "connects",
        "failing_ns",
        "fd",
        "left",
        "lost_ns",
        "next_kind",
        "pass_began_ns",
        "passes_s",
        "rolling_back",
        "tally",
    )

    def __init__(
        self,
        number: int,
        *,
        workload: WorkloadKind,
        pacing: Pacing,
        recorder: Recorder,
        seed: int,
        session: Any,
        prepared: dict[str, Any],
        passes: int = 0,
        tally: Tally | None = None,
    ) -> None:
        super().__init__()
        stream = stream_of(seed, number)
        self.number = number
        self._weights = [kind.weight for kind in workload.transactions]
        self._kinds = kinds(workload, workload.keys(stream), recorder.times, tally)
        self.tally = tally
        self.draw = mix(self._kinds, workload, stream)
        self.next_kind: Callable[[], Kind] = self.draw.__next__
        self.kind = self._kinds[0]
        self.fires = pacing.fire_times(number).__next__ if pacing.is_open else None
        if self.fires is None and ThinkTimes.are_wanted(workload.transactions, pacing.think):
            self.pauses = ThinkTimes(workload.transactions, pacing.think, stream, self.next_kind)
            self.next_kind = self.pauses.next_kind
        self.left = passes * len(self._kinds)
        self.pass_began_ns = 0
        self.passes_s: list[float] = []
        self.activity = pacing.activity(number)
        self.restless = self.fires is None and self.pauses is None and self.activity is None and not passes
        scheduled = self.fires is not None or self.pauses is not None
        self.timed = scheduled and self.activity is None and not passes
        self.failing_ns = self.lost_ns = 0
        self.attempts = self.connects = 0
        self.rolling_back = self.carries = False
        self.fd = -1
        if session is not None:
            self.bind(session, prepared)

    def begins_ns(self, pacing: Pacing) -> int:
        """Due time of the first transaction, ns after T0."""
        if self.fires is not None:
            return self.fires()
        return self.active_ns(pacing.start_ns(self.number) + (self.pauses.first_ns() if self.pauses else 0))

    def active_ns(self, at_ns: int) -> int:
        """The first instant from `at_ns` on at which it may begin a transaction, both ns after T0."""
        return at_ns if self.activity is None else self.activity.from_ns(at_ns)

    def has_more(self, now_ns: int) -> bool:
        """Count a transaction of the passes that has ended, or failed. Returns False after the last one."""
        self.left -= 1
        if self.left % len(self._kinds) == 0:
            self.passes_s.append((now_ns - self.pass_began_ns) / 1e9)
            self.pass_began_ns = now_ns
        return self.left > 0

    def deal(self, ages_ns: Int64s) -> Iterator[tuple[int, Int64s]]:
        """Divide the ages of transactions that never began by the weights of the mix, as none was drawn; by number."""
        weights = np.array([self._weights[kind.number] for kind in self._kinds])
        random = np.random.Generator(np.random.Philox(self.number))
        drawn = random.choice(len(weights), size=ages_ns.size, p=weights / weights.sum())
        for index, kind in enumerate(self._kinds):
            yield kind.number, ages_ns[drawn == index]

    def lost(self, answered_ns: int) -> None:
        """The connection is lost, and its last answer came at `answered_ns`."""
        if self.tally is not None:
            self.tally.lose(answered_ns)

    def doubt(self) -> None:
        """The running transaction will have no answer."""
        if self.tally is not None and self.kind.tracked:
            self.tally.doubt(self.started_ns)

    def has_committed(self) -> bool:
        """Whether the running transaction, which had no answer, has committed and is not to be run again."""
        return self.tally is not None and self.kind.tracked and self.tally.accepts(self.started_ns)

    def bind(self, session: Any, prepared: dict[str, Any]) -> None:
        """Use a session with its prepared statements, by name."""
        self.session = session
        self.prepared = prepared
        self.carries = isinstance(session, CarriesCommit)
        for kind in self._kinds:
            kind.bind(prepared)


def stream_of(seed: int, number: int) -> int:
    """The random stream of a terminal in a load with this seed: 0 <= stream < 2^128, unique."""
    return ((seed & (2**64 - 1)) << 32) | number


def dealt(first: int, count: int, workers: int) -> list[Sequence[int]]:
    """Assign terminals `first` … `first + count - 1` to at most `workers` workers round-robin, so that open arrivals
    alternate.
    """
    hands = [range(first + worker, first + count, workers) for worker in range(workers)]
    return [hand for hand in hands if hand]

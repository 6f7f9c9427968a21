"""A terminal: one simulated user with a connection, random streams and state; its transactions without an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from proveout.agent.engines.driver_contract import CarriesCommit, StatementFailure
from proveout.agent.load.loop.recorder import Recorder
from proveout.agent.load.loop.transaction import Kind, Tally, ThinkTimes, kinds, mix
from proveout.agent.load.loop.transaction_loop import TerminalState
from proveout.agent.load.loop.transaction_loop_python import ERROR
from proveout.agent.load.pacing import Int64s, Pacing, Timeline
from proveout.agent.load.worker_messages import UNCONNECTED, Ages, Unfinished
from proveout.dsl.workloads.base import WorkloadKind
from proveout.proto.wire import histogram

# Terminals are numbered over all agents, and all random values of a terminal depend on (seed, number) only: the
# division of a load among agents and workers does not change its transactions.

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
        self.carries = False
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

    def deal(self, ages_ns: Iterable[Int64s]) -> Iterator[tuple[int, Int64s]]:
        """Divide the ages, in batches, of transactions that never began by the weights of the mix, as none was drawn;
        by number."""
        weights = np.array([self._weights[kind.number] for kind in self._kinds])
        random = np.random.Generator(np.random.Philox(self.number))
        for batch in ages_ns:
            drawn = random.choice(len(weights), size=batch.size, p=weights / weights.sum())
            for index, kind in enumerate(self._kinds):
                yield kind.number, batch[drawn == index]

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


def has_answer(terminal: Terminal) -> bool:
    """Whether a cancelled statement has its answer, success or failure."""
    try:
        return bool(terminal.session.receive())
    except StatementFailure:
        return True


def under_way(terminals: Sequence[Terminal]) -> list[tuple[int, int]]:
    """The transactions that have started and not ended, as (number, start ns)."""
    return [(terminal.kind.number, terminal.started_ns) for terminal in terminals if terminal.busy]


def under_way_with_times(terminals: Sequence[Terminal], *, lent: bool) -> list[Unfinished]:
    """The transactions that have begun and not ended, and the terminals without a connection (`UNCONNECTED`), unless
    connections are lent.

    A failed transaction is recorded as an error before its rollback: it is not listed while it is rolled back.
    """
    found = []
    for terminal in terminals:
        if terminal.busy and not (terminal.rolling_back and terminal.outcome == ERROR):
            found.append((terminal.kind.number, terminal.intended_ns, terminal.started_ns))
        elif terminal.session is None and not lent:
            found.append((UNCONNECTED, terminal.ended_ns, terminal.ended_ns))
    return found


def never_begun(terminals: Sequence[Terminal], pacing: Pacing, timeline: Timeline, seen_ns: int) -> tuple[Ages, ...]:
    """The arrivals due in the measure window, and in each of its phases, that have not begun at `seen_ns`: their ages
    then, binned, by number.

    If the system was far below the rate, most of the schedule may be left: it is computed in bulk.
    """
    found: dict[int, list[Int64s]] = {}
    end_ns = timeline.measure_end_ns - timeline.t0_ns
    for terminal in terminals:
        if terminal.fires is None:
            continue
        due_ns = terminal.fires() if terminal.busy else terminal.pending_ns - timeline.t0_ns
        first_ns = max(due_ns, timeline.measure_start_ns - timeline.t0_ns)
        due = pacing.due_between(terminal.number, first_ns, end_ns)
        for number, dealt in terminal.deal(seen_ns - timeline.t0_ns - batch for batch in due):
            found.setdefault(number, []).append(dealt)
    ages = {number: np.concatenate(parts) for number, parts in sorted(found.items())}
    spans = [(timeline.measure_start_ns, timeline.measure_end_ns), *((start, end) for _, start, end in timeline.phases)]
    return tuple(_binned(ages, seen_ns - end, seen_ns - start) for start, end in spans)


def _binned(ages: dict[int, Int64s], above_ns: int, most_ns: int) -> Ages:
    inside = ((number, each[(each > above_ns) & (each <= most_ns)]) for number, each in ages.items())
    binned = ((number, histogram.bin_ns(each)) for number, each in inside)
    return tuple((number, h.indices, h.counts, h.sum_ns, h.min_ns, h.max_ns) for number, h in binned)

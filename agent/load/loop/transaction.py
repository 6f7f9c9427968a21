"""Prepare transactions for the load loop: types, bodies, pipelines, think times and counts of commits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np
import numpy.typing as npt

from proveout.agent.load.loop.transaction_loop import AcknowledgedTimes, KindState, Mix, Script, Times
from proveout.core.data_classes import dataclass, field
from proveout.dsl.engines import DIALECTS, Dialect
from proveout.dsl.plan.stages import Think
from proveout.dsl.workloads.base import (
    Body,
    Last,
    Ordered,
    Outcome,
    Request,
    Sequenced,
    Statement,
    Step,
    TransactionType,
    WorkloadKind,
)
from proveout.dsl.workloads.commits import COUNT_COMMIT, PIPELINE, one_by_one, tracked, writes
from proveout.proto.wire.results import CommitReading

# A terminal runs one transaction at a time, and its row counts the commits that the database has of it. A database that
# loses commits loses the last ones. So with a = acknowledged since the last reading, u = of unknown outcome, and the
# row risen by d:
#
#     d < a           a - d acknowledged commits are lost; those of unknown outcome are not there
#     a <= d <= a + u d - a of those of unknown outcome have committed
#     d > a + u       d - a - u transactions have committed more often than once


@dataclass(slots=True)
class Tally:
    """The account of the terminal whose row is (load id, terminal).

    `due`: its row must be read before its next transaction. `count`: the number in its row at the last reading, None
    before the first; `settled`: the acknowledged commits then; `unknown`: transactions of unknown outcome since;
    `since_ns`: the last answer before the connection was lost, or else the last reading.
    """

    row: tuple[int, int]
    checked: bool = False
    """Whether a transaction that had committed is not run again."""
    due: bool = True
    count: int | None = None
    settled: int = 0
    unknown: int = 0
    since_ns: int = 0
    _counters: list[AcknowledgedTimes] = field(default_factory=list)
    _doubted_ns: int = 0
    """When the last transaction of unknown outcome began."""
    _committed_ns: int = 0
    """When the last one of them that had committed began."""
    _repeated: int = 0
    """The transactions that had committed twice at the last reading."""

    def counted(self, kind: TransactionType, times: Sequence[Times]) -> tuple[TransactionType, Sequence[Times]]:
        """A type of transactions with the statement that counts its commits, and its times for each outcome, the first
        of which counts those that are acknowledged; a type that only reads as it is."""
        made = tracked(kind, self.row)
        if made is kind:
            return kind, times
        counter = AcknowledgedTimes(times[0])
        self._counters.append(counter)
        return made, (counter, *times[1:])

    @property
    def acknowledged(self) -> int:
        """The commits that were acknowledged since the load began."""
        return sum(counter.acknowledged for counter in self._counters)

    def lose(self, answered_ns: int) -> None:
        """The connection is lost; its last answer came at `answered_ns`."""
        if not self.due:
            self.due, self.since_ns = True, max(self.since_ns, answered_ns)

    def doubt(self, started_ns: int) -> None:
        """A transaction that changes rows, and began at `started_ns`, has no answer. It keeps that instant when it is
        run again."""
        self.unknown += 1
        self._doubted_ns = started_ns

    def accepts(self, started_ns: int) -> bool:
        """Whether the transaction that began at `started_ns`, had no answer and is about to be run again has committed,
        so that it counts as it is. The caller then records it."""
        if not self.checked or started_ns != self._committed_ns:
            return False
        self._committed_ns = 0
        for counter in self._counters:
            counter.committed_ns = 0
        self.settled += 1  # its rise of the row is that of `count`
        return True

    def settle(self, found: int, at_ns: int) -> CommitReading:
        """The difference, with the number `found` in the row; the account goes on from there. The first time it only
        begins."""
        acknowledged = self.acknowledged
        reading = CommitReading(since_ns=self.since_ns, at_ns=at_ns)
        if self.count is not None:
            rise, expected = found - self.count, acknowledged - self.settled
            committed = min(max(rise - expected, 0), self.unknown)
            reading = CommitReading(
                since_ns=self.since_ns,
                at_ns=at_ns,
                lost=max(expected - rise, 0),
                unknown=self.unknown,
                unknown_committed=committed,
                duplicates=max(rise - expected - self.unknown, 0) + self._duplicates(committed),
            )
        self.count, self.settled, self.unknown = found, acknowledged, 0
        self.since_ns, self.due = at_ns, False
        return reading

    def _duplicates(self, committed: int) -> int:
        """The transactions since the last reading that had committed when they were run again, and committed again."""
        repeated = sum(counter.repeated for counter in self._counters)
        found, self._repeated = repeated - self._repeated, repeated
        if self.unknown and committed == self.unknown:
            found += self._committed_ns == self._doubted_ns  # committed again, without an answer again
            self._committed_ns = self._doubted_ns
            for counter in self._counters:
                counter.committed_ns = self._doubted_ns
        return found


def in_pipelines(kind: TransactionType, begin: Request, commit: Request, rollback: Request) -> Callable[[Any], Body]:
    """The kind's body between BEGIN and COMMIT; ROLLBACK after a logical failure. BEGIN travels with the first request,
    and the end with the body's `Last` ones: it follows them whatever they find, and the server leaves out what comes
    after a request that fails.
    """
    body = kind.body

    def bracketed(inputs: Any) -> Body:
        step: Callable[[Any], Request] = body(inputs).send
        answer: Any = None
        opening: tuple[Request, ...] = (begin,)
        while True:
            try:
                request = step(answer)
            except StopIteration as stop:
                outcome = stop.value
                break
            if request[0] is PIPELINE:
                session: Any = yield PIPELINE, (*opening, *request[1])
                answer = session.results()[len(opening) :]
            elif opening:
                session = yield PIPELINE, (begin, request)
                answer = session.results()[1]
            else:
                answer = yield request
            opening = ()
        requests: tuple[Request, ...] = ()
        if isinstance(outcome, Last):
            requests, outcome = outcome.requests, outcome.outcome
        end = commit if outcome is Outcome.COMMIT else rollback
        if opening or requests:
            yield PIPELINE, (*opening, *requests, end)
        else:
            yield end
        return Outcome(outcome)

    return bracketed


TERMINAL_MASK = 2**32 - 1  # of a stream, see `terminal.stream_of`
MIX_BATCH = 2048
MIX_PURPOSE = 3_000  # keeps this stream apart from those of keys and arrivals


def _control(name: str, text: str, sqlite: str) -> Statement:
    texts: dict[Dialect, str] = {**dict.fromkeys(DIALECTS, text), "sqlite": sqlite}
    return Statement(name=name, text=texts, arguments=(), reads=False)


# A deferred SQLite transaction that reads, then writes, fails if another has written in between; so writers use BEGIN
# IMMEDIATE.
BEGIN_WRITE = _control("begin_write", "BEGIN", "BEGIN IMMEDIATE")
BEGIN_READ = _control("begin_read", "BEGIN", "BEGIN")
COMMIT = _control("commit", "COMMIT", "COMMIT")
ROLLBACK = _control("rollback", "ROLLBACK", "ROLLBACK")
CONTROLS = (BEGIN_WRITE, BEGIN_READ, COMMIT, ROLLBACK)


class Kind(KindState):
    """A transaction type of one terminal. `number` is its index in the workload.

    `inputs()` draws the inputs of a transaction: for a `bare` type the request to its only statement, which is
    `prepared` on the terminal's session; for a type with steps the drawn values of its `script`, whose COMMIT may
    travel with the last statement if it `carries_commit`. `start(inputs)` returns the generator of any type.
    `bracketed` transactions run inside BEGIN … COMMIT; of `tracked` ones the database counts the commits. `times` are
    the recorder's lists for the two outcomes.
    """

    __slots__ = ("_begin", "_starts", "_statement", "_steps", "bracketed", "carries_commit", "number", "tracked")

    def __init__(self, number: int, kind: TransactionType, keys: Any, times: Sequence[Times]) -> None:
        super().__init__(times)
        self.number = number
        self.tracked = COUNT_COMMIT in kind.statements
        self.bracketed = not kind.single
        self._statement = kind.statements[0].name
        self.bare, self.least, self.most = kind.single and kind.bare, kind.least, kind.most
        self._steps = () if kind.single else kind.steps
        self.carries_commit = carries_commit(self._steps)
        self._begin = begin_of(kind)
        self.inputs = kind.inputs(keys)
        self._starts = _starts(kind)
        self.start = self._starts[0]

    def bind(self, prepared: dict[str, Any]) -> None:
        """Use the prepared statements, by name, of a new session of the terminal."""
        self.prepared = prepared[self._statement]
        self.start = self._starts[PIPELINE.name in prepared]
        if self._steps:
            steps = [(prepared[s.statement.name], s.places, s.keeps, s.least, s.most) for s in self._steps]
            begin, commit, rollback = (prepared[statement.name] for statement in (self._begin, COMMIT, ROLLBACK))
            self.script = Script(begin, commit, rollback, steps)


def begin_of(kind: TransactionType) -> Statement:
    """The statement that begins a transaction of this type."""
    return BEGIN_WRITE if any(s.changes for s in kind.statements) else BEGIN_READ


def _starts(kind: TransactionType) -> tuple[Callable[[Any], Body], Callable[[Any], Body]]:
    """The body of a transaction on a session that does not pipeline, and on one that does."""
    if kind.single:
        return kind.body, kind.body
    if not kind.pipeline:
        bracketed = in_transaction(kind)
        return bracketed, bracketed
    alone = in_transaction(replace(kind, body=one_by_one(kind.body)))
    return alone, in_pipelines(kind, (begin_of(kind), ()), (COMMIT, ()), (ROLLBACK, ()))


def carries_commit(steps: Sequence[Step]) -> bool:
    """Whether COMMIT may travel with the last statement: whatever that counts, the data are then as they are after a
    COMMIT, or after the ROLLBACK of a logical failure, of its own.

    Either the last statement cannot fail logically; or it fails when it counts no rows, and then the transaction has
    changed nothing.
    """
    if not steps:
        return False
    *before, last = steps
    if last.statement.reads or last.keeps or last.most < sys.maxsize:
        return False
    if last.least == 0:
        return True
    return last.least == 1 and last.statement.rows_only and not any(step.statement.changes for step in before)


def in_transaction(kind: TransactionType) -> Callable[[Any], Body]:
    """The kind's body between BEGIN and COMMIT; ROLLBACK after a logical failure."""
    begin: Request = (begin_of(kind), ())
    commit: Request = (COMMIT, ())
    rollback: Request = (ROLLBACK, ())
    body = kind.body

    def bracketed(inputs: Any) -> Body:
        yield begin
        outcome = yield from body(inputs)
        yield commit if outcome is Outcome.COMMIT else rollback
        return outcome

    return bracketed


def rolled_back(outcome: int) -> Body:
    """ROLLBACK, then `outcome`: RETRY, ERROR, or ROLLED_BACK for a logical failure."""
    yield ROLLBACK, ()
    return outcome  # type: ignore[return-value]  # these values stay inside the load loop


def statements_of(kind: TransactionType, *, tracked: bool = False) -> tuple[Statement, ...]:
    """The statements that one transaction needs, with the one that counts commits if they are `tracked`."""
    counts = tracked and writes(kind)
    bracketed = counts or not kind.single
    return (*kind.statements, *((COUNT_COMMIT,) if counts else ()), *(CONTROLS if bracketed else ()))


def statements(workload: WorkloadKind, *, tracked: bool = False) -> tuple[Statement, ...]:
    """The statements that a session prepares: those of the transactions in the mix, with the one that counts commits if
    they are `tracked`, and BEGIN, COMMIT and ROLLBACK.
    """
    mixed = [kind for kind in workload.transactions if kind.weight > 0]
    return tuple({s.name: s for kind in mixed for s in statements_of(kind, tracked=tracked)}.values())


def kinds(workload: WorkloadKind, keys: Any, times: Sequence[Times], tally: Tally | None = None) -> list[Kind]:
    """A `Kind` for each transaction type in the mix, bound to a terminal; `times` are the recorder's lists, two for
    each type. With a `tally`, commits are tracked in it.
    """
    mixed = [(number, kind) for number, kind in enumerate(workload.transactions) if kind.weight > 0]
    own = ((number, kind, times[2 * number : 2 * number + 2]) for number, kind in mixed)
    if tally is not None:
        own = ((number, *tally.counted(kind, both)) for number, kind, both in own)
    return [Kind(number, kind, keys, both) for number, kind, both in own]


def mix(kinds: Sequence[Kind], workload: WorkloadKind, stream: int) -> Iterator[Kind]:
    """Endless, independent draws of kinds by their weights. The same stream gives the same draws.

    An ordered set is repeated in order instead: that of the workload for terminal n (the lower bits of its stream), or
    starting with the n-th kind, so that terminals that start together do not all run the same one.
    """
    if isinstance(workload, Sequenced):
        by_name = {workload.transactions[kind.number].name: kind for kind in kinds}
        return cycle([by_name[name] for name in workload.sequence(stream & TERMINAL_MASK) if name in by_name])
    if isinstance(workload, Ordered) and workload.in_order:
        first = (stream & TERMINAL_MASK) % len(kinds)
        return cycle([*kinds[first:], *kinds[:first]])
    cumulated = np.cumsum([workload.transactions[kind.number].weight for kind in kinds])
    return Mix(kinds, _drawn(cumulated[:-1] / cumulated[-1], stream))


def _drawn(edges: npt.NDArray[np.float64], stream: int) -> Iterator[npt.NDArray[np.uint16]]:
    random = _random(0, MIX_PURPOSE, stream)
    while True:
        yield np.searchsorted(edges, random.random(MIX_BATCH), side="right").astype(np.uint16)


def _random(number: int, purpose: int, stream: int) -> np.random.Generator:
    """The random numbers of a purpose in a terminal's stream; `number` is that of a transaction type."""
    counter = np.array((0, 0, stream & (2**64 - 1), stream >> 64), dtype=np.uint64)
    key = np.array((number, purpose), dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


# Exponential times are cut at ten times their mean, as TPC-C (5.2.5.4) allows; this lowers the mean by 0.005 %. Keying
# time is constant (5.2.5.2). Neither is part of a response time: under closed arrival a transaction is intended when it
# starts.

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
    random = _random(number, THINK_PURPOSE, stream)
    while True:
        if chosen.distribution == "constant" or not mean_ns:
            yield round(mean_ns)
        else:
            drawn = np.minimum(random.standard_exponential(BATCH), MEANS_MAX) * mean_ns
            yield from np.rint(drawn).astype(np.int64).tolist()

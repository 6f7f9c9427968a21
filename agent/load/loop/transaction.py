"""Prepares transactions for the load loop: the types that a terminal draws from, and BEGIN … COMMIT around bodies.

Flow: workload -> one `Kind` for each transaction type and terminal, bound to the terminal's keys -> `mix(…)`, an
endless draw by weight -> the load loop. The loop has three shapes only: a bare request (`Kind.bare`), steps
(`Kind.script`), and a generator that yields requests and returns an `Outcome` or, from `rolled_back`, one of `RETRY`,
`ERROR` and `ROLLED_BACK`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np
import numpy.typing as npt

from proveout.agent.load.commit_tally import Tally
from proveout.agent.load.loop.pipeline import in_pipelines
from proveout.agent.load.loop.transaction_loop import KindState, Mix, Script, Times
from proveout.dsl.engines import DIALECTS, Dialect
from proveout.dsl.workloads.base import (
    Body,
    Ordered,
    Outcome,
    Request,
    Sequenced,
    Statement,
    Step,
    TransactionType,
    WorkloadKind,
)
from proveout.dsl.workloads.commits import COUNT_COMMIT, writes
from proveout.dsl.workloads.pipelines import PIPELINE, one_by_one

RETRY, ERROR, ROLLED_BACK = 2, 3, 4
TERMINAL_MASK = 2**32 - 1  # of a stream, see `terminal.stream_of`
MIX_BATCH = 512
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
        self.bare = kind.single and kind.bare
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
    counts = tracked and any(map(writes, mixed))
    needed = {s.name: s for kind in mixed for s in kind.statements}
    bracketed = counts or any(not kind.single for kind in mixed)
    return (*needed.values(), *((COUNT_COMMIT,) if counts else ()), *(CONTROLS if bracketed else ()))


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
    counter = np.array((0, 0, stream & (2**64 - 1), (stream >> 64) & (2**64 - 1)), dtype=np.uint64)
    random = np.random.Generator(np.random.Philox(key=np.array((0, MIX_PURPOSE), dtype=np.uint64), counter=counter))
    while True:
        yield np.searchsorted(edges, random.random(MIX_BATCH), side="right").astype(np.uint16)

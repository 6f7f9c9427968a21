"""Transactions made ready to be driven: what one terminal draws from, and BEGIN … COMMIT around bodies.

Flow: workload -> per terminal one `Kind` per transaction type, bound to that terminal's keys -> `mix(…)`, the endless
draw by weight -> engine. The engine knows three shapes only: a bare request (`Kind.requests`), a generator that yields
requests, and what a generator returns: an `Outcome`, or `RETRY` or `ERROR` from `rolled_back`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from proveout.dsl.workloads.base import Body, Outcome, Request, Statement, TransactionType, WorkloadKind

RETRY, ERROR = 2, 3
MIX_BATCH = 512
MIX_PURPOSE = 3_000  # keeps this stream apart from those of keys and arrivals


def _control(name: str, postgres: str, sqlite: str) -> Statement:
    return Statement(name=name, text={"postgres": postgres, "sqlite": sqlite}, arguments=(), reads=False)


# A deferred SQLite transaction that reads and then writes fails when another has written in between; so writers say so.
BEGIN_WRITE = _control("begin_write", "BEGIN", "BEGIN IMMEDIATE")
BEGIN_READ = _control("begin_read", "BEGIN", "BEGIN")
COMMIT = _control("commit", "COMMIT", "COMMIT")
ROLLBACK = _control("rollback", "ROLLBACK", "ROLLBACK")
CONTROLS = (BEGIN_WRITE, BEGIN_READ, COMMIT, ROLLBACK)


class Kind:
    """A transaction type of one terminal. `number` is its place in the workload.

    Either `requests` gives each transaction's one statement, called `statement`, or `start()` a generator. `bracketed`
    transactions run inside BEGIN … COMMIT.
    """

    __slots__ = ("bracketed", "number", "requests", "start", "statement")

    def __init__(self, number: int, kind: TransactionType, keys: Any) -> None:
        self.number = number
        self.bracketed = not kind.single
        self.requests: Callable[[], Request] | None = None
        self.statement = kind.statements[0].name
        if kind.single and kind.requests is not None:
            self.requests = kind.requests(keys)
        body = kind.body if kind.single else in_transaction(kind)
        self.start: Callable[[], Body] = lambda: body(keys)


def in_transaction(kind: TransactionType) -> Callable[[Any], Body]:
    """The kind's body between BEGIN and COMMIT; ROLLBACK after a logical failure."""
    begin: Request = (BEGIN_READ if all(s.reads for s in kind.statements) else BEGIN_WRITE, ())
    commit: Request = (COMMIT, ())
    rollback: Request = (ROLLBACK, ())
    body = kind.body

    def bracketed(keys: Any) -> Body:
        yield begin
        outcome = yield from body(keys)
        yield commit if outcome is Outcome.COMMIT else rollback
        return outcome

    return bracketed


def rolled_back(outcome: int) -> Body:
    """ROLLBACK, then `outcome` (an `Outcome`, RETRY or ERROR)."""
    yield ROLLBACK, ()
    return outcome  # type: ignore[return-value]  # RETRY and ERROR never leave the engine


def statements(workload: WorkloadKind) -> tuple[Statement, ...]:
    """All that a session has to prepare: the statements of the transactions in the mix, and the brackets' own."""
    needed = {s.name: s for kind in workload.transactions if kind.weight > 0 for s in kind.statements}
    bracketed = any(kind.weight > 0 and not kind.single for kind in workload.transactions)
    return (*needed.values(), *(CONTROLS if bracketed else ()))


def kinds(workload: WorkloadKind, keys: Any) -> list[Kind | None]:
    """One `Kind` per transaction type of the workload, bound to a terminal; None where the weight is 0."""
    return [Kind(number, kind, keys) if kind.weight > 0 else None for number, kind in enumerate(workload.transactions)]


def mix(kinds: Sequence[Kind | None], weights: Sequence[float], stream: int) -> Iterator[Kind]:
    """Kinds drawn by weight, independently, without end; the same stream draws the same again."""
    return chain.from_iterable(_drawn(kinds, weights, stream))


def _drawn(kinds: Sequence[Kind | None], weights: Sequence[float], stream: int) -> Iterator[list[Kind]]:
    counter = np.array((0, 0, stream & (2**64 - 1), (stream >> 64) & (2**64 - 1)), dtype=np.uint64)
    random = np.random.Generator(np.random.Philox(key=np.array((0, MIX_PURPOSE), dtype=np.uint64), counter=counter))
    present = [kind for kind in kinds if kind is not None]
    cumulated = np.cumsum([weight for kind, weight in zip(kinds, weights, strict=True) if kind is not None])
    edges = cumulated[:-1] / cumulated[-1]
    while True:
        yield [present[i] for i in np.searchsorted(edges, random.random(MIX_BATCH), side="right").tolist()]

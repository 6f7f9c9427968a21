"""Prepared transactions: BEGIN … COMMIT, the mix, terminals and their random streams."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pytest

from proveout.agent.load.loop.recorder import Recorder
from proveout.agent.load.loop.terminal import dealt, stream_of
from proveout.agent.load.loop.transaction import ERROR, in_transaction, kinds, mix, rolled_back, statements
from proveout.dsl.workloads.base import Body, Outcome, Population, Statement, TransactionType

READ = Statement(name="read", text={"postgres": "r", "sqlite": "r"}, arguments=())
WRITE = Statement(name="write", text={"postgres": "w", "sqlite": "w"}, arguments=(), reads=False)


@dataclass
class Answer:
    count: int

    def rows(self) -> list[tuple[Any, ...]]:
        return []


def read_then_write(keys: Any) -> Body:
    found = yield READ, (keys,)
    if not found.count:
        return Outcome.LOGICAL_FAILURE
    yield WRITE, (keys,)
    return Outcome.COMMIT


BOTH = TransactionType(name="both", weight=1.0, body=read_then_write, statements=(READ, WRITE))


def names(body: Body, *counts: int) -> tuple[list[str], int]:
    """The statements of a body whose answers have these counts, and its outcome."""
    sent = [next(body)[0].name]
    try:
        for count in counts:
            sent.append(body.send(Answer(count))[0].name)
    except StopIteration as stop:
        return sent, int(stop.value)
    raise AssertionError("it did not end")


def test_begin_and_the_end_of_a_transaction() -> None:
    assert names(in_transaction(BOTH)(1), 0, 1, 1, 0) == (["begin_write", "read", "write", "commit"], 0)
    assert names(in_transaction(BOTH)(1), 0, 0, 0) == (["begin_write", "read", "rollback"], 1)
    assert names(rolled_back(ERROR), 0) == (["rollback"], ERROR)


def test_a_transaction_that_only_reads_takes_no_write_lock() -> None:
    reads = TransactionType(name="reads", weight=1.0, body=read_then_write, statements=(READ, READ))
    assert [next(in_transaction(kind)(1))[0].text["sqlite"] for kind in (reads, BOTH)] == ["BEGIN", "BEGIN IMMEDIATE"]


@dataclass
class Workload:
    transactions: tuple[TransactionType, ...]

    @property
    def population(self) -> Population:
        raise NotImplementedError

    def keys(self, stream: int) -> Any:
        return stream


def typed(name: str, weight: float) -> TransactionType:
    return TransactionType(name=name, weight=weight, body=read_then_write, statements=(READ,), single=True)


WORKLOAD = Workload((typed("a", 70), typed("none", 0), typed("b", 20), typed("c", 10)))


def drawn(stream: int, count: int) -> list[int]:
    mine = kinds(WORKLOAD, 0, Recorder(4).times)
    return [kind.number for kind in islice(mix(mine, WORKLOAD, stream), count)]


def test_the_mix_follows_the_weights_and_repeats_by_stream() -> None:
    counts = Counter(drawn(1, 20_000))
    assert set(counts) == {0, 2, 3}
    for number, share in ((0, 0.7), (2, 0.2), (3, 0.1)):
        assert counts[number] / 20_000 == pytest.approx(share, abs=0.015)
    assert drawn(5, 2000) == drawn(5, 2000)
    assert drawn(5, 2000) != drawn(6, 2000)
    assert drawn(5, 2000) != drawn(5 + (1 << 64), 2000)


def test_the_statements_to_prepare() -> None:
    assert [s.name for s in statements(WORKLOAD)] == ["read"]
    both = Workload((BOTH, TransactionType(name="x", weight=0.0, body=read_then_write, statements=())))
    assert [s.name for s in statements(both)] == ["read", "write", "begin_write", "begin_read", "commit", "rollback"]


def test_random_streams_of_terminals_and_seeds_differ() -> None:
    streams = {stream_of(seed, number) for seed in (0, 1, 2**32, 2**63) for number in range(100)}
    assert len(streams) == 400
    assert all(0 <= stream < 2**128 for stream in streams)


@pytest.mark.parametrize(
    ("first", "count", "workers", "expected"),
    [
        (0, 5, 2, [[0, 2, 4], [1, 3]]),
        (8, 3, 4, [[8], [9], [10]]),
        (0, 0, 2, []),
        (3, 4, 1, [[3, 4, 5, 6]]),
    ],
)
def test_assigning_terminals_to_workers(first: int, count: int, workers: int, expected: list[list[int]]) -> None:
    assert [list(hand) for hand in dealt(first, count, workers)] == expected

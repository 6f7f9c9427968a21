"""The mix of transactions, the random streams of terminals, and the lock that a transaction begins with."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest

from proveout.agent.load.loop.recorder import Recorder
from proveout.agent.load.loop.terminal import stream_of
from proveout.agent.load.loop.transaction import begin_of, kinds, mix
from proveout.dsl.workloads import hlr_workload as hlr
from proveout.dsl.workloads.hlr import Hlr

SHARES = {"GetBasicSubscriberData": 0.7, "GetAccessData": 0.2, "UpdateLocation": 0.1}
HLR = hlr.build(Hlr(population=100, weights={name: 100 * share for name, share in SHARES.items()}))
NAMES = [kind.name for kind in HLR.transactions]


def drawn(stream: int, count: int) -> list[str]:
    mine = kinds(HLR, HLR.keys(stream), Recorder(len(NAMES)).times)
    return [NAMES[kind.number] for kind in islice(mix(mine, HLR, stream), count)]


def test_the_mix_follows_the_weights_and_repeats_by_stream() -> None:
    counts = Counter(drawn(1, 20_000))
    assert {name: count / 20_000 for name, count in counts.items()} == pytest.approx(SHARES, abs=0.015)
    assert drawn(5, 2000) == drawn(5, 2000)
    assert drawn(5, 2000) != drawn(6, 2000)
    assert drawn(5, 2000) != drawn(5 + (1 << 64), 2000)


def test_random_streams_of_terminals_and_seeds_differ() -> None:
    streams = {stream_of(seed, number) for seed in (0, 1, 2**32, 2**63) for number in range(100)}
    assert len(streams) == 400
    assert all(0 <= stream < 2**128 for stream in streams)


def test_a_transaction_that_only_reads_takes_no_write_lock() -> None:
    begins = {kind.name: begin_of(kind).text["sqlite"] for kind in HLR.transactions}
    assert (begins["GetAccessData"], begins["UpdateLocation"]) == ("BEGIN", "BEGIN IMMEDIATE")

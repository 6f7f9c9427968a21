"""Connections that are shared or renewed: waits against queueing theory on the whole chain, counts on a real server."""

from __future__ import annotations

import math
import os
import select
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from proveout.agent.load import worker, worker_messages
from proveout.agent.load.aggregator import LoadAggregator
from proveout.agent.load.loop.timer import Timer
from proveout.agent.load.pacing import Timeline
from proveout.agent.load.run_load import pool_share, run_load
from proveout.coordinator.measure.load_merge import session_metrics
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import Sessions, Windows
from proveout.dsl.workloads.base import Statement
from proveout.proto.wire import histogram
from proveout.proto.wire.results import LoadResult
from proveout.proto.wire.tasks import Endpoint, LoadShare, RunLoad

from .conftest import LoadContext, Spec, ok

SERVERS, SERVICE_S, LOAD, MEASURE_S = 4, 0.005, 0.7, 5.0
RATE = LOAD * SERVERS / SERVICE_S


class Drawn:
    """A session whose answers come after exponential times, drawn from one seed."""

    def __init__(self, times: Iterator[float]) -> None:
        self._times, self._timer = times, Timer()
        self._ready = select.poll()
        self._ready.register(self._timer.fileno(), select.POLLIN)
        self.count = 1

    def fileno(self) -> int:
        return self._timer.fileno()

    def prepare(self, statement: Statement) -> Statement:
        return statement

    def send(self, prepared: Statement, arguments: Sequence[Any]) -> None:
        self._timer.arm(time.monotonic_ns() + round(next(self._times) * 1e9))

    def receive(self) -> bool:
        if not self._ready.poll(0):
            return False
        self._timer.arm(0)
        return True

    def exchange(self, prepared: Statement, arguments: Sequence[Any]) -> bool:
        self.send(prepared, arguments)
        return self.receive()

    def rows(self) -> list[tuple[Any, ...]]:
        return []

    def cancel(self) -> None: ...

    def close(self) -> None:
        self._timer.close()


class DrawnDriver:
    """Connects to nothing."""

    dialect, waits = "postgres", "polled"

    def __init__(self) -> None:
        random = np.random.default_rng(1)
        self._times = iter(lambda: float(random.exponential(SERVICE_S)), None)

    def connect(self, dsn: str) -> Drawn:
        return Drawn(self._times)


class Outlet:
    """Takes the chunks of a worker in place of its pipe."""

    lost = 0

    def __init__(self) -> None:
        self.chunks: list[worker_messages.Chunk] = []

    def offer(self, chunk: worker_messages.Chunk) -> None:
        self.chunks.append(chunk)


def queueing_load(terminals: int) -> RunLoad:
    return RunLoad(
        workload=Workload(name="noop", kind="noop", parameters=()),
        endpoint=Endpoint(system="db", engine="postgres", dsn="-"),
        share=LoadShare(first=0, count=terminals, total=terminals, rate=RATE, distribution="poisson"),
        windows=Windows(ramp_up_s=0.5, measure_s=MEASURE_S, ramp_down_s=0.2),
        workers=1,
        seed=7,
        label="test",
        sessions=Sessions(pool=SERVERS),
    )


def erlang_c(servers: int, offered: float) -> float:
    """The probability that a customer of M/M/c waits (Erlang, 1917)."""
    terms = [offered**k / math.factorial(k) for k in range(servers)]
    last = offered**servers / math.factorial(servers) * servers / (servers - offered)
    return last / (sum(terms) + last)


def errors_of_theory(customers: int, rate: float, service_s: float) -> tuple[float, float]:
    """Standard errors of the mean wait and of the share that waits, over so many customers of M/M/c, by simulation."""
    random = np.random.default_rng(3)
    means, shares = [], []
    for _ in range(60):
        due = np.cumsum(random.exponential(1 / rate, customers))
        served, free, waits = random.exponential(service_s, customers), [0.0] * SERVERS, []
        for at, needs in zip(due.tolist(), served.tolist(), strict=True):
            first = min(range(SERVERS), key=free.__getitem__)
            begins = max(at, free[first])
            free[first] = begins + needs
            waits.append(begins - at)
        means.append(float(np.mean(waits)))
        shares.append(float(np.mean(np.array(waits) > 0)))
    return float(np.std(means)), float(np.std(shares))


def run(spec: RunLoad) -> LoadResult:
    """A load through worker, chunks and aggregator, in this process."""
    loaded = worker.Load(worker_messages.Arm.of(spec, tuple(range(spec.share.count)), connections=pool_share(spec)))
    armed = loaded.arm()
    assert isinstance(armed, worker_messages.Armed), armed
    outlet, (silent, hold) = Outlet(), os.pipe()
    t0_ns = time.monotonic_ns() + 20_000_000
    try:
        finished = loaded.run(t0_ns, outlet, silent)  # type: ignore[arg-type]
    finally:
        os.close(silent)
        os.close(hold)
    assert isinstance(finished, worker_messages.Finished)
    timeline = Timeline.of(spec.windows, t0_ns)
    aggregator = LoadAggregator(["noop"], [0], timeline, workers=1, is_open=spec.share.rate is not None)
    for chunk in outlet.chunks:
        aggregator.add(0, chunk)
    aggregator.end_worker(0)
    aggregator.seconds(over=True)
    return aggregator.result([finished])


@pytest.mark.slow
def test_waits_for_a_connection_are_those_of_queueing_theory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poisson arrivals and exponential service at c connections: P(wait > 0) is Erlang's C, the mean wait
    C / (c mu - lambda). The service time is the measured one, so that a busy machine changes both alike."""
    monkeypatch.setattr(worker, "driver", lambda engine: DrawnDriver())
    result = run(queueing_load(terminals=150))
    (transaction,) = result.transactions
    waits = result.sessions.pool_wait
    customers = histogram.count(waits)
    assert customers == pytest.approx(RATE * MEASURE_S, rel=0.1)
    rate = customers / MEASURE_S
    mean_wait_s = waits.sum_ns / customers / 1e9
    service_s = transaction.service.sum_ns / histogram.count(transaction.service) / 1e9 - mean_wait_s
    waiting = erlang_c(SERVERS, rate * service_s)
    expected_s = waiting / (SERVERS / service_s - rate)
    error_s, error = errors_of_theory(customers, rate, service_s)
    numbers = session_metrics([result.sessions])["pool_wait"]
    assert numbers["fraction"] == pytest.approx(waiting, abs=4 * error)
    assert numbers["avg_us"] / 1e6 == pytest.approx(expected_s, abs=4 * error_s)
    assert transaction.response.sum_ns > transaction.service.sum_ns >= waits.sum_ns


def test_the_shares_of_a_pool_add_up_to_it() -> None:
    spec = queueing_load(terminals=10)
    for hosts in (1, 2, 3, 4):
        edges = [10 * host // hosts for host in range(hosts + 1)]
        shares = [
            pool_share(replace(spec, share=replace(spec.share, first=first, count=end - first)))
            for first, end in pairwise(edges)
        ]
        assert sum(shares) == SERVERS


def test_erlang_c_is_right_in_known_cases() -> None:
    assert erlang_c(1, 0.7) == pytest.approx(0.7)
    assert erlang_c(2, 1.0) == pytest.approx(1 / 3)


@pytest.mark.slow
async def test_a_new_connection_for_each_transaction_is_counted_and_timed(
    context: LoadContext, hlr_database: str, spec: Spec
) -> None:
    load = spec(hlr_database, terminals=3, windows=(0.3, 1.5, 0.1))
    result = await run_load(context, replace(load, sessions=Sessions(connect_every=1)))
    assert ok(result) > 3
    assert not any(transaction.counts.errors for transaction in result.transactions)
    begun = sum(histogram.count(transaction.service) for transaction in result.transactions)
    assert abs(result.sessions.attempts - begun) <= 6
    assert result.sessions.failed == 0
    shortest = min(transaction.service.min_ns for transaction in result.transactions if transaction.service.counts)
    assert shortest > result.sessions.connect.min_ns


@pytest.mark.slow
async def test_a_pool_has_no_more_connections_than_it_may(context: LoadContext, hlr_database: str, spec: Spec) -> None:
    load = spec(hlr_database, terminals=8, windows=(0.2, 1.5, 0.1), workers=2)
    result = await run_load(context, replace(load, sessions=Sessions(pool=2, connect_every=50)))
    assert ok(result) > 100
    assert 0 < result.sessions.attempts < ok(result) / 20
    assert histogram.count(result.sessions.pool_wait) >= result.sessions.waited > 0

"""A load on several Ray nodes without Ray: shares, placement, T0 on other clocks, addresses, and the aggregation of packed
seconds and results, compared with adding their histograms one by one.

Not proven here: that Ray transports calls and answers, which `test_ray_clusters` shows on real clusters.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

pytest.importorskip("ray")

from proveout.agent.daemon.tasks import TaskRunner
from proveout.agent.errors import TaskFault
from proveout.agent.load import ray_node
from proveout.agent.load.ray_driver import LoadRun, divided
from proveout.agent.load.ray_pool import (
    Node,
    RayActor,
    RayAggregator,
    RayCluster,
    Total,
    pack,
    placed,
    unpack,
    without_packed,
)
from proveout.agent.load.ray_task import RayDriver, own_address
from proveout.agent.sandbox.privileges import Privileges
from proveout.dsl.plan.scalars import WEEK_S
from proveout.dsl.workloads.kinds import build
from proveout.proto.wire import codec, histogram
from proveout.proto.wire.messages import AgentMessage, Finish, LogLine, Start, TaskArmed, TaskDone, TaskFailed
from proveout.proto.wire.results import (
    CommitReading,
    Handling,
    Hang,
    Histogram,
    LoadResult,
    LoadSecond,
    Stall,
    TrackedCommits,
    TransactionCounts,
    TransactionLoad,
)
from proveout.proto.wire.tasks import LoadPool, LoadShare, Task

from .conftest import load_task

NAMES = ("get", "put", "rare")
T0_NS = 5_000_000_000


def result(loads: Any, **differing: Any) -> LoadResult:
    usual = LoadResult(
        transactions=without_packed(loads),
        ended_in_window=100,
        measure_start_ns=1,
        measure_end_ns=2,
        client_cpu_fraction=0.2,
        client_cpu_s=1.5,
        start_skew_ns=3,
        seconds_produced=2,
        first_errors=("a",),
        handling=(Handling(answers=10, stamped=2, runqueue_s=0.5, runqueue_fraction=0.1),),
    )
    return replace(usual, **differing)


# ---- aggregation -----------------------------------------------------------------------------------------------------


def load(random: np.random.Generator, name: str, *, is_open: bool) -> TransactionLoad:
    count = 0 if name == "rare" else int(random.integers(1, 400))
    service = histogram.bin_ns(random.lognormal(13, 1, count).astype(np.int64))
    counts = TransactionCounts(
        name=name,
        ok=count,
        logical_failures=int(random.integers(0, 9)),
        retried=int(random.integers(0, 3)),
        missed=int(random.integers(0, 3)),
        errors=(("40001", 2), ("57014", 1)) if name == "put" else (),
    )
    lag = histogram.bin_ns(random.integers(0, 10**6, count)) if is_open else Histogram()
    response = histogram.bin_ns(random.lognormal(14, 1, count).astype(np.int64)) if is_open else service
    return TransactionLoad(counts=counts, service=service, response=response, schedule=lag)


def workers(count: int, *, is_open: bool = False) -> list[tuple[TransactionLoad, ...]]:
    random = np.random.default_rng(7)
    return [tuple(load(random, name, is_open=is_open) for name in NAMES) for _ in range(count)]


@pytest.mark.parametrize("is_open", [False, True])
def test_merged_seconds_equal_the_sums_of_histograms(is_open: bool) -> None:
    parts = workers(20, is_open=is_open)
    total = Total(NAMES, is_open=is_open)
    for part in parts:
        total.add(unpack(pack(part, is_open=is_open)))
    for found, *column in zip(total.transactions(), *parts, strict=True):
        for kind in ("service", "response", "schedule"):
            assert getattr(found, kind) == histogram.merge(getattr(one, kind) for one in column), kind
        for count in ("ok", "logical_failures", "retried", "missed"):
            assert getattr(found.counts, count) == sum(getattr(one.counts, count) for one in column)
        assert found.counts.errors == ((("40001", 40), ("57014", 20)) if found.counts.name == "put" else ())


def second(number: int, *ends_ns: int) -> LoadSecond:
    """With bins of transactions that ended at these instants."""
    records = np.array([[0, end_ns] for end_ns in ends_ns], dtype=np.int64).reshape(-1, 2)
    bins = histogram.of_records(0, 10**9, records, records[:0]) if ends_ns else b""
    return LoadSecond(second=number, window="measure", start_ns=1, duration_s=1.0, transactions=(), bins=bins)


def test_seconds_are_complete_when_every_worker_has_sent_them_and_come_in_order() -> None:
    """One that a worker sends twice counts once."""
    one, other = workers(2)
    gatherer = RayAggregator(NAMES, workers=2, is_open=False, t0_ns=T0_NS)
    mine, others = pack(one, is_open=False), pack(other, is_open=False)
    gatherer.add(0, second(0, 5), mine)
    gatherer.add(0, second(0, 5), mine)
    gatherer.add(0, second(1), mine)
    gatherer.add(1, second(1), others)
    assert gatherer.seconds() == []
    gatherer.add(1, second(0, 9), others)
    given = gatherer.seconds()
    assert [(one.second, one.start_ns) for one in given] == [(0, T0_NS), (1, T0_NS + 10**9)]
    assert given[0].transactions[0].service == histogram.merge((one[0].service, other[0].service))
    table = histogram.decode(given[0].bins)
    assert table[0, [histogram.ANSWERED, histogram.FIRST, histogram.LAST]].tolist() == [2, 5, 9]
    gatherer.add(0, second(0, 5), mine)
    assert gatherer.seconds() == []


@pytest.mark.parametrize("most", [127, 128, 40_000, 1 << 40])
def test_counts_of_every_size_are_unpacked_as_packed(most: int) -> None:
    service = Histogram(indices=(7, 9), counts=(1, most), sum_ns=16, min_ns=7, max_ns=9)
    part = (TransactionLoad(counts=TransactionCounts(name="get", ok=1 + most), service=service, response=service),)
    total = Total(("get",), is_open=False)
    for _ in range(3):
        total.add(unpack(pack(part, is_open=False)))
    (found,) = total.transactions()
    assert (found.service.indices, found.service.counts) == ((7, 9), (3, 3 * most))


def test_bytes_of_a_wrong_length_are_refused() -> None:
    (part,) = workers(1, is_open=True)
    with pytest.raises(ValueError, match="bytes in place of"):
        unpack(pack(part, is_open=True) + b"x")


def test_the_result_sums_counts_and_takes_the_worst_of_other_values() -> None:
    waited = histogram.bin_ns([9])
    rest = [TransactionLoad(counts=TransactionCounts(name=n), ended=5, late=1, response_at_least=waited) for n in NAMES]
    gatherer = RayAggregator(NAMES, workers=2, is_open=False, t0_ns=T0_NS)
    first, second = NAMES[:2]
    lost = TrackedCommits(acknowledged=40, readings=(CommitReading(since_ns=5, at_ns=9, lost=1, unread=1),))
    one = result(rest, samples_lost=4, committed=((first, 3),), unknown=((first, 1),), commits=lost)
    worst = result(
        rest,
        client_cpu_fraction=0.9,
        start_skew_ns=70,
        first_errors=("a", "b"),
        committed=((first, 4), (second, 5)),
        pause_longest_ns=8,
        pauses=(Stall(start_ns=4, end_ns=12),),
        hangs=(Hang(worker=0, transaction=first, waited_ns=7),),
        hung=1,
        commits=replace(lost, acknowledged=2),
        handling=(Handling(answers=7, stamped=1, runqueue_s=0.25, runqueue_fraction=0.4),),
    )
    for worker, (part, finished) in enumerate(zip(workers(2), (one, worst), strict=True)):
        gatherer.finish(worker, finished, pack(part, is_open=False))
    found = gatherer.result()
    assert found.committed[:2] == ((first, 7), (second, 5))
    assert found.unknown[:2] == ((first, 1), (second, 0))
    assert (found.ended_in_window, found.client_cpu_s, found.samples_lost) == (200, 3.0, 4)
    assert (found.client_cpu_fraction, found.start_skew_ns, found.first_errors) == (0.9, 70, ("a", "b"))
    assert (found.pause_longest_ns, found.pauses) == (8, (Stall(start_ns=4, end_ns=12),))
    both = CommitReading(since_ns=5, at_ns=9, lost=2, unread=2)
    assert found.commits == TrackedCommits(acknowledged=42, readings=(both,))
    assert (found.hung, found.hangs) == (1, (Hang(worker=1, transaction=first, waited_ns=7),))
    assert [(t.ended, t.late) for t in found.transactions] == [(10, 2)] * len(NAMES)
    assert found.transactions[0].response_at_least == histogram.bin_ns([9, 9])
    assert found.handling == (Handling(answers=17, stamped=3, runqueue_s=0.75, runqueue_fraction=0.4),)


# ---- several nodes ---------------------------------------------------------------------------------------------------

A = Node(id="a", address="10.0.0.1", cpus=3)
B = Node(id="b", address="10.0.0.2", cpus=1)
SPEC = load_task("x", engine="sqlite", terminals=5, windows=(1.0, 2.0, 0.0), pool=LoadPool(kind="ray"))
NICE = os.getpriority(os.PRIO_PROCESS, 0) + 15
MIXED = [kind.name for kind in build(SPEC.workload).transactions if kind.weight > 0]


@pytest.mark.parametrize("count", [1, 3, 7])
def test_every_terminal_is_assigned_once(count: int) -> None:
    parts = divided(LoadShare(first=3, count=7, total=20), count)
    assert [number for part in parts for number in range(part.first, part.first + part.count)] == list(range(3, 10))
    assert max(part.count for part in parts) - min(part.count for part in parts) <= 1


@pytest.mark.parametrize(("placement", "nodes"), [("spread", "abaa"), ("pack", "aaab")])
def test_more_workers_are_assigned_after_the_same_first_ones(placement: str, nodes: str) -> None:
    for count in (1, 2, 3, 4):
        assert [node.id for node in placed([A, B], count, placement)] == list(nodes[:count])
    with pytest.raises(TaskFault, match="the 0 nodes of the cluster have 0 CPUs"):
        placed([], 1, placement)


class StandIn(RayActor):
    """An actor that sends TaskArmed at once, and a result as soon as the call `ends`; at `start` its load can fail."""

    def prepare(self, ends: str, fails: bool) -> None:
        self.calls: dict[str, Any] = {}
        self._ends, self._fails = ends, fails
        self._outgoing: asyncio.Queue[tuple[AgentMessage, bytes]] = asyncio.Queue()

    async def call(self, method: str, *arguments: Any, within_s: float = 10.0) -> Any:
        self.calls[method] = arguments[0] if arguments else None
        if method == "arm":
            self._outgoing.put_nowait((TaskArmed(key=""), b""))
        elif method == "start" and self._fails:
            error = TaskFault("disk_full", "no space", way_out="free some").as_error()
            self._outgoing.put_nowait((TaskFailed(key="", error=error), b""))
        elif method == self._ends:
            loads = [TransactionLoad(counts=TransactionCounts(name=name, ok=1)) for name in MIXED]
            done = result(loads, start_skew_ns=1000, measure_start_ns=self.calls["start"], ended_in_window=len(MIXED))
            done = replace(done, measure_end_ns=done.measure_start_ns)
            self._outgoing.put_nowait((TaskDone(key="", result=done), pack(loads, is_open=False)))

    async def messages(self) -> list[tuple[AgentMessage, bytes]]:
        return [await self._outgoing.get()]


class Run:
    """A load on two actors, of which the cluster is a stand-in too."""

    def __init__(self, *actors: StandIn, t0_ns: int, ends: str = "start", fails: StandIn | None = None) -> None:
        self.received: list[AgentMessage] = []
        self._actors = list(actors)
        for actor in actors:
            actor.prepare(ends, actor is fails)
        task = Task(key="run/l/1/1/1/load/c", spec=SPEC, deadline_s=60.0)
        self.runner = TaskRunner("run/l/1/1/1/load/c", "c", Path(), {}, self.received.append)
        self.runner.control(Start(key="", t0_ns=t0_ns))
        self.load = LoadRun(self, task, self.runner)  # type: ignore[arg-type]

    def nodes(self) -> list[Node]:
        return [A, B]

    async def actors(self, count: int, placement: str) -> list[StandIn]:
        assert (count, placement) == (2, "spread")
        return self._actors


async def test_every_node_starts_by_its_own_clock_and_the_error_bound_counts_as_skew() -> None:
    """One has a clock a second ahead, one a clock two seconds behind."""
    actors = (
        StandIn(actor=None, node=A, offset_ns=10**9, bound_ns=70),
        StandIn(actor=None, node=B, offset_ns=-2 * 10**9, bound_ns=5, pid=7, nice=NICE),
    )
    t0_ns = 50 * 10**9
    run = Run(*actors, t0_ns=t0_ns)
    done = await run.load.run()
    assert [actor.calls["start"] for actor in actors] == [t0_ns + 10**9, t0_ns - 2 * 10**9]
    specs: list[Any] = [codec.task_from_bytes(actor.calls["arm"]).spec for actor in actors]
    assert [(spec.share.first, spec.share.count, spec.workers) for spec in specs] == [(0, 3, 1), (3, 2, 1)]
    assert (done.measure_start_ns, done.measure_end_ns) == (t0_ns + 10**9, t0_ns + 3 * 10**9)
    assert done.start_skew_ns == 1070
    assert done.ended_in_window == 2 * len(MIXED)
    warning, *rest = run.received
    assert isinstance(warning, LogLine)
    assert warning.text.startswith(f"actor 7 on node 10.0.0.2 has nice value {NICE}")
    assert [type(message) for message in rest] == [TaskArmed]


async def test_a_finish_reaches_every_node_after_the_start() -> None:
    run = Run(*(StandIn(actor=None, node=node) for node in (A, B)), t0_ns=50, ends="finish")
    run.runner.control(Finish(key=""))
    assert (await run.load.run()).ended_in_window == 2 * len(MIXED)


async def test_an_actor_that_fails_voids_the_load_and_is_named() -> None:
    failing, other = (StandIn(actor=None, node=node) for node in (A, B))
    run = Run(failing, other, t0_ns=50, ends="finish", fails=failing)
    run.runner.control(Finish(key=""))
    with pytest.raises(TaskFault, match=r"node 10\.0\.0\.1: no space") as raised:
        await run.load.run()
    assert raised.value.code == "disk_full"


async def test_a_cluster_without_a_node_for_load_is_refused() -> None:
    """Its nodes have no CPUs for load workers, as a head alone; the message was one of a bug."""
    cluster = RayCluster()
    cluster.nodes = list  # type: ignore[method-assign, assignment]
    task = Task(key="k", spec=replace(SPEC, workers=0), deadline_s=60.0)
    with pytest.raises(TaskFault, match="needs 1 Ray workers, and the 0 nodes of the cluster have 0 CPUs"):
        await LoadRun(cluster, task, TaskRunner("k", "c", Path(), {}, lambda _: None)).run()


async def test_a_load_of_weeks_is_not_ended_by_its_driver() -> None:
    """The deadline of the agent's own task ends it."""
    sent = list[Any]()
    driver = RayDriver.__new__(RayDriver)
    driver._send = sent.append  # type: ignore[method-assign]

    async def read() -> TaskDone:
        return TaskDone(key="", result=result([]))

    driver._read = read  # type: ignore[method-assign]
    await driver.run(TaskRunner("run/l/1/1/1/load/c", "c", Path(), {}, sent.append), SPEC)
    assert codec.task_from_bytes(sent[0].task).deadline_s > 3 * WEEK_S


async def test_a_node_that_cannot_be_spawned_leaves_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(_module: str, _privileges: Privileges, directory: str) -> None:
        assert (Path(directory) / "token").is_file()
        made.append(Path(directory))
        raise OSError("no processes are left")

    made: list[Path] = []
    monkeypatch.setattr(ray_node, "spawn", refused)
    with pytest.raises(OSError, match="no processes"):
        await ray_node.RayNode.start(cpus=1, secrets=None, privileges=Privileges.for_engine(""))
    assert [path.exists() for path in made] == [False]


# ---- the address by which the other nodes reach a host ---------------------------------------------------------------


def outer() -> str:
    """An address of this host that is not loopback."""
    entries = [entry for entries in psutil.net_if_addrs().values() for entry in entries if entry.family == 2]
    found = [entry.address for entry in entries if not entry.address.startswith("127.")]
    return found[0] if found else pytest.skip("this host has no address but loopback")


def test_a_node_has_its_advertised_address_or_that_of_its_route_to_the_others() -> None:
    address = outer()
    assert own_address(address, "") == address
    assert own_address("127.0.0.1", "") == "127.0.0.1"
    assert own_address("", f"{address}:6379") == address
    assert own_address("192.0.2.1", f"{address}:1") == address  # an address of another host is ignored


@pytest.mark.parametrize(("name", "towards"), [("", ""), ("192.0.2.1", ""), ("", "127.0.0.1:6379")])
def test_a_node_without_an_address_is_refused(name: str, towards: str) -> None:
    with pytest.raises(TaskFault, match="cannot find the address of this host") as raised:
        own_address(name, towards)
    assert raised.value.code == "refused"

"""The arithmetic of a load on several nodes: shares, T0 on other clocks, placement of actors. The members are stand-ins:
no Ray runs.

Not proven here: that Ray transports calls and answers, which `test_ray_pool` and `test_ray_nodes` show on real clusters.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

pytest.importorskip("ray")

from proveout.agent.errors import TaskFault
from proveout.agent.load.ray_driver import LoadRun, divided
from proveout.agent.load.ray_pool import Node, RayActor, pack, placed, without_packed
from proveout.dsl.plan.stages import Windows
from proveout.dsl.workloads.kinds import build
from proveout.proto.wire import codec
from proveout.proto.wire.messages import AgentMessage, LogLine, TaskArmed, TaskDone, TaskFailed
from proveout.proto.wire.results import LoadResult, TransactionCounts, TransactionLoad
from proveout.proto.wire.tasks import Endpoint, LoadPool, LoadShare, RunLoad, Task
from tests.agent.load.conftest import workload_of

A = Node(id="a", address="10.0.0.1", cpus=3)
B = Node(id="b", address="10.0.0.2", cpus=1)
SPEC = RunLoad(
    workload=workload_of("hlr", population=100),
    endpoint=Endpoint(system="db", engine="sqlite", dsn="x"),
    share=LoadShare(first=0, count=5, total=5),
    windows=Windows(ramp_up_s=1.0, measure_s=2.0, ramp_down_s=0.0),
    workers=2,
    seed=1,
    label="test",
    pool=LoadPool(kind="ray"),
)
NICE = os.getpriority(os.PRIO_PROCESS, 0) + 15
NAMES = [kind.name for kind in build(SPEC.workload).transactions if kind.weight > 0]


@pytest.mark.parametrize("count", [1, 3, 7])
def test_every_terminal_is_assigned_once(count: int) -> None:
    parts = divided(LoadShare(first=3, count=7, total=20), count)
    assert [number for part in parts for number in range(part.first, part.first + part.count)] == list(range(3, 10))
    assert max(part.count for part in parts) - min(part.count for part in parts) <= 1


def test_more_workers_are_assigned_after_the_same_first_ones() -> None:
    for placement in ("spread", "pack"):
        all_places = placed([A, B], 4, placement)
        assert [placed([A, B], count, placement) for count in (1, 2, 3)] == [all_places[:count] for count in (1, 2, 3)]
    assert [node.id for node in placed([A, B], 4, "spread")] == ["a", "b", "a", "a"]
    assert [node.id for node in placed([A, B], 4, "pack")] == ["a", "a", "a", "b"]
    with pytest.raises(TaskFault, match="the 0 nodes of the cluster have 0 CPUs"):
        placed([], 1, "spread")


class StandIn(RayActor):
    """An actor that sends TaskArmed at once, and a result as soon as it is started."""

    def prepare(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self._outgoing: asyncio.Queue[tuple[AgentMessage, bytes]] = asyncio.Queue()

    async def call(self, method: str, *arguments: Any, within_s: float = 10.0) -> Any:
        self.calls.append((method, arguments[0]))
        if method == "arm":
            self._outgoing.put_nowait((TaskArmed(key=""), b""))
        elif method == "start":
            loads = [TransactionLoad(counts=TransactionCounts(name=name, ok=1)) for name in NAMES]
            result = LoadResult(
                transactions=without_packed(loads),
                ended_in_window=len(NAMES),
                measure_start_ns=arguments[0],
                measure_end_ns=arguments[0],
                client_cpu_fraction=0.1,
                client_cpu_s=0.1,
                start_skew_ns=1000,
                seconds_produced=0,
            )
            self._outgoing.put_nowait((TaskDone(key="", result=result), pack(loads, is_open=False)))

    async def messages(self) -> list[tuple[AgentMessage, bytes]]:
        return [await self._outgoing.get()]


class RayCluster:
    """Two nodes, one with a clock a second ahead, one with a clock two seconds behind."""

    def __init__(self) -> None:
        self.created = [
            StandIn(actor=None, node=A, offset_ns=10**9, bound_ns=70),
            StandIn(actor=None, node=B, offset_ns=-2 * 10**9, bound_ns=5, pid=7, nice=NICE),
        ]
        for member in self.created:
            member.prepare()

    def nodes(self) -> list[Node]:
        return [A, B]

    async def actors(self, count: int, placement: str) -> list[StandIn]:
        assert (count, placement) == (2, "spread")
        return self.created


async def test_every_node_starts_by_its_own_clock_and_the_error_bound_counts_as_skew() -> None:
    cluster = RayCluster()
    received: list[AgentMessage] = []
    run = LoadRun(cluster, Task(key="run/l/1/1/1/load/c", spec=SPEC, deadline_s=60.0), received.append)  # type: ignore[arg-type]
    t0_ns = 50 * 10**9
    run.start_at(t0_ns)
    result = await run.run()
    assert [dict(member.calls)["start"] for member in cluster.created] == [t0_ns + 10**9, t0_ns - 2 * 10**9]
    armed = [codec.task_from_bytes(dict(member.calls)["arm"]) for member in cluster.created]
    assert [(task.spec.share.first, task.spec.share.count, task.spec.workers) for task in armed] == [
        (0, 3, 1),
        (3, 2, 1),
    ]  # type: ignore[union-attr]
    assert (result.measure_start_ns, result.measure_end_ns) == (t0_ns + 10**9, t0_ns + 3 * 10**9)
    assert result.start_skew_ns == 1070
    assert result.ended_in_window == 2 * len(NAMES)
    warning, *rest = received
    assert isinstance(warning, LogLine)
    assert warning.text.startswith(f"actor 7 on node 10.0.0.2 has nice value {NICE}")
    assert [type(message) for message in rest] == [TaskArmed]


class Waiting(StandIn):
    """An actor whose load counts its commits at `finish`, and only then has a result."""

    async def call(self, method: str, *arguments: Any, within_s: float = 10.0) -> Any:
        if method == "start":
            self.t0_ns = arguments[0]
        elif method == "finish":
            await super().call("start", self.t0_ns)
        else:
            await super().call(method, *arguments)


class Failing(Waiting):
    """An actor whose load fails instead."""

    async def call(self, method: str, *arguments: Any, within_s: float = 10.0) -> Any:
        if method == "start":
            error = TaskFault("disk_full", "no space", way_out="free some").as_error()
            self._outgoing.put_nowait((TaskFailed(key="", error=error), b""))
        else:
            await super().call(method, *arguments)


def started(*actors: StandIn) -> LoadRun:
    cluster = RayCluster()
    cluster.created = list(actors)
    for member in cluster.created:
        member.prepare()
    run = LoadRun(cluster, Task(key="run/l/1/1/1/load/c", spec=SPEC, deadline_s=60.0), lambda _: None)  # type: ignore[arg-type]
    run.finish.set()
    run.start_at(50)
    return run


async def test_a_finish_reaches_every_node_after_the_start() -> None:
    run = started(*(Waiting(actor=None, node=node) for node in (A, B)))
    assert (await run.run()).ended_in_window == 2 * len(NAMES)


async def test_an_actor_that_fails_voids_the_load_and_is_named() -> None:
    run = started(Failing(actor=None, node=A), Waiting(actor=None, node=B))
    with pytest.raises(TaskFault, match=r"node 10\.0\.0\.1: no space") as raised:
        await run.run()
    assert raised.value.code == "disk_full"

"""Load workers as actors on a Ray cluster, as the driver process sees them. The only module that imports Ray.

Flow: `RayCluster.open(address)` -> `RayCluster.actors(count)`: actors placed on the nodes of the cluster, each with the
clock offset of its node -> `arm` -> `start(t0)` -> `take` from each actor about once a second -> its messages.

An actor runs its share of a load as an agent does: `run_load` with one worker process of its own, the same as in the
local pool. It bins its seconds on its own node, and keeps them until they are taken. Its process has the threads of
Ray; the measured loop runs in the worker. Only bytes and plain values go through Ray, never pickled classes of this
package. If `take` is not called for `LEASE_S`, the driver has ended: the actor then stops its load and ends, without
waiting for Ray. A worker process never outlives its actor.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, cast

import ray
from ray.exceptions import RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import proveout
from proveout.agent.daemon.task_runner import TaskRunner
from proveout.agent.daemon.tasks import Resource
from proveout.agent.errors import TaskFault
from proveout.agent.load import run_load as load_task
from proveout.agent.load.pools.ray.ray_aggregator import pack, without_packed
from proveout.core.data_classes import dataclass
from proveout.proto.wire import agent_pb2, codec
from proveout.proto.wire.messages import AgentMessage, Sample, TaskDone, TaskFailed
from proveout.proto.wire.protobuf_mapping import WireFault
from proveout.proto.wire.results import LoadResult, LoadSecond, TaskError
from proveout.proto.wire.tasks import RunLoad, Task

LEASE_S = 10.0
READY_S = 60.0
TAKE_S = 1.0
CLOCK_PROBES = 12
ORPHANED = 3

PackedMessage: TypeAlias = tuple[bytes, bytes]
"""An agent envelope without its transactions, and the transactions packed (b"" when it has none)."""


class LoadActor:
    """One worker of a load on a node of the cluster; created by `RayCluster.actors`."""

    def __init__(self) -> None:
        self._resources: dict[str, Resource] = {}
        self._messages: list[PackedMessage] = []
        self._news = asyncio.Event()
        self._runner: TaskRunner | None = None
        self._running: asyncio.Task[None] | None = None
        self._is_open = False
        self._taken_s = time.monotonic()
        self._watching: asyncio.Task[None] | None = None

    async def hello(self) -> dict[str, Any]:
        """Version of proveout, host name, process id, nice value."""
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        return {"version": proveout.__version__, "host": socket.gethostname(), "pid": os.getpid(), "nice": nice}

    async def clock(self) -> int:
        """This node's monotonic clock, ns."""
        return time.monotonic_ns()

    async def arm(self, task: bytes) -> None:
        """Start a task, a coordinator envelope. Its `TaskArmed` or `TaskFailed` is taken later."""
        message = codec.coordinator_message(agent_pb2.CoordinatorEnvelope.FromString(task))
        if not isinstance(message, Task) or not isinstance(message.spec, RunLoad):
            raise TypeError(f"an actor arms loads, not {type(message).__name__}")
        self._taken_s = time.monotonic()
        self._is_open = message.spec.share.rate is not None
        work_dir = Path(tempfile.gettempdir())  # a load writes nothing
        self._runner = TaskRunner(message.key, socket.gethostname(), work_dir, self._resources, self._add_message)
        self._running = asyncio.create_task(self._run(self._runner, message))
        self._watching = asyncio.create_task(self._watch(self._running))

    async def start(self, t0_ns: int) -> None:
        """Start the armed load at this instant of the node's clock."""
        if self._runner is not None:
            self._runner.start_at(t0_ns)

    async def finish(self) -> None:
        """Handle `Finish`."""
        if self._runner is not None:
            self._runner.finish()

    async def take(self) -> list[PackedMessage]:
        """Messages since the last call; waits for the first one, at most `TAKE_S`."""
        self._taken_s = time.monotonic()
        try:
            async with asyncio.timeout(TAKE_S):
                await self._news.wait()
        except TimeoutError:
            pass
        self._news.clear()
        taken, self._messages = self._messages, []
        return taken

    async def stop(self) -> None:
        """Stop the load, if there is one, and the worker process."""
        if self._runner is not None and self._running is not None:
            self._runner.stop("cancelled", "the load was stopped")
            await asyncio.wait({self._running})
        for resource in self._resources.values():
            await resource.close(keep_data=False)

    async def _run(self, runner: TaskRunner, task: Task) -> None:
        outcome = await runner.run(load_task.run_load, task.spec, task.deadline_s)
        try:
            self._add_message(outcome)
        except WireFault as fault:
            self._add_message(TaskFailed(key=outcome.key, error=TaskError(code="fault", message=fault.what)))

    def _add_message(self, message: AgentMessage) -> None:
        transactions = b""
        match message:
            case Sample(sample=LoadSecond() as second):
                transactions = pack(second.transactions, is_open=self._is_open)
                message = replace(message, sample=replace(second, transactions=()))
            case TaskDone(result=LoadResult() as result):
                transactions = pack(result.transactions, is_open=self._is_open)
                message = replace(message, result=replace(result, transactions=without_packed(result.transactions)))
        self._messages.append((codec.agent_envelope(message).SerializeToString(), transactions))
        self._news.set()

    async def _watch(self, running: asyncio.Task[None]) -> None:
        """End this process if no messages are taken for `LEASE_S`; the kernel then ends its worker process."""
        while (left_s := self._taken_s + LEASE_S - time.monotonic()) > 0:
            await asyncio.wait({running}, timeout=left_s)
            if running.done():
                return
        os._exit(ORPHANED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of the cluster that can take actors: Ray's id, address, logical CPUs."""

    id: str
    address: str
    cpus: int


@dataclass(slots=True, kw_only=True)
class RayActor:
    """An actor, its node, and the clock offset of that node to this host with an error bound, ns."""

    actor: Any
    node: Node
    pid: int = 0
    nice: int = 0
    offset_ns: int = 0
    bound_ns: int = 0

    @property
    def name(self) -> str:
        """The actor as text."""
        return f"actor {self.pid} on node {self.node.address}" if self.pid else f"an actor on node {self.node.address}"

    async def call(self, method: str, *arguments: Any, within_s: float = LEASE_S) -> Any:
        """Call a method. TaskFault if the actor has died, or does not answer within the lease."""
        try:
            async with asyncio.timeout(within_s):
                return await getattr(self.actor, method).remote(*arguments)
        except TimeoutError:
            raise TaskFault("fault", f"{self.name} did not answer for {within_s:g} s", way_out=_LOST) from None
        except RayActorError as error:
            raise TaskFault("fault", f"{self.name} died: {_words(error)}", way_out=_LOST) from None
        except RayError as error:
            raise TaskFault("fault", f"{self.name} failed: {_words(error)}", way_out=_LOST) from None

    async def messages(self) -> list[tuple[AgentMessage, bytes]]:
        """New messages, with the packed transactions of each."""
        taken: list[PackedMessage] = await self.call("take")
        return [
            (codec.agent_message(agent_pb2.AgentEnvelope.FromString(envelope)), packed) for envelope, packed in taken
        ]


_LOST = "the iteration is void; see the log of the Ray node"
_WORDS_MAX = 600


def _words(error: Exception) -> str:
    """The text of an exception of Ray on one line. The whole text, with its stack trace, goes to this process's log."""
    sys.stderr.write(f"{error}\n")
    text = " ".join(str(error).split())
    return text if len(text) <= _WORDS_MAX else f"{text[: _WORDS_MAX // 3]} … {text[-_WORDS_MAX * 2 // 3 :]}"


class RayCluster:
    """A connection to a cluster; Ray allows one for each process."""

    def __init__(self) -> None:
        self._members: list[RayActor] = []

    @classmethod
    def open(cls, address: str) -> RayCluster:
        """Connect. TaskFault `unreachable` if there is no cluster, or it refuses the connection."""
        try:
            ray.init(address=address, log_to_driver=True, configure_logging=False, namespace="proveout")
        except Exception as error:  # noqa: BLE001 -- Ray raises many types for a failed connection
            raise TaskFault(
                "unreachable",
                f"cannot connect to the Ray cluster at {address}: {_words(error)}",
                way_out="check that it runs, that this host is one of its nodes, and that "
                "RAY_AUTH_TOKEN_PATH and RAY_TLS_* match it",
            ) from None
        return cls()

    def nodes(self) -> list[Node]:
        """The live nodes with CPUs."""
        return [
            Node(
                id=node["NodeID"],
                address=node["NodeManagerAddress"],
                cpus=int(node["Resources"].get("CPU", 0)),
            )
            for node in sorted(
                cast(Any, ray.nodes)(), key=lambda node: str(node["NodeManagerAddress"]) + str(node["NodeID"])
            )
            if node["Alive"] and node["Resources"].get("CPU", 0) >= 1
        ]

    async def actors(self, count: int, placement: str) -> list[RayActor]:
        """`count` actors, each with one CPU of its node and a clock offset.

        Actors of the last load are used again if they match.
        """
        chosen_nodes = placed(self.nodes(), count, placement)
        if any(member.node != node for member, node in zip(self._members, chosen_nodes, strict=False)):
            self.dismiss()
        new = [_create(node) for node in chosen_nodes[len(self._members) :]]
        self._members += new
        await asyncio.gather(*(_check_version(member) for member in new))
        chosen = self._members[:count]
        await asyncio.gather(*(_read_clock(member) for member in chosen))
        return chosen

    def dismiss(self) -> None:
        """Kill the actors and their loads."""
        for member in self._members:
            ray.kill(member.actor)
        self._members = []

    def close(self) -> None:
        """Disconnect; Ray ends the remaining actors."""
        self.dismiss()
        ray.shutdown()


def placed(nodes: Sequence[Node], count: int, placement: str) -> list[Node]:
    """The node for each of `count` actors: `spread` assigns round-robin, `pack` fills node after node.

    Raises TaskFault `refused` if the cluster has fewer CPUs.

    >>> a, b = Node(id="a", address="10.0.0.1", cpus=3), Node(id="b", address="10.0.0.2", cpus=1)
    >>> [node.id for node in placed([a, b], 3, "spread")], [node.id for node in placed([a, b], 3, "pack")]
    (['a', 'b', 'a'], ['a', 'a', 'a'])
    """
    if count > (total := sum(node.cpus for node in nodes)):
        raise TaskFault(
            "refused",
            f"the load needs {count} Ray workers, and the {len(nodes)} nodes of the cluster have {total} CPUs",
            way_out="set `workers` of the pool or stage, or add nodes: a worker needs one CPU",
        )
    if placement == "pack":
        return [node for node in nodes for _ in range(node.cpus)][:count]
    rounds = max((node.cpus for node in nodes), default=0)
    return [node for turn in range(rounds) for node in nodes if turn < node.cpus][:count]


def _create(node: Node) -> RayActor:
    strategy = NodeAffinitySchedulingStrategy(node_id=node.id, soft=False)
    remote = cast(Any, ray.remote(LoadActor))
    actor = remote.options(
        num_cpus=1, max_restarts=0, max_task_retries=0, max_concurrency=16, scheduling_strategy=strategy
    ).remote()
    return RayActor(actor=actor, node=node)


async def _check_version(member: RayActor) -> None:
    try:
        hello = await member.call("hello", within_s=READY_S)
    except TaskFault as fault:
        if "ModuleNotFoundError" not in fault.what:
            raise
        raise TaskFault(
            "missing",
            f"node {member.node.address} cannot run load workers: {fault.what}",
            way_out=f"install proveout {proveout.__version__} where Ray's workers run",
        ) from None
    member.pid, member.nice = hello["pid"], hello["nice"]
    if hello["version"] != proveout.__version__:
        raise TaskFault(
            "refused",
            f"node {member.node.address} has proveout {hello['version']}, this agent has {proveout.__version__}",
            way_out="install the same version on agents and Ray nodes",
        )


async def _read_clock(member: RayActor) -> None:
    """Estimate the clock offset of a node: the exchange with the shortest round trip has an error of at most half of
    it.
    """
    best_ns: int | None = None
    for _ in range(CLOCK_PROBES):
        sent_ns = time.monotonic_ns()
        there_ns = int(await member.call("clock"))
        back_ns = time.monotonic_ns()
        if best_ns is None or back_ns - sent_ns < best_ns:
            best_ns = back_ns - sent_ns
            member.offset_ns, member.bound_ns = there_ns - (sent_ns + back_ns) // 2, best_ns // 2 + 1

"""Load workers as actors on a Ray cluster, seen from the driver process. The only module that imports Ray.

Flow: `Fleet.open(address)` -> `Fleet.crew(count)`: actors placed on the cluster's nodes, each with the offset of its node's
clock -> `arm` -> `start(t0)` -> `take` of each actor about once a second -> what it has to say.

An actor does with its share of a load what an agent does: it runs `task.run_load` with one worker process of its own, the
same as the local pool's, bins its seconds on its own node, and keeps them until they are taken. Its process holds Ray's
threads; the loop that is measured is in the worker's. What goes through Ray is bytes and plain values, never pickled
classes of ours. A taker that does not come for `LEASE_S` is a driver that is gone: the actor then stops its load and ends,
whatever Ray has noticed; a worker process never outlives its actor.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, cast

import ray
from ray.exceptions import RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import proveout
from proveout.agent.daemon.task_runner import TaskRunner
from proveout.agent.daemon.tasks import Resource, TaskFault
from proveout.agent.load import run_load as load_task
from proveout.agent.load.pools.ray.ray_aggregator import pack
from proveout.proto.wire import agent_pb2, codec
from proveout.proto.wire.messages import AgentMessage, Sample, TaskDone
from proveout.proto.wire.results import LoadResult, LoadSecond
from proveout.proto.wire.tasks import RunLoad, Task

LEASE_S = 10.0
READY_S = 60.0
TAKE_S = 1.0
CLOCK_PROBES = 12
ORPHANED = 3

Said: TypeAlias = tuple[bytes, bytes]
"""An agent envelope without its transactions, and the transactions packed (b"" when it has none)."""


class LoadActor:
    """One worker of a load on a node of the cluster; created by `Fleet.crew`."""

    def __init__(self) -> None:
        self._resources: dict[str, Resource] = {}
        self._said: list[Said] = []
        self._news = asyncio.Event()
        self._work: TaskRunner | None = None
        self._running: asyncio.Task[None] | None = None
        self._is_open = False
        self._taken_s = time.monotonic()
        self._watching: asyncio.Task[None] | None = None

    async def hello(self) -> dict[str, Any]:
        """Who answers: version of proveout, host name, process id, nice value."""
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        return {"version": proveout.__version__, "host": socket.gethostname(), "pid": os.getpid(), "nice": nice}

    async def clock(self) -> int:
        """This node's monotonic clock, ns."""
        return time.monotonic_ns()

    async def arm(self, task: bytes) -> None:
        """Begin a task, as a coordinator envelope; `TaskArmed` or `TaskFailed` is taken later."""
        message = codec.coordinator_message(agent_pb2.CoordinatorEnvelope.FromString(task))
        if not isinstance(message, Task) or not isinstance(message.spec, RunLoad):
            raise TypeError(f"an actor arms loads, not {type(message).__name__}")
        self._taken_s = time.monotonic()
        self._is_open = message.spec.share.rate is not None
        work_dir = Path(tempfile.gettempdir())  # a load writes nothing
        self._work = TaskRunner(message.key, socket.gethostname(), work_dir, self._resources, self._say)
        self._running = asyncio.create_task(self._run(self._work, message))
        self._watching = asyncio.create_task(self._watch(self._running))

    async def start(self, t0_ns: int) -> None:
        """Start what is armed at this instant of this node's clock."""
        if self._work is not None:
            self._work.start_at(t0_ns)

    async def take(self) -> list[Said]:
        """What was said since the last call; waits for it, but not longer than `TAKE_S`."""
        self._taken_s = time.monotonic()
        try:
            async with asyncio.timeout(TAKE_S):
                await self._news.wait()
        except TimeoutError:
            pass
        self._news.clear()
        said, self._said = self._said, []
        return said

    async def stop(self) -> None:
        """Stop the load, if there is one, and the worker process."""
        if self._work is not None and self._running is not None:
            self._work.stop("cancelled", "the load was stopped")
            await asyncio.wait({self._running})
        for resource in self._resources.values():
            await resource.close(keep_data=False)

    async def _run(self, work: TaskRunner, task: Task) -> None:
        self._say(await work.run(load_task.run_load, task.spec, task.deadline_s))

    def _say(self, message: AgentMessage) -> None:
        transactions = b""
        match message:
            case Sample(sample=LoadSecond() as second):
                transactions = pack(second.transactions, is_open=self._is_open)
                message = replace(message, sample=replace(second, transactions=()))
            case TaskDone(result=LoadResult() as result):
                transactions = pack(result.transactions, is_open=self._is_open)
                message = replace(message, result=replace(result, transactions=()))
        self._said.append((codec.agent_envelope(message).SerializeToString(), transactions))
        self._news.set()

    async def _watch(self, running: asyncio.Task[None]) -> None:
        """End this process when nobody takes what a load says; the kernel then ends its worker process."""
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
class Member:
    """An actor of a crew: its node, and that node's clock minus this host's with the bound on its error, ns."""

    actor: Any
    node: Node
    pid: int = 0
    nice: int = 0
    offset_ns: int = 0
    bound_ns: int = 0

    @property
    def name(self) -> str:
        """For people."""
        return f"actor {self.pid} on node {self.node.address}" if self.pid else f"an actor on node {self.node.address}"

    async def call(self, method: str, *arguments: Any, within_s: float = LEASE_S) -> Any:
        """The answer of one of its methods. TaskFault when it is dead, or silent for longer than the lease."""
        try:
            async with asyncio.timeout(within_s):
                return await getattr(self.actor, method).remote(*arguments)
        except TimeoutError:
            raise TaskFault("fault", f"{self.name} was silent for {within_s:g} s", way_out=_LOST) from None
        except RayActorError as error:
            raise TaskFault("fault", f"{self.name} died: {_words(error)}", way_out=_LOST) from None
        except RayError as error:
            raise TaskFault("fault", f"{self.name} failed: {_words(error)}", way_out=_LOST) from None

    async def messages(self) -> list[tuple[AgentMessage, bytes]]:
        """What it has to say by now, and the packed transactions of each."""
        said: list[Said] = await self.call("take")
        return [
            (codec.agent_message(agent_pb2.AgentEnvelope.FromString(envelope)), packed) for envelope, packed in said
        ]


_LOST = "the iteration counts for nothing; the log of the Ray node tells more"
_WORDS_MAX = 600


def _words(error: Exception) -> str:
    """What an exception of Ray says, on one line; all of it, with its stack trace, goes to this process's log."""
    sys.stderr.write(f"{error}\n")
    text = " ".join(str(error).split())
    return text if len(text) <= _WORDS_MAX else f"{text[: _WORDS_MAX // 3]} … {text[-_WORDS_MAX * 2 // 3 :]}"


class Fleet:
    """A connection to a cluster; one a process, as Ray has it."""

    def __init__(self) -> None:
        self._members: list[Member] = []

    @classmethod
    def open(cls, address: str) -> Fleet:
        """Connect. TaskFault `unreachable` when there is no cluster, or it does not let us in."""
        try:
            ray.init(address=address, log_to_driver=True, configure_logging=False, namespace="proveout")
        except Exception as error:  # noqa: BLE001 -- Ray raises a dozen types for a cluster that cannot be had
            raise TaskFault(
                "unreachable",
                f"cannot connect to the Ray cluster at {address}: {_words(error)}",
                way_out="does it run, is this host one of its nodes, and do RAY_AUTH_TOKEN_PATH and RAY_TLS_* suit it?",
            ) from None
        return cls()

    def nodes(self) -> list[Node]:
        """The nodes alive that have CPUs, as Ray knows them."""
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

    async def crew(self, count: int, placement: str) -> list[Member]:
        """`count` actors, each with one CPU of its node and its clock's offset; those of the last load where they suit."""
        places = placed(self.nodes(), count, placement)
        if any(member.node != node for member, node in zip(self._members, places, strict=False)):
            self.dismiss()
        new = [_hire(node) for node in places[len(self._members) :]]
        self._members += new
        await asyncio.gather(*(_greet(member) for member in new))
        crew = self._members[:count]
        await asyncio.gather(*(_read_clock(member) for member in crew))
        return crew

    def dismiss(self) -> None:
        """End the actors at once, their loads with them."""
        for member in self._members:
            ray.kill(member.actor)
        self._members = []

    def close(self) -> None:
        """Leave the cluster; what is left of ours there is ended by Ray."""
        self.dismiss()
        ray.shutdown()


def placed(nodes: Sequence[Node], count: int, placement: str) -> list[Node]:
    """Which node each of `count` actors goes to: `spread` deals them round, `pack` fills node after node.

    Raises TaskFault `refused` when the cluster has fewer CPUs than that.

    >>> a, b = Node(id="a", address="10.0.0.1", cpus=3), Node(id="b", address="10.0.0.2", cpus=1)
    >>> [node.id for node in placed([a, b], 3, "spread")], [node.id for node in placed([a, b], 3, "pack")]
    (['a', 'b', 'a'], ['a', 'a', 'a'])
    """
    if count > (total := sum(node.cpus for node in nodes)):
        raise TaskFault(
            "refused",
            f"the load wants {count} Ray workers, and the {len(nodes)} nodes of the cluster have {total} CPUs",
            way_out="set `workers` of the pool or stage, or add nodes: a worker takes a CPU",
        )
    if placement == "pack":
        return [node for node in nodes for _ in range(node.cpus)][:count]
    rounds = max((node.cpus for node in nodes), default=0)
    return [node for turn in range(rounds) for node in nodes if turn < node.cpus][:count]


def _hire(node: Node) -> Member:
    strategy = NodeAffinitySchedulingStrategy(node_id=node.id, soft=False)
    remote = cast(Any, ray.remote(LoadActor))
    actor = remote.options(
        num_cpus=1, max_restarts=0, max_task_retries=0, max_concurrency=16, scheduling_strategy=strategy
    ).remote()
    return Member(actor=actor, node=node)


async def _greet(member: Member) -> None:
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
            way_out="agents and Ray nodes must be of the same version",
        )


async def _read_clock(member: Member) -> None:
    """The offset of its node's clock, by exchanges: the one with the shortest round trip is right within half of that."""
    best_ns: int | None = None
    for _ in range(CLOCK_PROBES):
        sent_ns = time.monotonic_ns()
        there_ns = int(await member.call("clock"))
        back_ns = time.monotonic_ns()
        if best_ns is None or back_ns - sent_ns < best_ns:
            best_ns = back_ns - sent_ns
            member.offset_ns, member.bound_ns = there_ns - (sent_ns + back_ns) // 2, best_ns // 2 + 1

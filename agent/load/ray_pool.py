"""Load workers as actors on a Ray cluster, and the sums of their seconds. The only module that imports Ray."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import ray
from ray.exceptions import RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import proveout
from proveout.agent.daemon.tasks import Resource, TaskRunner
from proveout.agent.errors import TaskFault
from proveout.agent.load import run_load as load_task
from proveout.agent.load.aggregator import FIRST_ERRORS_MAX, HANGS_MAX, joined
from proveout.agent.load.loop.recorder import SECOND_NS
from proveout.core.data_classes import dataclass, record
from proveout.core.linux import ORPHANED
from proveout.proto.wire import codec, histogram
from proveout.proto.wire.histogram import common, longest, merge_handling
from proveout.proto.wire.messages import AgentMessage, Finish, Sample, Start, TaskDone
from proveout.proto.wire.results import Histogram, LoadResult, LoadSecond, TransactionCounts, TransactionLoad
from proveout.proto.wire.tasks import RunLoad, Task

KINDS = ("service", "response", "schedule")
COUNTS = 4  # ok, logical failures, retried, missed
EXTREMES = 4  # values, sum, least, greatest
WIDTH = COUNTS + len(KINDS) * EXTREMES

_HEAD = struct.Struct("!IIII")
_WIDTHS = (1, 2, 4, 8)

Int64s = npt.NDArray[np.int64]
Errors = list[tuple[int, str, int]]


@dataclass(frozen=True, slots=True)
class Packed:
    """The transactions of one worker in one window: `numbers` (types, WIDTH), histogram entries as `slots` and
    `counts`.

    Slots are unique. `counts` has the smallest integer type for its values: most of thousands of buckets hold one or
    two values, and the bytes go over a network.
    """

    numbers: Int64s
    slots: Int64s
    counts: npt.NDArray[np.integer]
    errors: Errors


def pack(transactions: Sequence[TransactionLoad], *, is_open: bool) -> bytes:
    """The transactions of one worker as bytes. Under closed arrival response equals service, and is not packed."""
    kinds = KINDS if is_open else KINDS[:1]
    numbers = np.zeros((len(transactions), WIDTH), dtype="<i8")
    slots: list[Int64s] = []
    counts: list[int] = []
    errors: Errors = []
    for row, load in enumerate(transactions):
        totals = load.counts
        numbers[row, :COUNTS] = (totals.ok, totals.logical_failures, totals.retried, totals.missed)
        errors.extend((row, code, number) for code, number in totals.errors)
        for place, kind in enumerate(kinds):
            part: Histogram = getattr(load, kind)
            at = COUNTS + place * EXTREMES
            numbers[row, at : at + EXTREMES] = (sum(part.counts), part.sum_ns, part.min_ns, part.max_ns)
            base = (row * len(KINDS) + place) * histogram.LENGTH
            slots.append(np.asarray(part.indices, dtype="<i8") + base)
            counts.extend(part.counts)
    entries = np.concatenate(slots).astype("<i4") if slots else np.empty(0, dtype="<i4")
    packed_errors = json.dumps(errors).encode() if errors else b""
    width = next(size for size in _WIDTHS if max(counts, default=0) < 1 << (8 * size - 1))
    head = _HEAD.pack(len(transactions), len(entries), width, len(packed_errors))
    values = np.asarray(counts, dtype=_integer(width))
    return b"".join((head, numbers.tobytes(), entries.tobytes(), values.tobytes(), packed_errors))


def without_packed(transactions: Sequence[TransactionLoad]) -> tuple[TransactionLoad, ...]:
    """The fields that `pack` leaves out: those that only the result of a load has."""
    return tuple(
        replace(
            load,
            counts=TransactionCounts(name=load.counts.name),
            response=Histogram(),
            service=Histogram(),
            schedule=Histogram(),
        )
        for load in transactions
    )


def _integer(width: int) -> np.dtype[np.signedinteger]:
    return np.dtype(f"<i{width}")


def unpack(data: bytes) -> Packed:
    """Decode `pack`. ValueError or struct.error for any other bytes."""
    types, entries, width, errors = _HEAD.unpack_from(data)
    if width not in _WIDTHS:
        raise ValueError(f"counts of {width} bytes")
    at = _HEAD.size
    numbers = np.frombuffer(data, dtype="<i8", count=types * WIDTH, offset=at).reshape(types, WIDTH)
    at += numbers.nbytes
    slots = np.frombuffer(data, dtype="<i4", count=entries, offset=at)
    at += slots.nbytes
    counts = np.frombuffer(data, dtype=_integer(width), count=entries, offset=at)
    at += counts.nbytes
    if at + errors != len(data):
        raise ValueError(f"{len(data)} bytes in place of {at + errors}")
    unpacked: Errors = [tuple(item) for item in json.loads(data[at:])] if errors else []
    return Packed(numbers, slots.astype(np.int64), counts, unpacked)


class Total:
    """The transactions of several workers in one window, one for each of `names`, added one worker at a time."""

    def __init__(self, names: Sequence[str], *, is_open: bool) -> None:
        self._names, self._is_open = names, is_open
        self._dense = np.zeros(len(names) * len(KINDS) * histogram.LENGTH, dtype=np.int64)
        self._numbers: list[Int64s] = []
        self._errors: Counter[tuple[int, str]] = Counter()

    def add(self, part: Packed) -> None:
        """Add the transactions of a worker. ValueError if they are not of these types."""
        if len(part.numbers) != len(self._names):
            raise ValueError(f"{len(part.numbers)} transaction types where there are {len(self._names)}")
        if part.slots.size:
            self._dense[part.slots] += part.counts
        self._numbers.append(part.numbers.copy())  # not a view, which would keep all the received bytes in memory
        for row, code, number in part.errors:
            self._errors[row, code] += number

    def transactions(self) -> tuple[TransactionLoad, ...]:
        """One total for each name; needs at least one worker."""
        numbers = np.stack(self._numbers)
        totals = numbers.sum(axis=0)
        return tuple(self._load(row, name, numbers[:, row], totals[row]) for row, name in enumerate(self._names))

    def _load(self, row: int, name: str, numbers: Int64s, totals: Int64s) -> TransactionLoad:
        ok, logical, retried, missed = (int(number) for number in totals[:COUNTS])
        service = self._histogram(row, 0, numbers, totals)
        return TransactionLoad(
            counts=TransactionCounts(
                name=name,
                ok=ok,
                logical_failures=logical,
                retried=retried,
                missed=missed,
                errors=tuple(sorted((code, count) for (at, code), count in self._errors.items() if at == row)),
            ),
            response=self._histogram(row, 1, numbers, totals) if self._is_open else service,
            service=service,
            schedule=self._histogram(row, 2, numbers, totals) if self._is_open else Histogram(),
        )

    def _histogram(self, row: int, place: int, numbers: Int64s, totals: Int64s) -> Histogram:
        """One kind of one transaction; `numbers` (workers, WIDTH) are of each worker, `totals` (WIDTH,) their sums."""
        at = COUNTS + place * EXTREMES
        filled = numbers[:, at] > 0
        if not filled.any():
            return Histogram()
        first = (row * len(KINDS) + place) * histogram.LENGTH
        return histogram.from_dense(
            self._dense[first : first + histogram.LENGTH],
            sum_ns=sum(numbers[:, at + 1].tolist()),
            min_ns=int(numbers[filled, at + 2].min()),
            max_ns=int(numbers[filled, at + 3].max()),
        )


@dataclass(slots=True)
class _Second:
    """A second that some workers have reported: the first report, the workers, their sum, and the bins of each."""

    first: LoadSecond
    workers: set[int]
    total: Total
    bins: list[bytes] = field(default_factory=list)

    def merged_bins(self) -> bytes:
        """The bins of all workers as one; b"" without bins."""
        tables = [histogram.decode(each) for each in self.bins if each]
        return histogram.encode(histogram.merged(tables)) if tables else b""


class RayAggregator:
    """Aggregates seconds and results of `workers` workers, in order of arrival.

    `t0_ns` is on the clock of this host; every worker counts its seconds from the same instant.
    """

    def __init__(self, names: Sequence[str], *, workers: int, is_open: bool, t0_ns: int) -> None:
        self._names, self._workers, self._is_open, self._t0_ns = names, workers, is_open, t0_ns
        self._waiting: dict[int, _Second] = {}
        self._results: dict[int, LoadResult] = {}
        self._whole = Total(names, is_open=is_open)
        self._reported = 0

    def add(self, worker: int, second: LoadSecond, transactions: bytes) -> None:
        """Add a worker's second; `second` has its time, the bytes its transactions. A repeated second counts once."""
        waiting = self._waiting.get(second.second)
        if waiting is None:
            if second.second < self._reported:
                return
            waiting = _Second(second, set(), Total(self._names, is_open=self._is_open))
            self._waiting[second.second] = waiting
        if worker not in waiting.workers:
            waiting.total.add(unpack(transactions))
            waiting.workers.add(worker)
            waiting.bins.append(second.bins)

    def seconds(self) -> list[LoadSecond]:
        """Seconds that every worker has reported since the last call, in order."""
        given = []
        while (waiting := self._waiting.get(self._reported)) and len(waiting.workers) == self._workers:
            del self._waiting[self._reported]
            given.append(
                LoadSecond(
                    second=self._reported,
                    window=waiting.first.window,
                    start_ns=self._t0_ns + self._reported * SECOND_NS,
                    duration_s=waiting.first.duration_s,
                    transactions=waiting.total.transactions(),
                    bins=waiting.merged_bins(),
                )
            )
            self._reported += 1
        return given

    def finish(self, worker: int, result: LoadResult, transactions: bytes) -> None:
        """Add a worker's result, once. The bytes have its transactions, but for `without_packed`; its times are on
        this host's clock."""
        if worker not in self._results:
            self._whole.add(unpack(transactions))
            self._results[worker] = result

    def result(self) -> LoadResult:
        """The result of the measure window, after all workers have finished."""
        results = list(self._results.values())
        hangs = sorted(
            (replace(hang, worker=worker) for worker, result in self._results.items() for hang in result.hangs),
            key=lambda hang: -hang.waited_ns,
        )
        errors = [text for result in results for text in result.first_errors]
        handling = merge_handling([each for result in results for each in result.handling])
        return LoadResult(
            transactions=tuple(
                _with_rest(load, [result.transactions[row] for result in results])
                for row, load in enumerate(self._whole.transactions())
            ),
            ended_in_window=sum(result.ended_in_window for result in results),
            measure_start_ns=results[0].measure_start_ns,
            measure_end_ns=results[0].measure_end_ns,
            client_cpu_fraction=max(result.client_cpu_fraction for result in results),
            client_cpu_s=sum(result.client_cpu_s for result in results),
            start_skew_ns=max(result.start_skew_ns for result in results),
            seconds_produced=self._reported,
            samples_lost=sum(result.samples_lost for result in results),
            first_errors=tuple(dict.fromkeys(errors))[:FIRST_ERRORS_MAX],
            pause_longest_ns=max(result.pause_longest_ns for result in results),
            pauses=tuple(longest([pause for result in results for pause in result.pauses])),
            stalls=common(result.stalls for result in results),
            committed=tuple((name, sum(dict(one.committed).get(name, 0) for one in results)) for name in self._names),
            unknown=tuple((name, sum(dict(one.unknown).get(name, 0) for one in results)) for name in self._names),
            hangs=tuple(hangs[:HANGS_MAX]),
            hung=sum(result.hung for result in results),
            handling=() if handling is None else (handling,),
            sessions=joined(result.sessions for result in results),
            commits=histogram.merge_commits(result.commits for result in results),
            server_starts_ms=tuple(at_ms for result in results for at_ms in result.server_starts_ms),
        )


def _with_rest(load: TransactionLoad, parts: Sequence[TransactionLoad]) -> TransactionLoad:
    """The total of one transaction type with the sums of what `pack` leaves out."""
    return replace(
        load,
        ended=sum(part.ended for part in parts),
        late=sum(part.late for part in parts),
        response_at_least=histogram.merge(part.response_at_least for part in parts),
        service_at_least=histogram.merge(part.service_at_least for part in parts),
        schedule_at_least=histogram.merge(part.schedule_at_least for part in parts),
    )


# An actor runs its share of a load as an agent does: `run_load` with one worker process of its own, the same as in the
# local pool. It bins its seconds on its own node, and keeps them until they are taken. Its process has the threads of
# Ray; the measured loop runs in the worker. Only bytes and plain values go through Ray, never pickled classes of this
# package. If `take` is not called for `LEASE_S`, the driver has ended: the actor then stops its load and ends, without
# waiting for Ray. A worker process never outlives its actor.

LEASE_S = 10.0
READY_S = 60.0
TAKE_S = 1.0
CLOCK_PROBES = 12

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
        """Version of proveout, process id, nice value."""
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        return {"version": proveout.__version__, "pid": os.getpid(), "nice": nice}

    async def clock(self) -> int:
        """This node's monotonic clock, ns."""
        return time.monotonic_ns()

    async def arm(self, task: bytes) -> None:
        """Start a task, in its bytes. Its `TaskArmed` or `TaskFailed` is taken later."""
        message = codec.task_from_bytes(task)
        if not isinstance(message.spec, RunLoad):
            raise TypeError(f"an actor arms loads, not {type(message.spec).__name__}")
        self._taken_s = time.monotonic()
        self._is_open = message.spec.share.rate is not None
        work_dir = Path(tempfile.gettempdir())  # a load writes nothing
        self._runner = TaskRunner(message.key, socket.gethostname(), work_dir, self._resources, self._add_message)
        self._running = asyncio.create_task(self._run(self._runner, message))
        self._watching = asyncio.create_task(self._watch(self._running))

    async def start(self, t0_ns: int) -> None:
        """Start the armed load at this instant of the node's clock."""
        if self._runner is not None:
            self._runner.control(Start(key=self._runner.key, t0_ns=t0_ns))

    async def finish(self) -> None:
        """Handle `Finish`."""
        if self._runner is not None:
            self._runner.control(Finish(key=self._runner.key))

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

    async def _run(self, runner: TaskRunner, task: Task) -> None:
        self._add_message(await runner.run(load_task.run_load, task.spec, task.deadline_s))

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


@record
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
        return [(codec.agent_message(envelope), packed) for envelope, packed in taken]


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
        """Connect. TaskFault `unreachable` without a cluster, and where it refuses the connection."""
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

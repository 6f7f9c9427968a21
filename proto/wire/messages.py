"""The messages of a session between coordinator and agent, as frozen data, and readings and loads in columns; tasks and
results have modules of their own.

Times named `*_ns` are nanoseconds on the CLOCK_MONOTONIC of the host that the message is about, unless stated
otherwise.

Columns: a tuple of `Reading`s or `TransactionLoad`s -> `put_readings`, `put_loads` -> columns on the wire ->
`take_readings`, `take_loads` -> `Readings`, `Loads`: sequences of the same objects, which are made on access. A
sample of fifty metrics is then two strings of bytes to the code that forwards, checks or stores it, instead of
fifty-one objects. The names of a capture's readings are the same in each sample: they are decoded once and then
found in a cache, which is bounded in number and in size.
"""

from __future__ import annotations

import functools
import re
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, Generic, TypeAlias, TypeVar, cast, overload

from google.protobuf.message import DecodeError

from proveout.core.data_classes import field, record
from proveout.dsl.plan.topology import Value
from proveout.proto.wire import agent_pb2 as pb
from proveout.proto.wire.results import (
    Histogram,
    Reading,
    TaskError,
    TaskResult,
    TaskSample,
    TransactionCounts,
    TransactionLoad,
)
from proveout.proto.wire.tasks import SignedTask

PROTOCOL_VERSION = 3
"""Raised with every change of the messages: agents refuse fields that they do not know."""
PACKAGE = f"proveout.agent.v{PROTOCOL_VERSION}"
"""The package of `agent.proto`, so the name of the service says the version too."""


@record
class Hello:
    """The coordinator opens a session. An agent that has seen a higher epoch of the run refuses."""

    run_id: str  # name of the run, at least one character
    epoch: int  # fencing epoch, from 1: one higher for each coordinator that takes the run up
    host: str  # name of the host in the plan; an agent that was started with --name has no other
    beat_s: float = 3.0  # time between two beats, s; above 0 and below the lease
    lease_s: float = 10.0  # without a beat for so long the agent ends all tasks and undoes changes, s; at most 3,600
    protocol: int = PROTOCOL_VERSION  # version of this protocol; an agent of another one answers Refused
    version: str = ""  # release of proveout, for messages
    signer: str = field(default="", repr=False)  # certificate (PEM) of who signs the tasks of this session
    audit: str = ""  # head of the run's audit log, `LOG/NUMBER/HASH`; "" without one
    gather_s: float = 0.0  # samples may wait so long to go as one message, s, 0 to the lease; 0: each goes at once


@record
class Beat:
    """A heartbeat, which renews the lease, and a probe of the clocks."""

    sequence: int  # number of the beat in the session, from 1
    sent_ns: int  # instant of sending, coordinator's monotonic clock


@record
class Start:
    """Start the armed load, or the armed fault, of a task. Ignored when it has ended."""

    key: str  # key of the task
    t0_ns: int  # T0, agent's monotonic clock: the coordinator adds the offset that beats have measured


@record
class Finish:
    """End a capture, or a fault with a condition, gracefully: it answers its result."""

    key: str  # key of the task


@record
class Trigger:
    """The condition of a fault holds: an occurrence begins now. Ignored where it has begun already."""

    key: str  # key of the task
    number: int  # number of the occurrence, from 1


@record
class Cancel:
    """Stop a task and undo what it holds; it ends with TaskFailed `cancelled`."""

    key: str  # key of the task; of one that does not run here the agent answers the same
    reason: str  # for people


@record
class Goodbye:
    """The run is over: the agent ends all of its tasks and systems and forgets its state, and a child agent exits."""

    keep_data: bool = False  # leave the data of provisioned systems in place for a resume


CoordinatorMessage: TypeAlias = Hello | Beat | SignedTask | Start | Trigger | Finish | Cancel | Goodbye
"""Whatever a coordinator sends: Hello first, then any of the others until Goodbye or the end of the stream."""


@record
class Welcome:
    """The agent's answer to Hello."""

    agent: str  # name of the agent: that of --name, otherwise the host of the Hello
    version: str  # release of proveout
    protocol: int  # version of this protocol
    machine_id: str  # systemd's machine id; the host name if there is none
    cores: int  # number of CPUs that the agent may use
    facts: tuple[tuple[str, Value], ...] = ()  # facts of the machine (name, value), sorted by name
    session: str = ""  # the same again after a reconnect: the tasks have gone on meanwhile; else they have ended
    audit: str = ""  # head of the agent's audit log, `LOG/NUMBER/HASH`; "" if it cannot be read


@record
class Refused:
    """The agent will not serve this session (stale epoch, other version, busy); the stream ends after it."""

    reason: str  # for people


@record
class BeatReply:
    """Answer to a Beat, sent before all that waits."""

    sequence: int  # as in the beat
    sent_ns: int  # as in the beat
    received_ns: int  # instant of its arrival, agent's monotonic clock
    replied_ns: int  # instant of sending this answer, agent's monotonic clock


@record
class TaskAccepted:
    """The agent has the task, and has stored its key."""

    key: str  # key of the task


@record
class TaskArmed:
    """A load or a fault is ready to start: the agent waits for Start."""

    key: str  # key of the task


@record
class TaskProgress:
    """The progress of a task, sent at any time while it runs. It moves the task's deadline to 600 s after it plus four
    times the time so far."""

    key: str  # key of the task
    done: float  # units that are done
    total: float  # units in all; 0: not known
    unit: str  # the unit, plural: rows
    note: str = ""  # what is being done, for people


def deadline_after_progress_s(elapsed_s: float) -> float:
    """Seconds that a task may go on after a progress report, when it has run for `elapsed_s`: four times as long as its
    work so far, so that indexes have time after the rows of a long load, and at least ten minutes.

    Agent and coordinator use it for their deadlines. It never brings a deadline forward.
    """
    return 600.0 + 4.0 * elapsed_s


@record
class TaskDone:
    """A task's result; sent once, and again when the same task is sent again."""

    key: str  # key of the task
    result: TaskResult  # the result of that kind of task


@record
class TaskFailed:
    """The failure of a task, after the processes that it started have stopped; sent as TaskDone is."""

    key: str  # key of the task
    error: TaskError  # the reason


@record
class Sample:
    """A sample of a task, sent while it runs."""

    key: str  # key of the task
    sequence: int  # number of the sample in its task, from 1, so that a gap is seen
    sample: TaskSample  # the sample of that kind of task


@record
class Samples:
    """Samples that have waited for each other (see Hello.gather_s)."""

    samples: tuple[Sample, ...]  # in order, 2 to 64


@record
class LogLine:
    """Something that people may want to know."""

    level: str  # debug, info, warning or error
    text: str  # one line


AgentMessage: TypeAlias = (
    Welcome
    | Refused
    | BeatReply
    | TaskAccepted
    | TaskArmed
    | TaskProgress
    | TaskDone
    | TaskFailed
    | Sample
    | Samples
    | LogLine
)
"""Whatever an agent sends: Welcome or Refused first, then any of the others."""


def member_name(name: str) -> str:
    """The name that a class has as a member of a oneof: `TaskDone` is `task_done`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


Names: TypeAlias = tuple[tuple[str, str], ...]
"""(metric, label) of each reading of a sample."""
NAMES_KEPT = 1024
NAMES_BYTES_MAX = 1 << 15
"""Above that the names of a sample are read each time: an agent must not fill the coordinator's memory with them."""
HISTOGRAMS = 3
MESSAGES = """\
// An error class of a transaction type.
message ErrorColumn {
  int64 transaction = 1;  // index of the transaction type in TransactionColumns.names
  string name = 2;  // SQLSTATE or the engine's name for it
  int64 count = 3;  // number of errors
}

// Many TransactionLoads in columns, one entry for each of them: their counts and first three histograms. Of histograms
// there are three times as many entries: those of response times, then of service, then of schedule lag.
message TransactionColumns {
  repeated string names = 1;  // TransactionCounts.name
  repeated int64 ok = 2;  // TransactionCounts.ok
  repeated int64 logical_failures = 3;  // TransactionCounts.logical_failures
  repeated int64 retried = 4;  // TransactionCounts.retried
  repeated int64 missed = 5;  // TransactionCounts.missed
  repeated ErrorColumn errors = 6;  // TransactionCounts.errors of all
  repeated int64 indexed = 7;  // how many of `indices` are the histogram's
  repeated int64 counted = 8;  // how many of `counts` are the histogram's
  repeated int64 indices = 9;  // Histogram.indices, one histogram after the other
  repeated int64 counts = 10;  // Histogram.counts, one histogram after the other
  repeated int64 sum_ns = 11;  // Histogram.sum_ns
  repeated int64 min_ns = 12;  // Histogram.min_ns
  repeated int64 max_ns = 13;  // Histogram.max_ns
}

// The names of the readings of a sample.
message ReadingNames {
  repeated string metrics = 1;  // Reading.metric
  repeated string labels = 2;  // Reading.label, as many
}

// Many Readings in columns.
message ReadingColumns {
  // a ReadingNames as bytes, which are the same in each sample of most captures, so who reads them looks them up
  bytes names = 1;
  bytes values = 2;  // little-endian IEEE 754 doubles, one for each name
}
"""
"""The messages of this module in `agent.proto`, which have no record in Python."""

_T = TypeVar("_T")


class LazySequence(Sequence[_T], Generic[_T]):
    """A sequence whose items are made when they are asked for; equal to any sequence of equal items."""

    __slots__ = ()

    def _items(self, indices: Iterable[int]) -> Iterator[_T]:
        raise NotImplementedError

    def __iter__(self) -> Iterator[_T]:
        return self._items(range(len(self)))

    @overload
    def __getitem__(self, index: int) -> _T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[_T, ...]: ...
    def __getitem__(self, index: int | slice) -> _T | tuple[_T, ...]:
        chosen = range(len(self))[index]
        return next(self._items([chosen])) if isinstance(chosen, int) else tuple(self._items(chosen))

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, (tuple, LazySequence)) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


# ---- readings ----------------------------------------------------------------------------------------------------


class Readings(LazySequence[Reading]):
    """Readings as `names` and, beside them, `values`."""

    __slots__ = ("names", "values")

    def __init__(self, names: Names, values: array[float]) -> None:
        self.names, self.values = names, values

    @classmethod
    def of(cls, readings: Sequence[Reading]) -> Readings:
        """The columns of any readings; those that are columns already as they are."""
        if isinstance(readings, Readings):
            return readings
        names = tuple([(reading.metric, reading.label) for reading in readings])
        return cls(names, array("d", [reading.value for reading in readings]))

    def __len__(self) -> int:
        return len(self.names)

    def _items(self, indices: Iterable[int]) -> Iterator[Reading]:
        for index in indices:
            metric, label = self.names[index]
            yield Reading(metric=metric, label=label, value=self.values[index])


def put_readings(readings: Sequence[Reading], message: Any) -> None:
    """Write readings to a `ReadingColumns`."""
    columns = Readings.of(readings)
    message.names = _names_bytes(columns.names)
    message.values = _little_endian(columns.values).tobytes()


def take_readings(message: Any) -> Readings:
    """The readings of a `ReadingColumns`; ValueError when names and values do not fit."""
    encoded = message.names
    names = _names(encoded) if len(encoded) <= NAMES_BYTES_MAX else _names.__wrapped__(encoded)
    values = array("d")
    values.frombytes(message.values)
    if len(values) != len(names):
        raise ValueError(f"{len(values)} values for {len(names)} names")
    return Readings(names, _little_endian(values))


def _little_endian(values: array[float]) -> array[float]:
    """From this machine's byte order to the wire's, or back."""
    if sys.byteorder == "big":
        values = array("d", values)
        values.byteswap()
    return values


@functools.lru_cache(NAMES_KEPT)
def _names_bytes(names: Names) -> bytes:
    return pb.ReadingNames(metrics=[one for one, _ in names], labels=[one for _, one in names]).SerializeToString()


@functools.lru_cache(NAMES_KEPT)
def _names(encoded: bytes) -> Names:
    try:
        message = pb.ReadingNames.FromString(encoded)
    except DecodeError as error:
        raise ValueError("the names of its readings cannot be read") from error
    if len(message.metrics) != len(message.labels):
        raise ValueError(f"{len(message.metrics)} metrics with {len(message.labels)} labels")
    return tuple(zip(map(sys.intern, message.metrics), map(sys.intern, message.labels), strict=True))


# ---- loads -------------------------------------------------------------------------------------------------------


class Loads(LazySequence[TransactionLoad]):
    """Transaction types of one second. `wire` is their `TransactionColumns`; `indices` and `counts` are those of all
    histograms."""

    __slots__ = ("_ends", "counts", "indices", "names", "wire")

    def __init__(self, wire: Any) -> None:
        self.wire = wire
        self.names: tuple[str, ...] = tuple(wire.names)
        self.indices: tuple[int, ...] = tuple(wire.indices)
        self.counts: tuple[int, ...] = tuple(wire.counts)
        self._ends: tuple[list[int], list[int]] | None = None

    @classmethod
    def of(cls, loads: Sequence[TransactionLoad]) -> Loads:
        """The columns of any loads; those that are columns already as they are."""
        return loads if isinstance(loads, Loads) else cls(_loads_message(loads))

    @classmethod
    def from_bytes(cls, data: bytes) -> Loads:
        """The loads from the bytes that `to_bytes` wrote."""
        return cls(pb.TransactionColumns.FromString(data))

    def to_bytes(self) -> bytes:
        """All of it in few bytes, to be kept."""
        return cast(bytes, self.wire.SerializeToString())

    def __len__(self) -> int:
        return len(self.names)

    def _items(self, indices: Iterable[int]) -> Iterator[TransactionLoad]:
        errors: dict[int, list[tuple[str, int]]] = {}
        for error in self.wire.errors:
            errors.setdefault(error.transaction, []).append((error.name, error.count))
        for index in indices:
            response, service, schedule = (self._histogram(one * len(self) + index) for one in range(HISTOGRAMS))
            counts = self._counts(index, tuple(errors.get(index, ())))
            yield TransactionLoad(counts=counts, response=response, service=service, schedule=schedule)

    def _counts(self, index: int, errors: tuple[tuple[str, int], ...]) -> TransactionCounts:
        wire = self.wire
        return TransactionCounts(
            name=self.names[index],
            ok=wire.ok[index],
            logical_failures=wire.logical_failures[index],
            retried=wire.retried[index],
            missed=wire.missed[index],
            errors=errors,
        )

    def _histogram(self, number: int) -> Histogram:
        if self._ends is None:
            self._ends = [0, *accumulate(self.wire.indexed)], [0, *accumulate(self.wire.counted)]
        indexed, counted = self._ends
        return Histogram(
            indices=self.indices[indexed[number] : indexed[number + 1]],
            counts=self.counts[counted[number] : counted[number + 1]],
            sum_ns=self.wire.sum_ns[number],
            min_ns=self.wire.min_ns[number],
            max_ns=self.wire.max_ns[number],
        )


def put_loads(loads: Sequence[TransactionLoad], message: Any) -> None:
    """Write loads to a `TransactionColumns`."""
    message.CopyFrom(loads.wire if isinstance(loads, Loads) else _loads_message(loads))


def take_loads(message: Any) -> Loads:
    """The loads of a `TransactionColumns`; ValueError when its columns are not of one length."""
    loads = Loads(message)
    columns = len(loads)
    lengths = {len(column) for column in (message.ok, message.logical_failures, message.retried, message.missed)}
    of_histograms = (message.indexed, message.counted, message.sum_ns, message.min_ns, message.max_ns)
    if lengths != {columns} or {len(column) for column in of_histograms} != {columns * HISTOGRAMS}:
        raise ValueError("the columns of its transactions are not of one length")
    for counts, held in ((message.indexed, loads.indices), (message.counted, loads.counts)):
        if sum(counts) != len(held) or min(counts, default=0) < 0:
            raise ValueError("the histograms of its transactions are cut off")
    if any(not 0 <= error.transaction < columns for error in message.errors):
        raise ValueError("an error belongs to no transaction")
    return loads


def _loads_message(loads: Sequence[TransactionLoad]) -> Any:
    counts = [load.counts for load in loads]
    histograms = [
        *(load.response for load in loads),
        *(load.service for load in loads),
        *(load.schedule for load in loads),
    ]
    return pb.TransactionColumns(
        names=[one.name for one in counts],
        ok=[one.ok for one in counts],
        logical_failures=[one.logical_failures for one in counts],
        retried=[one.retried for one in counts],
        missed=[one.missed for one in counts],
        errors=[
            pb.ErrorColumn(transaction=index, name=name, count=count)
            for index, one in enumerate(counts)
            if one.errors
            for name, count in one.errors
        ],
        indexed=[len(one.indices) for one in histograms],
        counted=[len(one.counts) for one in histograms],
        indices=list(chain.from_iterable([one.indices for one in histograms])),
        counts=list(chain.from_iterable([one.counts for one in histograms])),
        sum_ns=[one.sum_ns for one in histograms],
        min_ns=[one.min_ns for one in histograms],
        max_ns=[one.max_ns for one in histograms],
    )


COLUMNS: dict[type, tuple[Callable[[Any, Any], None], Callable[[Any], Any]]] = {
    Reading: (put_readings, take_readings),
    TransactionLoad: (put_loads, take_loads),
}
"""Writes sequences of these to the message that has them in columns, and reads them."""

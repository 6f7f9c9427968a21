"""The messages of a session between coordinator and agent, as frozen data; tasks and results have modules of their own.

Times named `*_ns` are nanoseconds on the CLOCK_MONOTONIC of the host that the message is about, unless stated
otherwise.
"""

from __future__ import annotations

from typing import TypeAlias

from proveout.core.data_classes import dataclass, field
from proveout.dsl.plan.topology import Value
from proveout.proto.wire.results import TaskError, TaskResult, TaskSample
from proveout.proto.wire.tasks import Task

PROTOCOL_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The coordinator opens: which run, which fencing epoch. An agent that has seen a higher epoch refuses.

    `signer` is the certificate (PEM) of who signs its tasks, `audit` the head of the run's audit log. Samples may wait
    for `gather_s` to go as one message; 0: each goes at once.
    """

    run_id: str
    epoch: int
    host: str
    beat_s: float = 2.0
    lease_s: float = 10.0
    protocol: int = PROTOCOL_VERSION
    version: str = ""
    signer: str = field(default="", repr=False)
    audit: str = ""
    gather_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A heartbeat and clock probe: `sent_ns` on the coordinator's monotonic clock."""

    sequence: int
    sent_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start the armed load of `key` at `t0_ns`."""

    key: str
    t0_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """End a capture gracefully: it answers its result."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """The condition of a fault holds: its occurrence `number` begins now. Ignored where it has begun already."""

    key: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Stop a task and undo what it holds; it ends `cancelled`."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodbye:
    """The run is over: the agent ends all of the run's tasks and systems, forgets its state, and a child agent exits.

    `keep_data` leaves the data of provisioned systems in place for a resume.
    """

    keep_data: bool = False


CoordinatorMessage: TypeAlias = Hello | Beat | Task | Start | Trigger | Finish | Cancel | Goodbye


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """The agent's answer to Hello: its version, and the facts of its machine (the fingerprint, name -> value).

    `session` names the agent's session: the same again after a reconnect means that its tasks have gone on meanwhile.
    `audit` is the head of the agent's audit log.
    """

    agent: str
    version: str
    protocol: int
    machine_id: str
    cores: int
    facts: tuple[tuple[str, Value], ...] = ()
    session: str = ""
    audit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The agent will not serve this session (stale epoch, other version); the stream ends after it."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatReply:
    """Answer to a Beat: its sequence and sent time echoed, the agent's monotonic time on arrival and on sending."""

    sequence: int
    sent_ns: int
    received_ns: int
    replied_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAccepted:
    """The agent has the task, and has noted its key."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskArmed:
    """A load is ready to start."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProgress:
    """The progress of a task: `done` of `total` `unit`s (total 0 = not known). It moves the task's deadline, see
    `deadline_after_progress_s`."""

    key: str
    done: float
    total: float
    unit: str
    note: str = ""


def deadline_after_progress_s(elapsed_s: float) -> float:
    """Seconds that a task may go on after a progress report, when it has run for `elapsed_s`: four times as long as its
    work so far, so that indexes have time after the rows of a long load, and at least ten minutes.

    Agent and coordinator use it for their deadlines. It never brings a deadline forward.
    """
    return 600.0 + 4.0 * elapsed_s


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDone:
    """A task's result."""

    key: str
    result: TaskResult


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailed:
    """The failure of a task, after the processes that it started have stopped."""

    key: str
    error: TaskError


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A sample of a task; `sequence` counts from 1 per task, so a gap is seen."""

    key: str
    sequence: int
    sample: TaskSample


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Samples that have waited for each other, in order (`Hello.gather_s`)."""

    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """Something a person may want to know; `level` is debug, info, warning or error."""

    level: str
    text: str


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

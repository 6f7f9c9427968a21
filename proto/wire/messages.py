"""The messages of a session between coordinator and agent, as frozen data; tasks and results have modules of their own.

Times named `*_ns` are nanoseconds on the CLOCK_MONOTONIC of the host that the message is about, unless stated
otherwise.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from proveout.core.data_classes import field, record
from proveout.dsl.plan.topology import Value
from proveout.proto.wire.results import TaskError, TaskResult, TaskSample
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
    beat_s: float = 2.0  # time between two beats, s; above 0 and below the lease
    lease_s: float = 10.0  # without a beat for so long the agent ends all tasks and undoes changes, s; at most 3,600
    protocol: int = PROTOCOL_VERSION  # version of this protocol; an agent of another one answers Refused
    version: str = ""  # release of proveout, for messages
    signer: str = field(default="", repr=False)  # certificate (PEM) of who signs the tasks of this session
    audit: str = ""  # head of the run's audit log, hex; "" without one
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
    audit: str = ""  # head of the agent's audit log, hex; "" if it cannot be read


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

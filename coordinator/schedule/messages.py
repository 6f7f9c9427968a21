"""Messages between the scheduler and the run loop: inputs, commands, and the answers of the result evaluator.

Frozen data without behaviour. `at_s` of an input is the coordinator's monotonic clock, seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from proveout.core.data_classes import dataclass, field
from proveout.proto.events import AgentUp, Event, IterationFinished, IterationId, ProbeFinished, SearchFinished
from proveout.proto.fault_events import FaultSeen
from proveout.proto.wire.messages import AgentMessage, Cancel, Finish, Trigger
from proveout.proto.wire.results import TaskResult
from proveout.proto.wire.tasks import Task

# ---- answers of the result evaluator -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionResult:
    """The outcome of a condition, and the numbers that it read."""

    holds: bool
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unresolved:
    """The reason why a deferred value cannot be resolved: an earlier stage has no result."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeDue:
    """The next probe of a search; `number` from 1."""

    number: int
    phase: Literal["bracket", "bisect", "confirm", "refusal"]
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchReplayed:
    """A search after its finished probes: one report for each, then the next probe or the answer."""

    reports: tuple[ProbeFinished, ...]
    next: ProbeDue | SearchFinished


# ---- inputs ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed, at least to `state_machine.wake_s(state)`."""

    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReady:
    """A dialled agent answered."""

    at_s: float
    up: AgentUp


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentGone:
    """An agent could not be reached, or its session is lost."""

    at_s: float
    host: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReceived:
    """An agent sent a message. The loop keeps samples to itself, except the first of a task, which shows that the task
    runs, and those of replication lag before a load starts."""

    at_s: float
    host: str
    message: AgentMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultStepped:
    """The task `key` has reported a step of a fault, on the clock of the coordinator."""

    at_s: float
    key: str
    seen: FaultSeen


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultDue:
    """The condition of a fault of the iteration holds for the numbers of the last second."""

    at_s: float
    fault: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarised:
    """The samples of an iteration are summarised and stored."""

    at_s: float
    finished: IterationFinished


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorFailed:
    """The coordinator itself has failed (a full disk, for example)."""

    at_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """The user interrupts the run; the second interrupt ends it at once."""

    at_s: float


Input: TypeAlias = (
    Tick
    | AgentReady
    | AgentGone
    | MessageReceived
    | FaultStepped
    | FaultDue
    | Summarised
    | CoordinatorFailed
    | Interrupted
)

# ---- commands ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Dial:
    """Connect to these hosts' agents (starting the local ones); each answers with AgentReady or AgentGone."""

    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessage:
    """Send a message to an agent."""

    host: str
    message: Task | Trigger | Finish | Cancel


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherSamples:
    """Keep the samples of an iteration from now on. `hosts` by task key, `captures`: names by task key; `loads`: those
    of a stage that has several; `faults`: names of faults by task key."""

    id: IterationId
    hosts: Mapping[str, str]
    captures: Mapping[str, str]
    loads: Mapping[str, str] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartLoads:
    """Start the armed loads and faults `(host, key)` together, `in_s` from the input's time. The captures, which run
    already, are sent that time too: some sample at the edges of the measure window."""

    id: IterationId
    loads: tuple[tuple[str, str], ...]
    in_s: float
    captures: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarise:
    """Summarise an iteration; the answer is `Summarised`. `loads`, `captures` and `faults`: results by task key;
    the loop has the samples.

    `earlier`: the valid iterations of the same rung before it. `before`: the last valid one of the stage.
    """

    id: IterationId
    rate: float | None
    loads: Mapping[str, TaskResult]
    captures: Mapping[str, TaskResult]
    earlier: tuple[IterationFinished, ...] = ()
    before: IterationFinished | None = None
    faults: Mapping[str, TaskResult] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardSamples:
    """Discard the samples of a void iteration."""

    id: IterationId


@dataclass(frozen=True, slots=True, kw_only=True)
class Emit:
    """Journal an event and show it."""

    event: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepOutput:
    """Keep the raw output of a program as the file `name` of the run."""

    name: str
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseSessions:
    """Close the sessions of agents."""

    hosts: tuple[str, ...]
    keep_data: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRun:
    """End the run; `keep_data` leaves the systems' data for a resume."""

    exit_code: int
    keep_data: bool


Command: TypeAlias = (
    Dial
    | SendMessage
    | GatherSamples
    | StartLoads
    | Summarise
    | DiscardSamples
    | Emit
    | KeepOutput
    | CloseSessions
    | EndRun
)

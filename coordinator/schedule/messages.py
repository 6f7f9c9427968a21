"""What the scheduler and those around it say to each other: values of the judgement, inputs of the loop, commands to it.

Frozen data without behaviour. `at_s` of an input is the coordinator's monotonic clock, seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from proveout.proto.events import AgentUp, Event, IterationFinished, IterationId, ProbeFinished, SearchFinished
from proveout.proto.wire.messages import AgentMessage, Cancel, Finish
from proveout.proto.wire.results import TaskResult
from proveout.proto.wire.tasks import Task

# ---- what the judgement answers ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """How a condition came out, and on what numbers."""

    holds: bool
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unresolved:
    """Why a deferred value has none: an earlier stage gave no answer."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeDue:
    """The next probe of a search; `number` from 1."""

    number: int
    phase: Literal["bracket", "bisect", "confirm"]
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchReplayed:
    """A search driven over the probes that ended: what is to be reported of each, then the next probe or the answer."""

    reports: tuple[ProbeFinished, ...]
    next: ProbeDue | SearchFinished


# ---- inputs ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed: at least to `scheduler.wake_s(state)`."""

    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReady:
    """A dialled agent answered."""

    at_s: float
    up: AgentUp


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentGone:
    """An agent could not be had, or is gone."""

    at_s: float
    host: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """An agent said something. Samples are the loop's business, but for a task's first one: it runs."""

    at_s: float
    host: str
    message: AgentMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarised:
    """The samples of an iteration have been worked up and stored."""

    at_s: float
    finished: IterationFinished


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The coordinator itself cannot go on (disk full)."""

    at_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """Someone wants the run to end now; the second time, at once."""

    at_s: float


Input: TypeAlias = Tick | AgentReady | AgentGone | Heard | Summarised | Broken | Interrupted

# ---- commands ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Dial:
    """Connect to these hosts' agents (starting the local ones); each answers with AgentReady or AgentGone."""

    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """Send a message to an agent."""

    host: str
    message: Task | Finish | Cancel


@dataclass(frozen=True, slots=True, kw_only=True)
class Gather:
    """Keep the samples of an iteration from now on: task keys -> hosts, and the captures' names by their keys."""

    id: IterationId
    hosts: Mapping[str, str]
    captures: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartLoads:
    """Start the armed loads `(host, key)` together, `in_s` from the input's time."""

    id: IterationId
    loads: tuple[tuple[str, str], ...]
    in_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarise:
    """Work up an iteration: results by load key are in `loads`, samples are the loop's; answer `Summarised`.

    `earlier`: the valid iterations of the same rung before it.
    """

    id: IterationId
    rate: float | None
    loads: Mapping[str, TaskResult]
    captures: Mapping[str, TaskResult]
    earlier: tuple[IterationFinished, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """Throw away what was gathered for an iteration that is void."""

    id: IterationId


@dataclass(frozen=True, slots=True, kw_only=True)
class Emit:
    """Journal an event and show it."""

    event: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Say goodbye to agents and close their sessions."""

    hosts: tuple[str, ...]
    keep_data: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """The run is over; `keep_data` leaves the systems' data for a resume."""

    exit_code: int
    keep_data: bool


Command: TypeAlias = Dial | Tell | Gather | StartLoads | Summarise | Forget | Emit | Part | Close

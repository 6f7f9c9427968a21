"""The scheduler's vocabulary: its state, the inputs it is told, the commands it gives, and one turn from one to the other.

Data flow: the loop (or the simulator) turns what happens into an `Input`; `scheduler.advance(state, input)` gives the
next `State` and `Command`s; the loop carries them out. Nothing here does I/O or reads a clock: `at_s` comes with each
input, in seconds of the coordinator's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypeAlias

from proveout.coordinator.schedule.messages import Command, Emit, Forget, Held, SearchReplayed, Tell, Unresolved
from proveout.coordinator.schedule.progress import Facts, apply
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Search, Stage, Windows
from proveout.dsl.plan.values import Expression
from proveout.proto.events import (
    Event,
    IterationFinished,
    IterationId,
    IterationVoided,
    Metrics,
    Notice,
    VerdictForeseen,
    VerdictReached,
)
from proveout.proto.wire.messages import Cancel
from proveout.proto.wire.results import TaskResult
from proveout.proto.wire.tasks import ClusterSecrets, Endpoint, Task, TaskSpec

# ---- what the scheduler needs to be told at the start ------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Bounds on every wait, seconds. Tasks have deadlines of their own (`dag.deadline_s`); these come on top.

    A start is so far ahead that every agent hears of it before. Of waits that have a second bound for each host or load the longer one counts.
    """

    dial_s: float = 60.0
    dial_per_host_s: float = 0.1
    arm_s: float = 120.0
    capture_patience_s: float = 3.0
    start_margin_s: float = 0.3
    start_per_load_s: float = 0.001
    answer_grace_s: float = 15.0
    drain_s: float = 15.0
    summarise_s: float = 300.0
    losses_max: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One sitting of a run: who it is, where provisioned systems keep their data, how the others are reached.

    `estimates_s` gives each stage's expected seconds by id; `cluster` lets agents into a Ray cluster of this sitting.
    """

    run_id: str
    epoch: int
    data_root: str
    external: Mapping[str, Endpoint] = field(default_factory=dict)
    estimates_s: Mapping[str, float] = field(default_factory=dict)
    timing: Timing = field(default_factory=Timing)
    cluster: ClusterSecrets | None = None


class Judgement(Protocol):
    """The pure functions that turn numbers into decisions; `coordinator.verdict.policy` binds the real ones to a plan."""

    def number(self, value: float | Expression, facts: Facts) -> float | Unresolved:
        """A rate of the plan as a number, now that the stages it needs have ended."""
        ...

    def condition(self, when: Expression, facts: Facts) -> Held | Unresolved:
        """Whether a stage's `when` holds on the results there are."""
        ...

    def stops(self, stage: Ladder, iteration: IterationFinished) -> str | None:
        """Evidence that `stop_when` held for a valid iteration, None when it did not (or there is none)."""
        ...

    def undecided(self, ladders: tuple[Ladder, ...], facts: Facts, repeat: int) -> tuple[str, ...]:
        """The verdicts that more repeats of these ladders would decide, judged on the first `repeat` of them."""
        ...

    def replay(
        self, stage: Search, rate_from: float, rate_to: float, probes: tuple[IterationFinished, ...]
    ) -> SearchReplayed:
        """Drive the search over the probes so far; each is the last attempt of its number, in order."""
        ...

    def metrics(self, stage: Stage, facts: Facts, seconds: float, rows: int) -> Metrics:
        """What expressions see under the stage's id; `rows` is what a sql stage returned or affected."""
        ...

    def verdicts(self, facts: Facts) -> tuple[VerdictReached, ...]:
        """Every verdict of the plan, and those that are built in."""
        ...

    def foreseen(self, facts: Facts) -> tuple[VerdictForeseen, ...]:
        """What can be said of the plan's verdicts on the results there are: provisional."""
        ...

    def exit_code(self, verdicts: tuple[VerdictReached, ...]) -> int:
        """0 all passed, 1 one failed, 3 none failed but one is inconclusive."""
        ...


# ---- steps: what is being waited for -----------------------------------------------------------------------------

Purpose: TypeAlias = Literal[
    "start",
    "wipe",
    "populate",
    "link",
    "snapshot",
    "restore",
    "checkpoint",
    "sql",
    "invariants",
    "compare",
    "pool",
    "prepare",
    "stop",
    "facts",
    "tune",
    "look",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialling:
    """Agents are being connected."""

    waiting: frozenset[str]
    until_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Waves of tasks; the tasks of a wave run at once, the next wave begins when all have ended well.

    `name` is the part of the stage that is done when the batch is; `results` are in the order they came, with their host.
    `iteration` is the one that invariants are looked at after.
    """

    purpose: Purpose
    name: str
    stage: str
    iteration: str = ""
    waves: tuple[tuple[tuple[str, TaskSpec], ...], ...]
    pending: frozenset[str] = frozenset()
    results: tuple[tuple[TaskSpec, TaskResult], ...] = ()
    specs: Mapping[str, TaskSpec] = field(default_factory=dict)
    until_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Iterating:
    """One iteration: arming -> running -> summarising.

    `loads` and `captures` map task keys to hosts. `finish_s` is when captures are told to finish.
    """

    id: IterationId
    rate: float | None
    windows: Windows
    phase: Literal["arming", "running", "summarising"]
    loads: Mapping[str, str]
    captures: Mapping[str, str]
    ready: frozenset[str] = frozenset()
    results: Mapping[str, TaskResult] = field(default_factory=dict)
    until_s: float = 0.0
    finish_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A pause of the plan."""

    name: str
    stage: str
    until_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Draining:
    """Tasks have been cancelled; nothing new begins before they have ended."""

    until_s: float


Step: TypeAlias = Dialling | Batch | Iterating | Waiting | Draining

# ---- state -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Why the run ends, before everything has been stopped. `hurried` skips what can be left to the agents' leases."""

    status: Literal["finished", "failed", "interrupted"]
    exit_code: int
    reason: str
    hurried: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A Ray cluster of client agents: the address of its head, and the hosts that are in it, the head's first."""

    address: str = ""
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """A list of tunings that is in place on a host: the plan's own ("") or a stage's; `systems`: the part that tunes systems."""

    host: str
    stage: str = ""
    systems: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Where a run stands. `facts` outlive the coordinator, the rest is this sitting's.

    `endpoints` are the systems that are up, `linked` the sources whose propagation is up, `progress` the parts of the
    current stage that are done, `started` systems that the present agents have
    started, `pristine` those of them that nothing was loaded into, `redo` stages whose data is gone, `tasks` what agents have in hand (key ->
    host), `failures` counts failed tries per (stage, rung, repeat). `tuned` is in place on the present agents' hosts, `touched` what they may have
    to set back, `looked` the number of stages after which it was looked at again. `full` is how a client met a full disk.
    """

    plan: Plan
    setup: Setup
    facts: Facts
    began_s: float
    stage_began_s: float = 0.0
    up: frozenset[str] = frozenset()
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    linked: frozenset[str] = frozenset()
    progress: frozenset[str] = frozenset()
    started: frozenset[str] = frozenset()
    pristine: frozenset[str] = frozenset()
    redo: tuple[str, ...] = ()
    rows: int = 0
    tasks: Mapping[str, str] = field(default_factory=dict)
    failures: Mapping[tuple[str, int, int], int] = field(default_factory=dict)
    cluster: Cluster = field(default_factory=Cluster)
    tuned: frozenset[Tuned] = frozenset()
    touched: frozenset[Tuned] = frozenset()
    looked: int = 0
    losses: int = 0
    full: str = ""
    issued: int = 0
    stage: str = ""
    step: Step | None = None
    ending: Ending | None = None
    over: bool = False


class Turn:
    """One `advance`: the state as it changes and the commands as they gather. Lives no longer than the call."""

    def __init__(self, state: State, at_s: float, judgement: Judgement) -> None:
        self.state, self.at_s, self.judgement = state, at_s, judgement
        self.commands: list[Command] = []

    def set(self, **changes: object) -> None:
        """Replace fields of the state."""
        self.state = replace(self.state, **changes)  # type: ignore[arg-type]

    def emit(self, event: Event) -> None:
        """Journal an event; the facts have it from now on."""
        self.commands.append(Emit(event=event))
        self.set(facts=apply(self.state.facts, event))

    def notice(self, level: Literal["info", "warning", "error"], text: str, host: str = "") -> None:
        """Tell people something that the journal should keep."""
        self.emit(Notice(level=level, host=host, text=text))

    def give(self, host: str, task: Task) -> None:
        """Send a task; it is in hand until its result or failure comes."""
        self.commands.append(Tell(host=host, message=task))
        self.set(tasks={**self.state.tasks, task.key: host})

    def drain(self, reason: str) -> None:
        """Cancel what is in hand and wait for it; the step under way is given up."""
        for key, host in self.state.tasks.items():
            self.commands.append(Tell(host=host, message=Cancel(key=key, reason=reason)))
        until = self.at_s + self.state.setup.timing.drain_s
        self.set(step=Draining(until_s=until) if self.state.tasks else None)

    def end(self, status: Literal["finished", "failed", "interrupted"], exit_code: int, reason: str) -> None:
        """The run ends: stop what runs, then the systems, then part."""
        if self.state.ending is None:
            self.set(ending=Ending(status=status, exit_code=exit_code, reason=reason))
        if isinstance(self.state.step, Iterating):
            self.commands.append(Forget(id=self.state.step.id))
        if self.state.facts.open_iteration is not None:
            self.emit(IterationVoided(id=self.state.facts.open_iteration, reason=reason, rerun=False))
        self.drain(reason)

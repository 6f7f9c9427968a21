"""The state of the scheduler, and the `Turn` that leads from one state to the next.

Data flow: the run loop (or the simulator) makes an `Input`; `state_machine.advance(state, input)` returns the next
`State` and `Command`s; the loop carries them out. No I/O and no clock: each input carries `at_s`, in seconds of the
coordinator's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal, Protocol, TypeAlias

from proveout.coordinator.schedule.messages import (
    Command,
    ConditionResult,
    DiscardSamples,
    Emit,
    SearchReplayed,
    SendMessage,
    Unresolved,
)
from proveout.coordinator.schedule.progress import RunProgress, apply
from proveout.coordinator.schedule.rate_search import Rates
from proveout.core.data_classes import dataclass, replace
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
from proveout.proto.wire.check_results import CheckFinding
from proveout.proto.wire.messages import Cancel
from proveout.proto.wire.results import TaskResult
from proveout.proto.wire.tasks import ClusterSecrets, Endpoint, Task, TaskSpec

# ---- parameters of a run ------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Bounds on every wait, seconds. Tasks have deadlines of their own (`tasks.task_deadline_s`); these come on top.

    A start is far enough ahead that every agent receives it before. Waits with a second bound for each host or load use
    the longer one.
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
    """The parameters of one coordinator process of a run.

    `data_root`: the folder of provisioned systems. `external`: the endpoints of the other systems. `estimates_s`: the
    expected seconds of each stage by id. `cluster`: the credentials of the Ray cluster that this process forms.
    `preflight`: check what the plan needs before anything is changed.
    """

    run_id: str
    epoch: int
    data_root: str
    external: Mapping[str, Endpoint] = field(default_factory=dict)
    estimates_s: Mapping[str, float] = field(default_factory=dict)
    timing: Timing = field(default_factory=Timing)
    cluster: ClusterSecrets | None = None
    preflight: bool = False


class ResultEvaluator(Protocol):
    """Pure functions that decide on measured results; `coordinator.verdict.evaluator` implements them for a plan."""

    def number(self, value: float | Expression, progress: RunProgress) -> float | Unresolved:
        """A rate of the plan as a number, after the stages that it needs have ended."""
        ...

    def condition(self, when: Expression, progress: RunProgress) -> ConditionResult | Unresolved:
        """Whether a stage's `when` holds for the results."""
        ...

    def stops(self, stage: Ladder, iteration: IterationFinished) -> str | None:
        """Evidence that `stop_when` held for a valid iteration; None when it did not hold or the stage has none."""
        ...

    def undecided(self, ladders: tuple[Ladder, ...], progress: RunProgress, repeat: int) -> tuple[str, ...]:
        """The verdicts that are undecided after the first `repeat` repeats of these ladders and that more repeats would
        decide."""
        ...

    def replay(self, stage: Search, rates: Rates, probes: tuple[IterationFinished, ...]) -> SearchReplayed:
        """Run the search over the finished probes; each is the last attempt of its number, in order."""
        ...

    def metrics(self, stage: Stage, progress: RunProgress, seconds: float, rows: int) -> Metrics:
        """The metrics that expressions read under the stage's id; `rows` is the number that a sql stage returned or
        changed."""
        ...

    def verdicts(self, progress: RunProgress) -> tuple[VerdictReached, ...]:
        """Every verdict of the plan, and the built-in ones."""
        ...

    def provisional_verdicts(self, progress: RunProgress) -> tuple[VerdictForeseen, ...]:
        """The provisional verdicts of the plan on the results so far."""
        ...

    def exit_code(self, verdicts: tuple[VerdictReached, ...]) -> int:
        """0 all passed, 1 one failed, 3 none failed but one is inconclusive."""
        ...


# ---- steps -----------------------------------------------------------------------------

Purpose: TypeAlias = Literal[
    "start",
    "wipe",
    "populate",
    "link",
    "snapshot",
    "restore",
    "restart",
    "checkpoint",
    "sql",
    "command",
    "invariants",
    "compare",
    "pool",
    "prepare",
    "stop",
    "facts",
    "tune",
    "look",
    "preflight",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialling:
    """Waiting for agents to connect."""

    waiting: frozenset[str]
    until_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Waves of tasks; the tasks of a wave run at once, the next wave begins when all have ended well.

    `name` is the part of the stage that the batch completes; `results` are in order of arrival. `iteration` is the one
    after which invariants are checked. `began_s`: when the wave began; `spent_s`: seconds of the waves before it;
    `kept_rows`: the rows of a broken-off load that its populate continues.
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
    began_s: float = 0.0
    spent_s: float = 0.0
    kept_rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """The newest occurrence of a fault with a condition; `over`: the tasks that have reported its end; `over_s`: when
    the last of them did."""

    number: int = 0
    over: frozenset[str] = frozenset()
    over_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Iterating:
    """One iteration: arming -> running -> summarising.

    `loads` and `captures` map task keys to hosts. `finish_s` is the time at which captures finish. `lags`: the newest
    replication lag of each capture that has one, seconds; `drain_until_s`: how long a probe waits for them at most.
    `faults` maps task keys to names of faults, `conditional` names to the newest occurrence of those with a condition;
    `ends_s` is the end of the measure window.
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
    lags: Mapping[str, float] = field(default_factory=dict)
    drain_until_s: float | None = None
    faults: Mapping[str, str] = field(default_factory=dict)
    conditional: Mapping[str, Occurrence] = field(default_factory=dict)
    ends_s: float = 0.0

    def hosts_of(self, fault: str) -> dict[str, str]:
        """The task of a fault on each of its hosts: key -> host."""
        return {key: key.rpartition("/")[2] for key, name in self.faults.items() if name == fault}


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A pause of the plan."""

    name: str
    stage: str
    until_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Draining:
    """Waiting for cancelled tasks; no step begins before they have ended."""

    until_s: float


Step: TypeAlias = Dialling | Batch | Iterating | Waiting | Draining

# ---- state -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The reason for the end of the run, while systems stop. `hurried` skips the parts that agents do when their leases
    end."""

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
    """A list of tunings that is in place on a host: the plan's own ("") or a stage's; `systems`: the part that tunes
    systems."""

    host: str
    stage: str = ""
    systems: bool = False


@dataclass(frozen=True, kw_only=True)
class State:
    """The state of a run. `progress` outlasts the coordinator process, the other fields belong to this process.

    `up`: hosts with a session. `endpoints`: running systems. `linked`: sources with running propagation. `parts_done`:
    finished parts of the current stage. `started`: systems that the connected agents have started; `pristine`: those of
    them without data. `promoted`: standbys that have to stop before their primaries can start. `redo`: stages whose
    data is lost. `tasks`: key -> host of the tasks under way. `given_up`: of
    those of lost agents. `failures`: failed attempts per (stage, rung, repeat).
    `tuned`: operations in place; `touched`: those that may have to be reverted; `looked`: the number of stages after
    which they were verified. `full`: the message of a client with a full disk. `preflights`: finished parts of the
    preflight; `found`: its findings so far, (host, system, finding).
    """

    plan: Plan
    setup: Setup
    progress: RunProgress
    began_s: float
    stage_began_s: float = 0.0
    up: frozenset[str] = frozenset()
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    linked: frozenset[str] = frozenset()
    parts_done: frozenset[str] = frozenset()
    started: frozenset[str] = frozenset()
    pristine: frozenset[str] = frozenset()
    promoted: tuple[str, ...] = ()
    redo: tuple[str, ...] = ()
    rows: int = 0
    tasks: Mapping[str, str] = field(default_factory=dict)
    given_up: Mapping[str, str] = field(default_factory=dict)
    failures: Mapping[tuple[str, int, int], int] = field(default_factory=dict)
    cluster: Cluster = field(default_factory=Cluster)
    tuned: frozenset[Tuned] = frozenset()
    touched: frozenset[Tuned] = frozenset()
    left_tuned: frozenset[str] = frozenset()
    looked: int = 0
    losses: int = 0
    full: str = ""
    preflights: frozenset[str] = frozenset()
    found: tuple[tuple[str, str, CheckFinding], ...] = ()
    issued: int = 0
    stage: str = ""
    step: Step | None = None
    ending: Ending | None = None
    over: bool = False


class Turn:
    """One call of `advance`: the changing state and the commands so far."""

    def __init__(self, state: State, at_s: float, evaluator: ResultEvaluator) -> None:
        self.state, self.at_s, self.evaluator = state, at_s, evaluator
        self.commands: list[Command] = []

    def set(self, **changes: object) -> None:
        """Replace fields of the state."""
        self.state = replace(self.state, **changes)

    def emit(self, event: Event) -> None:
        """Journal an event and add it to the progress."""
        self.commands.append(Emit(event=event))
        self.set(progress=apply(self.state.progress, event))

    def notice(self, level: Literal["info", "warning", "error"], text: str, host: str = "") -> None:
        """Journal a notice for the user."""
        self.emit(Notice(level=level, host=host, text=text))

    def assign(self, host: str, task: Task) -> None:
        """Send a task; it is under way until its result or failure arrives."""
        self.commands.append(SendMessage(host=host, message=task))
        self.set(tasks={**self.state.tasks, task.key: host})

    def drain(self, reason: str) -> None:
        """Cancel the tasks under way and wait for their ends; the current step is given up."""
        for key, host in self.state.tasks.items():
            self.commands.append(SendMessage(host=host, message=Cancel(key=key, reason=reason)))
        until = self.at_s + self.state.setup.timing.drain_s
        self.set(step=Draining(until_s=until) if self.state.tasks else None)

    def end(self, status: Literal["finished", "failed", "interrupted"], exit_code: int, reason: str) -> None:
        """End the run: cancel the tasks under way; `teardown` then stops the systems and closes the sessions."""
        if self.state.ending is None:
            self.set(ending=Ending(status=status, exit_code=exit_code, reason=reason))
        if isinstance(self.state.step, Iterating):
            self.commands.append(DiscardSamples(id=self.state.step.id))
        if self.state.progress.open_iteration is not None:
            self.emit(IterationVoided(id=self.state.progress.open_iteration, reason=reason, rerun=False))
        self.drain(reason)

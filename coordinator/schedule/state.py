"""The state of the scheduler: progress folded from events, inputs and commands, and the `Turn` between two states.

Data flow: the run loop makes an `Input`; `state_machine.advance(state, input)` returns the next `State` and
`Command`s.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Literal, Protocol, TypeAlias

from proveout.coordinator.results.results import RunResults, fold, with_alone
from proveout.coordinator.schedule.rate_search import Probe, Rates
from proveout.core.data_classes import dataclass, field, record, replace
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Search, Stage, Windows
from proveout.dsl.plan.topology import Expression
from proveout.proto.events import (
    LIVE_EVENTS,
    AgentLost,
    AgentUp,
    Event,
    FactsTaken,
    FaultSeen,
    IterationFinished,
    IterationId,
    IterationStarted,
    IterationVoided,
    Metrics,
    Notice,
    ProbeFinished,
    RunFinished,
    RunStarted,
    SearchFinished,
    StageFinished,
    VerdictForeseen,
    VerdictReached,
)
from proveout.proto.wire.messages import AgentMessage, Cancel, Finish, Trigger
from proveout.proto.wire.results import CheckFinding, TaskResult
from proveout.proto.wire.tasks import ClusterSecrets, Endpoint, Task, TaskSpec

# Frozen data without behaviour. `at_s` of an input is the coordinator's monotonic clock, seconds.

# ---- answers of the result evaluator -----------------------------------------------------------------------------


@record
class Undecided:
    """A verdict that more repeats of a ladder may decide, the `chance` that all that the plan allows do, and `within`:
    the farther end of its value's interval from the limit, as a share of the limit, where both are known."""

    id: str
    chance: float = 1.0
    within: float | None = None


@record
class ConditionResult:
    """The outcome of a condition, and the numbers that it read."""

    holds: bool
    evidence: str


@record
class Unresolved:
    """The reason why a deferred value cannot be resolved: an earlier stage has no result."""

    reason: str


@record
class SearchReplayed:
    """A search after its finished probes: one report for each, then the next probe or the answer."""

    reports: tuple[ProbeFinished, ...]
    next: Probe | SearchFinished


# ---- inputs ------------------------------------------------------------------------------------------------------


@record
class Tick:
    """Time has passed, at least to `state_machine.wake_s(state)`."""

    at_s: float


@record
class AgentReady:
    """A dialled agent answered."""

    at_s: float
    up: AgentUp


@record
class AgentGone:
    """An agent could not be reached, or its session is lost."""

    at_s: float
    host: str
    reason: str


@record
class MessageReceived:
    """An agent sent a message. The loop keeps samples to itself, except the first of a task, which shows that the task
    runs, and those of replication lag before a load starts."""

    at_s: float
    host: str
    message: AgentMessage


@record
class FaultStepped:
    """The task `key` has reported a step of a fault, on the clock of the coordinator."""

    at_s: float
    key: str
    seen: FaultSeen


@record
class FaultDue:
    """The condition of a fault of the iteration holds for the numbers of the last second."""

    at_s: float
    fault: str


@record
class Summarised:
    """The samples of an iteration are summarised and stored."""

    at_s: float
    finished: IterationFinished


@record
class CoordinatorFailed:
    """The coordinator itself has failed (a full disk, for example)."""

    at_s: float
    reason: str


@record
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


@record
class Dial:
    """Connect to these hosts' agents (starting the local ones); each answers with AgentReady or AgentGone. Those that
    reboot have as many seconds to answer, from another boot."""

    hosts: tuple[str, ...]
    rebooting: Mapping[str, float] = field(default_factory=dict)


@record
class SendMessage:
    """Send a message to an agent."""

    host: str
    message: Task | Trigger | Finish | Cancel


@record
class GatherSamples:
    """Keep the samples of an iteration from now on. `hosts` by task key, `captures`: names by task key; `loads`: those
    of a stage that has several; `faults`: names of faults by task key."""

    id: IterationId
    hosts: Mapping[str, str]
    captures: Mapping[str, str]
    loads: Mapping[str, str] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)


@record
class StartLoads:
    """Start the armed loads and faults `(host, key)` together, `in_s` from the input's time. The captures, which run
    already, are sent that time too: some sample at the edges of the measure window."""

    loads: tuple[tuple[str, str], ...]
    in_s: float
    captures: tuple[tuple[str, str], ...] = ()


@record
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


@record
class DiscardSamples:
    """Discard the samples of a void iteration."""


@record
class Emit:
    """Journal an event and show it."""

    event: Event


@record
class KeepOutput:
    """Keep the raw output of a program as the file `name` of the run."""

    name: str
    text: str = field(repr=False)


@record
class CloseSessions:
    """Close the sessions of agents."""

    hosts: tuple[str, ...]
    keep_data: bool


Command: TypeAlias = (
    Dial | SendMessage | GatherSamples | StartLoads | Summarise | DiscardSamples | Emit | KeepOutput | CloseSessions
)


SKIPPED = "skipped"
"""The outcome of a stage that was left out; journalled, so that a resume does not evaluate its condition again."""


@dataclass(frozen=True, kw_only=True)
class RunProgress:
    """The fold of a run's events. `history` holds all events but the live ones, in order; the other fields are views of
    it, and `folded` the results of its stages.

    `taken`: the facts that this coordinator process has collected, by (when, host, system). `without`: the hosts that
    it continues without; a resume dials them again. `open_iteration` has started and is neither finished nor void.
    `attempts`: the finished iterations of each (stage, rung, repeat).
    """

    folded: RunResults = field(default_factory=RunResults)
    history: tuple[Event, ...] = ()
    without: frozenset[str] = frozenset()
    taken: Mapping[tuple[str, str, str], FactsTaken] = field(default_factory=dict)
    iterations: tuple[IterationFinished, ...] = ()
    attempts: Mapping[tuple[str, int, int], tuple[IterationFinished, ...]] = field(default_factory=dict)
    open_iteration: IterationId | None = None
    foreseen: Mapping[str, VerdictForeseen] = field(default_factory=dict)

    @property
    def started(self) -> RunStarted | None:
        return self.folded.run

    @property
    def ended(self) -> RunFinished | None:
        return self.folded.ended

    @property
    def stages_finished(self) -> dict[str, StageFinished]:
        return {one.id: one.finished for one in self.folded.stages.values() if one.finished is not None}

    @property
    def cores(self) -> dict[str, int]:
        return {host: up.cores for host, up in self.folded.agents.items()}

    @property
    def voided(self) -> list[IterationVoided]:
        return [one for stage in self.folded.stages.values() for one in stage.voided]

    def finished(self, stage: str) -> StageFinished | None:
        """The end of a stage."""
        found = self.folded.stages.get(stage)
        return found.finished if found is not None else None

    @property
    def populated(self) -> frozenset[tuple[str, str]]:
        """(stage, system) of the populations that have ended."""
        return frozenset((one.id, made.system) for one in self.folded.stages.values() for made in one.populated)

    @property
    def searches(self) -> dict[str, SearchFinished]:
        return {one.id: one.search for one in self.folded.stages.values() if one.search is not None}

    def taken_values(self, stage: str) -> int:
        """The number of times that a stage has given its numbers."""
        found = self.folded.stages.get(stage)
        return found.values[-1].repeat if found is not None and found.values else 0

    def is_emptied(self, system: str) -> bool:
        """Whether a system has lost its data, and not all of it is made again."""
        newest = self.folded.systems.get(system)
        return newest is not None and newest.emptied

    def has_run(self, stage: str) -> bool:
        """Whether a stage has ended and was not skipped."""
        ended = self.finished(stage)
        return ended is not None and ended.outcome != SKIPPED

    @property
    def results(self) -> RunResults:
        return with_alone(self.folded)

    def of_stage(self, stage: str) -> tuple[IterationFinished, ...]:
        """Finished iterations of a stage, valid or not, in order of their ends."""
        return tuple(i for i in self.iterations if i.id.stage == stage)

    def newest(self, stages: Container[str]) -> IterationFinished | None:
        """The finished iteration of these stages that ended last."""
        return next((i for i in reversed(self.iterations) if i.id.stage in stages), None)

    def tries(self, stage: str, rung: int, repeat: int) -> tuple[tuple[IterationFinished, ...], int]:
        """The finished iterations of one rung in one repeat, and the number the next attempt has."""
        finished = self.attempts.get((stage, rung, repeat), ())
        of_stage = self.folded.stages[stage].voided if stage in self.folded.stages else ()
        voided = sum((one.id.rung, one.id.repeat) == (rung, repeat) for one in of_stage)
        return finished, len(finished) + voided + 1


def run_progress(events: Iterable[Event]) -> RunProgress:
    """The progress of a journal, from its first event on."""
    progress = RunProgress()
    for event in events:
        progress = apply(progress, event)
    return progress


def apply(progress: RunProgress, event: Event) -> RunProgress:
    """The progress after one more event."""
    if isinstance(event, LIVE_EVENTS):
        return progress
    return replace(_view(progress, event), history=(*progress.history, event), folded=fold(progress.folded, event))


def _view(progress: RunProgress, event: Event) -> RunProgress:  # noqa: PLR0911  # one arm per kind of event
    match event:
        case RunStarted():
            return replace(progress, without=frozenset(), taken={})
        case FactsTaken() if event.when != "stage":
            return replace(progress, taken={**progress.taken, (event.when, event.host, event.system): event})
        case AgentLost(abandoned=True):
            return replace(progress, without=progress.without | {event.host})
        case VerdictForeseen():
            return replace(progress, foreseen={**progress.foreseen, event.id: event})
        case IterationStarted():
            return replace(progress, open_iteration=event.id)
        case IterationFinished() | IterationVoided():
            slot = (event.id.stage, event.id.rung, event.id.repeat)
            ended, tries = progress.iterations, progress.attempts.get(slot, ())
            if isinstance(event, IterationFinished):
                ended, tries = (*ended, event), (*tries, event)
            else:  # it may have been finished before
                ended, tries = (tuple(one for one in some if one.id != event.id) for some in (ended, tries))
            attempts = {**progress.attempts, slot: tries}
            return replace(progress, open_iteration=None, iterations=ended, attempts=attempts)
        case _:
            return progress


# ---- parameters of a run ------------------------------------------------------------


@record
class Timing:
    """Bounds on every wait, seconds. Tasks have deadlines of their own (`tasks.task_deadline_s`); these come on top.

    A start is far enough ahead that every agent receives it before. Waits with a second bound for each host or load use
    the longer one.
    """

    dial_s: float = 60.0
    dial_per_host_s: float = 0.1
    arm_s: float = 120.0
    capture_patience_s: float = 3.0
    start_margin_s: float = 0.15
    start_per_load_s: float = 0.001
    answer_grace_s: float = 15.0
    drain_s: float = 15.0
    summarise_s: float = 300.0
    losses_max: int = 2


@record
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
    """Pure functions that decide on measured results; `coordinator.verdict.verdicts` implements them for a plan."""

    def number(self, value: float | Expression, progress: RunProgress) -> float | Unresolved:
        """A rate of the plan as a number, after the stages that it needs have ended."""

    def condition(self, when: Expression, progress: RunProgress) -> ConditionResult | Unresolved:
        """Whether a stage's `when` holds for the results."""

    def stops(self, stage: Ladder, iteration: IterationFinished) -> str | None:
        """Evidence that `stop_when` held for a valid iteration; None when it did not hold or the stage has none."""

    def undecided(self, ladders: tuple[Ladder, ...], progress: RunProgress, repeat: int) -> tuple[Undecided, ...]:
        """The verdicts that are undecided after the first `repeat` repeats of these ladders and that more repeats may
        decide."""

    def replay(self, stage: Search, rates: Rates, probes: tuple[IterationFinished, ...]) -> SearchReplayed:
        """Run the search over the finished probes; each is the last attempt of its number, in order."""

    def metrics(self, stage: Stage, progress: RunProgress, seconds: float) -> Metrics:
        """The metrics that expressions read under the stage's id."""

    def verdicts(self, progress: RunProgress) -> tuple[VerdictReached, ...]:
        """Every verdict of the plan, and the built-in ones."""

    def provisional_verdicts(self, progress: RunProgress, stage: str) -> tuple[VerdictForeseen, ...]:
        """The provisional verdicts that read a stage which has just ended, on the results so far."""

    def exit_code(self, verdicts: tuple[VerdictReached, ...]) -> int:
        """0 all passed, 1 one failed, 3 none failed but one is inconclusive."""


# ---- steps -----------------------------------------------------------------------------

Purpose: TypeAlias = Literal["work", "start", "facts", "preflight", "stop"]


@record
class Dialling:
    """Waiting for agents to connect."""

    waiting: frozenset[str]
    until_s: float


@record
class Batch:
    """Waves of tasks; the tasks of a wave run at once, the next wave begins when all have ended well.

    `name` is the part of the stage that the batch completes. `iteration` is the one after which invariants are checked.
    `began_s`: when the wave began; `spent_s`: seconds of the waves before it; `kept_rows`: the rows of a broken-off
    load that its populate continues.
    """

    purpose: Purpose
    name: str
    stage: str
    iteration: str = ""
    waves: tuple[tuple[tuple[str, TaskSpec], ...], ...]
    pending: frozenset[str] = frozenset()
    specs: Mapping[str, TaskSpec] = field(default_factory=dict)
    until_s: float = 0.0
    began_s: float = 0.0
    spent_s: float = 0.0
    kept_rows: int = 0


@record
class Occurrence:
    """The newest occurrence of a fault with a condition; `over`: the tasks that have reported its end; `over_s`: when
    the last of them did."""

    number: int = 0
    over: frozenset[str] = frozenset()
    over_s: float = 0.0


@record
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

    def hosts_of(self, fault: str = "") -> dict[str, str]:
        """The task of a fault, or of all, on each of its hosts: key -> host."""
        return {key: key.rpartition("/")[2] for key, name in self.faults.items() if fault in ("", name)}


@record
class Waiting:
    """A pause of the plan."""

    name: str
    until_s: float


@record
class Draining:
    """Waiting for cancelled tasks; no step begins before they have ended."""

    until_s: float


Step: TypeAlias = Dialling | Batch | Iterating | Waiting | Draining

# ---- state -------------------------------------------------------------------------------------------------------


@record
class Ending:
    """The reason for the end of the run, while systems stop. `hurried` skips the parts that agents do when their leases
    end."""

    status: Literal["finished", "failed", "interrupted"]
    exit_code: int
    reason: str
    hurried: bool = False


@record
class Cluster:
    """A Ray cluster of client agents: the address of its head, and the hosts that are in it, the head's first."""

    address: str = ""
    hosts: tuple[str, ...] = ()


@record
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
    finished parts of the current stage. `under_way`: the step between turns that runs, and when it began; `took_s`: the
    seconds of such steps in all of their turns. `started`: systems that the connected agents have started; `pristine`:
    those of them without data. `promoted`: standbys that have to stop before their primaries can start. `redo`: stages
    whose data is lost. `tasks`: key -> host of the tasks under way. `given_up`: of
    those of lost agents. `rebooting`: hosts that reboot, with the seconds until their agents answer at the latest.
    `failures`: failed attempts per (stage, rung, repeat).
    `tuned`: operations in place; `touched`: those that may have to be reverted; `left_changed`: hosts
    whose agent was gone before it had taken back changes and data; `looked`: the number of stages after
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
    under_way: tuple[str, float] = ("", 0.0)
    took_s: Mapping[str, float] = field(default_factory=dict)
    started: frozenset[str] = frozenset()
    pristine: frozenset[str] = frozenset()
    promoted: tuple[str, ...] = ()
    redo: tuple[str, ...] = ()
    tasks: Mapping[str, str] = field(default_factory=dict)
    given_up: Mapping[str, str] = field(default_factory=dict)
    rebooting: Mapping[str, float] = field(default_factory=dict)
    failures: Mapping[tuple[str, int, int], int] = field(default_factory=dict)
    cluster: Cluster = field(default_factory=Cluster)
    tuned: frozenset[Tuned] = frozenset()
    touched: frozenset[Tuned] = frozenset()
    left_changed: frozenset[str] = frozenset()
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

    @property
    def ends(self) -> Mapping[str, Endpoint]:
        """The endpoints of systems that run already, of their `admin` and of exporters, and those of started ones."""
        return {**self.setup.external, **self.endpoints}


class Turn:
    """One call of `advance`: the changing state and the commands so far."""

    def __init__(self, state: State, at_s: float, evaluator: ResultEvaluator) -> None:
        self.state, self.at_s, self.evaluator = state, at_s, evaluator
        self.commands: list[Command] = []

    def set(self, **changes: object) -> None:
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
        """End the run: cancel the tasks under way; `next_step` then stops the systems and closes the sessions."""
        if self.state.ending is None:
            self.set(ending=Ending(status=status, exit_code=exit_code, reason=reason))
        if isinstance(self.state.step, Iterating):
            self.commands.append(DiscardSamples())
        if self.state.progress.open_iteration is not None:
            self.emit(IterationVoided(id=self.state.progress.open_iteration, reason=reason, rerun=False))
        self.drain(reason)

"""The events of a run, as frozen data: the journal stores them, the screen reduces them, reports are made of them.

Every event is stamped by the journal (`Stamped`): sequence from 1, Unix time in seconds. Live events have no
sequence of their own and are not stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from proveout.core.data_classes import field, record
from proveout.core.numbers import Sought, confirmed, quantity, search_answer, sought
from proveout.dsl.plan.loads import in_load
from proveout.dsl.plan.stages import Window
from proveout.proto.wire.results import FaultStepKind, InvariantCheck, Populated, TableDifference, TuningState


@record
class IterationId:
    """The identity of an iteration: stage, rung (threads), repeat and attempt from 1. Probes count in `repeat`."""

    stage: str
    rung: int
    repeat: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.slot}/{self.attempt}"

    @property
    def slot(self) -> str:
        """Its rung and repeat: the seed of whatever is to be the same in each attempt, and in each run."""
        return f"{self.stage}/{self.rung}/{self.repeat}"

    @property
    def stem(self) -> str:
        """The begin of the names of its files."""
        return str(self).replace("/", "-")


@record
class LoadLine:
    """The transactions of one of several loads in a second, or of one type in the window so far, all agents merged;
    response times, µs, are None when no transaction has one."""

    name: str
    tps: float
    ok: int = 0
    logical_failures: int = 0
    errors: int
    avg_us: float | None = None
    p50_us: float | None
    p95_us: float | None
    p99_us: float | None


@record
class LoadTick:
    """*live* A second of load, all agents merged; response times are None when no transaction has one.

    `loads`: each of several loads of the stage. Those that are beside the others are not in the total.
    """

    id: IterationId
    second: int
    window: Window
    tps: float
    avg_us: float | None
    p50_us: float | None
    p99_us: float | None
    errors: int
    p95_us: float | None = None
    loads: tuple[LoadLine, ...] = ()


@record
class TransactionsTick:
    """*live* What the load has come to in the window that it is in, `seconds` after that began. Ramps do not count."""

    id: IterationId
    window: Window
    seconds: float
    transactions: tuple[LoadLine, ...]


@record
class StatementLine:
    """One of the statements that took the most time in a measure window.

    `id` is the server's; `text` has placeholders for constants. `seconds` in the server, over all `calls`;
    `time_fraction` of the time of all statements. `plan`: its steps, one a line, indented by depth; "" where there is
    none, with the reason in `no_plan`. `shape`: the plan without numbers, which is compared.
    """

    system: str
    id: str
    text: str
    calls: float
    seconds: float
    rows: float
    avg_us: float
    time_fraction: float
    plan: str = ""
    shape: str = ""
    no_plan: str = ""


@record
class FaultSeen:
    """A step of the occurrence `number`, of at most `times`, of a fault on a host: `at_s` seconds after the start of
    the measure window, and `after_s` after the begin of the occurrence there."""

    id: IterationId
    host: str
    fault: str
    number: int
    step: FaultStepKind
    at_s: float
    text: str = ""
    times: int = 1
    after_s: float = 0.0


def log_text(seen: FaultSeen) -> str:
    """`fault crash (1 of 3): in place after 12 ms`."""
    after = quantity(max(seen.after_s, 0.0), "after_s")
    words = {
        "begins": f"begins {quantity(max(seen.at_s, 0.0), 'at_s')} after the start of the measure window",
        "in_place": f"in place after {after}",
        "healing": f"being healed after {after}",
        "healed": f"healed after {after}",
        "failed": f"failed: {seen.text}",
    }
    count = f" ({seen.number} of {seen.times})" if seen.times > 1 else ""
    return f"fault {seen.fault}{count}: {words[seen.step]}"


@record
class FaultEffect:
    """The effect of one occurrence of a fault on a load, or on several together. None: not known.

    `detection_s`: from its begin to the first error, or to the first response beyond the usual bound. `outage_s`: the
    longest time with less than a tenth of the usual throughput, which began `outage_from_s` after the start of the
    window; up to `outage_usual_s` is usual without a fault; `outage_at_least`: it had not ended when the load did.
    `recovery_s`: from its begin to the first instant
    from which throughput stays at `recovery_level` (95 %, less where it varies more than that by itself) of what it
    was, `tps_before`; None with `recovery_at_least_s` when that was not seen within the window. `failed`: transactions
    that failed or were missed because of it.

    `lost`, `unknown`, `unknown_committed`, `duplicates`: acknowledged commits that the system no longer has; commits
    without an answer, and those of them that the system has; commits that it has more than once. None when commits are
    not tracked.
    """

    detection_s: float | None = None
    outage_s: float | None = None
    outage_from_s: float | None = None
    outage_usual_s: float | None = None
    outage_at_least: bool = False
    recovery_s: float | None = None
    recovery_at_least_s: float | None = None
    recovery_level: float | None = None
    tps_before: float | None = None
    failed: int | None = None
    lost: int | None = None
    unknown: int | None = None
    unknown_committed: int | None = None
    duplicates: int | None = None

    @property
    def usual_outage_s(self) -> float | None:
        """The bound of usual times without service where the outage is not longer, so that it may have another
        cause."""
        bound_s = self.outage_usual_s
        return bound_s if bound_s is not None and self.outage_s is not None and self.outage_s <= bound_s else None


@record
class FaultOnLoad(FaultEffect):
    """The effect on a `load` of a stage ("" for a stage with one), on one client `host`, or ("") on all of them
    together."""

    load: str = ""
    host: str = ""


@record
class FaultMeasured(FaultEffect):
    """One occurrence (`number`, from 1) of a fault in an iteration, and its effect on all loads together.

    `begins_s`, `in_place_s`, `healing_s`, `healed_s`: its steps, the first host's begin and the last host's end, in
    seconds after the start of the measure window; None for a step that was not reached. `error`: why a change could not
    be made; `residue`: what could not be undone. `staleness_s`: how far a promoted standby was behind; None without a
    promotion. `loads`: the effect on each load and host.
    """

    fault: str
    number: int
    begins_s: float
    in_place_s: float | None = None
    healing_s: float | None = None
    healed_s: float | None = None
    error: str = ""
    residue: tuple[str, ...] = ()
    staleness_s: float | None = None
    loads: tuple[FaultOnLoad, ...] = ()


@record
class CommitsMeasured:
    """The tracked commits of a load in an iteration, ramps included.

    Of the `acknowledged` ones `lost` are not in the system, and `lost_apart` of those were lost apart from any fault.
    `unknown` had no answer, `unknown_committed` of them are there; `duplicates` are there more often than once.
    `unread`: terminals whose commits could not be read back when the load had ended.
    """

    acknowledged: int
    load: str = ""
    lost: int = 0
    lost_apart: int = 0
    unknown: int = 0
    unknown_committed: int = 0
    duplicates: int = 0
    unread: int = 0


@record
class Claim:
    """One comparison of a check: `of` (what is compared, as the plan writes it), its `value`, and `limit` with its
    sign, such as `≤ 50.0 ms`; `value` is `no data` where it is missing, `limit` is "" for a condition without one.

    `mean`, `lower`, `upper` and `bound` (the limit) are in the unit of the metric, None where they are not known.
    `operator` is one of < <= > >= == !=, "" without a limit. `interval`: such as `95 % CI 46.0 ms … 54.0 ms`,
    "" without one.
    """

    of: str
    value: str
    limit: str = ""
    operator: str = ""
    mean: float | None = None
    lower: float | None = None
    upper: float | None = None
    bound: float | None = None
    interval: str = ""


Tone: TypeAlias = Literal["", "good", "bad", "warn"]


@record
class HeadlineNumber:
    """One of the few numbers that answer what the run was for: `value` with its unit, `interval` as
    `95 % CI 1.4 … 1.7, n = 5`, and `about`: the stage and rung that it is of.

    `estimate` has `mean`, `lower` and `upper` as far as they are known.
    """

    label: str
    value: str
    interval: str = ""
    about: str = ""
    tone: Tone = ""
    estimate: Mapping[str, Any] = field(default_factory=dict)


# Every event is stamped by the journal (`Stamped`): sequence from 1, Unix time in seconds. Events marked *live* are
# shown but not journalled: a resume does not need them. `metrics` trees are nested dicts of numbers in the names that
# expressions use (docs "plan language": `tps`, `response.p99_us`, `cpu.busy_fraction` …).

Outcome: TypeAlias = Literal["PASS", "FAIL", "INCONCLUSIVE"]
Metrics: TypeAlias = dict[str, Any]


@record
class RunStarted:
    """A run begins (or is resumed: `resumed` counts how often). `plan` is `plan.to_data(…, positions=True)`; `labels`
    are those of `proveout run --label`, which change neither the plan nor its digest."""

    run_id: str
    epoch: int
    name: str
    title: str
    digest: str
    plan: Any
    version: str
    estimate_s: float
    resumed: int = 0
    labels: dict[str, str] = field(default_factory=dict)


@record
class AgentUp:
    """A host's agent answered; clock offset (agent minus coordinator) and its bound, nanoseconds."""

    host: str
    agent_version: str
    machine_id: str
    cores: int
    offset_ns: int
    uncertainty_ns: int
    facts: dict[str, Any] = field(default_factory=dict)


@record
class AgentLost:
    """A host's agent is lost: the stream broke or its lease ended. `abandoned`: this coordinator process continues
    without the host."""

    host: str
    reason: str
    abandoned: bool = False


@record
class SystemUp:
    """A system answers; its settings are part of the fingerprint. Never holds a password. `emptied`: its data was lost,
    and is not made again yet."""

    system: str
    host: str
    engine: str
    version: str
    provisioned: bool
    settings: dict[str, str] = field(default_factory=dict)
    emptied: bool = False


@record
class FactsTaken:
    """The facts of a host (or of a `system` on it) `before` anything was changed, where the plan expects some of them;
    when a coordinator process began, or at the end of the run; with the schema of a system, before the first iteration
    of a `stage`."""

    when: Literal["before", "start", "stage", "end"]
    host: str
    system: str = ""
    stage: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


@record
class StageStarted:
    """A stage begins, or goes on after a resume; `iterations` it will run at most (0 when it has none)."""

    stage: str
    kind: str
    iterations: int
    estimate_s: float


@record
class StageProgress:
    """*live* How far a task of a stage is."""

    stage: str
    host: str
    done: float
    total: float
    unit: str
    note: str = ""


@record
class PopulateFinished:
    """One system is populated."""

    stage: str
    system: str
    populated: Populated


@record
class ValuesTaken:
    """The numbers of one repeat (from 1) of a stage, by name; `elapsed_s` and `wait_s` are among them. `rows`: those
    that its statements returned or changed."""

    stage: str
    repeat: int
    values: dict[str, float]
    rows: int = 0


@record
class IterationStarted:
    """T0 is `starts_in_s` from now; `rate` None: closed. `passes` end within `measure_s`. `beside`:
    `loads.Part`."""

    id: IterationId
    rate: float | None
    starts_in_s: float
    ramp_up_s: float
    measure_s: float
    ramp_down_s: float
    beside: tuple[str, ...] = ()
    passes: int = 0


@record
class WaitsTick:
    """*live* The top foreground waits of the measure window: `seconds` between the first and the newest look in it."""

    id: IterationId
    host: str
    capture: str
    seconds: float
    waits: tuple[WaitLine, ...]


@record
class AgentLine:
    """The state of an agent: clock offset (agent minus coordinator) and its bound, ns; `silent_s` since its last answer
    to a beat.

    `connected` is False while the session dials again.
    """

    host: str
    offset_ns: int
    uncertainty_ns: int
    silent_s: float
    connected: bool = True


@record
class AgentsTick:
    """*live* All agents of the run, once per beat; a lease ends after `lease_s` of silence."""

    lease_s: float
    beat_s: float
    agents: tuple[AgentLine, ...]


@record
class HostTick:
    """*live* The newest readings of a capture on a host: metric -> value (labelled ones as `metric[label]`)."""

    host: str
    capture: str
    readings: dict[str, float]


NOT_JUDGED = "not judged"
"""Begins the evidence of a finding that could not be judged."""


RESTART = "restart:"
"""The check of a system's restart is this with its name."""


@record
class ValidityFinding:
    """One thing that validity looked at: did it hold, and on what evidence.

    `voids`: when it does not hold, the iteration is invalid. `breach`: when it does not hold, the iteration counts but
    the system broke a limit of the plan, so that no verdict passes on it. Otherwise it warns. `load`: of several.
    """

    check: str
    ok: bool
    evidence: str
    voids: bool = True
    breach: bool = False
    load: str = ""

    @property
    def label(self) -> str:
        """The check, with the load that it is about."""
        return f"{self.check} of {self.load}" if self.load else self.check

    @property
    def is_restart(self) -> bool:
        """Whether the server was started again, with empty caches, by nothing of the plan."""
        return self.check.startswith(RESTART) and not self.ok

    @property
    def is_judged(self) -> bool:
        """Whether the check was made; without that, `ok` is not evidence that it held."""
        return not (self.ok and self.evidence.startswith(NOT_JUDGED))


@record
class TransactionSummary:
    """One transaction type in one iteration, of several loads of one `load`. Latencies are response times in
    microseconds; keys as in `metrics`."""

    name: str
    ok: int
    logical_failures: int
    errors: dict[str, int]
    retried: int
    missed: int
    tps: float
    response: dict[str, float]
    service: dict[str, float]
    unfinished: int = 0
    load: str = ""

    @property
    def label(self) -> str:
        """`loads.in_load` of its load and name."""
        return in_load(self.load, self.name)


@record
class WaitLine:
    """A row of the foreground waits; `waits` where the server counts; `system` is "" for the first captured."""

    event: str
    wait_class: str
    seconds: float
    db_time_fraction: float
    average_us: float | None = None
    waits: float | None = None
    system: str = ""


@record
class SizeLine:
    """The size of a part at both ends: `part` is table, toast, lob or index, `name` the index's or table's."""

    system: str
    table: str
    part: str
    name: str
    start_bytes: float
    end_bytes: float


@record
class IterationFinished:
    """An iteration with its numbers, the basis of every verdict. `valid` is False when a finding that voids failed.

    `series` holds whole seconds of the measure window by metric name (`tps`, `response.avg_us`), all agents merged,
    for figures. `committed` and `unknown` are those of all `LoadResult`s, by transaction (`in_load`).
    `at_least` holds lower bounds of numbers that are not in `metrics`, by path (`response.p99_us`), as they depend on
    transactions without an answer at the end of the load; `not_given` names those that are not shown. `beside`: the
    loads that are in `metrics` under `loads` only. `commits`: of each load with tracked commits. `cost`: the source of
    each number of `metrics.COST`, or why it is not there. `server_started_ms`: by load, the newest start of its server
    on the server's clock, Unix ms, where the server reports it. `steady_from_s`: with `ramp_up: auto(…)` the shortest
    ramp-up after which a measure window was steady, s; None where none was.
    """

    id: IterationId
    rate: float | None
    measure_s: float
    valid: bool
    findings: tuple[ValidityFinding, ...]
    metrics: Metrics
    transactions: tuple[TransactionSummary, ...]
    waits: tuple[WaitLine, ...] = ()
    started_unix_s: float = 0.0
    series: dict[str, tuple[float, ...]] = field(default_factory=dict)
    committed: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    sizes: tuple[SizeLine, ...] = ()
    at_least: dict[str, float] = field(default_factory=dict)
    not_given: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    faults: tuple[FaultMeasured, ...] = ()
    commits: tuple[CommitsMeasured, ...] = ()
    cost: dict[str, str] = field(default_factory=dict)
    statements: tuple[StatementLine, ...] = ()
    server_started_ms: dict[str, int] = field(default_factory=dict)
    steady_from_s: float | None = None

    @property
    def is_typical(self) -> bool:
        """Valid, and the system broke no limit in it: what others may be compared with."""
        return self.valid and all(finding.ok or not finding.breach for finding in self.findings)


@record
class IterationVoided:
    """A void iteration (an agent was lost, the load failed); it may be run again. Without `rerun` it takes back an
    `IterationFinished` of the same id."""

    id: IterationId
    reason: str
    rerun: bool


Phase: TypeAlias = Literal["bracket", "bisect", "confirm", "repeat", "refusal", "around"]
"""The part of a search that a probe belongs to (`coordinator.schedule.rate_search`)."""


@record
class ProbeFinished:
    """A probe of a search: its rate (`over` threads: their number), whether `accept` held, and the numbers that it
    read."""

    stage: str
    probe: int
    phase: Phase
    rate: float
    accepted: bool
    evidence: str
    over: Sought = "rate"

    @property
    def level(self) -> str:
        """Its rate, or its number of threads."""
        return sought(self.rate, self.over)


@record
class SearchFinished:
    """A search's answer; `rate` is None when no rate in the range was accepted, or the probes did not decide.

    `confirmations` (0: not recorded), `lower` and `upper`: see `core.numbers`."""

    stage: str
    rate: float | None
    probes: int
    reason: str
    outcome: Literal["found", "none", "undecided"] = "found"
    upper: float | None = None
    confirmations: int = 0
    over: Sought = "rate"
    lower: float | None = None

    @property
    def estimate(self) -> dict[str, Any]:
        """The answer as an estimate; empty where there is none."""
        if self.rate is None:
            return {}
        return confirmed(self.rate, self.upper, self.confirmations, self.over, lower=self.lower)

    @property
    def answer(self) -> str:
        """The answer with its interval, or that there is none."""
        return search_answer(self.estimate, self.outcome, self.over)


@record
class LadderCut:
    """`stop_when` held at a rung: the rungs above it are not run."""

    stage: str
    at_rung: int
    skipped: tuple[int, ...]
    evidence: str


@record
class PropagationCompared:
    """After the last stage: the contents of the two ends of a propagation."""

    source: str
    sink: str
    drained: bool
    drain_s: float
    tables: tuple[TableDifference, ...]


@record
class InvariantsSeen:
    """The invariants of a workload in one system: after `iteration`, or ("") after the whole stage.

    No checks: the system could not be queried. `tallies`: the numbers of transactions that it has counted by then.
    """

    stage: str
    iteration: str
    system: str
    checks: tuple[InvariantCheck, ...]
    seconds: float
    tallies: dict[str, int] = field(default_factory=dict)
    kind: str = ""
    """Of the workload; a system may hold the rows of several."""


TuningAct: TypeAlias = Literal["apply", "look", "revert"]


@record
class TuningSeen:
    """The outcome of a host's tuning operations: applied (the plan's, or those of `stage`), verified, or reverted."""

    host: str
    act: TuningAct
    states: tuple[TuningState, ...]
    stage: str = ""
    seconds: float = 0.0


@record
class StageFinished:
    """A stage ended; `metrics` is what expressions see under its id; `skipped` is one that the plan has left out."""

    stage: str
    outcome: Literal["ok", "failed", "skipped"]
    seconds: float
    metrics: Metrics = field(default_factory=dict)


@record
class VerdictReached:
    """A verdict with its evidence: the numbers read, the interval, the iterations behind it."""

    id: str
    title: str
    severity: Literal["fail", "warn"]
    outcome: Outcome
    check: str
    evidence: str
    iterations: tuple[str, ...] = ()
    file: str = ""
    line: int = 0


@record
class VerdictForeseen:
    """The provisional outcome of a verdict on the results so far. No decision depends on it.

    Emitted when a stage has ended, for verdicts that are decidable by then, and again when the outcome changes;
    `VerdictReached` follows at the end, judged again on all results.
    """

    id: str
    title: str
    severity: Literal["fail", "warn"]
    outcome: Outcome
    evidence: str


@record
class Notice:
    """Something a person should see; `host` "" is the coordinator."""

    level: Literal["info", "warning", "error"]
    host: str
    text: str


@record
class RunFinished:
    """The run has ended. `status`: finished, failed (infrastructure), interrupted; `exit_code` by the CLI contract."""

    status: Literal["finished", "failed", "interrupted"]
    exit_code: int
    reason: str
    seconds: float


Event: TypeAlias = (
    RunStarted | AgentUp | AgentLost | SystemUp | FactsTaken | StageStarted | StageProgress | PopulateFinished
    | ValuesTaken | IterationStarted | LoadTick | TransactionsTick | WaitsTick | AgentsTick | HostTick
    | IterationFinished | IterationVoided | ProbeFinished | SearchFinished | LadderCut | PropagationCompared
    | InvariantsSeen | TuningSeen | FaultSeen | StageFinished | VerdictForeseen | VerdictReached | Notice | RunFinished
)  # fmt: skip

LIVE_EVENTS: tuple[type, ...] = (StageProgress, LoadTick, TransactionsTick, WaitsTick, AgentsTick, HostTick)


@record
class Stamped:
    """An event as the journal keeps it."""

    sequence: int
    unix_s: float
    event: Event

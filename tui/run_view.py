"""View model of a run, as one frozen value, and of a part of it: `reduce(view, stamped)` -> the next view. Pure.

Data flow: stamped events (from the run's loop, or from a journal that is replayed) -> `reduce` -> `RunView` ->
screen.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any, Literal, TypeAlias

from proveout.core.data_classes import record
from proveout.core.json_data import at_path
from proveout.core.numbers import number, quantity, rate_unit, safe, with_interval
from proveout.core.statistics import estimate, repeats_confidence
from proveout.dsl.plan.loads import in_load
from proveout.dsl.plan.phases import Level
from proveout.dsl.plan.stages import AFTER_MEASURE, measured_from_s, of_stage
from proveout.proto import tuning_state
from proveout.proto.events import (
    AgentLost,
    AgentsTick,
    AgentUp,
    FactsTaken,
    FaultSeen,
    HostTick,
    InvariantsSeen,
    IterationFinished,
    IterationId,
    IterationStarted,
    IterationVoided,
    LadderCut,
    LoadTick,
    Notice,
    PopulateFinished,
    ProbeFinished,
    PropagationCompared,
    RunFinished,
    RunStarted,
    SearchFinished,
    StageFinished,
    StageProgress,
    StageStarted,
    Stamped,
    SystemUp,
    TransactionsTick,
    TuningSeen,
    ValuesTaken,
    VerdictForeseen,
    VerdictReached,
    WaitsTick,
)
from proveout.proto.events import log_text as fault_text

# ---- the log ---------------------------------------------------------------------------------------------------------

LogLevel: TypeAlias = Literal["info", "warning", "error"]
_LEVELS: Mapping[str, LogLevel] = {
    "failed": "error",
    "interrupted": "warning",
    "FAIL": "error",
    "INCONCLUSIVE": "warning",
}
"""The level of an outcome that is not fine."""
TIMES = frozenset({"elapsed_s", "wait_s"})
"""The times that every repeat of a stage has."""


@record
class LogLine:
    """A line of the log. `unix_s` in Unix seconds; `host` is "" for the coordinator; `iteration` is "" for none."""

    unix_s: float
    level: LogLevel
    host: str
    text: str
    iteration: str = ""


def broken(ended: IterationFinished) -> str:
    """The findings that void an iteration; "" for a valid one."""
    return "; ".join(finding.evidence for finding in ended.findings if not finding.ok and finding.voids)


def values_text(taken: ValuesTaken) -> str:
    """The metrics of a repeat of a stage; "" when it has only its times."""
    return ", ".join(f"{name} {quantity(value, name)}" for name, value in taken.values.items() if name not in TIMES)


def log_line(stamped: Stamped) -> LogLine | None:  # noqa: PLR0912 - one arm per kind of event
    """The line of an event; None for an event without one."""
    level: LogLevel = "info"
    host = text = iteration = ""
    match stamped.event:
        case RunStarted(run_id=name, resumed=resumed):
            text = f"run {name} {'is resumed' if resumed else 'begins'}"
        case AgentUp(host=host, cores=cores):
            text = f"agent is up, {cores} cores"
        case AgentLost(host=host, reason=reason):
            level, text = "error", f"host {host} is lost: {reason}"
        case StageStarted(stage=stage, kind=kind):
            text = f"stage {stage} ({kind}) begins"
        case StageFinished(stage=stage, outcome=outcome):
            level, text = _LEVELS.get(outcome, level), f"stage {stage}: {outcome}"
        case ValuesTaken(stage=stage, repeat=repeat) as taken if numbers := values_text(taken):
            text = f"{stage}, repeat {repeat}: {numbers}"
        case IterationFinished(id=identity, valid=False) as ended:
            level, text, iteration = "warning", f"{identity} is invalid: {broken(ended)}", str(identity)
        case IterationVoided(id=identity, reason=reason):
            level, text, iteration = "warning", f"{identity} is void: {reason}", str(identity)
        case VerdictForeseen(id=name, outcome=verdict):
            level, text = _LEVELS.get(verdict, level), f"verdict {name}: {verdict} so far"
        case VerdictReached(id=name, outcome=verdict):
            level, text = _LEVELS.get(verdict, level), f"verdict {name}: {verdict}"
        case TuningSeen(host=host, states=states) as tuned:
            text = tuning_state.log_text(tuned)
            level = "error" if any(state.outcome in tuning_state.WRONG for state in states) else level
        case FaultSeen(id=identity, host=host, step=step) as seen if step != "healing":  # `healed` follows, or `failed`
            level = "error" if step == "failed" else level  # others are in the plan
            text, iteration = fault_text(seen), str(identity)
        case Notice(level=level, host=host, text=text):
            pass
        case RunFinished(status=status, reason=reason):
            level, text = _LEVELS.get(status, level), f"run {status}: {reason}"
        case _:
            return None
    if not text:
        return None
    return LogLine(unix_s=stamped.unix_s, level=level, host=host, text=text, iteration=iteration)


# ---- a stage ---------------------------------------------------------------------------------------------------------

EARLIER_MAX = 12
"""Readings of a task's progress that its pace is taken from: some seconds."""

StageState: TypeAlias = Literal["waiting", "running", "ok", "failed", "skipped"]


@record
class Progress:
    """Progress of a host in its task of the stage; `total` is 0 when unknown.

    `earlier`: the last readings as (Unix s, done), this one included, oldest first.
    """

    done: float
    total: float
    unit: str
    note: str = ""
    earlier: tuple[tuple[float, float], ...] = ()

    @property
    def share(self) -> float:
        """The part that is done, 0 … 1; 0 when the total is unknown."""
        return self.done / self.total if self.total > 0.0 else 0.0

    @property
    def per_s(self) -> float | None:
        """Units per second over the last readings; None before there are two."""
        if len(self.earlier) < 2:
            return None
        (first_s, first), (last_s, last) = self.earlier[0], self.earlier[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else None

    @property
    def remaining_s(self) -> float | None:
        """Seconds until the total at this pace; None when it is not known."""
        pace = self.per_s
        return (self.total - self.done) / pace if pace and self.total > self.done else None


def moved_on(before: Progress | None, event: StageProgress, unix_s: float) -> Progress:
    """The progress after an event."""
    earlier = before.earlier if before is not None and before.done <= event.done else ()
    return Progress(
        done=event.done,
        total=event.total,
        unit=event.unit,
        note=event.note,
        earlier=(*earlier, (unix_s, event.done))[-EARLIER_MAX:],
    )


@record
class LoadView:
    """One of several loads of a stage, as the plan has it: its threads (None: a share of those of the rung), its rate
    in 1/s (None: closed, or a share of the rung's), its share of both (None: it has its own)."""

    name: str
    workload: str
    target: str
    threads: int | None = None
    rate: float | None = None
    share: float | None = None

    def rate_of(self, rate: float | None) -> float | None:
        """Its intended rate in an iteration at `rate`; None for closed arrival."""
        if self.share is None:
            return self.rate
        return None if rate is None else rate * self.share


@record
class IterationView:
    """One iteration that has ended: throughput per second, response times in µs; None where nothing was measured.

    `p99_at_least_us`: a lower bound of the 99th percentile, where transactions had no answer. `loads`: the throughput
    of each of several loads.
    """

    id: IterationId
    rate: float | None
    valid: bool
    tps: float | None
    p50_us: float | None
    p99_us: float | None
    why: str = ""
    p99_at_least_us: float | None = None
    loads: Mapping[str, float | None] = field(default_factory=dict)


@record
class Throughput:
    """Mean throughput over `n` repeats with its confidence interval; no interval from one repeat."""

    mean: float
    n: int
    lower: float | None
    upper: float | None

    @property
    def cells(self) -> tuple[str, str]:
        """Mean and interval as in the tables of the report: `1,234`, `1,200 … 1,270`; "" without an interval."""
        mean, ends = with_interval({"mean": self.mean, "lower": self.lower, "upper": self.upper})
        return mean, ends.removeprefix("-")

    @property
    def half(self) -> str:
        """The distance from the mean to the farther end of the interval, as behind ±; "" where an end is missing or
        ± would reach below 0."""
        if self.lower is None or self.upper is None:
            return ""
        farther = max(self.upper - self.mean, self.mean - self.lower)
        return number(farther, farther) if farther < self.mean else ""


@record
class StageView:
    """A stage of the plan; `cell` is its cell of a matrix.

    `iterations` is their largest number; times are Unix seconds, 0 before the start. `planned`: the rungs; `phases` and
    `levels` (of a rate): those of the measure window; `accept`: the condition of a search; `captured`: the kinds of its
    captures; `reported`: its rungs' numbers in the results, by the name of the rung, once it has ended.
    """

    id: str
    kind: str
    cell: str = ""
    state: StageState = "waiting"
    iterations: int = 0
    repeats: int = 0
    repeat_min: int | None = None
    estimate_s: float = 0.0
    began_unix_s: float = 0.0
    ended_unix_s: float = 0.0
    finished: tuple[IterationView, ...] = ()
    voided: int = 0
    probes: tuple[ProbeFinished, ...] = ()
    search: SearchFinished | None = None
    cut: LadderCut | None = None
    progress: Mapping[str, Progress] = field(default_factory=dict)
    populated: tuple[PopulateFinished, ...] = ()
    planned: tuple[int, ...] = ()
    loads: tuple[LoadView, ...] = ()
    phases: tuple[tuple[str, float], ...] = ()
    levels: tuple[Level, ...] = ()
    accept: str = ""
    captured: tuple[str, ...] = ()
    reported: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name on the screen: of a matrix that of the cell."""
        return safe(self.cell or self.id)

    @property
    def rungs(self) -> dict[int, tuple[IterationView, ...]]:
        """The valid iterations by rung, fewest threads first."""
        found: dict[int, list[IterationView]] = {}
        for item in self.finished:
            if item.valid:
                found.setdefault(item.id.rung, []).append(item)
        return {rung: tuple(found[rung]) for rung in sorted(found)}

    @property
    def confidence(self) -> float:
        """The level of its intervals."""
        ran = max((item.id.repeat for item in self.finished), default=0)
        return repeats_confidence(self.repeats, self.repeat_min, ran)

    @property
    def throughput(self) -> dict[int, Throughput]:
        """The throughput of each rung that has a valid iteration: that of the results, before it has ended the same
        estimate over the repeats so far."""
        return self.throughput_of("")

    def throughput_of(self, load: str) -> dict[int, Throughput]:
        """`throughput` of one of several loads; of all together for ""."""
        found: dict[int, Throughput] = {}
        for rung, items in self.rungs.items():
            if known := self.reported.get(str(rung)):
                estimates = known.get("loads", {}).get(load, {}) if load else known
                found |= {rung: _shown(estimates["tps"])} if "tps" in estimates else {}
                continue
            by_repeat = {item.id.repeat: item.loads.get(load) if load else item.tps for item in items}
            values = tuple(value for _, value in sorted(by_repeat.items()) if value is not None)
            if values:
                found[rung] = _throughput(values, self.confidence)
        return found


def rung_label(kind: str, rung: int, width: int = 0) -> str:
    """`4 thr`, the number in at least `width` cells; the rungs of a tool are I/O depths."""
    return f"depth {rung:>{width}}" if kind == "tool" else f"{rung:>{width}} thr"


@functools.lru_cache(maxsize=1024)
def _throughput(values: tuple[float, ...], confidence: float) -> Throughput:
    return _shown(estimate(values, confidence=confidence))


def _shown(found: Mapping[str, Any]) -> Throughput:
    return Throughput(mean=found["mean"], n=found["n"], lower=found.get("lower"), upper=found.get("upper"))


def planned_view(data: Mapping[str, Any], captures: Mapping[str, str]) -> StageView:
    """The view of a stage that waits, of its data in the plan; `captures`: the kind of each capture of the plan."""
    kind, repeats = str(data.get("kind")), data.get("repeat", 0)
    rungs = data.get("iodepths" if kind == "tool" else "threads", ())
    rungs = tuple(rungs) if isinstance(rungs, (list, tuple)) else ()
    cell = of_stage(data)
    arrival = data.get("arrival") or {}
    levels = arrival.get("levels", ()) if arrival.get("of") == "rate" else ()
    return StageView(
        id=str(data.get("id")),
        kind=kind,
        cell="" if cell is None else f"{cell.of} ({cell})",
        iterations=len(rungs) * repeats if kind in ("ladder", "tool") else 0,
        repeats=repeats,
        repeat_min=data.get("repeat_min"),
        planned=rungs,
        loads=tuple(_load(load) for load in data.get("loads", ()) if data.get("alone") in (None, "", load["name"])),
        phases=tuple((name, length) for name, length in data.get("windows", {}).get("phases", ())),
        levels=tuple(
            Level(**{**level, "values": tuple(level["values"]), "at_s": tuple(level["at_s"])}) for level in levels
        ),
        accept=str((data.get("accept") or {}).get("text", "")),
        captured=tuple(captures[name] for name in data.get("captures") or () if name in captures),
    )


def _load(data: Mapping[str, Any]) -> LoadView:
    share = data.get("share")
    return LoadView(
        name=data["name"],
        workload=data["workload"],
        target=data["target"],
        threads=data.get("threads"),
        rate=data.get("rate"),
        share=None if share is None else share[0] / share[1],
    )


def share_done(stage: StageView, now_unix_s: float) -> float:
    """The finished share of a running stage, 0 … 1: by time, within the bounds of its finished iterations."""
    by_time = (now_unix_s - stage.began_unix_s) / stage.estimate_s if stage.estimate_s > 0.0 else 1.0
    if not stage.iterations or stage.kind == "search":
        return min(max(by_time, 0.0), 1.0)
    # An invalid repeat is run again, or, when its retries are used up, left: then another one has followed it.
    slots = [(item.id.rung, item.id.repeat) for item in stage.finished]
    valid = {slot for slot, item in zip(slots, stage.finished, strict=True) if item.valid}
    ended = len(valid | {slot for slot in slots if slot != slots[-1]})
    return min(max(by_time, ended / stage.iterations, 0.0), (ended + 1) / stage.iterations, 1.0)


def ended_view(event: IterationFinished) -> IterationView:
    response = event.metrics.get("response", {})
    return IterationView(
        id=event.id,
        rate=event.rate,
        valid=event.valid,
        tps=event.metrics.get("tps"),
        p50_us=response.get("p50_us"),
        p99_us=response.get("p99_us"),
        why=broken(event),
        loads={name: numbers.get("tps") for name, numbers in event.metrics.get("loads", {}).items()},
        p99_at_least_us=at_least_us(event, "response.p99_us"),
    )


def at_least_us(event: IterationFinished, path: str) -> float | None:
    """The lower bound of a response time that is not known, where it is given."""
    return None if path in event.not_given else event.at_least.get(path)


# ---- a host ----------------------------------------------------------------------------------------------------------

HISTORY_MAX = 60
"""Readings that a sparkline can show."""
CPU, DISK, NETWORK = "cpu.busy_fraction", "disk bytes", "network bytes"
_SUMS = {
    CPU: (CPU,),
    DISK: ("disk.read_bytes_per_s", "disk.write_bytes_per_s"),
    NETWORK: ("network.received_bytes_per_s", "network.sent_bytes_per_s"),
}

Readings: TypeAlias = Mapping[str, float]
History: TypeAlias = Mapping[str, tuple[float, ...]]


@record
class HostView:
    """A host: the state of its agent, for how long it is silent, its clock, and the newest readings by capture.

    `machine` is equal for hosts on one machine. `history`: earlier readings of CPU (0 … 1), disk and network (bytes per
    second), oldest first.
    """

    name: str
    roles: tuple[str, ...] = ()
    machine: str = ""
    up: bool = False
    cores: int = 0
    uncertainty_ns: int = 0
    lost: str = ""
    silent_s: float = 0.0
    connected: bool = True
    readings: Mapping[str, Readings] = field(default_factory=dict)
    history: History = field(default_factory=dict)


def is_silent(host: HostView, beat_s: float) -> bool:
    """Whether an agent that is up has missed a beat, or has no connection."""
    return not host.connected or (beat_s > 0.0 and host.silent_s > 2.0 * beat_s)


def changed(host: HostView, event: AgentUp | AgentLost | HostTick) -> HostView:
    """The host after an event of it."""
    match event:
        case AgentUp():
            return replace(
                host,
                up=True,
                lost="",
                silent_s=0.0,
                connected=True,
                machine=event.machine_id,
                cores=event.cores,
                uncertainty_ns=event.uncertainty_ns,
            )
        case AgentLost():
            return replace(host, up=False, lost=event.reason)
        case HostTick():
            readings = {**host.readings, event.capture: event.readings}
            return replace(host, readings=readings, history=_lengthened(host.history, totals(event.readings)))


def newest(host: HostView) -> Readings:
    """The newest readings of all captures of a host, labelled ones added up (all disks, all interfaces)."""
    found: dict[str, float] = {}
    for taken in host.readings.values():
        found.update(totals(taken))
    return found


def totals(readings: Readings) -> dict[str, float]:
    """The readings of a capture, labelled ones added up."""
    found: dict[str, float] = {}
    for name, value in readings.items():
        metric = name.partition("[")[0]
        found[metric] = found.get(metric, 0.0) + value
    return found


def _lengthened(history: History, now: Readings) -> History:
    """The history with the readings that this capture has; others stay."""
    more = {name: sum(now.get(one, 0.0) for one in of) for name, of in _SUMS.items() if any(p in now for p in of)}
    return {**history, **{name: (*history.get(name, ()), value)[-HISTORY_MAX:] for name, value in more.items()}}


# ---- the run ---------------------------------------------------------------------------------------------------------

RunState: TypeAlias = Literal["starting", "running", "finished", "failed", "interrupted"]

MARKS_MAX = 600
SECONDS_MAX = 3600
"""Seconds of load over iterations that can still be drawn."""
BEGUN_MAX = 1000
DETAILS_MAX = 300
"""Iterations whose transactions and waits can still be shown."""
NOTICES_MAX = 200
LOG_MAX = 1000
ITERATIONS_MAX = 10_000


@record
class Begun:
    """An iteration that has begun, with its T0 in Unix seconds."""

    started: IterationStarted
    unix_s: float

    @property
    def measured_from_s(self) -> float:
        """The start of its measure window, Unix s."""
        return self.unix_s + measured_from_s(self.started)


@record
class Moment:
    """A second of load, at its end in Unix seconds."""

    unix_s: float
    tick: LoadTick


@record
class FaultMark:
    """The begin or the end of a fault, Unix seconds."""

    unix_s: float
    seen: FaultSeen


@record
class RunView:
    """The state of the whole run. `now_unix_s` is the time of the newest event.

    `transactions` and `waits` (by capture and host) are of the iteration under way, `last` of the one that ended before
    it. `foreseen` are the verdicts that are provisional: not those in `verdicts`.

    `begun`, `seconds` and `fault_marks` go over iterations, oldest first; `details`: the newest iterations that have
    ended, by id. `planned_verdicts`: the stages that each reads, by id. `shown`: the part of the plan that the view is
    limited to, "" for the whole run.
    """

    run_id: str = ""
    name: str = ""
    title: str = ""
    state: RunState = "starting"
    resumed: int = 0
    estimate_s: float = 0.0
    began_unix_s: float = 0.0
    now_unix_s: float = 0.0
    stages: tuple[StageView, ...] = ()
    current: str = ""
    iteration: IterationStarted | None = None
    begun: tuple[Begun, ...] = ()
    seconds: tuple[Moment, ...] = ()
    fault_marks: tuple[FaultMark, ...] = ()
    details: Mapping[str, IterationFinished] = field(default_factory=dict)
    hosts: Mapping[str, HostView] = field(default_factory=dict)
    transactions: TransactionsTick | None = None
    waits: Mapping[str, WaitsTick] = field(default_factory=dict)
    lease_s: float = 0.0
    beat_s: float = 0.0
    tunings: Mapping[tuple[str, str], tuning_state.TunedHost] = field(default_factory=dict)
    verdicts: tuple[VerdictReached, ...] = ()
    foreseen: tuple[VerdictForeseen, ...] = ()
    lags: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    planned_verdicts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    shown: str = ""
    equipment: tuple[tuple[str, str], ...] = ()  # name and kind of what has no agent
    last: IterationFinished | None = None
    notices: tuple[Notice, ...] = ()
    log: tuple[LogLine, ...] = ()
    ended: RunFinished | None = None

    def stage(self, stage_id: str) -> StageView | None:
        """The stage with that id, None when it is unknown."""
        return next((stage for stage in self.stages if stage.id == stage_id), None)

    def kind(self, stage_id: str) -> str:
        """The kind of a stage, "" when it is unknown."""
        stage = self.stage(stage_id)
        return "" if stage is None else stage.kind

    def unit(self, stage_id: str) -> str:
        """The unit of the throughput of a stage."""
        return rate_unit(self.kind(stage_id))

    def going(self, stage_id: str) -> IterationId | None:
        """The iteration under way in a stage; None when there is none."""
        return self.iteration.id if self.iteration is not None and self.iteration.id.stage == stage_id else None

    @property
    def iteration_began_unix_s(self) -> float:
        """T0 of the iteration that has begun last, Unix s."""
        return self.begun[-1].unix_s if self.begun else 0.0

    @property
    def newest(self) -> Moment | None:
        """The newest second of the iteration under way."""
        last = self.seconds[-1] if self.seconds else None
        return last if last is not None and self.iteration is not None and last.tick.id == self.iteration.id else None

    @property
    def judged_ids(self) -> frozenset[str]:
        """The ids of the verdicts that are reached or provisional."""
        return frozenset([*(verdict.id for verdict in self.verdicts), *(verdict.id for verdict in self.foreseen)])

    @property
    def elapsed_s(self) -> float:
        """Since the run began (or was resumed), s."""
        return max(self.now_unix_s - self.began_unix_s, 0.0) if self.began_unix_s else 0.0

    @property
    def remaining_s(self) -> float:
        """Estimated remaining time, s: waiting stages by their estimate, running stages by the iterations that are
        done.
        """
        if self.ended is not None:
            return 0.0
        done = sum(stage.estimate_s for stage in self.stages if stage.state in ("ok", "failed"))
        running = [stage for stage in self.stages if stage.state == "running"]  # ladders that take turns: more than one
        done += sum(stage.estimate_s * share_done(stage, self.now_unix_s) for stage in running)
        return max(self.estimate_s - done, 0.0)


def reduce(view: RunView, stamped: Stamped) -> RunView:  # noqa: PLR0911 - one arm per kind of event
    """The view after one more event. An event of an unknown stage or host changes only the time."""
    event, line = stamped.event, log_line(stamped)
    log = view.log if line is None else (*view.log, line)[-LOG_MAX:]
    view = replace(view, now_unix_s=max(view.now_unix_s, stamped.unix_s), log=log)
    match event:
        case RunStarted():
            return _started(view, event, stamped.unix_s)
        case RunFinished():
            stages = tuple(replace(stage, progress={}) for stage in view.stages)
            return replace(view, state=event.status, ended=event, iteration=None, stages=stages)
        case AgentUp() | AgentLost() | HostTick():
            host = changed(view.hosts.get(event.host, HostView(name=event.host)), event)
            view = _lagged(view, event) if isinstance(event, HostTick) else view
            return replace(view, hosts={**view.hosts, event.host: host})
        case AgentsTick():
            return _agents(view, event)
        case TuningSeen():
            return replace(view, tunings=tuning_state.after(view.tunings, event))
        # A violation or a change comes as a notice; the report has the details.
        case InvariantsSeen() | FactsTaken() | ValuesTaken() | SystemUp() | PropagationCompared():
            return view
        case FaultSeen():
            return _fault(view, event)
        case VerdictForeseen() | VerdictReached():
            return _verdict(view, event)
        case Notice():
            return replace(view, notices=(*view.notices, event)[-NOTICES_MAX:])
        case IterationStarted() | IterationFinished() | IterationVoided():
            return _iteration(view, event, stamped.unix_s)
        case LoadTick() | TransactionsTick() | WaitsTick():
            return _moving(view, event)
        case _:
            return _stage(view, event, stamped.unix_s)


def _verdict(view: RunView, event: VerdictForeseen | VerdictReached) -> RunView:
    foreseen = tuple(verdict for verdict in view.foreseen if verdict.id != event.id)
    if isinstance(event, VerdictForeseen):
        return replace(view, foreseen=(*foreseen, event))
    others = tuple(verdict for verdict in view.verdicts if verdict.id != event.id)
    return replace(view, foreseen=foreseen, verdicts=(*others, event))


def _fault(view: RunView, event: FaultSeen) -> RunView:
    if event.step not in ("begins", "healed") or not view.begun or view.begun[-1].started.id != event.id:
        return view
    mark = FaultMark(unix_s=view.begun[-1].measured_from_s + event.at_s, seen=event)
    return replace(view, fault_marks=(*view.fault_marks, mark)[-MARKS_MAX:])


def _moving(view: RunView, event: LoadTick | TransactionsTick | WaitsTick) -> RunView:
    """The ticks of an iteration. A late tick of an iteration that has ended changes nothing but the seconds of load,
    which have the time of the event where the begin of their iteration is not known."""
    match event:
        case LoadTick():
            known = bool(view.begun) and view.begun[-1].started.id == event.id
            ends_s = view.iteration_began_unix_s + event.second + 1.0 if known else view.now_unix_s
            return replace(view, seconds=(*view.seconds, Moment(unix_s=ends_s, tick=event))[-SECONDS_MAX:])
        case _ if view.iteration is None or view.iteration.id != event.id:
            return view
        case TransactionsTick() if event.window in AFTER_MEASURE:
            return view  # the numbers of the measure window stay until the iteration is evaluated
        case TransactionsTick():
            return replace(view, transactions=event)
        case WaitsTick():
            return replace(view, waits={**view.waits, f"{event.capture} on {event.host}": event})


def _started(view: RunView, event: RunStarted, unix_s: float) -> RunView:
    plan = event.plan if isinstance(event.plan, Mapping) else {}
    known = {stage.id for stage in view.stages}
    kinds = {one["name"]: one["kind"] for one in plan.get("captures", ())}
    new = tuple(planned_view(data, kinds) for data in plan.get("stages", ()) if data.get("id") not in known)
    # A stage that ran when the last coordinator died does not run now.
    kept = tuple(replace(stage, state="waiting") if stage.state == "running" else stage for stage in view.stages)
    equipment = (one for one in plan.get("declared", ()) if one["kind"] not in ("host", "system"))
    hosts = {one["name"]: HostView(name=one["name"], roles=tuple(one["roles"])) for one in plan.get("hosts", ())}
    verdicts = {one["id"]: tuple(at_path(one, "check", "needs") or ()) for one in plan.get("verdicts", ())}
    return replace(
        view,
        run_id=event.run_id,
        name=event.name,
        title=event.title,
        state="running",
        resumed=event.resumed,
        estimate_s=event.estimate_s,
        began_unix_s=unix_s,
        now_unix_s=unix_s,
        stages=(*kept, *new),
        equipment=tuple((one["name"], one["kind"]) for one in equipment),
        planned_verdicts=verdicts,
        hosts={**hosts, **view.hosts},
        iteration=None,
        ended=None,
    )


def _agents(view: RunView, event: AgentsTick) -> RunView:
    """The state of the agents; a lost agent stays lost until it is up again."""
    hosts = dict(view.hosts)
    for line in event.agents:
        host = hosts.get(line.host)
        if host is not None and host.up:
            now = replace(host, uncertainty_ns=line.uncertainty_ns, silent_s=line.silent_s)
            hosts[line.host] = replace(now, connected=line.connected)
    return replace(view, hosts=hosts, lease_s=event.lease_s, beat_s=event.beat_s)


def _lagged(view: RunView, event: HostTick) -> RunView:
    """Append the newest lag of a capture, s, to those of this iteration."""
    lag_s = event.readings.get("lag.seconds")
    if lag_s is None:
        return view
    name = f"{event.capture} on {event.host}"
    points = (*view.lags.get(name, ()), (view.now_unix_s, lag_s))[-MARKS_MAX:]
    return replace(view, lags={**view.lags, name: points})


def _iteration(view: RunView, event: IterationStarted | IterationFinished | IterationVoided, unix_s: float) -> RunView:
    stage = view.stage(event.id.stage)
    view = replace(view, iteration=None, transactions=None, waits={})
    match event:
        case IterationStarted():
            begins = unix_s + event.starts_in_s
            begun = (*view.begun, Begun(started=event, unix_s=begins))[-BEGUN_MAX:]
            view = replace(view, iteration=event, begun=begun, lags={})
            if stage is None or stage.state == "running":
                return view
            # A resumed stage has no second `StageStarted` in a journal of release 0.2.
            running = replace(stage, state="running", began_unix_s=stage.began_unix_s or unix_s)
            return replace(_put(view, running), current=stage.id)
        case IterationFinished():
            details = dict(list({**view.details, str(event.id): event}.items())[-DETAILS_MAX:])
            view = replace(view, last=event, details=details)
            finished = (*stage.finished, ended_view(event))[-ITERATIONS_MAX:] if stage is not None else ()
            return view if stage is None else _put(view, replace(stage, finished=finished))
        case IterationVoided():
            if stage is None:
                return view
            left = tuple(one for one in stage.finished if event.rerun or one.id != event.id)
            if len(left) < len(stage.finished):  # as in results
                probes = tuple(one for one in stage.probes if one.probe != event.id.repeat)
                cut = stage.cut if stage.cut is None or stage.cut.at_rung != event.id.rung else None
                stage = replace(stage, probes=probes, cut=cut)
            return _put(view, replace(stage, voided=stage.voided + 1, finished=left))


_OfStage: TypeAlias = (
    StageStarted | StageFinished | StageProgress | PopulateFinished | ProbeFinished | SearchFinished | LadderCut
)


def _stage(view: RunView, event: _OfStage, unix_s: float) -> RunView:
    stage = view.stage(event.stage) or StageView(id=event.stage, kind="")
    match event:
        case StageStarted():
            begun = replace(stage, kind=event.kind, state="running", began_unix_s=unix_s)
            stage = replace(begun, iterations=event.iterations, estimate_s=event.estimate_s)
            view = replace(view, current=event.stage)
        case StageFinished():
            reported = event.metrics.get("rungs", {})
            stage = replace(stage, state=event.outcome, ended_unix_s=unix_s, progress={}, reported=reported)
        case StageProgress() if stage.state != "running":
            return view  # it comes live, and may be later than the end of the stage
        case StageProgress():
            progress = moved_on(stage.progress.get(event.host), event, unix_s)
            stage = replace(stage, progress={**stage.progress, event.host: progress})
        case PopulateFinished():
            stage = replace(stage, populated=(*stage.populated, event), progress={})
        case ProbeFinished():
            stage = replace(stage, probes=(*stage.probes, event))
        case SearchFinished():
            stage = replace(stage, search=event)
        case LadderCut():
            stage = replace(stage, cut=event)
    return _put(view, stage)


def _put(view: RunView, stage: StageView) -> RunView:
    if view.stage(stage.id) is None:
        return replace(view, stages=(*view.stages, stage))
    return replace(view, stages=tuple(stage if known.id == stage.id else known for known in view.stages))


# ---- a part of the plan ----------------------------------------------------------------------------------------------

Path: TypeAlias = tuple[str, ...]
"""(stage,), (stage, rung), (stage, rung, iteration) or (stage, rung, `LOAD` + its name); () is the whole run."""
LOAD = "@"


@record
class _Part:
    """A part of the plan; "" and None stand for all."""

    stage: str
    rung: int | None = None
    iteration: str = ""
    load: str = ""

    def has(self, identity: IterationId) -> bool:
        """Whether an iteration is in it."""
        return (
            identity.stage == self.stage
            and self.rung in (None, identity.rung)
            and self.iteration in ("", str(identity))
        )


def _part(path: Path) -> _Part:
    last = path[2] if len(path) > 2 else ""
    return _Part(
        stage=path[0],
        rung=int(path[1]) if len(path) > 1 else None,
        iteration="" if last.startswith(LOAD) else last,
        load=last.removeprefix(LOAD) if last.startswith(LOAD) else "",
    )


def scoped(view: RunView, path: Path) -> RunView:
    """The view with that part of the plan alone; the whole view for () and for a stage that is not known."""
    stage = view.stage(path[0]) if path else None
    if stage is None:
        return view
    part = _part(path)
    going = view.iteration if view.iteration is not None and part.has(view.iteration.id) else None
    details = {key: one for key, one in view.details.items() if part.has(one.id)}
    last, transactions = next(reversed(details.values()), None), view.transactions if going is not None else None
    if part.load and last is not None:
        last = replace(last, transactions=tuple(one for one in last.transactions if one.load == part.load))
    if part.load and transactions is not None:
        before = in_load(part.load, "")
        lines = tuple(line for line in transactions.transactions if line.name.startswith(before))
        transactions = replace(transactions, transactions=lines)
    of_stage = {key: needs for key, needs in view.planned_verdicts.items() if part.stage in needs}
    return replace(
        view,
        shown=_title(stage, part),
        current=stage.id,
        stages=(_limited(stage, part),),
        iteration=going,
        seconds=tuple(one for one in view.seconds if part.has(one.tick.id)),
        begun=tuple(one for one in view.begun if part.has(one.started.id)),
        fault_marks=tuple(mark for mark in view.fault_marks if part.has(mark.seen.id)),
        transactions=transactions,
        waits=view.waits if going is not None else {},
        lags=view.lags if going is not None else {},
        last=last,
        details=details,
        hosts=view.hosts if going is not None or not details else _hosts_in(view.hosts, details.values()),
        log=tuple(line for line in view.log if _is_in(view, stage, part, line)),
        verdicts=tuple(one for one in view.verdicts if one.id in of_stage),
        foreseen=tuple(one for one in view.foreseen if one.id in of_stage),
        planned_verdicts=of_stage,
    )


def _title(stage: StageView, part: _Part) -> str:
    """The name of a part: `base 4 thr #2`."""
    rung = "" if part.rung is None else rung_label(stage.kind, part.rung)
    repeat = f"#{part.iteration.split('/')[-2]}" if part.iteration else ""
    return " ".join(filter(None, (stage.name, rung, repeat, safe(part.load))))


def _limited(stage: StageView, part: _Part) -> StageView:
    finished = tuple(item for item in stage.finished if part.has(item.id))
    repeats = {item.id.repeat for item in finished}
    return replace(
        stage,
        finished=finished,
        reported={} if part.iteration else stage.reported,
        planned=tuple(rung for rung in stage.planned if part.rung in (None, rung)),
        probes=tuple(one for one in stage.probes if not part.iteration or one.probe in repeats),
        loads=tuple(load for load in stage.loads if part.load in ("", load.name)),
    )


def _is_in(view: RunView, stage: StageView, part: _Part, line: LogLine) -> bool:
    """Whether a line of the log belongs to the part: by its iteration, else by its time."""
    if part.rung is None:
        return bool(stage.began_unix_s) and stage.began_unix_s <= line.unix_s <= (stage.ended_unix_s or view.now_unix_s)
    if line.iteration:
        return any(line.iteration == str(one.started.id) for one in view.begun if part.has(one.started.id))
    starts = [one.unix_s - one.started.starts_in_s for one in view.begun]
    ends = [*starts[1:], view.now_unix_s + 1.0]
    return any(
        begins_s <= line.unix_s < ends_s and part.has(one.started.id)
        for one, begins_s, ends_s in zip(view.begun, starts, ends, strict=False)
    )


def _hosts_in(hosts: Mapping[str, HostView], ended: Iterable[IterationFinished]) -> dict[str, HostView]:
    """The hosts with the means of these iterations as their readings, and one point of each in their history."""
    found = {}
    taken = [one.metrics.get("hosts", {}) for one in ended]
    for name, host in hosts.items():
        each = [dict(_flat(of_hosts[name])) for of_hosts in taken if name in of_hosts]
        if not each:
            found[name] = host
            continue
        keys = dict.fromkeys(itertools.chain.from_iterable(each))
        known = {key: [one[key] for one in each if key in one] for key in keys}
        means = {key: sum(values) / len(values) for key, values in known.items()}
        sizes = {
            metric: value
            for taken_s in host.readings.values()
            for metric, value in taken_s.items()
            if metric.endswith("total_bytes")
        }
        history: History = {}
        for readings in each:
            history = _lengthened(history, readings)
        found[name] = replace(host, readings={"means": {**sizes, **means}}, history=history)
    return found


def _flat(numbers: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, float]]:
    """`cpu.busy_fraction` and the like of a tree of numbers."""
    for name, value in numbers.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{name}.")
        elif isinstance(value, (int, float)):
            yield f"{path}{name}", float(value)

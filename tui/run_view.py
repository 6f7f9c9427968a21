"""View model of a run, as one frozen value, and of a part of it: `reduce(view, stamped)` -> the next view. Pure.

Data flow: stamped events (from the run's loop, or from a journal that is replayed) -> `reduce` -> `RunView` ->
screen.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Literal, TypeAlias

from proveout.core.data_classes import record
from proveout.core.numbers import safe
from proveout.dsl.plan.loads import in_load
from proveout.dsl.plan.stages import AFTER_MEASURE, measured_from_s
from proveout.proto import tuning_state
from proveout.proto.events import (
    AgentLine,
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
from proveout.tui.stage_view import LogLine, StageView, ended_view, log_line, moved_on, planned_view, share_done

HISTORY_MAX = 60
"""Readings that a sparkline can show."""
CPU, DISK, NETWORK = "cpu.busy_fraction", "disk bytes", "network bytes"
_SUMS = {
    DISK: ("disk.read_bytes_per_s", "disk.write_bytes_per_s"),
    NETWORK: ("network.received_bytes_per_s", "network.sent_bytes_per_s"),
}

Readings: TypeAlias = Mapping[str, float]


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
    offset_ns: int = 0
    uncertainty_ns: int = 0
    lost: str = ""
    silent_s: float = 0.0
    connected: bool = True
    readings: Mapping[str, Readings] = field(default_factory=dict)
    history: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


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
                silent_s=0.0,
                connected=True,
                machine=event.machine_id,
                cores=event.cores,
                offset_ns=event.offset_ns,
                uncertainty_ns=event.uncertainty_ns,
                lost="",
            )
        case AgentLost():
            return replace(host, up=False, lost=event.reason)
        case HostTick():
            readings = {**host.readings, event.capture: event.readings}
            return replace(host, readings=readings, history=_lengthened(host.history, totals(event.readings)))


def answered(host: HostView, line: AgentLine) -> HostView:
    """The host after the state of its agent."""
    return replace(
        host,
        offset_ns=line.offset_ns,
        uncertainty_ns=line.uncertainty_ns,
        silent_s=line.silent_s,
        connected=line.connected,
    )


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


def history_of(each: Sequence[Readings]) -> Mapping[str, tuple[float, ...]]:
    """The history of readings that follow each other."""
    history: Mapping[str, tuple[float, ...]] = {}
    for readings in each:
        history = _lengthened(history, readings)
    return history


def _lengthened(history: Mapping[str, tuple[float, ...]], now: Readings) -> Mapping[str, tuple[float, ...]]:
    """The history with the readings that this capture has; others stay."""
    more: dict[str, float] = {CPU: now[CPU]} if CPU in now else {}
    more |= {
        name: sum(now.get(one, 0.0) for one in parts) for name, parts in _SUMS.items() if any(p in now for p in parts)
    }
    if not more:
        return history
    return {**history, **{name: (*history.get(name, ()), value)[-HISTORY_MAX:] for name, value in more.items()}}


RunState: TypeAlias = Literal["starting", "running", "finished", "failed", "interrupted"]

TICKS_MAX = 600
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

    `started`: the iteration that `ticks` and `faults`, the steps of its faults, are of, also after its end.

    `transactions` and `waits` (by capture and host) are of the iteration under way, `last` of the one that ended before
    it. `foreseen` are the verdicts that are provisional: not those in `verdicts`.

    `begun`, `seconds` and `fault_marks` go over iterations, oldest first; `details`: the newest iterations that have
    ended, by id. `planned_verdicts`: ids, with the stages that each reads in `verdict_needs`. `shown`: the part of the
    plan that the view is limited to, "" for the whole run.
    """

    run_id: str = ""
    name: str = ""
    title: str = ""
    version: str = ""
    state: RunState = "starting"
    resumed: int = 0
    estimate_s: float = 0.0
    began_unix_s: float = 0.0
    now_unix_s: float = 0.0
    stages: tuple[StageView, ...] = ()
    current: str = ""
    iteration: IterationStarted | None = None
    started: IterationStarted | None = None
    iteration_began_unix_s: float = 0.0
    ticks: tuple[LoadTick, ...] = ()
    faults: tuple[FaultSeen, ...] = ()
    begun: tuple[Begun, ...] = ()
    seconds: tuple[Moment, ...] = ()
    fault_marks: tuple[FaultMark, ...] = ()
    details: Mapping[str, IterationFinished] = field(default_factory=dict)
    hosts: Mapping[str, HostView] = field(default_factory=dict)
    systems: Mapping[str, SystemUp] = field(default_factory=dict)
    propagations: Mapping[str, PropagationCompared] = field(default_factory=dict)
    transactions: TransactionsTick | None = None
    waits: Mapping[str, WaitsTick] = field(default_factory=dict)
    lease_s: float = 0.0
    beat_s: float = 0.0
    tunings: Mapping[tuple[str, str], tuning_state.TunedHost] = field(default_factory=dict)
    verdicts: tuple[VerdictReached, ...] = ()
    foreseen: tuple[VerdictForeseen, ...] = ()
    lags: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    planned_verdicts: tuple[str, ...] = ()
    verdict_needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    shown: str = ""
    equipment: tuple[tuple[str, str], ...] = ()  # name and kind of what has no agent
    last: IterationFinished | None = None
    notices: tuple[Notice, ...] = ()
    log: tuple[LogLine, ...] = ()
    ended: RunFinished | None = None

    def stage(self, stage_id: str) -> StageView | None:
        """The stage with that id, None when it is unknown."""
        return next((stage for stage in self.stages if stage.id == stage_id), None)

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
    event = stamped.event
    view = _logged(replace(view, now_unix_s=max(view.now_unix_s, stamped.unix_s)), stamped)
    match event:
        case RunStarted():
            return _started(view, event, stamped.unix_s)
        case RunFinished():
            stages = tuple(replace(stage, progress={}) for stage in view.stages)
            return replace(view, state=event.status, ended=event, iteration=None, stages=stages)
        case AgentUp() | AgentLost() | HostTick():
            return _host(view, event)
        case AgentsTick():
            return _agents(view, event)
        case SystemUp() | PropagationCompared() | TuningSeen():
            return _of_systems(view, event)
        # A violation or a change comes as a notice; the report has the details.
        case InvariantsSeen() | FactsTaken() | ValuesTaken():
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


def _of_systems(view: RunView, event: SystemUp | PropagationCompared | TuningSeen) -> RunView:
    match event:
        case SystemUp():
            return replace(view, systems={**view.systems, event.system: event})
        case PropagationCompared():
            return replace(view, propagations={**view.propagations, event.source: event})
        case TuningSeen():
            return replace(view, tunings=tuning_state.after(view.tunings, event))


def _verdict(view: RunView, event: VerdictForeseen | VerdictReached) -> RunView:
    foreseen = tuple(verdict for verdict in view.foreseen if verdict.id != event.id)
    if isinstance(event, VerdictForeseen):
        return replace(view, foreseen=(*foreseen, event))
    others = tuple(verdict for verdict in view.verdicts if verdict.id != event.id)
    return replace(view, foreseen=foreseen, verdicts=(*others, event))


def _fault(view: RunView, event: FaultSeen) -> RunView:
    marks = view.fault_marks
    if event.step in ("begins", "healed") and view.started is not None and view.started.id == event.id:
        at_s = view.iteration_began_unix_s + measured_from_s(view.started) + event.at_s
        marks = (*marks, FaultMark(unix_s=at_s, seen=event))[-TICKS_MAX:]
    return replace(view, faults=(*view.faults, event)[-TICKS_MAX:], fault_marks=marks)


def _ticked(view: RunView, event: LoadTick) -> RunView:
    """A second of load. One of an iteration whose begin is not known has the time of its event."""
    known = view.started is not None and view.started.id == event.id
    ends_s = view.iteration_began_unix_s + event.second + 1.0 if known else view.now_unix_s
    seconds = (*view.seconds, Moment(unix_s=ends_s, tick=event))[-SECONDS_MAX:]
    return replace(view, ticks=(*view.ticks, event)[-TICKS_MAX:], seconds=seconds)


def _moving(view: RunView, event: LoadTick | TransactionsTick | WaitsTick) -> RunView:
    """The ticks of an iteration. A late tick of an iteration that has ended changes nothing."""
    match event:
        case LoadTick():
            return _ticked(view, event)
        case _ if view.iteration is None or view.iteration.id != event.id:
            return view
        case TransactionsTick() if event.window in AFTER_MEASURE:
            return view  # the numbers of the measure window stay until the iteration is evaluated
        case TransactionsTick():
            return replace(view, transactions=event)
        case WaitsTick():
            return replace(view, waits={**view.waits, f"{event.capture} on {event.host}": event})


def _logged(view: RunView, stamped: Stamped) -> RunView:
    line = log_line(stamped)
    return view if line is None else replace(view, log=(*view.log, line)[-LOG_MAX:])


def _started(view: RunView, event: RunStarted, unix_s: float) -> RunView:
    planned = event.plan.get("stages", ()) if isinstance(event.plan, Mapping) else ()
    verdicts = event.plan.get("verdicts", ()) if isinstance(event.plan, Mapping) else ()
    declared = event.plan.get("declared", ()) if isinstance(event.plan, Mapping) else ()
    hosts = event.plan.get("hosts", ()) if isinstance(event.plan, Mapping) else ()
    known = {stage.id for stage in view.stages}
    captures = event.plan.get("captures", ()) if isinstance(event.plan, Mapping) else ()
    kinds = {one["name"]: one["kind"] for one in captures}
    new = tuple(planned_view(data, kinds) for data in planned if data.get("id") not in known)
    # A stage that ran when the last coordinator died does not run now.
    kept = tuple(replace(stage, state="waiting") if stage.state == "running" else stage for stage in view.stages)
    return replace(
        view,
        run_id=event.run_id,
        name=event.name,
        title=event.title,
        version=event.version,
        state="running",
        resumed=event.resumed,
        estimate_s=event.estimate_s,
        began_unix_s=unix_s,
        now_unix_s=unix_s,
        stages=(*kept, *new),
        equipment=tuple((one["name"], one["kind"]) for one in declared if one["kind"] not in ("host", "system")),
        planned_verdicts=tuple(str(data.get("id")) for data in verdicts if isinstance(data, Mapping)),
        verdict_needs={str(data.get("id")): _needs(data) for data in verdicts if isinstance(data, Mapping)},
        hosts={**{one["name"]: HostView(name=one["name"], roles=tuple(one["roles"])) for one in hosts}, **view.hosts},
        iteration=None,
        ended=None,
    )


def _needs(verdict: Mapping[str, Any]) -> tuple[str, ...]:
    """The stages that the check of a verdict reads."""
    check = verdict.get("check")
    return tuple(check.get("needs", ())) if isinstance(check, Mapping) else ()


def _host(view: RunView, event: AgentUp | AgentLost | HostTick) -> RunView:
    host = changed(view.hosts.get(event.host, HostView(name=event.host)), event)
    if isinstance(event, HostTick):
        view = _lagged(view, event)
    return replace(view, hosts={**view.hosts, event.host: host})


def _agents(view: RunView, event: AgentsTick) -> RunView:
    """The state of the agents; a lost agent stays lost until it is up again."""
    hosts = dict(view.hosts)
    for line in event.agents:
        host = hosts.get(line.host)
        if host is not None and host.up:
            hosts[line.host] = answered(host, line)
    return replace(view, hosts=hosts, lease_s=event.lease_s, beat_s=event.beat_s)


def _lagged(view: RunView, event: HostTick) -> RunView:
    """Append the newest lag of a capture, s, to those of this iteration."""
    lag_s = event.readings.get("lag.seconds")
    if lag_s is None:
        return view
    name = f"{event.capture} on {event.host}"
    points = (*view.lags.get(name, ()), (view.now_unix_s, lag_s))[-TICKS_MAX:]
    return replace(view, lags={**view.lags, name: points})


def _iteration(view: RunView, event: IterationStarted | IterationFinished | IterationVoided, unix_s: float) -> RunView:
    match event:
        case IterationStarted():
            begins = unix_s + event.starts_in_s
            view = replace(
                view, iteration=event, started=event, iteration_began_unix_s=begins, ticks=(), faults=(), lags={}
            )
            started = (*view.begun, Begun(started=event, unix_s=begins))[-BEGUN_MAX:]
            view = replace(view, transactions=None, waits={}, begun=started)
            return _going(view, event.id.stage, unix_s)
        case IterationFinished():
            stage = view.stage(event.id.stage)
            kept = dict(list({**view.details, str(event.id): event}.items())[-DETAILS_MAX:])
            ended = replace(view, iteration=None, last=event, transactions=None, waits={}, details=kept)
            if stage is None:
                return ended
            return _put(ended, replace(stage, finished=(*stage.finished, ended_view(event))[-ITERATIONS_MAX:]))
        case IterationVoided():
            stage = view.stage(event.id.stage)
            ended = replace(view, iteration=None, transactions=None, waits={})
            if stage is None:
                return ended
            left = tuple(one for one in stage.finished if event.rerun or one.id != event.id)
            return _put(ended, replace(stage, voided=stage.voided + 1, finished=left))


def _going(view: RunView, stage_id: str, unix_s: float) -> RunView:
    """Mark the stage as running: a resumed stage has no second `StageStarted`."""
    stage = view.stage(stage_id)
    if stage is None or stage.state == "running":
        return view
    return replace(
        _put(view, replace(stage, state="running", began_unix_s=stage.began_unix_s or unix_s)), current=stage_id
    )


_OfStage: TypeAlias = (
    StageStarted | StageFinished | StageProgress | PopulateFinished | ProbeFinished | SearchFinished | LadderCut
)


def _stage(view: RunView, event: _OfStage, unix_s: float) -> RunView:
    stage = view.stage(event.stage) or StageView(id=event.stage, kind="")
    changed: StageView
    match event:
        case StageStarted():
            changed = replace(
                stage,
                kind=event.kind,
                state="running",
                iterations=event.iterations,
                estimate_s=event.estimate_s,
                began_unix_s=unix_s,
            )
            view = replace(view, current=event.stage)
        case StageFinished():
            reported = event.metrics.get("rungs", {})
            changed = replace(stage, state=event.outcome, ended_unix_s=unix_s, progress={}, reported=reported)
        case StageProgress() if stage.state != "running":
            return view  # it comes live, and may be later than the end of the stage
        case StageProgress():
            progress = moved_on(stage.progress.get(event.host), event, unix_s)
            changed = replace(stage, progress={**stage.progress, event.host: progress})
        case PopulateFinished():
            changed = replace(stage, populated=(*stage.populated, event), progress={})
        case ProbeFinished():
            changed = replace(stage, probes=(*stage.probes, event))
        case SearchFinished():
            changed = replace(stage, search=event)
        case LadderCut():
            changed = replace(stage, cut=event)
    return _put(view, changed)


def _put(view: RunView, stage: StageView) -> RunView:
    if view.stage(stage.id) is None:
        return replace(view, stages=(*view.stages, stage))
    return replace(view, stages=tuple(stage if known.id == stage.id else known for known in view.stages))


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


def title(stage: StageView, path: Path) -> str:
    """The name of a part: `base 4 thr #2`."""
    part = _part(path)
    words = [safe(stage.cell or stage.id)]
    if part.rung is not None:
        words.append(f"depth {part.rung}" if stage.kind == "tool" else f"{part.rung} thr")
    if part.iteration:
        words.append(f"#{part.iteration.split('/')[-2]}")
    return " ".join([*words, safe(part.load)] if part.load else words)


def scoped(view: RunView, path: Path) -> RunView:
    """The view with that part of the plan alone; the whole view for () and for a stage that is not known."""
    stage = view.stage(path[0]) if path else None
    if stage is None:
        return view
    part = _part(path)
    going = view.iteration if view.iteration is not None and part.has(view.iteration.id) else None
    details = {key: one for key, one in view.details.items() if part.has(one.id)}
    newest = next(reversed(details.values()), None)
    begun = tuple(one for one in view.begun if part.has(one.started.id))
    transactions = view.transactions if going is not None else None
    of_stage = {key for key, needs in view.verdict_needs.items() if part.stage in needs}
    return replace(
        view,
        shown=title(stage, path),
        current=stage.id,
        stages=(_limited(stage, part),),
        iteration=going,
        seconds=tuple(one for one in view.seconds if part.has(one.tick.id)),
        begun=begun,
        fault_marks=tuple(mark for mark in view.fault_marks if part.has(mark.seen.id)),
        transactions=None if transactions is None else _of_load(transactions, part.load),
        waits=view.waits if going is not None else {},
        lags=view.lags if going is not None else {},
        last=None if newest is None else _ended_of_load(newest, part.load),
        details=details,
        hosts=view.hosts if going is not None or not details else _hosts_in(view.hosts, details.values()),
        log=tuple(line for line in view.log if _is_in(view, stage, part, line.unix_s, line.iteration)),
        verdicts=tuple(one for one in view.verdicts if one.id in of_stage),
        foreseen=tuple(one for one in view.foreseen if one.id in of_stage),
        planned_verdicts=tuple(one for one in view.planned_verdicts if one in of_stage),
    )


def _limited(stage: StageView, part: _Part) -> StageView:
    finished = tuple(item for item in stage.finished if part.has(item.id))
    repeats = {item.id.repeat for item in finished}
    return replace(
        stage,
        finished=finished,
        reported={} if part.iteration else stage.reported,
        planned=stage.planned if part.rung is None else tuple(rung for rung in stage.planned if rung == part.rung),
        probes=tuple(one for one in stage.probes if one.probe in repeats) if part.iteration else stage.probes,
        loads=tuple(load for load in stage.loads if part.load in ("", load.name)),
    )


def _of_load(now: TransactionsTick, load: str) -> TransactionsTick:
    """The transactions of one load; of all for ""."""
    if not load:
        return now
    before = in_load(load, "")
    return replace(now, transactions=tuple(line for line in now.transactions if line.name.startswith(before)))


def _ended_of_load(ended: IterationFinished, load: str) -> IterationFinished:
    if not load:
        return ended
    return replace(ended, transactions=tuple(one for one in ended.transactions if one.load == load))


def _is_in(view: RunView, stage: StageView, part: _Part, unix_s: float, iteration: str) -> bool:
    """Whether an event belongs to the part: by its iteration, else by its time."""
    if part.rung is None:
        return bool(stage.began_unix_s) and stage.began_unix_s <= unix_s <= (stage.ended_unix_s or view.now_unix_s)
    if iteration:
        return any(iteration == str(one.started.id) for one in view.begun if part.has(one.started.id))
    starts = [*((one.started.id, one.unix_s - one.started.starts_in_s) for one in view.begun)]
    ends = [*(begins for _, begins in starts[1:]), view.now_unix_s + 1.0]
    return any(
        begins <= unix_s < ends_s for (identity, begins), ends_s in zip(starts, ends, strict=True) if part.has(identity)
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
        means = {key: _mean([one[key] for one in each if key in one]) for key in keys}
        totals = {
            name: value
            for readings in host.readings.values()
            for name, value in readings.items()
            if name.endswith("total_bytes")
        }
        found[name] = replace(host, readings={"means": {**totals, **means}}, history=history_of(each))
    return found


def _flat(numbers: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, float]]:
    """`cpu.busy_fraction` and the like of a tree of numbers."""
    for name, value in numbers.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{name}.")
        elif isinstance(value, (int, float)):
            yield f"{path}{name}", float(value)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)

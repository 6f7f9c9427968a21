"""View model of a run, as one frozen value: `reduce(view, stamped)` -> the next view. Pure; no clock, no terminal.

Data flow: stamped events (from the run's loop, or from a journal that is replayed) -> `reduce` -> `RunView` -> the
headless printer or the screens. The time is that of the newest event. Everything that grows is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, Literal, TypeAlias

from proveout.core.data_classes import dataclass
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
from proveout.tui.event_log import LogLine, log_line
from proveout.tui.host_view import HostView, answered, changed
from proveout.tui.stage_view import StageView, ended_view, moved_on, planned_view, share_done

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """An iteration that has begun, with its T0 in Unix seconds."""

    started: IterationStarted
    unix_s: float

    @property
    def measured_from_s(self) -> float:
        """The start of its measure window, Unix s."""
        return self.unix_s + self.started.ramp_up_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A second of load, at its end in Unix seconds."""

    unix_s: float
    tick: LoadTick


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultMark:
    """The begin or the end of a fault, Unix seconds."""

    unix_s: float
    seen: FaultSeen


@dataclass(frozen=True, slots=True, kw_only=True)
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
        at_s = view.iteration_began_unix_s + view.started.ramp_up_s + event.at_s
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
        case TransactionsTick(window="ramp_down"):
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

"""One iteration as a state machine: arm loads and captures, start them together, collect samples, finish, summarise; or
void it.

Pure; called by the scheduler with a `Turn`. Captures run before the load starts and a little beyond the measure window,
so that samples bracket both of its ends. An incomplete iteration is void and runs again while attempts are left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from proveout.coordinator.measure.outages import OUTAGE
from proveout.coordinator.schedule import batches
from proveout.coordinator.schedule.rate_search import FULL_LENGTH
from proveout.coordinator.schedule.state import (
    Cluster,
    DiscardSamples,
    GatherSamples,
    Iterating,
    Occurrence,
    SendMessage,
    StartLoads,
    Summarise,
    Turn,
)
from proveout.coordinator.schedule.tasks import (
    capture_tasks,
    fault_tasks,
    load_tasks,
    task_deadline_s,
    task_key,
    tool_tasks,
)
from proveout.core.numbers import seconds
from proveout.dsl.plan.loads import part, parts, targets
from proveout.dsl.plan.plan import position
from proveout.dsl.plan.stages import Ladder, Measuring, Search, Tool, Windows, lengths_s
from proveout.proto.events import FaultSeen, IterationFinished, IterationId, IterationStarted, IterationVoided
from proveout.proto.wire.messages import AgentMessage, Finish, Sample, TaskArmed, TaskDone, TaskFailed, Trigger
from proveout.proto.wire.results import CaptureResult, CaptureSample, FaultInjected, LoadResult, TaskError, TaskSample
from proveout.proto.wire.tasks import HEALING_S, InjectFault, RunCapture, RunFio, RunLoad, Task

_CAPTURE_MARGIN_S = 0.2
"""The time after the measure window at which captures end. They sample once more then, which brackets the window."""
DRAINED_S = 0.1
"""The replication lag up to which a sink counts as level with its source."""
LAG_METRIC = "lag.seconds"
_FINAL_CODES = frozenset({"missing", "invalid", "refused", batches.CODE})


def windows_of(stage: Measuring, phase: str, earlier: Iterable[IterationFinished]) -> Windows:
    """The windows of an iteration; a search confirms with longer ones than it probes with. With `ramp_up: auto(…)`,
    `earlier` valid iterations of the rung shorten the ramp-up to what the slowest of them needed to be steady."""
    if isinstance(stage, Search):
        return stage.confirm if phase in FULL_LENGTH else stage.probe
    windows = stage.windows
    if windows.ramp_up_least_s is None:
        return windows
    needed_s = [windows.ramp_up_s if item.steady_from_s is None else item.steady_from_s for item in earlier]
    return replace(windows, ramp_up_s=max(needed_s, default=windows.ramp_up_s))


def begin(turn: Turn, stage: Measuring, iteration: IterationId, rate: float | None, windows: Windows) -> None:
    """Send the loads (to be armed) and the captures (to run at once)."""
    state = turn.state
    slot = (stage.id, iteration.rung, iteration.repeat, f"{state.setup.epoch}.{iteration.attempt}")
    specs: list[tuple[str, RunLoad | RunFio | RunCapture | InjectFault]]
    specs = [*capture_tasks(state, stage.captures, windows)]
    if isinstance(stage, Tool):
        specs += tool_tasks(state, stage, iteration)
    else:
        specs += load_tasks(
            state.plan,
            stage,
            iteration=iteration,
            rate=rate,
            windows=windows,
            endpoints=state.endpoints,
            cores=state.progress.cores,
            without=state.progress.without,
        )
    if isinstance(stage, Ladder):
        specs += fault_tasks(state, stage, iteration)
    assigned = [(task_key(state.setup.run_id, slot, spec.subject, host), host, spec) for host, spec in specs]
    hosts = {key: host for key, host, _ in assigned}
    names = {key: spec.capture.name for key, _, spec in assigned if isinstance(spec, RunCapture)}
    named = {key: spec.load for key, _, spec in assigned if isinstance(spec, RunLoad) and spec.load}
    faulty = {key: spec.fault for key, _, spec in assigned if isinstance(spec, InjectFault)}
    turn.commands.append(GatherSamples(id=iteration, hosts=hosts, captures=names, loads=named, faults=faulty))
    drain_s = stage.drain_s if isinstance(stage, Search) else 0.0
    for key, host, spec in assigned:
        # a capture outlasts the arming, the load and its own finish, and ends by itself without the coordinator
        longest_s = windows.total_s + 600.0 if isinstance(spec, RunCapture) else task_deadline_s(spec)
        turn.assign(host, Task(key=key, spec=spec, deadline_s=longest_s + drain_s))
    turn.set(
        step=Iterating(
            id=iteration,
            rate=rate,
            windows=windows,
            phase="arming",
            loads={key: host for key, host in hosts.items() if key not in names and key not in faulty},
            captures={key: hosts[key] for key in names},
            until_s=turn.at_s + state.setup.timing.arm_s,
            faults=faulty,
        )
    )


def receive(turn: Turn, step: Iterating, message: AgentMessage) -> None:
    """Process a message about one of the iteration's tasks."""
    match message:
        case TaskArmed(key=key):
            step = replace(step, ready=step.ready | {key})
            if _are_armed(step):
                step = replace(step, until_s=turn.at_s + turn.state.setup.timing.capture_patience_s)
            turn.set(step=step)
        case Sample(key=key, sample=sample):
            lag_s = read_lag(sample)
            lags = step.lags if lag_s is None else {**step.lags, key: lag_s}
            turn.set(step=replace(step, ready=step.ready | {key}, lags=lags))
        case TaskDone(key=key, result=result):
            kind = LoadResult if key in step.loads else CaptureResult if key in step.captures else FaultInjected
            if not isinstance(result, kind):
                failed(turn, step, key, TaskError(code="invalid", message=f"it answered {type(result).__name__}"))
                return
            step = replace(step, results={**step.results, key: result})
            turn.set(step=step)
            if key in step.faults and step.faults.keys() <= step.results.keys():
                _finish(turn, step.loads)  # those that track their commits count them now (`RunLoad.awaits_finish`)
        case TaskFailed(key=key, error=error):
            failed(turn, step, key, error)
            return
        case _:
            return
    finish_phase(turn)


def finish_phase(turn: Turn) -> None:
    """Begin the next phase when all answers of this one have arrived, or its time for captures' first samples is
    over."""
    step = turn.state.step
    if not isinstance(step, Iterating):
        return
    # Comparisons of key views stop at the first missing key; this runs for every answer of up to a thousand agents.
    if _are_armed(step):
        if (step.captures.keys() <= step.ready or turn.at_s >= step.until_s) and _is_drained(turn, step):
            _start(turn, step)
    elif step.phase == "running":
        step = _finish_beside(turn, step)
        if not unanswered(step):
            _summarise(turn, step)


def _are_armed(step: Iterating) -> bool:
    """Whether all loads and faults of an iteration that has not started are armed."""
    return step.phase == "arming" and step.loads.keys() <= step.ready and step.faults.keys() <= step.ready


def is_wanted(message: Sample, *, started: bool) -> bool:
    """Whether `receive` needs a sample: the first of a task, and before the loads have started, those of a lag."""
    return message.sequence == 1 or (not started and read_lag(message.sample) is not None)


def read_lag(sample: TaskSample) -> float | None:
    """The replication lag in a sample, seconds; None when it has none."""
    readings = sample.readings if isinstance(sample, CaptureSample) else ()
    return next((reading.value for reading in readings if reading.metric == LAG_METRIC), None)


def _is_drained(turn: Turn, step: Iterating) -> bool:
    """Whether the sinks have applied the backlog of earlier loads before a probe of a search, or the wait is over."""
    stage = stage_of(turn, step)
    behind = {key: lag_s for key, lag_s in step.lags.items() if lag_s > DRAINED_S}
    if not isinstance(stage, Search) or not behind:
        return True
    if step.drain_until_s is None:
        until_s = turn.at_s + stage.drain_s
        turn.set(step=replace(step, drain_until_s=until_s, until_s=until_s))
        return stage.drain_s <= 0.0
    if turn.at_s < step.drain_until_s:
        return False
    key, lag_s = max(behind.items(), key=lambda item: item[1])
    turn.notice(
        "warning",
        f"probe {step.id.repeat} of {stage.id} begins with a backlog: the lag of {_task_name(key)} is still "
        f"{seconds(lag_s)} after a wait of {seconds(stage.drain_s)}; raise `drain` of the search",
    )
    return True


def _start(turn: Turn, step: Iterating) -> None:
    stage, windows, timing = stage_of(turn, step), step.windows, turn.state.setup.timing
    in_s = max(timing.start_margin_s, timing.start_per_load_s * len(step.loads))
    turn.emit(
        IterationStarted(
            id=step.id,
            rate=step.rate,
            starts_in_s=in_s,
            **{f"{one.name}_s": length_s for one, length_s in lengths_s(windows).items()},
            beside=() if isinstance(stage, Tool) else tuple(part.name for part in parts(stage) if part.beside),
            passes=windows.passes,
        )
    )
    loads, captures = (
        tuple((host, key) for key, host in of.items()) for of in ({**step.loads, **step.hosts_of()}, step.captures)
    )
    turn.commands.append(StartLoads(loads=loads, captures=captures, in_s=in_s))
    t0_s = turn.at_s + in_s
    ends_s = t0_s + windows.measured_to_s
    # an outside program may start as late as its limit allows
    late_s = stage.limits.start_skew_ms_max / 1e3 if isinstance(stage, Tool) else 0.0
    healing_s = HEALING_S if step.faults else 0.0
    turn.set(
        step=replace(
            step,
            phase="running",
            ends_s=ends_s,
            finish_s=ends_s + _CAPTURE_MARGIN_S + late_s,
            until_s=t0_s + windows.total_s + 240.0 + healing_s + timing.answer_grace_s,
        )
    )


def stage_of(turn: Turn, step: Iterating) -> Measuring:
    stage = turn.state.plan.stage(step.id.stage)
    assert isinstance(stage, (Ladder, Search, Tool))  # noqa: S101  # only these have iterations
    return stage


def _finish_beside(turn: Turn, step: Iterating) -> Iterating:
    """End captures and faults when the measure window is over: by the clock, or because all loads have ended."""
    if step.finish_s is None or (turn.at_s < step.finish_s and not step.loads.keys() <= step.results.keys()):
        return step
    _finish(turn, {**step.captures, **step.hosts_of()})
    step = replace(step, finish_s=None)
    turn.set(step=step)
    return step


def _finish(turn: Turn, tasks: Mapping[str, str]) -> None:
    """Have the tasks (key -> host) that are under way finish."""
    for key, host in tasks.items():
        if key in turn.state.tasks:
            turn.commands.append(SendMessage(host=host, message=Finish(key=key)))


def unanswered(step: Iterating) -> set[str]:
    """The tasks of an iteration that have not answered: loads and captures under way, and faults that are in place."""
    return {*step.loads, *step.captures, *step.faults} - step.results.keys()


def _summarise(turn: Turn, step: Iterating) -> None:
    progress = turn.state.progress
    turn.commands.append(
        Summarise(
            id=step.id,
            rate=step.rate,
            loads={key: step.results[key] for key in step.loads},
            captures={key: step.results[key] for key in step.captures},
            faults={key: result for key, result in step.results.items() if key in step.faults},
            earlier=tuple(
                item
                for repeat in range(1, step.id.repeat + 1)
                for item in progress.attempts.get((step.id.stage, step.id.rung, repeat), ())
                if item.is_typical
            ),
            before=next(
                (item for item in reversed(progress.iterations) if item.valid and item.id.stage == step.id.stage), None
            ),
        )
    )
    until_s = turn.at_s + turn.state.setup.timing.summarise_s
    turn.set(step=replace(step, phase="summarising", until_s=until_s))


def failed(turn: Turn, step: Iterating, key: str, error: TaskError) -> None:
    """Handle a failed task: void the iteration, check its systems, and run it again while attempts are left."""
    slot = (step.id.stage, step.id.rung, step.id.repeat)
    failures = turn.state.failures.get(slot, 0) + 1
    turn.set(failures={**turn.state.failures, slot: failures})
    again = failures <= max(1, stage_of(turn, step).retries) and error.code not in _FINAL_CODES
    reason = f"{_task_name(key)}: {error.message}"
    void(turn, step, reason, rerun=again)
    turn.set(cluster=Cluster())  # the agent that drives the cluster has ended it
    way_out = f" ({error.way_out})" if error.way_out else ""
    why = f"iteration {step.id} failed: {reason}{way_out}"
    if again:
        recheck(turn, step)
    elif error.code == batches.CODE and key in step.loads:
        batches.explain(turn, why)
    elif error.code == batches.CODE:
        batches.stop(turn, why)
    elif error.subject and (subject := _subject(turn, step, key, error.subject)):
        place = position(turn.state.plan, *subject, error.line)
        turn.end("failed", 2, f"{place}: {why}")
    else:
        turn.end("failed", 4, why)


def _subject(turn: Turn, step: Iterating, key: str, subject: str) -> tuple[str, str] | None:
    """The path in the plan of what a load or a capture of the iteration was refused, and the engine."""
    plan, what = turn.state.plan, key.split("/")[-2]
    kind, _, name = what.partition(":")
    if kind == "capture":
        capture = plan.capture(name)
        return f"captures.{name}.{subject}", plan.system(capture.system).engine if capture.system else ""
    stage = stage_of(turn, step)
    if kind != "load" or isinstance(stage, Tool):
        return None
    load = part(stage, name).stage
    engine = plan.system(load.target).engine
    return (
        f"workloads.{load.workload}.{subject}" if subject.startswith("statements.") else f"stages.{stage.id}.{subject}"
    ), engine


def _task_name(key: str) -> str:
    *_, what, host = key.split("/")
    return f"{what} on {host}"


def recheck_if_spoilt(turn: Turn, step: Iterating, finished: IterationFinished) -> None:
    """Check the systems after an iteration with errors, an outage or a fault, because the server may be down; and those
    with standbys after each iteration, so that the next load begins with all of them level."""
    stage = stage_of(turn, step)
    grouped = not isinstance(stage, Tool) and any(
        turn.state.plan.group_of(turn.state.plan.system(target).in_front_of or target) for target in targets(stage)
    )
    out = bool(step.faults) or any(not finding.ok and finding.check.startswith(OUTAGE) for finding in finished.findings)
    if grouped or out or batches.is_spoilt(finished):
        recheck(turn, step)


def recheck(turn: Turn, step: Iterating) -> None:
    """Send start tasks to the provisioned systems of the iteration again; an agent answers at once when its system
    runs."""
    plan = turn.state.plan
    stage = stage_of(turn, step)
    if isinstance(stage, Tool):
        batches.forget_parts(turn, stage)
        return
    names: set[str | None] = set()
    fronted = [plan.system(target).in_front_of or target for target in targets(stage)]
    for target in dict.fromkeys((*targets(stage), *fronted)):
        names |= {target, plan.system(target).propagates_to}
        names |= {s.name for s in plan.systems if s.propagates_to == target}
        names |= {s.name for s in plan.group_of(target)}
    if isinstance(stage, Ladder):
        names |= {tuning.system for fault in stage.faults for tuning in fault.tunings}
    lost = {name for name in names if name and plan.system(name).provision}
    turn.set(
        endpoints={name: e for name, e in turn.state.endpoints.items() if name not in lost},
        linked=turn.state.linked - lost - {s.name for s in plan.systems if s.propagates_to in lost},
    )


def trigger(turn: Turn, step: Iterating, name: str) -> None:
    """Begin a fault whose condition holds, unless it is in place, was so too recently, or would not be healed within
    the measure window."""
    stage = stage_of(turn, step)
    fault = next((one for one in stage.faults if one.name == name), None) if isinstance(stage, Ladder) else None
    tasks = step.hosts_of(name)
    last = step.conditional.get(name, Occurrence())
    if fault is None or not tasks or last.number >= fault.times or turn.at_s + fault.for_s >= step.ends_s:
        return
    if last.number and not (tasks.keys() <= last.over and turn.at_s >= last.over_s + fault.apart_s):
        return
    number = last.number + 1
    turn.set(step=replace(step, conditional={**step.conditional, name: Occurrence(number=number)}))
    for key, host in tasks.items():
        turn.commands.append(SendMessage(host=host, message=Trigger(key=key, number=number)))


def fault_stepped(turn: Turn, step: Iterating, key: str, seen: FaultSeen) -> None:
    """Record a step of a fault on a host."""
    turn.emit(seen)
    last = step.conditional.get(seen.fault)
    if last is not None and last.number == seen.number and seen.step in ("healed", "failed"):
        now = replace(last, over=last.over | {key}, over_s=turn.at_s)
        turn.set(step=replace(step, conditional={**step.conditional, seen.fault: now}))


def end_if_left(turn: Turn, key: str, result: FaultInjected) -> None:
    """End the run when a fault could not be healed: later iterations would measure a host that is not as it was."""
    host = key.rpartition("/")[2]
    left = [(one, text) for one in result.occurrences for text in one.residue]
    for one, text in left:
        turn.notice("error", f"fault {result.fault} ({one.number}) could not be healed: {text}", host)
    if left:
        turn.end("failed", 4, f"fault {result.fault} could not be healed on {host}: {left[0][1]}")


def void(turn: Turn, step: Iterating, reason: str, *, rerun: bool) -> None:
    """Void the iteration and cancel its remaining tasks."""
    turn.emit(IterationVoided(id=step.id, reason=reason, rerun=rerun))
    turn.commands.append(DiscardSamples())
    turn.drain(reason)


def time_out(turn: Turn, step: Iterating) -> None:
    """Fail the iteration because its phase has passed its deadline."""
    unarmed = {*step.loads, *step.faults} - step.ready  # no load waits for a capture
    waiting = unarmed if step.phase == "arming" else unanswered(step)
    key = min(waiting, default="summary/coordinator")
    failed(turn, step, key, TaskError(code="timeout", message=f"no answer while {step.phase}"))


def abandon(turn: Turn, iteration: IterationId) -> None:
    """Void an iteration that an earlier coordinator process started and did not finish."""
    turn.emit(
        IterationVoided(id=iteration, reason="the coordinator process was lost while the iteration ran", rerun=True)
    )

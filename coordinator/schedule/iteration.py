"""One iteration as a small machine: arm loads and captures, start them together, gather, finish, summarise; or void it.

Pure; called by the scheduler with a `Turn`. Captures run before the load starts and a little beyond the measure window,
so that samples bracket both of its ends. An iteration that cannot be had whole counts for nothing: it is voided and,
as long as there are tries left, run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from proveout.coordinator.measure.outages import OUTAGE
from proveout.coordinator.schedule import disk_full
from proveout.coordinator.schedule.messages import Forget, Gather, StartLoads, Summarise, Tell
from proveout.coordinator.schedule.setup_stages import forget_parts
from proveout.coordinator.schedule.state import Cluster, Iterating, Turn
from proveout.coordinator.schedule.tasks import (
    capture_tasks,
    load_tasks,
    task_deadline_s,
    task_key,
    task_subject,
    tool_tasks,
)
from proveout.dsl.plan.stages import Ladder, Measuring, Search, Tool, Windows
from proveout.proto.events import IterationFinished, IterationId, IterationStarted, IterationVoided
from proveout.proto.wire.messages import AgentMessage, Finish, Sample, TaskArmed, TaskDone, TaskFailed
from proveout.proto.wire.results import TaskError
from proveout.proto.wire.tasks import RunCapture, RunFio, RunLoad, Task

_CAPTURE_MARGIN_S = 0.2
"""How long after the measure window captures end. They sample once more when they do, so this brackets the window."""
_FINAL_CODES = frozenset({"missing", "invalid", "refused", disk_full.CODE})


def windows_of(stage: Measuring, phase: str) -> Windows:
    """The windows of an iteration; a search confirms with longer ones than it probes with."""
    if not isinstance(stage, Search):
        return stage.windows
    return stage.confirm if phase == "confirm" else stage.probe


def begin(turn: Turn, stage: Measuring, iteration: IterationId, rate: float | None, windows: Windows) -> None:
    """Send the loads (to be armed) and the captures (to run at once)."""
    state = turn.state
    slot = (stage.id, iteration.rung, iteration.repeat, f"{state.setup.epoch}.{iteration.attempt}")
    loads: Sequence[tuple[str, RunLoad | RunFio]]
    if isinstance(stage, Tool):
        loads = tool_tasks(state.plan, stage, iteration, state.setup.data_root, state.facts.without)
    else:
        loads = load_tasks(
            state.plan,
            stage,
            iteration=iteration,
            rate=rate,
            windows=windows,
            endpoint=state.endpoints[stage.target],
            cores=state.facts.cores,
            without=state.facts.without,
        )
    endpoints = {**state.setup.external, **state.endpoints}
    captures = capture_tasks(state.plan, stage.captures, endpoints, state.facts.without)
    specs: list[tuple[str, RunLoad | RunFio | RunCapture]] = [*captures, *loads]
    assigned = [(task_key(state.setup.run_id, slot, task_subject(spec), host), host, spec) for host, spec in specs]
    hosts = {key: host for key, host, _ in assigned}
    names = {key: spec.capture.name for key, _, spec in assigned if isinstance(spec, RunCapture)}
    turn.commands.append(Gather(id=iteration, hosts=hosts, captures=names))
    for key, host, spec in assigned:
        turn.give(host, Task(key=key, spec=spec, deadline_s=_deadline_s(spec, windows)))
    until_s = turn.at_s + state.setup.timing.arm_s
    turn.set(
        step=Iterating(
            id=iteration,
            rate=rate,
            windows=windows,
            phase="arming",
            loads={key: host for key, host in hosts.items() if key not in names},
            captures={key: hosts[key] for key in names},
            until_s=until_s,
        )
    )


def _deadline_s(spec: RunLoad | RunFio | RunCapture, windows: Windows) -> float:
    # A capture must outlive the arming, the load and its own finish, and not linger when the coordinator forgets it.
    return windows.total_s + 600.0 if isinstance(spec, RunCapture) else task_deadline_s(spec)


def heard(turn: Turn, step: Iterating, message: AgentMessage) -> None:
    """Take what an agent said about one of the iteration's tasks."""
    match message:
        case TaskArmed(key=key):
            ready = step.ready | {key}
            turn.set(step=replace(step, ready=ready))
            if step.loads.keys() <= ready:
                _settle_captures(turn)
        case Sample(key=key):
            turn.set(step=replace(step, ready=step.ready | {key}))
        case TaskDone(key=key, result=result):
            turn.set(step=replace(step, results={**step.results, key: result}))
        case TaskFailed(key=key, error=error):
            failed(turn, step, key, error)
            return
        case _:
            return
    progress(turn)


def _settle_captures(turn: Turn) -> None:
    step = turn.state.step
    if isinstance(step, Iterating):
        patience_s = turn.state.setup.timing.capture_patience_s
        turn.set(step=replace(step, until_s=turn.at_s + patience_s))


def progress(turn: Turn) -> None:
    """Go on to the next phase when all that this one waits for is there (or, for captures' first samples, too late)."""
    step = turn.state.step
    if not isinstance(step, Iterating):
        return
    # Views of keys, which stop at the first that is missing: every one of a thousand agents' answers comes by here.
    if step.phase == "arming" and step.loads.keys() <= step.ready:
        if step.captures.keys() <= step.ready or turn.at_s >= step.until_s:
            _start(turn, step)
    elif step.phase == "running":
        _finish_captures(turn, step, ended=step.loads.keys() <= step.results.keys())
        _summarise(turn)


def _start(turn: Turn, step: Iterating) -> None:
    windows = step.windows
    timing = turn.state.setup.timing
    in_s = max(timing.start_margin_s, timing.start_per_load_s * len(step.loads))
    turn.emit(
        IterationStarted(
            id=step.id,
            rate=step.rate,
            starts_in_s=in_s,
            ramp_up_s=windows.ramp_up_s,
            measure_s=windows.measure_s,
            ramp_down_s=windows.ramp_down_s,
        )
    )
    pairs = tuple((host, key) for key, host in step.loads.items())
    turn.commands.append(StartLoads(id=step.id, loads=pairs, in_s=in_s))
    t0_s = turn.at_s + in_s
    turn.set(
        step=replace(
            step,
            phase="running",
            finish_s=t0_s + windows.ramp_up_s + windows.measure_s + _margin_s(stage_of(turn, step)),
            until_s=t0_s + windows.total_s + 240.0 + turn.state.setup.timing.answer_grace_s,
        )
    )


def _margin_s(stage: Measuring) -> float:
    """A program of others takes its time to start, and its windows with it: captures wait for its end as long as it may be late."""
    late_s = stage.limits.start_skew_ms_max / 1e3 if isinstance(stage, Tool) else 0.0
    return _CAPTURE_MARGIN_S + late_s


def stage_of(turn: Turn, step: Iterating) -> Measuring:
    """The stage that an iteration belongs to."""
    stage = turn.state.plan.stage(step.id.stage)
    assert isinstance(stage, (Ladder, Search, Tool))  # noqa: S101  # only these have iterations
    return stage


def _finish_captures(turn: Turn, step: Iterating, *, ended: bool) -> None:
    """Tell the captures to end when the measure window is over: by the clock, or because all loads have ended."""
    if step.finish_s is None or (turn.at_s < step.finish_s and not ended):
        return
    for key, host in step.captures.items():
        if key in turn.state.tasks:
            turn.commands.append(Tell(host=host, message=Finish(key=key)))
    turn.set(step=replace(step, finish_s=None))


def _summarise(turn: Turn) -> None:
    step = turn.state.step
    if not isinstance(step, Iterating):
        return
    if not (step.loads.keys() <= step.results.keys() and step.captures.keys() <= step.results.keys()):
        return
    turn.commands.append(
        Summarise(
            id=step.id,
            rate=step.rate,
            loads={key: step.results[key] for key in step.loads},
            captures={key: step.results[key] for key in step.captures},
            earlier=tuple(
                item for item in turn.state.facts.of_stage(step.id.stage) if item.valid and item.id.rung == step.id.rung
            ),
        )
    )
    until_s = turn.at_s + turn.state.setup.timing.summarise_s
    turn.set(step=replace(step, phase="summarising", until_s=until_s))


def failed(turn: Turn, step: Iterating, key: str, error: TaskError) -> None:
    """A task of the iteration failed: void it, look after its systems, and run it again while there are tries left."""
    slot = (step.id.stage, step.id.rung, step.id.repeat)
    failures = turn.state.failures.get(slot, 0) + 1
    turn.set(failures={**turn.state.failures, slot: failures})
    again = failures <= max(1, stage_of(turn, step).retries) and error.code not in _FINAL_CODES
    reason = f"{_task_name(key)}: {error.message}"
    void(turn, step, reason, rerun=again)
    turn.set(cluster=Cluster())  # the agent that drives it has ended its part
    way_out = f" ({error.way_out})" if error.way_out else ""
    why = f"iteration {step.id} failed: {reason}{way_out}"
    if again:
        recheck(turn, step)
    elif error.code == disk_full.CODE and key in step.loads:
        disk_full.explain(turn, why)
    elif error.code == disk_full.CODE:
        disk_full.stop(turn, why)
    else:
        turn.end("failed", 4, why)


def _task_name(key: str) -> str:
    *_, what, host = key.split("/")
    return f"{what} on {host}"


def suspect(turn: Turn, step: Iterating, finished: IterationFinished) -> None:
    """Check the systems when an iteration was spoilt by errors or an outage: the server may be gone, and the next would be too."""
    out = any(not finding.ok and finding.check.startswith(OUTAGE) for finding in finished.findings)
    if out or disk_full.is_spoilt(finished):
        recheck(turn, step)


def recheck(turn: Turn, step: Iterating) -> None:
    """Have the provisioned systems under the iteration started again: a task that is answered at once when they run."""
    plan = turn.state.plan
    stage = stage_of(turn, step)
    if isinstance(stage, Tool):
        forget_parts(turn, stage)
        return
    target = stage.target
    names = {target, plan.system(target).propagates_to, *(s.name for s in plan.systems if s.propagates_to == target)}
    lost = {name for name in names if name and plan.system(name).provision}
    turn.set(
        endpoints={name: e for name, e in turn.state.endpoints.items() if name not in lost},
        linked=turn.state.linked - lost - {s.name for s in plan.systems if s.propagates_to in lost},
    )


def void(turn: Turn, step: Iterating, reason: str, *, rerun: bool) -> None:
    """Count the iteration for nothing and cancel what is left of it."""
    turn.emit(IterationVoided(id=step.id, reason=reason, rerun=rerun))
    turn.commands.append(Forget(id=step.id))
    turn.drain(reason)


def late(turn: Turn, step: Iterating) -> None:
    """The phase's deadline has passed without an answer."""
    waiting = {*step.loads, *step.captures} - set(step.ready if step.phase == "arming" else step.results)
    key = min(waiting, default="summary/coordinator")
    failed(turn, step, key, TaskError(code="timeout", message=f"no answer while {step.phase}"))


def abandon(turn: Turn, iteration: IterationId) -> None:
    """Count an iteration for nothing that an earlier coordinator had started and did not see the end of."""
    turn.emit(IterationVoided(id=iteration, reason="the coordinator was lost while it ran", rerun=True))

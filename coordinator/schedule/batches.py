"""Batches of tasks in waves: send each wave, process the answers, and record the results. Pure; called with a `Turn`.

A failed task ends the run with exit code 4, with two exceptions: a system that cannot be stopped is left to its agent,
and a failed comparison or check of invariants is a finding, unless a full disk caused it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

from proveout.coordinator.schedule import disk_full
from proveout.coordinator.schedule.conditions import SKIPPED
from proveout.coordinator.schedule.messages import KeepOutput
from proveout.coordinator.schedule.preflight.findings import of_failure, of_result, system_of
from proveout.coordinator.schedule.progress import RunProgress
from proveout.coordinator.schedule.state import Batch, Cluster, Purpose, Tuned, Turn
from proveout.coordinator.schedule.tasks import propagations, task_deadline_s, task_key, task_subject
from proveout.core.errors import Where
from proveout.dsl.operations.database import database_copy
from proveout.dsl.plan import iteration_order
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.positions import all_tunings, position
from proveout.dsl.plan.stages import Drop, Populate, Reset, Sql
from proveout.dsl.plan.topology import System
from proveout.dsl.rules.resets.removed_ddl import is_ddl
from proveout.proto.events import (
    FactsTaken,
    InvariantsSeen,
    PopulateFinished,
    PropagationCompared,
    SystemUp,
    TuningAct,
    TuningSeen,
    ValuesTaken,
)
from proveout.proto.wire.check_results import Checked, CheckFinding
from proveout.proto.wire.messages import AgentMessage, TaskDone, TaskFailed, TaskProgress, deadline_after_progress_s
from proveout.proto.wire.results import (
    CommandDone,
    Compared,
    FactsRead,
    InvariantsChecked,
    PoolFormed,
    Populated,
    SqlDone,
    SystemStarted,
    TaskError,
    TaskResult,
    TuningDone,
    TuningState,
)
from proveout.proto.wire.tasks import (
    ApplyTuning,
    CheckInvariants,
    CompareSystems,
    Endpoint,
    FormPool,
    InspectSystem,
    LinkSystems,
    PopulateSystem,
    ReadFacts,
    RevertTuning,
    RunCommand,
    RunSql,
    SnapshotSystem,
    StartSystem,
    StopSystem,
    Task,
    TaskSpec,
    VerifyTuning,
)


def batch(
    turn: Turn,
    purpose: Purpose,
    waves: Iterable[Iterable[tuple[str, TaskSpec]]],
    *,
    name: str = "",
    stage: str = "",
    iteration: str = "",
) -> None:
    """Begin a batch with its first wave; `name` is added to `State.parts_done` when the last wave has ended."""
    kept = tuple(w for w in (tuple(wave) for wave in waves) if w)
    next_wave(turn, Batch(purpose=purpose, name=name, stage=stage, iteration=iteration, waves=kept))


def next_wave(turn: Turn, step: Batch) -> None:
    """Send the tasks of a batch's next wave to their agents."""
    wave, *rest = step.waves
    state = turn.state
    issued = state.issued
    specs: dict[str, TaskSpec] = {}
    for host, spec in wave:
        issued += 1
        key = task_key(
            state.setup.run_id, (step.stage, 0, 0, f"{state.setup.epoch}.{issued}"), task_subject(spec), host
        )
        specs[key] = spec
        turn.assign(host, Task(key=key, spec=spec, deadline_s=task_deadline_s(spec, state.plan)))
    longest_s = max(task_deadline_s(spec, state.plan) for spec in specs.values())
    until_s = turn.at_s + longest_s + state.setup.timing.answer_grace_s
    spent_s = step.spent_s + (turn.at_s - step.began_s if step.specs else 0.0)
    begun = replace(step, waves=tuple(rest), pending=frozenset(specs), specs=specs, until_s=until_s)
    turn.set(issued=issued, step=replace(begun, began_s=turn.at_s, spent_s=spent_s))


def receive_answer(turn: Turn, step: Batch, message: AgentMessage) -> None:
    """Process an answer to one of the batch's tasks."""
    match message:
        case TaskDone(key=key, result=result) if key in step.pending:
            _task_done(turn, step, key, result)
            kept_rows = step.kept_rows + (result.kept_rows if isinstance(result, Populated) else 0)
            _step_on(turn, replace(step, pending=step.pending - {key}, kept_rows=kept_rows))
        case TaskFailed(key=key, error=error) if key in step.pending:
            if step.purpose == "preflight":
                _found(turn, step, key, (of_failure(step.specs[key], error),))
                _step_on(turn, replace(step, pending=step.pending - {key}))
                return
            place = _place(turn.state.plan, step, key, error)
            batch_failed(turn, step, key, error.message, error.way_out, code=error.code, place=place)
        case TaskProgress(key=key) if key in step.pending:
            allowed_s = deadline_after_progress_s(turn.at_s - step.began_s) + turn.state.setup.timing.answer_grace_s
            turn.set(step=replace(step, until_s=max(step.until_s, turn.at_s + allowed_s)))
        case _:
            pass


def _step_on(turn: Turn, step: Batch) -> None:
    if step.pending:
        turn.set(step=step)
    elif step.waves:
        next_wave(turn, step)
    else:
        done = {step.name} if step.name else set()
        turn.set(parts_done=turn.state.parts_done | done, step=None)


def _place(plan: Plan, step: Batch, key: str, error: TaskError) -> str:
    """Where the text is that a database refused, `file:line:col`; "" when the plan is not the cause."""
    spec = step.specs[key]
    if not error.subject or not isinstance(spec, RunSql):
        return ""
    return str(position(plan, f"stages.{step.stage}.{error.subject}", spec.endpoint.engine, error.line))


def batch_failed(
    turn: Turn, step: Batch, key: str, message: str, way_out: str, *, code: str = "", place: str = ""
) -> None:
    """Handle a task of the batch that failed or has passed its deadline. `place`: see `_place`."""
    *_, what, host = key.split("/")
    spec = step.specs[key]
    text = f"{what} on {host} failed: {message}" + (f" ({way_out})" if way_out else "")
    if place:
        turn.end("failed", 2, f"{place}: stage {step.stage}: {text}")
        return
    if isinstance(spec, RunSql | RunCommand | StartSystem) and step.stage:
        text = f"{turn.state.plan.stage(step.stage).where}: stage {step.stage}: {text}"
    full = code == disk_full.CODE or bool(turn.state.full)
    if full and turn.state.ending is None and step.purpose == "start":
        disk_full.stop(turn, text)
    elif code == disk_full.CODE and turn.state.ending is None:
        turn.drain(text)
        disk_full.explain(turn, text)
    elif step.purpose == "look" or (isinstance(spec, (StopSystem, RevertTuning)) and step.purpose == "stop"):
        turn.notice("warning", text, host)
        _step_on(turn, replace(step, pending=step.pending - {key}))
    elif step.purpose == "facts":
        turn.notice("warning", f"facts cannot be read: {text}", host)
        _step_on(turn, replace(step, pending=step.pending - {key}))
    elif isinstance(spec, CompareSystems):
        turn.notice("error", text, host)
        _compared(turn, spec, Compared(tables=(), drained=False, drain_s=0.0))
        _step_on(turn, replace(step, pending=step.pending - {key}))
    elif isinstance(spec, CheckInvariants):
        turn.notice("error", text, host)
        _invariants(turn, step, spec, InvariantsChecked(checks=(), seconds=0.0))
        _step_on(turn, replace(step, pending=step.pending - {key}))
    else:
        turn.end("failed", 4, text)


def _task_done(turn: Turn, step: Batch, key: str, result: TaskResult) -> None:  # noqa: PLR0912 - one arm per kind of task
    """Record the result of a task."""
    spec, host = step.specs[key], key.rpartition("/")[2]
    match spec, result:
        case StartSystem(system=system), SystemStarted():
            _started(turn, system, result)
        case (ReadFacts(), FactsRead()) | (InspectSystem(), SystemStarted()) if step.purpose == "facts":
            _facts_taken(turn, step, spec, host, result)
        case InspectSystem(endpoint=endpoint), SystemStarted():
            up = replace(endpoint, version=result.endpoint.version)
            _up(turn, turn.state.plan.system(endpoint.system), up, result)
        case PopulateSystem(), Populated():
            _populated(turn, step, spec, host, result)
        case FormPool(), PoolFormed(address=address):
            hosts = turn.state.cluster.hosts
            turn.set(cluster=Cluster(address=address, hosts=(*hosts, host)))
        case LinkSystems(source=source), _:
            turn.set(linked=turn.state.linked | {source.system})
        case SnapshotSystem(system=system), _:
            _moved(turn, system, result)
        case StopSystem(system=name), _:
            left = {n: e for n, e in turn.state.endpoints.items() if n != name}
            turn.set(endpoints=left, started=turn.state.started - {name})
            _unlinked(turn, name)
        case CompareSystems(), Compared():
            _compared(turn, spec, result)
        case CheckInvariants(), InvariantsChecked():
            _invariants(turn, step, spec, result)
        case ApplyTuning(check=True), TuningDone():
            _found(turn, step, key, of_result(spec, result))
        case ApplyTuning() | VerifyTuning() | RevertTuning(), TuningDone():
            _tuned(turn, step, spec, host, result)
        case _, Checked():
            _found(turn, step, key, of_result(spec, result))
        case _, SqlDone():
            turn.set(rows=turn.state.rows + sum(result.counts))
            _values_taken(turn, step.stage, result)
        case _, CommandDone():
            _command_done(turn, step.stage, host, result)
        case _:
            pass


def tuning_place(plan: Plan, state: TuningState) -> Where:
    """The position of a text of a tuning that a database refused."""
    system = next((one.system for one in all_tunings(plan) if one.name == state.name), "")
    engine = plan.system(system).engine if system else ""
    return position(plan, f"tuning.{state.name}.{state.subject}", engine, state.line)


def _found(turn: Turn, step: Batch, key: str, findings: Iterable[CheckFinding]) -> None:
    """Add the findings of a preflight check."""
    host, system = key.rpartition("/")[2], system_of(step.specs[key])
    turn.set(found=(*turn.state.found, *((host, system, finding) for finding in findings)))


def _populated(turn: Turn, step: Batch, spec: PopulateSystem, host: str, result: Populated) -> None:
    """Record a population after its last step; the time is that of all steps, on all hosts."""
    system = spec.endpoint.system
    if result.kept_rows:
        turn.notice("info", f"populate of {system} continues: {result.kept_rows:,} rows are there already", host)
    if "finish" in spec.steps:
        whole = "prepare" in spec.steps
        seconds = result.seconds if whole else step.spent_s + turn.at_s - step.began_s
        populated = replace(result, seconds=seconds, kept_rows=step.kept_rows + result.kept_rows)
        turn.emit(PopulateFinished(stage=step.stage, system=system, populated=populated))


def _values_taken(turn: Turn, stage_id: str, result: SqlDone) -> None:
    """Record the numbers of a repeat of an sql stage; not those of one that makes lost data again."""
    stage = turn.state.plan.stage(stage_id)
    if stage_id in turn.state.redo or not isinstance(stage, Sql):
        return
    values = {"elapsed_s": result.elapsed_s} | dict(result.values)
    if stage.wait_until.query:
        values["wait_s"] = result.wait_s
    turn.emit(ValuesTaken(stage=stage_id, repeat=turn.state.progress.values.get(stage_id, 0) + 1, values=values))


def _command_done(turn: Turn, stage_id: str, host: str, result: CommandDone) -> None:
    """Record the numbers of a repeat of a command stage, and keep its output."""
    repeat = turn.state.progress.values.get(stage_id, 0) + 1
    turn.commands.append(KeepOutput(name=f"{stage_id}-{repeat}-{host}.txt", text=result.output))
    values = {"elapsed_s": result.elapsed_s} | dict(result.values)
    turn.emit(ValuesTaken(stage=stage_id, repeat=repeat, values=values))


def _started(turn: Turn, system: System, result: SystemStarted) -> None:
    _inspect_followers(turn, system)
    if result.note:
        turn.notice("info", f"{system.name}: {result.note}", system.host)
    if result.superseded_by:
        text = f"{result.superseded_by} was promoted in place of {system.name}, which takes its data now"
        turn.notice("info", text, system.host)
        turn.set(promoted=(*turn.state.promoted, result.superseded_by))
        return
    known = system.name in turn.state.started
    _up(turn, system, result.endpoint, result)
    _unlinked(turn, system.name)
    turn.set(started=turn.state.started | {system.name})
    if known or not result.fresh:  # a running system answers a repeated start like the first
        return
    turn.set(pristine=turn.state.pristine | {system.name})
    if any(name == system.name for _, name in turn.state.progress.populated):
        _redo(turn, system.name)


def _inspect_followers(turn: Turn, primary: System) -> None:
    """Have the standbys of a primary that was started or restored brought level with it, and a PgBouncer in front of it
    run: each start of one does."""
    names = {one.name for one in turn.state.plan.followers_of(primary.name)}
    if names:
        turn.set(endpoints={name: end for name, end in turn.state.endpoints.items() if name not in names})


def _redo(turn: Turn, system: str) -> None:
    """Run the stages that made a system's data again, because the system was populated before and has started empty."""
    state = turn.state
    due = [stage.id for stage in _made_by(state.plan, state.progress, system)]
    order = [s.id for s in state.plan.stages]
    turn.set(redo=tuple(sorted({*state.redo, *due}, key=order.index)))
    if due:
        turn.notice("warning", f"the data of {system} is lost; it is populated again ({', '.join(due)})")


def _made_by(plan: Plan, progress: RunProgress, system: str) -> list[Populate | Sql]:
    """The stages that have ended and that a system's data is from: not a populate whose tables were dropped, nor the
    statements between the two."""
    made: list[Populate | Sql] = []
    for stage in plan.stages:
        ended = progress.stages_finished.get(stage.id)
        if ended is None or ended.outcome == SKIPPED:
            continue
        match stage:
            case Populate(into=into) if system in into:
                made.append(stage)
            case Sql(system=name) if name == system:
                made.append(stage)
            case Drop(systems=systems, workload=workload) if system in systems:
                loads = [n for n, one in enumerate(made) if isinstance(one, Populate) and one.workload == workload]
                made = made[: loads[-1]] if loads else made
    return made


def _copied(turn: Turn, system: str) -> None:
    """Run again what has changed a system since it was copied: after a resume, or the loss of its agent, a copy is made
    of the original."""
    state = turn.state
    due: list[Sql] = []
    for stage in state.plan.stages:
        ended = state.progress.stages_finished.get(stage.id)
        if ended is None or ended.outcome == SKIPPED or iteration_order.ladder_of_step(state.plan, stage) is not None:
            continue
        match stage:
            case Populate(into=into) if system in into:
                due = []
            case Sql(system=name, statements=statements) if name == system and statements:
                due.append(stage)
            case Reset(systems=systems, restore=True, keep=keep) if system in systems:
                due = [one for one in due if keep and all(map(is_ddl, one.statements))]
            case _:
                pass
    order = [one.id for one in state.plan.stages]
    names = [one.id for one in due]
    turn.set(redo=tuple(sorted({*state.redo, *names}, key=order.index)))
    if due:
        turn.notice(
            "warning", f"{system} is copied again, and what had changed its copy runs again ({', '.join(names)})"
        )


def _up(turn: Turn, system: System, endpoint: Endpoint, result: SystemStarted) -> None:
    turn.set(endpoints={**turn.state.endpoints, system.name: endpoint})
    up = SystemUp(
        system=system.name,
        host=system.host,
        engine=system.engine,
        version=endpoint.version,
        provisioned=system.provision is not None,
        settings=dict(result.settings),
    )
    earlier = [e for e in turn.state.progress.history if isinstance(e, SystemUp) and e.system == system.name]
    if system.name not in turn.state.started or earlier[-1:] != [up]:
        turn.emit(up)


def _moved(turn: Turn, system: System, result: TaskResult) -> None:
    """Record the new endpoint after a snapshot, which restarts the system; its propagation has to be renewed."""
    if isinstance(result, SystemStarted):
        turn.set(endpoints={**turn.state.endpoints, system.name: result.endpoint})
    _unlinked(turn, system.name)
    _inspect_followers(turn, system)


def _unlinked(turn: Turn, name: str) -> None:
    touched = {name, *(source.name for source, sink in propagations(turn.state.plan) if sink.name == name)}
    turn.set(linked=turn.state.linked - touched)


def _compared(turn: Turn, spec: CompareSystems, result: Compared) -> None:
    turn.emit(
        PropagationCompared(
            source=spec.source.system,
            sink=spec.sink.system,
            drained=result.drained,
            drain_s=result.drain_s,
            tables=result.tables,
        )
    )


_TIMES: Mapping[str, Literal["before", "start", "stage", "end"]] = {
    "before": "before",
    "start": "start",
    "stage": "stage",
    "end": "end",
}


def _facts_taken(turn: Turn, step: Batch, spec: TaskSpec, host: str, result: TaskResult) -> None:
    """Record a part of the fingerprint; the batch's name contains the time of the run that it belongs to."""
    when = _TIMES[step.name.split(":")[1]]
    if isinstance(result, FactsRead):
        turn.emit(FactsTaken(when=when, host=host, facts=dict(result.facts)))
    elif isinstance(result, SystemStarted) and isinstance(spec, InspectSystem):
        facts = {"engine": spec.endpoint.engine, "version": result.endpoint.version, **dict(result.settings)}
        facts |= dict(result.schema)
        stage = step.stage if when == "stage" else ""
        turn.emit(FactsTaken(when=when, host=host, system=spec.endpoint.system, stage=stage, facts=facts))


_BAD = {
    "refused": "is refused",
    "failed": "failed",
    "needs_restart": "is stored but not in effect",
    "residue": "is left behind",
}


def _tuned(turn: Turn, step: Batch, spec: TaskSpec, host: str, result: TuningDone) -> None:
    """Record the results of a host's tuning operations. An operation that is not in effect ends the run."""
    act: TuningAct = "apply"
    if not isinstance(spec, ApplyTuning):
        act = "look" if isinstance(spec, VerifyTuning) else "revert"
    if result.states:
        turn.emit(TuningSeen(host=host, act=act, stage=step.stage, states=result.states, seconds=result.seconds))
    bad = [state for state in result.states if state.outcome in _BAD]
    for state in (*bad, *(state for state in result.states if state.outcome == "drifted")):
        problem = _BAD.get(state.outcome, "was changed by another process since")
        level: Literal["warning", "error"] = "warning" if state.outcome == "drifted" else "error"
        place = f"{tuning_place(turn.state.plan, state)}: " if state.subject else ""
        turn.notice(level, f"{place}tuning {state.name!r} {problem}: {'; '.join(state.lines)}", host)
    if isinstance(spec, ApplyTuning):
        done = Tuned(host=host, stage=step.stage, systems=any(tuning.system for tuning in spec.tunings))
        turn.set(
            tuned=turn.state.tuned | {done}, looked=max(turn.state.looked, len(turn.state.progress.stages_finished))
        )
        for tuning in () if bad else spec.tunings:
            if tuning.operation == database_copy.NAME:
                _copied(turn, tuning.system)
    if bad and turn.state.ending is None and step.purpose == "tune":
        did = "tuned" if act == "apply" else "set back"
        why = f"{host} could not be {did}: {bad[0].name!r} {_BAD[bad[0].outcome]}"
        wrong = next((state for state in bad if state.subject), None)
        if wrong is None:
            turn.end("failed", 4, why)
        else:
            where = tuning_place(turn.state.plan, wrong)
            turn.end("failed", 2, f"{where}: {why}: {'; '.join(wrong.lines)}")


def _invariants(turn: Turn, step: Batch, spec: CheckInvariants, result: InvariantsChecked) -> None:
    turn.emit(
        InvariantsSeen(
            stage=step.stage,
            iteration=step.iteration,
            system=spec.endpoint.system,
            checks=result.checks,
            seconds=result.seconds,
            tallies=dict(result.tallies),
        )
    )
    for check in result.checks:
        if not check.holds:  # at once, because the verdict may be hours away
            after = step.iteration or step.stage
            turn.notice("error", f"{spec.endpoint.system} after {after}: {check.name}: {check.evidence}")

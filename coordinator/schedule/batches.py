"""Batches of tasks in waves: send each wave, process the answers, record the results, skip stages by conditions.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal, cast

from proveout.coordinator.schedule.state import (
    SKIPPED,
    Batch,
    Cluster,
    KeepOutput,
    Purpose,
    RunProgress,
    Tuned,
    Turn,
    Unresolved,
)
from proveout.coordinator.schedule.tasks import propagations, task_deadline_s, task_key
from proveout.core.data_classes import record
from proveout.core.errors import NOWHERE, Where
from proveout.dsl.compile.stage_rules import NEVER
from proveout.dsl.operations import sql
from proveout.dsl.plan import iteration_order
from proveout.dsl.plan.plan import Plan, all_tunings, position
from proveout.dsl.plan.stages import Drop, Populate, Reboot, Reset, Sql, Stage
from proveout.dsl.plan.topology import System
from proveout.dsl.rules.resets import is_ddl
from proveout.proto.events import (
    FactsTaken,
    InvariantsSeen,
    IterationFinished,
    IterationVoided,
    PopulateFinished,
    PropagationCompared,
    RunStarted,
    SearchFinished,
    StageFinished,
    SystemUp,
    TuningAct,
    TuningSeen,
    ValuesTaken,
)
from proveout.proto.wire.messages import AgentMessage, TaskDone, TaskFailed, TaskProgress, deadline_after_progress_s
from proveout.proto.wire.results import (
    PLAN_FINDINGS,
    Checked,
    CheckFinding,
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
    CheckSystem,
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


def skip_stage(turn: Turn, stage: Stage) -> bool:
    """End the stage before it begins, when it is due, with a notice of the reason; False when it has to run."""
    reason, level = _reason(turn, stage)
    if not reason:
        return False
    turn.notice("warning" if level else "info", f"stage {stage.id} is skipped: {reason}")
    turn.emit(StageFinished(stage=stage.id, outcome="skipped", seconds=0.0))
    emit_provisional_verdicts(turn, stage)
    return True


def _reason(turn: Turn, stage: Stage) -> tuple[str, bool]:
    """(the reason for the skip or "", whether it is a warning)."""
    condition = turn.state.plan.condition(stage.id)
    if condition is None or stage.id in turn.state.progress.folded.stages:
        return "", False
    for needed in condition.needs:
        ended = turn.state.progress.finished(needed)
        if ended is None or ended.outcome != "ok":
            was = ended.outcome if ended is not None else "not run"
            return f"it needs {needed}, which was {was}", was != SKIPPED
    if condition.when is None:
        return "", False
    if condition.when.text == NEVER:
        return "its condition does not hold with these parameters", False
    held = turn.evaluator.condition(condition.when, turn.state.progress)
    if isinstance(held, Unresolved):
        return f"its condition cannot be evaluated: {held.reason}", True
    return ("", False) if held.holds else (held.evidence, False)


def emit_provisional_verdicts(turn: Turn, stage: Stage) -> None:
    """Emit the provisional verdicts that have changed with the end of a stage, unless it is the last and the final ones
    follow."""
    progress = turn.state.progress
    if all(progress.finished(stage.id) for stage in turn.state.plan.stages):
        return
    for verdict in turn.evaluator.provisional_verdicts(progress, stage.id):
        if progress.foreseen.get(verdict.id) != verdict:
            turn.emit(verdict)


PLAN_WRONG, INFRASTRUCTURE_FAILED = 2, 4


@record
class Problem:
    """A finding with its place: `hosts` are those of which the agents have it, `system` is "" for one of a host."""

    where: Where
    hosts: tuple[str, ...]
    system: str
    finding: CheckFinding

    @property
    def is_error(self) -> bool:
        """Whether the run does not begin."""
        return not self.finding.warns

    def line(self) -> str:
        """All of it on one line, but for the hosts: `file:line:col: system db: what (way out)`."""
        place = f"{self.where}: " if self.where != NOWHERE else ""
        way_out = f" ({self.finding.way_out})" if self.finding.way_out else ""
        return f"{place}{self.text()}{way_out}"

    def text(self) -> str:
        """The message, with the system."""
        named = not self.system or self.system in self.finding.message
        return self.finding.message if named else f"system {self.system}: {self.finding.message}"


def of_tuning(state: TuningState, words: str) -> CheckFinding:
    """The finding of a tuning that an agent refuses."""
    return CheckFinding(code="tuning", subject=f"tuning.{state.name}", message=f"{words}: {'; '.join(state.lines)}")


def of_failure(spec: TaskSpec, error: TaskError) -> CheckFinding:
    """The finding of a check that has failed: its system does not answer, or its agent cannot do it."""
    subject = f"systems.{spec.endpoint.system}" if isinstance(spec, CheckSystem) else ""
    code = "unreachable" if error.code == "unreachable" else "missing"
    if isinstance(spec, ApplyTuning):
        code, subject = "tuning", f"tuning.{spec.tunings[0].name}" if spec.tunings else ""
    return CheckFinding(code=code, subject=subject, message=error.message, way_out=error.way_out)


def system_of(spec: TaskSpec) -> str:
    """The system of a check; "" for a host."""
    return spec.endpoint.system if isinstance(spec, CheckSystem) else ""


def problems(plan: Plan, found: Iterable[tuple[str, str, CheckFinding]]) -> tuple[Problem, ...]:
    """The findings of (host, system) in the order of the plan, each once for all hosts that have it."""
    together: dict[tuple[str, CheckFinding], list[str]] = {}
    for host, system, answer in found:
        finding = _in_words_of(plan, system, answer)
        hosts = together.setdefault((system, finding), [])
        if host not in hosts:
            hosts.append(host)
    once: dict[tuple[Where, str, tuple[str, ...]], Problem] = {}
    for (system, finding), hosts in together.items():
        where = _where(plan, system, finding, hosts[0])
        one = Problem(where=where, hosts=tuple(hosts), system=system, finding=finding)
        once.setdefault((where, one.text(), one.hosts), one)  # several loads may have the same
    return tuple(sorted(once.values(), key=lambda one: (one.where.file, one.where.line, one.where.column)))


def _in_words_of(plan: Plan, system: str, finding: CheckFinding) -> CheckFinding:
    """A finding with what its agent does not know: the places of the secrets of a failed login, and the parameter that
    gives a ladder its rungs."""
    names: list[str] = []
    if finding.code == "login" and system:
        dsn = plan.system(system).dsn or ""
        names = [f"its secret is from {one.reference}" for one in plan.secrets if f"${{secrets.{one.name}}}" in dsn]
    if finding.code == "connections":
        rungs = next((getattr(one, "threads", ()) for one in plan.stages if finding.subject == f"stages.{one.id}"), ())
        names = [f"the rungs are -p {one.name}=…" for one in plan.parameters if rungs and one.value == rungs]
    if not names or not finding.way_out or finding.way_out.endswith("."):
        return finding
    return replace(finding, way_out="; ".join((finding.way_out, *names)))


def _where(plan: Plan, system: str, finding: CheckFinding, host: str) -> Where:
    engine = plan.system(system).engine if system else ""
    where = position(plan, finding.subject, engine, finding.line)
    if where == NOWHERE and ".session." in finding.subject and system:
        where = position(plan, f"systems.{system}", engine)
    return where if where != NOWHERE else position(plan, f"hosts.{host}")


def exit_code(found: Iterable[Problem]) -> int:
    """2 where the plan is the cause of an error, so that another attempt cannot help; else 4; 0 without errors."""
    codes = {one.finding.code for one in found if one.is_error}
    if not codes:
        return 0
    return PLAN_WRONG if codes & PLAN_FINDINGS else INFRASTRUCTURE_FAILED


CODE = "disk_full"
SPOILT_BY = frozenset({"load", "errors"})
"""Findings caused by a database that is down or has a full disk."""


def is_spoilt(finished: IterationFinished) -> bool:
    """Whether errors of the database spoilt an iteration."""
    return any(not finding.ok and finding.check in SPOILT_BY for finding in finished.findings)


def stop(turn: Turn, reason: str) -> None:
    """End the run; void the spoilt iterations that ended directly before, in this coordinator process."""
    if turn.state.ending is not None:
        return
    if turn.state.full not in reason:
        reason = f"{turn.state.full}; {reason}"
    for finished in _spoilt(turn):
        turn.emit(IterationVoided(id=finished.id, reason=reason, rerun=False))
    turn.set(full="")
    turn.end("failed", 4, reason)


def explain(turn: Turn, why: str) -> None:
    """Have the agents of provisioned systems report their free space before the run stops: each receives its start task
    again."""
    provisioned = {system.name for system in turn.state.plan.systems if system.provision}
    left = {name: endpoint for name, endpoint in turn.state.endpoints.items() if name not in provisioned}
    turn.set(full=why, endpoints=left)


def stop_if_full(turn: Turn) -> bool:
    """End the run when a client reported a full disk and the agents of the databases reported none."""
    if not turn.state.full:
        return False
    stop(turn, turn.state.full)
    return True


def _spoilt(turn: Turn) -> list[IterationFinished]:
    """The newest iterations back to the last that was not spoilt, of stages that have not ended: the others are not run
    again."""
    kept = {finished.id for finished in turn.state.progress.iterations}
    found: list[IterationFinished] = []
    for event in reversed(turn.state.progress.history):
        ends = isinstance(event, RunStarted | SearchFinished | StageFinished)
        if ends or (isinstance(event, IterationFinished) and not is_spoilt(event)):
            break
        if isinstance(event, IterationFinished) and event.id in kept:
            found.append(event)
    return found


# A failed task ends the run with exit code 4, with two exceptions: a system that cannot be stopped is left to its
# agent, and a failed comparison or check of invariants is a finding, unless a full disk caused it.


def batch(
    turn: Turn,
    waves: Iterable[Iterable[tuple[str, TaskSpec]]],
    purpose: Purpose = "work",
    *,
    name: str = "",
    stage: str = "",
    iteration: str = "",
) -> bool:
    """Begin a batch with its first wave; `name` is added to `State.parts_done` when the last wave has ended. False when
    it is there already, or no wave has a task."""
    kept = () if name in turn.state.parts_done else tuple(w for w in map(tuple, waves) if w)
    if not kept:
        return False
    next_wave(turn, Batch(purpose=purpose, name=name, stage=stage, iteration=iteration, waves=kept))
    return True


def part_of(stage: Stage, name: str) -> str:
    """The name of a stage's part in `State.parts_done`."""
    return f"{stage.id}:{name}"


def forget_parts(turn: Turn, stage: Stage) -> None:
    """Forget the finished parts of a stage, so that it begins with its first part again."""
    turn.set(parts_done=frozenset(p for p in turn.state.parts_done if not p.startswith(f"{stage.id}:")))


def next_task(turn: Turn, stage: Stage, parts: Iterable[tuple[str, str, TaskSpec]]) -> bool:
    """Begin the first part, (name, host, task), that is not done; False when all are."""
    return any(batch(turn, [[(host, spec)]], name=part_of(stage, name), stage=stage.id) for name, host, spec in parts)


def next_wave(turn: Turn, step: Batch) -> None:
    """Send the tasks of a batch's next wave to their agents."""
    wave, *rest = step.waves
    state = turn.state
    issued = state.issued
    specs: dict[str, TaskSpec] = {}
    for host, spec in wave:
        issued += 1
        key = task_key(state.setup.run_id, (step.stage, 0, 0, f"{state.setup.epoch}.{issued}"), spec.subject, host)
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
            _step_on(turn, replace(step, kept_rows=kept_rows), key)
        case TaskFailed(key=key, error=error) if key in step.pending and step.purpose == "preflight":
            _found(turn, step, key, (of_failure(step.specs[key], error),))
            _step_on(turn, step, key)
        case TaskFailed(key=key, error=error) if key in step.pending:
            batch_failed(turn, step, key, error)
        case TaskProgress(key=key) if key in step.pending:
            allowed_s = deadline_after_progress_s(turn.at_s - step.began_s) + turn.state.setup.timing.answer_grace_s
            turn.set(step=replace(step, until_s=max(step.until_s, turn.at_s + allowed_s)))
        case _:
            pass


def receive_late(turn: Turn, key: str, result: TaskResult) -> None:
    """Record what the statements or the program of a batch that was given up have done: they must not run again; a
    system that was started without data, and how a host was changed: the next answer does not say it."""
    _, stage, *_, what, host = key.split("/")
    kind, _, name = what.partition(":")
    if kind == "start" and isinstance(result, SystemStarted) and result.fresh:
        _started(turn, turn.state.plan.system(name), result)
    elif what == "tune" and isinstance(result, TuningDone):
        of = "" if stage == "-" else stage
        turn.emit(TuningSeen(host=host, act="apply", stage=of, states=result.states, seconds=result.seconds))
    elif isinstance(result, SqlDone | CommandDone) and stage != "-":  # such a task belongs to no stage
        _values_taken(turn, stage, host, result)


def _step_on(turn: Turn, step: Batch, key: str) -> None:
    """Go on without a task that has ended."""
    step = replace(step, pending=step.pending - {key})
    if step.pending:
        turn.set(step=step)
    elif step.waves:
        next_wave(turn, step)
    else:
        done = {step.name} if step.name else set()
        turn.set(parts_done=turn.state.parts_done | done, step=None)


def batch_failed(turn: Turn, step: Batch, key: str, error: TaskError) -> None:
    """Handle a task of the batch that failed or has passed its deadline."""
    *_, what, host = key.split("/")
    spec, state = step.specs[key], turn.state
    text = f"{what} on {host} failed: {error.message}" + (f" ({error.way_out})" if error.way_out else "")
    if error.subject and isinstance(spec, RunSql):
        place = position(state.plan, f"stages.{step.stage}.{error.subject}", spec.endpoint.engine, error.line)
        turn.end("failed", 2, f"{place}: stage {step.stage}: {text}")
        return
    if isinstance(spec, RunSql | RunCommand | StartSystem) and step.stage:
        text = f"{state.plan.stage(step.stage).where}: stage {step.stage}: {text}"
    match step.purpose, spec:
        case "start", _ if state.ending is None and (error.code == CODE or state.full):
            stop(turn, text)
            return
        case _ if state.ending is None and error.code == CODE:
            turn.drain(text)
            explain(turn, text)
            return
        case (_, VerifyTuning()) | ("stop", StopSystem() | RevertTuning()):
            turn.notice("warning", text, host)
        case "facts", _:
            turn.notice("warning", f"facts cannot be read: {text}", host)
        case _, CompareSystems():
            turn.notice("error", text, host)
            _compared(turn, spec, Compared(tables=(), drained=False, drain_s=0.0))
        case _, CheckInvariants():
            turn.notice("error", text, host)
            _invariants(turn, step, spec, InvariantsChecked(checks=(), seconds=0.0))
        case _:
            turn.end("failed", 4, text)
            return
    _step_on(turn, step, key)


def _task_done(turn: Turn, step: Batch, key: str, result: TaskResult) -> None:  # noqa: PLR0912 - one arm per kind of task
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
        case StopSystem(system=name, remove=remove), _:
            left = {n: e for n, e in turn.state.endpoints.items() if n != name}
            pristine = turn.state.pristine | ({name} if remove else set())
            turn.set(endpoints=left, started=turn.state.started - {name}, pristine=pristine)
            _unlinked(turn, name)
        case CompareSystems(), Compared():
            _compared(turn, spec, result)
        case CheckInvariants(), InvariantsChecked():
            _invariants(turn, step, spec, result)
        case ApplyTuning(check=True), TuningDone(states=states):
            refused = (one for one in states if one.outcome in ("refused", "failed"))
            _found(turn, step, key, (of_tuning(one, f"tuning {one.name}") for one in refused))
        case ApplyTuning() | VerifyTuning() | RevertTuning(), TuningDone():
            _tuned(turn, step, spec, host, result)
        case _, Checked(findings=findings):
            _found(turn, step, key, findings)
        case RunSql() | RunCommand(), SqlDone() | CommandDone():
            _values_taken(turn, step.stage, host, result)
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


def _values_taken(turn: Turn, stage_id: str, host: str, result: SqlDone | CommandDone) -> None:
    """Record the numbers of a repeat of an sql stage, not those of one that makes lost data again; or of a command
    stage, whose output is kept."""
    stage, rows = turn.state.plan.stage(stage_id), 0
    values = {"elapsed_s": result.elapsed_s} | dict(result.values)
    repeat = turn.state.progress.taken_values(stage_id) + 1
    if isinstance(result, CommandDone):
        turn.commands.append(KeepOutput(name=f"{stage_id}-{repeat}-{host}.txt", text=result.output))
    elif stage_id in turn.state.redo or not isinstance(stage, Sql):
        return
    else:
        rows = sum(result.counts)
        values |= {"wait_s": result.wait_s} if stage.wait_until.query else {}
    turn.emit(ValuesTaken(stage=stage_id, repeat=repeat, values=values, rows=rows))


def _started(turn: Turn, system: System, result: SystemStarted) -> None:
    _inspect_followers(turn, system)
    if result.note:
        turn.notice("info", f"{system.name}: {result.note}", system.host)
    if result.superseded_by:
        text = f"{result.superseded_by} was promoted in place of {system.name}, which takes its data now"
        turn.notice("info", text, system.host)
        turn.set(promoted=(*turn.state.promoted, result.superseded_by))
        return
    state, known = turn.state, system.name in turn.state.started
    again = result.fresh and not known
    wiped = system.name in state.pristine and not state.redo  # by a populate, which replaces its data
    left = state.progress.is_emptied(system.name)
    made = _made_by(state.plan, state.progress, system.name)
    lost = bool(made) and ((again and not wiped) or (left and not state.redo))  # the latter by an earlier process
    _up(turn, system, result.endpoint, result, emptied=lost or left)
    _unlinked(turn, system.name)
    turn.set(started=turn.state.started | {system.name})
    if again:
        turn.set(pristine=turn.state.pristine | {system.name})
    if lost:
        _redo(turn, made, f"the data of {system.name} is lost; it is made again")


def _inspect_followers(turn: Turn, primary: System) -> None:
    """Have the standbys of a primary that was started or restored brought level with it, and a PgBouncer in front of it
    run: each start of one does."""
    names = {one.name for one in turn.state.plan.followers_of(primary.name)}
    if names:
        turn.set(endpoints={name: end for name, end in turn.state.endpoints.items() if name not in names})


def _redo(turn: Turn, due: Iterable[Stage], reason: str) -> None:
    """Run stages that have ended again."""
    order = [one.id for one in turn.state.plan.stages]
    if names := [one.id for one in due]:
        turn.set(redo=tuple(sorted({*turn.state.redo, *names}, key=order.index)))
        turn.notice("warning", f"{reason} ({', '.join(names)})")


def _made_by(plan: Plan, progress: RunProgress, system: str) -> list[Populate | Sql]:
    """The stages that a system's data is from, those that have ended and statements that have run a part of their
    repeats: not a populate whose tables were dropped, nor the statements between the two."""
    made: list[Populate | Sql] = []
    for stage in plan.stages:
        begun = progress.taken_values(stage.id) and iteration_order.ladder_of_step(plan, stage) is None
        if not (progress.has_run(stage.id) or begun):
            continue
        match stage:
            case Populate(into=into) if system in into:
                made.append(stage)
            case Sql(system=name, statements=statements) if name == system and statements:
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
        if not state.progress.has_run(stage.id) or iteration_order.ladder_of_step(state.plan, stage) is not None:
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
    _redo(turn, due, f"{system} is copied again, and what had changed its copy runs again")


def _up(turn: Turn, system: System, endpoint: Endpoint, result: SystemStarted, *, emptied: bool = False) -> None:
    turn.set(endpoints={**turn.state.endpoints, system.name: endpoint})
    up = SystemUp(
        system=system.name,
        host=system.host,
        engine=system.engine,
        version=endpoint.version,
        provisioned=system.provision is not None,
        settings=dict(result.settings),
        emptied=emptied,
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


def _facts_taken(turn: Turn, step: Batch, spec: TaskSpec, host: str, result: TaskResult) -> None:
    """Record a part of the fingerprint; the batch's name contains the time of the run that it belongs to."""
    when = cast(Literal["before", "start", "stage", "end"], step.name.split(":")[1])
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
    """Record the results of a host's tuning operations. An operation that is not in effect ends the run,
    unless it needs a restart, and a stage reboots the host."""
    act: TuningAct = "apply"
    if not isinstance(spec, ApplyTuning):
        act = "look" if isinstance(spec, VerifyTuning) else "revert"
    if result.states:
        turn.emit(TuningSeen(host=host, act=act, stage=step.stage, states=result.states, seconds=result.seconds))
    stages, ended = turn.state.plan.stages, turn.state.progress.stages_finished
    reboots = any(isinstance(one, Reboot) and host in one.hosts and one.id not in ended for one in stages)
    bad = [one for one in result.states if one.outcome in _BAD and not (reboots and one.outcome == "needs_restart")]
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
            if tuning.operation == sql.NAME:
                _copied(turn, tuning.system)
    if bad and turn.state.ending is None and act != "look":
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
            kind=spec.workload.kind,
        )
    )
    for check in result.checks:
        if not check.holds:  # at once, because the verdict may be hours away
            after = step.iteration or step.stage
            turn.notice("error", f"{spec.endpoint.system} after {after}: {check.name}: {check.evidence}")

"""What comes next, from what has been established: agents, systems, data, propagation, stages in order, verdicts, the end.

Pure. The scheduler calls `settle` whenever nothing is under way; each call of `decide` either begins a step that has to be
waited for, or establishes a fact, or ends the run. It looks at facts, not at a position in a script: after a crash or the
loss of an agent whatever is missing is simply made again, and what is finished is not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from proveout.coordinator import dag, ending, iteration
from proveout.coordinator.facts import Facts
from proveout.coordinator.state import Batch, Dial, Dialling, ProbeDue, Purpose, Turn, Unresolved, Waiting
from proveout.dsl.plan import Expression, Ladder, Open, Pause, Plan, Populate, Reset, Search, Sql, Stage, System
from proveout.proto.events import IterationFinished, IterationId, LadderCut, StageFinished, StageStarted
from proveout.proto.messages import (
    Checkpoint,
    CompareSystems,
    InspectSystem,
    LinkSystems,
    PopulateSystem,
    RunSql,
    SnapshotSystem,
    StartSystem,
    StopSystem,
    Task,
    TaskSpec,
)

_STEPS_MAX = 100_000


def settle(turn: Turn) -> None:
    """Decide until something has to be waited for or the run is over."""
    for _ in range(_STEPS_MAX):
        if turn.state.step is not None or turn.state.over:
            return
        decide(turn)
    raise AssertionError("the scheduler decides without end")


def decide(turn: Turn) -> None:
    """One decision."""
    state = turn.state
    if state.ending is not None:
        ending.conclude(turn)
    elif state.facts.open_iteration is not None:
        iteration.abandon(turn, state.facts.open_iteration)
    elif not _work_remains(state.plan, state.facts):
        ending.judge(turn)
    elif not (_agents(turn) or _systems(turn) or _data(turn) or _links(turn)):
        stage = next((s for s in state.plan.stages if s.id not in state.facts.stages_finished), None)
        if stage is None:
            _compare(turn)
        else:
            _stage(turn, stage)


def _work_remains(plan: Plan, facts: Facts) -> bool:
    if any(s.id not in facts.stages_finished for s in plan.stages):
        return True
    return any(source.name not in facts.compared for source in _carried(plan, facts))


def _carried(plan: Plan, facts: Facts) -> list[System]:
    populated = {system for _, system in facts.populated}
    return [source for source, _ in dag.propagations(plan) if source.name in populated]


def batch(
    turn: Turn, purpose: Purpose, waves: Iterable[Iterable[tuple[str, TaskSpec]]], *, name: str = "", stage: str = ""
) -> None:
    """Begin a batch with its first wave; `name` is what will have been done when its last has ended."""
    kept = tuple(w for w in (tuple(wave) for wave in waves) if w)
    next_wave(turn, Batch(purpose=purpose, name=name, stage=stage, waves=kept))


def next_wave(turn: Turn, step: Batch) -> None:
    """Give the tasks of a batch's next wave to their agents."""
    wave, *rest = step.waves
    state = turn.state
    issued = state.issued
    specs: dict[str, TaskSpec] = {}
    for host, spec in wave:
        issued += 1
        key = dag.key(state.setup.run_id, (step.stage, 0, 0, f"{state.setup.epoch}.{issued}"), dag.what(spec), host)
        specs[key] = spec
        turn.give(host, Task(key=key, spec=spec, deadline_s=dag.deadline_s(spec)))
    longest_s = max(dag.deadline_s(spec) for spec in specs.values())
    until_s = turn.at_s + longest_s + state.setup.timing.answer_grace_s
    begun = replace(step, waves=tuple(rest), pending=frozenset(specs), specs=specs, until_s=until_s)
    turn.set(issued=issued, step=begun)


# ---- what every stage stands on ----------------------------------------------------------------------------------


def _agents(turn: Turn) -> bool:
    missing = tuple(h.name for h in turn.state.plan.hosts if h.name not in turn.state.up)
    if not missing:
        return False
    turn.commands.append(Dial(hosts=missing))
    until_s = turn.at_s + turn.state.setup.timing.dial_s
    turn.set(step=Dialling(waiting=frozenset(missing), until_s=until_s))
    return True


def _systems(turn: Turn) -> bool:
    state = turn.state
    system = next((s for s in dag.start_order(state.plan) if s.name not in state.endpoints), None)
    if system is None:
        return False
    spec: TaskSpec
    if system.provision is not None:
        spec = StartSystem(system=system, data_root=state.setup.data_root)
    else:
        spec = InspectSystem(endpoint=state.setup.external[system.name])
    batch(turn, "start", [[(system.host, spec)]])
    return True


def _data(turn: Turn) -> bool:
    if not turn.state.redo:
        return False
    stage = turn.state.plan.stage(turn.state.redo[0])
    if isinstance(stage, Populate) and _populate_part(turn, stage):
        return True
    if isinstance(stage, Sql) and _sql_part(turn, stage):
        return True
    _forget_parts(turn, stage)
    turn.set(redo=turn.state.redo[1:])
    return True


def _links(turn: Turn) -> bool:
    """Renew a propagation that an earlier sitting, or an earlier life of its systems, had set up."""
    state = turn.state
    for source, sink in dag.propagations(state.plan):
        made = any(
            stage.id in state.facts.stages_finished or _part(stage, f"link:{source.name}") in state.progress
            for stage in dag.populating(state.plan, source.name)
        )
        if made and source.name not in state.linked:
            _link(turn, source.name, sink.name, copy_data=False, stage=state.stage)
            return True
    return False


def _link(turn: Turn, source: str, sink: str, *, copy_data: bool, name: str = "", stage: str = "") -> None:
    state = turn.state
    spec = LinkSystems(
        source=state.endpoints[source],
        sink=state.endpoints[sink],
        workload=dag.workload_of(state.plan, source),
        copy_data=copy_data,
    )
    batch(turn, "link", [[(state.plan.system(source).host, spec)]], name=name, stage=stage)


# ---- stages ------------------------------------------------------------------------------------------------------


def _stage(turn: Turn, stage: Stage) -> None:
    if turn.state.stage != stage.id:
        _enter(turn, stage)
        return
    match stage:
        case Populate():
            busy = _populate_part(turn, stage)
        case Reset():
            busy = _reset_part(turn, stage)
        case Sql():
            busy = _sql_part(turn, stage)
        case Pause():
            busy = _pause_part(turn, stage)
        case Ladder():
            busy = _ladder_part(turn, stage)
        case Search():
            busy = _search_part(turn, stage)
    if not busy:
        finish_stage(turn, stage, "ok")


def _enter(turn: Turn, stage: Stage) -> None:
    state = turn.state
    turn.set(stage=stage.id, stage_began_s=turn.at_s, rows=0)
    if stage.id not in state.facts.stages_started:
        iterations = len(stage.threads) * stage.repeat if isinstance(stage, Ladder) else 0
        iterations = stage.probes_max if isinstance(stage, Search) else iterations
        estimate_s = state.setup.estimates_s.get(stage.id, 0.0)
        turn.emit(StageStarted(stage=stage.id, kind=stage.kind, iterations=iterations, estimate_s=estimate_s))


def finish_stage(turn: Turn, stage: Stage, outcome: str) -> None:
    """Record that a stage has ended, with what expressions will see of it."""
    if stage.id in turn.state.facts.stages_finished:
        return
    seconds = turn.at_s - turn.state.stage_began_s
    ok = outcome == "ok"
    metrics = turn.judgement.metrics(stage, turn.state.facts, seconds, turn.state.rows) if ok else {}
    turn.emit(StageFinished(stage=stage.id, outcome="ok" if ok else "failed", seconds=seconds, metrics=metrics))
    _forget_parts(turn, stage)


def _part(stage: Stage, name: str) -> str:
    return f"{stage.id}:{name}"


def _forget_parts(turn: Turn, stage: Stage) -> None:
    turn.set(progress=frozenset(p for p in turn.state.progress if not p.startswith(f"{stage.id}:")))


def _populate_part(turn: Turn, stage: Populate) -> bool:
    """Load each system, set up what propagates from them, keep copies for resets: whichever is not done yet."""
    if _wipe(turn, stage):
        return True
    state, done = turn.state, turn.state.progress
    for name in stage.into:
        if _part(stage, f"populate:{name}") not in done:
            _populate(turn, stage, name)
            return True
    for source, sink, copy_data in dag.links(state.plan, stage):
        part = _part(stage, f"link:{source.name}")
        if part not in done:
            _link(turn, source.name, sink.name, copy_data=copy_data, name=part, stage=stage.id)
            return True
    for system in dag.to_snapshot(state.plan, stage):
        part = _part(stage, f"save:{system.name}")
        if part not in done:
            save = SnapshotSystem(system=system, data_root=state.setup.data_root, action="save")
            batch(turn, "snapshot", [[(system.host, save)]], name=part, stage=stage.id)
            return True
    return False


def _populate(turn: Turn, stage: Populate, system: str) -> None:
    state, client = turn.state, stage.clients[0]
    workers = stage.workers or state.facts.cores.get(client, 1)
    workload = state.plan.workload(stage.workload)
    spec = PopulateSystem(workload=workload, endpoint=state.endpoints[system], workers=workers)
    turn.set(pristine=state.pristine - {system})
    batch(turn, "populate", [[(client, spec)]], name=_part(stage, f"populate:{system}"), stage=stage.id)


def _wipe(turn: Turn, stage: Populate) -> bool:
    """Before a populate begins, make propagating systems that hold data start afresh.

    Rows loaded into a source whose propagation is up would meet the same rows in its sink.
    """
    state = turn.state
    if any(part.startswith(f"{stage.id}:") for part in state.progress):
        return False
    pairs = [pair for pair in dag.propagations(state.plan) if {s.name for s in pair} & set(stage.into)]
    used = {s.name for pair in pairs for s in pair if s.provision is not None} - state.pristine
    held = [s for s in reversed(dag.start_order(state.plan)) if s.name in used]
    if not held:
        return False
    root = state.setup.data_root
    stops = [[(s.host, StopSystem(system=s.name, data_root=root, remove=True))] for s in held]
    batch(turn, "wipe", stops)
    return True


def populate_under_way(turn: Turn) -> Populate:
    """The stage that is populating: the one whose data is made again, or the current one."""
    stage = turn.state.plan.stage(turn.state.redo[0] if turn.state.redo else turn.state.stage)
    assert isinstance(stage, Populate)  # noqa: S101
    return stage


def _reset_part(turn: Turn, stage: Reset) -> bool:
    """Restore copies, then checkpoint. Propagation is renewed in between, by `_links`.

    Sources go back before their sinks: what a source wrote after the copy was made must not reach a sink that has
    already gone back. A restored source cannot be reached by its sink before it is linked anew.
    """
    state = turn.state
    systems = [s for s in dag.start_order(state.plan) if s.name in stage.systems]
    held = [s for s in systems if s.provision is not None]
    if stage.restore and held and _part(stage, "restore") not in state.progress:
        root = state.setup.data_root
        waves = [[(s.host, SnapshotSystem(system=s, data_root=root, action="restore"))] for s in reversed(held)]
        batch(turn, "restore", waves, name=_part(stage, "restore"), stage=stage.id)
        return True
    if stage.checkpoint and _part(stage, "checkpoint") not in state.progress:
        tasks = [(s.host, Checkpoint(endpoint=state.endpoints[s.name])) for s in systems]
        batch(turn, "checkpoint", [tasks], name=_part(stage, "checkpoint"), stage=stage.id)
        return True
    return False


def _sql_part(turn: Turn, stage: Sql) -> bool:
    if _part(stage, "sql") in turn.state.progress:
        return False
    spec = RunSql(endpoint=turn.state.endpoints[stage.system], statements=stage.statements)
    host = turn.state.plan.system(stage.system).host
    batch(turn, "sql", [[(host, spec)]], name=_part(stage, "sql"), stage=stage.id)
    return True


def _pause_part(turn: Turn, stage: Pause) -> bool:
    if _part(stage, "pause") in turn.state.progress:
        return False
    turn.set(step=Waiting(name=_part(stage, "pause"), stage=stage.id, until_s=turn.at_s + stage.duration_s))
    return True


def _resolved(turn: Turn, stage: Ladder | Search) -> tuple[float | None, ...] | None:
    """The stage's rates as numbers; None when there are none to be had, and the stage has been given up."""
    wanted: tuple[float | Expression, ...]
    match stage:
        case Ladder(arrival=Open(rate=rate)):
            wanted = (rate,)
        case Ladder():
            return (None,)
        case Search():
            wanted = (stage.rate_from, stage.rate_to)
    numbers: list[float | None] = []
    for value in wanted:
        number = turn.judgement.number(value, turn.state.facts)
        if isinstance(number, Unresolved):
            turn.notice("warning", f"stage {stage.id} is skipped: {number.reason}")
            finish_stage(turn, stage, "failed")
            return None
        numbers.append(number)
    return tuple(numbers)


def _ladder_part(turn: Turn, stage: Ladder) -> bool:
    rates = _resolved(turn, stage)
    if rates is None:
        return True
    _cut(turn, stage)
    cut = turn.state.facts.cuts.get(stage.id)
    for repeat in range(1, stage.repeat + 1):
        for rung in stage.threads:
            if cut is not None and rung > cut.at_rung:
                continue
            if _begin(turn, stage, (rung, repeat), rates[0], "measure"):
                return True
    return False


def _begin(turn: Turn, stage: Ladder | Search, slot: tuple[int, int], rate: float | None, phase: str) -> bool:
    """Begin the next attempt of a rung in a repeat, unless one was valid or the retries are used up."""
    rung, repeat = slot
    finished, attempt = turn.state.facts.tries(stage.id, rung, repeat)
    if settled(stage, finished):
        return False
    identity = IterationId(stage=stage.id, rung=rung, repeat=repeat, attempt=attempt)
    iteration.begin(turn, stage, identity, rate, iteration.windows_of(stage, phase))
    return True


def settled(stage: Ladder | Search, finished: tuple[IterationFinished, ...]) -> bool:
    """Whether a rung in a repeat needs no further attempt."""
    return any(i.valid for i in finished) or len(finished) > stage.retries


def _cut(turn: Turn, stage: Ladder) -> None:
    """Record that `stop_when` held, once for each lower rung at which it did."""
    for finished in turn.state.facts.of_stage(stage.id):
        cut = turn.state.facts.cuts.get(stage.id)
        if not finished.valid or (cut is not None and cut.at_rung <= finished.id.rung):
            continue
        evidence = turn.judgement.stops(stage, finished)
        if evidence is not None:
            skipped = tuple(rung for rung in stage.threads if rung > finished.id.rung)
            turn.emit(LadderCut(stage=stage.id, at_rung=finished.id.rung, skipped=skipped, evidence=evidence))


def _search_part(turn: Turn, stage: Search) -> bool:
    rates = _resolved(turn, stage)
    if rates is None:
        return True
    low, high = rates
    assert low is not None and high is not None  # noqa: S101
    if stage.id in turn.state.facts.searches:
        return False
    replayed = turn.judgement.replay(stage, low, high, ended_probes(turn.state.facts, stage))
    for report in replayed.reports[turn.state.facts.probes.get(stage.id, 0) :]:
        turn.emit(report)
    if isinstance(replayed.next, ProbeDue):
        due = replayed.next
        return _begin(turn, stage, (stage.threads, due.number), due.rate, due.phase)
    turn.emit(replayed.next)
    return False


def ended_probes(facts: Facts, stage: Search) -> tuple[IterationFinished, ...]:
    """The last attempt of every probe that needs no other, in order of their numbers."""
    ended: list[IterationFinished] = []
    for number in range(1, stage.probes_max + 1):
        finished, _ = facts.tries(stage.id, stage.threads, number)
        if not settled(stage, finished):
            break
        ended.append(finished[-1])
    return tuple(ended)


def _compare(turn: Turn) -> None:
    state = turn.state
    source = next(s for s in _carried(state.plan, state.facts) if s.name not in state.facts.compared)
    sink = str(source.propagates_to)
    spec = CompareSystems(
        source=state.endpoints[source.name],
        sink=state.endpoints[sink],
        workload=dag.workload_of(state.plan, source.name),
        drain_timeout_s=dag.DRAIN_TIMEOUT_S,
    )
    batch(turn, "compare", [[(source.host, spec)]])

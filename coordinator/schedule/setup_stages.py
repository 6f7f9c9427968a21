"""The parts of stages that prepare systems: populate, propagation, copies, resets, statements, pauses. Pure.

Called by `decide`: each function begins the first part of its stage that is not done yet and says so, or says False when
there is none left. What is done is in `State.progress`, by names that begin with the stage's id.
"""

from __future__ import annotations

from proveout.coordinator.schedule import tasks as dag
from proveout.coordinator.schedule.batches import batch
from proveout.coordinator.schedule.invariant_stages import after_populate
from proveout.coordinator.schedule.state import Turn, Waiting
from proveout.dsl.plan.plan import Pause, Populate, Reset, Sql, Stage
from proveout.proto.wire.tasks import Checkpoint, LinkSystems, PopulateSystem, RunSql, SnapshotSystem, StopSystem


def part_of(stage: Stage, name: str) -> str:
    """The name that `State.progress` has for a part of a stage."""
    return f"{stage.id}:{name}"


def forget_parts(turn: Turn, stage: Stage) -> None:
    """Let a stage begin with its first part when it is run again."""
    turn.set(progress=frozenset(p for p in turn.state.progress if not p.startswith(f"{stage.id}:")))


def populate_part(turn: Turn, stage: Populate) -> bool:
    """Load each system, set up what propagates from them, keep copies for resets: whichever is not done yet."""
    if _wipe(turn, stage):
        return True
    state, done = turn.state, turn.state.progress
    for name in stage.into:
        if part_of(stage, f"populate:{name}") not in done:
            _populate(turn, stage, name)
            return True
        if after_populate(turn, stage, name, part_of(stage, f"invariants:{name}")):
            return True
    for source, sink, copy_data in dag.links(state.plan, stage):
        part = part_of(stage, f"link:{source.name}")
        if part not in done:
            link(turn, source.name, sink.name, copy_data=copy_data, name=part, stage=stage.id)
            return True
    for system in dag.to_snapshot(state.plan, stage):
        part = part_of(stage, f"save:{system.name}")
        if part not in done:
            save = SnapshotSystem(system=system, data_root=state.setup.data_root, action="save")
            batch(turn, "snapshot", [[(system.host, save)]], name=part, stage=stage.id)
            return True
    return False


def _populate(turn: Turn, stage: Populate, system: str) -> None:
    state = turn.state
    client = dag.present(stage.clients, state.facts.without)[0]
    workers = stage.workers or state.facts.cores.get(client, 1)
    workload = state.plan.workload(stage.workload)
    spec = PopulateSystem(workload=workload, endpoint=state.endpoints[system], workers=workers)
    turn.set(pristine=state.pristine - {system})
    batch(turn, "populate", [[(client, spec)]], name=part_of(stage, f"populate:{system}"), stage=stage.id)


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


def reset_part(turn: Turn, stage: Reset) -> bool:
    """Restore copies, then checkpoint. Propagation is renewed in between, by `_links`.

    Sources go back before their sinks: what a source wrote after the copy was made must not reach a sink that has
    already gone back. A restored source cannot be reached by its sink before it is linked anew.
    """
    state = turn.state
    systems = [s for s in dag.start_order(state.plan) if s.name in stage.systems]
    held = [s for s in systems if s.provision is not None]
    if stage.restore and held and part_of(stage, "restore") not in state.progress:
        root = state.setup.data_root
        waves = [[(s.host, SnapshotSystem(system=s, data_root=root, action="restore"))] for s in reversed(held)]
        batch(turn, "restore", waves, name=part_of(stage, "restore"), stage=stage.id)
        return True
    if stage.checkpoint and part_of(stage, "checkpoint") not in state.progress:
        tasks = [(s.host, Checkpoint(endpoint=state.endpoints[s.name])) for s in systems]
        batch(turn, "checkpoint", [tasks], name=part_of(stage, "checkpoint"), stage=stage.id)
        return True
    return False


def sql_part(turn: Turn, stage: Sql) -> bool:
    """Run the statements, on the system's own host."""
    if part_of(stage, "sql") in turn.state.progress:
        return False
    spec = RunSql(endpoint=turn.state.endpoints[stage.system], statements=stage.statements)
    host = turn.state.plan.system(stage.system).host
    batch(turn, "sql", [[(host, spec)]], name=part_of(stage, "sql"), stage=stage.id)
    return True


def pause_part(turn: Turn, stage: Pause) -> bool:
    """Wait."""
    if part_of(stage, "pause") in turn.state.progress:
        return False
    turn.set(step=Waiting(name=part_of(stage, "pause"), stage=stage.id, until_s=turn.at_s + stage.duration_s))
    return True


def link(turn: Turn, source: str, sink: str, *, copy_data: bool, name: str = "", stage: str = "") -> None:
    """Set up or renew the propagation from `source` to `sink`; the source's host does it."""
    state = turn.state
    spec = LinkSystems(
        source=state.endpoints[source],
        sink=state.endpoints[sink],
        workload=dag.workload_of(state.plan, source),
        copy_data=copy_data,
    )
    batch(turn, "link", [[(state.plan.system(source).host, spec)]], name=name, stage=stage)

"""The preflight as two steps of a run: running systems and hosts before anything is changed, and all loads once more
before the first measurement, when the run has started and populated its systems. Pure.

Data flow: `decide` calls `preflight` -> `preflight_tasks` as one batch, all agents at the same time -> `batches` adds
the findings to `State.found` -> a notice for each problem; the run ends when one is an error.
"""

from __future__ import annotations

from proveout.coordinator.schedule.batches import batch
from proveout.coordinator.schedule.preflight import preflight_tasks
from proveout.coordinator.schedule.preflight.findings import exit_code, problems
from proveout.coordinator.schedule.state import Turn
from proveout.dsl.plan.stages import Drop, Populate
from proveout.proto.wire.tasks import ApplyTuning, TaskSpec


def preflight(turn: Turn, *, measuring: bool) -> bool:
    """Begin the step that is due, or judge its findings; False when it is done and has found no error."""
    state = turn.state
    name = "loads" if measuring else "systems"
    if name in state.preflights or not state.setup.preflight:
        return False
    asked = f"preflight:{name}"
    if asked not in state.preflights:
        waves = [_loads(turn)] if measuring else _systems(turn)
        turn.set(preflights=state.preflights | {asked}, found=())
        if any(waves):
            batch(turn, "preflight", waves, name=asked)
            return True
    turn.set(preflights=turn.state.preflights | {name})
    return _judge(turn, measuring=measuring)


def _systems(turn: Turn) -> list[list[tuple[str, TaskSpec]]]:
    """Tunings first: with them an agent undoes what a killed one has left, as a database under another name."""
    state = turn.state
    running = {name: end for name, end in state.setup.external.items() if end.engine != "prometheus"}
    moment = preflight_tasks.Moment(
        endpoints=running,
        hosts=state.up,
        finished=state.progress.stages_finished,
        populated=_populated(turn),
        wait=True,
    )
    others = (
        *preflight_tasks.host_checks(state.plan, state.up, state.setup.data_root),
        *preflight_tasks.system_checks(state.plan, moment),
    )
    return [list(preflight_tasks.tuning_checks(state.plan, moment)), list(others)]


def _loads(turn: Turn) -> list[tuple[str, TaskSpec]]:
    state = turn.state
    moment = preflight_tasks.Moment(
        endpoints=state.endpoints,
        hosts=state.up,
        finished=state.progress.stages_finished,
        populated=_populated(turn),
        again=True,
        wait=True,
    )
    tunings = [
        (host, spec)
        for host, spec in preflight_tasks.tuning_checks(state.plan, moment)
        if isinstance(spec, ApplyTuning) and any(state.plan.system(one.system).provision for one in spec.tunings)
    ]
    return [*preflight_tasks.system_checks(state.plan, moment), *tunings]


def _judge(turn: Turn, *, measuring: bool) -> bool:
    found = problems(turn.state.plan, turn.state.found)
    turn.set(found=())
    for one in found:
        turn.notice("error" if one.is_error else "warning", one.line(), ", ".join(one.hosts))
    code = exit_code(found)
    if not code:
        checked = "the statements of all loads" if measuring else "hosts, systems, statements and rights"
        outcome = "nothing is wrong" if not found else "1 warning" if len(found) == 1 else f"{len(found)} warnings"
        turn.notice("info", f"preflight: {checked} are checked, {outcome}")
        return False
    count = sum(one.is_error for one in found)
    many = "1 problem" if count == 1 else f"{count} problems"  # and the first, for surfaces that show the reason alone
    after = "nothing was measured" if measuring else "no host or system was changed"
    first = next(one for one in found if one.is_error)
    turn.end("failed", code, f"the preflight found {many}, and {after}; the first: {first.line()}")
    return True


def _populated(turn: Turn) -> frozenset[tuple[str, str]]:
    """(workload, system) of the populations that are there."""
    there: set[tuple[str, str]] = set()
    for stage in turn.state.plan.stages:
        if isinstance(stage, Populate):
            there |= {
                (stage.workload, name) for name in stage.into if (stage.id, name) in turn.state.progress.populated
            }
        elif isinstance(stage, Drop) and stage.id in turn.state.progress.stages_finished:
            there -= {(stage.workload, name) for name in stage.systems}
    return frozenset(there)

"""Check the facts that a plan expects of hosts and systems, before anything is changed on a host. Pure.

Data flow: `decide` calls `check_expectations` when the agents are there: tasks that only read -> `FactsTaken` with
`when` "before" -> `fact_rules.unmet`; the run ends when one does not hold, with a notice for each. Systems that
proveout starts can be read only when they run: they are checked in a second step, when hosts are tuned and nothing is
populated.

A host that this run has tuned already (a resume may find it so) is not checked again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from proveout.coordinator.schedule.batches import batch
from proveout.coordinator.schedule.setup_stages import read_facts
from proveout.coordinator.schedule.state import Turn
from proveout.coordinator.schedule.tuning import applied_before
from proveout.dsl.plan.topology import Declared
from proveout.dsl.rules.fact_rules import Unmet, unmet
from proveout.dsl.source.nodes import did_you_mean
from proveout.proto.wire.tasks import Endpoint, InspectSystem, TaskSpec


def check_expectations(turn: Turn, *, started: bool = False) -> bool:
    """Read and check what is expected of hosts and running systems, or of the `started` ones; False when it holds."""
    state = turn.state
    part = f"expected:{'started' if started else 'running'}"
    if part in state.parts_done or not state.plan.declared:
        return False
    due = list(_due(turn, started=started))
    if _read(turn, due, part):
        return True
    turn.set(parts_done=turn.state.parts_done | {part})
    found = [(one, declared) for declared in due for one in unmet(declared, _facts(turn, declared))]
    if not found:
        return False
    for one, declared in found:
        turn.notice("error", f"{one.where}: {one} ({_way_out(one, declared, _facts(turn, declared))})")
    many = "an expectation does" if len(found) == 1 else f"{len(found)} expectations do"
    after = "no data was loaded, and tuned hosts are reverted" if started else "no host or system was changed"
    turn.end("failed", 4, f"{many} not hold; {after}")
    return True


def _due(turn: Turn, *, started: bool) -> Iterator[Declared]:
    """The hosts and systems whose expectations are checked now."""
    state = turn.state
    checked = applied_before(state.progress)
    for one in state.plan.declared:
        if not one.expect or one.is_equipment:
            continue  # of equipment the compiler has checked them
        host = state.plan.system(one.name).host if one.kind == "system" else one.name
        is_started = one.kind == "system" and one.name not in state.setup.external
        if is_started == started and host in state.up and (started or host not in checked):
            yield one


def _read(turn: Turn, due: list[Declared], part: str) -> bool:
    """Read the facts that were not read yet; False when there are none."""
    state = turn.state
    name = f"facts:before:{part}"
    if name in state.parts_done:
        return False
    tasks: list[tuple[str, TaskSpec]] = []
    for one in due:
        host, system = _place(turn, one)
        if ("before", host, system) in state.progress.taken:
            continue
        endpoint: Endpoint | None = state.endpoints.get(system) or state.setup.external.get(system)
        if one.kind == "host":
            tasks.append((host, read_facts(turn, host)))
        elif endpoint is not None:
            tasks.append((host, InspectSystem(endpoint=endpoint)))
    if not tasks:
        return False
    batch(turn, "facts", [tasks], name=name)
    return True


def _place(turn: Turn, one: Declared) -> tuple[str, str]:
    return (turn.state.plan.system(one.name).host, one.name) if one.kind == "system" else (one.name, "")


def _facts(turn: Turn, one: Declared) -> Mapping[str, Any]:
    taken = turn.state.progress.taken.get(("before", *_place(turn, one)))
    return taken.facts if taken is not None else {}


def _way_out(one: Unmet, declared: Declared, facts: Mapping[str, Any]) -> str:
    if one.found:
        return f"correct the {declared.kind}, or the expectation"
    return did_you_mean(one.fact, facts) or "its facts could not be read"

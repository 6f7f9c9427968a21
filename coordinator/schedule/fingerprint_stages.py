"""When the environment's fingerprint is taken: at the beginning of a sitting and at the end of the run. Pure.

Data flow: `decide` asks before the first stage and before the verdicts -> one batch: `ReadFacts` on every host, `InspectSystem` for every
system -> `waves` journals a `FactsTaken` for each -> `fingerprint` makes digests and the drift between the two. Nothing else runs
meanwhile. What cannot be had is a warning: a run is not worth less than its fingerprint.
"""

from __future__ import annotations

from typing import Literal

from proveout.coordinator.schedule.batches import batch
from proveout.coordinator.schedule.state import Turn
from proveout.coordinator.schedule.tool_ladders import tools_on
from proveout.proto.wire.tasks import InspectSystem, ReadFacts, TaskSpec


def survey(turn: Turn, when: Literal["start", "end"]) -> bool:
    """Take what is not taken yet of the hosts that are there; False when there is nothing left to ask."""
    state = turn.state
    name = f"facts:{when}"
    if name in state.progress:
        return False
    tasks: list[tuple[str, TaskSpec]] = []
    for host in (h.name for h in state.plan.hosts if h.name in state.up):
        if (when, host, "") not in state.facts.taken:
            tasks.append((host, ReadFacts(directories=_directories(turn, host), tools=tools_on(state.plan, host))))
    for system in (s for s in state.plan.systems if s.name in state.endpoints and s.host in state.up):
        if (when, system.host, system.name) not in state.facts.taken:
            tasks.append((system.host, InspectSystem(endpoint=state.endpoints[system.name])))
    if not tasks:
        return False
    batch(turn, "facts", [tasks], name=name)
    return True


def _directories(turn: Turn, host: str) -> tuple[tuple[str, str], ...]:
    """Where the systems of a host keep their data, as far as it is known."""
    state = turn.state
    return tuple((s.name, state.setup.data_root) for s in state.plan.systems if s.host == host and s.provision)

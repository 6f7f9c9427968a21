"""Rules on loads whose commits are tracked, for the compiler and for agents."""

from __future__ import annotations

from collections.abc import Iterator

from proveout.dsl import engines
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import Sessions
from proveout.dsl.rules.host_rules import Objection
from proveout.dsl.workloads.kinds import has_own_arrival, writes


def tracking_problems(workload: Workload, engine: str, sessions: Sessions, *, checked: bool) -> Iterator[Objection]:
    """The reasons for which commits of this workload cannot be tracked in a database of this engine."""
    if not engines.of(engine).tracks_commits:
        known = engines.named(one for one in engines.ENGINES.values() if one.tracks_commits)
        yield Objection(message=f"commits cannot be tracked in {engine}", way_out=f"engines: {known}")
    if has_own_arrival(workload):
        message = f"workload `{workload.name}` is an outside program, whose commits cannot be tracked"
        yield Objection(message=message, way_out="leave `commits` out")
    elif not writes(workload):
        yield Objection(
            message=f"workload `{workload.name}` changes no rows, so it has no commits to track",
            way_out="leave `commits` out",
        )
    elif engines.of(engine).dialect == "oracle" and dict(workload.parameters).get("procedures") is True:
        message = f"the procedures of workload `{workload.name}` commit by themselves on {engine}"
        yield Objection(message=message, way_out="procedures: false, or leave `commits` out")
    if sessions.are_lent:
        message = "commits are read back by the connection of a thread, which `pool` and `connect_every` do not keep"
        yield Objection(message=message, way_out="leave `commits` or `sessions` out")
    if checked and sessions.on_disconnect != "retry":
        message = "`checked` is about transactions that are run again after a lost connection"
        yield Objection(message=message, way_out="on_disconnect: retry, or commits: tracked")

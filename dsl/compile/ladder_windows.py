"""The windows of a ladder: three lengths, or passes over a set of queries that run to completion."""

from __future__ import annotations

from typing import Protocol

from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import Windows
from proveout.dsl.schema.stage_models import LadderEntry
from proveout.dsl.source.nodes import Map
from proveout.dsl.workloads.kinds import is_in_order


class Report(Protocol):
    """Adds a problem at a path below the stage."""

    def __call__(self, message: str, *path: str | int, hint: str = "") -> None:
        """Add it."""
        ...


def ladder_windows(entry: LadderEntry, body: Map, workload: Workload | None, problem: Report) -> Windows | None:
    """The windows; None when they are not given. Adds problems for both kinds of windows together, and for passes of a
    mix."""
    if entry.passes is None:
        if body.get("within") is not None:
            problem("`within` is the limit of `passes`", "within", hint="passes: 1, or leave `within` out")
        if entry.measure is None:
            problem("`measure` is required", hint="measure: 10s, or passes: 1 for a set of queries")
            return None
        return Windows(ramp_up_s=entry.ramp_up, measure_s=entry.measure, ramp_down_s=entry.ramp_down)
    for key in ("measure", "ramp_up", "ramp_down", "rate"):
        if body.get(key) is not None:
            problem(f"`passes` run to completion, without `{key}`", key, hint=f"leave `{key}` or `passes` out")
    if entry.pool != "local":
        problem("`passes` run in the local pool only", "pool", hint="leave `pool` out, or give `measure`")
    if workload is not None and not is_in_order(workload):
        message = f"`{workload.name}` is a mix, which has no passes: it runs for the length of a window"
        problem(message, "passes", hint="measure: 10s, or a set of queries (kind: tproch, or kind: sql with in_order)")
    return Windows(ramp_up_s=0.0, measure_s=entry.within, ramp_down_s=0.0, passes=entry.passes)

"""Rules of windows that are counted in passes over a set of queries."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from proveout.dsl.plan.plan import Workload
from proveout.dsl.rules.host_rules import Objection
from proveout.dsl.workloads.kinds import is_in_order

WITHOUT = ("measure", "ramp_up", "ramp_down", "rate")


def pass_problems(
    given: Collection[str], pool: str, workloads: Iterable[Workload], *, paced: bool
) -> Iterator[Objection]:
    """The objections to the windows of a ladder, each `at` its key; `given` are the ladder's keys in the plan, `paced`
    tells whether one of its loads has a rate."""
    if "passes" not in given:
        if "within" in given:
            way_out = "passes: 1, or leave `within` out"
            yield Objection(message="`within` is the limit of `passes`", at=("within",), way_out=way_out)
        if "measure" not in given and "phases" not in given:
            way_out = "measure: 10s, or phases, or passes: 1 for a set of queries"
            yield Objection(message="`measure` is required", way_out=way_out)
        return
    for key in WITHOUT:
        if key in given:
            message, way_out = f"`passes` run to completion, without `{key}`", f"leave `{key}` or `passes` out"
            yield Objection(message=message, at=(key,), way_out=way_out)
    if pool != "local":
        message, way_out = "`passes` run in the local pool only", "leave `pool` out, or give `measure`"
        yield Objection(message=message, at=("pool",), way_out=way_out)
    if paced:
        message, way_out = "`passes` run to completion, without a `rate` of a load", "leave `rate` or `passes` out"
        yield Objection(message=message, at=("loads",), way_out=way_out)
    for workload in workloads:
        if is_in_order(workload):
            continue
        message = f"`{workload.name}` is a mix, which has no passes: it runs for the length of a window"
        way_out = "measure: 10s, or a set of queries (kind: tproch, or kind: sql with in_order)"
        yield Objection(message=message, at=("passes",), way_out=way_out)

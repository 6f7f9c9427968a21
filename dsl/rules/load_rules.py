"""Notes on the loads of a stage that run at the same time; the programs of a plan that policies of hosts must list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from proveout.core.errors import PlanProblem
from proveout.dsl.plan.loads import Part, parts
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import CommandRun, Ladder, Search
from proveout.dsl.rules.host_rules import noted
from proveout.dsl.workloads.kinds import has_tables, key_range, of_workload, same_rows, writes
from proveout.dsl.workloads.program import Program, in_forms

NAMED = 4
"""Loads that a note names one by one."""
_HINT = "a `range` for each, unless they are to wait for each other"


def overlaps(plan: Plan) -> Iterator[PlanProblem]:
    """A note for the loads of a stage of which two or more change or read the same keys.

    Loads on two systems can meet only where proveout provisions neither: they may be instances of one database.
    """
    for stage in plan.stages:
        if not isinstance(stage, Ladder | Search) or (isinstance(stage, Ladder) and stage.versus_s):
            continue
        meeting: dict[str, dict[str, None]] = {}
        for one, other in combinations(parts(stage), 2):
            if _meet(plan, one, other) and (common := _common(plan, one, other)):
                meeting.setdefault(common, {}).update({one.name: None, other.name: None})
        for common, names in meeting.items():
            yield noted(f"loads {_listed(list(names))} of `{stage.id}` touch {common}", stage, _HINT)


def _listed(names: Sequence[str]) -> str:
    """Two or more names: `a` and `b`; of many the first three."""
    if len(names) > NAMED:
        return f"{', '.join(f'`{name}`' for name in names[: NAMED - 1])} and {len(names) - NAMED + 1} more"
    return f"{', '.join(f'`{name}`' for name in names[:-1])} and `{names[-1]}`"


def _meet(plan: Plan, one: Part, other: Part) -> bool:
    ends = [plan.system(part.stage.target) for part in (one, other)]
    apart = ends[0] is not ends[1] and (any(end.provision for end in ends) or ends[0].engine != ends[1].engine)
    first, second = (plan.workload(part.stage.workload) for part in (one, other))
    alike = has_tables(first) and has_tables(second) and same_rows(first, second)
    return not apart and alike and (writes(first) or writes(second))


def _common(plan: Plan, one: Part, other: Part) -> str:
    """The keys of both, in words; "" when there are none."""
    first, second = (key_range(plan.workload(part.stage.workload)) for part in (one, other))
    if first is None or second is None:
        return "the same rows"
    low, high = max(first[0], second[0]), min(first[1], second[1])
    return f"the same keys {low} to {high}" if low <= high else ""


def programs(plan: Plan) -> Iterator[tuple[tuple[str, ...], str, tuple[str, ...]]]:
    """The programs of loads, command stages and captures: (hosts, path in the plan, argv with the forms of values that
    are not known before the load)."""
    for stage in plan.stages:
        if isinstance(stage, CommandRun):
            yield (stage.host,), f"stages.{stage.id}", stage.command.argv
        for part in parts(stage) if isinstance(stage, Ladder | Search) else ():
            workload = plan.workload(part.stage.workload)
            if workload.kind == "program":
                model = of_workload(workload)
                assert isinstance(model, Program)  # noqa: S101 - the kind of the workload
                argv = in_forms(model.argv, plan.system(part.stage.target).engine)
                yield part.stage.clients, f"workloads.{workload.name}", argv
    for capture in plan.captures:
        if capture.kind == "command":
            yield capture.hosts, f"captures.{capture.name}", capture.command.argv

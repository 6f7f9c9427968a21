"""Notes on the loads of a stage that run at the same time, and the rules for the connections of a load, which the
compiler and the agents apply. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from proveout.core.errors import PlanProblem
from proveout.dsl import engines
from proveout.dsl.plan.loads import Part, parts
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Search, Sessions
from proveout.dsl.rules.bounds import CONNECT_EVERY_MAX, THREADS_MAX
from proveout.dsl.rules.host_rules import Objection
from proveout.dsl.workloads.kinds import has_tables, key_range, same_rows, writes

NAMED = 4
"""Loads that a note names one by one."""
_HINT = "a `range` for each, unless they are to wait for each other"


def overlaps(plan: Plan) -> Iterator[PlanProblem]:
    """A note for the loads of a stage of which two or more change or read the same keys.

    Loads on two systems can meet only where proveout provisions neither: they may be instances of one database.
    """
    for stage in plan.stages:
        if not isinstance(stage, Ladder | Search):
            continue
        meeting: dict[str, dict[str, None]] = {}
        for one, other in combinations(parts(stage), 2):
            if _meet(plan, one, other) and (common := _common(plan, one, other)):
                meeting.setdefault(common, {}).update({one.name: None, other.name: None})
        for common, names in meeting.items():
            message = f"note: loads {_listed(list(names))} of `{stage.id}` touch {common}"
            yield PlanProblem(message=message, where=stage.where, key="stages", hint=_HINT)


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


def session_problems(engine: str, sessions: Sessions, instances: int) -> Iterator[Objection]:
    """The reasons why a load on a system of that engine and of so many instances cannot have these sessions."""
    found = engines.of(engine)
    able = engines.named(one for one in engines.ENGINES.values() if one.members)
    if sessions.access and not found.members:
        message = f"`access` chooses among the members of a system of {able}, not of {engine}"
        yield Objection(message=message, way_out=found.instead_of_members or "leave it away", at=("access",))
    for key, given in (("pool", sessions.pool), ("connect_every", sessions.connect_every)):
        if given and not found.members:
            message = f"connections to {engine} are each of one thread: `{key}` is for {able}"
            yield Objection(message=message, way_out="leave it away", at=("sessions", key))
        elif given and instances > 1 and not sessions.access:
            message = f"each thread keeps to its own instance, so connections are not shared or renewed by `{key}`"
            way_out = "access: any, read-write or read-only: then every thread may use every instance"
            yield Objection(message=message, way_out=way_out, at=("sessions", key))
    if not sessions.prepared and engine != "postgres":
        message = f"statements of {engine} are prepared in this release"
        yield Objection(message=message, way_out="leave it away", at=("sessions", "prepared"))
    if not (0 <= sessions.pool <= THREADS_MAX and 0 <= sessions.connect_every <= CONNECT_EVERY_MAX):
        yield Objection(message=f"a pool of {sessions.pool}, or a connect every {sessions.connect_every}, is not valid")
    if sessions.access not in ("", "any", "read_write", "read_only"):
        yield Objection(message=f"{sessions.access[:40]!r} is not an access")

"""`needs:` and `when:` of stages: the order in which stages run, and which of them run at all.

Data flow: drafts as the plan lists them -> `in_order` -> drafts with every stage behind those that it needs, otherwise
as listed -> (the compiler checks each `when` against what stages before it offer) -> `plan.Condition`s. A condition
that reads no result is decided here; the others wait for the run (`coordinator.schedule.batches`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from proveout.dsl.compile.error_recovery import Draft
from proveout.dsl.expr.evaluation import ExpressionFault, evaluate
from proveout.dsl.plan.stages import Condition, Ladder, Populate, Stage
from proveout.dsl.plan.topology import Expression, System
from proveout.dsl.source.nodes import Map, Problems, Scalar, Seq, did_you_mean

NEVER = "false"


def needs_of(draft: Draft) -> tuple[Scalar, ...]:
    """The ids in a stage's `needs`, with their positions; the models report values of the wrong form."""
    node = draft.body.get("needs") if isinstance(draft.body, Map) else None
    items = node.items if isinstance(node, Seq) else () if node is None else (node,)
    return tuple(item for item in items if isinstance(item, Scalar) and isinstance(item.value, str))


def in_order(drafts: list[Draft], problems: Problems) -> list[Draft]:
    """The stages with those first that others need; as listed where that leaves a choice. Problems: unknown ids,
    cycles."""
    ids = [draft.id for draft in drafts if draft.id]
    wanted = {id(draft): {item.text for item in needs_of(draft)} & set(ids) for draft in drafts}
    for draft in drafts:
        for item in needs_of(draft):
            if item.text not in ids:
                hint = did_you_mean(item.text, ids)
                problems.add(item.where, f"there is no stage `{item.text}`", key="needs", hint=hint)
    placed: list[Draft] = []
    left = list(drafts)
    while left:
        done = {draft.id for draft in placed}
        ready = next((draft for draft in left if wanted[id(draft)] <= done), None)
        if ready is None:
            _tell_cycle(left, problems)
            return drafts
        placed.append(ready)
        left.remove(ready)
    return placed


def _tell_cycle(left: Sequence[Draft], problems: Problems) -> None:
    """Follow the stages that cannot be placed until one repeats: the cycle."""
    by_id = {draft.id: draft for draft in left}
    path = [left[0].id]
    while True:
        item = next(item for item in needs_of(by_id[path[-1]]) if item.text in by_id)
        path.append(item.text)
        if item.text in path[:-1]:
            around = path[path.index(item.text) :]
            problems.add(item.where, f"stages need each other: {' needs '.join(around)}", key="needs")
            return


def condition(stage: str, needs: tuple[str, ...], when: Expression | None) -> Condition | None:
    """The condition of a stage; None if it always runs. `when` is checked, and evaluated here if it reads no result."""
    if when is not None and not when.needs:
        with contextlib.suppress(ExpressionFault):  # then it reads a stage that has a problem of its own
            when = None if evaluate(when.text, {}) is True else Expression(text=NEVER, where=when.where)
    return Condition(stage=stage, needs=needs, when=when) if needs or when is not None else None


def left_out(conditions: Sequence[Condition]) -> frozenset[str]:
    """The stages that never run with these parameters: by their own condition, or because a stage that they need does
    not run."""
    out: set[str] = set()
    for one in conditions:  # in the order of the stages, so what is needed comes first
        if (one.when is not None and one.when.text == NEVER) or out & set(one.needs):
            out.add(one.stage)
    return frozenset(out)


def check_conditions(
    stages: Sequence[Stage], conditions: Sequence[Condition], systems: Mapping[str, System], problems: Problems
) -> None:
    """Refuse a condition where a part could run alone: ladders that take turns, systems that propagate."""
    partners = {stage.interleaved_with for stage in stages if isinstance(stage, Ladder)}
    ends = {name for s in systems.values() if s.propagates_to for name in (s.name, s.propagates_to)}
    never = left_out(conditions)
    for one in conditions:
        stage = next((stage for stage in stages if stage.id == one.stage), None)
        alone = isinstance(stage, Ladder) and stage.cell is None  # the cells of a matrix have one condition
        if alone and isinstance(stage, Ladder) and (stage.interleaved_with or stage.id in partners):
            message = f"`{stage.id}` takes turns with another ladder, so it cannot be left out by itself"
            problems.add(stage.where, message, key="when", hint="leave out `when` and `needs`, or order: ladder")
        if isinstance(stage, Populate) and set(stage.into) & ends and stage.id not in never:
            message = f"`{stage.id}` loads a system that propagates, which the run cannot decide when it has begun"
            problems.add(stage.where, message, key="when", hint="a condition on params alone can stand here")

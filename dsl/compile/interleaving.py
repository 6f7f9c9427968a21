"""The turns of ladders and the steps around each turn: of the cells of a matrix, and of ladders with `with`.

Data flow: drafts of `stages` (each cell a ladder, each step a stage of its own) -> `interleave` -> the same drafts, in
which the cells of a matrix take turns (`Ladder.interleaved_with`, `before`, `after`) or say why they do not
(`Ladder.apart`).

The cells of a matrix take turns by default: cells that run one after the other cannot be distinguished from a drift of
the machine. They run one after the other with `order: ladder`, and when turns are not possible: a step
is not repeatable, or cells differ in what they wait for or in their repeats. With `order: interleaved` the latter are
problems. Cells that load a population run one after the other too, because each turn would load it again: with
`order: interleaved` they take turns at that price.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from proveout.dsl.compile.partial.drafts import Draft
from proveout.dsl.compile.symbols import Scope, where_of
from proveout.dsl.plan.iteration_order import groups
from proveout.dsl.plan.loads import targets
from proveout.dsl.plan.stages import Ladder, Order, Populate, Reset, Stage
from proveout.dsl.rules.repeat_rules import once_only
from proveout.dsl.source.nodes import Node, Scalar, Seq

ASKED = "the plan has `order: ladder`"


def interleave(scope: Scope, drafts: Sequence[Draft]) -> list[Draft]:
    """The drafts with their ladders' turns; problems of turns that the plan requires go to the scope."""
    made = {draft.id: draft for draft in drafts}
    for cells in _matrices(drafts):
        made |= {draft.id: draft for draft in _cells(scope, cells, drafts)}
    ordered = [made[draft.id] if draft.stage is not None else draft for draft in drafts]
    return _plain(scope, ordered)


def _matrices(drafts: Sequence[Draft]) -> list[list[Draft]]:
    """The cells of each matrix, those in which every cell and every step compiled."""
    found: dict[str, list[Draft]] = {}
    for draft in drafts:
        if draft.cell is not None:
            found.setdefault(draft.cell.of, []).append(draft)
    broken = {draft.step_of or draft.id for draft in drafts if draft.stage is None}
    return [cells for cells in found.values() if not broken & {cell.id for cell in cells}]


def _cells(scope: Scope, cells: Sequence[Draft], drafts: Sequence[Draft]) -> Iterator[Draft]:
    """The cells of a matrix, in turns or one after the other."""
    if len(cells) == 1:
        yield from cells
        return
    order = cells[0].body.get("order")
    wanted = order.text if isinstance(order, Scalar) else ""
    reason = ASKED if wanted == "ladder" else _obstacle(scope, cells, drafts)
    if not reason and wanted != "interleaved":
        reason = _population(cells, drafts)
    if reason and wanted == "interleaved":
        message = f"the cells cannot take turns: {reason}"
        hint = "order: ladder, which does not distinguish drift from the difference of the cells"
        scope.problems.add(where_of(cells[0].body, "order"), message, key="stages", hint=hint)
    for draft in cells:
        ladder = draft.stage
        assert isinstance(ladder, Ladder)  # noqa: S101
        if reason:
            turning = any(alone_of(other, ladder) for other in drafts)
            own = _with_steps(ladder, drafts) if turning else ladder
            yield replace(draft, stage=replace(own, order=_own(ladder), apart=reason))
        elif draft is cells[0]:
            yield replace(draft, stage=replace(_with_steps(ladder, drafts), order=_own(ladder)))
        else:
            turned = replace(ladder, order="interleaved", seed=None, interleaved_with=cells[0].id)
            yield replace(draft, stage=_with_steps(turned, drafts))


def alone_of(draft: Draft, ladder: Ladder) -> bool:
    """Whether a draft runs a load of the ladder alone."""
    return isinstance(draft.stage, Ladder) and bool(draft.stage.alone) and draft.stage.interleaved_with == ladder.id


def _own(ladder: Ladder) -> Order:
    """The order of the rungs of a ladder that leads its turns."""
    return "shuffled" if ladder.seed is not None else "ladder"


def _with_steps(ladder: Ladder, drafts: Sequence[Draft]) -> Ladder:
    """The ladder with the ids of the steps of its turns."""
    sides = {
        side: tuple(d.id for d in drafts if (d.step_of, d.side) == (ladder.id, side)) for side in ("before", "after")
    }
    return replace(ladder, before=sides["before"], after=sides["after"])


def _obstacle(scope: Scope, cells: Sequence[Draft], drafts: Sequence[Draft]) -> str:
    """The reason why the cells cannot take turns; "" when they can."""
    ladders = [cell.stage for cell in cells if isinstance(cell.stage, Ladder)]
    if len({(ladder.repeat, ladder.repeat_min) for ladder in ladders}) > 1:
        return "they are not repeated alike"
    for key in ("when", "needs"):
        if len({_text(cell.body.get(key)) for cell in cells}) > 1:
            return f"their `{key}` differs"
    loaded = {name for ladder in ladders for name in targets(ladder)}
    for source in sorted(name for name in loaded if scope.systems[name].propagates_to in loaded):
        ends = {source, str(scope.systems[source].propagates_to)}
        if not all(_begins_level(cell, ends, drafts) for cell in cells):
            return f"{' and '.join(sorted(ends))} propagate to each other, without a reset of both before each cell"
    return _unrepeatable({cell.id for cell in cells}, drafts)


def _begins_level(cell: Draft, ends: set[str], drafts: Sequence[Draft]) -> bool:
    """Whether a step before the cell restores both ends of a propagation: no change is in transit then, and the writes
    of other cells do not conflict."""
    steps = [one.stage for one in drafts if one.step_of == cell.id and one.side == "before"]
    return any(isinstance(step, Reset) and step.restore and ends <= set(step.systems) for step in steps)


def _population(cells: Sequence[Draft], drafts: Sequence[Draft]) -> str:
    """The step that loads a population before a cell, as a reason not to do it in each turn; "" when there is none."""
    ladders = {cell.id for cell in cells}
    step = next((one.id for one in drafts if one.step_of in ladders and isinstance(one.stage, Populate)), "")
    return f"`{step}` would load in each repeat, as it does with `order: interleaved`" if step else ""


def _unrepeatable(ladders: set[str], drafts: Sequence[Draft]) -> str:
    """The first step of these ladders that can run only once, and why; "" when there is none."""
    for draft in drafts:
        if draft.step_of in ladders and draft.stage is not None and (reason := once_only(draft.stage)):
            return f"step `{draft.id}` is not repeatable ({reason})"
    return ""


def _text(node: Node | None) -> str:
    if isinstance(node, Seq):
        return ",".join(map(_text, node.items))
    return node.text if isinstance(node, Scalar) else ""


def _plain(scope: Scope, drafts: Sequence[Draft]) -> list[Draft]:
    """The drafts with the steps of ladders that take turns by `with`."""
    tried = [_with_own_steps(draft, drafts) for draft in drafts]
    stages: list[Stage] = [draft.stage for draft in tried if draft.stage is not None]
    turning = {one.id for members in groups(stages) if len(members) > 1 for one in members if one.cell is None}
    for draft in drafts:
        if draft.id in turning and draft.stage is not None and (reason := _unrepeatable({draft.id}, drafts)):
            whole = _whole(draft.stage)
            if whole in turning and whole != draft.id:
                continue  # noted at the ladder of all loads
            message = f"`{whole}` cannot take turns: {reason}"
            hint = f"repeatable: true on the step, or {'no interference' if whole != draft.id else 'order: ladder'}"
            scope.problems.add(draft.stage.where, message, key="stages", hint=hint)
    return [one if one.id in turning else draft for one, draft in zip(tried, drafts, strict=True)]


def _whole(stage: Stage) -> str:
    """The ladder of all loads, of one that runs a load alone; else the stage itself."""
    return stage.interleaved_with or "" if isinstance(stage, Ladder) and stage.alone else stage.id


def _with_own_steps(draft: Draft, drafts: Sequence[Draft]) -> Draft:
    plain = isinstance(draft.stage, Ladder) and draft.cell is None
    return replace(draft, stage=_with_steps(draft.stage, drafts)) if plain else draft  # type: ignore[arg-type]

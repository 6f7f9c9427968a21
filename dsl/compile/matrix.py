"""`matrix:`, `before:`, `after:` and `with:` of ladders -> the stages that they stand for, and the order of their
turns.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from proveout.core.data_classes import dataclass, field, record
from proveout.core.errors import Where
from proveout.dsl.compile.symbols import Draft, Scope, put
from proveout.dsl.expr.checking import FUNCTIONS
from proveout.dsl.expr.evaluation import evaluate
from proveout.dsl.expr.syntax import ExpressionFault
from proveout.dsl.plan.iteration_order import groups
from proveout.dsl.plan.loads import targets
from proveout.dsl.plan.scalars import RESERVED
from proveout.dsl.plan.stages import KINDS, Cell, Ladder, Order, Populate, Reset, Restart, Stage, ids, same
from proveout.dsl.rules.repeat_rules import once_only
from proveout.dsl.schema.parameters import CellValues, Parameters, Variants, filled_in, label_of, written_out
from proveout.dsl.schema.stage_models import MatrixEntry
from proveout.dsl.schema.validation import validate
from proveout.dsl.source.nodes import Map, Node, Problems, Scalar, Seq, Steps, did_you_mean, listed, rewritten, where_of

# A cell's id is made of its labels (`stages.ids`). The first axis changes slowest. `matrix` has the cells
# take turns.

CELLS_MAX = 256
"""Of all matrices of a plan together; each is a ladder of its own with every repeat."""
TEXT_MAX = 200
STEPS = tuple(kind for kind, record in KINDS.items() if record.around_turns == "repeated")
"""Stages that can be a step before or after a ladder."""
TAKEN_BACK = tuple(sorted(kind for kind, record in KINDS.items() if record.around_turns == "taken back"))
"""Stages that can be a step before a ladder, and are taken back after it."""

_ALONE = re.compile(r"\$\{\s*params\.([A-Za-z_][A-Za-z0-9_]*)\s*\}")
_TAKEN = frozenset({*RESERVED, *FUNCTIONS, "peak", "knee", "axes", "combine"})

EACH_REPEAT = {"reload": ("reset", "systems"), "restart": ("restart", "system")}
"""Keys of a ladder -> the kind of the step that runs before each of its repeats, and its key for a target."""
EACH = "each_repeat"
"""Their value, and the side of such steps."""

Axes = Mapping[str, Sequence[Scalar]]


@record
class Place:
    """The origin of a stage: its index in the file's list, and its cell if it has one; `broken` marks a matrix with
    errors. `step_of` is the ladder that a step belongs to, `side` is `before`, `after` or `EACH`. `alone`: the load
    that the ladder runs alone, of those of the ladder `alone_of`."""

    index: int
    cell: Cell | None = None
    alone: str = ""
    alone_of: str = ""
    step_of: str = ""
    side: str = ""
    broken: bool = False


def expand(root: Map, parameters: Parameters, problems: Problems) -> tuple[Map, tuple[Place, ...]]:
    """The document with its matrices and steps laid out, and the place of each stage in it."""
    section = root.get("stages")
    if not isinstance(section, Seq):
        return root, ()
    work = _Expansion(parameters=parameters, problems=problems, variants=Variants(root.get("workloads")))
    found: list[tuple[Node, Place]] = []
    for work.index, item in enumerate(section.items):
        found += work.stage(item)
    items = tuple(work.with_needs(item) for item, _ in found)
    laid = put(root, "stages", replace(section, items=items))
    return work.variants.put_into(laid, problems), tuple(place for _, place in found)


@dataclass(slots=True)
class _Expansion:
    """`index`: that of the stage at hand; `left` is how many cells the plan may still have; `members` the ids of each
    matrix's cells."""

    parameters: Parameters
    problems: Problems
    variants: Variants
    index: int = 0
    left: int = CELLS_MAX
    members: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def problem(self, where: Where, key: str, message: str, hint: str = "") -> None:
        self.problems.add(where, message, key=f"{self.path}.{key}", hint=hint)

    @property
    def path(self) -> str:
        return f"stages.{self.index}.ladder"

    def stage(self, item: Node) -> list[tuple[Node, Place]]:
        """The stages of one entry; any other stage than a ladder with one of the three keys is returned unchanged."""
        body = item.get("ladder") if isinstance(item, Map) and len(item.entries) == 1 else None
        laid_out = {"matrix", "before", "after", "interference", *EACH_REPEAT}
        if not isinstance(item, Map) or not isinstance(body, Map) or laid_out.isdisjoint(body.keys()):
            return [(item, Place(index=self.index))]
        if (named := body.get("id")) is not None:  # its cells and steps have ids and places by it
            path = ("stages", self.index, "ladder", "id")
            filled = filled_in(named, path, self.parameters, self.problems)
            if isinstance(filled, Scalar) and filled.faulty:
                return [self.broken(item, body)]
            body = put(body, "id", filled)
        matrix = body.get("matrix")
        if matrix is None:
            return list(self.turns(item, body, _id(body)[0], None))
        cells = self.cells(body, matrix)
        if not cells:
            return [self.broken(item, body)]
        return [made for one in cells for made in self.cell(item, body, one)]

    def broken(self, item: Map, body: Map) -> tuple[Node, Place]:
        """A ladder that cannot be laid out, whose problems are noted."""
        return put(item, "ladder", replace(body, entries=())), Place(index=self.index, broken=True)

    # ---- cells ----

    def cells(self, body: Map, matrix: Node) -> list[tuple[str, Cell, Mapping[str, Scalar]]]:
        """(id, cell, values by axis) of each cell; none when the matrix is wrong."""
        named = body.get("id")
        if not isinstance(named, Scalar):
            message = "a ladder with a `matrix` needs an `id`: its cells are addressed by it"
            self.problem(matrix.where, "id", message)
            return []
        if named.text in self.members:
            self.problem(named.where, "id", f"another stage has the id `{named.text}`")
            return []
        whole = Map(entries=((_text("axes", matrix.where), matrix),), where=matrix.where)
        if isinstance(matrix, Map) and isinstance(matrix.get("axes"), Map):
            whole = matrix  # the long form, `{axes: {…}, combine: …}`
        if (combine := whole.get("combine")) is not None:
            whole = put(whole, "combine", self.filled(combine, "matrix.combine") or combine)
        entry = validate(MatrixEntry, whole, f"{self.path}.matrix", self.problems)
        axes = self.axes(whole.get("axes"), entry.combine) if entry is not None else None
        if entry is None or axes is None or not self.fits(axes, entry.combine, matrix):
            return []
        rows = zip(*axes.values(), strict=True) if entry.combine == "zip" else product(*axes.values())
        values = [dict(zip(axes, row, strict=True)) for row in rows]
        labels = [tuple((axis, label_of(node)) for axis, node in row.items()) for row in values]
        names = ids(named.text, labels)
        self.members[named.text] = names
        return [
            (name, Cell(of=named.text, labels=one), row) for name, one, row in zip(names, labels, values, strict=True)
        ]

    def axes(self, node: Node | None, combine: str) -> dict[str, tuple[Scalar, ...]] | None:
        """The values of each axis, parameters filled in; None with problems noted."""
        assert isinstance(node, Map)  # noqa: S101 - the model has seen it
        found = {key.text: self.axis(key, values, once=combine != "zip") for key, values in node.entries}
        good = {axis: values for axis, values in found.items() if values is not None}
        return good if len(good) == len(found) else None

    def axis(self, key: Scalar, node: Node, *, once: bool) -> tuple[Scalar, ...] | None:
        """Its values, each `once` where every one meets every value of the other axes."""
        path = f"matrix.{key.text}"
        if key.text in _TAKEN:
            message = f"an axis cannot be called `{key.text}`, which means something in expressions"
            self.problem(key.where, path, message)
            return None
        whole = self.filled(node, path)
        items = listed(whole)
        values = [self.filled(item, path) for item in items]
        fine = all(self.is_label(value, item.where, path) for value, item in zip(values, items, strict=True))
        if whole is None or not fine:
            return None
        scalars = tuple(value for value in values if isinstance(value, Scalar))
        for at, value in enumerate(scalars if once else ()):
            if any(same(label_of(value), label_of(other)) for other in scalars[:at]):
                self.problem(items[at].where, path, f"`{value.text}` is there twice")
                return None
        return scalars

    def filled(self, node: Node, path: str) -> Node | None:
        """The parameter that a `${params.x}` stands for; None when there is none."""
        alone = _ALONE.fullmatch(node.text) if isinstance(node, Scalar) else None
        if alone is None:
            return node
        found = self.parameters.nodes.get(alone[1])
        if found is None and alone[1] not in self.parameters.broken:
            hint = did_you_mean(alone[1], self.parameters.nodes)
            self.problem(node.where, path, f"there is no parameter `{alone[1]}`", hint)
        return found

    def is_label(self, node: Node | None, where: Where, path: str) -> bool:
        """Whether a value can be a label; a parameter that is not there has its own problem."""
        if node is None or (isinstance(node, Scalar) and node.faulty):
            return False
        text = node.text if isinstance(node, Scalar) and node.value is not None else ""
        if 0 < len(text) <= TEXT_MAX and "${" not in text:
            return True
        hint = f"text of at most {TEXT_MAX} characters, a number, or true and false"
        self.problem(where, path, "this cannot be a value of an axis", hint)
        return False

    def fits(self, axes: Axes, combine: str, matrix: Node) -> bool:
        """Whether the axes give a number of cells that a plan can have."""
        lengths = {axis: len(values) for axis, values in axes.items()}
        if combine == "zip" and len(set(lengths.values())) > 1:
            found = ", ".join(f"`{axis}` has {length}" for axis, length in lengths.items())
            self.problem(matrix.where, "matrix", f"zipped axes must be of one length, but {found}")
            return False
        count = min(lengths.values()) if combine == "zip" else math.prod(lengths.values())
        if count > self.left:
            product_of = combine != "zip" and len(axes) > 1
            shown = f" ({' × '.join(map(str, lengths.values()))})" if product_of else ""
            rest = "" if self.left == CELLS_MAX else f", {self.left} of which are left"
            message = f"the matrix has {count:,} cells{shown}; a plan has at most {CELLS_MAX}{rest}"
            zipped = ", or combine: zip" if product_of else ""
            self.problem(matrix.where, "matrix", message, f"fewer values{zipped}")
            return False
        rows = [tuple(map(label_of, row)) for row in zip(*axes.values(), strict=True)] if combine == "zip" else []
        if any(all(map(same, row, other)) for at, row in enumerate(rows) for other in rows[:at]):
            self.problem(matrix.where, "matrix", "two cells have the same values")
            return False
        self.left -= count
        return True

    def cell(self, item: Map, body: Map, one: tuple[str, Cell, Mapping[str, Scalar]]) -> Iterator[tuple[Node, Place]]:
        name, cell, values = one
        own = CellValues(values=values, problems=self.problems, path=self.path)

        def with_workload(node: Scalar, path: Steps) -> Node:  # which may have variants by the axes
            return (self.filled(node, "workload") or node) if path[-1:] == ("workload",) else node

        filled = self.variants.named(own.node(rewritten(_without(body, "matrix"), with_workload)), cell, own)
        assert isinstance(filled, Map)  # noqa: S101 - a mapping stays one
        yield from self.turns(item, _with_id(filled, name), name, cell)

    # ---- loads alone ----

    def turns(self, item: Map, body: Map, name: str, cell: Cell | None) -> Iterator[tuple[Node, Place]]:
        """The ladder with its steps, and with `interference` a ladder for each of its loads alone, with the same
        steps."""
        yield from self.steps(item, body, name, Place(index=self.index, cell=cell))
        asked, loads = body.get("interference"), body.get("loads")
        given = None if asked is None else self.filled(asked, "interference")
        alone = loads.keys() if isinstance(loads, Map) and isinstance(given, Scalar) and given.value is True else ()
        for load in alone if len(alone) > 1 else ():
            made = f"{name}__{load}_alone"
            place = Place(index=self.index, alone=load, alone_of=name)
            yield from self.steps(item, _with_id(body, made), made, place)

    # ---- steps ----

    def steps(self, item: Map, body: Map, name: str, place: Place) -> Iterator[tuple[Node, Place]]:
        """The steps before, the ladder, the steps after; steps run when the ladder does."""
        shared = tuple(entry for entry in body.entries if entry[0].text in ("when", "needs"))
        ladder = _without(_without(body, "before"), "after")
        before = [(f"{name}__before_{number}", key, given) for number, key, given in self.side(body, "before")]
        after = [(key, given) for _, key, given in self.side(body, "after")]
        after += _taken_back(before)
        each = [(f"{name}__{key.text}_{number}", key, given) for number, key, given in self.each_repeat(body)]
        for side, steps in (("before", before), (EACH, each)):
            for step_id, key, given in steps:
                yield _step(step_id, key, given, shared), Place(index=self.index, step_of=name, side=side)
        kind = item.entries[0][0]
        yield Map(entries=((kind, ladder),), where=item.where), place
        for number, (key, given) in enumerate(after, 1):
            made = _step(f"{name}__after_{number}", key, given, shared)
            yield made, Place(index=self.index, step_of=name, side="after")

    def each_repeat(self, body: Map) -> Iterator[tuple[int, Scalar, Map]]:
        """(number, kind, body) of the steps before each repeat: for each target its copy restored, and its server
        started again."""
        loads = body.get("loads")
        entries = loads.entries if isinstance(loads, Map) else ()
        named = (body.get("target"), *(one.get("target") for _, one in entries if isinstance(one, Map)))
        targets = {one.text: one for one in named if isinstance(one, Scalar)}
        for key, (kind, name) in EACH_REPEAT.items():
            asked = body.get(key)
            given = None if asked is None else self.filled(asked, key)
            if asked is None or not isinstance(given, Scalar) or given.text != EACH:
                continue  # its model objects
            for number, target in enumerate(targets.values(), 1):
                entry = (_text(name, asked.where), replace(target, where=asked.where))
                yield number, _text(kind, asked.where), Map(entries=(entry,), where=asked.where)

    def side(self, body: Map, side: str) -> Iterator[tuple[int, Scalar, Map]]:
        """(number, kind, body) of each valid step before or after the ladder; one whose `when` is false is left out."""
        allowed = (*STEPS, *TAKEN_BACK) if side == "before" else STEPS
        for number, step in enumerate(listed(body.get(side)), 1):
            kind = step.entries[0] if isinstance(step, Map) and len(step.entries) == 1 else None
            if kind is not None and kind[0].text in TAKEN_BACK and kind[0].text not in allowed:
                message, hint = f"`{kind[0].text}` is a step before a ladder", "it is taken back after it by itself"
                self.problem(step.where, side, message, hint)
                continue
            if kind is None or kind[0].text not in allowed or not isinstance(kind[1], Map):
                hint = f"- kind: {{…}}, kind one of {', '.join(allowed)}"
                self.problem(step.where, side, "a step is one stage with its settings", hint)
                continue
            for key, given in kind[1].entries:
                if key.text in ("id", "needs"):
                    message = f"a step has no `{key.text}` of its own"
                    self.problem(given.where, side, message, "it runs as its ladder does")
            if self.runs(kind[1].get("when"), side):
                yield number, kind[0], _without(kind[1], "when")

    def runs(self, when: Node | None, side: str) -> bool:
        """Whether a step is one of this cell: its `when` is true or false, or a condition on values of the cell."""
        found = when if when is None else self.filled(when, side)
        if when is None or found is None or (isinstance(found, Scalar) and found.faulty):
            return True
        if isinstance(found, Scalar):
            value: object = found.value
            with contextlib.suppress(ExpressionFault):
                value = evaluate(found.text, {}) if isinstance(value, str) else value
            if isinstance(value, bool):
                return value
        hint = (
            "when: ${matrix.axis}, with the values true and false, or a comparison of values of the cell: "
            '\'"${matrix.mode}" != "disk"\'; else it runs as its ladder does'
        )
        self.problem(when.where, side, "the `when` of a step is true or false", hint)
        return True

    # ---- needs ----

    def with_needs(self, item: Node) -> Node:
        """An entry whose `needs` name the cells where they named a matrix."""
        if not self.members or not isinstance(item, Map) or len(item.entries) != 1:
            return item
        key, body = item.entries[0]
        needs = body.get("needs") if isinstance(body, Map) else None
        if needs is None or not isinstance(body, Map):
            return item
        named: list[Node] = []
        for node in listed(needs):
            cells = self.members.get(node.text, ()) if isinstance(node, Scalar) else ()
            named += [_text(cell, node.where) for cell in cells] or [node]
        return put(item, key.text, put(body, "needs", Seq(items=tuple(named), where=needs.where)))


# ---- nodes -------------------------------------------------------------------------------------------------------


def _step(step_id: str, kind: Scalar, body: Map, shared: tuple[tuple[Scalar, Node], ...]) -> Map:
    named = (_text("id", kind.where), _text(step_id, kind.where))
    whole = replace(body, entries=(*_without(body, "id").entries, named, *shared))
    return Map(entries=((kind, whole),), where=kind.where)


def _taken_back(before: Sequence[tuple[str, Scalar, Map]]) -> list[tuple[Scalar, Map]]:
    """The steps that take steps before a ladder back, the last first: tables are dropped, changes of hosts are set
    back, systems run with the plan's settings again.

    A system that was restarted on a changed host is restarted once more when the host is as before.
    """
    found: list[tuple[Scalar, Map]] = []
    tuned = False
    restarted: dict[str, tuple[Scalar, Map]] = {}
    again: dict[str, tuple[Scalar, Map]] = {}
    for step_id, kind, body in before:
        if kind.text == "populate":
            keys = [(key, node) for key, node in body.entries if key.text in ("workload", "from")]
            into = [(_text("systems", key.where), node) for key, node in body.entries if key.text == "into"]
            found.insert(0, (_text("drop", kind.where), Map(entries=(*keys, *into), where=body.where)))
        elif kind.text == "tune":
            tuned = True
            named = (_text("tune", kind.where), _text(step_id, kind.where))
            found.insert(0, (_text("revert", kind.where), Map(entries=(named,), where=body.where)))
        elif kind.text == "restart" and isinstance(system := body.get("system"), Scalar):
            undone = kind, Map(entries=((_text("system", kind.where), system),), where=body.where)
            if system.text not in restarted:
                found.insert(0, undone)
            restarted[system.text] = undone
            again |= {system.text: undone} if tuned else {}
    return [*found, *again.values()]


def _text(text: str, where: Where) -> Scalar:
    return Scalar(value=text, text=text, where=where)


def _id(body: Map) -> tuple[str, Where]:
    named = body.get("id")
    return named.text if isinstance(named, Scalar) else "ladder", body.where if named is None else named.where


def _without(body: Map, key: str) -> Map:
    return replace(body, entries=tuple(entry for entry in body.entries if entry[0].text != key))


def _with_id(body: Map, made: str) -> Map:
    where = _id(body)[1]
    named = (_text("id", where), _text(made, where))
    return replace(body, entries=(named, *_without(body, "id").entries))


# The cells of a matrix take turns by default: cells that run one after the other cannot be distinguished from a drift
# of the machine. They run one after the other with `order: ladder`, and when turns are not possible: a step is not
# repeatable, or cells differ in what they wait for or in their repeats. With `order: interleaved` the latter are
# problems. Cells that load a population run one after the other too, because each turn would load it again: with
# `order: interleaved` they take turns at that price.

ASKED = "the plan has `order: ladder`"


def interleave(scope: Scope, drafts: Sequence[Draft]) -> list[Draft]:
    """The drafts with their ladders' turns; problems of turns that the plan requires go to the scope."""
    turns = _Turns(scope=scope, drafts=[_as_restarted(draft, drafts) for draft in drafts])
    made = {draft.id: draft for draft in turns.drafts}
    for cells in turns.matrices():
        made |= {draft.id: draft for draft in turns.of_cells(cells)}
    ordered = [made[draft.id] if draft.stage is not None else draft for draft in turns.drafts]
    return [turns.with_each_repeat(draft) for draft in turns.plain(ordered)]


def _as_restarted(draft: Draft, drafts: Sequence[Draft]) -> Draft:
    """A restart before each repeat has the settings of the last restart of its system before it."""
    if not isinstance(draft.stage, Restart) or draft.side != EACH:
        return draft
    earlier = [one.stage for one in drafts[: drafts.index(draft)] if one.side != EACH]
    restarts = [one for one in earlier if isinstance(one, Restart) and one.system == draft.stage.system]
    return replace(draft, stage=replace(draft.stage, settings=restarts[-1].settings)) if restarts else draft


@record
class _Turns:
    scope: Scope
    drafts: Sequence[Draft]

    def matrices(self) -> list[list[Draft]]:
        """The cells of each matrix, those in which every cell and every step compiled."""
        found: dict[str, list[Draft]] = {}
        for draft in self.drafts:
            if draft.cell is not None:
                found.setdefault(draft.cell.of, []).append(draft)
        broken = {draft.step_of or draft.id for draft in self.drafts if draft.stage is None}
        return [cells for cells in found.values() if not broken & {cell.id for cell in cells}]

    def of_cells(self, cells: Sequence[Draft]) -> Iterator[Draft]:
        """The cells of a matrix, in turns or one after the other."""
        if len(cells) == 1:
            yield from cells
            return
        order = cells[0].body.get("order")
        wanted = order.text if isinstance(order, Scalar) else ""
        reason = ASKED if wanted == "ladder" else self.obstacle(cells)
        if not reason and wanted != "interleaved":
            reason = self.population(cells)
        if reason and wanted == "interleaved":
            message = f"the cells cannot take turns: {reason}"
            hint = "order: ladder, which does not distinguish drift from the difference of the cells"
            self.scope.problems.add(where_of(cells[0].body, "order"), message, key="stages", hint=hint)
        alone = {one.stage.interleaved_with for one in self.drafts if isinstance(one.stage, Ladder) and one.stage.alone}
        for draft in cells:
            ladder = draft.stage
            assert isinstance(ladder, Ladder)  # noqa: S101
            order_of_rungs: Order = "shuffled" if ladder.seed is not None else "ladder"
            turned = replace(ladder, order=order_of_rungs, apart=reason)
            if not reason and draft is not cells[0]:
                turned = replace(ladder, order="interleaved", seed=None, interleaved_with=cells[0].id)
            yield replace(draft, stage=self.with_steps(turned) if not reason or ladder.id in alone else turned)

    def steps(self, ladder: str, side: str) -> tuple[str, ...]:
        return tuple(one.id for one in self.drafts if (one.step_of, one.side) == (ladder, side))

    def with_steps(self, ladder: Ladder) -> Ladder:
        before, each, after = (self.steps(ladder.id, side) for side in ("before", EACH, "after"))
        return replace(ladder, before=before + each, after=after)

    def with_each_repeat(self, draft: Draft) -> Draft:
        """A ladder that takes turns with no other has as its turns its repeats, with the steps before each of them."""
        steps = self.steps(draft.id, EACH)
        if not isinstance(draft.stage, Ladder) or not steps or draft.stage.before:
            return draft
        return replace(draft, stage=replace(draft.stage, before=steps))

    def obstacle(self, cells: Sequence[Draft]) -> str:
        """The reason why the cells cannot take turns; "" when they can."""
        ladders, systems = [cell.stage for cell in cells if isinstance(cell.stage, Ladder)], self.scope.systems
        if len({(ladder.repeat, ladder.repeat_min) for ladder in ladders}) > 1:
            return "they are not repeated alike"
        for key in ("when", "needs"):
            if len({written_out(cell.body.get(key)) for cell in cells}) > 1:
                return f"their `{key}` differs"
        loaded = {name for ladder in ladders for name in targets(ladder)}
        for source in sorted(name for name in loaded if systems[name].propagates_to in loaded):
            ends = {source, str(systems[source].propagates_to)}
            if not all(self.begins_level(cell, ends) for cell in cells):
                both = " and ".join(sorted(ends))
                return f"{both} propagate to each other, without a reset of both before each cell"
        return self.unrepeatable({cell.id for cell in cells})

    def begins_level(self, cell: Draft, ends: set[str]) -> bool:
        """Whether a step before the cell restores both ends of a propagation: no change is in transit then, and the
        writes of other cells do not conflict."""
        steps = [one.stage for one in self.drafts if one.step_of == cell.id and one.side == "before"]
        return any(isinstance(step, Reset) and step.restore and ends <= set(step.systems) for step in steps)

    def population(self, cells: Sequence[Draft]) -> str:
        """The step that loads a population before a cell, as a reason not to do it in each turn; "" without one."""
        ladders = {cell.id for cell in cells}
        step = next((one.id for one in self.drafts if one.step_of in ladders and isinstance(one.stage, Populate)), "")
        return f"`{step}` would load in each repeat, as it does with `order: interleaved`" if step else ""

    def unrepeatable(self, ladders: set[str]) -> str:
        """The first step of these ladders that can run only once, and why; "" when there is none."""
        for draft in self.drafts:
            if draft.step_of in ladders and draft.stage is not None and (reason := once_only(draft.stage)):
                return f"step `{draft.id}` is not repeatable ({reason})"
        return ""

    def plain(self, drafts: Sequence[Draft]) -> list[Draft]:
        """The drafts with the steps of ladders that take turns by `with`."""
        tried = [
            replace(draft, stage=self.with_steps(draft.stage))
            if isinstance(draft.stage, Ladder) and draft.cell is None
            else draft
            for draft in drafts
        ]
        stages: list[Stage] = [draft.stage for draft in tried if draft.stage is not None]
        turning = {one.id for members in groups(stages) if len(members) > 1 for one in members if one.cell is None}
        for draft in drafts:
            if draft.id in turning and draft.stage is not None and (reason := self.unrepeatable({draft.id})):
                whole = whole_ladder(draft.stage)
                if whole in turning and whole != draft.id:
                    continue  # noted at the ladder of all loads
                message = f"`{whole}` cannot take turns: {reason}"
                hint = f"repeatable: true on the step, or {'no interference' if whole != draft.id else 'order: ladder'}"
                self.scope.problems.add(draft.stage.where, message, key="stages", hint=hint)
        return [one if one.id in turning else draft for one, draft in zip(tried, drafts, strict=True)]


def whole_ladder(stage: Stage) -> str:
    """The ladder of all loads, of one that runs a load alone; else the stage itself."""
    return stage.interleaved_with or "" if isinstance(stage, Ladder) and stage.alone else stage.id

"""`matrix:`, `before:` and `after:` of a ladder -> the stages that they stand for, before anything is compiled.

Data flow: the document as read -> `expand` -> the same document in which each such ladder is a row of stages: for every
cell its steps before, the ladder with `${matrix.axis}` put in, its steps after; and a `Place` for each stage, with the
place in the file where it was, which cell it is, or of which ladder it is a step. Everything behind this sees ordinary
stages, so that results, resume and reports work cell by cell.

A cell's id is made of its labels (`matrix_labels.ids`). The first axis changes slowest. `interleaving` has the cells
take turns.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from proveout.core.errors import Where
from proveout.dsl.expr.syntax import RESERVED
from proveout.dsl.plan.matrix_labels import Cell, Label, ids, same, written
from proveout.dsl.schema.plan_parameters import Parameters
from proveout.dsl.schema.stage_models import MatrixEntry
from proveout.dsl.schema.validation import validate
from proveout.dsl.source.nodes import Map, Node, Problems, Scalar, Seq, did_you_mean

CELLS_MAX = 256
"""Of all matrices of a plan together; each is a ladder of its own with every repeat."""
TEXT_MAX = 200
STEPS = ("sql", "reset", "pause")
"""Stages that can be a step before or after a ladder."""

_ALONE = re.compile(r"\$\{\s*params\.([A-Za-z_][A-Za-z0-9_]*)\s*\}")
_MATRIX = re.compile(r"\$\{\s*matrix\.([A-Za-z_][A-Za-z0-9_]*)\s*\}")
_TAKEN = frozenset({*RESERVED, "at", "peak", "knee", "ratio", "us", "ms", "s", "abs", "min", "max", "axes", "combine"})

Axes = Mapping[str, Sequence[Scalar]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The origin of a stage: its index in the file's list, and its cell if it has one; `broken` marks a matrix with
    errors. `step_of` is the ladder that a step belongs to, `side` is `before` or `after`. `alone`: the load that the
    ladder runs alone, of those of the ladder `alone_of`."""

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
    work = _Expansion(parameters=parameters, problems=problems)
    found = [made for index, item in enumerate(section.items) for made in work.stage(item, index)]
    items = tuple(work.with_needs(item) for item, _ in found)
    stages = dataclasses.replace(section, items=items)
    entries = tuple((key, stages if key.text == "stages" else node) for key, node in root.entries)
    return dataclasses.replace(root, entries=entries), tuple(place for _, place in found)


@dataclass(slots=True)
class _Expansion:
    """`left` is how many cells the plan may still have; `members` the ids of each matrix's cells."""

    parameters: Parameters
    problems: Problems
    left: int = CELLS_MAX
    members: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def problem(self, where: Where, index: int, key: str, message: str, hint: str = "") -> None:
        self.problems.add(where, message, key=f"stages.{index}.ladder.{key}", hint=hint)

    def stage(self, item: Node, index: int) -> list[tuple[Node, Place]]:
        """The stages of one entry; any other stage than a ladder with one of the three keys is returned unchanged."""
        body = item.get("ladder") if isinstance(item, Map) and len(item.entries) == 1 else None
        if (
            not isinstance(item, Map)
            or not isinstance(body, Map)
            or not {"matrix", "before", "after", "interference"} & set(body.keys())
        ):
            return [(item, Place(index=index))]
        matrix = body.get("matrix")
        if matrix is None:
            return list(self.turns(item, body, index, _id_of(body), None))
        cells = self.cells(body, matrix, index)
        if not cells:
            empty = Map(entries=((item.entries[0][0], Map(entries=(), where=body.where)),), where=item.where)
            return [(empty, Place(index=index, broken=True))]
        return [made for one in cells for made in self.cell(item, body, index, one)]

    # ---- cells ----

    def cells(self, body: Map, matrix: Node, index: int) -> list[tuple[str, Cell, Mapping[str, Scalar]]]:
        """(id, cell, values by axis) of each cell; none when the matrix is wrong."""
        named = body.get("id")
        if not isinstance(named, Scalar):
            self.problem(
                matrix.where, index, "id", "a ladder with a `matrix` needs an `id`: its cells are addressed by it"
            )
            return []
        entry = validate(MatrixEntry, _long_form(matrix), f"stages.{index}.ladder.matrix", self.problems)
        axes = self.axes(_long_form(matrix).get("axes"), index) if entry is not None else None
        if entry is None or axes is None or not self.fits(axes, entry.combine, matrix, index):
            return []
        rows = zip(*axes.values(), strict=True) if entry.combine == "zip" else product(*axes.values())
        values = [dict(zip(axes, row, strict=True)) for row in rows]
        labels = [tuple((axis, _label(node)) for axis, node in row.items()) for row in values]
        names = ids(named.text, labels)
        self.members[named.text] = names
        return [
            (name, Cell(of=named.text, labels=one), row) for name, one, row in zip(names, labels, values, strict=True)
        ]

    def axes(self, node: Node | None, index: int) -> dict[str, tuple[Scalar, ...]] | None:
        """The values of each axis, parameters filled in; None with problems noted."""
        assert isinstance(node, Map)  # noqa: S101 - the model has seen it
        found = {key.text: self.axis(key, values, index) for key, values in node.entries}
        good = {axis: values for axis, values in found.items() if values is not None}
        return good if len(good) == len(found) else None

    def axis(self, key: Scalar, node: Node, index: int) -> tuple[Scalar, ...] | None:
        path = f"matrix.{key.text}"
        if key.text in _TAKEN:
            self.problem(
                key.where, index, path, f"an axis cannot be called `{key.text}`, which means something in expressions"
            )
            return None
        whole = self.filled(node, index, path)
        items = whole.items if isinstance(whole, Seq) else (whole,) if whole is not None else ()
        values = [self.filled(item, index, path) for item in items]
        if any(not self.is_label(value, index, path) for value in values) or whole is None:
            return None
        scalars = tuple(value for value in values if isinstance(value, Scalar))
        for at, value in enumerate(scalars):
            if any(same(_label(value), _label(other)) for other in scalars[:at]):
                self.problem(items[at].where, index, path, f"`{value.text}` is there twice")
                return None
        return scalars

    def filled(self, node: Node, index: int, path: str) -> Node | None:
        """The parameter that a `${params.x}` stands for; None when there is none."""
        alone = _ALONE.fullmatch(node.text) if isinstance(node, Scalar) else None
        if alone is None:
            return node
        found = self.parameters.nodes.get(alone[1])
        if found is None and alone[1] not in self.parameters.broken:
            hint = did_you_mean(alone[1], self.parameters.nodes)
            self.problem(node.where, index, path, f"there is no parameter `{alone[1]}`", hint)
        return found

    def is_label(self, node: Node | None, index: int, path: str) -> bool:
        """Whether a value can be a label; a parameter that is not there has its own problem."""
        if node is None or (isinstance(node, Scalar) and node.faulty):
            return False
        if (
            isinstance(node, Scalar)
            and node.value is not None
            and "${" not in node.text
            and 0 < len(node.text) <= TEXT_MAX
        ):
            return True
        hint = f"text of at most {TEXT_MAX} characters, a number, or true and false"
        self.problem(node.where, index, path, "this cannot be a value of an axis", hint)
        return False

    def fits(self, axes: Axes, combine: str, matrix: Node, index: int) -> bool:
        """Whether the axes give a number of cells that a plan can have."""
        lengths = {axis: len(values) for axis, values in axes.items()}
        if combine == "zip" and len(set(lengths.values())) > 1:
            found = ", ".join(f"`{axis}` has {length}" for axis, length in lengths.items())
            self.problem(matrix.where, index, "matrix", f"zipped axes must be of one length, but {found}")
            return False
        count = min(lengths.values()) if combine == "zip" else math.prod(lengths.values())
        if count > self.left:
            shown = " × ".join(str(length) for length in lengths.values()) if combine != "zip" else str(count)
            rest = "" if self.left == CELLS_MAX else f", {self.left} of which are left"
            message = f"the matrix has {count:,} cells ({shown}); a plan has at most {CELLS_MAX}{rest}"
            self.problem(matrix.where, index, "matrix", message, "fewer values, or combine: zip")
            return False
        self.left -= count
        return True

    def cell(
        self, item: Map, body: Map, index: int, one: tuple[str, Cell, Mapping[str, Scalar]]
    ) -> Iterator[tuple[Node, Place]]:
        """The stages of one cell."""
        name, cell, values = one
        filled = _Values(values=values, problems=self.problems, path=f"stages.{index}.ladder").node(
            _without(body, "matrix")
        )
        assert isinstance(filled, Map)  # noqa: S101 - a mapping stays one
        yield from self.turns(item, _with(filled, "id", name, _id_where(body)), index, name, cell)

    # ---- loads alone ----

    def turns(self, item: Map, body: Map, index: int, name: str, cell: Cell | None) -> Iterator[tuple[Node, Place]]:
        """The ladder with its steps, and with `interference` a ladder for each of its loads alone, with the same
        steps."""
        yield from self.steps(item, body, index, name, Place(index=index, cell=cell))
        asked, loads = body.get("interference"), body.get("loads")
        given = None if asked is None else self.filled(asked, index, "interference")
        wanted = isinstance(given, Scalar) and given.value is True and isinstance(loads, Map)
        for load in loads.keys() if wanted and isinstance(loads, Map) and len(loads.entries) > 1 else ():
            made = f"{name}__{load}_alone"
            place = Place(index=index, alone=load, alone_of=name)
            yield from self.steps(item, _with(body, "id", made, _id_where(body)), index, made, place)

    # ---- steps ----

    def steps(self, item: Map, body: Map, index: int, name: str, place: Place) -> Iterator[tuple[Node, Place]]:
        """The steps before, the ladder, the steps after; steps run when the ladder does."""
        shared = tuple(entry for entry in body.entries if entry[0].text in ("when", "needs"))
        ladder = _without(_without(body, "before"), "after")
        for step in self.side(body, "before", index, name, shared):
            yield step, Place(index=index, step_of=name, side="before")
        key = item.entries[0][0]
        yield Map(entries=((key, ladder),), where=item.where), place
        for step in self.side(body, "after", index, name, shared):
            yield step, Place(index=index, step_of=name, side="after")

    def side(
        self, body: Map, side: str, index: int, name: str, shared: tuple[tuple[Scalar, Node], ...]
    ) -> Iterator[Map]:
        node = body.get(side)
        items = node.items if isinstance(node, Seq) else () if node is None else (node,)
        for number, step in enumerate(items, 1):
            kind = step.entries[0] if isinstance(step, Map) and len(step.entries) == 1 else None
            if kind is None or kind[0].text not in STEPS or not isinstance(kind[1], Map):
                hint = f"- kind: {{…}}, kind one of {', '.join(STEPS)}"
                self.problem(step.where, index, side, "a step is one stage with its settings", hint)
                continue
            for key in ("id", "when", "needs"):
                if (given := kind[1].get(key)) is not None:
                    self.problem(
                        given.where, index, side, f"a step has no `{key}` of its own", "it runs as its ladder does"
                    )
            made = _with(kind[1], "id", f"{name}__{side}_{number}", step.where)
            whole = Map(entries=(*made.entries, *shared), where=made.where)
            yield Map(entries=((kind[0], whole),), where=step.where)

    # ---- needs ----

    def with_needs(self, item: Node) -> Node:
        """An entry whose `needs` name the cells where they named a matrix."""
        if not self.members or not isinstance(item, Map) or len(item.entries) != 1:
            return item
        key, body = item.entries[0]
        needs = body.get("needs") if isinstance(body, Map) else None
        if needs is None or not isinstance(body, Map):
            return item
        items = needs.items if isinstance(needs, Seq) else (needs,)
        named = tuple(one for node in items for one in self.needed(node))
        laid = tuple(
            (k, Seq(items=named, where=needs.where) if k.text == "needs" else node) for k, node in body.entries
        )
        return dataclasses.replace(item, entries=((key, dataclasses.replace(body, entries=laid)),))

    def needed(self, node: Node) -> tuple[Node, ...]:
        cells = self.members.get(node.text, ()) if isinstance(node, Scalar) else ()
        return tuple(Scalar(value=cell, text=cell, where=node.where) for cell in cells) or (node,)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Values:
    """Puts the values of a cell in the place of `${matrix.axis}`."""

    values: Mapping[str, Scalar]
    problems: Problems
    path: str

    def node(self, node: Node) -> Node:
        if isinstance(node, Map):
            return dataclasses.replace(node, entries=tuple((key, self.node(item)) for key, item in node.entries))
        if isinstance(node, Seq):
            return dataclasses.replace(node, items=tuple(self.node(item) for item in node.items))
        if isinstance(node.value, str) and not node.faulty and "${" in node.text and "matrix" in node.text:
            return self.scalar(node)
        return node

    def scalar(self, node: Scalar) -> Scalar:
        unknown = next((axis for axis in _MATRIX.findall(node.text) if axis not in self.values), None)
        if unknown is not None:
            hint = did_you_mean(unknown, self.values)
            self.problems.add(node.where, f"the matrix has no axis `{unknown}`", key=self.path, hint=hint)
            return dataclasses.replace(node, faulty=True)
        alone = _MATRIX.fullmatch(node.text)
        if alone is not None:
            return dataclasses.replace(self.values[alone[1]], where=node.where, text_column=0)
        text = _MATRIX.sub(lambda match: written(_label(self.values[match[1]])), node.text)
        return node if text == node.text else dataclasses.replace(node, value=text, text=text, text_column=0)


# ---- nodes -------------------------------------------------------------------------------------------------------


def _label(node: Scalar) -> Label:
    assert node.value is not None  # noqa: S101 - looked at when the axis was read
    return node.value


def _long_form(matrix: Node) -> Map:
    """`{axes: {…}, combine: …}`, of which `{mode: […], …}` is the short form."""
    if isinstance(matrix, Map) and isinstance(matrix.get("axes"), Map):
        return matrix
    key = Scalar(value="axes", text="axes", where=matrix.where)
    return Map(entries=((key, matrix),), where=matrix.where)


def _id_of(body: Map) -> str:
    named = body.get("id")
    return named.text if isinstance(named, Scalar) else "ladder"


def _id_where(body: Map) -> Where:
    named = body.get("id")
    return named.where if named is not None else body.where


def _without(body: Map, key: str) -> Map:
    return dataclasses.replace(body, entries=tuple(entry for entry in body.entries if entry[0].text != key))


def _with(body: Map, key: str, value: str, where: Where) -> Map:
    """The mapping with `key: value`, which replaces an earlier value."""
    made = (Scalar(value=key, text=key, where=where), Scalar(value=value, text=value, where=where))
    if body.get(key) is None:
        return dataclasses.replace(body, entries=(*body.entries, made))
    return dataclasses.replace(body, entries=tuple(made if entry[0].text == key else entry for entry in body.entries))

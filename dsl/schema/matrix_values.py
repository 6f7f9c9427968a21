"""The values of a cell of a matrix in the place of `${matrix.axis}`, and the workloads that differ from cell to cell.

Data flow: the body of a ladder and the values of one cell -> `CellValues.node` -> the body of the cell ->
`Variants.named` -> the same, in which a workload with `${matrix.axis}` in its parameters is replaced by its variant,
whose name has the labels of the cell -> `Variants.put_into` -> the document with the variants in the place of these
workloads.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping

from proveout.core.data_classes import dataclass, field
from proveout.dsl.plan.matrix_labels import Cell, Label, ids, written
from proveout.dsl.source.nodes import Map, Node, Problems, Scalar, Seq, did_you_mean

_MATRIX = re.compile(r"\$\{\s*matrix\.([A-Za-z_][A-Za-z0-9_]*)\s*\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CellValues:
    """Puts the values of a cell in the place of `${matrix.axis}`."""

    values: Mapping[str, Scalar]
    problems: Problems
    path: str

    def node(self, node: Node) -> Node:
        """A node with the values put in."""
        if isinstance(node, Map):
            return dataclasses.replace(node, entries=tuple((key, self.node(item)) for key, item in node.entries))
        if isinstance(node, Seq):
            return dataclasses.replace(node, items=tuple(self.node(item) for item in node.items))
        if isinstance(node.value, str) and not node.faulty and "${" in node.text and "matrix" in node.text:
            return self.scalar(node)
        return node

    def scalar(self, node: Scalar) -> Scalar:
        """A scalar that consists only of one axis becomes its value, with its type; a problem for an unknown axis."""
        unknown = next((axis for axis in _MATRIX.findall(node.text) if axis not in self.values), None)
        if unknown is not None:
            hint = did_you_mean(unknown, self.values)
            self.problems.add(node.where, f"the matrix has no axis `{unknown}`", key=self.path, hint=hint)
            return dataclasses.replace(node, faulty=True)
        alone = _MATRIX.fullmatch(node.text)
        if alone is not None:
            return dataclasses.replace(self.values[alone[1]], where=node.where, text_column=0)
        text = _MATRIX.sub(lambda match: written(label_of(self.values[match[1]])), node.text)
        return node if text == node.text else dataclasses.replace(node, value=text, text=text, text_column=0)


@dataclass(slots=True)
class Variants:
    """The workloads of a plan with `${matrix.axis}` in them: node, axes, and the variants made so far by labels."""

    section: Node | None
    axes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    made: dict[tuple[str, tuple[tuple[str, Label], ...]], tuple[str, Node]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, node in self.section.entries if isinstance(self.section, Map) else ():
            if found := tuple(dict.fromkeys(_axes(node))):
                self.axes[key.text] = found

    def named(self, node: Node, cell: Cell, values: CellValues, key: str = "") -> Node:
        """A node of a cell, in which each `workload` with variants is the one of the cell."""
        if isinstance(node, Map):
            entries = tuple((k, self.named(one, cell, values, k.text)) for k, one in node.entries)
            return dataclasses.replace(node, entries=entries)
        if isinstance(node, Seq):
            return dataclasses.replace(node, items=tuple(self.named(one, cell, values, key) for one in node.items))
        if key != "workload" or node.text not in self.axes:
            return node
        if missing := [axis for axis in self.axes[node.text] if axis not in values.values]:
            message = f"workload `{node.text}` has ${{matrix.{missing[0]}}}, and the matrix has no axis `{missing[0]}`"
            hint = did_you_mean(missing[0], values.values)
            values.problems.add(node.where, message, key=values.path, hint=hint)
            return dataclasses.replace(node, faulty=True)
        name = self.variant(node.text, cell, values)
        return dataclasses.replace(node, value=name, text=name, text_column=0)

    def variant(self, workload: str, cell: Cell, values: CellValues) -> str:
        """The name of the variant of a workload for a cell."""
        assert isinstance(self.section, Map)  # noqa: S101 - the workload is in it
        labels = tuple((axis, label) for axis, label in cell.labels if axis in self.axes[workload])
        if (workload, labels) not in self.made:
            taken = {key.text for key, _ in self.section.entries} | {name for name, _ in self.made.values()}
            name = ids(workload, [labels])[0]
            free = (f"{workload}__c{number}" for number in range(1, len(taken) + 2))
            name = next(one for one in (name, *free) if one not in taken)
            body = self.section.get(workload)
            assert body is not None  # noqa: S101
            self.made[workload, labels] = name, dataclasses.replace(values, path=f"workloads.{workload}").node(body)
        return self.made[workload, labels][0]

    def put_into(self, root: Map, problems: Problems) -> Map:
        """The document with the variants; a problem for a workload that no cell uses."""
        if not self.axes or not isinstance(self.section, Map):
            return root
        entries: list[tuple[Scalar, Node]] = []
        for key, node in self.section.entries:
            mine = [found for (workload, _), found in self.made.items() if workload == key.text]
            entries += [(dataclasses.replace(key, value=name, text=name), one) for name, one in mine]
            if key.text not in self.axes:
                entries.append((key, node))
            elif not mine:
                axis = self.axes[key.text][0]
                message = f"workload `{key.text}` has ${{matrix.{axis}}}, but no ladder with such a matrix uses it"
                problems.add(key.where, message, key=f"workloads.{key.text}", hint=f"matrix: {{{axis}: […]}}")
        section = dataclasses.replace(self.section, entries=tuple(entries))
        pairs = tuple((key, section if key.text == "workloads" else node) for key, node in root.entries)
        return dataclasses.replace(root, entries=pairs)


def _axes(node: Node) -> Iterator[str]:
    """The axes that a node names."""
    if isinstance(node, Map):
        for _, item in node.entries:
            yield from _axes(item)
    elif isinstance(node, Seq):
        for item in node.items:
            yield from _axes(item)
    elif isinstance(node.value, str):
        yield from _MATRIX.findall(node.text)


def label_of(node: Scalar) -> Label:
    """The value of an axis as a label."""
    assert node.value is not None  # noqa: S101 - looked at when the axis was read
    return node.value

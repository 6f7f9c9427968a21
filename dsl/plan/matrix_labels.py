"""A cell of a matrix: which one of a stage's variants a compiled stage is, by its labels. Pure data, no imports of
ours.

`matrix` makes the cells, the compiled `Ladder` carries its own, and every view or store of results takes the labels
from there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from proveout.core.data_classes import dataclass

Label: TypeAlias = "str | int | float | bool"

ID_MAX = 56
"""Characters of a cell's id, so that its steps' ids fit into a stage id too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """`of` is the id that the plan gives the stage; `labels` are (axis, value) in the order of its axes."""

    of: str
    labels: tuple[tuple[str, Label], ...]

    def __str__(self) -> str:
        return label_text(self.labels)


def written(value: Label) -> str:
    """A label as a plan writes it."""
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def label_text(labels: Iterable[tuple[str, Label]]) -> str:
    """Labels for people: `mode lz4, degree 2`."""
    return ", ".join(f"{axis} {written(value)}" for axis, value in labels)


def same(one: Label, other: Label) -> bool:
    """Whether two labels are one: numbers by value, and neither a number nor a text is a boolean.

    >>> same(2, 2.0), same(1, True), same("2", 2)
    (True, False, False)
    """
    return (
        isinstance(one, bool) == isinstance(other, bool)
        and isinstance(one, str) == isinstance(other, str)
        and one == other
    )


def ids(of: str, cells: Iterable[tuple[tuple[str, Label], ...]]) -> tuple[str, ...]:
    """An id for each cell, all different: `solve__lz4__degree_2`; counted where labels give too long or the same ones.

    >>> ids("solve", [(("mode", "query low"), ("degree", 2)), (("mode", "query-low"), ("degree", 2))])
    ('solve__query_low__degree_2', 'solve__c2')
    """
    found: list[str] = []
    for number, labels in enumerate(cells, 1):
        name = "__".join((of, *(_word(axis, value) for axis, value in labels)))
        found.append(f"{of}__c{number}" if len(name) > ID_MAX or name in found else name)
    return tuple(found)


def _word(axis: str, value: Label) -> str:
    word = re.sub(r"[^A-Za-z0-9]+", "_", written(value)).strip("_")
    return word if isinstance(value, str) and word[:1].isalpha() else f"{axis}_{word}"


def of_stage(stage: Mapping[str, Any]) -> Cell | None:
    """The cell of a stage as a recorded plan has it; None for a stage without a matrix."""
    cell = stage.get("cell")
    if not isinstance(cell, Mapping):
        return None
    return Cell(of=str(cell["of"]), labels=tuple((str(axis), value) for axis, value in cell["labels"]))

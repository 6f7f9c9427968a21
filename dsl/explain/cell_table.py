"""The cells of a matrix for `proveout explain`: one in full, and of the others what differs from it.

Data flow: the stages of a matrix -> `cells` (the stages of each) -> `fullest` (the one that is shown in full) ->
`differences` of each other cell. A line that differs in nothing but the labels of the cells, their ids and the names
that the labels make is the same line: `connections with degree = 2` of the cell with degree 2 stands for
`connections with degree = 32` of the cell with degree 32.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from proveout.core.data_classes import dataclass
from proveout.dsl.explain.timetable import CellLine, StageLine

Lines = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellStages:
    """The stages of a cell with their numbers in the plan."""

    cell: CellLine
    stages: tuple[tuple[int, StageLine], ...]

    @property
    def numbers(self) -> str:
        """`3`, `3-6`."""
        first, last = self.stages[0][0], self.stages[-1][0]
        return str(first) if first == last else f"{first}-{last}"

    @property
    def iterations(self) -> int:
        """The most iterations of all its stages."""
        return sum(stage.iterations for _, stage in self.stages)

    @property
    def seconds(self) -> tuple[float, float]:
        """The shortest and the longest time of all its stages."""
        return sum(stage.seconds_min for _, stage in self.stages), sum(stage.seconds for _, stage in self.stages)

    def order(self) -> Lines:
        """The order of its iterations, and of the cells among each other."""
        return next((stage.order for _, stage in self.stages if stage.order), ())

    def parts(self) -> dict[str, StageLine]:
        """The stages by what follows the cell's id in theirs: `before_1`; "" for its ladder."""
        return {stage.id.removeprefix(self.cell.id).removeprefix("__"): stage for _, stage in self.stages}


def matrices(stages: Sequence[StageLine]) -> Iterator[tuple[str, list[tuple[int, StageLine]]]]:
    """(id of a matrix, its stages with their numbers), in the order of the plan; "" for stages outside a matrix."""
    numbered = enumerate(stages, 1)
    for of, found in groupby(numbered, key=lambda item: item[1].cell.of if item[1].cell is not None else ""):
        yield of, list(found)


def cells(stages: Iterable[tuple[int, StageLine]]) -> list[CellStages]:
    """The cells of a matrix, in the plan's order."""
    grouped = groupby(stages, key=lambda item: item[1].cell)
    return [CellStages(cell=cell, stages=tuple(found)) for cell, found in grouped if cell is not None]


def fullest(every: Sequence[CellStages]) -> CellStages:
    """The first of the cells that have the most stages."""
    return max(every, key=lambda one: len(one.stages))


def axes(every: Sequence[CellStages]) -> dict[str, list[str]]:
    """The labels of each axis, each once, in the plan's order."""
    found: dict[str, list[str]] = {}
    for one in every:
        for axis, label in one.cell.labels:
            if label not in found.setdefault(axis, []):
                found[axis].append(label)
    return found


def differences(one: CellStages, full: CellStages, lines: Iterable[tuple[str, Lines, Lines]]) -> Iterator[str]:
    """The lines of a cell that are not those of the full one. `lines`: (part, lines of the full cell, lines of this
    one)."""
    own, shown = one.parts(), full.parts()
    if missing := [part or "the ladder" for part in shown if part not in own]:
        yield f"without {', '.join(missing)}"
    for part, known, found in lines:
        rest = list(known)
        for line in found:
            match = next((each for each in rest if alike(each, line, full.cell, one.cell)), None)
            if match is None:
                yield f"{part}: {line}" if part else line
            else:
                rest.remove(match)
        if len(known) > len(found):
            yield from (f"{part}: without: {line}" if part else f"without: {line}" for line in rest)


def alike(line: str, other: str, cell: CellLine, of: CellLine) -> bool:
    """Whether a line of a cell is the other line of the cell `of`, but for the labels of the two."""
    if line == other:
        return True
    words: dict[str, list[str]] = {}
    for word, made in _words(cell, of):
        words.setdefault(word, [word]).append(made)
    longest_first = sorted(map(re.escape, words), key=len, reverse=True)
    found = re.split(rf"(?<![A-Za-z0-9])({'|'.join(longest_first)})(?![A-Za-z0-9])", line)
    pattern = "".join(
        f"(?:{'|'.join(map(re.escape, words[text]))})" if number % 2 else re.escape(text)
        for number, text in enumerate(found)
    )
    return re.fullmatch(pattern, other) is not None


def _words(cell: CellLine, of: CellLine) -> Iterator[tuple[str, str]]:
    """(what the labels of a cell may have made in a line, the same of the other cell)."""
    yield cell.id, of.id
    for (_, label), (_, other) in zip(cell.labels, of.labels, strict=True):
        yield label, other
        yield _in_a_name(label), _in_a_name(other)
        if label.isdigit() and other.isdigit():
            yield f"{int(label):,}", f"{int(other):,}"


def _in_a_name(label: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", label).strip("_")

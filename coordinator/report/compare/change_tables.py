"""Tables of a comparison of two runs: a row for each number with both sides, their ratio, its interval and direction.

Data flow: `StagePair`s and `RungPair`s -> `Table`s and lines of text. The sides have the short names of the runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from proveout.coordinator.compare.comparison import ComparedRuns, Direction, Row, RungPair, StagePair
from proveout.coordinator.report.compare.ratio_notation import DIRECTIONS, interval_text, outcome, ratio_text
from proveout.coordinator.report.document import Cell, Table, Value
from proveout.core.numbers import half_width, level, notation, percent, rung_name

LAYOUT = "lrrrrl"


def rung_title(stage: StagePair, rung: RungPair) -> str:
    """`ladder, 4 threads, 5 and 5 repeats`."""
    return f"{stage.id}, {rung_name(stage.kind, rung.threads)}, {rung.repeats[0]} and {rung.repeats[1]} repeats"


def missing_rungs(stage: StagePair) -> Iterator[str]:
    """The rungs that only one run has, and the run without them."""
    for count, run in stage.missing:
        yield f"{stage.id} at {rung_name(stage.kind, count)}: no valid iteration in {run}"


def values_title(stage: StagePair) -> str:
    """`load, measured values`, `cap, search (intervals of 80 %)`: those of searches have a level of their own."""
    if stage.kind != "search":
        return f"{stage.id}, measured values"
    at = next((float(row.change["confidence"]) for row in stage.values if "confidence" in row.change), None)
    return f"{stage.id}, search" + ("" if at is None else f" (intervals of {percent(at)})")


def change_table(one: ComparedRuns, rows: Sequence[Row]) -> Table:
    """The numbers of a rung on both sides."""
    return Table(heads=heads(one), rows=tuple(table_row(label(row), row, one.names[1]) for row in rows), layout=LAYOUT)


def values_table(one: ComparedRuns, stage: StagePair) -> Table:
    """The numbers of a stage without rungs."""
    rows: list[tuple[Value, ...]] = []
    for direction, (*words, last) in value_cells(stage, one.names[1]):
        rows.append((*words, Cell(last, DIRECTIONS[direction][2])))
    return Table(heads=heads(one, main=True), rows=tuple(rows), layout=LAYOUT)


def value_cells(stage: StagePair, other: str) -> Iterator[tuple[Direction, tuple[str, ...]]]:
    """The rows of a stage without rungs as text; below the rate of a search the ends of its interval in both runs."""
    for row in stage.values:
        yield row.direction, cells(row, other)
        if stage.kind == "search":
            ends = [side if isinstance(side, Mapping) else {} for side in row.estimates]
            same = notation("", *(side or None for side in ends))
            for end in ("lower", "upper"):
                shown = (same.text(side[end]) if end in side else "open" if side else "-" for side in ends)
                yield "none", (f"{end} end", *shown, "", "", "")


def heads(one: ComparedRuns, *, main: bool = False) -> tuple[str, ...]:
    """The heads over `cells`: `A`, `B`, `B / A`; of a table of `main` numbers with the level of their intervals."""
    base, other = one.names
    return ("", base, other, f"{other} / {base}", f"{_level(one.levels[0])} CI" if main else "CI", "")


def level_note(one: ComparedRuns) -> str:
    """The levels of the intervals, what they are corrected over, and what follows for equal systems."""
    names = ("main number", "other number")
    parts = [
        f"{_level(at)} for the {count} {name}{'s' if count > 1 else ''}"
        for at, count, name in zip(one.levels, one.judged, names, strict=True)
        if count
    ]
    return (
        f"Levels of the intervals: {' and '.join(parts)}, corrected over the numbers (Benjamini–Hochberg) and over the "
        "rungs (Bonferroni): two equal systems differ in none of them in 95 of 100 comparisons."
    )


def _level(confidence: float) -> str:
    return level({"confidence": confidence, "lower": 0.0, "upper": 0.0})


def cells(row: Row, other: str) -> tuple[str, ...]:
    """A row as text; `other` is the short name of the run that is not the reference."""
    return label(row), *sides(row), ratio_text(row.ratio), interval_text(row.ratio), outcome(row, other)


def table_row(name: str, row: Row, other: str) -> tuple[Value, ...]:
    """The cells below a name, the direction in its colour."""
    _, *numbers, last = cells(row, other)
    return name, *numbers, Cell(last, DIRECTIONS[row.direction][2])


def label(row: Row) -> str:
    """`TPS`, `response p99`, `UpdateLocation avg`; `one: TPS` of the load `one`."""
    load, path = row.of_load
    if load:
        return f"{load}: {label(replace(row, path=path))}"
    if row.path[0] == "transactions":
        return f"{row.path[1]} {_short(row.path[-1])}"
    if row.path[0] == "response":
        return f"response {_short(row.path[-1])}"
    if len(row.path) == 4:  # of a capture of measured values
        return ".".join(row.path[1:])
    return "errors" if row.path[0] == "errors" else _short(row.path[0])


def _short(metric: str) -> str:
    if metric == "mb_per_s":
        return "MB/s"
    return metric.upper() if metric in ("tps", "nopm", "tpm", "iops") else metric.removesuffix("_us")


def sides(row: Row) -> tuple[str, str]:
    """Both means in one unit, different when they differ; a rate without unit, its label has it."""
    halves = (half_width(side) if isinstance(side, Mapping) else None for side in row.estimates)
    same = notation(
        "" if row.metric in ("tps", "rate", "iops", "mb_per_s") else row.metric,
        *zip((row.base, row.other), halves, strict=True),
    )
    base, other = (
        "none found" if value is None and row.path == ("rate",) else same.text(value) for value in (row.base, row.other)
    )
    return base, other

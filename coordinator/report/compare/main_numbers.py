"""The main numbers of a comparison of two runs: the rates that searches found, throughput or time to solve, mean
response and p99 of each rung, and measured values. Pure.

Data flow: `ComparedRuns` -> `main_numbers` -> headline, overview table, forest plot, comparison screen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from proveout.coordinator.compare.comparison import FAMILIES, ComparedRuns, Direction, Family, Row
from proveout.coordinator.report.compare.change_tables import label
from proveout.core.data_classes import dataclass
from proveout.core.numbers import level, rung_name


@dataclass(frozen=True, slots=True, kw_only=True)
class MainNumber:
    """A number of both runs: `run` is the short name of the other run, `stage` and `place` (`4 threads`, `search`) say
    where it was measured; `load` is the name of one of several loads, `threads` the rung, 0 without rungs."""

    run: str
    stage: str
    place: str
    family: Family
    row: Row
    load: str = ""
    threads: int = 0

    @property
    def what(self) -> str:
        """`TPS`, `response p99`; of a search its rate with the level of its own interval."""
        if self.place != "search":
            return label(self.row)
        return f"rate ({level(self.row.change)} CI)" if "confidence" in self.row.change else "rate"

    @property
    def place_of(self) -> tuple[Family, str, str, int, str]:
        """Equal for the same number of several runs."""
        return self.family, self.stage, self.load, self.threads, self.what

    @property
    def rung(self) -> tuple[str, str, str, int]:
        """Equal for the numbers of one load at one rung."""
        return self.run, self.stage, self.load, self.threads


def main_numbers(compared: ComparedRuns) -> tuple[MainNumber, ...]:
    """The main numbers, those of searches first."""
    run = compared.names[1]
    searches: list[MainNumber] = []
    others: list[MainNumber] = []
    for stage in compared.stages:
        for rung in stage.rungs:
            place = rung_name(stage.kind, rung.threads)
            for row in rung.rows:
                load, path = row.of_load
                if family := FAMILIES.get(path):
                    others.append(
                        MainNumber(run=run, stage=stage.id, place=place, family=family, row=replace(row, path=path),
                                   load=load, threads=rung.threads)
                    )  # fmt: skip
        if stage.kind == "search":
            searches += [
                MainNumber(run=run, stage=stage.id, place="search", family="throughput", row=row)
                for row in stage.values
            ]
        else:
            others += [
                MainNumber(run=run, stage=stage.id, place="", family="measured value", row=row) for row in stage.values
            ]
    return (*searches, *others)


def places(numbers: Sequence[MainNumber]) -> dict[int, str]:
    """Where each number was measured, by its `id`: the names that tell the places apart and no more."""
    several = len({one.stage for one in numbers if one.place != "search"}) > 1
    return {
        id(one): f"search {one.stage}"
        if one.place == "search"
        else ", ".join(filter(None, (one.stage if several or not one.place else "", one.place, one.load)))
        for one in numbers
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class AcrossRungs:
    """A number of one load at all rungs that both runs have, those at other offered rates left out."""

    numbers: tuple[MainNumber, ...]

    @property
    def first(self) -> MainNumber:
        """The number at the lowest rung."""
        return self.numbers[0]

    def of(self, *directions: Direction) -> tuple[MainNumber, ...]:
        """The numbers with one of these directions."""
        return tuple(one for one in self.numbers if one.row.direction in directions)

    @property
    def undecided(self) -> tuple[MainNumber, ...]:
        """The numbers that are not distinguishable, or not judged."""
        return self.of("none", "unknown")


def across_rungs(numbers: Sequence[MainNumber], *families: Family) -> tuple[AcrossRungs, ...]:
    """The numbers of these families, each load together; of all families where none is named."""
    found: dict[tuple[str, ...], list[MainNumber]] = {}
    for one in numbers:
        judged = one.threads and one.row.direction != "offered" and "mean" in one.row.ratio
        if judged and (not families or one.family in families):
            found.setdefault((one.run, one.stage, one.load, one.family), []).append(one)
    return tuple(AcrossRungs(numbers=tuple(group)) for group in found.values())


def lead(numbers: Sequence[MainNumber]) -> MainNumber | None:
    """The number that is kept where not all are shown: throughput, or the time to solve, at the rung where the
    reference was fastest, of the first stage whose throughput is compared; else the answer of a search, else the first
    number.

    The rung is chosen by the reference alone, so that chance in the ratios does not choose it.
    """
    for family in ("throughput", "time to solve"):
        found = [one for one in numbers if one.family == family and one.threads and "mean" in one.row.ratio]
        found = [one for one in found if one.stage == found[0].stage and one.row.direction != "offered"]
        if found:
            choose = max if family == "throughput" else min
            return choose(found, key=lambda one: one.row.base or 0.0)
    found = [one for one in numbers if "mean" in one.row.ratio and one.row.direction != "offered"]
    return found[0] if found else None


def tally(numbers: Sequence[MainNumber]) -> Iterator[tuple[int, Direction]]:
    """The count of numbers with each direction that occurs; those that are not judged together."""
    counted: Counter[Direction] = Counter(
        "unknown" if one.row.direction == "offered" else one.row.direction for one in numbers
    )
    order: tuple[Direction, ...] = ("better", "worse", "changed", "same", "none", "unknown")
    yield from ((counted[direction], direction) for direction in order if counted[direction])

"""The interference of loads that run at the same time: rows of numbers together and alone, and a figure of the ratios.
Pure.

Data flow: `StageResult` of a ladder with `interference: true` -> `interference_rows`, one for each rung, load and
number -> a table of the document, and a panel of the figure for each number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proveout.coordinator.report.figures.figure import Figure, slug
from proveout.coordinator.report.figures.panels import Point, described, panels, table
from proveout.coordinator.report.tables import ladders, titled
from proveout.coordinator.results.interference import GROUP, PATHS
from proveout.coordinator.results.results import RunResults, StageResult
from proveout.core.data_classes import dataclass
from proveout.core.json_data import at_path
from proveout.core.numbers import bounds, half_width, level, notation, number, safe
from proveout.dsl.metrics import LOADS

INTERFERENCE_HEADS = ("threads", "load", "", "together", "alone", "ratio", "CI")
INTERFERENCE_LAYOUT = "rllrrrr"
MEANING = (
    "Ratio: together / alone, with its interval over the pairs of the same repeat. Throughput below 1 and times above "
    "1: the other loads slow this one down."
)
_SHOWN = {
    "tps_ratio": "throughput",
    "avg_ratio": "response avg",
    "p99_ratio": "response p99",
    "solve_ratio": "time to solve",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class InterferenceRow:
    """One number of a load at a rung: estimates of it together with the others and alone, and of their ratio."""

    threads: int
    load: str
    name: str
    together: Mapping[str, Any]
    alone: Mapping[str, Any]
    ratio: Mapping[str, Any]


def interference_rows(stage: StageResult) -> list[InterferenceRow]:
    """The numbers of each load and rung that have a ratio; [] without `interference`."""
    return [
        InterferenceRow(
            threads=rung.threads,
            load=load,
            name=name,
            together=at_path(tree, *PATHS[name]),
            alone=at_path(stage.alone_at(rung.threads)[load], LOADS, load, *PATHS[name]),
            ratio=tree[GROUP][name],
        )
        for rung in stage.rungs
        for load, tree in rung.tree.get(LOADS, {}).items()
        for name in _SHOWN
        if name in tree.get(GROUP, {})
    ]


def interference_cells(rows: Sequence[InterferenceRow]) -> Iterator[tuple[str, ...]]:
    """The rows as text, with `INTERFERENCE_HEADS`; both numbers in one unit."""
    for row in rows:
        sides = [(side.get("mean"), half_width(side)) for side in (row.together, row.alone)]
        same = notation(PATHS[row.name][-1], *sides)
        lower, upper = row.ratio.get("lower"), row.ratio.get("upper")
        yield (
            str(row.threads),
            safe(row.load),
            _SHOWN[row.name],
            *(same.text(mean) for mean, _ in sides),
            f"{number(row.ratio.get('mean'), half_width(row.ratio))} ×",
            bounds(lower, upper),
        )


def interference(results: RunResults) -> Iterator[Figure]:
    """The ratios of each load over the rungs, a figure a ladder."""
    for stage in ladders(results):
        rows = interference_rows(stage)
        if not rows:
            continue
        several = len({row.threads for row in rows}) > 1
        points = [
            Point(
                panel=f"{_SHOWN[row.name]}, together / alone",
                metric="",
                at=str(row.threads) if several else safe(row.load),
                series=safe(row.load) if several else "",
                estimate=row.ratio,
            )
            for row in sorted(rows, key=lambda row: list(_SHOWN).index(row.name))
        ]
        place = "threads" if several else ""
        heads, body = table(points, place=place)
        yield Figure(
            name=GROUP,
            slug=slug(GROUP, stage.id),
            title=f"Interference of the loads of {safe(titled(results, stage.id))}",
            caption=f"Each number of a load together with the others over that alone, with the {level(rows[0].ratio)} "
            "confidence interval over the pairs of the same repeat; 1: no interference.",
            spec=panels(points, place=place, mark="line" if several else "bar"),
            heads=heads,
            rows=body,
            alt=described(points),
        )

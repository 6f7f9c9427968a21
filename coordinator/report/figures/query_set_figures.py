"""The figures of an analytic study: speed by mode and degree, sizes and compression by table and mode. Pure.

Data flow: `query_sets` -> rows -> `Figure`s with the rows as their tables; `run_document` shows the same tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proveout.coordinator.report.figures.cases import cases
from proveout.coordinator.report.figures.descriptions import ends, intervals, joined
from proveout.coordinator.report.figures.figure import (
    INK,
    Figure,
    Spec,
    category,
    chart,
    quantity,
    slug,
    tips,
    whiskers,
)
from proveout.coordinator.report.figures.panels import BEYOND, Point, described, panels, table, whiskers_of
from proveout.coordinator.report.query_sets import SizeRow, SolveRow, size_rows, solve_rows
from proveout.coordinator.results.results import RunResults
from proveout.core.numbers import bounds, half_width, number, percent, safe

SOLVE_HEADS = ("mode", "at", "time to solve, s", "CI", "geometric mean, s", "speed, relative", "CI")
SIZE_HEADS = ("table", "mode", "table, MB", "indexes, MB", "total, MB", "factor")
MB = 1e6


def solve_table(rows: Sequence[SolveRow]) -> list[tuple[str, ...]]:
    """The cells under `SOLVE_HEADS`."""
    return [
        (
            row.mode,
            row.at or "-",
            number(row.solve.get("mean"), half_width(row.solve)),
            bounds(row.solve.get("lower"), row.solve.get("upper")),
            number(row.geomean.get("mean"), half_width(row.geomean)),
            percent(row.relative.get("mean"), half_width(row.relative)),
            bounds(row.relative.get("lower"), row.relative.get("upper"), "fraction"),
        )
        for row in rows
    ]


def size_table(rows: Sequence[SizeRow]) -> list[tuple[str, ...]]:
    """The cells under `SIZE_HEADS`."""
    return [
        (
            row.table or "all",
            row.mode,
            *(number(size / MB) for size in (row.table_bytes, row.index_bytes, row.total_bytes)),
            "-" if row.factor is None else f"{number(row.factor)} ×",
        )
        for row in rows
    ]


def named(of: str) -> str:
    """The name of a matrix as the end of a title."""
    return f": {of}" if of else ""


# ---- time to solve -----------------------------------------------------------------------------------------------


def time_to_solve(results: RunResults) -> Iterator[Figure]:
    """Bars of the speed of the set, the first mode being 100 % in each case; a figure a matrix."""
    for of, rows in solve_rows(results).items():
        values = [value for row in rows if (value := _bar(row)) is not None]
        if not values:
            continue
        yield Figure(
            name="time-to-solve",
            slug=slug("time-to-solve", of),
            title=f"Time to solve{named(of)}",
            caption=f"The speed of one pass over the set of queries, with {safe(rows[0].mode)} = 100 % in each case "
            f"(half its time is 200 %), with {intervals(row.relative for row in rows)} "
            "of the quotient over the repeats. The time is the sum of the queries' mean response times, run in "
            "order. Higher is better.",
            spec=_solve_chart(values),
            heads=SOLVE_HEADS,
            rows=tuple(solve_table(rows)),
            alt=joined(
                ends(f"{one}, time to solve", "solve_s", [
                    (row.at or "all queries", row.solve["mean"]) for row in rows if row.mode == one and row.solve
                ])
                for one in dict.fromkeys(row.mode for row in rows)
            ),
        )  # fmt: skip


def _bar(row: SolveRow) -> dict[str, Any] | None:
    mean = row.relative.get("mean")
    if mean is None:
        return None
    return {
        "mode": safe(row.mode),
        "at": safe(row.at) or "all queries",
        "relative": mean,
        "lower": row.relative.get("lower"),
        "upper": row.relative.get("upper"),
        "seconds": number(row.solve.get("mean"), half_width(row.solve)),
    }


def _solve_chart(values: Sequence[Mapping[str, Any]]) -> Spec:
    # as in `panels`: an interval that reaches far beyond the bars is cut at the edge
    highest = BEYOND * max(value["relative"] for value in values)
    cut = any((value["upper"] or 0.0) > highest for value in values)
    scale = {"domainMin": 0, "domainMax": highest, "nice": False} if cut else {"domainMin": 0}
    cases = len({value["at"] for value in values})
    x = category("at", axis={"labelAngle": 0}, scale={"paddingInner": 0.35, "paddingOuter": max(0.3, (4 - cases) / 2)})
    number = quantity("relative", "speed, relative", axis={"format": "%"}, scale=scale)
    bar: Spec = {
        "mark": {"type": "bar", "opacity": 0.85},
        "encoding": {
            "x": x,
            "xOffset": category("mode"),
            "y": number,
            "color": category("mode", legend={"symbolType": "square"}),
            "tooltip": tips(mode="mode", at="at", seconds="s", relative="relative"),
        },
    }
    interval = whiskers({"x": x, "xOffset": category("mode")}, "y", number, {"color": {"value": INK}})
    return chart(values, [bar, *([interval] if any(value["lower"] is not None for value in values) else [])])


# ---- time to update ----------------------------------------------------------------------------------------------


def update_time(results: RunResults) -> Iterator[Figure]:
    """Bars of the time of the transactions of a set that change rows, by case; a figure a matrix."""
    for group in cases(results, lambda rung: "update_s" in rung.tree):
        points = [
            Point(
                panel="update", metric="update_s", at=case.at, series=case.series, estimate=case.rung.tree["update_s"]
            )
            for case in group.found
        ]
        heads, rows = table(points, place=group.place, series="mode" if group.of else "ladder")
        yield Figure(
            name="update-time",
            slug=slug("update-time", group.of),
            title=f"Time to update{named(group.of)}",
            caption="The sum of the mean response times of the transactions that change rows, one of each: a refresh "
            f"set inserted (RF1) and one deleted (RF2); with {whiskers_of(points)}.",
            spec=panels(points, place=group.place),
            heads=heads,
            rows=rows,
            alt=described(points),
        )


# ---- sizes -------------------------------------------------------------------------------------------------------


def sizes_compression(results: RunResults) -> Iterator[Figure]:
    """Bars of the size of each table in each mode, and of all tables; a figure a matrix."""
    for of, rows in size_rows(results).items():
        yield Figure(
            name="sizes-compression",
            slug=slug("sizes-compression", of),
            title=f"Sizes and compression{named(of)}",
            caption="Size of tables and their indexes at the end of the load, or as queries gave it, "
            f"in MB (10^6 bytes); the factor is the size in {safe(rows[0].mode)} over that in the mode: above 1, the "
            "mode is smaller.",
            spec=_size_chart(rows),
            heads=SIZE_HEADS,
            rows=tuple(size_table(rows)),
            alt=joined(
                ends(f"{one}, size", "total_bytes", [
                    (row.table or "all", row.total_bytes) for row in rows if row.mode == one
                ])
                for one in dict.fromkeys(row.mode for row in rows)
            ),
        )  # fmt: skip


def _size_chart(rows: Sequence[SizeRow]) -> Spec:
    values = [
        {
            "table": safe(row.table) or "all",
            "mode": safe(row.mode),
            "mb": row.total_bytes / MB,
            "factor": "" if row.factor is None else f"{number(row.factor)} ×",
        }
        for row in rows
    ]
    y = category("table", axis={"labelLimit": 190})
    bar: Spec = {
        "mark": {"type": "bar", "opacity": 0.85},
        "encoding": {
            "y": y,
            "yOffset": category("mode"),
            "x": quantity("mb", "MB"),
            "color": category("mode", legend={"symbolType": "square"}),
            "tooltip": tips(table="table", mode="mode", mb="MB", factor="factor"),
        },
    }
    text: Spec = {
        "mark": {"type": "text", "align": "left", "dx": 4, "fontSize": 11},
        "encoding": {"y": y, "yOffset": category("mode"), "x": quantity("mb", "MB"), "text": {"field": "factor"}},
    }
    tables, modes = (len({value[name] for value in values}) for name in ("table", "mode"))
    return chart(values, [bar, text], height=max(120, tables * (14 + 18 * modes)))

"""The figure of waits: average active sessions and time per transaction, by wait event and rung. Pure.

Data flow: the waits of the valid repeats of each rung -> seconds by event, over the measured seconds (average active
sessions, as in Oracle's ASH) and over the transactions -> one `Figure` for each group of ladders that are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from proveout.coordinator.report.figures.descriptions import joined
from proveout.coordinator.report.figures.figure import PALETTE, Figure, Spec, category, grid, quantity, slug, tips
from proveout.coordinator.report.figures.load_figures import groups, heading, label
from proveout.coordinator.results.results import RungResult, RunResults, StageResult
from proveout.coordinator.results.wait_rows import WaitRow, wait_rows, wait_systems
from proveout.core.data_classes import dataclass
from proveout.core.json_data import number_at
from proveout.core.numbers import number, percent, safe, threads
from proveout.core.numbers import quantity as amount

EVENTS_MAX = 7
"""Events with a colour of their own; the others are added up."""
OTHERS = "other events"
WIDTH = 700
BARS_MAX = 40
"""Rungs that are drawn; the table has all."""
_ALL = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bar:
    """A rung, or one of its systems: its waits, the seconds that were measured, and the transactions in them."""

    place: str
    rows: tuple[WaitRow, ...]
    seconds: float
    transactions: float

    def sessions(self, row: WaitRow) -> float:
        return row.seconds / self.seconds

    def per_transaction_us(self, row: WaitRow) -> float | None:
        return row.seconds / self.transactions * 1e6 if self.transactions else None


def wait_events(results: RunResults) -> Iterator[Figure]:
    """Where the sessions spend their time at each rung, the ladders that are compared below each other."""
    for stages in groups(results):
        bars = [bar for stage in stages for bar in _bars(results, stage, alone=len(stages) == 1)]
        if not bars:
            continue
        having = [stage for stage in stages if any(rung.iterations and _systems(rung) for rung in stage.rungs)]
        cut = f" The first {BARS_MAX} of {len(bars)} are drawn." if len(bars) > BARS_MAX else ""
        yield Figure(
            name="wait-events",
            slug=slug("wait-events", stages[0].id),
            title="Waits: " + heading(results, having),
            caption="Above: average active sessions, the seconds that foreground sessions waited or used a CPU in each "
            "second of the measure windows of all repeats. Below: the same time per transaction: what grows there with "
            f"the load is what stops it.{cut}",
            spec=_spec(bars[:BARS_MAX]),
            heads=("at", "event", "class", "active sessions", "per transaction", "DB time"),
            rows=tuple(row for bar in bars for row in _rows(bar)),
            alt=joined(map(_seen, bars)),
        )


def _systems(rung: RungResult) -> tuple[str, ...]:
    return wait_systems(rung.iterations)


def _bars(results: RunResults, stage: StageResult, *, alone: bool) -> Iterator[_Bar]:
    for rung in stage.rungs:
        systems = _systems(rung)
        for system in systems:
            rows = wait_rows(rung.iterations, most=_ALL, system=system)
            measured = sum(item.measure_s for item in rung.iterations)
            if not rows or not measured:
                continue
            parts = ("" if alone else label(results, stage), threads(rung.threads), safe(system))
            yield _Bar(
                place=", ".join(filter(None, parts)),
                rows=tuple(rows),
                seconds=measured,
                transactions=sum((number_at(item.metrics, "tps") or 0.0) * item.measure_s for item in rung.iterations),
            )


def _spec(bars: Sequence[_Bar]) -> Spec:
    spent: dict[str, float] = {}
    for bar in bars:
        for row in bar.rows:
            spent[row.event] = spent.get(row.event, 0.0) + bar.sessions(row)
    ranked = sorted(spent, key=lambda event: -spent[event])
    named = ranked[:EVENTS_MAX]
    domain = [safe(event) for event in named] + ([OTHERS] if len(ranked) > EVENTS_MAX else [])
    colour = category("event", scale={"domain": domain, "range": list(PALETTE[: len(domain)])},
                      legend={"columns": 3, "symbolType": "square"})  # fmt: skip
    values = [value for bar in bars for value in _values(bar, named)]
    longest = max((bar.place for bar in bars), key=len)
    charts = [
        {
            "title": {"text": title, "anchor": "start", "fontSize": 13, "fontWeight": "normal"},
            "data": {"values": [value for value in values if value[field] is not None]},
            "width": WIDTH - (60 if len(longest) < 12 else 190),
            "height": max(50, 24 * len(bars)),
            "layer": [_stacked(field, shown, unit, colour, [bar.place for bar in bars])],
        }
        for field, shown, title, unit in _PANELS
        if any(value[field] is not None for value in values)
    ]
    return grid(charts, columns=1)


_PANELS = (
    ("sessions", "sessions_shown", "average active sessions", ""),
    ("us", "us_shown", "time per transaction", "µs"),
)


def _stacked(field: str, shown: str, unit: str, colour: Spec, places: Sequence[str]) -> Spec:
    return {
        "mark": {"type": "bar"},
        "encoding": {
            "y": category("at", axis={"labelLimit": 220}, scale={"domain": list(dict.fromkeys(places)),
            "paddingInner": 0.25}),
            "x": quantity(field, unit, stack="zero", scale={"domainMin": 0}),
            "color": colour,
            "order": {"field": "rank", "type": "quantitative"},
            "tooltip": [*tips(at="at", event="event"), {"field": shown, "title": "value"},
            *tips(share="share of DB time")],
        },
    }  # fmt: skip


def _values(bar: _Bar, named: Sequence[str]) -> Iterator[dict[str, Any]]:
    others = [row for row in bar.rows if row.event not in named]
    parts = [(safe(row.event), [row]) for row in bar.rows if row.event in named]
    for event, rows in [*parts, *([(OTHERS, others)] if others else [])]:
        sessions = sum(bar.sessions(row) for row in rows)
        us = [bar.per_transaction_us(row) for row in rows]
        spent = None if None in us else sum(value for value in us if value is not None)
        yield {
            "at": bar.place,
            "event": event,
            "rank": named.index(rows[0].event) if rows[0].event in named else len(named),
            "sessions": float(f"{sessions:.5g}"),
            "us": None if spent is None else float(f"{spent:.5g}"),
            "sessions_shown": number(sessions),
            "us_shown": amount(spent, "_us"),
            "share": percent(sum(row.db_time_fraction for row in rows)),
        }


def _rows(bar: _Bar) -> Iterator[tuple[str, ...]]:
    for row in bar.rows:
        yield (
            bar.place,
            safe(row.event),
            safe(row.wait_class),
            number(bar.sessions(row)),
            amount(bar.per_transaction_us(row), "_us"),
            percent(row.db_time_fraction),
        )


def _seen(bar: _Bar) -> str:
    sessions = sum(map(bar.sessions, bar.rows))
    top = bar.rows[0]
    return f"{bar.place}: {number(sessions)} active sessions, {percent(top.db_time_fraction)} in {safe(top.event)}."

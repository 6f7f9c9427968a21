"""Figures of faults: throughput, errors, p99 and lag around one occurrence, and the throughput of all
occurrences. Pure.

Data flow: `Timeline.faults` -> one `Figure` a fault of a stage. Times are seconds after the begin of the fault. Shaded:
from the begin to the end of its healing, and the outage within it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from proveout.coordinator.report.figures.figure import PALETTE, Figure, Spec, category, grid, quantity, slug, tips
from proveout.coordinator.report.figures.over_time.fault_tables import outage_text
from proveout.coordinator.report.figures.over_time.fault_windows import FaultWindow, Points
from proveout.coordinator.report.figures.over_time.timeline import Timeline
from proveout.coordinator.results.results import RunResults
from proveout.core.numbers import number, rung_name, safe
from proveout.core.numbers import quantity as amount

WIDTH = 700
OCCURRENCES_MAX = 12
"""Occurrences that are drawn; the table has all of them."""
ACROSS = 3
GAP = 1.5
"""A longer distance than this many usual ones between two points is a gap of the line."""
PARTS = ("before", "fault in place", "until recovered", "after", "outage")
_SHADES = ("#e4ebf3", "#e3d6c3", "#dcebdc", "#eef3e4", "#e59a94")
_TIME = "s after the begin of the fault"
_TIMES = ("outage", "detection", "recovery")
_HEADS = (
    "occurrence", "begins", "detection", "outage", "recovery", "TPS before", "failed", "lost commits", "unknown",
    "staleness",
)  # fmt: skip


def fault_timeline(results: RunResults, timeline: Timeline) -> Iterator[Figure]:
    """Throughput, errors, p99 and lag around the occurrence of each fault whose outage is the median one."""
    for (stage, fault), windows in _by_fault(timeline).items():
        shown = _typical(windows)
        yield Figure(
            name="fault-timeline",
            slug=slug("fault-timeline", stage, fault),
            title=f"Fault {safe(fault)} in {safe(stage)}",
            caption=f"{_name(results, shown)}"
            + (f", the one with the median outage of {len(windows)}" if len(windows) > 1 else "")
            + f". Shaded: before the fault, the fault, from its healing to the recovery, after it, and the outage. "
            f"{_in_words(shown)}",
            spec=grid([_panel(shown, *panel) for panel in _panels(shown)], columns=1),
            heads=_HEADS,
            rows=tuple(_row(results, window) for window in windows),
        )


def fault_occurrences(results: RunResults, timeline: Timeline) -> Iterator[Figure]:
    """The throughput around each occurrence of a fault, small multiples on the same axes."""
    for (stage, fault), windows in _by_fault(timeline).items():
        if len(windows) < 2:
            continue
        drawn = windows[:OCCURRENCES_MAX]
        most = max(value for window in drawn for _, value in window.answered)
        ends = min(w.answered[0][0] for w in drawn), max(w.answered[-1][0] for w in drawn)
        up, along = {"domain": [0.0, most * 1.05 or 1.0]}, {"domain": list(ends)}
        charts = [_small(results, window, up, along) for window in drawn]
        left = f" The first {len(drawn)} of {len(windows)} are drawn." if len(drawn) < len(windows) else ""
        yield Figure(
            name="fault-occurrences",
            slug=slug("fault-occurrences", stage, fault),
            title=f"{len(windows)} occurrences of fault {safe(fault)} in {safe(stage)}",
            caption=f"Transactions per second around each occurrence, on the same axes; shaded, before, "
            f"the fault, the recovery, after, and the outage.{left}",
            spec=grid(charts, columns=min(ACROSS, len(charts))),
            heads=_HEADS,
            rows=tuple(_row(results, window) for window in windows),
        )


def _by_fault(timeline: Timeline) -> dict[tuple[str, str], list[FaultWindow]]:
    """The windows with samples, by stage and fault, in order."""
    found: dict[tuple[str, str], list[FaultWindow]] = {}
    for window in timeline.faults:
        if window.iteration.valid and window.answered:
            found.setdefault((window.iteration.id.stage, window.fault.fault), []).append(window)
    return found


def _typical(windows: Sequence[FaultWindow]) -> FaultWindow:
    """The occurrence whose outage is nearest to the median; an unknown outage counts as none."""
    middle = median(window.fault.outage_s or 0.0 for window in windows)
    return min(windows, key=lambda window: abs((window.fault.outage_s or 0.0) - middle))


def _name(results: RunResults, window: FaultWindow) -> str:
    item = window.iteration
    kind = results.stages[item.id.stage].kind
    return safe(f"{rung_name(kind, item.id.rung)}, repeat {item.id.repeat}, occurrence {window.fault.number}")


def _in_words(window: FaultWindow) -> str:
    """The times that the picture shows, as text."""
    found = window.fault
    parts = [
        f"{what} {_s(value)}"
        for what, value in zip(_TIMES, (found.outage_s, found.detection_s, found.recovery_s), strict=True)
        if value is not None
    ]
    if found.recovery_s is None and found.recovery_at_least_s is not None:
        parts.append(f"not recovered within {_s(found.recovery_at_least_s)}")
    return (", ".join(parts).capitalize() + ".") if parts else ""


# ---- charts ------------------------------------------------------------------------------------------------------


def _panels(window: FaultWindow) -> Iterator[tuple[str, Points, str]]:
    """(title of the axis, points, colour) of each panel that has numbers."""
    yield "transactions/s", window.answered, PALETTE[0]
    if any(value for _, value in window.failed):
        yield "errors/s", window.failed, PALETTE[7]
    if window.p99_ms:
        yield "p99, ms", window.p99_ms, PALETTE[1]
    if window.lag_s:
        yield "lag, s", window.lag_s, PALETTE[3]


def _panel(window: FaultWindow, title: str, points: Points, colour: str) -> Spec:
    ends = {"domain": [window.answered[0][0], window.answered[-1][0]]}
    return {
        "width": WIDTH,
        "height": 150 if title.startswith("transactions") else 90,
        "layer": [*_shades(window), _line(points, title, colour, {"domainMin": 0}, ends)],
    }


def _small(results: RunResults, window: FaultWindow, y: Mapping[str, Any], x: Mapping[str, Any]) -> Spec:
    return {
        "title": {"text": _name(results, window), "anchor": "start", "fontSize": 12, "fontWeight": "normal"},
        "width": WIDTH // ACROSS - 60,
        "height": 110,
        "layer": [*_shades(window), _line(window.answered, "transactions/s", PALETTE[0], y, x)],
    }


def _shades(window: FaultWindow) -> Iterator[Spec]:
    """The time before, of the fault, from there to the recovery, after it, and the outage over them.

    Where it has not recovered, the time until then lasts to the end of the picture; where that is not known, it is left
    out.
    """
    found = window.fault
    first_s, last_s = window.answered[0][0], window.answered[-1][0]
    healed_s = window.healed_s or 0.0
    recovered_s = healed_s if found.recovery_at_least_s is None else last_s
    if found.recovery_s is not None:
        recovered_s = max(found.recovery_s, healed_s)
    edges = (first_s, 0.0, healed_s, recovered_s, last_s)
    spans = [(what, *span) for what, span in zip(PARTS, pairwise(edges), strict=False)]
    spans.append((PARTS[-1], *(window.outage or (0.0, 0.0))))
    values = [
        {"what": what, "start": round(start, 4), "end": round(end, 4)} for what, start, end in spans if end > start
    ]
    if values:
        yield {
            "data": {"values": values},
            "mark": {"type": "rect", "opacity": 0.6, "clip": True},
            "encoding": {
                "x": quantity("start", _TIME),
                "x2": {"field": "end"},
                "fill": category("what", scale={"domain": list(PARTS), "range": list(_SHADES)}),
                "tooltip": tips(what="time", start="from, s", end="to, s"),
            },
        }


def _line(points: Points, title: str, colour: str, y: Mapping[str, Any], x: Mapping[str, Any]) -> Spec:
    """The line of the points, with a gap where there is none for several times their usual distance."""
    usual = min((after - before for (before, _), (after, _) in pairwise(points)), default=1.0)
    values, piece = [], 0
    for index, (at, value) in enumerate(points):
        piece += index > 0 and at - points[index - 1][0] > GAP * usual
        values.append({"t": round(at, 3), "value": float(f"{value:.6g}"), "shown": number(value), "piece": piece})
    return {
        "data": {"values": values},
        "mark": {"type": "line", "strokeWidth": 1.5, "color": colour, "interpolate": "step", "clip": True},
        "encoding": {
            "x": quantity("t", _TIME, axis={"grid": False}, scale={**x, "nice": False}),
            "y": quantity("value", title, scale=dict(y)),
            "detail": category("piece"),
            "tooltip": tips(t="s", shown=title),
        },
    }


# ---- the table ---------------------------------------------------------------------------------------------------


def _s(value: float | None) -> str:
    return "-" if value is None else amount(value, "outage_s")


def _row(results: RunResults, window: FaultWindow) -> tuple[str, ...]:
    found = window.fault
    recovery = _s(found.recovery_s)
    if found.recovery_s is None and found.recovery_at_least_s is not None:
        recovery = f"≥ {_s(found.recovery_at_least_s)}"
    return (
        _name(results, window),
        _s(found.begins_s),
        _s(found.detection_s),
        outage_text(found),
        recovery,
        number(found.tps_before),
        *(number(count) for count in (found.failed, found.lost, found.unknown)),
        _s(found.staleness_s),
    )

"""Waits of the sessions of a system in the measure window: the metrics of `dsl.metrics.WAITS` and the top-10 table.
Pure.

Data flow: `wait.seconds_total` and, where the server counts waits, `wait.count_total` of a capture, both with the label
`class:event` -> seconds and counts in the window. An event that the server has and nothing waited for has 0 seconds;
one that is not in the capture has no numbers, and a finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from proveout.coordinator.measure.timeseries import Recording, Window
from proveout.dsl.expr.syntax import ExpressionFault, Index, Syntax, Text, children, parse
from proveout.dsl.expr.syntax import Member as Property
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Search
from proveout.dsl.plan.values import Expression
from proveout.proto.events import ValidityFinding, WaitLine

TOP_WAITS = 10
ON_CPU = ("CPU", "DB CPU")
"""The labels under which servers count time without a wait."""
EVENTS = "events"


def events_read(plan: Plan) -> tuple[str, ...]:
    """The events that the plan's expressions and charts read by name: `waits.events["log file sync"]`."""
    return names_read(plan, EVENTS)


def names_read(plan: Plan, group: str) -> tuple[str, ...]:
    """The names of a group that the plan's expressions and charts read, `….events["log file sync"]`."""
    found = [check.check for check in plan.verdicts] + [one.measured for one in plan.published]
    found += [point.number for chart in plan.charts for point in chart.points]
    for stage in plan.stages:
        if isinstance(stage, Search):
            found.append(stage.accept)
        elif isinstance(stage, Ladder) and isinstance(stage.stop_when, Expression):
            found.append(stage.stop_when)
    return tuple(dict.fromkeys(name for one in found if group in one.text for name in _names_in(one.text, group)))


def _names_in(text: str, group: str) -> Iterator[str]:
    try:
        yield from _named(parse(text), group)
    except ExpressionFault:  # reported where the expression is evaluated
        return


def _named(node: Syntax, group: str) -> Iterator[str]:
    if (
        isinstance(node, Index)
        and isinstance(node.of, Property)
        and node.of.name == group
        and isinstance(node.key, Text)
    ):
        yield node.key.value
    for part in children(node):
        yield from _named(part, group)


def waits_metrics(
    recording: Recording, window: Window, events: tuple[str, ...] = ()
) -> tuple[dict[str, Any], tuple[WaitLine, ...]]:
    """DB time with its share on CPU and the named events, and the top-10 foreground table.

    DB time is what the server itself accounts for (`wait.db_time_s_total`), else the sum of all events' seconds. Each
    line's share is of DB time; lines are never rescaled, and may come to more than 100 % of what a server accounts for.
    """
    seconds, counts = _spent(recording, window, "wait.seconds_total"), _spent(recording, window, "wait.count_total")
    covered = recording.covered_s(window)
    if covered <= 0.0:
        return {}, ()
    accounted = recording.delta("wait.db_time_s_total", window)
    total = sum(seconds.values()) if accounted is None else accounted
    metrics: dict[str, Any] = {"db_time_s": total, "active_sessions": total / covered}
    if total > 0.0:
        metrics["cpu_fraction"] = sum(seconds.get(label, 0.0) for label in ON_CPU) / total
    known = _known(recording)
    if named := [name for name in events if name in known]:
        metrics[EVENTS] = {name: _event(name, seconds, counts, total) for name in named}
    return metrics, top_waits(seconds, total, counts) if total > 0.0 else ()


def _spent(recording: Recording, window: Window, metric: str) -> dict[str, float]:
    found = {label: recording.delta(metric, window, label) for label in recording.labels(metric)}
    return {label: value for label, value in found.items() if value is not None}


def _known(recording: Recording) -> frozenset[str]:
    """The events of the server, or, where it has no list of them, those that occurred."""
    return frozenset(label.rpartition(":")[2] for label in recording.labels("wait.seconds_total"))


def _event(
    name: str, seconds: Mapping[str, float], counts: Mapping[str, float], db_time_s: float
) -> dict[str, float | None]:
    """The numbers of `dsl.metrics.WAIT_EVENT`; an event has one class, so labels of one name are added."""
    spent = sum(value for label, value in seconds.items() if label.rpartition(":")[2] == name)
    waits = sum(value for label, value in counts.items() if label.rpartition(":")[2] == name) if counts else None
    return {
        "seconds": spent,
        "db_time_fraction": spent / db_time_s if db_time_s > 0.0 else None,
        "count": waits,
        "avg_us": spent / waits * 1e6 if waits else None,
    }


def unknown_events(recording: Recording, system: str, events: tuple[str, ...]) -> Iterator[ValidityFinding]:
    """A finding for each named event that the capture does not know: it has no numbers."""
    known = _known(recording)
    for name in events:
        if name not in known:
            text = f"the capture of {system} knows no wait by this name; write it as the server does"
            yield ValidityFinding(check=f"wait:{name}", ok=False, evidence=text, voids=False)


def top_waits(
    seconds: Mapping[str, float], db_time_s: float, counts: Mapping[str, float] | None = None
) -> tuple[WaitLine, ...]:
    """The `TOP_WAITS` longest of `class:event` -> seconds, longest first, each with its share of the DB time, and its
    waits where the server counts them."""
    ranked = sorted(((spent, label) for label, spent in seconds.items() if spent > 0.0), reverse=True)
    return tuple(_line(label, spent, db_time_s, (counts or {}).get(label)) for spent, label in ranked[:TOP_WAITS])


def _line(label: str, seconds: float, total: float, waits: float | None) -> WaitLine:
    wait_class, _, event = label.rpartition(":")
    return WaitLine(
        event=event,
        wait_class=wait_class or label,
        seconds=seconds,
        db_time_fraction=seconds / total,
        average_us=seconds / waits * 1e6 if waits else None,
        waits=waits,
    )

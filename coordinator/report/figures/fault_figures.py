"""Figures and tables of faults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import itemgetter
from statistics import median

from proveout.coordinator.measure.faults import number_of
from proveout.coordinator.report.document import Block, Paragraph, Table
from proveout.coordinator.report.figures.figure import (
    Figure,
    Spec,
    category,
    grid,
    layer,
    panel,
    quantity,
    tips,
)
from proveout.coordinator.report.figures.grammar import figure
from proveout.coordinator.report.figures.over_time_figures import lines_of, over_time
from proveout.coordinator.report.figures.timeline import FaultWindow, Points, Timeline, pieces
from proveout.coordinator.results.results import RungResult, RunResults, StageResult
from proveout.core.json_data import at_path
from proveout.core.numbers import interval, number, percent, rounded_down, rung_name, safe
from proveout.core.numbers import quantity as amount
from proveout.dsl.metrics import FAULT_NUMBERS, FAULTS, load_paths
from proveout.proto.events import FaultEffect, FaultMeasured, IterationFinished

_FAULT_TABLE_HEADS = (
    "threads", "repeat", "fault", "of", "begins", "detection", "outage", "recovery", "TPS before", "failed",
)  # fmt: skip
_COMMITS = {"lost": "lost", "unknown": "unknown", "unknown_committed": "unknown, committed", "duplicates": "duplicates"}
_STALENESS = "staleness_s"
_SUMMARY = ("threads", "fault", "number", "mean with its interval", "median", "largest", "occurrences")
_ALL = "all loads"


def fault_tables(stage: StageResult) -> Iterator[Block]:
    """The tables of the faults of a ladder; none without faults."""
    found = [(rung, item, fault) for rung in stage.rungs for item in rung.iterations for fault in item.faults]
    if not found:
        return
    # of commits, and staleness: where some occurrence has them
    every = (*_COMMITS, _STALENESS)
    extra = [name for name in every if any(getattr(fault, name) is not None for *_, fault in found)]
    rows = []
    for rung, item, fault in found:
        several = sum(other.fault == fault.fault for other in item.faults) > 1
        name = safe(fault.fault) + (f" {fault.number}" if several else "")
        for of, part in _parts(fault):
            begins = amount(fault.begins_s, "begins_s") if part is fault else ""
            rows.append((str(rung.threads), str(item.id.repeat), name, of, begins, *_cells(part, extra)))
    heads = (*_FAULT_TABLE_HEADS, *(_COMMITS.get(name, "staleness") for name in extra))
    yield Table(title="Faults: every occurrence", heads=heads, rows=tuple(rows), layout="r" * len(heads))
    summary = tuple(row for rung in stage.rungs for row in _distribution(rung))
    if summary:
        yield Table(title="Faults: over all occurrences", heads=_SUMMARY, rows=summary, layout="rrrlrrr")
    for text in _notes(found):
        yield Paragraph(text, "dim")


def _parts(fault: FaultMeasured) -> Iterator[tuple[str, FaultEffect]]:
    """All loads together, and each load and host where there are several."""
    yield _ALL, fault
    if len(fault.loads) > 1:
        for part in fault.loads:
            yield safe(" on ".join(filter(None, (part.load, part.host)))), part


def _cells(part: FaultEffect, extra: Sequence[str]) -> tuple[str, ...]:
    """Of an outage that is not longer than usual ones, their bound too."""
    usual_s = part.usual_outage_s
    return (
        _bounded(part, "detection_s"),
        _bounded(part, "outage_s") + ("" if usual_s is None else f" (usual: up to {amount(usual_s, 'outage_s')})"),
        _bounded(part, "recovery_s"),
        amount(part.tps_before, "tps"),
        amount(part.failed, "count"),
        *(amount(getattr(part, name, None), "lag_s" if name == _STALENESS else "count") for name in extra),
    )


def _bounded(part: FaultEffect, name: str) -> str:
    value, bound = number_of(part, name)
    return amount(value, name) if bound is None else f"≥ {amount(rounded_down(bound), name)}"


def _distribution(rung: RungResult) -> Iterator[tuple[str, ...]]:
    """The estimates of each number of each fault: of all loads together, and of each of several."""
    paths = load_paths(rung.tree)
    for path in paths:
        for fault, tree in (at_path(rung.tree, *path, FAULTS) or {}).items():
            least = at_path(rung.tree, "at_least", *path, FAULTS, fault) or {}
            for name in FAULT_NUMBERS:
                found, bound = tree.get(name), least.get(name)
                if found is not None:
                    most = at_path(tree, "max", name)
                    shown = interval(found, name), amount(found["median"], name), amount(most, name)
                elif bound is not None and "value" in bound:
                    most = at_path(least, "max", name) or bound
                    mean, largest = (f"≥ {amount(rounded_down(one['value']), name)}" for one in (bound, most))
                    shown = mean, "-", largest
                else:
                    continue
                named = safe(fault) + (f", {safe(path[1]) if path else _ALL}" if len(paths) > 1 else "")
                count = str((found or tree)["occurrences"])
                yield str(rung.threads), named, name.removesuffix("_s").replace("_", " "), *shown, count


def _notes(found: Sequence[tuple[RungResult, IterationFinished, FaultMeasured]]) -> Iterator[str]:
    for _, item, fault in found:
        if fault.residue:
            yield f"{item.id}: {safe(fault.fault)} {fault.number} was not undone: {safe('; '.join(fault.residue))}"
    levels = [fault.recovery_level for *_, fault in found if fault.recovery_level is not None]
    if levels and min(levels) < 0.949:
        share = percent(min(levels))
        yield f"Recovery is judged by {share} of the throughput before, where that varies too much by itself for 95 %."
    if any(fault.recovery_level is None and not fault.error for *_, fault in found):
        yield "Without a time of recovery: the throughput before varies too much, or no undisturbed second was before."


FAULT_WIDTH = 700
OCCURRENCES_MAX = 12
"""Occurrences that are drawn; the table has all of them."""
ACROSS = 3
GAP = 1.5
"""A longer distance than this many usual ones between two points is a gap of the line."""
PARTS = ("before", "fault in place", "until recovered", "after", "outage")
_SHADES = ("#e4ebf3", "#e3d6c3", "#dcebdc", "#eef3e4", "#e59a94")
_TIME = "s after the begin of the fault"
_OF_COMMITS = ("lost", "unknown", _STALENESS)
_HEADS = (
    "occurrence", "begins", "detection", "outage", "recovery", "TPS before", "failed", "lost commits", "unknown",
    "staleness",
)  # fmt: skip


@figure("fault-timeline", "no iteration has a fault with samples around it")
def fault_timeline(results: RunResults, timeline: Timeline) -> Iterator[Figure]:
    """Throughput, errors, p99 and lag around the occurrence of each fault whose outage is the median one."""
    for (stage, fault), windows in _by_fault(timeline).items():
        middle = median(window.fault.outage_s or 0.0 for window in windows)
        _, shown = min(((abs((one.fault.outage_s or 0.0) - middle), one) for one in windows), key=itemgetter(0))
        ends = [shown.answered[0][0], shown.answered[-1][0]]
        charts = [
            panel(_around(shown, one, {"domainMin": 0}, ends), FAULT_WIDTH, 90 if at else 150)
            for at, one in enumerate(_panels(shown))
        ]
        yield Figure(
            of=(stage, fault),
            title=f"Fault {safe(fault)} in {safe(stage)}",
            caption=f"{_name(results, shown)}"
            + (f", the one with the median outage of {len(windows)}" if len(windows) > 1 else "")
            + f". Shaded: before the fault, the fault, from its healing to the recovery, after it, and the outage. "
            f"{_in_words(shown)}",
            spec=grid(charts, columns=1),
            heads=_HEADS,
            rows=tuple(_row(results, window) for window in windows),
        )


@figure("fault-occurrences", "no fault began more than once with samples around it")
def fault_occurrences(results: RunResults, timeline: Timeline) -> Iterator[Figure]:
    """The throughput around each occurrence of a fault, small multiples on the same axes."""
    for (stage, fault), windows in _by_fault(timeline).items():
        if len(windows) < 2:
            continue
        drawn = windows[:OCCURRENCES_MAX]
        most = max(value for window in drawn for _, value in window.answered)
        ends = [min(w.answered[0][0] for w in drawn), max(w.answered[-1][0] for w in drawn)]
        y = {"domain": [0.0, most * 1.05 or 1.0]}
        charts = [
            panel(
                _around(window, next(_panels(window)), y, ends),
                FAULT_WIDTH // ACROSS - 60,
                110,
                _name(results, window),
                fontSize=12,
            )
            for window in drawn
        ]
        left = f" The first {len(drawn)} of {len(windows)} are drawn." if len(drawn) < len(windows) else ""
        yield Figure(
            of=(stage, fault),
            title=f"{len(windows)} occurrences of fault {safe(fault)} in {safe(stage)}",
            caption="Transactions per second around each occurrence, on the same axes. Shaded: before, "
            f"the fault, the recovery, after, and the outage.{left}",
            spec=grid(charts, columns=min(ACROSS, len(charts))),
            heads=_HEADS,
            rows=tuple(_row(results, window) for window in windows),
        )


def _by_fault(timeline: Timeline) -> dict[tuple[str, str], list[FaultWindow]]:
    found: dict[tuple[str, str], list[FaultWindow]] = {}
    for window in timeline.faults:
        if window.iteration.valid and window.answered:
            found.setdefault((window.iteration.id.stage, window.fault.fault), []).append(window)
    return found


def _name(results: RunResults, window: FaultWindow) -> str:
    item = window.iteration
    kind = results.stages[item.id.stage].kind
    return safe(f"{rung_name(kind, item.id.rung)}, repeat {item.id.repeat}, occurrence {window.fault.number}")


def _in_words(window: FaultWindow) -> str:
    known = zip(("detection", "outage", "recovery"), _cells(window.fault, ()), strict=False)
    parts = [f"{what} {value}" for what, value in known if value != "-"]
    return (", ".join(parts).capitalize() + ".") if parts else ""


# ---- charts ------------------------------------------------------------------------------------------------------


def _panels(window: FaultWindow) -> Iterator[tuple[str, Points]]:
    """(title of the axis, points) of each panel that has numbers."""
    yield "transactions/s", window.answered
    if any(value for _, value in window.failed):
        yield "errors/s", window.failed
    if window.p99_ms:
        yield "p99, ms", window.p99_ms
    if window.lag_s:
        yield "lag, s", window.lag_s


def _shades(window: FaultWindow) -> Iterator[Spec]:
    """The time before, of the fault, from there to the recovery, after it, and the outage over them.

    Where a lower bound of its recovery is known, the time until then lasts to the bound, and what follows has no shade;
    where nothing is known of it, it is left out.
    """
    found = window.fault
    first_s, last_s = window.answered[0][0], window.answered[-1][0]
    healed_s = window.healed_s or 0.0
    recovered_s, bound_s = number_of(found, "recovery_s")
    until_s = max(recovered_s or bound_s or 0.0, healed_s)
    edges = (first_s, 0.0, healed_s, until_s, *([last_s] if bound_s is None else []))
    spans = [(what, *span) for what, span in zip(PARTS, pairwise(edges), strict=False)]
    spans.append((PARTS[-1], *(window.outage or (0.0, 0.0))))
    values = [{"what": what, "t": round(start, 4), "u": round(end, 4)} for what, start, end in spans if end > start]
    if values:
        shade = category("what", scale={"domain": list(PARTS), "range": list(_SHADES)})
        about = tips(what="time", t="from, s", u="to, s")
        look = {"opacity": 0.6, "clip": True}
        yield layer("rect", look, rows=values, x2={"field": "u"}, fill=shade, tooltip=about)


def _around(window: FaultWindow, shown: tuple[str, Points], y: Spec, ends: Sequence[float]) -> list[Spec]:
    """The times of a fault shaded, and the line of the points over them, with a gap where there is none for several
    times their usual distance."""
    title, points = shown
    usual = min((after - before for (before, _), (after, _) in pairwise(points)), default=1.0)
    rows = [
        {"t": round(at, 3), "v": float(f"{value:.6g}"), "what": title, "shown": number(value), "piece": piece}
        for at, value, piece in pieces(points, GAP * usual)
    ]
    line = lines_of(rows, (), quantity("v", title, scale=y), [title], what=title)
    x = quantity("t", _TIME, axis={"grid": False}, scale={"domain": list(ends), "nice": False})
    return over_time([*_shades(window), *line], x)


def _row(results: RunResults, window: FaultWindow) -> tuple[str, ...]:
    fault = window.fault
    return (_name(results, window), amount(fault.begins_s, "begins_s"), *_cells(fault, _OF_COMMITS))

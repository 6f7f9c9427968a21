"""Build the document of a comparison of runs: differences of plan and environment first, then conditions, figures and
changes.

Data flow: `ComparedRuns`, judged conditions -> `Document`. With the runs' results the document also has the figures of
a run, overlaid: the ladders of all runs, as if one run had measured them, named apart (`overlaid`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from proveout.coordinator.compare.comparability import SHOWN_MAX
from proveout.coordinator.compare.comparison import ComparedRuns, Direction, Row, RungPair, StagePair
from proveout.coordinator.compare.fail_if import Judgement
from proveout.coordinator.report.document import (
    Block,
    Cell,
    Document,
    Notes,
    Outcome,
    Outcomes,
    Paragraph,
    Section,
    Table,
    Tone,
    Value,
)
from proveout.coordinator.report.figures import load_figures, tool_figures
from proveout.coordinator.report.figures.figure import Figure
from proveout.coordinator.results.results import RunResults, StageResult
from proveout.core.numbers import half_width, notation, number, percent, rung_name
from proveout.dsl.metrics import LOADS

TOO_WIDE = 10.0
"""Beyond eleven times as much an interval is of no use; its end is shown as an arrow."""

DIRECTIONS: Mapping[Direction, tuple[str, Tone]] = {
    "better": ("better", "good"),
    "worse": ("worse", "bad"),
    "changed": ("changed", "warn"),
    "none": ("none shown", ""),
    "unknown": ("no interval", "dim"),
    "offered": ("rates differ", "dim"),
}
_CONDITIONS: Mapping[str, tuple[str, Tone]] = {
    "PASS": ("HOLDS", "bad"),
    "FAIL": ("does not hold", "good"),
    "INCONCLUSIVE": ("UNDECIDABLE", "warn"),
}
"""A condition that holds fails the job."""


def comparison_document(
    compared: Sequence[ComparedRuns], judged: Sequence[Judgement], runs: Sequence[RunResults] = ()
) -> Document:
    """The comparison; `runs` has the results of the reference first, for the figures, or nothing for none."""
    figures = tuple(_figures(runs)) if runs else ()
    conditions = Outcomes(tuple(map(_condition, judged)), head="Condition")
    sections = (
        *map(_differences, compared),
        *([Section(title="Conditions", blocks=(conditions,))] if judged else ()),
        *([Section(title="Figures", blocks=figures, anchor="figures")] if figures else ()),
        *(Section(title=f"Changes in {one.other}", blocks=tuple(_changes(one))) for one in compared),
    )
    about = f"Compared with it: {', '.join(one.other for one in compared)}"
    return Document(title=f"Comparison with {compared[0].reference}", about=about, sections=sections)


def _differences(one: ComparedRuns) -> Section:
    found = [f"{difference}" for difference in one.differences[:SHOWN_MAX]]
    if len(one.differences) > SHOWN_MAX:
        found.append(f"and {len(one.differences) - SHOWN_MAX} more")
    first: Block = Notes(tuple(found), "warn") if found else Paragraph("The same plan in the same environment.")
    notes = (Notes(one.notes, "warn"),) if one.notes else ()
    return Section(title=f"Differences: {one.other} against {one.reference}", blocks=(first, *notes))


def _condition(one: Judgement) -> Outcome:
    result, tone = _CONDITIONS[one.outcome]
    return Outcome(outcome=result, tone=tone, title=f"fails if {one.text}", evidence=one.evidence)


# ---- changes -----------------------------------------------------------------------------------------------------


def _changes(one: ComparedRuns) -> Iterator[Block]:
    for stage in one.stages:
        for rung in stage.rungs:
            yield Section(title=rung_title(stage, rung), blocks=(change_table(one, rung.rows),))
        if stage.values:
            yield Section(title=values_title(stage), blocks=(_values_table(one, stage),))
    if missing := tuple(line for stage in one.stages for line in missing_rungs(stage)):
        yield Notes(missing, "warn")
    if not one.stages:
        yield Paragraph("No stage was run in both.", "warn")


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
    level = next((float(row.change["confidence"]) for row in stage.values if "confidence" in row.change), None)
    return f"{stage.id}, search" + ("" if level is None else f" (intervals of {percent(level)})")


def change_table(one: ComparedRuns, rows: Sequence[Row]) -> Table:
    """The numbers of a rung, or of a search, on both sides."""
    return Table(heads=heads(one), rows=tuple(map(_row, rows)), layout="lrrrrl")


def _values_table(one: ComparedRuns, stage: StagePair) -> Table:
    rows: list[tuple[Value, ...]] = []
    for direction, (*words, last) in value_cells(stage):
        rows.append((*words, Cell(last, DIRECTIONS[direction][1])))
    return Table(heads=heads(one), rows=tuple(rows), layout="lrrrrl")


def value_cells(stage: StagePair) -> Iterator[tuple[Direction, tuple[str, ...]]]:
    """The rows of a stage without rungs as text; below the rate of a search the ends of its interval in both runs."""
    for row in stage.values:
        yield row.direction, cells(row)
        if stage.kind == "search":
            sides = [side if isinstance(side, Mapping) else {} for side in row.estimates]
            same = notation("", *(side or None for side in sides))
            for end in ("lower", "upper"):
                shown = (same.text(side[end]) if end in side else "open" if side else "-" for side in sides)
                yield "none", (f"{end} end", *shown, "", "", "")


def heads(one: ComparedRuns) -> tuple[str, ...]:
    """The heads over `cells`."""
    return ("", "reference", "this run", "change", f"{percent(one.confidence)} CI", "")


def cells(row: Row) -> tuple[str, ...]:
    """A row as text."""
    direction, _ = DIRECTIONS[row.direction]
    return label(row), *_values(row), *_change(row), direction


def _row(row: Row) -> tuple[Value, ...]:
    *first, direction = cells(row)
    return *first, Cell(direction, DIRECTIONS[row.direction][1])


def label(row: Row) -> str:
    """`TPS`, `response p99`, `UpdateLocation avg`; `one: TPS` of the load `one`."""
    if row.path[0] == LOADS:
        return f"{row.path[1]}: {label(replace(row, path=row.path[2:]))}"
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


def _change(row: Row) -> tuple[str, str]:
    """The change and its interval: `-3.1 %`, `× 17.2` for a change above `TOO_WIDE`, or `-`."""
    mean, lower, upper = (row.change.get(name) for name in ("mean", "lower", "upper"))
    same = notation("change", row.change, signed=True)
    change = (
        f"× {number(1.0 + mean, half_width(row.change))}" if mean is not None and mean > TOO_WIDE else same.text(mean)
    )
    if lower is None or upper is None:
        return change, same.bounds(lower, upper)
    return change, " … ".join("→" if end > TOO_WIDE else same.text(end) for end in (lower, upper))


def _values(row: Row) -> tuple[str, str]:
    """Both means in one unit, different when they differ; a rate without unit, its label has it."""
    halves = (half_width(side) if isinstance(side, Mapping) else None for side in row.estimates)
    sides = zip((row.base, row.other), halves, strict=True)
    same = notation("" if row.metric in ("tps", "rate", "iops", "mb_per_s") else row.metric, *sides)
    base, other = (
        "none found" if value is None and row.path == ("rate",) else same.text(value) for value in (row.base, row.other)
    )
    return base, other


# ---- figures -----------------------------------------------------------------------------------------------------


def overlaid(runs: Sequence[RunResults]) -> RunResults:
    """The ladders that every run has, as stages of one run: `ladder` of the reference, `ladder (2)` of the second, …"""
    shared = [
        name
        for name, stage in runs[0].stages.items()
        if stage.climbs and all(name in other.stages for other in runs[1:])
    ]
    stages: dict[str, StageResult] = {}
    plans: list[dict[str, Any]] = []
    for place, results in enumerate(runs, 1):
        for name in shared:
            named = name if place == 1 else f"{name} ({place})"
            plan = results.plan_stage(name)
            run_id = results.run.run_id if results.run else place
            where = f"{plan.get('target', '?')} in {run_id}"
            # A ladder is compared with the one of the same name, so that the name stands for the workload.
            if results.stages[name].kind == "tool":
                hosts = ", ".join(plan.get("clients", ()))
                plans.append({**plan, "id": named, "clients": [f"{hosts} in {run_id}"]})
            else:
                plans.append({"id": named, "kind": "ladder", "workload": name, "target": where})
            stages[named] = replace(results.stages[name], id=named)
    run = replace(runs[0].run, plan={"stages": plans}) if runs[0].run else None
    return replace(runs[0], run=run, stages=stages)


def _figures(runs: Sequence[RunResults]) -> Iterator[Figure]:
    together = overlaid(runs)
    yield from load_figures.relative_tps_latency(together)
    yield from load_figures.latency_by_transaction(together)
    yield from tool_figures.iops_by_queue_depth(together)

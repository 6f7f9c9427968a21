"""Results beside others: published numbers, wait events of a rung, growth of the data between measurements. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from proveout.coordinator.measure.captures import wait_line
from proveout.coordinator.results.results import FUNCTIONS, RunResults, StageResult, environment
from proveout.core.data_classes import record
from proveout.core.json_data import number_at
from proveout.core.numbers import centre, percent, rung_name, size
from proveout.dsl.expr.evaluation import ExpressionFault, evaluate, metric_of
from proveout.dsl.plan.stages import label_text, of_stage
from proveout.proto.events import IterationFinished, Outcome, WaitLine


@record
class Reproduction:
    """A published number and its measured counterpart, both in the unit of `metric` ("" for anything computed).

    `measured` is an estimate; of a number without an interval it has the mean alone. Where it is None, `missing` has
    the reason. `outcome` is that of the verdict "measured is within `within` of published"; None where `within` is None
    or the verdict was not reached.
    """

    id: str
    title: str
    source: str
    metric: str
    published: float
    within: float | None
    measured: Mapping[str, Any] | None
    missing: str
    outcome: Outcome | None

    @property
    def factor(self) -> Mapping[str, Any]:
        """The measured number over the published one, of an extreme its median, with its ends where it has any and
        their level; empty where it is missing."""
        found = self.measured or {}
        keys = {"mean": centre(found), "lower": "lower", "upper": "upper"}
        ends = {name: found[key] / self.published for name, key in keys.items() if found.get(key) is not None}
        return ends | ({"confidence": found["confidence"]} if ends and "confidence" in found else {})


def reproductions(results: RunResults) -> Iterator[Reproduction]:
    """One for each published number of the plan, in its order."""
    tree = environment(results)
    outcomes = {verdict.id: verdict.outcome for verdict in results.verdicts}
    for one in results.plan.get("published", ()):
        text, within = one["measured"]["text"], one["within"]
        found, missing = measured(text, tree)
        yield Reproduction(
            id=one["id"],
            title=one["title"],
            source=one["source"],
            metric=metric_of(text),
            published=one["value"],
            within=within,
            measured=found,
            missing=missing,
            outcome=None if within is None else outcomes.get(one["id"]),
        )


def measured(text: str, tree: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, str]:
    """The estimate, or None and the reason."""
    try:
        found = evaluate(text, tree, functions=FUNCTIONS)
    except ExpressionFault as fault:
        return None, fault.what
    if isinstance(found, Mapping):
        return dict(sorted(found.items())), ""  # the evaluator's own order differs between processes
    if isinstance(found, str | bool):
        return None, f"`{text}` is not a number"
    return {"mean": float(found)}, ""


def wait_systems(iterations: Sequence[IterationFinished]) -> tuple[str, ...]:
    """The systems whose waits were captured, the first one as ""."""
    return tuple(dict.fromkeys(line.system for item in iterations for line in item.waits))


def wait_rows(iterations: Sequence[IterationFinished], most: int = 10, system: str = "") -> list[WaitLine]:
    """The waits of several iterations in one table: seconds added, shares of the DB time of all of them; numbers of
    waits where the server counts them in each."""
    path = ("waits", "systems", system, "db_time_s") if system else ("waits", "db_time_s")
    total = sum(number_at(item.metrics, *path) or 0.0 for item in iterations)
    found: dict[tuple[str, str], list[WaitLine]] = {}
    for line in (line for item in iterations for line in item.waits if line.system == system):
        found.setdefault((line.event, line.wait_class), []).append(line)
    rows = []
    for (event, wait_class), lines in found.items() if total > 0.0 else ():
        waits = sum(line.waits or 0.0 for line in lines) if all(line.waits for line in lines) else None
        rows.append(wait_line(event, wait_class, sum(line.seconds for line in lines), total, waits))
    return sorted(rows, key=lambda row: -row.seconds)[:most]


GROWTH_MAX = 0.10
"""The share by which the data of two compared measurements may differ without a finding."""
MAKES_DATA = ("populate", "sql")
"""The kinds of steps that make the data of a cell."""


Members: TypeAlias = Mapping[str, Sequence[IterationFinished]]
"""Cells, ladders or rungs with their iterations, by name."""


def growth_notes(results: RunResults) -> list[str]:
    """A note for each comparison whose data grew, or shrank, by more than the limit between its members."""
    return [
        note
        for title, members in _compared(results)
        for system in dict.fromkeys(line.system for items in members.values() for one in items for line in one.sizes)
        if (note := _note(title, system, _means(members, system)))
    ]


def has_own_data(results: RunResults, stage: StageResult) -> bool:
    """Whether steps of a ladder load or make its data."""
    step = f"{stage.id}__before_"
    kinds = {one.get("id", ""): one.get("kind", "") for one in results.plan.get("stages", ())}
    return any(kind in MAKES_DATA for name, kind in kinds.items() if name.startswith(step))


def _compared(results: RunResults) -> Iterator[tuple[str, Members]]:
    together: dict[tuple[str, str], dict[str, Sequence[IterationFinished]]] = {}
    for stage in results.stages.values():
        if not stage.climbs:
            continue
        yield stage.id, {rung_name(stage.kind, one.threads): one.iterations for one in stage.rungs}
        cell = of_stage(results.plan_stage(stage.id))
        if has_own_data(results, stage):
            continue
        whole = [item for one in stage.rungs for item in one.iterations]
        if cell is not None:
            together.setdefault(("the cells of", cell.of), {})[label_text(cell.labels)] = whole
        elif stage.block:
            together.setdefault(("ladders in turns:", stage.block), {})[stage.id] = whole
    for (what, of), members in together.items():
        yield f"{what} {of}", members


def _means(members: Members, system: str) -> dict[str, float]:
    """The mean of the bytes at the start of the iterations of each member; a member without sizes is left out."""
    found: dict[str, float] = {}
    for name, items in members.items():
        starts = [sum(line.start_bytes for line in item.sizes if line.system == system) for item in items]
        known = [value for value in starts if value > 0.0]
        if known:
            found[name] = sum(known) / len(known)
    return found


def _note(title: str, system: str, means: Mapping[str, float]) -> str:
    if len(means) < 2:
        return ""
    small, large = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    more = means[large] / means[small] - 1.0
    if more <= GROWTH_MAX:
        return ""
    return (
        f"{title}: the tables and indexes of {system} were {size(means[small])} at the start of {small} and "
        f"{size(means[large])} at the start of {large}, {percent(more)} more (limit {percent(GROWTH_MAX)}): their "
        "numbers differ by their data too; a `reset` before each keeps the data alike"
    )

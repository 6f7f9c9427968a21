"""Growth of the data between measurements that are compared with each other: cells of a matrix, ladders that take
turns, rungs of a ladder. Pure.

Data flow: the sizes at the start of each valid iteration (capture `sizes`) -> their mean by member of a comparison ->
`growth_notes`, a sentence for each comparison whose members were measured on data that differ by more than
`GROWTH_MAX`. Members with data of their own are left out: cells on other systems, or whose steps load or make the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from proveout.coordinator.results.results import RunResults, StageResult
from proveout.core.data_classes import dataclass
from proveout.core.numbers import percent, rung_name, size
from proveout.dsl.plan.matrix_labels import label_text, of_stage
from proveout.proto.events import IterationFinished

GROWTH_MAX = 0.10
"""The share by which the data of two compared measurements may differ without a finding."""
MAKES_DATA = ("populate", "sql")
"""The kinds of steps that make the data of a cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """A cell, a ladder or a rung with its iterations."""

    name: str
    iterations: tuple[IterationFinished, ...]


def growth_notes(results: RunResults) -> list[str]:
    """A note for each comparison whose data grew, or shrank, by more than the limit between its members."""
    return [
        note
        for title, members in _compared(results)
        for system in _systems(members)
        if (note := _note(title, system, _means(members, system)))
    ]


def has_own_data(results: RunResults, stage: StageResult) -> bool:
    """Whether steps of a ladder load or make its data."""
    step = f"{stage.id}__before_"
    plan = results.run.plan if results.run and isinstance(results.run.plan, Mapping) else {}
    kinds = {one.get("id", ""): one.get("kind", "") for one in plan.get("stages", ())}
    return any(kind in MAKES_DATA for name, kind in kinds.items() if name.startswith(step))


def _compared(results: RunResults) -> Iterator[tuple[str, list[_Member]]]:
    together: dict[tuple[str, str], list[_Member]] = {}
    for stage in results.stages.values():
        if not stage.climbs:
            continue
        rungs = [_Member(name=rung_name(stage.kind, one.threads), iterations=one.iterations) for one in stage.rungs]
        yield stage.id, rungs
        cell = of_stage(results.plan_stage(stage.id))
        if has_own_data(results, stage):
            continue
        whole = tuple(item for one in stage.rungs for item in one.iterations)
        if cell is not None:
            member = _Member(name=label_text(cell.labels), iterations=whole)
            together.setdefault(("the cells of", cell.of), []).append(member)
        elif stage.block:
            together.setdefault(("ladders in turns:", stage.block), []).append(_Member(name=stage.id, iterations=whole))
    for (what, of), members in together.items():
        yield f"{what} {of}", members


def _systems(members: Iterable[_Member]) -> list[str]:
    found = {line.system: None for one in members for item in one.iterations for line in item.sizes}
    return list(found)


def _means(members: Iterable[_Member], system: str) -> dict[str, float]:
    """The mean of the bytes at the start of the iterations of each member; a member without sizes is left out."""
    found: dict[str, float] = {}
    for one in members:
        starts = [_start_bytes(item, system) for item in one.iterations]
        known = [value for value in starts if value > 0.0]
        if known:
            found[one.name] = sum(known) / len(known)
    return found


def _start_bytes(item: IterationFinished, system: str) -> float:
    return sum(line.start_bytes for line in item.sizes if line.system == system)


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

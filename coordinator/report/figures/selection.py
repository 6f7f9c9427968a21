"""Select the figures of a report: the charts of the plan, those that it names, then all others that have numbers.

Data flow: `RunResults`, `Timeline` -> `figures` -> `Figure`s, and `missing`: the requested figures without numbers,
with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from proveout.coordinator.report.figures import (
    fault_figures,
    load_figures,
    over_time_figures,
    stage_figures,
    system_figures,
)
from proveout.coordinator.report.figures.figure import PALE, PALETTE, Figure, Spec
from proveout.coordinator.report.figures.grammar import Declared, named_apart
from proveout.coordinator.report.figures.system_figures import events
from proveout.coordinator.report.figures.timeline import Timeline
from proveout.coordinator.report.tables import climbing, titled
from proveout.coordinator.results.results import RunResults
from proveout.core.json_data import at_path
from proveout.core.numbers import safe
from proveout.dsl.metrics import load_paths
from proveout.dsl.schema.models import FIGURES, OTHERS

MODULES: Mapping[str, ModuleType] = {
    "Throughput and loads": load_figures,
    "Response times and rungs over time": over_time_figures,
    "Hosts, waits and replication": system_figures,
    "Stages, query sets, matrices and searches": stage_figures,
    "Faults": fault_figures,
}
"""The modules that draw, by their subject."""
_FOUND = [
    (subject, one) for subject, module in MODULES.items() for one in vars(module).values() if isinstance(one, Declared)
]
DECLARED: Mapping[str, Declared] = {one.name: one for _, one in _FOUND}
"""Every figure by its name."""
_SUBJECTS: Mapping[str, str] = {one.name: subject for subject, one in _FOUND}
SHOWN_MAX = 6
"""Figures that a page shows beside the charts of the plan, or all that the plan names; it folds the others."""


def wanted(results: RunResults) -> tuple[str, ...]:
    """The names in the plan, then all others but those that the plan leaves out. Names of another version of proveout
    are left out."""
    named, without = _named(results.plan), frozenset(results.plan.get("without_figures") or ())
    others = () if OTHERS in without else FIGURES
    return tuple(dict.fromkeys([*named, *(name for name in others if name not in without)]))


def figures(results: RunResults, timeline: Timeline) -> tuple[list[Figure], dict[str, str]]:
    """The figures in order, and for each figure that the plan names and that cannot be drawn the reason."""
    named = _named(results.plan)
    drawn: list[Figure] = []
    missing: dict[str, str] = {}
    ladders = {one.id: safe(titled(results, one.id)) for one in climbing(results)}
    for name in wanted(results):
        found = [_by_processes(results, one, [*ladders]) for one in DECLARED[name](results, timeline)]
        drawn += found
        if not found and name in named:
            missing[name] = DECLARED[name].needs
    declared, without = stage_figures.charts(results)
    return coloured([*declared, *drawn], _kinds(results), [*ladders.values()]), missing | without


def shown(results: RunResults, drawn: Sequence[Figure]) -> tuple[Sequence[Figure], Mapping[str, Sequence[Figure]]]:
    """The figures that a page shows, and by subject those that it folds."""
    own, named = (sum(one.name in of for one in drawn) for of in ((stage_figures.NAME,), _named(results.plan)))
    most = own + max(named, SHOWN_MAX)
    folded: dict[str, list[Figure]] = {}
    for one in drawn[most:]:
        folded.setdefault(_SUBJECTS[one.name], []).append(one)
    return drawn[:most], folded


def _named(plan: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(name for name in plan.get("figures") or () if name in DECLARED)


def _by_processes(results: RunResults, drawn: Figure, known: Sequence[str]) -> Figure:
    """The figure with the word of the plan on its axis and in its heads, where the rungs of its ladder are
    processes; `known`: the ids of all ladders."""
    stages = [results.plan_stage(name) for name in ([name for name in drawn.of if name in known] or known)]
    if not stages or not all(stage.get("by_processes") for stage in stages):
        return drawn
    spec, words = _copied(drawn.spec), {"threads": "processes"}
    for channel in (one for one in _below(spec, "x", "y") if one.get("title") in words):
        channel["title"] = words[channel["title"]]
    title, caption = (text.replace(" by threads", " by processes") for text in (drawn.title, drawn.caption))
    heads = tuple(words.get(head, head) for head in drawn.heads)
    return replace(drawn, spec=spec, title=title, caption=caption, heads=heads)


# ---- one colour for one name -------------------------------------------------------------------------------------

_LADDER = re.compile(r" on |, (?=\d+ threads?\b)")


def coloured(drawn: Sequence[Figure], kinds: Mapping[str, Collection[str]], ladders: Sequence[str]) -> list[Figure]:
    """The figures with one colour for one name of a kind, such as `transaction`, and for one ladder, whatever follows
    its name, in all of them; the `ladders` have the first colours. Two names of one figure never share a colour while
    there are as many colours as names."""
    places = {"": {name: at for at, name in enumerate(ladders)}}
    return [replace(one, spec=_with_colours(one.spec, places, kinds)) for one in drawn]


def _with_colours(spec: Spec, places: dict[str, dict[str, int]], kinds: Mapping[str, Collection[str]]) -> Spec:
    whole = _copied(spec)
    rows = [row for data in _below(whole, "data") for row in data.get("values", ())]
    for channel in [one for one in _below(whole, "color", "stroke", "fill") if one.get("type") == "nominal"]:
        scale, field = channel.get("scale", {}), channel["field"]
        if scale is None:
            continue  # its values are the colours
        given = tuple(scale.get("range") or ())
        shades = PALE if given and given == PALE[: len(given)] else PALETTE
        if given and given != shades[: len(given)]:
            continue  # the colours have a meaning of their own
        names = [*(scale.get("domain") or dict.fromkeys(row[field] for row in rows if row.get(field) is not None))]
        kind = next((kind for kind, known in kinds.items() if {*names} & {*known}), "")
        known = places.setdefault(kind, {})
        taken: list[int] = []
        for name in names:
            place = known.setdefault(name if kind else _LADDER.split(str(name))[0], len(known)) % len(shades)
            free = [at for at in range(len(shades)) if at not in taken]
            taken.append(place if place in free or not free else free[0])
        channel["scale"] = {**scale, "domain": names, "range": [shades[at] for at in taken]}
    return whole


def _copied(spec: Spec) -> Spec:
    """A copy to change, but for the rows of data."""
    return {key: value if key == "values" else _copied_value(value) for key, value in spec.items()}


def _copied_value(value: Any) -> Any:
    if isinstance(value, dict):
        return _copied(value)
    return [_copied_value(item) for item in value] if isinstance(value, list) else value


def _below(node: Any, *names: str) -> Iterator[dict[str, Any]]:
    """The mappings under these keys, wherever they are, in order; not in the rows of data."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key in names and isinstance(value, dict):
                yield value
            if key != "values":
                yield from _below(value, *names)
    elif isinstance(node, list):
        for item in node:
            yield from _below(item, *names)


def _kinds(results: RunResults) -> Mapping[str, Collection[str]]:
    """The names of a run that are those of one kind of thing."""
    rungs = [rung for stage in results.stages.values() for rung in stage.rungs]
    trees = (at_path(rung.tree, *path) or {} for rung in rungs for path in load_paths(rung.tree))
    return {
        "event": {safe(name) for name in named_apart(events(results)).values()},
        "transaction": {safe(name) for tree in trees for name in tree.get("transactions", {})},
    }

"""Figures of a comparison of two runs: a forest plot of ratios, and both runs in one picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from proveout.coordinator.comparison import REFERENCE, ComparedRuns, Direction, short_name
from proveout.coordinator.report.comparison_tables import (
    DIRECTIONS,
    MainNumber,
    interval_text,
    lead,
    level_note,
    main_numbers,
    outcome,
    places,
    ratio_in_words,
    ratio_text,
    sides,
)
from proveout.coordinator.report.figures import load_figures, stage_figures
from proveout.coordinator.report.figures.figure import (
    GREY,
    INK,
    PALE,
    PALETTE,
    Figure,
    Spec,
    category,
    grid,
    joined,
    layer,
    logarithmic,
    panel,
    ratio_layers,
    tips,
)
from proveout.coordinator.results.results import RunResults, StageResult
from proveout.core.numbers import percent, safe

WIDTH = 740
"""Pixels of a panel and the names at its left."""
NAME_MAX = 190
LETTER = 6.5
"""Pixels of a letter of a name, about."""
ROW = 34
"""Pixels of a line."""
LINES_MAX = 40
"""Lines of a panel; where there are more, each stage has the rung at which the reference was fastest."""
FARTHEST = 20.0
"""The axis ends at this ratio, and at 1 over it."""
WIDEST = 1.5
"""An end of an interval that is this many times its ratio away does not make the axis longer: it has an arrow."""
LEAST = 1.05
_TICKS = (0.05, 0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 0.95, 0.98, 1.0, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0,
          20.0)  # fmt: skip
_TICKS_A_SIDE = 3
_FORMS: Mapping[Direction, tuple[str, str]] = {
    "better": ("triangle-up", PALETTE[2]),
    "worse": ("triangle-down", PALETTE[7]),
    "changed": ("diamond", PALETTE[1]),
    "same": ("square", PALETTE[0]),
    "none": ("circle", GREY),
    "unknown": ("cross", GREY),
}


def forest(compared: Sequence[ComparedRuns]) -> Iterator[Figure]:
    """The figure; none where no number has a ratio."""
    every = [one for pair in compared for one in main_numbers(pair)]
    numbers = [one for one in every if one.row.ratio.get("mean", 0.0) > 0.0 and one.row.direction != "offered"]
    drawn = _drawn(numbers)
    if not drawn:
        return
    # those of several runs at the same place are below each other
    ranks = {one.place_of: rank for rank, one in reversed(list(enumerate(drawn)))}
    drawn.sort(key=lambda one: ranks[one.place_of])
    cut = f" {len(drawn)} of {len(numbers)} ratios are drawn, those at the rung where {REFERENCE} was fastest."
    band = compared[0].band
    within = f" The band: ratios within {percent(band)} of 1 do not matter." if band else ""
    where = places(every)
    named = {id(one): safe(where[id(one)] + (f": {one.run}" if len(compared) > 1 else "")) for one in every}
    levels = " ".join(dict.fromkeys(map(level_note, compared)))
    count = sum(not one.row.ratio or one.row.direction == "offered" for one in every)
    absent = f"{count} number{'s have' if count > 1 else ' has'} no ratio; the table has the reason. " if count else ""
    yield Figure(
        name="ratios",
        title=f"{', '.join(one.names[1] for one in compared)} / {REFERENCE}: ratios with their intervals",
        caption=f"Each number of a run over that of {REFERENCE}; at 1 they are the same. {levels} "
        f"{absent}An interval across 1 tells nothing apart; an arrow is an end "
        f"beyond the axis.{within}{cut if len(drawn) < len(numbers) else ''}",
        spec=_spec(drawn, named, band),
        heads=("", "", REFERENCE, "run", "ratio", "CI", ""),
        rows=tuple(
            (named[id(one)], one.what, *sides(one.row), ratio_text(one.row.ratio), interval_text(one.row.ratio) or "-",
             outcome(one.row, one.run))
            for one in every
        ),
        alt=joined(
            _seen(family, [one for one in numbers if one.family == family], named) for family in _families(drawn)
        ),
    )  # fmt: skip


def _drawn(numbers: Sequence[MainNumber]) -> list[MainNumber]:
    """The numbers that are drawn: all, or those at the lead rung of each stage where a panel would be too long."""
    longest = max((sum(one.family == family for one in numbers) for family in _families(numbers)), default=0)
    if longest <= LINES_MAX:
        return list(numbers)
    kept: list[MainNumber] = []
    for key in dict.fromkeys((one.run, one.stage, one.load) for one in numbers):
        of = [one for one in numbers if (one.run, one.stage, one.load) == key]
        first = lead(of)
        kept += [one for one in of if first is None or one.rung == first.rung]
    return [one for family in _families(kept) for one in [one for one in kept if one.family == family][:LINES_MAX]]


def _families(numbers: Sequence[MainNumber]) -> list[str]:
    return list(dict.fromkeys(one.family for one in numbers))


# ---- chart -------------------------------------------------------------------------------------------------------


def _spec(drawn: Sequence[MainNumber], named: Mapping[int, str], band: float) -> Spec:
    x = _axis(drawn, band)
    found = {_shown(one.row.direction) for one in drawn}
    forms = {direction: form for direction, form in _FORMS.items() if direction in found}
    families = _families(drawn)
    panels = [_panel([one for one in drawn if one.family == family], named, x, forms, band) for family in families]
    return grid(panels, columns=1, spacing=18)


def _shown(direction: Direction) -> Direction:
    return "unknown" if direction == "offered" else direction


def _axis(drawn: Sequence[MainNumber], band: float) -> Spec:
    """The axis of all panels, from the least to the largest end that is not too far away."""
    ends = [
        min(max(end, mean / WIDEST, 1.0 / FARTHEST), mean * WIDEST, FARTHEST)
        for one in drawn
        for mean in (float(one.row.ratio["mean"]),)
        for end in (one.row.ratio.get(name, mean) for name in ("mean", "lower", "upper"))
    ]
    reach = [*ends, LEAST, 1.0 / LEAST, 1.0 + band, 1.0 / (1.0 + band)]
    low, high = min(reach), max(reach)
    below = [tick for tick in _TICKS if low <= tick < 1.0][:_TICKS_A_SIDE]
    above = [tick for tick in _TICKS if 1.0 < tick <= high][-_TICKS_A_SIDE:]
    margin = (high / low) ** 0.06
    x = logarithmic("ratio", "", reach, margin=margin)
    x["title"] = None
    x["axis"] |= {"values": [*below, 1.0, *above], "format": "~r", "labelExpr": "datum.label + ' ×'"}
    return x


def _panel(
    found: Sequence[MainNumber],
    named: Mapping[int, str],
    x: Spec,
    forms: Mapping[Direction, tuple[str, str]],
    band: float,
) -> Spec:
    values = [_value(one, named[id(one)]) for one in found]
    places = list(dict.fromkeys(value["place"] for value in values))
    y = category("place", axis={"labelLimit": NAME_MAX, "grid": False}, scale={"domain": places})
    words = [DIRECTIONS[direction][1] for direction in forms]
    form, colour = (
        category("tone", scale={"domain": words, "range": list(kinds)}, legend={"columns": 4})
        for kinds in zip(*forms.values(), strict=True)
    )
    about = tips(place="", base=REFERENCE, other="run", shown="ratio", tone="")
    layers = ratio_layers(values, x, y, about, size=90, color=colour, shape=form)
    if band:
        same = [{"from": 1.0 / (1.0 + band), "to": 1.0 + band}]
        edges = {"x": {**x, "field": "from"}, "x2": {"field": "to"}}
        layers.insert(0, layer("rect", {"color": PALE[0], "opacity": 0.6}, rows=same, **edges))
    layers.append(layer("text", {"dy": -11, "fontSize": 11, "color": INK}, y=y, x=x, text={"field": "written"}))
    width = WIDTH - min(NAME_MAX, LETTER * max(map(len, named.values()))) - 20
    return panel(layers, width, max(50, ROW * len(places)), _heading(found), values)


def _heading(found: Sequence[MainNumber]) -> str:
    family, lower = found[0].family, found[0].row.lower_is_better
    which = "" if lower is None else ": less is better" if lower else ": more is better"
    return f"{family[:1].upper()}{family[1:]}{which}"


def _value(one: MainNumber, place: str) -> dict[str, Any]:
    ratio = one.row.ratio
    mean = min(max(float(ratio["mean"]), 1.0 / FARTHEST), FARTHEST)
    lower, upper = ratio.get("lower"), ratio.get("upper")
    base, other = sides(one.row)
    name = f"{place}, {one.what}" if one.family == "measured value" else place
    return {
        "place": name,
        "ratio": mean,
        "lower": None if lower is None else max(float(lower), 1.0 / (FARTHEST * 2.0)),
        "upper": None if upper is None else min(float(upper), FARTHEST * 2.0),
        "tone": DIRECTIONS[_shown(one.row.direction)][1],
        "written": f"{DIRECTIONS[one.row.direction][0]} {ratio_text(ratio)}",
        "shown": ratio_in_words(ratio),
        "base": base,
        "other": other,
    }


# ---- words -------------------------------------------------------------------------------------------------------


def _seen(family: str, numbers: Sequence[MainNumber], named: Mapping[int, str]) -> str:
    """`Throughput is better at 2 of 4 places, most 1.31 × (1.2 … 1.4) at 4 threads; not distinguishable at 2.`"""
    parts: list[str] = []
    for direction, (_, words, _) in DIRECTIONS.items():
        found = [one for one in numbers if _shown(one.row.direction) == direction]
        if not found:
            continue
        count = f"at {len(found)} of {len(numbers)} places"
        if direction in ("better", "worse", "changed"):
            most = max(found, key=lambda one: max(one.row.ratio["mean"], 1.0 / one.row.ratio["mean"]))
            count += f", most {ratio_in_words(most.row.ratio)} at {named[id(most)]}"
        parts.append(f"{words} {count}")
    return f"{family[:1].upper()}{family[1:]} is {'; '.join(parts)}."


def overlaid(runs: Sequence[RunResults]) -> RunResults:
    """The ladders that every run has, as stages of one run: `A: ladder` of the reference, `B: ladder`, …"""
    shared = [
        name
        for name, stage in runs[0].stages.items()
        if stage.climbs and all(name in other.stages for other in runs[1:])
    ]
    stages: dict[str, StageResult] = {}
    plans: list[dict[str, Any]] = []
    for place, results in enumerate(runs):
        for name in shared:
            named = f"{short_name(place)}: {name}"
            plan = results.plan_stage(name)
            # A ladder is compared with the one of the same name, so that the name stands for the workload.
            if results.stages[name].kind == "tool":
                plans.append({**plan, "id": named})
            else:
                where = f"{plan.get('target', '?')} in {short_name(place)}"
                plans.append({"id": named, "kind": "ladder", "workload": name, "target": where, "label": named})
            stages[named] = replace(results.stages[name], id=named)
    run = replace(runs[0].run, plan={"stages": plans}) if runs[0].run else None
    return replace(runs[0], run=run, stages=stages)


def overlaid_figures(runs: Sequence[RunResults]) -> Iterator[Figure]:
    """Throughput with latency, latency by transaction, IOPS by depth, and the charts that all plans have."""
    together = overlaid(runs)
    yield from load_figures.relative_tps_latency(together)
    yield from load_figures.latency_by_transaction(together)
    yield from stage_figures.iops_by_queue_depth(together)
    yield from stage_figures.charts_together({short_name(place): one for place, one in enumerate(runs)})

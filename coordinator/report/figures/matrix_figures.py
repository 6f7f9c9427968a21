"""Figures of a matrix and of searches: numbers by cell, and the probes of a search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proveout.coordinator.report.figures.figure import (
    GREY,
    PALETTE,
    Figure,
    Spec,
    category,
    chart,
    ends_of,
    grid,
    intervals,
    joined,
    layer,
    logarithmic,
    panel,
    quantity,
    ratio_layers,
    tips,
)
from proveout.coordinator.report.figures.grammar import figure
from proveout.coordinator.report.figures.timeline import Timeline
from proveout.coordinator.report.tables import cell_of, climbing, on_target
from proveout.coordinator.results.results import RungResult, RunResults, StageResult
from proveout.core import statistics
from proveout.core.data_classes import record
from proveout.core.json_data import at_path
from proveout.core.numbers import SOUGHT, bounds, half_width, number, rung_name, safe, sought
from proveout.core.numbers import quantity as amount
from proveout.proto.events import ProbeFinished

CELLS_MAX = 60
"""Cells that are drawn; the table has all."""
WIDTH = 700
_METRICS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("time to solve", ("solve_s",)),
    ("throughput", ("tps",)),
    ("p99 response", ("response", "p99_us")),
)
_TONES = ["better", "worse", "undecided"]
_FARTHEST = 100.0
"""The axis ends at this factor, and at 1 over it: intervals of few repeats reach much farther."""


@record
class _Factor:
    """A cell's number with its factor against the first cell; `factor` is {} where it cannot be computed."""

    cell: str
    what: str
    rung: str
    metric: str
    value: Mapping[str, Any]
    factor: Mapping[str, Any]

    @property
    def tone(self) -> str:
        lower, upper = self.factor.get("lower"), self.factor.get("upper")
        return _TONES[0] if lower is not None and lower > 1.0 else _TONES[1] if upper and upper < 1.0 else _TONES[2]

    @property
    def words(self) -> tuple[str, str, str]:
        """The value, the factor and its interval."""
        value = amount(self.value.get("mean"), self.metric, half_width(self.value))
        factor = f"{number(self.factor.get('mean'), half_width(self.factor))} ×"
        return value, factor, bounds(self.factor.get("lower"), self.factor.get("upper"))


@figure("matrix-overview", "no matrix has two cells with a valid iteration at the same rung")
def matrix_overview(results: RunResults, _: Timeline) -> Iterator[Figure]:
    """The factor of each cell of a matrix against the first one: time to solve a set, else throughput and p99."""
    matrices: dict[str, list[StageResult]] = {}
    for stage in climbing(results):
        if cell := cell_of(results, stage.id):
            matrices.setdefault(cell.of, []).append(stage)
    for of, stages in matrices.items():
        found = list(_factors(results, stages)) if len(stages) > 1 else []
        if not any(one.factor for one in found):
            continue
        base = safe(str(cell_of(results, stages[0].id)))
        cells = list(dict.fromkeys(one.cell for one in found))
        drawn = [one for one in found if one.factor and one.cell in cells[:CELLS_MAX]]
        cut = f" The first {CELLS_MAX} of {len(cells)} cells are drawn." if len(cells) > CELLS_MAX else ""
        whiskers = intervals(one.factor for one in drawn if "n" in one.factor)
        whats = {what: [one for one in drawn if one.what == what] for what in dict.fromkeys(one.what for one in drawn)}
        yield Figure(
            of=(of,),
            title=f"Overview: {safe(of)}, {len(stages)} cells",
            caption=f"Each cell against {base} = 1, with {whiskers}. To the right is better: more throughput, "
            f"or a shorter time. An interval across 1 tells nothing apart.{cut}",
            spec=grid([_panel(of_what, what, len(whats)) for what, of_what in whats.items()], columns=len(whats)),
            heads=("cell", "", "rung", "value", "factor", "CI"),
            rows=tuple((one.cell, one.what, one.rung, *one.words) for one in found),
            alt=joined(_seen(what, of_what) for what, of_what in whats.items()),
        )


def _factors(results: RunResults, stages: Sequence[StageResult]) -> Iterator[_Factor]:
    first = stages[0]
    top = first.highest
    known = [(what, path) for what, path in _METRICS if top and isinstance(at_path(top.tree, *path), Mapping)]
    # of a set of queries the time to solve it; else throughput and p99
    for what, path in known[:1] if known[:1] == list(_METRICS[:1]) else known:
        for stage in stages:
            pair = _rungs(first, stage)
            if pair is None:
                continue
            base, one = (at_path(rung.tree, *path) for rung in pair)
            if not isinstance(base, Mapping) or not isinstance(one, Mapping) or "mean" not in one:
                continue
            sides = (dict(one), dict(base)) if path[-1] == "tps" else (dict(base), dict(one))
            yield _Factor(
                cell=safe(str(cell_of(results, stage.id))),
                what=what,
                rung=rung_name(stage.kind, pair[1].threads),
                metric=path[-1],
                value=one,
                factor={"mean": 1.0} if stage is first else statistics.ratio(*sides),
            )


def _rungs(first: StageResult, other: StageResult) -> tuple[RungResult, RungResult] | None:
    """The largest rung that both have; else the peak of each."""
    mine, theirs = ({rung.threads: rung for rung in stage.rungs if rung.tree} for stage in (first, other))
    if common := set(mine) & set(theirs):
        return mine[max(common)], theirs[max(common)]
    tops = first.peak, other.peak
    return (tops[0], tops[1]) if tops[0] is not None and tops[1] is not None else None


# ---- chart -------------------------------------------------------------------------------------------------------


def _panel(found: Sequence[_Factor], what: str, across: int) -> Spec:
    values = [
        {"cell": one.cell, "factor": one.factor["mean"], **ends_of(one.factor), "tone": one.tone,
         **dict(zip(("value", "shown", "interval"), one.words, strict=True))}
        for one in found
        if one.factor.get("mean", 0.0) > 0.0
    ]  # fmt: skip
    ends = [1.0, *(value[name] for value in values for name in ("factor", "lower", "upper") if value[name])]
    kept = [min(max(end, 1.0 / _FARTHEST), _FARTHEST) for end in ends]
    x = logarithmic("factor", "factor", [*kept, 0.8, 1.25], margin=1.05)
    x["axis"] |= {"format": "~r", "labelExpr": "datum.label + ' ×'"}
    y = category("cell", axis={"labelLimit": 190}, scale={"domain": list(dict.fromkeys(one.cell for one in found))})
    scale = {"domain": _TONES, "range": [PALETTE[2], PALETTE[7], GREY]}
    colour = category("tone", scale=scale, legend={"columns": 3})
    about = tips(cell="cell", value=what, shown="factor", interval="CI")
    layers = ratio_layers(values, x, y, about, size=80, color=colour)
    return panel(layers, (WIDTH // across) - 130, max(60, 22 * len(values)), what, values)


def _seen(what: str, found: Sequence[_Factor]) -> str:
    best, worst = (pick(found, key=lambda one: float(one.factor["mean"])) for pick in (max, min))
    ends = ", ".join(f"{name} {one.words[1]} in {one.cell}" for name, one in (("best", best), ("worst", worst)))
    return f"{what}: {ends}; {sum(one.tone != _TONES[2] for one in found)} of {len(found)} cells differ from the first."


_LOG_FROM = 20.0
"""From this ratio of the highest to the lowest rate on the axis is logarithmic."""
_OUTCOMES = ["accepted", "refused"]
_EVIDENCE_MAX = 160


@figure("search", "no search has a probe")
def search(results: RunResults, _: Timeline) -> Iterator[Figure]:
    """The probes of each search with their outcomes, the bracket after each, and the answer."""
    for stage in results.stages.values():
        if not stage.probes:
            continue
        answer = "not ended" if stage.search is None else stage.search.answer
        over = SOUGHT[stage.probes[0].over]
        target = on_target(results, stage.id)
        yield Figure(
            of=(stage.id,),
            title=safe(f"Search {stage.id}{f' on {target}' if target else ''}: {answer}"),
            caption=f"Each probe at its {over}, in their order; the line is the answer. Shaded: the {over}s after a "
            "probe between the highest that was accepted and the lowest that was refused.",
            spec=_search_spec(stage),
            heads=("probe", "phase", stage.probes[0].over, "outcome", "evidence"),
            rows=tuple(
                (str(one.probe), one.phase, one.level, _outcome(one), safe(one.evidence)) for one in stage.probes
            ),
            alt=_search_seen(stage, answer),
        )


def _outcome(one: ProbeFinished) -> str:
    return _OUTCOMES[0] if one.accepted else _OUTCOMES[1]


def _brackets(probes: Sequence[ProbeFinished]) -> list[dict[str, Any]]:
    """The bracket after each probe: from the highest accepted rate that no later probe refused to the lowest refused
    one above it."""
    latest: dict[float, bool] = {}
    found: list[dict[str, Any]] = []
    for one in probes:
        latest[one.rate] = one.accepted
        refused = [rate for rate, accepted in latest.items() if not accepted]
        kept = [rate for rate, accepted in latest.items() if accepted and all(rate < other for other in refused)]
        low, high = max(kept, default=None), min(refused, default=None)
        if low is not None and high is not None:
            found.append({"probe": one.probe - 0.5, "next": one.probe + 0.5, "low": low, "high": high})
    return found


def _sought(stage: StageResult) -> list[ProbeFinished]:
    """The probes without those of the ladder around the answer."""
    return [one for one in stage.probes if one.phase != "around"]


def _search_spec(stage: StageResult) -> Spec:
    probes = _sought(stage)
    rates = [one.rate for one in probes]
    values = [
        {"probe": one.probe, "rate": one.rate, "outcome": _outcome(one), "phase": one.phase,
         "shown": one.level, "evidence": safe(one.evidence)[:_EVIDENCE_MAX]}
        for one in probes
    ]  # fmt: skip
    x = quantity("probe", "probe", axis={"grid": False, "tickMinStep": 1, "format": "d"},
                 scale={"domain": [probes[0].probe - 0.5, probes[-1].probe + 0.5], "nice": False})  # fmt: skip
    is_wide = max(rates) >= _LOG_FROM * min(rates) > 0.0
    title = "rate, 1/s" if probes[0].over == "rate" else "threads"
    y = logarithmic("rate", title, rates) if is_wide else quantity(
        "rate", title, scale={"domain": [0, 1.08 * max(rates)]}
    )  # fmt: skip
    layers: list[Spec] = []
    if brackets := _brackets(probes):
        area = {"x": x, "x2": {"field": "next"}, "y": {**y, "field": "low"}, "y2": {"field": "high"}}
        layers.append(layer("rect", {"color": PALETTE[0], "opacity": 0.16, "clip": True}, rows=brackets, **area))
    if stage.search is not None and (answer := stage.search.rate) is not None:
        rows = [{"rate": answer, "text": f"answer {sought(answer, probes[0].over)}"}]
        look = {"align": "left", "baseline": "bottom", "dx": 4, "dy": -3, "fontSize": 12}
        layers += [
            layer("rule", {"color": PALETTE[0], "strokeWidth": 2, "clip": True}, rows=rows, y=y),
            layer("text", look, rows=rows, x={"value": 0}, y=y, text={"field": "text"}),
        ]
    shape, colour = (
        category("outcome", scale={"domain": _OUTCOMES, "range": kinds}, legend={"columns": 2})
        for kinds in (["circle", "cross"], [PALETTE[2], PALETTE[7]])
    )
    about = tips(probe="probe", phase="phase", shown=probes[0].over, outcome="outcome", evidence="evidence")
    dot = {"filled": True, "opacity": 1, "size": 90}
    layers.append(layer("point", dot, x=x, y=y, shape=shape, color=colour, tooltip=about))
    return chart(values, layers, height=280)


def _search_seen(stage: StageResult, answer: str) -> str:
    probes = _sought(stage)
    accepted = [one.rate for one in probes if one.accepted]
    refused = [one.rate for one in probes if not one.accepted]
    over = probes[0].over
    low, high = (sought(pick(one.rate for one in probes), over) for pick in (min, max))
    parts = [f"{len(probes)} probes between {low} and {high}: {len(accepted)} accepted, {len(refused)} refused."]
    if accepted:
        parts.append(f"The highest accepted is {sought(max(accepted), over)}.")
    if refused:
        parts.append(f"The lowest refused is {sought(min(refused), over)}.")
    return safe(joined([*parts, f"Answer: {answer}."]))

"""The figure of a search: each probe at its rate with its outcome, the bracket as it narrows, and the answer. Pure.

Data flow: the probes and the answer of each search stage -> one `Figure` a search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from proveout.coordinator.report.figures.descriptions import joined
from proveout.coordinator.report.figures.figure import (
    PALETTE,
    Figure,
    Spec,
    category,
    chart,
    logarithmic,
    quantity,
    slug,
    tips,
)
from proveout.coordinator.report.tables import on_target
from proveout.coordinator.results.results import RunResults, StageResult
from proveout.core.numbers import number, safe, search_answer
from proveout.proto.events import ProbeFinished

_GOOD, _BAD = PALETTE[2], PALETTE[7]
_LOG_FROM = 20.0
"""From this ratio of the highest to the lowest rate on the axis is logarithmic."""
_OUTCOMES = ["accepted", "refused"]
_EVIDENCE_MAX = 160


def search(results: RunResults) -> Iterator[Figure]:
    """The probes of each search."""
    for stage in results.stages.values():
        if not stage.probes:
            continue
        answer = "not ended" if stage.search is None else search_answer(
            stage.search.rate, stage.search.upper, stage.search.confirmations, stage.search.outcome
        )  # fmt: skip
        target = on_target(results, stage.id)
        yield Figure(
            name="search",
            slug=slug("search", stage.id),
            title=safe(f"Search {stage.id}{f' on {target}' if target else ''}: {answer}"),
            caption="Each probe at its rate, in their order; shaded, what is left after it between the highest "
            "rate that was accepted and the lowest that was refused; the line is the answer.",
            spec=_spec(stage),
            heads=("probe", "phase", "rate", "outcome", "evidence"),
            rows=tuple(
                (str(one.probe), one.phase, f"{number(one.rate)}/s", _outcome(one), safe(one.evidence))
                for one in stage.probes
            ),
            alt=_seen(stage, answer),
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


def _spec(stage: StageResult) -> Spec:
    probes = stage.probes
    rates = [one.rate for one in probes]
    values = [
        {"probe": one.probe, "rate": one.rate, "outcome": _outcome(one), "phase": one.phase,
         "shown": f"{number(one.rate)}/s", "evidence": safe(one.evidence)[:_EVIDENCE_MAX]}
        for one in probes
    ]  # fmt: skip
    x = quantity("probe", "probe", axis={"grid": False, "tickMinStep": 1, "format": "d"},
                 scale={"domain": [probes[0].probe - 0.5, probes[-1].probe + 0.5], "nice": False})  # fmt: skip
    is_wide = max(rates) >= _LOG_FROM * min(rates) > 0.0
    y = logarithmic("rate", "rate, 1/s", rates) if is_wide else quantity(
        "rate", "rate, 1/s", scale={"domain": [0, 1.08 * max(rates)]}
    )  # fmt: skip
    layers: list[Spec] = []
    if brackets := _brackets(probes):
        band: Spec = {"type": "rect", "color": PALETTE[0], "opacity": 0.16, "clip": True}
        ends = {"x": x, "x2": {"field": "next"}, "y": {**y, "field": "low"}, "y2": {"field": "high"}}
        layers.append({"data": {"values": brackets}, "mark": band, "encoding": ends})
    layers += _answer(stage, y)
    shape = category("outcome", scale={"domain": _OUTCOMES, "range": ["circle", "cross"]}, legend={"columns": 2})
    colour = category("outcome", scale={"domain": _OUTCOMES, "range": [_GOOD, _BAD]}, legend={"columns": 2})
    about = tips(probe="probe", phase="phase", shown="rate", outcome="outcome", evidence="evidence")
    layers.append(
        {
            "mark": {"type": "point", "filled": True, "opacity": 1, "size": 90},
            "encoding": {"x": x, "y": y, "shape": shape, "color": colour, "tooltip": about},
        }
    )
    return chart(values, layers, height=280)


def _answer(stage: StageResult, y: Spec) -> list[Spec]:
    """The answer as a line, with the lowest rate that was shown to be too high."""
    found = stage.search
    if found is None or found.rate is None:
        return []
    lines = [{"rate": found.rate, "text": f"answer {number(found.rate)}/s"}]
    where = {"data": {"values": lines}}
    return [
        {**where, "mark": {"type": "rule", "color": PALETTE[0], "strokeWidth": 2, "clip": True}, "encoding": {"y": y}},
        {
            **where,
            "mark": {"type": "text", "align": "left", "baseline": "bottom", "dx": 4, "dy": -3, "fontSize": 12},
            "encoding": {"x": {"value": 0}, "y": y, "text": {"field": "text"}},
        },
    ]


def _seen(stage: StageResult, answer: str) -> str:
    probes = stage.probes
    accepted = [one.rate for one in probes if one.accepted]
    refused = [one.rate for one in probes if not one.accepted]
    low, high = (number(pick(one.rate for one in probes)) for pick in (min, max))
    parts = [f"{len(probes)} probes between {low}/s and {high}/s: {len(accepted)} accepted, {len(refused)} refused."]
    if accepted:
        parts.append(f"The highest accepted is {number(max(accepted))}/s.")
    if refused:
        parts.append(f"The lowest refused is {number(min(refused))}/s.")
    return safe(joined([*parts, f"Answer: {answer}."]))

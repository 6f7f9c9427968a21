"""The answer of a comparison of two runs: the ratio of each rung with its interval, and one sentence. Pure.

Data flow: `ComparedRuns` -> `ratios`, the rows of a forest plot, and `sentence`. A ratio is this run over the other,
1 means no change; `direction` tells better from worse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from proveout.coordinator.compare.comparison import ComparedRuns, Direction, Row
from proveout.coordinator.report.compare.comparison_document import label
from proveout.core.numbers import bounds, half_width, number, rung_name

THROUGHPUT = ("tps", "iops", "rate", "solve_s")
RESPONSE = ("avg_us", "p99_us")
WIDEST = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A number of this run over that of the reference: `of` is the stage and the rung, `what` the number's name.

    `lower` and `upper` are None without an interval; `text` and `interval` are both as they are printed.
    """

    of: str
    what: str
    ratio: float
    lower: float | None
    upper: float | None
    direction: Direction
    is_throughput: bool
    text: str
    interval: str


def ratios(compared: ComparedRuns) -> tuple[Ratio, ...]:
    """Throughput, mean response and p99 of each rung that both runs have, and each search."""
    found: list[Ratio] = []
    for stage in compared.stages:
        for rung in stage.rungs:
            of = f"{stage.id}, {rung_name(stage.kind, rung.threads)}"
            found += _ratios(of, rung.rows)
        if stage.kind == "search":
            found += _ratios(f"search {stage.id}", stage.values)
    return tuple(found)


def _ratios(of: str, rows: Sequence[Row]) -> Iterator[Ratio]:
    for row in rows:
        is_throughput = len(row.path) == 1 and row.metric in THROUGHPUT
        is_response = row.path[0] == "response" and row.metric in RESPONSE
        mean = row.change.get("mean")
        if mean is None or mean <= -1.0 or not (is_throughput or is_response):
            continue
        whole = {key: 1.0 + row.change[key] for key in ("mean", "lower", "upper") if row.change.get(key) is not None}
        yield Ratio(
            of=of,
            what=label(row),
            ratio=whole["mean"],
            lower=whole.get("lower"),
            upper=whole.get("upper"),
            direction=row.direction,
            is_throughput=is_throughput,
            text=f"{number(whole['mean'], half_width(whole))} ×",
            interval=_interval(whole.get("lower"), whole.get("upper")),
        )


def _interval(lower: float | None, upper: float | None) -> str:
    """The ends of a ratio's interval; an end beyond `WIDEST`, which is of no use, is an arrow; "" without both."""
    if lower is None or upper is None:
        return ""
    ends = bounds(max(lower, 1.0 / WIDEST), min(upper, WIDEST)).split(" … ")
    return f"{'←' if lower < 1.0 / WIDEST else ends[0]} … {'→' if upper > WIDEST else ends[1]}"


def sentence(rows: Sequence[Ratio]) -> str:
    """`Throughput is better at 2 of 4 rungs (most 1.31 ×, base, 4 threads); mean response shows no change.`"""
    throughput = [row for row in rows if row.is_throughput]
    response = [row for row in rows if not row.is_throughput and row.what == "response avg"]
    parts = [_part("throughput", throughput), _part("mean response", response)]
    text = "; ".join(filter(None, parts))
    return f"{text[:1].upper()}{text[1:]}." if text else "No number can be compared."


def _part(what: str, rows: Sequence[Ratio]) -> str:
    if not rows:
        return ""
    counted = Counter(row.direction for row in rows)
    of = f"of {len(rows)} place{'s' if len(rows) != 1 else ''}"
    told = []
    for direction in ("better", "worse"):
        moved = [row for row in rows if row.direction == direction]
        if moved:
            most = max(moved, key=lambda row: max(row.ratio, 1.0 / row.ratio))
            told.append(f"{direction} at {len(moved)} {of} (most {most.text}, {most.of})")
    if told:
        return f"{what} is {' and '.join(told)}"
    if counted["unknown"] == len(rows):
        return f"{what} has no intervals to compare"
    return f"no change of {what} is shown at {len(rows)} place{'s' if len(rows) != 1 else ''}"

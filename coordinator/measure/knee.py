"""The knee of a ladder: the rung from which throughput grows less than threads. Pure; independent of events.

Data flow: `results` passes the rungs' throughputs -> `find` -> `Knee` (the rung and its interval) or `NoKnee` (the
reason) -> `ladder.knee` in expressions, a line in every report.

Kneedle (Satopää, Albrecht, Irwin, Raghavan: Finding a "Kneedle" in a Haystack, ICDCS Workshops 2011) on the measured
rungs: threads x and mean throughput y are scaled to 0 … 1; the knee is the rung where the curve is farthest above the
straight line from its first to its last point, max(y - x). It counts only when the distance falls below max - S ·
mean(Δx), S = 1, at a later rung, and is larger than S · mean(Δx): an almost straight curve has no knee, nor one that
only dips on its way up. Points are not smoothed: each is a mean over repeats already.

The certainty of the knee follows from that of the means: each mean is drawn 2000 times (with a fixed seed) from
Student's t, or the normal distribution, that matches its confidence interval. There is no knee when fewer than 95 % of
the draws have one, or fewer than 95 % have a higher throughput there than at the first rung; nor when it may lie at any
of three or more inner rungs. The interval of its threads is that of the draws' knees, so its ends are rungs as well.

Where the means have no knee, throughput is called almost a straight line when 95 % of the draws have none either, or
are flat (a range below `FLAT` of their mean); else the repeats scatter too much to tell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from proveout.core.data_classes import dataclass
from proveout.core.power import CONFIDENCE
from proveout.core.statistics import Estimate, Floats, t_quantile

RUNGS_MIN = 3
SENSITIVITY = 1.0
DRAWS = 2000
FLAT = 0.1
NONE = -1
_SEED = 20110620


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    """The rung, in threads, with the interval that it lies in (None when a rung has no interval itself), and how far
    above the chord."""

    threads: int
    lower: int | None
    upper: int | None
    distance: float
    repeats: int
    confidence: float = CONFIDENCE

    @property
    def estimate(self) -> Estimate:
        """`ladder.knee.threads`: an estimate as those of `stats`."""
        found: Estimate = {
            "mean": float(self.threads),
            "median": float(self.threads),
            "n": self.repeats,
            "values": [],
            "method": "single",
        }
        if self.confidence != CONFIDENCE:
            found["confidence"] = self.confidence
        if self.lower is None or self.upper is None:
            return found
        return found | {"lower": float(self.lower), "upper": float(self.upper), "method": "draws"}


@dataclass(frozen=True, slots=True)
class NoKnee:
    """The reason why a ladder has no knee, for users."""

    reason: str


def find(rungs: Sequence[tuple[int, Estimate]]) -> Knee | NoKnee:
    """The knee of rungs (threads, throughput as an estimate over repeats), fewest threads first."""
    if len(rungs) < RUNGS_MIN:
        return NoKnee(f"it takes {RUNGS_MIN} rungs to see one, there are {len(rungs)}")
    threads = np.asarray([count for count, _ in rungs], dtype=np.float64)
    means = np.asarray([[tps["mean"] for _, tps in rungs]], dtype=np.float64)
    (at,), (distance,) = _bends(threads, means)
    drawn = _draw([tps for _, tps in rungs])
    if at == NONE:
        return _straight(rungs[-1][0], float(distance), threads, drawn)
    found = Knee(
        threads=rungs[at][0],
        lower=None,
        upper=None,
        distance=float(distance),
        repeats=min(int(tps["n"]) for _, tps in rungs),
        confidence=max(float(tps.get("confidence", CONFIDENCE)) for _, tps in rungs),
    )
    return found if drawn is None else _bounded(found, int(at), threads, drawn)


def _straight(last: int, distance: float, threads: Floats, drawn: Floats | None) -> NoKnee:
    """The reason of a ladder whose means have no knee: one of the draws may have one."""
    bent = 0.0
    if drawn is not None:
        is_flat = np.ptp(drawn, axis=1) < FLAT * drawn.mean(axis=1)
        bent = float(np.mean((_bends(threads, drawn)[0] != NONE) & ~is_flat))
    if bent > 1.0 - CONFIDENCE:
        return NoKnee(
            f"the repeats scatter too much to tell: their means have none, but {bent:.0%} of draws from them do"
        )
    range_above = f"{distance:.2f} of its range above it at most"
    return NoKnee(f"throughput is almost a straight line up to {last} threads ({range_above})")


def _bends(threads: Floats, curves: Floats) -> tuple[npt.NDArray[np.int64], Floats]:
    """Of each row of throughputs: the position of its knee (or NONE), and the largest distance above the chord, 0 …
    1."""
    low = curves.min(axis=1, keepdims=True)
    height = curves.max(axis=1, keepdims=True) - low
    x = (threads - threads[0]) / (threads[-1] - threads[0])
    distance = np.divide(curves - low, height, out=np.zeros_like(curves), where=height > 0.0) - x
    at = np.argmax(distance, axis=1)
    largest = distance.max(axis=1)
    later = np.arange(len(threads)) > at[:, None]
    lowest = np.where(later, distance, np.inf).min(axis=1)
    least = SENSITIVITY * float(np.mean(np.diff(x)))
    bent = (at > 0) & (largest > least) & (lowest < largest - least) & (height[:, 0] > 0.0)
    return np.where(bent, at, NONE), largest


def _draw(estimates: Sequence[Estimate]) -> Floats | None:
    """Resampled means, a row for each draw; None when one of them has no interval to draw from."""
    generator = np.random.default_rng(_SEED)
    columns: list[Floats] = []
    for tps in estimates:
        if "degrees" not in tps:
            return None
        mean, degrees = float(tps["mean"]), float(tps["degrees"])
        tail = 1.0 - (1.0 - float(tps.get("confidence", CONFIDENCE))) / 2.0
        shape = generator.standard_t(degrees, DRAWS) / t_quantile(degrees, tail)
        if tps["lower"] > 0.0:
            columns.append(mean * np.exp(np.minimum(math.log(float(tps["upper"]) / mean) * shape, 600.0)))
        else:
            columns.append(mean + (float(tps["upper"]) - mean) * shape)
    return np.stack(columns, axis=1)


def _bounded(found: Knee, at: int, threads: Floats, drawn: Floats) -> Knee | NoKnee:
    bends = _bends(threads, drawn)[0]
    bent = bends[bends != NONE]
    sure = min(len(bent) / len(drawn), float(np.mean(drawn[:, at] > drawn[:, 0])))
    if sure < found.confidence:
        return NoKnee(f"the repeats scatter too much: the bend at {found.threads} threads is only {sure:.0%} sure")
    outside = (1.0 - found.confidence) / 2.0
    lower, upper = np.quantile(threads[bent], [outside, 1.0 - outside], method="inverted_cdf")
    inner = threads[1:-1]
    if len(inner) > 2 and lower <= inner[0] and upper >= inner[-1]:
        return NoKnee("the repeats scatter too much: it may lie at any rung but the first and the last")
    return replace(found, lower=int(min(lower, found.threads)), upper=int(max(upper, found.threads)))

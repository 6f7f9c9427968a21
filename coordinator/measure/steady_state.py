"""Whether a throughput is steady in a window or in its phases, and the rung from which a ladder stops scaling. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from proveout.coordinator.measure.captures import checked
from proveout.coordinator.measure.load_merge import Observed
from proveout.core.data_classes import dataclass, record
from proveout.core.distributions import t_quantile
from proveout.core.json_data import number_at
from proveout.core.numbers import quantity, together
from proveout.core.statistics import CONFIDENCE, NO_INFORMATION, Estimate, Floats, follow_each_other
from proveout.core.units import length
from proveout.dsl.plan.stages import Ladder, Windows
from proveout.dsl.rules.repeat_rules import DRIFT_SECONDS, STEADY_SECONDS, changing_phases, unsteady_by_plan
from proveout.proto.events import IterationFinished, ValidityFinding

# The drift of a window is its least-squares slope times its length, over its mean: +10 % means that the fitted line
# rises by a tenth of the mean from the start of the window to its end. "Steady" is stated only where the data show it:
# the 90 % interval of the drift lies within ± the bound (`limits: {tps_slope: …}`), which is a test at 5 % of the
# hypothesis "drifts by the bound or more". Too few seconds, or seconds that vary much, show nothing; such a window is
# *not shown to be steady*, which is a warning. Before, a slope had to be significant to be reported, so that little
# data passed.
#
# - `of_window`: at most `BLOCKS` means of neighbouring seconds, since neighbouring seconds follow each other; t with
#   blocks - 2 degrees of freedom. Where the seconds are strongly correlated, short windows exceed the 5 % (see the
#   ADR).
# - `of_repeats`: the repeats' drifts are independent of each other, so t with n - 1 degrees of freedom holds whatever
#   the correlation of the seconds is. It needs no long windows, but two repeats or more.
#
# Source: Schuirmann, A comparison of the two one-sided tests procedure and the power approach, J. Pharmacokinetics and
# Biopharmaceutics 15 (1987); batch means: Law, Simulation Modeling and Analysis (2015), 9.5.

BLOCKS = STEADY_SECONDS
"""Means of neighbouring seconds that a window is cut into, and the fewest seconds that can be judged."""
ONE_SIDED = 0.95
DRIFT_MAX = 0.10
"""The bound where a recorded plan does not have one."""

CHECK = "steady-state"
"""The name of the finding; of one phase with its name, see `check_of`."""
RAMP_UP = "ramp-up"
"""The name of the finding on a ramp-up of `auto(…)`."""
SLACK_S = 0.01
REMARKS_MAX = 3
ALONE = "not judged by itself, but with the other repeats"
"""Begins the finding of an iteration whose window has fewer than `BLOCKS` whole seconds: it can show nothing."""

State: TypeAlias = Literal["steady", "drifting", "not shown"]


@record
class Steadiness:
    """The drift (a fraction of the mean) with half its 90 % interval, None where there is none, against the bound.

    `over`: the seconds or repeats that it was taken from, in words.
    """

    drift: float | None
    half: float | None
    bound: float
    over: str

    @property
    def state(self) -> State:
        """`drifting` when the whole interval is beyond the bound on one side."""
        if self.drift is None or self.half is None:
            return "not shown"
        if abs(self.drift) + self.half < self.bound:
            return "steady"
        return "drifting" if abs(self.drift) - self.half > self.bound else "not shown"

    def text(self, unit: str) -> str:
        """`TPS not shown to be steady: drift +3 % ± 14 % over 5 s (limit 10 %)`."""
        words = {"steady": "steady", "drifting": "not steady", "not shown": "not shown to be steady"}[self.state]
        if self.drift is None or self.half is None:
            return f"{unit} {words}: {self.over}"
        limit = quantity(self.bound, "fraction")
        if abs(self.drift) > 1.0:  # "-384 %" of a system that died in the window says nothing
            moved = "fell" if self.drift < 0.0 else "rose"
            return f"{unit} {words}: it {moved} by more than its mean over {self.over} (limit {limit})"
        sign = "+" if self.drift > 0.0 else ""
        drift, half = (quantity(value, "fraction", self.half) for value in (self.drift, self.half))
        return f"{unit} {words}: drift {sign}{drift} ± {half} over {self.over} (limit {limit})"


def of_window(per_second: Sequence[float], bound: float) -> Steadiness:
    """The steadiness of one window from its whole seconds.

    The seconds are cut into 5 blocks of (nearly) equal length; the least-squares line through the blocks' means at the
    middles of the blocks has slope b with variance s² / Σ(x - mean x)², where s² is the residuals' sum of squares over
    3. The drift is b · seconds / mean, ± t(0.95; 3) of its standard error.
    """
    seconds = np.asarray(per_second, dtype=np.float64)
    count = len(seconds)
    if count < BLOCKS or float(seconds.mean()) <= 0.0:
        few = (
            f"{count} whole second{'s' * (count != 1)} {'is' if count == 1 else 'are'} too few"
            if count < BLOCKS
            else "nothing ended"
        )
        return Steadiness(drift=None, half=None, bound=bound, over=few)
    parts = np.array_split(np.arange(count, dtype=np.float64), BLOCKS)
    x = np.array([part.mean() for part in parts])
    y = np.array([seconds[part.astype(np.int64)].mean() for part in parts])
    slope, spread = _slope(x, y)
    residuals = y - y.mean() - slope * (x - x.mean())
    error = math.sqrt(float(residuals @ residuals) / (BLOCKS - 2) / spread)
    scale = count / float(seconds.mean())
    half = t_quantile(BLOCKS - 2, ONE_SIDED) * error * scale
    return Steadiness(drift=slope * scale, half=half, bound=bound, over=f"{count} s")


def _slope(x: Floats, y: Floats) -> tuple[float, float]:
    """The least-squares slope, and the sum of squares of x around its mean."""
    centred = x - x.mean()
    spread = float(centred @ centred)
    return float(centred @ y) / spread, spread


def window_drift(per_second: Sequence[float]) -> float | None:
    """The drift of one window, as a fraction of its mean; None below 2 whole seconds or without throughput."""
    seconds = np.asarray(per_second, dtype=np.float64)
    if len(seconds) < DRIFT_SECONDS or float(seconds.mean()) <= 0.0:
        return None
    slope, _ = _slope(np.arange(len(seconds), dtype=np.float64), seconds)
    return slope * len(seconds) / float(seconds.mean())


def of_repeats(windows: Sequence[Sequence[float]], bound: float) -> Steadiness:
    """The steadiness of a rung: the mean drift of its repeats ± t(0.95; n-1) · s/√n.

    Not shown from one repeat, or where a repeat has no drift.
    """
    drifts = [drift for window in windows if (drift := window_drift(window)) is not None]
    if len(drifts) < 2 or len(drifts) < len(windows):
        over = f"{len(drifts)} of {len(windows)} repeats have two whole seconds"
        return Steadiness(drift=None, half=None, bound=bound, over=over)
    deviation = float(np.std(drifts, ddof=1))
    half = t_quantile(len(drifts) - 1, ONE_SIDED) * deviation / math.sqrt(len(drifts))
    return Steadiness(drift=float(np.mean(drifts)), half=half, bound=bound, over=f"{len(drifts)} repeats")


def steady_from(per_second: Sequence[float], windows: Windows, bound: float) -> int | None:
    """The shortest ramp-up, s, from the least of `ramp_up: auto(…)` on, after which a window of the length of the
    measure window is shown to be steady (`of_window`); `per_second` begins at T0. None where there is none."""
    length_s, least_s = int(windows.measure_s), windows.ramp_up_least_s or 0.0
    starts = range(math.ceil(least_s), len(per_second) - length_s + 1)
    return next((s for s in starts if of_window(per_second[s : s + length_s], bound).state == "steady"), None)


def judge_ramp_up(stage: Ladder, used_s: float, steady_from_s: float | None) -> ValidityFinding:
    """A warning where the longest ramp-up of `ramp_up: auto(…)` was not shown to be long enough."""
    windows, used = stage.windows, length(used_s)
    if steady_from_s is not None:
        return checked(RAMP_UP, True, f"{used}; steady from {length(steady_from_s)} on")
    text = (
        f"{used}; none of the windows of {length(windows.measure_s)} that begin between "
        f"{length(windows.ramp_up_least_s or 0.0)} and {used} is shown to be steady"
    )
    return checked(RAMP_UP, used_s < windows.ramp_up_s - SLACK_S, text)


def check_of(phase: str) -> str:
    """The name of the finding on a phase, "" for the whole window."""
    return f"{CHECK}:{phase}" if phase else CHECK


def is_on_steadiness(check: str) -> bool:
    """Whether a finding of that name is on the steadiness of a window or a phase."""
    return check.partition(":")[0] == CHECK


def remark(iterations: Sequence[IterationFinished], bound: float, unit: str) -> str:
    """`TPS not shown to be steady: …` of a rung where iterations, or a phase of them, are not, or are too short to show
    it, and all repeats together do not show it; "" otherwise."""
    flagged: dict[str, ValidityFinding] = {}
    for item in iterations:
        for finding in item.findings:
            shows_nothing = finding.evidence.startswith(ALONE) if finding.ok else not finding.voids
            if is_on_steadiness(finding.check) and finding.load not in item.beside and shows_nothing:
                flagged.setdefault(finding.check.partition(":")[2], finding)
    texts = [_remark(iterations, phase, finding, bound, unit) for phase, finding in flagged.items()]
    said = [text for text in texts if text]
    more = f"; and {len(said) - REMARKS_MAX} more phases" if len(said) > REMARKS_MAX else ""
    return "; ".join(said[:REMARKS_MAX]) + more


def _remark(
    iterations: Sequence[IterationFinished], phase: str, finding: ValidityFinding, bound: float, unit: str
) -> str:
    name, within = (f"phases.{phase}.tps", f"{phase}: ") if phase else ("tps", "")
    windows = [item.series.get(name, ()) for item in iterations]
    if len(windows) == 1:
        return within + (of_window(windows[0], bound).text(unit) if finding.ok else finding.evidence)
    found = of_repeats(windows, bound)
    return "" if found.state == "steady" else within + found.text(unit)


def following(iterations: Sequence[IterationFinished], unit: str) -> str:
    """`TPS follow each other: …` where iterations that are neighbours in time are more alike than independent ones;
    "" where that is not shown. `iterations`: the counted ones of a stage, or of the ladders that took turns. Of loads
    at a fixed rate, whose throughput is given, the response time counts."""
    of, path = (unit, ("tps",)) if not any(item.rate for item in iterations) else ("response times", RESPONSE)
    known = [item for item in iterations if (number_at(item.metrics, *path) or 0.0) > 0.0]
    ordered = sorted(known, key=lambda item: item.started_unix_s)
    values = [number_at(item.metrics, *path) or 0.0 for item in ordered]
    found = follow_each_other([f"{item.id.stage}/{item.id.rung}" for item in ordered], values)
    if found is None:
        return ""
    share = "< 0.2 %" if found.share < FEWEST else quantity(found.share, "fraction")
    return (
        f"{of} of iterations follow each other in time (von Neumann ratio {found.ratio:.2g}, {found.expected:.2g} of "
        f"independent ones, p {share}): intervals over repeats are too narrow, except those of pairs"
    )


RESPONSE = ("response", "avg_us")
FEWEST = 0.002
"""The smallest share of random orders that is printed."""


def variation(per_second: Sequence[float]) -> float | None:
    """The coefficient of variation of the seconds without the noise of counting: m transactions a second vary by 1/√m
    by themselves. None below 2 whole seconds or without throughput."""
    seconds = np.asarray(per_second, dtype=np.float64)
    if len(seconds) < 2 or float(seconds.mean()) <= 0.0:
        return None
    mean = float(seconds.mean())
    return math.sqrt(max(float(seconds.std(ddof=1) / mean) ** 2 - 1.0 / mean, 0.0))


def judge(seen: Observed, unit: str = "TPS") -> Iterator[ValidityFinding]:
    """Is the throughput shown to be steady, and how much does it vary from second to second? Warnings: the behaviour of
    the system over time is in its numbers, and a rerun would choose among them. Each phase is judged by itself: the
    plan has the load change between them."""
    why = unsteady_by_plan(seen.plan.workload, seen.stage)
    if why:
        yield checked(CHECK, True, f"not judged: {why}")
        return
    if not seen.tps_in_phases:
        yield from _of_window(seen, "", seen.tps_per_second, unit)
        return
    changing = changing_phases(seen.stage)
    for phase, per_second in seen.tps_in_phases.items():
        if phase not in changing:
            yield from _of_window(seen, phase, per_second, unit)
    if changing:
        text = f"not judged in {', '.join(changing)}: the plan has the load change"
        yield checked(CHECK, True, text)


def _of_window(seen: Observed, phase: str, per_second: Sequence[float], unit: str) -> Iterator[ValidityFinding]:
    """The findings on the seconds of the measure window, or of one phase of it."""
    found = of_window(per_second, seen.limits.tps_slope_fraction_max)
    check = check_of(phase)
    if len(per_second) < BLOCKS:
        yield checked(check, True, f"{ALONE}: {found.over}")
    else:
        yield checked(check, found.state == "steady", found.text(unit))
    cv = variation(per_second)
    if cv is not None:
        limit, seconds = seen.limits.tps_cv_max, len(per_second)
        varies, most = together("fraction", cv, limit)
        text = f"{unit} per second varies by {varies} (CV beyond counting noise, {seconds} s, limit {most})"
        yield checked(f"variation:{phase}" if phase else "variation", cv <= limit, text)


# Kneedle (Satopää, Albrecht, Irwin, Raghavan: Finding a "Kneedle" in a Haystack, ICDCS Workshops 2011) on the measured
# rungs: threads x and mean throughput y are scaled to 0 … 1; the knee is the rung where the curve is farthest above the
# straight line from its first to its last point, max(y - x). It counts only when the distance falls below max - S ·
# mean(Δx), S = 1, at a later rung, and is larger than S · mean(Δx): an almost straight curve has no knee, nor one that
# only dips on its way up. Points are not smoothed: each is a mean over repeats already.
#
# The certainty of the knee follows from that of the means: each mean is drawn 2000 times (with a fixed seed) from
# Student's t, or the normal distribution, that matches its confidence interval. There is no knee when fewer than 95 %
# of the draws have one, or fewer than 95 % have a higher throughput there than at the first rung; nor when it may lie
# at any of three or more inner rungs. The interval of its threads is that of the draws' knees, so its ends are rungs as
# well.
#
# Where the means have no knee, throughput is called almost a straight line when 95 % of the draws have none either, or
# are flat (a range below `FLAT` of their mean); else the repeats scatter too much to tell.

RUNGS_MIN = 3
SENSITIVITY = 1.0
DRAWS = 2000
FLAT = 0.1
NONE = -1
_SEED = 20110620


@record
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
        """`ladder.knee.threads`: an estimate as those of `statistics.estimate`."""
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
    if unknown := [count for count, tps in rungs if tps["method"] == NO_INFORMATION]:
        return NoKnee(f"the repeats scatter too much: those at {unknown[0]} threads have no interval")
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

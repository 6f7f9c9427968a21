"""Decide whether a throughput is steady: two one-sided tests (TOST) of its drift against a bound. Pure.

Data flow: the whole seconds of a measure window -> `of_window` -> the finding `steady-state` of the iteration; the
windows of all repeats of a rung -> `of_repeats` -> the remark of verdicts and reports on the rung; the numbers of all
iterations of a stage in the order of time -> `following`, the remark on iterations that follow each other, which
windows that are steady by themselves do not show.

The drift of a window is its least-squares slope times its length, over its mean: +10 % means that the fitted line rises
by a tenth of the mean from the start of the window to its end. "Steady" is stated only where the data show it: the 90 %
interval of the drift lies within ± the bound (`limits: {tps_slope: …}`), which is a test at 5 % of the hypothesis
"drifts by the bound or more". Too few seconds, or seconds that vary much, show nothing; such a window is *not shown to
be steady*, which is a warning. Before, a slope had to be significant to be reported, so that little data passed.

- `of_window`: at most `BLOCKS` means of neighbouring seconds, since neighbouring seconds follow each other; t with
  blocks - 2 degrees of freedom. Where the seconds are strongly correlated, short windows exceed the 5 % (see the ADR).
- `of_repeats`: the repeats' drifts are independent of each other, so t with n - 1 degrees of freedom holds whatever the
  correlation of the seconds is. It needs no long windows, but two repeats or more.

Source: Schuirmann, A comparison of the two one-sided tests procedure and the power approach, J. Pharmacokinetics and
Biopharmaceutics 15 (1987); batch means: Law, Simulation Modeling and Analysis (2015), 9.5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from proveout.core.data_classes import dataclass
from proveout.core.json_data import number_at
from proveout.core.numbers import quantity
from proveout.core.statistics import Floats, follow_each_other, t_quantile
from proveout.dsl.rules.repeat_rules import DRIFT_SECONDS, STEADY_SECONDS
from proveout.proto.events import IterationFinished, ValidityFinding

BLOCKS = STEADY_SECONDS
"""Means of neighbouring seconds that a window is cut into, and the fewest seconds that can be judged."""
ONE_SIDED = 0.95
DRIFT_MAX = 0.10
"""The bound where a recorded plan does not have one."""

CHECK = "steady-state"
"""The name of the finding; of one phase with its name, see `check_of`."""
REMARKS_MAX = 3
ALONE = "not judged by itself, but with the other repeats"
"""Begins the finding of an iteration whose window has fewer than `BLOCKS` whole seconds: it can show nothing."""

State: TypeAlias = Literal["steady", "drifting", "not shown"]


@dataclass(frozen=True, slots=True, kw_only=True)
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
            if is_on_steadiness(finding.check) and finding.load not in item.beside and _shows_nothing(finding):
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


def _shows_nothing(finding: ValidityFinding) -> bool:
    return (not finding.ok and not finding.voids) or (finding.ok and finding.evidence.startswith(ALONE))


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

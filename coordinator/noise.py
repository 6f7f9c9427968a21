"""The noise of one rung, measured in two equal arms: variance components, and what repeats can show by them. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from proveout.coordinator.history.runs import environment_digest
from proveout.coordinator.results.fingerprint import fingerprints, outline
from proveout.coordinator.results.results import RunResults
from proveout.coordinator.storage.journal import NOT_AS_WRITTEN, recorded_plan
from proveout.core import statistics
from proveout.core.data_classes import record
from proveout.core.distributions import chi2_quantile, f_quantile, t_quantile
from proveout.core.errors import ProveoutError
from proveout.core.json_data import digest, from_plain, number_at, to_plain
from proveout.core.statistics import CONFIDENCE, TAIL, confidence_together
from proveout.dsl.plan.iteration_order import ARMS, SUFFIX, NoiseArms
from proveout.dsl.plan.loads import workloads
from proveout.dsl.plan.plan import Plan, to_data
from proveout.dsl.plan.stages import Ladder
from proveout.proto.events import IterationFinished

# Model: ln y_ar = μ + α_a + B_r + E_ar + S̄_ar, with arm a = 1, 2 and repeat r = 1 … R. B (σ_B²) is what both
# iterations of a repeat share: slow changes of the machine. E (σ_E²) is what each iteration has of its own. S̄ is the
# mean of m seconds of variance σ_S². All are independent and normal on the scale of logarithms, on which a standard
# deviation is a coefficient of variation.
#
# Method of moments (analysis of variance of arms × repeats): with MS_R over repeats and MS_E over the interaction, both
# with R - 1 degrees of freedom, E[MS_E] = σ_E² + σ_S²/m and E[MS_R] = 2 σ_B² + E[MS_E]. Estimates below 0 are 0.
# Seconds that follow each other have a mean that varies more than σ_S²/m; the excess is in σ_E², so that a longer
# window is never promised too much.
#
# Intervals, 95 %: of E[MS_E] by χ²; of σ_B² by Williams and Tukey, which is on the wide side; of the sum σ_B² + E[MS_E]
# = (MS_R + MS_E)/2 by Satterthwaite's degrees of freedom. Of σ_E² the interval of E[MS_E] less σ_S²/m, which has many
# more degrees of freedom and is taken as known.
#
# Source: Searle, Casella & McCulloch, Variance Components (1992), ch. 3-4; Williams, A Confidence Interval for Variance
# Components, Biometrika 49 (1962); Satterthwaite, Biometrics Bulletin 2 (1946).

REPEATS_MIN = 3


@record
class Spread:
    """A standard deviation of logarithms (a coefficient of variation) with its 95 % interval."""

    value: float
    lower: float
    upper: float


@record
class ArmDifference:
    """ln(second arm / first arm): its mean, its interval, and whether that leaves out 0."""

    mean: float
    lower: float
    upper: float
    confidence: float

    @property
    def shown(self) -> bool:
        """Whether the arms differ more than chance explains."""
        return self.lower > 0.0 or self.upper < 0.0


@record
class Components:
    """The three components, and the two sums that decide: `iteration_total` (of one iteration within its repeat) and
    `repeat_total` (of one repeat). `window_s`: the seconds of an iteration; `repeats`: those that both arms have.

    `second` is None for a metric without numbers by the second.
    """

    repeats: int
    window_s: float
    repeat: Spread
    iteration: Spread
    second: float | None
    iteration_total: Spread
    repeat_total: Spread
    arms: ArmDifference

    def paired_deviation(self, window_s: float, *, upper: bool = False) -> float:
        """The standard deviation of ln(b/a) of two iterations of one repeat: of interleaved ladders, compared in
        pairs."""
        return math.sqrt(2.0) * self._iteration(window_s, upper)

    def deviation(self, window_s: float, *, upper: bool = False) -> float:
        """The standard deviation of one repeat, for runs that are compared without pairs."""
        between = self._between(upper)
        return math.sqrt(between**2 + self._iteration(window_s, upper) ** 2)

    def _between(self, upper: bool) -> float:
        if not upper:
            return self.repeat.value
        return math.sqrt(max(self.repeat_total.upper**2 - self.iteration_total.value**2, 0.0))

    def _iteration(self, window_s: float, upper: bool) -> float:
        whole = self.iteration_total.upper if upper else self.iteration_total.value
        if self.second is None or self.second == 0.0:
            return whole
        seconds = self.second**2
        fixed = max(whole**2 - seconds / self.window_s, 0.0)
        return math.sqrt(fixed + min(seconds / window_s, whole**2 * self.window_s / window_s))


def components(
    first: Sequence[float],
    second: Sequence[float],
    seconds: Sequence[Sequence[float]],
    window_s: float,
    *,
    confidence: float = CONFIDENCE,
) -> Components | None:
    """The components of one metric from the two arms' iterations, in the order of the repeats.

    `seconds`: the metric second by second, for each iteration that has it. `confidence`: of the arms' difference. None
    with fewer than 3 repeats, or with a value that has no logarithm.
    """
    count = len(first)
    if count < REPEATS_MIN or len(second) != count or min(*first, *second) <= 0.0:
        return None
    logs = np.log(np.asarray([first, second], dtype=np.float64))
    centred = logs - logs.mean(axis=1, keepdims=True) - logs.mean(axis=0, keepdims=True) + logs.mean()
    degrees = count - 1
    error = float((centred**2).sum()) / degrees
    between = 2.0 * float(logs.mean(axis=0).var(ddof=1))
    within = _within(seconds)
    iteration_total = _chi(error, degrees)
    taken = 0.0 if within is None else within**2 / window_s
    return Components(
        repeats=count,
        window_s=window_s,
        repeat=_williams(between, error, degrees),
        iteration=Spread(
            value=_root(error - taken),
            lower=_root(iteration_total.lower**2 - taken),
            upper=_root(iteration_total.upper**2 - taken),
        ),
        second=within,
        iteration_total=iteration_total,
        repeat_total=_satterthwaite(between, error, degrees),
        arms=_arms(logs[1] - logs[0], confidence),
    )


def _within(seconds: Sequence[Sequence[float]]) -> float | None:
    """The pooled coefficient of variation of a second within its iteration; None without seconds."""
    squares, degrees = 0.0, 0
    for one in seconds:
        data: npt.NDArray[np.float64] = np.asarray(one, dtype=np.float64)
        if len(data) >= 2 and data.mean() > 0.0:
            squares += float(((data / data.mean() - 1.0) ** 2).sum())
            degrees += len(data) - 1
    return math.sqrt(squares / degrees) if degrees else None


def _arms(differences: npt.NDArray[np.float64], confidence: float) -> ArmDifference:
    """Student's interval of the paired differences."""
    count, mean = len(differences), float(differences.mean())
    half = t_quantile(count - 1, 0.5 + confidence / 2.0) * float(differences.std(ddof=1)) / math.sqrt(count)
    return ArmDifference(mean=mean, lower=mean - half, upper=mean + half, confidence=confidence)


def _root(variance: float) -> float:
    return math.sqrt(max(variance, 0.0))


def _quantiles(degrees: float) -> tuple[float, float]:
    """The 97.5 % and the 2.5 % quantile of χ²."""
    return chi2_quantile(degrees, 1.0 - TAIL), chi2_quantile(degrees, TAIL)


def _chi(square: float, degrees: float) -> Spread:
    """The interval of a variance from a mean square."""
    high, low = _quantiles(degrees)
    return Spread(
        value=math.sqrt(square),
        lower=math.sqrt(degrees * square / high),
        upper=math.sqrt(degrees * square / low) if low > 0.0 else math.inf,
    )


def _satterthwaite(between: float, error: float, degrees: int) -> Spread:
    """(MS_R + MS_E)/2, one repeat of one arm."""
    total = between**2 + error**2
    return _chi((between + error) / 2.0, (between + error) ** 2 * degrees / total if total > 0.0 else degrees)


def _williams(between: float, error: float, degrees: int) -> Spread:
    """σ_B² = (MS_R - MS_E)/2."""
    high, low = _quantiles(degrees)
    f_high, f_low = f_quantile(degrees, TAIL), f_quantile(degrees, 1.0 - TAIL)
    return Spread(
        value=_root((between - error) / 2.0),
        lower=_root(degrees * (between - f_high * error) / (2.0 * high)),
        upper=_root(degrees * (between - f_low * error) / (2.0 * low)),
    )


FILE = "noise.json"
FORMAT = 1
METRICS = ("tps", "response.avg_us", "response.p50_us", "response.p95_us", "response.p99_us")
OVERHEAD_S = 1.0
"""Of an iteration, beside its windows; as in `explain`."""
CHANGES = (0.01, 0.02, 0.05, 0.10)
WINDOWS = (1.0, 2.0, 5.0, 10.0)
"""The lengths of windows that are tried, in multiples of the measured one."""
_FREE = (
    "id", "threads", "windows", "repeat", "repeat_min", "order", "seed", "interleaved_with", "stop_when", "retries",
    "limits", "cell", "apart", "before", "after",
)  # fmt: skip
"""Keys of a ladder that may differ between the plan and the record."""


class TooFewPairs(ProveoutError):
    """The arms have fewer than 3 valid iterations in common."""

    exit_code = 3


@record
class NoiseRecord:
    """The noise of a rung. `ladder` and `environment` are digests; `about` describes the hosts for people.

    `ramps_s`: the seconds of an iteration that do not count, for the time that repeats take.
    """

    run: str
    measured_unix_s: float
    plan: str
    stage: str
    threads: int
    measure_s: float
    ramps_s: float
    ladder: str
    environment: str
    about: str
    metrics: dict[str, Components]
    format: int = FORMAT


@record
class Remedy:
    """`repeats` of `window_s` seconds show a change, in `seconds` for one ladder of this rung."""

    repeats: int
    window_s: float
    seconds: float


# ---- what can be shown -------------------------------------------------------------------------------------------


def showing(
    found: Components,
    repeats: int,
    window_s: float,
    *,
    paired: bool = False,
    upper: bool = False,
    confidence: float = CONFIDENCE,
) -> float | None:
    """The smallest relative increase that so many repeats show in 80 of 100 runs; None with fewer than 2.

    `paired`: interleaved ladders; else two runs. `upper`: by the upper end of the noise's own interval. `confidence`:
    the level of the intervals, which is higher with `repeat: auto`.
    """
    deviation = (found.paired_deviation if paired else found.deviation)(window_s, upper=upper)
    distance = statistics.detectable(deviation, repeats, arms=1 if paired else 2, confidence=confidence)
    return None if distance is None else math.expm1(min(distance, 50.0))


def repeats_for(found: Components, change: float, window_s: float, *, paired: bool = False) -> int | None:
    """The repeats that show this relative change in 80 of 100 runs; None above `statistics.REPEATS_MAX`."""
    deviation = (found.paired_deviation if paired else found.deviation)(window_s)
    return statistics.repeats_needed(statistics.log_change(change), deviation, arms=1 if paired else 2)


def remedy(record: NoiseRecord, found: Components, change: float, *, paired: bool = False) -> Remedy | None:
    """The repeats and the window that show a change in the least time: more repeats, or longer ones."""
    tried = [
        Remedy(repeats=count, window_s=window_s, seconds=count * (window_s + record.ramps_s + OVERHEAD_S))
        for window_s in (factor * record.measure_s for factor in WINDOWS)
        if (count := repeats_for(found, change, window_s, paired=paired)) is not None
    ]
    return min(tried, key=lambda one: (one.seconds, one.window_s), default=None)


# ---- measure -----------------------------------------------------------------------------------------------------


def measure(results: RunResults, arms: NoiseArms) -> NoiseRecord:
    """The record of a noise run. TooFewPairs, JournalFault."""
    if results.run is None:
        raise TooFewPairs("the run never began", way_out="Start it again.")
    stages = (results.stages[arm].rungs if arm in results.stages else () for arm in ARMS)
    first, second = ({item.id.repeat: item for rung in rungs for item in rung.iterations} for rungs in stages)
    both = sorted(first.keys() & second.keys())
    left, right = [first[repeat] for repeat in both], [second[repeat] for repeat in both]
    measured = {name: one for name in METRICS if (one := _components(name, left, right)) is not None}
    if not measured:
        raise TooFewPairs(
            f"the run has ended, but its noise cannot be estimated (exit code 3): {len(both)} of {arms.repeats} "
            "repeats have a valid iteration in both arms, and at least 3 are needed",
            where=results.run.run_id,
            way_out="The report of the run has the reasons; run it again, or with more --repeats.",
        )
    plan = recorded_plan(results.run.plan)
    ladder = _ladder(plan, ARMS[0])
    return NoiseRecord(
        run=results.run.run_id,
        measured_unix_s=results.started_unix_s,
        plan=plan.name.removesuffix(SUFFIX),
        stage=arms.stage,
        threads=arms.threads,
        measure_s=ladder.windows.measure_s,
        ramps_s=ladder.windows.total_s - ladder.windows.measure_s,
        ladder=ladder_digest(plan, ARMS[0]),  # that of the plan's own ladder: the arms differ in free keys only
        environment=environment_digest(results),
        about="; ".join(dict.fromkeys(outline(one) for one in fingerprints(results) if not one.equipment)),
        metrics=measured,
    )


def _components(name: str, left: Sequence[IterationFinished], right: Sequence[IterationFinished]) -> Components | None:
    values = [[number_at(item.metrics, *name.split(".")) for item in arm] for arm in (left, right)]
    have = [index for index in range(len(left)) if all(arm[index] is not None for arm in values)]
    first, second = ([float(arm[index] or 0.0) for index in have] for arm in values)
    seconds = [item.series[name] for arm in (left, right) for item in arm if item.series.get(name)]
    if not have:
        return None
    window_s = sum(item.measure_s for item in (*left, *right)) / (2.0 * len(left))
    return components(first, second, seconds, window_s, confidence=confidence_together(len(METRICS)))


def _ladder(plan: Plan, stage: str) -> Ladder:
    return next(one for one in plan.stages if isinstance(one, Ladder) and one.id == stage)


def ladder_digest(plan: Plan, stage: str) -> str:
    """`sha256:<hex>` of what the noise of a ladder depends on in a plan: hosts, systems, the workload, and the ladder
    without its repeats, order, threads and windows."""
    data, ladder = to_data(plan), _ladder(plan, stage)
    one = {key: value for key, value in to_data(ladder).items() if key not in _FREE}
    workload = [item for item in data["workloads"] if item["name"] in workloads(ladder)]
    return digest([data["hosts"], data["systems"], workload, one])


# ---- store and find ----------------------------------------------------------------------------------------------


def to_json(record: NoiseRecord) -> str:
    """The record as JSON text, ends with a newline."""
    return json.dumps(to_plain(record), ensure_ascii=False, indent=1) + "\n"


def records(runs: Path) -> Iterator[NoiseRecord]:
    """All noise records of a folder of runs, newest first; files that this version cannot read are left out."""
    found = []
    for path in sorted(runs.glob(f"*/{FILE}")) if runs.is_dir() else ():
        try:
            found.append(from_plain(NoiseRecord, json.loads(path.read_text(encoding="utf-8"))))
        except (OSError, *NOT_AS_WRITTEN):
            continue
    yield from sorted(found, key=lambda one: one.measured_unix_s, reverse=True)


def find(found: Sequence[NoiseRecord], plan: Plan, ladder: Ladder) -> dict[int, NoiseRecord]:
    """For each rung of a ladder the newest record: of its threads, else of the nearest number of threads."""
    digest = ladder_digest(plan, ladder.id)
    fitting = [one for one in found if one.ladder == digest]
    return {
        threads: min(fitting, key=lambda one: abs(math.log(one.threads / threads)))  # the newest of equals
        for threads in ladder.threads
        if fitting
    }

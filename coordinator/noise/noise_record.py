"""The noise of one rung, as measured by `proveout noise`: components by metric, and what repeats can show by them.

Data flow: the results of a noise run -> `measure` -> `NoiseRecord` -> `noise.json` in the run's directory -> `find` by
the plan (its digest without repeats, windows and threads) -> `explain`, and the report of `proveout noise` (`showing`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from proveout.coordinator.history.run_summary import environment_digest
from proveout.coordinator.noise.variance_components import Components, components
from proveout.coordinator.results.fingerprint import fingerprints, outline
from proveout.coordinator.results.results import RunResults
from proveout.coordinator.storage.event_codec import recorded_plan
from proveout.core import power
from proveout.core.data_classes import dataclass
from proveout.core.errors import ProveoutError
from proveout.core.json_data import digest, from_plain, number_at, to_plain
from proveout.core.statistics import confidence_after
from proveout.dsl.plan.loads import workloads
from proveout.dsl.plan.noise_arms import ARMS, SUFFIX, NoiseArms
from proveout.dsl.plan.plan import Plan, to_data
from proveout.dsl.plan.stages import Ladder
from proveout.proto.events import IterationFinished

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


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """`repeats` of `window_s` seconds show a change, in `seconds` for one ladder of this rung."""

    repeats: int
    window_s: float
    seconds: float


# ---- what can be shown -------------------------------------------------------------------------------------------


def showing(
    found: Components, repeats: int, window_s: float, *, paired: bool = False, upper: bool = False
) -> float | None:
    """The smallest relative increase that so many repeats show in 80 of 100 runs; None with fewer than 2.

    `paired`: interleaved ladders; else two runs. `upper`: by the upper end of the noise's own interval.
    """
    deviation = (found.paired_deviation if paired else found.deviation)(window_s, upper=upper)
    distance = power.detectable(deviation, repeats, arms=1 if paired else 2)
    return None if distance is None else math.expm1(min(distance, 50.0))


def repeats_for(found: Components, change: float, window_s: float, *, paired: bool = False) -> int | None:
    """The repeats that show this relative change in 80 of 100 runs; None above `power.REPEATS_MAX`."""
    deviation = (found.paired_deviation if paired else found.deviation)(window_s)
    return power.repeats_needed(power.log_change(change), deviation, arms=1 if paired else 2)


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
    first, second = (_valid(results, arm) for arm in ARMS)
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
        ramps_s=ladder.windows.ramp_up_s + ladder.windows.ramp_down_s,
        ladder=ladder_digest(plan, ARMS[0]),  # that of the plan's own ladder: the arms differ in free keys only
        environment=environment_digest(results),
        about="; ".join(dict.fromkeys(outline(one) for one in fingerprints(results) if not one.equipment)),
        metrics=measured,
    )


def _valid(results: RunResults, stage: str) -> dict[int, IterationFinished]:
    found = results.stages.get(stage)
    return {} if found is None else {item.id.repeat: item for rung in found.rungs for item in rung.iterations}


def _components(name: str, left: Sequence[IterationFinished], right: Sequence[IterationFinished]) -> Components | None:
    values = [[number_at(item.metrics, *name.split(".")) for item in arm] for arm in (left, right)]
    have = [index for index in range(len(left)) if all(arm[index] is not None for arm in values)]
    first, second = ([float(arm[index] or 0.0) for index in have] for arm in values)
    seconds = [item.series[name] for arm in (left, right) for item in arm if item.series.get(name)]
    if not have:
        return None
    window_s = sum(item.measure_s for item in (*left, *right)) / (2.0 * len(left))
    return components(first, second, seconds, window_s, confidence=confidence_after(len(METRICS)))


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
        except (OSError, ValueError, TypeError, KeyError, AttributeError, StopIteration, RecursionError):
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

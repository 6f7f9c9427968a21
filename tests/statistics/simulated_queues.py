"""Queues whose sustainable rate is known, and the probes of a search that a run would have recorded of them.

Data flow: arrivals of a schedule -> the Lindley recursion -> due, start and end of each transaction -> the metrics,
series and findings of `IterationFinished` -> the program's own judgement of probes and search. Times in s, rates in 1/s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from records import iteration, search_stage

from proveout.coordinator.schedule import rate_search
from proveout.coordinator.verdict.verdicts import judge_probe
from proveout.core.statistics import block_slope
from proveout.dsl.plan.stages import Search, SearchBounds, Windows
from proveout.proto.events import IterationFinished

Floats = npt.NDArray[np.float64]


def search(accept: str, *, window_s: float = 10.0, bounds: SearchBounds | None = None) -> Search:
    """A search with the default settings."""
    windows = {
        "probe": Windows(ramp_up_s=1.0, measure_s=window_s, ramp_down_s=0.0),
        "confirm": Windows(ramp_up_s=2.0, measure_s=window_s, ramp_down_s=0.0),
    }
    rates = {"rate_from": 100.0, "rate_to": 6400.0, "distribution": "poisson"}
    return search_stage(accept, threads=1, bounds=bounds or SearchBounds(), **rates, **windows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """One server with exponential service at `capacity`, which stands still for `pause_s` every `period_s`. The
    capacity differs from probe to probe by `fluctuation` (deviation of its logarithm)."""

    capacity: float = 1000.0
    fluctuation: float = 0.0
    pause_s: float = 0.0
    period_s: float = 5.0

    @property
    def effective(self) -> float:
        """The rate at which the queue begins to grow."""
        return self.capacity * (1.0 - self.pause_s / self.period_s)

    def run(self, random: np.random.Generator, rate: float, length_s: float) -> tuple[Floats, Floats, Floats]:
        """(due, start, end) of Poisson arrivals in [0, length); the phase of the pauses is drawn.

        A pause stops the server's own clock: the recursion runs on that clock, and its times are set back.
        """
        due = np.cumsum(random.exponential(1.0 / rate, int(rate * length_s + 6.0 * math.sqrt(rate * length_s) + 10)))
        due = due[due < length_s]
        phase = random.uniform(0.0, self.period_s)
        service = random.exponential(1.0 / self.capacity, len(due))
        arrived = self._working(due + phase)
        finished = np.cumsum(service)
        begun = finished - service + np.maximum.accumulate(arrived - (finished - service))
        return due, self._clock(begun) - phase, self._clock(begun + service) - phase

    def _working(self, at: Floats) -> Floats:
        """The seconds in which the server has worked by then; a period begins with its pause."""
        whole, rest = np.divmod(at, self.period_s)
        return np.asarray(whole * (self.period_s - self.pause_s) + np.maximum(rest - self.pause_s, 0.0))

    def _clock(self, worked: Floats) -> Floats:
        """The time by which the server has worked that long."""
        whole, rest = np.divmod(worked, self.period_s - self.pause_s)
        return np.asarray(whole * self.period_s + rest + self.pause_s)

    def probe(self, random: np.random.Generator, stage: Search, probe: rate_search.Probe) -> IterationFinished:
        """An iteration at the rate of a probe, as its agents and `summarise` would report it."""
        windows = stage.confirm if probe.phase in rate_search.FULL_LENGTH else stage.probe
        factor = math.exp(self.fluctuation * random.standard_normal()) if self.fluctuation else 1.0
        due, start, end = replace(self, capacity=self.capacity * factor).run(
            random, probe.rate, windows.ramp_up_s + windows.measure_s
        )
        return finished(probe, windows, due, start, end)


def finished(
    probe: rate_search.Probe,
    windows: Windows,
    due: Floats,
    start: Floats,
    end: Floats,
    lag: dict[str, float] | None = None,
) -> IterationFinished:
    """The numbers of an iteration by the definitions of `dsl.metrics`."""
    first, last = windows.ramp_up_s, windows.ramp_up_s + windows.measure_s
    mine = (due >= first) & (due < last)
    done = mine & (end < last)
    late, response = (start - due)[done] * 1e6, (end - due)[done] * 1e6
    seconds = np.floor(end - first).astype(int)
    inside = (end >= first) & (end < last)
    counts = np.bincount(seconds[inside], minlength=int(windows.measure_s))
    lateness = np.bincount(seconds[inside], (start - due)[inside] * 1e6, minlength=int(windows.measure_s))
    missed = 1.0 - done.sum() / max(mine.sum(), 1)
    metrics = {
        "tps": float(inside.sum()) / windows.measure_s,
        "missed": {"fraction": float(missed)},
        "errors": {"fraction": 0.0},
        "schedule": {"p99_us": _p99(late)},
        "response": {"p99_us": _p99(response)},
    }
    tree = metrics if lag is None else metrics | {"lag": lag}
    series = {"schedule.avg_us": tuple(map(float, lateness / np.maximum(counts, 1)))}
    return iteration("cap", 1, probe.number, tree, rate=probe.rate, measure_s=windows.measure_s, series=series)


def _p99(values: Floats) -> float:
    return float(np.quantile(values, 0.99)) if len(values) else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """A sink that applies `capacity` changes a second: the lag is a random walk that grows above that rate.

    `step_s` is the deviation of the walk after a second, `readings` of them are taken in a window.
    """

    capacity: float = 1000.0
    step_s: float = 0.01
    readings: int = 100

    def probe(self, random: np.random.Generator, stage: Search, probe: rate_search.Probe) -> IterationFinished:
        """An iteration whose load is never late, with the lag in its window."""
        windows = stage.confirm if probe.phase in rate_search.FULL_LENGTH else stage.probe
        at = np.linspace(0.0, windows.measure_s, self.readings)
        steps = self.step_s * math.sqrt(float(at[1])) * random.standard_normal(self.readings)
        growth = max(1.0 - self.capacity / probe.rate, 0.0)
        found = block_slope(at.tolist(), (5.0 + growth * at + np.cumsum(steps)).tolist())
        assert found is not None
        assert found.lower is not None
        assert found.upper is not None
        lag = {"slope": found.slope, "slope_lower": found.lower, "slope_upper": found.upper}
        due = np.arange(0.0, windows.ramp_up_s + windows.measure_s, 0.01)
        return finished(probe, windows, due, due, due + 1e-4, lag)


def answer(system: Queue | Sink, stage: Search, seed: int) -> rate_search.Answer:
    """The answer of one search; its lowest rate is drawn, so that the rates tried differ from search to search."""
    random = np.random.default_rng(seed)
    state = rate_search.begin(stage, rate_search.Rates(low=100.0 * 2.0 ** random.uniform(), high=6400.0))
    while not isinstance(probe := rate_search.next_probe(state), rate_search.Answer):
        state = rate_search.record(state, judge_probe(stage, system.probe(random, stage, probe)))
    return probe

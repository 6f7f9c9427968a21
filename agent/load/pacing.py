"""Due times of transactions: closed, constant and Poisson arrival at a level that may change, as pure functions of
(terminal, total, level, seed).

Flow: `tasks.LoadShare` + `plan.Windows` -> `Pacing` -> `fire_times(terminal)`, an endless iterator of nanoseconds
after T0, drawn in batches with numpy so that the hot loop only takes the next one. No clock is read here.

**Closed.** A terminal fires again when its transaction has ended (and its think time is over, see `think_time`), so
only its start is planned: terminal k of N starts at `k/N · R`, where R is half of the ramp-up. Where the threads change
over time, terminal k begins transactions only while k is below their level (`Activity`).

**Open.** All agents together follow one cumulative arrival function Λ(t), the number of arrivals due by t seconds after
T0: the integral of the rate (`intensity`). The rate grows linearly over the first half of the ramp-up, R, and stays;
from the start of the measure window on it follows its levels, and after them it stays at the last one.

*Constant*: arrival n is due at Λ⁻¹(n), n = 0, 1, 2 …; terminal k of N fires the arrivals k, k + N, k + 2N … These are
integers, so the shares are exact, add up to the whole whatever the agents, and are staggered by 1/λ between terminals;
rate/N per terminal in lockstep would make bursts of N instead. *Poisson*: a Poisson process of rate λ is N independent
ones of rate λ/N; a unit-rate process with points u_i (cumulated exponentials) becomes the wanted one by the change of
time t_i = Λ⁻¹(N u_i), which holds for a changing rate too (Çinlar's inversion). Times are float64 of n, never sums of
rounded steps: at 10⁶/s after a day the error is below a tenth of a nanosecond.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate, chain
from typing import Literal

import numpy as np

from proveout.agent.load.intensity import NEVER_S, Floats, Int64s, Intensity
from proveout.core.data_classes import dataclass
from proveout.dsl.plan.phases import Level, edges_s
from proveout.dsl.plan.stages import Think, Windows
from proveout.proto.wire.tasks import LoadShare

BATCH_MIN, BATCH_MAX = 16, 1024
ARRIVALS_PURPOSE = 2_000  # separates these streams from those for keys
NEVER_NS = round(NEVER_S * 1e9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The edges of an iteration's windows on the monotonic clock of this host, ns; `phases` with name, start and end.

    A window includes its first instant.
    """

    t0_ns: int
    measure_start_ns: int
    measure_end_ns: int
    end_ns: int
    phases: tuple[tuple[str, int, int], ...] = ()

    @classmethod
    def of(cls, windows: Windows, t0_ns: int) -> Timeline:
        """The windows with start T0."""
        lengths = [round(seconds * 1e9) for seconds in (windows.ramp_up_s, windows.measure_s, windows.ramp_down_s)]
        first, second, third = accumulate(lengths)
        start_ns, end_ns = t0_ns + first, t0_ns + second
        phases = tuple(
            (name, start_ns + round(begin * 1e9), min(start_ns + round(end * 1e9), end_ns))
            for name, begin, end in edges_s(windows.phases)
        )
        return cls(t0_ns=t0_ns, measure_start_ns=start_ns, measure_end_ns=end_ns, end_ns=t0_ns + third, phases=phases)

    def measures(self, at_ns: int) -> bool:
        """Whether an instant lies in the measure window."""
        return self.measure_start_ns <= at_ns < self.measure_end_ns


@dataclass(frozen=True, slots=True)
class Activity:
    """The times in which a terminal begins transactions, ns after T0."""

    begins: list[int]
    ends: list[int]

    def from_ns(self, at_ns: int) -> int:
        """The first instant in them that is not before `at_ns`; NEVER_NS when there is none."""
        last = bisect_right(self.begins, at_ns) - 1
        if last >= 0 and at_ns < self.ends[last]:
            return at_ns
        return self.begins[last + 1] if last + 1 < len(self.begins) else NEVER_NS


@dataclass(frozen=True, kw_only=True)
class Pacing:
    """Arrival of a load: `rate` in 1/s over all `total` terminals (None = closed), growing over `ramp_s` seconds.

    From `changes_s` after T0 on, `levels` follow each other: of the rate, or of the threads under closed arrival, for
    which `think` is.
    """

    total: int
    ramp_s: float
    rate: float | None = None
    distribution: Literal["constant", "poisson"] = "constant"
    seed: int = 0
    levels: tuple[Level, ...] = ()
    changes_s: float = 0.0
    think: Think | None = None

    @classmethod
    def of(cls, share: LoadShare, windows: Windows, seed: int) -> Pacing:
        """The pacing of a load task."""
        return cls(
            total=share.total,
            ramp_s=windows.ramp_up_s / 2,
            rate=share.rate,
            distribution=share.distribution,
            seed=seed,
            levels=share.levels,
            changes_s=windows.ramp_up_s,
            think=None if share.think_s is None else Think(mean_s=share.think_s, distribution=share.think),
        )

    @property
    def is_open(self) -> bool:
        """Whether arrivals follow a schedule."""
        return self.rate is not None

    @cached_property
    def intensity(self) -> Intensity:
        """The rate over time, 1/s; under closed arrival the threads."""
        changes_s = max(self.changes_s, self.ramp_s)
        if self.rate is not None:
            return Intensity(self.rate, ramp_s=self.ramp_s, changes_s=changes_s, levels=self.levels)
        return Intensity(self.levels[0].first if self.levels else self.total, changes_s=changes_s, levels=self.levels)

    def start_ns(self, terminal: int) -> int:
        """When a closed terminal starts, ns after T0."""
        return round(terminal * self.ramp_s * 1e9 / self.total)

    def activity(self, terminal: int) -> Activity | None:
        """When a closed terminal is active; None for always."""
        if self.is_open or not self.levels:
            return None
        begins, ends = self.intensity.above(terminal)
        return Activity(begins.tolist(), ends.tolist())

    def due_s(self, arrivals: Floats) -> Floats:
        """Λ⁻¹: when the arrivals of these numbers are due, seconds after T0; open arrival only."""
        return self.intensity.inverse(arrivals)

    def fire_times(self, terminal: int) -> Iterator[int]:
        """The due times of one terminal, ns after T0, ascending, without end; open arrival only."""
        return chain.from_iterable(self._batches(terminal))

    def due_between(self, terminal: int, first_ns: int, end_ns: int) -> Iterator[Int64s]:
        """The due times of a terminal in [`first_ns`, `end_ns`), ns after T0, in batches: ten million a second."""
        for batch in self._due_ns(terminal):
            due = batch[np.searchsorted(batch, first_ns) : np.searchsorted(batch, end_ns)]
            if due.size:
                yield due
            if batch[-1] >= end_ns:
                break

    def _batches(self, terminal: int) -> Iterator[list[int]]:
        return (batch.tolist() for batch in self._due_ns(terminal))

    def _due_ns(self, terminal: int) -> Iterator[Int64s]:
        numbers = self._constant(terminal) if self.distribution == "constant" else self._poisson(terminal)
        for batch in numbers:
            yield np.rint(self.due_s(batch) * 1e9).astype(np.int64)

    def _constant(self, terminal: int) -> Iterator[Floats]:
        first = 0
        for size in _sizes():
            yield terminal + self.total * np.arange(first, first + size, dtype=np.float64)
            first += size

    def _poisson(self, terminal: int) -> Iterator[Floats]:
        counter = np.array((0, 0, 0, terminal), dtype=np.uint64)
        key = np.array((self.seed & (2**64 - 1), ARRIVALS_PURPOSE), dtype=np.uint64)
        random = np.random.Generator(np.random.Philox(key=key, counter=counter))
        last = 0.0
        for size in _sizes():
            points = last + np.cumsum(random.standard_exponential(size))
            last = float(points[-1])
            yield self.total * points


def _sizes() -> Iterator[int]:
    """Batch sizes, small ones first: a terminal of a short load draws few times that it never uses."""
    size = BATCH_MIN
    while True:
        yield size
        size = min(2 * size, BATCH_MAX)

"""Due times of transactions: closed, constant and Poisson arrival, and ramps, as pure functions of (terminal, total,
rate, seed).

Flow: `tasks.LoadShare` + `plan.Windows` -> `Pacing` -> `fire_times(terminal)`, an endless iterator of nanoseconds
after T0, drawn in batches with numpy so that the hot loop only takes the next one. No clock is read here.

**Closed.** A terminal fires again when its transaction has ended (and its think time is over, see `think_time`), so
only its start is planned: terminal k of N starts at `k/N · R`, where R is half of the ramp-up.

**Open.** All agents together follow one cumulative arrival function Λ(t), the number of arrivals due by t seconds after
T0. The rate grows linearly over the first half of the ramp-up, R, and stays at λ from there on:

    Λ(t) = λ t² / (2 R)        for t <= R          Λ⁻¹(n) = √(2 R n / λ)     for n <= λ R / 2
    Λ(t) = λ (t - R / 2)       for t >= R          Λ⁻¹(n) = n / λ + R / 2    for n >= λ R / 2

A rate that goes from λ to μ over the measure window, which begins at W = ramp-up and is M long, adds the rate's
integral there and stays at μ after it. With n₁ = Λ(W), x = t - W, n' = n - n₁ and a = (μ - λ) / M:

    Λ(t) = n₁ + λ x + a x² / 2               for W <= t <= W + M     x = 2 n' / (λ + √(λ² + 2 a n'))
    Λ(t) = n₁ + M (λ + μ) / 2 + μ (x - M)    for t >= W + M

The root is taken in the form that does not cancel when a is small, falling rates included.

*Constant*: arrival n is due at Λ⁻¹(n), n = 0, 1, 2 …; terminal k of N fires the arrivals k, k + N, k + 2N … These are
integers, so the shares are exact, add up to the whole whatever the agents, and are staggered by 1/λ between terminals;
rate/N per terminal in lockstep would make bursts of N instead. *Poisson*: a Poisson process of rate λ is N independent
ones of rate λ/N; a unit-rate process with points u_i (cumulated exponentials) becomes the wanted one by the change of
time t_i = Λ⁻¹(N u_i), which holds for a growing rate too (Çinlar's inversion). Times are float64 of n, never sums of
rounded steps: at 10⁶/s after a day the error is below a tenth of a nanosecond.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Literal

import numpy as np
import numpy.typing as npt

from proveout.dsl.plan.stages import Think, Windows
from proveout.proto.wire.tasks import LoadShare

BATCH_MIN, BATCH_MAX = 16, 1024
ARRIVALS_PURPOSE = 2_000  # separates these streams from those for keys

Floats = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The edges of an iteration's windows on the monotonic clock of this host, ns.

    A window includes its first instant.
    """

    t0_ns: int
    measure_start_ns: int
    measure_end_ns: int
    end_ns: int

    @classmethod
    def of(cls, windows: Windows, t0_ns: int) -> Timeline:
        """The windows with start T0."""
        lengths = [round(seconds * 1e9) for seconds in (windows.ramp_up_s, windows.measure_s, windows.ramp_down_s)]
        first, second, third = accumulate(lengths)
        return cls(t0_ns=t0_ns, measure_start_ns=t0_ns + first, measure_end_ns=t0_ns + second, end_ns=t0_ns + third)

    def measures(self, at_ns: int) -> bool:
        """Whether an instant lies in the measure window."""
        return self.measure_start_ns <= at_ns < self.measure_end_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Pacing:
    """Arrival of a load: `rate` in 1/s over all `total` terminals (None = closed), growing over `ramp_s` seconds.

    With `rate_to` the rate goes there in a straight line over the window (first, length) `changing_s`, seconds after
    T0. `think` is for closed arrival.
    """

    total: int
    ramp_s: float
    rate: float | None = None
    distribution: Literal["constant", "poisson"] = "constant"
    seed: int = 0
    rate_to: float | None = None
    changing_s: tuple[float, float] = (0.0, 0.0)
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
            rate_to=share.rate_to,
            changing_s=(windows.ramp_up_s, windows.measure_s),
            think=None if share.think_s is None else Think(mean_s=share.think_s, distribution=share.think),
        )

    @property
    def is_open(self) -> bool:
        """Whether arrivals follow a schedule."""
        return self.rate is not None

    def start_ns(self, terminal: int) -> int:
        """When a closed terminal starts, ns after T0."""
        return round(terminal * self.ramp_s * 1e9 / self.total)

    def due_s(self, arrivals: Floats) -> Floats:
        """Λ⁻¹: when the arrivals of these numbers are due, seconds after T0; open arrival only."""
        assert self.rate is not None  # noqa: S101 - the caller has checked `is_open`
        ramp = np.sqrt(2.0 * self.ramp_s * arrivals / self.rate)
        steady = arrivals / self.rate + self.ramp_s / 2
        due = np.where(arrivals < self.rate * self.ramp_s / 2, ramp, steady)
        return due if self.rate_to is None else self._changed(due, arrivals, self.rate, self.rate_to)

    def _changed(self, due: Floats, arrivals: Floats, low: float, high: float) -> Floats:
        """`due` with the arrivals from the changing window on shifted for the changing rate."""
        first_s, length_s = self.changing_s
        beyond = arrivals - low * (first_s - self.ramp_s / 2)
        within = np.clip(beyond, 0.0, length_s * (low + high) / 2)
        slope = (high - low) / length_s
        # Mathematically never below the square of the lower rate; rounding may go below.
        root = np.sqrt(np.maximum(low * low + 2 * slope * within, min(low, high) ** 2))
        changing = first_s + 2 * within / (low + root) + (beyond - within) / high
        return np.where(beyond > 0.0, changing, due)

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

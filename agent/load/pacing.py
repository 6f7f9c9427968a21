"""Due times of transactions under closed and open arrival at a level that may change. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, chain, pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from proveout.core.data_classes import dataclass, record
from proveout.dsl.plan.phases import Level, edges_s
from proveout.dsl.plan.stages import MEASURE, Think, Window, Windows, lengths_s
from proveout.proto.wire.tasks import LoadShare

# A segment of length d begins at t₀ with the level b and ends with e; over it, with x = t - t₀ and a = (e - b) / d,
#
#     level(x) = b + a x + A sin(ω x)
#     Λ(x)     = b x + a x² / 2 + (2 A / ω) sin²(ω x / 2)
#
# and Λ(t) adds up over the segments before. The last one has no end. Only one of a and A differs from 0. Without a sine
# the inverse is x = 2 n / (b + √(b² + 2 a n)), in the form that does not cancel when a is small, falling levels
# included. With one, whole periods are counted off first (each has b · period arrivals), and within a period Newton's
# method, safeguarded by bisection, ends when no root moves by more than `EXACT_S`. A segment of level 0 has no
# arrivals; an arrival that never becomes due is due at `NEVER_S`.

Floats = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]

NEVER_S = 4e9
"""An instant after every load, which still fits into nanoseconds after the boot of a host."""
EXACT_S = 1e-10
SHORTEST_S = 1e-12
STEPS_MAX = 100


class Intensity:
    """The level of a load from T0 on: over `ramp_s` seconds it grows from 0 to that of `start`, stays until
    `changes_s`, follows `levels`, and stays at the last one."""

    def __init__(self, start: float, *, ramp_s: float = 0.0, changes_s: float = 0.0, levels: Sequence[Level] = ()):
        rows = [(ramp_s, 0.0, start, 0.0, 1.0), (changes_s - ramp_s, start, start, 0.0, 1.0)]
        rows += [row for level in levels for row in _rows(level)]
        last = levels[-1].last if levels else start
        table = np.array([row for row in rows if row[0] > SHORTEST_S] + [(math.inf, last, last, 0.0, 1.0)])
        self._length, self._low, self._high, self._wave, self._period = table.T
        lengths = table[:-1, 0].astype(np.longdouble)
        self._begins = np.concatenate(([0.0], np.cumsum(lengths))).astype(np.float64)
        areas = self._area(np.arange(len(table) - 1), table[:-1, 0]).astype(np.longdouble)
        self._before = np.concatenate(([0.0], np.cumsum(areas))).astype(np.float64)

    def inverse(self, numbers: Floats) -> Floats:
        """Λ⁻¹(n): when the arrivals of these numbers (0, 1, 2 …) are due, seconds after T0."""
        row = np.searchsorted(self._before, numbers, side="right") - 1
        left = numbers - self._before[row]
        low, high = self._low[row], self._high[row]
        slope = (high - low) / self._length[row]
        # Mathematically never below the square of the lower level; rounding may go below.
        root = low + np.sqrt(np.maximum(low * low + 2.0 * slope * left, np.minimum(low, high) ** 2))
        within = np.divide(2.0 * left, root, out=np.where(left > 0.0, NEVER_S, 0.0), where=root > 0.0)
        waving = self._wave[row] > 0.0
        if waving.any():
            at = row[waving]
            within[waving] = _in_wave(left[waving], self._low[at], self._wave[at], self._period[at])
        if not self._low[-1]:
            within[row == len(self._low) - 1] = NEVER_S
        due: Floats = np.minimum(self._begins[row] + np.minimum(within, self._length[row]), NEVER_S)
        return due

    def above(self, bound: float) -> tuple[Int64s, Int64s]:
        """The times in which the level is above a bound: their begins and ends, ns after T0, ascending."""
        low, high, wave = self._low, self._high, self._wave
        lengths = np.where(np.isinf(self._length), NEVER_S, self._length)
        with np.errstate(divide="ignore", invalid="ignore"):
            crossing = np.clip((bound - low) / (high - low) * lengths, 0.0, lengths)
        begins = np.where(low > bound, 0.0, np.where(high > bound, crossing, lengths))
        ends = np.where(high > bound, lengths, np.where(low > bound, crossing, 0.0))
        plain = (wave == 0.0) & (begins < ends)
        spans = [(self._begins[plain] + begins[plain], self._begins[plain] + ends[plain])]
        for row in np.flatnonzero(wave):
            first, last = _crests(bound, low[row], wave[row], self._period[row], lengths[row])
            spans.append((self._begins[row] + first, self._begins[row] + last))
        starts, stops = (np.concatenate(parts) for parts in zip(*spans, strict=True))
        order = np.argsort(starts, kind="stable")
        return _joined(np.rint(starts[order] * 1e9).astype(np.int64), np.rint(stops[order] * 1e9).astype(np.int64))

    def _area(self, row: npt.NDArray[np.intp], x: Floats) -> Floats:
        """Λ over the first x seconds of segments."""
        low, slope = self._low[row], (self._high[row] - self._low[row]) / self._length[row]
        wave, period = self._wave[row], self._period[row]
        waves = wave * period / math.pi * np.sin(math.pi * x / period) ** 2
        area: Floats = low * x + slope * x * x / 2.0 + waves
        return area


def _rows(level: Level) -> Iterable[tuple[float, float, float, float, float]]:
    """The segments of a level: length, level at both ends, amplitude and period."""
    period_s = level.period_s or 1.0
    return [(end - begin, low, high, level.amplitude, period_s) for begin, end, low, high in level.lines()]


def _in_wave(numbers: Floats, mean: Floats, wave: Floats, period: Floats) -> Floats:
    """The inverse of Λ in segments with a sine, whose level is never below 0."""
    whole, left = np.divmod(numbers, mean * period)
    low, high = np.zeros_like(left), period.copy()
    x = left / mean
    for _ in range(STEPS_MAX):
        excess = mean * x + wave * period / math.pi * np.sin(math.pi * x / period) ** 2 - left
        low, high = np.where(excess < 0.0, x, low), np.where(excess < 0.0, high, x)
        level = mean + wave * np.sin(2.0 * math.pi * x / period)
        newton = x - np.divide(excess, level, out=np.zeros_like(x), where=level > 0.0)
        inside = (newton >= low) & (newton <= high) & (level > 0.0)
        moved = np.where(inside, newton, (low + high) / 2.0)
        done = bool(np.all(np.abs(moved - x) <= EXACT_S))
        x = moved
        if done:
            break
    return whole * period + x


def _crests(bound: float, mean: float, wave: float, period: float, length: float) -> tuple[Floats, Floats]:
    """The times, seconds after its start, in which a segment with a sine is above a bound."""
    if mean - wave > bound or mean + wave <= bound:
        return np.array([0.0]), np.array([length if mean - wave > bound else 0.0])
    first = math.asin(max((bound - mean) / wave, -1.0)) / (2.0 * math.pi) * period
    turns = np.arange(-1.0, math.ceil(length / period) + 1.0) * period
    begins, ends = np.clip(turns + first, 0.0, length), np.clip(turns + period / 2.0 - first, 0.0, length)
    return begins, ends


def _joined(starts: Int64s, stops: Int64s) -> tuple[Int64s, Int64s]:
    """Spans in order of their start without the empty ones, and those that touch joined."""
    filled = starts < stops
    starts, stops = starts[filled], stops[filled]
    if not starts.size:
        return starts, stops
    apart = np.flatnonzero(starts[1:] > stops[:-1])
    return np.concatenate((starts[:1], starts[apart + 1])), np.concatenate((stops[apart], stops[-1:]))


# **Closed.** A terminal fires again when its transaction has ended (and its think time is over, see `think_time`), so
# only its start is planned: terminal k of N starts at `k/N · R`, where R is half of the ramp-up. Where the threads
# change over time, terminal k begins transactions only while k is below their level (`Activity`).
#
# **Open.** All agents together follow one cumulative arrival function Λ(t), the number of arrivals due by t seconds
# after T0: the integral of the rate (`intensity`). The rate grows linearly over the first half of the ramp-up, R, and
# stays; from the start of the measure window on it follows its levels, and after them it stays at the last one.
#
# *Constant*: arrival n is due at Λ⁻¹(n), n = 0, 1, 2 …; terminal k of N fires the arrivals k, k + N, k + 2N … These are
# integers, so the shares are exact, add up to the whole whatever the agents, and are staggered by 1/λ between
# terminals; rate/N per terminal in lockstep would make bursts of N instead. *Poisson*: a Poisson process of rate λ is N
# independent ones of rate λ/N; a unit-rate process with points u_i (cumulated exponentials) becomes the wanted one by
# the change of time t_i = Λ⁻¹(N u_i), which holds for a changing rate too (Çinlar's inversion). Times are float64 of n,
# never sums of rounded steps: at 10⁶/s after a day the error is below a tenth of a nanosecond.

BATCH_MIN, BATCH_MAX = 16, 1024
ARRIVALS_PURPOSE = 2_000  # separates these streams from those for keys
NEVER_NS = round(NEVER_S * 1e9)


@record
class Timeline:
    """The edges of an iteration's windows on the monotonic clock of this host, ns; `phases` with name, start and end.

    A window includes its first instant.
    """

    t0_ns: int
    measure_start_ns: int
    measure_end_ns: int
    end_ns: int
    phases: tuple[tuple[str, int, int], ...] = ()
    ends_ns: tuple[tuple[Window, int], ...] = ()

    @classmethod
    def of(cls, windows: Windows, t0_ns: int) -> Timeline:
        """The windows with start T0, as far as they have load."""
        lengths_ns = {one.name: round(length_s * 1e9) for one, length_s in lengths_s(windows).items()}
        edges_ns = list(accumulate(lengths_ns.values(), initial=t0_ns))
        start_ns, end_ns = dict(zip(lengths_ns, pairwise(edges_ns), strict=True))[MEASURE]
        phases = tuple(
            (name, start_ns + round(begin * 1e9), min(start_ns + round(end * 1e9), end_ns))
            for name, begin, end in edges_s(windows.phases)
        )
        return cls(
            t0_ns=t0_ns,
            measure_start_ns=start_ns,
            measure_end_ns=end_ns,
            end_ns=edges_ns[-1],
            phases=phases,
            ends_ns=tuple(zip(lengths_ns, edges_ns[1:], strict=True)),
        )

    def window(self, at_ns: int) -> Window:
        """The window that an instant lies in."""
        return next((name for name, end_ns in self.ends_ns if at_ns < end_ns), self.ends_ns[-1][0])


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
            ramp_s=windows.starts_within_s,
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
        return chain.from_iterable(batch.tolist() for batch in self._due_ns(terminal))

    def due_between(self, terminal: int, first_ns: int, end_ns: int) -> Iterator[Int64s]:
        """The due times of a terminal in [`first_ns`, `end_ns`), ns after T0, in batches: ten million a second."""
        for batch in self._due_ns(terminal):
            due = batch[np.searchsorted(batch, first_ns) : np.searchsorted(batch, end_ns)]
            if due.size:
                yield due
            if batch[-1] >= end_ns:
                break

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

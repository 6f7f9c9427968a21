"""Search for the highest accepted rate, or the most accepted threads: bracket by doubling, bisect, then full-length
iterations where they tell most, until the rate is known. Pure.

Data flow: `begin` -> state; `next_probe(state)` returns the next rate, or the answer; the caller runs that probe as an
iteration and `record`s its judgement -> next state. The criterion of acceptance belongs to the caller.

- *bracket*: from the first rate up by doubling until one is refused or the highest is accepted; where the first is
  refused, down by halving until one is accepted.
- *bisect*: the geometric middle between the highest accepted and the lowest refused, until those two are within four
  times the tolerance of each other. Rates differ by factors, so halving the ratio halves the work.
- *confirm*: full-length iterations, at the rates where what is known so far puts the true rate: in turns at its
  20 %, 50 % and 80 % points.

The true rate θ is the one that half of all iterations accept. A system that fluctuates accepts a rate r with the chance
Φ(ln(θ/r)/σ); of 2 % of iterations the outcome is taken for chance. θ and σ are unknown, with flat densities of their
logarithms, σ from a twelfth of the tolerance to 40 %; each probe multiplies the density by its chance (`Belief`). Each
outcome counts at whatever rate it was, so that a fluctuation costs iterations and not the rate. Short probes count
where their window is as long as that of the full-length ones.

The search ends when the 5 % and 95 % points of θ are within two tolerances of each other, after at least
`confirmations` full-length iterations and at most four times as many. The answer is the 5 % point less a reserve, at
which an iteration must have been accepted; the 95 % point, for which a refusal "for want of evidence" (where an
interval lies across the limit) does not count, is its upper end; the 98 % point where a rate was accepted above a
refused one. With fewer than 5 confirmations the answer is the 2^-confirmations point and has no lower end, and the 98 %
point is its upper end.

- *repeat*: the rate of the first full-length iteration that was accepted is run again at the end. Where it is refused
  so often in a row that the chance of that is below 2.5 %, the capacity has moved; the reason of the answer has it.
- *around*, where the search has `then`: a ladder around the answer, whose probes say nothing about it any more.

A search for threads is the same over whole numbers. "Rate" stands for the number of threads here, and in the names
below. A probe that could not be judged (`accepted` None) is repeated; from the second one at a rate on it counts as
refused for want of evidence. Where σ is most likely above all that is considered, or the budget ends before an
iteration accepts the answer, it is `undecided`.

Sources: Watson & Pelli, QUEST: A Bayesian adaptive psychometric method, Perception & Psychophysics 33 (1983);
Kontsevich & Tyler, Vision Research 39 (1999), for the unknown slope; Wichmann & Hill, Perception & Psychophysics 63
(2001), for the share of outcomes by chance.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from proveout.core.data_classes import dataclass, field
from proveout.core.distributions import normal_below
from proveout.core.numbers import LOWER_MIN, SOUGHT, Sought, count_of, threads
from proveout.dsl.plan.stages import FULL_LENGTH_MAX, Around, Search
from proveout.proto.events import Phase

FULL_LENGTH = ("confirm", "repeat", "around")
SearchOutcome: TypeAlias = Literal["found", "none", "undecided"]
Floats: TypeAlias = npt.NDArray[np.float64]

MAJORITY = 2
"""The refusals that show that the lowest rate is too high."""
BISECTED = 4.0
"""Tolerances between the ends of the bracket at which full-length iterations begin."""
KNOWN = 2.0
"""Tolerances between the ends of the interval at which the search ends."""
ERROR = 0.05
"""The chance that an end of the interval is wrong."""
ABOVE = 0.98
"""The point that is the upper end with fewer than `LOWER_MIN` confirmations, and where the capacity fluctuates: by
simulation it is too low in at most `ERROR` of searches, up to a fluctuation of 20 %, and the 95 % point in 12 %."""
UNORDERED = 0.5
"""The chance of the largest fluctuation from which the outcomes are called contradictory."""
REPEATS_MAX = 4
MORE = 6
"""Iterations at the answer, beyond those that find it."""
RESERVE = 0.15
"""Tolerances that the answer is below what is known: a window of a system whose states last for long (a queue that is
nearly full) keeps a condition a little more often than it is kept in the long run."""
SPREAD = (0.2, 0.5, 0.8)
BY_CHANCE = 0.02
SPREAD_MAX = 0.4
SPREADS = 10
DIGITS = 4
_NORMAL = np.linspace(-8.0, 8.0, 1601)
_BELOW = np.array([normal_below(value) for value in _NORMAL.tolist()])


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The range of a search and the rate of its first probe, 1/s; `start` None: the lowest."""

    low: float
    high: float
    start: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The next thing to run: probe `number` from 1, at `rate` (1/s); full-length in the phases `FULL_LENGTH`, else
    short."""

    number: int
    phase: Phase
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The outcome of a probe, None when it cannot be judged; `clear`: a refusal with evidence against the rate."""

    accepted: bool | None
    evidence: str
    clear: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A finished probe and its judgement."""

    probe: Probe
    judged: Judgement

    @property
    def accepted(self) -> bool | None:
        return self.judged.accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The end of a search; `rate` (1/s) is None when no rate was accepted and confirmed.

    `lower` and `upper`: the ends of its interval, where there are such. `confirmations`: the full-length iterations
    that accepted the rate or a higher one.
    """

    rate: float | None
    probes: int
    reason: str
    outcome: SearchOutcome = "found"
    lower: float | None = None
    upper: float | None = None
    confirmations: int = 0


@dataclass(frozen=True, kw_only=True)
class Belief:
    """The density of the true rate: logarithms of densities over fluctuations (rows) and rates (columns).

    `every` counts all refusals, `clear` those with evidence only.
    """

    logs: Floats
    spreads: Floats
    every: Floats
    clear: Floats

    @classmethod
    def over(cls, low: float, high: float, tolerance: float) -> Belief:
        """Before any probe; the rate is between half of the lowest and twice the highest."""
        first, last = math.log(low / 2.0), math.log(high * 2.0)
        logs = np.linspace(first, last, 2 + math.ceil((last - first) / tolerance * 8.0))
        nothing = np.zeros((SPREADS, len(logs)))
        spreads = np.geomspace(tolerance / 12.0, SPREAD_MAX, SPREADS)
        return cls(logs=logs, spreads=spreads, every=nothing, clear=nothing)

    def after(self, rate: float, accepted: bool, clear: bool) -> Belief:
        """After the outcome of a probe."""
        chance = self._chances(rate)
        likely = np.log(chance if accepted else 1.0 - chance)
        return replace(self, every=self.every + likely, clear=self.clear + likely if accepted or clear else self.clear)

    def _chances(self, rate: float) -> Floats:
        apart = (self.logs - math.log(rate)) / self.spreads[:, np.newaxis]
        return np.asarray(BY_CHANCE / 2.0 + (1.0 - BY_CHANCE) * np.interp(apart, _NORMAL, _BELOW))

    @cached_property
    def _points(self) -> tuple[Floats, Floats]:
        densities = (np.exp(known - known.max()).sum(axis=0).cumsum() for known in (self.every, self.clear))
        every, clear = (density / density[-1] for density in densities)
        return every, clear

    def point(self, share: float, *, clear: bool = False) -> float:
        """The rate below which the true one is with a chance of `share`."""
        return math.exp(float(np.interp(share, self._points[clear], self.logs)))

    @property
    def widest(self) -> float:
        """The chance of the largest fluctuation that is considered."""
        density = np.exp(self.every - self.every.max()).sum(axis=1)
        return float(density[-1] / density.sum())

    def refused(self, rate: float) -> float:
        """The chance that an iteration at a rate is refused."""
        density = np.exp(self.every - self.every.max())
        return float(1.0 - (density * self._chances(rate)).sum() / density.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchState:
    """The state of a search: the highest rate accepted so far and the lowest refused, what is known of the true one
    (`counts_short`: by short probes too), the rate of the next full-length iteration, in the phase
    `due_phase`, and the rate that is confirmed."""

    rate_from: float
    rate_to: float
    rate_start: float
    tolerance_fraction: float
    probes_max: int
    confirmations: int
    upper_end: bool
    belief: Belief | None = field(default=None, compare=False, repr=False)
    counts_short: bool = True
    over: Sought = "rate"
    around: Around | None = None
    low: float | None = None
    high: float | None = None
    due: float | None = None
    due_phase: Phase = "confirm"
    confirmed: float | None = None
    tried: tuple[Tried, ...] = ()
    answer: Answer | None = None

    @property
    def noun(self) -> str:
        """Rate, or number of threads."""
        return SOUGHT[self.over]

    def text(self, rate: float) -> str:
        """500/s, or 8 threads."""
        return f"{rate:g}/s" if self.over == "rate" else threads(round(rate))

    @property
    def known(self) -> Belief:
        """The density of the true rate. ValueError for a range that is not valid."""
        if self.belief is None:
            raise ValueError("the range of the search is not valid")
        return self.belief

    @property
    def error(self) -> float:
        """The chance that the answer is above the true rate."""
        return max(ERROR, 0.5**self.confirmations)

    def full(self, phase: Phase = "confirm") -> tuple[Tried, ...]:
        return tuple(one for one in self.tried if one.probe.phase == phase)


def begin(stage: Search, rates: Rates) -> SearchState:
    """A search over the resolved rates; an empty range is answered at once, and a start beyond an end is that end."""
    rate_from, rate_to = rates.low, rates.high
    first = rate_from if rates.start is None or math.isnan(rates.start) else rates.start
    state = SearchState(
        rate_from=rate_from,
        rate_to=rate_to,
        rate_start=max(min(first, rate_to), rate_from),
        tolerance_fraction=stage.tolerance_fraction,
        probes_max=stage.probes_max,
        confirmations=stage.confirmations,
        upper_end=stage.upper_end,
        counts_short=stage.probe.measure_s == stage.confirm.measure_s,
        over=stage.over,
        around=stage.around,
    )
    if not (math.isfinite(rate_from) and math.isfinite(rate_to)) or rate_from <= 0.0:
        return _without(state, "none", f"{rate_from:g}/s to {rate_to:g}/s is not a valid range of rates")
    if rate_from > rate_to:
        reason = f"the range is empty: it begins at {rate_from:g}/s and ends at {rate_to:g}/s"
        return _without(state, "none", reason)
    return replace(state, belief=Belief.over(rate_from, rate_to, stage.tolerance_fraction))


def next_probe(state: SearchState) -> Probe | Answer:
    """The next probe, or the answer."""
    number = len(state.tried) + 1
    if state.answer is not None:
        rung = next(_around(state, state.answer), None)
        return state.answer if rung is None else Probe(number=number, phase="around", rate=rung)
    if state.due is not None:
        return Probe(number=number, phase=state.due_phase, rate=state.due)
    if state.low is None:
        rate = state.rate_start if state.high is None else max(_whole(state, state.high / 2.0), state.rate_from)
        return Probe(number=number, phase="bracket", rate=rate)
    if state.high is None:
        return Probe(number=number, phase="bracket", rate=min(state.low * 2.0, state.rate_to))
    return Probe(number=number, phase="bisect", rate=_middle(state, state.low, state.high))


def record(state: SearchState, judged: Judgement) -> SearchState:
    """The state after the outcome of the probe that `next_probe` returned. ValueError when the search has ended."""
    probe = next_probe(state)
    if isinstance(probe, Answer):
        raise ValueError("the search has ended; there is no probe to record")
    is_first = not any(one.probe.rate == probe.rate and one.accepted is None for one in state.tried)
    state = replace(state, tried=(*state.tried, Tried(probe=probe, judged=judged)))
    if probe.phase == "around" or (judged.accepted is None and is_first):
        return state if len(state.tried) < state.probes_max or probe.phase == "around" else _ended(state)
    accepted, short = judged.accepted is True, probe.phase in ("bracket", "bisect")
    if probe.phase == "repeat" and state.confirmed is not None:
        return _repeated(state, probe.rate, state.confirmed, accepted=accepted)
    if state.counts_short or not short:
        belief = state.known.after(probe.rate, accepted, judged.accepted is False and judged.clear)
        state = replace(state, belief=belief)
    if short:
        found = replace(state, low=probe.rate) if accepted else replace(state, high=probe.rate)
        return _bracketed(found)
    return _measured(state)


def _around(state: SearchState, answer: Answer) -> Iterator[float]:
    """The probes of the ladder around the answer that have not run: all of its rungs in each repeat."""
    if state.around is None or answer.rate is None:
        return
    rungs = sorted({max(1.0, float(round(answer.rate * share))) for share in state.around.threads} - {answer.rate})
    ran = Counter(one.probe.rate for one in state.tried if one.probe.phase == "around")
    for repeat in range(state.around.repeat):
        yield from (rung for rung in rungs if ran[rung] <= repeat)


def _whole(state: SearchState, rate: float) -> float:
    """The rate, or the whole number of threads below it."""
    return rate if state.over == "rate" else float(math.floor(rate))


def _middle(state: SearchState, low: float, high: float) -> float:
    """The geometric middle to 4 digits, or a whole one, as long as that still lies between the two."""
    middle = math.sqrt(low * high)
    if state.over == "threads":
        return min(max(float(round(middle)), low + 1.0), high - 1.0)
    rounded = float(f"{middle:.{DIGITS}g}")
    return rounded if low < rounded < high else middle


def _bracketed(state: SearchState) -> SearchState:
    """Begin with full-length iterations when the bracket is narrow enough, at the range's end, or when only the probes
    of a confirmation are left."""
    left = state.probes_max - len(state.tried)
    lowest = [one for one in state.tried if one.probe.rate <= state.rate_from]
    if state.low is None and len(lowest) >= MAJORITY:
        return _nothing(state, lowest)
    if left <= 0:
        return _ended(state)
    if state.low is None:
        return state
    narrow = state.high is not None and (
        state.high / state.low - 1.0 <= BISECTED * state.tolerance_fraction
        or (state.over == "threads" and state.high - state.low <= 1.0)
    )
    if narrow or state.low >= state.rate_to or left <= state.confirmations + 1:
        return replace(state, due=state.low)
    return state


def _nothing(state: SearchState, lowest: list[Tried]) -> SearchState:
    """The lowest rate was refused."""
    if sum(one.accepted is False and one.judged.clear for one in lowest) >= MAJORITY:
        text = f"not even the lowest {state.noun}, {state.text(state.rate_from)}, was accepted"
        return _without(state, "none", text)
    reason = f"the lowest {state.noun}, {state.text(state.rate_from)}, was neither accepted nor shown to be too high"
    return _without(state, "undecided", reason)


def _measured(state: SearchState) -> SearchState:
    """The next full-length iteration, or the answer, after such an iteration."""
    full, known = state.full(), state.known
    left, most = state.probes_max - len(state.tried), state.confirmations * FULL_LENGTH_MAX
    if left == 0:
        return _ended(state)
    if left > 1 and (len(full) < state.confirmations or not (_is_narrow(state) or len(full) >= most)):
        return replace(state, due=_in_range(state, known.point(SPREAD[len(full) % len(SPREAD)])))
    target = _target(state)
    if (held := _held(state, target)) is not None:
        return _repeat(state, held)
    if target < state.rate_from and len(full) >= most:
        return _nothing(state, [one for one in full if one.probe.rate <= state.rate_from])
    return replace(state, due=max(target, state.rate_from)) if len(full) < most + MORE else _ended(state)


def _is_narrow(state: SearchState) -> bool:
    lower, upper = (state.known.point(share) for share in (state.error, 1.0 - state.error))
    if state.over == "threads" and math.ceil(upper) - math.floor(lower) <= 1:
        return True
    return upper / lower - 1.0 <= KNOWN * state.tolerance_fraction or lower >= state.rate_to


def _target(state: SearchState) -> float:
    """The rate to answer: the lower end of what is known, less the reserve; whole, or of 4 digits."""
    lower = state.known.point(state.error)
    if state.over == "threads":
        return min(float(math.floor(lower)), state.rate_to)
    rate = lower / (1.0 + RESERVE * state.tolerance_fraction)
    step = 10.0 ** (math.floor(math.log10(rate)) - DIGITS + 1)
    return min(float(f"{math.floor(rate / step) * step:.{DIGITS}g}"), state.rate_to)


def _held(state: SearchState, target: float) -> float | None:
    """The highest rate that a full-length iteration has accepted at the target or within half of the tolerance below;
    None where there is none."""
    least = target / (1.0 + state.tolerance_fraction / 2.0)
    rates = [one.probe.rate for one in state.full() if one.accepted and least <= one.probe.rate <= target]
    return max(rates, default=None)


def _in_range(state: SearchState, rate: float) -> float:
    """A rate to try: not far above the bracket, and above what full-length iterations have accepted."""
    highest = max([state.high or math.inf, *(one.probe.rate for one in state.full() if one.accepted)])
    rate = min(rate, highest * (1.0 + BISECTED * state.tolerance_fraction))
    rounded = float(round(rate)) if state.over == "threads" else float(f"{rate:.{DIGITS}g}")
    return min(max(rounded, state.rate_from), state.rate_to)


def _repeat(state: SearchState, rate: float) -> SearchState:
    """Run the first rate that a full-length iteration accepted again, unless that was just now."""
    state = replace(state, confirmed=rate)
    first = next(one.probe for one in state.full() if one.accepted)
    if first.number >= len(state.tried) - 1:
        return _finish(state, rate)
    return replace(state, due=first.rate, due_phase="repeat")


def _repeated(state: SearchState, rate: float, confirmed: float, *, accepted: bool) -> SearchState:
    """The answer, or one more repeat. The capacity has moved where the refusals are not left to chance, or the
    acceptance before them was not."""
    refused, chance = len(state.full("repeat")), state.known.refused(rate)
    if accepted:
        return _finish(state, confirmed)
    if chance**refused <= ERROR / 2.0 or 1.0 - chance <= ERROR:
        moved = f"; {state.text(rate)} was accepted before and is refused now ({refused}×): the capacity has moved"
        return _finish(state, confirmed, moved)
    return state if refused < REPEATS_MAX and len(state.tried) < state.probes_max else _finish(state, confirmed)


def _ended(state: SearchState) -> SearchState:
    """The answer when the budget has ended."""
    target = _target(state)
    rates = [one.probe.rate for one in state.full() if one.accepted and one.probe.rate <= target]
    if rates:
        return _finish(state, max(rates))
    if state.low is None:
        return _without(state, "undecided", f"no {state.noun} was accepted in {state.probes_max} probes")
    shown = state.text(state.low)
    reason = f"accepted up to {shown} by short probes, but not confirmed within {len(state.tried)} probes"
    return _without(state, "undecided", reason)


def _finish(state: SearchState, rate: float, moved: str = "") -> SearchState:
    known = state.known
    lower, upper = (known.point(share) for share in (state.error, 1.0 - state.error))
    if known.widest > UNORDERED:
        reason = (
            f"full-length iterations from {state.text(_in_range(state, lower))} to "
            f"{state.text(_in_range(state, upper))} contradict each other: take longer windows"
        )
        return _without(state, "undecided", reason + moved)
    held = sum(one.accepted is True and one.probe.rate >= rate for one in state.full())
    end = _upper(state, rate)
    answer = Answer(
        rate=rate,
        probes=len(state.tried),
        reason=_found(state, rate, held, end) + moved,
        lower=rate if state.confirmations >= LOWER_MIN else None,
        upper=end if state.upper_end else None,
        confirmations=held,
    )
    return _answered(state, answer)


def _upper(state: SearchState, rate: float) -> float | None:
    """The rate that is too high by refusals with evidence, whatever the confirmations; None when none is."""
    refused = [one for one in state.tried if one.accepted is False]
    if not any(one.judged.clear for one in refused):
        return None
    lowest = min(one.probe.rate for one in refused)
    fluctuates = any(one.accepted and one.probe.rate > lowest for one in state.tried)
    sure = state.confirmations >= LOWER_MIN and not fluctuates
    found = state.known.point(1.0 - ERROR if sure else ABOVE, clear=True)
    upper = float(math.ceil(found)) if state.over == "threads" else float(f"{found:.{DIGITS}g}")
    return max(upper, rate + 1.0 if state.over == "threads" else rate) if found < state.rate_to else None


def _found(state: SearchState, rate: float, held: int, upper: float | None) -> str:
    full = f"confirmed by {count_of(held, 'full-length iteration')} at it or above"
    if rate >= state.rate_to:
        return f"{full}; limited by the range: its highest {state.noun} was accepted; the true limit is higher"
    if state.high is None:
        return f"{full}; limited by {state.probes_max} probes: no {state.noun} was refused"
    if len(state.tried) >= state.probes_max:
        how = f"stopped by the limit of {state.probes_max} probes"
    else:
        wide = f"wider than the tolerance after {count_of(len(state.full()), 'full-length iteration')}"
        how = "within the tolerance" if _is_narrow(state) else wide
    high = f"no {state.noun}" if upper is None else f"{state.text(upper)} ({(upper / rate - 1.0) * 100:+.3g} %)"
    return f"{full}; shown to be too high: {high}, {how}"


def _without(state: SearchState, outcome: SearchOutcome, reason: str) -> SearchState:
    return _answered(state, Answer(rate=None, probes=len(state.tried), reason=reason, outcome=outcome))


def _answered(state: SearchState, answer: Answer) -> SearchState:
    unjudged = sum(tried.accepted is None for tried in state.tried)
    if unjudged:
        more = f" ({unjudged} of {len(state.tried)} probes could not be judged)"
        answer = replace(answer, reason=answer.reason + more)
    return replace(state, answer=answer, due=None)

"""Search for the highest accepted rate: bracket by doubling, bisect, confirm. Pure.

Data flow: `begin` -> state; `next_probe(state)` returns the next rate, or the answer; the caller runs that probe as an
iteration and `record`s whether it was accepted -> next state. The criterion of acceptance belongs to the caller.

- *bracket*: from the lowest rate up by doubling until one is refused or the highest is accepted. A refusal of the very
  lowest rate would end the search, so that rate has two tries.
- *bisect*: the geometric middle between the highest accepted and the lowest refused, until those two are within the
  tolerance of each other. Rates differ by factors, so halving the ratio halves the work.
- *confirm*: the answer must hold for a full-length iteration: a long window shows a slowly growing lag, which a short
  probe may miss. When it does not hold, the rate is lowered by the tolerance and confirmed again; from the fourth
  failure on the step doubles, up to a half, because small steps would take hours when the machine has become slower
  since the short probes.

A probe that could not be judged (`accepted` None) counts as refused, and the reason contains the number of such probes.
One probe of the budget is always kept for the confirmation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from proveout.dsl.plan.stages import Search

Phase: TypeAlias = Literal["bracket", "bisect", "confirm"]

LOWEST_TRIES = 2
DIGITS = 4
SMALL_STEPS = 3
STEP_MAX_FRACTION = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The next thing to run: probe `number` from 1, at `rate` (1/s); `confirm` is full-length, the other phases are
    short."""

    number: int
    phase: Phase
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A finished probe and its outcome."""

    probe: Probe
    accepted: bool | None
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The end of a search; `rate` (1/s) is None when no rate was accepted and confirmed."""

    rate: float | None
    probes: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchState:
    """The state of a search: the highest rate accepted so far, the lowest refused, the candidate to confirm."""

    rate_from: float
    rate_to: float
    tolerance_fraction: float
    probes_max: int
    low: float | None = None
    high: float | None = None
    candidate: float | None = None
    tried: tuple[Tried, ...] = ()
    answer: Answer | None = None


def begin(stage: Search, rate_from: float, rate_to: float) -> SearchState:
    """A search over [rate_from, rate_to] (1/s, resolved); an empty range is answered at once."""
    state = SearchState(
        rate_from=rate_from,
        rate_to=rate_to,
        tolerance_fraction=stage.tolerance_fraction,
        probes_max=stage.probes_max,
    )
    if not (math.isfinite(rate_from) and math.isfinite(rate_to)) or rate_from <= 0.0:
        return _answered(state, None, f"{rate_from:g}/s to {rate_to:g}/s is not a valid range of rates")
    if rate_from > rate_to:
        return _answered(state, None, f"the range is empty: it begins at {rate_from:g}/s and ends at {rate_to:g}/s")
    return state


def next_probe(state: SearchState) -> Probe | Answer:
    """The next probe, or the answer."""
    if state.answer is not None:
        return state.answer
    number = len(state.tried) + 1
    if state.candidate is not None:
        return Probe(number=number, phase="confirm", rate=state.candidate)
    if state.high is None or state.low is None:
        doubled = state.rate_from if state.low is None else min(state.low * 2.0, state.rate_to)
        return Probe(number=number, phase="bracket", rate=doubled)
    return Probe(number=number, phase="bisect", rate=_middle(state.low, state.high))


def record(state: SearchState, accepted: bool | None, evidence: str) -> SearchState:
    """The state after the outcome of the probe that `next_probe` returned. ValueError when the search has ended."""
    probe = next_probe(state)
    if isinstance(probe, Answer):
        raise ValueError("the search has ended; there is no probe to record")
    state = replace(state, tried=(*state.tried, Tried(probe=probe, accepted=accepted, evidence=evidence)))
    if probe.phase == "confirm":
        return _confirmed(state, probe.rate) if accepted else _backed_off(state, probe.rate)
    if accepted:
        state = replace(state, low=probe.rate)
    elif probe.rate > state.rate_from or _tries(state, probe.rate) >= LOWEST_TRIES:
        state = replace(state, high=probe.rate)
    return _settled(state)


def _tries(state: SearchState, rate: float) -> int:
    return sum(tried.probe.rate == rate for tried in state.tried)


def _middle(low: float, high: float) -> float:
    """The geometric middle to 4 digits, as long as that still lies between the two."""
    middle = math.sqrt(low * high)
    rounded = float(f"{middle:.{DIGITS}g}")
    return rounded if low < rounded < high else middle


def _settled(state: SearchState) -> SearchState:
    """Confirm next when the bracket is narrow enough, at the range's end, or when only one probe is left."""
    left = state.probes_max - len(state.tried)
    if state.low is None:
        if state.high is not None:
            return _answered(state, None, f"not even the lowest rate, {state.rate_from:g}/s, was accepted")
        if left <= 0:
            return _answered(state, None, f"no rate was accepted in {state.probes_max} probes")
        return state
    at_the_end = state.low >= state.rate_to
    narrow = state.high is not None and state.high / state.low - 1.0 <= state.tolerance_fraction
    if at_the_end or narrow or left <= 1:
        return _candidate(state, state.low)
    return state


def _candidate(state: SearchState, rate: float) -> SearchState:
    if len(state.tried) >= state.probes_max:
        reason = f"accepted up to {state.low:g}/s by short probes, but not confirmed within {state.probes_max} probes"
        return _answered(state, None, reason)
    return replace(state, candidate=rate)


def _confirmed(state: SearchState, rate: float) -> SearchState:
    if rate >= state.rate_to:
        return _answered(state, rate, "limited by the range: its highest rate was accepted; the true limit is higher")
    if state.high is None:
        return _answered(state, rate, f"limited by {state.probes_max} probes: no rate was refused")
    apart = state.high / rate - 1.0
    # A step down by the tolerance looks a little longer from below.
    widest = state.tolerance_fraction / (1.0 - state.tolerance_fraction) * 1.001
    if apart <= widest:
        how = "within the tolerance"
    elif failed := _failed_confirmations(state):
        how = f"wider than the tolerance after {failed} failed confirmations"
    else:
        how = f"stopped by the limit of {state.probes_max} probes"
    return _answered(state, rate, f"confirmed; {state.high:g}/s ({apart * 100:+.3g} %) was refused, {how}")


def _failed_confirmations(state: SearchState) -> int:
    return sum(tried.probe.phase == "confirm" and not tried.accepted for tried in state.tried)


def _backed_off(state: SearchState, rate: float) -> SearchState:
    step = min(state.tolerance_fraction * 2 ** max(_failed_confirmations(state) - SMALL_STEPS, 0), STEP_MAX_FRACTION)
    lower = max(rate * (1.0 - step), state.rate_from)
    state = replace(state, high=rate, candidate=None)
    if lower >= rate:
        return _answered(
            state, None, f"accepted by short probes, but no rate down to {state.rate_from:g}/s was confirmed"
        )
    return _candidate(state, lower)


def _answered(state: SearchState, rate: float | None, reason: str) -> SearchState:
    unjudged = sum(tried.accepted is None for tried in state.tried)
    if unjudged:
        reason += f" ({unjudged} of {len(state.tried)} probes could not be judged and count as refused)"
    return replace(state, answer=Answer(rate=rate, probes=len(state.tried), reason=reason), candidate=None)

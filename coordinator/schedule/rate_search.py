"""Search for the highest accepted rate, or the most accepted threads: bracket by doubling, bisect, confirm. Pure.

Data flow: `begin` -> state; `next_probe(state)` returns the next rate, or the answer; the caller runs that probe as an
iteration and `record`s its judgement -> next state. The criterion of acceptance belongs to the caller.

- *bracket*: from the first rate up by doubling until one is refused or the highest is accepted; where the first is
  refused, down by halving until one is accepted.
- *bisect*: the geometric middle between the highest accepted and the lowest refused, until those two are within the
  tolerance of each other. Rates differ by factors, so halving the ratio halves the work.
- A refusal is confirmed: the same rate has a second probe, and a third where the two disagree; the majority decides.
- *confirm*: the answer must hold in `confirmations` full-length iterations. With one refusal among them it must hold in
  4 more; a second refusal refuses the rate, and the rate is lowered by half of the tolerance and confirmed again. From
  the ninth such step on the step doubles, up to a half, because small steps would take hours when the machine has
  become slower since the short probes.

The statement about an answer is a sign test: a rate that is accepted in at most half of all iterations is confirmed
with a probability of at most 2^-n + n 2^-(n+5), which is 0.25 % for n = 9 confirmations. It needs no assumption about
what `accept` reads.

- *refusal*, where the search asks for an upper end: full-length iterations at the lowest refused rate until all of 5
  probes there have refused it. After any other outcome the rate is raised by the tolerance, then by twice that, and so
  on, 12 iterations in all at most.

The interval of an answer is the bracket: its lower end is the confirmed rate, its upper end the rate that 5 of 5 probes
refused, which has a chance of 3.1 % where half of all iterations accept that rate. A refusal "for want of evidence",
where an interval lies across the limit, moves the search and is not evidence.

A search for threads is the same over whole numbers: the middle and each step are whole, a step is at least 1, and the
bracket is narrow when its ends are neighbours. "Rate" stands for the number of threads here, and in the names below.

- *around*, where the search has `then`: a ladder around the answer, whose probes say nothing about it any more.

A probe that could not be judged (`accepted` None) is repeated; from the second one at a rate on it counts as refused,
and is not evidence either. The probes that a confirmation needs are always kept from the budget. Where probes
contradict each other at several rates, or the budget ends, the answer is `undecided`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Literal, TypeAlias

from proveout.core.data_classes import dataclass
from proveout.core.numbers import SOUGHT, Sought, count_of, threads
from proveout.dsl.plan.stages import Around, Search
from proveout.proto.events import Phase

FULL_LENGTH = ("confirm", "refusal", "around")
SearchOutcome: TypeAlias = Literal["found", "none", "undecided"]

MAJORITY = 2
MORE_CONFIRMATIONS = 4
"""The confirmations that are needed in addition after a refusal."""
CONTRADICTIONS_MAX = 9
"""The rates whose full-length iterations disagree, at which the search gives up."""
REFUSALS = 5
"""The probes at a rate that must all refuse it to show that it is too high."""
REFUSALS_MAX = 12
DIGITS = 4
SMALL_STEPS = 8
STEP_MAX_FRACTION = 0.5


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
        """Whether the rate was accepted."""
        return self.judged.accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The end of a search; `rate` (1/s) is None when no rate was accepted and confirmed.

    `upper`: the lowest rate that was shown to be too high, where there is one. `confirmations`: the full-length
    iterations that accepted the rate. `core.numbers` makes an interval of them.
    """

    rate: float | None
    probes: int
    reason: str
    outcome: SearchOutcome = "found"
    upper: float | None = None
    confirmations: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchState:
    """The state of a search: the highest rate accepted so far, the lowest refused, the candidate to confirm,
    and the rate that was confirmed."""

    rate_from: float
    rate_to: float
    rate_start: float
    tolerance_fraction: float
    probes_max: int
    confirmations: int
    upper_end: bool
    over: Sought = "rate"
    around: Around | None = None
    low: float | None = None
    high: float | None = None
    candidate: float | None = None
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
        over=stage.over,
        around=stage.around,
    )
    if not (math.isfinite(rate_from) and math.isfinite(rate_to)) or rate_from <= 0.0:
        return _without(state, "none", f"{rate_from:g}/s to {rate_to:g}/s is not a valid range of rates")
    if rate_from > rate_to:
        reason = f"the range is empty: it begins at {rate_from:g}/s and ends at {rate_to:g}/s"
        return _without(state, "none", reason)
    return state


def next_probe(state: SearchState) -> Probe | Answer:
    """The next probe, or the answer."""
    number = len(state.tried) + 1
    if state.answer is not None:
        due = next(_around(state, state.answer), None)
        return state.answer if due is None else Probe(number=number, phase="around", rate=due)
    if state.candidate is not None:
        return Probe(number=number, phase="confirm", rate=state.candidate)
    if state.confirmed is not None and (refused := _refused_rate(state)) is not None:
        return Probe(number=number, phase="refusal", rate=refused)
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
    state = replace(state, tried=(*state.tried, Tried(probe=probe, judged=judged)))
    if probe.phase == "around":
        return state
    accepted, refused = _count(_at(state, probe))
    if probe.phase == "refusal" and state.confirmed is not None:
        return _refusing(state, state.confirmed)
    if probe.phase == "confirm":
        return _confirming(state, probe.rate, accepted, refused)
    if accepted >= MAJORITY or (accepted and not refused):
        return _settled(replace(state, low=probe.rate))
    if refused >= MAJORITY:
        return _settled(replace(state, high=probe.rate))
    return _settled(state)


def _around(state: SearchState, answer: Answer) -> Iterator[float]:
    """The probes of the ladder around the answer that have not run: all of its rungs in each repeat."""
    if state.around is None or answer.rate is None:
        return
    rungs = sorted({max(1.0, float(round(answer.rate * share))) for share in state.around.threads} - {answer.rate})
    ran = Counter(one.probe.rate for one in state.tried if one.probe.phase == "around")
    for repeat in range(state.around.repeat):
        yield from (rung for rung in rungs if ran[rung] <= repeat)


def _at(state: SearchState, probe: Probe) -> tuple[Tried, ...]:
    """The probes at that rate: the full-length iterations, or the short ones."""
    full = probe.phase == "confirm"
    return tuple(t for t in state.tried if t.probe.rate == probe.rate and (t.probe.phase == "confirm") == full)


def _refused_rate(state: SearchState) -> float | None:
    """The lowest rate above the answer that only clear refusals were recorded of, or that is to be tried next; None
    beyond the range, and when no rate was refused."""
    rate, step = state.high, state.tolerance_fraction
    while rate is not None and rate <= state.rate_to and not _only_refused(state, rate):
        raised = float(f"{rate * (1.0 + step):.{DIGITS}g}")
        raised = max(float(round(raised)), rate + 1.0) if state.over == "threads" else raised
        known = [t.probe.rate for t in state.tried if t.probe.rate > rate and _only_refused(state, t.probe.rate)]
        rate, step = min([raised, *known]), step * 2.0
    return rate if rate is not None and rate <= state.rate_to else None


def _only_refused(state: SearchState, rate: float) -> bool:
    """Whether all probes at that rate refused it with evidence; True for a rate without any."""
    return all(t.accepted is False and t.judged.clear for t in state.tried if t.probe.rate == rate)


def _refusing(state: SearchState, rate: float) -> SearchState:
    """Answer when a rate is shown to be too high, or none can be, or the probes for that are used up."""
    if not state.upper_end:
        return _finish(state, rate)
    used = sum(one.probe.phase == "refusal" for one in state.tried) >= REFUSALS_MAX
    over = used or len(state.tried) >= state.probes_max or _refused_rate(state) is None
    return _finish(state, rate) if over or _upper(state, rate) is not None else state


def _count(tried: Iterable[Tried]) -> tuple[int, int]:
    """Count the accepted probes, and the refused ones; of those that could not be judged, all but the first."""
    outcomes = [one.accepted for one in tried]
    return outcomes.count(True), outcomes.count(False) + max(outcomes.count(None) - 1, 0)


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


def _settled(state: SearchState) -> SearchState:
    """Confirm next when the bracket is narrow enough, at the range's end, or when only the probes of a confirmation are
    left."""
    left = state.probes_max - len(state.tried)
    if state.low is None:
        if state.high is not None and state.high <= state.rate_from:
            return _nothing(state)
        if left <= 0:
            return _without(state, "undecided", f"no {state.noun} was accepted in {state.probes_max} probes")
        return state
    at_the_end = state.low >= state.rate_to
    narrow = state.high is not None and (
        state.high / state.low - 1.0 <= state.tolerance_fraction
        or (state.over == "threads" and state.high - state.low <= 1.0)
    )
    if at_the_end or narrow or left <= state.confirmations:
        return _candidate(state, state.low)
    return state


def _nothing(state: SearchState) -> SearchState:
    """The lowest rate was refused."""
    at_lowest = [one for one in state.tried if one.probe.rate <= state.rate_from]
    if sum(one.accepted is False and one.judged.clear for one in at_lowest) >= MAJORITY:
        lowest = f"not even the lowest {state.noun}, {state.text(state.rate_from)}, was accepted"
        return _without(state, "none", lowest)
    reason = f"the lowest {state.noun}, {state.text(state.rate_from)}, was neither accepted nor shown to be too high"
    return _without(state, "undecided", reason)


def _candidate(state: SearchState, rate: float) -> SearchState:
    if len(state.tried) >= state.probes_max:
        shown = state.text(state.low or 0.0)
        reason = f"accepted up to {shown} by short probes, but not confirmed within {state.probes_max} probes"
        return _without(state, "undecided", reason)
    return replace(state, candidate=rate)


def _confirming(state: SearchState, rate: float, accepted: int, refused: int) -> SearchState:
    if refused >= MAJORITY:
        return _backed_off(state, rate)
    if accepted >= state.confirmations + (MORE_CONFIRMATIONS if refused else 0):
        return _confirmed(state, rate)
    return _candidate(state, rate)


def _confirmed(state: SearchState, rate: float) -> SearchState:
    """Look for evidence against the refused rate next."""
    return _refusing(replace(state, candidate=None, confirmed=rate), rate)


def _finish(state: SearchState, rate: float) -> SearchState:
    upper = _upper(state, rate)
    held = sum(bool(one.accepted) for one in state.tried if one.probe.phase == "confirm" and one.probe.rate == rate)
    reason = _found(state, rate, held, upper)
    answer = Answer(rate=rate, probes=len(state.tried), reason=reason, upper=upper, confirmations=held)
    return _answered(state, answer)


def _found(state: SearchState, rate: float, held: int, upper: float | None) -> str:
    full = f"confirmed by {held} full-length iteration{'' if held == 1 else 's'}"
    if rate >= state.rate_to:
        return f"{full}; limited by the range: its highest {state.noun} was accepted; the true limit is higher"
    if state.high is None:
        return f"{full}; limited by {state.probes_max} probes: no {state.noun} was refused"
    apart = state.high / rate - 1.0
    # A step down by the tolerance looks a little longer from below.
    widest = state.tolerance_fraction / (1.0 - state.tolerance_fraction) * 1.001
    if apart <= widest or (state.over == "threads" and state.high - rate <= 1.0):
        how = "within the tolerance"
    elif failed := _failed_confirmations(state):
        how = f"wider than the tolerance after {count_of(failed, 'failed confirmation')}"
    else:
        how = f"stopped by the limit of {state.probes_max} probes"
    shown = (
        ""
        if upper == state.high or not state.upper_end
        else f"; shown to be too high: {f'no {state.noun}' if upper is None else state.text(upper)}"
    )
    return f"{full}; {state.text(state.high)} ({apart * 100:+.3g} %) was refused, {how}{shown}"


def _upper(state: SearchState, rate: float) -> float | None:
    """The lowest rate above `rate` that is shown to be too high; None when none is."""
    above = sorted({one.probe.rate for one in state.tried if one.probe.rate > rate})
    probes = {higher: sum(one.probe.rate == higher for one in state.tried) for higher in above}
    return next((higher for higher in above if probes[higher] >= REFUSALS and _only_refused(state, higher)), None)


def _failed_confirmations(state: SearchState) -> int:
    """The rates that full-length iterations refused."""
    confirms = [one for one in state.tried if one.probe.phase == "confirm"]
    rates = {one.probe.rate for one in confirms}
    return sum(sum(not one.accepted for one in confirms if one.probe.rate == rate) >= MAJORITY for rate in rates)


def _contradictions(state: SearchState) -> list[float]:
    """The rates whose full-length iterations disagree, lowest first."""
    confirms = [one for one in state.tried if one.probe.phase == "confirm"]
    outcomes: dict[float, set[bool]] = {}
    for one in confirms:
        outcomes.setdefault(one.probe.rate, set()).add(bool(one.accepted))
    return sorted(rate for rate, seen in outcomes.items() if len(seen) > 1)


def _backed_off(state: SearchState, rate: float) -> SearchState:
    doublings = max(_failed_confirmations(state) - SMALL_STEPS, 0)
    step = min(state.tolerance_fraction / 2.0 * 2**doublings, STEP_MAX_FRACTION)
    lower = max(_whole(state, rate * (1.0 - step)), state.rate_from)
    state = replace(state, high=rate, candidate=None)
    if len(mixed := _contradictions(state)) >= CONTRADICTIONS_MAX:
        reason = (
            f"full-length iterations at {len(mixed)} places from {state.text(mixed[0])} to {state.text(mixed[-1])} "
        )
        return _without(state, "undecided", f"{reason}contradict each other: take longer windows")
    if lower >= rate:
        reason = f"accepted by short probes, but no {state.noun} down to {state.text(state.rate_from)} was confirmed"
        return _without(state, "undecided", reason)
    return _candidate(state, lower)


def _without(state: SearchState, outcome: SearchOutcome, reason: str) -> SearchState:
    return _answered(state, Answer(rate=None, probes=len(state.tried), reason=reason, outcome=outcome))


def _answered(state: SearchState, answer: Answer) -> SearchState:
    unjudged = sum(tried.accepted is None for tried in state.tried)
    if unjudged:
        more = f" ({unjudged} of {len(state.tried)} probes could not be judged)"
        answer = replace(answer, reason=answer.reason + more)
    return replace(state, answer=answer, candidate=None)

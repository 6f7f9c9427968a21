"""Judge a probe of a search: is its rate accepted, and is a refusal evidence against the rate? Pure.

Data flow: `IterationFinished` of a probe -> the stage's bounds and its `accept` -> `rate_search.Judgement`. A rate is
accepted when the probe is valid, no finding says that the system does not sustain it (`validity.REFUSALS`), every bound
holds and `accept` holds. The bounds, with the keys of the plan's `bounds`:

- `missed`: arrivals that were due in the window and had no answer within 1 s after the load (`missed.fraction` and
  `unfinished.fraction`), over all that were due. Late answers count, with their whole response time. A backlog from
  before the window does not count as achieved: its arrivals were due earlier.
- `lateness`: the 99th percentile of how late transactions started.
- `growth`: the slope of the mean lateness over the seconds of the window (`core.slopes`). Its upper bound must not be
  above the limit, so that the lateness at the end is shown not to be above that at the beginning; a rate that is x %
  too high grows it by x/(100 + x) seconds a second.

A refusal is clear when a finding or a count refuses, or the whole interval lies beyond its limit. Where the interval
lies across the limit, the rate is refused for want of evidence. A captured lag that falls faster than `growth` shows a
backlog of an earlier load, and the probe cannot be judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proveout.coordinator.measure.validity import PAUSES, is_refusal
from proveout.coordinator.results.lower_bounds import iteration_tree
from proveout.coordinator.schedule.rate_search import Judgement
from proveout.coordinator.verdict.checks import judge
from proveout.core.data_classes import dataclass
from proveout.core.numbers import number, percent
from proveout.core.slopes import BlockSlope, block_slope
from proveout.dsl.plan.stages import Search
from proveout.proto.events import IterationFinished

LATENESS = "schedule.avg_us"
"""The series of an iteration with the mean lateness of starts in each second, µs."""


@dataclass(frozen=True, slots=True)
class _Bound:
    """A bound of one probe; `clear`: it is broken beyond doubt."""

    holds: bool
    clear: bool
    evidence: str


def judge_probe(stage: Search, probe: IterationFinished) -> Judgement:
    """The judgement of a finished probe; `accepted` is None when it is void, or `accept` reads what is missing and
    nothing else refuses the rate."""
    broken = [finding for finding in probe.findings if not finding.ok and finding.voids]
    if broken:
        return Judgement(accepted=None, evidence="void: " + "; ".join(finding.evidence for finding in broken))
    if falls := _backlog(stage, probe):
        return Judgement(accepted=None, evidence=falls)
    refused = [finding.evidence for finding in probe.findings if is_refusal(finding)]
    bounds = [bound for bound in _bounds(stage, probe) if not bound.holds]
    strict = judge(stage.accept.text, iteration_tree(probe), lenient=False)
    evidence = "; ".join([*refused, *(bound.evidence for bound in bounds), strict.evidence])
    if refused or bounds:
        clear = bool(refused) or any(bound.clear for bound in bounds)
        return Judgement(accepted=False, evidence=evidence, clear=clear or _fails(stage, probe))
    if strict.outcome == "INCONCLUSIVE":
        return Judgement(accepted=None, evidence=evidence)
    held = strict.outcome == "PASS"
    return Judgement(accepted=held, evidence=evidence, clear=held or _fails(stage, probe))


def _fails(stage: Search, probe: IterationFinished) -> bool:
    """Whether `accept` fails with its whole interval."""
    return judge(stage.accept.text, iteration_tree(probe)).outcome == "FAIL"


def _bounds(stage: Search, probe: IterationFinished) -> Iterator[_Bound]:
    bounds, metrics = stage.bounds, probe.metrics
    missed = metrics.get("missed", {}).get("fraction")
    if missed is not None:
        missed += metrics.get("unfinished", {}).get("fraction", 0.0)
        over = missed > bounds.missed_fraction_max
        text = f"{percent(missed)} of the arrivals due in the window had no answer within 1 s after the load"
        yield _Bound(not over, over, f"{text} (bound `missed` {percent(bounds.missed_fraction_max)})")
    late_us = metrics.get("schedule", {}).get("p99_us")
    if late_us is not None:
        over = late_us / 1e3 > bounds.lateness_p99_ms_max
        text = f"p99 of start lateness {late_us / 1e3:.3g} ms (bound `lateness` {bounds.lateness_p99_ms_max:g} ms)"
        yield _Bound(not over, over, text)
    seconds = probe.series.get(LATENESS, ())
    if (growth := block_slope(range(len(seconds)), [late / 1e6 for late in seconds])) is not None:
        yield _grows(growth, bounds.lateness_growth_max)


def _grows(growth: BlockSlope, limit: float) -> _Bound:
    """The growth of the lateness; a window of too few seconds for an interval is judged by the slope itself."""
    lower, upper = (growth.slope if bound is None else bound for bound in (growth.lower, growth.upper))
    text = f"start lateness grows by up to {number(upper)} s/s (bound `growth` {percent(limit)})"
    return _Bound(upper <= limit, lower > limit, text)


def _backlog(stage: Search, probe: IterationFinished) -> str:
    """The reason why the lag does not belong to this probe; "" when it does."""
    lag = probe.metrics.get("lag", {})
    upper = lag.get("slope_upper")
    if upper is None or upper >= -stage.bounds.lateness_growth_max:
        return ""
    return f"the lag falls by at least {number(-upper)} s/s: a backlog from before the probe; raise `drain` or `settle`"


def pauses_beyond(probes: Sequence[IterationFinished]) -> str:
    """A remark for the answer of a search whose windows were too short for the pauses of the system; "" without any."""
    seen = [finding for probe in probes for finding in probe.findings if finding.check == PAUSES and not finding.ok]
    if not seen:
        return ""
    return f"; {len(seen)} of {len(probes)} probes had pauses that their windows do not span: {seen[-1].evidence}"

"""The time that a system needs after a phase to do again what it did before it. Pure.

Definition. The phases before and after are at one and the same level (`plan.phases.recovers`). The reference is the
throughput and the mean response time of the phase before, from its whole seconds. From the end of the phase on, the
seconds of the next phase are taken in runs of whole seconds, each a second later than the one before. A run is *back*
when

- its throughput is within `within` of the reference, above and below: a backlog that is worked off, and transactions
  that are refused, are not what the system did before; and
- its mean response time is at most (1 + `within`) times the reference. A faster one is back too.

`recovery_s` is, as that of a fault (`faults.effects`), the time to the first instant from which the system stays back:
the begin of the first run after the last one that is not back. Its resolution is one second, and a system that is back
at once has less than 1. Where the last run of the next phase is not back, the end of that is a lower bound.

Single seconds vary by themselves, so the shortest run of `RUNS_S` is taken in which that alone, by the deviation of
the seconds of the phase before, makes one of all runs differ by more than `within` with a probability of
`recovery_spans.FALSE_ALARM`. Without such a run, without a reference, or with fewer whole seconds after the phase than
a run has, it is not known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from proveout.core.data_classes import dataclass
from proveout.core.recovery_spans import DEVIATION_MIN, RUNS_S, quantile


@dataclass(frozen=True, slots=True, kw_only=True)
class Second:
    """A whole second: its start after the start of the measure window, s; transactions that ended; the sum of their
    response times, µs."""

    start_s: float
    ended: float
    response_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The time to recover, or a lower bound of it, seconds."""

    seconds: float | None = None
    at_least: float | None = None


def recovery(before: Sequence[Second], after: Sequence[Second], end_s: float, within: float) -> Recovery | None:
    """The recovery from a phase that ended at `end_s`, from the whole seconds of the phases before and after it."""
    ended = sum(second.ended for second in before)
    if not ended:
        return None
    tps, response_us = ended / len(before), sum(second.response_us for second in before) / ended
    length = _run_s(before, len(after), within)
    if length is None:
        return None
    away = -1
    for first in range(len(after) - length + 1):
        run = after[first : first + length]
        count = sum(second.ended for second in run)
        held = abs(count / length - tps) <= within * tps
        if not held or sum(second.response_us for second in run) > (1.0 + within) * response_us * count:
            away = first
    if away == len(after) - length:
        return Recovery(at_least=after[-1].start_s + 1.0 - end_s)
    return Recovery(seconds=after[away + 1].start_s - end_s)


def _run_s(before: Sequence[Second], seconds: int, within: float) -> int | None:
    """The length of the runs in a phase of so many whole seconds; None where the numbers before vary too much."""
    counts = [second.ended for second in before]
    means = [second.response_us / second.ended for second in before if second.ended]
    fits = (length for length in RUNS_S if length <= seconds)
    return next((n for n in fits if max(margin(counts, n, seconds), margin(means, n, seconds)) <= within), None)


def margin(values: Sequence[float], length: int, seconds: int) -> float:
    """The share of the mean by which one of all runs of `length` among so many `seconds` deviates by chance with a
    probability of `recovery_spans.FALSE_ALARM`; infinite for fewer than 2 values."""
    if len(values) < 2:
        return math.inf
    mean, deviation = fmean(values), max(stdev(values), DEVIATION_MIN)
    return quantile(len(values) - 1, seconds / length, sides=2) * deviation / math.sqrt(length) / mean

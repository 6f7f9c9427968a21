"""The time that a system needs after a phase to do again what it did before it. Pure.

Definition. The phases before and after are at one and the same level (`plan.phases.recovers`). The reference is the
throughput and the mean response time of the phase before, from its whole seconds. From the end of the phase on, the
seconds of the next phase are taken in runs of `RUN_S` whole seconds, each a second later than the one before. A run is
*back* when

- its throughput is within `within` of the reference, above and below: a backlog that is worked off, and transactions
  that are refused, are not what the system did before; and
- its mean response time is at most (1 + `within`) times the reference. A faster one is back too.

`recovery_s` is the time from the end of the phase to the begin of the first run that is back. Its resolution is one
second, and a system that is back at once has less than 1. Where no run of the next phase is back, the end of the last
run is a lower bound of it. Runs of three seconds are compared since single seconds vary: a mean of three has 0.58 of
their deviation. Without a reference, or with fewer than `RUN_S` whole seconds after the phase, it is not known.
"""

from __future__ import annotations

from collections.abc import Sequence

from proveout.core.data_classes import dataclass

RUN_S = 3


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
    if not ended or len(after) < RUN_S:
        return None
    tps, response_us = ended / len(before), sum(second.response_us for second in before) / ended
    for first in range(len(after) - RUN_S + 1):
        run = after[first : first + RUN_S]
        count = sum(second.ended for second in run)
        held = abs(count / RUN_S - tps) <= within * tps
        if held and sum(second.response_us for second in run) <= (1.0 + within) * response_us * count:
            return Recovery(seconds=run[0].start_s - end_s)
    return Recovery(at_least=after[-1].start_s + 1.0 - end_s)

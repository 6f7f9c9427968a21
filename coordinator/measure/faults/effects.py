"""The effect of one occurrence of a fault on a load in bins: detection, outage, recovery, failed transactions. Pure.

Data flow: `BinSeries`, the occurrence and the times that belong to other occurrences -> what is *usual* for the load,
by the bins before in which no fault was felt -> `effect` -> `Effect`, in ns. Definitions:

- **Detection**: from the begin of the fault to the first instant at which a client could know of it: the end of the
  first error (of a transaction, or of an attempt to connect) beyond the usual number of errors, or the instant at which
  a response exceeds the usual bound, `SLOW_FACTOR` times the longest usual response: its intended time plus the bound,
  whenever the answer came. None when nothing of the kind occurred before throughput had recovered and the fault was
  healed. Of several slow responses that ended in one bin the slowest counts, so that it may be late by up to the width
  of a bin.
- **Outage**: the longest time without service that begins between the begin of the fault and its healing and recovery:
  from the intended time of the first transaction without an answer, not before the last success (under closed arrival
  that is the last success itself, because the next transaction starts with it), to the first success from which the
  throughput is at least `SERVED` (10 %) of the usual (`_few`). A few answers among many that wait do not end it. A time
  that contains the begin of the fault counts from then at the earliest, less what is usual. Times within one bin are
  not seen. `outage_usual_ns`: times up to this long are usual (`_Usual.gap_ns`), so that one that is not longer may
  have another cause. `outage_at_least`: the next fault began, or the load ended, before it did.
- **Recovery**: from the begin of the fault to the first instant from which throughput stays at its level before, by
  `recovery`, and, of a load with a rate, from which no second has in most of its bins a response above the usual bound,
  `SLOW_FACTOR` times the median of the longest of a bin (a backlog that is worked off at full throughput), until the
  next fault begins, the load goes to another level, or the window ends; by the bins before in which the load was at the
  same level; not before the end of the outage. None when that instant is not in this time, whose length is then the
  lower bound; or where throughput varies too much to be judged: then the end of the outage is.
- **Failed**: transactions that ended with an error between the begin of the fault and its healing and recovery, less
  the usual number of errors; and, where it had not recovered when the load ended, those due that were missed or had no
  answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from proveout.coordinator.measure.faults.bin_series import NEVER, BinSeries, Gaps
from proveout.coordinator.measure.faults.occurrences import Occurrence
from proveout.coordinator.measure.faults.recovery import Counts, Recovery, recovery
from proveout.core.data_classes import dataclass
from proveout.proto.wire import bins
from proveout.proto.wire.bins import Table

SLOW_FACTOR = 3.0
GAP_FACTOR_MIN = 2.0
FALSE_ALARM = 0.01
LEVEL_FRACTION = 0.01
"""A load whose rate or threads change by less stays at its level."""
SLOW_BINS_MIN = 5
"""The fewest slow bins of a second whose work waits."""
SERVED = 0.1
"""The share of the usual throughput below which users have an outage."""
BINS_MIN = 10
"""The fewest undisturbed bins, a second of them, that show what is usual."""

Span: TypeAlias = tuple[int, int]
"""From, to: ns after the start of the measure window."""
Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The effect of an occurrence on a load, ns; None where it is not known.

    `recovery_at_least_ns`: the time without recovery, where there was none. `recovery_level`: the share of the usual
    throughput that recovery is judged by. `until_ns`: end of the effect, after the start of the window.
    """

    detection_ns: int | None = None
    outage_ns: int | None = None
    outage_from_ns: int | None = None
    outage_usual_ns: int | None = None
    outage_at_least: bool = False
    recovery_ns: int | None = None
    recovery_at_least_ns: int | None = None
    recovery_level: float | None = None
    tps_before: float | None = None
    failed: int | None = None
    until_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswered:
    """The transactions due in the window that were never begun, or had no answer when the load had ended."""

    missed: int = 0
    unfinished: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Usual:
    """The bins before a fault that no fault disturbed: runs of counts; the bound of the longest response of a bin, and
    the longest of all; errors per bin; and the longest time without a success, with the number of such times."""

    runs: tuple[Counts, ...]
    slow_ns: float
    slowest_ns: int
    errors: float
    longest_gap_ns: int
    gaps: int

    def gap_ns(self, times: int) -> float:
        """The bound of usual times without a success, over `times` of them.

        For exponential times the longest of n is about ln n means, and the longest of m exceeds ln(m / a) means with
        probability a.
        """
        if self.gaps < 2 or self.longest_gap_ns <= 0:
            return float(bins.WIDTH_NS)
        factor = math.log(max(times, 1) / FALSE_ALARM) / math.log(self.gaps)
        return max(factor, GAP_FACTOR_MIN) * self.longest_gap_ns


def effect(
    series: BinSeries,
    one: Occurrence,
    *,
    disturbed: Sequence[Span] = (),
    next_ns: int | None = None,
    unanswered: Unanswered | None = None,
    level: Callable[[float], float] | None = None,
    is_open: bool = False,
) -> Effect:
    """The effect of an occurrence on a load. `disturbed`: the effects of earlier occurrences; `next_ns`: the begin of
    the next one. `level`: of a load that changes, by seconds of the window. `is_open`: it has a rate of arrivals."""
    horizon_ns = min(series.window_ns, series.window_ns if next_ns is None else next_ns)
    if not 0 <= one.begins_ns < horizon_ns:
        return Effect()
    gaps = series.gaps()
    begin, end = series.index(one.begins_ns), (horizon_ns - series.origin_ns) // bins.WIDTH_NS
    same = _same_level(series, begin, level)
    fine = _undisturbed(series, one.begins_ns, disturbed)
    gaps = gaps.joined(_few(series, fine & same, same))
    usual = _usual(series, gaps, one, disturbed, (fine, same))
    end = begin + int(np.argmin(np.append(same[begin:end], False)))
    judged_ns = min(horizon_ns, series.origin_ns + end * bins.WIDTH_NS)
    after = series.table[begin:end, bins.ANSWERED].astype(np.float64)
    back = None if usual is None else recovery(usual.runs, after)
    recovered_ns = _recovered_ns(series, one, back, begin, horizon_ns)
    if is_open and usual is not None and recovered_ns is not None:
        slow = _slow_bins(series.table[begin:end], usual.slow_ns)
        slow_ns = series.origin_ns + (begin + slow) * bins.WIDTH_NS if slow else recovered_ns
        recovered_ns = None if slow == end - begin > 0 else max(recovered_ns, slow_ns)
    healed_ns = one.begins_ns if one.healed_ns is None else one.healed_ns
    until_ns = horizon_ns if recovered_ns is None else min(max(recovered_ns, healed_ns), horizon_ns)
    outage = _outage(gaps, usual, one, until_ns, next_ns)
    if outage.is_unusual and recovered_ns is not None:
        recovered_ns = _after_outage(series, outage, recovered_ns, back)
        until_ns = max(until_ns, min(recovered_ns, horizon_ns))
    return Effect(
        detection_ns=_detection_ns(series, gaps, usual, one.begins_ns, until_ns),
        outage_ns=outage.end_ns - outage.from_ns,
        outage_from_ns=outage.from_ns,
        outage_usual_ns=outage.usual_ns,
        outage_at_least=outage.is_unusual and outage.is_open,
        recovery_ns=None if recovered_ns is None else recovered_ns - one.begins_ns,
        recovery_at_least_ns=_at_least_ns(one, back, outage, judged_ns) if recovered_ns is None else None,
        recovery_level=back.level if back else None,
        tps_before=back.before * bins.PER_SECOND if back else None,
        failed=_failed(series, usual, one.begins_ns, until_ns, unanswered if next_ns is None else None),
        until_ns=until_ns,
    )


# ---- what is usual -----------------------------------------------------------------------------------------------


def _same_level(series: BinSeries, begin: int, level: Callable[[float], float] | None) -> Mask:
    """The bins in which the load is at the level that it has in the bin `begin`."""
    if level is None:
        return np.ones(len(series.table), dtype=np.bool_)
    edges_s = np.append(series.starts_ns, series.origin_ns + len(series.table) * bins.WIDTH_NS) / 1e9
    levels = np.array([level(float(at_s)) for at_s in edges_s])
    near = np.abs(levels - levels[begin]) <= LEVEL_FRACTION * abs(levels[begin])
    found: Mask = near[:-1] & near[1:]
    return found


def _undisturbed(series: BinSeries, begins_ns: int, disturbed: Sequence[Span]) -> Mask:
    """The bins before a fault in which no fault was felt."""
    starts = series.starts_ns
    fine: Mask = (starts >= series.settled_ns) & (starts + bins.WIDTH_NS <= begins_ns)
    for from_ns, to_ns in disturbed:
        fine &= (starts >= to_ns) | (starts + bins.WIDTH_NS <= from_ns)
    return fine


def _few(series: BinSeries, before: Mask, same: Mask) -> Mask:
    """Of the bins with a success those, at the level of the fault, that do not end an outage, because the throughput is
    below `SERVED` of that `before`: from them on over two bins, or those in which two successes would be due at that
    share, or in both the second before them and the second from them on (bursts)."""
    answered = series.table[:, bins.ANSWERED]
    filled = np.flatnonzero(answered > 0)
    least = SERVED * float(answered[before].mean()) if before.sum() >= BINS_MIN else 0.0
    if not least:
        return np.zeros(len(filled), dtype=np.bool_)
    total = np.concatenate(([0], np.cumsum(answered)))

    def low(first: Table, last: Table) -> Mask:
        first, last = np.maximum(first, 0), np.minimum(last, len(answered))
        found: Mask = total[last] - total[first] < least * (last - first)
        return found

    near = low(filled, filled + max(math.ceil(2.0 / least), 2))  # the first bin may begin before the last answer
    burst = low(filled - bins.PER_SECOND, filled) & low(filled, filled + bins.PER_SECOND)
    return (near | burst) & same[filled]


def _usual(
    series: BinSeries, gaps: Gaps, one: Occurrence, disturbed: Sequence[Span], masks: tuple[Mask, Mask]
) -> _Usual | None:
    """The usual behaviour, by the bins of two masks: undisturbed, and at the level of the fault."""
    fine, same = masks
    if fine.sum() < BINS_MIN:
        return None
    table = series.table[fine]
    whole = (gaps.since_ns >= series.settled_ns) & (gaps.until_ns <= one.begins_ns)
    for from_ns, to_ns in disturbed:
        whole &= (gaps.since_ns >= to_ns) | (gaps.until_ns <= from_ns)
    lengths = gaps.lengths_ns[whole]
    return _Usual(
        runs=tuple(_runs(series.table[:, bins.ANSWERED].astype(np.float64), fine & same)),
        slow_ns=SLOW_FACTOR * float(np.median(table[table[:, bins.ANSWERED] > 0, bins.SLOWEST]))
        if table[:, bins.ANSWERED].any()
        else math.inf,
        slowest_ns=max(int(table[:, bins.SLOWEST].max()), 0),
        errors=float(table[:, bins.FAILED].mean()),
        longest_gap_ns=int(lengths.max()) if lengths.size else 0,
        gaps=int(lengths.size),
    )


def _runs(counts: Counts, chosen: Mask) -> Iterator[Counts]:
    """The counts of each unbroken run of chosen bins."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], chosen.astype(np.int8), [0]))))
    for first, last in zip(edges[::2], edges[1::2], strict=True):
        yield counts[first:last]


# ---- detection ---------------------------------------------------------------------------------------------------


def _detection_ns(series: BinSeries, gaps: Gaps, usual: _Usual | None, begins_ns: int, until_ns: int) -> int | None:
    found = [*_slow_ns(series, gaps, usual, begins_ns), *_error_ns(series, usual, begins_ns, until_ns)]
    known = [at_ns for at_ns in found if at_ns <= max(until_ns, begins_ns)]
    return max(min(known) - begins_ns, 0) if known else None


def _slow_ns(series: BinSeries, gaps: Gaps, usual: _Usual | None, begins_ns: int) -> Iterator[int]:
    """When responses exceeded the usual bound after the begin, and when those did that have no answer."""
    if usual is None or usual.slowest_ns <= 0:
        return
    bound_ns = round(SLOW_FACTOR * usual.slowest_ns)
    slow = series.table[:, bins.SLOWEST] > bound_ns
    at_ns = series.column(bins.OLDEST, NEVER)[slow] + bound_ns
    yield from (int(at) for at in at_ns if at >= begins_ns)
    waits_ns = int(gaps.begins_ns[-1]) + bound_ns
    if begins_ns <= waits_ns < series.end_ns:
        yield waits_ns


def _error_ns(series: BinSeries, usual: _Usual | None, begins_ns: int, until_ns: int) -> Iterator[int]:
    """The first error in a bin with more of them than usual: than a Poisson distribution of the usual number exceeds
    in one of all bins with a probability of `FALSE_ALARM`."""
    first, last = series.index(begins_ns), series.index(until_ns)
    at_ns = series.column(bins.ERROR, NEVER)[first : last + 1]
    failed = np.maximum(series.table[first : last + 1, bins.FAILED], at_ns != NEVER)
    most = _most_errors(usual.errors if usual else 0.0, len(at_ns))
    for index in np.flatnonzero((failed > most) & (at_ns != NEVER)):
        if at_ns[index] >= begins_ns:
            yield int(at_ns[index])
            return
        if index == 0:  # errors on both sides of the begin in one bin
            yield begins_ns
            return


def _most_errors(mean: float, count: int) -> int:
    """The number of errors of a bin that all of `count` bins together exceed with a probability of `FALSE_ALARM`."""
    if mean <= 0.0:
        return 0
    most, term = 0, math.exp(-mean)
    below = term
    while 1.0 - below > FALSE_ALARM / max(count, 1) and most < 10_000:
        most += 1
        term *= mean / most
        below += term
    return most


# ---- outage ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outage:
    """A time without service; up to `usual_ns` is usual, None where that is not known."""

    from_ns: int
    end_ns: int
    is_open: bool
    usual_ns: int | None

    @property
    def is_unusual(self) -> bool:
        return self.end_ns - self.from_ns > (self.usual_ns or 0)


def _outage(gaps: Gaps, usual: _Usual | None, one: Occurrence, until_ns: int, next_ns: int | None) -> _Outage:
    """The longest time without service that begins from the begin of the fault to `until_ns`."""
    held = (gaps.until_ns > one.begins_ns) & (gaps.begins_ns < until_ns)
    held[np.argmax(gaps.until_ns > one.begins_ns)] = True  # the first one, where none begins before `until_ns`
    longest_ns = usual.longest_gap_ns if usual else 0
    begins = np.maximum(gaps.begins_ns[held], one.begins_ns - longest_ns)
    ends = gaps.until_ns[held] if next_ns is None else np.minimum(gaps.until_ns[held], next_ns)
    index = int(np.argmax(ends - begins))
    cut = int(ends[index]) < int(gaps.until_ns[held][index])
    last = gaps.is_open and int(gaps.until_ns[held][index]) == int(gaps.until_ns[-1])
    usual_ns = round(usual.gap_ns(int(held.sum()))) if usual else None
    return _Outage(from_ns=int(begins[index]), end_ns=int(ends[index]), is_open=cut or last, usual_ns=usual_ns)


# ---- recovery and failures ---------------------------------------------------------------------------------------


def _recovered_ns(series: BinSeries, one: Occurrence, back: Recovery | None, begin: int, horizon_ns: int) -> int | None:
    """The instant of recovery; None when it is not known, or not within the observed time."""
    if back is None or back.at is None:
        return None
    at_ns = series.origin_ns + (begin + back.at) * bins.WIDTH_NS if back.at else one.begins_ns
    return min(max(at_ns, one.begins_ns), horizon_ns)


def _slow_bins(table: Table, slow_ns: float) -> int:
    """The number of bins to the end of the last second in which most bins have a response above the usual: the work
    that was due at a rate and waits; 0 without any."""
    filled = table[:, bins.ANSWERED] > 0
    slow = filled & (table[:, bins.SLOWEST] > slow_ns)
    last = 0
    if len(table) >= bins.PER_SECOND:
        of, all_ = (np.convolve(each, np.ones(bins.PER_SECOND), "valid") for each in (slow, filled))
        spans = np.flatnonzero((of > all_ / 2) & (of >= SLOW_BINS_MIN))
        last = int(spans[-1]) + bins.PER_SECOND if spans.size else 0
    return int(np.flatnonzero(slow[:last])[-1]) + 1 if last else 0


def _at_least_ns(one: Occurrence, back: Recovery | None, outage: _Outage, horizon_ns: int) -> int | None:
    """The lower bound of the time to recover: all of the observed time, or, where throughput varies too much to be
    judged, the time to the end of the outage."""
    ends = [horizon_ns] if back is not None else []
    ends += [outage.end_ns] if outage.is_unusual else []
    return max(ends) - one.begins_ns if ends else None


def _after_outage(series: BinSeries, outage: _Outage, recovered_ns: int, back: Recovery | None) -> int:
    """The instant of recovery, not before the end of the outage. Where throughput is back from the next bin on, and
    what is left of the bin of that end has its share of it, recovery is that end itself."""
    end_ns = outage.end_ns
    bin_end_ns = series.origin_ns + (series.index(end_ns) + 1) * bins.WIDTH_NS
    if recovered_ns == bin_end_ns and back is not None:
        due = back.level * back.before * (bin_end_ns - end_ns) / bins.WIDTH_NS
        if series.table[series.index(end_ns), bins.ANSWERED] >= math.floor(due):
            return end_ns
    return max(recovered_ns, end_ns)


def _failed(
    series: BinSeries, usual: _Usual | None, begins_ns: int, until_ns: int, unanswered: Unanswered | None
) -> int:
    first, last = series.index(begins_ns), series.index(until_ns)
    counted = int(series.table[first : last + 1, bins.FAILED].sum())
    expected = usual.errors * (last + 1 - first) if usual else 0.0
    left = unanswered if unanswered is not None and until_ns >= series.window_ns else Unanswered()
    return max(round(counted - expected), 0) + left.missed + left.unfinished

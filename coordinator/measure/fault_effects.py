"""The effect of one occurrence of a fault on a load: detection, outage, recovery, failed transactions. Pure.

Data flow: a load in bins of a tenth of a second and the occurrences on one clock -> `Effect`s. Times are ns after
the start of the measure window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from proveout.core.data_classes import record
from proveout.core.statistics import DEVIATION_MIN, MARGIN_MAX, SPANS, SPANS_BEFORE, quantile
from proveout.proto.wire import histogram
from proveout.proto.wire.histogram import Table
from proveout.proto.wire.results import FaultInjected, FaultOccurrence, LoadResult, LoadSecond

# Times are ns after the start of the measure window, negative in the ramp-up. A success is a transaction that the
# system answered: committed, or failed logically as the workload provides.

NEVER = 2**63 - 1


@record
class Gaps:
    """The times between one success and the next one, in order; arrays of one length.

    `since_ns`: the success before it (the start of the load for the first). `until_ns`: the success after it (the end
    of the load for the last, if that `is_open`). `begins_ns`: from when on service is missing: the first intended time
    of a transaction that had no answer before the end of the gap, but not before the last success. A time in which
    nothing is due is not without service: then `begins_ns` is `until_ns`.
    """

    since_ns: Table
    until_ns: Table
    begins_ns: Table
    is_open: bool

    @property
    def lengths_ns(self) -> Table:
        return self.until_ns - self.begins_ns

    def joined(self, low: npt.NDArray[np.bool_]) -> Gaps:
        """Those with a `low` bin between them (one for each pair of neighbours) as one."""
        first = np.concatenate(([True], ~low))
        return Gaps(
            since_ns=self.since_ns[first],
            until_ns=self.until_ns[np.append(first[1:], True)],
            begins_ns=self.begins_ns[first],
            is_open=self.is_open,
        )


@record
class BinSeries:
    """The bins of a load from its start on, without a hole.

    `origin_ns`: start of the first bin; `table`: rows as in `proto.wire.histogram`; `end_ns`: end of the load;
    `window_ns`: length of the measure window; `settled_ns`: when all terminals have started.
    """

    origin_ns: int
    table: Table
    end_ns: int
    window_ns: int
    settled_ns: int

    @property
    def starts_ns(self) -> Table:
        return self.origin_ns + np.arange(len(self.table), dtype=np.int64) * histogram.WIDTH_NS

    def column(self, number: int, otherwise: int) -> Table:
        """A column of times, ns after the start of the window; `otherwise` where there is none."""
        held = self.table[:, number]
        return np.where(held == histogram.NONE, otherwise, held + self.starts_ns)

    def index(self, at_ns: int) -> int:
        """The bin that an instant lies in; the first or the last one for an instant outside of them."""
        return min(max((at_ns - self.origin_ns) // histogram.WIDTH_NS, 0), len(self.table) - 1)

    def gaps(self) -> Gaps:
        """The times without a success, but those within one bin."""
        filled = np.flatnonzero(self.table[:, histogram.ANSWERED] > 0)
        since = np.concatenate(([self.origin_ns], self.column(histogram.LAST, 0)[filled]))
        until = np.concatenate((self.column(histogram.FIRST, 0)[filled], [max(self.end_ns, int(since[-1]))]))
        # Of the transactions that end from a bin on, the earliest intended time.
        answered = _earliest(self.column(histogram.OLDEST, NEVER))
        failed = _earliest(self.column(histogram.ERROR_OLDEST, NEVER))
        before, after = np.concatenate(([0], filled)), np.concatenate((filled, [len(self.table)]))
        waiting = np.minimum(np.append(answered, NEVER)[after], np.append(failed, NEVER)[before])
        if waiting[-1] == NEVER:  # nothing has failed either: the load waits since the last success
            waiting[-1] = since[-1]
        begins = np.clip(waiting, since, until)
        return Gaps(since_ns=since, until_ns=until, begins_ns=begins, is_open=bool(until[-1] > since[-1]))


def _earliest(times: Table) -> Table:
    """The minimum from each place on."""
    return np.minimum.accumulate(times[::-1])[::-1]


def series_of(load: LoadResult, seconds: Sequence[LoadSecond]) -> BinSeries | None:
    """The bins of one load on one host; None when it has none, or when a second is missing."""
    if not seconds or not seconds[0].bins:  # all seconds of a night as objects would take gigabytes
        return None
    held = sorted(seconds, key=lambda second: second.second)
    numbers = [second.second for second in held if second.bins]
    if numbers != list(range(len(held))):
        return None
    tables = [histogram.decode(second.bins) for second in held]
    if any(len(table) != histogram.PER_SECOND for table in tables[:-1]):
        return None
    ramp_up_ns = load.measure_start_ns - held[0].start_ns
    end_ns = held[-1].start_ns + round(held[-1].duration_s * 1e9)
    return BinSeries(
        origin_ns=-ramp_up_ns,
        table=np.concatenate(tables),
        end_ns=end_ns - load.measure_start_ns,
        window_ns=load.measure_end_ns - load.measure_start_ns,
        settled_ns=-ramp_up_ns // 2,
    )


def together(series: Iterable[BinSeries | None]) -> BinSeries | None:
    """Several loads or hosts as one, whose windows start at the same instant; None when one of them is not known."""
    parts = list(series)
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    if len(known) == 1:
        return known[0]
    origin_ns = max(part.origin_ns for part in known)
    # The bins of all begin at T0 of their host, so that only rounding of the clocks' offsets separates them.
    tables = [
        part.table[(origin_ns - part.origin_ns + histogram.WIDTH_NS // 2) // histogram.WIDTH_NS :] for part in known
    ]
    return BinSeries(
        origin_ns=origin_ns,
        table=histogram.merged(tables),
        end_ns=min(part.end_ns for part in known),
        window_ns=min(part.window_ns for part in known),
        settled_ns=max(part.settled_ns for part in known),
    )


@record
class Occurrence:
    """One occurrence of a fault on all its hosts, in ns after the start of the measure window: the first host begins
    it, and the last one has it in place, and healed; None for a step that some host did not reach.

    `error`: why a change could not be made; `residue`: what could not be undone.
    """

    fault: str
    number: int
    begins_ns: int
    in_place_ns: int | None = None
    healing_ns: int | None = None
    healed_ns: int | None = None
    error: str = ""
    residue: tuple[str, ...] = ()
    staleness_s: float | None = None


@record
class HostClock:
    """A host's clock less the coordinator's, ns: `offset_ns` at the instant `at_ns` of the coordinator's clock, and
    `later_ns` at the instant `until_ns`."""

    offset_ns: int = 0
    later_ns: int = 0
    at_ns: int = 0
    until_ns: int = 0

    def to_coordinator(self, host_ns: int) -> int:
        """An instant of the host's clock on the coordinator's."""
        at_ns = host_ns - self.offset_ns
        length_ns = self.until_ns - self.at_ns
        if length_ns <= 0:
            return at_ns
        share = min(max((at_ns - self.at_ns) / length_ns, 0.0), 1.0)
        return at_ns - round(share * (self.later_ns - self.offset_ns))


def occurrences(
    injected: Mapping[tuple[str, str], FaultInjected], clocks: Mapping[str, HostClock], window_start_ns: int
) -> tuple[Occurrence, ...]:
    """All occurrences in order of time; `injected` by (fault, host), `window_start_ns` on the coordinator's clock."""
    by_number: dict[tuple[str, int], list[tuple[str, FaultOccurrence]]] = {}
    for (fault, host), result in injected.items():
        for one in result.occurrences:
            by_number.setdefault((fault, one.number), []).append((host, one))
    found = [_occurrence(fault, number, parts, clocks, window_start_ns) for (fault, number), parts in by_number.items()]
    return tuple(sorted(found, key=lambda one: one.begins_ns))


def _occurrence(
    fault: str,
    number: int,
    parts: Sequence[tuple[str, FaultOccurrence]],
    clocks: Mapping[str, HostClock],
    window_start_ns: int,
) -> Occurrence:
    def times(name: str) -> list[int] | None:
        """The instants of a step on all hosts; None when one has not reached it."""
        held = [(host, getattr(one, name)) for host, one in parts]
        if any(at_ns is None for _, at_ns in held):
            return None
        return [clocks.get(host, HostClock()).to_coordinator(at_ns) - window_start_ns for host, at_ns in held]

    in_place, healing, healed = (times(name) for name in ("in_place_ns", "healing_ns", "healed_ns"))
    several = len(parts) > 1
    errors = [f"{host}: {one.error}" if several else one.error for host, one in parts if one.error]
    residue = [f"{host}: {left}" if several else left for host, one in parts for left in one.residue]
    return Occurrence(
        fault=fault,
        number=number,
        begins_ns=min(times("begins_ns") or [0]),
        in_place_ns=max(in_place) if in_place else None,
        healing_ns=min(healing) if healing else None,
        healed_ns=max(healed) if healed else None,
        error="; ".join(errors),
        residue=tuple(residue),
        staleness_s=max((one.staleness_s for _, one in parts if one.staleness_s is not None), default=None),
    )


# Single bins of a tenth of a second vary: at 200/s by 22 % when arrivals are independent. So throughput is compared
# over the shortest span of `SPANS` in which the usual throughput stays within 5 % of its mean, by its own variation
# before the fault:
#
# - m, s: mean and standard deviation of the counts of all spans of w bins in the undisturbed time before, with at least
#   `SPANS_BEFORE` spans that do not overlap, n of them (n - 1 degrees of freedom). s is at least half a transaction:
#   the most regular arrivals vary by that when they are counted in bins.
# - `margin` = t s / m, with t the quantile of Student's distribution at which all spans after the fault together
#   deviate further with a probability of `FALSE_ALARM`. They overlap, and count as 3 independent ones for each length
#   of a span.
# - The first w with margin <= 5 % is taken; `level` is then 95 %. Where no span is long enough, the w with the smallest
#   margin is taken and `level` is 1 - margin: it is stated with the result, and above `MARGIN_MAX` there is none.
#
# Throughput is *low* in a span with less than `level` x m. It has recovered after the last low span; within that span
# (w bins), the instant is the change point that separates a lower from a higher level with the least squares of what is
# left (counts above m taken as m, so that a backlog that is worked off does not move it). When the last span of the
# observed time is low, it has not recovered in it.
#
# Without any effect of a fault, a recovery above 0 is reported in at most `FALSE_ALARM` of the cases: simulated with
# regular, Poisson and autocorrelated arrivals in the tests.

LEVEL = 0.95

Counts = npt.NDArray[np.float64]


@record
class Recovery:
    """`at`: the number of bins after which throughput stays at `level` of the mean `before` (per bin); None when it
    does not within the observed time."""

    at: int | None
    level: float
    before: float


def recovery(before: Sequence[Counts], after: Counts) -> Recovery | None:
    """When the counts `after` the beginning of a fault are back at the level of those `before`, undisturbed runs of
    bins; None when the counts do not allow a statement."""
    if not len(after) or not sum(map(len, before)):
        return None
    usual = float(np.concatenate(before).mean())
    chosen = _span(before, usual, len(after))
    if chosen is None:
        return None
    width, margin = chosen
    level = LEVEL if margin <= 1.0 - LEVEL else 1.0 - margin
    low = np.flatnonzero(_sums(after, width) < level * usual * width)
    if not low.size:
        return Recovery(at=0, level=level, before=usual)
    last = int(low[-1])
    if last + width >= len(after):
        return Recovery(at=None, level=level, before=usual)
    return Recovery(at=_change_point(np.minimum(after, usual), last, width), level=level, before=usual)


def _span(before: Sequence[Counts], usual: float, length: int) -> tuple[int, float] | None:
    """The width of the spans, in bins, and the margin."""
    if usual <= 0.0:
        return None
    found = [(width, margin) for width, margin in _margins(before, usual, length) if margin <= MARGIN_MAX]
    fine = [each for each in found if each[1] <= 1.0 - LEVEL]
    return fine[0] if fine else min(found, key=lambda each: each[1], default=None)


def _margins(before: Sequence[Counts], usual: float, length: int) -> Iterator[tuple[int, float]]:
    for width in SPANS:
        spans = sum(len(run) // width for run in before)
        if spans < SPANS_BEFORE or width > length:
            return
        sums = np.concatenate([_sums(run, width) for run in before])
        deviation = max(float(sums.std(ddof=1)), DEVIATION_MIN)
        yield width, quantile(spans - 1, length / width) * deviation / (usual * width)


def _sums(counts: Counts, width: int) -> Counts:
    """The sums of all spans of `width` bins; the first begins with the first bin."""
    total = np.concatenate(([0.0], np.cumsum(counts)))
    return total[width:] - total[:-width]


def _change_point(counts: Counts, last: int, width: int) -> int:
    """The bin from `last` + 1 to `last` + `width` at which counts rise, by least squares of two constant levels."""
    begin, end = max(0, last - width), min(len(counts), last + 2 * width)
    held = counts[begin:end]
    sums, squares = np.cumsum(held), np.cumsum(held**2)
    places = np.arange(last + 1, last + width + 1)
    sizes = places - begin
    lower, upper = sums[sizes - 1], sums[-1] - sums[sizes - 1]
    rest = squares[-1] - lower**2 / sizes - upper**2 / np.maximum(len(held) - sizes, 1)
    return int(places[np.argmin(rest)])


# - **Detection**: from the begin of the fault to the first instant at which a client could know of it: the end of the
#   first error (of a transaction, or of an attempt to connect) beyond the usual number of errors, or the instant at
#   which a response exceeds the usual bound, `SLOW_FACTOR` times the longest usual response: its intended time plus the
#   bound, whenever the answer came. None when nothing of the kind occurred before throughput had recovered and the
#   fault was healed. Of several slow responses that ended in one bin the slowest counts, so that it may be late by up
#   to the width of a bin.
# - **Outage**: the longest time without service that begins between the begin of the fault and its healing and
#   recovery: from the intended time of the first transaction without an answer, not before the last success (under
#   closed arrival that is the last success itself, because the next transaction starts with it), to the first success
#   from which the throughput is at least `SERVED` (10 %) of the usual (`_few`). A few answers among many that wait do
#   not end it. A time that contains the begin of the fault counts from then at the earliest, less what is usual. Times
#   within one bin are not seen. `outage_usual_ns`: times up to this long are usual (`_Usual.gap_ns`), so that one that
#   is not longer may have another cause. `outage_at_least`: the next fault began, or the load ended, before it did.
# - **Recovery**: from the begin of the fault to the first instant from which throughput stays at its level before, by
#   `recovery`, and, of a load with a rate, from which no second has in most of its bins a response above the usual
#   bound, `SLOW_FACTOR` times the median of the longest of a bin (a backlog that is worked off at full throughput),
#   until the next fault begins, the load goes to another level, or the window ends; by the bins before in which the
#   load was at the same level; not before the end of the outage. None when that instant is not in this time, whose
#   length is then the lower bound; or where throughput varies too much to be judged: then the end of the outage is.
# - **Failed**: transactions that ended with an error between the begin of the fault and its healing and recovery, less
#   the usual number of errors; and, where it had not recovered when the load ended, those due that were missed or had
#   no answer.

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


@record
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


@record
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
            return float(histogram.WIDTH_NS)
        factor = math.log(max(times, 1) / FALSE_ALARM) / math.log(self.gaps)
        return max(factor, GAP_FACTOR_MIN) * self.longest_gap_ns


def effect(
    series: BinSeries,
    one: Occurrence,
    *,
    disturbed: Sequence[Span] = (),
    next_ns: int | None = None,
    unanswered: int = 0,
    level: Callable[[float], float] | None = None,
    is_open: bool = False,
) -> Effect:
    """The effect of an occurrence on a load. `disturbed`: the effects of earlier occurrences; `next_ns`: the begin of
    the next one. `unanswered`: the transactions due in the window that were never begun, or had no answer when the load
    had ended. `level`: of a load that changes, by seconds of the window. `is_open`: it has a rate of arrivals."""
    horizon_ns = min(series.window_ns, series.window_ns if next_ns is None else next_ns)
    if not 0 <= one.begins_ns < horizon_ns:
        return Effect()
    gaps = series.gaps()
    begin, end = series.index(one.begins_ns), (horizon_ns - series.origin_ns) // histogram.WIDTH_NS
    same = _same_level(series, begin, level)
    fine = _undisturbed(series, one.begins_ns, disturbed)
    gaps = gaps.joined(_few(series, fine & same, same))
    usual = _usual(series, gaps, one, disturbed, (fine, same))
    end = begin + int(np.argmin(np.append(same[begin:end], False)))
    judged_ns = min(horizon_ns, series.origin_ns + end * histogram.WIDTH_NS)
    after = series.table[begin:end, histogram.ANSWERED].astype(np.float64)
    back = None if usual is None else recovery(usual.runs, after)
    recovered_ns = _recovered_ns(series, one, back, begin, horizon_ns)
    if is_open and usual is not None and recovered_ns is not None:
        slow = _slow_bins(series.table[begin:end], usual.slow_ns)
        slow_ns = series.origin_ns + (begin + slow) * histogram.WIDTH_NS if slow else recovered_ns
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
        outage_at_least=outage.is_open and (outage.is_unusual or _too_near(outage, one, next_ns)),
        recovery_ns=None if recovered_ns is None else recovered_ns - one.begins_ns,
        recovery_at_least_ns=_at_least_ns(one, back, outage, judged_ns) if recovered_ns is None else None,
        recovery_level=back.level if back else None,
        tps_before=back.before * histogram.PER_SECOND if back else None,
        failed=_failed(series, usual, one.begins_ns, until_ns, unanswered if next_ns is None else 0),
        until_ns=until_ns,
    )


# ---- what is usual -----------------------------------------------------------------------------------------------


def _same_level(series: BinSeries, begin: int, level: Callable[[float], float] | None) -> Mask:
    """The bins in which the load is at the level that it has in the bin `begin`."""
    if level is None:
        return np.ones(len(series.table), dtype=np.bool_)
    edges_s = np.append(series.starts_ns, series.origin_ns + len(series.table) * histogram.WIDTH_NS) / 1e9
    levels = np.array([level(float(at_s)) for at_s in edges_s])
    near = np.abs(levels - levels[begin]) <= LEVEL_FRACTION * abs(levels[begin])
    found: Mask = near[:-1] & near[1:]
    return found


def _undisturbed(series: BinSeries, begins_ns: int, disturbed: Sequence[Span]) -> Mask:
    """The bins before a fault in which no fault was felt."""
    starts = series.starts_ns
    fine: Mask = (starts >= series.settled_ns) & (starts + histogram.WIDTH_NS <= begins_ns)
    for from_ns, to_ns in disturbed:
        fine &= (starts >= to_ns) | (starts + histogram.WIDTH_NS <= from_ns)
    return fine


def _few(series: BinSeries, before: Mask, same: Mask) -> Mask:
    """Of the bins with a success those, at the level of the fault, that do not end an outage, because the throughput is
    below `SERVED` of that `before`: from them on over two bins, or those in which two successes would be due at that
    share, or in both the second before them and the second from them on (bursts)."""
    answered = series.table[:, histogram.ANSWERED]
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
    burst = low(filled - histogram.PER_SECOND, filled) & low(filled, filled + histogram.PER_SECOND)
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
        runs=tuple(_runs(series.table[:, histogram.ANSWERED].astype(np.float64), fine & same)),
        slow_ns=SLOW_FACTOR * float(np.median(table[table[:, histogram.ANSWERED] > 0, histogram.SLOWEST]))
        if table[:, histogram.ANSWERED].any()
        else math.inf,
        slowest_ns=max(int(table[:, histogram.SLOWEST].max()), 0),
        errors=float(table[:, histogram.FAILED].mean()),
        longest_gap_ns=int(lengths.max()) if lengths.size else 0,
        gaps=int(lengths.size),
    )


def _runs(counts: Counts, chosen: Mask) -> Iterator[Counts]:
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
    slow = series.table[:, histogram.SLOWEST] > bound_ns
    at_ns = series.column(histogram.OLDEST, NEVER)[slow] + bound_ns
    yield from (int(at) for at in at_ns if at >= begins_ns)
    waits_ns = int(gaps.begins_ns[-1]) + bound_ns
    if begins_ns <= waits_ns < series.end_ns:
        yield waits_ns


def _error_ns(series: BinSeries, usual: _Usual | None, begins_ns: int, until_ns: int) -> Iterator[int]:
    """The first error in a bin with more of them than usual: than a Poisson distribution of the usual number exceeds
    in one of all bins with a probability of `FALSE_ALARM`."""
    first, last = series.index(begins_ns), series.index(until_ns)
    at_ns = series.column(histogram.ERROR, NEVER)[first : last + 1]
    failed = np.maximum(series.table[first : last + 1, histogram.FAILED], at_ns != NEVER)
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
    most, below = 0, math.exp(-mean)
    while 1.0 - below > FALSE_ALARM / max(count, 1) and most < 2.0 * mean + 100.0:
        most += 1
        below += math.exp(most * math.log(mean) - mean - math.lgamma(most + 1))
    return most


# ---- outage ------------------------------------------------------------------------------------------------------


@record
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
    ends = gaps.until_ns[held] if next_ns is None else np.minimum(gaps.until_ns[held], next_ns)
    begins = np.minimum(np.maximum(gaps.begins_ns[held], one.begins_ns - longest_ns), ends)
    index = int(np.argmax(ends - begins))
    cut = int(ends[index]) < int(gaps.until_ns[held][index])
    last = gaps.is_open and int(gaps.until_ns[held][index]) == int(gaps.until_ns[-1])
    usual_ns = round(usual.gap_ns(int(held.sum()))) if usual else None
    return _Outage(from_ns=int(begins[index]), end_ns=int(ends[index]), is_open=cut or last, usual_ns=usual_ns)


def _too_near(outage: _Outage, one: Occurrence, next_ns: int | None) -> bool:
    """Whether the next fault began before a time without service could become unusual."""
    return next_ns is not None and next_ns - one.begins_ns <= (outage.usual_ns or 0)


# ---- recovery and failures ---------------------------------------------------------------------------------------


def _recovered_ns(series: BinSeries, one: Occurrence, back: Recovery | None, begin: int, horizon_ns: int) -> int | None:
    """The instant of recovery; None when it is not known, or not within the observed time."""
    if back is None or back.at is None:
        return None
    at_ns = series.origin_ns + (begin + back.at) * histogram.WIDTH_NS if back.at else one.begins_ns
    return min(max(at_ns, one.begins_ns), horizon_ns)


def _slow_bins(table: Table, slow_ns: float) -> int:
    """The number of bins to the end of the last second in which most bins have a response above the usual: the work
    that was due at a rate and waits; 0 without any."""
    filled = table[:, histogram.ANSWERED] > 0
    slow = filled & (table[:, histogram.SLOWEST] > slow_ns)
    last = 0
    if len(table) >= histogram.PER_SECOND:
        of, all_ = (np.convolve(each, np.ones(histogram.PER_SECOND), "valid") for each in (slow, filled))
        spans = np.flatnonzero((of > all_ / 2) & (of >= SLOW_BINS_MIN))
        last = int(spans[-1]) + histogram.PER_SECOND if spans.size else 0
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
    bin_end_ns = series.origin_ns + (series.index(end_ns) + 1) * histogram.WIDTH_NS
    if recovered_ns == bin_end_ns and back is not None:
        due = back.level * back.before * (bin_end_ns - end_ns) / histogram.WIDTH_NS
        if series.table[series.index(end_ns), histogram.ANSWERED] >= math.floor(due):
            return end_ns
    return max(recovered_ns, end_ns)


def _failed(series: BinSeries, usual: _Usual | None, begins_ns: int, until_ns: int, unanswered: int) -> int:
    first, last = series.index(begins_ns), series.index(until_ns)
    counted = int(series.table[first : last + 1, histogram.FAILED].sum())
    expected = usual.errors * (last + 1 - first) if usual else 0.0
    return max(round(counted - expected), 0) + (unanswered if until_ns >= series.window_ns else 0)

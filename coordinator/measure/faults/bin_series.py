"""A load in bins of a tenth of a second: throughput, and the exact times without a success. Pure.

Times are ns after the start of the measure window, negative in the ramp-up. A success is a transaction that the system
answered: committed, or failed logically as the workload provides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from proveout.core.data_classes import dataclass
from proveout.proto.wire import bins
from proveout.proto.wire.bins import Table
from proveout.proto.wire.results import LoadResult, LoadSecond

NEVER = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
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
        """The time without service of each."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BinSeries:
    """The bins of a load from its start on, without a hole.

    `origin_ns`: start of the first bin; `table`: rows as in `proto.wire.bins`; `end_ns`: end of the load; `window_ns`:
    length of the measure window; `settled_ns`: when all terminals have started.
    """

    origin_ns: int
    table: Table
    end_ns: int
    window_ns: int
    settled_ns: int

    @property
    def starts_ns(self) -> Table:
        """The start of each bin."""
        return self.origin_ns + np.arange(len(self.table), dtype=np.int64) * bins.WIDTH_NS

    def column(self, number: int, otherwise: int) -> Table:
        """A column of times, ns after the start of the window; `otherwise` where there is none."""
        held = self.table[:, number]
        return np.where(held == bins.NONE, otherwise, held + self.starts_ns)

    def index(self, at_ns: int) -> int:
        """The bin that an instant lies in; the first or the last one for an instant outside of them."""
        return min(max((at_ns - self.origin_ns) // bins.WIDTH_NS, 0), len(self.table) - 1)

    def gaps(self) -> Gaps:
        """The times without a success, but those within one bin."""
        filled = np.flatnonzero(self.table[:, bins.ANSWERED] > 0)
        since = np.concatenate(([self.origin_ns], self.column(bins.LAST, 0)[filled]))
        until = np.concatenate((self.column(bins.FIRST, 0)[filled], [max(self.end_ns, int(since[-1]))]))
        # Of the transactions that end from a bin on, the earliest intended time.
        answered = _earliest(self.column(bins.OLDEST, NEVER))
        failed = _earliest(self.column(bins.ERROR_OLDEST, NEVER))
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
    if not seconds or not seconds[0].bins:
        return None
    held = sorted(seconds, key=lambda second: second.second)
    if not held or not all(second.bins for second in held):
        return None
    if [second.second for second in held] != list(range(len(held))):
        return None
    tables = [bins.decode(second.bins) for second in held]
    if any(len(table) != bins.PER_SECOND for table in tables[:-1]):
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
    tables = [part.table[(origin_ns - part.origin_ns + bins.WIDTH_NS // 2) // bins.WIDTH_NS :] for part in known]
    return BinSeries(
        origin_ns=origin_ns,
        table=bins.merged(tables),
        end_ns=min(part.end_ns for part in known),
        window_ns=min(part.window_ns for part in known),
        settled_ns=max(part.settled_ns for part in known),
    )


def series_by_host(
    loads: Mapping[str, LoadResult], seconds: Mapping[str, Sequence[LoadSecond]]
) -> dict[str, BinSeries | None]:
    """The series of one load on each of its hosts."""
    return {host: series_of(load, seconds.get(host, ())) for host, load in loads.items()}

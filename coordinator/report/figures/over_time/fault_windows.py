"""The samples around each occurrence of a fault: throughput and errors in tenths of a second, p99 by second, lag.

Data flow: `samples/*.parquet` of an iteration with faults -> for each `FaultMeasured` the part of the window around it,
on one time axis that begins with the fault -> `FaultWindow` -> `fault_figures`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from proveout.coordinator.measure.samples import read_table
from proveout.core.data_classes import dataclass
from proveout.proto.events import IterationFinished
from proveout.proto.fault_events import FaultMeasured
from proveout.proto.wire import bins, histogram
from proveout.proto.wire.results import Histogram

MARGIN_MIN_S = 5.0
MARGIN_MAX_S = 30.0
"""The time before a fault, and after its recovery, that is shown: as long as the disturbance itself, within these."""
POINTS_MAX = 400
"""Points of a line; longer windows have wider bins."""
P99 = 99.0
_NS = 1e9

_HISTOGRAM = (
    "coordinator_ns", "response_indices", "response_counts", "response_sum_ns", "response_min_ns", "response_max_ns",
)  # fmt: skip

Points = tuple[tuple[float, float], ...]
"""(seconds after the begin of the fault, value)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultWindow:
    """One occurrence of a fault with what was recorded around it; all times are seconds after its begin.

    `answered`, `failed`: transactions per second, of all loads and hosts together; `p99_ms`: response time of the
    transactions that ended in a second; `lag_s`: replication lag by sample.
    """

    iteration: IterationFinished
    fault: FaultMeasured
    answered: Points
    failed: Points
    p99_ms: Points = ()
    lag_s: Points = ()

    @property
    def healed_s(self) -> float | None:
        """The end of its healing; of a fault that ends by itself, when its changes were made."""
        end_s = self.fault.healed_s if self.fault.healed_s is not None else self.fault.in_place_s
        return None if end_s is None else end_s - self.fault.begins_s

    @property
    def outage(self) -> tuple[float, float] | None:
        """The outage; None where it is not longer than usual, or not known."""
        found = self.fault
        if found.outage_s is None or found.outage_from_s is None or found.usual_outage_s is not None:
            return None
        start_s = found.outage_from_s - found.begins_s
        return start_s, start_s + found.outage_s


def fault_windows(
    item: IterationFinished, folder: Path, stem: str, load: Sequence[Mapping[str, Any]]
) -> Iterator[FaultWindow]:
    """The window of each fault of an iteration; none without its tenths of a second. `load`: rows of its load samples.

    Raises SamplesUnreadable for a damaged file.
    """
    measured = [row["coordinator_ns"] for row in load if row["window"] == "measure"]
    if not item.faults or not measured:
        return
    found = _rows(folder / f"{stem}.bins.parquet", ["coordinator_ns", "answered", "failed"])
    if not found:
        return
    window_ns = min(measured)
    seconds = _rows(folder / f"{stem}.load.parquet", _HISTOGRAM)
    lag = _lag(_rows(folder / f"{stem}.captures.parquet", ["metric", "coordinator_ns", "value"]))
    for fault in item.faults:
        origin_ns = window_ns + round(fault.begins_s * _NS)
        first_s, last_s = _shown(fault)
        answered, failed = _per_second(found, origin_ns, first_s, last_s)
        yield FaultWindow(
            iteration=item,
            fault=fault,
            answered=answered,
            failed=failed,
            p99_ms=tuple(_p99(seconds, origin_ns, first_s, last_s)),
            lag_s=tuple(
                (at_s, value) for at_ns, value in lag if first_s <= (at_s := (at_ns - origin_ns) / _NS) < last_s
            ),
        )


def _rows(path: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    table = read_table(path, names, [("metric", "==", "lag.seconds")] if "metric" in names else None)
    rows: list[dict[str, Any]] = [] if table is None else table.to_pylist()
    return rows


def _shown(fault: FaultMeasured) -> tuple[float, float]:
    """From, to: the seconds after the fault's begin that are shown."""
    ends = [fault.healed_s, fault.in_place_s]
    disturbed_s = max([0.0, *(end - fault.begins_s for end in ends if end is not None)])
    known = (fault.recovery_s, fault.recovery_at_least_s, fault.outage_s)
    disturbed_s = max([disturbed_s, *(length for length in known if length is not None)])
    margin_s = min(max(disturbed_s, MARGIN_MIN_S), MARGIN_MAX_S)
    return -margin_s, disturbed_s + margin_s


def _per_second(
    rows: Iterable[Mapping[str, Any]], origin_ns: int, first_s: float, last_s: float
) -> tuple[Points, Points]:
    """Answers and failures per second, over bins of whole tenths; without the first and the last bin, which may be cut
    and would read as a drop."""
    width_ns = bins.WIDTH_NS * max(1, math.ceil((last_s - first_s) * _NS / bins.WIDTH_NS / POINTS_MAX))
    first_ns, last_ns = origin_ns + round(first_s * _NS), origin_ns + round(last_s * _NS)
    counts: dict[int, list[int]] = {}
    for row in rows:
        if first_ns <= row["coordinator_ns"] < last_ns:
            place = counts.setdefault((row["coordinator_ns"] - first_ns) // width_ns, [0, 0])
            place[0] += row["answered"]
            place[1] += row["failed"]
    width_s = width_ns / _NS
    middles = [(first_s + (index + 0.5) * width_s, counts[index]) for index in sorted(counts)[1:-1]]
    return (
        tuple((at_s, both[0] / width_s) for at_s, both in middles),
        tuple((at_s, both[1] / width_s) for at_s, both in middles),
    )


def _p99(
    rows: Iterable[Mapping[str, Any]], origin_ns: int, first_s: float, last_s: float
) -> Iterator[tuple[float, float]]:
    """The 99th percentile of all transactions of a second, ms; none of a second without a success."""
    held: dict[int, tuple[float, list[Histogram]]] = {}
    for row in rows:
        at_s = (row["coordinator_ns"] - origin_ns) / _NS
        if first_s <= at_s < last_s and row["response_counts"]:
            part = Histogram(
                indices=tuple(row["response_indices"]),
                counts=tuple(row["response_counts"]),
                sum_ns=row["response_sum_ns"],
                min_ns=row["response_min_ns"],
                max_ns=row["response_max_ns"],
            )
            held.setdefault(math.floor(at_s), (at_s + 0.5, []))[1].append(part)
    for _, (middle_s, parts) in sorted(held.items()):
        value_ns = histogram.percentile_ns(histogram.merge(parts), P99)
        if value_ns is not None:
            yield middle_s, value_ns / 1e6


def _lag(rows: Iterable[Mapping[str, Any]]) -> list[tuple[int, float]]:
    return sorted((row["coordinator_ns"], row["value"]) for row in rows)

"""Output of fio -> cumulative counts -> seconds and result of a load. Pure.

Flow: lines of standard output -> `Documents` (JSON objects whose braces have lines of their own; other lines are kept
as messages) -> `snapshot` -> `FioRun`, which makes a `LoadSecond` of the difference to the last snapshot, and a
`LoadResult` of the last one.

fio resets its counts at the end of its ramp. Its bins (json+) have the middle of each bin in ns; they are added to our
histograms by that value, within 1 % of the measured one. Sum, minimum and maximum are fio's own, exact. Source: HOWTO
of fio 3, "JSON+ output".
"""

from __future__ import annotations

import json
import math
import os
from collections import deque
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from proveout.agent.errors import TaskFault
from proveout.core.data_classes import dataclass, field
from proveout.dsl.plan.commands import FioJob
from proveout.dsl.plan.stages import Windows
from proveout.proto.wire import histogram
from proveout.proto.wire.results import Histogram, LoadResult, LoadSecond, TransactionCounts, TransactionLoad

DOCUMENT_BYTES_MAX = 16 * 1024 * 1024
SLIVER_S = 0.5
"""A shorter interval without an I/O is a repetition of fio's last report; a whole second without one is a result."""
WORDS_MAX = 12
WORD_LENGTH_MAX = 300
_EMPTY = Histogram()


class Documents:
    """The JSON objects in fio's output; `words` are the last lines outside of them."""

    def __init__(self) -> None:
        self.words: deque[str] = deque(maxlen=WORDS_MAX)
        self._lines: list[str] = []
        self._size = 0

    def take(self, line: str) -> Mapping[str, Any] | None:
        """The object that the line completes, if any. TaskFault `fault` for invalid JSON or an object without end."""
        text = line.rstrip("\r\n")
        if not self._lines and text != "{":
            if text.strip():
                self.words.append(text[:WORD_LENGTH_MAX])
            return None
        self._lines.append(text)
        self._size += len(text)
        if self._size > DOCUMENT_BYTES_MAX:
            raise garbled("an object that does not end")
        if text != "}":
            return None
        whole, self._lines, self._size = "\n".join(self._lines), [], 0
        try:
            found = json.loads(whole)
        except ValueError as error:
            raise garbled(str(error)) from None
        return found if isinstance(found, dict) else {}


def garbled(why: str) -> TaskFault:
    """The fault for output that cannot be parsed."""
    return TaskFault("fault", f"cannot parse the output of fio: {why}", way_out="install fio 3.1 or later on that host")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Number and response times of reads, or of writes, since fio's last reset."""

    ios: int = 0
    response: Histogram = _EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All counts at one instant. `runtime_ms`: time since the reset; `cpu_fraction`: of one core, mean of the jobs."""

    runtime_ms: int
    sides: Mapping[str, Side] = field(default_factory=dict)
    errors: int = 0
    first_error: str = ""
    cpu_fraction: float = 0.0
    cpu_s: float = 0.0

    @property
    def has_latencies(self) -> bool:
        """Whether there are response times."""
        return any(side.response.counts for side in self.sides.values())

    @property
    def ios(self) -> int:
        """I/Os of both kinds."""
        return sum(side.ios for side in self.sides.values())


def snapshot(document: Mapping[str, Any], job: FioJob) -> Snapshot:
    """The counts in a document. TaskFault `fault` if a field is missing or not a number."""
    try:
        (group,) = document["jobs"]
        kinds = [name for name, there in (("read", job.reads), ("write", job.writes)) if there]
        sides = {name: _side(group[name]) for name in kinds}
        cpu = (_number(group["usr_cpu"]) + _number(group["sys_cpu"])) / 100.0
        failed = int(_number(group.get("total_err", 0)))
        error = int(_number(group.get("first_error", 0))) or int(_number(group.get("error", 0)))
        return Snapshot(
            runtime_ms=max(int(_number(group[name]["runtime"])) for name in kinds),
            sides=sides,
            errors=failed,
            first_error=os.strerror(error) if error else "",
            cpu_fraction=cpu,
            cpu_s=cpu * _number(group["job_runtime"]) / 1e3,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise garbled(f"{type(error).__name__}: {error}") from None


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return float(value)


def _side(data: Mapping[str, Any]) -> Side:
    latency = data["lat_ns"]
    return Side(ios=int(_number(data["total_ios"])), response=_histogram(latency))


def _histogram(latency: Mapping[str, Any]) -> Histogram:
    """Histogram of fio's bins. Without finished I/Os (N = 0) there are no bins."""
    bins = latency.get("bins") or {}
    total = int(_number(latency["N"]))
    if not total or not bins:
        return _EMPTY
    middles = np.asarray([int(name) for name in bins], dtype=np.int64)
    counts = np.asarray([int(_number(count)) for count in bins.values()], dtype=np.int64)
    dense = np.bincount(histogram.indices_of(middles), counts).astype(np.int64)
    return histogram.from_dense(
        dense,
        sum_ns=round(_number(latency["mean"]) * int(counts.sum())),
        min_ns=int(_number(latency["min"])),
        max_ns=int(_number(latency["max"])),
    )


def _since(before: Side, now: Side) -> Side:
    """The difference of two counts. Its minimum and maximum are exact to one bin only."""
    counts = dict(zip(now.response.indices, now.response.counts, strict=True))
    for index, count in zip(before.response.indices, before.response.counts, strict=True):
        counts[index] = counts.get(index, 0) - count
    kept = np.asarray(sorted(index for index, count in counts.items() if count > 0), dtype=np.int64)
    if not kept.size:
        return Side(ios=max(now.ios - before.ios, 0))
    low, high = int(histogram.lowest_ns(kept[:1])[0]), int(histogram.highest_ns(kept[-1:])[0])
    fresh = Histogram(
        indices=tuple(kept.tolist()),
        counts=tuple(counts[index] for index in kept.tolist()),
        sum_ns=max(now.response.sum_ns - before.response.sum_ns, 0),
        min_ns=max(low, now.response.min_ns),
        max_ns=min(high, now.response.max_ns),
    )
    return Side(ios=max(now.ios - before.ios, 0), response=fresh)


def whole_run(document: Mapping[str, Any]) -> tuple[Snapshot, dict[str, float]]:
    """The counts of all jobs of a run that has ended, and `iops`, `mb_per_s`, `read_iops`, `write_iops`. TaskFault."""
    try:
        jobs = list(document["jobs"])
        kinds = [name for name in ("read", "write") if any(_number(job[name]["total_ios"]) for job in jobs)] or ["read"]
        seconds = max(_number(job[name]["runtime"]) for job in jobs for name in kinds) / 1e3
        if seconds <= 0.0:
            raise garbled("it has measured no time")
        sides = {
            name: Side(
                ios=sum(int(_number(job[name]["total_ios"])) for job in jobs),
                response=histogram.merge(_histogram(job[name]["lat_ns"]) for job in jobs),
            )
            for name in kinds
        }
        if any(side.ios and not side.response.counts for side in sides.values()):
            raise garbled("it has no bins of `lat_ns`; is `--lat_percentiles=1` among the arguments?")
        moved = sum(_number(job[name]["io_bytes"]) for job in jobs for name in kinds)
        errors = sum(int(_number(job.get("total_err", 0))) for job in jobs)
    except (KeyError, TypeError, ValueError) as error:
        raise garbled(f"{type(error).__name__}: {error}") from None
    found = Snapshot(runtime_ms=round(seconds * 1e3), sides=sides, errors=errors)
    rates = {f"{name}_iops": side.ios / seconds for name, side in sides.items()}
    return found, {"iops": found.ios / seconds, "mb_per_s": moved / seconds / 1e6, **rates}


class FioRun:
    """One run of fio from its snapshots; times are ns of the agent's monotonic clock."""

    def __init__(self, windows: Windows, t0_ns: int) -> None:
        self._windows, self._t0_ns = windows, t0_ns
        self._last = Snapshot(runtime_ms=0)
        self._last_ns = t0_ns
        self._measuring = windows.ramp_up_s == 0.0
        self._seconds = 0
        self._second = -1

    def take(self, now: Snapshot, at_ns: int) -> LoadSecond | None:
        """The second that ends with this snapshot; None if it repeats the last one."""
        again = now.runtime_ms < self._last.runtime_ms or now.ios < self._last.ios
        # In its ramp fio counts I/Os without latencies; at its end all counts are reset.
        if again or (now.has_latencies and not self._measuring):
            self._measuring, self._last = True, Snapshot(runtime_ms=0)
        before = self._last
        self._last, self._last_ns = now, at_ns
        new_s = (now.runtime_ms - before.runtime_ms) / 1e3
        if new_s <= 0.0 or (new_s < SLIVER_S and now.ios == before.ios):
            return None
        start_ns = at_ns - round(new_s * 1e9)
        self._second = max(self._second + 1, round((start_ns - self._t0_ns) / 1e9))
        self._seconds += 1
        window: Literal["ramp_up", "measure"] = "measure" if self._measuring else "ramp_up"
        new = {name: _since(before.sides.get(name, Side()), side) for name, side in now.sides.items()}
        loads = tuple(_load(name, side, ()) for name, side in new.items())
        return LoadSecond(second=self._second, window=window, start_ns=start_ns, duration_s=new_s, transactions=loads)

    def result(self) -> LoadResult:
        """The result of the measure window. TaskFault `fault` if fio has not measured all of it."""
        last = self._last
        if last.runtime_ms < self._windows.measure_s * 1e3 * 0.99:
            raise TaskFault(
                "fault", f"fio measured only {last.runtime_ms / 1e3:.3g} s of {self._windows.measure_s:.3g} s"
            )
        start_ns = self._last_ns - last.runtime_ms * 1_000_000
        began_ns = start_ns - round(self._windows.ramp_up_s * 1e9)
        errors = ((last.first_error or "error", last.errors),) if last.errors else ()
        names = list(last.sides)
        return LoadResult(
            transactions=tuple(
                _load(name, side, errors if name == names[0] else ()) for name, side in last.sides.items()
            ),
            ended_in_window=last.ios,
            measure_start_ns=start_ns,
            measure_end_ns=self._last_ns,
            client_cpu_fraction=last.cpu_fraction,
            client_cpu_s=last.cpu_s,
            start_skew_ns=max(began_ns - self._t0_ns, 0),
            seconds_produced=self._seconds,
            first_errors=(last.first_error,) if last.errors else (),
        )


def _load(name: str, side: Side, errors: tuple[tuple[str, int], ...]) -> TransactionLoad:
    counts = TransactionCounts(name=name, ok=side.ios, errors=errors)
    return TransactionLoad(counts=counts, response=side.response, service=side.response, ended=side.ios)

"""The outputs of load generators -> the seconds and the result of a load. Pure.

- **pgbench**: the log of `--log` has a line for each transaction, `client number µs script epoch_s epoch_µs`, at its
  end; failed ones have a word in place of the time. Transactions count in the window that they ended in.
- **sysbench**: `--report-interval=1` has a line each second, `--histogram=on` the bins of all latencies; the summary
  has the exact number, sum, minimum and maximum. The run is the measure window.

Source: pgbench(1) of PostgreSQL 18, "Per-Transaction Logging"; the sources of sysbench 1.0.20.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from proveout.agent.errors import TaskFault
from proveout.core.data_classes import dataclass
from proveout.dsl.plan.stages import Windows
from proveout.dsl.workloads.program.parameters import TRANSACTION
from proveout.proto.wire import histogram
from proveout.proto.wire.results import Histogram, LoadSecond, TransactionCounts, TransactionLoad

_EMPTY = Histogram()
_SECOND = re.compile(r"\[ (\d+)s \] thds: \d+ tps: ([\d.]+) .*err/s: ([\d.]+)")
_SUMMARY = {
    "transactions": re.compile(r"^\s*transactions:\s+(\d+)\s", re.MULTILINE),
    "errors": re.compile(r"^\s*ignored errors:\s+(\d+)\s", re.MULTILINE),
    "seconds": re.compile(r"^\s*total time:\s+([\d.]+)s", re.MULTILINE),
    "min_ms": re.compile(r"^\s*min:\s+([\d.]+)", re.MULTILINE),
    "sum_ms": re.compile(r"^\s*sum:\s+([\d.]+)", re.MULTILINE),
    "max_ms": re.compile(r"^\s*max:\s+([\d.]+)", re.MULTILINE),
}
_BIN = re.compile(r"^\s*([\d.]+) \|\**\s+(\d+)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The measure window of a generator: its start and end on the host's monotonic clock, ns, and its transactions."""

    start_ns: int
    end_ns: int
    load: TransactionLoad
    seconds: tuple[LoadSecond, ...]


def garbled(program: str, why: str) -> TaskFault:
    """The fault for output that cannot be parsed."""
    way_out = "see the options that `output` of the workload needs, in the reference"
    return TaskFault("fault", f"cannot parse the output of {program}: {why}", way_out=way_out)


def load_of(ok: int, response: Histogram = _EMPTY, failed: int = 0) -> TransactionLoad:
    """The transactions of a window or a second, in the only type that a program has."""
    errors = (("failed", failed),) if failed else ()
    counts = TransactionCounts(name=TRANSACTION, ok=ok, errors=errors)
    return TransactionLoad(counts=counts, response=response, service=response, ended=ok)


# ---- pgbench ---------------------------------------------------------------------------------------------------------


def pgbench(logs: Iterable[str], windows: Windows, t0_ns: int, ahead_ns: int) -> Measured:
    """The window, from the logs of all threads; `ahead_ns`: the wall clock minus the monotonic one. TaskFault."""
    ended, took, failed = _transactions(logs)
    if not ended.size:
        raise garbled("pgbench", "its log has no transactions; is `--log` among the arguments?")
    after_ns = ended - ahead_ns - t0_ns
    start_ns, end_ns = round(windows.ramp_up_s * 1e9), round((windows.ramp_up_s + windows.measure_s) * 1e9)
    inside = (after_ns >= start_ns) & (after_ns < end_ns)
    failures = int((inside & failed).sum())
    chosen = took[inside & ~failed]
    return Measured(
        start_ns=t0_ns + start_ns,
        end_ns=t0_ns + end_ns,
        load=load_of(int(chosen.size), _histogram(chosen), failures),
        seconds=tuple(_seconds(after_ns[~failed], took[~failed], windows, t0_ns)),
    )


def _transactions(
    logs: Iterable[str],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """(end on the wall clock in ns, latency in ns, whether it failed) of each transaction."""
    ended: list[int] = []
    took: list[int] = []
    failed: list[bool] = []
    for number, line in enumerate((line for log in logs for line in log.splitlines()), 1):
        words = line.split()
        try:
            ended.append(int(words[4]) * 1_000_000_000 + int(words[5]) * 1_000)
            good = words[2].isdecimal()
            took.append(int(words[2]) * 1_000 if good else 0)
            failed.append(not good)
        except (IndexError, ValueError):
            raise garbled("pgbench", f"line {number} of its log is {line[:80]!r}") from None
    return np.asarray(ended, dtype=np.int64), np.asarray(took, dtype=np.int64), np.asarray(failed, dtype=np.bool_)


def _histogram(times_ns: npt.NDArray[np.int64]) -> Histogram:
    if not times_ns.size:
        return _EMPTY
    dense = np.bincount(histogram.indices_of(times_ns)).astype(np.int64)
    return histogram.from_dense(
        dense, sum_ns=int(times_ns.sum()), min_ns=int(times_ns.min()), max_ns=int(times_ns.max())
    )


def _seconds(
    after_ns: npt.NDArray[np.int64], took_ns: npt.NDArray[np.int64], windows: Windows, t0_ns: int
) -> Iterator[LoadSecond]:
    """The seconds from T0 to the end of the measure window, also those without a transaction."""
    measured_s = windows.ramp_up_s + windows.measure_s
    number = after_ns // 1_000_000_000
    for second in range(int(np.ceil(measured_s))):
        chosen = took_ns[number == second]
        yield LoadSecond(
            second=second,
            window="measure" if second >= windows.ramp_up_s else "ramp_up",
            start_ns=t0_ns + second * 1_000_000_000,
            duration_s=min(1.0, measured_s - second),
            transactions=(load_of(int(chosen.size), _histogram(chosen)),),
        )


# ---- sysbench --------------------------------------------------------------------------------------------------------


def sysbench(output: str, ramp_up_s: float, t0_ns: int, start_ns: int) -> Measured:
    """The window of a run that began at `start_ns`. TaskFault `fault`."""
    found = {name: pattern.search(output) for name, pattern in _SUMMARY.items()}
    missing = next((name for name, match in found.items() if match is None), None)
    if missing:
        raise garbled("sysbench", f"its summary has no {missing}")
    numbers = {name: float(match[1]) for name, match in found.items() if match is not None}
    ok, bins = int(numbers["transactions"]), _BIN.findall(output)
    if ok and not bins:
        raise garbled("sysbench", "it has no histogram; is `--histogram=on` among the arguments?")
    return Measured(
        start_ns=start_ns,
        end_ns=start_ns + round(numbers["seconds"] * 1e9),
        load=load_of(ok, _bins(bins, numbers), int(numbers["errors"])),
        seconds=tuple(_reported(output, ramp_up_s, t0_ns, start_ns)),
    )


def _bins(bins: Sequence[tuple[str, str]], numbers: dict[str, float]) -> Histogram:
    if not bins:
        return _EMPTY
    middles = np.asarray([round(float(middle) * 1e6) for middle, _ in bins], dtype=np.int64)
    counts = np.asarray([int(count) for _, count in bins], dtype=np.int64)
    dense = np.bincount(histogram.indices_of(middles), counts).astype(np.int64)
    return histogram.from_dense(
        dense,
        sum_ns=round(numbers["sum_ms"] * 1e6),
        min_ns=round(numbers["min_ms"] * 1e6),
        max_ns=round(numbers["max_ms"] * 1e6),
    )


def _reported(output: str, ramp_up_s: float, t0_ns: int, start_ns: int) -> Iterator[LoadSecond]:
    for match in _SECOND.finditer(output):
        begins_ns = start_ns + (int(match[1]) - 1) * 1_000_000_000
        yield LoadSecond(
            second=max(round((begins_ns - t0_ns) / 1e9), 0),
            window="measure",
            start_ns=begins_ns,
            duration_s=1.0,
            transactions=(load_of(round(float(match[2])), _EMPTY, round(float(match[3]))),),
        )

"""The outputs of load generators -> the seconds and the result of a load. Pure."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from itertools import chain, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from proveout.agent.capture.command_values import decoded, parse
from proveout.agent.capture.query_values import NoValue, ValueTable, number, read_values
from proveout.agent.errors import TaskFault
from proveout.agent.tools.fio import binned
from proveout.core.data_classes import record
from proveout.dsl.plan.stages import Windows
from proveout.dsl.workloads.program import PROCEDURES, RESERVED, TRANSACTION, LogEntry, Program, ProgramOutput
from proveout.proto.wire import histogram
from proveout.proto.wire.results import Histogram, LoadSecond, TransactionCounts, TransactionLoad

# - **pgbench**: the log of `--log` has a line for each transaction, `client number µs script epoch_s epoch_µs`, at its
#   end; failed ones have a word in place of the time. Transactions count in the window that they ended in.
# - **sysbench**: `--report-interval=1` has a line each second, `--histogram=on` the bins of all latencies; the summary
#   has the exact number, sum, minimum and maximum. The run is the measure window.
#
# Source: pgbench(1) of PostgreSQL 18, "Per-Transaction Logging"; the sources of sysbench 1.0.20.

_EMPTY = Histogram()
_SECOND = re.compile(r"\[ (\d+)s \] thds: \d+ tps: ([\d.]+) [^\n\[]*err/s: ([\d.]+)")
_SUMMARY = {
    "transactions": re.compile(r"^[ \t]*transactions:\s+(\d+)\s", re.MULTILINE),
    "errors": re.compile(r"^[ \t]*ignored errors:\s+(\d+)\s", re.MULTILINE),
    "seconds": re.compile(r"^[ \t]*total time:\s+([\d.]+)s", re.MULTILINE),
    "min_ms": re.compile(r"^[ \t]*min:\s+([\d.]+)", re.MULTILINE),
    "sum_ms": re.compile(r"^[ \t]*sum:\s+([\d.]+)", re.MULTILINE),
    "max_ms": re.compile(r"^[ \t]*max:\s+([\d.]+)", re.MULTILINE),
}
_BIN = re.compile(r"^[ \t]*([\d.]+) \|\**[ \t]+(\d+)[ \t\r]*$", re.MULTILINE)
"""None goes beyond its line, or beyond the next `[`: the time for any output grows with its length only."""


@record
class Measured:
    """The measure window of a generator: its start and end on the host's monotonic clock, ns, and its transactions."""

    start_ns: int
    end_ns: int
    load: TransactionLoad
    seconds: tuple[LoadSecond, ...] = ()


def garbled(program: str, why: str) -> TaskFault:
    """The fault for output that cannot be parsed."""
    way_out = "see the options that `output` of the workload needs, in the reference"
    return TaskFault("fault", f"cannot parse the output of {program}: {why}", way_out=way_out)


COUNT_END = 2**53
"""From here on coordinators take no count."""


def load_of(ok: int, response: Histogram = _EMPTY, failed: int = 0) -> TransactionLoad:
    """The transactions of a window or a second, in the only type that a program has. NoValue for impossible numbers."""
    if max(ok, failed, sum(response.counts)) >= COUNT_END or min(response.counts, default=0) < 0:
        raise NoValue("its number of transactions is impossible")
    errors = (("failed", failed),) if failed else ()
    counts = TransactionCounts(name=TRANSACTION, ok=ok, errors=errors)
    return TransactionLoad(counts=counts, response=response, service=response, ended=ok)


# ---- pgbench ---------------------------------------------------------------------------------------------------------


def pgbench(logs: Iterable[bytes], windows: Windows, t0_ns: int, ahead_ns: int) -> Measured:
    """The window, from the logs of all threads; `ahead_ns`: the wall clock minus the monotonic one. TaskFault."""
    ended, took, failed = _transactions(logs)
    if not ended.size:
        raise garbled("pgbench", "its log has no transactions; is `--log` among the arguments?")
    after_ns = ended - ahead_ns - t0_ns
    if after_ns.max() < 0:
        raise garbled("pgbench", "no time of its log is in this run; is `--aggregate-interval` among the arguments?")
    start_ns, end_ns = round(windows.ramp_up_s * 1e9), round(windows.measured_to_s * 1e9)
    inside = (after_ns >= start_ns) & (after_ns < end_ns)
    failures = int((inside & failed).sum())
    chosen = took[inside & ~failed]
    return Measured(
        start_ns=t0_ns + start_ns,
        end_ns=t0_ns + end_ns,
        load=load_of(int(chosen.size), histogram.bin_ns(chosen), failures),
        seconds=tuple(_seconds(after_ns[~failed], took[~failed], windows, t0_ns)),
    )


def _transactions(
    logs: Iterable[bytes],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """(end on the wall clock in ns, latency in ns, whether it failed) of each transaction."""
    ended, took, failed = array("q"), array("q"), array("b")
    for line_number, line in enumerate(chain.from_iterable(map(BytesIO, logs)), 1):
        words = line.split()
        try:
            ended.append(int(words[4]) * 1_000_000_000 + int(words[5]) * 1_000)
            good = words[2].isdigit()
            took.append(int(words[2]) * 1_000 if good else 0)
            failed.append(not good)
        except (IndexError, ValueError, OverflowError):
            found = line[:80].decode(errors="replace").rstrip()
            raise garbled("pgbench", f"line {line_number} of its log is {found!r}") from None
    return np.asarray(ended), np.asarray(took), np.asarray(failed).astype(np.bool_)


def _seconds(
    after_ns: npt.NDArray[np.int64], took_ns: npt.NDArray[np.int64], windows: Windows, t0_ns: int
) -> Iterator[LoadSecond]:
    """The seconds from T0 to the end of the measure window, also those without a transaction."""
    measured_s = windows.measured_to_s
    seconds = int(np.ceil(measured_s))
    order = np.argsort(after_ns)
    edges = np.minimum(np.arange(seconds + 1) * 1_000_000_000, round(measured_s * 1e9))
    begins = np.searchsorted(after_ns, edges, sorter=order)
    for second in range(seconds):
        chosen = took_ns[order[begins[second] : begins[second + 1]]]
        yield LoadSecond(
            second=second,
            window="measure" if second >= windows.ramp_up_s else "ramp_up",
            start_ns=t0_ns + second * 1_000_000_000,
            duration_s=min(1.0, measured_s - second),
            transactions=(load_of(int(chosen.size), histogram.bin_ns(chosen)),),
        )


# ---- sysbench --------------------------------------------------------------------------------------------------------


def sysbench(output: str, t0_ns: int, start_ns: int) -> Measured:
    """The window of a run that began at `start_ns`. TaskFault `fault`."""
    found = {name: pattern.search(output) for name, pattern in _SUMMARY.items()}
    missing = next((name for name, match in found.items() if match is None), None)
    if missing:
        raise garbled("sysbench", f"its summary has no {missing}")
    bins = _BIN.findall(output)
    try:
        numbers = {name: float(match[1]) for name, match in found.items() if match is not None}
        ok = int(numbers["transactions"])
        if ok and not bins:
            raise garbled("sysbench", "it has no histogram; is `--histogram=on` among the arguments?")
        return Measured(
            start_ns=start_ns,
            end_ns=start_ns + round(numbers["seconds"] * 1e9),
            load=load_of(ok, _bins(bins, numbers), int(numbers["errors"])),
            seconds=tuple(_reported(output, t0_ns, start_ns)),
        )
    except (ValueError, OverflowError, NoValue) as error:
        raise garbled("sysbench", str(error)) from None


def _bins(bins: Sequence[tuple[str, str]], numbers: dict[str, float]) -> Histogram:
    if not bins:
        return _EMPTY
    return binned(
        [round(float(middle) * 1e6) for middle, _ in bins],
        [int(count) for _, count in bins],
        sum_ns=round(numbers["sum_ms"] * 1e6),
        min_ns=round(numbers["min_ms"] * 1e6),
        max_ns=round(numbers["max_ms"] * 1e6),
    )


def _reported(output: str, t0_ns: int, start_ns: int) -> Iterator[LoadSecond]:
    for match in _SECOND.finditer(output):
        begins_ns = start_ns + (int(match[1]) - 1) * 1_000_000_000
        yield LoadSecond(
            second=max(round((begins_ns - t0_ns) / 1e9), 0),
            window="measure",
            start_ns=begins_ns,
            duration_s=1.0,
            transactions=(load_of(round(float(match[2])), _EMPTY, round(float(match[3]))),),
        )


# - **A log** has a row for each interval of the run, such as each second, with the time of its end. A row counts in the
#   measure window when the middle of its interval lies in it; the interval begins where the one before ends. Rates and
#   counts give the throughput; the numbers of the plan are taken over the rows in the window.
# - **A summary** has the throughput of the whole window as a number, `tps` or `transactions`.
#
# Response times are numbers of the plan only: a mean or a percentile of an interval is not a distribution.

COVERED_MIN = 0.9
"""The share of the measure window that the rows of a log must cover."""


@record
class Interval:
    """A row of a log: its start and end, s after T0, and what happened in it."""

    start_s: float
    end_s: float
    ok: float
    errors: float
    row: int

    @property
    def middle_s(self) -> float:
        """The middle, by which it is in a window or not."""
        return (self.start_s + self.end_s) / 2.0


def declared(
    output: bytes, model: Program, windows: Windows, t0_ns: int, start_ns: int, *, unix_of_t0_s: float
) -> tuple[Measured, tuple[tuple[str, float], ...]]:
    """The window, and the numbers of the plan.

    `start_ns`: the start of the run with the measure window; `unix_of_t0_s`: T0 in seconds since 1970. TaskFault.
    """
    form = model.output
    assert isinstance(form, ProgramOutput)  # noqa: S101 - other outputs have parsers of their own
    try:
        table = parse(decoded(output), form.as_rows)
        if form.log is None:
            return _summary(table, model, windows, start_ns)
        began_s = (start_ns - t0_ns) / 1e9 if form.log.clock == "run" else -unix_of_t0_s
        intervals = list(_intervals(table, form.log, began_s))
        return _logged(table, intervals, model, windows, t0_ns)
    except NoValue as fault:
        raise TaskFault("fault", f"{model.argv[0]}: {fault.what}", way_out=fault.way_out) from None


# ---- a summary -------------------------------------------------------------------------------------------------------


def _summary(
    table: ValueTable, model: Program, windows: Windows, start_ns: int
) -> tuple[Measured, tuple[tuple[str, float], ...]]:
    found = dict(read_values(table, model.values))
    own = {name: found.pop(name) for name in RESERVED if name in found}
    ok = own["transactions"] if "transactions" in own else own["tps"] * windows.measure_s
    if ok < 0.0 or own.get("errors", 0.0) < 0.0:
        raise NoValue("its number of transactions is negative")
    first_ns = start_ns + (round(windows.ramp_up_s * 1e9) if model.has_own_windows else 0)
    measured = Measured(
        start_ns=first_ns,
        end_ns=first_ns + round(windows.measure_s * 1e9),
        load=load_of(round(ok), failed=round(own.get("errors", 0.0))),
    )
    return measured, tuple(found.items())


# ---- a log -----------------------------------------------------------------------------------------------------------


def _intervals(table: ValueTable, log: LogEntry, began_s: float) -> Iterator[Interval]:
    """The rows as intervals; the first one begins with the run, or is as long as the second one."""
    scale = 1e-3 if log.unit == "ms" else 1.0
    at = table.index(log.time)
    count, errors = (table.index(column) if column else None for column in (log.transactions or log.tps, log.errors))
    ends = [number(row[at]) * scale + began_s for row in table.rows]
    if any(later <= earlier for earlier, later in pairwise(ends)):
        raise NoValue("the times of its log do not grow", "`time` is the column with the end of each interval")
    length_s = ends[1] - ends[0] if len(ends) > 1 else 1.0
    start_s = ends[0] - length_s if ends else 0.0
    for index, (row, end_s) in enumerate(zip(table.rows, ends, strict=True)):
        assert count is not None  # noqa: S101 - the model has one of both
        ok = number(row[count]) * (1.0 if log.transactions else end_s - start_s)
        failed = number(row[errors]) if errors is not None else 0.0
        if ok < 0.0 or failed < 0.0:
            raise NoValue(f"row {index + 1} of its log has a negative number")
        yield Interval(start_s=start_s, end_s=end_s, ok=ok, errors=failed, row=index)
        start_s = end_s


def _logged(
    table: ValueTable, intervals: Sequence[Interval], model: Program, windows: Windows, t0_ns: int
) -> tuple[Measured, tuple[tuple[str, float], ...]]:
    end_s = windows.measured_to_s
    inside = [one for one in intervals if windows.ramp_up_s <= one.middle_s < end_s]
    covered_s = sum(one.end_s - one.start_s for one in inside)
    if covered_s < COVERED_MIN * windows.measure_s:
        what = f"its log has {covered_s:.3g} s of the {windows.measure_s:.3g} s of the measure window"
        raise NoValue(what, "check `time`, `clock` and `unit` of the log, and how long the program ran")
    cut = replace(table, rows=[table.rows[one.row] for one in inside])
    measured = Measured(
        start_ns=t0_ns + round(inside[0].start_s * 1e9),
        end_ns=t0_ns + round(inside[-1].end_s * 1e9),
        load=load_of(round(sum(one.ok for one in inside)), failed=round(sum(one.errors for one in inside))),
        seconds=tuple(_declared_seconds(intervals, windows, t0_ns)),
    )
    return measured, read_values(cut, model.values)


def _declared_seconds(intervals: Sequence[Interval], windows: Windows, t0_ns: int) -> Iterator[LoadSecond]:
    """Intervals of about one second as seconds, each with a number of its own; a log of longer ones has none."""
    second = -1
    for one in intervals:
        if not 0.5 <= one.end_s - one.start_s <= 1.5 or one.middle_s < 0.0:
            continue
        second = max(round(one.start_s), second + 1)
        yield LoadSecond(
            second=second,
            window="measure" if one.middle_s >= windows.ramp_up_s else "ramp_up",
            start_ns=t0_ns + round(one.start_s * 1e9),
            duration_s=one.end_s - one.start_s,
            transactions=(load_of(round(one.ok), failed=round(one.errors)),),
        )


# JSON stands between other lines of a script, so each object that begins a line is tried. Source: the modules for
# TPROC-C and for jobs of HammerDB 4 to 6 (schema hammerdb-job-report-v1).

_NOPM_FIRST = re.compile(r"System achieved (?P<nopm>\d+) NOPM from (?P<tpm>\d+) ")
_TPM_FIRST = re.compile(r"System achieved (?P<tpm>\d+) .{1,80}? TPM at (?P<nopm>\d+) NOPM")
_FAILED = re.compile(r"FINISHED FAILED|Error in Virtual User \d+", re.IGNORECASE)
_OBJECT = re.compile(r"^[ \t]*\{", re.MULTILINE)
_TIMES = ("calls", "min_ms", "avg_ms", "max_ms", "p50_ms", "p95_ms", "p99_ms")
OBJECTS_MAX = 100


def numbers(output: str) -> dict[str, float]:
    """`nopm`, `tpm`, and `neword_avg_ms` and the others where the output has times. NoValue without a result."""
    objects = list(_objects(output))
    result = _result(output, objects)
    if result is None:
        why = (
            "a virtual user failed" if _FAILED.search(output) else "is it the timed driver, and did it run to its end?"
        )
        raise NoValue(f"the output of HammerDB has no `System achieved … NOPM`: {why}")
    return result | _times(objects)


def _result(output: str, objects: list[Mapping[str, Any]]) -> dict[str, float] | None:
    found = [*_NOPM_FIRST.finditer(output), *_TPM_FIRST.finditer(output)]
    if found:
        last = max(found, key=lambda match: match.start())
        return {"nopm": number(last["nopm"]), "tpm": number(last["tpm"])}
    for document in reversed(objects):
        result = document.get("result")
        if isinstance(result, dict) and {"nopm", "tpm"} <= result.keys():
            return {name: number(result[name]) for name in ("nopm", "tpm")}
    return None


def _objects(output: str) -> Iterator[Mapping[str, Any]]:
    """The JSON objects of the output, the first ones."""
    decoder = json.JSONDecoder()
    end = 0
    for _, match in zip(range(OBJECTS_MAX), _OBJECT.finditer(output), strict=False):
        if match.start() < end:
            continue
        try:
            found, end = decoder.raw_decode(output, match.end() - 1)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield found


def _times(objects: list[Mapping[str, Any]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for document in objects:
        for name, row in _rows(document):
            if name.lower() in PROCEDURES:
                found |= {f"{name.lower()}_{time}": number(row[time]) for time in _TIMES if time in row}
    return found


def _rows(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(procedure, times): of the summary of all users, or of a job report."""
    times = document.get("response_times")
    if isinstance(times, dict) and isinstance(times.get("rows"), list):
        for row in times["rows"]:
            if isinstance(row, dict):
                yield str(row.get("name", "")), row
        return
    yield from ((str(name), row) for name, row in document.items() if isinstance(row, dict))

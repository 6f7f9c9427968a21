"""The output of a program whose columns the plan names -> the seconds, the result and the numbers of a load. Pure.

- **A log** has a row for each interval of the run, such as each second, with the time of its end. A row counts in the
  measure window when the middle of its interval lies in it; the interval begins where the one before ends. Rates and
  counts give the throughput; the numbers of the plan are taken over the rows in the window.
- **A summary** has the throughput of the whole window as a number, `tps` or `transactions`.

Response times are numbers of the plan only: a mean or a percentile of an interval is not a distribution.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from proveout.agent.errors import TaskFault
from proveout.agent.tools.generator_output import Measured, load_of
from proveout.agent.values.command_output import decoded, parse
from proveout.agent.values.value_table import NoValue, ValueTable, number, read_values
from proveout.core.data_classes import dataclass
from proveout.dsl.plan.stages import Windows
from proveout.dsl.workloads.program.parameters import RESERVED, LogEntry, Program, ProgramOutput
from proveout.proto.wire.results import LoadSecond

COVERED_MIN = 0.9
"""The share of the measure window that the rows of a log must cover."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
        seconds=(),
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
    end_s = windows.ramp_up_s + windows.measure_s
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
        seconds=tuple(_seconds(intervals, windows, t0_ns)),
    )
    return measured, read_values(cut, model.values)


def _seconds(intervals: Sequence[Interval], windows: Windows, t0_ns: int) -> Iterator[LoadSecond]:
    """Intervals of about one second as seconds; a log of longer ones has none."""
    for one in intervals:
        if not 0.5 <= one.end_s - one.start_s <= 1.5 or one.middle_s < 0.0:
            continue
        yield LoadSecond(
            second=max(round(one.start_s), 0),
            window="measure" if one.middle_s >= windows.ramp_up_s else "ramp_up",
            start_ns=t0_ns + round(one.start_s * 1e9),
            duration_s=one.end_s - one.start_s,
            transactions=(load_of(round(one.ok), failed=round(one.errors)),),
        )

"""Tables of a run: transactions, waits, lag, a search's probes.

Data flow: `RunView` -> rows of plain text (pure functions, below) -> `Rows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from proveout.core.numbers import column, lower_bound, microseconds, number, percent, safe, search_answer
from proveout.dsl.plan.loads import in_load
from proveout.proto.events import (
    IterationFinished,
    IterationId,
    SearchFinished,
    TransactionLine,
    TransactionSummary,
    WaitLine,
)
from proveout.tui.load_timeline import window
from proveout.tui.run_view import RunView
from proveout.tui.stage_view import at_least_us
from proveout.tui.widgets.rows import Column, Row

TRANSACTIONS = (
    Column("transaction"),
    Column("per s", right=True),
    Column("ok", rank=3, right=True),
    Column("logical", rank=4, right=True),
    Column("errors", rank=1, right=True),
    Column("p50", rank=2, right=True),
    Column("p95", rank=5, right=True),
    Column("p99", right=True),
)
WAITS = (
    Column("wait"),
    Column("class", rank=3),
    Column("seconds", rank=1, right=True),
    Column("DB time", right=True),
    Column("average", rank=2, right=True),
)
LAGS = (Column("lag"), Column("now", right=True), Column("slope per s", rank=1, right=True))
PROBES = (
    Column("search", rank=1),
    Column("probe", right=True),
    Column("phase", rank=2),
    Column("rate per s", right=True),
    Column("accepted"),
    Column("on what evidence"),
)


def transactions(view: RunView) -> list[Row]:
    """Every transaction type: of the current window so far, else of the newest finished iteration."""
    if view.transactions is not None:
        lines = view.transactions.transactions
        return _with_times([_moving(line) for line in lines], [_times(line) for line in lines])
    return [] if view.last is None else _of_iteration(view.last)


def _of_iteration(ended: IterationFinished) -> list[Row]:
    """Every transaction type of an iteration; a time of which only a lower bound is known is shown as that."""
    found, times, keys = [], [], ("p50_us", "p95_us", "p99_us")
    for item in ended.transactions:
        times.append(tuple(item.response.get(key) for key in keys))
        counts = [number(item.ok), number(item.logical_failures), number(sum(item.errors.values()))]
        found.append((safe(item.label), number(item.tps), *counts))
    rows = _with_times(found, times)
    return [(*row[:-3], *_bounded(ended, item, row[-3:])) for row, item in zip(rows, ended.transactions, strict=True)]


def _bounded(ended: IterationFinished, item: TransactionSummary, times: Row) -> Row:
    path = in_load(f"loads.{item.load}" if item.load else "", f"transactions.{item.name}")
    paths = (f"{path}.response.{key}" for key in ("p50_us", "p95_us", "p99_us"))
    bounds = (at_least_us(ended, path) for path in paths)
    return tuple(lower_bound(bound) if cell == "-" else cell for cell, bound in zip(times, bounds, strict=True))


_Times: TypeAlias = tuple[float | None, ...]


def _with_times(rows: Sequence[Row], times: Sequence[_Times]) -> list[Row]:
    """The rows with their response times, given in µs: one unit in each column."""
    columns = [column("_us", values) for values in zip(*times, strict=True)]
    return [(*row, *cells) for row, cells in zip(rows, zip(*columns, strict=True), strict=True)]


def _moving(line: TransactionLine) -> Row:
    counts = (number(line.ok), number(line.logical_failures), number(line.errors))
    return (safe(line.name), number(line.tps), *counts)


def _times(line: TransactionLine) -> _Times:
    return (line.p50_us, line.p95_us, line.p99_us) if line.ok + line.logical_failures else (None, None, None)


def transactions_of(view: RunView) -> str:
    """The title of the table of transactions: its iteration and window."""
    if view.transactions is not None:
        now = view.transactions
        if now.window == "measure":
            return f"transactions: {_name(now.id)}, measure window so far, {now.seconds:.0f} s"
        going, gone_s = view.iteration, view.now_unix_s - view.iteration_began_unix_s
        is_over = going is not None and window(going, gone_s)[0] not in ("starts", "ramp-up")
        return f"transactions: {_name(now.id)}, {'newest are of the ' if is_over else ''}ramp-up, which does not count"
    return f"transactions: {_ended(view)}"


def waits_of(view: RunView) -> str:
    """The title of the table of waits: its iteration and window."""
    if view.waits:
        now = next(iter(view.waits.values()))
        return f"waits: {_name(now.id)}, measure window so far, {now.seconds:.0f} s"
    return f"waits: {_ended(view)}"


def _name(identity: IterationId) -> str:
    again = f", attempt {identity.attempt}" if identity.attempt > 1 else ""
    return f"{safe(identity.stage)}, {identity.rung} thr, #{identity.repeat}{again}"


def _ended(view: RunView) -> str:
    if view.last is None:
        return "no iteration yet"
    return f"{_name(view.last.id)}, {'which has ended' if view.last.valid else '✗ INVALID'}"


def waits(view: RunView) -> list[Row]:
    """The top waits: of the measure window so far, else of the newest finished iteration."""
    many = len(view.waits) > 1
    lines = [(f"{name}: " if many else "", line) for name, tick in view.waits.items() for line in tick.waits]
    if not lines and not many:
        lines = [("", line) for line in (view.last.waits if view.last and not view.waits else ())]
    if not lines:
        reasons = ("no session was seen to wait", "or its user may not see those of others")
        return _nothing(view, "waits", WAITS, *reasons)
    averages = column("_us", [line.average_us for _, line in lines])
    return [(*_wait(line, where), average) for (where, line), average in zip(lines, averages, strict=True)]


def _nothing(view: RunView, kind: str, columns: Sequence[Column], *reasons: str) -> list[Row]:
    """Rows with the reason that a table has no reading of a kind of capture; [] before the first iteration."""
    begun = view.iteration or view.last
    stage = None if begun is None else view.stage(begun.id.stage)
    if stage is None:
        return []
    if kind not in stage.captured:
        reasons = (f"{safe(stage.id)} has no capture of kind {kind}",)
    elif view.iteration is not None and not (kind == "waits" and view.waits):
        reasons = ("no reading in this iteration yet",)
    return [(reason, *[""] * (len(columns) - 1)) for reason in reasons]


def _wait(line: WaitLine, where: str) -> Row:
    spent, share = number(line.seconds), percent(line.db_time_fraction)
    return (safe(f"{where}{line.event}"), safe(line.wait_class), spent, share)


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Least squares over (s, value); None from fewer than three points."""
    if len(points) < 3:
        return None
    middle_x = sum(x for x, _ in points) / len(points)
    middle_y = sum(y for _, y in points) / len(points)
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    return sum((x - middle_x) * (y - middle_y) for x, y in points) / spread if spread > 0.0 else None


def _signed(slope_s: float | None) -> str:
    """A slope of lag per second with its sign."""
    return "-" if slope_s is None else f"{'+' if slope_s > 0.0 else ''}{microseconds(slope_s * 1e6)}"


def lags_of(view: RunView) -> str:
    """The title of the table of lags: its iteration."""
    return f"lag: {_name(view.iteration.id)}, so far" if view.iteration is not None else f"lag: {_ended(view)}"


def lags(view: RunView) -> list[Row]:
    """Each capture of lag: the newest value, and its slope in this iteration."""
    if not view.lags:
        return _nothing(view, "lag", LAGS, "shown while an iteration runs; the report has all readings")
    newest = column("_us", [points[-1][1] * 1e6 for points in view.lags.values()])
    return [
        (safe(name), now, _signed(slope(points))) for (name, points), now in zip(view.lags.items(), newest, strict=True)
    ]


def probes(view: RunView) -> list[Row]:
    """The probes of every search, the one under way, and its answer."""
    if view.stages and all(stage.kind != "search" for stage in view.stages):
        return [("no stage of the plan is a search", *[""] * (len(PROBES) - 1))]
    found: list[Row] = []
    for stage in view.stages:
        for probe in stage.probes:
            said = "✓ yes" if probe.accepted else "✗ no"
            numbers = (str(probe.probe), probe.phase, number(probe.rate))
            found.append((safe(stage.id), *numbers, said, safe(probe.evidence)))
        if view.iteration is not None and view.iteration.id.stage == stage.id and stage.kind == "search":
            going = view.iteration
            found.append((safe(stage.id), str(going.id.repeat), "▶ running", number(going.rate), "", ""))
        if stage.search is not None:
            answer = stage.search
            found.append((safe(stage.id), "answer", "", *_answer(answer), safe(answer.reason)))
    return found


def _answer(answer: SearchFinished) -> tuple[str, str]:
    """The rate of an answer and its interval, or that there is none."""
    shown = search_answer(answer.rate, answer.upper, answer.confirmations, answer.outcome)
    return (number(answer.rate), shown.partition(" ")[2]) if answer.rate is not None else ("", shown)

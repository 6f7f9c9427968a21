"""Tables that get all rows and write only changed cells: transactions, waits, lag, probes, loads, hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby, islice
from statistics import linear_regression
from typing import TypeAlias

from rich.cells import cell_len
from rich.text import Text
from textual.geometry import Size
from textual.widgets import DataTable

from proveout.core.data_classes import dataclass
from proveout.core.numbers import column, lower_bound, microseconds, number, percent, safe, size, sought, whole
from proveout.dsl.plan.loads import in_load
from proveout.proto.events import (
    IterationFinished,
    IterationId,
    LoadLine,
    SearchFinished,
    TransactionsTick,
    TransactionSummary,
    WaitLine,
    WaitsTick,
)
from proveout.tui.header import bar
from proveout.tui.live_load import live_numbers, window
from proveout.tui.run_view import (
    CPU,
    DISK,
    NETWORK,
    HostView,
    LoadView,
    Readings,
    RunView,
    at_least_us,
    is_silent,
    newest,
    rung_label,
)
from proveout.tui.style import ACCENT, MUTED, sign_style, text_line

Row: TypeAlias = tuple[str, ...]
CALM_ROWS = 32
"""A longer table changes in every second frame only."""
_GAP = 2
"""Cells between two columns."""
_LINE = "line"
_SLACK = 8
"""Cells by which a table may be wider than its rows need, so that it does not change with every number."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, whether it has numbers, its rank (0 stays, the highest is the first to go)."""

    title: str
    right: bool
    rank: int


def columns(layout: str, *titles: str) -> tuple[Column, ...]:
    """The columns with these titles; `layout` has a word for each: `l` for text or `r` for numbers, and its rank."""
    return tuple(
        Column(title, word[0] == "r", int(word[1:])) for word, title in zip(layout.split(), titles, strict=True)
    )


def column_widths(columns: Sequence[Column], rows: Sequence[Row]) -> list[int]:
    """The cells that each column needs, without its padding."""
    return [
        max(cell_len(column.title), max((cell_len(row[place]) for row in rows), default=0))
        for place, column in enumerate(columns)
    ]


def shown_columns(columns: Sequence[Column], widths: Sequence[int], width: int) -> tuple[int, ...]:
    """The places of the columns that fit into `width` cells."""
    left = list(range(len(columns)))
    while sum(widths[place] + _GAP for place in left) > width:
        worst = max(left, key=lambda place: (columns[place].rank, place))
        if columns[worst].rank == 0:
            break
        left.remove(worst)
    return tuple(left)


class Rows(DataTable[Text]):
    """A table of the rows that `made` gives; `titled` gives its title."""

    def __init__(
        self,
        columns: Sequence[Column],
        made: Callable[[RunView], list[Row]],
        *,
        id: str,
        titled: Callable[[RunView], str] | None = None,
    ) -> None:
        super().__init__(id=id, cursor_type="row", zebra_stripes=True)
        self._all, self._made, self._titled = columns, made, titled
        self._places: tuple[int, ...] = ()
        self._widths: list[int] = []
        self._shown: list[Row] = []
        self._calm = False
        self._of: tuple[str, Size] | None = None
        self._title = ""
        self._view: RunView | None = None

    def watch_has_focus(self, has_focus: bool) -> None:
        """The cursor is there while it can be moved."""
        super().watch_has_focus(has_focus)
        self.show_cursor = has_focus

    def on_mount(self) -> None:
        """The columns that always stay."""
        self.show_cursor = False
        self._widths = column_widths(self._all, ())
        self._arrange(tuple(range(len(self._all))))

    def on_resize(self) -> None:
        """Select the columns again: the first ones are selected before the width is known."""
        if self._view is not None:
            self.show(self._view)

    def show(self, view: RunView) -> None:
        self._view = view
        if self._titled is not None and (title := self._titled(view)) != self._title:
            self._title, self.border_title = title, Text(title)
        if self._is_calm(view):
            return
        rows = self._made(view)
        places, wider = self._fitting(rows)
        if rows == self._shown and not wider:
            return
        if wider:
            self._arrange(places)
        elif len(rows) < len(self._shown):
            self.clear()
            self._shown = []
        for index, row in enumerate(rows):
            if index >= len(self._shown):
                self.add_row(self._line(row), key=str(index))
            elif row != self._shown[index]:
                self.update_cell(str(index), _LINE, self._line(row))
        self._shown = rows

    def _is_calm(self, view: RunView) -> bool:
        """Whether a long table leaves this frame out; never the first one of another part of the plan or size."""
        of = (view.shown, self.size)
        self._calm = of == self._of and len(self._shown) > CALM_ROWS and not self._calm
        self._of = of
        return self._calm

    def _fitting(self, rows: Sequence[Row]) -> tuple[tuple[int, ...], bool]:
        """The columns that fit, and whether they or their widths are others than now: wider, or much narrower."""
        needed = column_widths(self._all, rows)
        kept = [max(one, before) for one, before in zip(needed, self._widths, strict=True)]
        widths = needed if sum(kept) - sum(needed) > _SLACK else kept
        places = shown_columns(self._all, widths, self.scrollable_content_region.width or 1 << 16)
        changed = places != self._places or widths != self._widths
        self._widths = widths
        return places, changed

    def _arrange(self, places: tuple[int, ...]) -> None:
        self.clear(columns=True)
        self._places, self._shown = places, []
        titles = tuple(column.title for column in self._all)
        width = sum(self._widths[place] + _GAP for place in places) - _GAP
        self.add_column(self._line(titles, head=True), width=max(width, 0), key=_LINE)

    def _line(self, row: Row, *, head: bool = False) -> Text:
        """The shown cells of a row, each as wide as its column."""
        text = text_line()
        for index, place in enumerate(self._places):
            column, cell = self._all[place], row[place]
            blank = " " * (self._widths[place] - cell_len(cell))
            style = "" if head else sign_style(cell) or (MUTED if cell == "-" else "" if column.title else ACCENT)
            text.append((" " * _GAP if index else "") + (blank if column.right else ""))
            text.append(cell, style=style)
            text.append("" if column.right else blank)
        return text


TRANSACTIONS = columns(
    "l0 r0 r3 r4 r1 r2 r5 r0", "transaction", "per s", "ok", "logical", "errors", "p50", "p95", "p99"
)
WAITS = columns("l0 l3 r1 r0 l4 r2", "wait", "class", "seconds", "DB time", "", "average")
TOP_WAITS = 10
LAGS = columns("l0 r0 l2 r1", "lag", "now", "", "slope per s")
PROBES = columns("l1 r0 l2 r0 l0 l0", "search", "probe", "phase", "level", "accepted", "on what evidence")


PERCENTILES = ("p50_us", "p95_us", "p99_us")
_Times: TypeAlias = tuple[float | None, ...]


def transactions(view: RunView) -> list[Row]:
    """Every transaction type: of the current window so far, else of the newest finished iteration, where a time of
    which only a lower bound is known is shown as that."""
    if view.transactions is not None:
        lines = view.transactions.transactions
        found = [_counts(one.name, one.tps, one.ok, one.logical_failures, one.errors) for one in lines]
        return _with_times(found, [tuple(getattr(one, key) for key in PERCENTILES) for one in lines])
    if (last := view.last) is None:
        return []
    of = last.transactions
    found = [_counts(one.label, one.tps, one.ok, one.logical_failures, sum(one.errors.values())) for one in of]
    rows = _with_times(found, [tuple(one.response.get(key) for key in PERCENTILES) for one in of])
    return [(*row[:-3], *_bounded(last, one, row[-3:])) for row, one in zip(rows, of, strict=True)]


def _counts(name: str, tps: float, ok: int, failed: int, errors: int) -> Row:
    """The cells before the times; the share of logical failures among the answers is marked where nothing succeeded."""
    share = percent(failed / (ok + failed) if ok + failed else 0.0)
    return safe(name), number(tps), number(ok), f"{'✗ ' if failed and not ok else ''}{share}", number(errors)


def _bounded(ended: IterationFinished, item: TransactionSummary, times: Row) -> Row:
    path = in_load(f"loads.{item.load}" if item.load else "", f"transactions.{item.name}")
    bounds = (at_least_us(ended, f"{path}.response.{key}") for key in PERCENTILES)
    return tuple(lower_bound(bound) if cell == "-" else cell for cell, bound in zip(times, bounds, strict=True))


def _with_times(rows: Sequence[Row], times: Sequence[_Times]) -> list[Row]:
    """The rows with their response times, given in µs: one unit in each column."""
    columns = [column("_us", values) for values in zip(*times, strict=True)]
    return [(*row, *cells) for row, cells in zip(rows, zip(*columns, strict=True), strict=True)]


def transactions_of(view: RunView) -> str:
    """The title of the table of transactions: its iteration and window."""
    now = view.transactions
    if now is None:
        return f"transactions: {_ended(view)}"
    if now.window == "measure":
        return f"transactions: {_so_far(view, now)}"
    going, gone_s = view.iteration, view.now_unix_s - view.iteration_began_unix_s
    is_over = going is not None and window(going, gone_s)[0] not in ("starts", "ramp-up")
    return f"transactions: {_name(view, now.id)}, {'still of the ' if is_over else ''}ramp-up, not counted"


def waits_of(view: RunView) -> str:
    """The title of the table of waits: its iteration and window."""
    return f"waits: {_so_far(view, next(iter(view.waits.values()))) if view.waits else _ended(view)}"


def _so_far(view: RunView, now: TransactionsTick | WaitsTick) -> str:
    return f"{_name(view, now.id)}, measure window so far, {now.seconds:.0f} s"


def _name(view: RunView, identity: IterationId) -> str:
    again = f", attempt {identity.attempt}" if identity.attempt > 1 else ""
    return f"{safe(identity.stage)}, {rung_label(view.kind(identity.stage), identity.rung)}, #{identity.repeat}{again}"


def _ended(view: RunView) -> str:
    if view.last is None:
        return "no iteration yet"
    return f"{_name(view, view.last.id)}, {'which has ended' if view.last.valid else '✗ INVALID'}"


def waits(view: RunView) -> list[Row]:
    """The top waits: of the measure window so far, else of the newest finished iteration."""
    many = len(view.waits) > 1
    lines = [(f"{name}: " if many else "", line) for name, tick in view.waits.items() for line in tick.waits]
    if not lines and not many:
        ended = groupby(view.last.waits if view.last and not view.waits else (), lambda line: line.system)
        lines = [("", line) for _, of_system in ended for line in islice(of_system, TOP_WAITS)]
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
    return (safe(f"{where}{line.event}"), safe(line.wait_class), spent, share, bar(line.db_time_fraction, BAR))


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Least squares over (s, value); None from fewer than three points."""
    times, values = [at_s for at_s, _ in points], [value for _, value in points]
    return linear_regression(times, values).slope if len(points) > 2 and len({*times}) > 1 else None


def lags_of(view: RunView) -> str:
    """The title of the table of lags: its iteration."""
    return f"lag: {_name(view, view.iteration.id)}, so far" if view.iteration is not None else f"lag: {_ended(view)}"


def lags(view: RunView) -> list[Row]:
    """Each capture of lag: the newest value, and its slope in this iteration."""
    if not view.lags:
        return _nothing(view, "lag", LAGS, "shown while an iteration runs; the report has all readings")
    newest = column("_us", [points[-1][1] * 1e6 for points in view.lags.values()])
    found: list[Row] = []
    for (name, points), now in zip(view.lags.items(), newest, strict=True):
        each, slope_s = [value for _, value in points], slope(points)
        moves = "-" if slope_s is None else f"{'+' if slope_s > 0.0 else ''}{microseconds(slope_s * 1e6)}"
        found.append((safe(name), now, blocks(each, max(each)), moves))
    return found


def probes(view: RunView) -> list[Row]:
    """The probes of every search, the one under way, and its answer."""
    if view.stages and all(stage.kind != "search" for stage in view.stages):
        return [("no stage of the plan is a search", *[""] * (len(PROBES) - 1))]
    found: list[Row] = []
    for stage in view.stages:
        for probe in stage.probes:
            said = "✓ yes" if probe.accepted else "✗ no"
            numbers = (str(probe.probe), probe.phase, probe.level)
            found.append((safe(stage.id), *numbers, said, safe(probe.evidence)))
        if (going := view.iteration) is not None and going.id.stage == stage.id and stage.kind == "search":
            level = sought(going.id.rung, "threads") if going.rate is None else sought(going.rate, "rate")
            found.append((safe(stage.id), str(going.id.repeat), "", level, "▶ running", ""))
        if stage.search is not None:
            answer = stage.search
            found.append((safe(stage.id), "answer", "", *_answer(answer), safe(answer.reason)))
    return found


def _answer(answer: SearchFinished) -> tuple[str, str]:
    """The level of an answer and its interval, or that there is none."""
    if answer.rate is None:
        return "", answer.answer
    level, begins, interval = answer.answer.partition(" (")
    return level, f"{begins.strip()}{interval}"


LOADS = columns("l0 l3 r4 r0 r2 r2 r5 r1 r1", "load", "on", "threads", "TPS", "of", "p50", "p95", "p99", "errors/s")


def rows(view: RunView) -> list[Row]:
    """The loads of the iteration under way, with its newest second; [] where the stage has one."""
    going = view.iteration
    stage = None if going is None else view.stage(going.id.stage)
    if going is None or stage is None or not stage.loads or (len(stage.loads) < 2 and not view.shown):
        return []
    lines = {line.name: line for line in view.newest.tick.loads} if view.newest is not None else {}
    found = [lines.get(load.name) for load in stage.loads]
    now = live_numbers(view)
    rate = going.rate if now is None else now.of
    times = [column("_us", [getattr(line, key) if line else None for line in found]) for key in PERCENTILES]
    return [
        _row(load, line, rate, each)
        for load, line, each in zip(stage.loads, found, zip(*times, strict=True), strict=True)
    ]


def _row(load: LoadView, line: LoadLine | None, rate: float | None, times: Row) -> Row:
    of = load.rate_of(rate)
    return (
        safe(load.name),
        safe(f"{load.workload} → {load.target}"),
        number(load.threads) if load.threads is not None else "share",
        "-" if line is None else whole(line.tps),
        "closed" if of is None else whole(of),
        *times,
        "-" if line is None else number(line.errors),
    )


class LoadRows(Rows):
    """The loads, where there are several."""

    def __init__(self, *, id: str) -> None:
        super().__init__(LOADS, rows, id=id)
        self.display = False

    def show(self, view: RunView) -> None:
        self.display = bool(rows(view))
        if self.display:
            super().show(view)


HOSTS_MAX = 128
BUSIEST = 20
BAR, SPARK = 8, 12
"""Cells of a bar and of a sparkline."""

HOSTS = columns(
    "l0 l5 l1 r0 l8 l7 r3 r2 l9 r4 l10 r6",
    "host", "role", "agent", "CPU", "", "", "memory", "disk r/w per s", "", "net in/out per s", "", "clock",
)  # fmt: skip
_NOTHING = ("-",) * (len(HOSTS) - 3)
_NUMBERS = len(HOSTS) - 4


def blocks(values: Sequence[float], highest: float, width: int = SPARK) -> str:
    """The newest values as blocks from 0 to `highest`, oldest first.

    >>> blocks([0.0, 0.5, 1.0], 1.0)
    '▁▅█'
    """
    signs = "▁▂▃▄▅▆▇█"
    if highest <= 0.0:
        return signs[0] * len(values[-width:])
    return "".join(signs[min(max(int(value / highest * 8), 0), 7)] for value in values[-width:])


def lease(host: HostView, lease_s: float, beat_s: float) -> str:
    """State of the agent and its lease; an agent that missed a beat is silent, with the time that is left."""
    if not host.up:
        return "· not yet"
    if not host.connected:
        return f"! dialling again, lease ends in {max(lease_s - host.silent_s, 0.0):.0f} s"
    if is_silent(host, beat_s):
        return f"! silent {host.silent_s:.0f} s of {lease_s:.0f}"
    return "✓ up"


def _host(host: HostView, lease_s: float, beat_s: float, before: str = "") -> Row:
    """A host; `before` its name: one of several on a machine, whose row has the numbers."""
    state = f"✗ LOST: {safe(host.lost)}" if host.lost else lease(host, lease_s, beat_s)
    numbers = ("",) * _NUMBERS if before else _numbers(host)
    clock = f"± {microseconds(host.uncertainty_ns / 1e3)}" if host.up else "-"
    return (f"{before}{safe(host.name)}", safe(", ".join(host.roles)), state, *numbers, clock)


def _numbers(host: HostView) -> Row:
    """CPU, memory, disk and network of the machine of a host."""
    now, history = newest(host), host.history
    busy, total = now.get(CPU), now.get("memory.total_bytes")
    memory = _sizes(now.get("memory.used_bytes"), total) if total else "-"
    return (
        percent(busy),
        "" if busy is None else bar(busy, BAR),
        blocks(history.get(CPU, ()), 1.0),
        memory,
        _both(now, "disk.read_bytes_per_s", "disk.write_bytes_per_s"),
        blocks(history.get(DISK, ()), max(history.get(DISK, ()), default=0.0)),
        _both(now, "network.received_bytes_per_s", "network.sent_bytes_per_s"),
        blocks(history.get(NETWORK, ()), max(history.get(NETWORK, ()), default=0.0)),
    )


def _both(now: Readings, one: str, other: str) -> str:
    return _sizes(now.get(one), now.get(other)) if one in now or other in now else "-"


def _sizes(*values: float | None) -> str:
    """Numbers of bytes side by side, short: `977K / 47.7M`."""
    return " / ".join(size(value).removesuffix("iB").replace(" ", "") for value in values)


def hosts(view: RunView) -> list[Row]:
    """Every host, those of one machine together; of very many those that are lost and the busiest, after a line that
    sums all up."""
    everyone = list(view.hosts.values())
    if len(everyone) > HOSTS_MAX:
        return _summary(view, everyone)
    machines: dict[str, list[HostView]] = {}
    for host in everyone:
        machines.setdefault(host.machine or f"of {host.name}", []).append(host)
    found: list[Row] = []
    for group in machines.values():
        if len(group) == 1:
            found.append(_host(group[0], view.lease_s, view.beat_s))
            continue
        read = next((host for host in group if CPU in newest(host)), group[0])
        found.append(("one machine", f"{read.cores} cores", "", *_numbers(read), ""))
        for position, host in enumerate(group, 1):
            before = "└ " if position == len(group) else "├ "
            found.append(_host(host, view.lease_s, view.beat_s, before))
    return found


def _summary(view: RunView, everyone: Sequence[HostView]) -> list[Row]:
    lost = [host for host in everyone if host.lost]
    busy = sorted(((newest(host).get(CPU, 0.0), host.name) for host in everyone), reverse=True)
    middle = busy[len(busy) // 2][0]
    up = sum(host.up for host in everyone)
    count = (f"{len(everyone):,} hosts", "", f"{up:,} up, {len(lost):,} lost", f"median {percent(middle)}")
    head = (*count, bar(middle, BAR), *[""] * (len(HOSTS) - len(count) - 1))
    shown = [*lost[:BUSIEST], *(view.hosts[name] for _, name in busy[:BUSIEST] if not view.hosts[name].lost)]
    return [head, *(_host(host, view.lease_s, view.beat_s) for host in shown)]


def hosts_and_equipment(view: RunView) -> list[Row]:
    """`hosts`, then the equipment on which no agent runs."""
    return [*hosts(view), *((safe(name), "", f"none: {kind}", *_NOTHING) for name, kind in view.equipment)]

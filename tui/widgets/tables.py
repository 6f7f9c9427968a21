"""Tables of a run: transactions, hosts, waits, lag, a search's probes.

Data flow: `RunView` -> rows of plain text (pure functions, below) -> `Rows`, which writes only cells that have changed.
Above `HOSTS_MAX` hosts there is a summary with those that need looking at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from rich.text import Text
from textual.widgets import DataTable

from proveout.core.numbers import column, lower_bound, microseconds, number, percent, safe, search_answer, size
from proveout.dsl.plan.loads import in_load
from proveout.proto.events import (
    IterationFinished,
    IterationId,
    SearchFinished,
    TransactionLine,
    TransactionSummary,
    WaitLine,
)
from proveout.tui.host_view import HostView, is_silent, newest
from proveout.tui.run_view import RunView
from proveout.tui.stage_view import at_least_us

Row: TypeAlias = tuple[str, ...]
HOSTS_MAX = 128
BUSIEST = 20
CALM_ROWS = 32
"""A longer table changes in every second frame only, because drawing its cells is the main cost of the screen."""

_STYLES = {"✗": "bold red", "✓": "green", "!": "bold yellow"}

TRANSACTIONS: Row = ("transaction", "per s", "ok", "logical", "errors", "p50", "p95", "p99")
HOSTS: Row = ("host", "agent", "CPU", "memory", "clock ± bound", "disk r/w per s", "net in/out per s")
WAITS: Row = ("wait", "class", "seconds", "DB time", "average")
LAGS: Row = ("lag", "now", "slope per s")
PROBES: Row = ("search", "probe", "phase", "rate per s", "accepted", "on what evidence")


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
        return f"transactions: {_name(now.id)}, ramp-up, which does not count"
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


def _host(host: HostView, lease_s: float, beat_s: float) -> Row:
    now = newest(host)
    state = f"✗ LOST: {safe(host.lost)}" if host.lost else lease(host, lease_s, beat_s)
    total = now.get("memory.total_bytes")
    memory = _sizes(now.get("memory.used_bytes"), total) if total else "-"
    disk = _both(now, "disk.read_bytes_per_s", "disk.write_bytes_per_s")
    network = _both(now, "network.received_bytes_per_s", "network.sent_bytes_per_s")
    offset = f"{microseconds(host.offset_ns / 1e3)} ± {microseconds(host.uncertainty_ns / 1e3)}" if host.up else "-"
    return (safe(host.name), state, percent(now.get("cpu.busy_fraction")), memory, offset, disk, network)


def lease(host: HostView, lease_s: float, beat_s: float) -> str:
    """State of the agent and its lease; an agent that missed a beat is silent, with the time that is left."""
    if not host.up:
        return "· not yet"
    if not host.connected:
        return f"! dialling again, lease ends in {max(lease_s - host.silent_s, 0.0):.0f} s"
    if is_silent(host, beat_s):
        return f"! silent {host.silent_s:.0f} s of {lease_s:.0f}"
    return "✓ up, has lease" if lease_s else "✓ up"


def _both(now: Mapping[str, float], one: str, other: str) -> str:
    return _sizes(now.get(one), now.get(other)) if one in now or other in now else "-"


def _sizes(*values: float | None) -> str:
    """Numbers of bytes side by side, short: `977K / 47.7M`."""
    return " / ".join(size(value).removesuffix("iB").replace(" ", "") for value in values)


def hosts(view: RunView) -> list[Row]:
    """Every host; of very many those that are lost and the busiest, after a line that sums all up."""
    everyone = list(view.hosts.values())
    if len(everyone) <= HOSTS_MAX:
        return [_host(host, view.lease_s, view.beat_s) for host in everyone]
    lost = [host for host in everyone if host.lost]
    busy = sorted(
        ((host.readings.get("host", {}).get("cpu.busy_fraction", 0.0), host.name) for host in everyone), reverse=True
    )
    middle = percent(busy[len(busy) // 2][0])
    up = sum(host.up for host in everyone)
    head = (f"{len(everyone):,} hosts", f"{up:,} up, {len(lost):,} lost", f"median {middle}", "-", "-", "-", "-")
    shown = [*lost[:BUSIEST], *(view.hosts[name] for _, name in busy[:BUSIEST] if not view.hosts[name].lost)]
    return [head, *(_host(host, view.lease_s, view.beat_s) for host in shown)]


def hosts_and_equipment(view: RunView) -> list[Row]:
    """`hosts`, then the equipment on which no agent runs."""
    without = ("-",) * (len(HOSTS) - 2)
    return [*hosts(view), *((safe(name), f"none: {kind}", *without) for name, kind in view.equipment)]


def waits(view: RunView) -> list[Row]:
    """The top waits: of the measure window so far, else of the newest finished iteration."""
    many = len(view.waits) > 1
    lines = [(f"{name}: " if many else "", line) for name, tick in view.waits.items() for line in tick.waits]
    if not lines and not many:
        lines = [("", line) for line in (view.last.waits if view.last and not view.waits else ())]
    averages = column("_us", [line.average_us for _, line in lines])
    return [(*_wait(line, where), average) for (where, line), average in zip(lines, averages, strict=True)]


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
    newest = column("_us", [points[-1][1] * 1e6 for points in view.lags.values()])
    return [
        (safe(name), now, _signed(slope(points))) for (name, points), now in zip(view.lags.items(), newest, strict=True)
    ]


def probes(view: RunView) -> list[Row]:
    """The probes of every search, the one under way, and its answer."""
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


class Rows(DataTable[Text]):
    """A table that gets all rows and updates the cells that differ."""

    def __init__(
        self,
        head: Row,
        made: Callable[[RunView], list[Row]],
        *,
        id: str,
        titled: Callable[[RunView], str] | None = None,
    ) -> None:
        super().__init__(id=id, cursor_type="row", zebra_stripes=True)
        self._head, self._made, self._titled = head, made, titled
        self._shown: list[Row] = []
        self._calm = False
        self._title = ""

    def watch_has_focus(self, has_focus: bool) -> None:
        """The cursor is there while it can be moved."""
        super().watch_has_focus(has_focus)
        self.show_cursor = has_focus

    def on_mount(self) -> None:
        """The columns."""
        self.show_cursor = False
        for name in self._head:
            self.add_column(name, key=name)

    def show(self, view: RunView) -> None:
        """Bring the cells up to date."""
        if self._titled is not None and (title := self._titled(view)) != self._title:
            self._title, self.border_title = title, Text(title)
        rows = self._made(view)
        self._calm = len(rows) == len(self._shown) > CALM_ROWS and not self._calm
        if rows == self._shown or self._calm:
            return
        if len(rows) < len(self._shown):
            self.clear()
            self._shown = []
        for index, row in enumerate(rows):
            if index >= len(self._shown):
                self.add_row(*(self._cell(cell) for cell in row), key=str(index))
            elif row != self._shown[index]:
                self._change(index, row)
        self._shown = rows

    def _change(self, index: int, row: Row) -> None:
        for name, before, after in zip(self._head, self._shown[index], row, strict=True):
            if before != after:
                self.update_cell(str(index), name, self._cell(after), update_width=len(after) > len(before))

    @staticmethod
    def _cell(text: str) -> Text:
        style = _STYLES.get(text[:1], "")
        return Text(text, style=style, no_wrap=True)

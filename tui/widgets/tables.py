"""Tables of a run: transactions, hosts, waits, lag, a search's probes.

Data flow: `RunView` -> rows of plain text (pure functions, below) -> `Rows`, which writes only cells that have changed. Above
`HOSTS_MAX` hosts there is a summary with those that need looking at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from rich.text import Text
from textual.widgets import DataTable

from proveout.tui.model import HostView, RunView
from proveout.tui.text import latency, number, percent, safe, size

Row: TypeAlias = tuple[str, ...]
HOSTS_MAX = 128
BUSIEST = 20
CALM_ROWS = 32
"""A longer table changes in every second frame only: drawing its cells is most of what the screen costs."""

TRANSACTIONS: Row = ("transaction", "per s", "ok", "logical", "errors", "p50", "p95", "p99")
HOSTS: Row = ("host", "agent", "CPU", "memory", "disk r/w per s", "net in/out per s", "clock ± bound")
WAITS: Row = ("wait", "class", "seconds", "DB time", "average")
LAGS: Row = ("lag", "now", "slope per s")
PROBES: Row = ("search", "probe", "phase", "rate per s", "accepted", "on what evidence")


def transactions(view: RunView) -> list[Row]:
    """Every transaction type of the newest iteration that has ended."""
    found = []
    for item in view.last.transactions if view.last else ():
        times = [latency(item.response.get(key)) for key in ("p50_us", "p95_us", "p99_us")]
        counts = [number(item.ok), number(item.logical_failures), number(sum(item.errors.values()))]
        found.append((safe(item.name), number(item.tps), *counts, *times))
    return found


def readings(host: HostView) -> Mapping[str, float]:
    """The newest readings of all captures of a host, labelled ones added up (all disks, all interfaces)."""
    found: dict[str, float] = {}
    for taken in host.readings.values():
        totals: dict[str, float] = {}
        for name, value in taken.items():
            metric = name.partition("[")[0]
            totals[metric] = totals.get(metric, 0.0) + value
        found.update(totals)
    return found


def _host(host: HostView) -> Row:
    now = readings(host)
    state = f"✗ LOST: {safe(host.lost)}" if host.lost else ("✓ up" if host.up else "· not yet")
    total = now.get("memory.total_bytes")
    memory = f"{size(now.get('memory.used_bytes'))} of {size(total)}" if total else "-"
    disk = _both(now, "disk.read_bytes_per_s", "disk.write_bytes_per_s")
    network = _both(now, "network.received_bytes_per_s", "network.sent_bytes_per_s")
    offset = f"{latency(host.offset_ns / 1e3)} ± {latency(host.uncertainty_ns / 1e3)}" if host.up else "-"
    return (safe(host.name), state, percent(now.get("cpu.busy_fraction")), memory, disk, network, offset)


def _both(now: Mapping[str, float], one: str, other: str) -> str:
    return f"{size(now.get(one))} / {size(now.get(other))}" if one in now or other in now else "-"


def hosts(view: RunView) -> list[Row]:
    """Every host; of very many those that are lost and the busiest, after a line that sums all up."""
    everyone = list(view.hosts.values())
    if len(everyone) <= HOSTS_MAX:
        return [_host(host) for host in everyone]
    lost = [host for host in everyone if host.lost]
    busy = sorted(
        ((host.readings.get("host", {}).get("cpu.busy_fraction", 0.0), host.name) for host in everyone), reverse=True
    )
    middle = percent(busy[len(busy) // 2][0])
    up = sum(host.up for host in everyone)
    head = (f"{len(everyone):,} hosts", f"{up:,} up, {len(lost):,} lost", f"median {middle}", "-", "-", "-", "-")
    shown = [*lost[:BUSIEST], *(view.hosts[name] for _, name in busy[:BUSIEST] if not view.hosts[name].lost)]
    return [head, *(_host(host) for host in shown)]


def waits(view: RunView) -> list[Row]:
    """The top waits of the newest iteration that has ended."""
    found = view.last.waits if view.last else ()
    return [
        (safe(w.event), safe(w.wait_class), f"{w.seconds:.3g}", percent(w.db_time_fraction), latency(w.average_us))
        for w in found
    ]


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Least squares over (s, value); None from fewer than three points."""
    if len(points) < 3:
        return None
    middle_x = sum(x for x, _ in points) / len(points)
    middle_y = sum(y for _, y in points) / len(points)
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    return sum((x - middle_x) * (y - middle_y) for x, y in points) / spread if spread > 0.0 else None


def lags(view: RunView) -> list[Row]:
    """Each capture of lag: the newest value, and whether it grows in this iteration."""
    found: list[Row] = []
    for name, points in view.lags.items():
        grows = slope(points)
        found.append((safe(name), latency(points[-1][1] * 1e6), "-" if grows is None else f"{grows * 1e3:+.2f} ms"))
    return found


def probes(view: RunView) -> list[Row]:
    """The probes of every search, and its answer."""
    found: list[Row] = []
    for stage in view.stages:
        for probe in stage.probes:
            said = "✓ yes" if probe.accepted else "✗ no"
            numbers = (str(probe.probe), probe.phase, number(probe.rate))
            found.append((safe(stage.id), *numbers, said, safe(probe.evidence)))
        if stage.search is not None:
            answer = stage.search
            found.append((safe(stage.id), "answer", "", number(answer.rate), "", safe(answer.reason)))
    return found


class Rows(DataTable[Text]):
    """A table that is fed whole and changes only what differs."""

    def __init__(self, head: Row, made: Callable[[RunView], list[Row]], *, id: str) -> None:
        super().__init__(id=id, cursor_type="row", zebra_stripes=True)
        self._head, self._made = head, made
        self._shown: list[Row] = []
        self._calm = False

    def on_mount(self) -> None:
        """The columns."""
        for name in self._head:
            self.add_column(name, key=name)

    def show(self, view: RunView) -> None:
        """Bring the cells up to date."""
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
        style = "bold red" if text.startswith("✗") else "green" if text.startswith("✓") else ""
        return Text(text, style=style, no_wrap=True)

"""The hosts as rows of a table: role, agent, CPU, memory, disk and network with what they were, and the clock.

Data flow: `RunView.hosts` -> `hosts` (pure) -> `Rows`. Hosts on one machine stand under a row of it, which has the
numbers: they share its CPU and disks. Above `HOSTS_MAX` hosts there is a summary with those that need looking at.
"""

from __future__ import annotations

from collections.abc import Sequence

from proveout.core.numbers import microseconds, percent, safe, size
from proveout.tui.host_view import CPU, DISK, NETWORK, HostView, Readings, is_silent, newest
from proveout.tui.run_view import RunView
from proveout.tui.widgets.progress_bar import bar
from proveout.tui.widgets.rows import Column, Row

HOSTS_MAX = 128
BUSIEST = 20
BAR, SPARK = 8, 12
"""Cells of a bar and of a sparkline."""

HOSTS = (
    Column("host"),
    Column("role", rank=4),
    Column("agent", rank=1),
    Column("CPU", right=True),
    Column("", rank=7),
    Column("", rank=2),
    Column("memory", rank=8, right=True),
    Column("disk r/w per s", rank=3, right=True),
    Column("", rank=9),
    Column("net in/out per s", rank=5, right=True),
    Column("", rank=10),
    Column("clock", rank=6, right=True),
)
_NOTHING = ("-",) * (len(HOSTS) - 3)
_NUMBERS = len(HOSTS) - 4


def spark(values: Sequence[float], highest: float, width: int = SPARK) -> str:
    """The newest values as blocks from 0 to `highest`, oldest first.

    >>> spark([0.0, 0.5, 1.0], 1.0)
    '▁▅█'
    """
    blocks = "▁▂▃▄▅▆▇█"
    if highest <= 0.0:
        return blocks[0] * len(values[-width:])
    return "".join(blocks[min(max(int(value / highest * 8), 0), 7)] for value in values[-width:])


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
        spark(history.get(CPU, ()), 1.0),
        memory,
        _both(now, "disk.read_bytes_per_s", "disk.write_bytes_per_s"),
        spark(history.get(DISK, ()), max(history.get(DISK, ()), default=0.0)),
        _both(now, "network.received_bytes_per_s", "network.sent_bytes_per_s"),
        spark(history.get(NETWORK, ()), max(history.get(NETWORK, ()), default=0.0)),
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
        for number, host in enumerate(group, 1):
            before = "└ " if number == len(group) else "├ "
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

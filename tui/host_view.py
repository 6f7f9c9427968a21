"""View model of a host, a part of `RunView`: its agent, its clock, and the newest readings of its captures. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TypeAlias

from proveout.core.data_classes import dataclass
from proveout.proto.events import AgentLine, AgentLost, AgentUp, HostTick

HISTORY_MAX = 60
"""Readings that a sparkline can show."""
CPU, DISK, NETWORK = "cpu.busy_fraction", "disk bytes", "network bytes"
_SUMS = {
    DISK: ("disk.read_bytes_per_s", "disk.write_bytes_per_s"),
    NETWORK: ("network.received_bytes_per_s", "network.sent_bytes_per_s"),
}

Readings: TypeAlias = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostView:
    """A host: the state of its agent, for how long it is silent, its clock, and the newest readings by capture.

    `machine` is equal for hosts on one machine. `history`: earlier readings of CPU (0 … 1), disk and network (bytes per
    second), oldest first.
    """

    name: str
    roles: tuple[str, ...] = ()
    machine: str = ""
    up: bool = False
    cores: int = 0
    offset_ns: int = 0
    uncertainty_ns: int = 0
    lost: str = ""
    silent_s: float = 0.0
    connected: bool = True
    readings: Mapping[str, Readings] = field(default_factory=dict)
    history: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


def is_silent(host: HostView, beat_s: float) -> bool:
    """Whether an agent that is up has missed a beat, or has no connection."""
    return not host.connected or (beat_s > 0.0 and host.silent_s > 2.0 * beat_s)


def changed(host: HostView, event: AgentUp | AgentLost | HostTick) -> HostView:
    """The host after an event of it."""
    match event:
        case AgentUp():
            return replace(
                host,
                up=True,
                silent_s=0.0,
                connected=True,
                machine=event.machine_id,
                cores=event.cores,
                offset_ns=event.offset_ns,
                uncertainty_ns=event.uncertainty_ns,
                lost="",
            )
        case AgentLost():
            return replace(host, up=False, lost=event.reason)
        case HostTick():
            readings = {**host.readings, event.capture: event.readings}
            return replace(host, readings=readings, history=_lengthened(host.history, totals(event.readings)))


def answered(host: HostView, line: AgentLine) -> HostView:
    """The host after the state of its agent."""
    return replace(
        host,
        offset_ns=line.offset_ns,
        uncertainty_ns=line.uncertainty_ns,
        silent_s=line.silent_s,
        connected=line.connected,
    )


def newest(host: HostView) -> Readings:
    """The newest readings of all captures of a host, labelled ones added up (all disks, all interfaces)."""
    found: dict[str, float] = {}
    for taken in host.readings.values():
        found.update(totals(taken))
    return found


def totals(readings: Readings) -> dict[str, float]:
    """The readings of a capture, labelled ones added up."""
    found: dict[str, float] = {}
    for name, value in readings.items():
        metric = name.partition("[")[0]
        found[metric] = found.get(metric, 0.0) + value
    return found


def history_of(each: Sequence[Readings]) -> Mapping[str, tuple[float, ...]]:
    """The history of readings that follow each other."""
    history: Mapping[str, tuple[float, ...]] = {}
    for readings in each:
        history = _lengthened(history, readings)
    return history


def _lengthened(history: Mapping[str, tuple[float, ...]], now: Readings) -> Mapping[str, tuple[float, ...]]:
    """The history with the readings that this capture has; others stay."""
    more: dict[str, float] = {CPU: now[CPU]} if CPU in now else {}
    more |= {
        name: sum(now.get(one, 0.0) for one in parts) for name, parts in _SUMS.items() if any(p in now for p in parts)
    }
    if not more:
        return history
    return {**history, **{name: (*history.get(name, ()), value)[-HISTORY_MAX:] for name, value in more.items()}}

"""The wait events of a rung: one table a system over all its repeats. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from proveout.core.data_classes import dataclass
from proveout.core.json_data import number_at
from proveout.proto.events import IterationFinished, WaitLine


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitRow:
    """A foreground wait event over all repeats of a rung: seconds, the share of their DB time, and, where the server
    counts them, the waits and their mean time."""

    event: str
    wait_class: str
    seconds: float
    db_time_fraction: float
    waits: float | None = None
    average_us: float | None = None


def wait_systems(iterations: Sequence[IterationFinished]) -> tuple[str, ...]:
    """The systems whose waits were captured, the first one as ""."""
    return tuple(dict.fromkeys(line.system for item in iterations for line in item.waits))


def wait_rows(iterations: Sequence[IterationFinished], most: int = 10, system: str = "") -> list[WaitRow]:
    """The waits of several iterations in one table: seconds added, shares of the DB time of all of them."""
    path = ("waits", "systems", system, "db_time_s") if system else ("waits", "db_time_s")
    total = sum(number_at(item.metrics, *path) or 0.0 for item in iterations)
    found: dict[tuple[str, str], list[WaitLine]] = {}
    for line in (line for item in iterations for line in item.waits if line.system == system):
        found.setdefault((line.event, line.wait_class), []).append(line)
    rows = [_wait_row(*key, lines, total) for key, lines in found.items()] if total > 0.0 else []
    return sorted(rows, key=lambda row: -row.seconds)[:most]


def _wait_row(event: str, kind: str, lines: Sequence[WaitLine], total: float) -> WaitRow:
    spent = sum(line.seconds for line in lines)
    waits = sum(line.waits or 0.0 for line in lines) if all(line.waits for line in lines) else None
    return WaitRow(
        event=event,
        wait_class=kind,
        seconds=spent,
        db_time_fraction=spent / total,
        waits=waits,
        average_us=spent / waits * 1e6 if waits else None,
    )

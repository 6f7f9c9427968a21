"""Replay the live events of the iterations of a finished run, from its stored samples.

Data flow: the run's events + `samples/*.parquet` -> `Moved`, called with each `IterationStarted` of a replay -> seconds
of load and samples of captures -> the meters of `ticks` -> stamped events between the iteration's start and its end.
Data that was not stored (void iterations, the state of agents) is not replayed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from proveout.coordinator.live.ticks import HostMeter, LoadMeter, WaitsMeter
from proveout.coordinator.measure.samples import SamplesUnreadable, read_rows
from proveout.core.errors import NotInstalled
from proveout.dsl.plan.stages import measured_from_s
from proveout.proto.events import Event, IterationFinished, IterationId, IterationStarted, Notice, Stamped
from proveout.proto.wire.results import (
    CaptureSample,
    Histogram,
    LoadSecond,
    Reading,
    TransactionCounts,
    TransactionLoad,
)

_SECOND_NS = 1_000_000_000
_At = tuple[int, Event]
"""When, on the coordinator's clock, and what."""


class Moved:
    """Gives the live events of the iterations of the run in `samples`' directory; `events` are all that it
    journalled."""

    def __init__(self, events: Iterable[Stamped], samples: Path) -> None:
        self._samples = samples
        self._finished = {
            stamped.event.id: stamped for stamped in events if isinstance(stamped.event, IterationFinished)
        }

    def __call__(self, begun: Stamped) -> Sequence[Stamped]:
        """Live events of the iteration that begins with `begun`, earliest first. Reads files; a damaged one becomes a
        notice."""
        started = begun.event
        if not isinstance(started, IterationStarted) or started.id not in self._finished:
            return ()
        ended = self._finished[started.id]
        try:
            load = read_rows(self._path(started.id, "load"))
            captures = read_rows(self._path(started.id, "captures"))
        except (SamplesUnreadable, NotInstalled) as fault:
            notice = Notice(level="warning", host="", text=str(fault))
            return (Stamped(sequence=begun.sequence, unix_s=begun.unix_s, event=notice),)
        if not load:
            return ()
        t0_ns = min(row["coordinator_ns"] - row["second"] * _SECOND_NS for row in load)
        moved = [*_load(started, load), *_captured(started, captures, t0_ns)]
        first_s = _began_s(begun, started, ended)
        return tuple(
            Stamped(
                sequence=begun.sequence,
                unix_s=min(max(first_s + (at_ns - t0_ns) / 1e9, begun.unix_s), ended.unix_s),
                event=event,
            )
            for at_ns, event in sorted(moved, key=itemgetter(0))
        )

    def _path(self, identity: IterationId, what: str) -> Path:
        stem = f"{identity.stage}-{identity.rung}-{identity.repeat}-{identity.attempt}"
        return self._samples / f"{stem}.{what}.parquet"


def _began_s(begun: Stamped, started: IterationStarted, ended: Stamped) -> float:
    """T0, Unix seconds."""
    known = ended.event.started_unix_s if isinstance(ended.event, IterationFinished) else 0.0
    return known or begun.unix_s + started.starts_in_s


# ---- load --------------------------------------------------------------------------------------------------------


def _load(started: IterationStarted, rows: Iterable[Mapping[str, Any]]) -> Iterator[_At]:
    """Each second at its end, on the coordinator's clock."""
    by_second: dict[int, dict[str, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        by_second[row["second"]][row["host"]].append(row)
    meter = LoadMeter(started.id, started.beside)
    for _, hosts in sorted(by_second.items()):
        parts = [_second(of_host) for of_host in hosts.values()]
        ends_ns = max(part.start_ns + int(part.duration_s * 1e9) for part in parts)
        for tick in meter.ticks(parts):
            yield ends_ns, tick


def _second(rows: Sequence[Mapping[str, Any]]) -> LoadSecond:
    """One agent's second; times are the coordinator's."""
    first = rows[0]
    return LoadSecond(
        second=first["second"],
        window=first["window"],
        start_ns=first["coordinator_ns"],
        duration_s=first["duration_s"],
        transactions=tuple(_transaction(row) for row in rows),
    )


def _transaction(row: Mapping[str, Any]) -> TransactionLoad:
    counts = TransactionCounts(
        name=row["transaction"],
        ok=row["ok"],
        logical_failures=row["logical_failures"],
        retried=row["retried"],
        missed=row["missed"],
        errors=(("", row["errors"]),) if row["errors"] else (),  # their classes are in the iteration's numbers
    )
    response = Histogram(
        indices=tuple(row["response_indices"]),
        counts=tuple(row["response_counts"]),
        sum_ns=row["response_sum_ns"],
        min_ns=row["response_min_ns"],
        max_ns=row["response_max_ns"],
    )
    return TransactionLoad(counts=counts, response=response)


# ---- captures ----------------------------------------------------------------------------------------------------


def _captured(started: IterationStarted, rows: Iterable[Mapping[str, Any]], t0_ns: int) -> Iterator[_At]:
    """Readings of each capture on each host, and waits of the measure window so far."""
    series: dict[tuple[str, str], dict[int, list[Reading]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        reading = Reading(metric=row["metric"], value=row["value"], label=row["label"])
        series[row["host"], row["capture"]][row["coordinator_ns"]].append(reading)
    begins_ns = t0_ns + int(measured_from_s(started) * 1e9)
    for (host, capture), looks in series.items():
        gauges, waits = HostMeter(host), WaitsMeter(started.id, host, begins_ns, started.measure_s)
        for at_ns, readings in sorted(looks.items()):
            sample = CaptureSample(capture=capture, at_ns=at_ns, readings=tuple(readings))
            for tick in (gauges.tick(sample), waits.tick(sample)):
                if tick is not None:
                    yield at_ns, tick

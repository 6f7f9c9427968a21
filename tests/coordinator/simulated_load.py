"""A simulated database under load: service times and a speed over time -> the records that workers make -> real
`LoadAggregator`, `summarise`, verdicts.

Data flow: `Database` (types, weights, service times) and `Speed` (1 = as usual, 0 = frozen, 0.01 = a trickle) -> times
of each terminal, in numpy -> `Chunk`s -> `LoadSecond`s and a `LoadResult` -> `IterationFinished`. The database works in
a time of its own, which runs at the speed of the wall clock times `Speed`: a freeze of 10 s is 10 s in which nothing
ends and after which everything goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from records import ladder_stage, observations

from proveout.agent.load import worker_messages
from proveout.agent.load.aggregator import LoadAggregator
from proveout.agent.load.loop.recorder import Incident
from proveout.agent.load.pacing import Timeline
from proveout.coordinator.measure.summarise import summarise
from proveout.dsl.plan.stages import Closed, Ladder, Limits, Open, Windows
from proveout.proto.events import IterationFinished
from proveout.proto.wire.results import FaultInjected, LoadResult, LoadSecond

S = 1_000_000_000
T0 = 100 * S
Floats = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Floats]
LENIENT = Limits(tps_cv_max=99.0, tps_slope_fraction_max=99.0, achieved_fraction_min=0.0)
"""Variation and a rate that is not held are let pass, so that an outage is found by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """Transaction types with the share and the service time (s) of each; `terminals`; closed with `think_s`, or open at
    `rate`."""

    services: Sequence[tuple[float, Draw]]
    terminals: int = 4
    think_s: float = 0.0
    rate: float | None = None


def exponential(mean_s: float) -> Draw:
    return lambda random, n: random.exponential(mean_s, n)


def lognormal(median_s: float, sigma: float) -> Draw:
    return lambda random, n: median_s * np.exp(sigma * random.standard_normal(n))


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Slow spans (from, to, speed) in seconds after T0, in order, without overlaps."""

    spans: tuple[tuple[float, float, float], ...] = ()

    def wall_s(self, work_s: Floats) -> Floats:
        """When this much work is done, of a database that begins at T0."""
        walls, works = [0.0], [0.0]
        for start, end, speed in self.spans:
            works.append(works[-1] + start - walls[-1])
            walls.append(start)
            works.append(works[-1] + max(speed, 1e-9) * (end - start))
            walls.append(end)
        works.append(works[-1] + 1e6)
        walls.append(walls[-1] + 1e6)
        return np.interp(work_s, works, walls)

    def work_s(self, wall_s: float) -> float:
        """The work that is done until then."""
        slow = sum((1.0 - speed) * max(0.0, min(wall_s, end) - start) for start, end, speed in self.spans)
        return wall_s - slow


@dataclass(slots=True)
class Made:
    """Records of one load, by type: intended, started and ended in s after T0; and what was under way at the end."""

    records: dict[int, list[Floats]]
    waiting: list[tuple[int, float]]

    def killed(self, at_s: float) -> tuple[Incident, ...]:
        """Turn the transactions that are under way at this instant into errors."""
        errors = []
        for number, parts in self.records.items():
            for index, rows in enumerate(parts):
                cut = (rows[:, 1] < at_s) & (rows[:, 2] >= at_s)
                errors += [(number, intended) for intended in rows[cut, 0]]
                parts[index] = rows[~cut]
        ended_ns = T0 + round(at_s * 1e9)
        return tuple(Incident("error", n, "57P01", T0 + round(intended * 1e9), ended_ns) for n, intended in errors)


def make(database: Database, speed: Speed, windows: Windows, random: np.random.Generator) -> Made:
    """All transactions of all terminals up to the end of the windows."""
    made = Made(records={}, waiting=[])
    end_s = windows.total_s
    shares = np.array([share for share, _ in database.services])
    for terminal in range(database.terminals):
        begins_s = terminal * windows.ramp_up_s / 2 / database.terminals
        numbers, intended, started, ended = _terminal(database, speed, begins_s, end_s, shares, random)
        over = ended >= end_s
        if over.any():
            first = int(np.argmax(over))
            if started[first] < end_s:
                made.waiting.append((int(numbers[first]), float(started[first])))
        for number in range(len(shares)):
            chosen = (numbers == number) & ~over
            rows = np.column_stack((intended[chosen], started[chosen], ended[chosen]))
            made.records.setdefault(number, []).append(rows)
    return made


def _terminal(
    database: Database, speed: Speed, begins_s: float, end_s: float, shares: Floats, random: np.random.Generator
) -> tuple[npt.NDArray[np.int64], Floats, Floats, Floats]:
    mean_s = sum(share * float(np.mean(draw(random, 200))) for share, draw in database.services) / shares.sum()
    pace_s = mean_s + database.think_s
    per_terminal = database.rate / database.terminals if database.rate else 1.0 / pace_s
    count = int(end_s * max(per_terminal, 1.0 / pace_s if database.rate is None else 0.0) * 1.5) + 50
    numbers = random.choice(len(shares), count, p=shares / shares.sum())
    service = np.empty(count)
    for number, (_, draw) in enumerate(database.services):
        chosen = numbers == number
        service[chosen] = draw(random, int(chosen.sum()))
    if database.rate is None and not database.think_s:
        work = speed.work_s(begins_s) + np.cumsum(service)
        ended = speed.wall_s(work)
        started = np.concatenate(([begins_s], ended[:-1]))
        return numbers, started, started, ended
    pauses = random.exponential(1.0 / per_terminal if database.rate else database.think_s, count)
    due = begins_s + np.cumsum(pauses)
    started, ended, now = np.empty(count), np.empty(count), begins_s
    for index in range(count):
        begin = max(due[index], now) if database.rate else now + pauses[index]
        work = speed.work_s(begin) + service[index]
        now = float(speed.wall_s(np.array([work]))[0])
        started[index], ended[index] = begin, now
        if now > end_s + 1.0:
            numbers, due = numbers[: index + 1], due[: index + 1]
            started, ended = started[: index + 1], ended[: index + 1]
            break
    return numbers, due if database.rate else started, started, ended


def names(database: Database) -> list[str]:
    return [f"t{number}" for number in range(len(database.services))]


def stage_of(database: Database, windows: Windows, limits: Limits = LENIENT, repeat: int = 3) -> Ladder:
    arrival = Closed() if database.rate is None else Open(rate=database.rate)
    more = {"threads": (database.terminals,), "windows": windows, "limits": limits, "arrival": arrival}
    return ladder_stage(**more, repeat=repeat)


def run(
    database: Database,
    windows: Windows,
    *,
    speed: Speed | None = None,
    seed: int = 0,
    earlier: Sequence[IterationFinished] = (),
    repeat: int = 1,
    limits: Limits = LENIENT,
    hosts: int = 1,
    kills_s: Sequence[float] = (),
    injected: Mapping[tuple[str, str], FaultInjected] | None = None,
    paused: Mapping[int, Sequence[tuple[float, float]]] | None = None,
) -> IterationFinished:
    """One iteration, judged; the findings of the mix are left out, as the types are not those of a workload. At
    `kills_s` (after T0) what is under way fails; `injected`: faults, which give the load bins; `paused`: the
    pauses of the load process of a host, (from, to) in s of the measure window."""
    random = np.random.default_rng(seed)
    timeline = Timeline.of(windows, T0)
    loads, seconds = {}, {}
    for host in range(hosts):
        made = make(database, speed or Speed(), windows, random)
        incidents = tuple(incident for at_s in kills_s for incident in made.killed(at_s))
        rows = {number: np.rint(np.concatenate(parts) * 1e9) + T0 for number, parts in made.records.items()}
        waiting = tuple((number, T0 + round(started * 1e9)) for number, started in made.waiting)
        name = f"c{host + 1}"
        seconds[name], loads[name] = aggregated(
            names(database),
            timeline,
            rows,
            is_open=database.rate is not None,
            has_bins=injected is not None,
            incidents=incidents,
            waiting=waiting,
            pauses=tuple((round(from_s * S), round(to_s * S)) for from_s, to_s in (paused or {}).get(host, ())),
        )
    stage = stage_of(database, windows, limits)
    about = {"rate": database.rate, "loads": loads, "seconds": seconds, "t0_ns": T0, "earlier": earlier}
    return summarise(observations(stage, database.terminals, repeat, **about, injected=injected or {}))


def aggregated(
    names: Sequence[str],
    timeline: Timeline,
    rows: Mapping[int, npt.NDArray[Any]],
    *,
    is_open: bool,
    has_bins: bool = False,
    incidents: tuple[Incident, ...] = (),
    **finished: Any,
) -> tuple[list[LoadSecond], LoadResult]:
    """The seconds and the result of an agent by the records of its one worker: (intended, started, ended) of each type,
    monotonic ns; `finished`: the other fields of the end of the worker."""
    times = {number: part.astype(np.int64).tobytes() for number, part in rows.items()}
    aggregator = LoadAggregator(list(names), range(len(names)), timeline, workers=1, is_open=is_open, has_bins=has_bins)
    chunk = worker_messages.Chunk(
        until_ns=timeline.end_ns + S,
        codes=tuple((2 * number, len(data)) for number, data in times.items()),
        incidents=incidents,
        times=b"".join(times.values()),
    )
    aggregator.add(0, chunk)
    nothing = dict.fromkeys(("missed", "committed", "unknown", "first_errors"), ())
    about = {"cpu_s": 0.1, "cpu_window_s": 10.0, "start_skew_ns": 1000, "samples_lost": 0}
    seconds = aggregator.seconds(over=True)
    return seconds, aggregator.result([worker_messages.Finished(**(nothing | about | finished))])

"""The results of an iteration by load: each of several loads with its own hosts, transactions and seconds. Pure.

Data flow: `LoadResult`s and `LoadSecond`s by source -> `streams_of` -> one `Stream` for each load of the stage, of
which `summarise` computes the numbers and `validity` judges the limits. A source is a client host; of a stage with
several loads it is `loads.in_load` of the load and the host, because a host can have several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from proveout.coordinator.measure.load_merge import merge_loads, summary
from proveout.core.data_classes import dataclass
from proveout.dsl.plan.loads import in_load, parts
from proveout.dsl.plan.stages import Measuring, Tool
from proveout.proto.events import IterationFinished, TransactionSummary
from proveout.proto.wire import histogram
from proveout.proto.wire.results import LoadResult, LoadSecond, TransactionLoad

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One load of an iteration: the stage with this load alone, its results by client host, and what they sum to.

    `beside`: whether it has threads of its own and is not in the numbers of the rung.
    """

    stage: Measuring
    threads: int
    rate: float | None
    loads: Mapping[str, LoadResult]
    seconds: Mapping[str, Sequence[LoadSecond]]
    merged: Sequence[TransactionLoad] = ()
    summaries: tuple[TransactionSummary, ...] = ()
    name: str = ""
    beside: bool = False


def streams_of(
    stage: Measuring,
    rung: int,
    rate: float | None,
    loads: Mapping[str, LoadResult],
    seconds: Mapping[str, Sequence[LoadSecond]],
) -> tuple[Stream, ...]:
    """The loads of an iteration in the plan's order, or the tool. ValueError for one without a result."""
    if isinstance(stage, Tool):
        return (_stream(Stream(stage=stage, threads=rung, rate=rate, loads=loads, seconds=seconds)),)
    return tuple(
        _stream(
            Stream(
                name=part.name,
                stage=part.stage,
                threads=part.threads(rung),
                rate=part.rate(rate),
                loads=_of(loads, part.name),
                seconds=_of(seconds, part.name),
                beside=part.beside,
            )
        )
        for part in parts(stage)
    )


def _stream(one: Stream) -> Stream:
    """The load with the sums over its hosts."""
    if not one.loads:
        raise ValueError("an iteration without a load result has no numbers")
    merged = merge_loads(load.transactions for load in one.loads.values())
    return replace(one, merged=merged, summaries=tuple(summary(item, one.loads, one.name) for item in merged))


def _of(sources: Mapping[str, Found], load: str) -> Mapping[str, Found]:
    """The sources of one load, by host."""
    prefix = in_load(load, "")
    return {source.removeprefix(prefix): found for source, found in sources.items() if source.startswith(prefix)}


def joined(streams: Sequence[Stream]) -> tuple[Mapping[str, LoadResult], Mapping[str, Sequence[LoadSecond]]]:
    """Results and seconds of several loads, by source."""
    loads = {in_load(one.name, host): load for one in streams for host, load in one.loads.items()}
    seconds = {in_load(one.name, host): found for one in streams for host, found in one.seconds.items()}
    return loads, seconds


def projected(finished: IterationFinished, load: str) -> IterationFinished:
    """An iteration as if it had that load alone."""
    if not load:
        return finished
    return replace(
        finished,
        metrics=finished.metrics.get("loads", {}).get(load, {}),
        transactions=tuple(item for item in finished.transactions if item.load == load),
    )


def prefix_of(stream: Stream) -> str:
    """The prefix of the paths of a load's numbers."""
    return f"loads.{stream.name}." if stream.name else ""


@dataclass(slots=True)
class SecondRow:
    """A whole second of all hosts of a load: `hosts` that reported it, its length (the longest of the hosts), the
    transactions that ended, and the counts and sums of response times and of lags of the schedule."""

    hosts: int = 0
    duration_s: float = 0.0
    ended: int = 0
    responses: int = 0
    response_ns: int = 0
    lags: int = 0
    lag_ns: int = 0

    def add(self, second: LoadSecond) -> None:
        """Add the second of a host."""
        self.hosts += 1
        self.duration_s = max(self.duration_s, second.duration_s)
        for item in second.transactions:
            self.ended += item.counts.ok + item.counts.logical_failures
            self.responses += histogram.count(item.response)
            self.response_ns += item.response.sum_ns
            self.lags += histogram.count(item.schedule)
            self.lag_ns += item.schedule.sum_ns


def whole_seconds(loads: Mapping[str, LoadResult], seconds: Mapping[str, Sequence[LoadSecond]]) -> dict[int, SecondRow]:
    """The whole seconds inside the measure window that all agents reported, by their number after T0. Rows of sums: the
    seconds of a day as objects would take gigabytes."""
    whole: dict[int, SecondRow] = {}
    for host, load in loads.items():
        for second in seconds.get(host, ()):
            end_ns = second.start_ns + round(second.duration_s * 1e9)
            inside = second.start_ns >= load.measure_start_ns - 1_000_000 and end_ns <= load.measure_end_ns + 1_000_000
            if inside and second.duration_s >= 0.999:
                whole.setdefault(second.second, SecondRow()).add(second)
    return {number: whole[number] for number in sorted(whole) if whole[number].hosts == len(loads)}

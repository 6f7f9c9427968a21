"""The numbers of the loads of a ladder with `versus`, which take turns in slices, block by block. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from proveout.coordinator.measure.load_merge import Stream
from proveout.dsl.plan import slices
from proveout.dsl.plan.stages import Ladder, Measuring
from proveout.proto.events import Metrics
from proveout.proto.wire import histogram

# A load is idle in the slices of the others, so that its throughput is that of its own slices. A transaction that is
# under way at the end of a slice counts by the share of its time in it (`PhaseLoad.done`), as do all at a constant
# rate: whole transactions would favour whichever ends just before an edge.

BLOCKS = "blocks"
"""In the names of series behind that of the load."""
Blocks: TypeAlias = Mapping[str, Mapping[str, Sequence[float]]]
"""By load the values of each block: `tps`, and `response.avg_us` where each block has one."""


def of_blocks(stage: Measuring, slot: str, streams: Sequence[Stream]) -> Blocks:
    """The blocks of each load; {} without `versus`, or where a host has no result of the slices."""
    if not isinstance(stage, Ladder) or not stage.versus_s:
        return {}
    turns, found = slices.turns(stage, slot), {}
    if any(len(load.phases) != len(turns) for one in streams for load in one.loads.values()):
        return {}
    for one in streams:
        parts = [
            [load.phases[number] for load in one.loads.values()]
            for number, name in enumerate(turns)
            if name == one.name
        ]
        times = [histogram.merge(item.response for load in part for item in load.transactions) for part in parts]
        means = [histogram.mean_ns(one) for one in times]
        rates = tuple(math.fsum(load.done for load in part) / slices.slice_s(stage) for part in parts)
        found[one.name] = {"tps": rates}
        if None not in means:
            found[one.name]["response.avg_us"] = tuple((mean or 0.0) / 1e3 for mean in means)
    return found


def in_own_time(stage: Measuring, slot: str, streams: Sequence[Stream]) -> tuple[tuple[Stream, ...], Blocks]:
    """The loads with the throughput of each transaction type in the load's own slices, and their blocks."""
    blocks = of_blocks(stage, slot, streams)
    if not blocks:
        return tuple(streams), blocks
    own = (tuple(replace(item, tps=item.tps * len(blocks)) for item in one.summaries) for one in streams)
    return tuple(replace(one, summaries=found) for one, found in zip(streams, own, strict=True)), blocks


def add_blocks(blocks: Blocks, metrics: Metrics, series: dict[str, tuple[float, ...]]) -> dict[str, tuple[float, ...]]:
    """Put the numbers of the loads' own slices into those of the iteration; the series with the blocks in place of the
    seconds of the loads, of which a part is idle."""
    for name, values in blocks.items():
        tree, prefix = metrics["loads"][name], f"loads.{name}."
        tree["tps"] = math.fsum(values["tps"]) / len(values["tps"])
        tree["client"]["cpu_fraction"] = min(tree["client"]["cpu_fraction"] * len(blocks), 1.0)
        series = {path: row for path, row in series.items() if not path.startswith(prefix)}
        series |= {f"{prefix}{BLOCKS}.{path}": tuple(row) for path, row in values.items()}
    return series

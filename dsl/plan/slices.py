"""The slices of a measure window in which the loads of a ladder with `versus` take turns. Pure.

A block has a slice of each load. The order of the loads is drawn for each two blocks, with the slot as the seed, and
the second block has it reversed: what drifts steadily over both hits each load alike.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import accumulate

from proveout.dsl.plan.phases import Level
from proveout.dsl.plan.stages import Ladder, Windows

BLOCKS_MIN = 10
"""The fewest blocks of a window."""


def blocks(ladder: Ladder) -> int:
    """The blocks of the measure window: as many as fit, whose slices are then a little longer than `versus`."""
    return int(ladder.windows.measure_s / (ladder.versus_s * len(ladder.loads)) + 1e-9)


def slice_s(ladder: Ladder) -> float:
    return ladder.windows.measure_s / (blocks(ladder) * len(ladder.loads))


def turns(ladder: Ladder, slot: str) -> list[str]:
    """The load of each slice, in order; `slot` names the iteration.

    >>> from proveout.dsl.plan.stages import Load
    >>> one = Ladder(id="a", workload="", target="", clients=("c",), threads=(1,), versus_s=1.0,
    ...     loads=tuple(Load(name=name, workload="w", target="t", clients=("c",)) for name in "ab"),
    ...     windows=Windows(ramp_up_s=0, measure_s=8, ramp_down_s=0))
    >>> "".join(turns(one, "a/1/1"))
    'baababba'
    """
    found: list[str] = []
    for block in range(blocks(ladder)):
        drawn = sorted(load.name for load in ladder.loads)
        drawn.sort(key=lambda name: hashlib.sha256(f"{slot}/{block // 2}/{name}".encode()).digest())
        found += drawn[::-1] if block % 2 else drawn
    return found


def windows(ladder: Ladder, whole: Windows) -> Windows:
    """The windows of an iteration with the slices as phases: the loads of agents count each of them by itself."""
    count = blocks(ladder) * len(ladder.loads)
    return replace(whole, phases=tuple((f"s{number}", slice_s(ladder)) for number in range(1, count + 1)))


WARM_S = 1e-3
"""The begin of the measure window that still has the level of the ramp-up, in which all loads are active."""


def level(ladder: Ladder, slot: str, load: str, whole: float) -> Level:
    """The active threads of a load, or its rate, over the measure window: `whole` in its slices and 0 in the others. In
    the ramp-up each load has its share of that."""
    order = turns(ladder, slot)
    starts = accumulate([slice_s(ladder)] * (len(order) - 1), initial=0.0)
    values = [whole if name == load else 0.0 for name in order]
    warm, *at_s = (0.0, WARM_S, *list(starts)[1:])
    return Level(
        for_s=ladder.windows.measure_s,
        at_s=(warm, *at_s),
        values=(whole / len(ladder.loads), *values),
        steps=True,
    )

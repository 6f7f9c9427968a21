"""In which order iterations of ladders run: rung by rung within a repeat, one repeat after the other. Pure.

Data flow: ladders of the plan -> `group` (those that take turns) -> `slots` -> the scheduler runs them, `explain` shows
them. Both use this module, so the shown order is the order that runs.

- `ladder`: the rungs as listed, in each repeat.
- `shuffled`: in each repeat an order of its own, drawn by the ladder's seed. Drawn by a hash and not by a generator of
  random numbers, so that it is the same on every version of Python: a resumed run must not meet another order.
- `interleaved`: A B A B. A ladder and the one that names it in `with` take turns rung by rung, so that they meet the
  same drift. The first ladder's order is that of all: equal rungs stand side by side even when they are shuffled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Stage


@dataclass(frozen=True, slots=True)
class Slot:
    """A rung of a ladder in a repeat (from 1), which one valid iteration fills."""

    ladder: Ladder
    rung: int
    repeat: int


def groups(stages: Sequence[Stage]) -> list[tuple[Ladder, ...]]:
    """The ladders in order, those that take turns together; a ladder by itself is a group of one."""
    found: list[tuple[Ladder, ...]] = []
    before: Stage | None = None
    for stage in stages:
        if isinstance(stage, Ladder):
            together = found and found[-1][-1] is before and stage.interleaved_with in {one.id for one in found[-1]}
            found = [*found[:-1], (*found[-1], stage)] if together else [*found, (stage,)]
        before = stage
    return found


def group(plan: Plan, ladder: Ladder) -> tuple[Ladder, ...]:
    """The ladders that take turns with this one, itself included, in the plan's order."""
    return next((members for members in groups(plan.stages) if ladder in members), (ladder,))


def rungs(ladder: Ladder, leader: Ladder, repeat: int) -> tuple[int, ...]:
    """A ladder's rungs in the order of a repeat; `leader` is the first ladder of its group.

    >>> from proveout.dsl.plan.stages import Windows
    >>> one = Ladder(id="a", workload="w", target="t", clients=("c",), threads=(1, 2, 4), order="shuffled", seed=2,
    ...     windows=Windows(ramp_up_s=0, measure_s=1, ramp_down_s=0))
    >>> [rungs(one, one, repeat) for repeat in (1, 2)]
    [(2, 1, 4), (1, 2, 4)]
    """
    if leader.seed is None:
        return ladder.threads
    return tuple(sorted(ladder.threads, key=lambda rung: _draw(f"{leader.seed}/{repeat}/{rung}")))


def _draw(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def slots(ladders: Sequence[Ladder], leader: Ladder) -> Iterator[Slot]:
    """All slots of a group, or the remaining ones, in order; `leader` is its first ladder.

    Of ladders with unlike numbers of rungs, the longer one's last rungs follow each other.
    """
    for repeat in range(1, max((ladder.repeat for ladder in ladders), default=0) + 1):
        for turn in zip_longest(*(rungs(ladder, leader, repeat) for ladder in ladders)):
            for ladder, rung in zip(ladders, turn, strict=True):
                if rung is not None and repeat <= ladder.repeat:
                    yield Slot(ladder, rung, repeat)

"""In which order iterations of ladders run, and the plan of a noise run, whose two equal ladders take turns. Pure."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from proveout.core.data_classes import dataclass, record
from proveout.core.errors import ProveoutError
from proveout.core.numbers import threads
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Open, Revert, Stage
from proveout.dsl.plan.topology import Expression

# - `ladder`: the rungs as listed, in each repeat.
# - `shuffled`: in each repeat an order of its own, drawn by the ladder's seed. Drawn by a hash and not by a generator
#   of random numbers, so that it is the same on every version of Python: a resumed run must not meet another order.
# - `interleaved`: A B, B A, A B. A ladder and the one that names it in `with`, or the cells of a matrix, take turns
#   rung by rung, so that they meet the same drift. Every second repeat has the ladders in reverse: with one order
#   throughout, a steady drift would always favour the same ladder, and a comparison of pairs would show it as a
#   difference. The first ladder's order is that of all: equal rungs stand side by side even when they are shuffled.
# - Cells with steps before or after them take turns too. A turn is then the whole ladder of a cell in a repeat, with
#   its steps around it.


@dataclass(frozen=True, slots=True)
class Slot:
    """A rung of a ladder in a repeat (from 1), which one valid iteration fills."""

    ladder: Ladder
    rung: int
    repeat: int


def groups(stages: Sequence[Stage]) -> list[tuple[Ladder, ...]]:
    """The ladders in order, those that take turns together; a ladder by itself is a group of one.

    Between two of a group stand at most the steps of their turns.
    """
    found: list[tuple[Ladder, ...]] = []
    between: set[str] = set()
    for stage in stages:
        if not isinstance(stage, Ladder):
            between.add(stage.id)
            continue
        last = found[-1] if found else ()
        steps = {*last[-1].after, *stage.before} if last else set()
        together = stage.interleaved_with in {one.id for one in last} and between <= steps
        found[-1:] = [(*last, stage)] if together else [last, (stage,)] if last else [(stage,)]
        between = set()
    return found


def group(plan: Plan, ladder: Ladder) -> tuple[Ladder, ...]:
    """The ladders that take turns with this one, itself included, in the plan's order."""
    # Only from where a group surely begins to where the next one does: a plan may have hundreds of ladders.
    begins = [at for at, one in enumerate(plan.stages) if isinstance(one, Ladder) and not one.interleaved_with]
    here = next((at for at, one in enumerate(plan.stages) if one.id == ladder.id), 0)
    first, after = max((at for at in begins if at <= here), default=0), next((at for at in begins if at > here), None)
    return next((members for members in groups(plan.stages[first:after]) if ladder in members), (ladder,))


def block(plan: Plan, stage: Stage) -> tuple[Stage, ...]:
    """The stages that begin and end together with this one: its group with the steps of its turns, in the plan's
    order."""
    ladder = stage if isinstance(stage, Ladder) else ladder_of_step(plan, stage)
    if ladder is None:
        return (stage,)
    members = group(plan, ladder)
    ids = {name for one in members for name in (one.id, *one.before, *one.after)}
    return tuple(one for one in plan.stages if one.id in ids)


def ladder_of_step(plan: Plan, stage: Stage) -> Ladder | None:
    """The ladder before or after whose turns the stage runs; None for a stage that runs once."""
    ladders = (one for one in plan.stages if isinstance(one, Ladder))
    return next((one for one in ladders if stage.id in (*one.before, *one.after)), None)


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
    return tuple(
        sorted(ladder.threads, key=lambda rung: hashlib.sha256(f"{leader.seed}/{repeat}/{rung}".encode()).digest())
    )


def slots(ladders: Sequence[Ladder], leader: Ladder, first: int = 1) -> Iterator[Slot]:
    """All slots of a group, or the remaining ones, from the repeat `first` on, in order; `leader` is its first ladder.

    Of ladders with unlike numbers of rungs, the longer one's last rungs follow each other.
    """
    whole = any(ladder.before or ladder.after for ladder in ladders)
    for repeat in range(first, max((ladder.repeat for ladder in ladders), default=0) + 1):
        turned = [one for one in (ladders if repeat % 2 else ladders[::-1]) if repeat <= one.repeat]
        orders = [[Slot(one, rung, repeat) for rung in rungs(one, leader, repeat)] for one in turned]
        turns = orders if whole else zip_longest(*orders)
        yield from (slot for turn in turns for slot in turn if slot is not None)


ARMS = ("arm_a", "arm_b")
"""The ids of the two ladders."""
SUFFIX = "-noise"
"""The suffix of the noise plan's name, which distinguishes its runs from those of the plan itself."""


class NoRung(ProveoutError):
    """The plan has no rung whose noise can be measured."""

    exit_code = 2


@record
class NoiseArms:
    """The rung (a ladder of the plan and its number of threads), and the number of repeats of each arm."""

    stage: str
    threads: int
    repeats: int


def choose(plan: Plan, stage: str | None, threads: int | None, repeats: int) -> NoiseArms:
    """Select the ladder `stage`, by default the first, and its rung `threads`, by default the largest. NoRung."""
    # a ladder that runs one of its loads alone has no turns by itself
    ladders = {one.id: one for one in plan.stages if isinstance(one, Ladder) and not one.alone}
    if not ladders:
        raise NoRung("the plan has no ladder of a load", where=plan.name, way_out="Name a plan with a `ladder` stage.")
    if stage is not None and stage not in ladders:
        raise NoRung(f"the plan has no ladder {stage!r}", where=plan.name, way_out=f"It has {', '.join(ladders)}.")
    chosen = ladders[stage] if stage is not None else next(iter(ladders.values()))
    if isinstance(chosen.arrival, Open) and isinstance(chosen.arrival.rate, Expression):
        raise NoRung(
            f"the rate of ladder {chosen.id} is a result of {', '.join(chosen.arrival.rate.needs)}, which is not run",
            where=str(chosen.where),
            way_out="Name another ladder with --stage, or give the rate as a number.",
        )
    return NoiseArms(stage=chosen.id, threads=threads or max(chosen.threads), repeats=repeats)


def noise_plan(plan: Plan, arms: NoiseArms) -> Plan:
    """Return the plan of the noise run. NoRung where a stage that it keeps has an id of its own ones."""
    ladder = next(one for one in plan.stages if isinstance(one, Ladder) and one.id == arms.stage)
    kept = _prepared(plan, ladder)
    first = dataclasses.replace(
        ladder,
        id=ARMS[0],
        threads=(arms.threads,),
        repeat=arms.repeats,
        repeat_min=None,
        order="interleaved",
        seed=None,
        interleaved_with=None,
        stop_when=None,
        cell=None,
        apart="",
        alone="",
    )
    second = dataclasses.replace(first, id=ARMS[1], interleaved_with=ARMS[0])
    turns = (*_turn(plan, ladder, first), *_turn(plan, ladder, second))
    names = {stage.id for stage in kept}
    if taken := next((stage.id for stage in turns if stage.id in names), ""):
        what = f"a noise run has a stage {taken} of its own"
        raise NoRung(what, where=str(plan.stage(taken).where), way_out="Give the stage of the plan another id.")
    return dataclasses.replace(
        plan,
        name=f"{plan.name}{SUFFIX}",
        title=f"Noise of {arms.stage} at {threads(arms.threads)}",
        stages=(*kept, *turns),
        conditions=tuple(one for one in plan.conditions if one.stage in names),
        verdicts=(),
        published=(),
        figures=(),
        without_figures=(),
        brought_in=(),
        charts=(),
    )


def _turn(plan: Plan, ladder: Ladder, arm: Ladder) -> tuple[Stage, ...]:
    """An arm with its own copies of the steps that run around the turns of the ladder."""

    def own(step: str) -> str:
        return f"{arm.id}_{step}"

    def copies(steps: tuple[str, ...]) -> list[Stage]:
        return [copy(plan.stage(step)) for step in steps]

    def copy(step: Stage) -> Stage:
        made = dataclasses.replace(step, id=own(step.id))
        return dataclasses.replace(made, tune=own(made.tune)) if isinstance(made, Revert) else made

    whole = dataclasses.replace(arm, before=tuple(map(own, ladder.before)), after=tuple(map(own, ladder.after)))
    return (*copies(ladder.before), whole, *copies(ladder.after))


def _prepared(plan: Plan, ladder: Ladder) -> tuple[Stage, ...]:
    """The stages before the ladder that measure nothing, but for those that wait for one that does."""
    kept: dict[str, Stage] = {}
    for stage in plan.stages:
        if stage.id == ladder.id:
            break
        condition = plan.condition(stage.id)
        needs = condition.needs if condition is not None else ()
        if ladder_of_step(plan, stage) is not None:
            continue  # it runs around the turns of a ladder
        needs = (*needs, stage.tune) if isinstance(stage, Revert) else needs
        if not stage.iterations and all(name in kept for name in needs):
            kept[stage.id] = stage
    return tuple(kept.values())

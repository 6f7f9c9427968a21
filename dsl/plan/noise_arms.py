"""The plan of a noise run: one rung of one ladder against itself, as two equal ladders that take turns. Pure.

Data flow: a compiled plan + `NoiseArms` -> `noise_plan` -> a plan of the stages that prepare the ladder and of the two
arms -> run, resumed and recorded as any other plan. Verdicts, figures and the other measuring stages are left out.
"""

from __future__ import annotations

import dataclasses

from proveout.core.data_classes import dataclass
from proveout.core.errors import ProveoutError
from proveout.core.numbers import threads
from proveout.dsl.plan.iteration_order import ladder_of_step
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import CommandRun, Ladder, Open, Pause, Populate, Reset, Sql, Stage, Tune
from proveout.dsl.plan.values import Expression

ARMS = ("arm_a", "arm_b")
"""The ids of the two ladders."""
SUFFIX = "-noise"
"""The suffix of the noise plan's name, which distinguishes its runs from those of the plan itself."""
PREPARING = (Populate, Sql, CommandRun, Reset, Pause, Tune)


class NoRung(ProveoutError):
    """The plan has no rung whose noise can be measured."""

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseArms:
    """The rung (a ladder of the plan and its number of threads), and the number of repeats of each arm."""

    stage: str
    threads: int
    repeats: int


def choose(plan: Plan, stage: str | None, threads: int | None, repeats: int) -> NoiseArms:
    """Select the ladder `stage`, by default the first, and its rung `threads`, by default the largest. NoRung."""
    ladders = {one.id: one for one in plan.stages if isinstance(one, Ladder)}
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
    """Return the plan of the noise run."""
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
    return dataclasses.replace(
        plan,
        name=f"{plan.name}{SUFFIX}",
        title=f"Noise of {arms.stage} at {threads(arms.threads)}",
        stages=(*kept, *turns),
        conditions=tuple(one for one in plan.conditions if one.stage in names),
        verdicts=(),
        figures=(),
        without_figures=(),
        charts=(),
    )


def _turn(plan: Plan, ladder: Ladder, arm: Ladder) -> tuple[Stage, ...]:
    """An arm with its own copies of the steps that run around the turns of the ladder."""

    def own(step: str) -> str:
        return f"{arm.id}_{step}"

    def copies(steps: tuple[str, ...]) -> list[Stage]:
        return [dataclasses.replace(plan.stage(step), id=own(step)) for step in steps]

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
        if isinstance(stage, PREPARING) and all(name in kept for name in needs):
            kept[stage.id] = stage
    return tuple(kept.values())

"""The models of loads that change: the phases of a ladder, and a rate that goes from one to another."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag

from proveout.dsl.plan.phases import PHASES_MAX
from proveout.dsl.rules.bounds import THREADS_MAX
from proveout.dsl.schema.scalar_types import Duration, Id, LevelRate, Percentage, Rate, Strict


class RateRamp(Strict):
    """A rate that goes in a straight line over the measure window."""

    from_: Rate = Field(alias="from", description="Rate at the window's start, which the ramp-up reaches.")
    to: Rate = Field(description="Rate at the window's end and during the ramp-down.")


def _rate_or_ramp(value: object) -> str:
    return "ramp" if isinstance(value, dict | RateRamp) else "rate"


LadderRate: TypeAlias = Annotated[
    Annotated[Rate, Tag("rate")] | Annotated[RateRamp, Tag("ramp")], Discriminator(_rate_or_ramp)
]

LevelThreads: TypeAlias = Annotated[float, Field(ge=0, le=THREADS_MAX, strict=True)]


class RateLine(Strict):
    """A rate that goes in a straight line over a phase."""

    from_: LevelRate = Field(alias="from", description="Rate at the phase's start.")
    to: LevelRate = Field(description="Rate at the phase's end.")


class RateWave(Strict):
    """A rate that follows a sine."""

    mean: LevelRate = Field(description="The rate around which it swings; it begins there, and rises.")
    amplitude: LevelRate = Field(description="The swing to each side.")
    period: Duration = Field(description="The time of one swing.")


class ThreadsLine(Strict):
    """Active threads that change in a straight line over a phase."""

    from_: LevelThreads = Field(alias="from", description="Active threads at the phase's start.")
    to: LevelThreads = Field(description="Active threads at the phase's end.")


class ThreadsWave(Strict):
    """Active threads that follow a sine."""

    mean: LevelThreads = Field(description="The threads around which it swings; it begins there, and rises.")
    amplitude: LevelThreads = Field(description="The swing to each side.")
    period: Duration = Field(description="The time of one swing.")


def _form(value: object) -> str:
    if not isinstance(value, dict):
        return "rate"
    return "wave" if {"mean", "amplitude", "period"} & value.keys() else "ramp"


PhaseRate: TypeAlias = Annotated[
    Annotated[LevelRate, Tag("rate")] | Annotated[RateLine, Tag("ramp")] | Annotated[RateWave, Tag("wave")],
    Discriminator(_form),
]
PhaseThreads: TypeAlias = Annotated[
    Annotated[LevelThreads, Tag("rate")] | Annotated[ThreadsLine, Tag("ramp")] | Annotated[ThreadsWave, Tag("wave")],
    Discriminator(_form),
]


class PhaseEntry(Strict):
    """A part of the measure window with a load of its own: a rate, active threads, or a table of one of them."""

    name: Id = Field(description="Its name in expressions, run.phase(\"spike\"), and reports.")  # fmt: skip
    for_: Duration | None = Field(None, alias="for", description="Its length; of a table the time of its last row.")
    rate: PhaseRate | None = Field(
        None,
        description="Open arrival: constant, in a straight line `{from, to}`, or a sine `{mean, amplitude, period}`.",
    )
    threads: PhaseThreads | None = Field(
        None, description="Closed arrival: the threads of the rung that are active; constant, `{from, to}` or a sine."
    )
    from_: str | None = Field(
        None,
        alias="from",
        min_length=1,
        max_length=200,
        description="A CSV file beside the plan, with the columns seconds,rate or seconds,threads.",
    )
    between: Literal["steps", "lines"] | None = Field(
        None, description="from: whether a row holds until the next one, or the level goes there in a straight line."
    )


Phases: TypeAlias = Annotated[list[PhaseEntry], Field(min_length=1, max_length=PHASES_MAX)]
RecoveredWithin: TypeAlias = Percentage

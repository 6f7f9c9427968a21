"""The models of what a search states: its range, its confirmation, and the bounds of its probes."""

from __future__ import annotations

from pydantic import Field

from proveout.dsl.schema.scalar_types import Duration, Percentage, Ramp, Rate, Strict, Tolerance


class SearchRange(Strict):
    """The range of a search."""

    from_: Rate = Field(alias="from", description="The lowest rate tried.")
    to: Rate = Field(description="The highest rate tried.")
    start: Rate | None = Field(
        None, description="The rate of the first probe, doubled from there, or halved when it is refused; `from`."
    )
    tolerance: Tolerance = Field(0.05, description="The relative distance at which the search ends.")


class Confirm(Strict):
    """The full-length iterations that confirm the answer."""

    ramp_up: Ramp = 2.0
    measure: Duration = 10.0
    times: int = Field(
        default=9,
        ge=1,
        le=20,
        description="Iterations in which the answer must hold; after one refusal, in 4 more. A rate that holds in half "
        "of all iterations is confirmed by 9 with a probability of 0.25 %.",
    )


def usual_confirm() -> Confirm:
    """The confirmation of a search that states none."""
    return Confirm.model_validate({})


class BoundsEntry(Strict):
    """The bounds that a probe must keep in addition to `accept`."""

    missed: Percentage = Field(
        0.01, description="Arrivals due in the window that had no answer within 1 s after the load, over all due."
    )
    lateness: Duration = Field(0.1, description="Lateness of starts at the 99th percentile.")
    growth: Percentage = Field(
        0.02,
        description="Growth of the lateness in the window, seconds per second, at the upper end of its interval.",
    )


def usual_bounds() -> BoundsEntry:
    """The bounds of a search that states none."""
    return BoundsEntry.model_validate({})

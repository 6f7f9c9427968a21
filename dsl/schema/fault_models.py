"""The model of an entry of `faults:` of a ladder; beside these keys it has one operation, as a tuning has."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from proveout.dsl.plan.faults import TIMES_MAX
from proveout.dsl.schema.scalar_types import Duration, Name, Ramp, Selector, Strict, Text


class BetweenEntry(Strict):
    """A part of the measure window."""

    from_: Ramp = Field(alias="from", description="Its start, after the start of the measure window.")
    to: Duration = Field(description="Its end.")


class FaultEntry(Strict):
    """A change to hosts or systems that is in place for a time of the measure window of each iteration, and is undone
    (healed) then. It begins `at` an instant, at random instants `between` two, or `when` a condition holds."""

    name: Name = Field(description='Its name in results: `run.fault("name")`.')
    at: Ramp | None = Field(None, description="When it begins, after the start of the measure window.")
    between: BetweenEntry | None = Field(
        None, description="In place of `at`: the part of the measure window in which it begins at random instants."
    )
    when: Text | None = Field(
        None,
        description="In place of `at`: it begins each time that this condition on the numbers of the last second holds "
        "in the measure window: `live.tps > 1000`.",
    )
    times: int | None = Field(
        None, ge=1, le=TIMES_MAX, description="between, when: the most times that it begins in each iteration; 1."
    )
    seed: int | None = Field(
        None, ge=0, le=2**31 - 1, description="between: the seed of the random instants; 1. Repeats draw others."
    )
    apart: Ramp | None = Field(
        None, description="between, when: the least time from the end of one occurrence to the next; 0s."
    )
    for_: Duration | None = Field(
        None,
        alias="for",
        description="The time from its begin to its healing. Left out where the operation ends by itself.",
    )
    on: Selector | None = Field(
        None, description="The hosts: `all`, `role:…` or names. Left out where the operation is of a `system`."
    )
    destructive: bool = Field(False, description="Agree to the loss of data, where the operation can lose it.")
    tuning: list[Any] | None = Field(
        None,
        min_length=1,
        max_length=20,
        description="In place of one operation: several changes, made together, each as in `tuning:` of a plan.",
    )

"""Transactions without branches: statements one after the other, arguments from what was drawn and from earlier rows.

Such a transaction is a table of `Step`s. `walk` is what it means, as a body; a load engine may run the table itself instead,
which costs less than a generator.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from proveout.dsl.workloads.base import Body, Outcome, Row, Statement


@dataclass(frozen=True, slots=True)
class Step:
    """A statement in its place. Inputs of the transaction have a tuple of drawn values for each of its steps.

    `places`: where each argument is, counted through the values kept of earlier steps and then this step's drawn ones;
    None: the drawn values are the arguments. Of its first row the leading `keeps` values are kept for later steps.
    Unless it finds or changes `least` … `most` rows, and one where values are kept, the transaction fails logically.
    """

    statement: Statement
    places: tuple[int, ...] | None = None
    keeps: int = 0
    least: int = 1
    most: int = sys.maxsize


def walk(steps: Sequence[Step], inputs: Sequence[Row]) -> Body:
    """The steps as a body; `inputs` are the drawn values of each."""
    kept: Row = ()
    for step, drawn in zip(steps, inputs, strict=True):
        result = yield step.statement, drawn if step.places is None else placed(step.places, kept + drawn)
        if not step.least <= result.count <= step.most:
            return Outcome.LOGICAL_FAILURE
        if step.keeps:
            rows = result.rows()
            if not rows:
                return Outcome.LOGICAL_FAILURE
            kept += rows[0][: step.keeps]
    return Outcome.COMMIT


def placed(places: tuple[int, ...], values: Row) -> Row:
    """The values at these places."""
    return tuple([values[place] for place in places])

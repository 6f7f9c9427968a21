"""Which operations a history applied, set back, and had struck by faults at their steps.

Data flow: the real transaction and undoing, with what they do to each operation noted -> `Tally`; a strike asks the
machine of the process that is about to take a step which operation it is at.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from sim_machine import Machine

from proveout.agent.tuning import revert as undoing
from proveout.agent.tuning import transaction
from proveout.dsl.operations.table import OPERATIONS

Change = tuple[Any, str, Any]


@dataclass
class Tally:
    """Operation -> how often."""

    applied: Counter[str] = field(default_factory=Counter)
    reverted: Counter[str] = field(default_factory=Counter)
    struck: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        """Of another history."""
        self.applied += other.applied
        self.reverted += other.reverted
        self.struck += other.struck

    def lines(self) -> list[str]:
        """A word of each operation there is, in the order of their table."""
        return [f"{name} {self.applied[name]} {self.reverted[name]} {self.struck[name]}" for name in OPERATIONS]

    def changes(self, here: Callable[[], Machine]) -> list[Change]:
        """What to put in place of parts of tuning, for as long as a history lasts."""
        apply, undo, revert = transaction.Transaction._apply, undoing._undo, undoing.revert

        def applied(self_: Any, tuning: Any) -> Any:
            with at(here(), tuning.operation):
                state = apply(self_, tuning)
            self.applied[state.operation] += state.outcome in ("applied", "needs_restart", "unchanged")
            return state

        def undone(host: Any, entry: Any) -> Any:
            with at(here(), entry.operation):
                return undo(host, entry)

        def reverted(*arguments: Any, **more: Any) -> Any:
            states = revert(*arguments, **more)
            self.reverted.update(state.operation for state in states if state.outcome == "reverted")
            return states

        return [
            (transaction.Transaction, "_apply", applied),
            (undoing, "_undo", undone),
            (undoing, "revert", reverted),
        ]


@contextlib.contextmanager
def at(machine: Machine, operation: str) -> Iterator[None]:
    """The agent of the machine is at this operation."""
    before, machine.at = machine.at, operation
    try:
        yield
    finally:
        machine.at = before

"""Counts of the operations that a history applied, reverted, and had struck by faults at their steps.

Data flow: the wrapped functions of the real transaction and revert count each operation -> `Tally`; they also note the
present operation in `Machine.at`, where a fault reads it.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from sim_machine import Machine

from proveout.agent.tuning import transaction
from proveout.agent.tuning import transaction as undoing
from proveout.dsl.operations.table import TUNING_KEYS

Change = tuple[Any, str, Any]


@dataclass
class Tally:
    """Counts by operation."""

    applied: Counter[str] = field(default_factory=Counter)
    reverted: Counter[str] = field(default_factory=Counter)
    struck: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        """Add the counts of another history."""
        self.applied += other.applied
        self.reverted += other.reverted
        self.struck += other.struck

    def lines(self) -> list[str]:
        """Return a line with the three counts of each applied operation, in the order of their table."""
        return [
            f"{name} {self.applied[name]} {self.reverted[name]} {self.struck[name]}"
            for name in TUNING_KEYS
            if self.applied[name]
        ]

    def changes(self, here: Callable[[], Machine]) -> list[Change]:
        """Return the replacements of functions of tuning during a history, as (module, name, function)."""
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
    """Set the present operation of a machine's agent."""
    before, machine.at = machine.at, operation
    try:
        yield
    finally:
        machine.at = before

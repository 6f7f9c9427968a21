"""The state of each tuning on each host, projected from a run's events. Pure; used by the TUI, the reports and the
result document.

Data flow: `TuningSeen` (a host's tunings were applied, looked at, or reverted) -> `after`, one event at a time, or
`tuned` over all of them -> `TunedHost` for each tuning on each host, in the order in which they were first seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from proveout.core.data_classes import record
from proveout.proto.events import TuningSeen
from proveout.proto.wire.results import TuningOutcome, TuningState

Key: TypeAlias = tuple[str, str]
"""(host, name of the tuning)."""

ENDS: Mapping[TuningOutcome, str] = {
    "kept": "kept",
    "reverted": "reverted",
    "drifted": "left as changed from outside",
    "residue": "NOT reverted",
}
"""The outcomes of reverting, the worst last."""
WRONG: frozenset[TuningOutcome] = frozenset({"refused", "failed", "residue"})
DOUBTFUL: frozenset[TuningOutcome] = frozenset({"needs_restart", "drifted"})


@record
class TunedHost:
    """A tuning on a host.

    `outcome` is the result of applying it the last time, `changes` its diff (or why it was not applied). `drift` lists
    values that were changed from outside while the run went on. `end` is how it was reverted: `reverted`, `kept`,
    `drifted`, `residue`, or None while it is applied and when its end is not known (the agent was lost, or the run was
    cut short: the agent then reverts by itself); `left` names the values that are left on the host.
    """

    host: str
    name: str
    operation: str
    keep: bool
    outcome: TuningOutcome | None = None
    changes: tuple[str, ...] = ()
    drift: tuple[str, ...] = ()
    end: TuningOutcome | None = None
    left: tuple[str, ...] = ()

    @property
    def sign(self) -> str:
        """✗ wrong, ! look at this, ✓ as it should be."""
        outcomes = {self.outcome, self.end}
        return "✗" if outcomes & WRONG else "!" if outcomes & DOUBTFUL or self.drift else "✓"

    def describe(self, *, ended: bool) -> str:
        """The state in words; `ended`: the run has ended, so that a tuning without an end has an unknown one."""
        applied = (self.outcome or "not applied").replace("_", " ")
        drift = ", changed from outside" if self.drift and self.end != "drifted" else ""
        if self.end is not None:
            return f"{applied}{drift}, {ENDS[self.end]}"
        unknown = ended and self.outcome in ("applied", "needs_restart")
        return f"{applied}{drift}{', its end is not known' if unknown else ''}"

    @property
    def lines(self) -> tuple[str, ...]:
        """The diff, the drift, and the values that are left."""
        return (*self.changes, *self.drift, *self.left)


def tuned(events: Iterable[TuningSeen]) -> tuple[TunedHost, ...]:
    """Every tuning on every host after these events."""
    found: Mapping[Key, TunedHost] = {}
    for event in events:
        found = after(found, event)
    return tuple(found.values())


def after(known: Mapping[Key, TunedHost], event: TuningSeen) -> Mapping[Key, TunedHost]:
    """The tunings after one more event."""
    found = dict(known)
    for state in event.states:
        key = (event.host, state.name)
        one = found.get(key) or TunedHost(host=event.host, name=state.name, operation=state.operation, keep=state.keep)
        found[key] = _changed(one, event, state)
    return found


def _changed(one: TunedHost, event: TuningSeen, state: TuningState) -> TunedHost:
    match event.act:
        case "apply" if state.outcome not in ENDS:
            # A second request to an agent is answered `unchanged` without a diff; the first diff stays.
            changes = one.changes if state.outcome == "unchanged" and one.changes else state.lines
            return replace(one, outcome=state.outcome, changes=changes, end=None, left=())
        case "look":
            drifted = state.lines if state.outcome == "drifted" else ()
            return replace(one, drift=tuple(dict.fromkeys((*one.drift, *drifted))))
        case _:  # reverted, possibly because another one could not be applied
            return _ended(one, state)


def _ended(one: TunedHost, state: TuningState) -> TunedHost:
    """The worst end of all its changes counts."""
    if state.outcome not in ENDS:
        return one
    order = list(ENDS)
    end = state.outcome if one.end is None else max(one.end, state.outcome, key=order.index)
    left = state.lines if state.outcome != "reverted" else ()
    return replace(one, end=end, left=tuple(dict.fromkeys((*one.left, *left))))


def log_text(event: TuningSeen) -> str:
    """`tuning: 2 applied, 1 unchanged`; "" when a look has found all in place."""
    counted = Counter(state.outcome.replace("_", " ") for state in event.states)
    if event.act == "look" and "drifted" not in counted:
        return ""
    return "tuning: " + ", ".join(f"{count} {outcome}" for outcome, count in counted.items())

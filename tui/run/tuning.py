"""What has become of each tuning on each host, as far as the run has come. Pure.

Data flow: `TuningSeen` (a host's tunings were applied, looked at, or undone) -> `after` -> `RunView.tunings` -> the pane of tunings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from proveout.proto.events import TuningSeen
from proveout.proto.wire.results import TuningOutcome, TuningState

Key = tuple[str, str]
ENDS: Mapping[TuningOutcome, str] = {
    "kept": "kept",
    "reverted": "reverted",
    "drifted": "left as another hand set it",
    "residue": "NOT reverted",
}
"""What undoing can come to, the worst last."""
WRONG: frozenset[TuningOutcome] = frozenset({"refused", "failed", "residue"})
DOUBTFUL: frozenset[TuningOutcome] = frozenset({"needs_restart", "drifted"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningView:
    """A tuning on a host: what applying it came to and its diff (or why not), drift that was seen, how it ended and what is left."""

    host: str
    name: str
    operation: str
    applied: TuningOutcome | None = None
    lines: tuple[str, ...] = ()
    drift: tuple[str, ...] = ()
    end: TuningOutcome | None = None
    left: tuple[str, ...] = ()

    @property
    def sign(self) -> str:
        """✗ wrong, ! look at this, ✓ as it should be."""
        outcomes = {self.applied, self.end}
        return "✗" if outcomes & WRONG else "!" if outcomes & DOUBTFUL or self.drift else "✓"

    @property
    def words(self) -> str:
        """What has become of it."""
        applied = (self.applied or "not applied").replace("_", " ")
        drift = ", changed by another hand" if self.drift and self.end != "drifted" else ""
        return f"{applied}{drift}, {ENDS[self.end]}" if self.end else f"{applied}{drift}"


def after(known: Mapping[Key, TuningView], event: TuningSeen) -> Mapping[Key, TuningView]:
    """The tunings after one more event, in the order in which they were first seen."""
    found = dict(known)
    for state in event.states:
        key = (event.host, state.name)
        one = found.get(key, TuningView(host=event.host, name=state.name, operation=state.operation))
        found[key] = _changed(one, event, state)
    return found


def _changed(one: TuningView, event: TuningSeen, state: TuningState) -> TuningView:
    match event.act:
        case "apply" if state.outcome not in ENDS:
            lines = one.lines if state.outcome == "unchanged" and one.lines else state.lines
            return replace(one, applied=state.outcome, lines=lines, end=None, left=())
        case "look":
            drifted = state.lines if state.outcome == "drifted" else ()
            return replace(one, drift=tuple(dict.fromkeys((*one.drift, *drifted))))
        case _:  # undone, perhaps because another one could not be applied
            return _ended(one, state)


def _ended(one: TuningView, state: TuningState) -> TuningView:
    """The worst of what became of its changes counts."""
    if state.outcome not in ENDS:
        return one
    order = list(ENDS)
    end = state.outcome if one.end is None else max(one.end, state.outcome, key=order.index)
    left = state.lines if state.outcome in ("residue", "drifted") else ()
    return replace(one, end=end, left=tuple(dict.fromkeys((*one.left, *left))))


def said(event: TuningSeen) -> str:
    """`tuning: 2 applied, 1 unchanged`; "" when a look has found all in place."""
    counted = Counter(state.outcome.replace("_", " ") for state in event.states)
    if event.act == "look" and "drifted" not in counted:
        return ""
    return "tuning: " + ", ".join(f"{count} {outcome}" for outcome, count in counted.items())

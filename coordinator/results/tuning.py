"""What became of the tunings of a run, each on each host, from what its journal tells. Pure.

Data flow: `results.tunings` (a `TuningSeen` for each host each time it was tuned, looked at or set back) -> `tuned` -> the summaries, the report, the
result document.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from proveout.coordinator.results.results import RunResults
from proveout.proto.wire.results import TuningOutcome, TuningState


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedHost:
    """A tuning on a host.

    `outcome` is that of applying it the last time, `changes` its diff (or why it was not applied). `drift` tells what another hand changed while the run
    went on. `end` is what became of it: `reverted`, `kept`, `drifted`, `residue`, or None where nobody could tell (the agent was lost, or the run was
    cut short: the agent sets back by itself); `left` names what is left on the host.
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
    def fate(self) -> str:
        """What became of it, in words."""
        if self.outcome not in ("applied", "needs_restart"):
            return (self.outcome or "not applied").replace("_", " ")
        applied = self.outcome.replace("_", " ")
        return f"{applied}, {_ENDS[self.end]}" if self.end in _ENDS else applied


_ENDS: dict[TuningOutcome | None, str] = {
    "reverted": "reverted",
    "kept": "kept",
    "drifted": "left as another hand set it",
    "residue": "NOT reverted",
    None: "its end is not known",
}


def tuned(results: RunResults) -> tuple[TunedHost, ...]:
    """Every tuning on every host, in the order in which they were first seen."""
    found: dict[tuple[str, str], TunedHost] = {}
    for seen in results.tunings:
        for state in seen.states:
            one = found.get((seen.host, state.name)) or _begun(seen.host, state)
            match seen.act:
                case "apply" if state.outcome in ("reverted", "residue", "drifted"):
                    one = _ended(one, state)  # a transaction that failed has undone the others
                case "apply":
                    one = replace(one, outcome=state.outcome, changes=_kept(one, state), end=None, left=())
                case "look" if state.outcome == "drifted":
                    one = replace(one, drift=tuple(dict.fromkeys((*one.drift, *state.lines))))
                case "revert":
                    one = _ended(one, state)
            found[seen.host, state.name] = one
    return tuple(found.values())


def _begun(host: str, state: TuningState) -> TunedHost:
    return TunedHost(host=host, name=state.name, operation=state.operation, keep=state.keep)


def _kept(one: TunedHost, state: TuningState) -> tuple[str, ...]:
    """The diff; one that is applied again without one, by an agent that was asked twice, keeps what it had."""
    return one.changes if state.outcome == "unchanged" and one.changes else state.lines


_GRAVITY: tuple[TuningOutcome | None, ...] = (None, "kept", "reverted", "drifted", "residue")


def _ended(one: TunedHost, state: TuningState) -> TunedHost:
    """The worst of what became of its changes counts."""
    worst = max((one.end, state.outcome), key=lambda end: _GRAVITY.index(end) if end in _GRAVITY else 0)
    left = state.lines if state.outcome in ("residue", "drifted") else ()
    return replace(one, end=worst, left=tuple(dict.fromkeys((*one.left, *left))))


def rows(found: Iterable[TunedHost]) -> list[tuple[str, str, str, str]]:
    """(host, tuning, what became of it, what was changed), for tables."""
    return [
        (one.host, f"{one.name} ({one.operation})", one.fate, "\n".join((*one.changes, *one.drift, *one.left)))
        for one in found
    ]

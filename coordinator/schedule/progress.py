"""What a run has established so far, folded from its journalled events: the only memory that outlives a coordinator.

Data flow: journal -> `of(events)` on a resume, or `scheduler` emits an event -> `apply(facts, event)` while the run goes on.
Both ways give the same value, so the scheduler decides what comes next from facts alone and a resume needs no code of
its own. Only what decisions and results stand on is kept; live events change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from proveout.proto.events import (
    LIVE_EVENTS,
    AgentLost,
    AgentUp,
    Event,
    FactsTaken,
    InvariantsSeen,
    IterationFinished,
    IterationId,
    IterationStarted,
    IterationVoided,
    LadderCut,
    PopulateFinished,
    ProbeFinished,
    PropagationCompared,
    RunFinished,
    RunStarted,
    SearchFinished,
    StageFinished,
    StageStarted,
    VerdictReached,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The fold of a run's events. `history` is all of them but the live ones, in order; the rest are views of it.

    `taken` are the environment's facts of this sitting by (when, host, system). `without` are the hosts that this sitting goes on without; a resume dials them again. `open_iteration` has started and
    neither finished nor been voided. `probes` counts the probes reported per search. `invariants` were looked at: (stage,
    iteration or "", system).
    """

    history: tuple[Event, ...] = ()
    started: RunStarted | None = None
    cores: Mapping[str, int] = field(default_factory=dict)
    without: frozenset[str] = frozenset()
    taken: Mapping[tuple[str, str, str], FactsTaken] = field(default_factory=dict)
    stages_started: frozenset[str] = frozenset()
    stages_finished: Mapping[str, StageFinished] = field(default_factory=dict)
    populated: frozenset[tuple[str, str]] = frozenset()
    iterations: tuple[IterationFinished, ...] = ()
    voided: tuple[IterationVoided, ...] = ()
    open_iteration: IterationId | None = None
    probes: Mapping[str, int] = field(default_factory=dict)
    searches: Mapping[str, SearchFinished] = field(default_factory=dict)
    cuts: Mapping[str, LadderCut] = field(default_factory=dict)
    compared: Mapping[str, PropagationCompared] = field(default_factory=dict)
    invariants: frozenset[tuple[str, str, str]] = frozenset()
    verdicts: tuple[VerdictReached, ...] = ()
    ended: RunFinished | None = None

    def of_stage(self, stage: str) -> tuple[IterationFinished, ...]:
        """Finished iterations of a stage, valid or not, in the order they ended."""
        return tuple(i for i in self.iterations if i.id.stage == stage)

    def tries(self, stage: str, rung: int, repeat: int) -> tuple[tuple[IterationFinished, ...], int]:
        """The finished iterations of one rung in one repeat, and the number the next attempt has."""
        finished = tuple(i for i in self.of_stage(stage) if i.id.rung == rung and i.id.repeat == repeat)
        voided = sum((v.id.stage, v.id.rung, v.id.repeat) == (stage, rung, repeat) for v in self.voided)
        return finished, len(finished) + voided + 1


def of(events: Iterable[Event]) -> Facts:
    """The facts of a journal, from its first event on."""
    facts = Facts()
    for event in events:
        facts = apply(facts, event)
    return facts


def apply(facts: Facts, event: Event) -> Facts:
    """The facts after one more event."""
    if isinstance(event, LIVE_EVENTS):
        return facts
    return replace(_view(facts, event), history=(*facts.history, event))


def _view(facts: Facts, event: Event) -> Facts:  # noqa: PLR0911  # one arm per kind of event
    match event:
        case RunStarted():
            return replace(facts, started=event, ended=None, without=frozenset(), taken={})
        case FactsTaken():
            return replace(facts, taken={**facts.taken, (event.when, event.host, event.system): event})
        case AgentLost(abandoned=True):
            return replace(facts, without=facts.without | {event.host})
        case AgentUp():
            return replace(facts, cores={**facts.cores, event.host: event.cores})
        case IterationStarted() | IterationFinished() | IterationVoided():
            return _iteration(facts, event)
        case PropagationCompared():
            return replace(facts, compared={**facts.compared, event.source: event})
        case InvariantsSeen():
            seen = (event.stage, event.iteration, event.system)
            return replace(facts, invariants=facts.invariants | {seen})
        case VerdictReached():
            return replace(facts, verdicts=(*facts.verdicts, event))
        case RunFinished():
            return replace(facts, ended=event)
        case _:
            return _stage(facts, event)


def _iteration(facts: Facts, event: IterationStarted | IterationFinished | IterationVoided) -> Facts:
    match event:
        case IterationStarted():
            return replace(facts, open_iteration=event.id)
        case IterationFinished():
            return replace(facts, open_iteration=None, iterations=(*facts.iterations, event))
        case IterationVoided():
            kept = tuple(
                item for item in facts.iterations if event.rerun or item.id != event.id
            )  # it may have been finished before
            return replace(facts, open_iteration=None, iterations=kept, voided=(*facts.voided, event))


def _stage(facts: Facts, event: Event) -> Facts:  # noqa: PLR0911  # one arm per kind of event
    match event:
        case StageStarted():
            return replace(facts, stages_started=facts.stages_started | {event.stage})
        case StageFinished():
            return replace(facts, stages_finished={**facts.stages_finished, event.stage: event})
        case PopulateFinished():
            return replace(facts, populated=facts.populated | {(event.stage, event.system)})
        case ProbeFinished():
            return replace(facts, probes={**facts.probes, event.stage: facts.probes.get(event.stage, 0) + 1})
        case SearchFinished():
            return replace(facts, searches={**facts.searches, event.stage: event})
        case LadderCut():
            return replace(facts, cuts={**facts.cuts, event.stage: event})
        case _:
            return facts

"""The progress of a run, folded from its journalled events: the only state that outlasts a coordinator process.

Data flow: journal -> `run_progress(events)` on a resume, or the scheduler emits an event -> `apply(progress, event)`
during the run. Both give the same value, so that the scheduler decides from progress alone and a resume needs no code
of its own. Live events are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from proveout.core.data_classes import dataclass, replace
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
    ValuesTaken,
    VerdictReached,
)


@dataclass(frozen=True, kw_only=True)
class RunProgress:
    """The fold of a run's events. `history` holds all events but the live ones, in order; the other fields are views of
    it.

    `taken`: the facts that this coordinator process has collected, by (when, host, system). `without`: the hosts that
    it continues without; a resume dials them again. `open_iteration` has started and is neither finished nor void.
    `schemas`: those that were read, as (stage, system). `probes`: the number of probes reported per search.
    `invariants`: those that were checked, as (stage, iteration or "", system). `values`: how often a stage has given
    its numbers.
    """

    history: tuple[Event, ...] = ()
    started: RunStarted | None = None
    cores: Mapping[str, int] = field(default_factory=dict)
    without: frozenset[str] = frozenset()
    taken: Mapping[tuple[str, str, str], FactsTaken] = field(default_factory=dict)
    schemas: frozenset[tuple[str, str]] = frozenset()
    stages_started: frozenset[str] = frozenset()
    stages_finished: Mapping[str, StageFinished] = field(default_factory=dict)
    populated: frozenset[tuple[str, str]] = frozenset()
    iterations: tuple[IterationFinished, ...] = ()
    voided: tuple[IterationVoided, ...] = ()
    open_iteration: IterationId | None = None
    probes: Mapping[str, int] = field(default_factory=dict)
    searches: Mapping[str, SearchFinished] = field(default_factory=dict)
    cuts: Mapping[str, LadderCut] = field(default_factory=dict)
    values: Mapping[str, int] = field(default_factory=dict)
    compared: Mapping[str, PropagationCompared] = field(default_factory=dict)
    invariants: frozenset[tuple[str, str, str]] = frozenset()
    verdicts: tuple[VerdictReached, ...] = ()
    ended: RunFinished | None = None

    def of_stage(self, stage: str) -> tuple[IterationFinished, ...]:
        """Finished iterations of a stage, valid or not, in order of their ends."""
        return tuple(i for i in self.iterations if i.id.stage == stage)

    def tries(self, stage: str, rung: int, repeat: int) -> tuple[tuple[IterationFinished, ...], int]:
        """The finished iterations of one rung in one repeat, and the number the next attempt has."""
        finished = tuple(i for i in self.of_stage(stage) if i.id.rung == rung and i.id.repeat == repeat)
        voided = sum((v.id.stage, v.id.rung, v.id.repeat) == (stage, rung, repeat) for v in self.voided)
        return finished, len(finished) + voided + 1


def run_progress(events: Iterable[Event]) -> RunProgress:
    """The progress of a journal, from its first event on."""
    progress = RunProgress()
    for event in events:
        progress = apply(progress, event)
    return progress


def apply(progress: RunProgress, event: Event) -> RunProgress:
    """The progress after one more event."""
    if isinstance(event, LIVE_EVENTS):
        return progress
    return replace(_view(progress, event), history=(*progress.history, event))


def _view(progress: RunProgress, event: Event) -> RunProgress:  # noqa: PLR0911  # one arm per kind of event
    match event:
        case RunStarted():
            return replace(progress, started=event, ended=None, without=frozenset(), taken={})
        case FactsTaken(when="stage"):
            return replace(progress, schemas=progress.schemas | {(event.stage, event.system)})
        case FactsTaken():
            return replace(progress, taken={**progress.taken, (event.when, event.host, event.system): event})
        case AgentLost(abandoned=True):
            return replace(progress, without=progress.without | {event.host})
        case AgentUp():
            return replace(progress, cores={**progress.cores, event.host: event.cores})
        case IterationStarted() | IterationFinished() | IterationVoided():
            return _iteration(progress, event)
        case PropagationCompared():
            return replace(progress, compared={**progress.compared, event.source: event})
        case InvariantsSeen():
            seen = (event.stage, event.iteration, event.system)
            return replace(progress, invariants=progress.invariants | {seen})
        case VerdictReached():
            return replace(progress, verdicts=(*progress.verdicts, event))
        case RunFinished():
            return replace(progress, ended=event)
        case _:
            return _stage(progress, event)


def _iteration(progress: RunProgress, event: IterationStarted | IterationFinished | IterationVoided) -> RunProgress:
    match event:
        case IterationStarted():
            return replace(progress, open_iteration=event.id)
        case IterationFinished():
            return replace(progress, open_iteration=None, iterations=(*progress.iterations, event))
        case IterationVoided():
            kept = tuple(
                item for item in progress.iterations if event.rerun or item.id != event.id
            )  # it may have been finished before
            return replace(progress, open_iteration=None, iterations=kept, voided=(*progress.voided, event))


def _stage(progress: RunProgress, event: Event) -> RunProgress:  # noqa: PLR0911  # one arm per kind of event
    match event:
        case StageStarted():
            return replace(progress, stages_started=progress.stages_started | {event.stage})
        case StageFinished():
            return replace(progress, stages_finished={**progress.stages_finished, event.stage: event})
        case PopulateFinished():
            return replace(progress, populated=progress.populated | {(event.stage, event.system)})
        case ProbeFinished():
            return replace(progress, probes={**progress.probes, event.stage: progress.probes.get(event.stage, 0) + 1})
        case ValuesTaken():
            return replace(progress, values={**progress.values, event.stage: event.repeat})
        case SearchFinished():
            return replace(progress, searches={**progress.searches, event.stage: event})
        case LadderCut():
            return replace(progress, cuts={**progress.cuts, event.stage: event})
        case _:
            return progress

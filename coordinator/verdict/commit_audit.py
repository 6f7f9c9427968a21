"""Compare the commits that clients counted with those in the database, including the ramps. Pure.

Data flow: a workload's `TransactionType.counted` -> read with the invariants, after the population and after every
stage with a load (`InvariantsSeen.tallies`) -> between two readings of a system the number has grown by `advance`; the
iterations between them report how often their clients saw that transaction commit, from the first second of the ramp-up
to the last statement after the end (`IterationFinished.committed`), and how often the outcome is unknown (`unknown`:
the connection was lost, or closed, before the answer) -> one verdict `counted:<system>`.

Where commits are tracked (`dsl.workloads.commits`), those that were found lost are allowed to be missing, and
`judge_lost` gives one verdict `commits:<stage>`: none was lost apart from a declared fault. It passes only where the
last attempt of each repeat had all faults of the plan. The verdicts of the plan judge those that a fault has lost.

The sink of a propagation also has the commits of its source, and is not judged. Spans that cannot be judged are left
out and listed: those with an iteration whose clients were lost, with their count, and those in which the plan restored
or changed the system's data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace

from proveout.coordinator.measure.faults.undisturbed import missed
from proveout.coordinator.schedule.tasks import propagations
from proveout.core.data_classes import dataclass
from proveout.dsl.plan.loads import in_load, parts
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Drop, Ladder, Populate, Reset, Search, Sql
from proveout.proto.events import (
    Event,
    InvariantsSeen,
    IterationFinished,
    IterationVoided,
    PopulateFinished,
    StageStarted,
    Stamped,
    VerdictReached,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The time between two readings of one number: where it ended, by how much it went up, what clients saw of it.

    `lost`: tracked commits of any transaction that are known to be lost. `spoilt` says why it cannot be judged.
    """

    after: str
    transaction: str
    advance: int
    committed: int
    unknown: int
    lost: int = 0
    spoilt: str = ""

    @property
    def holds(self) -> bool:
        """Whether every commit was counted but the lost ones, and only commits were."""
        return self.committed - self.lost <= self.advance <= self.committed + self.unknown

    @property
    def evidence(self) -> str:
        """The numbers in words."""
        doubts = [f"{self.unknown:,} without an answer"] if self.unknown else []
        doubts += [f"{self.lost:,} found lost, of all transactions"] if self.lost else []
        doubt = f" ({', '.join(doubts)})" if doubts else ""
        database = f"the database counts {self.advance:,} {self.transaction}"
        return f"{self.after}: {database}, the clients {self.committed:,}{doubt}"


@dataclass(slots=True)
class _Reading:
    """The last reading of a system, and the events since."""

    tallies: dict[str, int]
    committed: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    spoilt: str = ""

    def count(self, ended: IterationFinished, load: str) -> None:
        """Add the counts of a load, whose transactions are named by `loads.in_load`."""
        prefix = in_load(load, "")
        self.lost += sum(one.lost for one in ended.commits if one.load == load)
        for total, part in ((self.committed, ended.committed), (self.unknown, ended.unknown)):
            for name, number in part.items():
                if name.startswith(prefix):
                    short = name.removeprefix(prefix)
                    total[short] = total.get(short, 0) + number


def spans(plan: Plan, events: Iterable[Stamped | Event]) -> dict[str, list[Span]]:
    """Of every system whose numbers were read: the spans between the readings, in order."""
    found: dict[str, list[Span]] = {}
    last: dict[str, _Reading] = {}
    sinks = {sink.name for _, sink in propagations(plan)}
    for item in events:
        event = item.event if isinstance(item, Stamped) else item
        match event:
            case InvariantsSeen(tallies=tallies, system=system) if tallies and system not in sinks:
                if system in last:
                    found.setdefault(system, []).extend(_between(last[system], event))
                last[system] = _Reading(dict(tallies))
            case IterationFinished(id=identity):
                for load, target in _targets(plan, identity.stage):
                    if target in last:
                        last[target].count(event, load)
            case IterationVoided(id=identity):
                for _, target in _targets(plan, identity.stage):
                    if target in last:
                        last[target].spoilt = f"the clients' count of iteration {identity} is lost"
            case PopulateFinished(system=system):
                last.pop(system, None)
            case StageStarted(stage=name):
                for system in _written(plan, name) & set(last):
                    last[system].spoilt = f"stage {name} has written to it"
    return found


def judge_tallies(plan: Plan, events: Iterable[Stamped | Event]) -> tuple[VerdictReached, ...]:
    """The built-in verdicts `counted:<system>`: the clients' commits equal those in the database."""
    return tuple(_verdict(system, found) for system, found in spans(plan, events).items())


def judge_lost(plan: Plan, events: Iterable[Stamped | Event]) -> tuple[VerdictReached, ...]:
    """The built-in verdicts `commits:<stage>` of the stages with tracked commits that have run."""
    loaded = (stage for stage in plan.stages if isinstance(stage, Ladder | Search))
    stages = [stage.id for stage in loaded if any(part.stage.tracked for part in parts(stage))]
    ended: dict[str, list[IterationFinished]] = {name: [] for name in stages}
    for item in events:
        event = item.event if isinstance(item, Stamped) else item
        if isinstance(event, IterationFinished) and event.id.stage in ended:
            ended[event.id.stage].append(event)
    return tuple(_tracked(name, found) for name, found in ended.items() if found)


def _tracked(stage: str, ended: Sequence[IterationFinished]) -> VerdictReached:
    every = [(one.id, commits) for one in ended for commits in one.commits]
    apart = [(identity, one) for identity, one in every if one.lost_apart]
    acknowledged, lost = (sum(getattr(one, name) for _, one in every) for name in ("acknowledged", "lost"))
    unread = sum(one.unread for _, one in every)
    missing = sum(not one.commits for one in ended)
    repeats = {(one.id.rung, one.id.repeat): one for one in ended}  # of several attempts the last one
    without = [(one.id, texts) for one in repeats.values() if (texts := missed(one))]
    evidence = f"{acknowledged:,} commits were acknowledged in {_iterations(len(ended))}, {lost:,} are lost"
    if lost:
        evidence += f", {lost - sum(one.lost_apart for _, one in apart):,} of them by faults"
    if apart:
        identity, one = apart[0]
        first = f"{one.lost_apart:,} of {one.acknowledged:,} acknowledged commits are lost apart from a fault"
        evidence = f"iteration {identity}: {first}; in all {evidence}"
    if unread:
        evidence += f"; those of {unread:,} terminals could not be read back"
    if missing:
        evidence += f"; {_iterations(missing)} without a count"
    if without:
        identity, texts = without[0]
        evidence += f"; {_iterations(len(without))} without a fault of the plan ({identity}: {texts[0]})"
    return VerdictReached(
        id=f"commits:{stage}",
        title=f"No acknowledged commit of {stage} was lost apart from a fault",
        severity="fail",
        outcome="FAIL" if apart else "INCONCLUSIVE" if unread or missing or without else "PASS",
        check="each acknowledged commit is in the database when it is read back, but for those that a fault has lost",
        evidence=evidence,
        iterations=tuple(str(identity) for identity, _ in apart),
    )


def _iterations(count: int) -> str:
    return f"{count} iteration{'s' if count != 1 else ''}"


def _between(reading: _Reading, seen: InvariantsSeen) -> Iterator[Span]:
    after = f"iteration {seen.iteration}" if seen.iteration else f"stage {seen.stage}"
    for name, number in seen.tallies.items():
        if name in reading.tallies:
            yield Span(
                after=after,
                transaction=name,
                advance=number - reading.tallies[name],
                committed=reading.committed.get(name, 0),
                unknown=reading.unknown.get(name, 0),
                lost=reading.lost,
                spoilt=reading.spoilt,
            )


def _verdict(system: str, found: list[Span]) -> VerdictReached:
    judged = [span for span in found if not span.spoilt]
    wrong = next((span for span in judged if not span.holds), None)
    left_out = "".join(f"; {span.after} is left out: {span.spoilt}" for span in found if span.spoilt)
    verdict = VerdictReached(
        id=f"counted:{system}",
        title=f"The commits counted by clients equal those in {system}",
        severity="fail",
        outcome="FAIL" if wrong else "PASS" if judged else "INCONCLUSIVE",
        check=f"the clients' counts of commits, ramps included, equal what {system} has counted",
        evidence=wrong.evidence + left_out if wrong else "",
    )
    if wrong is not None:
        return verdict
    evidence = "; ".join(span.evidence for span in judged) or "no span could be judged"
    return replace(verdict, evidence=evidence + left_out)


def _targets(plan: Plan, stage: str) -> list[tuple[str, str]]:
    """Each load of a stage with the system that it runs on."""
    found = (s for s in plan.stages if s.id == stage and isinstance(s, Ladder | Search))
    return [(part.name, part.stage.target) for one in found for part in parts(one)]


def _written(plan: Plan, name: str) -> set[str]:
    """The systems that a stage writes to without counting."""
    match next((stage for stage in plan.stages if stage.id == name), None):
        case Sql(system=system):
            return {system}
        case Reset(systems=systems) | Drop(systems=systems):
            return set(systems)
        case Populate(into=into):
            return set(into)
        case _:
            return set()

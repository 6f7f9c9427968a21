"""The iterations behind a check, remarks about them, and advice for an INCONCLUSIVE verdict. Pure.

Data flow: the stages and rungs in the check's text (`baseline.at(4)`, `baseline.peak`, `cap.rate`) -> the iterations
behind those numbers, the repeats without a valid one, the share of void attempts, limits that the system broke, and
remarks: a number that repeats lack, a rung that was cut, a search without an answer, a rung that is not shown to be
steady, ladders that are compared and were not interleaved, warnings of the iterations. `advise` adds a sentence to the
evidence, with a key of the plan or a thing to inspect.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from proveout.coordinator.measure import steady_state
from proveout.coordinator.measure.faults import missed
from proveout.coordinator.measure.steady_state import NoKnee
from proveout.coordinator.results.estimates import GROUP as INTERFERENCE
from proveout.coordinator.results.estimates import VERSUS
from proveout.coordinator.results.results import (
    RungResult,
    RunResults,
    StageResult,
    confirmation,
    following,
    not_interleaved,
)
from proveout.coordinator.verdict.checks import NEEDED, PERHAPS_NEVER, STATISTICS, Judged
from proveout.core.data_classes import record
from proveout.core.json_data import at_path
from proveout.core.numbers import SOUGHT, rung_name, together
from proveout.dsl.expr.syntax import (
    Call,
    ExpressionFault,
    Index,
    Member,
    Name,
    Number,
    Syntax,
    children,
    parse,
    ungroup,
    walk,
)
from proveout.dsl.metrics import COMMITS
from proveout.dsl.plan.stages import VOID_FRACTION_MAX
from proveout.dsl.rules.repeat_rules import compared
from proveout.dsl.workloads.conformance import LOGICAL_FAILURES
from proveout.proto.events import IterationFinished, ValidityFinding


@record
class Voids:
    """The attempts behind a check in one stage, and how many of them were void, with the checks that voided them;
    `limit`: the share that the plan allows."""

    stage: str
    void: int
    attempts: int
    limit: float
    checks: tuple[str, ...] = ()

    @property
    def is_too_many(self) -> bool:
        """Whether the share is above the limit."""
        return self.void > self.limit * self.attempts

    def __str__(self) -> str:
        share, most = together("fraction", self.void / max(self.attempts, 1), self.limit)
        return f"{self.void} of {self.attempts} attempts of {self.stage} void ({share}, limit {most})"


@record
class Provenance:
    """Iterations by name; `excluded` names those that are invalid after all reruns, each with its reason.

    `valid_fewest`: the fewest valid repeats of a rung that has excluded ones. `voids`: the attempts by stage.
    `breaches`: limits that the system broke in counted iterations, in words. `is_other_load`: more transactions failed
    logically than the workload expects, and the check does not read how many. `stages`: those that the check reads.
    `failed_checks`: the checks that voided the excluded iterations, or that are breaches. `knees`: the ladders whose
    knee the check reads and that have none. `missed`: of a check that reads tracked commits, the faults of the plan
    that were not in counted or excluded iterations.
    """

    iterations: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    valid_fewest: int = 0
    voids: tuple[Voids, ...] = ()
    breaches: tuple[str, ...] = ()
    is_other_load: bool = False
    remarks: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    failed_checks: tuple[str, ...] = ()
    knees: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()


KNEE: Literal["knee"] = "knee"
Rung: TypeAlias = int | Literal["knee"] | None


def provenance(text: str, results: RunResults) -> Provenance:
    """The provenance of the check `text` in these results; empty when the text cannot be parsed."""
    try:
        tree = parse(text)
    except ExpressionFault:
        return Provenance()
    read = list(dict.fromkeys([*_references(tree, results), *_alone(tree, results)]))
    stages = tuple(dict.fromkeys(stage for stage, _ in read))
    behind = [_behind(results.stages[stage], rung) for stage, rung in read]
    used = [item for part in behind for item in part.counted]
    excluded = [item for part in behind for item in part.excluded]
    remarks = [remark for stage, rung in read for remark in _missing(results.stages[stage], rung)]
    broken = {str(item.id): [f for f in item.findings if not f.ok and f.breach] for item in used}
    ladders = [name for name, result in results.stages.items() if result.kind == "ladder"]
    remarks += filter(None, (not_interleaved(results, names) for names in compared(text, ladders)))
    return Provenance(
        iterations=tuple(dict.fromkeys(str(item.id) for item in used)),
        excluded=tuple(
            dict.fromkeys(
                f"{item.id}: {'; '.join(f.evidence for f in item.findings if not f.ok and f.voids)}"
                for item in excluded
            )
        ),
        valid_fewest=min((part.valid_fewest for part in behind if part.excluded), default=0),
        voids=tuple(dict.fromkeys(_voids(results, part) for part in behind)),
        breaches=tuple(_counted_findings(broken)),
        is_other_load=any(f.check == LOGICAL_FAILURES for found in broken.values() for f in found)
        and not _members(tree) & {"logical", "logical_fraction"},
        remarks=tuple(
            dict.fromkeys(
                [
                    *_lacking(tree, results),
                    *remarks,
                    *_unsteady(results, used),
                    *(f"note: {text}" for stage in stages if (text := following(results, stage))),
                    *_warnings(used),
                ]
            )
        ),
        stages=stages,
        failed_checks=tuple(
            dict.fromkeys(
                [f.check for item in excluded for f in item.findings if not f.ok and f.voids]
                + [f.check for found in broken.values() for f in found]
            )
        ),
        knees=tuple(stage for stage, rung in read if rung == KNEE and isinstance(results.stages[stage].knee, NoKnee)),
        missed=tuple(
            f"{item.id}: {text}"
            for item in ((*used, *excluded) if COMMITS.keys() & _members(tree) else ())
            for text in missed(item)
        ),
    )


def _members(tree: Syntax) -> set[str]:
    """The names that are read of results."""
    return {node.name for node in walk(tree) if isinstance(node, Member)}


def _references(node: Syntax, results: RunResults) -> Iterator[tuple[str, Rung]]:
    """(stage, rung) for `at(stage, n)`, (stage, KNEE) for its knee, (stage, None) for any other mention: of a ladder
    that is its peak."""
    if isinstance(node, Call) and node.function == "at" and len(node.arguments) == 2:
        stage, rung = map(ungroup, node.arguments)
        if isinstance(stage, Name) and isinstance(rung, Number) and stage.name in results.stages:
            yield stage.name, int(rung.value)
            return
    if isinstance(node, Member) and node.name == KNEE:
        stage = ungroup(node.of)
        if isinstance(stage, Name) and stage.name in results.stages:
            yield stage.name, KNEE
            return
    if isinstance(node, Name) and node.name in results.stages:
        yield node.name, None
    for part in children(node):
        yield from _references(part, results)


def _alone(node: Syntax, results: RunResults) -> Iterator[tuple[str, Rung]]:
    """(ladder, rung) of each load alone whose ratio to the load among the others is read (`interference`)."""
    for stage, rung, path in _chains(node, results):
        if INTERFERENCE in path:
            load = path[path.index(INTERFERENCE) - 1]
            if (alone := results.stages[stage].alone.get(load)) is not None:
                yield alone.id, rung


@record
class _Behind:
    """The rungs behind a reference to a stage, with their counted iterations and excluded repeats; the fewest valid
    repeats of a rung with excluded ones."""

    stage: str
    rungs: frozenset[int]
    counted: tuple[IterationFinished, ...]
    excluded: tuple[IterationFinished, ...] = ()
    valid_fewest: int = 0


def _behind(result: StageResult, rung: Rung) -> _Behind:
    """The iterations behind a rung's numbers, and the repeats that are missing in them.

    Behind the knee stands the whole ladder. Behind the peak stands the rung that it is; of the others, an excluded
    repeat matters when its throughput could have made another rung the peak. Behind a search stands its confirmation.
    """
    if result.kind == "search":
        confirming = confirmation(result)
        counted = (confirming,) if confirming else ()
        return _Behind(stage=result.id, rungs=frozenset(item.id.rung for item in counted), counted=counted)
    if rung is not None:
        return _of_rungs(result, [item for item in result.rungs if rung in (item.threads, KNEE)])
    top = result.highest
    if top is None:
        return _of_rungs(result, result.rungs)
    mean = float(top.tree["tps"]["mean"])
    rivals = [
        item
        for item in result.rungs
        if item is not top and any(float(one.metrics.get("tps", 0.0)) > mean for one in item.excluded)
    ]
    found = _of_rungs(result, [top, *rivals])
    return replace(found, counted=top.iterations)


def _of_rungs(result: StageResult, found: Sequence[RungResult]) -> _Behind:
    return _Behind(
        stage=result.id,
        rungs=frozenset(item.threads for item in found),
        counted=tuple(one for item in found for one in item.iterations),
        excluded=tuple(one for item in found for one in item.excluded),
        valid_fewest=min((len(item.iterations) for item in found if item.excluded), default=0),
    )


def _voids(results: RunResults, part: _Behind) -> Voids:
    """The attempts at the rungs: those that ended, and those that were cancelled (a lost agent, a failed task)."""
    result = results.stages[part.stage]
    ended = [item for item in result.iterations if item.id.rung in part.rungs]
    known = {item.id for item in ended}
    cancelled = [item for item in result.voided if item.id.rung in part.rungs and item.id not in known]
    void = sum(not item.valid for item in ended) + len(cancelled)
    limit = _limit(results, part.stage, "void_fraction_max", VOID_FRACTION_MAX)
    checks = dict.fromkeys(f.check for item in ended for f in item.findings if not f.ok and f.voids)
    return Voids(stage=part.stage, void=void, attempts=len(ended) + len(cancelled), limit=limit, checks=tuple(checks))


def _limit(results: RunResults, stage: str, name: str, otherwise: float) -> float:
    """A limit of a stage of the recorded plan; `otherwise` in plans from before it existed."""
    limits = results.plan_stage(stage).get("limits", {})
    return float(limits.get(name, otherwise))


def _missing(result: StageResult, rung: Rung) -> Iterator[str]:
    if rung == KNEE:
        if isinstance(result.knee, NoKnee):
            yield f"{result.id} has no knee: {result.knee.reason}"
    elif result.cut is not None and rung in result.cut.skipped:
        was, cut = "was" if rung == 1 else "were", result.cut
        ran = len({item.id.repeat for item in result.iterations if item.id.rung == rung})
        how = f"run in {ran} of {result.repeat} repeats only" if ran else "not run"  # a later repeat was cut there
        yield f"{rung_name(result.kind, rung)} {was} {how}: stopped at {cut.at_rung} ({cut.evidence})"
    elif result.finished is not None and result.finished.outcome == "skipped":
        yield f"stage {result.id} was left out"
    elif result.finished is not None and result.finished.outcome == "failed":
        yield f"stage {result.id} was not run to its end"
    elif result.climbs and rung is not None and not any(item.threads == rung for item in result.rungs):
        yield f"{result.id} has no iteration with {rung_name(result.kind, rung)}"
    if result.search is not None and result.search.rate is None:
        yield f"{result.id} found no {SOUGHT[result.search.over]}: {result.search.reason}"


def _lacking(node: Syntax, results: RunResults) -> Iterator[str]:
    """The numbers that counted repeats lack: `lag.slope_upper is missing in repeats 2, 4 of cached at 4 threads`."""
    for stage, rung, path in _chains(node, results):
        if INTERFERENCE in path or VERSUS in path:
            continue  # a ratio over the repeats, not a number of each
        found = next((item for item in results.stages[stage].rungs if item.threads == rung), None)
        repeats = [
            str(item.id.repeat) for item in (found.iterations if found else ()) if at_path(item.metrics, *path) is None
        ]
        if repeats and path:
            where = f"{stage} at {rung_name(results.stages[stage].kind, rung)}"
            yield f"{'.'.join(path)} is missing in repeat{'s' * (len(repeats) > 1)} {', '.join(repeats)} of {where}"


def _chains(node: Syntax, results: RunResults) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """`_chain` of each number that is read."""
    chain = _chain(node, results)
    if chain is not None:
        yield chain
        return
    for part in children(node):
        yield from _chains(part, results)


def _chain(node: Syntax, results: RunResults) -> tuple[str, int, tuple[str, ...]] | None:
    """Stage, rung and path of a number: of `base.at(4).lag.max_s.mean` `base`, 4 and `lag`, `max_s`; None for another
    node."""
    path: list[str] = []
    node = ungroup(node)
    while isinstance(node, Member | Index):
        of = ungroup(node.of)
        if isinstance(node, Index):
            path.insert(0, str(getattr(ungroup(node.key), "value", "")))
            node = of
            continue
        if node.name in ("peak", KNEE) and isinstance(of, Name) and of.name in results.stages:
            result = results.stages[of.name]
            knee = None if isinstance(result.knee, NoKnee) else result.knee
            chosen = knee if node.name == KNEE else result.highest
            return None if chosen is None else (of.name, chosen.threads, _measured(path))
        path.insert(0, node.name)
        node = of
    if isinstance(node, Call) and node.function == "at":
        for stage, rung in _references(node, results):
            return (stage, rung, _measured(path)) if isinstance(rung, int) else None
    return None


def _measured(path: Sequence[str]) -> tuple[str, ...]:
    return tuple(path[:-1] if path and path[-1] in STATISTICS else path)


def _unsteady(results: RunResults, iterations: Sequence[IterationFinished]) -> Iterator[str]:
    """The rungs that are not shown to be steady, by all their repeats together."""
    by_rung: dict[tuple[str, int], list[IterationFinished]] = {}
    for item in {str(item.id): item for item in iterations}.values():
        by_rung.setdefault((item.id.stage, item.id.rung), []).append(item)
    for (stage, rung), items in by_rung.items():
        bound = _limit(results, stage, "tps_slope_fraction_max", steady_state.DRIFT_MAX)
        kind = results.stages[stage].kind
        text = steady_state.remark(items, bound, "IOPS" if kind == "tool" else "TPS")
        if text:
            yield f"note: {stage} at {rung_name(kind, rung)}: {text}"


def _warnings(iterations: Sequence[IterationFinished]) -> Iterator[str]:
    """Findings that do not hold, do not void and are not breaches, once per check with how often and the first
    evidence."""
    distinct = {str(item.id): item for item in iterations}
    warned = {
        name: [
            f for f in item.findings if not (f.ok or f.voids or f.breach) and not steady_state.is_on_steadiness(f.check)
        ]
        for name, item in distinct.items()
    }
    yield from (f"note: {text}" for text in _counted_findings(warned))


def _counted_findings(by_iteration: Mapping[str, Sequence[ValidityFinding]]) -> Iterator[str]:
    flagged: dict[str, list[str]] = {}
    for findings in by_iteration.values():
        for finding in findings:
            flagged.setdefault(finding.label, []).append(finding.evidence)
    for check, texts in flagged.items():
        yield f"{check} flagged in {len(texts)} of {len(by_iteration)} iterations ({texts[0]})"


# ---- advice ----------------------------------------------------------------------------------------------------------


WAYS_OUT = {
    "load": "look into the load's first errors and the server's log",
    "errors": "remove the cause of the first error, or allow more of them (`limits: {errors: …}`)",
    "rate-held": "lower the `rate` or give it more `threads`",
    "client-cpu": "add client hosts, or load processes (`workers`)",
    "client-handling": "add client hosts or cores, use fewer `threads` on each client, or take other load off it",
    "client-host": "add client hosts",
    "other-load": "run nothing else on this machine, or give the load and the server a machine each",
    "schedule": "give the load more `threads`, or take other load off its machine",
    "variation": "a longer `measure`",
    "start-skew": "take other load off the client hosts, or allow a later start (`limits: {start_skew: …}`)",
    "clock": "take load off the client hosts and the network to them: offsets are measured by round trips",
    "samples": "take load off the client hosts, or use fewer `threads` on each",
    "pause": "find out what stood still: the load's processes or their machine (`pause:…` says which)",
    "outage": "look into the server's log and its host for what kept it from answering (a stop, a lock, a full disk)",
    "fault": "a longer `measure` after the fault, or less load on the host that makes it",
    "mix": "look for whatever else works on the tables, and for statements that hang",
    LOGICAL_FAILURES: "draw keys that exist, bring the data back before the stage (`reset`), or declare the share that "
    "the workload expects (`logical_failures`)",
}

_NEEDED = re.compile(rf"about ([^;]+) {NEEDED}")

SEE = "see the run's notices and its `capture:…` findings for why the number is not there"


def advise(judged: Judged, provenance: Provenance, results: RunResults) -> str:
    """`; what to do: …`; "" where nothing is known."""
    ways = list(dict.fromkeys(_ways(judged, provenance, results))) or ([SEE] if judged.lacking else [])
    return f"; what to do: {', or '.join(ways)}" if ways else ""


def _ways(judged: Judged, provenance: Provenance, results: RunResults) -> Iterator[str]:
    voiding = [check for voids in provenance.voids if voids.is_too_many for check in voids.checks]
    for check in dict.fromkeys([*provenance.failed_checks, *voiding]):
        yield WAYS_OUT.get(check.partition(":")[0], f"look into `{check}`")
    if judged.open:
        yield from _repeats(provenance.stages, results, evidence=judged.evidence)
    for stage in provenance.stages:
        ended = results.stages[stage].finished
        lost = ended is not None and ended.outcome == "failed"
        read = at_path(results.plan_stage(stage), "arrival", "rate", "needs") or () if lost else ()
        found = {name: results.stages[name].search for name in (stage, *read) if name in results.stages}
        unfound = {name: search.over for name, search in found.items() if search is not None and search.rate is None}
        for name, over in unfound.items():
            yield f"widen the `{over}` of {name}, or see in its probes why the lowest was refused"
        if lost and not unfound:
            yield f"see in the run's notices why {stage} was given up"
        cut = results.stages[stage].cut
        if cut is not None and not judged.open and not provenance.excluded:
            yield f"judge a rung that was run, or let {stage} continue (`stop_when`)"
        if provenance.knees and stage in provenance.knees:
            yield f"add rungs to {stage} above and between, or repeats"


def _repeats(stages: Sequence[str], results: RunResults, *, evidence: str) -> Iterator[str]:
    """A narrower interval of the stages that are read, by the keys that their kinds have; where repeats are not likely
    to decide the verdict, by other means."""
    ways: dict[str, list[str]] = {}
    for stage in stages:
        kind, data = results.stages[stage].kind, results.plan_stage(stage)
        most, least = int(data.get("repeat", 1)), data.get("repeat_min")
        way = ""
        if kind in ("ladder", "tool") and data and PERHAPS_NEVER in evidence:
            turns = "" if results.stages[stage].block or len(stages) == 1 else " turns (`order: interleaved`),"
            way = f"a longer `measure` of {{}},{turns} or a limit that is further from the value"
        elif kind in ("ladder", "tool") and data and (needed := _NEEDED.search(evidence)):
            way = f"{needed[1]} repeats of {{}} (`repeat`), or a longer `measure`"
        elif kind == "ladder" and data:
            more = f"auto({least}..{2 * most})" if least is not None else f"auto(3..{max(10, 2 * most)})"
            way = f"`repeat: {more}` on {{}}, or a longer `measure`"
        elif kind == "tool" and data:
            way = f"`repeat: {max(3, 2 * most)}` on {{}}, or a longer `measure`"
        elif kind == "search":
            over = found.over if (found := results.stages[stage].search) else "rate"
            way = f"a smaller `tolerance` of {{}}'s `{over}`, or a longer `measure`"
        elif results.stages[stage].values:
            way = "a larger `repeat` of {}"
        if way:
            ways.setdefault(way, []).append(stage)
    yield from (way.format(" and ".join(named)) for way, named in ways.items())

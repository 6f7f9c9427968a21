"""The iterations behind a check, remarks about them, and advice for an INCONCLUSIVE verdict. Pure.

Data flow: the stages and rungs in the check's text (`baseline.at(4)`, `baseline.peak`, `cap.rate`) -> the iterations
behind those numbers, the repeats without a valid one, and remarks: a rung that was cut, a search without an answer,
ladders that are compared and were not interleaved, warnings of the iterations. `advise` adds a sentence to the
evidence, with a key of the plan or a thing to inspect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from proveout.coordinator.measure.knee import NoKnee
from proveout.coordinator.results.results import RunResults, StageResult, confirmation, not_interleaved, peak
from proveout.coordinator.verdict.checks import Judged
from proveout.core.numbers import rung_name
from proveout.dsl.expr.syntax import Call, ExpressionFault, Member, Name, Number, Syntax, children, parse, ungroup
from proveout.dsl.rules.repeat_rules import compared
from proveout.proto.events import IterationFinished


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Iterations by name; `excluded` names those that are invalid after all reruns, each with its reason.

    `stages`: those that the check reads. `failed_checks`: the checks that voided the excluded iterations. `knees`: the
    ladders whose knee the check reads and that have none.
    """

    iterations: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    failed_checks: tuple[str, ...] = ()
    knees: tuple[str, ...] = ()


KNEE: Literal["knee"] = "knee"
Rung: TypeAlias = int | Literal["knee"] | None


def provenance(text: str, results: RunResults) -> Provenance:
    """The provenance of the check `text` in these results; empty when the text cannot be parsed."""
    try:
        tree = parse(text)
    except ExpressionFault:
        return Provenance()
    used: list[IterationFinished] = []
    excluded: list[IterationFinished] = []
    remarks: list[str] = []
    read = list(dict.fromkeys(_references(tree, results)))
    for stage, rung in read:
        result = results.stages[stage]
        if result.kind == "search":
            confirming = confirmation(result)
            used += [confirming] if confirming else []
        else:
            counted, missing = _behind(result, rung)
            used += counted
            excluded += missing
        remarks += _missing(result, rung)
    ladders = [name for name, result in results.stages.items() if result.kind == "ladder"]
    remarks += filter(None, (not_interleaved(results, names) for names in compared(text, ladders)))
    return Provenance(
        iterations=tuple(dict.fromkeys(str(item.id) for item in used)),
        excluded=tuple(dict.fromkeys(f"{item.id}: {_why(item)}" for item in excluded)),
        remarks=tuple(dict.fromkeys([*remarks, *_warnings(used)])),
        stages=tuple(dict.fromkeys(stage for stage, _ in read)),
        failed_checks=tuple(dict.fromkeys(f.check for item in excluded for f in item.findings if not f.ok and f.voids)),
        knees=tuple(stage for stage, rung in read if rung == KNEE and isinstance(results.stages[stage].knee, NoKnee)),
    )


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


def _behind(result: StageResult, rung: Rung) -> tuple[list[IterationFinished], list[IterationFinished]]:
    """The iterations behind a rung's numbers, and the repeats that are missing in them.

    Behind the knee stands the whole ladder. Behind the peak stands the rung that it is; of the others, an excluded
    repeat matters when its throughput could have made another rung the peak.
    """
    if rung is not None:
        found = [item for item in result.rungs if rung in (item.threads, KNEE)]
        return [i for item in found for i in item.iterations], [i for item in found for i in item.excluded]
    top = peak(result.rungs)
    if top is None:
        return [], [i for item in result.rungs for i in item.excluded]
    mean = float(top.tree["tps"]["mean"])
    rivals = [i for item in result.rungs if item is not top for i in item.excluded]
    excluded = [*top.excluded, *(i for i in rivals if float(i.metrics.get("tps", 0.0)) > mean)]
    return list(top.iterations), excluded


def _why(iteration: IterationFinished) -> str:
    return "; ".join(finding.evidence for finding in iteration.findings if not finding.ok and finding.voids)


def _missing(result: StageResult, rung: Rung) -> Iterator[str]:
    if rung == KNEE:
        if isinstance(result.knee, NoKnee):
            yield f"{result.id} has no knee: {result.knee.reason}"
    elif result.cut is not None and rung in result.cut.skipped:
        yield f"{rung} threads were not run: stopped at {result.cut.at_rung} ({result.cut.evidence})"
    elif result.finished is not None and result.finished.outcome == "skipped":
        yield f"stage {result.id} was left out"
    elif result.finished is not None and result.finished.outcome == "failed":
        yield f"stage {result.id} was not run to its end"
    elif result.climbs and rung is not None and not any(item.threads == rung for item in result.rungs):
        yield f"{result.id} has no iteration with {rung_name(result.kind, rung)}"
    if result.search is not None and result.search.rate is None:
        yield f"{result.id} found no rate: {result.search.reason}"


def _warnings(iterations: Sequence[IterationFinished]) -> Iterator[str]:
    """Findings that do not hold and do not void, once per check with how often and the first evidence."""
    flagged: dict[str, list[str]] = {}
    for iteration in {str(item.id): item for item in iterations}.values():
        for finding in iteration.findings:
            if not finding.ok and not finding.voids:
                flagged.setdefault(finding.check, []).append(finding.evidence)
    for check, texts in flagged.items():
        yield f"note: {check} flagged in {len(texts)} of {len(iterations)} iterations ({texts[0]})"


# ---- advice ----------------------------------------------------------------------------------------------------------


WAYS_OUT = {
    "load": "look into the load's first errors and the server's log",
    "errors": "remove the cause of the first error, or allow more of them (`limits: {errors: …}`)",
    "rate-held": "lower the `rate` or give it more `threads`",
    "client-cpu": "add client hosts, or load processes (`workers`)",
    "client-handling": "add client hosts or cores, use fewer `threads` on each client, or take other load off it",
    "client-host": "add client hosts",
    "steady-state": "lengthen `ramp_up` until throughput has settled, and `measure`",
    "variation": "lengthen `measure`, or look for what disturbs the server (checkpoints, other load)",
    "start-skew": "take other load off the client hosts, or allow a later start (`limits: {start_skew: …}`)",
    "clock": "take load off the client hosts and the network to them: offsets are measured by round trips",
    "samples": "take load off the client hosts, or use fewer `threads` on each",
    "pause": "find out what stood still: the load's processes or their machine (`pause:…` says which)",
    "outage": "look into the server's log and its host for what kept it from answering (a stop, a lock, a full disk)",
    "mix": "look for whatever else works on the tables, and for statements that hang",
    "logical-failures": "bring the data back before the stage (`reset`), and keep others from its tables",
}


SEE = "see the run's notices and its `capture:…` findings for why the number is not there"


def advise(judged: Judged, provenance: Provenance, results: RunResults) -> str:
    """`; what to do: …`."""
    ways = list(dict.fromkeys(_ways(judged, provenance, results))) or [SEE]
    return f"; what to do: {'; or '.join(ways)}"


def _ways(judged: Judged, provenance: Provenance, results: RunResults) -> Iterator[str]:
    for check in provenance.failed_checks:
        yield WAYS_OUT.get(check.partition(":")[0], f"look into `{check}`")
    if judged.open and not provenance.excluded:
        yield from _repeats(provenance.stages, results)
    for stage in provenance.stages:
        search = results.stages[stage].search
        if search is not None and search.rate is None:
            yield f"widen the `rate` of {stage}, or see in its probes why the lowest was refused"
        ended = results.stages[stage].finished
        if ended is not None and ended.outcome == "failed":
            yield f"see in the run's notices why {stage} was given up"
        cut = results.stages[stage].cut
        if cut is not None and not judged.open and not provenance.excluded:
            yield f"judge a rung that was run, or let {stage} continue (`stop_when`)"
        if provenance.knees and stage in provenance.knees:
            yield f"add rungs to {stage} above and between, or repeats"


def _repeats(stages: Sequence[str], results: RunResults) -> Iterator[str]:
    """A narrower interval: by more repeats of the ladders that are read, or by longer windows."""
    for stage in stages:
        data = results.plan_stage(stage)
        if results.stages[stage].kind != "ladder" or not data:
            continue
        most, least = data.get("repeat", 1), data.get("repeat_min")
        if least is None:
            yield f"`repeat: auto(3..{max(10, 2 * int(most))})` on {stage}, or a longer `measure`"
        else:
            yield f"`repeat: auto({least}..{2 * int(most)})` on {stage}, or a longer `measure`"

"""Which iterations a check stands on, and what is to be said about them. Pure.

Data flow: the check's text is read for the stages and rungs that it names (`baseline.at(4)`, `baseline.peak`, `cap.rate`) -> the
iterations behind those numbers, the repeats that have no valid one, and remarks: a rung that was cut, a search
without an answer, warnings that the iterations carry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from proveout.coordinator.measure.knee import NoKnee
from proveout.coordinator.results.results import RunResults, StageResult, confirmation, peak
from proveout.core.numbers import rung_name
from proveout.dsl.expr.syntax import Call, ExpressionFault, Member, Name, Number, Syntax, children, parse, ungroup
from proveout.proto.events import IterationFinished


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Iterations by name; `excluded` names those that are invalid after all reruns, each with its reason.

    `stages` are those that the check reads, `failed_checks` what voided the excluded iterations, `knees` the ladders whose knee it
    reads and that have none.
    """

    iterations: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    failed_checks: tuple[str, ...] = ()
    knees: tuple[str, ...] = ()


KNEE: Literal["knee"] = "knee"
Rung: TypeAlias = int | Literal["knee"] | None


def standing(text: str, results: RunResults) -> Standing:
    """What the check `text` stands on in these results; nothing when it cannot be read."""
    try:
        tree = parse(text)
    except ExpressionFault:
        return Standing()
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
    return Standing(
        iterations=tuple(dict.fromkeys(str(item.id) for item in used)),
        excluded=tuple(dict.fromkeys(f"{item.id}: {_why(item)}" for item in excluded)),
        remarks=tuple(dict.fromkeys([*remarks, *_warnings(used)])),
        stages=tuple(dict.fromkeys(stage for stage, _ in read)),
        failed_checks=tuple(dict.fromkeys(f.check for item in excluded for f in item.findings if not f.ok and f.voids)),
        knees=tuple(stage for stage, rung in read if rung == KNEE and isinstance(results.stages[stage].knee, NoKnee)),
    )


def _references(node: Syntax, results: RunResults) -> Iterator[tuple[str, Rung]]:
    """(stage, rung) for `at(stage, n)`, (stage, KNEE) for its knee, (stage, None) for any other mention: of a ladder that is its peak."""
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

    Behind the knee stands the whole ladder. Behind the peak stands the rung that it is; of the others, an excluded repeat matters when its throughput could have made
    another rung the peak.
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

"""Which iterations a check stands on, and what is to be said about them. Pure.

Data flow: the check's text is read for the stages and rungs that it names (`baseline.at(4)`, `baseline.peak`, `cap.rate`) -> the
iterations behind those numbers, the repeats that have no valid one, and remarks: a rung that was cut, a search
without an answer, warnings that the iterations carry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from proveout.coordinator.results import RungResult, RunResults, StageResult, confirmation
from proveout.dsl.syntax import Call, ExpressionFault, Name, Number, Syntax, children, parse, ungroup
from proveout.proto.events import IterationFinished


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Iterations by name; `excluded` names those that are invalid after all reruns, each with its reason."""

    iterations: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def standing(text: str, results: RunResults) -> Standing:
    """What the check `text` stands on in these results; nothing when it cannot be read."""
    try:
        tree = parse(text)
    except ExpressionFault:
        return Standing()
    used: list[IterationFinished] = []
    excluded: list[IterationFinished] = []
    remarks: list[str] = []
    for stage, rung in dict.fromkeys(_references(tree, results)):
        result = results.stages[stage]
        if result.kind == "search":
            confirming = confirmation(result)
            used += [confirming] if confirming else []
        else:
            for found in _rungs(result, rung):
                used += found.iterations
                excluded += found.excluded
        remarks += _missing(result, rung)
    return Standing(
        iterations=tuple(dict.fromkeys(str(item.id) for item in used)),
        excluded=tuple(dict.fromkeys(f"{item.id}: {_why(item)}" for item in excluded)),
        remarks=tuple(dict.fromkeys([*remarks, *_warnings(used)])),
    )


def _references(node: Syntax, results: RunResults) -> Iterator[tuple[str, int | None]]:
    """(stage, rung) for `at(stage, n)`, (stage, None) for any other mention of a stage."""
    if isinstance(node, Call) and node.function == "at" and len(node.arguments) == 2:
        stage, rung = map(ungroup, node.arguments)
        if isinstance(stage, Name) and isinstance(rung, Number) and stage.name in results.stages:
            yield stage.name, int(rung.value)
            return
    if isinstance(node, Name) and node.name in results.stages:
        yield node.name, None
    for part in children(node):
        yield from _references(part, results)


def _rungs(result: StageResult, rung: int | None) -> Sequence[RungResult]:
    """The rung asked for; all of them when the check asks for the peak, since each was a candidate for it."""
    return [found for found in result.rungs if rung is None or found.threads == rung]


def _why(iteration: IterationFinished) -> str:
    return "; ".join(finding.evidence for finding in iteration.findings if not finding.ok and finding.voids)


def _missing(result: StageResult, rung: int | None) -> Iterator[str]:
    if result.cut is not None and rung in result.cut.skipped:
        yield f"{rung} threads were not run: stopped at {result.cut.at_rung} ({result.cut.evidence})"
    if result.search is not None and result.search.rate is None:
        yield f"{result.id} found no rate: {result.search.reason}"
    if result.finished is not None and result.finished.outcome == "failed":
        yield f"stage {result.id} did not run to its end"
    if result.kind == "ladder" and rung is not None and not _rungs(result, rung) and result.cut is None:
        yield f"{result.id} has no iteration with {rung} threads"


def _warnings(iterations: Sequence[IterationFinished]) -> Iterator[str]:
    """Findings that do not hold and do not void, once per check with how often and the first evidence."""
    flagged: dict[str, list[str]] = {}
    for iteration in {str(item.id): item for item in iterations}.values():
        for finding in iteration.findings:
            if not finding.ok and not finding.voids:
                flagged.setdefault(finding.check, []).append(finding.evidence)
    for check, texts in flagged.items():
        yield f"note: {check} flagged in {len(texts)} of {len(iterations)} iterations ({texts[0]})"

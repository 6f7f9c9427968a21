"""`--fail-if`: check and judge a condition over the comparison of two runs. Pure.

Data flow: text + the reference's plan -> `check` (names, types; ExpressionFault) -> `judge` over a `ComparedRuns` ->
`Judgement` with the evidence -> the exit code.

Each number of a result is four in a comparison: `base`, `other`, `ratio` (other / base) and `change` (ratio - 1; `-5%`
is a number). A condition on a rung's names (`tps.ratio.upper < 0.95`) is judged at each rung of each ladder that has
them, and holds when it holds at one; a condition on stages (`ladder.at(4).tps.ratio.upper < 0.95`) is judged once. A
condition on a bound is judged by that bound alone. A condition is undecidable when numbers, bounds or rungs are
missing, and when the interval of an estimate (`tps.ratio < 0.95`) contains the limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from proveout.coordinator.compare.comparison import BASE, CHANGE, OTHER, RATIO, ComparedRuns, StagePair
from proveout.coordinator.verdict import checks
from proveout.core.data_classes import dataclass
from proveout.core.numbers import rung_name, safe
from proveout.dsl.compile.result_names import run_scope
from proveout.dsl.expr.checking import Checked, check_expression
from proveout.dsl.expr.name_types import ESTIMATE, Estimate, Group, Number, Shape
from proveout.dsl.expr.syntax import ExpressionFault
from proveout.dsl.plan.plan import Plan
from proveout.proto.events import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A checked condition. It is judged at each rung of `ladders`; () when it is judged once, over the stages."""

    text: str
    ladders: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The outcome of a condition: PASS means that it holds, which fails the job. `rungs`: how many it was judged at, 0
    where it was judged once; `evidence` is of those with the outcome."""

    text: str
    outcome: Outcome
    evidence: tuple[str, ...]
    rungs: int = 0

    @property
    def holds(self) -> bool:
        """Whether the job fails."""
        return self.outcome == "PASS"


RESULTS: Mapping[Outcome, str] = {"PASS": "FAILED", "FAIL": "passed", "INCONCLUSIVE": "UNDECIDABLE"}
"""The words for the outcome of a condition, which fails the job where it holds."""


def told(judged: Judgement) -> str:
    """The finding: `tps.ratio.upper < 0.95 holds at 2 of 5 rungs`."""
    of = f" of {judged.rungs} rungs" if judged.rungs > 1 else ""
    at = f" at {len(judged.evidence)}{of}" if of else ""
    words = {"PASS": f"holds{at}", "INCONCLUSIVE": f"is undecidable{at}"}
    return f"{judged.text} {words.get(judged.outcome, f'does not hold at any{of}' if of else 'does not hold')}"


def sentence(judged: Judgement) -> str:
    """The outcome of a condition in one line.

    >>> sentence(Judgement(text="tps.change.upper < -5%", outcome="FAIL", evidence=("all: -1 %",)))
    'passed: tps.change.upper < -5% does not hold (all: -1 %)'
    """
    return safe(f"{RESULTS[judged.outcome].lower()}: {told(judged)} ({'; '.join(judged.evidence)})")


def exit_code(judged: Iterable[Judgement]) -> int:
    """1 when a condition holds, else 3 when one is undecidable, else 0."""
    outcomes = {one.outcome for one in judged}
    return 1 if "PASS" in outcomes else 3 if "INCONCLUSIVE" in outcomes else 0


# ---- check -------------------------------------------------------------------------------------------------------


def check(text: str, plan: Plan) -> Condition:
    """Check that every name of the condition can have a number in a comparison of this plan's runs. ExpressionFault."""
    stages = _compared(run_scope(plan, plan.stages))
    assert isinstance(stages, Group)  # noqa: S101 - a scope is a group
    rungs = {name: shape.rung for name, shape in stages.members.items() if isinstance(shape, Group) and shape.rung}
    once = check_expression(text, Group(what="the comparison", members=stages.members), "condition")
    if not once.faults:
        return Condition(text=once.text, ladders=())
    tried = {name: check_expression(text, _with(rung, stages), "condition") for name, rung in rungs.items()}
    fitting = tuple(name for name, checked in tried.items() if not checked.faults)
    if not fitting:
        raise _fault(text, (*tried.values(), once))
    return Condition(text=tried[fitting[0]].text, ladders=fitting)


def _with(rung: Group, stages: Group) -> Group:
    """A scope with a rung's names and the stages."""
    return Group(what="the comparison", members={**stages.members, **rung.members}, absent=rung.absent)


def _fault(text: str, tried: Iterable[Checked]) -> ExpressionFault:
    """The fault that is found latest in the text: the scope that fits the longest part of the text was most likely
    meant.
    """
    fault = max((one for checked in tried for one in checked.faults), key=lambda one: one.offset)
    return ExpressionFault(f"--fail-if `{text}`: {fault.message}", text=text, offset=fault.offset, way_out=fault.hint)


def _compared(shape: Shape) -> Shape:
    """The shape with `{base, other, change, ratio}` in the place of each number."""
    if isinstance(shape, Estimate | Number):
        members = {BASE: shape, OTHER: shape, CHANGE: ESTIMATE, RATIO: ESTIMATE}
        return Group(what="a compared number", members=members)
    if not isinstance(shape, Group):
        return shape
    rung = _compared(shape.rung) if shape.rung is not None else None
    return Group(
        what=shape.what,
        members={name: _compared(member) for name, member in shape.members.items()},
        absent=shape.absent,
        rungs=shape.rungs,
        rung=rung if isinstance(rung, Group) else None,
        axes=shape.axes,
        cells={labels: (name, _compared(cell)) for labels, (name, cell) in shape.cells.items()},
    )


# ---- judge -------------------------------------------------------------------------------------------------------


def judge(condition: Condition, compared: ComparedRuns) -> Judgement:
    """Judge the condition over one comparison."""
    found = list(_judged(condition, compared))
    for outcome in ("PASS", "INCONCLUSIVE", "FAIL"):
        evidence = tuple(words for one, words in found if one == outcome)
        if evidence:
            return Judgement(
                text=condition.text, outcome=outcome, evidence=evidence, rungs=len(found) if condition.ladders else 0
            )
    nothing = f"{' and '.join(compared.names)} have no rung in common"
    return Judgement(text=condition.text, outcome="INCONCLUSIVE", evidence=(nothing,))


def _judged(condition: Condition, compared: ComparedRuns) -> Iterator[tuple[Outcome, str]]:
    tree = compared.tree
    if not condition.ladders:
        yield _one(condition.text, tree, compared.names[1])
        return
    stages = {stage.id: stage for stage in compared.stages}
    for name in condition.ladders:
        if name not in stages:
            yield "INCONCLUSIVE", f"{compared.names[1]}: {name} was not measured in both runs"
            continue
        yield from _at_rungs(condition.text, tree, stages[name], compared.names[1])


def _at_rungs(text: str, tree: Mapping[str, Any], stage: StagePair, other: str) -> Iterator[tuple[Outcome, str]]:
    for rung in stage.rungs:
        where = f"{other}, {stage.id} at {rung_name(stage.kind, rung.threads)}"
        outcome, evidence = _one(text, {**tree, **rung.tree}, where)
        if outcome == "INCONCLUSIVE" and rung.offered is not None:
            evidence += f"; the offered rates differ ({rung.offered}), and what follows them is not compared"
        yield outcome, evidence
    for count, lacking in stage.missing:
        yield "INCONCLUSIVE", f"{lacking} has no valid iteration of {stage.id} at {rung_name(stage.kind, count)}"


def _one(text: str, tree: Mapping[str, Any], where: str) -> tuple[Outcome, str]:
    judged = checks.judge(text, tree, lenient=False)
    return judged.outcome, f"{where}: {judged.evidence}"

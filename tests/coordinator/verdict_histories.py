"""Histories made by hand, and what verdicts on them come to: shared by the tests of judgement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import records

from proveout.coordinator.verdict.verdicts import reach
from proveout.core.errors import Where
from proveout.dsl.plan.plan import Check, Plan
from proveout.dsl.plan.topology import Expression
from proveout.proto.events import Event, IterationFinished, ValidityFinding, VerdictReached

VOID = ValidityFinding(check="start-skew", ok=False, evidence="load began 80 ms after T0")
BREACH = ValidityFinding(check="errors", ok=False, evidence="40 technical errors, 4 %", voids=False, breach=True)


def iteration(
    stage: str, rung: int, repeat: int, tps: float, *findings: ValidityFinding, attempt: int = 1, **metrics: Any
) -> IterationFinished:
    tree = {"tps": tps, "response": {"avg_us": 1e6 * rung / tps}, "errors": {"fraction": 0.0}} | metrics
    valid = all(finding.ok or not finding.voids for finding in findings)
    return records.iteration(stage, rung, repeat, tree, attempt=attempt, valid=valid, findings=findings)


def ladder(stage: str, rungs: Mapping[int, Sequence[float]], *extra: Event) -> list[Event]:
    """The history of a ladder whose rungs had these throughputs, a repeat each."""
    history: list[Event] = [records.begun(stage)]
    for rung, values in rungs.items():
        history += [iteration(stage, rung, repeat, tps) for repeat, tps in enumerate(values, 1)]
    return finish(stage, [*history, *extra])


def finish(stage: str, history: Sequence[Event]) -> list[Event]:
    iterations = [event for event in history if isinstance(event, IterationFinished)]
    return [*history, records.ended(stage, records.ladder_metrics(iterations, run="r"))]


def plan(*checks: Check, **fields: Any) -> Plan:
    return records.plan_of(**({"hosts": (), "systems": (), "workloads": (), "verdicts": checks} | fields))


def verdict(check: str, history: Sequence[Event], severity: Any = "fail") -> VerdictReached:
    where = Where(file="plan.yaml", line=7, column=3)
    written = Check(id="v", title="T", check=Expression(text=check), severity=severity, where=where)
    return reach(plan(written), history)[0]


BASE = ladder("base", {1: [100.0, 101.0, 99.0], 4: [300.0, 310.0, 290.0]})

"""Results of invented runs of one ladder, and of a search, for the tests of comparisons."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from proveout.coordinator.results.results import RunResults, ladder_metrics, load_results
from proveout.coordinator.storage.event_codec import plan_data
from proveout.core.search_interval import confirmed
from proveout.dsl.plan.plan import Plan
from proveout.proto.events import (
    Event,
    FactsTaken,
    IterationFinished,
    IterationId,
    RunFinished,
    RunStarted,
    SearchFinished,
    StageFinished,
    StageStarted,
)

HOSTILE = "\x1b[31m<b>|`[bold]\u202e"
_NUMBERS = itertools.count(1)
"""Runs begin at different times, and without a name have one of their own."""
FACTS = {"kernel": "6.1", "cpus": 2, "boot_id": "one", "host_name": "a"}


def iteration(threads: int, repeat: int, tps: float, *, valid: bool = True) -> IterationFinished:
    avg_us = threads / tps * 1e6
    latency = {"avg_us": avg_us, "p50_us": avg_us, "p95_us": avg_us * 2.0, "p99_us": avg_us * 3.0}
    return IterationFinished(
        id=IterationId(stage="ladder", rung=threads, repeat=repeat, attempt=1),
        rate=None,
        measure_s=1.0,
        valid=valid,
        findings=(),
        metrics={
            "tps": tps,
            "response": latency,
            "errors": {"count": 0, "fraction": 0.0},
            "transactions": {"GetAccessData": {"tps": tps / 2.0, "response": latency}},
        },
        transactions=(),
        waits=(),
    )


def results(
    plan: Plan,
    rungs: Mapping[int, Sequence[float]],
    *,
    run_id: str = "",
    facts: Mapping[str, Any] = FACTS,
    version: str = "1.0",
    finished: bool = True,
) -> RunResults:
    number = next(_NUMBERS)
    run_id = run_id or f"run-{number}"
    iterations = [
        replace(iteration(n, i + 1, tps), started_unix_s=float(number))
        for n, values in rungs.items()
        for i, tps in enumerate(values)
    ]
    started = RunStarted(
        run_id=run_id,
        epoch=1,
        name=plan.name,
        title="",
        digest=plan.digest,
        plan=json.loads(json.dumps(plan_data(plan))),
        version=version,
        estimate_s=1.0,
    )
    events: list[Event] = [
        started,
        FactsTaken(when="start", host="db1", system="", facts=dict(facts)),
        StageStarted(stage="ladder", kind="ladder", iterations=len(iterations), estimate_s=1.0),
        *iterations,
    ]
    if finished:
        ended = StageFinished(stage="ladder", outcome="ok", seconds=1.0, metrics=ladder_metrics(iterations))
        events += [ended, RunFinished(status="finished", exit_code=0, reason="", seconds=2.0)]
    return load_results(events)


BASE = {1: [1000.0, 1010.0, 990.0, 1005.0], 4: [3000.0, 3050.0, 2980.0, 3010.0]}


def slower(factor: float, rungs: Mapping[int, Sequence[float]] = BASE) -> dict[int, list[float]]:
    return {threads: [value * factor for value in values] for threads, values in rungs.items()}


def searched(plan: Plan, rate: float, upper: float | None, run_id: str) -> RunResults:
    """A run whose search `cap` found a rate."""
    found = confirmed(rate, upper, 9)
    stage = StageStarted(stage="cap", kind="search", iterations=20, estimate_s=1.0)
    answer = SearchFinished(stage="cap", rate=rate, probes=30, reason="", upper=upper, confirmations=9)
    ended = StageFinished(stage="cap", outcome="ok", seconds=1.0, metrics={"rate": found, "probes": 30})
    whole = results(plan, BASE, run_id=run_id)
    return replace(whole, stages={**whole.stages, **load_results([stage, answer, ended]).stages})

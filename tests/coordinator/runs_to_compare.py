"""Results of invented runs of one ladder, and of a search, for the tests of comparisons."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import records

from proveout.coordinator.results.results import RunResults, load_results
from proveout.core.numbers import Sought, confirmed
from proveout.dsl.plan.plan import Plan
from proveout.proto.events import Event, FactsTaken, IterationFinished, SearchFinished

HOSTILE = "\x1b[31m<b>|`[bold]\u202e"
_NUMBERS = itertools.count(1)
"""Runs begin at different times, and without a name have one of their own."""
FACTS = {"kernel": "6.1", "cpus": 2, "boot_id": "one", "host_name": "a"}


def iteration(threads: int, repeat: int, tps: float, stage: str = "ladder", **fields: Any) -> IterationFinished:
    avg_us = threads / tps * 1e6
    latency = {"avg_us": avg_us, "p50_us": avg_us, "p95_us": avg_us * 2.0, "p99_us": avg_us * 3.0}
    metrics = {
        "tps": tps,
        "response": latency,
        "errors": {"count": 0, "fraction": 0.0},
        "transactions": {"GetAccessData": {"tps": tps / 2.0, "response": latency}},
    }
    return records.iteration(stage, threads, repeat, metrics, **fields)


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
    iterations = [
        iteration(n, i + 1, tps, started_unix_s=float(number))
        for n, values in rungs.items()
        for i, tps in enumerate(values)
    ]
    *begun, ended = records.whole_ladder("ladder", iterations)
    events: list[Event] = [
        records.run_started(plan, run_id or f"run-{number}", version=version),
        FactsTaken(when="start", host="db1", system="", facts=dict(facts)),
        *begun,
    ]
    return load_results([*events, ended, records.run_finished()] if finished else events)


BASE = {1: [1000.0, 1010.0, 990.0, 1005.0], 4: [3000.0, 3050.0, 2980.0, 3010.0]}


def slower(factor: float, rungs: Mapping[int, Sequence[float]] = BASE) -> dict[int, list[float]]:
    return {threads: [value * factor for value in values] for threads, values in rungs.items()}


def searched(plan: Plan, rate: float, upper: float | None, run_id: str, over: Sought = "rate") -> RunResults:
    """A run whose search `cap` found a rate, or a number of threads."""
    found = confirmed(rate, upper, 9, over)
    answer = SearchFinished(stage="cap", rate=rate, probes=30, reason="", upper=upper, confirmations=9, over=over)
    stage, ended = records.begun("cap", "search"), records.ended("cap", {over: found, "probes": 30})
    whole = results(plan, BASE, run_id=run_id)
    return replace(whole, stages={**whole.stages, **load_results([stage, answer, ended]).stages})

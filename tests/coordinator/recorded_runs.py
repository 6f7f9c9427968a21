"""Recorded runs of the smoke plan with given numbers, as the coordinator leaves them: for tests over many runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path

import records

from proveout.coordinator.storage import run_directory
from proveout.coordinator.storage.journal import Journal
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.plan import Plan
from proveout.proto import events as e

ROOT = Path(__file__).parents[2]
SMOKE = ROOT / "plans" / "smoke.yaml"
BEGUN = datetime(2026, 1, 1, tzinfo=timezone.utc)  # noqa: UP017


@cache
def plan(repeats: int = 3, measure: str = "1s") -> Plan:
    return compile_plan(SMOKE, overrides={"repeats": str(repeats), "measure": measure})


def iteration(rung: int, repeat: int, tps: float, stage: str = "ladder") -> e.IterationFinished:
    response = {"avg_us": 1e6 * rung / tps, "p50_us": 0.9e6 * rung / tps, "p99_us": 3e6 * rung / tps}
    return records.iteration(stage, rung, repeat, {"tps": tps, "threads": rung, "response": response}, measure_s=1.0)


def record(
    runs: Path,
    rungs: Mapping[int, Sequence[float]],
    *,
    day: float = 0.0,
    labels: Mapping[str, str] | None = None,
    kernel: str = "6.1",
    schema: Mapping[str, str] | None = None,
    of: Plan | None = None,
    ended: bool = True,
) -> str:
    """A run `day` days after `BEGUN` with the given throughput of each repeat of each rung; its name."""
    made, at = of or plan(max(map(len, rungs.values()))), BEGUN + timedelta(days=day)
    iterations = [iteration(n, i + 1, tps) for n, values in rungs.items() for i, tps in enumerate(values)]
    directory = run_directory.create(runs, made, run_directory.Command(plan=str(SMOKE)), at)
    begun, *inside, finished = records.whole_ladder("ladder", iterations)
    events: list[e.Event] = [
        records.run_started(made, directory.name, title="", labels=dict(labels or {})),
        e.FactsTaken(when="start", host="db1", system="", facts={"kernel": kernel}),
        begun,
        *([e.FactsTaken(when="stage", host="", system="db1", stage="ladder", facts=dict(schema))] if schema else []),
        *inside,
        *([finished, records.run_finished(seconds=1.0)] if ended else []),
    ]
    with Journal(directory.path, clock=at.timestamp) as journal:
        for event in events:
            journal.append(event)
    return directory.name

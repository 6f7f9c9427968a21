"""Rungs of processes: the compiled form of `processes:`, in which every terminal has a worker process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from proveout.coordinator.schedule.tasks import load_tasks
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder
from proveout.proto.events import IterationId
from proveout.proto.wire.tasks import Endpoint

PLAN = """
proveout: 1
name: t
topology:
  hosts:
    db: {roles: [server], address: "db:7443"}
    one: {roles: [client], address: "one:7443"}
    two: {roles: [client], address: "two:7443"}
  systems:
    db: {engine: postgres, host: db, dsn: host=db}
workloads:
  reads: {kind: tptbm, weights: {Read: 1}}
stages:
  - ladder: {workload: reads, target: db, RUNGS, measure: 5s}
verdicts:
  - {id: v, check: ladder.at(1).tps.mean > 1}
"""


def compiled(folder: Path, rungs: str) -> tuple[Plan, Ladder]:
    path = folder / "plan.yaml"
    path.write_text(PLAN.replace("RUNGS", rungs))
    plan = compile_plan(path)
    stage = plan.stage("ladder")
    assert isinstance(stage, Ladder)
    return plan, stage


def shares(plan: Plan, stage: Ladder, rung: int) -> list[tuple[str, int, int]]:
    """Return (host, terminals, worker processes) of a rung, on clients with two cores."""
    loads = load_tasks(
        plan,
        stage,
        iteration=IterationId(stage="ladder", rung=rung, repeat=1, attempt=1),
        rate=None,
        windows=stage.windows,
        endpoints={"db": Endpoint(system="db", engine="postgres", dsn="host=db")},
        cores={"one": 2, "two": 2},
    )
    return [(host, load.share.count, load.workers) for host, load in loads]


@pytest.mark.parametrize(
    ("rung", "expected"),
    [
        (1, [("one", 1, 1)]),
        (2, [("one", 1, 1), ("two", 1, 1)]),
        (5, [("one", 3, 3), ("two", 2, 2)]),
        (80, [("one", 40, 40), ("two", 40, 40)]),
    ],
)
def test_every_terminal_has_a_process_of_its_own(
    tmp_path: Path, rung: int, expected: list[tuple[str, int, int]]
) -> None:
    plan, stage = compiled(tmp_path, "processes: [1, 2, 5, 80]")
    assert stage.threads == (1, 2, 5, 80)
    assert shares(plan, stage, rung) == expected


def test_threads_share_the_cores(tmp_path: Path) -> None:
    plan, stage = compiled(tmp_path, "threads: [1, 80]")
    assert shares(plan, stage, 80) == [("one", 40, 2), ("two", 40, 2)]

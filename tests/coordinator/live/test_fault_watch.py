"""The steps of faults on the coordinator's clock, and the conditions that begin them."""

from __future__ import annotations

from pathlib import Path

import pytest

from proveout.coordinator.live.ticks import FaultWatch
from proveout.coordinator.measure.samples import Gathering
from proveout.dsl.compile.compiler import compile_plan
from proveout.proto.events import HostTick, IterationId, LoadTick, log_text
from proveout.proto.wire.results import FaultStep, FaultStepKind

S = 1_000_000_000
IDENTITY = IterationId(stage="run", rung=1, repeat=1, attempt=1)
PLAN = """
proveout: 1
name: watched
topology:
  hosts: {{here: {{roles: [client, server], address: local}}}}
  systems: {{db: {{engine: postgres, host: here, dsn: "host=x dbname=y"}}}}
workloads: {{hlr: {{kind: hlr, population: 1000}}}}
captures:
  os: {{kind: os, on: all}}
  sessions:
    kind: sql
    system: db
    query: SELECT 1 AS used, 2 AS commits
    metrics: {{used: {{}}, commits: {{as: rate}}}}
stages:
  - populate: {{workload: hlr, into: [db]}}
  - ladder:
      id: run
      workload: hlr
      target: db
      threads: 1
      measure: 20s
      capture: [os, sessions]
      faults:
        - {{name: spill, when: "{when}", times: 3, for: 1s, on: here, sysctl: {{vm.swappiness: 10}}}}
"""


def watch(folder: Path, when: str = "live.tps > 1") -> FaultWatch:
    path = folder / "plan.yaml"
    path.write_text(PLAN.format(when=when))
    gathering = Gathering(id=IDENTITY, hosts={"k": "here"}, names={}, faults={"k": "spill"})
    gathering.t0_ns, gathering.clocks = 100 * S, {"here": (7 * S, 0)}
    return FaultWatch(compile_plan(path), gathering)


def second(tps: float = 100.0, errors: int = 0, window: str = "measure", p99_us: float = 900.0) -> LoadTick:
    return LoadTick(
        id=IDENTITY, second=2, window=window, tps=tps, avg_us=400.0, p50_us=300.0, p99_us=p99_us, errors=errors  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_step_is_reported_in_the_time_of_the_measure_window(tmp_path: Path) -> None:
    watched = watch(tmp_path)
    steps: list[tuple[FaultStepKind, float]] = [("begins", 12.5), ("in_place", 12.512), ("healed", 17.5)]
    told = [
        watched.seen("here", FaultStep(fault="spill", number=1, step=step, at_ns=round((107 + at_s) * S)))
        for step, at_s in steps
    ]
    assert [seen.at_s for seen in told] == pytest.approx([11.5, 11.512, 16.5])
    assert [log_text(seen) for seen in told] == [
        "fault spill (1 of 3): begins 11.5 s after the start of the measure window",
        "fault spill (1 of 3): in place after 12.0 ms",
        "fault spill (1 of 3): healed after 5 s",
    ]
    failed = watched.seen("here", FaultStep(fault="spill", number=2, step="failed", at_ns=200 * S, text="no such file"))
    assert log_text(failed) == "fault spill (2 of 3): failed: no such file"


@pytest.mark.parametrize(
    ("when", "ticks", "due"),
    [
        ("live.tps > 99", [second()], True),
        ("live.tps > 99", [second(window="ramp_up")], False),
        ("live.errors_per_s > 3 && live.response.p99_us > 800", [second(errors=4)], True),
        ("live.hosts.here.cpu.busy_fraction > 0.5", [second()], False),  # no data yet
        (
            "live.hosts.here.cpu.busy_fraction > 0.5",
            [HostTick(host="here", capture="os", readings={"cpu.busy_fraction": 0.6}), second()],
            True,
        ),
        (
            "live.sql.sessions.used == 3 && live.sql.sessions.commits > 10",
            [
                HostTick(host="here", capture="sessions", readings={"sql.used": 3.0, "sql.commits_per_s": 20.0}),
                second(),
            ],
            True,
        ),
    ],
)
def test_a_condition_is_evaluated_once_a_second_of_the_window(
    tmp_path: Path, when: str, ticks: list[HostTick | LoadTick], due: bool
) -> None:
    watched = watch(tmp_path, when)
    assert [name for tick in ticks for name in watched.due(tick)] == ["spill"] * due

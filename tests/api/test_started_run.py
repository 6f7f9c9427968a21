"""Runs that are started from Python: SQLite, so that no server is needed."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

import proveout
from proveout.api import RunNotStarted
from proveout.coordinator.live import event_feed
from proveout.core.errors import PlanError
from proveout.proto.events import Event, IterationFinished, LoadTick, RunFinished, RunStarted

pytestmark = pytest.mark.server

PLAN = """
proveout: 1
name: small
params: {threads: {type: "list[int]", default: [2]}, rows: {type: int, default: 100}}
topology:
  hosts: {here: {roles: [server, client], address: local}}
  systems: {db: {engine: sqlite, host: here, provision: embedded}}
workloads: {hlr: {kind: hlr, population: "${params.rows}"}}
report: {without: [others]}
stages:
  - populate: {workload: hlr, into: db}
  - ladder:
      {workload: hlr, target: db, threads: "${params.threads}", ramp_up: 0s, measure: %s, ramp_down: 0s, repeat: 1, limits: {
       start_skew: 10s, tps_slope: 10000%%, tps_cv: 10000%%, void: 100%%, client_cpu: 100%%, client_handling: 100%%}}
verdicts:
  - {id: some, check: ladder.peak.tps.n == 1}
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(PLAN % "1s")
    return path


def test_a_run_has_its_results_and_its_events_are_followed(
    plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Event] = []
    monkeypatch.chdir(tmp_path)
    plan.rename("-small.yaml")  # a name, though it looks like an option
    run = proveout.run(
        "-small.yaml",
        parameters={"threads": [1], "rows": 200},
        labels={"commit": "abc"},
        runs_dir=tmp_path,
        follow=seen.append,
    )
    assert (run.status, run.exit_code) == ("finished", 0)
    assert list(run.rungs("ladder")) == [1]
    assert run.verdicts["some"].outcome == "PASS"
    assert run.results.run is not None
    assert run.results.run.labels == {"commit": "abc"}
    assert isinstance(seen[0], RunStarted)
    assert isinstance(seen[-1], RunFinished)
    assert {(event.id.rung, event.id.repeat) for event in seen if isinstance(event, IterationFinished)} == {(1, 1)}
    assert any(isinstance(event, LoadTick) for event in seen), "live events too"


def test_a_started_run_is_stopped_by_its_block_within_a_loop_of_a_notebook(tmp_path: Path) -> None:
    plan = tmp_path / "long.yaml"
    plan.write_text(PLAN % "10m")

    async def cell() -> proveout.StartedRun:
        with pytest.raises(ZeroDivisionError), proveout.start(plan, runs_dir=tmp_path) as started:
            for event in started.events():
                if isinstance(event, LoadTick):
                    assert started.is_running
                    with pytest.raises(TimeoutError):
                        started.wait(0.0)
                    raise ZeroDivisionError
        return started

    started = asyncio.run(cell())
    assert not started.is_running
    run = started.wait()
    assert (run.status, run.exit_code) == ("interrupted", 130)


def test_ctrl_c_while_the_process_of_a_run_is_made_stops_it(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[str] = []
    child = SimpleNamespace(directory=lambda: None, wait=lambda: 130, stop=lambda: stopped.append("once"))

    def made(*_: object, **__: object) -> SimpleNamespace:
        signal.raise_signal(signal.SIGINT)  # between the fork and the first line that could stop it
        return child

    monkeypatch.setattr(event_feed, "RunProcess", made)
    with pytest.raises(KeyboardInterrupt):
        proveout.start(plan)
    assert stopped == ["once"]


def test_whatever_ends_the_reading_of_events_ends_the_wait_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(event_feed, "read", no_thread)
    events = proveout.StartedRun(cast("event_feed.RunProcess", None), tmp_path).events()
    with pytest.raises(RuntimeError, match="new thread"):
        next(events)


def test_a_wrong_plan_and_a_refused_run_are_errors_with_the_reason(plan: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanError) as refused:
        proveout.start(plan, parameters={"row": 1}, runs_dir=tmp_path)
    assert "row" in refused.value.__notes__[0], "with each problem, for the trace of a notebook"
    (tmp_path / "file").write_text("")
    with pytest.raises(RunNotStarted, match=r"has not begun \(exit code 4\)\n.*cannot be written"):
        proveout.start(plan, runs_dir=tmp_path / "file")

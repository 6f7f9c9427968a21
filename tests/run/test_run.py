"""A run with real agents and a real PostgreSQL that is killed and resumed: its results, and its remains."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_run import LiveRun
from whole_run import proveout, run

from proveout.proto import events

PLAN = """
proveout: 1
name: small
title: A small run
topology:
  hosts:
    box: {roles: [server, client], address: local}
  systems:
    db: {engine: postgres, host: box, provision: embedded, settings: {synchronous_commit: "off"}}
workloads:
  hlr: {kind: hlr, population: 100}
captures:
  host: {kind: os, on: all, every: 1s}
stages:
  - populate: {workload: hlr, into: db}
  - ladder:
      workload: hlr
      target: db
      threads: [1]
      think: {constant: 10ms}
      ramp_up: 0s
      measure: 1s
      ramp_down: 0s
      repeat: 2
      retries: 4
      capture: [host]
      limits: NEVER_VOID
report: {without: [others]}  # no figure, because drawing others takes a second of CPU time
verdicts:
  - {id: answers, check: ladder.at(1).tps.mean > 0.0}
"""

pytestmark = pytest.mark.server


def clients_in(pid: int) -> set[str]:
    """Return the database clients whose libraries a process has loaded."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    assert "python" in maps
    return {name for name in ("psycopg", "libpq", "apsw", "oracledb") if name in maps}


@pytest.fixture
def first(tmp_path: Path) -> Iterator[LiveRun]:
    """The run, whose remaining processes are killed after the test."""
    run = LiveRun(tmp_path, PLAN, "--junit", "j.xml", "--json", "r.json", "--summary", "s.md", lease_s=3.0)
    yield run
    run.kill()


def test_killed_then_resumed_to_the_end(first: LiveRun, tmp_path: Path) -> None:
    """Its data outlives the kill. An interrupt of a run is in `test_restore_run`, one of its load in `tests/api`."""
    first.until_iteration(1)
    clients = {word for pid in first.agents() for word in clients_in(pid)}
    assert os.geteuid() != 0 or not clients, "an agent with privileges listens to no database itself"
    first.process.kill()
    first.process.wait()
    before = {str(one.id): one for one in first.facts.iterations}
    second = first.again("resume", "latest")
    second.until(lambda: len(second.facts.iterations) == 2, "its iterations have ended")
    assert second.end() == 0, second.output
    second.assert_nothing_left()
    first.assert_nothing_left()
    facts, directory = second.facts, second.directory
    assert facts.started is not None and facts.started.resumed == 1
    assert facts.ended is not None and facts.ended.status == "finished"
    assert sum(isinstance(event, events.PopulateFinished) for event in facts.history) == 1
    assert [(one.id.rung, one.id.repeat) for one in facts.iterations if one.valid] == [(1, 1), (1, 2)]
    assert len({str(one.id) for one in facts.iterations}) == len(facts.iterations)
    assert {key: one for one in facts.iterations if (key := str(one.id)) in before} == before
    assert directory is not None
    assert not (directory / "systems").exists()
    assert len(list((directory / "samples").glob("*.load.parquet"))) == len(facts.iterations)
    assert {path.name for path in (directory / "logs").iterdir()} == {"agent-box.log"}
    assert ET.parse(tmp_path / "j.xml").getroot().tag in {"testsuite", "testsuites"}
    assert json.loads((tmp_path / "r.json").read_text()) == json.loads((directory / "result.json").read_text())
    assert "</html>" in (directory / "report.html").read_text()
    assert "answers" in (tmp_path / "s.md").read_text()


def test_agents_that_run_already_require_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROVEOUT_PKI", raising=False)
    text = """
proveout: 1
name: remote
topology: {hosts: {lab1: {roles: [client], address: "127.0.0.1:7443"}}}
stages: [{pause: {duration: 1s}}]
"""
    assert "--pki DIR" in run(tmp_path, text).ended(2).err
    done = proveout(tmp_path, "run", "plan.yaml", "--headless", "--runs-dir", "runs", "--pki", str(tmp_path)).ended(4)
    assert "Traceback" not in done.said
    assert not (tmp_path / "runs").exists()

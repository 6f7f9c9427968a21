"""Whole runs with real agents and a real PostgreSQL: their results, and their remains after parts are killed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from live_run import LiveRun, command
from whole_run import proveout, run

from proveout.coordinator.schedule.progress import RunProgress
from proveout.proto import events

PLAN = """
proveout: 1
name: small
title: A small run
topology:
  hosts:
    db1:     {roles: [server], address: local}
    client1: {roles: [client], address: local}
  systems:
    db: {engine: postgres, host: db1, provision: embedded, settings: {synchronous_commit: "off"}}
workloads:
  hlr: {kind: hlr, population: 1_000}
captures:
  host: {kind: os, on: all, every: 1s}
stages:
  - populate: {workload: hlr, into: db}
  - ladder:
      workload: hlr
      target: db
      threads: [1, 2]
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
SLOTS = {(1, 1), (1, 2), (2, 1), (2, 2)}

pytestmark = pytest.mark.server


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., LiveRun]]:
    """Return a function that starts a run of a plan; its remaining processes are killed after the test."""
    started: list[LiveRun] = []

    def begin(text: str, *options: str) -> LiveRun:
        started.append(LiveRun(tmp_path, text, *options))
        return started[-1]

    yield begin
    for one in started:
        one.kill()


def assert_complete(facts: RunProgress) -> None:
    assert facts.ended is not None
    assert facts.ended.status == "finished", facts.ended.reason
    assert {(i.id.rung, i.id.repeat) for i in facts.iterations if i.valid} == SLOTS
    assert len({str(i.id) for i in facts.iterations}) == len(facts.iterations)


def populated(facts: RunProgress) -> int:
    return sum(isinstance(event, events.PopulateFinished) for event in facts.history)


def clients_in(pid: int) -> set[str]:
    """Return the database clients whose libraries a process has loaded."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    assert "python" in maps
    return {name for name in ("psycopg", "libpq", "apsw", "oracledb") if name in maps}


def test_a_run_from_start_to_verdict(start: Callable[..., LiveRun], tmp_path: Path) -> None:
    one = start(re.sub("report: .*", "", PLAN), "--junit", "j.xml", "--json", "r.json", "--summary", "s.md")
    one.until_iteration(0)
    clients = {word for pid in one.agents() for word in clients_in(pid)}
    assert os.geteuid() != 0 or not clients, "an agent with privileges listens to no database itself"
    assert one.end() == 0, one.output
    assert_complete(one.facts)
    one.assert_nothing_left()
    directory = one.directory
    assert directory is not None
    assert not (directory / "systems").exists()
    assert len(list((directory / "samples").glob("*.load.parquet"))) == len(one.facts.iterations)
    assert {path.name for path in (directory / "logs").iterdir()} == {"agent-db1.log", "agent-client1.log"}
    assert ET.parse(tmp_path / "j.xml").getroot().tag in {"testsuite", "testsuites"}
    assert json.loads((tmp_path / "r.json").read_text()) == json.loads((directory / "result.json").read_text())
    assert "</html>" in (directory / "report.html").read_text()
    assert "answers" in (tmp_path / "s.md").read_text()


def test_killed_then_interrupted_then_resumed_to_the_end(start: Callable[..., LiveRun]) -> None:
    """Its data outlives both; then they are removed, and the last resume populates again."""
    first = start(PLAN)
    first.until_iteration(1)
    first.process.kill()
    first.process.wait()
    before = {str(one.id): one for one in first.facts.iterations}

    second = first.again("resume", "latest")
    second.until(lambda: second.facts.started is not None and second.facts.started.resumed == 1, "it is resumed")
    second.until_iteration(2)
    second.process.send_signal(signal.SIGINT)
    assert second.end() == 130, second.output
    second.assert_nothing_left()
    first.assert_nothing_left()
    facts = second.facts
    assert facts.ended is not None and facts.ended.status == "interrupted" and facts.open_iteration is None
    assert populated(facts) == 1
    assert second.directory is not None
    shutil.rmtree(second.directory / "systems")

    third = first.again("resume", second.directory.name)
    assert third.end() == 0, third.output
    third.assert_nothing_left()
    facts = third.facts
    assert_complete(facts)
    assert {key: one for one in facts.iterations if (key := str(one.id)) in before} == before
    assert populated(facts) == 2
    fourth = first.again("resume", "latest")
    assert fourth.end() == 0, "a run that has finished: its results again, and its own exit code"
    assert fourth.facts.iterations == facts.iterations


def named(one: LiveRun, *words: str) -> list[psutil.Process]:
    """Return the processes of the run whose command line contains these words."""
    return [process for process in one.below() if all(word in " ".join(command(process)) for word in words)]


@pytest.mark.soak
def test_a_killed_agent_voids_an_iteration_and_a_killed_database_is_in_the_findings(
    start: Callable[..., LiveRun],
) -> None:
    """The database is part of the system under test: the iteration counts, unless one of its tasks failed."""
    one = start(PLAN.replace("measure: 1s", "measure: 4s").replace("limits: NEVER_VOID", "limits: {start_skew: 10m}"))
    one.until_iteration(0)
    (agent,) = named(one, "proveout.agent", "db1")
    agent.kill()
    one.until(lambda: one.facts.voided, "it is void")
    one.until_iteration(1)
    os.kill(named(one, "postgres", "-D")[-1].pid, signal.SIGKILL)
    one.end()
    one.assert_nothing_left()
    facts = one.facts
    assert_complete(facts)
    assert [event.host for event in facts.history if isinstance(event, events.AgentLost)] == ["db1"]
    assert facts.voided[0].rerun
    down = [i for i in facts.iterations if not i.valid or any(f.breach and not f.ok for f in i.findings)]
    assert len(facts.voided) + len(down) >= 2, one.output
    assert populated(facts) == 1


def test_a_run_that_cannot_proceed_fails_with_one_message(tmp_path: Path) -> None:
    done = run(tmp_path, PLAN.replace('synchronous_commit: "off"', 'wal_level: minimal, max_wal_senders: "5"'))
    assert done.ended(4).said.count("max_wal_senders") >= 1
    assert "Traceback" not in done.said


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

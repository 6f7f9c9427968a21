"""Runs with real agents that are killed or interrupted and resumed: their results, their remains, and agents that restart
meanwhile."""

from __future__ import annotations

import json
import os
import signal
import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from live_run import LiveRun
from whole_run import Agent, proveout, run

from proveout.proto import events
from proveout.proto.events import Notice, RunFinished, StageStarted

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


RESTS = """
proveout: 1
name: rests
topology: {{hosts: {{db1: {{roles: [client], address: "{address}"}}}}}}
stages:
  - pause: {{duration: 2s}}
"""


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[Agent]:
    agent = Agent(tmp_path / "agent")
    await agent.start()
    yield agent
    await agent.stop()


@pytest.fixture
async def resumed(agent: Agent, tmp_path: Path) -> AsyncIterator[LiveRun]:
    """The resume of a run that was interrupted, whose agent has stopped."""
    run = LiveRun(tmp_path, RESTS.format(address=agent.address), "--pki", str(agent.directory / "coordinator"))
    try:
        run.until_event(StageStarted)
        run.process.send_signal(signal.SIGINT)
        assert run.end() == 130, run.output
        await agent.stop()
        yield run.again("resume", "latest")
    finally:
        run.kill()


async def test_a_resume_waits_for_an_agent_that_restarts(resumed: LiveRun, agent: Agent) -> None:
    waiting = "nothing listens there: waiting for up to 20 s for the agent to start again"
    resumed.until(lambda: any(waiting in notice.text for notice in resumed.all(Notice)), "it says that it waits")
    await agent.start()
    assert resumed.end() == 0, resumed.output
    assert f"warning on db1: {waiting}" in resumed.said


@pytest.mark.soak
async def test_a_resume_ends_with_4_when_the_agent_does_not_come_back(resumed: LiveRun, agent: Agent) -> None:
    assert resumed.end() == 4, resumed.output
    reason = resumed.all(RunFinished)[-1].reason
    assert reason.startswith(f"agent db1 cannot be reached: host db1 ({agent.address}): nothing listens there")
    assert "(waited for 2" in reason
    assert f"Start the agent on that host: proveout agent --listen {agent.address}" in reason

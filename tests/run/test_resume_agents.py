"""`resume` during the restart of a permanent agent: the run waits for the agent up to a limit, with a warning."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from live_run import LiveRun
from whole_run import Agent

from proveout.proto.events import Notice, RunFinished, StageStarted

pytestmark = pytest.mark.server

PLAN = """
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
    run = LiveRun(tmp_path, PLAN.format(address=agent.address), "--pki", str(agent.directory / "coordinator"))
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

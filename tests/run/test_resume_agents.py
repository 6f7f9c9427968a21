"""`resume` during the restart of a permanent agent: the run waits for the agent up to a limit, with a warning."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from eventually import eventually
from live_run import LiveRun

from proveout.coordinator.pki.certificates import Authority
from proveout.proto.events import Notice, RunFinished, StageFinished

pytestmark = pytest.mark.server

PLAN = """
proveout: 1
name: rests
topology: {{hosts: {{box: {{roles: [client], address: "{address}"}}}}}}
stages:
  - pause: {{id: first, duration: 200ms}}
  - pause: {{id: second, duration: 3s}}
"""


class Installed:
    """A permanent agent in `folder`, and a run against it that was interrupted, with its agent."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        authority = Authority.create()
        authority.write_agent(folder / "pki", "box", ["127.0.0.1"])
        authority.write_coordinator(folder / "coordinator")
        self.folder, self.processes = folder, list[LiveRun]()

    def interrupt(self) -> LiveRun:
        agent = self.agent()
        run = LiveRun(self.folder, PLAN.format(address=self.address), "--pki", str(self.folder / "coordinator"))
        self.processes.append(run)
        run.until_event(StageFinished)
        run.process.send_signal(signal.SIGINT)
        assert run.end() == 130, run.output
        agent.process.terminate()
        agent.process.wait()
        return run

    def agent(self) -> LiveRun:
        place = self.folder / "agent"
        place.mkdir(exist_ok=True)
        where = ("--pki", str(self.folder / "pki"), "--state-dir", str(self.folder / "state"))
        words = ("agent", "--listen", self.address, "--name", "box", *where)
        agent = LiveRun(place, verb=words, headless=False)
        self.processes.append(agent)
        eventually(lambda: "listens at" in agent.said, lambda: agent.output)
        return agent


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Installed]:
    installed = Installed(tmp_path)
    yield installed
    for process in installed.processes:
        process.kill()


def test_a_resume_waits_for_an_agent_that_restarts(installed: Installed) -> None:
    resumed = installed.interrupt().again("resume", "latest")
    waiting = "nothing listens there: waiting for up to 20 s for the agent to start again"
    resumed.until(lambda: any(waiting in notice.text for notice in resumed.all(Notice)), "it says that it waits")
    installed.agent()
    assert resumed.end() == 0, resumed.output
    assert f"warning on box: {waiting}" in resumed.said


@pytest.mark.soak
def test_a_resume_ends_with_4_when_the_agent_does_not_come_back(installed: Installed) -> None:
    resumed = installed.interrupt().again("resume", "latest")
    assert resumed.end() == 4, resumed.output
    reason = resumed.all(RunFinished)[-1].reason
    assert reason.startswith(f"agent box cannot be reached: host box ({installed.address}): nothing listens there")
    assert "(waited for 2" in reason
    assert f"Start the agent on that host: proveout agent --listen {installed.address}" in reason

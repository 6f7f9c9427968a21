"""`resume` during the restart of a permanent agent: the run waits for the agent up to a limit, with a warning."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from proveout.coordinator.pki.certificates import Authority
from proveout.coordinator.storage.journal import read
from proveout.proto.events import Event, Notice, RunFinished, StageFinished

pytestmark = pytest.mark.slow

PATIENCE_S = 90.0
PLAN = """
proveout: 1
name: rests
topology: {{hosts: {{box: {{roles: [client], address: "{address}"}}}}}}
stages:
  - pause: {{id: first, duration: 200ms}}
  - pause: {{id: second, duration: 3s}}
"""


class Installed:
    """A permanent agent in `folder`, and runs against it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        authority = Authority.create()
        authority.write_agent(folder / "pki", "box", ["127.0.0.1"])
        authority.write_coordinator(folder / "coordinator")
        (folder / "plan.yaml").write_text(PLAN.format(address=self.address))
        self.processes: list[subprocess.Popen[bytes]] = []

    def proveout(self, *arguments: str, log: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PROVEOUT_RUNS_DIR": str(self.folder / "runs")}
        with (self.folder / log).open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "proveout", *arguments], cwd=self.folder, env=environment, stdout=out, stderr=out
            )
        self.processes.append(process)
        return process

    def agent(self) -> subprocess.Popen[bytes]:
        where = ("--pki", str(self.folder / "pki"), "--state-dir", str(self.folder / "state"))
        process = self.proveout("agent", "--listen", self.address, "--name", "box", *where, log="agent.log")
        self.until(lambda: "listens at" in self.said("agent.log"), "the agent listens")
        return process

    def said(self, log: str) -> str:
        return (self.folder / log).read_text(errors="replace")

    def events(self) -> list[Event]:
        journals = list((self.folder / "runs").glob("*/journal.sqlite"))
        return [stamped.event for path in journals for stamped in read(path.parent)]

    def notices(self) -> list[str]:
        return [event.text for event in self.events() if isinstance(event, Notice)]

    def until(self, holds: Callable[[], bool], what: str) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < until_s, f"never: {what}"
            time.sleep(0.05)

    def interrupted(self) -> None:
        """Interrupt a run, so that it can be resumed, and stop the agent."""
        agent = self.agent()
        run = self.proveout("run", "plan.yaml", "--headless", "--pki", str(self.folder / "coordinator"), log="run.log")
        self.until(
            lambda: any(isinstance(event, StageFinished) for event in self.events()), "the first stage has ended"
        )
        run.send_signal(signal.SIGINT)
        assert run.wait(PATIENCE_S) == 130, self.said("run.log")
        agent.terminate()
        agent.wait(PATIENCE_S)


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Installed]:
    installed = Installed(tmp_path)
    yield installed
    for process in installed.processes:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_a_resume_waits_for_an_agent_that_restarts(installed: Installed) -> None:
    installed.interrupted()
    resumed = installed.proveout("resume", "latest", "--headless", log="resume.log")
    waiting = "nothing listens there: waiting for up to 20 s for the agent to start again"
    installed.until(lambda: waiting in installed.notices(), "it says that it waits")
    assert resumed.poll() is None
    installed.agent()
    assert resumed.wait(PATIENCE_S) == 0, installed.said("resume.log")
    assert f"warning on box: {waiting}" in installed.said("resume.log")


def test_a_resume_ends_with_4_when_the_agent_does_not_come_back(installed: Installed) -> None:
    installed.interrupted()
    resumed = installed.proveout("resume", "latest", "--headless", log="resume.log")
    assert resumed.wait(PATIENCE_S) == 4, installed.said("resume.log")
    ended = [event for event in installed.events() if isinstance(event, RunFinished)][-1]
    assert ended.reason.startswith(
        f"agent box cannot be reached: host box ({installed.address}): nothing listens there"
    )
    assert "(waited for 2" in ended.reason
    assert f"Start the agent on that host: proveout agent --listen {installed.address}" in ended.reason

"""A real agent and a real coordinator in two network namespaces, whose link is disconnected during a load.

Data flow: `Wire` (two namespaces, a switch, an agent in one) -> `proveout run` in the other -> the link is disconnected
in the measure window -> the times until the coordinator reports the agent as lost, until the agent's load workers have
ended, and until its session has ended -> the link is restored -> the end of the run. All processes have the clock of
this machine; times count from the disconnection.
"""

from __future__ import annotations

import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "lab"))

import network
import servers
from eventually import eventually
from fabric_bench import issued
from live_run import WORKER, LiveRun, command, plan
from network import Host, Network

from proveout.proto.events import AgentLost

CONTROL = Host(name="control", address="10.77.0.1", role="control")
BOX = Host(name="box", address="10.77.0.2", role="client")
PORT = 7443
PASSWORD = secrets.token_urlsafe(12)
POLL_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """Seconds from the disconnection until the coordinator reported the lost agent, until no load worker was left, and
    until the agent's session had ended; the run's exit code; the numbers of void and of valid iterations."""

    lost_s: float
    load_s: float
    left_s: float
    code: int
    void: int
    valid: int


class Wire:
    """Two hosts; an enrolled agent listens on `box`."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="proveout-wire-"))
        self.folder.chmod(0o711)  # the server runs as the user `nobody`
        self.network = Network(f"pv{secrets.token_hex(4)}", (CONTROL, BOX))
        self.agent: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Wire:
        try:
            self.network.up()
            self._start_server()
            self._start_agent()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.network.down()
        if self.agent is not None:
            self.agent.wait(30)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start_server(self) -> None:
        server = servers.Server(
            network=self.network,
            host=BOX,
            folder=self.folder / "server",
            programs=servers.programs(self.folder),
            settings={"fsync": "off"},
        )
        server.start(PASSWORD)

    def _start_agent(self) -> None:
        authority = self.folder / "authority"
        issued(authority, "agent", self.folder / "pki", BOX.address, name=BOX.name)
        issued(authority, "coordinator", self.folder / "coordinator")
        files = ["--pki", str(self.folder / "pki"), "--state-dir", str(self.folder / "state")]
        where = ["--listen", f"{BOX.address}:{PORT}", "--name", BOX.name]
        argv = [sys.executable, "-m", "proveout", "agent", *where, *files]
        with (self.folder / "agent.log").open("wb") as log:
            self.agent = subprocess.Popen(self.network.command(BOX, *argv), stdout=log, stderr=log)
        eventually(lambda: "listens at" in self.log, lambda: self.log)

    @property
    def log(self) -> str:
        return (self.folder / "agent.log").read_text(errors="replace")

    def run(self, *, measure_s: float, lease_s: float | None) -> LiveRun:
        where = f'dsn: "host={BOX.address} dbname=hlr user=hlr password=${{secrets.hlr}}"'
        text = plan(address=f"{BOX.address}:{PORT}", engine="postgres", where=where, measure_s=measure_s)
        options = ("--pki", str(self.folder / "coordinator"))
        secret = {"PROVEOUT_HLR_PASSWORD": PASSWORD}
        text += "secrets:\n  hlr: {env: PROVEOUT_HLR_PASSWORD}\n"
        before = self.network.command(CONTROL)
        return LiveRun(self.folder, text, *options, lease_s=lease_s, before=before, environment=secret)

    def workers(self) -> list[int]:
        found = [psutil.Process(pid) for pid in self.network.pids(BOX.name) if psutil.pid_exists(pid)]
        return [process.pid for process in found if WORKER in command(process)]

    def sessions(self) -> int:
        """The number of sessions that have ended."""
        return self.log.count("ends: the agent lost its coordinator")


def pull(*, measure_s: float, lease_s: float | None = None) -> Pulled:
    """Disconnect the link a second into the measure window; restore it when both sides have detected it."""
    with Wire() as wire:
        run = wire.run(measure_s=measure_s, lease_s=lease_s)
        try:
            run.until_measuring()
            assert wire.workers(), "no load worker runs"
            wire.network.cut(BOX.name)
            began_s = time.monotonic()
            times: dict[str, float] = {}
            seen = {
                "lost": lambda: bool(run.all(AgentLost)),
                "load": lambda: not wire.workers(),
                "left": lambda: wire.sessions() > 0,
            }
            while len(times) < len(seen):
                for name in seen.keys() - times.keys():
                    if seen[name]():
                        times[name] = time.monotonic() - began_s
                assert time.monotonic() - began_s < 120, f"{times}\n{wire.log[-1000:]}\n{run.output[-1000:]}"
                time.sleep(POLL_S)
            wire.network.mend(BOX.name)
            code = run.end()
            facts = run.facts
        finally:
            run.kill()
    void = len(facts.voided) + sum(not iteration.valid for iteration in facts.iterations)
    return Pulled(
        lost_s=times["lost"],
        load_s=times["load"],
        left_s=times["left"],
        code=code,
        void=void,
        valid=sum(iteration.valid for iteration in facts.iterations),
    )


def quiet(_line: str) -> None:
    """Discard the progress messages of the lab."""


network.say = servers.say = quiet

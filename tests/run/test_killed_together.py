"""Coordinator and agents killed together (-9), also while agents start: no key was ever in a file, and the next command
leaves no directory."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import thorough
from eventually import eventually

pytestmark = pytest.mark.server

SEED = 20261122
MOMENTS = thorough.count(16, 2)
SPREAD_S = 3.0
PROVEOUT = (sys.executable, "-m", "proveout")
KEY = b"PRIVATE KEY"
PLAN = """
proveout: 1
name: killed
topology:
  hosts:
    a: {roles: [server, client], address: local}
    b: {roles: [server], address: local}
  systems:
    db: {engine: sqlite, host: a, provision: embedded}
workloads:
  hlr: {kind: hlr, population: 100}
stages:
  - populate: {workload: hlr, into: db}
  - ladder: {workload: hlr, target: db, threads: [1], measure: 60s, think: {constant: 10ms}}
verdicts:
  - {id: v, check: ladder.at(1).tps.mean > 1}
"""


class Place:
    """A temporary directory of its own, and what is found in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.temporary.chmod(0o1777)
        (folder / "plan.yaml").write_text(PLAN)
        self.environment = {**os.environ, "TMPDIR": str(self.temporary)}
        self.keys: set[str] = set()

    def left(self) -> list[str]:
        return sorted(path.name for path in self.temporary.glob("proveout-*"))

    def look_for_keys(self) -> None:
        for path in self.folder.rglob("*"):
            with contextlib.suppress(OSError):
                if path.is_file() and KEY in path.read_bytes():
                    self.keys.add(str(path))

    @contextlib.contextmanager
    def run(self) -> Iterator[subprocess.Popen[bytes]]:
        argv = [*PROVEOUT, "run", "plan.yaml", "--headless", "--runs-dir", str(self.folder / "runs")]
        with (self.folder / "said").open("ab") as said:
            run = subprocess.Popen(argv, cwd=self.folder, env=self.environment, stdout=said, stderr=said)
        stop = threading.Event()

        def look() -> None:
            while not stop.wait(0.05):
                self.look_for_keys()

        looking = threading.Thread(target=look, daemon=True)
        looking.start()
        try:
            yield run
        finally:
            kill_together(run)
            stop.set()
            looking.join()

    def until(self, run: subprocess.Popen[bytes], pattern: str) -> None:
        """Wait until the run has made files of this name."""

        def made() -> bool:
            assert run.poll() is None, (self.folder / "said").read_text()
            return any(self.temporary.glob(pattern))

        eventually(made, pattern)


def kill_together(run: subprocess.Popen[bytes]) -> None:
    """SIGKILL for a process and all below it, none of which has the time to notice the end of another."""
    if run.poll() is None:
        os.kill(run.pid, signal.SIGSTOP)
        below = psutil.Process(run.pid).children(recursive=True)
        for process in below:
            with contextlib.suppress(psutil.Error):
                process.suspend()
        for pid in (run.pid, *(process.pid for process in below)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        psutil.wait_procs(below, timeout=10)
    run.wait()


@pytest.mark.thorough
def test_the_next_command_removes_what_was_left_and_no_key_was_in_a_file(tmp_path: Path) -> None:
    place, draw = Place(tmp_path), random.Random(SEED)
    left = []
    for moment in range(MOMENTS):
        delay_s = draw.uniform(0.0, SPREAD_S) if moment else 0.0
        with place.run() as run:
            place.until(run, "proveout-*")
            time.sleep(delay_s)  # the moment of the kill
        left.append(place.left())
        done = subprocess.run([*PROVEOUT, "--version"], env=place.environment, capture_output=True, check=False)
        assert done.returncode == 0
        assert place.left() == [], f"killed after {delay_s:.2f} s"
    assert any(left), "something was left to remove"
    assert place.keys == set()


def test_a_directory_of_agents_that_live_is_left_alone(tmp_path: Path) -> None:
    """Only the coordinator is killed. Its agents still hold the lock (they are stopped meanwhile, or they would notice
    its end before the next command looks); when they have ended too, the next command removes the directory."""
    place = Place(tmp_path)

    def next_command() -> None:
        subprocess.run([*PROVEOUT, "--version"], env=place.environment, capture_output=True, check=True)

    with place.run() as run:
        place.until(run, "proveout-agents-*/agent-*/journal.sqlite")
        (before,) = place.left()
        agents = psutil.Process(run.pid).children()
        for agent in agents:
            agent.suspend()
        run.kill()
        run.wait()
        try:
            next_command()
            assert place.left() == [before], "agents that live keep their directory"
            for agent in agents:
                agent.resume()
            eventually(lambda: not psutil.wait_procs(agents, timeout=0)[1], "agents end with their coordinator")
            next_command()
            assert place.left() == []
        finally:
            for agent in agents:
                with contextlib.suppress(psutil.Error):
                    agent.kill()
            psutil.wait_procs(agents, timeout=10)


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_no_key_is_written_to_a_file(tmp_path: Path) -> None:
    """Every write of `explain --facts`, which starts an agent, by strace: keys go into the agent's pipe and nowhere
    else."""
    place = Place(tmp_path)
    text = PLAN.replace("workloads:", "tuning:\n  - {name: swap, on: all, sysctl: {vm.swappiness: 1}}\nworkloads:")
    (tmp_path / "plan.yaml").write_text(text)
    trace = tmp_path / "trace"
    argv = ["strace", "-f", "-y", "-s", "20000", "-e", "trace=write,pwrite64,writev,pwritev,sendto", "-o", str(trace)]
    done = subprocess.run(
        [*argv, *PROVEOUT, "explain", "--facts", "plan.yaml"],
        cwd=tmp_path, env=place.environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert "vm.swappiness" in done.stdout, done.stderr
    keys = [line for line in trace.read_text(errors="replace").splitlines() if KEY.decode() in line]
    assert keys, "the agents' keys are in the trace"
    where = re.compile(r"^\d+ +\w+\(\d+<(pipe|UNIX|socket|/memfd):")
    assert [line[:120] for line in keys if not where.match(line)] == []

"""Coordinator and agents killed together (-9), also while agents start: no key was ever in a file, and the next command
leaves no directory."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from canary import FileWatch
from eventually import eventually
from whole_run import PROVEOUT

pytestmark = pytest.mark.server

KEY = b"PRIVATE KEY"
MOMENTS = ("proveout-*", "proveout-agents-*/agent-a-*", "proveout-agents-*/agent-*/journal.sqlite")
"""A kill comes as soon as there is a file of this name: the directory, that of an agent, that of one which has begun."""
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

    def left(self) -> list[str]:
        return sorted(path.name for path in self.temporary.glob("proveout-*"))

    @contextlib.contextmanager
    def run(self) -> Iterator[tuple[subprocess.Popen[bytes], FileWatch]]:
        """Run while a watch looks for keys; kill everything at the end."""
        argv = [*PROVEOUT, "run", "plan.yaml", "--headless", "--runs-dir", str(self.folder / "runs")]
        with (self.folder / "said").open("ab") as said:
            run = subprocess.Popen(argv, cwd=self.folder, env=self.environment, stdout=said, stderr=said)
        with FileWatch(self.folder, is_secret=lambda content: KEY in content).watching() as watch:
            try:
                yield run, watch
            finally:
                kill_together(run)

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


def test_the_next_command_removes_what_was_left_and_no_key_was_in_a_file(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for moment in MOMENTS:
        with place.run() as (run, watch):
            place.until(run, moment)
        assert place.left(), "something was left to remove"
        subprocess.run([*PROVEOUT, "--version"], env=place.environment, capture_output=True, check=True)
        assert place.left() == [], f"killed after {moment}"
        assert watch.looks > 1 and watch.hits == set()


def test_a_directory_of_agents_that_live_is_left_alone(tmp_path: Path) -> None:
    """Only the coordinator is killed. Its agents still hold the lock (they are stopped meanwhile, or they would notice
    its end before the next command looks); when they have ended too, the next command removes the directory."""
    place = Place(tmp_path)

    def next_command() -> None:
        subprocess.run([*PROVEOUT, "--version"], env=place.environment, capture_output=True, check=True)

    with place.run() as (run, _):
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

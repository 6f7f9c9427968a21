"""A coordinator and its agents that are killed (-9): no key was ever in a file, and the next command leaves no
directory."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from canary import FileWatch
from eventually import eventually

pytestmark = pytest.mark.server

KEY = b"PRIVATE KEY"
PROVEOUT = (sys.executable, "-m", "proveout")
PLAN = """
proveout: 1
name: killed
topology:
  hosts:
    a: {roles: [client], address: local}
    b: {roles: [client], address: local}
TUNINGstages:
  - pause: {duration: 10m}
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary directory of the test's own, that of the commands that it starts."""
    made = tmp_path / "tmp"
    made.mkdir()
    made.chmod(0o1777)
    monkeypatch.setenv("TMPDIR", str(made))
    return made


def kill(agents: list[psutil.Process]) -> None:
    for agent in agents:
        with contextlib.suppress(psutil.NoSuchProcess):
            agent.kill()
    psutil.wait_procs(agents, timeout=10)


def test_the_next_command_removes_the_directory_when_no_agent_runs(temporary: Path, tmp_path: Path) -> None:
    """Agents hold its lock. They are stopped meanwhile, or they would notice the end of their coordinator, and then
    killed too."""

    def left_by_the_next_command() -> list[str]:
        subprocess.run([*PROVEOUT, "--version"], capture_output=True, check=True)
        return sorted(path.name for path in temporary.glob("proveout-*"))

    (tmp_path / "plan.yaml").write_text(PLAN.replace("TUNING", ""))
    argv = [*PROVEOUT, "run", "plan.yaml", "--headless", "--runs-dir", str(tmp_path / "runs")]
    agents: list[psutil.Process] = []
    with (
        FileWatch(tmp_path, is_secret=lambda content: KEY in content).watching() as watch,
        (tmp_path / "said").open("ab") as said,
        subprocess.Popen(argv, cwd=tmp_path, stdout=said, stderr=said) as run,
    ):
        try:
            eventually(lambda: any(temporary.glob("proveout-agents-*/agent-*/journal.sqlite")), "an agent has begun")
            agents += psutil.Process(run.pid).children()
            for agent in agents:
                agent.suspend()
            run.kill()
            run.wait()
            (before,) = (path.name for path in temporary.glob("proveout-*"))
            assert left_by_the_next_command() == [before], "agents that run keep their directory"
            kill(agents)
            assert left_by_the_next_command() == []
        finally:
            run.kill()
            kill(agents)
    assert watch.looks > 1 and watch.hits == set()


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_no_key_is_written_to_a_file(temporary: Path, tmp_path: Path) -> None:
    """Every write of `explain --facts`, which starts an agent, by strace: keys go into the agent's pipe and nowhere
    else."""
    (tmp_path / "plan.yaml").write_text(
        PLAN.replace("TUNING", "tuning:\n  - {name: swap, on: all, sysctl: {vm.swappiness: 1}}\n")
    )
    trace = tmp_path / "trace"
    argv = ["strace", "-f", "-y", "-s", "20000", "-e", "trace=write,pwrite64,writev,pwritev,sendto", "-o", str(trace)]
    done = subprocess.run(
        [*argv, *PROVEOUT, "explain", "--facts", "plan.yaml"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert "vm.swappiness" in done.stdout, done.stderr
    keys = [line for line in trace.read_text(errors="replace").splitlines() if KEY.decode() in line]
    assert keys, "the agents' keys are in the trace"
    where = re.compile(r"^\d+ +\w+\(\d+<(pipe|UNIX|socket|/memfd):")
    assert [line[:120] for line in keys if not where.match(line)] == []

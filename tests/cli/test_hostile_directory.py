"""`proveout run` in a directory of hostile modules, programs and settings, with hostile variables in the environment.

Only the coordinator, which runs as its caller, may be affected: no other process executes the files or has the
variables.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import hostile_directory as hostile
import psutil
import pytest

pytestmark = pytest.mark.server

PLAN = """
proveout: 1
name: hostile
topology:
  hosts:
    h: {roles: [server, client], address: local}
  systems:
    db: {engine: postgres, host: h, provision: embedded}
workloads:
  hlr: {kind: hlr, population: 200}
captures:
  waits: {kind: waits, system: db, every: 200ms}
stages:
  - populate: {workload: hlr, into: db}
  - sql: {system: db, statements: ["SELECT 1"]}
  - ladder: {workload: hlr, target: db, threads: [1], think: {constant: 10ms}, ramp_up: 0s, measure: 1s, ramp_down: 0s, repeat: 1, capture: [waits]}
report: {without: [others]}  # no figure: drawing takes a second of a processor
verdicts:
  - {id: v, check: ladder.at(1).errors.count.mean == 0}
"""
PROGRAM = Path(sys.executable).with_name("proveout")
WAYS = {"module": (sys.executable, "-m", "proveout"), "command": (str(PROGRAM),)}
RUN_S = 180.0


class Descendants:
    """The environment of every descendant of a process, polled: `found[pid]` is (command line, environment)."""

    def __init__(self, root: int) -> None:
        self._root, self._stop = root, threading.Event()
        self.found: dict[int, tuple[str, bytes]] = {}
        self.thread = threading.Thread(target=self._look, daemon=True)
        self.thread.start()

    def _look(self) -> None:
        while not self._stop.wait(0.02):
            try:
                below = psutil.Process(self._root).children(recursive=True)
            except psutil.Error:
                return
            for process in below:
                self._note(process.pid)

    def _note(self, pid: int) -> None:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            environ = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return
        # A process between fork and exec has its parent's environment, which is not that of its program.
        before = self.found.get(pid)
        if before is None or before[0] == words or words:
            self.found[pid] = (words, environ)

    def end(self) -> None:
        self._stop.set()
        self.thread.join()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for above in (tmp_path, *tmp_path.parents[:3]):
        if above.owner() == "root" and above != Path("/tmp"):
            above.chmod(0o755)
    hostile.lay(tmp_path)
    (tmp_path / "plan" / "plan.yaml").write_text(PLAN)
    return tmp_path


@pytest.mark.slow
@pytest.mark.escape
@pytest.mark.parametrize("way", WAYS)
def test_no_child_executes_the_files_or_inherits_a_variable(way: str, folder: Path) -> None:
    if way == "command" and not PROGRAM.exists():
        pytest.skip("the command is not installed beside this interpreter")
    argv = [*WAYS[way], "run", "plan.yaml", "--headless", "--runs-dir", str(folder / "runs")]
    given = hostile.variables(folder)
    with (folder / "output").open("wb") as output:
        run = subprocess.Popen(argv, cwd=folder / "plan", env=given, stdout=output, stderr=output)
        below = Descendants(run.pid)
        try:
            code = run.wait(RUN_S)
        finally:
            run.kill()
            below.end()
    assert code == 0, (folder / "output").read_text()
    kinds = (
        "proveout.agent ",
        "sandbox.helper_main",
        "load.worker",
        "populate_worker",
        "supervisor.py",
        "bin/postgres",
    )
    commands = [words for words, _ in below.found.values()]
    assert [kind for kind in kinds if not any(kind in words for words in commands)] == [], "the children were seen"
    obeyed = hostile.obeyed(folder)
    assert [(name, pid) for name, pid in obeyed if pid != run.pid] == []
    allowed = {vector.name for vector in hostile.VECTORS if vector.by_coordinator}
    assert {name for name, _ in obeyed} <= allowed, (
        "the coordinator obeys its caller's own PYTHONPATH and LD_PRELOAD, and nothing else"
    )
    assert "pythonpath" in {name for name, _ in obeyed}, "the canaries work"
    wrong = {words: hostile.inherited(environ, given) for words, environ in below.found.values()}
    assert {words: names for words, names in wrong.items() if names} == {}


def test_the_agents_log_names_the_removed_variables(folder: Path) -> None:
    """The log explains to the owner of the host why such a variable has no effect."""
    from proveout.coordinator.agents.local_agents import _not_passed_on

    with pytest.MonkeyPatch.context() as patch:
        for name, value in hostile.variables(folder).items():
            patch.setenv(name, value)
        log = _not_passed_on(()).decode()
        assert "PGPASSWORD" in log and "TNS_ADMIN" in log and "PROVEOUT_PASS_ENV" in log
        assert hostile.SECRET not in log and "CI_SECRET" not in log
        patch.setenv("PROVEOUT_PASS_ENV", "TNS_ADMIN, PGPASSWORD")
        assert "TNS_ADMIN" not in _not_passed_on(()).decode()


def test_modules_that_python_m_imports_before_proveout(folder: Path) -> None:
    """`python -m` imports from the working directory before the package can prevent it; `-P` disables that."""
    for name in hostile.BEFORE:
        (folder / "plan" / f"{name}.py").write_text(
            f"open({str(folder / hostile.CANARY)!r}, 'a').write('{name} 1\\n'); raise ImportError\n"
        )
    for argv in ((sys.executable, "-P", "-m", "proveout"), (str(PROGRAM),)):
        done = subprocess.run(
            [*argv, "check", "plan.yaml"], cwd=folder / "plan", capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert hostile.obeyed(folder) == []

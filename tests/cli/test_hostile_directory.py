"""`proveout run` in a directory of hostile modules, programs and settings, with hostile variables in the environment.

Only the coordinator, which runs as its caller, may be affected: no other process executes the files or has the
variables. Each file that is executed or imported appends its path and its process to `CANARY`; an inherited variable is
found in `/proc/PID/environ`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from proveout.coordinator.agents.local_agents import _not_passed_on

pytestmark = pytest.mark.server

PLAN = """
proveout: 1
name: hostile
topology:
  hosts:
    h: {roles: [server, client], address: local}
  systems:
    db: {engine: sqlite, host: h, provision: embedded}
workloads:
  hlr: {kind: hlr, population: 200}
stages:
  - populate: {workload: hlr, into: db}
  - sql: {system: db, statements: ["SELECT 1"]}
  - ladder: {workload: hlr, target: db, threads: [1], think: {constant: 10ms}, ramp_up: 0s, measure: 500ms, ramp_down: 0s, repeat: 1}
report: {without: [others]}  # no figure: drawing takes a second of a processor
verdicts:
  - {id: v, check: ladder.at(1).errors.count.mean == 0}
"""
PROGRAM = Path(sys.executable).with_name("proveout")
WAITS = "captures:\n  waits: {kind: waits, system: db, every: 200ms}\nstages:"
WAYS = {"module": (sys.executable, "-m", "proveout"), "command": (str(PROGRAM),)}
RUN_S = 180.0

CANARY = "canary.log"
SECRET = "canary-7Hq2"
"""Part of the value of each variable that a child must not inherit."""
MODULES = (
    "queue grpc psutil secrets sqlite3 ssl socket subprocess tempfile logging json random typer yaml numpy cryptography "
    "psycopg apsw google site proveout_agent hashlib uuid shutil sitecustomize usercustomize asyncio/__init__ "
    "agent/__init__"
)
"""In place of the real modules, and of those that `site` imports at the start."""
BEFORE = "importlib contextlib functools types warnings collections operator keyword reprlib"
"""Modules that `python -m` itself imports from the working directory before proveout's first line: use the `proveout`
command, or `python -P -m proveout`."""
NOTE = "open('{folder}/" + CANARY + "', 'a').write('{path} %d\\n' % __import__('os').getpid())\n"
PROGRAMS = "postgres initdb mariadbd fio python python3 uname"
SHELL = "#!/bin/sh\necho {path} $$ >> {folder}/" + CANARY + "\nexit 1\n"
OF_THE_CALLER = ("path/", "user/")
"""Files that act in the coordinator itself, because the caller's own variables name them."""
FILES = {
    **{f"plan/{name}.py": NOTE for name in MODULES.split()},
    "plan/hostile.pth": f"import os; {NOTE}",
    "path/sitecustomize.py": NOTE,
    "path/usercustomize.py": NOTE,
    **{f"user/lib/python3.{minor}/site-packages/hostile.pth": f"import os; {NOTE}" for minor in range(11, 15)},
    "startup.py": NOTE,
    **{f"plan/{name}": SHELL for name in PROGRAMS.split()},
    "home/.my.cnf": f"[client]\npassword={SECRET}\nhost=nowhere\n",
    "home/.pgpass": f"*:*:*:*:{SECRET}\n",
    "home/.pg_service.conf": "[x]\nhost=nowhere\n",
}
SECRETS = "PGPASSWORD MYSQL_PWD CI_SECRET AWS_SECRET_ACCESS_KEY GITHUB_TOKEN RAY_AUTH_TOKEN"
PLACES = "PGHOST PGHOSTADDR PGSERVICE PGOPTIONS PGDATABASE MYSQL_HOST TWO_TASK http_proxy"
FOLDERS = (
    "PGSERVICEFILE PGPASSFILE PGSYSCONFDIR PGSSLROOTCERT MYSQL_HOME MYSQL_TEST_LOGIN_FILE TNS_ADMIN ORACLE_HOME ODBCINI "
    "ODBCSYSINI TIMESTEN_HOME OPENSSL_CONF KRB5_CONFIG LD_LIBRARY_PATH"
)
VARIABLES = {
    **dict.fromkeys(f"{SECRETS} {PLACES}".split(), SECRET),
    **dict.fromkeys(FOLDERS.split(), f"{{folder}}/{SECRET}"),
    "PYTHONPATH": "{folder}/path",
    "PYTHONUSERBASE": "{folder}/user",
    "PYTHONSTARTUP": "{folder}/startup.py",
    "LD_PRELOAD": "{folder}/preload.so",
    "PATH": f".:{os.environ.get('PATH', '')}",
    "HOME": "{folder}/home",
}


def lay(folder: Path, path: str, text: str) -> None:
    """Write a file, world-readable."""
    place = folder / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text.replace("{folder}", str(folder)).replace("{path}", path))
    place.chmod(0o600 if place.name == ".pgpass" else 0o755)


@pytest.fixture
def folder(package_folder: Path) -> Path:
    (package_folder / CANARY).touch()
    (package_folder / CANARY).chmod(0o666)
    for path, text in FILES.items():
        lay(package_folder, path, text)
    (package_folder / "plan" / "plan.yaml").write_text(PLAN)
    return package_folder


def with_a_server(plan: str) -> str:
    """The plan with a PostgreSQL, whose waits are captured."""
    plan = plan.replace("engine: sqlite", "engine: postgres").replace("stages:", WAITS)
    return plan.replace("repeat: 1}", "repeat: 1, capture: [waits]}")


def variables(folder: Path) -> dict[str, str]:
    """The caller's environment with all hostile variables."""
    hostile = {name: value.replace("{folder}", str(folder)) for name, value in VARIABLES.items()}
    return os.environ | hostile


def obeyed(folder: Path) -> list[tuple[str, int]]:
    """(file, process) for each file that was executed or imported."""
    lines = (folder / CANARY).read_text().splitlines()
    return [(path, int(pid)) for path, pid in (line.split() for line in lines)]


def inherited(environ: bytes, given: dict[str, str]) -> list[str]:
    """The hostile variables in an environment (the bytes of `/proc/PID/environ`)."""
    found = [entry.decode(errors="replace") for entry in environ.split(b"\0") if entry]
    hostile = {f"{name}={given[name]}" for name in VARIABLES if name not in ("PATH", "HOME")}
    wrong = [entry for entry in found if SECRET in entry or entry in hostile]
    paths = [entry for entry in found if entry.startswith("PATH=")]
    return wrong + [path for path in paths if not all(part.startswith("/") for part in path[5:].split(":"))]


def below(pid: int) -> Iterator[int]:
    """The children of a process, and theirs."""
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, file.read_text().split()):
                yield child
                yield from below(child)


class Descendants:
    """The environment of every descendant of a process, polled: `found[pid]` is (command line, environment)."""

    def __init__(self, root: int) -> None:
        self._root, self._stop = root, threading.Event()
        self.found: dict[int, tuple[str, bytes]] = {}
        self.thread = threading.Thread(target=self._look, daemon=True)
        self.thread.start()

    def _look(self) -> None:
        while not self._stop.wait(0.02):
            for pid in below(self._root):
                self._note(pid)

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


@pytest.mark.escape
@pytest.mark.parametrize("way", ["module", pytest.param("command", marks=pytest.mark.soak)])
def test_no_child_executes_the_files_or_inherits_a_variable(way: str, folder: Path) -> None:
    kinds = ["proveout.agent ", "sandbox.helper_main", "load.worker", "populate_worker"]
    if way == "command":
        if not PROGRAM.exists():
            pytest.skip("the command is not installed beside this interpreter")
        (folder / "plan" / "plan.yaml").write_text(with_a_server(PLAN))
        kinds += ["supervisor.py", "bin/postgres"]
    argv = [*WAYS[way], "run", "plan.yaml", "--headless", "--runs-dir", str(folder / "runs")]
    given = variables(folder)
    with (folder / "output").open("wb") as output:
        run = subprocess.Popen(argv, cwd=folder / "plan", env=given, stdout=output, stderr=output)
        seen = Descendants(run.pid)
        try:
            code = run.wait(RUN_S)
        finally:
            run.kill()
            seen.end()
    assert code == 0, (folder / "output").read_text()
    commands = [words for words, _ in seen.found.values()]
    assert [kind for kind in kinds if not any(kind in words for words in commands)] == [], "the children were seen"
    acted = obeyed(folder)
    assert [(path, pid) for path, pid in acted if pid != run.pid] == []
    assert [path for path, _ in acted if not path.startswith(OF_THE_CALLER)] == [], (
        "the coordinator obeys its caller's own PYTHONPATH, and nothing else"
    )
    assert [path for path, _ in acted if path.startswith("path/")], "the canaries work"
    wrong = {words: inherited(environ, given) for words, environ in seen.found.values()}
    assert {words: names for words, names in wrong.items() if names} == {}


def test_the_agents_log_names_the_removed_variables(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log explains to the owner of the host why such a variable has no effect."""
    for name, value in variables(folder).items():
        monkeypatch.setenv(name, value)
    log = _not_passed_on(()).decode()
    assert "PGPASSWORD" in log and "TNS_ADMIN" in log and "PROVEOUT_PASS_ENV" in log
    assert SECRET not in log and "CI_SECRET" not in log
    monkeypatch.setenv("PROVEOUT_PASS_ENV", "TNS_ADMIN, PGPASSWORD")
    assert "TNS_ADMIN" not in _not_passed_on(()).decode()


def test_modules_that_python_m_imports_before_proveout(folder: Path) -> None:
    """`python -m` imports from the working directory before the package can prevent it; `-P` disables that."""
    for name in BEFORE.split():
        lay(folder, f"plan/{name}.py", f"{NOTE}raise ImportError\n")
    argv = (sys.executable, "-P", "-m", "proveout", "check", "plan.yaml")
    done = subprocess.run(argv, cwd=folder / "plan", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert obeyed(folder) == []

"""System calls of `explain` and `explain --facts` (strace): they write and send nothing outside their own directory.

`explain --facts` starts an agent on this host to read the facts; the agent has a private directory, which is removed at
the end, and a socket on loopback. All its other calls are read only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[2]
TRACED = (
    "open,openat,creat,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,link,linkat,symlink,symlinkat,"
)
TRACED += "chmod,fchmodat,chown,lchown,fchownat,truncate,mknod,mknodat,mount,umount2,setxattr,connect,sethostname,kill"
WRITES = re.compile(r"(open|openat)\(.*O_(WRONLY|RDWR|CREAT|TRUNC)|^\d+ +(?!open|connect|kill)\w+\(")
FAILED = re.compile(r"= -1 (ENOENT|EEXIST|ENOTDIR|EPERM|EACCES)")
PLAN = """
proveout: 1
name: looks
topology:
  hosts:
    h: {roles: [server, client], address: local}
  systems:
    db: {engine: sqlite, host: h, provision: embedded}
tuning:
  - {name: swap, on: all, sysctl: {vm.swappiness: 1}}
  - {name: made, on: all, file: {path: /etc/proveout-never/app.conf, content: x}}
workloads:
  hlr: {kind: hlr, population: 100}
stages:
  - populate: {workload: hlr, into: db}
  - ladder: {workload: hlr, target: db, threads: [1], measure: 1s}
verdicts:
  - {id: v, check: ladder.at(1).tps.mean > 1}
"""

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")


def alone() -> list[str]:
    """The words in front of a command that hide the tunings of other agents of this machine, which each agent looks at
    when it starts: other tests change it meanwhile. Nothing where mounts are not allowed."""
    hide = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /var/lib && exec "$@"', "sh"]
    may = shutil.which("unshare") and not subprocess.run([*hide, "true"], capture_output=True, check=False).returncode
    return hide if may else []


def trace(folder: Path, *arguments: str) -> tuple[str, list[str]]:
    """Run a command; return its output, and the calls of it and its children."""
    place, own = folder / "trace", folder / "own"
    own.mkdir()
    argv = [*alone(), "strace", "-f", "-y", "-s", "300", "-e", f"trace={TRACED}", "-o", str(place)]
    argv += [sys.executable, "-B", "-m", "proveout", *arguments]
    environment = {**os.environ, "TMPDIR": str(own), "HOME": str(own), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, place.read_text(errors="replace").splitlines()


def elsewhere(calls: list[str], folder: Path) -> list[str]:
    """The calls with a change outside the command's own directory."""
    mine = (str(folder / "own"), "/dev/null", "/dev/shm/")  # shared memory of the C library's semaphores
    wrote = [call for call in calls if WRITES.search(call) and not FAILED.search(call)]
    return [call for call in wrote if not any(word in call for word in mine)]


@needs_strace
def test_explain_writes_nothing_and_opens_no_connection(tmp_path: Path) -> None:
    """`check` does a part of the same: it compiles the plan."""
    (tmp_path / "plan.yaml").write_text(PLAN)
    output, calls = trace(tmp_path, "explain", "plan.yaml")
    assert "looks" in output
    assert any("plan.yaml" in call for call in calls), "the trace shows what is read"
    assert elsewhere(calls, tmp_path) == []
    assert list((tmp_path / "own").iterdir()) == []
    assert not [call for call in calls if " connect(" in call and "AF_INET" in call]


@needs_strace
def test_explain_with_facts_writes_nothing_on_the_host(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    (tmp_path / "policy.yaml").write_text(
        "policy: 1\nsysctl: [vm.swappiness]\npaths: [{path: /etc/proveout-never, i_know: it is never there}]\n"
    )
    output, calls = trace(tmp_path, "explain", "--facts", "--policy", "policy.yaml", "plan.yaml")
    assert "vm.swappiness" in output
    assert any("/proc/sys/vm/swappiness" in call for call in calls), "the agent has looked"
    assert [call for call in calls if WRITES.search(call) and str(tmp_path / "own") in call], (
        "the trace shows what is written"
    )
    assert elsewhere(calls, tmp_path) == []
    assert list((tmp_path / "own").iterdir()) == [], "what was its own is gone"
    addresses = [call for call in calls if " connect(" in call and "AF_INET" in call]
    assert addresses
    assert all('"127.0.0.1"' in call or '"::1"' in call or "::ffff:127.0.0.1" in call for call in addresses)
    assert not Path("/etc/proveout-never").exists()

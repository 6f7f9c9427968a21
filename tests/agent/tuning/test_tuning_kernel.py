"""Tuning on the real kernel: parameters in a separate network namespace, and a check mode that writes nothing
(strace)."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

pytestmark = pytest.mark.server

BENCH = Path(__file__).parent

PROGRAM = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(BENCH)!r})
from tuning_bench import POLICY, tuning
from proveout.agent.tuning import revert
from proveout.agent.tuning.host import Host
from proveout.agent.tuning.transaction import Transaction
from proveout.agent.tuning.undo_journal import UndoJournal

def value(name):
    return " ".join(Path("/proc/sys/net/ipv4", name).read_text().split())

act, undo = sys.argv[1], Path(sys.argv[2])
host, journal = Host(policy=POLICY), UndoJournal(undo)
change = tuning("sysctl", settings={{"net.ipv4.ip_local_port_range": "9000 65500", "net.ipv4.tcp_fin_timeout": "31"}})
transaction = Transaction(host=host, journal=journal, run="r")
if act == "plan":
    print("planned", [state.outcome for state in transaction.plan([change])])
elif act == "too much":
    wrong = tuning("sysctl", settings={{"net.ipv4.tcp_fin_timeout": "31", "net.ipv4.ip_local_port_range": "9000 99999"}})
    print([line for state in transaction.apply([wrong]) for line in state.lines][0])
    print(value("ip_local_port_range"), value("tcp_fin_timeout"))
else:
    print([state.outcome for state in transaction.apply([change])], value("ip_local_port_range"), value("tcp_fin_timeout"))
    print([state.outcome for state in revert.revert(host, journal)], value("ip_local_port_range"), value("tcp_fin_timeout"))
journal.close()
"""


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    """The name of a new network namespace; skips when this process may not create one."""
    name = f"tuning{secrets.token_hex(4)}"
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces take root and iproute2")
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"no network namespaces here: {made.stderr.strip()}")
    yield name
    subprocess.run(["ip", "netns", "delete", name], check=True)


def run(namespace: str, act: str, tmp_path: Path, *before: str) -> list[str]:
    return python(namespace, "-c", PROGRAM, act, str(tmp_path / "undo"), before=before)


def python(namespace: str, *words: str, before: Sequence[str] = ()) -> list[str]:
    argv = ["ip", "netns", "exec", namespace, *before, sys.executable, *words]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_parameter_is_applied_and_reverted(namespace: str, tmp_path: Path) -> None:
    assert run(namespace, "apply", tmp_path) == ["['applied'] 9000 65500 31", "['reverted'] 32768 60999 60"]
    assert not (tmp_path / "undo").exists()


def test_a_value_that_the_kernel_refuses_undoes_the_accepted_ones(namespace: str, tmp_path: Path) -> None:
    reason, values = run(namespace, "too much", tmp_path)
    assert reason == "cannot set /proc/sys/net/ipv4/ip_local_port_range to '9000 99999': Invalid argument"
    assert values == "32768 60999 60"


def test_every_network_parameter_is_reverted_without_side_effects(namespace: str, tmp_path: Path) -> None:
    outcomes = Counter(python(namespace, str(BENCH / "every_parameter.py"), str(tmp_path / "undo")))
    assert set(outcomes) <= {"applied", "failed", "refused"}
    assert outcomes["applied"] > 100, outcomes
    assert outcomes["refused"] > 5, outcomes


WRITES = re.compile(
    r"(open|openat|openat2|creat)\(.*O_(WRONLY|RDWR|CREAT|TRUNC)|\b(rename|unlink|mkdir|rmdir|symlink|link|chmod|fchmod|"
    r"chown|fchown|lchown|truncate|ftruncate|mknod|setxattr|fsetxattr|utime|mount|umount)\w*\("
)
OWN = ("/dev/null", "ENOENT", "EEXIST")


def test_check_mode_writes_nothing(namespace: str, tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("this host has no strace")
    trace = tmp_path / "trace"
    assert run(namespace, "plan", tmp_path, "strace", "-f", "-o", str(trace)) == ["planned ['would_change']"]
    calls = trace.read_text().splitlines()
    assert any("/proc/sys/net/ipv4/tcp_fin_timeout" in call for call in calls)
    assert wrote(calls) == []
    run(namespace, "apply", tmp_path, "strace", "-f", "-o", str(trace))
    assert wrote(trace.read_text().splitlines()), "the trace shows what is written"


def wrote(calls: list[str]) -> list[str]:
    return [call for call in calls if WRITES.search(call) and not any(word in call for word in OWN)]

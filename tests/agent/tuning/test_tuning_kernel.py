"""Tuning on the real kernel, in a separate network namespace: parameters, the MTU of a veth pair and of interfaces on it.

A bond needs the kernel's module, which is not on every host: without it, only the model of `any_kernel` and the cases
stand for it.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.server
BENCH = Path(__file__).parent
SYSCTL = {"net.ipv4.ip_local_port_range": "9000 65500", "net.ipv4.tcp_fin_timeout": "31"}
VALUES = ["proc/sys/net/ipv4/ip_local_port_range", "proc/sys/net/ipv4/tcp_fin_timeout"]
PROGRAM = f"""
import json, sys
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, {str(BENCH)!r})
from tuning_bench import POLICY, tuning
from proveout.agent.tuning.host import Host
from proveout.agent.tuning.transaction import Transaction, revert
from proveout.agent.tuning.undo_journal import UndoJournal

undo, acts, tunings, places = Path(sys.argv[1]), *map(json.loads, sys.argv[2:])
host = Host(policy=replace(POLICY, paths=(*POLICY.paths, "/sys/class/net")))
journal = UndoJournal(undo)
transaction = Transaction(host=host, journal=journal, run="r")
tunings = [tuning(kind, **fields) for kind, fields in tunings]
does = {{"plan": transaction.plan, "apply": transaction.apply, "revert": lambda _: revert(host, journal)}}
for act in acts:
    states = does[act](tunings)
    values = [" ".join(Path("/", place).read_text().split()) for place in places]
    print(json.dumps([[state.outcome for state in states], [line for state in states for line in state.lines], values]))
journal.close()
"""
State = tuple[list[str], list[str], list[str]]
"""(outcomes, lines, values) after an act."""


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    """A network namespace with the veth pair va0 and vb0; skips when this process may not create one."""
    name = f"tuning{secrets.token_hex(4)}"
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces take root and iproute2")
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"no network namespaces here: {made.stderr.strip()}")
    try:
        ip(name, "link", "add", "va0", "type", "veth", "peer", "name", "vb0")
        yield name
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


def ip(namespace: str, *words: str) -> str:
    """Run ip(8) in the namespace; returns its error, or ""."""
    argv = ["ip", "-n", namespace, *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60).stderr.strip()


def python(namespace: str, *words: str) -> list[str]:
    """The lines of a program in the namespace, "" for this process's own."""
    where = ["ip", "netns", "exec", namespace] if namespace else []
    argv = [*where, sys.executable, *words]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def run(namespace: str, undo: Path, acts: str, *tunings: tuple[str, dict[str, Any]], places: list[str]) -> list[State]:
    """The state after each act (plan, apply, revert)."""
    words = [json.dumps(one) for one in (acts.split(), tunings, places)]
    return [tuple(json.loads(line)) for line in python(namespace, "-c", PROGRAM, str(undo), *words)]


def mtu(
    namespace: str, tmp_path: Path, size: int, *names: str, acts: str = "apply revert", more: Any = ()
) -> list[State]:
    """The states of setting the MTU of interfaces; `more`: tunings before it."""
    places = [f"sys/class/net/{name}/mtu" for name in names]
    return run(namespace, tmp_path / "undo", acts, *more, ("mtu", {"interfaces": names, "mtu": size}), places=places)


def test_a_parameter_is_applied_and_reverted(namespace: str, tmp_path: Path) -> None:
    one = ("sysctl", {"settings": SYSCTL})
    applied, reverted = run(namespace, tmp_path / "undo", "apply revert", one, places=VALUES)
    assert (applied[0], applied[2]) == (["applied"], ["9000 65500", "31"])
    assert (reverted[0], reverted[2]) == (["reverted"], ["32768 60999", "60"])
    assert not (tmp_path / "undo").exists()
    wrong = ("sysctl", {"settings": {"net.ipv4.tcp_fin_timeout": "31", "net.ipv4.ip_local_port_range": "9000 99999"}})
    ((_, lines, values),) = run(namespace, tmp_path / "undo", "apply", wrong, places=VALUES)
    assert lines[0] == "cannot set /proc/sys/net/ipv4/ip_local_port_range to '9000 99999': Invalid argument"
    assert values == ["32768 60999", "60"], "the accepted one is undone"


@pytest.mark.soak
def test_every_network_parameter_is_reverted_without_side_effects(namespace: str, tmp_path: Path) -> None:
    outcomes = Counter(python(namespace, str(BENCH / "every_parameter.py"), str(tmp_path / "undo")))
    assert set(outcomes) <= {"applied", "failed", "refused"}
    assert outcomes["applied"] > 100, outcomes
    assert outcomes["refused"] > 5, outcomes


# ---- interfaces ------------------------------------------------------------------------------------------------------


def test_jumbo_frames_are_set_and_set_back(namespace: str, tmp_path: Path) -> None:
    looked, applied, reverted = mtu(namespace, tmp_path, 9000, "va0", "vb0", acts="plan apply revert")
    lines = ["/sys/class/net/va0/mtu: 1500 -> 9000", "/sys/class/net/vb0/mtu: 1500 -> 9000"]
    assert looked == (["would_change"], lines, ["1500", "1500"])
    assert applied == (["applied"], lines, ["9000", "9000"])
    assert (reverted[0], reverted[2]) == (["reverted"], ["1500", "1500"])
    if error := ip(namespace, "tuntap", "add", "tap0", "mode", "tap"):
        pytest.skip(f"no interface with a lower limit here: {error}")
    ((outcomes, _, values),) = mtu(namespace, tmp_path, 65535, "va0", "tap0", acts="apply")  # tap takes 65521
    assert (outcomes, values) == (["failed", "reverted"], ["1500", "1500"])
    assert not (tmp_path / "undo").exists()


def test_a_bond_gives_its_mtu_to_its_ports_and_is_checked(namespace: str, tmp_path: Path) -> None:
    if error := ip(namespace, "link", "add", "bond9", "type", "bond", "mode", "active-backup", "miimon", "100"):
        pytest.skip(f"no bonds here: {error}")
    for port in ("va", "vb"):
        ip(namespace, "link", "add", f"{port}1", "type", "veth", "peer", "name", f"{port}2")
        ip(namespace, "link", "set", f"{port}2", "up")
        ip(namespace, "link", "set", f"{port}1", "master", "bond9")
        ip(namespace, "link", "set", f"{port}1", "up")
    ip(namespace, "link", "set", "bond9", "up")
    checked = ("bond_present", {"bond": "bond9", "mode": "active-backup", "ports": ["va1", "vb1"]})
    applied, reverted = mtu(namespace, tmp_path, 9000, "bond9", "va1", "vb1", more=[checked])
    assert (applied[0], applied[2]) == (["unchanged", "applied"], ["9000"] * 3)
    assert reverted[2] == ["1500"] * 3

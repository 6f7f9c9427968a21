"""`mtu` on real interfaces of a separate network namespace: a veth pair and interfaces on it, set and set back by the kernel.

A bond needs the kernel's module, which is not on every host: then its part is skipped, and only the model of
`any_kernel` and the cases stand for it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.server
BENCH = Path(__file__).parent
PROGRAM = f"""
import json, sys
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, {str(BENCH)!r})
from tuning_bench import POLICY, tuning
from proveout.agent.tuning import revert
from proveout.agent.tuning.host import Host
from proveout.agent.tuning.transaction import Transaction
from proveout.agent.tuning.undo_journal import UndoJournal

def mtus(names):
    return [int(Path("/sys/class/net", name, "mtu").read_text()) for name in names]

undo, mtu, *names = sys.argv[1:]
act = names.pop() if names[-1] in ("apply", "revert") else ""
policy = replace(POLICY, paths=(*POLICY.paths, "/sys/class/net"))
host, journal = Host(policy=policy), UndoJournal(Path(undo))
tunings = [tuning("mtu", interfaces=names, mtu=int(mtu))]
if "bond9" in names:
    tunings.insert(0, tuning("bond_present", bond="bond9", mode="active-backup", ports=["va1", "vb1"]))
transaction = Transaction(host=host, journal=journal, run="r")
if act:
    states = transaction.apply(tunings) if act == "apply" else revert.revert(host, journal)
    print(json.dumps([[state.outcome, *state.lines] for state in states]))
    journal.close()
    sys.exit()
print(json.dumps([mtus(names), [state.outcome for state in transaction.plan(tunings)], mtus(names)]))
states = transaction.apply(tunings)
print(json.dumps([[state.outcome for state in states], states[-1].lines, mtus(names)]))
print(json.dumps([[state.outcome for state in revert.revert(host, journal)], mtus(names)]))
journal.close()
"""


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    """A network namespace with the veth pair va0 and vb0."""
    name = f"mtu{secrets.token_hex(4)}"
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


def run(namespace: str, tmp_path: Path, mtu: int, *names: str) -> list[str]:
    """The lines of the program in the namespace, "" for this process's own."""
    where = ["ip", "netns", "exec", namespace] if namespace else []
    argv = [*where, sys.executable, "-c", PROGRAM, str(tmp_path / "undo"), str(mtu), *names]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_jumbo_frames_are_set_and_set_back(namespace: str, tmp_path: Path) -> None:
    looked, applied, reverted = run(namespace, tmp_path, 9000, "va0", "vb0")
    assert looked == '[[1500, 1500], ["would_change"], [1500, 1500]]'
    assert applied == (
        '[["applied"], ["/sys/class/net/va0/mtu: 1500 -> 9000", "/sys/class/net/vb0/mtu: 1500 -> 9000"], [9000, 9000]]'
    )
    assert reverted == '[["reverted"], [1500, 1500]]'
    assert not (tmp_path / "undo").exists()


def test_an_mtu_that_the_kernel_refuses_takes_back_the_others(namespace: str, tmp_path: Path) -> None:
    """veth takes 65535 bytes, tap takes 65521."""
    if error := ip(namespace, "tuntap", "add", "tap0", "mode", "tap"):
        pytest.skip(f"no interface with a lower limit here: {error}")
    _, applied, reverted = run(namespace, tmp_path, 65535, "va0", "tap0")
    assert applied.startswith('[["failed", "reverted"]')
    assert reverted == "[[], [1500, 1500]]"


def test_an_mtu_is_set_back_only_in_its_own_namespace(namespace: str, tmp_path: Path) -> None:
    (applied,) = run(namespace, tmp_path, 9000, "va0", "apply")
    assert applied.startswith('[["applied"')
    (elsewhere,) = run("", tmp_path, 9000, "va0", "revert")
    assert elsewhere.startswith('[["residue", "/sys/class/net/va0/mtu belongs to another network namespace')
    (reverted,) = run(namespace, tmp_path, 9000, "va0", "revert")
    assert reverted == '[["reverted"]]'
    assert not (tmp_path / "undo").exists()


@pytest.mark.parametrize("kind", [("vlan", "id", "7"), ("macvlan",)], ids=lambda words: words[0])
def test_an_interface_on_another_follows_the_order_of_the_plan(
    kind: tuple[str, ...], namespace: str, tmp_path: Path
) -> None:
    if error := ip(namespace, "link", "add", "link", "va0", "name", "vlan7", "type", *kind):
        pytest.skip(f"no interfaces of this kind here: {error}")
    try:
        _, applied, reverted = run(namespace, tmp_path, 9000, "va0", "vlan7")
        assert applied.endswith("[9000, 9000]]")
        assert reverted == '[["reverted"], [1500, 1500]]'
        _, wrong, _ = run(namespace, tmp_path, 9000, "vlan7", "va0")
        assert "vlan7 lies on va0, whose MTU is 1500: put it before vlan7" in wrong
        _, lower, _ = run(namespace, tmp_path, 1400, "va0")
        assert "the kernel would lower the MTU of vlan7, which lies on va0: put it before va0" in lower
        _, applied, reverted = run(namespace, tmp_path, 1400, "vlan7", "va0")
        assert applied.endswith("[1400, 1400]]")
        assert reverted == '[["reverted"], [1500, 1500]]'
    finally:
        ip(namespace, "link", "delete", "vlan7")


def test_a_bond_gives_its_mtu_to_its_ports_and_is_checked(namespace: str, tmp_path: Path) -> None:
    if error := ip(namespace, "link", "add", "bond9", "type", "bond", "mode", "active-backup", "miimon", "100"):
        pytest.skip(f"no bonds here: {error}")
    for port in ("va", "vb"):
        ip(namespace, "link", "add", f"{port}1", "type", "veth", "peer", "name", f"{port}2")
        ip(namespace, "link", "set", f"{port}2", "up")
        ip(namespace, "link", "set", f"{port}1", "master", "bond9")
        ip(namespace, "link", "set", f"{port}1", "up")
    ip(namespace, "link", "set", "bond9", "up")
    _, applied, reverted = run(namespace, tmp_path, 9000, "bond9", "va1", "vb1")
    assert applied.startswith('[["unchanged", "applied"]')
    assert applied.endswith("[9000, 9000, 9000]]")
    assert reverted.endswith("[1500, 1500, 1500]]")

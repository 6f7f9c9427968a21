"""Tuning on the real kernel: in a separate network namespace parameters, the MTU of a veth pair and of interfaces on it; on
a loop device with a name in /dev/disk/by-id, like a real disk, `filesystem`, `zero_blocks` and `block_queue` (`partition`:
test_every_operation).

A bond needs the kernel's module, which is not on every host: without it, only the cases stand for it. mkfs.xfs
is not proven here: its arguments are those of mkfs.xfs(8).

Started as a program, in the namespace, this module makes the changes itself.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tuning_bench import POLICY, tuning

from proveout.agent.security import policy
from proveout.agent.security.policy import Policy, Tool
from proveout.agent.tuning import transaction
from proveout.agent.tuning.host import Host
from proveout.agent.tuning.transaction import Transaction
from proveout.agent.tuning.undo_journal import UndoJournal
from proveout.dsl.operations.kernel import name_of
from proveout.dsl.plan.stages import Tuning
from proveout.proto.wire.results import TuningState

pytestmark = pytest.mark.server

# ---- in the namespace ------------------------------------------------------------------------------------------------

NET = Path("/proc/sys/net")
READ_AND_WRITE = 0o600


def act(journal: UndoJournal, acts: Sequence[str], fields: Sequence[Any], places: Sequence[str]) -> Iterator[str]:
    """After each act (plan, apply, revert) the outcomes, the lines, and the values at these places, in JSON."""
    host = Host(policy=replace(POLICY, paths=(*POLICY.paths, "/sys/class/net")))
    tunings = [tuning(kind, **of) for kind, of in fields]
    made = Transaction(host=host, journal=journal, run="r")
    for one in acts:
        states = transaction.revert(host, journal) if one == "revert" else getattr(made, one)(tunings)
        values = [" ".join(Path("/", place).read_text().split()) for place in places]
        yield json.dumps(
            [[state.outcome for state in states], [line for state in states for line in state.lines], values]
        )


def numbers() -> dict[Path, int]:
    """Parameter -> value, for all readable and writable ones."""
    found = {}
    for path in sorted(NET.rglob("*")):
        if path.is_file() and path.stat().st_mode & READ_AND_WRITE == READ_AND_WRITE:
            with suppress(OSError, ValueError):
                found[path] = int(path.read_text())
    return found


def another(path: Path, value: int) -> str:
    """Another value: the other one of a switch; for a time, one that is not a multiple of a second."""
    return str(1 - value if value in (0, 1) else value + 500 if path.name.endswith("_ms") else value + 1)


def set_and_set_back(journal: UndoJournal) -> Iterator[str]:
    """Set every number below /proc/sys/net that a plan may set, and revert it: "applied", "refused" or "failed", or a
    description of a permanent, unreported change. First the parameters of one interface are changed, so that a parameter
    that sets those of all interfaces is detected."""
    for path, value in numbers().items():
        if path.parent.name == "lo":
            with suppress(OSError):
                path.write_text(another(path, value))
    host, before = Host(policy=POLICY), numbers()
    for path, value in before.copy().items():
        try:
            one = tuning("sysctl", settings={name_of(str(path)): another(path, value)})
        except ValidationError:
            yield "refused"
            continue
        made, *undone = Transaction(host=host, journal=journal, run="r").apply([one])
        undone += transaction.revert(host, journal)
        after = numbers()
        silent = not any(state.lines for state in undone)
        changed = [f"{name_of(str(one))}: {before[one]} -> {after[one]}" for one in before if before[one] != after[one]]
        yield f"{name_of(str(path))} leaves {changed}" if changed and silent else made.outcome
        before = after


def main(undo: str, *words: str) -> None:
    journal = UndoJournal(Path(undo))
    for line in act(journal, *map(json.loads, words)) if words else set_and_set_back(journal):
        print(line)
    journal.close()


# ---- parameters and interfaces ---------------------------------------------------------------------------------------

SYSCTL = {"net.ipv4.ip_local_port_range": "9000 65500", "net.ipv4.tcp_fin_timeout": "31"}
VALUES = ["proc/sys/net/ipv4/ip_local_port_range", "proc/sys/net/ipv4/tcp_fin_timeout"]
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


def in_namespace(namespace: str, folder: Path, *words: str) -> list[str]:
    """The lines of this program in the namespace."""
    argv = ["ip", "netns", "exec", namespace, sys.executable, __file__, str(folder / "undo"), *words]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def run(namespace: str, folder: Path, acts: str, *fields: tuple[str, dict[str, Any]], places: list[str]) -> list[State]:
    """The state after each act (plan, apply, revert)."""
    words = [json.dumps(one) for one in (acts.split(), fields, places)]
    return [tuple(json.loads(line)) for line in in_namespace(namespace, folder, *words)]


def mtu(
    namespace: str, folder: Path, size: int, *names: str, acts: str = "apply revert", more: Any = ()
) -> list[State]:
    """The states of setting the MTU of interfaces; `more`: tunings before it."""
    places = [f"sys/class/net/{name}/mtu" for name in names]
    return run(namespace, folder, acts, *more, ("mtu", {"interfaces": names, "mtu": size}), places=places)


def test_a_parameter_is_applied_and_reverted(namespace: str, tmp_path: Path) -> None:
    applied, reverted = run(namespace, tmp_path, "apply revert", ("sysctl", {"settings": SYSCTL}), places=VALUES)
    assert (applied[0], applied[2]) == (["applied"], ["9000 65500", "31"])
    assert (reverted[0], reverted[2]) == (["reverted"], ["32768 60999", "60"])
    assert not (tmp_path / "undo").exists()
    wrong = ("sysctl", {"settings": {"net.ipv4.tcp_fin_timeout": "31", "net.ipv4.ip_local_port_range": "9000 99999"}})
    ((_, lines, values),) = run(namespace, tmp_path, "apply", wrong, places=VALUES)
    assert lines[0] == "cannot set /proc/sys/net/ipv4/ip_local_port_range to '9000 99999': Invalid argument"
    assert values == ["32768 60999", "60"], "the accepted one is undone"


@pytest.mark.soak
def test_every_network_parameter_is_reverted_without_side_effects(namespace: str, tmp_path: Path) -> None:
    outcomes = Counter(in_namespace(namespace, tmp_path))
    assert set(outcomes) <= {"applied", "failed", "refused"}
    assert outcomes["applied"] > 100, outcomes
    assert outcomes["refused"] > 5, outcomes


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


# ---- a disk ----------------------------------------------------------------------------------------------------------

PROGRAMS = (
    "/usr/sbin/parted", "/usr/sbin/partprobe", "/usr/sbin/wipefs", "/usr/sbin/blkid", "/usr/sbin/mkfs.ext4", "/usr/bin/dd", "/usr/bin/cmp",
)  # fmt: skip
needs_mkfs = pytest.mark.skipif(shutil.which("mkfs.ext4") is None, reason="this host has no mkfs.ext4")


def host_of(disk: str) -> Host:
    """A host whose policy lists the programs with the arguments that are known of them, and the disk."""
    tools = tuple(Tool(path=program, arguments=("*",), known=policy.known_arguments(program)) for program in PROGRAMS)
    listed = Policy(
        source="/etc/proveout/policy.yaml", tools=tools, devices=(disk,), destructive=True, paths=("/sys/block",)
    )
    return Host(policy=listed)


def new(kind: str, disk: str, **fields: object) -> Tuning:
    return replace(tuning(kind, keep=True, device=disk, **fields), destructive=True)


def apply(disk: str, journal: UndoJournal, *tunings: Tuning) -> tuple[TuningState, ...]:
    return Transaction(host=host_of(disk), journal=journal, run="r").apply(tunings)


def outcome(disk: str, journal: UndoJournal, one: Tuning) -> tuple[str, str]:
    """(outcome, lines) of one tuning."""
    (state, *_) = apply(disk, journal, one)
    return state.outcome, "\n".join(state.lines)


def found(disk: str, key: str) -> str:
    argv = ("/usr/sbin/blkid", "--probe", "-s", key, "-o", "value", disk)
    return subprocess.run(argv, capture_output=True, text=True, timeout=180, check=False).stdout.strip()


@needs_mkfs
def test_a_filesystem_is_made_once_mounted_and_never_lost_unawares(
    disk: str, journal: UndoJournal, tmp_path: Path
) -> None:
    one = new("filesystem", disk, type="ext4", label="ttdb")
    fails = new("zero_blocks", disk, size="1MiB")  # refused: the device has a filesystem by then
    states = apply(disk, journal, one, fails)
    assert [state.outcome for state in states] == ["refused", "kept"]
    assert states[1].lines == (f"the former data of {disk} cannot be restored: mkfs.ext4 has overwritten it",)
    assert journal.outstanding() == ()
    assert (found(disk, "TYPE"), found(disk, "LABEL")) == ("ext4", "ttdb")
    uuid = found(disk, "UUID")
    assert outcome(disk, journal, one) == ("unchanged", "")
    other = new("filesystem", disk, type="ext4", label="other")
    says = f"{disk} is not empty: blkid finds LABEL=ttdb TYPE=ext4 USAGE=filesystem"
    assert outcome(disk, journal, other) == ("refused", says)
    place = tmp_path / "ttdb"
    place.mkdir()
    given_up = new("filesystem", disk, type="ext4", label="other", replaces=uuid)
    subprocess.run(["mount", os.path.realpath(disk), str(place)], check=True, timeout=60)
    try:
        (place / "data").write_text("precious")
        assert outcome(disk, journal, given_up) == ("refused", f"{disk} is mounted at {place}")
        assert (place / "data").read_text() == "precious"
    finally:
        subprocess.run(["umount", str(place)], check=True, timeout=60)
    script = 'mount "$0" "$1" && echo there && read -r _ && umount "$1"'
    argv = ["unshare", "--mount", "sh", "-c", script, os.path.realpath(disk), str(place)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as elsewhere:
        assert elsewhere.stdout is not None and elsewhere.stdout.readline() == "there\n"
        zeros = new("zero_blocks", disk, size="1MiB", replaces=uuid)
        for one_of_both in (given_up, zeros):
            refused, lines = outcome(disk, journal, one_of_both)
            assert (refused, "mounted in another namespace: Device or resource busy" in lines) == ("refused", True)
        elsewhere.communicate("\n", timeout=60)
    wrong = new("filesystem", disk, type="ext4", label="other", replaces="00000000-1111-2222-3333-444444444444")
    refused, lines = outcome(disk, journal, wrong)
    assert (refused, f"blkid finds LABEL=ttdb UUID={uuid}" in lines) == ("refused", True)
    assert outcome(disk, journal, given_up)[0] == "applied"
    assert found(disk, "LABEL") == "other"
    assert outcome(disk, journal, new("zero_blocks", disk, size="1MiB", replaces=found(disk, "UUID")))[0] == "applied"
    assert found(disk, "TYPE") == ""


ATTRIBUTES = ("scheduler", "nr_requests", "rq_affinity", "nomerges", "read_ahead_kb")
OF_THE_SCHEDULER = {"iosched/read_expire": "120", "iosched/async_depth": "700"}


@pytest.fixture
def queue(disk: str) -> Path:
    """The kernel's folder of a queue that is longer than possible without a scheduler; its scheduler is not the default."""
    folder = Path("/sys/block") / Path(os.path.realpath(disk)).name / "queue"
    if "mq-deadline" not in (folder / "scheduler").read_text():
        pytest.skip("this kernel has no other scheduler")
    for name, text in {"scheduler": "mq-deadline", "nr_requests": "1000", **OF_THE_SCHEDULER}.items():
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    "fields",
    [
        {"scheduler": ["none"], "rq_affinity": 2, "nomerges": 1},
        {"scheduler": ["none"], "rq_affinity": 2, "nomerges": 1, "nr_requests": 64},
        {"nr_requests": 64},
        {"scheduler": ["none"], "nr_requests": 100_000},
    ],
    ids=["scheduler", "and length", "length, which the scheduler's depth follows", "a length that is refused"],
)
def test_a_queue_is_set_and_set_back(fields: dict[str, object], queue: Path, disk: str, journal: UndoJournal) -> None:
    """Without a scheduler the kernel refuses a length of 1000, with one it starts at 256: only the right order of reverts
    restores 1000."""

    def as_it_is() -> dict[str, str]:
        names = (*ATTRIBUTES, *OF_THE_SCHEDULER)
        return {name: (queue / name).read_text() for name in names if (queue / name).exists()}

    before, one = as_it_is(), tuning("block_queue", devices=[queue.parent.name], **fields)
    state, *undone = apply(disk, journal, one)
    if fields.get("nr_requests") == 100_000:
        assert (state.outcome, "nr_requests to '100000': Invalid argument" in state.lines[0]) == ("failed", True)
    else:
        assert state.outcome == "applied", state.lines
        assert as_it_is() != before
        assert {state.outcome for state in transaction.look(host_of(disk), journal)} == {"in_place"}
        undone = list(transaction.revert(host_of(disk), journal))
    assert {state.outcome for state in undone} == {"reverted"}
    assert as_it_is() == before


if __name__ == "__main__":
    main(*sys.argv[1:])

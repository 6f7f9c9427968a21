"""`filesystem` and `zero_blocks` on a loop device with a name in /dev/disk/by-id, like a real disk, and the filesystem
mounted; skipped on hosts without loop devices or mkfs.ext4. mkfs.xfs is not proven here: its arguments are those of
mkfs.xfs(8)."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tuning_bench import tuning

from proveout.agent.security import allow_lists
from proveout.agent.security.policy import Policy, Tool
from proveout.agent.tuning import revert
from proveout.agent.tuning.host import Host
from proveout.agent.tuning.transaction import Transaction
from proveout.agent.tuning.undo_journal import UndoJournal
from proveout.dsl.plan.tuning_step import Tuning

MIB = 1024 * 1024
PROGRAMS = ("/usr/sbin/mkfs.ext4", "/usr/bin/dd", "/usr/bin/cmp", "/usr/sbin/blkid", "/usr/sbin/partprobe")
pytestmark = pytest.mark.skipif(shutil.which("mkfs.ext4") is None, reason="this host has no mkfs.ext4")


def host_of(disk: str, *, destructive: bool = True) -> Host:
    """A host whose policy lists the programs with the arguments that are known of them, and the disk."""
    tools = tuple(
        Tool(path=program, arguments=("*",), known=allow_lists.known_arguments(program)) for program in PROGRAMS
    )
    return Host(policy=Policy(source="/p", tools=tools, devices=(disk,), destructive=destructive))


def new(kind: str, disk: str, **fields: object) -> Tuning:
    return replace(tuning(kind, keep=True, device=disk, **fields), destructive=True)


def found(disk: str, key: str) -> str:
    done = subprocess.run(
        ["/usr/sbin/blkid", "--probe", "-s", key, "-o", "value", disk],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.stdout.strip()


def apply(disk: str, journal: UndoJournal, one: Tuning, *, destructive: bool = True) -> tuple[str, str]:
    """(outcome, lines) of one tuning."""
    host = host_of(disk, destructive=destructive)
    (state, *_) = Transaction(host=host, journal=journal, run="r").apply((one,))
    return state.outcome, "\n".join(state.lines)


def test_a_filesystem_is_made_once_mounted_and_never_lost_unawares(
    disk: str, journal: UndoJournal, tmp_path: Path
) -> None:
    one = new("filesystem", disk, type="ext4", label="ttdb")
    assert apply(disk, journal, one) == ("applied", f"/usr/sbin/mkfs.ext4 -q -L ttdb {disk}")
    assert (found(disk, "TYPE"), found(disk, "LABEL")) == ("ext4", "ttdb")
    uuid = found(disk, "UUID")
    assert apply(disk, journal, one) == ("unchanged", "")
    other = new("filesystem", disk, type="ext4", label="other")
    outcome, lines = apply(disk, journal, other)
    assert (outcome, lines) == ("refused", f"{disk} is not empty: blkid finds LABEL=ttdb TYPE=ext4 USAGE=filesystem")
    place = tmp_path / "ttdb"
    place.mkdir()
    given_up = new("filesystem", disk, type="ext4", label="other", replaces=uuid)
    subprocess.run(["mount", os.path.realpath(disk), str(place)], check=True, timeout=60)
    try:
        (place / "data").write_text("precious")
        assert apply(disk, journal, given_up) == ("refused", f"{disk} is mounted at {place}")
        assert (place / "data").read_text() == "precious"
    finally:
        subprocess.run(["umount", str(place)], check=True, timeout=60)
    wrong = new("filesystem", disk, type="ext4", label="other", replaces="00000000-1111-2222-3333-444444444444")
    outcome, lines = apply(disk, journal, wrong)
    assert outcome == "refused"
    assert f"blkid finds LABEL=ttdb UUID={uuid}" in lines
    assert apply(disk, journal, given_up)[0] == "applied"
    assert found(disk, "LABEL") == "other"
    assert found(disk, "UUID") != uuid


def test_a_transaction_that_fails_reports_the_filesystem_as_kept(disk: str, journal: UndoJournal) -> None:
    one = new("filesystem", disk, type="ext4", label="ttdb")
    fails = new("zero_blocks", disk, size="1MiB")  # refused: the device has a filesystem by then
    states = Transaction(host=host_of(disk), journal=journal, run="r").apply((one, fails))
    assert [state.outcome for state in states] == ["refused", "kept"]
    assert states[1].lines == (f"the former data of {disk} cannot be restored: mkfs.ext4 has overwritten it",)
    assert found(disk, "LABEL") == "ttdb"
    assert journal.outstanding() == ()


def test_zeros_are_written_to_the_bound_and_no_further(disk: str, journal: UndoJournal) -> None:
    device = Path(os.path.realpath(disk))
    with device.open("r+b") as stream:
        stream.write(b"\x5a" * (3 * MIB))
    one = new("zero_blocks", disk, size="2MiB")
    assert apply(disk, journal, one, destructive=False)[0] == "refused"
    assert apply(disk, journal, one)[0] == "applied"
    with device.open("rb") as stream:
        assert stream.read(2 * MIB) == bytes(2 * MIB)
        assert stream.read(MIB) == b"\x5a" * MIB
    assert apply(disk, journal, one) == ("unchanged", "")
    assert {state.outcome for state in revert.revert(host_of(disk), journal)} == {"kept"}


def test_zeros_do_not_overwrite_a_filesystem_that_the_plan_does_not_give_up(disk: str, journal: UndoJournal) -> None:
    assert apply(disk, journal, new("filesystem", disk, type="ext4", label="ttdb"))[0] == "applied"
    assert apply(disk, journal, new("zero_blocks", disk, size="1MiB"))[0] == "refused"
    assert found(disk, "LABEL") == "ttdb"
    given_up = new("zero_blocks", disk, size="1MiB", replaces=found(disk, "UUID"))
    assert apply(disk, journal, given_up)[0] == "applied"
    assert found(disk, "TYPE") == ""

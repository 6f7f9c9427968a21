"""`partition` on a loop device with a name in /dev/disk/by-id, like a real disk; skipped on hosts without loop devices."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

from tuning_bench import tuning

from proveout.agent.security.policy import Policy, Tool
from proveout.agent.tuning import revert
from proveout.agent.tuning.host import Host
from proveout.agent.tuning.sql_access import Databases
from proveout.agent.tuning.transaction import Transaction
from proveout.agent.tuning.undo_journal import UndoJournal
from proveout.dsl.operations.facts import Rows
from proveout.dsl.plan.tuning_step import Tuning

PROGRAMS = ("/usr/sbin/parted", "/usr/sbin/partprobe", "/usr/sbin/wipefs", "/usr/sbin/blkid")


def host_of(disk: str, *, destructive: bool = True) -> Host:
    tools = tuple(Tool(path=program, arguments=("*",)) for program in PROGRAMS)
    return Host(policy=Policy(source="/p", tools=tools, devices=(disk,), destructive=destructive))


def partitions(disk: str) -> Tuning:
    parts = [{"name": "redo", "size": "16MiB"}, {"name": "data"}]
    return replace(tuning("partition", device=disk, partitions=parts), destructive=True)


def table(disk: str) -> list[str]:
    done = subprocess.run(
        ["/usr/sbin/parted", "--script", "--machine", disk, "unit", "MiB", "print"],
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    return [line for line in done.stdout.splitlines() if line[:1].isdigit()]


def test_partitions_are_created_at_whole_mib_recognised_and_removed(disk: str, journal: UndoJournal) -> None:
    host, one = host_of(disk), partitions(disk)
    transaction = Transaction(host=host, journal=journal, run="r")
    (state,) = transaction.apply((one,))
    assert state.outcome == "applied", state.lines
    assert table(disk) == ["1:1.00MiB:17.0MiB:16.0MiB::redo:;", "2:17.0MiB:63.0MiB:46.0MiB::data:;"]
    assert [state.outcome for state in transaction.apply((one,))] == ["unchanged"]
    assert {state.outcome for state in revert.revert(host, journal)} == {"reverted"}
    assert subprocess.run(["/usr/sbin/blkid", "--probe", disk], timeout=180, check=False).returncode == 2  # empty again
    assert table(disk) == []


def test_a_disk_with_anything_on_it_is_refused(disk: str, journal: UndoJournal) -> None:
    subprocess.run(["mkswap", disk], check=True, capture_output=True, timeout=180)
    before = Path(os.path.realpath(disk)).read_bytes()
    (state,) = Transaction(host=host_of(disk), journal=journal, run="r").apply((partitions(disk),))
    assert state.outcome == "refused"
    assert state.lines == (f"{disk} is not empty: blkid finds TYPE=swap USAGE=other",)
    assert Path(os.path.realpath(disk)).read_bytes() == before


def test_a_policy_without_destructive_keeps_the_disk(disk: str, journal: UndoJournal) -> None:
    (state,) = Transaction(host=host_of(disk, destructive=False), journal=journal, run="r").apply((partitions(disk),))
    assert state.outcome == "refused"
    assert "steps that destroy data are not allowed on this host" in state.lines[0]
    assert table(disk) == []


class AsmWithOneDisk(Databases):
    """An ASM instance with one visible, empty disk; it records its statements. Not proven: that ASM shows such a disk."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path, self.done = path, list[str]()

    def rows(self, system: str, statement: str) -> Rows:
        if "v$asm_disk " in statement:
            return ((self.path, "CANDIDATE"),)
        return (("EXTERN", str(4 << 20), "MOUNTED"),) if self.done else ()

    def run(self, system: str, statement: str) -> None:
        self.done.append(statement)


def test_a_disk_group_accepts_a_disk_by_another_path_if_the_policy_lists_it(disk: str, journal: UndoJournal) -> None:
    path = os.path.realpath(disk)
    group = tuning("asm_disk_group", system="asm", disk_group="DATA", redundancy="external", disks=[path])
    one = replace(group, destructive=True)
    for listed in ("/dev/disk/by-id/another", disk):
        host = host_of(listed)
        host.databases = asm = AsmWithOneDisk(path)
        (state,) = Transaction(host=host, journal=journal, run="r").apply((one,))
        assert (state.outcome, len(asm.done)) == (("applied", 1) if listed == disk else ("refused", 0)), state.lines
    subprocess.run(["mkswap", disk], check=True, capture_output=True, timeout=180)
    host.databases = asm = AsmWithOneDisk(path)
    (state,) = Transaction(host=host, journal=journal, run="r").apply((one,))
    assert (state.outcome, asm.done) == ("refused", [])
    assert "blkid finds TYPE=swap" in state.lines[0]

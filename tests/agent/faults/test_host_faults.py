"""Faults of the host: room of a disk and time of CPUs, and their healing by the next agent after a kill at each step."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from eventually import eventually
from fault_bench import disturbance

from proveout.agent.security.policy import Policy
from proveout.agent.tuning import transaction as tuning_transaction
from proveout.agent.tuning.fault_host import HostDisturbances
from proveout.agent.tuning.host import Host
from proveout.agent.tuning.transaction import Transaction
from proveout.agent.tuning.undo_journal import UndoJournal
from proveout.dsl.operations.facts import BusyQuery
from proveout.dsl.plan.stages import Tuning

ROOM = 8 << 20
PAGE = 4096
pytestmark = pytest.mark.server


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounts take root")
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "none", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def host_of(folder: Path, *, left_bytes: int = 0, disturbed: HostDisturbances | None = None) -> Host:
    policy = Policy(
        source="/etc/proveout/policy.yaml",
        faults=("fill_disk", "cpu_pressure"),
        paths=(str(folder),),
        disk_left_bytes=left_bytes,
    )
    return Host(policy=policy, scratch=folder, disturbances=disturbed or HostDisturbances(host="h"))


def free(folder: Path) -> int:
    room = os.statvfs(folder)
    return room.f_bavail * room.f_frsize


def full(folder: Path, **size: str) -> Tuning:
    return disturbance("fill_disk", folder=str(folder), **size)


def test_a_disk_is_filled_down_to_a_rest_and_emptied(disk: Path, tmp_path: Path) -> None:
    host, journal, before = host_of(disk), UndoJournal(tmp_path / "undo"), free(disk)
    (state,) = Transaction(host=host, journal=journal, run="r", fault="f").apply([full(disk, leave="64KiB")])
    assert state.outcome == "applied"
    assert free(disk) == 64 << 10
    with pytest.raises(OSError, match="No space left on device"):
        (disk / "other").write_bytes(b"x" * (128 << 10))
    (disk / "other").unlink()
    assert [one.outcome for one in tuning_transaction.revert(host, journal, fault="f")] == ["reverted"]
    assert (free(disk), list(disk.iterdir())) == (before, [])
    (state,) = Transaction(host=host, journal=journal, run="r", fault="f").apply([full(disk, up_to="3MiB")])
    assert before - free(disk) == 3 << 20
    tuning_transaction.revert(host, journal, fault="f")
    assert free(disk) == before


def test_what_cannot_be_taken_is_refused(disk: Path, tmp_path: Path) -> None:
    unlisted = host_of(disk)
    unlisted.policy = Policy(faults=("fill_disk",), disk_left_bytes=0)
    for host, size, says in (
        (host_of(disk, left_bytes=1 << 20), {"leave": "64KiB"}, "only 65536 bytes would be left of the file system"),
        (host_of(disk), {"up_to": "9MiB"}, "has 8 MiB free, less than `up_to: 9MiB`"),
        (host_of(disk), {"leave": "1GiB"}, "bytes free already"),
        (unlisted, {"leave": "1MiB"}, f"the path {disk}/.proveout-fill-"),
    ):
        (state,) = Transaction(host=host, journal=UndoJournal(tmp_path / "undo"), run="r").apply([full(disk, **size)])
        assert (state.outcome, says in state.lines[0]) == ("refused", True), state
    assert list(disk.iterdir()) == []


def test_cpus_are_busy_and_idle_again(tmp_path: Path) -> None:
    disturbed = HostDisturbances(host="h")
    host, journal = host_of(tmp_path, disturbed=disturbed), UndoJournal(tmp_path / "undo")
    one = disturbance("cpu_pressure", share="50%", cpus=1)
    (state,) = Transaction(host=host, journal=journal, run="r", fault="f").apply([one])
    assert state.outcome == "applied"
    (busy,) = (found for found in psutil.Process().children() if "sched_setaffinity" in " ".join(found.cmdline()))
    eventually(lambda: busy.cpu_affinity() == [min(os.sched_getaffinity(0))], "it has bound itself to a CPU")
    eventually(lambda: busy.cpu_times().user > 0.0, "it is busy")
    other = Transaction(host=host, journal=journal, run="r", fault="g")
    (refused,) = other.apply([disturbance("cpu_pressure", share="60%", cpus=1)])
    assert refused.lines == ("another fault keeps CPUs of this host busy",)
    assert [one.outcome for one in tuning_transaction.revert(host, journal, fault="f")] == ["reverted"]
    assert not busy.is_running()
    found = disturbed.answer(BusyQuery())
    assert getattr(found, "busy", None) == ()


def test_busy_processes_end_with_their_agent(tmp_path: Path) -> None:
    code = (
        "import os, signal; from proveout.agent.tuning.fault_host import HostDisturbances as Of\n"
        "from proveout.dsl.operations.change import BusyCpus\n"
        "of = Of(); of.make(BusyCpus(cpus=(min(os.sched_getaffinity(0)),), share=0.1))\n"
        "print(next(iter(of._busy.values())).pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    eventually(lambda: not psutil.pid_exists(int(done.stdout)), "it has ended")


class KilledError(BaseException):
    """The agent is killed here."""


@pytest.mark.parametrize("step", range(5))
@pytest.mark.parametrize("kind", ["fill_disk", "cpu_pressure"])
def test_the_next_agent_heals_after_a_kill_at_each_step(
    kind: str, step: int, disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed agent undoes nothing: its processes are gone, its files are not."""
    before, left = free(disk), step

    def watch(_step: str) -> None:
        nonlocal left
        if (left := left - 1) < 0:
            raise KilledError

    wanted = full(disk, leave="1MiB") if kind == "fill_disk" else disturbance("cpu_pressure", cpus=1, share="10%")
    killed, journal = HostDisturbances(host="h"), UndoJournal(tmp_path / "undo")
    transaction = Transaction(
        host=host_of(disk, disturbed=killed), journal=journal, run="r", fault="f", watch=watch,
        notice=watch,
    )  # fmt: skip
    with monkeypatch.context() as patch:
        patch.setattr(tuning_transaction, "revert", lambda *_, **__: ())
        try:
            transaction.apply([wanted])
        except KilledError:
            assert step < 5
    killed._release()
    journal.close()

    host, found = host_of(disk), UndoJournal(tmp_path / "undo")
    assert {state.outcome for state in tuning_transaction.end(host, found)} <= {"reverted"}
    assert (free(disk), list(disk.iterdir()), found.outstanding()) == (before, [], ())
    found.close()

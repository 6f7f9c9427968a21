"""Actions after the revert of a change: reloads that wait for it, values that the kernel sets together with another,
units that systemd has not read yet.

Not proven here: that udev, systemd and the kernel behave like the stand-ins.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from any_oracle import Group, Redo, ora
from tuning_bench import StubTools, StubUnits, host_in, picture, put, tuning

from proveout.agent.errors import TaskFault
from proveout.agent.security.policy import Policy, Tool
from proveout.agent.tuning import revert
from proveout.agent.tuning.file_changes import Files, Original
from proveout.agent.tuning.sysfs import Attributes
from proveout.agent.tuning.transaction import Stopped, Transaction
from proveout.agent.tuning.tuner import Tuner
from proveout.agent.tuning.undo_journal import UndoJournal
from proveout.dsl.operations.change import KeepSpans
from proveout.dsl.operations.facts import Output, UnitFact

RULES = "/etc/udev/rules.d/66-asm.rules"
UDEV = tuning("udev_rules", file=RULES, rules=[{"match": {"KERNEL": "sd*"}, "assign": {"OWNER": "grid"}}])
POLICY = Policy(
    source="/etc/proveout/policy.yaml",
    paths=("/etc/udev/rules.d", "/etc/fstab", "/sys/block"),
    units=("ttdb.mount",),
    udev_devices=("KERNEL==sd*",),
    tools=(
        Tool(path="/usr/bin/udevadm", arguments=("control", "trigger", "settle", "--*")),
        Tool(path="/usr/bin/systemctl", arguments=("daemon-reload",)),
    ),
)


class FailingTools(StubTools):
    """Programs that fail when their arguments contain one of these words."""

    broken: frozenset[str] = frozenset()

    def run(self, argv: Sequence[str], within_s: float = 60.0) -> Output:
        super().run(argv)
        return Output(code=int(not self.broken.isdisjoint(argv)), text="")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    put(root, RULES, "# by hand\n")
    return root


def test_reverts_after_a_failed_program_wait_for_it(root: Path, journal: UndoJournal) -> None:
    tools = FailingTools()
    host = host_in(root, policy=POLICY, tools=tools)
    Transaction(host=host, journal=journal, run="r").apply((UDEV,))
    tools.done.clear()
    tools.broken = frozenset({"--reload"})
    assert "residue" in {state.outcome for state in revert.revert(host, journal)}
    assert [argv[1] for argv in tools.done] == ["control"]
    tools.broken = frozenset()
    assert {state.outcome for state in revert.revert(host, journal)} == {"reverted"}
    assert [argv[1] for argv in tools.done] == ["control", "control", "trigger", "settle"]


def test_a_reload_waits_until_the_file_is_restored(
    root: Path, journal: UndoJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, before = StubTools(), picture(root)
    host = host_in(root, policy=POLICY, tools=tools)
    Transaction(host=host, journal=journal, run="r").apply((UDEV,))
    tools.done.clear()

    def full(*_: object) -> None:
        raise TaskFault("disk_full", "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(Files, "put", full)
        revert.revert(host, journal)
    assert tools.done == []
    revert.revert(host, journal)
    assert [argv[1] for argv in tools.done] == ["control", "trigger", "settle"]
    assert picture(root) == before


class Unread(StubUnits):
    """A systemd that has not read the file of a unit, or has read that it is removed."""

    def act(self, unit: str, verb: str) -> None:
        if unit not in self.units:
            raise TaskFault("fault", f"Unit {unit} not loaded.")
        super().act(unit, verb)


def test_a_mount_unit_that_systemd_has_not_read_is_not_stopped(root: Path, tmp_path: Path) -> None:
    """The agent is killed before it writes the line."""
    put(root, "/etc/fstab", "UUID=1 / ext4 defaults 0 1\n")
    put(root, "/proc/self/mounts", "/dev/sda1 / ext4 rw 0 0\n")
    (root / "ttdb").mkdir()
    before, units = picture(root), Unread()
    host = host_in(root, policy=POLICY, units=units)
    mount = tuning("mount", at="/ttdb", device="LABEL=ttdb", type="xfs")

    class Gone(BaseException):
        pass

    def kill(step: str) -> None:
        if "daemon-reload" in step:
            raise Gone

    killed = UndoJournal(tmp_path / "undo")
    transaction = Transaction(host=host, journal=killed, run="r", watch=kill)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(revert, "revert", lambda *_, **__: ())
        with pytest.raises(Gone):
            transaction.apply((mount,))
    assert killed.outstanding()
    states = revert.revert(host, killed)
    killed.close()
    assert {state.outcome for state in states} == {"reverted"}, states
    assert picture(root) == before
    assert not (tmp_path / "undo").exists()


def test_a_running_unit_is_stopped(root: Path, journal: UndoJournal) -> None:
    units = Unread()
    units.units["ttdb.mount"] = UnitFact(active=False, enabled=None)
    put(root, "/etc/fstab", "LABEL=ttdb /ttdb xfs defaults 0 0\n")
    (root / "ttdb").mkdir()
    mounts = put(root, "/proc/self/mounts", "")
    host = host_in(root, policy=POLICY, units=units)
    mount = tuning("mount", at="/ttdb", device="LABEL=ttdb", type="xfs")
    Transaction(host=host, journal=journal, run="r", watch=lambda _: mounts.write_text("d /ttdb xfs rw 0 0\n")).apply(
        (mount,)
    )
    revert.revert(host, journal)
    assert units.done == ["start ttdb.mount", "stop ttdb.mount"]


@pytest.mark.parametrize("more", [{}, {"nr_requests": 64}], ids=["scheduler", "and length"])
def test_the_length_of_a_queue_is_restored_after_its_scheduler(
    more: dict[str, int], root: Path, journal: UndoJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root, "/sys/block/sda/queue/scheduler", "[mq-deadline] none\n")
    put(root, "/sys/block/sda/queue/nr_requests", "200\n")
    write = Attributes.write

    def as_linux_does(self: Attributes, path: str, text: str) -> None:
        if path.endswith("scheduler"):
            write(self, path.replace("scheduler", "nr_requests"), "256" if text == "mq-deadline" else "1023")
            text = f"[{text}] {'none' if text == 'mq-deadline' else 'mq-deadline'}"
        write(self, path, text)

    monkeypatch.setattr(Attributes, "write", as_linux_does)
    before, host = picture(root), host_in(root, policy=POLICY)
    one = tuning("block_queue", devices=["sda"], scheduler=["none"], **more)
    (state,) = Transaction(host=host, journal=journal, run="r").apply((one,))
    assert state.outcome == "applied"
    assert {state.outcome for state in revert.look(host, journal)} == {"in_place"}
    assert {state.outcome for state in revert.revert(host, journal)} == {"reverted"}
    assert picture(root) == before


class FullRedo(Redo):
    """A database whose disk groups may be full."""

    full = False

    def _do(self, text: str) -> None:
        if self.full and "ADD LOGFILE" in text:
            raise ora(15041)
        super()._do(text)


def test_new_redo_groups_stay_until_the_old_ones_are_restored(root: Path, journal: UndoJournal) -> None:
    """The revert of other operations does not wait for it."""
    groups = {number: Group(1, 1 << 30, ["+DATA/x"]) for number in (1, 2, 3)}
    groups[1].status = "CURRENT"
    database = FullRedo(groups, {})
    put(root, "/proc/sys/vm/swappiness", "60\n")
    host = host_in(root, policy=replace(POLICY, sysctl=("vm.*",)))
    host.databases = database
    before = database.seen(), picture(root)
    redo = tuning("oracle_redo", system="orcl", groups=2, size="2G", disk_groups=["DATA"])
    other = tuning("sysctl", settings={"vm.swappiness": "10"})
    states = Transaction(host=host, journal=journal, run="r").apply((other, redo))
    assert [state.outcome for state in states] == ["applied", "applied"]
    database.full = True
    undone = {state.operation: state for state in revert.revert(host, journal)}
    assert {kind: state.outcome for kind, state in undone.items()} == {"oracle_redo": "residue", "sysctl": "reverted"}
    assert sum("DROP LOGFILE" in line for line in undone["oracle_redo"].lines) == 2
    assert sorted(database.groups) == [4, 5]
    database.full = False
    assert {state.outcome for state in revert.revert(host, journal)} == {"reverted"}
    assert (database.seen(), picture(root)) == before


async def test_a_revert_continues_after_its_close_is_cancelled(root: Path, tmp_path: Path) -> None:
    """A session cancels its close while a program hangs; when the program ends, the host is reverted without a restart of
    the agent."""
    hangs, begun, before = threading.Event(), threading.Event(), picture(root)

    class Hanging(StubTools):
        def run(self, argv: Sequence[str], within_s: float = 60.0) -> Output:
            begun.set()
            assert hangs.wait(60.0)
            return super().run(argv)

    tuner = Tuner(tmp_path / "undo", POLICY, prepare=lambda _: host_in(root, policy=POLICY, tools=Hanging()))
    applying = asyncio.ensure_future(tuner.apply("r", (UDEV,), (), tmp_path))
    assert await asyncio.to_thread(begun.wait, 60.0)
    closing = asyncio.ensure_future(tuner.close(keep_data=False))
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert picture(root) != before
    hangs.set()
    await asyncio.wait({applying})
    async with asyncio.timeout(60.0):
        while not tuner.is_idle:  # noqa: ASYNC110 -- no task waits for the revert
            await asyncio.sleep(0.01)
    assert picture(root) == before
    assert isinstance(applying.exception(), Stopped) or applying.result()


def test_a_failed_probe_of_a_disk_is_not_drift(root: Path, journal: UndoJournal) -> None:
    """A failed blkid gives no facts: the contents of the disk's ends stay outstanding and are restored later."""
    disk = put(root, "/dev/disk/by-id/x", "made")
    change = KeepSpans(device="/dev/disk/by-id/x", spans=((0, 4),), probe=("/usr/sbin/blkid", "x"))
    tools = StubTools(blkid=Output(code=1, text=""))
    host = host_in(root, policy=POLICY, tools=tools)
    journal.intend("r", UDEV, [(change, Original(exists=True, content=b"mine"))])
    assert [state.outcome for state in revert.revert(host, journal)] == ["residue"]
    tools.answers = {"blkid": Output(code=2, text="")}
    assert [state.outcome for state in revert.revert(host, journal)] == ["reverted"]
    assert disk.read_text() == "mine"

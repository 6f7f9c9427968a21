"""Actions after the revert of a change: reloads, and changes of one place, that wait for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from any_oracle import Simulated
from eventually import eventually_async
from sim_oracle import SimOracle
from tuning_bench import StubTools, host_in, picture, put, tuning

from proveout.agent.errors import TaskFault
from proveout.agent.security.policy import Policy, Tool
from proveout.agent.tuning import transaction
from proveout.agent.tuning.host import Files, Original
from proveout.agent.tuning.transaction import Stopped, Transaction
from proveout.agent.tuning.tuner import Tuner
from proveout.agent.tuning.undo_journal import UndoJournal
from proveout.dsl.operations.change import KeepSpans
from proveout.dsl.operations.facts import Output

RULES = "/etc/udev/rules.d/66-asm.rules"
UDEV = tuning("udev_rules", file=RULES, rules=[{"match": {"KERNEL": "sd*"}, "assign": {"OWNER": "grid"}}])
POLICY = Policy(
    source="/etc/proveout/policy.yaml",
    paths=("/etc/udev/rules.d",),
    udev_devices=("KERNEL==sd*",),
    tools=(Tool(path="/usr/bin/udevadm", arguments=("control", "trigger", "settle", "--*")),),
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    put(root, RULES, "# by hand\n")
    return root


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
        transaction.revert(host, journal)
    assert tools.done == []
    transaction.revert(host, journal)
    assert [argv[1] for argv in tools.done] == ["control", "trigger", "settle"]
    assert picture(root) == before


class FullOracle(SimOracle):
    """A database whose disk groups may be full."""

    full = False

    def run(self, statement: str) -> None:
        if self.full and "ADD LOGFILE" in statement:
            raise TaskFault("fault", "ORA-15041: diskgroup space exhausted")
        super().run(statement)


def test_new_redo_groups_stay_until_the_old_ones_are_restored(root: Path, journal: UndoJournal) -> None:
    """The revert of other operations does not wait for it."""
    database = FullOracle()
    put(root, "/proc/sys/vm/swappiness", "60\n")
    host = host_in(root, policy=replace(POLICY, sysctl=("vm.*",)))
    host.databases = Simulated(database)
    before = database.state(), picture(root)
    redo = tuning("oracle_redo", system="orcl", groups=2, size="2G", disk_groups=["REDO1"])
    other = tuning("sysctl", settings={"vm.swappiness": "10"})
    states = Transaction(host=host, journal=journal, run="r").apply((other, redo))
    assert [state.outcome for state in states] == ["applied", "applied"]
    database.full = True
    undone = {state.operation: state for state in transaction.revert(host, journal)}
    assert {kind: state.outcome for kind, state in undone.items()} == {"oracle_redo": "residue", "sysctl": "reverted"}
    assert sum("DROP LOGFILE" in line for line in undone["oracle_redo"].lines) == 2
    assert sorted(database.redo) == [4, 5]
    database.full = False
    assert {state.outcome for state in transaction.revert(host, journal)} == {"reverted"}
    assert (database.state(), picture(root)) == before


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
    await eventually_async(lambda: tuner.is_idle, "the host is reverted, though no task waits for it")
    assert picture(root) == before
    assert isinstance(applying.exception(), Stopped) or applying.result()


def test_a_failed_probe_of_a_disk_is_not_drift(root: Path, journal: UndoJournal) -> None:
    """A failed blkid gives no facts: the contents of the disk's ends stay outstanding and are restored later."""
    disk = put(root, "/dev/disk/by-id/x", "made")
    change = KeepSpans(device="/dev/disk/by-id/x", spans=((0, 4),), probe=("/usr/sbin/blkid", "x"))
    tools = StubTools(blkid=Output(code=1, text=""))
    host = host_in(root, policy=POLICY, tools=tools)
    journal.intend("r", UDEV, [(change, Original(exists=True, content=b"mine"))])
    assert [state.outcome for state in transaction.revert(host, journal)] == ["residue"]
    tools.answers = {"blkid": Output(code=2, text="")}
    assert [state.outcome for state in transaction.revert(host, journal)] == ["reverted"]
    assert disk.read_text() == "mine"

"""The interpreter of tunings: all or nothing, verified, undone in reverse order after a fault at any step."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from any_oracle import SimOracle, ora
from eventually import eventually_async
from tuning_bench import POLICY, StubTools, StubUnits, full, host_in, picture, put, tuning

from proveout.agent.security.policy import NOTHING, Policy, Tool
from proveout.agent.tuning import transaction as tuning_transaction
from proveout.agent.tuning.host import Files, Host
from proveout.agent.tuning.transaction import Stopped, Transaction
from proveout.agent.tuning.tuner import Tuner
from proveout.agent.tuning.undo_journal import UndoJournal
from proveout.dsl.operations.change import KeepSpans
from proveout.dsl.operations.facts import Original, Output, UnitFact

SYSCTLS = tuning(
    "sysctl", "kernel", settings={"vm.swappiness": "10", "kernel.shmmni": "8192"}, file="/etc/sysctl.d/97-x.conf"
)
MORE = tuning("sysctl", "more", settings={"vm.dirty_ratio": "5"}, file="/etc/sysctl.d/10-y.conf")
BOTH = (SYSCTLS, MORE)
FILE = tuning("file", path="/etc/app/a.conf", content="new\n")
KEPT = tuning("file", "kept", keep=True, path="/etc/app/a.conf", content="new\n")
SYSCTL = tuning("sysctl", settings={"vm.swappiness": "10"})
RULES = "/etc/udev/rules.d/66-asm.rules"
UDEV = tuning("udev_rules", file=RULES, rules=[{"match": {"KERNEL": "sd*"}, "assign": {"OWNER": "grid"}}])
UDEV_POLICY = Policy(
    source="/etc/proveout/policy.yaml",
    paths=("/etc/udev/rules.d",),
    udev_devices=("KERNEL==sd*",),
    tools=(Tool(path="/usr/bin/udevadm", arguments=("control", "trigger", "settle", "--*")),),
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    put(root, "/proc/sys/vm/swappiness", "60\n")
    put(root, "/proc/sys/vm/dirty_ratio", "20\n")
    put(root, "/proc/sys/kernel/shmmni", "4096\n")
    put(root, "/etc/app/a.conf", "old\n")
    put(root, RULES, "# by hand\n")
    old = put(root, "/etc/sysctl.d/10-y.conf", "# by hand\nvm.dirty_ratio = 20\n", mode=0o640)
    os.utime(old, ns=(10**18, 10**18))
    os.setxattr(old, "user.note", b"keep me")
    if os.geteuid() == 0:
        os.chown(old, 65534, 65534)
    return root


def run(host: Host, journal: UndoJournal) -> Transaction:
    return Transaction(host=host, journal=journal, run="r1")


def test_a_forbidden_change_is_refused_before_any_change(root: Path, journal: UndoJournal) -> None:
    before = picture(root)
    (state,) = run(host_in(root, policy=NOTHING), journal).apply((SYSCTLS,))
    assert state.outcome == "refused"
    assert "/etc/sysctl.d/97-x.conf is not allowed on this host" in state.lines[0]
    allowed = POLICY
    forbidden = tuning("sysctl", "forbidden", settings={"fs.file-max": "1"})
    put(root, "/proc/sys/fs/file-max", "2\n")
    states = run(host_in(root, policy=allowed), journal).apply((SYSCTLS, forbidden))
    assert [(state.name, state.outcome) for state in states] == [("forbidden", "refused")]
    assert "fs.file-max is not allowed on this host" in states[0].lines[0]
    assert "/etc/proveout/policy.yaml" in states[0].lines[0]
    (root / "proc/sys/fs/file-max").unlink()
    (root / "proc/sys/fs").rmdir()
    assert picture(root) == before


def test_a_file_of_parameters_needs_the_policy_for_each(root: Path, journal: UndoJournal) -> None:
    """Also where each has its value already, as the file applies at the next boot."""
    before, policy = picture(root), replace(POLICY, sysctl=("kernel.*",))
    (swappiness,) = (root / "proc/sys/vm/swappiness").read_text().split()
    so_already = tuning("sysctl", settings={"vm.swappiness": swappiness}, file="/etc/sysctl.d/99-z.conf")
    (state,) = run(host_in(root, policy=policy), journal).apply((so_already,))
    assert state.outcome == "refused"
    assert "the kernel setting vm.swappiness is not allowed on this host" in state.lines[0]
    assert picture(root) == before


def test_a_value_that_the_kernel_ignores_fails_and_the_rest_is_undone(
    root: Path, journal: UndoJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel accepts a write and sets another value, which only reading back shows."""
    before, host = picture(root), host_in(root)
    write = type(host.texts).write

    def ignore(self: object, path: str, text: str) -> None:
        if not path.endswith("dirty_ratio"):
            write(self, path, text)  # type: ignore[arg-type]

    monkeypatch.setattr(type(host.texts), "write", ignore)
    failed, *undone = run(host, journal).apply(BOTH)
    assert (failed.name, failed.outcome) == ("more", "failed")
    assert failed.lines[:2] == (
        "the changes were written, but the host still differs from the plan:",
        "/proc/sys/vm/dirty_ratio: 20 -> 5",
    )
    assert {state.outcome for state in undone} == {"reverted"}
    assert picture(root) == before


def test_changes_of_other_processes_are_reported_and_kept(root: Path, journal: UndoJournal) -> None:
    host = host_in(root)
    run(host, journal).apply(BOTH)
    put(root, "/proc/sys/vm/swappiness", "33\n")
    put(root, "/etc/sysctl.d/10-y.conf", "vm.dirty_ratio = 7\n")
    looked = tuning_transaction.look(host, journal)
    assert [(state.name, state.outcome) for state in looked] == [("kernel", "drifted"), ("more", "drifted")]
    drift = "/proc/sys/vm/swappiness is 33, neither 10 as the plan set it nor 60 as it was before"
    assert looked[0].lines == (drift,)
    states = tuning_transaction.revert(host, journal)
    assert {(state.name, state.outcome) for state in states} == {
        ("kernel", "drifted"),
        ("kernel", "reverted"),
        ("more", "drifted"),
        ("more", "reverted"),
    }
    assert (root / "proc/sys/vm/swappiness").read_text() == "33\n"
    assert (root / "etc/sysctl.d/10-y.conf").read_text() == "vm.dirty_ratio = 7\n"
    assert (root / "proc/sys/kernel/shmmni").read_text() == "4096\n"


@pytest.mark.parametrize(
    ("at", "found", "left", "outcome"),
    [
        ("keep the originals", "7001", "7001", "drifted"),  # more than the operation requests: set by another process
        ("verify", "20", "4", "reverted"),  # as many as the kernel could allocate
    ],
)
def test_fewer_huge_pages_than_requested_are_reverted_and_more_are_drift(
    root: Path, journal: UndoJournal, at: str, found: str, left: str, outcome: str
) -> None:
    pages = put(root, "/proc/sys/vm/nr_hugepages", "4\n")
    put(root, "/proc/meminfo", "MemTotal: 4194304 kB\nHugepagesize: 2048 kB\n")

    def watch(step: str) -> None:
        if step.endswith(at):
            pages.write_text(f"{found}\n")

    transaction = Transaction(host=host_in(root), journal=journal, run="r1", watch=watch)
    state, *undone = transaction.apply((tuning("huge_pages", pages=32),))
    assert state.outcome == "failed"
    assert [one.outcome for one in undone] == [outcome]
    assert pages.read_text() == f"{left}\n"


def test_a_second_change_of_the_same_run_is_not_drift(root: Path, journal: UndoJournal) -> None:
    before, host = picture(root), host_in(root)
    run(host, journal).apply(BOTH)
    later = tuning("sysctl", "later", settings={"vm.swappiness": "1"})
    run(host, journal).apply((later,))
    assert {state.outcome for state in tuning_transaction.look(host, journal)} == {"in_place"}
    put(root, "/proc/sys/vm/swappiness", "10\n")
    assert {state.name: state.outcome for state in tuning_transaction.look(host, journal)}["later"] == "drifted"
    put(root, "/proc/sys/vm/swappiness", "1\n")
    assert {state.outcome for state in tuning_transaction.revert(host, journal)} == {"reverted"}
    assert picture(root) == before


def test_the_tunings_of_one_list_are_reverted_by_name_and_the_others_stay(root: Path, journal: UndoJournal) -> None:
    before, host = picture(root), host_in(root)
    run(host, journal).apply(BOTH)
    later = tuning("sysctl", "later", settings={"vm.swappiness": "1"})
    run(host, journal).apply((later,))
    states = tuning_transaction.revert(host, journal, tunings=frozenset({"later"}))
    assert [(state.name, state.outcome) for state in states] == [("later", "reverted")]
    assert (root / "proc/sys/vm/swappiness").read_text() == "10\n"
    assert {state.name: state.outcome for state in tuning_transaction.look(host, journal)} == {
        "kernel": "in_place",
        "more": "in_place",
    }
    assert {state.outcome for state in tuning_transaction.revert(host, journal)} == {"reverted"}
    assert picture(root) == before


def test_a_tuning_with_keep_is_reported_and_reverted_only_where_its_transaction_fails(
    root: Path, journal: UndoJournal
) -> None:
    before, host = picture(root), host_in(root)
    keep = tuning("sysctl", "kept", keep=True, settings={"vm.swappiness": "10"})
    missing = tuning("sysctl", "missing", settings={"vm.no_such_thing": "1"})
    states = run(host, journal).apply((keep, missing))
    assert [(state.name, state.outcome) for state in states] == [("missing", "refused"), ("kept", "reverted")]
    assert picture(root) == before
    run(host, journal).apply((keep, MORE))
    assert [(state.name, state.outcome, state.keep) for state in tuning_transaction.kept(journal)] == [
        ("kept", "kept", True)
    ]
    tuning_transaction.revert(host, journal)
    assert (root / "proc/sys/vm/swappiness").read_text() == "10\n"
    assert (root / "proc/sys/vm/dirty_ratio").read_text() == "20\n"


def test_a_dependent_unit_is_restarted_after_the_change_and_after_its_revert(root: Path, journal: UndoJournal) -> None:
    seen: list[str] = []
    units = StubUnits(tuned=UnitFact(active=True, enabled=True))
    act = units.act

    def noted(unit: str, verb: str) -> None:
        seen.append((root / "proc/sys/vm/swappiness").read_text().strip())
        act(unit, verb)

    units.act = noted  # type: ignore[method-assign]
    host = host_in(root, units=units)
    change = tuning("sysctl", restart="tuned.service", settings={"vm.swappiness": "10"})
    assert [state.outcome for state in run(host, journal).apply((change,))] == ["applied"]
    tuning_transaction.revert(host, journal)
    assert units.done == ["restart tuned.service", "restart tuned.service"]
    assert seen == ["10", "60"]


def test_no_change_is_made_when_the_journal_cannot_be_written(
    root: Path, journal: UndoJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = picture(root)

    monkeypatch.setattr(UndoJournal, "open", full)
    (state,) = run(host_in(root), journal).apply((SYSCTLS,))
    assert state.outcome == "failed"
    assert "cannot store the originals" in state.lines[0]
    assert picture(root) == before


# ---- kills, full disks, other processes -------------------------------------------------------------------------------


def test_the_temporary_file_of_a_killed_agent_is_removed(root: Path, journal: UndoJournal) -> None:
    put(root, "/etc/app/.a.conf.mine", "somebody else's")
    put(root, "/etc/app/.a.conf.proveout-old", "somebody else's too")
    before = picture(root)
    host = host_in(root)
    Transaction(host=host, journal=journal, run="r").apply([FILE])
    put(root, "/etc/app/.a.conf.proveout-0123456789ab", "ne", mode=0o600)
    assert [state.outcome for state in tuning_transaction.revert(host, journal)] == ["reverted"]
    assert picture(root) == before


def forbid(journal: UndoJournal, *, action: int | None) -> None:
    """Make statements of a kind fail, as on a full disk."""

    def judge(kind: int, *_: object) -> int:
        return sqlite3.SQLITE_DENY if kind == action else sqlite3.SQLITE_OK

    journal.open().set_authorizer(judge)


def test_a_kept_tuning_stays_when_the_journal_cannot_be_written(root: Path, journal: UndoJournal) -> None:
    host = host_in(root)
    Transaction(host=host, journal=journal, run="r").apply([KEPT])
    forbid(journal, action=sqlite3.SQLITE_DELETE)
    assert [state.outcome for state in tuning_transaction.end(host, journal)] == ["kept"]
    assert (root / "etc/app/a.conf").read_text() == "new\n"
    assert journal.outstanding() == ()
    assert not journal.is_written
    forbid(journal, action=None)
    assert journal.is_written


@pytest.mark.parametrize(
    ("wanted", "path", "text"),
    [(FILE, "etc/app/a.conf", "by hand\n"), (SYSCTL, "proc/sys/vm/swappiness", "33\n")],
    ids=["file", "sysctl"],
)
def test_a_concurrent_change_by_another_process_is_not_overwritten(
    wanted: object, path: str, text: str, root: Path, journal: UndoJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    intend = UndoJournal.intend

    def slow(self: UndoJournal, *arguments: object) -> None:
        intend(self, *arguments)  # type: ignore[arg-type]
        (root / path).write_text(text)

    monkeypatch.setattr(UndoJournal, "intend", slow)
    failed, *undone = Transaction(host=host_in(root), journal=journal, run="r").apply([wanted])  # type: ignore[list-item]
    assert failed.outcome == "failed"
    assert f"/{path} was changed by another process just now" in failed.lines[0]
    assert (root / path).read_text() == text
    assert [state.outcome for state in undone] == ["drifted"]
    assert journal.outstanding() == ()


@pytest.mark.parametrize("kept_by", ["file", "text"])
def test_two_changes_of_one_path_are_both_undone_or_none(
    kept_by: str, root: Path, journal: UndoJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the second step cannot be undone, its value must not count as another process's drift of the first, which
    would then be dropped."""
    before, host = picture(root), host_in(root)
    twice = (
        (FILE, tuning("file", "again", path="/etc/app/a.conf", content="newer\n"))
        if kept_by == "file"
        else (SYSCTL, tuning("sysctl", "again", settings={"vm.swappiness": "1"}))
    )
    for one in twice:
        Transaction(host=host, journal=journal, run="r").apply([one])

    with monkeypatch.context() as patch:
        patch.setattr(type(host.files), "put", full)
        patch.setattr(type(host.texts), "write", full)
        assert {state.outcome for state in tuning_transaction.revert(host, journal)} == {"residue"}
    assert len(journal.outstanding()) == 2
    assert {state.outcome for state in tuning_transaction.revert(host, journal)} == {"reverted"}
    assert picture(root) == before


async def test_a_queued_transaction_does_not_block_the_next(root: Path, tmp_path: Path) -> None:
    """The first call has nothing to undo, so its journal is closed; the second, which waited, makes a change; the revert
    finds it."""
    before = picture(root)
    tuner = Tuner(tmp_path / "undo", prepare=lambda _: host_in(root))
    missing = tuning("sysctl", "missing", settings={"vm.no_such_thing": "1"})
    first, second = await asyncio.gather(
        tuner.apply("r", [SYSCTL, missing], (), tmp_path), tuner.apply("r", [FILE], (), tmp_path)
    )
    assert first[0].outcome == "refused"
    assert [state.outcome for state in second] == ["applied"]
    assert [state.outcome for state in await tuner.revert()] == ["reverted"]
    assert picture(root) == before
    assert tuner.is_idle


# ---- what waits until a change is undone ---------------------------------------------------------------------------------


def test_a_reload_waits_until_the_file_is_restored(
    root: Path, journal: UndoJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, before = StubTools(), picture(root)
    host = host_in(root, policy=UDEV_POLICY, tools=tools)
    Transaction(host=host, journal=journal, run="r").apply((UDEV,))
    tools.done.clear()

    with monkeypatch.context() as patch:
        patch.setattr(Files, "put", full)
        tuning_transaction.revert(host, journal)
    assert tools.done == []
    tuning_transaction.revert(host, journal)
    assert [argv[1] for argv in tools.done] == ["control", "trigger", "settle"]
    assert picture(root) == before


class FullOracle(SimOracle):
    """A database whose disk groups may be full."""

    full = False

    def run(self, system: str, statement: str) -> None:
        if self.full and "ADD LOGFILE" in statement:
            raise ora(15041)
        super().run(system, statement)


def test_new_redo_groups_stay_until_the_old_ones_are_restored(root: Path, journal: UndoJournal) -> None:
    """The revert of other operations does not wait for it."""
    database = FullOracle()
    host = host_in(root, policy=replace(UDEV_POLICY, sysctl=("vm.*",)))
    host.databases = database
    before = database.state(), picture(root)
    redo = tuning("oracle_redo", system="orcl", groups=2, size="2G", disk_groups=["REDO1"])
    other = tuning("sysctl", settings={"vm.swappiness": "10"})
    states = Transaction(host=host, journal=journal, run="r").apply((other, redo))
    assert [state.outcome for state in states] == ["applied", "applied"]
    database.full = True
    undone = {state.operation: state for state in tuning_transaction.revert(host, journal)}
    assert {kind: state.outcome for kind, state in undone.items()} == {"oracle_redo": "residue", "sysctl": "reverted"}
    assert sum("DROP LOGFILE" in line for line in undone["oracle_redo"].lines) == 2
    assert sorted(database.redo) == [4, 5]
    database.full = False
    assert {state.outcome for state in tuning_transaction.revert(host, journal)} == {"reverted"}
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

    tuner = Tuner(tmp_path / "undo", UDEV_POLICY, prepare=lambda _: host_in(root, policy=UDEV_POLICY, tools=Hanging()))
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
    host = host_in(root, policy=UDEV_POLICY, tools=tools)
    journal.intend("r", UDEV, [(change, Original(exists=True, content=b"mine"))])
    assert [state.outcome for state in tuning_transaction.revert(host, journal)] == ["residue"]
    tools.answers = {"blkid": Output(code=2, text="")}
    assert [state.outcome for state in tuning_transaction.revert(host, journal)] == ["reverted"]
    assert disk.read_text() == "mine"

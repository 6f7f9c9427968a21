"""Mutation tests of tuning in the simulation: each test removes one safeguard of reverting, and a rule must break
within some seeds.

Each mutant runs under the kind of fault that shows it; the same test checks that the real code passes under these
faults.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from seeds import Outcome, play
from sim_faults import Fault
from sim_operations import having

from proveout.agent.daemon import session
from proveout.agent.daemon.task_journal import AgentJournal
from proveout.agent.faults import injection
from proveout.agent.tuning import file_changes, transaction, tuner
from proveout.agent.tuning import revert as undoing
from proveout.agent.tuning import undo_journal as undo
from proveout.dsl.operations.kernel.block_queue import BlockQueue
from proveout.dsl.plan.plan import Plan

pytestmark = pytest.mark.slow

WITHIN = 12
Strike = Callable[[int], tuple[Fault, ...]]


def quiet(_seed: int) -> tuple[Fault, ...]:
    return ()


def at_a_step(kind: str, host: str = "db1", for_s: float = 1.0) -> Strike:
    """Return a fault during the first tuning, at another step for each seed."""
    return lambda seed: (Fault(0.0, kind, host, for_s, step=9 + 4 * seed),)


def at(operation: str, kind: str, for_s: float = 1.0) -> Strike:
    """Return a fault at a step of one operation, another step for each seed."""
    return lambda seed: (Fault(0.0, kind, "db1", for_s, step=1 + seed, at=operation),)


def found(strike: Strike, within: int = WITHIN, plan: Plan | None = None) -> str:
    """Return the rules that break in the first seed that breaks any."""
    for seed in range(within):
        if wrongs := play(seed, faults=strike(seed), plan=plan).wrongs:
            return " ".join(wrongs)
    raise AssertionError(f"no rule broke within {within} seeds")


def test_changes_made_before_their_originals_are_recorded_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(self: Any, tuning: Any, changes: Any) -> None:
        noted = [(change, self.host.original(change)) for change in changes]
        for change in changes:
            self.host.make(change)
        self.journal.intend(self.run, tuning, noted)

    monkeypatch.setattr(transaction.Transaction, "_make", make)
    assert "no durable entry of the undo journal covers it" in found(quiet)


def test_originals_without_a_sync_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    connected = undo.UndoJournal._connected

    def hasty(self: Any) -> Any:
        database = connected(self)
        database.execute("PRAGMA synchronous = OFF")
        return database

    monkeypatch.setattr(undo.UndoJournal, "_connected", hasty)
    assert "no durable entry of the undo journal covers it" in found(quiet)


def test_undoing_in_the_order_of_the_changes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    outstanding = undo.UndoJournal.outstanding
    monkeypatch.setattr(undo.UndoJournal, "outstanding", lambda self, **more: outstanding(self, **more)[::-1])
    assert "/proc/sys/vm/swappiness is 10, not 60" in found(quiet)


def test_a_revert_that_overwrites_changes_of_other_processes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    compare = undoing.compare
    strike: Strike = lambda seed: tuple(Fault(12.0 + n, "hand", "db1") for n in range(3))  # noqa: E731
    assert play(0, faults=strike(0)).wrongs == ()
    monkeypatch.setattr(undoing, "compare", lambda host, entry: compare(host, entry).replace("other", "made"))
    assert "by hand" in found(strike) or "700" in found(strike)


def test_an_agent_that_does_not_revert_at_the_end_of_its_lease_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def close(self: Any, *, keep_data: bool) -> None:
        return None

    strike: Strike = lambda seed: (Fault(8.0 + seed, "hold", "client1", 25.0),)  # noqa: E731
    assert play(0, faults=strike(0)).wrongs == ()
    monkeypatch.setattr(tuner.Tuner, "close", close)
    assert "s after the last beat of a coordinator /" in found(strike)


def test_undo_entries_removed_before_their_change_is_undone_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def revert(host: Any, journal: Any, *, after: int = 0, **_: Any) -> Any:
        done = []
        for entry in journal.outstanding(after=after):
            journal.settle(entry)
            done.append((entry, *undoing._undo(host, entry)))
        return undoing._states(done)

    monkeypatch.setattr(undoing, "revert", revert)
    assert "no durable entry of the undo journal covers it" in found(quiet)


def test_reverting_a_change_with_keep_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undoing, "kept", lambda *_, **__: ())
    assert "/etc/app/kept.conf is" in found(quiet)


def test_an_agent_that_does_not_revert_the_changes_of_a_killed_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant reverts neither at its start nor before it tunes; in most histories either of the two suffices."""

    async def recover(self: Any) -> tuple[()]:
        return ()

    def admitted(self: Any, machine: Any, holder: Any) -> Any:
        self._journal = self._journal or machine.open(holder)
        return self._journal

    monkeypatch.setattr(tuner.Tuner, "recover", recover)
    monkeypatch.setattr(tuner.Tuner, "_admitted", admitted)
    assert "after another start" in found(at_a_step("kill", for_s=40.0))


def test_half_written_files_that_remain_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    strike = at_a_step("kill")
    assert all(play(seed, faults=strike(seed)).wrongs == () for seed in range(4))
    monkeypatch.setattr(file_changes.Files, "sweep", lambda *_: None)
    assert ".proveout-" in found(strike)


def test_a_missing_second_check_of_originals_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process changes the file while its original is being recorded."""
    strike: Strike = lambda seed: tuple(Fault(0.0, "hand", "db1", step=2 + seed // 3) for _ in range(4))  # noqa: E731
    monkeypatch.setattr(transaction.Transaction, "_check_unchanged", lambda *_: None)
    assert "by hand" in found(strike, 40) or "700" in found(strike, 40)


def test_outcomes_lost_because_of_a_full_disk_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def catch_up(self: Any, database: Any) -> None:
        real(self, database)
        self._unwritten.clear()

    real = undo.UndoJournal._flush
    strike: Strike = lambda seed: (Fault(30.0, "fill", "client1", 20.0),)  # noqa: E731
    assert play(0, faults=strike(0)).wrongs == ()
    monkeypatch.setattr(undo.UndoJournal, "_flush", catch_up)
    assert "4096" in found(strike) or "kept.conf" in found(strike)


# ---- operations ------------------------------------------------------------------------------------------------------


def holds(strike: Strike, plan: Plan) -> bool:
    """Whether the real code breaks no rule under the same faults."""
    return not any(play(seed, faults=strike(seed), plan=plan).wrongs for seed in range(4))


def test_a_lost_original_size_of_the_huge_page_pool_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = undo.change_text

    def text(change: Any) -> str:
        return real(replace(change, before=change.after) if getattr(change, "path", "").endswith("pages") else change)

    monkeypatch.setattr(undo, "change_text", text)
    assert "nr_hugepages is 512, not 0" in found(quiet, plan=having("huge_pages"))


def test_a_line_left_in_fstab_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = undoing._undo

    def undo(host: Any, entry: Any) -> Any:
        return ("reverted", "") if getattr(entry.change, "path", "") == "/etc/fstab" else real(host, entry)

    monkeypatch.setattr(undoing, "_undo", undo)
    assert "/etc/fstab is" in found(quiet, plan=having("mount"))


def test_stopping_a_mount_unit_that_systemd_has_not_loaded_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    strike, plan, real = at("mount", "kill"), having("mount"), undoing._compare_unit
    assert holds(strike, plan)

    def compare(host: Any, change: Any) -> Any:
        return "unknown" if host.manager.fact(change.unit) is None else real(host, change)

    monkeypatch.setattr(undoing, "_compare_unit", compare)
    assert "the undo journal is still there" in found(strike, plan=plan)


def test_a_follow_up_command_that_does_not_wait_for_its_undo_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the programs hangs: udev either reloads its rules or triggers its devices, but not both."""
    strike: Strike = lambda seed: (Fault(20.0, "hang", "db1", step=1 + seed, at="udev_rules"),)  # noqa: E731
    plan = having("udev_rules")
    assert holds(strike, plan)
    monkeypatch.setattr(undoing, "only_undoes", lambda _change: False)
    assert "/usr/bin/udevadm uses outdated configuration" in found(strike, plan=plan)


def test_a_queue_length_lost_with_its_scheduler_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = BlockQueue._of
    monkeypatch.setattr(BlockQueue, "_of", lambda *given: (change for change in real(*given) if change.after))
    assert "/sys/block/sdc/queue/nr_requests is 256, not 200" in found(quiet, plan=having("block_queue"))


def test_attributes_lost_with_their_scheduler_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BlockQueue, "_own_of_scheduler", lambda *_: ())
    assert "/sys/block/sdc/queue/iosched/read_expire is 500, not 120" in found(quiet, plan=having("block_queue"))


# ---- signatures ------------------------------------------------------------------------------------------------------


def intruded(seed: int) -> tuple[Fault, ...]:
    return (Fault(10.0 + seed, "intrude", "client1"),)


def test_an_agent_that_accepts_tasks_without_a_valid_signature_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert play(0, faults=intruded(0)).wrongs == ()
    monkeypatch.setattr(session.Session, "_objection", lambda *_: "")
    assert "no coordinator has sent it there" in found(intruded)


def test_an_agent_that_accepts_a_sequence_number_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A holder of a coordinator's certificate replays tasks after the run, when the agent has removed their keys."""
    strike: Strike = lambda seed: tuple(Fault(36.0, "thief", "client1") for _ in range(3))  # noqa: E731
    assert play(0, faults=strike(0)).wrongs == ()
    monkeypatch.setattr(AgentJournal, "highest_sequence", lambda *_: 0)
    assert "ran 2 times" in found(strike, 20)


def late(seed: int) -> Outcome:
    """Run a seed in which the coordinator's wall clock jumps, forward or back, and the coordinator is then killed."""
    return play(seed, faults=(Fault(9.0, "wall"), Fault(10.0, "kill", for_s=1.0)))


def test_sequence_numbers_kept_across_epochs_fail_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rule breaks, but where the clock was set back every agent refuses the tasks of the next coordinator."""
    assert [late(seed).ends for seed in range(4)] == [("finished",)] * 4
    execute = AgentJournal.note_epoch

    def note_epoch(self: Any, run: str, epoch: int) -> None:
        highest = self.highest_sequence(run)
        execute(self, run, epoch)
        self._db.execute("INSERT OR REPLACE INTO sequence VALUES (?, ?)", (run, highest))

    monkeypatch.setattr(AgentJournal, "note_epoch", note_epoch)
    assert "failed" in {end for seed in range(4) for end in late(seed).ends}


# ---- faults of a load ------------------------------------------------------------------------------------------------


def test_a_fault_that_is_not_healed_at_its_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def undo(self: Any) -> tuple[str, ...]:
        return ()

    assert play(0, faults=()).wrongs == ()
    monkeypatch.setattr(injection._Fault, "_undo", undo)
    assert "has ended, and the fault is in place on" in found(quiet)


def test_a_fault_that_is_not_healed_when_its_task_is_cancelled_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent of a client is killed while a fault is in place on the other hosts: their tasks are cancelled."""

    async def heal_all(self: Any) -> None:
        return None

    strike: Strike = lambda seed: (Fault(18.0 + 0.15 * seed, "kill", "client2"),)  # noqa: E731
    assert play(3, faults=strike(3)).wrongs == ()
    monkeypatch.setattr(injection._Fault, "heal_all", heal_all)
    assert "has ended, and the fault is in place on" in found(strike, 24)

"""The simulation looks where tuning can go wrong: each mutant takes away one thing that undoing rests on, and a rule
breaks within some seeds.

Each is struck by the kind of fault that it is weak against; that the real code holds under the same faults is in the
same test.
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
from proveout.agent.tuning import file_changes, transaction, tuner
from proveout.agent.tuning import revert as undoing
from proveout.agent.tuning import undo_journal as undo
from proveout.dsl.operations.kernel.block_queue import BlockQueue
from proveout.dsl.plan.plan import Plan

WITHIN = 12
Strike = Callable[[int], tuple[Fault, ...]]


def quiet(_seed: int) -> tuple[Fault, ...]:
    return ()


def at_a_step(kind: str, host: str = "db1", for_s: float = 1.0) -> Strike:
    """A fault in the midst of the first tuning, at another step for each seed."""
    return lambda seed: (Fault(0.0, kind, host, for_s, step=9 + 4 * seed),)


def at(operation: str, kind: str, for_s: float = 1.0) -> Strike:
    """A fault at the steps of one operation, another one for each seed."""
    return lambda seed: (Fault(0.0, kind, "db1", for_s, step=1 + seed, at=operation),)


def found(strike: Strike, within: int = WITHIN, plan: Plan | None = None) -> str:
    """Which rules the first seed breaks that breaks any."""
    for seed in range(within):
        if wrongs := play(seed, faults=strike(seed), plan=plan).wrongs:
            return " ".join(wrongs)
    raise AssertionError(f"no rule broke within {within} seeds")


def test_changes_before_their_originals_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(self: Any, tuning: Any, changes: Any) -> None:
        noted = [(change, self.host.original(change)) for change in changes]
        for change in changes:
            self.host.make(change)
        self.journal.intend(self.run, tuning, noted)

    monkeypatch.setattr(transaction.Transaction, "_make", make)
    assert "no durable entry of the undo journal covers it" in found(quiet)


def test_originals_that_are_written_and_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    connected = undo.UndoJournal._connected

    def hasty(self: Any) -> Any:
        database = connected(self)
        database.execute("PRAGMA synchronous = OFF")
        return database

    monkeypatch.setattr(undo.UndoJournal, "_connected", hasty)
    assert "no durable entry of the undo journal covers it" in found(quiet)


def test_undoing_the_first_change_first(monkeypatch: pytest.MonkeyPatch) -> None:
    outstanding = undo.UndoJournal.outstanding
    monkeypatch.setattr(undo.UndoJournal, "outstanding", lambda self, **more: outstanding(self, **more)[::-1])
    assert "/proc/sys/vm/swappiness is 10, not 60" in found(quiet)


def test_undoing_over_another_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    compare = undoing.compare
    strike: Strike = lambda seed: tuple(Fault(12.0 + n, "hand", "db1") for n in range(3))  # noqa: E731
    assert play(0, faults=strike(0)).wrongs == ()
    monkeypatch.setattr(undoing, "compare", lambda host, entry: compare(host, entry).replace("other", "made"))
    assert "by hand" in found(strike) or "700" in found(strike)


def test_an_agent_that_does_not_undo_at_the_end_of_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    async def close(self: Any, *, keep_data: bool) -> None:
        return None

    strike: Strike = lambda seed: (Fault(8.0 + seed, "hold", "client1", 25.0),)  # noqa: E731
    assert play(0, faults=strike(0)).wrongs == ()
    monkeypatch.setattr(tuner.Tuner, "close", close)
    assert "s after the last word of a coordinator /" in found(strike)


def test_entries_that_are_removed_before_their_change_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    def revert(host: Any, journal: Any, *, after: int = 0, systems_only: bool = False) -> Any:
        done = []
        for entry in journal.outstanding(after=after):
            journal.settle(entry)
            done.append((entry, *undoing._undo(host, entry)))
        return undoing._states(done)

    monkeypatch.setattr(undoing, "revert", revert)
    assert "no durable entry of the undo journal covers it" in found(quiet)


def test_undoing_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undoing, "kept", lambda *_, **__: ())
    assert "/etc/app/kept.conf is" in found(quiet)


def test_an_agent_that_does_not_recover_what_another_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither when it starts, nor before it tunes: each of the two makes up for the other in most histories."""

    async def recover(self: Any) -> tuple[()]:
        return ()

    def admitted(self: Any, machine: Any, holder: Any) -> Any:
        self._journal = self._journal or machine.open(holder)
        return self._journal

    monkeypatch.setattr(tuner.Tuner, "recover", recover)
    monkeypatch.setattr(tuner.Tuner, "_admitted", admitted)
    assert "after another start" in found(at_a_step("kill", for_s=40.0))


def test_half_written_files_that_nobody_removes(monkeypatch: pytest.MonkeyPatch) -> None:
    strike = at_a_step("kill")
    assert all(play(seed, faults=strike(seed)).wrongs == () for seed in range(4))
    monkeypatch.setattr(file_changes.Files, "sweep", lambda *_: None)
    assert ".proveout-" in found(strike)


def test_originals_that_are_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody changes the file while its original is being kept."""
    strike: Strike = lambda seed: tuple(Fault(0.0, "hand", "db1", step=2 + seed // 3) for _ in range(4))  # noqa: E731
    monkeypatch.setattr(transaction.Transaction, "_check_unchanged", lambda *_: None)
    assert "by hand" in found(strike, 40) or "700" in found(strike, 40)


def test_what_a_full_disk_kept_from_the_journal_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
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
    """Whether the code as it is breaks no rule under the same faults."""
    return not any(play(seed, faults=strike(seed), plan=plan).wrongs for seed in range(4))


def test_a_pool_of_huge_pages_whose_size_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    real = undo.change_text

    def text(change: Any) -> str:
        return real(replace(change, before=change.after) if getattr(change, "path", "").endswith("pages") else change)

    monkeypatch.setattr(undo, "change_text", text)
    assert "nr_hugepages is 512, not 0" in found(quiet, plan=having("huge_pages"))


def test_a_line_of_fstab_that_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    real = undoing._undo

    def undo(host: Any, entry: Any) -> Any:
        return ("reverted", "") if getattr(entry.change, "path", "") == "/etc/fstab" else real(host, entry)

    monkeypatch.setattr(undoing, "_undo", undo)
    assert "/etc/fstab is" in found(quiet, plan=having("mount"))


def test_a_mount_that_systemd_has_not_read_and_that_is_stopped_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    strike, plan, real = at("mount", "kill"), having("mount"), undoing._compare_unit
    assert holds(strike, plan)

    def compare(host: Any, change: Any) -> Any:
        return "unknown" if host.manager.fact(change.unit) is None else real(host, change)

    monkeypatch.setattr(undoing, "_compare_unit", compare)
    assert "the undo journal is still there" in found(strike, plan=plan)


def test_what_follows_an_undoing_and_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs hang one after the other: udev is told to read again, or to look at its devices, but not both."""
    strike: Strike = lambda seed: (Fault(20.0, "hang", "db1", step=1 + seed, at="udev_rules"),)  # noqa: E731
    plan = having("udev_rules")
    assert holds(strike, plan)
    monkeypatch.setattr(undoing, "only_undoes", lambda _change: False)
    assert "/usr/bin/udevadm goes by what was" in found(strike, plan=plan)


def test_the_length_of_a_queue_that_goes_with_its_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    real = BlockQueue._of
    monkeypatch.setattr(BlockQueue, "_of", lambda *given: (change for change in real(*given) if change.after))
    assert "/sys/block/sdc/queue/nr_requests is 256, not 200" in found(quiet, plan=having("block_queue"))


def test_the_attributes_of_a_scheduler_that_go_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BlockQueue, "_own_of_scheduler", lambda *_: ())
    assert "/sys/block/sdc/queue/iosched/read_expire is 500, not 120" in found(quiet, plan=having("block_queue"))


# ---- signatures ------------------------------------------------------------------------------------------------------


def intruded(seed: int) -> tuple[Fault, ...]:
    return (Fault(10.0 + seed, "intrude", "client1"),)


def test_an_agent_that_takes_what_nobody_has_signed_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert play(0, faults=intruded(0)).wrongs == ()
    monkeypatch.setattr(session.Session, "_objection", lambda *_: "")
    assert "nobody has given it that" in found(intruded)


def test_an_agent_that_takes_a_number_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may speak as a coordinator sends again what he has heard, when the run is over and its keys are forgotten."""
    strike: Strike = lambda seed: tuple(Fault(36.0, "thief", "client1") for _ in range(3))  # noqa: E731
    assert play(0, faults=strike(0)).wrongs == ()
    monkeypatch.setattr(AgentJournal, "highest_sequence", lambda *_: 0)
    assert "ran 2 times" in found(strike, 20)


def late(seed: int) -> Outcome:
    """A coordinator whose host's clock jumps, perhaps back, and that is killed after that."""
    return play(seed, faults=(Fault(9.0, "wall"), Fault(10.0, "kill", for_s=1.0)))


def test_numbers_that_outlive_their_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rule breaks, but where the clock was set back no agent listens to the next coordinator."""
    assert [late(seed).ends for seed in range(4)] == [("finished",)] * 4
    execute = AgentJournal.note_epoch

    def note_epoch(self: Any, run: str, epoch: int) -> None:
        highest = self.highest_sequence(run)
        execute(self, run, epoch)
        self._db.execute("INSERT OR REPLACE INTO sequence VALUES (?, ?)", (run, highest))

    monkeypatch.setattr(AgentJournal, "note_epoch", note_epoch)
    assert "failed" in {end for seed in range(4) for end in late(seed).ends}

"""Mutation tests of the simulation: each mutant removes one safeguard of the code, and a rule of the simulation must
break within some seeds, under the kind of fault that shows it. The real code keeps the rules under the same faults.

A surviving mutant shows a gap in the simulation's rules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from seeds import play
from sim_faults import Fault

from proveout.agent.daemon import servicer, session, task_journal
from proveout.agent.tuning import fault_injection, files, transaction, tuner, undo_journal
from proveout.agent.tuning import transaction as undoing
from proveout.coordinator.agents import session as coordinator_session
from proveout.coordinator.measure import samples
from proveout.coordinator.schedule import iteration

pytestmark = pytest.mark.soak

Strike = Callable[[int], tuple[Fault, ...]]


def quiet(_seed: int) -> tuple[Fault, ...]:
    return ()


def once(kind: str, host: str = "", for_s: float = 2.0) -> Strike:
    """Return a fault at another moment for each seed."""
    return lambda seed: (Fault(8.0 + seed % 20, kind, host, for_s),)


def at_a_step(kind: str, for_s: float = 1.0) -> Strike:
    """Return a fault during the first tuning, at another step for each seed."""
    return lambda seed: (Fault(0.0, kind, "db1", for_s, step=9 + 4 * seed),)


async def nothing(*_: Any, **__: Any) -> Any:
    return ()


async def for_ever(_: Any) -> None:
    await asyncio.Event().wait()


def accept_again(self: Any, run: str, epoch: int, key: str, digest: str, sequence: int) -> None:
    self._db.execute("INSERT OR REPLACE INTO task VALUES (?, ?, ?, ?, NULL)", (run, epoch, key, digest))


def add_without_gaps(self: Any, message: Any, add: Any = samples.Gathering.add) -> None:
    add(self, message)
    self.gaps.clear()


def make_before_the_note(self: Any, tuning: Any, changes: Any) -> None:
    noted = [(change, self.host.original(change)) for change in changes]
    for change in changes:
        self.host.make(change)
    self.journal.intend(self.run, tuning, noted)


def connected_without_a_sync(self: Any, connected: Any = undo_journal.UndoJournal._connected) -> Any:
    database = connected(self)
    database.execute("PRAGMA synchronous = OFF")
    return database


def outstanding_first(self: Any, outstanding: Any = undo_journal.UndoJournal.outstanding, **more: Any) -> Any:
    return outstanding(self, **more)[::-1]


def compare_as_made(host: Any, entry: Any, compare: Any = undoing.compare) -> Any:
    return compare(host, entry).replace("other", "made")


def unanswered_without_faults(step: Any, unanswered: Any = iteration.unanswered) -> Any:
    return unanswered(step) - step.faults.keys()


@dataclass(frozen=True)
class Mutant:
    """Replaced names of a module or class, the faults that show it, the broken rule, and the number of seeds."""

    name: str
    changes: tuple[tuple[Any, str, Any], ...]
    strike: Strike
    rule: str
    within: int = 12


JOURNAL, UNDO = task_journal.AgentJournal, undo_journal.UndoJournal
MUTANTS = (
    # ---- tasks, epochs, leases, samples
    Mutant(
        "an agent that does not know which tasks it has run",
        ((JOURNAL, "known", lambda *_: None), (JOURNAL, "accept", accept_again)),
        once("repeat", "client1"), "ran 2 times", 40,
    ),
    Mutant(
        "an agent without a check of epochs", ((JOURNAL, "highest_epoch", lambda *_: None),), once("ghost"), "after epoch", 40
    ),
    Mutant(
        "admission without a check for live sessions", ((servicer.Admission, "_live", lambda _: None),), once("kill"),
        "epoch", 40,
    ),
    Mutant(
        "an agent without the end of its lease", ((session.Session, "_watch_lease", for_ever),), once("hold", "client1", 20.0),
        "after the last beat of a coordinator", 40,
    ),
    Mutant(
        "samples without a count of gaps", ((samples.Gathering, "add", add_without_gaps),), once("deaf", "client1", 1.5),
        "reported as lost", 40,
    ),
    Mutant(
        "loads without the offsets of clocks",
        ((coordinator_session.AgentSession, "to_agent_ns", lambda _, coordinator_ns: coordinator_ns),),
        quiet, "late, reported", 40,
    ),
    Mutant(
        "a coordinator that does not wait for the healing of faults", ((iteration, "unanswered", unanswered_without_faults),),
        lambda _: (Fault(9.0, "hang", "db1", step=1, at="command"),), "of another iteration",
    ),
    # ---- tuning
    Mutant(
        "changes before their originals are noted", ((transaction.Transaction, "_make", make_before_the_note),), quiet,
        "no durable entry of the undo journal covers it",
    ),
    Mutant(
        "originals without a sync", ((UNDO, "_connected", connected_without_a_sync),), quiet,
        "no durable entry of the undo journal covers it",
    ),
    Mutant(
        "undoing in the order of the changes", ((UNDO, "outstanding", outstanding_first),), quiet,
        "/proc/sys/vm/swappiness is 10, not 60",
    ),
    Mutant(
        "a revert that overwrites changes of others", ((undoing, "compare", compare_as_made),),
        lambda seed: tuple(Fault(12.0 + n, "hand", "db1") for n in range(3)), "by hand",
    ),
    Mutant(
        "no revert at the end of a lease", ((tuner.Tuner, "close", nothing),),
        lambda seed: (Fault(8.0 + seed, "hold", "client1", 25.0),), "s after the last beat of a coordinator /",
    ),
    Mutant("a revert of a change with `keep`", ((undoing, "kept", lambda *_, **__: ()),), quiet, "/etc/app/kept.conf is"),
    Mutant(
        "half-written files that remain", ((files.Files, "sweep", lambda *_: None),), at_a_step("kill"), ".proveout-"
    ),
    # ---- signatures and faults
    Mutant(
        "tasks without a valid signature", ((session.Session, "_objection", lambda *_: ""),),
        lambda seed: (Fault(10.0 + seed, "intrude", "client1"),), "no coordinator has sent it there",
    ),
    Mutant(
        "a sequence number accepted twice", ((JOURNAL, "highest_sequence", lambda *_: 0),),
        lambda seed: tuple(Fault(36.0, "thief", "client1") for _ in range(3)), "ran 2 times", 20,
    ),
    Mutant(
        "a fault that is not healed at its end", ((fault_injection._Fault, "_undo", nothing),), quiet,
        "has ended, and the fault is in place on",
    ),
)  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_breaks_a_rule(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(2):
        assert play(seed, faults=mutant.strike(seed)).wrongs == ()
    for place, name, replacement in mutant.changes:
        monkeypatch.setattr(place, name, replacement)
    broken = (" ".join(play(seed, faults=mutant.strike(seed)).wrongs) for seed in range(mutant.within))
    assert any(mutant.rule in wrongs for wrongs in broken)


def test_sequence_numbers_kept_across_epochs_fail_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rule breaks, but where the coordinator's clock was set back every agent refuses the next coordinator."""

    def ends() -> set[str]:
        faults = (Fault(9.0, "wall"), Fault(10.0, "kill", for_s=1.0))
        return {end for seed in range(4) for end in play(seed, faults=faults).ends}

    assert ends() == {"finished"}
    execute = JOURNAL.note_epoch

    def note_epoch(self: Any, run: str, epoch: int) -> None:
        highest = self.highest_sequence(run)
        execute(self, run, epoch)
        self._db.execute("INSERT OR REPLACE INTO sequence VALUES (?, ?)", (run, highest))

    monkeypatch.setattr(JOURNAL, "note_epoch", note_epoch)
    assert "failed" in ends()

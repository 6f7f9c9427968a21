"""The simulation can find bugs: each mutant takes away one thing that a promise rests on, and a rule breaks within some
seeds.

A mutant that survives says that the simulation does not look where it should.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from seeds import Outcome, play
from sim_faults import Fault

from proveout.agent.daemon import admission, session, task_journal
from proveout.coordinator.agents import session as coordinator_session
from proveout.coordinator.measure import samples

WITHIN = 300


def struck(seed: int, kind: str, host: str = "", for_s: float = 2.0) -> Outcome:
    """A seed with one fault, of a kind that the mutant is weak against: drawn ones get there as well, but later."""
    return play(seed, faults=(Fault(8.0 + seed % 20, kind, host, for_s),))


def first_bad(kind: str = "", host: str = "", for_s: float = 2.0, within: int = WITHIN) -> tuple[int, str]:
    """The first seed that breaks a rule, and which."""
    for seed in range(within):
        outcome = struck(seed, kind, host, for_s) if kind else play(seed)
        if outcome.wrongs:
            return seed, " ".join(outcome.wrongs)
    raise AssertionError(f"no rule broke within {within} seeds")


def test_an_agent_that_forgets_what_it_has_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def accept(self: Any, run: str, epoch: int, key: str, digest: str, sequence: int) -> None:
        self._db.execute("INSERT OR REPLACE INTO task VALUES (?, ?, ?, ?, NULL)", (run, epoch, key, digest))

    monkeypatch.setattr(task_journal.AgentJournal, "known", lambda *_: None)
    monkeypatch.setattr(task_journal.AgentJournal, "accept", accept)
    assert "ran 2 times" in first_bad()[1]


def test_an_agent_that_lets_an_old_coordinator_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_journal.AgentJournal, "highest_epoch", lambda *_: None)
    assert "after epoch" in first_bad("ghost")[1]


def test_a_new_coordinator_that_does_not_wait_for_the_old_ones_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission.Admission, "_live", lambda _: None)
    assert "epoch" in first_bad("kill")[1]


def test_an_agent_whose_lease_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def watch(_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(session.Session, "_watch_lease", watch)
    assert "after the last word of a coordinator" in first_bad("hold", "client1", 20.0)[1]


def test_a_coordinator_that_does_not_count_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    add = samples.Gathering.add

    def without_gaps(self: Any, message: Any) -> None:
        add(self, message)
        self.gaps.clear()

    monkeypatch.setattr(samples.Gathering, "add", without_gaps)
    assert "said to be lost" in first_bad("deaf", "client1", 1.5)[1]


def test_a_coordinator_that_takes_an_agents_clock_for_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_session.AgentSession, "to_agent_ns", lambda _, coordinator_ns: coordinator_ns)
    assert "late, said" in first_bad()[1] or "no end" in first_bad()[1]


def test_a_coordinator_that_does_not_say_again_what_may_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost task is noticed by its deadline, so the run still ends; it costs the iteration that a broken stream does
    not."""

    def nothing(self: Any) -> None:
        self._outgoing.clear()

    def undisturbed(count: int = 12) -> int:
        played = [struck(seed, "deaf", "client1") for seed in range(count)]
        return sum("IterationVoided" not in "".join(outcome.history) for outcome in played)

    whole = undisturbed()
    monkeypatch.setattr(coordinator_session.AgentSession, "_say_again", nothing)
    assert undisturbed() < whole

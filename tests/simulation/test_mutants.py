"""Mutation tests of the simulation: each test removes one safeguard of the code, and a rule must break within some
seeds.

A surviving mutant shows a gap in the simulation's checks.
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
from proveout.coordinator.schedule import iteration

WITHIN = 300


def struck(seed: int, kind: str, host: str = "", for_s: float = 2.0) -> Outcome:
    """Run a seed with one fault of the kind that shows the mutant; drawn faults show it too, but take more seeds."""
    return play(seed, faults=(Fault(8.0 + seed % 20, kind, host, for_s),))


def first_bad(kind: str = "", host: str = "", for_s: float = 2.0, within: int = WITHIN) -> tuple[int, str]:
    """Return the first seed that breaks a rule, and the broken rules."""
    for seed in range(within):
        outcome = struck(seed, kind, host, for_s) if kind else play(seed)
        if outcome.wrongs:
            return seed, " ".join(outcome.wrongs)
    raise AssertionError(f"no rule broke within {within} seeds")


def test_an_agent_without_its_record_of_executed_tasks_runs_a_task_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def accept(self: Any, run: str, epoch: int, key: str, digest: str, sequence: int) -> None:
        self._db.execute("INSERT OR REPLACE INTO task VALUES (?, ?, ?, ?, NULL)", (run, epoch, key, digest))

    monkeypatch.setattr(task_journal.AgentJournal, "known", lambda *_: None)
    monkeypatch.setattr(task_journal.AgentJournal, "accept", accept)
    assert "ran 2 times" in first_bad()[1]


def test_an_agent_without_a_check_of_epochs_accepts_an_old_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_journal.AgentJournal, "highest_epoch", lambda *_: None)
    assert "after epoch" in first_bad("ghost")[1]


def test_admission_without_a_check_for_live_sessions_overlaps_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission.Admission, "_live", lambda _: None)
    assert "epoch" in first_bad("kill")[1]


def test_an_agent_without_the_end_of_its_lease_works_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def watch(_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(session.Session, "_watch_lease", watch)
    assert "after the last beat of a coordinator" in first_bad("hold", "client1", 20.0)[1]


def test_a_coordinator_that_does_not_wait_for_the_healing_of_faults_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program of a fault hangs for a minute."""
    hang = (Fault(9.0, "hang", "db1", step=1, at="command"),)
    real = iteration.unanswered
    assert play(0, faults=hang).wrongs == ()
    monkeypatch.setattr(iteration, "unanswered", lambda step: real(step) - step.faults.keys())
    assert "of another iteration" in " ".join(play(0, faults=hang).wrongs)


def test_a_coordinator_without_a_count_of_gaps_misses_lost_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    add = samples.Gathering.add

    def without_gaps(self: Any, message: Any) -> None:
        add(self, message)
        self.gaps.clear()

    monkeypatch.setattr(samples.Gathering, "add", without_gaps)
    assert "reported as lost" in first_bad("deaf", "client1", 1.5)[1]


def test_a_coordinator_without_clock_offsets_starts_loads_at_a_wrong_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_session.AgentSession, "to_agent_ns", lambda _, coordinator_ns: coordinator_ns)
    assert "late, reported" in first_bad()[1] or "no end" in first_bad()[1]


@pytest.mark.slow
def test_a_coordinator_that_does_not_resend_messages_voids_more_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost task ends with its deadline, so the run still ends; but its iteration is void, which a broken stream alone
    does not cause."""

    def nothing(self: Any) -> None:
        self._outgoing.clear()

    def undisturbed(count: int = 12) -> int:
        played = [struck(seed, "deaf", "client1") for seed in range(count)]
        return sum("IterationVoided" not in "".join(outcome.history) for outcome in played)

    whole = undisturbed()
    monkeypatch.setattr(coordinator_session.AgentSession, "_say_again", nothing)
    assert undisturbed() < whole

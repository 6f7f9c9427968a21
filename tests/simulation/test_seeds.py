"""Histories by seed: under all faults a run ends with a status, leaves no task, server or change behind, executes no
task twice, and loses no published event.

`seeds.py` runs 10,000 seeds, this file fewer. A failing seed prints the command that replays it.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import thorough
from seeds import play
from sim_faults import ON_A_LINK, ON_AN_AGENT, ON_THE_COORDINATOR, Fault
from sim_history import History

SEEDS, USUAL = 120, 10


@pytest.mark.thorough
def test_seeds() -> None:
    ends: Counter[str] = Counter()
    seeds = thorough.count(SEEDS, USUAL)
    for seed in range(seeds):
        outcome = play(seed)
        assert not outcome.wrongs, str(outcome)
        ends.update(outcome.ends)
    assert ends["finished"] > seeds // 2, f"most runs finish: {ends}"
    assert ends["failed"] or ends["interrupted"], f"the faults end some runs: {ends}"


def test_a_seed_gives_the_same_history_in_another_process() -> None:
    """Also with another hash seed: the history does not depend on the order of a set."""
    argv = [sys.executable, str(Path(__file__).with_name("seeds.py")), "--seed", "28"]
    ended = subprocess.run(argv, capture_output=True, text=True, env={"PYTHONHASHSEED": "1"}, check=True)
    here = play(28)
    assert ended.stdout.startswith("\n".join(here.history) + "\n")
    assert "RunFinished" in ended.stdout


def kinds(every: tuple[str, ...], daily: set[str]) -> list[Any]:
    """The faults of the daily suite; the others are among those of the seeds, and each by itself in the nightly one."""
    return [pytest.param(kind, marks=() if kind in daily else pytest.mark.soak) for kind in every]


@pytest.mark.parametrize("kind", kinds(ON_A_LINK + ON_AN_AGENT, {"hold", "intrude", "thief", "kill", "fill"}))
def test_one_fault_on_a_client_in_the_middle_of_an_iteration(kind: str, tmp_path: Path) -> None:
    for_s = 8.0 if kind == "fill" else 4.0  # until the next iteration begins, whose tasks are stored there
    history = History(1, tmp_path, (Fault(20.0, kind, "client1", for_s),)).run()
    assert not history.world.wrongs
    wanted = "failed" if kind == "fill" else "finished"  # a user must free a full disk; other faults are repaired
    assert [end.status for end in history.ends] == [wanted]


def test_a_lease_does_not_follow_a_wall_clock_that_is_set_back() -> None:
    outcome = play(0, faults=(Fault(14.0, "hold", "client1", 25.0), Fault(15.0, "wall", "client1")))
    assert not outcome.wrongs, str(outcome)


def test_a_healing_that_hangs_ends_the_run_and_the_next_start_of_the_agent_heals(tmp_path: Path) -> None:
    hang = Fault(9.0, "hang", "db1", step=6, at="command")
    history = History(5, tmp_path, (hang,)).run()
    assert not history.world.wrongs
    (end,) = history.ends
    assert (end.status, end.exit_code) == ("failed", 4)
    assert end.reason.startswith("fault volume could not be healed on db1: volume of a fault: /opt/lab/volume remove")


@pytest.mark.parametrize("kind", kinds(ON_THE_COORDINATOR, {"kill", "ghost", "interrupt", "fill"}))
def test_one_fault_on_the_coordinator(kind: str, tmp_path: Path) -> None:
    history = History(2, tmp_path, (Fault(20.0, kind, "", 4.0),)).run()
    assert not history.world.wrongs
    wanted = {"interrupt": ("interrupted", 130), "fill": ("failed", 4)}.get(kind, ("finished", 0))
    end = history.ends[-1]
    assert (end.status, end.exit_code) == wanted
    assert kind != "fill" or "Free some space there" in end.reason
    assert history.sittings == (2 if kind in ("kill", "ghost") else 1)


@pytest.mark.parametrize("seed", [1, 3])
def test_an_interrupt_that_comes_together_with_the_end_of_an_iteration(seed: int) -> None:
    """A stopped coordinator receives both at once after it continues, and voids the iteration before its numbers are
    computed."""
    at_s = 13.5 if seed == 1 else 12.5
    outcome = play(seed, faults=(Fault(at_s, "stop", "", 10.0), Fault(at_s + 8.0, "interrupt")))
    assert not outcome.wrongs, str(outcome)
    assert outcome.ends == ("interrupted",)

"""Histories by seed: whatever goes wrong, a run ends, says how, leaves nothing, runs nothing twice and loses nothing it has told.

`seeds.py` runs 10,000; here are enough to notice what breaks. A failing one prints how to play it again.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from seeds import play
from sim_faults import ON_A_LINK, ON_AN_AGENT, ON_THE_COORDINATOR, Fault
from sim_history import History

SEEDS = 120


def test_seeds() -> None:
    ends: Counter[str] = Counter()
    for seed in range(SEEDS):
        outcome = play(seed)
        assert not outcome.wrongs, str(outcome)
        ends.update(outcome.ends)
    assert ends["finished"] > SEEDS // 2, f"most runs get through: {ends}"
    assert ends["failed"] or ends["interrupted"], f"the faults are felt: {ends}"


def test_a_seed_gives_the_same_history_in_another_process() -> None:
    """Also with another hash seed: nothing hangs on the order of a set."""
    argv = [sys.executable, str(Path(__file__).with_name("seeds.py")), "--seed", "28"]
    ended = subprocess.run(argv, capture_output=True, text=True, env={"PYTHONHASHSEED": "1"}, check=True)
    here = play(28)
    assert ended.stdout.startswith("\n".join(here.history) + "\n")
    assert "RunFinished" in ended.stdout


@pytest.mark.parametrize("kind", ON_A_LINK + ON_AN_AGENT)
def test_one_fault_on_a_client_in_the_middle_of_an_iteration(kind: str, tmp_path: Path) -> None:
    history = History(1, tmp_path, (Fault(12.0, kind, "client1", 4.0),)).run()
    assert not history.world.wrongs
    wanted = (
        "failed" if kind == "fill" else "finished"
    )  # a full disk is for a person; what passes costs an iteration at most
    assert [end.status for end in history.ends] == [wanted]


@pytest.mark.parametrize("kind", ON_THE_COORDINATOR)
def test_one_fault_on_the_coordinator(kind: str, tmp_path: Path) -> None:
    history = History(2, tmp_path, (Fault(12.0, kind, "", 4.0),)).run()
    assert not history.world.wrongs
    wanted = {"interrupt": "interrupted", "fill": "failed"}.get(kind, "finished")
    assert history.ends[-1].status == wanted
    assert history.sittings == (2 if kind in ("kill", "ghost") else 1)

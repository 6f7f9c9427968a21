"""Screens that are killed (SIGKILL) repeatedly while runs go on, without an effect on the runs (promise 14).

Data flow: `proveout run` on a pseudo-terminal, killed as soon as it has drawn something -> `proveout watch` on the same
run, killed repeatedly until the run ends by itself -> its journal: finished, every iteration valid at its first
attempt. Then the next run.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from eventually import eventually
from live_run import plan
from terminals import Terminal

from proveout.coordinator.schedule.state import RunProgress, run_progress
from proveout.coordinator.storage.journal import is_driven, read

DRAWN_MIN_BYTES = 3000


def screen(folder: Path, *arguments: str) -> Terminal:
    """A command on a pseudo-terminal."""
    environment = {**os.environ, "TERM": "xterm-256color", "PROVEOUT_RUNS_DIR": str(folder / "runs")}
    return Terminal((sys.executable, "-m", "proveout", *arguments), folder, environment, columns=100)


def ends(drawing: Terminal, holds: Callable[[], object]) -> bool:
    """Kill a screen when `holds` is true; whether it still ran."""
    drawing.until(lambda: holds() or drawing.process.poll() is not None)
    there = drawing.process.poll() is None
    drawing.close()
    return there


def killed(count: int, progress: Callable[[int], None]) -> tuple[str, list[str]]:
    """Kill at least `count` screens of runs, one run after the other."""
    kills, runs, iterations, failures = 0, 0, 0, []
    while kills < count and not failures:
        with tempfile.TemporaryDirectory() as folder:
            died, facts, wrongs = _one_run(Path(folder), count - kills)
        kills, runs, iterations = kills + died, runs + 1, iterations + len(facts.iterations)
        failures += wrongs
        progress(kills)
    return (
        f"{kills} screens killed during {runs} runs, whose {iterations} iterations are valid at their first attempt",
        failures,
    )


def _one_run(folder: Path, wanted: int) -> tuple[int, RunProgress, list[str]]:
    (folder / "plan.yaml").write_text(plan(measure_s=20.0, repeat=2))
    first = screen(folder, "run", "plan.yaml")
    journals = (folder / "runs").glob
    kills = int(ends(first, lambda: len(first.drawn) >= DRAWN_MIN_BYTES and any(journals("*/journal.sqlite"))))
    (directory,) = (folder / "runs").iterdir()
    while is_driven(directory) and kills < wanted:
        watched = screen(folder, "watch", str(directory))
        kills += ends(watched, lambda one=watched: len(one.drawn) >= DRAWN_MIN_BYTES or not is_driven(directory))  # type: ignore[misc]
    eventually(lambda: not is_driven(directory), "the run ends")
    facts = run_progress(stamped.event for stamped in read(directory))
    wrongs = [] if facts.ended is not None and facts.ended.exit_code == 0 else [f"the run ended so: {facts.ended}"]
    wrongs += [f"void: {void.reason}" for void in facts.voided]
    wrongs += [f"{i.id}: {f.evidence}" for i in facts.iterations for f in i.findings if f.voids and not f.ok]
    return kills, facts, wrongs

"""Screens that are killed (SIGKILL) repeatedly while runs go on, without an effect on the runs (promise 14).

Data flow: `proveout run` on a pseudo-terminal, killed as soon as it has drawn something -> `proveout watch` on the same
run, killed repeatedly until the run ends by itself -> its journal: finished, every iteration valid at its first
attempt. Then the next run.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable
from pathlib import Path

from eventually import eventually
from live_run import plan

from proveout.coordinator.schedule.state import RunProgress, run_progress
from proveout.coordinator.storage.journal import is_driven, read

DRAWN_MIN_BYTES = 3000


class Screen:
    """A command on a pseudo-terminal of 100 × 30."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "PROVEOUT_RUNS_DIR": str(folder / "runs")}
        argv = [sys.executable, "-m", "proveout", *arguments]
        self.process = subprocess.Popen(
            argv, cwd=folder, env=environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        os.close(slave)
        self.drawn = b""

    def until(self, holds: Callable[[], bool]) -> bool:
        """Read its output until `holds` is true; False when it ends before."""

        def held_or_ended() -> bool:
            if select.select([self._master], [], [], 0.05)[0]:
                with contextlib.suppress(OSError):  # it has ended
                    self.drawn += os.read(self._master, 65536)
            return holds() or self.process.poll() is not None

        eventually(held_or_ended, lambda: self.drawn[-500:])
        return holds()

    def draws(self) -> bool:
        return self.until(lambda: len(self.drawn) >= DRAWN_MIN_BYTES)

    def kill(self) -> bool:
        """Send SIGKILL; return whether the process still ran."""
        there = self.process.poll() is None
        if there:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        os.close(self._master)
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
    (folder / "plan.yaml").write_text(plan(measure_s=20.0).replace("repeat: 1", "repeat: 2"))
    first = Screen(folder, "run", "plan.yaml")
    first.draws()
    first.until(lambda: bool(list((folder / "runs").glob("*/journal.sqlite"))))
    kills = int(first.kill())
    (directory,) = (folder / "runs").iterdir()
    while is_driven(directory) and kills < wanted:
        screen = Screen(folder, "watch", str(directory))
        screen.until(lambda screen=screen: len(screen.drawn) >= DRAWN_MIN_BYTES or not is_driven(directory))  # type: ignore[misc]
        kills += screen.kill()
    eventually(lambda: not is_driven(directory), "the run ends")
    facts = run_progress(stamped.event for stamped in read(directory))
    wrongs = [] if facts.ended is not None and facts.ended.exit_code == 0 else [f"the run ended so: {facts.ended}"]
    wrongs += [f"void: {void.reason}" for void in facts.voided]
    wrongs += [f"{i.id}: {f.evidence}" for i in facts.iterations for f in i.findings if f.voids and not f.ok]
    return kills, facts, wrongs

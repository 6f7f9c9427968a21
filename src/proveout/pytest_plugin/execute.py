"""Run a plan for its tests: `proveout run` in a child process, so that neither disturbs the other.

Data flow: argv -> child -> its run directory, named on a pipe (its output goes to `run.log` there) -> exit code ->
`result.json` (`proveout.result/1`). Ctrl-C and SIGTERM are handed on, and the child is waited for: it stops loads and
takes back changes first.
"""

from __future__ import annotations

import json
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from proveout.coordinator.live.run_process import RunProcess, last_lines
from proveout.core.data_classes import dataclass

JUDGED = (0, 1, 3)
"""Exit codes of a run that reached its verdicts."""
LOG_LINES = 25


class RunFailed(Exception):
    """The run reached no verdicts; the text is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRun:
    """A run that was judged: its directory, and `result.json`."""

    directory: Path
    document: dict[str, Any]

    @property
    def verdicts(self) -> dict[str, dict[str, Any]]:
        """The verdicts by id: those of the plan, and the built-in ones."""
        return {verdict["id"]: verdict for verdict in self.document["verdicts"]}


def run(arguments: Sequence[str], cwd: Path) -> PlanRun:
    """Run `proveout run ARGUMENTS`.

    RunFailed when it reaches no verdicts, KeyboardInterrupt when it was interrupted.
    """
    with tempfile.TemporaryFile() as output:
        directory, exit_code = _child(["run", *arguments], cwd, output)
        output.seek(0)
        early = output.read().decode(errors="replace").strip()
    if directory is None:
        raise RunFailed(f"the run did not begin (exit code {exit_code})\n{early}")
    if exit_code not in JUDGED:
        raise RunFailed(f"the run failed (exit code {exit_code}): {directory}\n{last_lines(directory, LOG_LINES)}")
    try:
        document = json.loads((directory / "result.json").read_text())
    except (OSError, ValueError, RecursionError) as fault:
        raise RunFailed(
            f"{directory / 'result.json'} cannot be read: {fault}\n`proveout resume {directory}` makes it again"
        ) from fault
    return PlanRun(directory=directory, document=document)


def _child(arguments: Sequence[str], cwd: Path, output: Any) -> tuple[Path | None, int]:
    with _handing_on() as interrupts:
        child = RunProcess(*arguments, output=output, cwd=cwd)
        interrupts.to(child.stop)
        directory = child.directory()
        exit_code = child.wait()
    if interrupts.seen:
        raise KeyboardInterrupt
    return directory, exit_code


class _Interrupts:
    """Forward signals to a child as SIGINT; signals that come before the child has started are forwarded then."""

    def __init__(self) -> None:
        self.seen = self._kept = False
        self._send: Callable[[], None] | None = None

    def __call__(self, number: int, frame: object) -> None:
        """Handle a signal."""
        self.seen = True
        if self._send is None:
            self._kept = True
        else:
            self._send()

    def to(self, send: Callable[[], None]) -> None:
        """The child has started."""
        self._send = send  # from here on signals are forwarded at once
        if self._kept:
            send()


@contextmanager
def _handing_on() -> Iterator[_Interrupts]:
    """Catch SIGINT and SIGTERM before the child starts: a child that misses the signal would run for ever."""
    interrupts = _Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield interrupts  # only the main thread may, and only it is interrupted
        return
    before = {number: signal.signal(number, interrupts) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

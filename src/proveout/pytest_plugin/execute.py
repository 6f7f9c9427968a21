"""One run of a plan for its tests: `proveout run` in a process of its own, so that neither disturbs the other.

Data flow: argv -> child -> its run directory, named on a pipe (what it says goes to `run.log` there) -> exit code -> `result.json`
(`proveout.result/1`). Ctrl-C and SIGTERM are handed on, and the child is waited for: it stops loads and takes back changes first.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

JUDGED = (0, 1, 3)
"""Exit codes of a run that came to its verdicts."""
LOG_LINES = 25


class RunFailed(Exception):
    """There are no verdicts; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRun:
    """A run that was judged: its directory, and `result.json`."""

    directory: Path
    document: dict[str, Any]

    @property
    def verdicts(self) -> dict[str, dict[str, Any]]:
        """By id: those of the plan, and the built-in ones."""
        return {verdict["id"]: verdict for verdict in self.document["verdicts"]}


def run(arguments: Sequence[str], cwd: Path) -> PlanRun:
    """Run `proveout run ARGUMENTS`. RunFailed when it does not come to verdicts, KeyboardInterrupt when it was interrupted."""
    with tempfile.TemporaryFile() as said:
        directory, exit_code = _child(["run", *arguments, "--headless"], cwd, said)
        said.seek(0)
        early = said.read().decode(errors="replace").strip()
    if directory is None:
        raise RunFailed(f"the run did not begin (exit code {exit_code})\n{early}")
    if exit_code not in JUDGED:
        raise RunFailed(f"the run failed (exit code {exit_code}): {directory}\n{_tail(directory / 'run.log')}")
    return PlanRun(directory=directory, document=json.loads((directory / "result.json").read_text()))


def _child(arguments: Sequence[str], cwd: Path, said: Any) -> tuple[Path | None, int]:
    reading, writing = os.pipe()
    argv = [sys.executable, "-m", "proveout", *arguments, "--tell-fd", str(writing)]
    child = subprocess.Popen(
        argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=said, stderr=said, pass_fds=(writing,), start_new_session=True
    )
    os.close(writing)
    with _handing_on(child.send_signal) as interrupted, os.fdopen(reading, "rb") as pipe:
        line = pipe.readline()
        exit_code = child.wait()
    if interrupted():
        raise KeyboardInterrupt
    return (Path(os.fsdecode(line[:-1])) if line.endswith(b"\n") else None), exit_code


@contextmanager
def _handing_on(send: Callable[[int], None]) -> Iterator[Callable[[], bool]]:
    """Signals go to the child; gives whether there was one."""
    seen: list[int] = []

    def hand_on(number: int, _: object) -> None:
        seen.append(number)
        send(signal.SIGINT)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # only the main thread may, and only it is interrupted
        return
    before = {number: signal.signal(number, hand_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(seen)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tail(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError as fault:
        return f"{log.name} cannot be read: {fault.strerror}"
    return "\n".join(lines[-LOG_LINES:])

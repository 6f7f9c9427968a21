"""`proveout run` or `resume` as a child process that names its run directory: for screen, pytest and Python API.

Data flow: arguments -> a child with `--headless` and `--tell-fd` -> when it holds the run's lock it names its directory
on that descriptor and writes its lines to `run.log` there -> its exit code. The child has a session of its own: a
caller that is killed takes nothing with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import IO

from proveout.core import child_process

LOG = "run.log"


class RunProcess:
    """The child. Its lines go to `output` until it has a directory, by default to that of the caller: above all the
    error when it does not start."""

    def __init__(self, *arguments: str, output: IO[bytes] | None = None, cwd: Path | None = None) -> None:
        reading, writing = os.pipe()
        try:
            self._process = subprocess.Popen(
                child_process.coordinator(*arguments, "--headless", "--tell-fd", str(writing)),
                cwd=cwd,
                env=child_process.coordinator_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(writing,),
                start_new_session=True,
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        self._reading = reading

    def directory(self) -> Path | None:
        """The directory that the child names, once; None when it ends without one. Blocks until then."""
        with os.fdopen(self._reading, "rb") as pipe:
            line = pipe.readline()
        return Path(os.fsdecode(line[:-1])) if line.endswith(b"\n") else None

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End the run as Ctrl-C does: loads stop and changes are taken back."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)

    def wait(self, timeout_s: float | None = None) -> int:
        """Its exit code, negative for a signal. TimeoutError when it runs for longer."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError from None


def last_lines(directory: Path, count: int) -> str:
    """The last lines that the child wrote, or why they cannot be read."""
    try:
        lines = (directory / LOG).read_text(errors="replace").splitlines()
    except OSError as fault:
        return f"{LOG} cannot be read: {fault.strerror}"
    return "\n".join(lines[-count:])

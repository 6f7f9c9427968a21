"""Programs that an agent starts for a tuning: argv in, exit code and output out. No shell, an empty environment, a deadline.

Whether a program may be started is the policy's to say, and was asked before it comes to this.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Protocol

from proveout.agent.daemon.tasks import TaskFault
from proveout.core import child_process
from proveout.dsl.operations.facts import Output

TIMEOUT_S = 60.0
OUTPUT_MAX = 1024 * 1024
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "LANG": "C"}


class Tools(Protocol):
    """Whoever starts programs."""

    def run(self, argv: Sequence[str]) -> Output:
        """Run it to its end. TaskFault when it is not there or does not end."""
        ...


class Processes:
    """The real one. One thread runs programs, one after the other; another may interrupt the one that runs."""

    def __init__(self) -> None:
        self._running: subprocess.Popen[bytes] | None = None

    def interrupt(self) -> None:
        """Kill the program that runs now, if one does: whoever waits for it is told that it failed."""
        running = self._running
        if running is not None:
            running.kill()

    def run(self, argv: Sequence[str]) -> Output:
        """Run it to its end; what it says on standard error comes last."""
        try:
            with subprocess.Popen(
                list(argv),
                env=ENVIRONMENT,
                cwd=child_process.DIRECTORY,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            ) as process:
                self._running = process
                return _output(process)
        except FileNotFoundError:
            raise TaskFault("missing", f"{argv[0]} is not on this host") from None
        except subprocess.TimeoutExpired:
            raise TaskFault("timeout", f"{argv[0]} did not end within {TIMEOUT_S:g} s") from None
        except OSError as error:
            raise TaskFault("refused", f"{argv[0]} cannot be started: {error.strerror}") from None
        finally:
            self._running = None


def _output(process: subprocess.Popen[bytes]) -> Output:
    try:
        out, err = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    said = out[:OUTPUT_MAX] + (b"\n" + err[:OUTPUT_MAX] if process.returncode and err else b"")
    return Output(code=process.returncode, text=said.decode("utf-8", errors="replace"))


def must(tools: Tools, argv: Sequence[str]) -> str:
    """Run a program that has to succeed; its output. TaskFault with its last words."""
    done = tools.run(argv)
    if done.code != 0:
        last = (done.text.strip().splitlines() or ["it said nothing"])[-1][:300]
        raise TaskFault("fault", f"{' '.join(argv)} failed with exit code {done.code}: {last}")
    return done.text

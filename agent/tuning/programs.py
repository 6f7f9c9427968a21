"""Programs that an agent runs for a tuning: argv in, exit code and output out.

No shell, a fixed environment, a deadline.

The caller has checked the policy before it runs a program.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Protocol

from proveout.agent.errors import TaskFault
from proveout.core import child_process
from proveout.dsl.operations.change import WITHIN_S
from proveout.dsl.operations.facts import Output

OUTPUT_MAX = 1024 * 1024
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "LANG": "C"}


class Tools(Protocol):
    """Runs programs."""

    def run(self, argv: Sequence[str], within_s: float = WITHIN_S) -> Output:
        """Run a program to its end. TaskFault if it is missing or does not end in time."""
        ...


class Processes:
    """Runs programs as child processes. One thread runs them one after the other; another thread may interrupt."""

    def __init__(self) -> None:
        self._running: subprocess.Popen[bytes] | None = None

    def interrupt(self) -> None:
        """Kill the running program, if there is one; `run` then reports its failure."""
        running = self._running
        if running is not None:
            running.kill()

    def run(self, argv: Sequence[str], within_s: float = WITHIN_S) -> Output:
        """Run a program to its end. Standard error follows standard output in the result."""
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
                return _output(process, within_s)
        except FileNotFoundError:
            raise TaskFault("missing", f"{argv[0]} is not on this host") from None
        except subprocess.TimeoutExpired:
            raise TaskFault("timeout", f"{argv[0]} did not end within {within_s:g} s") from None
        except OSError as error:
            raise TaskFault("refused", f"cannot start {argv[0]}: {error.strerror}") from None
        finally:
            self._running = None


def _output(process: subprocess.Popen[bytes], within_s: float) -> Output:
    try:
        out, err = process.communicate(timeout=within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    text = out[:OUTPUT_MAX] + (b"\n" + err[:OUTPUT_MAX] if process.returncode and err else b"")
    return Output(code=process.returncode, text=text.decode("utf-8", errors="replace"))


def must(tools: Tools, argv: Sequence[str], *, within_s: float = WITHIN_S, already: Sequence[str] = ()) -> str:
    """Run a program that must succeed; returns its output. TaskFault with its last line.

    An output with one of the texts `already` is a success too."""
    done = tools.run(argv, within_s)
    if done.code != 0 and not any(text in done.text for text in already):
        last = (done.text.strip().splitlines() or ["it wrote no message"])[-1][:300]
        raise TaskFault("fault", f"{' '.join(argv)} failed with exit code {done.code}: {last}")
    return done.text

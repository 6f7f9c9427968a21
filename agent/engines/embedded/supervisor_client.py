"""The agent's client of a supervisor process (see `supervisor`): start it, send requests, get its report when the
server dies, end it.

Flow: `SupervisorClient(on_exit)` starts the process; `request(…)` writes a request and waits for its answer; a reader
thread reads the answers and calls `on_exit(text)` when the server, or the supervisor itself, ends without a request.
Methods block: asynchronous callers use `asyncio.to_thread`.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proveout.agent.engines.embedded import supervisor
from proveout.agent.engines.embedded.confinement import Access
from proveout.agent.errors import TaskFault
from proveout.core import child_process
from proveout.core.framing import json_line

ANSWER_S = 10.0
GONE = "the supervisor process of the database server is gone"
END_S = supervisor.FAST_S + 3 * supervisor.IMMEDIATE_S


class SupervisorClient:
    """A running supervisor. All methods are safe to call from several threads, and after the supervisor's end."""

    def __init__(self, on_exit: Callable[[str], None]) -> None:
        self._on_exit = on_exit
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._asking = threading.Lock()
        self._ending = self._gone = False
        self._sent = 0
        self._process = subprocess.Popen(
            # -S too: the supervisor uses the standard library alone
            [sys.executable, "-I", "-S", supervisor.__file__, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            cwd=child_process.DIRECTORY,
            env=child_process.environment(),
        )
        self._reader = threading.Thread(target=self._read, name="supervisor", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The supervisor's process id."""
        return self._process.pid

    @property
    def lives(self) -> bool:
        """Whether the process runs. Its pipe ends before the kernel reports its end."""
        return not self._gone and self._process.poll() is None

    def request(self, do: str, *, timeout_s: float = ANSWER_S, **fields: Any) -> dict[str, Any]:
        """Return the answer to a request (`supervisor.Supervisor.answer`); TaskFault on an error, a lost supervisor or
        no answer in time."""
        with self._asking:
            self._sent += 1
            self._send({"id": self._sent, "do": do, **fields})
            answer = self._answer(self._sent, do, timeout_s)
        if "error" in answer:
            raise TaskFault("fault", f"{do}: {answer['error']}")
        return answer

    def run(
        self,
        argv: list[str],
        environment: dict[str, str],
        *,
        limit_s: float,
        identity: str | tuple[int, int],
        access: Access | None = None,
        database: tuple[str, str] | None = None,
    ) -> str:
        """Run a program under the supervisor; return its output (stdout and stderr, the last 16 KiB). TaskFault when it
        fails.

        `access` lists the files that it may use, None for no limit. `database` is for a program that makes a data
        directory: that directory, and the name of the server's program.
        """
        answer = self.request(
            "run",
            timeout_s=limit_s + ANSWER_S,
            limit_s=limit_s,
            argv=argv,
            environment=environment,
            identity=identity,
            access=access,
            database=database,
        )
        name, output = Path(argv[0]).name, str(answer["output"]).strip()
        if answer["timed_out"]:
            raise TaskFault("timeout", f"{name} did not end within {limit_s:.0f} s: {output}")
        if answer["status"] != 0:
            code = "disk_full" if "No space left on device" in output else "fault"
            raise TaskFault(code, f"{name} failed ({ending(answer['status'])}): {output}")
        return output

    def _answer(self, number: int, do: str, timeout_s: float) -> dict[str, Any]:
        """Return the answer to request `number`, and skip late answers to requests that have timed out."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                answer = self._answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise TaskFault("timeout", f"the supervisor did not answer {do!r} within {timeout_s:.0f} s") from None
            if answer is None:
                self._answers.put(None)
                raise TaskFault("fault", GONE)
            if answer["id"] == number:
                return answer

    def _send(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None  # noqa: S101 - Popen was given a pipe
        try:
            self._process.stdin.write(json_line(request))
            self._process.stdin.flush()
        except (OSError, ValueError):
            raise TaskFault("fault", GONE) from None

    def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - Popen was given a pipe
        for line in self._process.stdout:
            message = json.loads(line)
            if message.get("event") == "exited":
                self._on_exit(f"the server process ended by itself ({ending(message['status'])})")
            else:
                self._answers.put(message)
        self._gone = True
        self._answers.put(None)
        if not self._ending:
            self._on_exit("its supervisor process was killed, and the server was stopped with it")

    def end(self) -> None:
        """End the supervisor, which stops the server and removes its directories; kill it when it does not end.
        Idempotent."""
        self._ending = True
        assert self._process.stdin is not None and self._process.stdout is not None  # noqa: S101 - Popen was given pipes
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(1.0)
        self._process.stdout.close()


def ending(status: int | None) -> str:
    """Return how a process ended, for people: `signal SIGKILL`, `exit code 1`."""
    if status is None:
        return "unknown status"
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"

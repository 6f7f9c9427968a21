"""Run an outside program: prepare it, start it at an instant, read its output line by line, kill it with its children.

Flow: `Program.arm(argv, folder, privileges)` -> a waiting `program_launcher` -> `go()` -> `lines()` until the program
ends -> `ended()`, its exit code. Callers always call `kill()` at the end. The program also ends with its agent
(`program_launcher`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from proveout.agent.errors import TaskFault
from proveout.agent.sandbox.privileges import Privileges
from proveout.agent.tools.program_launcher import READY
from proveout.core import child_process

MODULE = "proveout.agent.tools.program_launcher"
ARM_S = 60.0
LINE_MAX = 1 << 20
WORDS_MAX = 12
WORD_LENGTH_MAX = 300


class Program:
    """One outside program."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None and process.stdout is not None  # noqa: S101 - PIPE
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout
        self._words: deque[str] = deque(maxlen=WORDS_MAX)
        self._reader = asyncio.create_task(self._read_stderr())

    @classmethod
    async def arm(cls, argv: Sequence[str], folder: Path, privileges: Privileges) -> Program:
        """Prepare the program to start in `folder` with these privileges. TaskFault if that fails."""
        process = await asyncio.create_subprocess_exec(
            *child_process.python(MODULE, str(os.getpid()), privileges.to_argument(), *argv),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd=folder,
            env=child_process.environment(),
            limit=LINE_MAX,
            start_new_session=True,
        )
        program = cls(process)
        try:
            async with asyncio.timeout(ARM_S):
                if await program._stdout.readline() != READY:
                    await process.wait()
                    await program._reader
                    raise TaskFault("fault", f"cannot start {argv[0]}: {program.words or 'it wrote no message'}")
        except TimeoutError:
            await program.kill()
            raise TaskFault("timeout", f"{argv[0]} was not ready within {ARM_S:.0f} s") from None
        except BaseException:
            await program.kill()
            raise
        return program

    @property
    def words(self) -> str:
        """The last lines of standard error."""
        return "; ".join(self._words)

    async def go(self) -> None:
        """Start the program. If its process has ended, reading its output reports that."""
        with contextlib.suppress(ConnectionError):
            self._stdin.write(b"\n")
            await self._stdin.drain()

    async def lines(self) -> AsyncIterator[str]:
        """Standard output, line by line, until the program ends. TaskFault `fault` for a line above the limit."""
        while True:
            try:
                line = await self._stdout.readline()
            except ValueError:
                raise TaskFault("fault", f"a line of the program's output is longer than {LINE_MAX} bytes") from None
            if not line:
                return
            yield line.decode(errors="replace")

    async def ended(self) -> int:
        """Wait for the end; the exit code, or minus the number of the signal that ended the program."""
        code = await self._process.wait()
        await self._reader
        return code

    async def kill(self) -> None:
        """Kill the program and its children; idempotent."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(ConnectionError, RuntimeError):
            self._stdin.close()
        await self._process.wait()
        await self._reader

    async def _read_stderr(self) -> None:
        assert self._process.stderr is not None  # noqa: S101 - PIPE
        with contextlib.suppress(ValueError):  # a line longer than the limit
            while line := await self._process.stderr.readline():
                if text := line.decode(errors="replace").strip():
                    self._words.append(text[:WORD_LENGTH_MAX])

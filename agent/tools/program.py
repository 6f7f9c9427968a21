"""An outside program, seen from the agent: armed, started at an instant, read line by line, killed with all that it has started.

Flow: `Program.arm(argv, folder, told)` -> a `starter` that waits -> `go()` -> `lines()` until it ends -> `ended()`, its exit code. Whatever
happens, `kill()` is called at the end; the agent's own death kills it too (see `starter`).
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

from proveout.agent.daemon.tasks import TaskFault
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
        self._listener = asyncio.create_task(self._listen())

    @classmethod
    async def arm(cls, argv: Sequence[str], folder: Path, told: str) -> Program:
        """Have it ready to start in `folder` with the privileges that `told` leaves. TaskFault when that fails."""
        process = await asyncio.create_subprocess_exec(
            *child_process.python(MODULE, str(os.getpid()), told, *argv),
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
                    await program._listener
                    raise TaskFault("fault", f"{argv[0]} cannot be started: {program.words or 'it says nothing'}")
        except TimeoutError:
            await program.kill()
            raise TaskFault("timeout", f"{argv[0]} was not ready within {ARM_S:.0f} s") from None
        except BaseException:
            await program.kill()
            raise
        return program

    @property
    def words(self) -> str:
        """The last lines that it wrote to standard error."""
        return "; ".join(self._words)

    async def go(self) -> None:
        """Start it now; one that is gone shows when it is read."""
        with contextlib.suppress(ConnectionError):
            self._stdin.write(b"\n")
            await self._stdin.drain()

    async def lines(self) -> AsyncIterator[str]:
        """What it writes to standard output, line by line, until it ends. TaskFault `fault` for a line without end."""
        while True:
            try:
                line = await self._stdout.readline()
            except ValueError:
                raise TaskFault("fault", f"a line of its output is longer than {LINE_MAX} bytes") from None
            if not line:
                return
            yield line.decode(errors="replace")

    async def ended(self) -> int:
        """Its exit code, when it has ended; below zero: the signal that ended it."""
        code = await self._process.wait()
        await self._listener
        return code

    async def kill(self) -> None:
        """End it and all that it has started; idempotent."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(ConnectionError, RuntimeError):
            self._stdin.close()
        await self._process.wait()
        await self._listener

    async def _listen(self) -> None:
        assert self._process.stderr is not None  # noqa: S101 - PIPE
        with contextlib.suppress(ValueError):  # a line longer than the limit
            while line := await self._process.stderr.readline():
                if text := line.decode(errors="replace").strip():
                    self._words.append(text[:WORD_LENGTH_MAX])

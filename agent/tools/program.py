"""Run an outside program of a plan: find it in the policy, start it at an instant, read its output, kill its
children.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from proveout.agent.engines.postgres.installation import find_installation
from proveout.agent.errors import TaskFault
from proveout.agent.sandbox import privileges as accounts
from proveout.agent.sandbox.privileges import INHERITED, Privileges
from proveout.agent.security.policy import Policy
from proveout.agent.tools.program_launcher import ENVIRONMENT, HEAD, ONCE, OUTPUT_MAX, READY, REPEAT
from proveout.core import child_process, linux


def listed_program(
    policy: Policy, argv: Sequence[str], patterns: Sequence[str] = (), *, in_forms: bool = False
) -> tuple[tuple[str, ...], bool]:
    """The argv with the path of its program, and whether it runs as the agent's own user. TaskFault `refused`, with the
    line for the policy, as `Policy.command`."""
    return policy.command(argv, "" if argv[0].startswith("/") else _place(argv[0]), patterns, in_forms=in_forms)


def _place(name: str) -> str:
    """The path of a program on this host: in PATH, or beside the embedded PostgreSQL; "" if there is none."""
    if found := shutil.which(name, path=ENVIRONMENT["PATH"]):
        return found
    try:
        beside = find_installation().programs / name
    except TaskFault:
        return ""
    return str(beside) if beside.is_file() else ""


# `ToolFolder.enter(base, uid)` makes the folder for the files of a tool, locked while the agent runs; `close` removes
# it. A folder that a killed agent has left is not locked: the next agent with the same `base` removes it.

MODULE = "proveout.agent.tools.program_launcher"
ARM_S = 60.0
KILL_S = 10.0
LINE_MAX = 1 << 20
WORDS_MAX = 12
WORD_LENGTH_MAX = 300


def how_ended(code: int) -> str:
    """An exit code, or minus the number of a signal, in words."""
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


def unprivileged() -> Privileges:
    """The privileges of an outside program: the unprivileged user, no supplementary group, no capability."""
    user = accounts.account()
    return INHERITED if user is None else Privileges(uid=user.uid, gid=user.uid, group=user.uid)


class Program:
    """One outside program."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None and process.stdout is not None  # noqa: S101 - PIPE
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout
        self._words: deque[str] = deque(maxlen=WORDS_MAX)
        self._killed = False
        self.pid = 0
        """The process id of the program; of its launcher in mode `repeat`."""
        self._reader = asyncio.create_task(self._read_stderr())

    @classmethod
    async def arm(
        cls,
        argv: Sequence[str],
        folder: Path,
        privileges: Privileges,
        variables: Mapping[str, str] = MappingProxyType({}),
        *,
        repeats: bool = False,
    ) -> Program:
        """Prepare the program to start in `folder` with these privileges, once or by `again`. TaskFault if that fails.

        `variables`: those that the program gets beside its fixed environment: `program_launcher.PASSED` and LOAD_….
        """
        process = await asyncio.create_subprocess_exec(
            *child_process.python(
                MODULE, str(os.getpid()), privileges.to_argument(), REPEAT if repeats else ONCE, *argv
            ),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd=folder,
            env={**child_process.environment(), **variables},
            limit=LINE_MAX,
            start_new_session=True,
        )
        program = cls(process)
        try:
            async with asyncio.timeout(ARM_S):
                ready, _, pid = (await program._stdout.readline()).partition(b" ")
                program.pid = int(pid) if ready == READY.split()[0] else 0
                if not program.pid:
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

    async def output(self, longest: int) -> bytes:
        """Standard output until the program ends. TaskFault `fault` when it is longer than `longest` bytes."""
        parts, size = [], 0
        while part := await self._stdout.read(65_536):
            size += len(part)
            if size > longest:
                what = f"its output is longer than {longest:,} bytes"
                raise TaskFault("fault", what, way_out="let it print less often, as sysbench by --report-interval")
            parts.append(part)
        return b"".join(parts)

    async def again(self) -> tuple[int, bytes, str]:
        """Run the program once, in mode `repeat`: its exit code (or minus its signal), its output, and the last words
        of its standard error. TaskFault `fault` for an output that is too long."""
        await self.go()
        try:
            code, size, words = HEAD.unpack(await self._stdout.readexactly(HEAD.size))
            output = await self._stdout.readexactly(size)
            last = (await self._stdout.readexactly(words)).decode(errors="replace")
        except asyncio.IncompleteReadError:
            raise TaskFault("fault", f"its launcher has ended: {self.words or 'it wrote no message'}") from None
        if size > OUTPUT_MAX:
            raise TaskFault("fault", f"its output is longer than {OUTPUT_MAX:,} bytes")
        lines = [line[:WORD_LENGTH_MAX] for line in map(str.strip, last.splitlines()) if line]
        return code, output, "; ".join(lines[-WORDS_MAX:])

    async def ended(self) -> int:
        """Wait for the end; the exit code, or minus the number of the signal that ended the program. A child that it
        leaves running is killed: it may hold the standard error, without whose end asyncio sees none of the process."""
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            await _exit_of(self._process.pid)
        self._kill_group()
        code = await self._process.wait()
        self._kill_group()
        await self._reader
        return code

    def _kill_group(self) -> None:
        """Kill the program and its children; once after its end: its number may be that of another program later."""
        if not self._killed:
            self._killed = self._process.returncode is not None
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def kill(self) -> None:
        self._kill_group()
        with contextlib.suppress(ConnectionError, RuntimeError):
            self._stdin.close()
        with contextlib.suppress(TimeoutError):  # a child in a session of its own may hold the output
            async with asyncio.timeout(KILL_S):
                while await self._stdout.read(LINE_MAX):  # asyncio sees the end of a process after that of its output
                    pass
                await self._process.wait()
                await self._reader

    async def _read_stderr(self) -> None:
        assert self._process.stderr is not None  # noqa: S101 - PIPE
        while not self._process.stderr.at_eof():
            with contextlib.suppress(ValueError):  # a line longer than the limit; asyncio drops what was read
                if text := (await self._process.stderr.readline()).decode(errors="replace").strip():
                    self._words.append(text[:WORD_LENGTH_MAX])


async def _exit_of(pid: int) -> None:
    """Wait until a process has ended. ProcessLookupError if there is none."""
    loop, ended, descriptor = asyncio.get_running_loop(), asyncio.Event(), os.pidfd_open(pid)
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


PREFIX = "proveout-tool-"
_TRIES = 20


class ToolFolder:
    """A locked folder (a `tasks.Resource`)."""

    def __init__(self, path: Path, descriptor: int, *, is_last: bool = False) -> None:
        self.path, self._descriptor, self._is_last = path, descriptor, is_last
        self.made: set[tuple[int, int]] = set()
        """Complete sets of files: (number of files, bytes of each)."""

    def has(self, files: int, size_bytes: int) -> bool:
        """Whether there are enough complete files of at least that size."""
        return any(count >= files and size >= size_bytes for count, size in self.made)

    @classmethod
    def enter(cls, base: Path, uid: int | None, *, is_last: bool = False) -> ToolFolder:
        """Create a folder below `base` for the user `uid`.

        Blocking. TaskFault if that fails. `is_last`: an empty `base` is removed too.
        """
        try:
            sweep(base)
            for _ in range(_TRIES):
                path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
                descriptor = _lock(path)
                if descriptor is None:  # another agent removed it before it was locked
                    continue
                made = cls(path, descriptor, is_last=is_last)
                try:
                    if uid is not None:
                        os.fchown(descriptor, uid, uid)
                except OSError:  # as on NFS that knows no root
                    made.leave()
                    raise
                return made
        except OSError as error:
            code = "disk_full" if error.errno == 28 else "invalid"
            way_out = "name an existing folder that the agent may write"
            raise TaskFault(code, f"cannot create a folder in {base}: {error.strerror}", way_out=way_out) from None
        raise TaskFault(
            "fault", f"new folders in {base} disappear", way_out="find out which program removes folders there"
        )

    def free_bytes(self) -> int:
        found = os.fstatvfs(self._descriptor)
        return found.f_bavail * found.f_frsize

    def used_bytes(self) -> int:
        return sum(item.stat(follow_symlinks=False).st_blocks * 512 for item in os.scandir(self._descriptor))

    async def close(self, *, keep_data: bool) -> None:
        """Remove the folder, also with `keep_data`: its files have no use after the run."""
        await asyncio.to_thread(self.leave)

    def leave(self) -> None:
        """Remove the folder; idempotent."""
        if self._descriptor >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._descriptor)
            self._descriptor = -1
            if self._is_last:
                with contextlib.suppress(OSError):
                    self.path.parent.rmdir()


def sweep(base: Path) -> None:
    """Remove unlocked folders of killed agents in `base`; an agent that is not root removes only its own."""
    owners = {os.geteuid()} if os.geteuid() else None
    for path in base.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if owners is not None and path.lstat().st_uid not in owners:
                continue
            descriptor = _lock(path)
            if descriptor is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(descriptor)


def _lock(path: Path) -> int | None:
    """Lock the folder; returns its descriptor, or None if another process has the lock or the folder is missing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if linux.lock(descriptor) and os.path.samestat(os.fstat(descriptor), path.lstat()):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None

"""Agents of hosts whose address is `local`: children of the coordinator on loopback, with a PKI of their own.

Flow: `start(hosts, log_dir)` makes one private directory (0700) in the temporary directory, in it `agent-<host>/` with
that agent's certificate, and starts one process per host on an ephemeral port of 127.0.0.1; each child says on its
standard output where it listens. The coordinator's key and the authority's never touch the disk.

An agent removes its own directory, and the shared one when it was the last, as soon as its session has ended, by a
Goodbye or because its lease did: so nothing is left when the coordinator is killed. `close()` does the same for agents that
could not.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from proveout.coordinator.pki import Authority, Credentials
from proveout.dsl.errors import ProveoutError

READY_S = 30.0
LEAVE_S = 2.0
STOP_S = 20.0
GROUP_S = 5.0
POLL_S = 0.05
LOOPBACK = "127.0.0.1"
COMMAND = (sys.executable, "-m", "proveout.agent")


class LocalAgentError(ProveoutError):
    """A local agent did not start; its log says why."""


class LocalFabric:
    """The local agents of one run. `command` starts an agent; the arguments that it needs are added.

    `policy` is the file that says what they may change on this machine; without one they change nothing. `hidden` are variables
    of the environment that they do not get: those that hold secrets, which agents are told in tasks and workers on their pipes.
    """

    def __init__(
        self, command: Sequence[str] = COMMAND, policy: Path | None = None, hidden: Collection[str] = ()
    ) -> None:
        self._hidden = frozenset(hidden)
        self._policy = policy
        self._command = tuple(command)
        self._authority = Authority.create()
        self._directory: Path | None = None
        self._children: list[asyncio.subprocess.Process] = []
        self.credentials: Credentials = self._authority.issue_coordinator()

    @property
    def directory(self) -> Path | None:
        """The private directory, while there is one."""
        return self._directory

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the agents that were started."""
        return tuple(child.pid for child in self._children)

    async def start(self, hosts: Sequence[str], log_dir: Path) -> Mapping[str, str]:
        """Start an agent for each host, logging to `log_dir/agent-<host>.log`; `host -> address`. LocalAgentError.

        May be called again for a host whose agent was lost.
        """
        await asyncio.to_thread(log_dir.mkdir, parents=True, exist_ok=True)
        addresses = await asyncio.gather(*(self._start(host, log_dir) for host in hosts), return_exceptions=True)
        for outcome in addresses:
            if isinstance(outcome, BaseException):
                raise outcome
        return {host: address for host, address in zip(hosts, addresses, strict=True) if isinstance(address, str)}

    async def close(self) -> None:
        """End what is left, the patient way first, and remove the private directory. Idempotent."""
        await asyncio.gather(*(_end(child) for child in self._children))
        self._children.clear()
        if self._directory is not None:
            await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)
            self._directory = None

    async def _start(self, host: str, log_dir: Path) -> str:
        home = self._home(host)
        self._authority.write_agent(home, host, [LOOPBACK])
        log = log_dir / f"agent-{host}.log"
        arguments = ["--local", "--name", host, "--pki", str(home), "--listen", f"{LOOPBACK}:0"]
        arguments += ["--policy", str(self._policy)] if self._policy is not None else []
        with log.open("ab") as stream:
            # A session of its own: Ctrl-C on the terminal is the coordinator's to act on, not the agents'.
            child = await asyncio.create_subprocess_exec(
                *self._command,
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=stream,
                start_new_session=True,
                env={name: value for name, value in os.environ.items() if name not in self._hidden},
            )
        self._children.append(child)
        return await _ready(child, host, log)

    def _home(self, host: str) -> Path:
        if self._directory is None or not self._directory.exists():
            self._directory = Path(tempfile.mkdtemp(prefix="proveout-"))
        # Numbered: an agent that was lost may still be cleaning up its own directory when its successor starts.
        return self._directory / f"agent-{host}-{len(self._children) + 1}"


async def _ready(child: asyncio.subprocess.Process, host: str, log: Path) -> str:
    """The address that the child says it listens at."""
    assert child.stdout is not None  # noqa: S101 -- it was made with a pipe
    try:
        line = await asyncio.wait_for(child.stdout.readline(), READY_S)
    except TimeoutError:
        line = b""
    word, _, address = line.decode(errors="replace").strip().partition(" ")
    if word == "listening" and address:
        return address
    raise LocalAgentError(
        f"the local agent did not start: {_last_line(log)}",
        where=f"host {host}",
        way_out=f"Its log is {log}.",
    )


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


async def _end(child: asyncio.subprocess.Process) -> None:
    """Let it leave by itself, then ask, then insist; then whatever it has left behind in its session."""
    if not await _gone(child, LEAVE_S):
        # It may go just before it is asked to.
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
        if not await _gone(child, STOP_S):
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()
    await _end_group(child.pid)


async def _gone(child: asyncio.subprocess.Process, timeout_s: float) -> bool:
    try:
        await asyncio.wait_for(child.wait(), timeout_s)
    except TimeoutError:
        return False
    return True


async def _end_group(group: int) -> None:
    """Processes that an agent killed outright could not end: SIGINT stops a database server fast, SIGKILL the rest."""
    until_s = time.monotonic() + GROUP_S
    if not _signal_group(group, signal.SIGINT):
        return
    while time.monotonic() < until_s:
        await asyncio.sleep(POLL_S)
        if not _signal_group(group, 0):
            return
    _signal_group(group, signal.SIGKILL)


def _signal_group(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # gone, and perhaps the number is somebody else's by now
        return False
    return True

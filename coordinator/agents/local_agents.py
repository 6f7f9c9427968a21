"""Agents of hosts with `address: local`: child processes of the coordinator on loopback, with a PKI of their own.

Flow: `start(hosts, log_dir)` makes one private directory (`directories`), and starts one process per host on an
ephemeral port of 127.0.0.1, isolated (`child_process`). Each child reads its certificate and key from its standard
input, keeps its state in `agent-<host>-<number>/` of the private directory, and prints its address to its standard
output. Keys are in no file.

An agent removes its state, and the last agent the private directory, when its session ends, by a Goodbye or with its
lease. `close()` does the same for agents that did not. The agents inherit the directory's lock: when all of them and
the coordinator are killed, the next `proveout` command removes the directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from proveout.coordinator.certificates import Authority, Credentials
from proveout.coordinator.schedule.setup_stages import joins_cluster
from proveout.core import child_process, directories
from proveout.core.directories import PrivateDirectory
from proveout.core.errors import ProveoutError
from proveout.dsl.plan.plan import Plan

READY_S = 30.0
LEAVE_S = 2.0
STOP_S = 20.0
GROUP_S = 5.0
POLL_S = 0.05
LOOPBACK = "127.0.0.1"
_RECORD = re.compile(r"\d{4}-\d\d-\d\d \d\d:")
COMMAND = child_process.python("proveout.agent")


class LocalAgentError(ProveoutError):
    """A local agent did not start; the reason is in its log."""


class LocalFabric:
    """The local agents of one run. `command` starts an agent; the arguments that it needs are added.

    `policy` is the file that says what they may change on this machine; without one they change nothing. `hidden` are
    variables that hold secrets: agents do not get them, even when `PROVEOUT_PASS_ENV` names them. `passed` are
    variables that they get beside the usual ones (`child_process.NAMES`).
    """

    def __init__(
        self,
        command: Sequence[str] = COMMAND,
        policy: Path | None = None,
        hidden: Collection[str] = (),
        passed: Sequence[str] = (),
    ) -> None:
        self._hidden, self._passed = frozenset(hidden), tuple(passed)
        self._policy = policy
        self._command = tuple(command)
        self._authority = Authority.create()
        self._private: PrivateDirectory | None = None
        self._children: list[asyncio.subprocess.Process] = []
        self.credentials: Credentials = self._authority.issue_coordinator()

    @property
    def directory(self) -> Path | None:
        """The private directory; None when there is none."""
        return self._private.path if self._private is not None else None

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
        """End the remaining agents, gracefully first, and remove the private directory. Idempotent."""
        await asyncio.gather(*(_end(child) for child in self._children))
        self._children.clear()
        if self._private is not None:
            private, self._private = self._private, None
            await asyncio.to_thread(private.close)

    async def _start(self, host: str, log_dir: Path) -> str:
        private = self._opened()
        # Numbered: an agent that was lost may still be cleaning up its own directory when its successor starts.
        state = private.path / f"agent-{host}-{len(self._children) + 1}"
        log = log_dir / f"agent-{host}.log"
        arguments = ["--local", "--name", host, "--state-dir", str(state), "--listen", f"{LOOPBACK}:0"]
        arguments += ["--policy", str(self._policy.absolute())] if self._policy is not None else []
        with log.open("ab") as stream:
            stream.write(_not_passed_on(self._passed))
            stream.flush()
            # A session of its own: Ctrl-C on the terminal interrupts only the coordinator.
            child = await asyncio.create_subprocess_exec(
                *self._command,
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stream,
                start_new_session=True,
                cwd=child_process.DIRECTORY,
                env=child_process.environment(*self._passed, without=self._hidden),
                pass_fds=(private.descriptor,),
            )
        self._children.append(child)
        _hand_over(child, self._authority.issue(f"agent/{host}", [LOOPBACK]))
        return await _ready(child, host, log)

    def _opened(self) -> PrivateDirectory:
        """The private directory; a new one when the last agent has removed it."""
        if self._private is None or not self._private.path.exists():
            if self._private is not None:
                self._private.close()
            self._private = directories.make("agents")
        return self._private


def _hand_over(child: asyncio.subprocess.Process, credentials: Credentials) -> None:
    """Write an agent's identity to its standard input, which closes then: a pipe, so that the key is never in a
    file."""
    assert child.stdin is not None  # noqa: S101 -- it was made with a pipe
    identity = {"ca": credentials.ca, "certificate": credentials.certificate, "key": credentials.key}
    with contextlib.suppress(ConnectionError):  # it has ended already, which `_ready` reports
        child.stdin.write(json.dumps({name: pem.decode() for name, pem in identity.items()}).encode())
        child.stdin.close()


def _not_passed_on(passed: Sequence[str]) -> bytes:
    """A line for the agent's log about variables that the caller may have set for a database client."""
    names = child_process.left_out(*passed)
    return f"{child_process.left_out_message(names)}\n".encode() if names else b""


def passed_variables(plan: Plan) -> tuple[str, ...]:
    """The variables that the local agents of a plan need beside the usual ones: its engines', and Ray's to join a
    cluster."""
    engines = {system.engine for system in plan.systems}
    ray = child_process.RAY if joins_cluster(plan) else ()
    return (*ray, *(name for engine in sorted(engines) for name in child_process.of_engine(engine)))


async def _ready(child: asyncio.subprocess.Process, host: str, log: Path) -> str:
    """The address that the child prints."""
    assert child.stdout is not None  # noqa: S101 -- it was made with a pipe
    try:
        async with asyncio.timeout(READY_S):
            line = await child.stdout.readline()
    except TimeoutError:
        line = b""
    word, _, address = line.decode(errors="replace").strip().partition(" ")
    if word == "listening" and address:
        return address
    what, way_out = _last_message(log)
    raise LocalAgentError(
        f"the local agent did not start: {what}", where=f"host {host}", way_out=f"{way_out}Its log is {log}."
    )


def _last_message(log: Path) -> tuple[str, str]:
    """The end of an agent's log, and its way out: the lines of a ProveoutError, of a traceback the last."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    records = [number for number, line in enumerate(lines) if _RECORD.match(line)]
    begins = [number for number, line in enumerate(lines) if not line.startswith("  ")]
    last = lines[records[-1] + 1 :] if records else lines[begins[-1] :] if begins else []
    if not last or "Traceback" in last[0]:
        return (lines[-1] if lines else "its log is empty"), ""
    way_out = " ".join(line.strip().removesuffix(".") for line in last if line.startswith("  "))
    return "; ".join(line for line in last if not line.startswith("  ")), f"{way_out}. " if way_out else ""


async def _end(child: asyncio.subprocess.Process) -> None:
    """End an agent: wait for it, then SIGTERM, then SIGKILL; then kill the processes that it left in its session."""
    if not await _gone(child, LEAVE_S):
        # It may end just before the signal.
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
        if not await _gone(child, STOP_S):
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()
    await _end_group(child.pid)


async def _gone(child: asyncio.subprocess.Process, timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            await child.wait()
    except TimeoutError:
        return False
    return True


async def _end_group(group: int) -> None:
    """End the processes that a killed agent left: SIGINT stops a database server fast, SIGKILL ends the rest."""
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
    except (ProcessLookupError, PermissionError):  # ended, and the number may belong to another process
        return False
    return True

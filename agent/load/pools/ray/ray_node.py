"""A Ray node that the agent starts, with its secrets and a supervisor process.

`python -m proveout.agent.load.pools.ray.ray_node PARENT-PID PRIVILEGES`.

Flow: agent -> `RayNode.start()` -> this module as a process, the supervisor, which drops the agent's privileges and
confines itself to the node's address (`address_binding`) -> one JSON request on its stdin -> `ray start` as its child
-> one JSON line back: the address of the cluster -> the agent checks the listening sockets of the daemons. The daemons
of `ray start` become children of the supervisor (PR_SET_CHILD_SUBREAPER). When the agent closes the pipe, or dies even
by SIGKILL, the supervisor ends them all and removes the directory with tokens, certificates, sockets, logs and session
files of the cluster; there are no such files elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from proveout.agent.errors import TaskFault
from proveout.agent.load.pools.ray import address_binding
from proveout.agent.load.pools.ray.ray_security import Secrets
from proveout.agent.sandbox.privileges import Privileges
from proveout.core import child_process, linux
from proveout.core.framing import json_line

MODULE = "proveout.agent.load.pools.ray.ray_node"
START_S = 90.0
END_S = 8.0
TERMINATE_S = 2.0
LINES_MAX = 5
REAP_MS = 1000
LOOPBACK = "127.0.0.1"
DESKTOP = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Makes Ray use 127.0.0.1 as the host's own address, as on a desktop.

With that address as an option, Ray replaces it.
"""
OBJECT_STORE_BYTES = 128 << 20
"""Ray's shared memory per node: histograms pass through it, and are not kept."""


class RayNode:
    """A node that this agent has started, and its supervisor (a `tasks.Resource`)."""

    def __init__(
        self,
        supervisor: Process,
        directory: Path,
        secrets: Secrets,
        *,
        address: str,
        cpus: int,
        bound: str,
        privileges: Privileges,
    ) -> None:
        self._supervisor, self.directory, self.secrets, self.address = supervisor, directory, secrets, address
        self.cpus, self._bound, self.privileges = cpus, bound, privileges
        self.shared = False
        """Whether other hosts are in its cluster; this agent must not form such a cluster again."""

    @classmethod
    async def start(
        cls, *, cpus: int, secrets: Secrets, privileges: Privileges, head: str = "", bound: str = LOOPBACK
    ) -> RayNode:
        """Start a node: the head of a new cluster, or one that joins the `head` at `name:port`.

        `cpus` is the number of workers; `bound` is the only address of this host, besides loopback, that the node
        listens at: with the default there are no other nodes. TaskFault with Ray's messages if it does not start,
        `refused` if it listens at other addresses.
        """
        # Ray's sockets have long names below it, and the kernel allows 107 bytes: TMPDIR may be too long
        directory = Path(tempfile.mkdtemp(prefix="pvray-", dir="/tmp"))
        await asyncio.to_thread(_write_secrets, directory, secrets, privileges)
        supervisor = await asyncio.create_subprocess_exec(
            *child_process.python(MODULE, str(os.getpid()), privileges.to_argument()),
            stdin=PIPE,
            stdout=PIPE,
            cwd=child_process.DIRECTORY,
            env=privileges.environment(child_process.environment()),
        )
        node = cls(supervisor, directory, secrets, address=head, cpus=cpus, bound=bound, privileges=privileges)
        try:
            async with asyncio.timeout(START_S):
                node.address = await node._start_ray(head) or head
            await asyncio.to_thread(node._check_listeners)
        except BaseException as error:
            await asyncio.shield(node.close(keep_data=False))
            if isinstance(error, TimeoutError):
                raise TaskFault("timeout", f"a Ray node did not start within {START_S:.0f} s") from None
            raise
        return node

    @property
    def environment(self) -> dict[str, str]:
        """Environment of a process that connects to the cluster."""
        return self.secrets.environment(self.directory) | (DESKTOP if self._bound == LOOPBACK else {})

    @property
    def confinement(self) -> str:
        """The address for `address_binding` in processes of the cluster; `-` if Ray listens on loopback by itself."""
        return "-" if self._bound == LOOPBACK else self._bound

    @property
    def alive(self) -> bool:
        """Whether the supervisor runs."""
        return self._supervisor.returncode is None

    async def close(self, *, keep_data: bool) -> None:
        """End the node and remove its directory; idempotent."""
        assert self._supervisor.stdin is not None  # noqa: S101 - PIPE
        self._supervisor.stdin.close()
        try:
            async with asyncio.timeout(END_S):
                await self._supervisor.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._supervisor.kill()
            await self._supervisor.wait()
        await asyncio.to_thread(shutil.rmtree, self.directory, ignore_errors=True)

    def listeners(self) -> dict[tuple[str, int], str]:
        """Listening sockets of its processes: (address, port) -> command."""
        found: dict[tuple[str, int], str] = {}
        for process in psutil.Process(self._supervisor.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                name = process.name()
                for one in process.net_connections("tcp"):
                    if one.status == psutil.CONN_LISTEN:
                        found[one.laddr.ip.removeprefix("::ffff:"), one.laddr.port] = name
        return found

    def _check_listeners(self) -> None:
        """TaskFault if a process of the node listens at another address."""
        own = {self._bound, LOOPBACK, "::1"}
        if astray := [f"{name} at {ip}:{port}" for (ip, port), name in self.listeners().items() if ip not in own]:
            raise TaskFault(
                "refused", f"Ray listens at other addresses than {self._bound}: {', '.join(sorted(astray))}"
            )

    async def _start_ray(self, head: str) -> str:
        assert self._supervisor.stdin is not None and self._supervisor.stdout is not None  # noqa: S101 - PIPE
        request = {
            "directory": str(self.directory),
            "argv": _argv(self.directory / "t", self.cpus, head, self._bound),
            "environment": self.environment,
            "bound": self.confinement,
        }
        self._supervisor.stdin.write(json_line(request))
        line = await self._supervisor.stdout.readline()
        answer = json.loads(line) if line else {"words": "its supervisor has ended"}
        if "address" not in answer:
            raise TaskFault(
                "fault",
                f"cannot start Ray on this host: {answer['words']}",
                way_out="check that the extra `ray` is installed, that there is enough memory, and that "
                "this is Linux 5.6 or later",
            )
        return str(answer["address"])


def _write_secrets(directory: Path, secrets: Secrets, privileges: Privileges) -> None:
    secrets.write(directory)
    privileges.give(*directory.iterdir(), directory)  # the folder last: its names are root's before


def _argv(directory: Path, cpus: int, head: str, bound: str) -> list[str]:
    argv = [*child_process.python("ray.scripts.scripts", "start")]
    if head:
        argv.append(f"--address={head}")
    else:
        argv += [
            "--head",
            "--port=0",
            f"--ray-client-server-port={_free_port()}",
        ]
        argv += ["--include-dashboard=false", "--no-monitor"]
    if bound != LOOPBACK:
        argv.append(f"--node-ip-address={bound}")
    return [
        *argv,
        f"--temp-dir={directory}",
        f"--num-cpus={cpus}",
        f"--object-store-memory={OBJECT_STORE_BYTES}",
        "--min-worker-port=0",
        "--max-worker-port=0",
        "--disable-usage-stats",
    ]


def _free_port() -> int:
    """A free port for Ray's client server, which cannot be disabled or choose a port; its default may be in use."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# ---- the supervisor
# ----------------------------------------------------------------------------------------------------


def confined(bound: str) -> dict[str, str]:
    """Confine later child processes to an address; `{"words": …}` if the kernel cannot do that."""
    if bound == "-":
        return {}
    try:
        address_binding.confine(bound)
    except OSError as error:
        return {"words": f"the node cannot be confined to {bound}, and would listen at all addresses ({error})"}
    return {}


def start(directory: Path, argv: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Run `ray start`: `{"address": …}` of the head, or `{"words": …}` if it fails."""
    # Output to a file: the daemons would keep a pipe open
    log = directory / "start.log"
    with log.open("wb") as out:
        done = subprocess.run(
            argv, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False
        )
    if done.returncode:
        return {"words": "\n".join(log.read_text(errors="replace").splitlines()[-LINES_MAX:])}
    current = directory / "t" / "ray_current_cluster"
    return {"address": current.read_text().strip() if current.exists() else ""}


def reap() -> None:
    """Reap ended children of the daemons, which this process has inherited."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def end(directory: Path) -> None:
    """Terminate, then kill, all descendants, and remove the directory."""
    for action in ("terminate", "kill"):
        children = psutil.Process().children(recursive=True)
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                getattr(child, action)()
        psutil.wait_procs(children, timeout=TERMINATE_S)
    shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    """Run the process."""
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)
    linux.become_child_subreaper()
    parent = os.pidfd_open(int(sys.argv[1]))
    Privileges.from_argument(sys.argv[2]).drop()
    request = json.loads(sys.stdin.readline() or "{}")
    directory = Path(request["directory"])
    try:
        answer = confined(request["bound"]) or start(directory, request["argv"], request["environment"])
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
        if "address" in answer:
            waiting = select.poll()
            waiting.register(0, select.POLLIN)
            waiting.register(parent, select.POLLIN)
            while not waiting.poll(REAP_MS):
                reap()
    finally:
        end(directory)


if __name__ == "__main__":
    main()

"""A Ray node of our own: secrets, start, and a guard that leaves nothing behind. `python -m proveout.agent.load.pools.ray.ray_node PARENT-PID PRIVILEGES`.

Flow: agent -> `RayNode.start()` -> this module as a process, the guard, which gives up the agent's privileges (`privileges`) and
holds itself to the node's address (`address_binding`) -> one JSON request on its stdin -> `ray start` as its child -> one JSON line back: the
cluster's address -> the agent looks at what the daemons listen at. The daemons that `ray start` leaves become the guard's children
(PR_SET_CHILD_SUBREAPER). When the agent closes the pipe, or dies even by SIGKILL, the guard ends them all and removes the
directory, where tokens, certificates, sockets, logs and session files of the cluster are, and nowhere else.
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

from proveout.agent.daemon.tasks import TaskFault
from proveout.agent.load.pools.ray import address_binding
from proveout.agent.load.pools.ray.ray_security import Secrets
from proveout.agent.sandbox.privileges import Privileges
from proveout.core import child_process, linux
from proveout.core.framing import json_line

MODULE = "proveout.agent.load.pools.ray.ray_node"
START_S = 90.0
END_S = 8.0
PATIENCE_S = 2.0
LINES_MAX = 5
REAP_MS = 1000
LOOPBACK = "127.0.0.1"
DESKTOP = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Ray then takes 127.0.0.1 for the host's own address, as it does on a desktop; told that address, it puts the outer one in its place."""
OBJECT_STORE_BYTES = 128 << 20
"""Ray's shared memory per node: seconds of histograms pass through it, nothing is kept."""


class RayNode:
    """A node that was started here, and its guard (a `tasks.Resource`)."""

    def __init__(
        self,
        guard: Process,
        directory: Path,
        secrets: Secrets,
        *,
        address: str,
        cpus: int,
        bound: str,
        privileges: Privileges,
    ) -> None:
        self._guard, self.directory, self.secrets, self.address = guard, directory, secrets, address
        self.cpus, self._bound, self.privileges = cpus, bound, privileges
        self.shared = False
        """Whether other hosts are in its cluster, which is therefore not this agent's to form anew."""

    @classmethod
    async def start(
        cls, *, cpus: int, secrets: Secrets, privileges: Privileges, head: str = "", bound: str = LOOPBACK
    ) -> RayNode:
        """Start a node: the head of a new cluster, or one that joins the `head` at `name:port`.

        `cpus` is how many workers it takes; `user` whose it is, as `privileges` tells; `bound` the address of this host that it
        listens at, and no other but loopback: with its default there are no other nodes. Raises TaskFault with Ray's own words
        when it does not come up, `refused` when it listens elsewhere all the same.
        """
        # Ray's sockets have long names below it, and the kernel takes 107 bytes: TMPDIR may be too deep
        directory = Path(tempfile.mkdtemp(prefix="pvray-", dir="/tmp"))
        await asyncio.to_thread(_furnish, directory, secrets, privileges)
        guard = await asyncio.create_subprocess_exec(
            *child_process.python(MODULE, str(os.getpid()), privileges.to_argument()),
            stdin=PIPE,
            stdout=PIPE,
            cwd=child_process.DIRECTORY,
            env=privileges.environment(child_process.environment()),
        )
        node = cls(guard, directory, secrets, address=head, cpus=cpus, bound=bound, privileges=privileges)
        try:
            async with asyncio.timeout(START_S):
                node.address = await node._ask(head) or head
            await asyncio.to_thread(node._check_listeners)
        except BaseException as error:
            await asyncio.shield(node.close(keep_data=False))
            if isinstance(error, TimeoutError):
                raise TaskFault("timeout", f"a Ray node did not come up within {START_S:.0f} s") from None
            raise
        return node

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to be let in."""
        return self.secrets.environment(self.directory) | (DESKTOP if self._bound == LOOPBACK else {})

    @property
    def held(self) -> str:
        """The address that a process of the cluster has to be held to; `-` where Ray listens on loopback by itself."""
        return "-" if self._bound == LOOPBACK else self._bound

    @property
    def alive(self) -> bool:
        """Whether its guard is there."""
        return self._guard.returncode is None

    async def close(self, *, keep_data: bool) -> None:
        """End the node and remove what it has left; idempotent."""
        assert self._guard.stdin is not None  # noqa: S101 - PIPE
        self._guard.stdin.close()
        try:
            async with asyncio.timeout(END_S):
                await self._guard.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._guard.kill()
            await self._guard.wait()
        await asyncio.to_thread(shutil.rmtree, self.directory, ignore_errors=True)

    def listeners(self) -> dict[tuple[str, int], str]:
        """What its processes listen at: address and port -> the command."""
        found: dict[tuple[str, int], str] = {}
        for process in psutil.Process(self._guard.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                name = process.name()
                for one in process.net_connections("tcp"):
                    if one.status == psutil.CONN_LISTEN:
                        found[one.laddr.ip.removeprefix("::ffff:"), one.laddr.port] = name
        return found

    def _check_listeners(self) -> None:
        """Whether the kernel was told what it should have been: nothing is taken on trust here."""
        own = {self._bound, LOOPBACK, "::1"}
        if astray := [f"{name} at {ip}:{port}" for (ip, port), name in self.listeners().items() if ip not in own]:
            raise TaskFault(
                "refused", f"Ray listens at other addresses than {self._bound}: {', '.join(sorted(astray))}"
            )

    async def _ask(self, head: str) -> str:
        assert self._guard.stdin is not None and self._guard.stdout is not None  # noqa: S101 - PIPE
        request = {
            "directory": str(self.directory),
            "argv": _argv(self.directory / "t", self.cpus, head, self._bound),
            "environment": self.environment,
            "bound": self.held,
        }
        self._guard.stdin.write(json_line(request))
        line = await self._guard.stdout.readline()
        answer = json.loads(line) if line else {"words": "its guard ended"}
        if "address" not in answer:
            raise TaskFault(
                "fault",
                f"Ray does not start on this host: {answer['words']}",
                way_out="is the extra `ray` installed here, is there memory for it, and is this Linux 5.6 or later?",
            )
        return str(answer["address"])


def _furnish(directory: Path, secrets: Secrets, privileges: Privileges) -> None:
    secrets.write(directory)
    privileges.give(directory, *directory.iterdir())


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
    """A port for Ray's client server, which cannot be left out nor choose one itself; its usual one may be another cluster's."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# ---- the guard -------------------------------------------------------------------------------------------------------


def confined(bound: str) -> dict[str, str]:
    """Hold what is started from here on to an address; `{"words": …}` when the kernel cannot do that."""
    if bound == "-":
        return {}
    try:
        address_binding.confine(bound)
    except OSError as error:
        return {"words": f"it could not be held to {bound}, and would listen at every address ({error})"}
    return {}


def start(directory: Path, argv: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Run `ray start`: `{"address": …}` of the head, or `{"words": …}` when it fails."""
    # Its output to a file: its daemons keep a pipe open for as long as they live
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
    """Take leave of the daemons' children that have ended: they are this process's now."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def end(directory: Path) -> None:
    """End all descendants, the polite way first, and remove the directory."""
    for ask in ("terminate", "kill"):
        children = psutil.Process().children(recursive=True)
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                getattr(child, ask)()
        psutil.wait_procs(children, timeout=PATIENCE_S)
    shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    """The process."""
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

"""The agent's side of a load on Ray: a cluster, a driver process connected to it, and the task that it runs.

Flow: `run_ray_load` -> a cluster (the plan's, or a `RayNode` formed here for the session) -> `RayDriver.start` -> its
`Welcome` -> the `Task` goes in, `TaskArmed` comes out -> `Start` -> `Sample`s -> `TaskDone`. The driver stays for the
next iteration. After a failure the driver and the agent's own cluster are ended, and the next load starts new ones.
This module does not import Ray.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import ipaddress
import os
import socket
from asyncio.subprocess import Process
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from proveout.agent.daemon.tasks import DEADLINE_MAX_S, TaskContext
from proveout.agent.errors import TaskFault
from proveout.agent.load.ray_node import RayNode, answers, is_open
from proveout.agent.sandbox.helper import Child, spawn
from proveout.agent.sandbox.privileges import Privileges
from proveout.core import child_process, errors
from proveout.core.json_data import frame, read_frame
from proveout.core.path_trust import read
from proveout.proto.wire import codec
from proveout.proto.wire.messages import (
    Cancel,
    Finish,
    LogLine,
    Sample,
    Start,
    TaskArmed,
    TaskDone,
    TaskFailed,
    Welcome,
)
from proveout.proto.wire.results import LoadResult, PoolFormed
from proveout.proto.wire.tasks import FormPool, RunLoad, SignedTask, Task

MODULE = "proveout.agent.load.ray_driver"
DRIVER = "pool:ray:driver"
NODE = "pool:ray:node"
CONNECT_S = 60.0
END_S = 4.0
LINES_MAX = 200
LINE_MAX = 500
ADDRESS_BYTES_MAX = 4096
RAY_TMPDIR_DEFAULT = "/tmp/ray"  # noqa: S108 -- Ray's default for `auto`


class RayDriver(Child):
    """The driver process, connected to a cluster (a `tasks.Resource`)."""

    def __init__(self, process: Process, address: str, context: TaskContext) -> None:
        super().__init__(process)
        self.address, self._context, self._lines = address, context, 0

    @classmethod
    async def start(
        cls, address: str, *, privileges: Privileges, environment: Mapping[str, str], context: TaskContext
    ) -> RayDriver:
        """Connect to the cluster at `address` with these privileges. TaskFault `unreachable` if that fails."""
        more = {"RAY_USAGE_STATS_ENABLED": "0", **environment}
        # Ray adds the working directory to the search path of its workers: `spawn` sets a safe one
        process = await spawn(MODULE, privileges, address, flags=("-u",), more=more)
        driver = cls(process, address, context)
        try:
            async with asyncio.timeout(CONNECT_S):
                first = await driver._read()
        except BaseException as error:
            await asyncio.shield(driver.close(keep_data=False))
            if isinstance(error, TimeoutError):
                text = f"no connection to the Ray cluster at {address} within {CONNECT_S:.0f} s"
                raise TaskFault("unreachable", text) from None
            raise
        assert isinstance(first, Welcome)  # noqa: S101 - the first message of a driver
        return driver

    async def run(self, context: TaskContext, spec: RunLoad) -> LoadResult:
        """Run a load. TaskFault if it fails, or the driver ends."""
        self._context, self._lines = context, 0
        task = Task(key=context.key, spec=spec, deadline_s=DEADLINE_MAX_S)
        self._send(SignedTask(task=codec.task_bytes(task)))
        starting: asyncio.Task[None] | None = None
        try:
            while True:
                match await self._read():
                    case TaskArmed():
                        context.armed()
                        starting = asyncio.create_task(self._start(context, spec))
                    case Sample(sample=sample):
                        context.sample(sample)
                    case LogLine(level=level, text=text):
                        context.log(level, text)
                    case TaskDone(result=LoadResult() as result):
                        return result
                    case other:
                        raise TaskFault(
                            "fault", f"the Ray driver sent an unexpected {type(other).__name__} during the load"
                        )
        finally:
            if starting is not None:
                starting.cancel()
                await asyncio.gather(starting, return_exceptions=True)

    async def close(self, *, keep_data: bool) -> None:
        """End the actors and disconnect; kill the driver after `END_S`."""
        self._send(Cancel(key="", reason="closed"))
        await self.close_pipe(END_S)

    async def _start(self, context: TaskContext, spec: RunLoad) -> None:
        self._send(Start(key=context.key, t0_ns=await context.started()))
        if spec.awaits_finish:
            await context.finished()
            self._send(Finish(key=context.key))

    def _send(self, message: SignedTask | Start | Finish | Cancel) -> None:
        with contextlib.suppress(ConnectionError, RuntimeError):  # if the driver has ended, `_read` reports that
            self._stdin.write(frame(codec.coordinator_envelope(message).SerializeToString()))

    async def _read(self) -> Any:
        data = await read_frame(self._stdout)
        if data is None:
            raise TaskFault("fault", f"the Ray driver {await self.ending()}")
        message = codec.agent_message(data)
        if isinstance(message, TaskFailed):
            raise TaskFault.from_error(message.error)
        return message

    def _hear(self, text: str) -> None:
        """Log the output of the driver and of the workers on all nodes, up to a limit."""
        super()._hear(text[:LINE_MAX])
        self._lines += 1
        if self._lines <= LINES_MAX:
            self._context.log("warning", f"Ray: {text[:LINE_MAX]}")


async def run_ray_load(context: TaskContext, spec: RunLoad) -> LoadResult:
    """Run this agent's share of a load on Ray.

    Raises TaskFault: `missing` (Ray is not installed), `unreachable` (no cluster), `refused` (a cluster without access
    control, too few CPUs, another version), `fault` (an actor, a node or the driver is lost), and those of `run_load`.
    """
    _need_ray()
    try:
        driver = await _driver(context, spec)
        return await driver.run(context, spec)
    except BaseException:
        await asyncio.shield(_close(context))
        raise


async def _driver(context: TaskContext, spec: RunLoad) -> RayDriver:
    """A driver on the cluster of the task: that of the last load, or a new one."""
    driver = context.resources.get(DRIVER)
    node = context.resources.get(NODE)
    address = spec.pool.address or (node.address if isinstance(node, RayNode) and node.alive else "")
    if isinstance(driver, RayDriver) and driver.alive and driver.address == address:
        return driver
    if driver is not None:
        await context.resources.pop(DRIVER).close(keep_data=False)
    if spec.pool.address:
        found = await _check_cluster(address)
        privileges = await asyncio.to_thread(_privileges_on, found)
        environment = _credentials(privileges)
    else:
        formed = await _formed(context, spec)
        address, privileges, environment = formed.address, formed.privileges, formed.environment
    driver = await RayDriver.start(address, privileges=privileges, environment=environment, context=context)
    context.resources[DRIVER] = driver
    return driver


async def _check_cluster(address: str) -> str:
    """Check that an external cluster runs and has access control; returns its address."""
    if address == "auto":
        address = await asyncio.to_thread(_clusters_here)
    if not await answers(address):
        way_out = "name:port must be that of the cluster's GCS; the default port is 6379"
        raise TaskFault("unreachable", f"there is no Ray cluster at {address}", way_out=way_out)
    if await is_open(address):
        raise TaskFault(
            "refused",
            f"the Ray cluster at {address} has no access control",
            way_out="start it with RAY_AUTH_MODE=token, and give the agent its RAY_AUTH_MODE and RAY_AUTH_TOKEN_PATH",
        )
    return address


def _privileges_on(address: str) -> Privileges:
    """Privileges for the driver on an external cluster: those of the user of its node on this host, whose sockets it
    must reach.

    Data from a cluster can run code in its driver, so a root agent refuses a cluster of root.
    """
    port = address.rpartition(":")[2]
    for process in psutil.process_iter(["name", "cmdline", "uids"]):
        words = process.info["cmdline"] or ()
        if process.info["name"] == "raylet" and any(
            word.startswith("--gcs-address=") and word.endswith(f":{port}") for word in words
        ):
            return Privileges.for_user(process.info["uids"].effective)
    return Privileges.for_engine("")


def _credentials(privileges: Privileges) -> dict[str, str]:
    """The agent's credentials for an external cluster.

    They contain the token itself if the driver cannot read its file.
    """
    own = {name: os.environ[name] for name in child_process.RAY if name in os.environ}
    path = own.get("RAY_AUTH_TOKEN_PATH")
    if privileges.inherited or not path or "RAY_AUTH_TOKEN" in own:
        return own
    try:
        return own | {"RAY_AUTH_TOKEN": Path(path).read_text().strip()}
    except OSError as error:
        raise TaskFault("missing", f"cannot read RAY_AUTH_TOKEN_PATH, {path}: {error.strerror}") from None


def _clusters_here() -> str:
    """The address for `auto`: RAY_ADDRESS, or that of the cluster that was last started on this host."""
    if address := os.environ.get("RAY_ADDRESS"):
        return address
    current = Path(os.environ.get("RAY_TMPDIR", RAY_TMPDIR_DEFAULT)) / "ray_current_cluster"
    try:
        return read(current, ADDRESS_BYTES_MAX).decode(errors="replace").strip()
    except OSError:
        way_out = "start a node of it on this host, or set the address of the pool"
        raise TaskFault("unreachable", "no Ray cluster was started on this host", way_out=way_out) from None


async def _formed(context: TaskContext, spec: RunLoad) -> RayNode:
    node = context.resources.get(NODE)
    privileges = Privileges.for_endpoint(spec.endpoint, context.policy)
    if isinstance(node, RayNode) and node.suits(spec.workers, privileges):
        return node
    await _close(context)
    cpus = max(spec.workers, len(os.sched_getaffinity(0)))
    node = context.resources[NODE] = await RayNode.start(cpus=cpus, secrets=None, privileges=privileges)
    await _check_access(context, node)
    return node


async def _check_access(context: TaskContext, node: RayNode) -> None:
    """Close an open cluster. TaskFault."""
    if await is_open(node.address):
        await _close(context)
        raise TaskFault("refused", f"the Ray cluster formed at {node.address} has no access control")


async def form_pool(context: TaskContext, spec: FormPool) -> PoolFormed:
    """The handler of `FormPool`: start a node of a cluster over several hosts, in place of an earlier node of this
    session.
    """
    _need_ray()
    await _close(context)
    cpus = spec.cpus or len(os.sched_getaffinity(0))
    address = await asyncio.to_thread(own_address, spec.address, spec.head or spec.towards)
    privileges = Privileges.for_engine("")
    node = await RayNode.start(cpus=cpus, secrets=spec.secrets, privileges=privileges, head=spec.head, at=address)
    node.shared = True
    context.resources[NODE] = node
    if not spec.head:
        await _check_access(context, node)
    return PoolFormed(address=node.address)


def own_address(name: str, towards: str) -> str:
    """The IP address of this host that `name` resolves to, else the source address of packets to `towards`
    (`name:port`).

    TaskFault `refused` if there is none: other nodes of the cluster could not reach this one.
    """
    own = {entry.address for entries in psutil.net_if_addrs().values() for entry in entries}
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(name, None)} & own if name else set()
        address = min(found, default="") or (_source(towards) if towards else "")
    except OSError:
        address = ""
    if not address or (not name and ipaddress.ip_address(address).is_loopback):
        raise TaskFault(
            "refused",
            "cannot find the address of this host for other nodes of the Ray "
            f"cluster{f': {name} is not one' if name else ''}",
            way_out="set `address` of the host in the plan's topology to an address of its own, not one behind NAT",
        )
    return address


def _source(towards: str) -> str:
    """Source address of packets to `name:port`. Sends nothing."""
    name, _, port = towards.rpartition(":")
    family, kind, _, _, to = socket.getaddrinfo(name.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(to)
        return str(probe.getsockname()[0])


def _need_ray() -> None:
    if importlib.util.find_spec("ray") is None:
        way_out = errors.install_command("proveout[ray]")
        raise TaskFault("missing", "Ray is not installed on this host", way_out=way_out)


async def _close(context: TaskContext) -> None:
    """End the driver and the agent's own cluster: a failure may come from either."""
    for name in (DRIVER, NODE):
        resource = context.resources.pop(name, None)
        if resource is not None:
            await resource.close(keep_data=False)

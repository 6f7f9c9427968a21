"""The parts of a host that only faults change: servers of the session, the room of a disk, and the time of CPUs; and
the facts for them, with those of the network.

Flow: the handler of a fault gives the session's resources and the agent's place -> `HostDisturbances`, a part of
`agent.tuning.host.Host` -> queries and changes of the operations in `dsl.operations.faults`. Servers, and
processes that keep CPUs busy, end with their agent: after the session, and at the next start of an agent, nothing of
theirs is to be undone. A file that takes room is removed.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal, assert_never

import psutil

from proveout.agent.daemon.tasks import Resource
from proveout.agent.engines.embedded.server import Embedded, EmbeddedServer
from proveout.agent.engines.handlers import resource_name
from proveout.agent.errors import TaskFault
from proveout.agent.tuning.files import Files
from proveout.agent.tuning.programs import Processes
from proveout.core import child_process
from proveout.core.data_classes import dataclass, field
from proveout.dsl.operations.change import BusyCpus, Disturbance, ServerAction, TakeSpace
from proveout.dsl.operations.facts import (
    AddressQuery,
    BusyFact,
    BusyQuery,
    DisturbanceQuery,
    Fact,
    PlaceFact,
    PlaceQuery,
    QdiscQuery,
    ServerFact,
    ServerQuery,
    SpaceFact,
    SpaceQuery,
)

PROBE_S = 20.0
_BUSY = """
import os, sys, time
cpu, share, parent, period = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), 0.01
os.sched_setaffinity(0, {cpu})
while os.getppid() == parent:
    end = time.monotonic() + share * period
    while time.monotonic() < end:
        pass
    if share < 1.0:
        time.sleep((1.0 - share) * period)
"""
"""A child process that keeps a CPU busy, in periods of 10 ms, until its parent has ended."""
_PROBE = """
import ctypes, os, sys
if not int(open("/proc/self/status").read().partition("CapEff:")[2].split()[0], 16) >> 12 & 1:
    sys.exit("its agent has not the capability CAP_NET_ADMIN")
if ctypes.CDLL(None).unshare(0x40000000):  # CLONE_NEWNET
    sys.exit(0)  # as in a unit that restricts namespaces: the fault itself shows it
os.execvp("tc", ["tc", "qdisc", "add", "dev", "lo", "root", sys.argv[1]])
"""
"""Add a queueing discipline in a network namespace that ends with the process: the kernel loads its module, if any."""


@dataclass(slots=True, kw_only=True)
class HostDisturbances:
    """The disturbances of an agent. Methods block."""

    host: str = ""
    port: int = 0
    resources: Mapping[str, Resource] = field(default_factory=dict)
    """The resources of the session, with its servers; empty when it has ended."""
    _busy: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    _share: float = 0.0

    # ---- facts -----------------------------------------------------------------------------------------------------

    def answer(self, query: DisturbanceQuery) -> Fact:  # noqa: PLR0911 - one per kind of query
        match query:
            case ServerQuery(system=system):
                server = self._server(system)
                if server is None:
                    return None
                return ServerFact(state=server.state, data=os.path.realpath(server.data), is_standby=server.is_standby)
            case AddressQuery(name=name):
                return _addresses(name)
            case PlaceQuery():
                every = (one for interface in psutil.net_if_addrs().values() for one in interface)
                own = {
                    one.address.partition("%")[0] for one in every if one.family in (socket.AF_INET, socket.AF_INET6)
                }
                return PlaceFact(host=self.host, port=self.port, addresses=tuple(sorted(own)))
            case QdiscQuery(name=name):
                return _qdisc(name)
            case SpaceQuery(path=path):
                return _space(path)
            case BusyQuery():
                return BusyFact(usable=tuple(sorted(os.sched_getaffinity(0))), busy=self._running(), share=self._share)
            case _:
                assert_never(query)

    def _server(self, system: str) -> EmbeddedServer[Any] | None:
        found = self.resources.get(resource_name(system))
        return found.server if isinstance(found, Embedded) else None

    def _running(self) -> tuple[int, ...]:
        return tuple(sorted(cpu for cpu, process in self._busy.items() if process.poll() is None))

    # ---- changes ---------------------------------------------------------------------------------------------------

    def make(self, change: Disturbance) -> None:
        match change:
            case ServerAction(system=system, verb=verb):
                server = self._server(system)
                if server is None:
                    raise TaskFault("missing", f"the agent has not started a server of {system}")
                server.disturb(verb)
            case TakeSpace(path=path, size_bytes=size_bytes):
                _take(path, size_bytes)
            case BusyCpus(cpus=cpus, share=share):
                self._share = share
                for cpu in cpus:
                    self._busy[cpu] = subprocess.Popen(
                        [sys.executable, "-I", "-S", "-c", _BUSY, str(cpu), str(share), str(os.getpid())],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        cwd=child_process.DIRECTORY,
                        env=child_process.environment(),
                    )
            case _:
                assert_never(change)

    def undo(self, change: Disturbance) -> None:
        match change:
            case ServerAction(system=system, undo=action):
                if action and (server := self._server(system)) is not None:
                    server.recover()
            case TakeSpace(path=path):
                with suppress(FileNotFoundError), Files().folder(path) as (folder, name):
                    os.unlink(name, dir_fd=folder)
            case BusyCpus():
                self._release()
            case _:
                assert_never(change)

    def compare(self, change: Disturbance) -> Literal["before", "made", "other"]:
        """Compare the host with a change. A server that has ended with its session is as before; so is a primary that a
        promoted standby has replaced, after an attempt to start it; and a promotion is not undone here.
        """
        match change:
            case ServerAction(system=system, verb=verb):
                server = self._server(system)
                if server is None or server.state == "runs" or server.superseded_by or verb == "promote":
                    return "before"
                return "made" if server.state == ("stopped" if verb == "stop" else "down") else "other"
            case TakeSpace(path=path):
                return "made" if os.path.lexists(path) else "before"
            case BusyCpus():
                return "made" if self._running() else "before"
            case _:
                assert_never(change)

    def _release(self) -> None:
        for process in self._busy.values():
            process.kill()
        for process in self._busy.values():
            process.wait()
        self._busy.clear()
        self._share = 0.0


# ---- files -----------------------------------------------------------------------------------------------------------


def _space(path: str) -> SpaceFact | None:
    with suppress(FileNotFoundError), Files().folder(path) as (folder, name):
        room, taken = os.fstatvfs(folder), 0
        with suppress(FileNotFoundError):
            taken = os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
        return SpaceFact(free_bytes=room.f_bavail * room.f_frsize, taken_bytes=taken)
    return None


def _take(path: str, size_bytes: int) -> None:
    """Allocate a file; nothing of it is left if that fails."""
    try:
        with Files().folder(path) as (folder, name):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(name, flags, 0o600, dir_fd=folder)
            try:
                os.posix_fallocate(descriptor, 0, size_bytes)
            except OSError:
                os.unlink(name, dir_fd=folder)
                raise
            finally:
                os.close(descriptor)
    except OSError as error:
        raise TaskFault("fault", f"cannot take {size_bytes} bytes with {path}: {error.strerror}") from error


# ---- network ---------------------------------------------------------------------------------------------------------


def _addresses(name: str) -> tuple[str, ...]:
    try:
        found = socket.getaddrinfo(name, None, proto=socket.IPPROTO_TCP)
    except OSError:
        return ()
    return tuple(sorted({str(address[0]).partition("%")[0] for *_, address in found}))


def _qdisc(name: str) -> str:
    try:
        done = Processes().run((sys.executable, "-I", "-S", "-c", _PROBE, name), PROBE_S)
    except TaskFault as fault:
        if fault.code != "timeout":
            raise
        return f"tc did not end within {PROBE_S:g} s"
    return "yes" if done.code == 0 else (done.text.strip().splitlines() or ["tc wrote no message"])[-1]

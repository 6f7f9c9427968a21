"""A Ray cluster of two nodes in two network namespaces: both run actors, as the unprivileged user and on one address; a
link that goes down in the measure window voids the load.

Needs root, for namespaces; skipped without. Both nodes share a machine and so its clock: the subtraction of another
clock's offset is shown by arithmetic only (`test_ray_driver`), not on two machines.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from proveout.agent.load.population.handler import populate
from proveout.agent.sandbox import privileges
from proveout.agent.sandbox.dispatch import start_system
from proveout.coordinator.pki.certificates import cluster_secrets
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.topology import System
from proveout.dsl.workloads.hlr.parameters import Hlr
from proveout.proto.wire.results import SystemStarted
from proveout.proto.wire.tasks import PopulateSystem, StartSystem

pytest.importorskip("ray")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]

POPULATION = 500
NAMES = (f"pvr{os.getpid()}a", f"pvr{os.getpid()}b")  # also the interfaces: 15 characters at most
ADDRESSES = ("198.18.77.1", "198.18.77.2")
LEASE_S = 10.0


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def namespaces() -> Iterator[None]:
    try:
        for name in NAMES:
            ip("netns", "add", name)
        ip("link", "add", NAMES[0], "netns", NAMES[0], "type", "veth", "peer", "name", NAMES[1], "netns", NAMES[1])
        for name, address in zip(NAMES, ADDRESSES, strict=True):
            ip("-n", name, "address", "add", f"{address}/24", "dev", name)
            ip("-n", name, "link", "set", name, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield
    finally:
        for name in NAMES:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


class Member:
    """A `ray_member.py` in a namespace."""

    def __init__(self, process: Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, number: int, **first: Any) -> Member:
        script = str(Path(__file__).parent / "ray_member.py")
        argv = ("ip", "netns", "exec", NAMES[number], sys.executable, script, ADDRESSES[number])
        member = cls(await asyncio.create_subprocess_exec(*argv, stdin=PIPE, stdout=PIPE))
        member.send(**first)
        return member

    def send(self, **what: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what).encode() + b"\n")

    async def until(self, key: str, within_s: float = 90) -> dict[str, Any]:
        assert self.process.stdout is not None
        async with asyncio.timeout(within_s):
            while True:
                line = await self.process.stdout.readline()
                assert line, f"it ended before it sent {key}"
                answers: dict[str, Any] = json.loads(line)
                assert key == "fault" or "fault" not in answers, answers
                if key in answers:
                    return answers

    def descendants(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    async def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        async with asyncio.timeout(40):
            await self.process.wait()


@pytest.fixture
async def cluster(namespaces: None) -> AsyncIterator[tuple[Member, Member]]:
    secrets = dataclasses.asdict(cluster_secrets())
    head = await Member.start(0, secrets=secrets)
    members = [head]
    try:
        address = (await head.until("address"))["address"]
        assert address.startswith(ADDRESSES[0])
        members.append(await Member.start(1, secrets=secrets, head=address))
        assert (await members[1].until("address"))["address"] == address
        processes = [process for member in members for process in member.descendants()]
        words = " ".join(words_of(process) for process in processes)
        directories = {Path(found) for found in re.findall(r"/tmp/pvray-\w+", words)}
        assert len(directories) == 2
        yield head, members[1]
    finally:
        for member in reversed(members):
            await member.end()
    assert not [directory for directory in directories if directory.exists()]
    assert not [process for process in processes if is_alive(process)]


@pytest.fixture
async def dsn(context: Any) -> AsyncIterator[str]:
    """A database that both nodes can use: one file, accessible to Ray's user."""
    with tempfile.TemporaryDirectory(prefix="pvt-", dir="/tmp") as folder:
        found = await _populated(context, Path(folder))
        account = privileges.account()
        assert account is not None
        for path in (Path(folder), *Path(folder).rglob("*")):
            os.chown(path, account.uid, account.uid)
        yield found


async def _populated(context: Any, folder: Path) -> str:
    system = System(name="db", engine="sqlite", host="db1", provision="embedded")
    started = await start_system(context, StartSystem(system=system, data_root=str(folder / "data")))
    assert isinstance(started, SystemStarted)
    workload = Workload(name="hlr", kind="hlr", parameters=to_values(Hlr(population=POPULATION)))
    await populate(context, PopulateSystem(workload=workload, endpoint=started.endpoint, workers=1))
    return started.endpoint.dsn


def loaders(member: Member) -> list[psutil.Process]:
    """The worker processes of loads on a node."""
    return [p for p in member.descendants() if "proveout.agent.load.worker" in words_of(p)]


def is_alive(process: psutil.Process) -> bool:
    """Whether the process runs and is not a zombie."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def words_of(process: psutil.Process) -> str:
    """The command line of a process; "" when it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # and zombies
        return ""


STRANGER = """
import json, socket, sys
answers = {}
for port in json.load(sys.stdin):
    with socket.create_connection((sys.argv[1], port), timeout=5) as one:
        one.settimeout(5)
        one.sendall(b"POST /get_runtime_envs_info HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 0\\r\\n\\r\\n")
        try:
            answers[port] = one.recv(12).decode(errors="replace")
        except OSError:
            answers[port] = ""
print(json.dumps(answers))
"""


def within(number: int, *argv: str, text: str = "") -> str:
    """Run a command in a namespace; return its stdout."""
    line = ("ip", "netns", "exec", NAMES[number], *argv)
    return subprocess.run(line, check=True, capture_output=True, text=True, input=text, timeout=90).stdout


def listeners(number: int) -> dict[str, dict[int, str]]:
    """The listening sockets of a namespace, by `ss`: address -> port -> name of the program."""
    found: dict[str, dict[int, str]] = {}
    for line in within(number, "ss", "-ltnpH").splitlines():
        address, _, port = line.split()[3].rpartition(":")
        (name,) = re.findall(r'\("([^"]+)"', line)[:1]
        found.setdefault(address.strip("[]").removeprefix("::ffff:"), {})[int(port)] = name
    return found


def assert_listening_addresses(number: int) -> None:
    """Check that the node listens on its own address and loopback only, and that servers for other nodes are not on
    loopback only."""
    found = listeners(number)
    assert found.keys() <= {ADDRESSES[number], "127.0.0.1"}, found
    servers = {"raylet", "gcs_server"} if number == 0 else {"raylet"}
    assert servers <= set(found[ADDRESSES[number]].values()), found


def assert_access_control(number: int) -> None:
    """Check from the other host, without certificate and token: every port refuses with HTTP 401 at most."""
    ports = listeners(number)[ADDRESSES[number]]
    python = (sys.executable, "-c", STRANGER, ADDRESSES[number])
    answers = json.loads(within(1 - number, *python, text=json.dumps(list(ports))))
    assert len(answers) == len(ports)
    open_ = {ports[int(port)]: words for port, words in answers.items() if "HTTP" in words and words[9:12] != "401"}
    assert not open_, answers


def users(member: Member) -> set[int]:
    """The user ids of the processes of its Ray node, driver and load workers."""
    found = [(process.uids().effective, words_of(process)) for process in member.descendants()]
    return {uid for uid, words in found if "ray" in words or "proveout.agent.load" in words}


async def test_two_nodes_share_a_load_and_a_cut_link_voids_it_within_the_lease(
    cluster: tuple[Member, Member], dsn: str
) -> None:
    head, member = cluster
    head.send(dsn=dsn, population=POPULATION, rate=100.0, measure_s=2.0)
    assert (await head.until("due"))["due"] == 200
    assert (len(loaders(head)), len(loaders(member))) == (2, 2)
    account = privileges.account()
    assert account is not None
    for number, one in enumerate(cluster):
        assert_listening_addresses(number)
        assert_access_control(number)
        assert users(one) == {account.uid}

    head.send(dsn=dsn, population=POPULATION, rate=100.0, measure_s=60.0)
    await head.until("second")
    ip("-n", NAMES[1], "link", "set", NAMES[1], "down")
    deadline = time.monotonic() + LEASE_S + 10
    fault = await head.until("fault", within_s=LEASE_S + 5)
    assert ADDRESSES[1] in fault["fault"]
    assert fault["code"] == "fault"
    # No message reaches the node behind the cut link: it stops its load by itself.
    async with asyncio.timeout_at(deadline - time.monotonic() + asyncio.get_running_loop().time()):
        while loaders(member):  # noqa: ASYNC110 -- a poll with a deadline: another process's children end
            await asyncio.sleep(0.2)

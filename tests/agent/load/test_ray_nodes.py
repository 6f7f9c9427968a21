"""A Ray cluster of two nodes in two network namespaces: both run actors, as the unprivileged user; no port admits a
stranger; a link that goes down in the measure window voids the load.

Needs root, for namespaces; skipped without. Both nodes share a machine and so its clock: the subtraction of another
clock's offset is shown by arithmetic only (`test_ray_driver`), not on two machines.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from eventually import eventually_async

from proveout.agent.load.populate import populate
from proveout.agent.sandbox import privileges
from proveout.agent.sandbox.helper import start_system
from proveout.coordinator.certificates import cluster_secrets
from proveout.dsl.plan.topology import System
from proveout.proto.wire.results import SystemStarted
from proveout.proto.wire.tasks import PopulateSystem, StartSystem

from .conftest import LoadContext, workload_of

pytest.importorskip("ray")
pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]

POPULATION = 500
NAMES = (f"pvr{os.getpid()}a", f"pvr{os.getpid()}b")  # also the interfaces: 15 characters at most
ADDRESSES = ("198.18.77.1", "198.18.77.2")


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
    """A `ray_member.py` in a namespace; `words` are the command lines of its descendants, by process."""

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

    async def until(self, key: str) -> Any:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            answers: dict[str, Any] = json.loads(line)
            assert key == "fault" or "fault" not in answers, answers
            if key in answers:
                return answers[key]
        raise AssertionError(f"it ended before it sent {key}")

    def words(self) -> dict[psutil.Process, str]:
        found = {}
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # and zombies
                found[process] = " ".join(process.cmdline())
        return found

    def loaders(self) -> list[psutil.Process]:
        return [process for process, words in self.words().items() if "proveout.agent.load.worker" in words]


@pytest.fixture
async def cluster(namespaces: None) -> AsyncIterator[tuple[Member, Member]]:
    secrets = dataclasses.asdict(cluster_secrets())
    members = [await Member.start(0, secrets=secrets)]
    try:
        address = await members[0].until("address")
        assert address.startswith(ADDRESSES[0])
        members.append(await Member.start(1, secrets=secrets, head=address))
        assert await members[1].until("address") == address
        processes = members[0].words() | members[1].words()
        directories = {Path(found) for found in re.findall(r"/tmp/pvray-\w+", " ".join(processes.values()))}
        assert len(directories) == 2
        yield members[0], members[1]
    finally:
        for member in reversed(members):
            assert member.process.stdin is not None
            member.process.stdin.close()
            await member.process.wait()
    assert not [directory for directory in directories if directory.exists()]
    assert not [process for process in processes if process.is_running()]


@pytest.fixture
async def dsn(context: LoadContext) -> AsyncIterator[str]:
    """A database that both nodes can use: one file, accessible to Ray's user."""
    with tempfile.TemporaryDirectory(prefix="pvt-", dir="/tmp") as folder:
        system = System(name="db", engine="sqlite", host="db1", provision="embedded")
        started = await start_system(context, StartSystem(system=system, data_root=str(Path(folder) / "data")))
        assert isinstance(started, SystemStarted)
        of = workload_of("hlr", population=POPULATION)
        await populate(context, PopulateSystem(workload=of, endpoint=started.endpoint, workers=1))
        account = privileges.account()
        assert account is not None
        for path in (Path(folder), *Path(folder).rglob("*")):
            os.chown(path, account.uid, account.uid)
        yield started.endpoint.dsn


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
    return subprocess.run(line, check=True, capture_output=True, text=True, input=text).stdout


def assert_is_closed_to_strangers(number: int) -> None:
    """From the other host, without certificate and token, every port of the node that does not listen at loopback alone
    (by `ss`) refuses with HTTP 401 at most."""
    ports: dict[int, str] = {}
    for line in within(number, "ss", "-ltnpH").splitlines():
        address, _, port = line.split()[3].rpartition(":")
        if address.strip("[]").removeprefix("::ffff:") != "127.0.0.1":
            (ports[int(port)],) = re.findall(r'\("([^"]+)"', line)[:1]
    assert ({"raylet", "gcs_server"} if number == 0 else {"raylet"}) <= set(ports.values()), ports
    python = (sys.executable, "-c", STRANGER, ADDRESSES[number])
    answers = json.loads(within(1 - number, *python, text=json.dumps(list(ports))))
    assert len(answers) == len(ports)
    assert not {ports[int(port)]: words for port, words in answers.items() if "HTTP" in words and words[9:12] != "401"}


async def test_two_nodes_share_a_load_and_a_cut_link_voids_it(cluster: tuple[Member, Member], dsn: str) -> None:
    head, member = cluster
    head.send(dsn=dsn, population=POPULATION, rate=100.0, measure_s=2.0)
    assert await head.until("due") == 200
    assert (len(head.loaders()), len(member.loaders())) == (2, 2)
    account = privileges.account()
    assert account is not None
    for number, one in enumerate(cluster):
        assert_is_closed_to_strangers(number)
        ours = [process for process, words in one.words().items() if "ray" in words or "proveout.agent.load" in words]
        assert {process.uids().effective for process in ours} == {account.uid}

    head.send(dsn=dsn, population=POPULATION, rate=100.0, measure_s=600.0)
    await head.until("second")
    ip("-n", NAMES[1], "link", "set", NAMES[1], "down")
    assert ADDRESSES[1] in await head.until("fault")
    # No message reaches the node behind the cut link: it stops its load by itself.
    await eventually_async(lambda: not member.loaders(), "the end of the load on the other node")

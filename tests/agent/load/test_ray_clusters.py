"""Loads on Ray: a cluster formed for the run, an existing one, and one of two nodes in two network namespaces.

The transactions are those of the local pool; losses void the load; clean-up is complete; no port admits a stranger, and
a cluster without access control is refused (one of root's in `tests/fabric/test_root_owned_files.py`). By day
`test_ray_parts` runs without a cluster. Both nodes share a machine and so its clock: the subtraction of another clock's
offset is shown by arithmetic only.
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
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from eventually import eventually_async

from proveout.agent.errors import TaskFault
from proveout.agent.load import ray_node
from proveout.agent.load.loop.recorder import Recorder
from proveout.agent.load.loop.terminal import stream_of
from proveout.agent.load.loop.transaction import kinds, mix
from proveout.agent.load.pacing import Pacing, Timeline
from proveout.agent.load.ray_node import RayNode, is_open
from proveout.agent.load.ray_task import DRIVER, NODE
from proveout.agent.load.run_load import run_load
from proveout.agent.sandbox import privileges
from proveout.agent.sandbox.helper import start_system
from proveout.agent.sandbox.privileges import Privileges
from proveout.coordinator.certificates import cluster_secrets
from proveout.dsl.plan.topology import System
from proveout.dsl.workloads.kinds import build
from proveout.proto.wire.results import SystemStarted
from proveout.proto.wire.tasks import LoadPool, RunLoad, StartSystem

from .conftest import LoadContext, load_task, populated, workload_of

pytest.importorskip("ray")
pytestmark = [pytest.mark.server, pytest.mark.soak]

RAY = LoadPool(kind="ray")
RAYS = re.compile(r"raylet|gcs_server|ray::|ray_node|ray_driver")


def descendants(pid: int | None = None) -> dict[psutil.Process, str]:
    """All descendants of a process, by default of this one, with their command lines."""
    found = {}
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # and zombies
            found[process] = " ".join(process.cmdline())
    return found


def listened_on() -> set[str]:
    """The addresses on which the cluster's processes listen."""
    found = set()
    for process, words in descendants().items():
        if RAYS.search(words) or "/ray/" in words:
            with contextlib.suppress(psutil.NoSuchProcess):
                ends = [one for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
                found |= {end.laddr.ip.removeprefix("::ffff:") for end in ends}
    return found


def actors() -> list[psutil.Process]:
    return [process for process, words in descendants().items() if "LoadActor" in words]


@pytest.fixture
async def on_ray(context: LoadContext, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LoadContext]:
    """A context after which no processes and no directories of its cluster are left."""
    made: list[Path] = []

    def mkdtemp(*, prefix: str, dir: str) -> str:
        made.append(Path(tempfile.mkdtemp(prefix=prefix, dir=dir)))
        return str(made[-1])

    monkeypatch.setattr(ray_node, "tempfile", SimpleNamespace(mkdtemp=mkdtemp))
    yield context
    await context.close()
    assert made
    assert not [path for path in made if path.exists()]
    assert not [words for words in descendants().values() if RAYS.search(words)]


def drawn(task: RunLoad) -> Counter[str]:
    """The transactions that are due in the window, by the schedule and the mix of each terminal alone."""
    workload, windows = build(task.workload), task.windows
    pacing, timeline = Pacing.of(task.share, windows, task.seed), Timeline.of(windows, 0)
    found = Counter[str]()
    for number in range(task.share.total):
        stream = stream_of(task.seed, number)
        times = Recorder(len(workload.transactions)).times
        mine = mix(kinds(workload, workload.keys(stream), times), workload, stream)
        for at_ns, kind in zip(pacing.fire_times(number), mine, strict=False):
            if at_ns >= timeline.measure_end_ns:
                break
            found[workload.transactions[kind.number].name] += timeline.window(at_ns) == "measure"
    return found


async def test_an_open_load_has_the_transactions_that_were_drawn(on_ray: LoadContext, hlr_database: str) -> None:
    """As on the workers of this host (`test_loops`): terminals draw by their number and the seed."""
    # Time to forward the start, and a long ramp-down in which a busy machine catches up with the due transactions
    on_ray.lead_ns = 1_000_000_000
    task = load_task(hlr_database, rate=200.0, windows=(0.3, 0.5, 1.2), pool=RAY)
    result = await run_load(on_ray, task)
    answered = {t.counts.name: t.counts.ok + t.counts.logical_failures for t in result.transactions}
    assert Counter(answered) == drawn(task)
    assert drawn(task).total() == 100
    assert result.seconds_produced == 2
    assert result.samples_lost == 0
    assert result.start_skew_ns > 0
    assert result.client_cpu_s > 0

    node = on_ray.resources[NODE]
    assert isinstance(node, RayNode)
    assert node.address.startswith("127.0.0.1:")
    assert listened_on() == {"127.0.0.1"}
    assert {actor.nice() for actor in actors()} == {os.getpriority(os.PRIO_PROCESS, 0)}, "not behind other work"
    assert not await is_open(node.address)
    assert {oct(path.stat().st_mode & 0o777) for path in node.directory.glob("*.key")} == {"0o600"}
    assert oct(node.directory.stat().st_mode & 0o777) == "0o700"


@pytest.mark.parametrize("loss", ["silent", "cancelled"])
async def test_a_load_that_loses_an_actor_or_is_cancelled_is_void_and_the_next_one_runs(
    on_ray: LoadContext, hlr_database: str, loss: str
) -> None:
    task = load_task(hlr_database, windows=(0.3, 600.0, 0.0), think_s=0.02, pool=RAY)
    running = asyncio.create_task(run_load(on_ray, task))
    first = asyncio.create_task(on_ray.first_second.wait())
    await asyncio.wait((first, running), return_when=asyncio.FIRST_COMPLETED)
    assert not running.done(), running
    found = actors()
    assert len(found) == 2
    if loss == "cancelled":
        running.cancel()
    else:
        found[0].suspend()
    with pytest.raises((TaskFault, asyncio.CancelledError)) as raised:
        await running
    if isinstance(raised.value, TaskFault):
        assert "did not answer for 10 s" in raised.value.what
        assert raised.value.code == "fault"
    assert on_ray.resources.keys().isdisjoint({DRIVER, NODE})
    again = await run_load(on_ray, load_task(hlr_database, windows=(0.3, 1.0, 0.2), think_s=0.02, pool=RAY))
    assert again.ended_in_window > 0


async def test_a_cluster_that_is_too_small_or_not_there_is_refused(on_ray: LoadContext, hlr_database: str) -> None:
    await run_load(on_ray, load_task(hlr_database, terminals=64, pool=RAY, workers=1))
    for pool, code, what in (
        (RAY, "refused", "needs 64 Ray workers"),
        (LoadPool(kind="ray", address="127.0.0.1:1"), "unreachable", ""),
    ):
        with pytest.raises(TaskFault, match=what or None) as raised:
            await run_load(on_ray, load_task(hlr_database, terminals=64, pool=pool, workers=64))
        assert raised.value.code == code


# ---- an existing cluster: authenticated by its token, or refused -----------------------------------------------------


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ray's default directory is not for tests, and a test's directory has too long a path for its sockets."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    with tempfile.TemporaryDirectory(prefix="pvt-", dir="/tmp", ignore_cleanup_errors=True) as home:
        monkeypatch.setenv("RAY_TMPDIR", home)
        Privileges.for_engine("").give(Path(home))
        yield


@asynccontextmanager
async def existing() -> AsyncIterator[LoadPool]:
    """A cluster of another program with this process's environment; when this process is root, the cluster has another user."""
    account = Privileges.for_engine("")
    argv = (sys.executable, str(Path(__file__).parent / "ray_cluster.py"), account.to_argument())
    environment = account.environment(os.environ)
    process = await asyncio.create_subprocess_exec(*argv, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environment)
    assert process.stdin is not None and process.stdout is not None
    try:
        address = ""
        while not address:
            line = await process.stdout.readline()
            assert line, "the cluster did not come up"
            address = line.decode().strip().partition("address ")[2]
        yield LoadPool(kind="ray", address=address)
    finally:
        process.stdin.close()
        while await process.stdout.read(1 << 16):
            pass
        await process.wait()


@pytest.mark.usefixtures("home")
async def test_a_cluster_with_a_token_runs_a_load(
    context: LoadContext, hlr_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "7" * 64)
    async with existing() as pool:
        load = load_task(hlr_database, rate=100.0, workers=0, windows=(0.3, 1.0, 0.2), pool=pool)
        result = await run_load(context, load)
        assert sum(t.counts.ok + t.counts.logical_failures + t.counts.missed for t in result.transactions) == 100
        assert NODE not in context.resources  # nothing was formed here


@pytest.mark.usefixtures("home")
async def test_a_cluster_without_access_control_is_refused(
    context: LoadContext, hlr_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    async with existing() as pool:
        with pytest.raises(TaskFault, match="has no access control") as raised:
            await run_load(context, load_task(hlr_database, pool=pool))
        assert raised.value.code == "refused"


# ---- two nodes: both run actors, as the unprivileged user; a link that goes down in the measure window voids the load --

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
    """A `ray_member.py` in a namespace."""

    def __init__(self, process: Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, number: int, **first: Any) -> Member:
        script = str(Path(__file__).parent / "ray_member.py")
        argv = ("ip", "netns", "exec", NAMES[number], sys.executable, script, ADDRESSES[number])
        root = Path(__file__).parents[3]
        environment = {**os.environ, "PYTHONPATH": f"{root}:{root / 'tests'}"}
        member = cls(await asyncio.create_subprocess_exec(*argv, stdin=PIPE, stdout=PIPE, env=environment))
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
        return descendants(self.process.pid)

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
        await populated(context, started.endpoint, workload_of("hlr", population=POPULATION))
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


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
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

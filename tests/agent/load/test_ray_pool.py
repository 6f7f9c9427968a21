"""Loads on Ray: a cluster formed for the run, the same results as on the local pool, losses, and complete clean-up.

Starting a cluster takes seconds of CPU time, so a test uses the cluster of the test before it, like the next load of a
run; such tests are in sequence. Each of them also runs alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Protocol

import psutil
import pytest
import pytest_asyncio

from proveout.agent.daemon.tasks import Resource
from proveout.agent.errors import TaskFault
from proveout.agent.load.pools.ray import ray_node
from proveout.agent.load.pools.ray.ray_node import RayNode
from proveout.agent.load.pools.ray.ray_security import is_open
from proveout.agent.load.pools.ray.ray_task import DRIVER, NODE
from proveout.agent.load.run_load import run_load
from proveout.proto.wire.results import LoadResult
from proveout.proto.wire.tasks import LoadPool, RunLoad

pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

RAY = LoadPool(kind="ray")
RAYS = re.compile(r"raylet|gcs_server|ray::|ray_node|ray_driver")


class Context(Protocol):
    resources: dict[str, Resource]
    first_second: asyncio.Event
    lead_ns: int
    work_dir: Path


def descendants() -> list[tuple[psutil.Process, str]]:
    """All descendants of this process, with their command lines."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # and zombies
            found.append((process, " ".join(process.cmdline())))
    return found


def listened_on() -> set[str]:
    """The addresses on which the cluster's processes listen."""
    found = set()
    for process, words in descendants():
        if RAYS.search(words) or "/ray/" in words:
            with contextlib.suppress(psutil.NoSuchProcess):
                found |= {
                    c.laddr.ip.removeprefix("::ffff:")
                    for c in process.net_connections("tcp")
                    if c.status == psutil.CONN_LISTEN
                }
    return found


def actors() -> list[psutil.Process]:
    return [process for process, words in descendants() if "LoadActor" in words]


@pytest.fixture(scope="module")
def directories() -> Iterator[list[Path]]:
    """The directories of the clusters that this module forms, apart from those of other programs; all are removed at the
    end."""
    made: list[Path] = []

    def mkdtemp(*, prefix: str, dir: str) -> str:
        made.append(Path(tempfile.mkdtemp(prefix=prefix, dir=dir)))
        return str(made[-1])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_node, "tempfile", SimpleNamespace(mkdtemp=mkdtemp))
        yield made
    nothing_left(made)


def nothing_left(directories: list[Path]) -> None:
    """Check that no processes and no directories of the clusters are left."""
    assert directories
    assert not [path for path in directories if path.exists()]
    assert not [words for _, words in descendants() if RAYS.search(words)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def left(directories: list[Path]) -> AsyncIterator[dict[str, Resource]]:
    """Resources that tests have left open, closed before the check of `directories`."""
    resources: dict[str, Resource] = {}
    yield resources
    for resource in reversed(list(resources.values())):
        await resource.close(keep_data=False)


@pytest.fixture
def on_ray(context: Context, left: dict[str, Resource]) -> Iterator[Context]:
    """The load context with the resources of the previous test."""
    context.resources = left
    yield context
    context.resources = {}


async def under_way(context: Context, running: asyncio.Task[LoadResult]) -> None:
    """Wait until the load has sent a second; raise its failure when it ends without one."""
    first = asyncio.create_task(context.first_second.wait())
    async with asyncio.timeout(150):
        await asyncio.wait((first, running), return_when=asyncio.FIRST_COMPLETED)
    if not first.done():
        first.cancel()
        await running


def ok(result: LoadResult) -> dict[str, int]:
    return {load.counts.name: load.counts.ok + load.counts.logical_failures for load in result.transactions}


async def test_an_open_load_is_the_same_on_ray_as_on_processes(
    on_ray: Context, hlr_database: str, spec: object
) -> None:
    # Time to forward the start, and a long ramp-down in which a busy machine catches up with the due transactions
    on_ray.lead_ns = 2_000_000_000
    task: RunLoad = spec(hlr_database, rate=200.0, windows=(0.3, 1.0, 2.7))  # type: ignore[operator]
    on_processes = await run_load(on_ray, task)  # type: ignore[arg-type]
    on_actors = await run_load(on_ray, replace(task, pool=RAY))  # type: ignore[arg-type]
    # Terminals draw by their number and the seed, wherever they run
    assert ok(on_actors) == ok(on_processes)
    assert sum(ok(on_actors).values()) == 200
    assert on_actors.seconds_produced == 4
    assert on_actors.samples_lost == 0
    assert 0 < on_actors.start_skew_ns < 1_000_000_000
    assert on_actors.client_cpu_s > 0

    node = on_ray.resources[NODE]
    assert isinstance(node, RayNode)
    assert node.address.startswith("127.0.0.1:")
    assert listened_on() == {"127.0.0.1"}
    assert {actor.nice() for actor in actors()} == {os.getpriority(os.PRIO_PROCESS, 0)}, (
        "Ray has not put them behind others"
    )
    assert not await is_open(node.address)
    assert {oct(path.stat().st_mode & 0o777) for path in node.directory.glob("*.key")} == {"0o600"}
    assert oct(node.directory.stat().st_mode & 0o777) == "0o700"


async def test_more_workers_than_the_cluster_has_cpus_is_refused_before_it_runs(
    on_ray: Context, hlr_database: str, spec: object, directories: list[Path]
) -> None:
    task: RunLoad = spec(hlr_database, terminals=64)  # type: ignore[operator]
    await run_load(on_ray, replace(task, pool=RAY, workers=1))  # type: ignore[arg-type]
    with pytest.raises(TaskFault, match="needs 64 Ray workers") as raised:
        await run_load(on_ray, replace(task, pool=RAY, workers=64))  # type: ignore[arg-type]
    assert raised.value.code == "refused"
    nothing_left(directories)


async def test_an_actor_that_is_killed_voids_the_load_and_the_next_one_runs(
    on_ray: Context, hlr_database: str, spec: object, directories: list[Path]
) -> None:
    task: RunLoad = spec(hlr_database, windows=(0.3, 90.0, 0.0), think_s=0.02)  # type: ignore[operator]
    running = asyncio.create_task(run_load(on_ray, replace(task, pool=RAY)))  # type: ignore[arg-type]
    await under_way(on_ray, running)
    found = actors()
    assert len(found) == 2
    found[0].kill()
    async with asyncio.timeout(60):
        with pytest.raises(TaskFault, match="died") as raised:
            await running
    assert raised.value.code == "fault"
    assert DRIVER not in on_ray.resources and NODE not in on_ray.resources
    nothing_left(directories)
    task = spec(hlr_database, windows=(0.3, 1.0, 0.2), think_s=0.02)  # type: ignore[operator]
    again = await run_load(on_ray, replace(task, pool=RAY))  # type: ignore[arg-type]
    assert again.ended_in_window > 0


async def test_a_silent_actor_is_lost_within_the_lease(
    on_ray: Context, hlr_database: str, spec: object, directories: list[Path]
) -> None:
    task: RunLoad = spec(hlr_database, windows=(0.3, 90.0, 0.0), think_s=0.02)  # type: ignore[operator]
    running = asyncio.create_task(run_load(on_ray, replace(task, pool=RAY)))  # type: ignore[arg-type]
    await under_way(on_ray, running)
    actors()[0].suspend()
    async with asyncio.timeout(50):  # the load itself would end after that
        with pytest.raises(TaskFault, match="did not answer for 10 s"):
            await running
    nothing_left(directories)


async def test_a_cancelled_load_leaves_no_processes(
    on_ray: Context, hlr_database: str, spec: object, directories: list[Path]
) -> None:
    task: RunLoad = spec(hlr_database, windows=(0.3, 30.0, 0.0), think_s=0.02)  # type: ignore[operator]
    running = asyncio.create_task(run_load(on_ray, replace(task, pool=RAY)))  # type: ignore[arg-type]
    await under_way(on_ray, running)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert on_ray.resources.keys().isdisjoint({DRIVER, NODE})
    nothing_left(directories)


async def test_no_cluster_at_the_address_is_unreachable(on_ray: Context, hlr_database: str, spec: object) -> None:
    task: RunLoad = replace(spec(hlr_database), pool=LoadPool(kind="ray", address="127.0.0.1:1"))  # type: ignore[operator]
    with pytest.raises(TaskFault) as raised:
        await run_load(on_ray, task)  # type: ignore[arg-type]
    assert raised.value.code == "unreachable"

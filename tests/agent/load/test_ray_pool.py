"""Loads on Ray: a cluster formed for the run, the transactions of the local pool, losses, and complete clean-up. By
day `pools/test_ray_driver` and `pools/test_ray_aggregator` run without a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from proveout.agent.errors import TaskFault
from proveout.agent.load import ray_node
from proveout.agent.load.loop.recorder import Recorder
from proveout.agent.load.loop.terminal import stream_of
from proveout.agent.load.loop.transaction import kinds, mix
from proveout.agent.load.pacing import Pacing, Timeline
from proveout.agent.load.ray_node import RayNode, is_open
from proveout.agent.load.ray_task import DRIVER, NODE
from proveout.agent.load.run_load import run_load
from proveout.dsl.workloads.kinds import build
from proveout.proto.wire.tasks import LoadPool, RunLoad

from .conftest import LoadContext, Spec

pytest.importorskip("ray")
pytestmark = [pytest.mark.server, pytest.mark.soak]

RAY = LoadPool(kind="ray")
RAYS = re.compile(r"raylet|gcs_server|ray::|ray_node|ray_driver")


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


@pytest.fixture
async def on_ray(context: LoadContext, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LoadContext]:
    """A context after which no processes and no directories of its cluster are left."""
    made: list[Path] = []

    def mkdtemp(*, prefix: str, dir: str) -> str:
        made.append(Path(tempfile.mkdtemp(prefix=prefix, dir=dir)))
        return str(made[-1])

    monkeypatch.setattr(ray_node, "tempfile", SimpleNamespace(mkdtemp=mkdtemp))
    yield context
    for name, resource in reversed(list(context.resources.items())):
        await resource.close(keep_data=False)
        del context.resources[name]
    assert made
    assert not [path for path in made if path.exists()]
    assert not [words for _, words in descendants() if RAYS.search(words)]


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


async def test_an_open_load_has_the_transactions_that_were_drawn(
    on_ray: LoadContext, hlr_database: str, spec: Spec
) -> None:
    """As on the workers of this host (`test_arrival_schedule`): terminals draw by their number and the seed."""
    # Time to forward the start, and a long ramp-down in which a busy machine catches up with the due transactions
    on_ray.lead_ns = 1_000_000_000
    task = replace(spec(hlr_database, rate=200.0, windows=(0.3, 0.5, 1.2)), pool=RAY)
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
    on_ray: LoadContext, hlr_database: str, spec: Spec, loss: str
) -> None:
    task = replace(spec(hlr_database, windows=(0.3, 600.0, 0.0), think_s=0.02), pool=RAY)
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
    again = await run_load(on_ray, replace(spec(hlr_database, windows=(0.3, 1.0, 0.2), think_s=0.02), pool=RAY))
    assert again.ended_in_window > 0


async def test_a_cluster_that_is_too_small_or_not_there_is_refused(
    on_ray: LoadContext, hlr_database: str, spec: Spec
) -> None:
    task = spec(hlr_database, terminals=64)
    await run_load(on_ray, replace(task, pool=RAY, workers=1))
    for pool, code, what in (
        (RAY, "refused", "needs 64 Ray workers"),
        (LoadPool(kind="ray", address="127.0.0.1:1"), "unreachable", ""),
    ):
        with pytest.raises(TaskFault, match=what or None) as raised:
            await run_load(on_ray, replace(task, pool=pool, workers=64))
        assert raised.value.code == code

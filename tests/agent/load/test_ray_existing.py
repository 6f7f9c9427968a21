"""Loads on an existing Ray cluster: authenticated by its token, spread over its nodes, a node killed; refused when the
cluster has no access control."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proveout.agent.errors import TaskFault
from proveout.agent.load.pools.ray.ray_task import DRIVER, NODE
from proveout.agent.load.run_load import run_load
from proveout.agent.sandbox.privileges import INHERITED, Privileges
from proveout.proto.wire.tasks import LoadPool

pytest.importorskip("ray")
pytestmark = pytest.mark.slow


@asynccontextmanager
async def cluster(privileges: Privileges | None = None) -> AsyncIterator[tuple[Process, str]]:
    """A cluster of another program with this process's environment; when this process is root, the cluster has another user."""
    privileges = Privileges.for_engine("") if privileges is None else privileges
    argv = (sys.executable, str(Path(__file__).parent / "ray_cluster.py"), privileges.to_argument())
    environment = privileges.environment(os.environ)
    process = await asyncio.create_subprocess_exec(*argv, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environment)
    assert process.stdin is not None and process.stdout is not None
    try:
        async with asyncio.timeout(150):
            while line := await process.stdout.readline():
                word, _, address = line.decode().strip().partition(" ")
                if word == "address":
                    break
            else:
                raise AssertionError("the cluster did not come up")
        yield process, address
    finally:
        process.stdin.close()
        async with asyncio.timeout(60):
            while await process.stdout.read(1 << 16):
                pass
            await process.wait()


@pytest.fixture(autouse=True)
def _own_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ray's default directory is not for tests, and a test's directory has too long a path for its sockets."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    with tempfile.TemporaryDirectory(prefix="pvt-", dir="/tmp", ignore_cleanup_errors=True) as home:
        monkeypatch.setenv("RAY_TMPDIR", home)
        Privileges.for_engine("").give(Path(home))
        yield


async def test_a_cluster_with_a_token_runs_a_load_and_the_loss_of_a_node_voids_it(
    context: Any, hlr_database: str, spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "7" * 64)
    async with cluster() as (process, address):
        assert process.stdin is not None
        pool = LoadPool(kind="ray", address=address)
        result = await run_load(
            context, replace(spec(hlr_database, rate=100.0, workers=0, windows=(0.3, 1.0, 0.2)), pool=pool)
        )
        assert sum(t.counts.ok + t.counts.logical_failures + t.counts.missed for t in result.transactions) == 100
        assert NODE not in context.resources  # nothing was formed here

        task = replace(spec(hlr_database, windows=(0.3, 90.0, 0.0), workers=2, think_s=0.02), pool=pool)
        context.first_second.clear()
        running = asyncio.create_task(run_load(context, task))
        async with asyncio.timeout(150):
            await context.first_second.wait()
        process.stdin.write(b"kill\n")
        async with asyncio.timeout(50):
            with pytest.raises(TaskFault, match=r"died|did not answer") as raised:
                await running
        assert raised.value.code == "fault"
        assert DRIVER not in context.resources


async def test_a_cluster_without_access_control_is_refused(
    context: Any, hlr_database: str, spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    async with cluster() as (_, address):
        with pytest.raises(TaskFault, match="has no access control") as raised:
            await run_load(context, replace(spec(hlr_database), pool=LoadPool(kind="ray", address=address)))
        assert raised.value.code == "refused"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's cluster is root's")
async def test_a_cluster_of_root_is_refused(
    context: Any, hlr_database: str, spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its actors would do database work as root."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "7" * 64)
    async with cluster(INHERITED) as (_, address):
        with pytest.raises(TaskFault, match="no load runs as root") as raised:
            await run_load(context, replace(spec(hlr_database), pool=LoadPool(kind="ray", address=address)))
        assert raised.value.code == "refused"

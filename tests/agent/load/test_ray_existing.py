"""Loads on an existing Ray cluster: authenticated by its token; refused when the cluster has no access control. One of
root's is refused in `tests/fabric/test_root_owned_files.py`; a node that is lost is in `test_ray_nodes`."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from proveout.agent.errors import TaskFault
from proveout.agent.load.ray_task import NODE
from proveout.agent.load.run_load import run_load
from proveout.agent.sandbox.privileges import Privileges
from proveout.proto.wire.tasks import LoadPool

from .conftest import LoadContext, Spec

pytest.importorskip("ray")
pytestmark = pytest.mark.soak

TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "7" * 64}


@asynccontextmanager
async def cluster() -> AsyncIterator[LoadPool]:
    """A cluster of another program with this process's environment; when this process is root, the cluster has another user."""
    privileges = Privileges.for_engine("")
    argv = (sys.executable, str(Path(__file__).parent / "ray_cluster.py"), privileges.to_argument())
    environment = privileges.environment(os.environ)
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


@pytest.fixture(autouse=True)
def _own_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ray's default directory is not for tests, and a test's directory has too long a path for its sockets."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    with tempfile.TemporaryDirectory(prefix="pvt-", dir="/tmp", ignore_cleanup_errors=True) as home:
        monkeypatch.setenv("RAY_TMPDIR", home)
        Privileges.for_engine("").give(Path(home))
        yield


async def test_a_cluster_with_a_token_runs_a_load(
    context: LoadContext, hlr_database: str, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in TOKEN.items():
        monkeypatch.setenv(name, value)
    async with cluster() as pool:
        load = spec(hlr_database, rate=100.0, workers=0, windows=(0.3, 1.0, 0.2))
        result = await run_load(context, replace(load, pool=pool))
        assert sum(t.counts.ok + t.counts.logical_failures + t.counts.missed for t in result.transactions) == 100
        assert NODE not in context.resources  # nothing was formed here


async def test_a_cluster_without_access_control_is_refused(
    context: LoadContext, hlr_database: str, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    async with cluster() as pool:
        with pytest.raises(TaskFault, match="has no access control") as raised:
            await run_load(context, replace(spec(hlr_database), pool=pool))
        assert raised.value.code == "refused"

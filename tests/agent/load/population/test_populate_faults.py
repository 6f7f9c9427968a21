"""Faults in a population: the cause in the error, no worker left behind, no half-loaded tables, no change to tables of
other programs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cutting_proxy import CuttingProxy
from eventually import PATIENCE_S
from psycopg.conninfo import make_conninfo

from proveout.agent.errors import TaskFault
from proveout.agent.load.populate import populate
from proveout.agent.load.populate_jobs import Load, Opening, Prepare, to_line
from proveout.agent.sandbox.privileges import Privileges
from proveout.core.linux import ORPHANED

from .conftest import loading, tables, workers

pytestmark = pytest.mark.server

LARGE = 3_000_000  # a population that takes tens of seconds
SESSIONS = "FROM pg_stat_activity WHERE application_name = 'proveout populate' AND datname = current_database()"


@pytest.mark.parametrize("how", ["cancelled", "worker killed", "connection lost"])
async def test_a_population_that_is_broken_off_leaves_no_worker_and_no_table(
    how: str, database: str, task_context: Any, spec: Any
) -> None:
    async with loading(task_context, spec(database, population=LARGE)) as running:
        found = workers()
        assert len(found) == 2
        if how == "cancelled":
            running.cancel()
        elif how == "worker killed":
            found[0].kill()
        else:
            with psycopg.connect(database, autocommit=True) as connection:
                connection.execute(f"SELECT pg_terminate_backend(pid) {SESSIONS}".encode())
        with pytest.raises((TaskFault, asyncio.CancelledError)) as caught:
            await running
    code, what = getattr(caught.value, "code", ""), getattr(caught.value, "what", "")
    if how == "worker killed":
        assert code == "fault"
        assert f"process {found[0].pid}) was killed by SIGKILL" in what
    elif how == "connection lost":
        assert code == "unreachable"
        assert "cannot load table" in what and "connection" in what
    assert workers() == []
    assert tables(database) == set()
    assert not task_context.logs


async def test_a_server_that_is_gone_gives_an_error_and_a_warning(database: str, task_context: Any, spec: Any) -> None:
    proxy = CuttingProxy(lambda: database)
    async with loading(task_context, spec(proxy.dsn, population=LARGE)) as running:
        proxy.end()
        with pytest.raises(TaskFault) as caught:
            await running
    assert caught.value.code == "unreachable"
    assert workers() == []
    ((level, text),) = task_context.logs
    assert level == "warning"
    assert "half loaded" in text


@pytest.mark.parametrize(
    ("change", "codes", "why"),
    [
        ({"password": "xyzzy-secret"}, {"refused", "unreachable"}, "password authentication failed"),
        ({"options": "-c role=pg_monitor"}, {"refused"}, "permission denied for schema public"),
    ],
    ids=["a wrong password", "no right to change"],
)
async def test_a_server_that_cannot_be_used(
    database: str, task_context: Any, spec: Any, change: dict[str, str], codes: set[str], why: str
) -> None:
    with pytest.raises(TaskFault, match=why) as caught:
        await populate(task_context, spec(make_conninfo(database, **change), population=100, workers=1))
    assert caught.value.code in codes
    assert "xyzzy" not in str(caught.value)
    assert workers() == []


@pytest.mark.parametrize(
    ("engine", "path", "partitions", "code", "why"),
    [
        ("nosuch", "x.db", 1, "missing", "no driver for engine"),
        ("sqlite", "x.db", 2, "invalid", "no partitioned tables"),
        ("sqlite", "none/x.db", 1, "unreachable", "cannot open the SQLite file"),
    ],
)
async def test_an_impossible_population_is_refused(
    task_context: Any, spec: Any, tmp_path: Path, engine: str, path: str, partitions: int, code: str, why: str
) -> None:
    file = tmp_path / path
    with pytest.raises(TaskFault, match=why) as caught:
        await populate(task_context, spec(str(file), engine=engine, population=100, partitions=partitions))
    assert caught.value.code == code
    assert not file.exists()


@pytest.mark.parametrize("safeguard", ["no parent", "pipe closed during a job"])
def test_a_worker_ends_by_each_safeguard_alone(safeguard: str, sqlite_file: Path, spec: Any) -> None:
    task = spec(str(sqlite_file), engine="sqlite", population=LARGE)
    opening = Opening(endpoint=task.endpoint, workload=task.workload)
    jobs = (opening, Prepare(), Load(table="subscriber", first=1, count=LARGE))
    module = "proveout.agent.load.populate_worker"
    parent = 1 if safeguard == "no parent" else os.getpid()
    argv = [sys.executable, "-m", module, str(parent), Privileges.for_engine("postgres").to_argument(), "postgres"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        if parent == 1:
            assert process.wait(PATIENCE_S) == ORPHANED
        else:
            process.communicate(b"".join(map(to_line, jobs)), timeout=PATIENCE_S)
            assert process.returncode == ORPHANED

"""A factory of `PopulateSystem` tasks, and what tests of populations share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psutil
import psycopg
import pytest
from eventually import eventually_async

from proveout.agent.errors import TaskFault
from proveout.agent.load.populate import populate
from proveout.dsl.workloads.hlr import NAMES, PRIMARY_KEYS
from proveout.dsl.workloads.kinds import build
from proveout.proto.wire.results import Populated
from proveout.proto.wire.tasks import Endpoint, PopulateSystem
from tests.agent.load.conftest import workload_of


def spec(dsn: str, *, engine: str = "postgres", workers: int = 2, load: str = "", **parameters: Any) -> PopulateSystem:
    """The task that populates the database of `dsn` with HLR data by these parameters."""
    endpoint = Endpoint(system="backend", engine=engine, dsn=dsn)
    return PopulateSystem(workload=workload_of("hlr", **parameters), endpoint=endpoint, workers=workers, load=load)


@pytest.fixture(name="spec")
def spec_fixture() -> Any:
    return spec


def rows_of(dsn: str, table: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(f"SELECT * FROM {table} ORDER BY {PRIMARY_KEYS[table]}".encode()).fetchall()


def made(task: PopulateSystem, table: str) -> list[tuple[Any, ...]]:
    """The rows that the workload specifies."""
    population = build(task.workload).population
    columns = next(t for t in population.tables if t.name == table).rows(1, population.units)
    plain = (c.astype(str).tolist() if c.dtype.kind == "S" else c.tolist() for c in columns)
    return list(zip(*plain, strict=True))


def counts(populated: Populated) -> dict[str, int]:
    return {table.table: table.rows for table in populated.tables}


def tables(dsn: str) -> set[str]:
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("SELECT relname FROM pg_class WHERE relname = ANY(%s)", (list(NAMES),)).fetchall()
    return {name for (name,) in rows}


def workers() -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if any("populate_worker" in part for part in process.cmdline()):
                found.append(process)
    return found


@asynccontextmanager
async def loading(context: Any, task: PopulateSystem) -> AsyncIterator[asyncio.Task[Any]]:
    """A large population that is running: workers are up and rows are inserted."""
    running = asyncio.create_task(populate(context, task))
    try:
        await eventually_async(lambda: context.progressed or running.done(), "the first rows")
        assert not running.done()
        yield running
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError, TaskFault):
            await running

"""A load that was broken off continues: its committed ranges stay and are not loaded again, on every engine; several hosts
load shares."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import psycopg
import pytest

from proveout.agent.engines.table import adapter
from proveout.agent.errors import TaskFault
from proveout.agent.load.population.handler import populate
from proveout.agent.load.population.load_journal import LoadJournal, joined, journal_of
from proveout.agent.load.population.slices import missing
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.hlr.parameters import Hlr
from proveout.dsl.workloads.hlr.tables import NAMES
from proveout.dsl.workloads.kinds import build
from proveout.proto.wire.tasks import Endpoint, PopulateSystem
from tests.agent.load.population.test_populate import counts, made, rows_of
from tests.agent.load.population.test_populate_faults import loading

LOAD = "0123456789abcdef" * 2
SUBSCRIBERS = 7_000  # four slices


def test_neighbouring_ranges_are_one() -> None:
    assert joined([(1, 10, 7), (11, 5, 3), (21, 5, 0)]) == [(1, 15, 10), (21, 5, 0)]


def test_missing_slices_are_those_outside_of_every_range() -> None:
    assert list(missing([(1, 10), (11, 10), (21, 10)], [(1, 10, 9), (21, 10, 9)])) == [(11, 10)]


def workload(population: int = SUBSCRIBERS) -> Workload:
    return Workload(name="hlr", kind="hlr", parameters=to_values(Hlr(population=population, seed=3)))


async def half_then_whole(context: Any, endpoint: Endpoint) -> None:
    """Load half of the units, then everything; the second task keeps the first one's rows, and leaves no journal."""
    task = PopulateSystem(workload=workload(), endpoint=endpoint, workers=1, load=LOAD)
    whole = build(task.workload).population
    begun = await populate(context, dataclasses.replace(task, steps=("prepare", "load"), share_to=1, shares=2))
    assert begun.tables == ()
    done = await populate(context, task)
    half = sum(len(table.rows(1, 4_000)[0]) for table in whole.tables)
    assert done.kept_rows == half
    assert counts(done) == {table.name: len(table.rows(1, whole.units)[0]) for table in whole.tables}
    engine: Any = adapter(endpoint.engine)
    loader = engine.loader(endpoint.dsn, whole)
    assert not loader.table_exists(journal_of(whole))
    loader.close()


@pytest.mark.server
async def test_postgres_continues(database: str, context: Any) -> None:
    await half_then_whole(context, Endpoint(system="db", engine="postgres", dsn=database))
    task = PopulateSystem(workload=workload(), endpoint=Endpoint(system="", engine="", dsn=""), workers=1)
    for table in NAMES:
        assert rows_of(database, table) == made(task, table)


@pytest.mark.server
async def test_mysql_continues(mysql_database: str, context: Any) -> None:
    await half_then_whole(context, Endpoint(system="db", engine="mysql", dsn=mysql_database))


@pytest.mark.server
async def test_oracle_without_direct_path_continues(oracle: str, tns_database: str, context: Any) -> None:
    try:
        await half_then_whole(context, Endpoint(system="db", engine="oracle", dsn=oracle))
    finally:
        with psycopg.connect(tns_database, autocommit=True) as connection:
            for table in reversed(NAMES):
                connection.execute(f"DROP TABLE IF EXISTS {table} CASCADE")


async def test_sqlite_continues(database_folder: Path, context: Any) -> None:
    await half_then_whole(context, Endpoint(system="db", engine="sqlite", dsn=str(database_folder / "a.db")))


async def test_duckdb_continues(database_folder: Path, context: Any) -> None:
    await half_then_whole(context, Endpoint(system="db", engine="duckdb", dsn=str(database_folder / "a.duckdb")))


@pytest.mark.server
async def test_a_cancelled_load_keeps_its_ranges_and_continues(database: str, context: Any) -> None:
    task = PopulateSystem(
        workload=workload(60_000),
        endpoint=Endpoint(system="db", engine="postgres", dsn=database),
        workers=2,
        load=LOAD,
    )
    async with loading(context, task) as running:
        await asyncio.sleep(0.2)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert [level for level, _ in context.logged] == ["warning"]
    done = await populate(context, task)
    assert 0 < done.kept_rows < sum(counts(done).values())
    assert rows_of(database, "access_info") == made(task, "access_info")


@pytest.mark.server
async def test_hosts_load_their_shares_together(database: str, context: Any) -> None:
    whole = PopulateSystem(
        workload=workload(), endpoint=Endpoint(system="db", engine="postgres", dsn=database), workers=1, load=LOAD
    )
    await populate(context, dataclasses.replace(whole, steps=("prepare",)))
    shares = [
        dataclasses.replace(whole, steps=("load",), share_from=low, share_to=high, shares=3)
        for low, high in ((0, 1), (1, 3))
    ]
    await asyncio.gather(*(populate(context, share) for share in shares))
    done = await populate(context, dataclasses.replace(whole, steps=("finish",)))
    assert set(counts(done)) == set(NAMES)
    for table in NAMES:
        assert rows_of(database, table) == made(whole, table)


@pytest.mark.server
async def test_a_share_that_is_missing_fails_and_stays(database: str, context: Any) -> None:
    whole = PopulateSystem(
        workload=workload(), endpoint=Endpoint(system="db", engine="postgres", dsn=database), workers=1, load=LOAD
    )
    await populate(context, dataclasses.replace(whole, steps=("prepare", "load"), share_to=1, shares=2))
    with pytest.raises(TaskFault, match=r"not all units are loaded: subscriber 4000 of 7000"):
        await populate(context, dataclasses.replace(whole, steps=("finish",)))
    assert len(rows_of(database, "subscriber")) == 4_000


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ("", 4_000),
        ("UPDATE {journal} SET load_id = 'other' WHERE part = '-'", None),
        ("UPDATE {journal} SET loaded = -1 WHERE part = 'subscriber'", None),
        ("DROP TABLE call_forwarding", None),
    ],
    ids=["same load", "another load", "a range without its rows", "a table is gone"],
)
def test_only_a_whole_journal_of_the_same_load_is_continued(
    database_folder: Path, change: str, kept: int | None
) -> None:
    population = build(workload()).population
    engine: Any = adapter("sqlite")
    loader = engine.loader(str(database_folder / "a.db"), population)
    journal = LoadJournal(loader, population, LOAD)
    assert journal.rows_kept() is None
    loader.prepare()
    journal.create()
    table = next(table for table in population.tables if table.name == "subscriber")
    loader.load(table, 1, 4_000, lambda _: None, journal.mark("subscriber", 1, 4_000))
    if change:
        loader.execute(change.format(journal=journal.name))
    assert journal.rows_kept() == kept
    loader.close()

"""A load that was broken off continues: its committed ranges stay and are not loaded again, on every engine; several hosts
load shares."""

from __future__ import annotations

import asyncio
import dataclasses
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest

from proveout.agent.engines.table import adapter
from proveout.agent.errors import TaskFault
from proveout.agent.load.population.handler import populate
from proveout.agent.load.population.load_journal import LoadJournal, has_run_before, joined, journal_of
from proveout.agent.load.population.slices import missing
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.hlr.parameters import Hlr
from proveout.dsl.workloads.hlr.tables import NAMES
from proveout.dsl.workloads.kinds import build
from proveout.proto.wire.tasks import Endpoint, PopulateSystem
from tests.agent.load.population.test_populate import counts, made, rows_of
from tests.agent.load.population.test_populate_faults import loading, tables

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


async def test_sqlite_continues(sqlite_file: Path, context: Any) -> None:
    await half_then_whole(context, Endpoint(system="db", engine="sqlite", dsn=str(sqlite_file)))


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
def test_only_a_whole_journal_of_the_same_load_is_continued(sqlite_file: Path, change: str, kept: int | None) -> None:
    population = build(workload()).population
    engine: Any = adapter("sqlite")
    loader = engine.loader(str(sqlite_file), population)
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


class Killed(BaseException):
    """The process ends here."""


class Loader:
    """A loader that keeps the journal's table in SQLite and counts the statements; `fails` are those that it refuses."""

    whole_number = "BIGINT"

    def __init__(self) -> None:
        self.db = sqlite3.connect(":memory:", isolation_level=None)
        self.killed_after = ""
        self.ran: list[str] = []

    def execute(self, statement: str) -> None:
        try:
            self.db.execute(statement)
        except sqlite3.Error as error:
            raise TaskFault("fault", f"cannot run {statement!r}: {error}") from None
        self.ran.append(statement)
        if self.killed_after and self.killed_after in statement:
            self.killed_after = ""
            raise Killed

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.db.execute(query).fetchall()

    def table_exists(self, name: str) -> bool:
        return bool(self.rows(f"SELECT 1 FROM sqlite_master WHERE name = '{name}'"))

    def load(self, *_: Any) -> int:
        raise AssertionError


def test_a_statement_after_the_load_that_was_killed_before_its_record_counts_as_run() -> None:
    loader = Loader()
    journal = LoadJournal(loader, build(workload()).population, LOAD)
    journal.create()
    loader.execute("CREATE TABLE t (a)")
    index = "CREATE INDEX i ON t (a)"
    loader.killed_after = index
    with pytest.raises(Killed):
        journal.execute("after 1.1", index)
    journal.execute("after 1.1", index)
    journal.execute("after 1.1", index)
    assert loader.ran.count(index) == 1
    assert journal.rows_kept() is None, "no table is there; a begun statement is no open range"

    with pytest.raises(TaskFault, match="already exists"):
        journal.execute("after 1.2", index)
    with pytest.raises(TaskFault, match="already exists"):  # it failed before, so it was not killed
        journal.execute("after 1.2", index)


@pytest.mark.parametrize(
    "text",
    [
        "multiple primary keys for table (SQLSTATE 42P16)",
        "Multiple primary key defined (MySQL error 1068)",
        "ORA-02260: table can have only one primary key",
        "Catalog Error: Index with name i already exists!",
    ],
)
def test_the_answers_of_databases_to_a_key_that_exists(text: str) -> None:
    assert has_run_before(TaskFault("fault", f"cannot run it: {text}"))
    assert not has_run_before(TaskFault("fault", "duplicate key value violates unique constraint (SQLSTATE 23505)"))


@pytest.mark.server
async def test_a_key_that_was_made_before_the_kill_is_not_made_twice(database: str, context: Any) -> None:
    whole = PopulateSystem(
        workload=workload(), endpoint=Endpoint(system="db", engine="postgres", dsn=database), workers=1, load=LOAD
    )
    population = build(whole.workload).population
    await populate(context, dataclasses.replace(whole, steps=("prepare", "load")))
    statement = population.after["postgres"][0][0]
    with psycopg.connect(database, autocommit=True) as connection:
        begun = f"INSERT INTO {journal_of(population)} VALUES ('{LOAD}', 'after 1.1', 0, 0, -1)"
        connection.execute(begun.encode())
        connection.execute(statement.encode())
    done = await populate(context, whole)
    assert done.kept_rows == sum(counts(done).values())


@pytest.mark.server
async def test_dropped_tables_are_gone_and_those_of_others_stay(database: str, context: Any) -> None:
    whole = PopulateSystem(
        workload=workload(100), endpoint=Endpoint(system="db", engine="postgres", dsn=database), workers=1
    )
    drop = dataclasses.replace(whole, steps=("drop",))
    await populate(context, whole)
    await populate(context, drop)
    await populate(context, drop)
    assert tables(database) == set()
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE access_info AS SELECT 'precious' AS what")
    with pytest.raises(TaskFault, match="table access_info that proveout did not make"):
        await populate(context, drop)
    assert tables(database) == {"access_info"}

"""A load that was broken off continues: its committed ranges stay and are not loaded again; several hosts load shares."""

from __future__ import annotations

import asyncio
import dataclasses
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest
from eventually import eventually_async

from proveout.agent.engines.table import adapter
from proveout.agent.errors import TaskFault
from proveout.agent.load.populate import populate
from proveout.agent.load.populate_jobs import LoadJournal, has_run_before, joined, journal_of, missing
from proveout.dsl.workloads.hlr import NAMES
from proveout.dsl.workloads.kinds import build
from tests.agent.load.conftest import workload_of

from .conftest import counts, loading, made, rows_of, tables

LOAD = "0123456789abcdef" * 2
SUBSCRIBERS = 7_000  # four slices
POPULATION = build(workload_of("hlr", population=SUBSCRIBERS, seed=3)).population
SOAK = pytest.mark.soak


def whole(spec: Any, dsn: str, **parameters: Any) -> Any:
    return spec(dsn, load=LOAD, workers=1, **{"population": SUBSCRIBERS, "seed": 3, **parameters})


def test_neighbouring_ranges_are_one_and_missing_slices_are_those_outside_of_every_range() -> None:
    assert joined([(1, 10, 7), (11, 5, 3), (21, 5, 0)]) == [(1, 15, 10), (21, 5, 0)]
    assert list(missing([(1, 10), (11, 10), (21, 10)], [(1, 10, 9), (21, 10, 9)])) == [(11, 10)]


@pytest.mark.server
@pytest.mark.parametrize(
    "engine", ["mysql", *(pytest.param(one, marks=SOAK) for one in ("postgres", "sqlite", "oracle", "duckdb"))]
)
async def test_the_second_half_of_a_load_is_all_that_is_loaded(
    engine: str, request: pytest.FixtureRequest, task_context: Any, spec: Any, database_folder: Path
) -> None:
    """Load half of the units, then everything; the second task keeps the first one's rows, and leaves no journal."""
    fixtures = {"postgres": "database", "mysql": "mysql_database", "oracle": "oracle", "sqlite": "sqlite_file"}
    dsn = str(request.getfixturevalue(fixtures[engine]) if engine in fixtures else database_folder / "a.duckdb")
    task = whole(spec, dsn, engine=engine)
    try:
        begun = await populate(task_context, dataclasses.replace(task, steps=("prepare", "load"), share_to=1, shares=2))
        assert begun.tables == ()
        done = await populate(task_context, task)
        assert done.kept_rows == sum(len(table.rows(1, 4_000)[0]) for table in POPULATION.tables)
        assert counts(done) == {table.name: len(table.rows(1, POPULATION.units)[0]) for table in POPULATION.tables}
        made_by: Any = adapter(engine)
        loader = made_by.loader(dsn, POPULATION)
        assert not loader.table_exists(journal_of(POPULATION))
        loader.close()
    finally:
        if engine == "oracle":
            with psycopg.connect(request.getfixturevalue("tns_database"), autocommit=True) as connection:
                for table in reversed(NAMES):
                    connection.execute(f"DROP TABLE IF EXISTS {table} CASCADE".encode())


@pytest.mark.server
async def test_a_cancelled_load_keeps_its_ranges_and_continues(database: str, task_context: Any, spec: Any) -> None:
    task = whole(spec, database, population=30_000)
    async with loading(task_context, task) as running:
        with psycopg.connect(database, autocommit=True) as connection:
            query = f"SELECT count(*) FROM {journal_of(POPULATION)} WHERE loaded >= 0 AND part = 'subscriber'".encode()
            await eventually_async(lambda: (connection.execute(query).fetchone() or (0,))[0], "a committed range")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert [level for level, _ in task_context.logs] == ["warning"]
    done = await populate(task_context, task)
    assert 0 < done.kept_rows < sum(counts(done).values())
    assert rows_of(database, "access_info") == made(task, "access_info")


@pytest.mark.server
async def test_hosts_load_their_shares_together_and_a_missing_one_fails(
    database: str, task_context: Any, spec: Any
) -> None:
    """A key that was made before a kill is not made twice."""
    task = whole(spec, database)
    await populate(task_context, dataclasses.replace(task, steps=("prepare", "load"), share_to=1, shares=3))
    finish = dataclasses.replace(task, steps=("finish",))
    with pytest.raises(TaskFault, match=r"not all units are loaded: subscriber \d+ of 7000"):
        await populate(task_context, finish)
    assert rows_of(database, "subscriber"), "what is there stays"
    shares = [dataclasses.replace(task, steps=("load",), share_from=low, share_to=low + 1, shares=3) for low in (1, 2)]
    await asyncio.gather(*(populate(task_context, share) for share in shares))
    with psycopg.connect(database, autocommit=True) as connection:
        begun = f"INSERT INTO {journal_of(POPULATION)} VALUES ('{LOAD}', 'after 1.1', 0, 0, -1)"
        connection.execute(begun.encode())
        connection.execute(POPULATION.after["postgres"][0][0])
    assert set(counts(await populate(task_context, finish))) == set(NAMES)
    for table in NAMES:
        assert rows_of(database, table) == made(task, table)


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
    engine: Any = adapter("sqlite")
    loader = engine.loader(str(sqlite_file), POPULATION)
    journal = LoadJournal(loader, POPULATION, LOAD)
    assert journal.rows_kept() is None
    loader.prepare()
    journal.create()
    table = next(table for table in POPULATION.tables if table.name == "subscriber")
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


def test_a_statement_after_the_load_runs_once_wherever_it_was_killed() -> None:
    loader = Loader()
    journal = LoadJournal(loader, POPULATION, LOAD)
    journal.create()
    loader.execute("CREATE TABLE t (a)")
    index = "CREATE INDEX i ON t (a)"
    loader.killed_after = "'after 1.1'"
    with pytest.raises(Killed):
        journal.execute("after 1.1", index)
    assert index not in loader.ran, "it was begun and did not run"
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
async def test_dropped_tables_are_gone_and_those_of_others_stay(database: str, task_context: Any, spec: Any) -> None:
    task = spec(database, population=100, workers=1)
    drop = dataclasses.replace(task, steps=("drop",))
    for step in (task, drop):
        await populate(task_context, step)
    assert tables(database) == set()
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE access_info AS SELECT 'precious' AS what")
        for step in (drop, task):
            with pytest.raises(TaskFault, match="table access_info that proveout did not make") as caught:
                await populate(task_context, step)
            assert caught.value.code == "refused"
            assert caught.value.way_out
            assert connection.execute("SELECT what FROM access_info").fetchall() == [("precious",)]
    assert tables(database) == {"access_info"}

"""Populations of real databases: rows, keys, partitions and cardinalities match the specification on every engine; a fault
is named, and leaves no worker, no half-loaded table and no change to tables of others; a load that was broken off
continues, and several hosts load shares."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import numpy as np
import oracledb
import psutil
import psycopg
import pymysql
import pytest
from cutting_proxy import CuttingProxy
from eventually import PATIENCE_S, eventually_async
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo

from proveout.agent.engines.handlers import checkpoint, inspect_system, run_sql
from proveout.agent.engines.mysql import dsn as mysql_dsn
from proveout.agent.engines.mysql.populate import LoadConnection, MysqlLoader
from proveout.agent.engines.oracle.populate import OracleLoader
from proveout.agent.engines.postgres.populate import PostgresLoader
from proveout.agent.engines.postgres.populate import fault as postgres_fault
from proveout.agent.engines.table import adapter
from proveout.agent.errors import TaskFault
from proveout.agent.load import populate_jobs
from proveout.agent.load.populate import WorkerPool, judge, populate
from proveout.agent.load.populate_jobs import LoadJournal, journal_of
from proveout.agent.sandbox.privileges import Privileges
from proveout.core.linux import ORPHANED
from proveout.dsl.workloads.base import Population, Table
from proveout.dsl.workloads.hlr import NAMES, shapes
from proveout.dsl.workloads.kinds import build
from proveout.proto.wire.results import Populated, TableCount
from proveout.proto.wire.tasks import Checkpoint, Endpoint, InspectSystem, PopulateSystem, RunSql

from .conftest import workload_of

SUBSCRIBERS = 3_000
PRIMARY_KEYS = {shape.name: shape.primary_key for shape in shapes(SUBSCRIBERS)}
LARGE = 3_000_000  # a population that takes tens of seconds
PAGES_IN_USE = "SELECT count(DISTINCT (ctid::text::point)[0]) FROM {}"
LOOKED_UP = "EXPLAIN SELECT s_id FROM subscriber WHERE sub_nbr = '000000000000042'"
SOAK = pytest.mark.soak


def hlr(dsn: str, *, engine: str = "postgres", workers: int = 2, load: str = "", **parameters: Any) -> PopulateSystem:
    """The task that populates the database of `dsn` with HLR data by these parameters."""
    endpoint = Endpoint(system="backend", engine=engine, dsn=dsn)
    return PopulateSystem(workload=workload_of("hlr", **parameters), endpoint=endpoint, workers=workers, load=load)


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


async def test_postgres_contains_the_generated_rows_in_ordinary_keyed_and_analysed_tables(
    database: str, task_context: Any
) -> None:
    """The second population replaces the first, and has partitions."""
    await _populated(task_context, hlr(database, population=SUBSCRIBERS, seed=7, workers=3))
    with psycopg.connect(database) as connection:
        kinds = connection.execute(
            "SELECT relname, relkind, relpersistence, relreplident, relallvisible, relpages, reltuples"
            " FROM pg_class WHERE relname = ANY(%s)",
            (list(NAMES),),
        ).fetchall()
        used = {name: connection.execute(PAGES_IN_USE.format(name)).fetchall()[0][0] for name, *_ in kinds}
        keys = connection.execute(
            "SELECT conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint"
            " WHERE contype IN ('p', 'f') AND convalidated AND connamespace = 'public'::regnamespace"
        ).fetchall()
        plan = connection.execute(LOOKED_UP).fetchall()
    assert len(kinds) == len(NAMES)
    for name, kind, persistence, identity, visible, pages, tuples in kinds:
        assert (kind, persistence, identity) == ("r", "p", "d")
        assert pages >= visible >= used[name] > 0  # the other pages were reserved by parallel COPYs and not used
        assert tuples > 0
    primary = {(table, f"PRIMARY KEY ({key})") for table, key in PRIMARY_KEYS.items()}
    foreign = {
        ("access_info", "FOREIGN KEY (s_id) REFERENCES subscriber(s_id)"),
        ("special_facility", "FOREIGN KEY (s_id) REFERENCES subscriber(s_id)"),
        ("call_forwarding", "FOREIGN KEY (s_id, sf_type) REFERENCES special_facility(s_id, sf_type)"),
    }
    assert set(keys) == primary | foreign
    assert "subscriber_sub_nbr" in plan[0][0]

    await _populated(task_context, hlr(database, population=SUBSCRIBERS, partitions=3, cardinality="lab"))
    with psycopg.connect(database) as connection:
        for table in NAMES:
            parts = connection.execute(
                f"SELECT tableoid::regclass::text, min(s_id), max(s_id) FROM {table} GROUP BY 1 ORDER BY 1".encode()
            ).fetchall()
            assert [name for name, _, _ in parts] == [f"{table}_p1", f"{table}_p2", f"{table}_p3"]
            assert parts[0][2] <= 1_000 < parts[1][1] <= parts[1][2] <= 2_000 < parts[2][1]
        plan = connection.execute(LOOKED_UP).fetchall()
    assert sum("sub_nbr" in line and "Index" in line for (line,) in plan) >= 3


async def _populated(context: Any, task: PopulateSystem) -> None:
    """Populate, and compare the rows, their counts and the progress with the specification."""
    context.progressed.clear()
    populated = await populate(context, task)
    assert list(counts(populated)) == list(NAMES)
    for table in NAMES:
        expected = made(task, table)
        assert rows_of(task.endpoint.dsn, table) == expected
        assert counts(populated)[table] == len(expected)
    assert populated.seconds > 0
    reports = context.progressed
    done = [done for done, *_ in reports]
    assert done == sorted(done)
    assert done[-1] == sum(counts(populated).values())
    assert all(0 < done <= total and unit == "rows" for done, total, unit, _ in reports)
    assert reports[-1][3] == "counting rows"
    assert not context.logs


async def test_sqlite_contains_the_same_rows_all_in_the_file(wal_file: Path, task_context: Any) -> None:
    task = hlr(str(wal_file), engine="sqlite", population=SUBSCRIBERS, seed=7)
    connection = apsw.Connection(str(wal_file))
    try:
        await populate(task_context, task)
        log = wal_file.with_name(f"{wal_file.name}-wal")
        assert not log.exists() or log.stat().st_size == 0
        for table in NAMES:
            stored = connection.execute(f"SELECT * FROM {table} ORDER BY {PRIMARY_KEYS[table]}").fetchall()
            assert stored == made(task, table)
        assert connection.pragma("foreign_key_check") is None
        plan = connection.execute("EXPLAIN QUERY PLAN SELECT s_id FROM subscriber WHERE sub_nbr = 'x'").fetchall()
        assert "subscriber_sub_nbr" in plan[0][3]
    finally:
        connection.close()


@given(units=st.integers(1, 3_000_000_000), cuts=st.lists(st.integers(1, 63), unique=True))
def test_slices_and_shares_cover_every_unit_once(units: int, cuts: list[int]) -> None:
    cut = populate_jobs.slices(units)
    bounds = [0, *sorted(cuts), 64]
    assert [part for low, high in pairwise(bounds) for part in populate_jobs.share_of(cut, low, high, 64)] == cut
    assert cut[0][0] == 1
    assert all(first + count == after for (first, count), (after, _) in pairwise(cut))
    assert sum(count for _, count in cut) == units


def test_a_table_out_of_its_range_is_named() -> None:
    right = TableCount(table="subscriber", rows=100, expected_low=100, expected_high=100)
    wrong = TableCount(table="access_info", rows=401, expected_low=240, expected_high=260)
    judge((right,), "backend")
    with pytest.raises(TaskFault, match="access_info has 401 rows, not 240 to 260") as caught:
        judge((right, wrong), "backend")
    assert caught.value.code == "fault"
    assert "subscriber" not in caught.value.what


async def test_rows_that_are_not_those_that_were_sent_are_named(
    task_context: Any, sqlite_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database counts one more."""

    async def run(pool: WorkerPool, jobs: Any) -> list[int]:
        found = await run_all(pool, jobs)
        return [
            101 if job == populate_jobs.Job(what="count", table="subscriber") else rows
            for job, rows in zip(jobs, found, strict=True)
        ]

    run_all = WorkerPool.run
    monkeypatch.setattr(WorkerPool, "run", run)
    with pytest.raises(TaskFault, match="table subscriber has 101 rows after 100 were loaded into it"):
        await populate(task_context, hlr(str(sqlite_file), engine="sqlite", population=100))


# ---- MySQL: LOAD DATA LOCAL and INSERT give the same rows, with special characters in texts ---------------------------

WORDS = [
    "plain",
    'with "quotes"',
    "back\\slash",
    "two\nlines",
    "comma, comma",
    "naïve ☃",
    "",
    "'",
    "\\N",
    "NULL",
    "tab\t",
]


def ask(dsn: str, query: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(mysql_dsn.connect(mysql_dsn.parse(dsn))) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())


@pytest.fixture
def without_local_infile(mysql_database: str) -> Iterator[None]:
    ask(mysql_database, "SET GLOBAL local_infile = OFF")
    yield
    ask(mysql_database, "SET GLOBAL local_infile = ON")


def rows_of_words(first: int, count: int) -> list[Any]:
    keys = np.arange(first, first + count)
    return [keys, np.array(WORDS)[(keys - 1) % len(WORDS)], np.full(count, b"abc", "S3"), keys / 4]


ODD = Table(
    name="odd", columns=(("id", "int4"), ("word", "any"), ("code", "char(3)"), ("part", "any")), rows=rows_of_words
)
CREATE_ODD = "CREATE TABLE odd (id int PRIMARY KEY, word text, code char(3), part double) CHARSET utf8mb4"
ODD_ONES = Population(
    units=len(WORDS),
    tables=(ODD,),
    before={"mysql": (CREATE_ODD,)},
    after={"mysql": ()},
    drop={"mysql": ("DROP TABLE IF EXISTS odd",)},
    expected={"odd": (len(WORDS), len(WORDS))},
)


def test_names_in_capital_letters_are_folded_as_postgres_folds_them(database: str) -> None:
    """`kind: sql` names tables and columns as its CREATE TABLE does: without quotes in any letters, or with them."""
    table = replace(ODD, name="Odd", columns=(("Id", "any"), ("Word", "any"), ("Order", "any"), ("part", "any")))
    made = 'CREATE TABLE Odd (Id int PRIMARY KEY, WORD text, "Order" text, part float)'
    after, drop = {"postgres": (("ANALYZE Odd",),)}, {"postgres": ("DROP TABLE IF EXISTS Odd",)}
    population = replace(ODD_ONES, tables=(table,), before={"postgres": (made,)}, after=after, drop=drop)
    for _ in range(2):
        with contextlib.closing(PostgresLoader(database, population)) as loader:
            loader.prepare()
            assert loader.load(table, 1, len(WORDS), lambda _: None) == loader.count("Odd") == len(WORDS)
            assert loader.table_exists("Odd")


def load_odd(loader: MysqlLoader) -> None:
    progress: list[int] = []
    assert loader.load(ODD, 1, len(WORDS), progress.append) == len(WORDS) == sum(progress)
    assert loader.count("odd") == len(WORDS)


@pytest.mark.parametrize("by", ["LOAD DATA", "LOAD DATA without pyarrow", "INSERT"])
def test_any_text(
    by: str, mysql_database: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by.endswith("without pyarrow"):
        monkeypatch.setitem(sys.modules, "pyarrow", None)
    if by == "INSERT":
        request.getfixturevalue("without_local_infile")
        with (
            contextlib.closing(mysql_dsn.connect(mysql_dsn.parse(mysql_database), kind=LoadConnection)) as connection,
            pytest.raises(pymysql.err.MySQLError),  # the server refuses LOAD DATA LOCAL
        ):
            connection.load("LOAD DATA LOCAL INFILE 'rows' INTO TABLE odd", b"")
    with contextlib.closing(MysqlLoader(mysql_database, ODD_ONES)) as loader:
        loader.prepare()
        load_odd(loader)
        loader.settle()
    found = ask(mysql_database, "SELECT id, word, code, part FROM odd ORDER BY id")
    assert found == [(number, word, "abc", number / 4) for number, word in enumerate(WORDS, start=1)]
    narrow = replace(ODD_ONES, before={"mysql": (CREATE_ODD.replace("word text", "word varchar(5)"),)})
    with contextlib.closing(MysqlLoader(mysql_database, narrow)) as loader:
        loader.prepare()
        with pytest.raises(TaskFault, match=r"cannot load table odd: .* column 'word'"):
            loader.load(ODD, 1, len(WORDS), lambda _: None)


def test_a_slice_is_repeated_after_a_lock_timeout(mysql_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another session locks the key of a row: the whole slice is rolled back, and inserted after the lock is released.

    The test provokes a lock timeout. A deadlock takes the same code path, but InnoDB chooses which transaction it rolls
    back.
    """
    loader = MysqlLoader(mysql_database, ODD_ONES)
    loader.prepare()
    loader.execute("SET SESSION innodb_lock_wait_timeout = 1")
    with contextlib.closing(mysql_dsn.connect(mysql_dsn.parse(mysql_database))) as other:
        other.begin()
        other.cursor().execute("INSERT INTO odd VALUES (3, 'in the way', 'no', 0)")
        pauses: list[float] = []

        def free_it(seconds: float) -> None:
            pauses.append(seconds)
            other.rollback()

        monkeypatch.setattr("proveout.agent.engines.mysql.populate.time.sleep", free_it)
        load_odd(loader)
        assert len(pauses) == 1
    loader.close()


async def test_keys_and_the_collation_of_texts(mysql_database: str, task_context: Any) -> None:
    """A text is compared in the column's own collation, so the index on the number is used."""
    await populate(task_context, hlr(mysql_database, engine="mysql", workers=1, population=100))
    query = "SELECT constraint_type, count(*) FROM information_schema.table_constraints WHERE table_schema = database() GROUP BY 1"
    assert dict(ask(mysql_database, query)) == {"PRIMARY KEY": 4, "UNIQUE": 1, "FOREIGN KEY": 3}
    (plan,) = ask(mysql_database, LOOKED_UP)
    assert plan[5] == "subscriber_sub_nbr"


# ---- over Oracle's protocol, into the TNS server of tests/wire -------------------------------------------------------

ORACLES = build(workload_of("hlr", population=300)).population


def drop_behind_tns(tns_database: str, *more: str) -> None:
    with psycopg.connect(tns_database, autocommit=True) as connection:
        for table in (*NAMES, *more):
            connection.execute(f"DROP TABLE IF EXISTS {table} CASCADE".encode())


@pytest.fixture
def endpoint(oracle: str, tns_database: str) -> Iterator[Endpoint]:
    yield Endpoint(system="db", engine="oracle", dsn=oracle)
    drop_behind_tns(tns_database, "mine")


@pytest.fixture
def loader(endpoint: Endpoint) -> Iterator[OracleLoader]:
    with contextlib.closing(OracleLoader(endpoint.dsn, ORACLES)) as loader:
        loader.prepare()
        yield loader
        loader.undo()
        loader.undo()


async def test_every_row_is_inserted(task_context: Any, endpoint: Endpoint, tns_database: str) -> None:
    task = hlr(endpoint.dsn, engine="oracle", population=300)
    await populate(task_context, task)
    with psycopg.connect(tns_database) as connection:
        for table in NAMES:
            found = connection.execute(f"SELECT * FROM {table}".encode()).fetchall()
            plain = [tuple(value if isinstance(value, str) else int(value) for value in row) for row in found]
            assert sorted(plain) == sorted(made(task, table))
        keys = connection.execute("SELECT conname FROM pg_constraint WHERE contype IN ('p', 'f') ORDER BY 1").fetchall()
        assert {"subscriber_pk", "access_info_fk1", "call_forwarding_fk1"} <= {name for (name,) in keys}


def test_rows_that_are_refused_are_named(loader: OracleLoader) -> None:
    loader.execute("ALTER TABLE subscriber ADD CONSTRAINT subscriber_pk PRIMARY KEY (s_id)")
    assert loader.load(ORACLES.tables[0], 1, 3, lambda _: None) == 3
    with pytest.raises(TaskFault, match="1 rows were refused: row 0: ORA-00001"):
        loader.load(ORACLES.tables[0], 3, 2, lambda _: None)
    assert loader.count("subscriber") == 3


def test_a_table_locked_by_the_direct_path_load_of_another_worker_takes_array_inserts(
    monkeypatch: pytest.MonkeyPatch, loader: OracleLoader
) -> None:
    def locked(*_: object) -> None:
        raise oracledb.DatabaseError(SimpleNamespace(full_code="ORA-00054", code=54))

    monkeypatch.setattr(loader, "_direct_path", locked)
    assert loader.load(ORACLES.tables[0], 1, 3, lambda _: None) == 3
    assert loader.count("subscriber") == 3


async def test_inspect_sql_and_checkpoint(task_context: Any, endpoint: Endpoint) -> None:
    up = await inspect_system(task_context, InspectSystem(endpoint=endpoint))
    assert up.endpoint.version == "19.7.0.0.0"
    assert {"commit_wait": "WAIT", "container": "1"}.items() <= dict(up.settings).items()
    statements = ("CREATE TABLE mine (a NUMBER(5));", "INSERT INTO mine VALUES (1)", "SELECT a FROM mine")
    assert (await run_sql(task_context, RunSql(endpoint=endpoint, statements=statements))).counts == (0, 1, 1)
    with pytest.raises(TaskFault) as raised:
        await run_sql(task_context, RunSql(endpoint=endpoint, statements=("SELECT a FROM nothere",)))
    assert (raised.value.code, "ORA-00942" in raised.value.what) == ("refused", True)
    assert (await checkpoint(task_context, Checkpoint(endpoint=endpoint))).seconds >= 0


# ---- faults ----------------------------------------------------------------------------------------------------------

SESSIONS = "FROM pg_stat_activity WHERE application_name = 'proveout populate' AND datname = current_database()"


@pytest.mark.parametrize("how", ["cancelled", "worker killed", "connection lost"])
async def test_a_population_that_is_broken_off_leaves_no_worker_and_no_table(
    how: str, database: str, task_context: Any
) -> None:
    async with loading(task_context, hlr(database, population=LARGE)) as running:
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


async def test_a_server_that_is_gone_gives_an_error_and_a_warning(database: str, task_context: Any) -> None:
    proxy = CuttingProxy(lambda: database)
    async with loading(task_context, hlr(proxy.dsn, population=LARGE)) as running:
        proxy.end()
        with pytest.raises(TaskFault) as caught:
            await running
    assert caught.value.code == "unreachable"
    assert workers() == []
    ((level, text),) = task_context.logs
    assert level == "warning"
    assert "half loaded" in text


def test_a_server_that_lacks_memory_has_no_full_disk() -> None:
    errors = {psycopg.errors.DiskFull: "disk_full", psycopg.errors.OutOfMemory: "fault"}
    assert {kind: postgres_fault("load", kind("out of it")).code for kind in errors} == errors


def test_counting_the_rows_on_a_lost_connection_is_a_fault(database: str) -> None:
    loader = PostgresLoader(database, Population())
    loader.close()
    with pytest.raises(TaskFault) as caught:
        loader.count("t")
    assert caught.value.code == "unreachable"


@pytest.mark.parametrize(
    ("change", "codes", "why"),
    [
        ({"password": "xyzzy-secret"}, {"refused", "unreachable"}, "password authentication failed"),
        ({"options": "-c role=pg_monitor"}, {"refused"}, "permission denied for schema public"),
    ],
    ids=["a wrong password", "no right to change"],
)
async def test_a_server_that_cannot_be_used(
    database: str, task_context: Any, change: dict[str, str], codes: set[str], why: str
) -> None:
    with pytest.raises(TaskFault, match=why) as caught:
        await populate(task_context, hlr(make_conninfo(database, **change), population=100, workers=1))
    assert caught.value.code in codes
    assert "xyzzy" not in str(caught.value)
    assert workers() == []


@pytest.mark.server
@pytest.mark.parametrize(
    ("engine", "path", "partitions", "code", "why"),
    [
        ("nosuch", "x.db", 1, "missing", "no driver for engine"),
        ("sqlite", "x.db", 2, "invalid", "no partitioned tables"),
        ("sqlite", "none/x.db", 1, "unreachable", "cannot open the SQLite file"),
    ],
)
async def test_an_impossible_population_is_refused(
    task_context: Any, tmp_path: Path, engine: str, path: str, partitions: int, code: str, why: str
) -> None:
    file = tmp_path / path
    with pytest.raises(TaskFault, match=why) as caught:
        await populate(task_context, hlr(str(file), engine=engine, population=100, partitions=partitions))
    assert caught.value.code == code
    assert not file.exists()


@pytest.mark.server
@pytest.mark.parametrize("safeguard", ["no parent", "pipe closed during a job"])
def test_a_worker_ends_by_each_safeguard_alone(safeguard: str, sqlite_file: Path) -> None:
    task = hlr(str(sqlite_file), engine="sqlite", population=LARGE)
    opening = populate_jobs.Opening(endpoint=task.endpoint, workload=task.workload)
    jobs = (
        opening,
        populate_jobs.Job(what="prepare"),
        populate_jobs.Job(what="load", table="subscriber", first=1, count=LARGE),
    )
    module = "proveout.agent.load.populate_worker"
    parent = 1 if safeguard == "no parent" else os.getpid()
    argv = [sys.executable, "-m", module, str(parent), Privileges.for_engine("postgres").to_argument(), "postgres"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        if parent == 1:
            assert process.wait(PATIENCE_S) == ORPHANED
        else:
            process.communicate(b"".join(map(populate_jobs.to_line, jobs)), timeout=PATIENCE_S)
            assert process.returncode == ORPHANED


# ---- a load that was broken off continues; several hosts load shares -------------------------------------------------

LOAD = "0123456789abcdef" * 2
UNITS = 7_000  # four slices
POPULATION = build(workload_of("hlr", population=UNITS, seed=3)).population


def whole(dsn: str, **parameters: Any) -> PopulateSystem:
    return hlr(dsn, load=LOAD, workers=1, **{"population": UNITS, "seed": 3, **parameters})


def test_neighbouring_ranges_are_one_and_missing_slices_are_those_outside_of_every_range() -> None:
    assert populate_jobs.joined([(1, 10, 7), (11, 5, 3), (21, 5, 0)]) == [(1, 15, 10), (21, 5, 0)]
    assert list(populate_jobs.missing([(1, 10), (11, 10), (21, 10)], [(1, 10, 9), (21, 10, 9)])) == [(11, 10)]


@pytest.mark.server
@pytest.mark.parametrize(
    "engine", ["mysql", *(pytest.param(one, marks=SOAK) for one in ("postgres", "sqlite", "oracle", "duckdb"))]
)
async def test_the_second_half_of_a_load_is_all_that_is_loaded(
    engine: str, request: pytest.FixtureRequest, task_context: Any, database_folder: Path
) -> None:
    """Load half of the units, then everything; the second task keeps the first one's rows, and leaves no journal."""
    fixtures = {"postgres": "database", "mysql": "mysql_database", "oracle": "oracle", "sqlite": "sqlite_file"}
    dsn = str(request.getfixturevalue(fixtures[engine]) if engine in fixtures else database_folder / "a.duckdb")
    task = whole(dsn, engine=engine)
    try:
        begun = await populate(task_context, replace(task, steps=("prepare", "load"), share_to=1, shares=2))
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
            drop_behind_tns(request.getfixturevalue("tns_database"))


async def test_a_cancelled_load_keeps_its_ranges_and_continues(database: str, task_context: Any) -> None:
    task = whole(database, population=30_000)
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


async def test_hosts_load_their_shares_together_and_a_missing_one_fails(database: str, task_context: Any) -> None:
    """A key that was made before a kill is not made twice."""
    task = whole(database)
    await populate(task_context, replace(task, steps=("prepare", "load"), share_to=1, shares=3))
    finish = replace(task, steps=("finish",))
    with pytest.raises(TaskFault, match=r"not all units are loaded: subscriber \d+ of 7000"):
        await populate(task_context, finish)
    assert rows_of(database, "subscriber"), "what is there stays"
    shares = [replace(task, steps=("load",), share_from=low, share_to=low + 1, shares=3) for low in (1, 2)]
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


def test_a_statement_after_the_load_runs_once_wherever_it_was_killed(sqlite_file: Path) -> None:
    loader: Any = adapter("sqlite").loader(str(sqlite_file), POPULATION)
    execute, ran, index = loader.execute, list[str](), "CREATE INDEX i ON t (a)"
    killed_after = ""

    def killed(statement: str) -> None:
        nonlocal killed_after
        execute(statement)
        ran.append(statement)
        if killed_after and killed_after in statement:
            killed_after = ""
            raise Killed

    loader.execute = killed
    journal = LoadJournal(loader, POPULATION, LOAD)
    journal.create()
    loader.execute("CREATE TABLE t (a)")
    killed_after = "'after 1.1'"
    with pytest.raises(Killed):
        journal.execute("after 1.1", index)
    assert index not in ran, "it was begun and did not run"
    killed_after = index
    with pytest.raises(Killed):
        journal.execute("after 1.1", index)
    journal.execute("after 1.1", index)
    journal.execute("after 1.1", index)
    assert ran.count(index) == 1
    assert journal.rows_kept() is None, "no table is there; a begun statement is no open range"
    for _ in range(2):  # it failed before, so it was not killed
        with pytest.raises(TaskFault, match="already exists"):
            journal.execute("after 1.2", index)
    loader.close()


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
    assert populate_jobs.has_run_before(TaskFault("fault", f"cannot run it: {text}"))
    assert not populate_jobs.has_run_before(
        TaskFault("fault", "duplicate key value violates unique constraint (SQLSTATE 23505)")
    )


async def test_dropped_tables_are_gone_and_those_of_others_stay(database: str, task_context: Any) -> None:
    task = hlr(database, population=100, workers=1)
    drop = replace(task, steps=("drop",))
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

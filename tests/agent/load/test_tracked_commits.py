"""Tracked commits of whole loads on real servers, against the rows that the same transactions have inserted.

The independent count: each transaction inserts one row into a table that proveout does not read. So rows =
acknowledged - lost + committed without an answer + duplicates.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import yaml
from cutting_proxy import CuttingProxy, Where
from eventually import eventually, eventually_async

from proveout.agent.engines.postgres.provision import Server
from proveout.agent.load.populate import populate
from proveout.agent.load.run_load import run_load
from proveout.agent.tuning import sql_access
from proveout.dsl import engines
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import Sessions
from proveout.dsl.plan.topology import System
from proveout.dsl.workloads.commits import TABLE, table_operation
from proveout.proto.wire.results import CommitReading, LoadResult, TrackedCommits
from proveout.proto.wire.tasks import Endpoint, PopulateSystem, RunLoad

from .conftest import LoadContext, Spec, workload_of

pytestmark = pytest.mark.server

CREATE = "CREATE TABLE note (id bigint PRIMARY KEY, n integer)"
TABLES = {"note": {"rows": 1, "create": CREATE, "columns": {"id": {"sequence": 1}, "n": {"pick": [0]}}}}
TRANSACTIONS = """
One:
  binds: {id: {sequence: 1_000}}
  statements: {note: {sql: "INSERT INTO note (id, n) VALUES (:id, 0)", expect_rows: 1}}
Two:
  binds: {id: {sequence: 1_000_000_000}}
  statements:
    note: {sql: "INSERT INTO note (id, n) VALUES (:id, 0)", expect_rows: 1}
    touch: {sql: "UPDATE note SET n = 1 WHERE id = :id", expect_rows: 1}
Look: {statements: {look: "SELECT id FROM note WHERE id = 1"}}
"""
ADD = """{Add: {statements: {add: {sql: "UPDATE note SET n = n + 1 WHERE id = 1", expect_rows: 1}}}}"""
NOTES, ADDS = (workload_of("sql", tables=TABLES, transactions=yaml.safe_load(text)) for text in (TRANSACTIONS, ADD))


def tracks(endpoint: Endpoint) -> None:
    """Make the table of the commits, by the statements of the tuning that makes it in a run."""
    dialect = engines.of(endpoint.engine).dialect
    assert dialect is not None
    operation = table_operation(endpoint.system, dialect)
    assert sql_access.rows(endpoint, operation["verify"]["query"]) != ((operation["verify"]["equals"][0],),)
    for statement in operation["apply"]:
        sql_access.run(endpoint, statement)
    (answer,) = sql_access.rows(endpoint, operation["verify"]["query"])
    assert [value and value.lower() for value in answer] == operation["verify"]["equals"]


async def prepared(context: LoadContext, dsn: str, engine: str = "postgres", workload: Workload = NOTES) -> Endpoint:
    endpoint = Endpoint(system="backend", engine=engine, dsn=dsn)
    await populate(context, PopulateSystem(workload=workload, endpoint=endpoint, workers=1))
    await asyncio.to_thread(tracks, endpoint)
    return endpoint


def tracked(result: LoadResult) -> TrackedCommits:
    assert result.commits.acknowledged is not None
    return result.commits


def total(result: LoadResult) -> CommitReading:
    """All readings in one; their instants are in order."""
    found = tracked(result).readings
    for one in found:
        assert one.since_ns <= one.at_ns
    names = ("lost", "unknown", "unknown_committed", "duplicates", "unread")
    counts = {name: sum(getattr(one, name) for one in found) for name in names}
    return CommitReading(since_ns=0, at_ns=0, **counts)


def rows(endpoint: Endpoint, table: str = "note") -> int:
    return int(sql_access.rows(endpoint, f"SELECT count(*) FROM {table}")[0][0] or 0)


def agrees(result: LoadResult, notes: int) -> bool:
    """Whether the rows that the transactions inserted are those that the readings account for."""
    sums = total(result)
    assert tracked(result).acknowledged == sum(n for name, n in result.committed if name != "Look")
    return notes == tracked(result).acknowledged - sums.lost + sums.unknown_committed + sums.duplicates


@pytest.mark.parametrize(("engine", "fixture"), [("sqlite", "wal_file"), ("mysql", "mysql_database")])
async def test_without_a_fault_every_commit_is_found(
    engine: str, fixture: str, request: pytest.FixtureRequest, context: LoadContext, spec: Spec
) -> None:
    where = str(request.getfixturevalue(fixture))
    endpoint = await prepared(context, where, engine)
    load = spec(where, engine=engine, workload=NOTES, terminals=3, windows=(0.0, 0.3, 0.0))
    result = await run_load(context, replace(load, tracked=True, label="run/1"))
    assert tracked(result).acknowledged > 0
    assert total(result) == replace(total(result), lost=0, unknown=0, duplicates=0, unread=0)
    assert agrees(result, rows(endpoint) - 1)
    assert rows(endpoint, TABLE) == 0, "the rows of the terminals are left behind"


# ---- crashes -------------------------------------------------------------------------------------------------------


class Crashing:
    """A PostgreSQL server behind a proxy that stays where it is while the server is killed and started again."""

    def __init__(self, folder: Path, settings: tuple[tuple[str, str], ...]) -> None:
        system = System(name="backend", engine="postgres", host="local", provision="embedded", settings=settings)
        self._server = Server(system, folder)
        self._dsn = self._server.start().dsn
        self.proxy = CuttingProxy(lambda: self._dsn)
        self.dsn = self.proxy.dsn

    def crash(self) -> None:
        """SIGKILL for every process of the server at once, so that nothing of its memory is written."""
        pid = self._server.pid
        assert pid is not None
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        for process in family:  # none of them acts before all are dead
            with contextlib.suppress(psutil.NoSuchProcess):  # a client's has just ended
                process.suspend()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family, timeout=10)

    def restart(self) -> None:
        """Recover from the log, once the supervisor has seen the end."""
        eventually(lambda: self._server.pid is None, "the end of the server")
        self._dsn = self._server.start().dsn

    def close(self) -> None:
        self.proxy.close()
        self._server.close(keep_data=False)


@pytest.fixture
def crashing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Crashing]:
    """A server with `synchronous_commit` of the parameter; the log is written late in any case."""
    settings = (("synchronous_commit", request.param), ("wal_writer_delay", "10s"), ("fsync", "on"))
    server = Crashing(tmp_path / "server", settings)
    yield server
    server.close()


@pytest.mark.parametrize("crashing", ["off", pytest.param("on", marks=pytest.mark.soak)], indirect=True)
async def test_a_killed_server_loses_exactly_what_is_said(
    crashing: Crashing, context: LoadContext, spec: Spec, request: pytest.FixtureRequest
) -> None:
    """The load waits for the healing of the fault, so that what the server has lost is counted whenever it is up again.
    The table of the commits survives a crash just after it was made."""
    endpoint = Endpoint(system="backend", engine="postgres", dsn=crashing.dsn)
    await asyncio.to_thread(tracks, endpoint)
    await asyncio.to_thread(crashing.crash)
    await asyncio.to_thread(crashing.restart)
    assert rows(endpoint, TABLE) == 0
    await populate(context, PopulateSystem(workload=NOTES, endpoint=endpoint, workers=1))
    before = rows(endpoint)
    load = spec(crashing.dsn, workload=NOTES, terminals=4, windows=(0.0, 2.0, 0.0))
    running = asyncio.create_task(run_load(context, replace(load, tracked=True, bins=True, label="run/1")))
    await eventually_async(lambda: rows(endpoint) > before + 50, "commits")
    await asyncio.to_thread(crashing.crash)
    await asyncio.to_thread(crashing.restart)
    assert not running.done()
    context.over.set()
    result = await running
    sums = total(result)
    assert agrees(result, rows(endpoint) - before), (result.commits, before, rows(endpoint))
    started_ms, restarted_ms = result.server_starts_ms
    assert restarted_ms > started_ms
    assert (sums.duplicates, sums.unread) == (0, 0)
    assert (sums.lost > 0) == ("off" in request.node.name)
    assert tracked(result).acknowledged >= sums.lost
    assert rows(endpoint, TABLE) == 0


# ---- unknown outcomes ----------------------------------------------------------------------------------------------


@pytest.fixture
def cutting(database: str) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(lambda: database)
    yield proxy
    proxy.close()


async def cut(context: LoadContext, proxy: CuttingProxy, load: RunLoad, *where: Where) -> LoadResult:
    """Run a tracked load, of which the proxy cuts these commits."""
    context.go.clear()
    running = asyncio.create_task(run_load(context, replace(load, tracked=True, label="run/1")))
    await context.is_armed.wait()
    proxy.cut_next(*where)
    context.go.set()
    result = await running
    assert proxy.cut == list(where)
    return result


@pytest.mark.usefixtures("hot_path")
async def test_commits_without_an_answer_are_resolved(
    cutting: CuttingProxy, database: str, context: LoadContext, spec: Spec
) -> None:
    """Of commits that the proxy cuts, those that the server got are there, and the others are not."""
    endpoint = await prepared(context, database)
    load = spec(cutting.dsn, workload=NOTES, terminals=3, windows=(0.0, 1.0, 0.0))
    result = await cut(context, cutting, load, "after", "before", "after", "before", "after")
    sums = total(result)
    assert (sums.lost, sums.unknown, sums.unknown_committed) == (0, 5, 3), tracked(result)
    assert agrees(result, rows(endpoint) - 1)
    assert rows(endpoint, TABLE) == 0


@pytest.mark.parametrize("checked", [pytest.param(False, marks=pytest.mark.soak), True])
async def test_a_retry_is_a_duplicate_unless_it_is_checked(
    checked: bool, cutting: CuttingProxy, database: str, context: LoadContext, spec: Spec
) -> None:
    """Each transaction adds 1, so the sum is the number of commits that the database has made."""
    endpoint = await prepared(context, database, workload=ADDS)
    load = spec(cutting.dsn, workload=ADDS, terminals=2, windows=(0.0, 1.0, 0.0))
    load = replace(load, sessions=Sessions(on_disconnect="retry"), checked=checked)
    result = await cut(context, cutting, load, "after", "before", "after")
    sums = total(result)
    made = int(sql_access.rows(endpoint, "SELECT n FROM note WHERE id = 1")[0][0] or 0)
    assert (sums.lost, sums.unknown, sums.unknown_committed) == (0, 3, 2)
    assert sums.duplicates == (0 if checked else 2)
    assert made == (tracked(result).acknowledged or 0) + sums.duplicates

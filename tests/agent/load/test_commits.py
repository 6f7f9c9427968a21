"""Tracked commits: the account of a terminal against a simulated database whose truth is known, and whole loads on real
servers against the rows that the same transactions have inserted.

The independent count of a whole load: each transaction inserts one row into a table that proveout does not read. So
rows = acknowledged - lost + committed without an answer + duplicates.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Iterator
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from cutting_proxy import CuttingProxy, Where
from eventually import PATIENCE_S, eventually, eventually_async
from hypothesis import given
from hypothesis import strategies as st

from proveout.agent.engines.postgres.provision import Server
from proveout.agent.load import commit_log
from proveout.agent.load.commit_log import last_start_ms
from proveout.agent.load.loop.recorder import Recorder
from proveout.agent.load.loop.transaction import Tally
from proveout.agent.load.run_load import run_load
from proveout.agent.tuning import sql_access
from proveout.core.errors import ProveoutError
from proveout.dsl import engines
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import Sessions
from proveout.dsl.plan.topology import System
from proveout.dsl.workloads.base import Outcome, Statement
from proveout.dsl.workloads.commits import COUNT_COMMIT, TABLE, load_id, table_operation, tracked
from proveout.dsl.workloads.hlr import Hlr
from proveout.dsl.workloads.hlr_workload import HlrWorkload
from proveout.proto.wire.histogram import READINGS_MAX, of, together
from proveout.proto.wire.results import CommitReading, LoadResult
from proveout.proto.wire.tasks import Endpoint, RunLoad

from .conftest import LoadContext, load_task, populated, workload_of
from .in_memory import Session

HLR = HlrWorkload(Hlr(population=100))
KINDS = {kind.name: kind for kind in HLR.transactions}
SINGLE = replace(KINDS["GetBasicSubscriberData"], name="One", statements=(KINDS["UpdateLocation"].statements[-1],))
"""A transaction of one statement that writes."""
ROW = (7, 3)


@pytest.mark.parametrize("hangs", [False, True])
def test_a_server_that_accepts_a_connection_and_hangs_has_no_start(
    hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load ends in time beside it, as one behind a pooler does."""
    over = threading.Event()
    monkeypatch.setattr(commit_log, "START_S", 0.01 if hangs else PATIENCE_S)

    class Slow(Session):
        def prepare(self, statement: Statement) -> Statement:
            if hangs:
                over.wait()
            return statement

        def rows(self) -> list[tuple[Any, ...]]:
            return [(17,)]

    session = Slow()
    refused = iter([] if hangs else [ProveoutError("a server that is being started takes no connection")])

    def connect() -> tuple[Session, dict[str, Any]]:
        for fault in refused:
            raise fault
        return session, {}

    assert last_start_ms(connect, "polled", "postgres") == (None if hangs else 17)
    over.set()
    eventually(lambda: session.is_closed, "the connection is closed")


def test_a_transaction_that_writes_ends_with_the_count_of_its_commit() -> None:
    """The order of the statements that it sends is in `test_transaction`."""
    kind = KINDS["UpdateLocation"]
    made = tracked(kind, ROW)
    assert [step.statement for step in made.steps] == [*(step.statement for step in kind.steps), COUNT_COMMIT]
    assert made.inputs(HLR.keys(1))()[-1] == ROW
    assert SINGLE.single
    alone = tracked(SINGLE, ROW)
    assert not (alone.single or alone.bare), "a single statement becomes a transaction of two"
    assert alone.statements == (*SINGLE.statements, COUNT_COMMIT)
    assert tracked(KINDS["GetAccessData"], ROW) is KINDS["GetAccessData"], "one that only reads stays as it is"


def test_each_load_of_each_attempt_has_rows_of_its_own() -> None:
    ids = {load_id("run", f"ladder/{rung}/1/{attempt}") for rung in range(50) for attempt in range(3)}
    assert len(ids) == 150
    assert all(0 <= one < 2**63 for one in ids)


class Simulated:
    """A database with one row, whose commits become durable late; the truth beside the tally of a client."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.tally = Tally(ROW)
        _, self.times = self.tally.counted(SINGLE, Recorder(1).times)
        self.commits: list[tuple[int, bool]] = []
        """Each commit that is there: its transaction, and whether it was acknowledged."""
        self.flushed = self.transactions = self.now = 0

    def commit(self, *, acknowledged: bool, times: int = 1) -> None:
        self.transactions += 1
        self.commits += [(self.transactions, acknowledged)] * times
        if acknowledged:
            self.times[Outcome.COMMIT].extend((self.now, self.now, self.now))

    def cut(self) -> None:
        """The connection is lost at a COMMIT that the server gets, or does not."""
        self.tally.lose(self.now)
        self.tally.doubt(self.now)
        if self.random.random() < 0.5:
            self.commit(acknowledged=False)

    def crash(self) -> int:
        """Lose the commits that are not flushed; the acknowledged ones among them."""
        kept = self.random.randint(self.flushed, len(self.commits))
        gone, self.commits = self.commits[kept:], self.commits[:kept]
        self.tally.lose(self.now)
        return sum(acknowledged for _, acknowledged in gone)

    def read(self) -> CommitReading:
        self.now += 1
        return self.tally.settle(len(self.commits), self.now)


@given(st.integers(0, 2**32 - 1))
def test_the_account_equals_the_truth_whatever_happens(seed: int) -> None:
    """Lost, unknown, committed and duplicates of each reading are those of the simulation, to the last one."""
    world = Simulated(seed)
    assert astuple(world.read())[2:] == (0, 0, 0, 0, 0)
    for _ in range(world.random.randint(1, 12)):
        duplicates = 0
        for _ in range(world.random.randint(0, 20)):
            world.now += 1
            twice = world.random.random() < 0.05
            world.commit(acknowledged=True, times=2 if twice else 1)
            duplicates += twice
            if world.random.random() < 0.3:
                world.flushed = len(world.commits)
        before = len(world.commits)
        lost = unknown = committed = 0
        match world.random.choice(["cut", "crash", "crash in doubt", "end"]):
            case "cut" if not duplicates:  # a commit that is there twice looks like one without an answer
                world.cut()
                unknown, committed = 1, len(world.commits) - before
            case "crash" if not duplicates:  # and hides one that is lost
                lost = world.crash()
            case "crash in doubt" if not duplicates:
                world.cut()
                unknown, last = 1, world.transactions if len(world.commits) > before else None
                lost = world.crash()
                committed = int(last is not None and (last, False) in world.commits[-1:])
        reading = world.read()
        assert astuple(reading)[2:] == (lost, unknown, committed, duplicates, 0)
        world.flushed = len(world.commits)


@pytest.mark.parametrize(
    ("history", "duplicates"),
    [
        ("committed, run again, answered", 1),
        ("absent, run again, answered", 0),
        ("committed, run again, failed, another answered", 0),
        ("committed, not run again, another answered", 0),
        ("committed, run again, committed, run again, answered", 2),
    ],
)
def test_a_transaction_that_is_run_again_after_it_has_committed_is_a_duplicate(history: str, duplicates: int) -> None:
    tally = Tally(ROW)
    _, times = tally.counted(SINGLE, Recorder(1).times)
    row = found = now = 0
    tally.settle(row, now)
    for step in history.split(", "):
        now += 10
        match step:
            case "committed" | "absent":
                tally.lose(now)
                tally.doubt(7)
                row += step == "committed"
                found += tally.settle(row, now).duplicates
            case "answered" | "another answered":
                times[Outcome.COMMIT].extend((5, 7 if step == "answered" else 8, now))
                row += 1
    last = tally.settle(row, now + 10)
    assert (last.lost, last.unknown) == (0, 0)
    assert found + last.duplicates == duplicates


@pytest.mark.parametrize(("checked", "committed"), [(True, True), (True, False), (False, True)])
def test_a_checked_transaction_that_has_committed_is_not_to_be_run_again(checked: bool, committed: bool) -> None:
    tally = Tally(ROW, checked=checked)
    assert tally.due
    tally.settle(0, 0)
    assert not tally.due
    tally.lose(10)
    tally.lose(20)
    tally.doubt(7)
    assert tally.due, "a lost connection makes a reading due, once"
    reading = tally.settle(int(committed), 40)
    assert (reading.unknown, reading.unknown_committed) == (1, int(committed))
    assert reading.since_ns == 10, "the last answer before the first loss"
    assert not tally.accepts(8), "another transaction"
    assert tally.accepts(7) == (checked and committed)


def test_readings_are_bounded_and_lose_no_count() -> None:
    far = [CommitReading(since_ns=n * 10**9, at_ns=(n + 1) * 10**9, lost=1, unknown=2) for n in range(3 * READINGS_MAX)]
    nothing = [CommitReading(since_ns=5, at_ns=6)] * 10
    found = together([*far, *nothing])
    assert len(found) == READINGS_MAX
    assert (sum(one.lost for one in found), sum(one.unknown for one in found)) == (len(far), 2 * len(far))
    assert together([far[0], far[0]]) == (CommitReading(since_ns=0, at_ns=10**9, lost=2, unknown=4),)
    assert together(nothing) == ()
    assert of((5, 9, 1, 2, 1, 0, 0), 5) == CommitReading(since_ns=0, at_ns=4, lost=1, unknown=2, unknown_committed=1)


# ---- whole loads -----------------------------------------------------------------------------------------------------

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
    await populated(context, endpoint, workload)
    await asyncio.to_thread(tracks, endpoint)
    return endpoint


def load(dsn: str, terminals: int, measure_s: float = 1.0, engine: str = "postgres", **more: Any) -> RunLoad:
    windows = (0.0, measure_s, 0.0)
    task = load_task(dsn, engine=engine, workload=more.pop("workload", NOTES), terminals=terminals, windows=windows)
    return replace(task, tracked=True, label="run/1", **more)


def total(result: LoadResult) -> CommitReading:
    """All readings in one; their instants are in order."""
    found = result.commits.readings
    assert all(one.since_ns <= one.at_ns for one in found)
    names = ("lost", "unknown", "unknown_committed", "duplicates", "unread")
    counts = {name: sum(getattr(one, name) for one in found) for name in names}
    return CommitReading(since_ns=0, at_ns=0, **counts)


def number(endpoint: Endpoint, query: str) -> int:
    return int(sql_access.rows(endpoint, query)[0][0] or 0)


def rows(endpoint: Endpoint, table: str = "note") -> int:
    return number(endpoint, f"SELECT count(*) FROM {table}")


def acknowledged(result: LoadResult) -> int:
    assert result.commits.acknowledged is not None
    return result.commits.acknowledged


def agrees(result: LoadResult, notes: int) -> bool:
    """Whether the rows that the transactions inserted are those that the readings account for."""
    sums = total(result)
    assert acknowledged(result) == sum(n for name, n in result.committed if name != "Look")
    return notes == acknowledged(result) - sums.lost + sums.unknown_committed + sums.duplicates


@pytest.mark.server
@pytest.mark.parametrize(("engine", "fixture"), [("sqlite", "wal_file"), ("mysql", "mysql_database")])
async def test_without_a_fault_every_commit_is_found(
    engine: str, fixture: str, request: pytest.FixtureRequest, context: LoadContext
) -> None:
    where = str(request.getfixturevalue(fixture))
    endpoint = await prepared(context, where, engine)
    result = await run_load(context, load(where, 3, 0.3, engine))
    assert acknowledged(result) > 0
    assert total(result) == replace(total(result), lost=0, unknown=0, duplicates=0, unread=0)
    assert agrees(result, rows(endpoint) - 1)
    assert rows(endpoint, TABLE) == 0, "the rows of the terminals are left behind"


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


@pytest.mark.server
@pytest.mark.parametrize("crashing", ["off", pytest.param("on", marks=pytest.mark.soak)], indirect=True)
async def test_a_killed_server_loses_exactly_what_is_said(
    crashing: Crashing, context: LoadContext, request: pytest.FixtureRequest
) -> None:
    """The load waits for the healing of the fault, so that what the server has lost is counted whenever it is up again.
    The table of the commits survives a crash just after it was made."""
    endpoint = Endpoint(system="backend", engine="postgres", dsn=crashing.dsn)
    await asyncio.to_thread(tracks, endpoint)
    await asyncio.to_thread(crashing.crash)
    await asyncio.to_thread(crashing.restart)
    assert rows(endpoint, TABLE) == 0
    await populated(context, endpoint, NOTES)
    before = rows(endpoint)
    running = asyncio.create_task(run_load(context, load(crashing.dsn, 4, 2.0, bins=True)))
    await eventually_async(lambda: rows(endpoint) > before + 50, "commits")
    await asyncio.to_thread(crashing.crash)
    await asyncio.to_thread(crashing.restart)
    assert not running.done()
    context.end()
    result = await running
    sums = total(result)
    assert agrees(result, rows(endpoint) - before), (result.commits, before, rows(endpoint))
    started_ms, restarted_ms = result.server_starts_ms
    assert restarted_ms > started_ms
    assert (sums.duplicates, sums.unread) == (0, 0)
    assert (sums.lost > 0) == ("off" in request.node.name)
    assert acknowledged(result) >= sums.lost
    assert rows(endpoint, TABLE) == 0


@pytest.fixture
def cutting(database: str) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(lambda: database)
    yield proxy
    proxy.close()


async def cut(context: LoadContext, proxy: CuttingProxy, load: RunLoad, *where: Where) -> LoadResult:
    """Run a load, of which the proxy cuts these commits."""
    context.go.clear()
    running = asyncio.create_task(run_load(context, load))
    await context.is_armed.wait()
    proxy.cut_next(*where)
    context.go.set()
    result = await running
    assert proxy.cut == list(where)
    return result


@pytest.mark.usefixtures("hot_path")
async def test_commits_without_an_answer_are_resolved(
    cutting: CuttingProxy, database: str, context: LoadContext
) -> None:
    """Of commits that the proxy cuts, those that the server got are there, and the others are not."""
    endpoint = await prepared(context, database)
    result = await cut(context, cutting, load(cutting.dsn, 3), "after", "before", "after", "before", "after")
    sums = total(result)
    assert (sums.lost, sums.unknown, sums.unknown_committed) == (0, 5, 3), result.commits
    assert agrees(result, rows(endpoint) - 1)
    assert rows(endpoint, TABLE) == 0


@pytest.mark.parametrize("checked", [pytest.param(False, marks=pytest.mark.soak), True])
async def test_a_retry_is_a_duplicate_unless_it_is_checked(
    checked: bool, cutting: CuttingProxy, database: str, context: LoadContext
) -> None:
    """Each transaction adds 1, so the sum is the number of commits that the database has made."""
    endpoint = await prepared(context, database, workload=ADDS)
    task = load(cutting.dsn, 2, workload=ADDS, sessions=Sessions(on_disconnect="retry"), checked=checked)
    result = await cut(context, cutting, task, "after", "before", "after")
    sums = total(result)
    assert (sums.lost, sums.unknown, sums.unknown_committed) == (0, 3, 2)
    assert sums.duplicates == (0 if checked else 2)
    assert number(endpoint, "SELECT n FROM note WHERE id = 1") == acknowledged(result) + sums.duplicates

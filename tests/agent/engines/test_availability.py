"""Tasks wait for an external system that does not answer, for a limited time, where they can be repeated."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from restarts import External, external

from proveout.agent.daemon import handlers
from proveout.agent.daemon.handlers import TABLE, is_away, patiently
from proveout.agent.daemon.tasks import Resource
from proveout.agent.engines.postgres.connection import connection_fault, statement_fault
from proveout.agent.errors import TaskFault
from proveout.agent.security.policy import Policy
from proveout.proto.wire.results import Done, SqlDone, SystemStarted
from proveout.proto.wire.tasks import Checkpoint, Endpoint, InspectSystem, RunSql

pytestmark = pytest.mark.server

END = Endpoint(system="db", engine="postgres", dsn="host=127.0.0.1 port=9")
AWAY = TaskFault("unreachable", "system 'db' cannot be reached: Connection refused", way_out="start it")


class Context:
    """The parts of a `TaskContext` that these handlers use."""

    key, host, policy, work_dir = "run/-/0/0/1/x/h", "h", Policy(own=True), Path("/nowhere")

    def __init__(self) -> None:
        self.resources: dict[str, Resource] = {}
        self.logs: list[tuple[str, str]] = []

    def log(self, level: str, text: str) -> None:
        self.logs.append((level, text))

    def progress(self, done: float, total: float, unit: str, note: str = "") -> None: ...


class Flaky:
    """A handler that fails a number of times and then succeeds."""

    def __init__(self, failures: int, fault: TaskFault = AWAY) -> None:
        self.failures, self.fault, self.calls = failures, fault, 0

    async def __call__(self, context: Any, spec: Any) -> Done:
        self.calls += 1
        if self.calls <= self.failures:
            raise self.fault
        return Done()


@pytest.fixture
def context() -> Context:
    return Context()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "AGAIN_S", 0.01)


async def test_a_task_is_repeated_and_the_wait_is_logged_once(context: Any) -> None:
    handler = Flaky(3)
    assert isinstance(await patiently(context, Checkpoint(endpoint=END), handler, Flaky(0)), Done)
    assert handler.calls == 4
    (_, waits), (_, back) = context.logs
    assert waits == f"db does not answer, waiting for up to 30 s: {AWAY.what}"
    assert back.startswith("db answers again after 0.")


async def test_the_wait_is_limited(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "AWAY_S", 0.1)
    with pytest.raises(TaskFault) as caught:
        await patiently(context, Checkpoint(endpoint=END), Flaky(10**9), Flaky(0))
    assert (caught.value.code, caught.value.way_out) == ("unreachable", "start it")
    assert caught.value.what == f"{AWAY.what} (waited for 0 s)"


@pytest.mark.parametrize(
    ("fault", "away"),
    [
        (AWAY, True),
        (TaskFault("unreachable", "08001: FATAL:  the database system is starting up"), True),
        (TaskFault("unreachable", 'FATAL:  password authentication failed for user "x"'), False),
        (TaskFault("unreachable", 'FATAL:  database "absent" does not exist'), False),
        (TaskFault("unreachable", "1045: Access denied for user"), False),
        (TaskFault("lost", "the connection was lost"), False),
        (TaskFault("invalid", "a statement that the server refuses"), False),
    ],
)
async def test_only_temporary_faults_are_waited_for(context: Any, fault: TaskFault, away: bool) -> None:
    assert is_away(fault) is away
    handler = Flaky(1, fault)
    if away:
        await patiently(context, Checkpoint(endpoint=END), handler, Flaky(0))
    else:
        with pytest.raises(TaskFault):
            await patiently(context, Checkpoint(endpoint=END), handler, Flaky(0))
        assert handler.calls == 1


@pytest.mark.parametrize(
    "end",
    [
        Endpoint(system="db", engine="postgres", dsn="host=/run", provisioned=True),
        Endpoint(system="db", engine="sqlite", dsn="/file"),
    ],
)
async def test_provisioned_systems_and_files_are_not_waited_for(context: Any, end: Endpoint) -> None:
    with pytest.raises(TaskFault):
        await patiently(context, Checkpoint(endpoint=end), Flaky(1), Flaky(0))


async def test_statements_run_once_when_the_system_answers(context: Any) -> None:
    inspect, handler = Flaky(2), Flaky(1)
    with pytest.raises(TaskFault):
        end = Endpoint(system="db", engine="mysql", dsn="mysql://u@127.0.0.1:9/d")
        await patiently(context, RunSql(endpoint=end, statements=("INSERT",)), handler, inspect)
    assert (inspect.calls, handler.calls) == (3, 1)


async def test_statements_without_an_effect_are_repeated(context: Any) -> None:
    spec = RunSql(endpoint=END, statements=("INSERT",))
    handler = Flaky(2)
    await patiently(context, spec, handler, Flaky(0))
    assert handler.calls == 3
    with pytest.raises(TaskFault):
        await patiently(context, spec, Flaky(1, TaskFault("lost", "it may have taken effect")), Flaky(0))


def test_a_starting_or_stopping_server_is_unavailable_and_a_refusal_is_final() -> None:
    for text in ("FATAL:  the database system is starting up", "FATAL:  the database system is shutting down"):
        assert is_away(connection_fault(END, psycopg.OperationalError(f"connection failed: {text}")))
    refusal = psycopg.OperationalError('connection failed: FATAL:  role "x" does not exist')
    assert connection_fault(END, refusal).code == "refused"
    assert statement_fault(END, psycopg.errors.AdminShutdown("terminating connection")).code == "unreachable"


# ---- a real server -----------------------------------------------------------------------------------------------


@pytest.fixture
async def server() -> AsyncIterator[External]:
    with external() as running:
        yield running


@pytest.mark.slow
async def test_a_real_server_that_is_down_for_two_seconds(server: External, context: Any, tmp_path: Path) -> None:
    context.work_dir = tmp_path
    end = Endpoint(system="db", engine="postgres", dsn=server.dsn)
    try:
        for spec, kind in (
            (InspectSystem(endpoint=end), SystemStarted),
            (Checkpoint(endpoint=end), Done),
            (RunSql(endpoint=end, statements=("SELECT 1",)), SqlDone),
        ):
            server.stop()
            timer = threading.Timer(2.0, server.start, kwargs={"wait": False})
            timer.start()
            began_s = time.monotonic()
            assert isinstance(await TABLE[type(spec)](context, spec), kind)
            assert time.monotonic() - began_s >= 2.0
            await asyncio.to_thread(timer.join)
    finally:
        for resource in list(context.resources.values()):
            await resource.close(keep_data=False)


@pytest.mark.slow
async def test_a_statement_interrupted_by_a_stop_of_the_server(server: External, context: Any, tmp_path: Path) -> None:
    """A first statement that was rolled back runs again; a later one ends the task."""
    context.work_dir = tmp_path
    end = Endpoint(system="db", engine="postgres", dsn=server.dsn)

    def restart() -> None:
        with psycopg.connect(server.dsn) as connection:
            query = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(0.7%' AND state = 'active'"
            while not (connection.execute(query).fetchone() or (0,))[0]:
                connection.rollback()
        server.stop()
        server.start(wait=False)

    try:
        for statements, lost in ((("SELECT pg_sleep(0.7)",), False), (("SELECT 1", "SELECT pg_sleep(0.71)"), True)):
            striking = asyncio.create_task(asyncio.to_thread(restart))
            spec = RunSql(endpoint=end, statements=statements)
            if lost:
                with pytest.raises(TaskFault) as caught:
                    await TABLE[RunSql](context, spec)
                assert caught.value.code == "lost"
                assert "statement 2 of 2 was rolled back, 1 before it did" in caught.value.what
            else:
                assert isinstance(await TABLE[RunSql](context, spec), SqlDone)
            await striking
            server.until_up()
    finally:
        for resource in list(context.resources.values()):
            await resource.close(keep_data=False)

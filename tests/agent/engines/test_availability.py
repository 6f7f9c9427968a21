"""Tasks wait for an external system that does not answer, for a limited time, where they can be repeated."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from eventually import PATIENCE_S, eventually
from restarts import external

from proveout.agent.daemon import handlers
from proveout.agent.daemon.handlers import TABLE, is_away, patiently
from proveout.agent.engines.postgres.sql import connection_fault, statement_fault
from proveout.agent.errors import TaskFault
from proveout.proto.wire.results import Done, SqlDone
from proveout.proto.wire.tasks import Checkpoint, Endpoint, RunSql

pytestmark = pytest.mark.server

END = Endpoint(system="db", engine="postgres", dsn="host=127.0.0.1 port=9")
AWAY = TaskFault("unreachable", "system 'db' cannot be reached: Connection refused", way_out="start it")


class Flaky:
    """A handler that fails a number of times and then succeeds."""

    def __init__(self, failures: int, fault: TaskFault = AWAY) -> None:
        self.failures, self.fault, self.calls = failures, fault, 0

    async def __call__(self, context: Any, spec: Any) -> Done:
        self.calls += 1
        if self.calls <= self.failures:
            raise self.fault
        return Done()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "AGAIN_S", 0.01)


async def test_a_task_is_repeated_and_the_wait_is_logged_once(task_context: Any) -> None:
    handler = Flaky(3)
    assert isinstance(await patiently(task_context, Checkpoint(endpoint=END), handler, Flaky(0)), Done)
    assert handler.calls == 4
    (_, waits), (_, back) = task_context.logs
    assert waits == f"db does not answer, waiting for up to 30 s: {AWAY.what}"
    assert back.startswith("db answers again after ")


async def test_the_wait_is_limited(task_context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "AWAY_S", 0.1)
    with pytest.raises(TaskFault) as caught:
        await patiently(task_context, Checkpoint(endpoint=END), Flaky(10**9), Flaky(0))
    assert (caught.value.code, caught.value.way_out) == ("unreachable", "start it")
    assert caught.value.what.startswith(f"{AWAY.what} (waited for ")


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
async def test_only_temporary_faults_are_waited_for(task_context: Any, fault: TaskFault, away: bool) -> None:
    assert is_away(fault) is away
    handler = Flaky(1, fault)
    if away:
        await patiently(task_context, Checkpoint(endpoint=END), handler, Flaky(0))
    else:
        with pytest.raises(TaskFault):
            await patiently(task_context, Checkpoint(endpoint=END), handler, Flaky(0))
        assert handler.calls == 1


@pytest.mark.parametrize(
    "end",
    [
        Endpoint(system="db", engine="postgres", dsn="host=/run", provisioned=True),
        Endpoint(system="db", engine="sqlite", dsn="/file"),
    ],
)
async def test_provisioned_systems_and_files_are_not_waited_for(task_context: Any, end: Endpoint) -> None:
    with pytest.raises(TaskFault):
        await patiently(task_context, Checkpoint(endpoint=end), Flaky(1), Flaky(0))


async def test_statements_are_repeated_only_where_they_had_no_effect(task_context: Any) -> None:
    inspect, handler = Flaky(2), Flaky(1)
    other = Endpoint(system="db", engine="mysql", dsn="mysql://u@127.0.0.1:9/d")
    with pytest.raises(TaskFault):
        await patiently(task_context, RunSql(endpoint=other, statements=("INSERT",)), handler, inspect)
    assert (inspect.calls, handler.calls) == (3, 1)
    spec, handler = RunSql(endpoint=END, statements=("INSERT",)), Flaky(2)
    await patiently(task_context, spec, handler, Flaky(0))
    assert handler.calls == 3
    with pytest.raises(TaskFault):
        await patiently(task_context, spec, Flaky(1, TaskFault("lost", "it may have taken effect")), Flaky(0))


def test_a_starting_or_stopping_server_is_unavailable_and_a_refusal_is_final() -> None:
    for text in ("FATAL:  the database system is starting up", "FATAL:  the database system is shutting down"):
        assert is_away(connection_fault(END, psycopg.OperationalError(f"connection failed: {text}")))
    refusal = psycopg.OperationalError('connection failed: FATAL:  role "x" does not exist')
    assert connection_fault(END, refusal).code == "refused"
    assert statement_fault(END, psycopg.errors.AdminShutdown("terminating connection")).code == "unreachable"


# ---- a real server -----------------------------------------------------------------------------------------------


async def test_a_statement_interrupted_by_a_stop_of_the_server(
    task_context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first statement that was rolled back runs again, after the wait for the server; a later one ends the task."""
    monkeypatch.setattr(handlers, "AWAY_S", PATIENCE_S)
    with external() as server:
        end = Endpoint(system="db", engine="postgres", dsn=server.dsn)

        def restart() -> None:
            sleeps = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(%' AND state = 'active'"
            with psycopg.connect(server.dsn, autocommit=True) as connection:
                eventually(lambda: connection.execute(sleeps).fetchall(), "the statement")
                connection.execute("CREATE TABLE struck (n int)")
            server.stop()
            server.start(wait=False)

        for before in ((), ("DROP TABLE struck",)):
            striking = asyncio.create_task(asyncio.to_thread(restart))
            # The repeated statement finds the table and does not sleep.
            nap = "SELECT pg_sleep(600) WHERE to_regclass('struck') IS NULL"
            spec = RunSql(endpoint=end, statements=(*before, nap))
            if before:
                with pytest.raises(TaskFault) as caught:
                    await TABLE[RunSql](task_context, spec)
                assert caught.value.code == "lost"
                assert "statement 2 of 2 was rolled back, 1 before it did" in caught.value.what
            else:
                assert isinstance(await TABLE[RunSql](task_context, spec), SqlDone)
            await striking
            server.until_up()

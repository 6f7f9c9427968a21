"""Tasks wait for an external system that does not answer, for a limited time, where they can be repeated."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from eventually import PATIENCE_S, eventually
from restarts import external

from proveout.agent.daemon import handlers
from proveout.agent.daemon.handlers import TABLE, is_away, patiently
from proveout.agent.engines.postgres.sql import connection_fault, statement_fault, words
from proveout.agent.errors import TaskFault
from proveout.proto.wire.results import Done, SqlDone
from proveout.proto.wire.tasks import Checkpoint, Endpoint, RunSql

pytestmark = pytest.mark.server

END = Endpoint(system="db", engine="postgres", dsn="host=127.0.0.1 port=9")
MYSQL = Endpoint(system="db", engine="mysql", dsn="mysql://u@127.0.0.1:9/d")
PROVISIONED = Endpoint(system="db", engine="postgres", dsn="host=/run", provisioned=True)
FILE = Endpoint(system="db", engine="sqlite", dsn="/file")
AWAY = TaskFault("unreachable", "system 'db' cannot be reached: Connection refused", way_out="start it")


async def played(
    context: Any, spec: Any, failures: float, unseen: int = 0, fault: TaskFault = AWAY
) -> tuple[TaskFault | None, str]:
    """Run a task whose handler fails `failures` times, and the look at its system `unseen` times, before they succeed:
    the fault, if any, and the calls in order: l(ook), h(andler)."""
    calls = ""

    async def called(name: str, most: float, raised: TaskFault) -> Done:
        nonlocal calls
        calls += name
        if calls.count(name) <= most:
            raise raised
        return Done()

    try:
        await patiently(context, spec, lambda *_: called("h", failures, fault), lambda *_: called("l", unseen, AWAY))
    except TaskFault as raised:
        return raised, calls
    return None, calls


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "AGAIN_S", 0.01)


async def test_a_task_is_repeated_and_the_wait_is_logged_once(task_context: Any) -> None:
    assert await played(task_context, Checkpoint(endpoint=END), 3) == (None, "hhhh")
    (_, waits), (_, back) = task_context.logs
    assert waits == f"db does not answer, waiting for up to 30 s: {AWAY.what}"
    assert back.startswith("db answers again after ")


async def test_the_wait_is_limited(task_context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "AWAY_S", 0.1)
    fault, _ = await played(task_context, Checkpoint(endpoint=END), float("inf"))
    assert fault is not None
    assert (fault.code, fault.way_out) == ("unreachable", "start it")
    assert fault.what.startswith(f"{AWAY.what} (waited for ")


@pytest.mark.parametrize(
    ("code", "what", "away"),
    [
        (AWAY.code, AWAY.what, True),
        ("unreachable", "08001: FATAL:  the database system is starting up", True),
        ("unreachable", 'FATAL:  password authentication failed for user "x"', False),
        ("unreachable", 'FATAL:  database "absent" does not exist', False),
        ("unreachable", "1045: Access denied for user", False),
        ("lost", "the connection was lost", False),
        ("invalid", "a statement that the server refuses", False),
    ],
)
async def test_only_temporary_faults_are_waited_for(task_context: Any, code: Any, what: str, away: bool) -> None:
    fault = TaskFault(code, what)
    found = await played(task_context, Checkpoint(endpoint=END), 1, 0, fault)
    assert found == ((None, "hh") if away else (fault, "h"))


@pytest.mark.parametrize(
    ("spec", "failures", "unseen", "code", "calls"),
    [
        (Checkpoint(endpoint=PROVISIONED), 1, 0, "unreachable", "h"),
        (Checkpoint(endpoint=FILE), 1, 0, "unreachable", "h"),
        (RunSql(endpoint=MYSQL, statements=("INSERT",)), 1, 2, "unreachable", "lllh"),
        (RunSql(endpoint=END, statements=("INSERT",)), 2, 0, "", "hhh"),
    ],
    ids=["provisioned", "file", "statements that may have taken effect", "statements without effect"],
)
async def test_what_is_not_repeated(
    task_context: Any, spec: Any, failures: int, unseen: int, code: str, calls: str
) -> None:
    fault, called = await played(task_context, spec, failures, unseen)
    assert (fault.code if fault else "", called) == (code, calls)


def test_a_starting_or_stopping_server_is_unavailable_and_a_refusal_is_final() -> None:
    for text in ("FATAL:  the database system is starting up", "FATAL:  the database system is shutting down"):
        assert is_away(connection_fault(END, psycopg.OperationalError(f"connection failed: {text}")))
    refusal = psycopg.OperationalError('connection failed: FATAL:  role "x" does not exist')
    assert connection_fault(END, refusal).code == "refused"
    assert statement_fault(END, psycopg.errors.AdminShutdown("terminating connection")).code == "unreachable"
    assert statement_fault(END, psycopg.ProgrammingError("COPY cannot be used with this method")).code == "refused"
    assert statement_fault(END, psycopg.DataError("timestamp too large (after year 10K): 'infinity'")).code == "refused"


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


@pytest.mark.parametrize(
    ("password", "text", "told"),
    [
        ("a", "password authentication failed: a", "password authentication failed: ***"),
        ("hunter2", "role whunter2s does not exist", "role w***s does not exist"),
        ("", "password authentication failed", "password authentication failed"),
    ],
)
def test_a_message_has_no_password_and_a_short_one_garbles_no_words(password: str, text: str, told: str) -> None:
    """Replaced letter by letter, the words that say whether waiting helps were gone."""
    end = replace(END, dsn=f"host=h password='{password}'")
    assert words(end, psycopg.OperationalError(text)) == told

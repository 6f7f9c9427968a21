"""Faults in a population: the cause in the error, no worker left behind, no half-loaded tables, no change to tables of
other programs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from proveout.agent.engines.postgres.provision import Server
from proveout.agent.errors import TaskFault
from proveout.agent.load.population.handler import populate
from proveout.agent.load.population.job_messages import Finished, Load, Opening, Prepare, Progress, from_line, to_line
from proveout.agent.sandbox.privileges import Privileges
from proveout.core.linux import ORPHANED
from proveout.dsl.plan.topology import System
from proveout.dsl.workloads.hlr.tables import NAMES

pytestmark = pytest.mark.server

MODULE = "proveout.agent.load.population.populate_worker"

LARGE = 3_000_000  # a population that takes tens of seconds
DEADLINE_S = 60.0


def workers_of(parent: int) -> list[psutil.Process]:
    found = []
    for process in psutil.Process(parent).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if any("populate_worker" in part for part in process.cmdline()):
                found.append(process)
    return found


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - the conditions are other processes' doings
            await asyncio.sleep(0.01)


def tables(dsn: str) -> set[str]:
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("SELECT relname FROM pg_class WHERE relname = ANY(%s)", (list(NAMES),)).fetchall()
    return {name for (name,) in rows}


@asynccontextmanager
async def loading(context: Any, task: Any) -> AsyncIterator[asyncio.Task[Any]]:
    """A large population that is running: workers are up and rows are inserted."""
    running = asyncio.create_task(populate(context, task))
    try:
        await until(lambda: bool(context.reports) or running.done())
        assert not running.done()
        yield running
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError, TaskFault):
            await running


async def test_cancelling_stops_the_workers_and_removes_the_tables(database: str, context: Any, spec: Any) -> None:
    async with loading(context, spec(database, population=LARGE)) as running:
        assert len(workers_of(os.getpid())) == 2
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert workers_of(os.getpid()) == []
    assert tables(database) == set()
    assert not context.logged


async def test_a_killed_worker_is_named_and_the_tables_are_removed(database: str, context: Any, spec: Any) -> None:
    async with loading(context, spec(database, population=LARGE)) as running:
        victim = workers_of(os.getpid())[0]
        victim.kill()
        with pytest.raises(TaskFault, match=rf"process {victim.pid}\) was killed by SIGKILL") as caught:
            await running
    assert caught.value.code == "fault"
    assert workers_of(os.getpid()) == []
    assert tables(database) == set()


async def test_a_lost_connection_is_unreachable(database: str, context: Any, spec: Any) -> None:
    async with loading(context, spec(database, population=LARGE)) as running:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'proveout populate' AND datname = current_database()"
            )
        with pytest.raises(TaskFault, match=r"cannot load table .* connection") as caught:
            await running
    assert caught.value.code == "unreachable"
    assert workers_of(os.getpid()) == []


async def test_a_crashed_server_gives_an_error_and_a_warning(tmp_path: Path, context: Any, spec: Any) -> None:
    server = Server(System(name="own", engine="postgres", host="local", provision="embedded"), tmp_path)
    try:
        endpoint = server.start()
        async with loading(context, spec(endpoint.dsn, population=LARGE)) as running:
            server.close(keep_data=False)
            with pytest.raises(TaskFault) as caught:
                await running
    finally:
        server.close(keep_data=False)
    assert caught.value.code == "unreachable"
    assert workers_of(os.getpid()) == []
    assert [level for level, _ in context.logged] == ["warning"]
    assert "half loaded" in context.logged[0][1]


AGENT = """
import asyncio, sys
sys.path.insert(0, {folder!r})
from conftest import Context, spec
from pathlib import Path
from proveout.core.linux import ORPHANED
from proveout.agent.load.population.handler import populate
from proveout.agent.load.population.job_messages import Finished, Load, Opening, Prepare, Progress, from_line, to_line
asyncio.run(populate(Context(Path(".")), spec(sys.stdin.readline().strip(), population={large}, workers=2)))
"""


async def test_workers_exit_with_their_agent(database: str) -> None:
    code = AGENT.format(folder=str(Path(__file__).parent), large=LARGE)
    agent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    try:
        assert agent.stdin is not None
        agent.stdin.write(database.encode() + b"\n")
        agent.stdin.flush()
        await until(lambda: len(workers_of(agent.pid)) == 2 and loaded(database) > 0)
        workers = workers_of(agent.pid)
        agent.send_signal(signal.SIGKILL)
        agent.wait()
        await until(lambda: not any(alive(worker) for worker in workers))
        await until(lambda: sessions(database) == 0)
    finally:
        agent.kill()
        agent.wait()
        assert agent.stdin is not None
        agent.stdin.close()


def alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def loaded(dsn: str) -> int:
    """Rows copied so far: COPY reports them before they are committed."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT coalesce(sum(tuples_processed), 0) FROM pg_stat_progress_copy").fetchone()
    assert row is not None
    return int(row[0])


def sessions(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE application_name = 'proveout populate' AND datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


async def test_a_table_of_another_program_is_never_dropped(database: str, context: Any, spec: Any) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE access_info AS SELECT 'precious' AS what")
    with pytest.raises(TaskFault, match="table access_info that proveout did not make") as caught:
        await populate(context, spec(database, population=100))
    assert caught.value.code == "refused"
    assert caught.value.way_out
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT what FROM access_info").fetchall() == [("precious",)]
    assert tables(database) == {"access_info"}


async def test_a_wrong_password_is_refused_without_naming_it(database: str, context: Any, spec: Any) -> None:
    with pytest.raises(TaskFault, match="password authentication failed") as caught:
        await populate(context, spec(make_conninfo(database, password="xyzzy-secret"), population=100))
    assert caught.value.code in {"refused", "unreachable"}
    assert "xyzzy" not in str(caught.value)
    assert workers_of(os.getpid()) == []


async def test_a_missing_server_is_unreachable(tmp_path: Path, context: Any, spec: Any) -> None:
    with pytest.raises(TaskFault) as caught:
        await populate(context, spec(f"host={tmp_path} dbname=x", population=100))
    assert caught.value.code == "unreachable"
    assert str(tmp_path) in caught.value.what


async def test_the_error_of_a_user_without_rights_quotes_the_server(database: str, context: Any, spec: Any) -> None:
    name = f"reader_{os.getpid()}"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'reader'")
        try:
            with pytest.raises(TaskFault, match="permission denied for schema public") as caught:
                await populate(context, spec(make_conninfo(database, user=name, password="reader"), population=100))
        finally:
            connection.execute(f"DROP ROLE {name}")
    assert caught.value.code == "refused"


@pytest.mark.parametrize(
    ("engine", "partitions", "code", "why"),
    [("nosuch", 1, "missing", "no driver for engine"), ("sqlite", 2, "invalid", "no partitioned tables")],
)
async def test_an_impossible_population_is_refused_before_workers_start(
    context: Any, spec: Any, tmp_path: Path, engine: str, partitions: int, code: str, why: str
) -> None:
    path = tmp_path / "x.db"
    with pytest.raises(TaskFault, match=why) as caught:
        await populate(context, spec(str(path), engine=engine, population=100, partitions=partitions))
    assert caught.value.code == code
    assert not path.exists()


async def test_a_file_that_cannot_be_opened_is_unreachable(context: Any, spec: Any, tmp_path: Path) -> None:
    with pytest.raises(TaskFault, match="cannot open the SQLite file") as caught:
        await populate(context, spec(str(tmp_path / "none" / "x.db"), engine="sqlite", population=100))
    assert caught.value.code == "unreachable"


async def test_a_cancelled_sqlite_load_leaves_no_tables(context: Any, spec: Any, sqlite_file: Path) -> None:
    import apsw

    path = sqlite_file
    async with loading(context, spec(str(path), engine="sqlite", population=LARGE)) as running:
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT count(*) FROM sqlite_schema").get == 0
    connection.close()


async def test_workers_continue_while_the_agents_event_loop_is_blocked(database: str, context: Any, spec: Any) -> None:
    """Workers need no answer of the agent during a slice: a blocked event loop only delays the next job."""
    running = asyncio.create_task(populate(context, spec(database, population=4_000)))
    await until(lambda: bool(context.reports) or running.done())
    blocked_until = time.monotonic() + 0.3
    while time.monotonic() < blocked_until:
        pass
    assert len((await running).tables) == len(NAMES)


def worker(parent: int) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", MODULE, str(parent), Privileges.for_engine("postgres").to_argument(), "postgres"]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)


def test_a_worker_started_after_the_end_of_its_agent_exits_at_once() -> None:
    with worker(parent=1) as process:
        assert process.wait(DEADLINE_S) == ORPHANED


def test_a_worker_exits_when_its_pipe_closes_during_a_job(sqlite_file: Path, spec: Any) -> None:
    """The second safeguard alone: the parent still runs, only the pipe is closed."""
    task = spec(str(sqlite_file), engine="sqlite", population=LARGE)
    opening = Opening(engine="sqlite", dsn=task.endpoint.dsn, kind="hlr", parameters=task.workload.parameters)
    jobs = (opening, Prepare(), Load(table="subscriber", first=1, count=LARGE))
    with worker(parent=os.getpid()) as process:
        process.communicate(b"".join(map(to_line, jobs)), timeout=DEADLINE_S)
        assert process.returncode == ORPHANED


def test_an_idle_worker_exits_with_status_0_when_its_pipe_closes(sqlite_file: Path, spec: Any) -> None:
    task = spec(str(sqlite_file), engine="sqlite", population=100)
    opening = Opening(engine="sqlite", dsn=task.endpoint.dsn, kind="hlr", parameters=task.workload.parameters)
    argv = [sys.executable, "-m", MODULE, str(os.getpid()), Privileges.for_engine("postgres").to_argument(), "postgres"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for job in (opening, Prepare(), Load(table="subscriber", first=1, count=100)):
            process.stdin.write(to_line(job))
            process.stdin.flush()
            while isinstance(answer := from_line(process.stdout.readline()), Progress):
                pass
        assert answer == Finished(rows=100)
        process.stdin.close()
        assert process.wait(DEADLINE_S) == 0

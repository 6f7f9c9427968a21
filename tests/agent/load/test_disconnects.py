"""Loads that lose their connections: what becomes of the transactions, and who is connected to afterwards.

The servers are real and restart, or stand behind a proxy that the test cuts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.agent.engines.members import Members
from proveout.agent.engines.mysql import provision as embedded_mysql
from proveout.agent.engines.mysql import sql as mysql_statements
from proveout.agent.engines.mysql.driver import MysqlDriver
from proveout.agent.engines.postgres.driver import PostgresDriver
from proveout.agent.engines.postgres.provision import Server
from proveout.agent.errors import TaskFault
from proveout.agent.load.population.handler import populate
from proveout.agent.load.run_load import run_load
from proveout.dsl.plan.stages import Sessions
from proveout.dsl.plan.topology import System
from proveout.proto.wire.results import LoadResult
from proveout.proto.wire.tasks import Endpoint, PopulateSystem

from .conftest import LoadContext, Spec, hlr

pytestmark = pytest.mark.slow


class Proxy:
    """A listener before a server's socket: it passes bytes on, or cuts all connections and accepts no new ones."""

    def __init__(self, server: Path) -> None:
        self._to = server / ".s.PGSQL.5432"
        self.port = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(self._to)
        self._writers |= {writer, back}
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(_pass_on(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


@pytest.fixture
async def proxy(hlr_database: str) -> AsyncIterator[Proxy]:
    made = Proxy(Path(conninfo_to_dict(hlr_database)["host"]))
    await made.open()
    yield made
    await made.cut()


def through(dsn: str, proxy: Proxy) -> str:
    return make_conninfo(dsn, host="127.0.0.1", port=proxy.port)


async def begun(context: LoadContext, load: Any) -> asyncio.Task[LoadResult]:
    """A load that has run for a second."""
    running = asyncio.create_task(run_load(context, load))
    second = asyncio.create_task(context.first_second.wait())
    await asyncio.wait((running, second), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    return running


async def cut_during(
    context: LoadContext, proxy: Proxy, load: Any, *, outage_s: float = 0.5, after: Callable[[], Any] | None = None
) -> LoadResult:
    """Run a load, and cut its connections for a while after its first second."""
    running = await begun(context, load)
    await proxy.cut()
    await asyncio.sleep(outage_s)
    if after is not None:
        after()
    await proxy.open()
    return await running


def totals(result: LoadResult) -> tuple[int, int, int]:
    """Committed, errors, retries of all transactions."""
    counts = [transaction.counts for transaction in result.transactions]
    return sum(one.ok for one in counts), sum(one.error_count for one in counts), sum(one.retried for one in counts)


@pytest.mark.parametrize("rate", [None, 20_000.0], ids=["closed", "open"])
async def test_reconnect_counts_the_transactions_under_way_as_errors(
    context: LoadContext, proxy: Proxy, hlr_database: str, spec: Spec, rate: float | None
) -> None:
    load = spec(through(hlr_database, proxy), rate=rate, windows=(0.0, 3.0, 0.2))
    result = await cut_during(context, proxy, load)
    done, errors, retried = totals(result)
    assert done
    assert errors
    assert not retried
    assert sum(t.counts.ok for t in context.seconds[-2].transactions), "it goes on afterwards"
    assert result.sessions.attempts > result.sessions.failed > 0
    assert not result.sessions.rerun


@pytest.mark.parametrize("rate", [None, 20_000.0], ids=["closed", "open"])
async def test_retry_runs_the_transactions_again_and_their_times_count_from_the_first_start(
    context: LoadContext, proxy: Proxy, hlr_database: str, spec: Spec, rate: float | None
) -> None:
    load = spec(through(hlr_database, proxy), rate=rate, windows=(0.0, 3.0, 0.2))
    result = await cut_during(context, proxy, replace(load, sessions=Sessions(on_disconnect="retry")))
    done, errors, retried = totals(result)
    assert done
    assert not errors, [transaction.counts for transaction in result.transactions]
    assert 0 < result.sessions.rerun <= retried
    assert max(transaction.response.max_ns for transaction in result.transactions) > 500_000_000
    assert result.sessions.connect.counts


async def test_fail_ends_the_load_and_names_the_reason(
    context: LoadContext, proxy: Proxy, hlr_database: str, spec: Spec
) -> None:
    load = spec(through(hlr_database, proxy), windows=(0.5, 30.0, 0.2))
    with pytest.raises(TaskFault, match=r"on_disconnect: fail.*08006") as fault:
        await cut_during(context, proxy, replace(load, sessions=Sessions(on_disconnect="fail")), outage_s=0.1)
    assert fault.value.code == "refused"


@pytest.mark.parametrize("policy", ["reconnect", "retry"])
async def test_a_pool_of_connections_comes_back(
    context: LoadContext, proxy: Proxy, hlr_database: str, spec: Spec, policy: Any
) -> None:
    load = spec(through(hlr_database, proxy), terminals=8, windows=(0.5, 2.5, 0.2))
    result = await cut_during(context, proxy, replace(load, sessions=Sessions(on_disconnect=policy, pool=3)))
    assert bool(totals(result)[1]) == (policy == "reconnect")
    assert sum(t.counts.ok for t in context.seconds[-2].transactions), "it goes on afterwards"


@pytest.mark.server
async def test_many_terminals_come_back_when_their_server_has_restarted(
    context: LoadContext, tmp_path: Path, spec: Spec
) -> None:
    """A real restart. No commit that the client has counted is lost, and `retry` shows no error."""
    system = System(name="db", engine="postgres", host="h", provision="embedded", settings=(("fsync", "off"),))
    server = Server(system, tmp_path / "root")
    try:
        endpoint = await asyncio.to_thread(server.start)
        await populate(context, PopulateSystem(workload=hlr(), endpoint=endpoint, workers=1))
        load = replace(
            spec(endpoint.dsn, terminals=32, windows=(0.5, 3.0, 0.2)), sessions=Sessions(on_disconnect="retry")
        )
        running = await begun(context, load)
        await asyncio.to_thread(server.stop)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(server.start)
        result = await running
    finally:
        await asyncio.to_thread(lambda: server.close(keep_data=False))
    done, errors, retried = totals(result)
    assert done
    assert not errors, [transaction.counts for transaction in result.transactions]
    assert retried >= result.sessions.rerun > 0
    assert result.sessions.attempts - result.sessions.failed >= 32


# ---- members ------------------------------------------------------------------------------------------------------


@pytest.fixture
def read_only(postgres_server: str, database: str) -> Iterator[str]:
    """The conninfo of another database that accepts no changes, as a standby does not."""
    name = f"{conninfo_to_dict(database)['dbname']}_ro"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
        connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'.encode())
    yield make_conninfo(database, dbname=name)
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


def reached(session: Any) -> str:
    """The database that a session of PostgreSQL is connected to."""
    return str(session._libpq._conn.db.decode())


def name_of(dsn: str) -> str:
    return str(conninfo_to_dict(dsn)["dbname"])


def test_the_member_with_the_access_is_found_and_tried_first_from_then_on(database: str, read_only: str) -> None:
    nobody = make_conninfo(database, host="/nowhere")
    tried: list[str] = []

    class Noted(PostgresDriver):
        def open(self, dsn: str, *, access: str, within_s: float | None) -> Any:
            tried.append(dsn)
            return super().open(dsn, access=access, within_s=within_s)

    for access, wanted, first in (("read_write", database, 3), ("read_only", read_only, 2)):
        members = Members(Noted(), (nobody, read_only, database), access)
        for expected in (first, 1 if access == "read_write" else first):
            tried.clear()
            session = members.connect(0)
            assert reached(session) == name_of(wanted)
            assert len(tried) == expected
            session.close()


def test_any_member_is_dealt_to_terminals_in_turn(database: str, read_only: str) -> None:
    members = Members(PostgresDriver(), (read_only, database), "any")
    sessions = [members.connect(number) for number in range(4)]
    assert [reached(session) for session in sessions] == [name_of(read_only), name_of(database)] * 2
    for session in sessions:
        session.close()


def test_no_member_with_the_access_is_a_failure_that_names_each(read_only: str) -> None:
    members = Members(PostgresDriver(), (read_only, make_conninfo(read_only, host="/nowhere")), "read_write")
    with pytest.raises(
        StatementFailure, match=r"none of 2 members .* read-write: .*read-only.*; .*/nowhere"
    ) as failure:
        members.connect(0)
    assert failure.value.kind is FailureKind.LOST


def test_the_hosts_of_a_dsn_are_members(database: str) -> None:
    host = conninfo_to_dict(database)["host"]
    several = make_conninfo(database, host=f"/nowhere,{host}", target_session_attrs="read-write")
    session = PostgresDriver().connect(several)
    assert reached(session) == name_of(database)
    session.close()
    parts = PostgresDriver().members("host=a,b port=1,2 target_session_attrs=prefer-standby dbname=x")
    found = [conninfo_to_dict(part) for part in parts]
    assert [(one["host"], one["port"], one["target_session_attrs"]) for one in found] == [
        ("a", "1", "standby"),
        ("b", "2", "standby"),
        ("a", "1", "any"),
        ("b", "2", "any"),
    ]


async def test_a_load_follows_the_member_that_accepts_changes(
    context: LoadContext, proxy: Proxy, hlr_database: str, postgres_server: str, spec: Spec
) -> None:
    """The first member becomes read-only while it is away, as a primary that returns as a standby: the load is on the
    other one afterwards."""
    database = conninfo_to_dict(hlr_database)["dbname"]

    def demote() -> None:
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            connection.execute(f'ALTER DATABASE "{database}" SET default_transaction_read_only = on'.encode())

    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{database}_2" TEMPLATE "{database}"'.encode())
    try:
        load = spec(through(hlr_database, proxy), windows=(0.5, 2.5, 0.2))
        other = make_conninfo(hlr_database, dbname=f"{database}_2")
        endpoint = replace(load.endpoint, instances=(load.endpoint.dsn, other))
        load = replace(load, endpoint=endpoint, sessions=Sessions(on_disconnect="retry", access="read_write"))
        result = await cut_during(context, proxy, load, outage_s=0.2, after=demote)
    finally:
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{database}_2" WITH (FORCE)'.encode())
    assert totals(result)[1] == 0
    assert sum(t.counts.ok for t in context.seconds[-2].transactions)


def test_the_read_only_mode_of_a_server_of_mysql_decides(
    mysql_server: embedded_mysql.Server, mysql_database: str
) -> None:
    """The members are the same server; a hundredth of a second in read-only mode is enough for the question."""
    driver = MysqlDriver()
    driver.open(mysql_database, access="read_write", within_s=5.0).close()
    with pytest.raises(StatementFailure, match="the server is not read-only"):
        driver.open(mysql_database, access="read_only", within_s=5.0)
    endpoint = Endpoint(system="shared", engine="mysql", dsn=mysql_server.dsn)
    mysql_statements.run_all(endpoint, ("SET GLOBAL read_only = 1",))
    try:
        driver.open(mysql_database, access="read_only", within_s=5.0).close()
        with pytest.raises(StatementFailure, match="read-only"):
            Members(driver, (mysql_database, mysql_database), "read_write").connect(0)
    finally:
        mysql_statements.run_all(endpoint, ("SET GLOBAL read_only = 0",))

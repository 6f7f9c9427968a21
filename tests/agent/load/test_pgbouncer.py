"""PgBouncer in front of an embedded PostgreSQL: loads through it, its restart with its database, and what it leaves."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from eventually import eventually

from proveout.agent.engines import pgbouncer
from proveout.agent.engines.embedded.data_store import ServerRole
from proveout.agent.engines.pgbouncer import CONFIGURATION, USERS, Pooler, configuration, find_program
from proveout.agent.engines.postgres.provision import Server
from proveout.agent.errors import TaskFault
from proveout.agent.load.run_load import run_load
from proveout.dsl.plan.stages import Sessions
from proveout.dsl.plan.topology import System
from proveout.dsl.rules.host_rules import POOLER_SETTINGS

from .conftest import LoadContext, hlr, is_gone, load_task, populated

needs_pgbouncer = pytest.mark.skipif(
    shutil.which("pgbouncer", path=pgbouncer.PLACES) is None, reason="Debian: apt-get install pgbouncer"
)
SIZE = 3
DB = System(name="db", engine="postgres", host="h", provision="embedded", settings=(("fsync", "off"),))
FRONT = System(
    name="front",
    engine="postgres",
    host="h",
    provision="pgbouncer",
    in_front_of="db",
    settings=(("default_pool_size", str(SIZE)), ("pool_mode", "session")),
)


@pytest.fixture
def pair(package_folder: Path) -> Iterator[tuple[Server, Pooler]]:
    """A database, and a PgBouncer in front of it."""
    server, pooler = Server(DB, package_folder), Pooler(FRONT, package_folder)
    try:
        pooler.take_role(ServerRole(primary=server.start()), FRONT)
        pooler.start()
        yield server, pooler
    finally:
        pooler.close(keep_data=False)
        server.close(keep_data=False)


def answers(dsn: str, query: str = "SELECT 1") -> int:
    with psycopg.connect(dsn) as connection:
        return int(connection.execute(query.encode()).fetchall()[0][0])


BACKENDS = "SELECT count(*) - 1 FROM pg_stat_activity WHERE backend_type = 'client backend'"


@needs_pgbouncer
async def test_a_load_through_it_and_its_life(
    pair: tuple[Server, Pooler], package_folder: Path, context: LoadContext
) -> None:
    """Eight terminals that connect for each transaction are served by the three connections of the pool.

    It is in front of what this agent's user runs here, and of nothing else; its files are its user's alone; it serves
    again after a restart of its database, takes new settings, and ends without a trace."""
    server, pooler = pair
    endpoint = pooler.start()
    assert endpoint.version.startswith("PgBouncer ")
    direct = replace(endpoint, system="db", dsn=server.dsn)
    await populated(context, direct, hlr())
    sessions = Sessions(connect_every=1)
    result = await run_load(context, load_task(endpoint.dsn, terminals=8, windows=(0.1, 0.4, 0.2), sessions=sessions))
    assert sum(t.counts.ok for t in result.transactions) > 0
    assert sum(t.counts.error_count for t in result.transactions) == 0
    assert result.sessions.attempts > 8
    assert result.sessions.failed == 0
    assert 0 < await asyncio.to_thread(answers, server.dsn, BACKENDS) <= SIZE
    await asyncio.to_thread(_live, server, pooler, package_folder)


def _live(server: Server, pooler: Pooler, root: Path) -> None:
    other = Pooler(replace(FRONT, name="other"), root)
    with pytest.raises(TaskFault, match="in front of no database"):
        other.start()
    elsewhere = replace(server.start(), dsn="host=/nowhere/socket port=5432 user=proveout dbname=postgres")
    other.take_role(ServerRole(primary=elsewhere), FRONT)
    with pytest.raises(TaskFault, match="not a running embedded PostgreSQL"):
        other.start()
    for name in (CONFIGURATION, USERS):
        assert stat.S_IMODE((pooler.session / name).stat().st_mode) == 0o600
    dsn, pid = pooler.dsn, pooler.pid
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(dsn.rpartition("=")[0] + "=wrong")
    server.save_snapshot()  # restarts the database
    pooler.start()
    assert (pooler.dsn, pooler.pid) == (dsn, pid)
    assert answers(dsn) == 1
    pooler.disturb("kill")
    assert pooler.state == "down"
    pooler.recover()
    larger = replace(FRONT, settings=(("default_pool_size", "4"),))
    pooler.take_role(ServerRole(primary=server.start()), larger)
    before = pooler.pid
    pooler.start()
    assert pooler.pid != before
    assert pooler.dsn == dsn
    assert "default_pool_size = 4" in (pooler.session / CONFIGURATION).read_text()
    session, supervisor, last = pooler.session, pooler._at.supervisor.pid, pooler.pid
    pooler.close(keep_data=False)
    assert supervisor is not None and last is not None
    eventually(lambda: is_gone(supervisor) and is_gone(last) and not session.exists(), "the end of all of it")
    assert [path.name for path in (root / "front").iterdir()] == ["server.log"]


@needs_pgbouncer
def test_one_without_a_supervisor_is_ended_by_the_next_start(pair: tuple[Server, Pooler], package_folder: Path) -> None:
    """Also where it was stopped (SIGSTOP); its folder goes with it. What ends it with its agent is the supervisor of all
    servers (tests/agent/engines/test_server_cleanup.py)."""
    server, pooler = pair
    pid, supervisor, session = pooler.pid, pooler._at.supervisor.pid, pooler.session
    assert pid is not None and supervisor is not None
    os.kill(pid, signal.SIGSTOP)
    os.kill(supervisor, signal.SIGKILL)
    eventually(lambda: is_gone(supervisor), "the end of the supervisor")
    following = Pooler(FRONT, package_folder)
    try:
        following.take_role(ServerRole(primary=server.start()), FRONT)
        following.start()
        eventually(lambda: is_gone(pid) and not session.exists(), "the end of PgBouncer and its folder")
    finally:
        following.close(keep_data=False)


def test_a_host_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pgbouncer, "PLACES", "/nowhere")
    with pytest.raises(TaskFault, match="PgBouncer is not installed") as caught:
        find_program()
    assert "apt-get install pgbouncer" in caught.value.way_out


def test_no_setting_of_a_plan_replaces_what_is_fixed() -> None:
    """Nor is there a name among them that leads to a file, a program or a user."""
    text = configuration((("auth_type", "any"), ("min_pool_size", "2")), Path("/s"), Path("/d"))
    assert "auth_type = md5" in text
    assert "auth_type = any" not in text
    assert "min_pool_size = 2" in text
    prefixes = ("default_", "max_", "min_", "query_", "reserve_", "server_")
    assert all(name.startswith(prefixes) for name in POOLER_SETTINGS)

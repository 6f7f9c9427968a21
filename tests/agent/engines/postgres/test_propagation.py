"""Propagation between two real servers: set-up, renewal and comparison; lost rows, conflicts, restarts and restores are
detected."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from eventually import PATIENCE_S, eventually_async
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from proveout.agent.capture import kinds
from proveout.agent.engines import handlers
from proveout.agent.engines.embedded.server import Embedded
from proveout.agent.engines.postgres.propagation import link_name, unlink
from proveout.agent.engines.postgres.provision import Server
from proveout.agent.engines.postgres.roles import administration, replication, with_keys
from proveout.agent.errors import TaskFault
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.topology import Capture, System
from proveout.dsl.workloads.kinds import build
from proveout.proto.wire.results import CaptureResult, Compared
from proveout.proto.wire.tasks import CompareSystems, Endpoint, LinkSystems, RunCapture, SnapshotSystem, StartSystem

pytestmark = pytest.mark.server

WORKLOAD = Workload(name="hlr", kind="hlr", parameters=(("population", 40),))
NO_WAITS = (("fsync", "off"),)
CACHE = System(
    name="cache",
    engine="postgres",
    host="h",
    provision="embedded",
    settings=(("synchronous_commit", "off"), *NO_WAITS),
)
BACKEND = System(name="backend", engine="postgres", host="h", provision="embedded", settings=NO_WAITS)
MOVE = "UPDATE subscriber SET vlr_location = vlr_location + 1"


def populate(endpoint: Endpoint, *, rows: bool = True) -> None:
    population = build(WORKLOAD).population
    with psycopg.connect(endpoint.dsn, autocommit=True) as connection:
        with connection.transaction():
            for statement in (*population.drop["postgres"], *population.before["postgres"]):
                connection.execute(statement.encode())
            for table in population.tables if rows else ():
                marks = ", ".join("%s" for _ in table.columns)
                values = [[plain(item) for item in row] for row in zip(*table.rows(1, population.units), strict=True)]
                connection.cursor().executemany(f"INSERT INTO {table.name} VALUES ({marks})".encode(), values)
        for statement in (statement for phase in population.after["postgres"] for statement in phase):
            connection.execute(statement.encode())


def plain(item: Any) -> int | str:
    value = item.item()
    return value.decode() if isinstance(value, bytes) else value


def run(endpoint: Endpoint, *statements: str) -> None:
    with psycopg.connect(endpoint.dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def ask(endpoint: Endpoint, query: str) -> Any:
    with psycopg.connect(endpoint.dsn, autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
    return row[0] if row else None


def as_owner(end: Endpoint) -> Endpoint:
    """The same server as an external one, with the dsn of its administrator."""
    return replace(end, dsn=make_conninfo(administration(end), options=""), provisioned=False)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """Two servers for the module: source, sink."""
    root = tmp_path_factory.mktemp("pair")
    sink, source = Server(BACKEND, root), Server(CACHE, root)
    try:
        yield source, sink
    finally:
        sink.close(keep_data=False)
        source.close(keep_data=False)


@pytest.fixture(scope="module")
def pair(servers: tuple[Server, Server]) -> tuple[Endpoint, Endpoint]:
    source, sink = servers
    return source.start(), sink.start()


@pytest.fixture
async def linked(task_context: Any, pair: tuple[Endpoint, Endpoint]) -> AsyncIterator[tuple[Endpoint, Endpoint]]:
    """The same two, freshly populated and linked."""
    for end in pair:
        await asyncio.to_thread(populate, end)
    await link(task_context, *pair)
    yield pair


async def link(context: Any, source: Endpoint, sink: Endpoint, *, copy_data: bool = False) -> None:
    spec = LinkSystems(source=source, sink=sink, workload=WORKLOAD, copy_data=copy_data)
    await handlers.link_systems(context, with_keys(spec))


async def compare(context: Any, source: Endpoint, sink: Endpoint, drain_timeout_s: float = PATIENCE_S) -> Compared:
    return await handlers.compare_systems(
        context, CompareSystems(source=source, sink=sink, workload=WORKLOAD, drain_timeout_s=drain_timeout_s)
    )


async def test_changes_arrive_and_rows_changed_or_lost_on_the_sink_are_found(task_context: Any, linked: Any) -> None:
    source, sink = linked
    run(source, MOVE, "DELETE FROM call_forwarding WHERE s_id <= 5")
    result = await compare(task_context, source, sink)
    assert result.drained
    assert [table.table for table in result.tables] == [
        "subscriber",
        "access_info",
        "special_facility",
        "call_forwarding",
    ]
    assert all(table.same for table in result.tables)
    assert result.tables[0].sink_rows == 40
    moved = "SELECT sum(vlr_location) FROM subscriber"
    assert ask(sink, moved) == ask(source, moved)
    run(sink, "UPDATE subscriber SET bit_1 = 1 - bit_1 WHERE s_id = 3", "DELETE FROM access_info WHERE s_id = 1")
    result = await compare(task_context, source, sink)
    assert result.drained
    assert [table.table for table in result.tables if not table.same] == ["subscriber", "access_info"]
    subscriber = result.tables[0]
    assert subscriber.source_rows == subscriber.sink_rows
    assert subscriber.source_checksum != subscriber.sink_checksum


async def test_a_link_is_renewed_and_made_again_for_partitioned_tables(
    task_context: Any, linked: tuple[Endpoint, Endpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linking twice changes nothing; tables of a second population are propagated as their roots."""
    source, sink = linked
    before = ask(sink, "SELECT oid FROM pg_subscription")
    await link(task_context, source, sink)
    assert ask(sink, "SELECT oid FROM pg_subscription") == before
    assert ask(source, "SELECT count(*) FROM pg_replication_slots") == 1
    parts = Workload(name="hlr", kind="hlr", parameters=(("population", 40), ("partitions", 2)))
    monkeypatch.setattr(sys.modules[__name__], "WORKLOAD", parts)
    for end in linked:
        await asyncio.to_thread(populate, end)
    await link(task_context, source, sink)
    run(source, MOVE)
    result = await compare(task_context, source, sink)
    assert result.drained
    assert [table.same for table in result.tables] == [True] * 4
    await link(task_context, source, sink)


async def test_a_stalled_link_is_the_lag_and_an_idle_one_has_none(task_context: Any, linked: Any) -> None:
    source, sink = linked[0], as_owner(linked[1])
    lag = Capture(name="lag", kind="lag", every_s=0.1, system="cache")
    running = asyncio.ensure_future(kinds.capture(task_context, RunCapture(capture=lag, endpoints=linked)))

    def values(metric: str, since: int = 0) -> list[float]:
        later = [reading for sample in task_context.samples[since:] for reading in sample.readings]
        return [reading.value for reading in later if reading.metric == metric]

    async def comes(metric: str, holds: Callable[[float], bool], what: str) -> None:
        """Wait for a sample from now on whose value holds."""
        seen = len(task_context.samples)
        await eventually_async(lambda: any(map(holds, values(metric, seen))), what)

    await comes("lag.seconds", lambda value: value == 0.0, "no lag")
    # WAL without a change for the sink counts as lag only until it has been read.
    run(source, "SELECT pg_logical_emit_message(false, 'idle', repeat('x', 10000))")
    await comes("lag.seconds", lambda value: value == 0.0, "no lag of an idle link")
    run(sink, f"ALTER SUBSCRIPTION {link_name('cache', 'backend')} DISABLE")
    run(source, MOVE)
    await comes("lag.seconds", lambda value: value > 0.3, "a lag")
    stalled = values("lag.bytes")[-1]
    await comes("lag.seconds", lambda value: value > 0.6, "a lag that grows on")
    run(source, MOVE)
    await comes("lag.bytes", lambda value: value > stalled, "more bytes")
    run(sink, f"ALTER SUBSCRIPTION {link_name('cache', 'backend')} ENABLE")
    await comes("lag.seconds", lambda value: value == 0.0, "no lag after the stall")
    task_context.end()
    result = await running
    assert isinstance(result, CaptureResult)
    assert result.samples == len(task_context.samples)
    assert values("lag.generated_bytes_total")[-1] > 0
    unlinked = (replace(source, system="other"), linked[1])
    lost = await kinds.capture(task_context, RunCapture(capture=lag, endpoints=unlinked))
    assert isinstance(lost, CaptureResult)
    assert (lost.samples, lost.lost >= 1) == (0, True)


async def test_an_empty_sink_is_filled_by_the_link(
    task_context: Any, pair: tuple[Endpoint, Endpoint], database: str
) -> None:
    source, sink = pair
    with pytest.raises(TaskFault, match="has no table subscriber"):
        await link(task_context, replace(source, dsn=database, provisioned=False), sink)
    await asyncio.to_thread(populate, source)
    await asyncio.to_thread(populate, sink, rows=False)
    await link(task_context, source, sink, copy_data=True)
    result = await compare(task_context, source, sink)
    assert all(table.same for table in result.tables)
    assert result.tables[0].sink_rows == 40


async def test_a_conflict_is_logged_and_ends_the_drain_early(task_context: Any, linked: Any) -> None:
    source, sink = linked
    insert = "INSERT INTO access_info VALUES (1, 4, 0, 0, '{0}', '{0}') ON CONFLICT (s_id, ai_type) DO UPDATE SET data3 = '{0}'"
    run(source, "DELETE FROM access_info WHERE s_id = 1")
    assert (await compare(task_context, source, sink)).drained
    run(sink, insert.format("SNK"))
    run(source, insert.format("SRC"))
    result = await compare(task_context, source, sink)
    assert not result.drained
    assert [table.table for table in result.tables if not table.same] == ["access_info"]
    assert [level for level, _ in task_context.logs] == ["error"]
    assert "confl_insert_exists" in task_context.logs[0][1]


async def test_a_disabled_link_is_logged(task_context: Any, linked: Any) -> None:
    source, sink = linked
    run(as_owner(sink), f"ALTER SUBSCRIPTION {link_name('cache', 'backend')} DISABLE")
    run(source, MOVE)
    assert not (await compare(task_context, source, sink)).drained
    assert "disabled" in task_context.logs[0][1]


async def test_a_link_with_an_external_end_is_removed_with_the_session(task_context: Any, linked: Any) -> None:
    source, sink = (as_owner(end) for end in linked)
    await link(task_context, source, sink)
    assert ask(sink, "SELECT count(*) FROM pg_subscription") == 1
    await task_context.close(keep_data=False)
    assert ask(sink, "SELECT count(*) FROM pg_subscription") == 0
    assert ask(source, "SELECT count(*) FROM pg_replication_slots") == 0
    assert ask(source, "SELECT count(*) FROM pg_publication") == 0


async def test_no_password_reaches_a_server_log(
    task_context: Any, servers: tuple[Server, Server], pair: tuple[Endpoint, Endpoint]
) -> None:
    source, sink = pair
    await unlink(with_keys(LinkSystems(source=source, sink=sink, workload=WORKLOAD, copy_data=False)))
    await asyncio.to_thread(populate, source)
    run(sink, *build(WORKLOAD).population.drop["postgres"])
    for end in (sink, as_owner(sink)):
        with pytest.raises(TaskFault, match=r'relation "public\.\w+" does not exist'):
            await link(task_context, source, end)
    log = servers[1].log.read_text()
    assert 'relation "public.' in log
    for dsn in (source.dsn, replication(source), administration(sink), sink.dsn):
        assert str(conninfo_to_dict(dsn)["password"]) not in log


# ---- systems of a session ------------------------------------------------------------------------------------------


async def test_propagation_survives_restart_save_and_restore(task_context: Any, tmp_path: Path) -> None:
    ends = {}
    for system in (BACKEND, CACHE):
        started = await handlers.start_system(task_context, StartSystem(system=system, data_root=str(tmp_path)))
        assert started.fresh
        assert dict(started.settings)["wal_level"] == "logical"
        ends[system.name] = started.endpoint
        await asyncio.to_thread(populate, started.endpoint)
    source, sink = ends["cache"], ends["backend"]
    await link(task_context, source, sink)
    run(source, MOVE)
    assert (await compare(task_context, source, sink)).drained
    saved = ask(source, "SELECT sum(vlr_location) FROM subscriber")
    for action in ("save", "restore"):
        for system in (CACHE, BACKEND):
            await handlers.snapshot_system(
                task_context, SnapshotSystem(system=system, data_root=str(tmp_path), action=action)
            )
        if action == "save":
            run(source, MOVE)
    await link(task_context, source, sink)
    assert ask(source, "SELECT sum(vlr_location) FROM subscriber") == saved
    run(source, MOVE, "DELETE FROM call_forwarding WHERE s_id = 2")
    result = await compare(task_context, source, sink)
    assert result.drained
    assert all(table.same for table in result.tables)
    assert ask(sink, "SELECT sum(vlr_location) FROM subscriber") == saved + 40

    # As in a resume: new processes, new sockets, the same data; the link is renewed.
    await task_context.close(keep_data=True)
    for system in (BACKEND, CACHE):
        started = await handlers.start_system(task_context, StartSystem(system=system, data_root=str(tmp_path)))
        assert not started.fresh
        assert started.endpoint.dsn != ends[system.name].dsn
        ends[system.name] = started.endpoint
    source, sink = ends["cache"], ends["backend"]
    await link(task_context, source, sink)
    run(source, MOVE)
    assert all(table.same for table in (await compare(task_context, source, sink)).tables)
    assert ask(sink, "SELECT sum(vlr_location) FROM subscriber") == saved + 80


# ---- objects of a plan that other roles could execute ----------------------------------------------------------------

TRAP = """
CREATE FUNCTION public.trap() RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  IF current_user <> 'proveout' THEN
    PERFORM pg_create_physical_replication_slot('trapped_' || current_user);
  END IF;
  RETURN true;
END $f$
"""
TRAP_OF_ROWS = """
CREATE FUNCTION public.trap_of_rows() RETURNS trigger LANGUAGE plpgsql AS $f$
BEGIN
  INSERT INTO public.seen VALUES (current_user);
  BEGIN
    EXECUTE $c$COPY (SELECT 1) TO PROGRAM 'true'$c$;
    INSERT INTO public.seen VALUES ('it ran a program');
  EXCEPTION WHEN insufficient_privilege THEN NULL;
  END;
  RETURN NEW;
END $f$
"""
VIEWS = {"pg_replication_slots": "*", "pg_subscription": "oid, subname, subdbid, subenabled", "pg_publication": "*"}


def trapped(*ends: Endpoint) -> list[str]:
    """The roles that have executed the plan's `trap`."""
    query = (
        "SELECT string_agg(slot_name::text, ',') FROM pg_catalog.pg_replication_slots WHERE slot_name LIKE 'trapped%'"
    )
    return [found for end in ends if (found := ask(replace(end, dsn=administration(end)), query))]


@pytest.fixture
async def trapped_pair(pair: tuple[Endpoint, Endpoint]) -> AsyncIterator[tuple[Endpoint, Endpoint]]:
    """Source and sink, not linked, in which views shadow the catalogue's and call `trap` in each session with the
    default search_path."""
    await unlink(with_keys(LinkSystems(source=pair[0], sink=pair[1], workload=WORKLOAD, copy_data=False)))
    for end in pair:
        await asyncio.to_thread(populate, end, rows=end is pair[0])
        views = (
            f"CREATE VIEW public.{view} AS SELECT {columns} FROM pg_catalog.{view} WHERE public.trap()"
            for view, columns in VIEWS.items()
        )
        run(end, TRAP, *views, "ALTER DATABASE postgres SET search_path = public, pg_catalog")
    yield pair
    for end in pair:
        run(end, "ALTER DATABASE postgres RESET search_path", "DROP FUNCTION public.trap() CASCADE")
        run(end, "DROP FUNCTION IF EXISTS public.trap_of_rows() CASCADE", "DROP TABLE IF EXISTS public.seen")


async def test_other_roles_do_not_execute_objects_of_a_plan(
    task_context: Any, servers: tuple[Server, Server], trapped_pair: tuple[Endpoint, Endpoint]
) -> None:
    """Names are resolved in the catalogue only, the table copy executes no row policies, and the sink applies changes as
    the owner of the tables."""
    source, sink = trapped_pair
    run(
        source,
        "ALTER TABLE subscriber ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY p ON subscriber USING (public.trap())",
    )
    task_context.resources["system:backend"] = Embedded(servers[1])
    with pytest.raises(TaskFault, match="row-level security"):
        await link(task_context, source, sink, copy_data=True)
    task_context.resources.clear()
    assert trapped(source, sink) == []
    linked = with_keys(LinkSystems(source=source, sink=sink, workload=WORKLOAD, copy_data=False))
    await unlink(linked)
    for end in trapped_pair:
        await asyncio.to_thread(populate, end)
    run(
        sink,
        "CREATE TABLE public.seen (who text)",
        TRAP_OF_ROWS,
        "CREATE TRIGGER t BEFORE UPDATE ON subscriber FOR EACH ROW EXECUTE FUNCTION public.trap_of_rows()",
        "ALTER TABLE subscriber ENABLE ALWAYS TRIGGER t",
    )
    await link(task_context, source, sink)
    await link(task_context, source, sink)  # renewed
    run(source, MOVE)
    assert (await compare(task_context, source, sink)).drained
    assert ask(sink, "SELECT string_agg(DISTINCT who, ',') FROM seen") == "proveout"
    await unlink(linked)
    assert trapped(source, sink) == []


async def test_a_table_without_a_key_is_propagated_by_whole_rows_in_a_server_of_our_own(
    task_context: Any, pair: tuple[Endpoint, Endpoint]
) -> None:
    source, sink = pair
    for end in pair:
        await asyncio.to_thread(populate, end)
        run(end, "ALTER TABLE call_forwarding DROP CONSTRAINT call_forwarding_pkey")
    with pytest.raises(TaskFault, match="call_forwarding has no primary key") as refused:
        await link(task_context, as_owner(source), as_owner(sink))
    assert "REPLICA IDENTITY FULL" in refused.value.way_out
    await link(task_context, source, sink)
    run(source, "DELETE FROM call_forwarding WHERE s_id <= 5", "UPDATE call_forwarding SET end_time = end_time + 1")
    result = await compare(task_context, source, sink)
    assert result.drained and all(table.same for table in result.tables)

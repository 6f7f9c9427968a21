"""Propagation between two real servers: set-up, renewal and comparison; lost rows, conflicts, restarts and restores are
detected."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from embedded_servers import ask, embedded, system, value
from eventually import PATIENCE_S, eventually_async
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from proveout.agent.capture import kinds
from proveout.agent.engines import handlers
from proveout.agent.engines.embedded.server import Embedded
from proveout.agent.engines.postgres.populate import PostgresLoader
from proveout.agent.engines.postgres.propagation import link_name, tables_of, unlink
from proveout.agent.engines.postgres.roles import administration, replication, with_keys
from proveout.agent.errors import TaskFault
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.topology import Capture
from proveout.dsl.workloads.kinds import build
from proveout.dsl.workloads.sql import Custom
from proveout.proto.wire.results import CaptureResult, Compared
from proveout.proto.wire.tasks import CompareSystems, Endpoint, LinkSystems, RunCapture, SnapshotSystem, StartSystem

pytestmark = pytest.mark.server

CACHE = system("postgres", ("synchronous_commit", "off"), name="cache")
BACKEND = system("postgres", name="backend")
HLR = Workload(name="hlr", kind="hlr", parameters=(("population", 40),))
NAME = link_name("cache", "backend")
MOVE = "UPDATE subscriber SET vlr_location = vlr_location + 1"
MOVED = "SELECT sum(vlr_location) FROM subscriber"
LINKS = "SELECT count(*) FROM pg_subscription"


def test_no_two_links_have_one_name() -> None:
    """The second link of a sink took the place of the first."""
    ends = [
        ("cache", "hub"),
        ("cache-1", "hub"),
        ("cache_1", "hub"),
        ("Cache_1", "hub"),
        *((f"{'x' * 60}{n}", "hub") for n in "ab"),
    ]
    names = [link_name(*pair) for pair in ends]
    assert len({*names}) == len(ends) and max(map(len, names)) <= 63 and names[0] == "proveout_cache_hub"
    assert all(re.fullmatch(r"[a-z0-9_]+", name) for name in names)


def test_tables_are_linked_under_the_names_that_postgres_makes_of_theirs() -> None:
    table = {"create": "CREATE TABLE Item (Id int)", "rows": 1, "columns": {"Id": {"sequence": 1}}}
    transactions = {"t": {"statements": {"q": "SELECT 1"}}}
    parameters = to_values(Custom.model_validate({"tables": {"Item": table}, "transactions": transactions}))
    assert tables_of(Workload(name="w", kind="sql", parameters=parameters)) == ("item",)


def as_owner(end: Endpoint) -> Endpoint:
    """The same server as an external one, with the dsn of its administrator."""
    return replace(end, dsn=make_conninfo(administration(end), options=""), provisioned=False)


@dataclass
class Pair:
    """Source and sink of a link of a small HLR."""

    context: Any
    source: Endpoint
    sink: Endpoint
    workload: Workload = HLR

    @property
    def ends(self) -> tuple[Endpoint, Endpoint]:
        return self.source, self.sink

    def spec(self, *, copy_data: bool = False) -> LinkSystems:
        return with_keys(LinkSystems(source=self.source, sink=self.sink, workload=self.workload, copy_data=copy_data))

    async def populate(self, *, rows_of_sink: bool = True) -> None:
        for end in self.ends:
            await asyncio.to_thread(self._populate, end, end is self.source or rows_of_sink)

    def _populate(self, end: Endpoint, rows: bool) -> None:
        population = build(self.workload).population
        with closing(PostgresLoader(end.dsn, population)) as loader:
            loader.prepare()
            for table in population.tables if rows else ():
                loader.load(table, 1, population.units, lambda _: None)
            for statement in (statement for phase in population.after["postgres"] for statement in phase):
                loader.execute(statement)

    async def link(self, *, copy_data: bool = False) -> None:
        await handlers.link_systems(self.context, self.spec(copy_data=copy_data))

    async def compared(self) -> Compared:
        spec = CompareSystems(source=self.source, sink=self.sink, workload=self.workload, drain_timeout_s=PATIENCE_S)
        return await handlers.compare_systems(self.context, spec)

    async def is_same(self) -> bool:
        result = await self.compared()
        return result.drained and all(table.same for table in result.tables)

    def change(self, *statements: str) -> None:
        """On the source."""
        ask(self.source.dsn, *statements)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    """Two servers for the module: source, sink."""
    root = tmp_path_factory.mktemp("pair")
    with embedded(root, of=CACHE) as source, embedded(root, of=BACKEND) as sink:
        yield source, sink


@pytest.fixture
def pair(servers: tuple[Any, Any], task_context: Any) -> Pair:
    return Pair(task_context, servers[0].start(), servers[1].start())


@pytest.fixture
async def linked(pair: Pair) -> Pair:
    """The same, freshly populated and linked."""
    await pair.populate()
    await pair.link()
    return pair


async def test_changes_arrive_and_rows_changed_or_lost_on_the_sink_are_found(linked: Pair) -> None:
    linked.change(MOVE, "DELETE FROM call_forwarding WHERE s_id <= 5")
    result = await linked.compared()
    assert result.drained
    tables = ["subscriber", "access_info", "special_facility", "call_forwarding"]
    assert [(table.table, table.same) for table in result.tables] == [(table, True) for table in tables]
    assert result.tables[0].sink_rows == 40
    assert value(linked.sink.dsn, MOVED) == value(linked.source.dsn, MOVED)
    changes = "UPDATE subscriber SET bit_1 = 1 - bit_1 WHERE s_id = 3", "DELETE FROM access_info WHERE s_id = 1"
    ask(linked.sink.dsn, *changes)
    result = await linked.compared()
    assert result.drained
    assert [table.table for table in result.tables if not table.same] == ["subscriber", "access_info"]
    subscriber = result.tables[0]
    assert subscriber.source_rows == subscriber.sink_rows
    assert subscriber.source_checksum != subscriber.sink_checksum


async def test_a_link_is_renewed_and_made_again_for_partitioned_tables(linked: Pair) -> None:
    """Linking twice changes nothing; tables of a second population are propagated as their roots."""
    before = value(linked.sink.dsn, "SELECT oid FROM pg_subscription")
    await linked.link()
    assert value(linked.sink.dsn, "SELECT oid FROM pg_subscription") == before
    assert value(linked.source.dsn, "SELECT count(*) FROM pg_replication_slots") == 1
    linked.workload = replace(linked.workload, parameters=(("population", 40), ("partitions", 2)))
    await linked.populate()
    await linked.link()
    linked.change(MOVE)
    assert await linked.is_same()
    await linked.link()


async def test_a_stalled_link_is_the_lag_and_an_idle_one_has_none(task_context: Any, linked: Pair) -> None:
    sink = as_owner(linked.sink).dsn
    lag = Capture(name="lag", kind="lag", every_s=0.1, system="cache")
    running = asyncio.ensure_future(kinds.capture(task_context, RunCapture(capture=lag, endpoints=linked.ends)))

    def values(metric: str, since: int = 0) -> list[float]:
        later = [reading for sample in task_context.samples[since:] for reading in sample.readings]
        return [reading.value for reading in later if reading.metric == metric]

    async def comes(metric: str, holds: Callable[[float], bool], what: str) -> None:
        """Wait for a sample from now on whose value holds."""
        seen = len(task_context.samples)
        await eventually_async(lambda: any(map(holds, values(metric, seen))), what)

    await comes("lag.seconds", lambda value: value == 0.0, "no lag")
    # WAL without a change for the sink counts as lag only until it has been read.
    linked.change("SELECT pg_logical_emit_message(false, 'idle', repeat('x', 10000))")
    await comes("lag.seconds", lambda value: value == 0.0, "no lag of an idle link")
    ask(sink, f"ALTER SUBSCRIPTION {NAME} DISABLE")
    linked.change(MOVE)
    await comes("lag.seconds", lambda value: value > 0.3, "a lag")
    stalled = values("lag.bytes")[-1]
    await comes("lag.seconds", lambda value: value > 0.6, "a lag that grows on")
    linked.change(MOVE)
    await comes("lag.bytes", lambda value: value > stalled, "more bytes")
    ask(sink, f"ALTER SUBSCRIPTION {NAME} ENABLE")
    await comes("lag.seconds", lambda value: value == 0.0, "no lag after the stall")
    task_context.end()
    result = await running
    assert isinstance(result, CaptureResult)
    assert result.samples == len(task_context.samples)
    assert values("lag.generated_bytes_total")[-1] > 0
    unlinked = (replace(linked.source, system="other"), linked.sink)
    lost = await kinds.capture(task_context, RunCapture(capture=lag, endpoints=unlinked))
    assert isinstance(lost, CaptureResult)
    assert (lost.samples, lost.lost >= 1) == (0, True)


async def test_an_empty_sink_is_filled_by_the_link(pair: Pair, database: str) -> None:
    empty = replace(pair.source, dsn=database, provisioned=False)
    with pytest.raises(TaskFault, match="has no table subscriber"):
        await replace(pair, source=empty).link()
    await pair.populate(rows_of_sink=False)
    await pair.link(copy_data=True)
    result = await pair.compared()
    assert all(table.same for table in result.tables)
    assert result.tables[0].sink_rows == 40


async def test_a_conflict_is_logged_and_ends_the_drain_early(task_context: Any, linked: Pair) -> None:
    insert = "INSERT INTO access_info VALUES (1, 4, 0, 0, '{0}', '{0}') ON CONFLICT (s_id, ai_type) DO UPDATE SET data3 = '{0}'"
    linked.change("DELETE FROM access_info WHERE s_id = 1")
    assert (await linked.compared()).drained
    ask(linked.sink.dsn, insert.format("SNK"))
    linked.change(insert.format("SRC"))
    result = await linked.compared()
    assert not result.drained
    assert [table.table for table in result.tables if not table.same] == ["access_info"]
    assert [level for level, _ in task_context.logs] == ["error"]
    assert "confl_insert_exists" in task_context.logs[0][1]


async def test_a_disabled_link_is_logged(task_context: Any, linked: Pair) -> None:
    ask(as_owner(linked.sink).dsn, f"ALTER SUBSCRIPTION {NAME} DISABLE")
    linked.change(MOVE)
    assert not (await linked.compared()).drained
    assert "disabled" in task_context.logs[0][1]


async def test_a_link_with_an_external_end_is_removed_with_the_session(task_context: Any, linked: Pair) -> None:
    external = replace(linked, source=as_owner(linked.source), sink=as_owner(linked.sink))
    await external.link()
    assert value(external.sink.dsn, LINKS) == 1
    await task_context.close(keep_data=False)
    assert value(external.sink.dsn, LINKS) == 0
    for view in ("pg_replication_slots", "pg_publication"):
        assert value(external.source.dsn, f"SELECT count(*) FROM {view}") == 0


async def test_a_link_of_the_same_name_in_other_databases_of_the_servers_is_left(linked: Pair) -> None:
    """The subscriptions of a server are in one catalogue, the slots in one list: here both ends have another database
    with one of the link's name."""
    await unlink(linked.spec())
    other = {end.system: as_owner(end).dsn for end in linked.ends}
    for dsn in other.values():
        ask(dsn, "DROP DATABASE IF EXISTS other", "CREATE DATABASE other")
    source, sink = (make_conninfo(dsn, dbname="other") for dsn in other.values())
    ask(source, f"SELECT pg_create_logical_replication_slot('{NAME}', 'pgoutput')")
    nothing = "CONNECTION 'host=/nowhere' PUBLICATION nothing WITH (connect = false)"
    ask(sink, f"CREATE SUBSCRIPTION {NAME} {nothing}")
    try:
        await unlink(linked.spec())
        assert value(sink, LINKS) == value(source, "SELECT count(*) FROM pg_replication_slots") == 1
        ask(source, f"SELECT pg_drop_replication_slot('{NAME}')")
        await linked.link()
        linked.change(MOVE)
        assert await linked.is_same()
    finally:
        ask(sink, f"ALTER SUBSCRIPTION {NAME} SET (slot_name = NONE)", f"DROP SUBSCRIPTION {NAME}")
        for dsn in other.values():
            ask(dsn, "DROP DATABASE other")


async def test_no_password_reaches_a_server_log(servers: tuple[Any, Any], pair: Pair) -> None:
    await unlink(pair.spec())
    await pair.populate()
    ask(pair.sink.dsn, *build(pair.workload).population.drop["postgres"])
    for sink in (pair.sink, as_owner(pair.sink)):
        with pytest.raises(TaskFault, match=r'relation "public\.\w+" does not exist'):
            await replace(pair, sink=sink).link()
    log = servers[1].log.read_text()
    assert 'relation "public.' in log
    for dsn in (pair.source.dsn, replication(pair.source), administration(pair.sink), pair.sink.dsn):
        assert str(conninfo_to_dict(dsn)["password"]) not in log


# ---- systems of a session ------------------------------------------------------------------------------------------


async def test_propagation_survives_restart_save_and_restore(task_context: Any, tmp_path: Path) -> None:
    async def started(*, fresh: bool) -> Pair:
        ends = {}
        for one in (BACKEND, CACHE):
            found = await handlers.start_system(task_context, StartSystem(system=one, data_root=str(tmp_path)))
            assert (found.fresh, dict(found.settings)["wal_level"]) == (fresh, "logical")
            ends[one.name] = found.endpoint
            task_context.resources[f"system:{one.name}"].answered()
        return Pair(task_context, ends["cache"], ends["backend"])

    pair = await started(fresh=True)
    await pair.populate()
    await pair.link()
    pair.change(MOVE)
    assert (await pair.compared()).drained
    saved = value(pair.source.dsn, MOVED)
    for action in ("save", "restore"):
        for one in (CACHE, BACKEND):
            spec = SnapshotSystem(system=one, data_root=str(tmp_path), action=action)
            await handlers.snapshot_system(task_context, spec)
        if action == "save":
            pair.change(MOVE)
    await pair.link()
    assert value(pair.source.dsn, MOVED) == saved
    pair.change(MOVE, "DELETE FROM call_forwarding WHERE s_id = 2")
    assert await pair.is_same()
    assert value(pair.sink.dsn, MOVED) == saved + 40

    # As in a resume: new processes, new sockets, the same data; the link is renewed.
    await task_context.close(keep_data=True)
    again = await started(fresh=False)
    assert {end.dsn for end in again.ends}.isdisjoint(end.dsn for end in pair.ends)
    await again.link()
    again.change(MOVE)
    assert await again.is_same()
    assert value(again.sink.dsn, MOVED) == saved + 80


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


def trapped(pair: Pair) -> list[str]:
    """The roles that have executed the plan's `trap`."""
    query = "SELECT slot_name FROM pg_catalog.pg_replication_slots WHERE slot_name LIKE 'trapped%'"
    return [slot for end in pair.ends for (slot,) in ask(administration(end), query)]


@pytest.fixture
async def trapping(pair: Pair) -> AsyncIterator[Pair]:
    """The pair, not linked, in which views shadow the catalogue's and call `trap` in each session with the default
    search_path."""
    await unlink(pair.spec())
    await pair.populate(rows_of_sink=False)
    views = [
        f"CREATE VIEW public.{view} AS SELECT {columns} FROM pg_catalog.{view} WHERE public.trap()"
        for view, columns in VIEWS.items()
    ]
    for end in pair.ends:
        ask(end.dsn, TRAP, *views, "ALTER DATABASE postgres SET search_path = public, pg_catalog")
    yield pair
    for end in pair.ends:
        ask(end.dsn, "ALTER DATABASE postgres RESET search_path", "DROP FUNCTION public.trap() CASCADE")
        ask(end.dsn, "DROP FUNCTION IF EXISTS public.trap_of_rows() CASCADE", "DROP TABLE IF EXISTS public.seen")


async def test_other_roles_do_not_execute_objects_of_a_plan(
    task_context: Any, servers: tuple[Any, Any], trapping: Pair
) -> None:
    """Names are resolved in the catalogue only, the table copy executes no row policies, and the sink applies changes as
    the owner of the tables."""
    trapping.change(
        "ALTER TABLE subscriber ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY p ON subscriber USING (public.trap())",
    )
    task_context.resources["system:backend"] = Embedded(servers[1])
    with pytest.raises(TaskFault, match="row-level security"):
        await trapping.link(copy_data=True)
    task_context.resources.clear()
    assert trapped(trapping) == []
    await unlink(trapping.spec())
    await trapping.populate()
    ask(
        trapping.sink.dsn,
        "CREATE TABLE public.seen (who text)",
        TRAP_OF_ROWS,
        "CREATE TRIGGER t BEFORE UPDATE ON subscriber FOR EACH ROW EXECUTE FUNCTION public.trap_of_rows()",
        "ALTER TABLE subscriber ENABLE ALWAYS TRIGGER t",
    )
    await trapping.link()
    await trapping.link()  # renewed
    trapping.change(MOVE)
    assert (await trapping.compared()).drained
    assert ask(trapping.sink.dsn, "SELECT DISTINCT who FROM seen") == [("proveout",)]
    await unlink(trapping.spec())
    assert trapped(trapping) == []


async def test_a_table_without_a_key_is_propagated_by_whole_rows_in_a_server_of_our_own(pair: Pair) -> None:
    await pair.populate()
    for end in pair.ends:
        ask(end.dsn, "ALTER TABLE call_forwarding DROP CONSTRAINT call_forwarding_pkey")
    with pytest.raises(TaskFault, match="call_forwarding has no primary key") as refused:
        await replace(pair, source=as_owner(pair.source), sink=as_owner(pair.sink)).link()
    assert "REPLICA IDENTITY FULL" in refused.value.way_out
    await pair.link()
    pair.change("DELETE FROM call_forwarding WHERE s_id <= 5", "UPDATE call_forwarding SET end_time = end_time + 1")
    assert await pair.is_same()

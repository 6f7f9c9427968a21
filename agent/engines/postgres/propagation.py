"""Asynchronous propagation between two PostgreSQLs: logical replication, set up, renewed, compared and taken away."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, LiteralString

from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.embedded.server import Embedded
from proveout.agent.engines.postgres.roles import REPLICATION
from proveout.agent.engines.postgres.sql import Connection, connected
from proveout.agent.errors import TaskFault
from proveout.core.data_classes import record
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.kinds import build
from proveout.proto.wire.results import Compared, TableDifference
from proveout.proto.wire.tasks import CompareSystems, Endpoint, LinkSystems

# Roles: a plan's own role does what it may (questions, the publication of its own tables). Of an embedded server slots
# are the replication role's, and subscriptions the administrator's (`postgres.roles`); its statements hold no word of
# the plan but quoted names.
#
# The link's publication, subscription and slot share one name made of the two systems' names: a later session finds and
# renews them. A link whose tables were made again (populated again), or whose slot is gone, is set up from the start.
#
# How the sink applies: `synchronous_commit = off` in the apply worker (what propagates asynchronously gains nothing
# from waiting for each flush on the far side; the slot keeps what is not flushed there yet, so a crash loses nothing),
# `streaming = parallel` and `binary` where both servers can, and `origin = any`. Not `disable_on_error`: a restart of
# the source is such an error. So a conflict is retried by the sink again and again, and `Watch` sees that: errors are
# counted up while nothing is applied.

READY_S = 60.0
COPY_S = 3600.0
SLOT_FREE_S = 10.0
POLL_S = 0.05
NAME_MAX = 63
ERRORS_MAX = 2

# All databases of a server share pg_subscription: another one may have a subscription of the same name.
OF_LINK = "subname = %s AND subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
ERRORS = f"""
SELECT sum(value::bigint) FILTER (WHERE key LIKE '%%error_count')::bigint, string_agg(key || ' ' || value, ', ')
FROM pg_stat_subscription_stats stats, jsonb_each_text(to_jsonb(stats))
WHERE subid = (SELECT oid FROM pg_subscription WHERE {OF_LINK})
  AND (key LIKE 'confl%%' OR key LIKE '%%error_count') AND value <> '0'
"""  # noqa: S608 - a constant


@record
class Ends:
    """A link being worked on: both endpoints with a connection to each."""

    source: Endpoint
    sink: Endpoint
    at_source: Connection
    at_sink: Connection

    @property
    def name(self) -> str:
        return link_name(self.source.system, self.sink.system)

    @property
    def identifier(self) -> sql.Identifier:
        """The link's name, quoted."""
        return sql.Identifier(self.name)


@record
class LinkEnds(Ends):
    """The same while the link is made or taken away: with connections for slots at the source and for subscriptions at
    the sink.

    `conninfo` is what the subscription connects with; `reader` the role of an embedded source that must be let read the
    tables.
    """

    conninfo: str
    reader: str
    at_slots: Connection
    at_subscriptions: Connection


@asynccontextmanager
async def _opened(spec: LinkSystems, purpose: str) -> AsyncIterator[LinkEnds]:
    """The ends with their connections; where a key is missing, a system is the owner's, and its dsn does all.
    TaskFault."""
    slots = replace(spec.source, dsn=spec.source_key or spec.source.dsn)
    subscriptions = replace(spec.sink, dsn=spec.sink_key or spec.sink.dsn)
    async with (
        connected(spec.source, purpose) as at_source,
        connected(spec.sink, purpose) as at_sink,
        connected(slots, purpose) as at_slots,
        connected(subscriptions, purpose) as at_subscriptions,
    ):
        # A failing statement would be written to the server's log with the connection string, password and all.
        if await _value(at_subscriptions, "SHOW is_superuser") == "on":
            await at_subscriptions.execute("SET log_min_error_statement = panic")
        yield LinkEnds(
            source=spec.source,
            sink=spec.sink,
            conninfo=slots.dsn,
            reader=REPLICATION if spec.source_key else "",
            at_source=at_source,
            at_sink=at_sink,
            at_slots=at_slots,
            at_subscriptions=at_subscriptions,
        )


def link_name(source: str, sink: str) -> str:
    """The name of publication, subscription and slot: of letters, digits and underscores, at most 63; with a checksum
    where those of the systems have others, or more, so that no two links have the same."""
    whole = f"proveout_{source}_{sink}"
    name = re.sub(r"[^a-z0-9_]", "_", whole.lower())
    is_whole = name == whole and len(name) <= NAME_MAX
    return name if is_whole else f"{name[: NAME_MAX - 9]}_{zlib.crc32(whole.encode()):08x}"


def tables_of(workload: Workload) -> tuple[str, ...]:
    return tuple(table.name.lower() for table in build(workload).population.tables)  # they are made without quotes


# ---- link ----------------------------------------------------------------------------------------------------------


async def link(context: TaskContext, spec: LinkSystems) -> None:
    """Set up or renew the link and wait until it runs. TaskFault with what stands in the way. Where an end is not
    provisioned by the run, the link is removed when the session ends."""
    if not (spec.source.provisioned and spec.sink.provisioned):
        context.resources[f"link:{spec.source.system}:{spec.sink.system}"] = Link(spec)
    tables = await asyncio.to_thread(tables_of, spec.workload)
    async with _opened(spec, "link") as ends:
        await _check_source(ends, tables)
        conninfo = await _conninfo(ends)
        if await _can_be_renewed(ends, tables):
            await _renew(ends, conninfo)
        else:
            await _remove(ends)
            await _create(ends, tables, conninfo, copy_data=spec.copy_data)
        await _await_ready(context, ends, len(tables), COPY_S if spec.copy_data else READY_S)


async def _check_source(ends: Ends, tables: tuple[str, ...]) -> None:
    level = await _value(ends.at_source, "SHOW wal_level")
    if level != "logical":
        raise TaskFault(
            "invalid",
            f"system {ends.source.system!r} has wal_level = {level}, and propagation needs logical",
            way_out="set wal_level = logical there and restart it",
        )
    for table in tables:
        found = await _row(
            ends.at_source,
            "SELECT relreplident IN ('f', 'i') OR EXISTS (SELECT FROM pg_index WHERE indrelid = c.oid AND indisprimary)"
            " FROM pg_class c WHERE c.oid = to_regclass(%s)",
            sql.Identifier(table).as_string(),
        )
        if not found:
            raise TaskFault(
                "missing", f"system {ends.source.system!r} has no table {table}", way_out="populate it first"
            )
        if found[0]:
            continue
        whole = sql.SQL("ALTER TABLE {} REPLICA IDENTITY FULL").format(sql.Identifier(table))
        if not ends.source.provisioned:
            raise TaskFault(
                "invalid",
                f"table {table} has no primary key: its updates and deletes cannot be propagated",
                way_out=whole.as_string(ends.at_source),
            )
        await ends.at_source.execute(whole)  # the rows of the workload are our own; inserts cost the same


async def _conninfo(ends: LinkEnds) -> str:
    """Connection string from the sink to the source. An embedded source has a socket of its own for that, see
    `postgres.provision`."""
    parts = {key: value for key, value in conninfo_to_dict(ends.conninfo).items() if value is not None}
    if ends.source.provisioned:
        sockets = str(await _value(ends.at_source, "SHOW unix_socket_directories")).split(", ")
        parts["host"] = sockets[-1]
    parts["application_name"] = ends.name
    return make_conninfo("", **parts)


async def _can_be_renewed(ends: Ends, tables: tuple[str, ...]) -> bool:
    """Whether subscription, publication and slot are there, and stand for the tables as they are now."""
    published = await _value(
        ends.at_source,
        "SELECT count(*) FROM pg_publication_rel rel JOIN pg_publication pub ON pub.oid = rel.prpubid"
        " WHERE pub.pubname = %s AND rel.prrelid = ANY (SELECT to_regclass(name) FROM unnest(%s::text[]) name)",
        ends.name,
        [sql.Identifier(table).as_string() for table in tables],
    )
    subscribed = await _value(
        ends.at_sink,
        "SELECT count(*) FROM pg_subscription_rel rel JOIN pg_subscription sub ON sub.oid = rel.srsubid"
        " WHERE sub.subname = %s AND rel.srrelid = ANY (SELECT to_regclass(name) FROM unnest(%s::text[]) name)",
        ends.name,
        [sql.Identifier(table).as_string() for table in tables],
    )
    slots = await _value(
        ends.at_source,
        "SELECT count(*) FROM pg_replication_slots"
        " WHERE slot_name = %s AND database = current_database() AND wal_status <> 'lost'",
        ends.name,
    )
    return bool(published == subscribed == len(tables) and slots == 1)


async def _create(ends: LinkEnds, tables: tuple[str, ...], conninfo: str, *, copy_data: bool) -> None:
    """Publication, then subscription with its slot; the sink's server makes the slot on the source."""
    names = sql.SQL(", ").join(map(sql.Identifier, tables))
    # Without the option, each partition would be a table of the subscription (there is none before PostgreSQL 13).
    by_root = "" if ends.at_source.info.server_version < 130_000 else " WITH (publish_via_partition_root = true)"
    publication = sql.SQL("CREATE PUBLICATION {} FOR TABLE {}").format(ends.identifier, names)
    await ends.at_source.execute(publication + sql.SQL(by_root))
    if ends.reader:
        await ends.at_source.execute(sql.SQL("GRANT SELECT ON {} TO {}").format(names, sql.Identifier(ends.reader)))
    version = min(ends.at_source.info.server_version, ends.at_sink.info.server_version)
    options = {"slot_name": ends.name, "copy_data": str(copy_data).lower(), "synchronous_commit": "off"}
    if version >= 140_000:
        options["streaming"] = "parallel" if version >= 160_000 else "on"
    if version >= 160_000 or (version >= 140_000 and not copy_data):
        options["binary"] = "true"
    if version >= 160_000:  # triggers of a table run as its owner
        options |= {"origin": "any", "run_as_owner": "false"}
    listed = [sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(value)) for name, value in options.items()]
    await ends.at_subscriptions.execute(f"SET statement_timeout = {round(READY_S * 1000)}".encode())
    await ends.at_subscriptions.execute(
        sql.SQL("CREATE SUBSCRIPTION {} CONNECTION {} PUBLICATION {} WITH ({})").format(
            ends.identifier, sql.Literal(conninfo), ends.identifier, sql.SQL(", ").join(listed)
        )
    )


async def _renew(ends: LinkEnds, conninfo: str) -> None:
    """Point the subscription to where the source is now, and let it run."""
    alter = sql.SQL("ALTER SUBSCRIPTION {} ").format(ends.identifier)
    await ends.at_subscriptions.execute(alter + sql.SQL("CONNECTION {}").format(sql.Literal(conninfo)))
    await ends.at_subscriptions.execute(alter + sql.SQL("ENABLE"))


async def _await_ready(context: TaskContext, ends: Ends, tables: int, limit_s: float) -> None:
    """Poll until each table's initial sync is done and the slot is in use; TaskFault with what the sink complains
    about."""
    deadline = time.monotonic() + limit_s
    watch = Watch(context, ends)
    while True:
        ready = await _value(
            ends.at_sink,
            "SELECT count(*) FROM pg_subscription_rel rel JOIN pg_subscription sub ON sub.oid = rel.srsubid"
            " WHERE sub.subname = %s AND rel.srsubstate = 'r'",
            ends.name,
        )
        active = await _value(ends.at_source, "SELECT active FROM pg_replication_slots WHERE slot_name = %s", ends.name)
        if ready == tables and active:
            return
        context.progress(ready, tables, "tables", "initial sync")
        trouble = await watch.trouble((ready, active))
        if trouble:
            raise TaskFault("fault", trouble, way_out="empty or populate the sink's tables so that both sides agree")
        if time.monotonic() > deadline:
            raise TaskFault(
                "timeout",
                f"propagation {ends.source.system} -> {ends.sink.system} was not running after {limit_s:.0f} s"
                f" ({ready} of {tables} tables ready, slot {'active' if active else 'not active'})"
                + await complaint(context, ends.sink.system),
                way_out="can the sink's host reach the source? see its server log",
            )
        await asyncio.sleep(POLL_S)


# ---- problems -----------------------------------------------------------------------------------------------


class Watch:
    """Watches a link that is waited for: is it there, enabled, and free of errors that repeat?"""

    def __init__(self, context: TaskContext, ends: Ends) -> None:
        self._context, self._ends = context, ends
        self._progress: object = None
        self._errors = 0

    async def trouble(self, progress: object) -> str:
        """Return the problem, for people, when `progress` stays the same; "" while the link may still recover."""
        ends = self._ends
        text = f"propagation {ends.source.system} -> {ends.sink.system}"
        query = f"SELECT subenabled FROM pg_subscription WHERE {OF_LINK}"  # noqa: S608 - a constant
        enabled = await _value(ends.at_sink, query, ends.name)
        if enabled is None:
            return f"{text} is gone: system {ends.sink.system!r} has no subscription {ends.name}"
        if not enabled:
            return f"{text} is switched off: subscription {ends.name} of system {ends.sink.system!r} is disabled"
        errors, counts = await self._counted()
        if progress != self._progress:
            self._progress, self._errors = progress, errors
        if errors < self._errors + ERRORS_MAX:
            return ""
        return f"{text} fails again and again ({counts})" + await complaint(self._context, ends.sink.system)

    async def _counted(self) -> tuple[int, str]:
        """Errors so far, and what the sink counts in words. Servers before 15 do not count: there it is always 0."""
        if self._ends.at_sink.info.server_version < 150_000:
            return 0, ""
        row = await _row(self._ends.at_sink, ERRORS, self._ends.name)
        return (int(row[0]), str(row[1])) if row and row[0] is not None else (0, "")


async def complaint(context: TaskContext, system: str) -> str:
    """Return the last message about replication in the log of an embedded server on this host, as `: …`; else ""."""
    resource: Any = context.resources.get(f"system:{system}")
    if isinstance(resource, Embedded):
        text = resource.replication_complaint()
    else:  # one that this process's agent has (`sandbox.helper_main.RemoteSystem`), or none
        text = await resource.replication_said() if hasattr(resource, "replication_said") else ""
    return f": {text}" if text else ""


# ---- unlink --------------------------------------------------------------------------------------------------------


async def unlink(spec: LinkSystems) -> None:
    """Remove subscription, slot and publication, where they exist. TaskFault when an end cannot be reached."""
    async with _opened(spec, "unlink") as ends:
        await _remove(ends)


async def _remove(ends: LinkEnds) -> None:
    """Each side by itself: DROP SUBSCRIPTION would go to the source by a conninfo that may not hold any more."""
    query = f"SELECT oid::text FROM pg_subscription WHERE {OF_LINK}"  # noqa: S608 - a constant
    subscription = await _value(ends.at_sink, query, ends.name)
    if subscription is not None:
        alter = sql.SQL("ALTER SUBSCRIPTION {} ").format(ends.identifier)
        await ends.at_subscriptions.execute(alter + sql.SQL("DISABLE"))
        await ends.at_subscriptions.execute(alter + sql.SQL("SET (slot_name = NONE)"))
        await ends.at_subscriptions.execute(sql.SQL("DROP SUBSCRIPTION {}").format(ends.identifier))
    await _drop_slots(ends, f"pg_{subscription}_sync_" if subscription else "")
    await ends.at_source.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(ends.identifier))


async def _drop_slots(ends: LinkEnds, sync_prefix: str) -> None:
    """Drop the link's slot, and those that an unfinished initial sync has left; a sender that clings to one is
    ended."""
    deadline = time.monotonic() + SLOT_FREE_S
    while True:
        rows = await (
            await ends.at_slots.execute(
                "SELECT slot_name, active_pid FROM pg_replication_slots"
                " WHERE database = current_database()"
                " AND (slot_name = %(name)s OR (%(prefix)s <> '' AND starts_with(slot_name, %(prefix)s)))",
                {"name": ends.name, "prefix": sync_prefix},
            )
        ).fetchall()
        for name, pid in rows:
            if pid is None:
                await ends.at_slots.execute("SELECT pg_drop_replication_slot(%s)", (name,))
            elif time.monotonic() > deadline:
                await ends.at_slots.execute("SELECT pg_terminate_backend(%s)", (pid,))
        if not rows:
            return
        if time.monotonic() > deadline + SLOT_FREE_S:
            raise TaskFault("timeout", f"replication slot {ends.name} of system {ends.source.system!r} stays in use")
        await asyncio.sleep(POLL_S)


class Link:
    """A link that is taken away at the session's end, when one of its ends will still be there: nothing stays on a
    host."""

    def __init__(self, spec: LinkSystems) -> None:
        self._spec = spec

    async def close(self, *, keep_data: bool) -> None:
        """Unlink, unless the session goes on later; best effort, bounded, never raises."""
        if keep_data:
            return
        with contextlib.suppress(TaskFault, TimeoutError):
            async with asyncio.timeout(3 * SLOT_FREE_S):
                await unlink(self._spec)


# ---- queries -------------------------------------------------------------------------------------------------------


async def _row(connection: Connection, query: LiteralString | sql.Composed, *arguments: Any) -> Any:
    return await (await connection.execute(query, arguments or None)).fetchone()


async def _value(connection: Connection, query: LiteralString, *arguments: Any) -> Any:
    row = await _row(connection, query, *arguments)
    return row[0] if row else None


MAY_SEE_ORIGINS = "SELECT has_table_privilege('pg_replication_origin_status', 'SELECT')::int::bigint"
APPLIED = f"""
SELECT /* proveout */ (origin.remote_lsn - '0/0')::bigint
FROM pg_subscription sub JOIN pg_replication_origin_status origin ON origin.external_id = 'pg_' || sub.oid
WHERE {OF_LINK}
"""  # noqa: S608 - a constant
CONFIRMED = "SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots WHERE slot_name = %s"
INSERTED = "SELECT /* proveout */ (pg_current_wal_insert_lsn() - '0/0')::bigint"

SAME_TEXT = (
    "SET timezone = 'UTC'; SET datestyle = 'ISO'; SET intervalstyle = 'postgres'; SET bytea_output = 'hex';"
    " SET extra_float_digits = 1"
)
CHECKSUM = "SELECT count(*), coalesce(sum(hashtextextended(t::text, 0)::numeric), 0)::text FROM {} AS t"


async def compare(context: TaskContext, spec: CompareSystems) -> Compared:
    """Drain and compare. A link that has stopped on an error is logged as an error, and not waited for."""
    tables = await asyncio.to_thread(tables_of, spec.workload)
    async with connected(spec.source, "compare") as at_source, connected(spec.sink, "compare") as at_sink:
        ends = Ends(source=spec.source, sink=spec.sink, at_source=at_source, at_sink=at_sink)
        started = time.monotonic()
        drained = await _drain(context, ends, spec.drain_timeout_s)
        drain_s = time.monotonic() - started
        for connection in (at_source, at_sink):
            await connection.execute(SAME_TEXT)
        differences = []
        for done, table in enumerate(tables):
            context.progress(done, len(tables), "tables", f"comparing {table}")
            differences.append(await _difference(ends, table))
        return Compared(tables=tuple(differences), drained=drained, drain_s=drain_s)


async def _drain(context: TaskContext, ends: Ends, limit_s: float) -> bool:
    """Wait until what the source has now is applied; False when the link has stopped, or the time is up."""
    target = await _number(ends.at_source, INSERTED)
    # A record behind the target that is flushed at once: with asynchronous commits the target itself may sit in a
    # buffer.
    await ends.at_source.execute("SET synchronous_commit = local")
    await ends.at_source.execute("SELECT pg_logical_emit_message(true, 'proveout', 'drain')")
    deadline = time.monotonic() + limit_s
    watch = Watch(context, ends)
    start = None
    # Only superusers see origins by themselves. The slot's confirmed position is as true, and at most some seconds
    # older.
    sees_origins = await _number(ends.at_sink, MAY_SEE_ORIGINS)
    while True:
        applied = await _number(ends.at_source, CONFIRMED, ends.name)
        if sees_origins:
            applied = max(applied, await _number(ends.at_sink, APPLIED, ends.name))
        if applied >= target:
            return True
        start = applied if start is None else start
        context.progress(applied - start, target - start, "bytes", "draining")
        trouble = await watch.trouble(applied)
        if trouble:
            context.log("error", trouble)
            return False
        if time.monotonic() > deadline:
            context.log(
                "error",
                f"propagation {ends.source.system} -> {ends.sink.system} was not drained after {limit_s:.0f} s:"
                f" {target - applied} bytes of the source's log are not applied",
            )
            return False
        await asyncio.sleep(POLL_S)


async def _number(connection: Connection, query: LiteralString, *arguments: str) -> int:
    return int(await _value(connection, query, *arguments) or 0)


async def _difference(ends: Ends, table: str) -> TableDifference:
    query = sql.SQL(CHECKSUM).format(sql.Identifier(table))
    (source_rows, source_sum), (sink_rows, sink_sum) = await asyncio.gather(
        _row(ends.at_source, query), _row(ends.at_sink, query)
    )
    return TableDifference(
        table=table,
        source_rows=source_rows,
        sink_rows=sink_rows,
        source_checksum=source_sum,
        sink_checksum=sink_sum,
    )

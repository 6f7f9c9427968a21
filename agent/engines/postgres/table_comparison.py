"""Compare both ends of a propagation: wait until the sink has applied all changes of the source, then compare table by
table.

Flow: the source's WAL position -> drained when the sink's origin, or the source's slot, is past it -> per table, on
both sides at once, `count(*)` and the sum of a 64-bit hash of each row's text: a checksum that no order of rows
changes.
"""

from __future__ import annotations

import asyncio
import time

from psycopg import sql

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.postgres.connection import Connection, connected
from proveout.agent.engines.postgres.propagation import POLL_S, Ends, Watch
from proveout.proto.wire.results import Compared, TableDifference
from proveout.proto.wire.tasks import Endpoint

MAY_SEE_ORIGINS = "SELECT has_table_privilege('pg_replication_origin_status', 'SELECT')::int::bigint"
APPLIED = """
SELECT (origin.remote_lsn - '0/0')::bigint
FROM pg_subscription sub JOIN pg_replication_origin_status origin ON origin.external_id = 'pg_' || sub.oid
WHERE sub.subname = %s
"""
CONFIRMED = "SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots WHERE slot_name = %s"
INSERTED = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"

SAME_TEXT = (
    "SET timezone = 'UTC'; SET datestyle = 'ISO'; SET intervalstyle = 'postgres'; SET bytea_output = 'hex';"
    " SET extra_float_digits = 1"
)
CHECKSUM = "SELECT count(*), coalesce(sum(hashtextextended(t::text, 0)::numeric), 0)::text FROM {} AS t"


async def compare(
    context: TaskContext, source: Endpoint, sink: Endpoint, tables: tuple[str, ...], drain_timeout_s: float
) -> Compared:
    """Drain and compare. A link that has stopped on an error is logged as an error, and not waited for."""
    async with connected(source, "compare") as at_source, connected(sink, "compare") as at_sink:
        ends = Ends(source=source, sink=sink, at_source=at_source, at_sink=at_sink)
        started = time.monotonic()
        drained = await _drain(context, ends, drain_timeout_s)
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


async def _number(connection: Connection, query: str, *arguments: str) -> int:
    row = await (await connection.execute(query.encode(), arguments or None)).fetchone()
    return int(row[0]) if row and row[0] is not None else 0


async def _difference(ends: Ends, table: str) -> TableDifference:
    query = sql.SQL(CHECKSUM).format(sql.Identifier(table))
    (source_rows, source_sum), (sink_rows, sink_sum) = await asyncio.gather(
        _checksum(ends.at_source, query), _checksum(ends.at_sink, query)
    )
    return TableDifference(
        table=table,
        source_rows=source_rows,
        sink_rows=sink_rows,
        source_checksum=source_sum,
        sink_checksum=sink_sum,
    )


async def _checksum(connection: Connection, query: sql.Composed) -> tuple[int, str]:
    row = await (await connection.execute(query)).fetchone()
    assert row is not None  # noqa: S101 - an aggregate without GROUP BY always gives one row
    return int(row[0]), str(row[1])

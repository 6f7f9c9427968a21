"""TPROC-C on real engines: populated, loaded by several terminals at once, and consistent afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import apsw
import duckdb
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from proveout.agent.engines.postgres.driver import PURE_PYTHON
from proveout.agent.load.invariants import check_invariants
from proveout.agent.load.population.handler import populate
from proveout.agent.load.run_load import run_load
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.conformance import Seen, conform
from proveout.dsl.workloads.tprocc.parameters import Tprocc
from proveout.proto.wire.results import InvariantCheck, LoadResult
from proveout.proto.wire.tasks import CheckInvariants, Endpoint, PopulateSystem, RunLoad

from .conftest import LoadContext, Spec, run_until

pytestmark = pytest.mark.slow
TERMINALS = 4
LOADED_NEXT = 10 * 3_001


def orders(**parameters: bool) -> Workload:
    return Workload(name="orders", kind="tprocc", parameters=to_values(Tprocc(warehouses=1, **parameters)))


async def window_s(context: LoadContext, spec: Spec, endpoint: Endpoint, workload: Workload) -> float:
    """The window in seconds in which a load has some transactions of the two most frequent types."""

    def enough(result: LoadResult) -> bool:
        return min(t.counts.ok for t in result.transactions if t.counts.name in {"NewOrder", "Payment"}) >= 5

    result = await run_until(enough, context, made(spec, endpoint, workload, 1.0))
    return (result.measure_end_ns - result.measure_start_ns) / 1e9


def made(spec: Spec, endpoint: Endpoint, workload: Workload, measure_s: float) -> RunLoad:
    windows = (0.3, measure_s, 0.3)
    return spec(endpoint.dsn, engine=endpoint.engine, terminals=TERMINALS, workload=workload, windows=windows)


async def load(
    context: LoadContext, spec: Spec, endpoint: Endpoint, workload: Workload, measure_s: float = 1.0
) -> tuple[LoadResult, range]:
    """Run a load of all terminals; return its result and the possible numbers of committed new orders, with ramps and late
    ends.

    More than one number is possible when, on a busy machine, answers were outstanding at the end of the load.
    """
    context.seconds.clear()
    result = await run_load(context, made(spec, endpoint, workload, measure_s))
    counts = [t.counts for second in context.seconds for t in second.transactions]
    recorded, committed = sum(one.ok for one in counts if one.name == "NewOrder"), dict(result.committed)["NewOrder"]
    assert recorded <= committed <= recorded + TERMINALS
    return result, range(committed, committed + dict(result.unknown).get("NewOrder", 0) + 1)


async def settled(connection: psycopg.Connection[Any]) -> None:
    """Wait until no transaction of a finished load still runs in the server."""
    others = """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
        AND backend_type = 'client backend' AND xact_start IS NOT NULL"""
    async with asyncio.timeout(60):
        while connection.execute(others).fetchone() != (0,):  # noqa: ASYNC110 - a server does not signal
            await asyncio.sleep(0.02)


async def order_count(context: LoadContext, endpoint: Endpoint) -> int:
    """New orders by the database's own count."""
    checked = await check_invariants(context, CheckInvariants(workload=orders(), endpoint=endpoint))  # type: ignore[arg-type]
    return dict(checked.tallies)["NewOrder"]


async def broken(context: LoadContext, endpoint: Endpoint) -> list[InvariantCheck]:
    checked = await check_invariants(context, CheckInvariants(workload=orders(), endpoint=endpoint))  # type: ignore[arg-type]
    assert len(checked.checks) == 12
    return [check for check in checked.checks if not check.holds]


def judged(result: LoadResult) -> list[str]:
    seen = [
        Seen(name=t.counts.name, ok=t.counts.ok, logical_failures=t.counts.logical_failures)
        for t in result.transactions
    ]
    return [finding.evidence for finding in conform(orders(), seen) if not finding.ok]


async def test_on_postgres_and_over_oracle_s_protocol(
    context: LoadContext, spec: Spec, database: str, oracle: str, tns_views: str
) -> None:
    """The second part runs Oracle's texts through python-oracledb and the TNS server of tests/wire on the same rows. The
    server translates them to PostgreSQL, so the test does not show that Oracle accepts them; a call of a procedure calls
    its twin in PL/pgSQL, so the test shows the calls and not the PL/SQL."""
    endpoint = Endpoint(system="db", engine="postgres", dsn=database)
    workload = orders(procedures=True)  # includes the objects for SQL from the client
    await populate(context, PopulateSystem(workload=workload, endpoint=endpoint, workers=2))  # type: ignore[arg-type]
    assert await broken(context, endpoint) == []
    following = LOADED_NEXT
    with psycopg.connect(database, autocommit=True) as connection:
        for parameters in ({}, {"procedures": True}, {"pipeline": True}):
            result, committed = await load(context, spec, endpoint, orders(**parameters))
            assert {t.counts.name: t.counts.error_count for t in result.transactions if t.counts.error_count} == {}
            assert committed.start > 10
            assert judged(result) == []
            await settled(connection)
            row = connection.execute("SELECT sum(d_next_o_id) FROM district").fetchone()
            assert row is not None
            assert row[0] - following in committed
            following = int(row[0])
            assert await order_count(context, endpoint) == following
            assert await broken(context, endpoint) == []
        connection.execute(tns_views)
        service = oracle.replace("/HLR", f"/{conninfo_to_dict(database)['dbname']}")
        over_tns = Endpoint(system="db", engine="oracle", dsn=service)
        for procedures in (False, True):
            measure_s = await window_s(context, spec, over_tns, orders(procedures=procedures))
            await settled(connection)
            following = await order_count(context, over_tns)
            result, committed = await load(context, spec, over_tns, orders(procedures=procedures), measure_s)
            assert {t.counts.name: t.counts.error_count for t in result.transactions if t.counts.error_count} == {}, (
                result.first_errors
            )
            assert committed.start > 0
            assert all(t.counts.ok for t in result.transactions if t.counts.name in {"NewOrder", "Payment"})
            assert judged(result) == []
            before, following = following, await order_count(context, over_tns)
            assert following - before in committed
        assert await broken(context, over_tns) == []
        found: set[str] = set()
        for statement, conditions in (
            ("UPDATE district SET d_ytd = d_ytd + 0.01 WHERE d_id = 3", {1, 9}),
            ("UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_id = 3", {2}),
            (
                "DELETE FROM new_order WHERE no_d_id = 4 AND no_o_id = (SELECT min(no_o_id) + 1 FROM new_order WHERE no_d_id = 4)",
                {3, 5, 11},
            ),
            ("DELETE FROM order_line WHERE ol_d_id = 5 AND ol_o_id = 7 AND ol_number = 1", {4, 6}),
            ("UPDATE order_line SET ol_delivery_d = NULL WHERE ol_d_id = 7 AND ol_o_id = 1 AND ol_number = 1", {7}),
            ("UPDATE warehouse SET w_ytd = w_ytd + 1", {8}),
            (
                "UPDATE customer SET c_balance = c_balance + 1, c_ytd_payment = c_ytd_payment - 1 WHERE c_d_id = 1 AND c_id = 1",
                {10},
            ),
            ("UPDATE customer SET c_ytd_payment = c_ytd_payment + 1 WHERE c_d_id = 3 AND c_id = 1", {12}),
        ):
            assert connection.execute(statement).rowcount == 1
            now = {check.name for check in await broken(context, endpoint)}
            assert now - found == {f"consistency-{number}" for number in conditions}, statement
            found = now


async def test_pipelines_of_the_loop_in_python(
    context: LoadContext, spec: Spec, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiled loop is in the test above."""
    monkeypatch.setenv(PURE_PYTHON, "1")
    endpoint = Endpoint(system="db", engine="postgres", dsn=database)
    await populate(context, PopulateSystem(workload=orders(), endpoint=endpoint, workers=2))  # type: ignore[arg-type]
    result, committed = await load(context, spec, endpoint, orders(pipeline=True))
    assert {t.counts.name: t.counts.error_count for t in result.transactions if t.counts.error_count} == {}
    assert committed.start > 10
    with psycopg.connect(database, autocommit=True) as connection:
        await settled(connection)
    assert await order_count(context, endpoint) - LOADED_NEXT in committed
    assert await broken(context, endpoint) == []


@pytest.mark.parametrize("engine", ["sqlite", "duckdb"])
async def test_in_a_file(context: LoadContext, spec: Spec, wal_file: Path, engine: str) -> None:
    """A transaction of DuckDB that changes a row which another one has changed fails and is retried, up to ten times; the
    orders that are counted are those that were committed."""
    path = wal_file if engine == "sqlite" else wal_file.with_name("orders.db")
    endpoint = Endpoint(system="db", engine=engine, dsn=str(path))
    await populate(context, PopulateSystem(workload=orders(), endpoint=endpoint, workers=1))  # type: ignore[arg-type]
    result, committed = await load(context, spec, endpoint, orders())
    errors = {code for t in result.transactions for code in dict(t.counts.errors)}
    assert errors <= ({"TransactionException"} if engine == "duckdb" else set()), result.first_errors
    assert judged(result) == []
    following = asked(engine, path, "SELECT sum(d_next_o_id) FROM district")
    assert following - LOADED_NEXT in committed
    assert committed.start > 0
    assert await order_count(context, endpoint) == following
    assert asked(engine, path, "SELECT count(*) FROM orders WHERE o_carrier_id IS NULL") >= 900
    assert await broken(context, endpoint) == []


def asked(engine: str, path: Path, query: str) -> int:
    """The number that a query gives, without proveout's driver."""
    if engine == "sqlite":
        file = apsw.Connection(str(path))
        found: Any = file.execute(query).get
        file.close()
        return int(found)
    with duckdb.connect(str(path), read_only=True) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])

"""TPROC-C on real engines: populated, loaded by several terminals at once, and consistent afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
from eventually import eventually_async
from psycopg.conninfo import conninfo_to_dict

from proveout.agent.load.invariants import check_invariants
from proveout.agent.load.population.handler import populate
from proveout.agent.load.run_load import run_load
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.conformance import conform
from proveout.proto.wire.results import LoadResult
from proveout.proto.wire.tasks import CheckInvariants, Endpoint, PopulateSystem, RunLoad

from .conftest import LoadContext, Spec, ask, change, run_until, seen_of, workload_of

pytestmark = pytest.mark.slow
TERMINALS = 4
LOADED_NEXT = 10 * 3_001


def orders(**parameters: bool) -> Workload:
    return workload_of("tprocc", warehouses=1, **parameters)


def made(spec: Spec, endpoint: Endpoint, workload: Workload, measure_s: float) -> RunLoad:
    windows = (0.3, measure_s, 0.3)
    return spec(endpoint.dsn, engine=endpoint.engine, terminals=TERMINALS, workload=workload, windows=windows)


async def load(
    context: LoadContext, spec: Spec, endpoint: Endpoint, workload: Workload, measure_s: float = 1.0
) -> tuple[LoadResult, range]:
    """Run a load of all terminals that conforms; return its result and the possible numbers of committed new orders,
    with ramps and late ends.

    More than one number is possible when, on a busy machine, answers were outstanding at the end of the load.
    """
    context.seconds.clear()
    result = await run_load(context, made(spec, endpoint, workload, measure_s))
    counts = [t.counts for second in context.seconds for t in second.transactions]
    recorded, committed = sum(one.ok for one in counts if one.name == "NewOrder"), dict(result.committed)["NewOrder"]
    assert 0 < recorded <= committed <= recorded + TERMINALS
    assert [finding.evidence for finding in conform(orders(), seen_of(result)) if not finding.ok] == []
    return result, range(committed, committed + dict(result.unknown).get("NewOrder", 0) + 1)


def errors(result: LoadResult) -> set[str]:
    return {code for t in result.transactions for code in dict(t.counts.errors)}


async def checked(context: LoadContext, endpoint: Endpoint) -> tuple[int, set[int]]:
    """New orders by the database's own count, and the numbers of the conditions that do not hold."""
    found = await check_invariants(context, CheckInvariants(workload=orders(), endpoint=endpoint))
    assert len(found.checks) == 12
    broken = {int(check.name.removeprefix("consistency-")) for check in found.checks if not check.holds}
    return dict(found.tallies)["NewOrder"], broken


async def settled(connection: psycopg.Connection[Any]) -> None:
    """Wait until no transaction of a finished load still runs in the server."""
    others = """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
        AND backend_type = 'client backend' AND xact_start IS NOT NULL"""
    await eventually_async(lambda: connection.execute(others).fetchone() == (0,), "the end of all transactions")


async def test_on_postgres_and_over_oracle_s_protocol(
    context: LoadContext, spec: Spec, database: str, oracle: str, tns_views: str
) -> None:
    """The second part runs Oracle's texts through python-oracledb and the TNS server of tests/wire on the same rows. The
    server translates them to PostgreSQL, so the test does not show that Oracle accepts them; a call of a procedure calls
    its twin in PL/pgSQL, so the test shows the calls and not the PL/SQL."""
    endpoint = Endpoint(system="db", engine="postgres", dsn=database)
    workload = orders(procedures=True)  # includes the objects for SQL from the client
    await populate(context, PopulateSystem(workload=workload, endpoint=endpoint, workers=2))
    assert await checked(context, endpoint) == (LOADED_NEXT, set())
    following = LOADED_NEXT
    with psycopg.connect(database, autocommit=True) as connection:
        for parameters in ({}, {"procedures": True}, {"pipeline": True}):
            result, committed = await load(context, spec, endpoint, orders(**parameters))
            assert errors(result) == set()
            await settled(connection)
            row = connection.execute("SELECT sum(d_next_o_id) FROM district").fetchone()
            assert row is not None
            assert row[0] - following in committed
            following = int(row[0])
            assert await checked(context, endpoint) == (following, set())
        connection.execute(tns_views)
        service = oracle.replace("/HLR", f"/{conninfo_to_dict(database)['dbname']}")
        over_tns = Endpoint(system="db", engine="oracle", dsn=service)
        for procedures in (False, True):
            first = await run_until(
                lambda result: (
                    min(t.counts.ok for t in result.transactions if t.counts.name in {"NewOrder", "Payment"}) >= 5
                ),
                context,
                made(spec, over_tns, orders(procedures=procedures), 1.0),
            )
            await settled(connection)
            before, _ = await checked(context, over_tns)
            measure_s = (first.measure_end_ns - first.measure_start_ns) / 1e9
            result, committed = await load(context, spec, over_tns, orders(procedures=procedures), measure_s)
            assert errors(result) == set(), result.first_errors
            await settled(connection)
            following, broken = await checked(context, over_tns)
            assert following - before in committed
            assert broken == set()


HARMS = (
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
)
"""Changes of one row, and the conditions that each breaks: all twelve together."""


@pytest.mark.parametrize("engine", ["sqlite", "duckdb", "mysql"])
async def test_on_another_engine(
    engine: str, request: pytest.FixtureRequest, context: LoadContext, spec: Spec, wal_file: Path
) -> None:
    """A transaction of DuckDB that changes a row which another one has changed fails and is retried, up to ten times; the
    orders that are counted are those that were committed. On SQLite each of the twelve conditions is broken."""
    files = {"sqlite": str(wal_file), "duckdb": str(wal_file.with_name("orders.db"))}
    dsn = files.get(engine) or request.getfixturevalue("mysql_database")
    endpoint = Endpoint(system="db", engine=engine, dsn=dsn)
    await populate(context, PopulateSystem(workload=orders(), endpoint=endpoint, workers=1))
    result, committed = await load(context, spec, endpoint, orders())
    assert errors(result) <= ({"TransactionException"} if engine == "duckdb" else set()), result.first_errors
    following = ask(endpoint, "SELECT sum(d_next_o_id) FROM district")
    assert following - LOADED_NEXT in committed
    assert ask(endpoint, "SELECT count(*) FROM orders WHERE o_carrier_id IS NULL") >= 900
    assert await checked(context, endpoint) == (following, set())
    if engine != "sqlite":
        return
    found: set[int] = set()
    for statement, conditions in HARMS:
        change(endpoint, statement)
        _, now = await checked(context, endpoint)
        assert now - found == conditions, statement
        found = now
    assert found == set(range(1, 13))

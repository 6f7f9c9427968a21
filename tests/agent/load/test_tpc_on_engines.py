"""TPROC-C, TPROC-H and TPC-B on real engines: populated, consistent after loads by several terminals at once, with the
answers that DuckDB's extension has, and with the tables of `pgbench -i`."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from eventually import eventually_async
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from proveout.agent.engines.postgres.installation import find_installation
from proveout.agent.engines.sessions import execute
from proveout.agent.engines.table import adapter, driver
from proveout.agent.load.invariants import check_invariants
from proveout.agent.load.populate_jobs import slices
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.conformance import conform
from proveout.dsl.workloads.tpcb import TABLES
from proveout.dsl.workloads.tproch import QUERIES, Tproch
from proveout.dsl.workloads.tproch import workload as tproch
from proveout.dsl.workloads.tproch.queries import STATEMENTS, validation
from proveout.proto.wire.results import LoadResult
from proveout.proto.wire.tasks import CheckInvariants, Endpoint

from .conftest import (
    LoadContext,
    ask,
    change,
    invariants,
    load_task,
    populated,
    run_until,
    seen_of,
    workload_of,
)

pytestmark = pytest.mark.server

TERMINALS = 4
LOADED_NEXT = 10 * 3_001


def orders(**parameters: bool) -> Workload:
    return workload_of("tprocc", warehouses=1, **parameters)


async def checked(context: LoadContext, endpoint: Endpoint) -> tuple[int, set[int]]:
    """New orders by the database's own count, and the numbers of the conditions that do not hold."""
    found = await check_invariants(context, CheckInvariants(workload=orders(), endpoint=endpoint))
    assert len(found.checks) == 12
    broken = {int(check.name.removeprefix("consistency-")) for check in found.checks if not check.holds}
    return dict(found.tallies)["NewOrder"], broken


async def load(context: LoadContext, endpoint: Endpoint, before: int, postgres: str = "", **parameters: bool) -> int:
    """Run a load of all terminals: it conforms, and the database has as many new orders more as it has committed; return
    their number. One more is possible for each answer that was outstanding at the end of the load.

    `postgres`: the conninfo of the database, where it is a PostgreSQL."""
    results: list[LoadResult] = []

    def has_orders(result: LoadResult) -> bool:
        results.append(result)
        return min(t.counts.ok for t in result.transactions if t.counts.name in {"NewOrder", "Payment"}) > 0

    windows = (0.1, 0.4, 0.1)
    workload = orders(**parameters)
    task = load_task(endpoint.dsn, engine=endpoint.engine, terminals=TERMINALS, workload=workload, windows=windows)
    context.seconds.clear()
    last = await run_until(has_orders, context, task)
    counts = [t.counts for second in context.seconds for t in second.transactions if t.counts.name == "NewOrder"]
    committed = sum(dict(result.committed)["NewOrder"] for result in results)
    unknown = sum(dict(result.unknown).get("NewOrder", 0) for result in results)
    assert 0 < sum(one.ok for one in counts) <= committed <= sum(one.ok for one in counts) + TERMINALS * len(results)
    assert [finding.evidence for finding in conform(orders(), seen_of(last)) if not finding.ok] == []
    # a transaction of DuckDB that changes a row which another one has changed fails, after ten retries
    accepted = {"TransactionException"} if endpoint.engine == "duckdb" else set()
    codes = {code for result in results for t in result.transactions for code, _ in t.counts.errors}
    assert codes <= accepted, last.first_errors
    if postgres:
        await settled(postgres)
    after = ask(endpoint, "SELECT sum(d_next_o_id) FROM district")
    assert committed <= after - before <= committed + unknown
    return after


async def settled(conninfo: str) -> None:
    """Wait until no transaction of a finished load still runs in the server."""
    others = """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
        AND backend_type = 'client backend' AND xact_start IS NOT NULL"""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        await eventually_async(lambda: connection.execute(others).fetchone() == (0,), "the end of all transactions")


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


async def test_on_postgres_and_over_oracle_s_protocol(
    context: LoadContext, database: str, oracle: str, tns_views: str
) -> None:
    """Each of the twelve conditions is broken at the end.

    The second part runs Oracle's texts through python-oracledb and the TNS server of tests/wire on the same rows. The
    server translates them to PostgreSQL, so the test does not show that Oracle accepts them; a call of a procedure calls
    its twin in PL/pgSQL, so the test shows the calls and not the PL/SQL."""
    endpoint = Endpoint(system="db", engine="postgres", dsn=database)
    workload = orders(procedures=True)  # includes the objects for SQL from the client
    await populated(context, endpoint, workload, workers=2)
    assert await checked(context, endpoint) == (LOADED_NEXT, set())
    following = LOADED_NEXT
    for parameters in ({}, {"procedures": True}, {"pipeline": True}):
        following = await load(context, endpoint, following, database, **parameters)
    assert await checked(context, endpoint) == (following, set())
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(tns_views)
    service = oracle.replace("/HLR", f"/{conninfo_to_dict(database)['dbname']}")
    over_tns = Endpoint(system="db", engine="oracle", dsn=service)
    for procedures in (False, True):
        following = await load(context, over_tns, following, database, procedures=procedures)
    assert await checked(context, over_tns) == (following, set())
    expected: set[int] = set()
    for some in (HARMS[::2], HARMS[1::2]):
        for statement, conditions in some:
            change(endpoint, statement)
            expected |= conditions
        _, broken = await checked(context, endpoint)
        assert broken == expected
    assert expected == set(range(1, 13))


@pytest.mark.soak
@pytest.mark.parametrize("engine", ["sqlite", "duckdb", "mysql"])
async def test_on_another_engine(
    engine: str, request: pytest.FixtureRequest, context: LoadContext, wal_file: Path
) -> None:
    """`test_workloads_on_engines` shows by day that these engines accept each text."""
    files = {"sqlite": str(wal_file), "duckdb": str(wal_file.with_name("orders.db"))}
    dsn = files.get(engine) or request.getfixturevalue("mysql_database")
    endpoint = Endpoint(system="db", engine=engine, dsn=dsn)
    await populated(context, endpoint, orders(), workers=1)
    following = await load(context, endpoint, LOADED_NEXT)
    assert await checked(context, endpoint) == (following, set())


# ---- TPC-B: the same columns, types, keys, options and rows as those of pgbench, which runs on them -------------------

COLUMNS = """SELECT c.relname, c.reloptions, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
  WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' ORDER BY c.relname, a.attnum"""
KEYS = """SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
  WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2"""


def layout(dsn: str) -> tuple[list[Any], ...]:
    """Columns, constraints, and a digest of the rows of each table."""
    with psycopg.connect(dsn) as connection:
        rows = [
            connection.execute(
                sql.SQL("SELECT count(*), md5(string_agg(t::text, ',' ORDER BY t)) FROM {} t").format(
                    sql.Identifier(name)
                )
            ).fetchall()
            for name in TABLES
        ]
        return connection.execute(COLUMNS).fetchall(), connection.execute(KEYS).fetchall(), rows


def pgbench(dsn: str, *arguments: str) -> None:
    program = str(find_installation().programs / "pgbench")
    done = subprocess.run([program, *arguments, dsn], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


async def test_the_tables_are_those_of_pgbench(task_context: Any, database: str) -> None:
    pgbench(database, "-i", "-q", "-s", "1")
    theirs = layout(database)
    pgbench(database, "-i", "-I", "d")
    workload, endpoint = workload_of("tpcb"), Endpoint(system="db", engine="postgres", dsn=database)
    await populated(task_context, endpoint, workload)
    assert layout(database) == theirs
    pgbench(database, "-n", "-t", "20", "-c", "2", "-M", "prepared")
    assert [row[0][0] for row in layout(database)[2]] == [1, 10, 100_000, 40]
    checks = await invariants(task_context, endpoint, workload)
    assert {check.name: check.holds for check in checks} == dict.fromkeys(("accounts", "tellers", "branches"), True)


# ---- TPROC-H: the 22 queries with the validation parameters ----------------------------------------------------------


def fill(engine: str, dsn: str, parameters: Tproch) -> None:
    """Load the population by the engine's own loader."""
    population = tproch.TprochWorkload(parameters).population
    loader = adapter(engine).loader(dsn, population)
    loader.prepare()
    for first, count in slices(population.units, population.slice_units):
        for table in population.tables:
            loader.load(table, first, count, lambda _: None)
    for phase in population.after[driver(engine).dialect]:
        for statement in phase:
            loader.execute(statement)
    for table in population.tables:
        low, high = population.expected[table.name]
        assert low <= loader.count(table.name) <= high
    loader.settle()
    loader.close()


def expected(scale: float) -> dict[int, list[list[str]]]:
    query = "SELECT query_nr, answer FROM tpch_answers() WHERE scale_factor = ?"
    answers = tproch.generator_database().execute(query, [scale]).fetchall()
    return {number: [line.split("|") for line in text.removesuffix("\n").split("\n")[1:]] for number, text in answers}


def same(found: object, wanted: str) -> bool:
    """Whether a value is that of the answer; engines round fractions differently."""
    text = "" if found is None else str(found)
    if text == wanted:
        return True
    try:
        return abs(float(text) - float(wanted)) <= max(0.01, 1e-4 * abs(float(wanted)))
    except ValueError:
        return False


SCALES = [("postgres", 0.01), ("duckdb", 0.01), ("sqlite", 0.01), ("mysql", 0.01), ("duckdb", 1.0), ("postgres", 1.0)]


@pytest.mark.parametrize(
    ("engine", "scale"), [SCALES[0], *(pytest.param(*pair, marks=pytest.mark.soak) for pair in SCALES[1:])]
)
def test_the_answers_are_those_of_the_scale_factor(
    engine: str, scale: float, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    pytest.importorskip(tproch.PACKAGE)
    fixtures = {"postgres": "database", "mysql": "mysql_database"}
    dsn = str(request.getfixturevalue(fixtures[engine]) if engine in fixtures else tmp_path / "data.db")
    if engine == "sqlite":
        apsw.Connection(dsn).close()
    fill(engine, dsn, Tproch(scale=scale))
    # the answers to query 11 are for the fraction of scale factor 1
    parameters = {**validation(scale), 11: validation(1.0)[11]}
    answers = expected(scale)
    made: Any = driver(engine)
    session = made.connect(dsn)
    for number in QUERIES:
        prepared = session.prepare(STATEMENTS[number])
        execute(session, made, prepared, parameters[number])
        found, wanted = session.rows(), answers[number]
        assert len(found) == len(wanted), f"query {number} on {engine}"
        for row, line in zip(found, wanted, strict=True):
            assert all(same(*pair) for pair in zip(row, line, strict=True)), (engine, number, row, line)
    session.close()

"""The tables of `kind: tpcb` beside those of `pgbench -i`: the same columns, types, keys, options and rows, and pgbench
runs on them and leaves the invariants as they are."""

from __future__ import annotations

import subprocess
from typing import Any

import psycopg
import pytest
from psycopg import sql

from proveout.agent.engines.postgres.installation import find_installation
from proveout.agent.load.invariants import check_invariants
from proveout.agent.load.populate import populate
from proveout.dsl.workloads.tpcb import TABLES
from proveout.proto.wire.tasks import CheckInvariants, Endpoint, PopulateSystem
from tests.agent.load.conftest import workload_of

pytestmark = pytest.mark.server

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
    workload = workload_of("tpcb")
    endpoint = Endpoint(system="db", engine="postgres", dsn=database)
    await populate(task_context, PopulateSystem(workload=workload, endpoint=endpoint, workers=1))
    assert layout(database) == theirs
    pgbench(database, "-n", "-t", "20", "-c", "2", "-M", "prepared")
    assert [row[0][0] for row in layout(database)[2]] == [1, 10, 100_000, 40]
    checks = (await check_invariants(task_context, CheckInvariants(workload=workload, endpoint=endpoint))).checks
    assert [(check.name, check.holds) for check in checks] == [
        ("accounts", True),
        ("tellers", True),
        ("branches", True),
    ]

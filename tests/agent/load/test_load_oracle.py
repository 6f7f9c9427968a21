"""Loads over Oracle's protocol, through the handler: the whole mix, and several instances with separate ranges of keys.

Behind the TNS servers is PostgreSQL (tests/wire). Two instances are two servers with a database each, so a terminal that
uses a key of the other instance finds no row.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from proveout.agent.load.population.handler import populate
from proveout.dsl.workloads.kinds import division_problem, of_workload, part_of
from proveout.proto.wire.tasks import Endpoint, PopulateSystem

from .conftest import SUBSCRIBERS, LoadContext, Spec, hlr, run_until

pytestmark = pytest.mark.slow

SERVER = Path(__file__).parents[2] / "wire" / "tns_server.py"
TABLES = ("call_forwarding", "special_facility", "access_info", "subscriber")


@pytest.fixture
def two_instances(postgres_server: str) -> Iterator[list[tuple[str, str]]]:
    """(Oracle dsn, conninfo behind it) of two TNS servers, each with its own database."""
    found = []
    servers = []
    for name in ("instance_1", "instance_2"):
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        behind = make_conninfo(postgres_server, dbname=name)
        argv = [sys.executable, str(SERVER), "--postgres", behind]
        server = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        servers.append(server)
        found.append((server.stdout.readline().split()[1], behind))  # type: ignore[union-attr]
    yield found
    for server in servers:
        server.communicate(timeout=20)
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        for name in ("instance_1", "instance_2"):
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def test_each_instance_receives_its_own_keys_only(
    context: LoadContext, two_instances: list[tuple[str, str]], spec: Spec
) -> None:
    half = SUBSCRIBERS // 2
    for number, (dsn, behind) in enumerate(two_instances):
        endpoint = Endpoint(system="rac", engine="oracle", dsn=dsn)
        await populate(context, PopulateSystem(workload=hlr(), endpoint=endpoint, workers=1))
        with psycopg.connect(behind, autocommit=True) as connection:
            for table in TABLES:
                connection.execute(f"DELETE FROM {table} WHERE s_id {'>' if number == 0 else '<='} {half}")
    dsns = tuple(dsn for dsn, _ in two_instances)
    reads = hlr(weights={"GetBasicSubscriberData": 1.0, "UpdateLocation": 1.0})
    task = spec(dsns[0], engine="oracle", workload=reads, terminals=4, workers=2, windows=(0.3, 1.5, 0.2))
    task = dataclasses.replace(task, endpoint=dataclasses.replace(task.endpoint, instances=dsns))
    names = ("GetBasicSubscriberData", "UpdateLocation")
    result = await run_until(
        lambda result: all(t.counts.ok > 20 for t in result.transactions if t.counts.name in names), context, task
    )
    counts = {t.counts.name: t.counts for t in result.transactions}
    for name in names:
        assert counts[name].logical_failures == counts[name].error_count == 0


def test_the_parts_cover_the_keys_without_overlap() -> None:
    workload = hlr(range=(11, 110))
    for count in (1, 2, 3, 7, 100):
        parts: list[Any] = [of_workload(part_of(workload, index, count)) for index in range(count)]
        edges = [(part.first, part.last) for part in parts]
        assert (edges[0][0], edges[-1][1]) == (11, 110)
        assert all(before[1] + 1 == after[0] for before, after in pairwise(edges))
        sizes = {last - first + 1 for first, last in edges}
        assert max(sizes) - min(sizes) <= 1
    with pytest.raises(ValueError, match="cannot be divided"):
        part_of(workload, 0, 101)


def test_populations_that_cannot_be_divided_are_refused() -> None:
    assert division_problem(hlr(range=(1, 3)), 3) is None
    assert "3 subscribers" in (division_problem(hlr(range=(1, 3)), 4) or "")


async def test_the_whole_mix(context: LoadContext, oracle: str, tns_database: str, spec: Spec) -> None:
    endpoint = Endpoint(system="db", engine="oracle", dsn=oracle)
    await populate(context, PopulateSystem(workload=hlr(), endpoint=endpoint, workers=1))
    try:
        result = await run_until(
            lambda result: sum(t.counts.logical_failures for t in result.transactions) > 10,
            context,
            spec(oracle, engine="oracle", windows=(0.2, 0.7, 0.1)),
        )
        assert all(t.counts.error_count == 0 for t in result.transactions), result.first_errors
        assert sum(t.counts.ok for t in result.transactions) > 20
    finally:
        with psycopg.connect(tns_database, autocommit=True) as connection:
            for table in TABLES:
                connection.execute(f"DROP TABLE {table} CASCADE")

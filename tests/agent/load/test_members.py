"""A load on members of a grid: a system of several instances, each a PostgreSQL database with its own part of the rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from proveout.agent.load.population.handler import populate
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.prepaid.parameters import Prepaid
from proveout.proto.wire.tasks import Endpoint, PopulateSystem

from .conftest import LoadContext, Spec, run_until

pytestmark = [pytest.mark.slow, pytest.mark.server]

CUSTOMERS = 90
MEMBERS = 3


def prepaid(**parameters: object) -> Workload:
    model = Prepaid.model_validate({"population": CUSTOMERS, "accounts_per_customer": 2, **parameters})
    return Workload(name="ppm", kind="prepaid", parameters=to_values(model))


@pytest.fixture
def members(postgres_server: str) -> Iterator[tuple[str, ...]]:
    """The conninfo of a database for each member, dropped after the test."""
    names = [f"member_{number}" for number in range(MEMBERS)]
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        for name in names:
            connection.execute(f"CREATE DATABASE {name}")
        yield tuple(make_conninfo(postgres_server, dbname=name) for name in names)
        for name in names:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def test_each_member_receives_the_customers_that_it_has(
    context: LoadContext, members: tuple[str, ...], spec: Spec
) -> None:
    size = CUSTOMERS // MEMBERS
    for number, dsn in enumerate(members):
        endpoint = Endpoint(system="grid", engine="postgres", dsn=dsn)
        await populate(context, PopulateSystem(workload=prepaid(), endpoint=endpoint, workers=1))
        with psycopg.connect(dsn, autocommit=True) as connection:
            for table in ("accounts", "customers"):
                keep = (number * size + 1, (number + 1) * size)
                connection.execute(f"DELETE FROM {table} WHERE cust_id NOT BETWEEN %s AND %s", keep)
    names = ("CheckBalance", "UpdateProfile")
    task = spec(members[0], workload=prepaid(weights=dict.fromkeys(names, 1.0)), terminals=6, windows=(0.2, 1.0, 0.1))
    task = dataclasses.replace(task, endpoint=dataclasses.replace(task.endpoint, instances=members))
    result = await run_until(
        lambda result: all(t.counts.ok > 20 for t in result.transactions if t.counts.name in names), context, task
    )
    for load in result.transactions:
        assert load.counts.logical_failures == load.counts.error_count == 0, load.counts.name
    for dsn in members:
        with psycopg.connect(dsn) as connection:
            versions = connection.execute("SELECT count(DISTINCT xmin::text) FROM customers").fetchone()
            assert versions is not None and versions[0] > 1, "every member has work"

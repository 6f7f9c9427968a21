"""The other workloads over Oracle's protocol: their Oracle texts through the real python-oracledb, PostgreSQL behind the TNS server.

It shows that the texts hang together with their binds, population and outcomes; of TPROC-C, whose smallest population would take
this server minutes, that its tables are made and every statement is parsed against them (its load is in `test_tprocc_load`, on rows
that PostgreSQL was given). Stored procedures are left out: what stands behind has no PL/SQL. It does not show that Oracle takes the texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from proveout.agent.drivers.oracle import OracleDriver
from proveout.agent.load.populate import populate
from proveout.agent.load.populate_oracle import OracleLoader
from proveout.dsl.plan import Workload
from proveout.dsl.workloads.parameters import KINDS, to_values
from proveout.dsl.workloads.table import build
from proveout.proto.tasks import Endpoint, PopulateSystem

from .conftest import LoadContext, Spec, ok, run_until

pytestmark = pytest.mark.slow


@pytest.fixture
def dsn(oracle: str, database: str, tns_views: str) -> Iterator[str]:
    """The dsn of a service with an empty database of one's own behind it."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(tns_views)
    yield oracle.replace("/HLR", f"/{conninfo_to_dict(database)['dbname']}")


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("tptbm", {"key": 30}),
        ("prepaid", {"population": 200}),
    ],
)
async def test_it_is_populated_and_runs(
    context: LoadContext, dsn: str, spec: Spec, kind: str, parameters: dict[str, Any]
) -> None:
    workload = Workload(name=kind, kind=kind, parameters=to_values(KINDS[kind].model_validate(parameters)))
    endpoint = Endpoint(system="db", engine="oracle", dsn=dsn)
    await populate(context, PopulateSystem(workload=workload, endpoint=endpoint, workers=1))
    load = spec(dsn, engine="oracle", workload=workload, terminals=2, windows=(0.5, 2.0, 0.2))
    result = await run_until(lambda result: ok(result) > 10, context, load)
    assert all(t.counts.error_count == 0 for t in result.transactions), result.first_errors


def test_every_statement_of_tprocc_is_parsed_against_its_tables(dsn: str) -> None:
    workload = Workload(name="tprocc", kind="tprocc", parameters=to_values(KINDS["tprocc"].model_validate({})))
    kind = build(workload)
    loader = OracleLoader(dsn, kind.population)
    session = OracleDriver().connect(dsn)
    try:
        loader.prepare()
        needed = {s.name: s for t in kind.transactions for s in t.statements}
        assert len(needed) > 20
        for statement in needed.values():
            session.prepare(statement)
    finally:
        session.close()
        loader.close()

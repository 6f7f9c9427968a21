"""The other workloads over Oracle's protocol: their Oracle texts through the real python-oracledb, PostgreSQL behind
the TNS server.

The tests show that the texts match their binds, population and outcomes. The smallest population of TPROC-C would take
this server minutes, so for TPROC-C they show that its tables and procedures are created, every statement is parsed
against them, and an interrupted population leaves nothing (its load is in `test_tprocc_load`, on rows inserted by
PostgreSQL). They do not show that Oracle accepts the texts; procedures are their twins in PL/pgSQL.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psutil
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from proveout.agent.engines.oracle.driver import OracleDriver
from proveout.agent.engines.oracle.populate import OracleLoader
from proveout.agent.errors import TaskFault
from proveout.agent.load.population.handler import populate
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.kinds import build, built_in
from proveout.dsl.workloads.tprocc.parameters import Tprocc
from proveout.proto.wire.tasks import Endpoint, PopulateSystem

from .conftest import LoadContext, Spec, ok, run_until

pytestmark = pytest.mark.slow


@pytest.fixture
def dsn(oracle: str, database: str, tns_views: str) -> Iterator[str]:
    """The dsn of a service with a separate empty database behind it."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(tns_views)
    yield oracle.replace("/HLR", f"/{conninfo_to_dict(database)['dbname']}")


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("tptbm", {"key": 30}),
        ("prepaid", {"population": 200}),
        (
            "tpcb",
            {"scale": 2, "accounts_per_branch": 100, "weights": {"TpcbLike": 2, "SimpleUpdate": 1, "SelectOnly": 1}},
        ),
    ],
)
async def test_it_is_populated_and_runs(
    context: LoadContext, dsn: str, spec: Spec, kind: str, parameters: dict[str, Any]
) -> None:
    workload = Workload(
        name=kind, kind=kind, parameters=to_values(built_in(kind).parameters.model_validate(parameters))
    )
    endpoint = Endpoint(system="db", engine="oracle", dsn=dsn)
    await populate(context, PopulateSystem(workload=workload, endpoint=endpoint, workers=1))
    load = spec(dsn, engine="oracle", workload=workload, terminals=2, workers=1, windows=(0.2, 0.5, 0.1))
    result = await run_until(lambda result: ok(result) > 10, context, load)
    assert all(t.counts.error_count == 0 for t in result.transactions), result.first_errors


class Loading:
    """A running population of TPROC-C over the wire."""

    def __init__(self, context: LoadContext, dsn: str) -> None:
        workload = Workload(name="orders", kind="tprocc", parameters=to_values(Tprocc(warehouses=1, procedures=True)))
        spec = PopulateSystem(workload=workload, endpoint=Endpoint(system="db", engine="oracle", dsn=dsn), workers=1)
        self.rows = asyncio.Event()
        context.progress = lambda done, *_: self.rows.set() if done else None  # type: ignore[method-assign]
        self.task = asyncio.create_task(populate(context, spec))

    async def until_rows(self) -> list[psutil.Process]:
        """Wait until rows are inserted; return the worker processes."""
        going = asyncio.create_task(self.rows.wait())
        async with asyncio.timeout(120):
            await asyncio.wait((going, self.task), return_when=asyncio.FIRST_COMPLETED)
        if self.task.done():
            going.cancel()
            await self.task
        return [one for one in psutil.Process().children() if "populate_worker" in " ".join(one.cmdline())]


def left(database: str) -> list[str]:
    """The tables and functions in the schema."""
    query = """SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
               UNION SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace"""
    with psycopg.connect(database) as connection:
        return [str(name) for (name,) in connection.execute(query)]


async def test_a_cancelled_or_killed_population_of_tprocc_leaves_nothing_and_can_run_again(
    context: LoadContext, dsn: str, database: str
) -> None:
    cancelled = Loading(context, dsn)
    (worker,) = await cancelled.until_rows()
    assert {"orders", "tprocc_neword"} <= set(left(database))
    cancelled.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled.task
    assert not worker.is_running()
    assert left(database) == []

    killed = Loading(context, dsn)
    (worker,) = await killed.until_rows()
    worker.kill()
    with pytest.raises(
        TaskFault, match=f"a populate worker .process {worker.pid}. was killed by SIGKILL in the middle"
    ):
        await killed.task
    assert left(database) == []

    again = Loading(context, dsn)
    assert len(await again.until_rows()) == 1
    again.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await again.task


@pytest.mark.parametrize("procedures", [False, True])
def test_every_statement_of_tprocc_is_parsed_against_its_tables(dsn: str, procedures: bool) -> None:
    model = built_in("tprocc").parameters.model_validate({"procedures": procedures})
    kind = build(Workload(name="tprocc", kind="tprocc", parameters=to_values(model)))
    loader = OracleLoader(dsn, kind.population)
    session = OracleDriver().connect(dsn)
    try:
        loader.prepare()
        needed = {s.name: s for t in kind.transactions for s in t.statements}
        assert len(needed) == 5 if procedures else len(needed) > 20
        for statement in needed.values():
            session.prepare(statement)
    finally:
        session.close()
        loader.close()

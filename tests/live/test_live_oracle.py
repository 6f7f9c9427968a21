"""The HLR workload on a real Oracle Database: `pytest tests/live --live-oracle USER/PASSWORD@CONNECT-STRING`.

Opt-in, and left out without that option. It makes and drops TATP's four tables in the user's schema. It is what shows
that Oracle takes the texts: DDL, partitions, statements, direct path load.
"""

from __future__ import annotations

from typing import Any

import pytest

from proveout.agent.engines.handlers import inspect_system
from proveout.agent.engines.oracle.driver import OracleDriver
from proveout.agent.engines.oracle.populate import OracleLoader
from proveout.agent.errors import TaskFault
from proveout.agent.load.populate import populate
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.hlr import Hlr
from proveout.dsl.workloads.kinds import build
from proveout.proto.wire.tasks import Endpoint, InspectSystem, PopulateSystem


@pytest.fixture
def endpoint(live_oracle: str) -> Endpoint:
    return Endpoint(system="live", engine="oracle", dsn=live_oracle)


@pytest.mark.parametrize("partitions", [1, 2])
async def test_population_and_every_statement(task_context: Any, endpoint: Endpoint, partitions: int) -> None:
    workload = Workload(name="hlr", kind="hlr", parameters=to_values(Hlr(population=2_000, partitions=partitions)))
    kind = build(workload)
    try:
        await populate(task_context, PopulateSystem(workload=workload, endpoint=endpoint, workers=2))
    except TaskFault as fault:
        if partitions > 1 and "ORA-00439" in fault.what:  # feature not enabled: Partitioning
            pytest.skip("this edition has no partitions")
        raise
    session = OracleDriver().connect(endpoint.dsn)
    try:
        for statement in {s.name: s for t in kind.transactions for s in t.statements}.values():
            session.prepare(statement)
    finally:
        session.close()
        loader = OracleLoader(endpoint.dsn, kind.population)
        loader.undo()
        loader.close()


async def test_inspect(task_context: Any, endpoint: Endpoint) -> None:
    up = await inspect_system(task_context, InspectSystem(endpoint=endpoint))
    assert int(up.endpoint.version.partition(".")[0]) >= 12

"""Propagation by a helper process: set up, captured, compared and removed. The helper requests the sink's log from the
agent, which can read it."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from psycopg.conninfo import make_conninfo

from proveout.agent.engines.postgres import roles as postgres_roles
from proveout.agent.load.population.handler import populate
from proveout.agent.sandbox import dispatch
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.topology import Capture, System
from proveout.dsl.workloads.hlr.parameters import Hlr
from proveout.proto.wire.results import CaptureResult, Compared, SqlDone
from proveout.proto.wire.tasks import (
    CompareSystems,
    Endpoint,
    LinkSystems,
    PopulateSystem,
    RunCapture,
    RunSql,
    StartSystem,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root has privileges to give up"),
]
HLR = Workload(name="hlr", kind="hlr", parameters=to_values(Hlr(population=100)))
NO_WAIT = (("fsync", "off"),)


async def started(context: Any, name: str, root: Path) -> Endpoint:
    system = System(name=name, engine="postgres", host="h", provision="embedded", settings=NO_WAIT)
    endpoint = (await dispatch.start_system(context, StartSystem(system=system, data_root=str(root)))).endpoint
    await populate(context, PopulateSystem(workload=HLR, endpoint=endpoint, workers=1))
    return endpoint


async def test_a_link_in_a_helper_process_is_removed_with_its_resource(task_context: Any, tmp_path: Path) -> None:
    cache = await started(task_context, "cache", tmp_path)
    back = await started(task_context, "back", tmp_path)

    async def sql(at: Endpoint, statement: str) -> tuple[int, ...]:
        done = await dispatch.run_in_helper(task_context, RunSql(endpoint=at, statements=(statement,)))
        return cast(SqlDone, done).counts

    async def compared() -> Compared:
        spec = CompareSystems(source=cache, sink=back, workload=HLR, drain_timeout_s=60.0)
        return cast(Compared, await dispatch.run_in_helper(task_context, spec))

    lab = make_conninfo(postgres_roles.administration(cache), options="")
    foreign = replace(cache, dsn=lab, provisioned=False)  # with an external end, the link must be removed
    await dispatch.link(task_context, LinkSystems(source=foreign, sink=back, workload=HLR, copy_data=False))
    assert await sql(cache, "UPDATE subscriber SET vlr_location = 7") == (100,)
    capture = Capture(name="lag", kind="lag", every_s=0.1, system="cache")
    looking = asyncio.create_task(dispatch.capture(task_context, RunCapture(capture=capture, endpoints=(cache, back))))
    found = await compared()
    assert found.drained
    assert all(table.source_checksum == table.sink_checksum for table in found.tables)
    task_context.end()
    assert cast(CaptureResult, await looking).samples >= 1
    await sql(back, "ALTER TABLE subscriber ADD CONSTRAINT low CHECK (vlr_location < 8)")
    await sql(cache, "UPDATE subscriber SET vlr_location = 9")
    assert not (await compared()).drained
    assert any('violates check constraint "low"' in text for _, text in task_context.logs), "from the sink's log"
    assert await sql(back, "SELECT 1 FROM pg_subscription") == (1,)
    await task_context.resources.pop("link:cache:back").close(keep_data=False)
    assert await sql(back, "SELECT 1 FROM pg_subscription") == (0,)

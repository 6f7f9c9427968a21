"""Which code runs which task: the explicit table. A module is imported when its first task comes, so an agent starts fast."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

from proveout.agent.daemon import availability
from proveout.agent.daemon.tasks import Handler, TaskContext
from proveout.agent.security import data_dirs
from proveout.proto.wire import tasks
from proveout.proto.wire.results import TaskResult

PLACES: Mapping[type, str] = MappingProxyType(
    {
        tasks.StartSystem: "proveout.agent.sandbox.dispatch:start_system",
        tasks.StopSystem: "proveout.agent.engines.handlers:stop_system",
        tasks.InspectSystem: "proveout.agent.sandbox.dispatch:ask",
        tasks.SnapshotSystem: "proveout.agent.engines.handlers:snapshot_system",
        tasks.LinkSystems: "proveout.agent.sandbox.dispatch:link",
        tasks.CompareSystems: "proveout.agent.sandbox.dispatch:ask",
        tasks.ReadFacts: "proveout.agent.host_facts:read_facts",
        tasks.CheckInvariants: "proveout.agent.sandbox.dispatch:ask",
        tasks.RunSql: "proveout.agent.sandbox.dispatch:ask",
        tasks.Checkpoint: "proveout.agent.sandbox.dispatch:ask",
        tasks.ApplyTuning: "proveout.agent.tuning.handlers:apply_tuning",
        tasks.VerifyTuning: "proveout.agent.tuning.handlers:verify_tuning",
        tasks.RevertTuning: "proveout.agent.tuning.handlers:revert_tuning",
        tasks.PopulateSystem: "proveout.agent.load.population.handler:populate",
        tasks.FormPool: "proveout.agent.load.pools.ray.ray_task:form_pool",
        tasks.RunLoad: "proveout.agent.load.run_load:run_load",
        tasks.PrepareFio: "proveout.agent.tools.fio:prepare_fio",
        tasks.RunFio: "proveout.agent.tools.fio:run_fio",
        tasks.RunCapture: "proveout.agent.sandbox.dispatch:capture",
    }
)


def resolve(place: str) -> Handler:
    """The handler at `module:name`; imports the module."""
    module, _, name = place.partition(":")
    return cast(Handler, getattr(importlib.import_module(module), name))


async def _inspect(context: TaskContext, spec: Any) -> TaskResult:
    handler = await asyncio.to_thread(resolve, PLACES[tasks.InspectSystem])
    return await handler(context, spec)


def _late(place: str) -> Handler:
    async def handle(context: TaskContext, spec: Any) -> TaskResult:
        # In a thread: importing a driver takes long enough to make a beat late.
        handler = await asyncio.to_thread(resolve, place)
        here = data_dirs.placed(context, spec)
        result = await availability.patiently(context, here, handler, _inspect)
        if isinstance(here, tasks.StopSystem) and here.remove and here != spec:
            await asyncio.to_thread(data_dirs.tidy, here)
        return result

    return handle


TABLE: Mapping[type, Handler] = MappingProxyType({kind: _late(place) for kind, place in PLACES.items()})

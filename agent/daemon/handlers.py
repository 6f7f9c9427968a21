"""Table of task handlers. A handler's module is imported with its first task, so that an agent starts fast."""

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

HANDLERS: Mapping[type, str] = MappingProxyType(
    {
        tasks.StartSystem: "proveout.agent.sandbox.dispatch:start_system",
        tasks.StopSystem: "proveout.agent.engines.handlers:stop_system",
        tasks.InspectSystem: "proveout.agent.sandbox.dispatch:run_in_helper",
        tasks.SnapshotSystem: "proveout.agent.engines.handlers:snapshot_system",
        tasks.LinkSystems: "proveout.agent.sandbox.dispatch:link",
        tasks.CompareSystems: "proveout.agent.sandbox.dispatch:run_in_helper",
        tasks.ReadFacts: "proveout.agent.host_facts:read_facts",
        tasks.CheckInvariants: "proveout.agent.sandbox.dispatch:run_in_helper",
        tasks.RunSql: "proveout.agent.sandbox.dispatch:run_in_helper",
        tasks.Checkpoint: "proveout.agent.sandbox.dispatch:run_in_helper",
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


def resolve(path: str) -> Handler:
    """The handler at `module:name`; imports the module."""
    module, _, name = path.partition(":")
    return cast(Handler, getattr(importlib.import_module(module), name))


async def _inspect(context: TaskContext, spec: Any) -> TaskResult:
    handler = await asyncio.to_thread(resolve, HANDLERS[tasks.InspectSystem])
    return await handler(context, spec)


def _lazy(path: str) -> Handler:
    async def handle(context: TaskContext, spec: Any) -> TaskResult:
        # In a thread: the import of a driver would delay a beat.
        handler = await asyncio.to_thread(resolve, path)
        local = data_dirs.localized(context.policy, context.work_dir, spec)
        result = await availability.patiently(context, local, handler, _inspect)
        if isinstance(local, tasks.StopSystem) and local.remove and local != spec:
            await asyncio.to_thread(data_dirs.remove_leftovers, local)
        return result

    return handle


TABLE: Mapping[type, Handler] = MappingProxyType({kind: _lazy(path) for kind, path in HANDLERS.items()})

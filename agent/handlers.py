"""Which code runs which task: the explicit table. A module is imported when its first task comes, so an agent starts fast."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

from proveout.agent.tasks import Handler, TaskContext
from proveout.proto import messages
from proveout.proto.messages import TaskResult

PLACES: Mapping[type, str] = MappingProxyType(
    {
        messages.StartSystem: "proveout.agent.provision.handlers:start_system",
        messages.StopSystem: "proveout.agent.provision.handlers:stop_system",
        messages.InspectSystem: "proveout.agent.provision.handlers:inspect_system",
        messages.SnapshotSystem: "proveout.agent.provision.handlers:snapshot_system",
        messages.LinkSystems: "proveout.agent.provision.handlers:link_systems",
        messages.CompareSystems: "proveout.agent.provision.handlers:compare_systems",
        messages.ReadFacts: "proveout.agent.facts:read_facts",
        messages.CheckInvariants: "proveout.agent.load.invariants:check_invariants",
        messages.RunSql: "proveout.agent.provision.handlers:run_sql",
        messages.Checkpoint: "proveout.agent.provision.handlers:checkpoint",
        messages.ApplyTuning: "proveout.agent.tuning.handlers:apply_tuning",
        messages.VerifyTuning: "proveout.agent.tuning.handlers:verify_tuning",
        messages.RevertTuning: "proveout.agent.tuning.handlers:revert_tuning",
        messages.PopulateSystem: "proveout.agent.load.populate:populate",
        messages.FormPool: "proveout.agent.load.ray_task:form_pool",
        messages.RunLoad: "proveout.agent.load.task:run_load",
        messages.RunCapture: "proveout.agent.capture.kinds:capture",
    }
)


def resolve(place: str) -> Handler:
    """The handler at `module:name`; imports the module."""
    module, _, name = place.partition(":")
    return cast(Handler, getattr(importlib.import_module(module), name))


def _late(place: str) -> Handler:
    async def handle(context: TaskContext, spec: Any) -> TaskResult:
        # In a thread: importing a driver takes long enough to make a beat late.
        handler = await asyncio.to_thread(resolve, place)
        return await handler(context, spec)

    return handle


TABLE: Mapping[type, Handler] = MappingProxyType({kind: _late(place) for kind, place in PLACES.items()})

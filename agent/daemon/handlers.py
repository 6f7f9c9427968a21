"""Table of task handlers. A handler's module is imported with its first task, so that an agent starts fast.

`patiently`: a task that finds a system of its own address `unreachable` warns the run, pauses and is repeated until
`AWAY_S` is over, because a database that is restarted must not end a run. Only tasks that are safe to repeat are
(`when_away`): a load fails as `unreachable` only before it is armed, a capture before it has sampled, and a population
or a copy drops what is half made. Before statements of the plan and propagation the systems are inspected instead. A
system that the run has provisioned is not waited for, as its agent detects its end; neither is a file.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from proveout.agent.daemon.tasks import Handler, TaskContext
from proveout.agent.engines.table import adapter, is_in_files
from proveout.agent.errors import TaskFault
from proveout.agent.security import data_dirs
from proveout.proto.wire import tasks
from proveout.proto.wire.results import TaskResult
from proveout.proto.wire.tasks import CheckSystem, InspectSystem, RunSql

IN_HELPER: Mapping[type, str] = MappingProxyType(
    {
        tasks.StartSystem: "proveout.agent.engines.handlers:start_system",
        tasks.StopSystem: "proveout.agent.engines.handlers:stop_system",
        tasks.SnapshotSystem: "proveout.agent.engines.handlers:snapshot_system",
        tasks.InspectSystem: "proveout.agent.engines.handlers:inspect_system",
        tasks.LinkSystems: "proveout.agent.engines.handlers:link_systems",
        tasks.CompareSystems: "proveout.agent.engines.handlers:compare_systems",
        tasks.RunSql: "proveout.agent.engines.handlers:run_sql",
        tasks.Checkpoint: "proveout.agent.engines.handlers:checkpoint",
        tasks.RestoreCopy: "proveout.agent.engines.handlers:restore_copy",
        tasks.CheckInvariants: "proveout.agent.load.invariants:check_invariants",
        tasks.CheckSystem: "proveout.agent.system_check:check_system",
        tasks.RunCapture: "proveout.agent.capture.kinds:capture",
    }
)
"""Task -> handler in a helper process. An agent that is not root runs the same handlers in its own process."""
HANDLERS: Mapping[type, str] = MappingProxyType(
    {
        **dict.fromkeys(IN_HELPER, "proveout.agent.sandbox.helper:run_in_helper"),
        tasks.StartSystem: "proveout.agent.sandbox.helper:start_system",
        tasks.StopSystem: "proveout.agent.engines.handlers:stop_system",
        tasks.SnapshotSystem: "proveout.agent.sandbox.helper:snapshot",
        tasks.LinkSystems: "proveout.agent.sandbox.helper:link",
        tasks.ReadFacts: "proveout.agent.host_facts:read_facts",
        tasks.CheckHost: "proveout.agent.diagnosis:check_host",
        tasks.ApplyTuning: "proveout.agent.tuning.tuner:apply_tuning",
        tasks.VerifyTuning: "proveout.agent.tuning.tuner:verify_tuning",
        tasks.RevertTuning: "proveout.agent.tuning.tuner:revert_tuning",
        tasks.RebootHost: "proveout.agent.tuning.tuner:reboot_host",
        tasks.InjectFault: "proveout.agent.tuning.fault_injection:inject_fault",
        tasks.PopulateSystem: "proveout.agent.load.populate:populate",
        tasks.FormPool: "proveout.agent.load.ray_task:form_pool",
        tasks.RunLoad: "proveout.agent.load.run_load:run_load",
        tasks.PrepareFio: "proveout.agent.tools.fio:prepare_fio",
        tasks.RunFio: "proveout.agent.tools.fio:run_fio",
        tasks.RunCommand: "proveout.agent.capture.command_values:run_command",
        tasks.RunCapture: "proveout.agent.sandbox.helper:capture",
    }
)


def resolve(path: str) -> Any:
    """The object at `module:name`; imports the module."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def lazy(path: str) -> Handler:
    """The handler at `module:name`, imported with its first task; in a thread, as that would delay a beat."""

    async def handle(context: TaskContext, spec: Any) -> TaskResult:
        handler: Handler = await asyncio.to_thread(resolve, path)
        return await handler(context, spec)

    return handle


_inspect = lazy(HANDLERS[tasks.InspectSystem])


def _local(path: str) -> Handler:
    """The handler of a task with folders of this agent, which waits for the systems of the task."""
    handler = lazy(path)

    async def handle(context: TaskContext, spec: Any) -> TaskResult:
        local = data_dirs.localized(context.policy, context.work_dir, spec)
        if not isinstance(local, tasks.StopSystem) or not local.remove:
            return await patiently(context, local, handler, _inspect)
        folder = Path(local.data_root, local.system)
        with data_dirs.noted(context.work_dir, folder):
            result = await patiently(context, local, handler, _inspect)
            if local != spec:
                await asyncio.to_thread(data_dirs.remove_leftovers, folder)
        return result

    return handle


TABLE: Mapping[type, Handler] = MappingProxyType({kind: _local(path) for kind, path in HANDLERS.items()})


AWAY_S = 30.0
"""The time for which a system may be away before the task that needs it fails."""
AGAIN_S = 0.5

LASTING = (
    "access denied",
    "authentication",
    "could not translate host name",
    "does not exist",
    "name or service not known",
    "no pg_hba.conf entry",
    "no ray cluster",
    "no ssl",
    "ora-01017",
    "ora-12154",
    "ssl is not",
    "unknown database",
)
"""Texts of answers that waiting does not change."""


async def patiently(context: TaskContext, spec: Any, handler: Handler, inspect: Handler) -> TaskResult:
    """Return the handler's result; wait while the systems of the task do not answer.

    `inspect` handles InspectSystem.
    """
    waited_for = [end for end in spec.asked if not end.provisioned and not is_in_files(end.engine)]
    in_haste = isinstance(spec, CheckSystem) and not spec.wait
    if not waited_for or in_haste or spec.when_away == "fail":
        return await handler(context, spec)
    if spec.when_away == "ask" and not _reports_effects(spec):
        for end in waited_for:
            await _until_done(context, InspectSystem(endpoint=end), inspect, end.system)
        return await handler(context, spec)
    return await _until_done(context, spec, handler, ", ".join(end.system for end in waited_for))


async def _until_done(context: TaskContext, spec: Any, handler: Handler, systems: str) -> TaskResult:
    began_s: float | None = None
    while True:
        try:
            result = await handler(context, spec)
        except TaskFault as fault:
            now_s = time.monotonic()
            if not is_away(fault):
                raise
            if began_s is None:
                began_s = now_s
                context.log("warning", f"{systems} does not answer, waiting for up to {AWAY_S:.0f} s: {fault.what}")
            elif now_s - began_s >= AWAY_S:
                what = f"{fault.what} (waited for {now_s - began_s:.0f} s)"
                raise TaskFault(fault.code, what, way_out=fault.way_out) from fault
            await asyncio.sleep(AGAIN_S)
            continue
        if began_s is not None:
            context.log("warning", f"{systems} answers again after {time.monotonic() - began_s:.1f} s")
        return result


def _reports_effects(spec: Any) -> bool:
    """Whether `unreachable` means that no statement took effect; otherwise the fault is `lost` (`postgres.sql`)."""
    return isinstance(spec, RunSql) and adapter(spec.endpoint.engine).stated.reports_effects


def is_away(fault: TaskFault) -> bool:
    """Whether a fault may pass by itself: the server did not answer, or it is starting or stopping."""
    text = fault.what.lower()
    return fault.code == "unreachable" and not any(words in text for words in LASTING)

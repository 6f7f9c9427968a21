"""Faults of real servers: killed, stopped and restarted, with their data and their address afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from eventually import eventually_async
from fault_bench import InPlace, disturbance, injection, steps, tuner, until

from proveout.agent.engines import handlers
from proveout.agent.engines.embedded.server import Embedded, EmbeddedServer
from proveout.agent.errors import TaskFault
from proveout.agent.tuning import sql_access
from proveout.agent.tuning.fault_injection import inject_fault
from proveout.agent.tuning.tuner import RESOURCE, Tuner
from proveout.dsl.plan.topology import System
from proveout.proto.wire.tasks import Endpoint, StartSystem

pytestmark = pytest.mark.server
KILL, STOP, RESTART = (disturbance(key, system="db") for key in ("kill", "stop", "restart"))


@pytest.fixture
def context(task_context: Any, tmp_path: Path) -> Any:
    task_context.arms, task_context.t0_ns = True, time.monotonic_ns()
    task_context.resources[RESOURCE] = Tuner(tmp_path / "undo")
    return task_context


async def started(context: Any, engine: str, tmp_path: Path) -> Endpoint:
    system = System(name="db", engine=engine, host="local", provision="embedded")
    return (await handlers.start_system(context, StartSystem(system=system, data_root=str(tmp_path)))).endpoint


def server(context: Any) -> EmbeddedServer[Any]:
    found = context.resources["system:db"]
    assert isinstance(found, Embedded)
    return found.server


def processes(context: Any) -> list[psutil.Process]:
    main = psutil.Process(server(context).pid)
    return [main, *main.children(recursive=True)]


async def count(end: Endpoint) -> str | None:
    (row,) = await asyncio.to_thread(sql_access.rows, end, "SELECT count(*) FROM kept")
    return row[0] if isinstance(row[0], str) else str(row[0])


@pytest.mark.parametrize("engine", ["postgres", pytest.param("mysql", marks=pytest.mark.soak)])
async def test_a_server_is_disturbed_and_healed_at_its_address(engine: str, context: Any, tmp_path: Path) -> None:
    end = await started(context, engine, tmp_path)
    await asyncio.to_thread(sql_access.run, end, "CREATE TABLE kept (id integer)")
    await asyncio.to_thread(sql_access.run, end, "INSERT INTO kept VALUES (1)")
    before = processes(context)

    async with InPlace(context, KILL):
        assert not any(one.is_running() and one.status() != "zombie" for one in before)
        with pytest.raises(TaskFault):
            await count(end)
    assert await count(end) == "1"
    assert processes(context)[0].pid != before[0].pid

    stopped = processes(context)
    async with InPlace(context, STOP):
        assert {one.status() for one in stopped if one.is_running()} == {"stopped"}
        answer = asyncio.ensure_future(count(end))  # a connection hangs until it is healed: nothing refuses it
    assert await answer == "1"
    assert processes(context)[0].pid == stopped[0].pid

    context.restart()
    context.samples.clear()
    (one,) = (await inject_fault(context, injection(RESTART))).occurrences
    assert [step for _, step in steps(context)] == ["begins", "in_place", "healing", "healed"]
    assert (one.error, one.residue) == ("", ())
    assert processes(context)[0].pid != stopped[0].pid
    assert await count(end) == "1"
    assert (server(context).dsn, server(context).death) == (end.dsn, None)
    assert not [text for level, text in context.logs if level == "error"]
    assert tuner(context).is_idle


async def test_a_server_that_cannot_be_started_again_is_reported_and_a_stopped_one_ends_with_its_agent(
    context: Any, tmp_path: Path
) -> None:
    """The supervisor continues a stopped server, or it could not end in order."""
    await started(context, "postgres", tmp_path)
    version = server(context).data / "PG_VERSION"
    task = asyncio.ensure_future(inject_fault(context, injection(KILL, for_s=3600.0)))
    await until(context, 1, "in_place")
    version.rename(version.with_name("hidden"))
    context.end()
    (one,) = (await task).occurrences
    assert one.healed_ns is None
    assert "the server of db could not be undone: PostgreSQL of system 'db' did not start" in one.residue[0]
    assert steps(context)[-1] == (1, "failed")
    assert not tuner(context).is_idle  # it stays in the journal
    version.with_name("hidden").rename(version)
    context.restart()
    with pytest.raises(TaskFault, match="started again at another address"):
        await inject_fault(context, injection(STOP))
    assert server(context).state == "runs"
    context.samples.clear()
    context.end()
    await inject_fault(context, injection(STOP, begins_s=(60.0,)))
    assert tuner(context).is_idle

    context.restart()
    alive, supervisor = processes(context), server(context).supervisor_pid
    assert supervisor is not None
    task = asyncio.ensure_future(inject_fault(context, injection(STOP, for_s=3600.0)))
    await until(context, 1, "in_place")
    os.kill(supervisor, signal.SIGTERM)  # as at the death of its agent
    await eventually_async(lambda: not any(one.is_running() for one in alive), "its processes have ended")
    context.end()
    (one,) = (await task).occurrences
    assert "the server of db" in one.residue[0]


async def test_a_fault_of_a_server_that_the_agent_has_not_started_is_refused(context: Any) -> None:
    with pytest.raises(TaskFault, match="fault f: kill: the agent has not started a server of db"):
        await inject_fault(context, injection(KILL))

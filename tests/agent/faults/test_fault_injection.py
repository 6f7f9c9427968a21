"""Faults on a host in a folder and of real servers: their steps, their instants, and their healing however they end."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from eventually import eventually_async
from tuning_bench import disturbance, full, host_in, picture, put, tuning

from proveout.agent.engines import handlers
from proveout.agent.engines.embedded.server import Embedded, EmbeddedServer
from proveout.agent.errors import TaskFault
from proveout.agent.tuning import sql_access
from proveout.agent.tuning.fault_injection import inject_fault
from proveout.agent.tuning.tuner import RESOURCE, Tuner
from proveout.dsl.plan.stages import Tuning, Windows
from proveout.dsl.plan.topology import System
from proveout.proto.wire.results import FaultStep
from proveout.proto.wire.tasks import Endpoint, InjectFault, StartSystem

SWAP = tuning("sysctl", "swap", settings={"vm.swappiness": "1"})
FILE = tuning("file", "file", path="/etc/app/a.conf", content="in place\n")
KILL, STOP, RESTART = (disturbance(key, system="db") for key in ("kill", "stop", "restart"))
STEPS = ["begins", "in_place", "healing", "healed"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(tmp_path / "root", "/proc/sys/vm/swappiness", "60\n")
    return put(tmp_path / "root", "/etc/app/a.conf", "before\n").parents[2]


@pytest.fixture
def context(task_context: Any, root: Path, tmp_path: Path) -> Any:
    task_context.arms, task_context.t0_ns = True, time.monotonic_ns()
    task_context.resources[RESOURCE] = Tuner(tmp_path / "undo", prepare=lambda _: host_in(root))
    return task_context


@pytest.fixture
def server_context(context: Any, tmp_path: Path) -> Any:
    """Without a host of its own: that of the servers is this machine."""
    context.resources[RESOURCE] = Tuner(tmp_path / "undo")
    return context


def begun(
    context: Any, *tunings: Tuning, begins_s: tuple[float, ...] = (0.0,), for_s: float = 0.0
) -> asyncio.Task[Any]:
    windows = Windows(ramp_up_s=0.0, measure_s=60.0, ramp_down_s=0.0)
    spec = InjectFault(fault="f", tunings=tunings, for_s=for_s, begins_s=begins_s, windows=windows, label="run/1/1/1")
    return asyncio.create_task(inject_fault(context, spec))


def steps(context: Any) -> list[tuple[int, str]]:
    """(number, step) of all steps that were streamed."""
    return [(one.number, one.step) for one in context.samples if isinstance(one, FaultStep)]


async def until(context: Any, number: int, step: str) -> None:
    await eventually_async(lambda: (number, step) in steps(context), f"step {step} of occurrence {number}")


def tuner(context: Any) -> Tuner:
    found = context.resources[RESOURCE]
    assert isinstance(found, Tuner)
    return found


def swappiness(root: Path) -> str:
    return (root / "proc/sys/vm/swappiness").read_text().strip()


async def test_a_fault_begins_and_is_healed_at_its_instants(context: Any, root: Path) -> None:
    """By the record, in which no instant is earlier than in the plan."""
    before = picture(root)
    result = await begun(context, SWAP, FILE, begins_s=(0.0, 0.1), for_s=0.05)
    assert steps(context) == [(number, step) for number in (1, 2) for step in STEPS]
    streamed = [one.at_ns for one in context.samples]
    assert streamed == sorted(streamed)
    for number, (one, begins_s) in enumerate(zip(result.occurrences, (0.0, 0.1), strict=True), 1):
        assert (one.number, one.error, one.residue) == (number, "", ())
        assert one.begins_ns >= context.t0_ns + begins_s * 1e9
        assert one.in_place_ns and one.healing_ns and one.healed_ns
        assert one.healing_ns - one.in_place_ns >= 0.05 * 1e9
        at = [step.at_ns for step in context.samples if step.number == number]
        assert at == [one.begins_ns, one.in_place_ns, one.healing_ns, one.healed_ns]
    assert picture(root) == before
    assert tuner(context).is_idle


async def test_a_condition_begins_a_fault_once_for_each_number_until_finish(context: Any, root: Path) -> None:
    task = begun(context, SWAP, begins_s=())
    for number in (1, 1, 2):
        context.triggers.put_nowait(number)
    await until(context, 2, "healed")
    context.end()
    assert [one.number for one in (await task).occurrences] == [1, 2]
    assert swappiness(root) == "60"


async def test_finish_heals_at_once_and_begins_no_more(context: Any, root: Path) -> None:
    task = begun(context, SWAP, begins_s=(0.0, 60.0), for_s=3600.0)
    await until(context, 1, "in_place")
    assert swappiness(root) == "1"
    context.end()
    (one,) = (await task).occurrences
    assert one.healed_ns is not None
    assert swappiness(root) == "60"


@pytest.mark.parametrize("step", ["begins", "in_place", "healing"])
async def test_a_cancelled_fault_is_healed_before_its_task_ends(
    step: str, context: Any, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, sample = picture(root), context.sample

    def cancel_at_step(one: FaultStep) -> None:
        sample(one)
        if one.step == step:
            task.cancel()

    monkeypatch.setattr(context, "sample", cancel_at_step)
    task = begun(context, SWAP, FILE, for_s=0.0 if step == "healing" else 3600.0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert picture(root) == before
    assert tuner(context).is_idle
    assert steps(context)[-1] == (1, "healed")


async def test_a_healing_that_cannot_be_done_is_reported_and_retried(
    context: Any, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(type(host_in(root).files), "put", full)
        (one,) = (await begun(context, FILE)).occurrences
        assert one.healed_ns is None
        assert "a.conf could not be undone" in one.residue[0]
        assert "No space left" in one.residue[0]
        assert steps(context)[-1] == (1, "failed")
        assert context.samples[-1].text == one.residue[0]
        assert any(level == "error" and "is not healed" in text for level, text in context.logs)
        with pytest.raises(TaskFault, match="an earlier fault on this host could not be healed"):
            await begun(context, SWAP)
    await begun(context, SWAP)
    assert (root / "etc/app/a.conf").read_text() == "before\n"
    assert tuner(context).is_idle


async def test_a_fault_that_changes_nothing_has_failed(context: Any, root: Path) -> None:
    put(root, "proc/sys/vm/swappiness", "1\n")
    (one,) = (await begun(context, FILE, SWAP)).occurrences
    assert one.error == "swap changes nothing: the host is so already"
    assert (one.in_place_ns, one.healed_ns, one.residue) == (None, None, ())
    assert (root / "etc/app/a.conf").read_text() == "before\n"
    assert tuner(context).is_idle


async def test_tunings_of_the_run_and_of_faults_do_not_undo_each_other(
    context: Any, root: Path, tmp_path: Path
) -> None:
    base = tuning("sysctl", "base", settings={"vm.swappiness": "10"})
    other = tuning("file", "other", path="/etc/app/b.conf", content="of the run\n")
    await tuner(context).apply("r", (base, other), (), tmp_path)
    task = begun(context, SWAP, FILE, for_s=3600.0)
    await until(context, 1, "in_place")
    assert {state.name for state in await tuner(context).look(tmp_path)} == {"base", "other"}
    undone = {state.name: state.outcome for state in await tuner(context).revert()}
    assert undone == {"base": "residue", "other": "reverted"}  # the fault has changed it since
    assert (swappiness(root), (root / "etc/app/a.conf").read_text()) == ("1", "in place\n")
    context.end()
    assert (await task).occurrences[0].residue == ()
    assert swappiness(root) == "10"
    assert [(state.name, state.outcome) for state in await tuner(context).revert()] == [("base", "reverted")]
    assert swappiness(root) == "60"


async def test_the_end_of_a_session_heals_what_a_fault_has_left(
    context: Any, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(type(host_in(root).files), "put", lambda *_: 1 / 0)
        (one,) = (await begun(context, FILE)).occurrences
    assert "ZeroDivisionError" in one.residue[0]
    await tuner(context).close(keep_data=False)
    assert (root / "etc/app/a.conf").read_text() == "before\n"
    assert tuner(context).is_idle


# ---- real servers: killed, stopped and restarted, with their data and their address afterwards -------------------------


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


async def count(end: Endpoint) -> str:
    (row,) = await asyncio.to_thread(sql_access.rows, end, "SELECT count(*) FROM kept")
    return str(row[0])


@asynccontextmanager
async def in_place(context: Any, one: Tuning) -> AsyncIterator[None]:
    """A fault that is in place within the block, and healed after it."""
    context.samples.clear()
    context.restart()
    task = begun(context, one, for_s=3600.0)
    await eventually_async(lambda: task.done() or (1, "in_place") in steps(context), "it is in place")
    assert not task.done(), task.exception() or task.result()
    yield
    context.end()
    (found,) = (await task).occurrences
    assert (found.error, found.residue) == ("", ())


@pytest.mark.server
@pytest.mark.parametrize("engine", ["postgres", pytest.param("mysql", marks=pytest.mark.soak)])
async def test_a_server_is_disturbed_and_healed_at_its_address(
    engine: str, server_context: Any, tmp_path: Path
) -> None:
    context = server_context
    end = await started(context, engine, tmp_path)
    await asyncio.to_thread(sql_access.run, end, "CREATE TABLE kept (id integer)")
    await asyncio.to_thread(sql_access.run, end, "INSERT INTO kept VALUES (1)")
    before = processes(context)
    async with in_place(context, KILL):
        assert not any(one.is_running() and one.status() != "zombie" for one in before)
        with pytest.raises(TaskFault):
            await count(end)
    assert await count(end) == "1"
    assert processes(context)[0].pid != before[0].pid

    stopped = processes(context)
    async with in_place(context, STOP):
        assert {one.status() for one in stopped if one.is_running()} == {"stopped"}
        answer = asyncio.ensure_future(count(end))  # a connection hangs until it is healed: nothing refuses it
    assert await answer == "1"
    assert processes(context)[0].pid == stopped[0].pid

    context.restart()
    context.samples.clear()
    (one,) = (await begun(context, RESTART)).occurrences
    assert [step for _, step in steps(context)] == STEPS
    assert (one.error, one.residue) == ("", ())
    assert processes(context)[0].pid != stopped[0].pid
    assert await count(end) == "1"
    assert (server(context).dsn, server(context).death) == (end.dsn, None)
    assert not [text for level, text in context.logs if level == "error"]
    assert tuner(context).is_idle


@pytest.mark.server
async def test_a_server_that_cannot_be_started_again_is_reported_and_a_stopped_one_ends_with_its_agent(
    server_context: Any, tmp_path: Path
) -> None:
    """The supervisor continues a stopped server, or it could not end in order."""
    context = server_context
    await started(context, "postgres", tmp_path)
    version = server(context).data / "PG_VERSION"
    task = begun(context, KILL, for_s=3600.0)
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
        await begun(context, STOP)
    assert server(context).state == "runs"
    context.samples.clear()
    context.end()
    await begun(context, STOP, begins_s=(60.0,))
    assert tuner(context).is_idle

    context.restart()
    alive, supervisor = processes(context), server(context)._at.supervisor.pid
    assert supervisor is not None
    task = begun(context, STOP, for_s=3600.0)
    await until(context, 1, "in_place")
    os.kill(supervisor, signal.SIGTERM)  # as at the death of its agent
    await eventually_async(lambda: not any(one.is_running() for one in alive), "its processes have ended")
    context.end()
    (one,) = (await task).occurrences
    assert "the server of db" in one.residue[0]


async def test_a_fault_of_a_server_that_the_agent_has_not_started_is_refused(server_context: Any) -> None:
    with pytest.raises(TaskFault, match="fault f: kill: the agent has not started a server of db"):
        await begun(server_context, KILL)

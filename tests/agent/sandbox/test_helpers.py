"""Aides of a root agent: who they are, what goes through them, and what happens when one dies, lies or is stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from proveout.agent.daemon.handlers import PLACES as TABLE
from proveout.agent.daemon.tasks import TaskFault
from proveout.agent.sandbox import dispatch, helper_main, helper_messages, privileges
from proveout.agent.sandbox.helper import Aide
from proveout.agent.sandbox.sync_client import Asker
from proveout.agent.security.policy import NOTHING, Policy
from proveout.core.framing import FRAME_BYTES_MAX
from proveout.dsl.plan.topology import Capture, System
from proveout.proto.wire.messages import Cancel, LogLine
from proveout.proto.wire.protobuf_mapping import WireFault
from proveout.proto.wire.results import CaptureResult, SqlDone
from proveout.proto.wire.tasks import Endpoint, InspectSystem, RunCapture, RunSql, StartSystem

PROVISIONS = Policy(provision=("sqlite",))
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has privileges to give up")


@pytest.fixture(autouse=True)
def _denied_by_default(task_context: Any) -> None:
    task_context.policy = NOTHING


def at(dsn: str) -> Endpoint:
    return Endpoint(system="db", engine="postgres", dsn=dsn)


def sql(dsn: str, *statements: str) -> RunSql:
    return RunSql(endpoint=at(dsn), statements=statements)


def aides(context: Any) -> list[Aide]:
    return [resource for resource in context.resources.values() if isinstance(resource, Aide)]


def pid_of(context: Any) -> int:
    (aide,) = aides(context)
    assert aide.pid is not None
    return aide.pid


def backends(dsn: str, query: str) -> int:
    with psycopg.connect(dsn, autocommit=True) as connection:
        (count,) = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE query = %s AND state = 'active'", (query,)
        ).fetchone() or (0,)
    return int(count)


async def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not await asyncio.to_thread(holds):
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.02)


def check(pid: int, uid: int) -> None:
    """What the kernel says of the process: nobody else's user, no capability, none to be had again."""
    rows = (line.partition(":") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    found = {name: value.split() for name, _, value in rows}
    assert found["Uid"] == found["Gid"] == [str(uid)] * 4
    assert [found[name] for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")] == [["0" * 16]] * 4
    assert found["NoNewPrivs"] == ["1"]
    assert found["Name"] == ["proveout-aide"]


# ---- with privileges to give up ------------------------------------------------------------------------------------


@as_root
async def test_databases_are_spoken_to_as_nobody_in_particular(task_context: Any, database: str) -> None:
    account = privileges.account()
    assert account is not None
    done = await dispatch.ask(task_context, sql(database, "CREATE TABLE t (n int)", "INSERT INTO t VALUES (1), (2)"))
    assert done == SqlDone(counts=(0, 2))
    assert task_context.progressed[-1][:3] == (1, 2, "statements")
    check(pid_of(task_context), account.uid)
    spec = RunCapture(capture=Capture(name="waits", kind="waits", every_s=0.1, system="db"), endpoints=(at(database),))
    capture = asyncio.create_task(dispatch.capture(task_context, spec))
    await until(lambda: len(task_context.samples) >= 2, "no samples came")
    check(pid_of(task_context), account.uid)
    task_context.end()
    result = await capture
    assert isinstance(result, CaptureResult)
    assert result.samples == len(task_context.samples) >= 2
    with pytest.raises(TaskFault, match="syntax error") as caught:
        await dispatch.ask(task_context, sql(database, "SELEC"))
    assert caught.value.code == "refused"
    assert len(aides(task_context)) == 1, "one process does it all"


@as_root
async def test_what_the_kernel_says_is_read_by_the_agent_itself(task_context: Any) -> None:
    spec = RunCapture(capture=Capture(name="os", kind="os", every_s=0.1, system=""), endpoints=())
    capture = asyncio.create_task(dispatch.capture(task_context, spec))
    await until(lambda: bool(task_context.samples), "no sample came")
    task_context.end()
    await capture
    assert not aides(task_context)


@as_root
async def test_a_death_fails_the_tasks_under_way_and_the_next_one_starts_another(
    task_context: Any, database: str
) -> None:
    sleep = "SELECT pg_sleep(1000)"
    task = asyncio.create_task(dispatch.ask(task_context, sql(database, sleep)))
    await until(lambda: backends(database, sleep) == 1, "the statement was not run")
    first = pid_of(task_context)
    os.kill(first, signal.SIGKILL)
    with pytest.raises(TaskFault, match=f"helping process {first}") as caught:
        await task
    assert caught.value.code == "fault"
    assert await dispatch.ask(task_context, sql(database, "SELECT 1")) == SqlDone(counts=(1,))
    assert pid_of(task_context) != first


@as_root
async def test_a_task_that_is_stopped_lets_go_of_its_statement(task_context: Any, database: str) -> None:
    sleep = "SELECT pg_sleep(1001)"
    task = asyncio.create_task(dispatch.ask(task_context, sql(database, sleep)))
    await until(lambda: backends(database, sleep) == 1, "the statement was not run")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: backends(database, sleep) == 0, "the statement runs on")
    assert await dispatch.ask(task_context, sql(database, "SELECT 1")) == SqlDone(counts=(1,))


@as_root
async def test_an_sqlite_system_is_a_file_of_nobody_in_particular(task_context: Any, tmp_path: Path) -> None:
    account = privileges.account()
    assert account is not None
    task_context.policy = PROVISIONS
    system = System(name="lite", engine="sqlite", host="h", provision="embedded", settings=(("page_size", "8192"),))
    started = await dispatch.start_system(task_context, StartSystem(system=system, data_root=str(tmp_path)))
    assert (started.fresh, dict(started.settings)["page_size"]) == (True, "8192")
    file = Path(started.endpoint.dsn)
    assert file.stat().st_uid == file.parent.stat().st_uid == account.uid
    assert stat.S_IMODE(file.parents[1].stat().st_mode) == 0o700
    rows = RunSql(endpoint=started.endpoint, statements=("CREATE TABLE t (n)", "INSERT INTO t VALUES (1), (2)"))
    assert await dispatch.ask(task_context, rows) == SqlDone(counts=(0, 2))
    system_file = task_context.resources["system:lite"]
    await system_file.save_snapshot()
    await dispatch.ask(task_context, RunSql(endpoint=started.endpoint, statements=("DELETE FROM t",)))
    await system_file.restore_snapshot()
    count = RunSql(endpoint=started.endpoint, statements=("SELECT * FROM t",))
    assert await dispatch.ask(task_context, count) == SqlDone(counts=(2,))
    await task_context.close(keep_data=True)
    assert file.exists()
    again = await dispatch.start_system(task_context, StartSystem(system=system, data_root=str(tmp_path)))
    assert (again.fresh, again.endpoint.dsn) == (False, str(file))
    await task_context.close(keep_data=False)
    assert not file.exists()
    assert not (tmp_path / "lite").exists()


@as_root
async def test_an_sqlite_system_that_cannot_be_made_leaves_nothing(task_context: Any, tmp_path: Path) -> None:
    task_context.policy = PROVISIONS
    system = System(name="lite", engine="sqlite", host="h", provision="embedded", settings=(("page_size", "1000"),))
    with pytest.raises(TaskFault, match="does not take page_size") as caught:
        await dispatch.start_system(task_context, StartSystem(system=system, data_root=str(tmp_path)))
    assert caught.value.code == "invalid"
    assert not list((tmp_path / "lite").iterdir())


@as_root
async def test_a_file_of_others_is_not_read_by_the_agents_power(task_context: Any, tmp_path: Path) -> None:
    """Root could; nobody in particular cannot, and no policy lists it."""
    secret = Endpoint(system="lite", engine="sqlite", dsn=str(tmp_path / "secret.sqlite"))
    Path(secret.dsn).write_bytes(b"")
    with pytest.raises(TaskFault, match="unable to open"):
        await dispatch.ask(task_context, InspectSystem(endpoint=secret))


@as_root
async def test_tuning_asks_databases_by_an_aide_too(database: str) -> None:
    account = privileges.account()
    assert account is not None
    asker = Asker()
    try:
        assert await asyncio.to_thread(asker.ask, "rows", at(database), "SELECT 1, NULL") == [["1", None]]
        (aide,) = asker._aides.values()
        assert aide.pid is not None
        check(aide.pid, account.uid)
        with pytest.raises(TaskFault, match="syntax error") as caught:
            await asyncio.to_thread(asker.ask, "run", at(database), "SELEC")
        assert caught.value.code == "refused"
    finally:
        await asker.end()
    assert aide.pid is None


@as_root
async def test_timesten_has_an_aide_of_its_own(task_context: Any) -> None:
    """Its client is not here, which is what this can say of it: the aide itself has looked for it, and starts no Python."""
    elsewhere = Endpoint(system="tt", engine="timesten", dsn="user/word@localhost/none")
    with pytest.raises(TaskFault) as caught:
        await dispatch.ask(task_context, InspectSystem(endpoint=elsewhere))
    assert caught.value.code in {"missing", "invalid"}
    assert [name.rpartition(":")[2] for name in task_context.resources] == ["timesten"]


# ---- without ---------------------------------------------------------------------------------------------------------


async def test_an_agent_without_privileges_does_it_itself(
    task_context: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(privileges, "account", lambda: None)
    assert await dispatch.ask(task_context, sql(database, "SELECT 1")) == SqlDone(counts=(1,))
    assert not aides(task_context)


async def test_a_server_that_has_died_is_named(
    task_context: Any, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    monkeypatch.setattr(privileges, "account", lambda: None)

    class Dead:
        death = "it was killed by SIGKILL"

        async def close(self, *, keep_data: bool) -> None: ...

    task_context.resources["system:db"] = Dead()
    with pytest.raises(TaskFault, match="killed by SIGKILL") as caught:
        await dispatch.ask(task_context, sql(database + " port=1", "SELECT 1"))
    assert caught.value.code == "unreachable"


WORKERS = {"PopulateSystem", "RunLoad", "FormPool", "PrepareFio", "RunFio"}
AGENT = {"StartSystem", "StopSystem", "SnapshotSystem", "ReadFacts", "ApplyTuning", "VerifyTuning", "RevertTuning"}
"""Processes of their own, and what an agent does itself: it starts servers and changes the host, and has the rest asked."""


def test_whatever_an_agent_is_told_to_do_somebody_was_chosen_for_it() -> None:
    """A new kind of task that speaks to a system must not end up in the agent because nobody has thought of it."""
    asked = {kind.__name__ for kind, place in TABLE.items() if place.startswith("proveout.agent.sandbox.dispatch")}
    assert asked - {"StartSystem"} == {
        "InspectSystem", "LinkSystems", "CompareSystems", "CheckInvariants", "RunSql", "Checkpoint", "RunCapture",
    }  # fmt: skip
    assert {kind.__name__ for kind in TABLE} == asked | WORKERS | AGENT
    assert {kind.__name__ for kind in helper_main.PLACES} >= asked


# ---- the pipe --------------------------------------------------------------------------------------------------------


def stream(*pieces: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    for piece in pieces:
        reader.feed_data(piece)
    reader.feed_eof()
    return reader


async def test_frames_come_out_as_they_went_in() -> None:
    cancel, line = Cancel(key="a/b#1", reason="because"), LogLine(level="info", text="ä\n")
    assert await helper_messages.heard_by_aide(stream(helper_messages.to_aide(cancel))) == cancel
    both = stream(helper_messages.to_agent(line), helper_messages.words("done", 3, None))
    assert await helper_messages.heard_by_agent(both) == line
    assert await helper_messages.heard_by_agent(both) == ["done", 3, None]
    assert await helper_messages.heard_by_agent(both) is None
    assert await helper_messages.heard_by_agent(stream(helper_messages.to_agent(line)[:-1])) is None, (
        "it ended within a frame"
    )


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack("!IB", 1, 7),
        struct.pack("!IB", FRAME_BYTES_MAX + 2, 0),
        struct.pack("!IB", 4, 0) + b"\xff\xff\xff",
        struct.pack("!IB", 4, 1) + b"\xff\xff\xff",
        struct.pack("!IB", 3, 1) + b"{}",
        struct.pack("!IB", 3, 1) + b"[]",
        struct.pack("!IB", 4, 1) + b"[1]",
        struct.pack("!IB", 200_001, 1) + b"[" * 200_000,
    ],
    ids=["kind", "length", "protobuf", "bytes", "object", "empty", "no word", "deep"],
)
async def test_what_an_aide_must_not_say_is_a_fault(frame: bytes) -> None:
    with pytest.raises(WireFault):
        await helper_messages.heard_by_agent(stream(frame))

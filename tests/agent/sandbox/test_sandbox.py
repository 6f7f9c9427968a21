"""Helper processes and workers of a root agent: their privileges, read from the kernel (none remain, and files are used as
their owner), their tasks, and their failures: death, invalid messages, cancellation."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import struct
import subprocess
import sys
import time
from asyncio.subprocess import PIPE, Process
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest
from eventually import PATIENCE_S, eventually_async
from psycopg.conninfo import make_conninfo

from proveout.agent.daemon.handlers import HANDLERS as TABLE
from proveout.agent.daemon.handlers import IN_HELPER
from proveout.agent.engines.postgres import roles as postgres_roles
from proveout.agent.errors import TaskFault
from proveout.agent.load.local_pool import Pool, WorkerProcess
from proveout.agent.load.populate import Worker, populate
from proveout.agent.sandbox import helper as sandbox_helper
from proveout.agent.sandbox import helper_main, privileges
from proveout.agent.sandbox.helper import Helper
from proveout.agent.sandbox.privileges import INHERITED, Privileges
from proveout.agent.security.policy import NOTHING, Policy
from proveout.agent.tuning.sql_access import SyncClient
from proveout.core.json_data import FRAME_BYTES_MAX
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.topology import Capture, System
from proveout.dsl.workloads.hlr import Hlr
from proveout.proto.wire.codec import WireFault
from proveout.proto.wire.messages import Cancel, LogLine
from proveout.proto.wire.results import CaptureResult, Compared, SqlDone, TaskResult
from proveout.proto.wire.tasks import (
    CompareSystems,
    Endpoint,
    InspectSystem,
    LinkSystems,
    PopulateSystem,
    RunCapture,
    RunSql,
    StartSystem,
)

pytestmark = pytest.mark.server

PROVISIONS = Policy(provision=("sqlite",))
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture(autouse=True)
def _denied_by_default(task_context: Any) -> None:
    task_context.policy = NOTHING


def at(dsn: str) -> Endpoint:
    return Endpoint(system="db", engine="postgres", dsn=dsn)


def sql(dsn: str, *statements: str) -> RunSql:
    return RunSql(endpoint=at(dsn), statements=statements)


def helpers(context: Any) -> list[Helper]:
    return [resource for resource in context.resources.values() if isinstance(resource, Helper)]


def pid_of(context: Any) -> int:
    (helper,) = helpers(context)
    assert helper.pid is not None
    return helper.pid


def backends(dsn: str, query: str) -> int:
    with psycopg.connect(dsn, autocommit=True) as connection:
        (count,) = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE query = %s AND state = 'active'", (query,)
        ).fetchone() or (0,)
    return int(count)


def counts(result: TaskResult) -> tuple[int, ...]:
    """The rows of each statement."""
    assert isinstance(result, SqlDone)
    return result.counts


def status(pid: int) -> dict[str, list[str]]:
    """The lines of /proc/PID/status."""
    rows = (line.partition(":") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {name: value.split() for name, _, value in rows}


def check(pid: int, *, name: str = "") -> None:
    """Check /proc/PID/status: the unprivileged user, no capability (of a worker, also not to be regained), no new
    privileges."""
    found, account = status(pid), privileges.account()
    assert account is not None
    assert found["Uid"] == found["Gid"] == [str(account.uid)] * 4
    assert found["NoNewPrivs"] == ["1"]
    sets = ("CapEff", "CapPrm", "CapInh", "CapAmb", *(() if name else ("CapBnd",)))
    assert [found[one] for one in sets] == [["0" * 16]] * len(sets)
    assert found["Name"] == [name] if name else found["Groups"] == [str(account.group)]


def python(code: str, *options: str, **environment: str) -> str:
    """The output of a program that ends well."""
    argv = [sys.executable, *options, "-c", code]
    done = subprocess.run(argv, env=environment or None, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- a root agent --------------------------------------------------------------------------------------------------


@as_root
async def test_database_tasks_run_as_the_unprivileged_user(task_context: Any, database: str) -> None:
    done = await sandbox_helper.run_in_helper(
        task_context, sql(database, "CREATE TABLE t (n int)", "INSERT INTO t VALUES (1), (2)")
    )
    assert counts(done) == (0, 2)
    assert task_context.progressed[-1][:3] == (1, 2, "statements")
    check(pid_of(task_context), name="proveout-helper")
    spec = RunCapture(capture=Capture(name="waits", kind="waits", every_s=0.1, system="db"), endpoints=(at(database),))
    capture = asyncio.create_task(sandbox_helper.capture(task_context, spec))
    await eventually_async(lambda: len(task_context.samples) >= 2, "no samples came")
    check(pid_of(task_context), name="proveout-helper")
    task_context.end()
    result = await capture
    assert isinstance(result, CaptureResult)
    assert result.samples == len(task_context.samples) >= 2
    with pytest.raises(TaskFault, match="syntax error") as caught:
        await sandbox_helper.run_in_helper(task_context, sql(database, "SELEC"))
    assert caught.value.code == "refused"
    kernel = RunCapture(capture=Capture(name="os", kind="os", every_s=0.1, system=""), endpoints=())
    await sandbox_helper.capture(task_context, kernel)  # by the agent itself
    assert len(helpers(task_context)) == 1, "one process does it all"


@as_root
async def test_a_capture_in_a_helper_gets_the_start_of_its_load(task_context: Any, oracle: str) -> None:
    described = Capture(name="awr", kind="awr", every_s=1.0, system="db", licence="diagnostics_pack", container="own")
    endpoint = Endpoint(system="db", engine="oracle", dsn=oracle)
    spec = RunCapture(capture=described, endpoints=(endpoint,), edges_s=(0.0, 0.0))
    task_context.t0_ns = time.monotonic_ns()
    capture = asyncio.create_task(sandbox_helper.capture(task_context, spec))
    await eventually_async(lambda: len(task_context.samples) >= 3, "it took no snapshots")
    task_context.end()
    result = await capture
    assert result.notes == ()
    assert "canned" in result.output


@as_root
async def test_a_killed_helper_and_a_cancelled_task_end_their_statements(task_context: Any, database: str) -> None:
    """The next task starts another helper."""
    sleep = "SELECT pg_sleep(1000)"
    task = asyncio.create_task(sandbox_helper.run_in_helper(task_context, sql(database, sleep)))
    await eventually_async(lambda: backends(database, sleep) == 1, "the statement")
    first = pid_of(task_context)
    os.kill(first, signal.SIGKILL)
    with pytest.raises(TaskFault, match=f"helper process {first}") as caught:
        await task
    assert caught.value.code == "fault"
    assert counts(await sandbox_helper.run_in_helper(task_context, sql(database, "SELECT 1"))) == (1,)
    assert pid_of(task_context) != first
    other = "SELECT pg_sleep(1001)"
    task = asyncio.create_task(sandbox_helper.run_in_helper(task_context, sql(database, other)))
    await eventually_async(lambda: backends(database, other) == 1, "the statement")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually_async(lambda: backends(database, other) == 0, "the end of the statement")
    assert counts(await sandbox_helper.run_in_helper(task_context, sql(database, "SELECT 1"))) == (1,)


@as_root
async def test_an_embedded_sqlite_file_belongs_to_the_unprivileged_user(task_context: Any, tmp_path: Path) -> None:
    account = privileges.account()
    assert account is not None
    task_context.policy = PROVISIONS
    odd, system = (
        System(name="lite", engine="sqlite", host="h", provision="embedded", settings=(("page_size", size),))
        for size in ("1000", "8192")
    )
    with pytest.raises(TaskFault, match="does not take page_size") as caught:
        await sandbox_helper.start_system(task_context, StartSystem(system=odd, data_root=str(tmp_path)))
    assert caught.value.code == "invalid"
    assert not list((tmp_path / "lite").iterdir())
    started = await sandbox_helper.start_system(task_context, StartSystem(system=system, data_root=str(tmp_path)))
    assert (started.fresh, dict(started.settings)["page_size"]) == (True, "8192")
    file = Path(started.endpoint.dsn)
    assert file.stat().st_uid == file.parent.stat().st_uid == account.uid
    assert stat.S_IMODE(file.parents[1].stat().st_mode) == 0o700
    rows = RunSql(endpoint=started.endpoint, statements=("CREATE TABLE t (n)", "INSERT INTO t VALUES (1), (2)"))
    assert counts(await sandbox_helper.run_in_helper(task_context, rows)) == (0, 2)
    system_file = task_context.resources["system:lite"]
    await system_file.save_snapshot()
    await sandbox_helper.run_in_helper(task_context, RunSql(endpoint=started.endpoint, statements=("DELETE FROM t",)))
    await system_file.restore_snapshot()
    count = RunSql(endpoint=started.endpoint, statements=("SELECT * FROM t",))
    assert counts(await sandbox_helper.run_in_helper(task_context, count)) == (2,)
    await task_context.close(keep_data=True)
    assert file.exists()
    again = await sandbox_helper.start_system(task_context, StartSystem(system=system, data_root=str(tmp_path)))
    assert (again.fresh, again.endpoint.dsn) == (False, str(file))
    await task_context.close(keep_data=False)
    assert not file.exists()
    assert not (tmp_path / "lite").exists()


@as_root
async def test_a_file_of_another_user_is_not_read_with_root_privileges(task_context: Any, tmp_path: Path) -> None:
    """Root could read it; the unprivileged user cannot, and no policy lists it."""
    secret = Endpoint(system="lite", engine="sqlite", dsn=str(tmp_path / "secret.sqlite"))
    Path(secret.dsn).write_bytes(b"")
    with pytest.raises(TaskFault, match="unable to open"):
        await sandbox_helper.run_in_helper(task_context, InspectSystem(endpoint=secret))


@as_root
async def test_tuning_calls_databases_in_a_helper_process(database: str) -> None:
    client = SyncClient()
    try:
        statement = "SELECT 1, NULL, 'it''s; so', true"
        assert await asyncio.to_thread(client.call, "rows", at(database), statement) == [
            ["1", None, "it's; so", "True"]
        ]
        (helper,) = client._helpers.values()
        assert helper.pid is not None
        check(helper.pid, name="proveout-helper")
        with pytest.raises(TaskFault, match="syntax error") as caught:
            await asyncio.to_thread(client.call, "run", at(database), "SELEC")
        assert caught.value.code == "refused"
    finally:
        await client.close()
    assert helper.pid is None


@pytest.mark.parametrize("result", ["x" * (5 << 20), object()], ids=["too long", "not JSON"])
async def test_a_result_that_cannot_be_sent_is_a_fault(result: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent waits for an answer of either kind."""
    frames: list[bytes] = []
    monkeypatch.setattr(helper_main, "resolve", lambda _: {"rows": lambda endpoint, statement: result})
    server = helper_main.HelperServer(frames.append)
    await server._call(7, "rows", Endpoint(system="db", engine="sqlite", dsn="/x.db"), "SELECT 1")
    stream = asyncio.StreamReader()
    stream.feed_data(b"".join(frames))
    kind, number, code, what, *_ = await sandbox_helper.read_from_helper(stream)  # type: ignore[misc]
    assert (kind, number, code) == ("fault", 7, "fault")
    assert what.startswith("the result of rows: ")


async def test_a_helper_process_that_writes_without_end_is_killed_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncio does not see the end of a process before that of its output."""
    (tmp_path / "ready").write_bytes(sandbox_helper.control("resources", []))

    async def endless(*_: Any, **__: Any) -> Process:
        write = f"cat {tmp_path}/ready; exec tr '\\0' x < /dev/zero"
        return await asyncio.create_subprocess_exec("/bin/sh", "-c", write, stdin=PIPE, stdout=PIPE, stderr=PIPE)

    monkeypatch.setattr(sandbox_helper, "spawn", endless)
    helper = sandbox_helper.Helper(privileges.INHERITED, "")
    async with asyncio.timeout(PATIENCE_S):
        first = await helper._running()
        await eventually_async(lambda: helper.pid is None, "its messages are not valid")
        await eventually_async(lambda: len(first._stdout._buffer) > 1 << 17, "they are not read")  # type: ignore[attr-defined]
        await (await helper._running()).kill()


async def test_what_a_dead_helper_process_leaves_in_databases_is_named() -> None:
    """A link: its replication slot keeps the log of a running source for ever."""
    closed = list[str]()

    async def close_resource(name: str, *, keep_data: bool) -> None:
        closed.append(name)

    helper = SimpleNamespace(pid=7, close_resource=close_resource)
    link = sandbox_helper.RemoteResource(cast(Any, helper), "link:a:b")
    await link.close(keep_data=False)
    assert closed == ["link:a:b"]
    for helper.pid in (None, 8):  # it has died; another one has taken its place
        with pytest.raises(TaskFault, match="that kept link:a:b has died"):
            await link.close(keep_data=False)
        await link.close(keep_data=True)


async def test_a_resource_that_cannot_be_closed_is_a_fault_and_keeps_no_other_open() -> None:
    frames, closed = list[bytes](), list[bool]()

    class Broken:
        async def close(self, *, keep_data: bool) -> None:
            raise OSError("it hangs up")

    class Good:
        async def close(self, *, keep_data: bool) -> None:
            closed.append(keep_data)

    server = helper_main.HelperServer(frames.append)
    server._resources["link"] = Broken()
    await server._close(7, "link", keep_data=False)
    stream = asyncio.StreamReader()
    stream.feed_data(b"".join(frames))
    assert await sandbox_helper.read_from_helper(stream) == [
        "fault", 7, "fault", "cannot close link: OSError: it hangs up", "", "", 0
    ]  # fmt: skip
    server._resources |= {"file": Good(), "link": Broken()}
    await server._end(keep_data=True)
    assert closed == [True]


@as_root
async def test_timesten_has_a_helper_process_of_its_own(task_context: Any) -> None:
    """The TimesTen client is not installed here; the helper itself looks for it and starts no other Python process."""
    elsewhere = Endpoint(system="tt", engine="timesten", dsn="user/word@localhost/none")
    with pytest.raises(TaskFault) as caught:
        await sandbox_helper.run_in_helper(task_context, InspectSystem(endpoint=elsewhere))
    assert caught.value.code in {"missing", "invalid"}
    assert [name.rpartition(":")[2] for name in task_context.resources] == ["timesten"]


# ---- propagation ---------------------------------------------------------------------------------------------------

HLR = Workload(name="hlr", kind="hlr", parameters=to_values(Hlr(population=100)))


async def started(context: Any, name: str, root: Path) -> Endpoint:
    system = System(name=name, engine="postgres", host="h", provision="embedded", settings=(("fsync", "off"),))
    endpoint = (await sandbox_helper.start_system(context, StartSystem(system=system, data_root=str(root)))).endpoint
    await populate(context, PopulateSystem(workload=HLR, endpoint=endpoint, workers=1))
    return endpoint


@as_root
@pytest.mark.soak
async def test_a_link_in_a_helper_process_is_removed_with_its_resource(task_context: Any, tmp_path: Path) -> None:
    """The helper requests the sink's log from the agent, which can read it."""
    task_context.policy = Policy(own=True)
    cache = await started(task_context, "cache", tmp_path)
    back = await started(task_context, "back", tmp_path)

    async def sql(at: Endpoint, statement: str) -> tuple[int, ...]:
        done = await sandbox_helper.run_in_helper(task_context, RunSql(endpoint=at, statements=(statement,)))
        return cast(SqlDone, done).counts

    async def compared() -> Compared:
        spec = CompareSystems(source=cache, sink=back, workload=HLR, drain_timeout_s=60.0)
        return cast(Compared, await sandbox_helper.run_in_helper(task_context, spec))

    lab = make_conninfo(postgres_roles.administration(cache), options="")
    foreign = replace(cache, dsn=lab, provisioned=False)  # with an external end, the link must be removed
    await sandbox_helper.link(task_context, LinkSystems(source=foreign, sink=back, workload=HLR, copy_data=False))
    assert await sql(cache, "UPDATE subscriber SET vlr_location = 7") == (100,)
    capture = Capture(name="lag", kind="lag", every_s=0.1, system="cache")
    looking = asyncio.create_task(
        sandbox_helper.capture(task_context, RunCapture(capture=capture, endpoints=(cache, back)))
    )
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


# ---- an agent that is not root -------------------------------------------------------------------------------------


async def test_an_agent_that_is_not_root_runs_the_task_itself(
    task_context: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(privileges, "account", lambda: None)
    assert counts(await sandbox_helper.run_in_helper(task_context, sql(database, "SELECT 1"))) == (1,)
    assert not helpers(task_context)


async def test_the_fault_names_a_server_that_has_died(
    task_context: Any, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    monkeypatch.setattr(privileges, "account", lambda: None)

    class Dead:
        death = "it was killed by SIGKILL"

        async def close(self, *, keep_data: bool) -> None: ...

    task_context.resources["system:db"] = Dead()
    with pytest.raises(TaskFault, match="killed by SIGKILL") as caught:
        await sandbox_helper.run_in_helper(task_context, sql(database + " port=1", "SELECT 1"))
    assert caught.value.code == "unreachable"


WORKERS = {"PopulateSystem", "RunLoad", "FormPool", "PrepareFio", "RunFio", "RunCommand"}
AGENT = {
    "StartSystem", "StopSystem", "SnapshotSystem", "ReadFacts", "ApplyTuning", "VerifyTuning", "RevertTuning",
    "InjectFault", "CheckHost", "RebootHost",
}  # fmt: skip
"""Tasks that worker processes run, and tasks that the agent runs itself: it starts servers and changes the host."""


def test_every_kind_of_task_has_a_process_that_runs_it() -> None:
    """A new kind of task that connects to a system must not run in the agent by default."""
    delegated = {kind.__name__ for kind, place in TABLE.items() if place.startswith("proveout.agent.sandbox.helper")}
    assert delegated - {"StartSystem", "SnapshotSystem"} == {
        "CheckSystem", "InspectSystem", "LinkSystems", "CompareSystems", "CheckInvariants", "RunSql", "Checkpoint", "RunCapture",
        "RestoreCopy",
    }  # fmt: skip
    assert {kind.__name__ for kind in TABLE} == delegated | WORKERS | AGENT
    assert {kind.__name__ for kind in IN_HELPER} >= delegated


# ---- frames --------------------------------------------------------------------------------------------------------


def stream(*pieces: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    for piece in pieces:
        reader.feed_data(piece)
    reader.feed_eof()
    return reader


async def test_frames_are_read_as_they_were_written() -> None:
    cancel, line = Cancel(key="a/b#1", reason="because"), LogLine(level="info", text="ä\n")
    assert await sandbox_helper.read_from_agent(stream(sandbox_helper.to_helper(cancel))) == cancel
    both = stream(sandbox_helper.to_agent(line), sandbox_helper.control("done", 3, None))
    assert await sandbox_helper.read_from_helper(both) == line
    assert await sandbox_helper.read_from_helper(both) == ["done", 3, None]
    assert await sandbox_helper.read_from_helper(both) is None
    assert await sandbox_helper.read_from_helper(stream(sandbox_helper.to_agent(line)[:-1])) is None, (
        "the stream ended within a frame"
    )


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack("!IB", 1, 7),
        struct.pack("!IB", FRAME_BYTES_MAX + 2, 0),
        struct.pack("!IB", 4, 0) + b"\xff\xff\xff",
        struct.pack("!IB", 3, 1) + b"{}",
        struct.pack("!IB", 4, 1) + b"[1]",
        struct.pack("!IB", 200_001, 1) + b"[" * 200_000,
    ],
    ids=["kind", "length", "protobuf", "object", "no word", "deep"],
)
async def test_an_invalid_frame_is_a_fault(frame: bytes) -> None:
    with pytest.raises(WireFault):
        await sandbox_helper.read_from_helper(stream(frame))


# ---- workers ---------------------------------------------------------------------------------------------------------


@as_root
async def test_workers_of_a_root_agent_run_as_the_unprivileged_user() -> None:
    worker = await WorkerProcess.start("postgres", Privileges.for_engine("postgres"))
    check(worker.pid)
    environment = Path(f"/proc/{worker.pid}/environ").read_bytes().split(b"\0")
    assert b"HOME=/nonexistent" in environment
    await worker.end()
    loader = await Worker.start("postgres", lambda _: None, Privileges.for_engine("postgres"))
    # The worker sends no message when it has started; no_new_privs is set before the last capability is dropped.
    await eventually_async(
        lambda: status(loader.pid)["NoNewPrivs"] == ["1"] and status(loader.pid)["CapEff"] == ["0" * 16], "its drop"
    )
    check(loader.pid)
    await loader.close_pipe(PATIENCE_S)


@as_root
def test_a_file_is_used_as_its_owner_where_the_policy_allows_it(package_folder: Path) -> None:
    """Files that the policy does not list, and files that the agent has created, are used as the unprivileged user."""
    file, unprivileged = package_folder / "data.sqlite", Privileges.for_engine("postgres")
    listed, local = Policy(source="/etc/lab/policy.yaml", paths=(str(package_folder),)), Policy(own=True)
    assert Privileges.for_engine("sqlite") == Privileges.for_engine("sqlite", str(file), NOTHING) == unprivileged
    file.touch()
    os.chown(file, 61234, 61235)
    for policy in (listed, local):
        owner = Privileges.for_engine("sqlite", str(file), policy)
        assert (owner.uid, owner.gid, owner.group) == (61234, 61235, 61235)
    elsewhere = Policy(source="/etc/lab/policy.yaml", paths=("/etc/udev/rules.d",))
    assert Privileges.for_engine("sqlite", str(file), elsewhere) == unprivileged
    (package_folder / "link").symlink_to(file)
    assert Privileges.for_engine("sqlite", str(package_folder / "link"), listed).uid == 61234
    made = Endpoint(system="s", engine="sqlite", dsn=str(file), provisioned=True)
    assert Privileges.for_endpoint(made, local) == unprivileged
    assert Privileges.for_engine("postgres", "host=db", local) == unprivileged


@as_root
async def test_a_worker_with_other_privileges_is_not_reused() -> None:
    pool = Pool()
    of_owner = Privileges(uid=61234, gid=61235, group=61235, reads_all=True)
    (owner,) = await pool.acquire(1, "sqlite", of_owner)
    assert status(owner.pid)["Uid"] == ["61234"] * 4
    assert status(owner.pid)["Gid"] == ["61235"] * 4
    pool.release([owner])
    (other,) = await pool.acquire(1, "postgres", Privileges.for_engine("postgres"))
    assert other is not owner
    check(other.pid)
    (again,) = await pool.acquire(1, "sqlite", of_owner)
    assert again is owner
    await pool.close(keep_data=False)


@as_root
async def test_a_worker_cannot_read_the_memory_or_files_of_another() -> None:
    """Both are the same user, but the /proc files of a process that is not dumpable belong to root. A worker can still
    signal another; this is documented."""
    worker = await WorkerProcess.start("postgres", Privileges.for_engine("postgres"))
    argument = Privileges.for_engine("postgres").to_argument()
    code = f"""
import ctypes, errno, os, sys
from proveout.agent.sandbox.privileges import Privileges
privileges = Privileges.from_argument({argument!r})
privileges.drop(), privileges.seal()
for name in ("environ", "mem", "fd", "maps"):
    path = f"/proc/{worker.pid}/{{name}}"
    try:
        os.listdir(path) if name == "fd" else open(path, "rb").read(1)
    except PermissionError:
        continue
    sys.exit(f"{{path}} was shown")
libc = ctypes.CDLL(None, use_errno=True)
PTRACE_ATTACH, PTRACE_SEIZE = 16, 0x4206
there = ctypes.create_string_buffer(16)
span = (ctypes.c_size_t * 2)(ctypes.addressof(there), 16)
for what, made in (
    ("traced", lambda: libc.ptrace(PTRACE_ATTACH, {worker.pid}, None, None)),
    ("seized", lambda: libc.ptrace(PTRACE_SEIZE, {worker.pid}, None, None)),
    ("read", lambda: libc.process_vm_readv({worker.pid}, span, 1, span, 1, 0)),
    ("written", lambda: libc.process_vm_writev({worker.pid}, span, 1, span, 1, 0)),
):
    if made() != -1 or ctypes.get_errno() != errno.EPERM:
        sys.exit(f"the other could be {{what}}: {{ctypes.get_errno()}}")
if libc.prctl(3, 0, 0, 0, 0) != 0:
    sys.exit("it would leave a core file")
try:
    os.pidfd_open({worker.pid}), os.kill({worker.pid}, 0)
except PermissionError:
    sys.exit("they are not the same user, and this test shows nothing")
"""
    await asyncio.to_thread(python, code)
    await worker.end()


@as_root
def test_dropped_privileges_cannot_be_regained(tmp_path: Path) -> None:
    """The process, and programs that it starts, can write no file, signal no process and regain no privilege."""
    (tmp_path / "file").write_text("")
    code = f"""
import os, subprocess, sys
from proveout.agent.sandbox.privileges import Privileges
Privileges.from_argument({Privileges.for_engine("postgres").to_argument()!r}).drop()
for attempt in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.kill({os.getpid()}, 0),
                lambda: open({str(tmp_path / "file")!r}, "w"), lambda: os.chmod({str(tmp_path / "file")!r}, 0o777)):
    try:
        attempt()
    except PermissionError:
        continue
    sys.exit("this was allowed")
print(subprocess.run(["/bin/cat", "/proc/self/status"], capture_output=True, text=True, check=True).stdout)
"""
    output = python(code)
    account = privileges.account()
    assert account is not None
    assert f"Uid:\t{account.uid}\t{account.uid}" in output
    assert "NoNewPrivs:\t1" in output


@as_root
def test_a_package_behind_a_link_through_a_closed_folder_is_imported(tmp_path: Path) -> None:
    """A clone whose own folder is closed to other users: its packages are links to folders beside `src`."""
    clone = tmp_path / "clone"
    (clone / "toy").mkdir(parents=True)
    (clone / "toy" / "__init__.py").touch()
    (clone / "toy" / "later.py").write_text("WHERE = __file__")
    (clone / "src").mkdir()
    (clone / "src" / "toy").symlink_to("../toy")
    clone.chmod(0o700)
    code = """
import os, sys
import toy
from proveout.agent.sandbox.privileges import import_by_descriptors
import_by_descriptors()
os.setuid(65534)
import toy.later
"""
    python(code, "-B", PYTHONPATH=str(clone / "src"))


def test_a_program_that_other_users_may_not_read_is_refused_with_the_command_that_helps(tmp_path: Path) -> None:
    file = tmp_path / "proveout" / "agent" / "sandbox" / "privileges.py"
    file.parent.mkdir(parents=True)
    file.touch(mode=0o600)
    with pytest.raises(TaskFault, match="other users may not read") as caught:
        privileges._need_readable(file)
    assert caught.value.way_out == f"make the program readable: `chmod -R go+rX {tmp_path / 'proveout'}`"
    file.chmod(0o644)
    privileges._need_readable(file)
    (tmp_path / "proveout").chmod(0o700)
    assert not privileges._everybody_reads(file)
    assert privileges._everybody_reads(Path("/bin/sh"))


def test_dropping_privileges_without_root_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privileges, "account", lambda: None)
    assert Privileges.for_engine("postgres") == INHERITED
    assert INHERITED.environment({"HOME": "/home/me"}) == {"HOME": "/home/me"}
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    INHERITED.drop()


def test_privileges_survive_the_command_line_and_others_are_refused() -> None:
    owner = Privileges(uid=61234, gid=61235, group=61236, reads_all=True)
    for value in (INHERITED, owner, Privileges(uid=1, gid=1, group=1)):
        assert Privileges.from_argument(value.to_argument()) == value
    for text in ("", "1", "1,2,3", "a,b,c,d", "1,2,3,4,5"):
        with pytest.raises(ValueError):
            Privileges.from_argument(text)


@as_root
def test_the_capability_for_reading_is_not_in_the_bounding_set() -> None:
    """The capability is effective until `seal`, also in a started program; set-uid programs can restore no other."""
    code = """
import subprocess, sys
from pathlib import Path
from proveout.agent.sandbox.privileges import Privileges
privileges = Privileges.from_argument("61234,61235,61235,1")
privileges.drop()
print(subprocess.run(["/bin/cat", "/proc/self/status"], capture_output=True, text=True).stdout)
privileges.seal()
print(Path("/proc/self/status").read_text())
"""
    output = python(code)
    for name, values in (("CapBnd", [0, 0]), ("CapEff", [1 << 2, 0])):
        assert [int(line.split()[1], 16) for line in output.splitlines() if line.startswith(name)] == values

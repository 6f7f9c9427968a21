"""A permanent agent: fencing, one run at a time, state kept over a restart, what its policy lets it start, and errors at
start and in connecting."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
import grpc.aio
import psutil
import pytest
from eventually import PATIENCE_S, eventually_async
from fabric_bench import (
    HELLO,
    MAPPED,
    Line,
    Permanent,
    Proxy,
    by_hand,
    channel,
    exchange,
    free_port,
    is_gone,
    issued,
    leave,
    lines,
    task,
)

from proveout.agent.daemon import process
from proveout.agent.daemon.servicer import Admission, serve
from proveout.agent.daemon.session import Session
from proveout.agent.daemon.task_journal import AgentJournal
from proveout.agent.security.authz import TrustStore, server_credentials
from proveout.coordinator.agents import connect, session
from proveout.coordinator.agents.connect import AgentRefused, AgentUnreachable
from proveout.coordinator.certificates import Authority, Credentials
from proveout.core.errors import ProveoutError
from proveout.dsl.plan.topology import System
from proveout.proto import enrolment
from proveout.proto.audit_log import AuditLog
from proveout.proto.signing import Addressee, Signer
from proveout.proto.wire import agent_pb2 as pb
from proveout.proto.wire import codec
from proveout.proto.wire.messages import PROTOCOL_VERSION, TaskDone, TaskFailed
from proveout.proto.wire.results import SystemStarted
from proveout.proto.wire.tasks import StartSystem, StopSystem, Task

pytestmark = pytest.mark.server
Connect = Callable[..., Awaitable[Line]]


def work_dirs(agent: Permanent) -> list[Path]:
    return list((agent.directory / "state").glob("work-*"))


async def test_it_serves_one_run_after_the_other(agent: Permanent, tmp_path: Path) -> None:
    line = await agent.connect(run_id="one")
    with pytest.raises(AgentRefused, match="busy with run one") as caught:
        await agent.connect(run_id="two")
    assert "Wait for the end of that run" in caught.value.way_out
    line.session.send(task("k", f"spawn {tmp_path}/pid"))
    assert isinstance(await line.outcome("k"), TaskDone)
    child = int(lines(tmp_path / "pid")[0])
    assert not is_gone(child)
    await line.session.close()
    assert is_gone(child), "processes that a session leaves behind end with it"
    await (await agent.connect(run_id="two")).session.close()
    assert work_dirs(agent) == []
    assert (agent.directory / "pki" / "agent.key").exists()
    assert await agent.stop(signal.SIGHUP) == 0, "it ends in order with its terminal too"


@pytest.mark.parametrize("run", ["two", "one"])
async def test_a_run_waits_for_the_end_of_a_session_without_a_stream(
    run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run waits for its lease too; a coordinator that has lost the agent does not go on with what is ending."""
    monkeypatch.setattr("proveout.agent.daemon.session.end_children", lambda: None)  # servers of other tests are, too
    admission = Admission(
        name="db1",
        state_dir=tmp_path,
        table={},
        trust=cast(TrustStore, SimpleNamespace(objection=lambda _: "", verifier=lambda _: None)),
        audit=AuditLog(tmp_path / "audit.log"),
        journal=AgentJournal(tmp_path / "journal.sqlite"),
    )
    first = await admission.admit(replace(HELLO, run_id="one"))
    assert isinstance(first, Session)
    closing = asyncio.Event()
    first.resources["slow"] = cast(Any, SimpleNamespace(close=lambda keep_data: closing.wait()))
    first.detach(first.attach())
    if run == "one":
        first.end("lease_lost", "no beat came", keep_data=True)
    waiting = asyncio.ensure_future(admission.admit(replace(HELLO, run_id=run)))
    await eventually_async(lambda: admission.waiting or waiting.done(), "it waits")
    assert not waiting.done()
    first.end("lease_lost", "no beat came", keep_data=True)
    closing.set()
    second = await waiting
    assert isinstance(second, Session) and second is not first and first.ended.is_set()
    second.end("cancelled", "the test is over", keep_data=False)
    await second.ended.wait()


async def test_a_newer_epoch_takes_over_and_ends_the_old_work_first(agent: Permanent, tmp_path: Path) -> None:
    file = tmp_path / "f"
    old = await agent.connect(epoch=1)
    old.session.send(task("k", f"resource old {file}", f"sleep 600 {file}"))
    await old.accepted("k")
    new = await agent.connect(epoch=2)
    assert lines(file) == ["stopped", "closed old keep_data=True"]
    new.session.send(task("k", f"append {file}"))  # the same key: the tasks of the old epoch are forgotten
    assert isinstance(await new.outcome("k"), TaskDone)
    assert lines(file)[-1] == "effect"
    reason = await old.lost()
    assert "session" in reason or "epoch 1 of run run is over" in reason


async def test_a_second_signature_of_a_task_is_refused_after_its_run_has_ended(
    agent: Permanent, tmp_path: Path
) -> None:
    """After a broken connection a coordinator signs its running tasks a second time; a copy of that message can be replayed
    after the end of the run."""
    file = tmp_path / "f"
    signer = Signer(agent.credentials.signer_key)
    to = Addressee(agent="agent/db1", run="run", epoch=1)
    first, second = (signer.sign(codec.task_bytes(task("k", f"append {file}")), to) for _ in range(2))
    stream = await by_hand(agent, HELLO)
    assert [isinstance(await exchange(stream, signed), TaskDone) for signed in (first, second)] == [True, True]
    await leave(stream)
    stream = await by_hand(agent, HELLO)
    answer = await exchange(stream, second)
    await stream.close()
    assert isinstance(answer, TaskFailed)
    assert "it may be a replay" in answer.error.message
    assert lines(file) == ["effect"]


async def test_after_a_kill_no_task_runs_again_and_no_older_epoch_is_served(agent: Permanent, tmp_path: Path) -> None:
    file = tmp_path / "f"
    line = await agent.connect(epoch=7)
    line.session.send(task("done", f"append {file} done"))
    line.session.send(task("half", f"append {file} half", "sleep 600"))
    await line.outcome("done")
    await eventually_async(lambda: "half" in lines(file), "the task is under way")
    await agent.stop(signal.SIGKILL)
    await line.lost()
    assert len(work_dirs(agent)) == 1
    await agent.start()
    with pytest.raises(AgentRefused, match="epoch 6 of run run is over: this agent has served epoch 7"):
        await agent.connect(epoch=6)
    again = await agent.connect(epoch=7)
    assert len(work_dirs(agent)) == 1  # that of the killed agent is removed; this is the new session's
    again.session.send(task("done", f"append {file} done"))
    again.session.send(task("half", f"append {file} half", "sleep 600"))
    for key in ("done", "half"):
        assert (await again.failure(key))[0] == "lease_lost"
    assert sorted(lines(file)) == ["done", "half"]


async def test_a_session_is_lost_when_its_agent_was_restarted_within_the_lease(
    agent: Permanent, proxies: Callable[[str], Proxy]
) -> None:
    """Its address accepts connections all the time, so that the coordinator dials until the other process answers."""
    line = await agent.connect(address=await proxies(agent.address).start(), lease_s=60.0)
    await agent.stop(signal.SIGKILL)
    await agent.start()
    assert await line.lost() == "its lease ended, or it was restarted: it has stopped all tasks"


# ---- errors at start -------------------------------------------------------------------------------------------------


async def objection(command: list[str]) -> str:
    """The error with which an agent of this command line does not start, in this process."""
    with pytest.raises(ProveoutError) as caught:
        async with asyncio.timeout(PATIENCE_S):
            await serve(process._options(command[2:]), lambda _address: None)
    return str(caught.value)


async def refusal(command: list[str]) -> str:
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    async with asyncio.timeout(PATIENCE_S):
        _, stderr = await process.communicate()
    assert process.returncode == 4
    assert b"Traceback" not in stderr
    return stderr.decode()


def changed(command: list[str], option: str, value: object) -> list[str]:
    at = command.index(option) + 1
    return [*command[:at], str(value), *command[at + 1 :]]


async def test_what_two_agents_cannot_share(agent: Permanent, tmp_path: Path) -> None:
    command = agent.command()
    assert "another agent uses this state directory" in await refusal(changed(command, "--listen", "127.0.0.1:0"))
    elsewhere = changed(command, "--state-dir", tmp_path / "other")
    assert f"{agent.address}: cannot listen at this address" in await objection(elsewhere)


@pytest.fixture
def installed(tmp_path: Path) -> Permanent:
    """An agent that does not run."""
    agent = Permanent(tmp_path)
    (tmp_path / "state" / "tuning").mkdir(parents=True, mode=0o700)
    (tmp_path / "state").chmod(0o700)
    return agent


async def test_files_and_folders_that_others_can_change_are_refused(installed: Permanent) -> None:
    """A user with write access could install another authority, or undo entries that the agent would execute as root."""
    for name, mode, says in (
        ("pki/agent.key", 0o640, "other users can read the key"),
        ("pki/ca.pem", 0o664, "other users can write ca.pem"),
        ("pki", 0o777, "other users can write the"),
        ("state", 0o777, "other users can write the"),
        ("", 0o777, "other users can replace the"),
    ):
        path = installed.directory / name
        before = path.stat().st_mode
        path.chmod(mode)
        assert says in await objection(installed.command()), name
        path.chmod(before)
    (installed.directory / "pki" / "denied").write_text("1f\ndb7\ndb-seven\n")
    assert "line 3 is not a serial number" in await objection(installed.command())
    (installed.directory / "pki" / "agent.pem").unlink()
    assert "agent.pem: No such file or directory" in await objection(installed.command())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
async def test_files_and_folders_of_another_user_are_refused(installed: Permanent, tmp_path: Path) -> None:
    for name, message in (
        ("pki/ca.pem", "ca.pem belongs to another user"),
        ("pki/agent.key", "agent.key belongs to another user"),
        ("pki/authority", "authority belongs to another user"),
        ("pki/denied", "denied belongs to another user"),
        ("state/journal.sqlite", "the agent's journal belongs to another user"),
        ("state/tuning", "the folder of the undo journal belongs to another user"),
        ("state/tuning/undo.sqlite", "the undo journal belongs to another user"),
        ("state", "the state directory belongs to another user"),
    ):
        path = installed.directory / name
        made = not path.exists()
        if made:
            path.write_text("")
        os.chown(path, 12345, 12345)
        assert f"{path}: {message}" in await objection(installed.command())
        path.unlink() if made else os.chown(path, 0, 0)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "state")
    os.chown(link, 12345, 12345, follow_symlinks=False)
    for named in (link, link / "below"):
        error = await objection(changed(installed.command(), "--state-dir", named))
        assert f"other users can replace the state directory: the link {link} belongs to another user" in error
        assert f"chown -h root {link}" in error


# ---- errors in connecting --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"protocol": PROTOCOL_VERSION + 1, "version": "9.9"},
            rf"the coordinator \(proveout 9.9\) {PROTOCOL_VERSION + 1}",
        ),
        ({"host": "db2"}, "the agent of host db1, not of db2"),
        ({"lease_s": 0.05}, "is not valid"),
        ({"epoch": 0}, "no epoch"),
        ({"run_id": ""}, "no name"),
    ],
)
async def test_a_hello_that_is_refused(connect: Connect, changes: dict[str, object], says: str) -> None:
    with pytest.raises(AgentRefused, match=says):
        await connect(**changes)


@contextlib.asynccontextmanager
async def older_agent(agent: Permanent) -> AsyncIterator[str]:
    """The address of an agent that does not have the method of a session."""
    server = grpc.aio.server()
    port = server.add_secure_port("127.0.0.1:0", server_credentials(agent.directory / "pki"))
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


async def test_an_agent_of_another_protocol_is_named_also_where_its_answer_was_there_before_the_hello(
    shared_agent: Permanent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then writing fails, and grpc says INTERNAL in place of UNIMPLEMENTED; met in 8 of 1,500 sessions."""
    for method in (connect._call, answered_early):
        monkeypatch.setattr(connect, "_call", method)
        async with older_agent(shared_agent) as address:
            said = await dial(address, shared_agent.credentials)
        assert f"it has no session of protocol {PROTOCOL_VERSION}" in said and "Install the same release" in said


def answered_early(channel: Any) -> Any:
    call = channel.stream_stream(codec.SESSION, request_serializer=pb.CoordinatorEnvelope.SerializeToString)()
    call._cython_call.set_internal_error("Internal error from Core")
    return call


async def test_a_coordinator_of_another_protocol_is_refused_under_the_name_of_its_version(
    shared_agent: Permanent,
) -> None:
    hello = pb.CoordinatorEnvelope(hello=pb.Hello(run_id="r", epoch=1, host="db1", protocol=2, version="0.2.0"))
    for method in ("/proveout.agent.v1.Agent/Session", "/proveout.agent.v99.Agent/Session"):
        async with channel(shared_agent, shared_agent.credentials) as through:
            call: Any = through.stream_stream(
                method, pb.CoordinatorEnvelope.SerializeToString, pb.AgentEnvelope.FromString
            )()
            await call.write(hello)
            says = (await call.read()).refused.reason
        assert f"speaks protocol {PROTOCOL_VERSION}, the coordinator (proveout 0.2.0) 2" in says


async def dial(address: str, credentials: Credentials) -> str:
    hello = replace(HELLO, lease_s=0.5)  # connecting takes at most that and `DIAL_S`
    with pytest.raises(AgentUnreachable) as caught:
        await session.connect("db1", address, credentials, hello, asyncio.Queue())
    assert "host db1" in str(caught.value) and address in str(caught.value)
    return str(caught.value)


async def test_connecting_to_where_no_agent_of_ours_is(
    shared_agent: Permanent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = Authority.create().issue_coordinator()
    for address, says in (
        (f"127.0.0.1:{free_port()}", "nothing listens there"),
        ("no-such-host.invalid:7443", "the name does not resolve"),
        ("db1:http:x", "the address is not valid"),
        (shared_agent.address, "of another authority than the coordinator's"),
    ):
        assert says in await dial(address, stranger)
    other = Permanent(tmp_path)
    issued(tmp_path / "authority", "agent", tmp_path / "pki", "10.9.8.7")  # of the right authority, for another address
    await other.start()
    assert "enrol it again with --address 127.0.0.1" in await dial(other.address, other.credentials)
    await other.stop(signal.SIGKILL)
    monkeypatch.setattr(session, "DIAL_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        error = await dial(f"127.0.0.1:{mute.getsockname()[1]}", stranger)
    assert "no answer within" in error and "firewall" in error


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="this machine has no IPv6")
@pytest.mark.parametrize("form", ["0:0::0001", MAPPED, "0::ffff:7f00:1"])
async def test_an_ipv6_address_is_written_in_any_form(tmp_path: Path, form: str) -> None:
    """Only the shortest one was accepted, as certificates have it."""
    agent = Permanent(tmp_path)
    agent.address = agent.address.replace("127.0.0.1", "[::]")
    await agent.start()
    try:
        await agent.connect(address=agent.address.replace("::", form))
    finally:
        await agent.leave()
        await agent.stop(signal.SIGKILL)


async def test_connecting_to_a_server_without_tls(tmp_path: Path) -> None:
    served: list[asyncio.Event] = []

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(over := asyncio.Event())
        writer.write(b"220 mail.example ESMTP\r\n")
        with contextlib.suppress(OSError):
            await reader.read()
            writer.close()
            await writer.wait_closed()
        over.set()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        error = await dial(address, Authority.create().issue_coordinator())
        with pytest.raises(enrolment.EnrolmentError) as caught:
            await enrolment.enrol(address, f"sha256:{'0' * 64}", "token", tmp_path / "pki")
        for over in served:
            await over.wait()
    for words in (error, str(caught.value)):
        assert "does not speak TLS" in words
        assert "not permitted" not in words


class Real(Permanent):
    """A real agent with a policy file."""

    @property
    def policy(self) -> Path:
        return self.directory / "owner" / "policy.yaml"

    def command(self) -> list[str]:
        arguments = super().command()[2:]
        return [sys.executable, "-m", "proveout.agent", *arguments, "--policy", str(self.policy)]


def start(engine: str) -> Task:
    system = System(name="db", engine=engine, host="db1", provision="embedded")
    return Task(key=f"start {engine}", spec=StartSystem(system=system, data_root="/srv/runs/x"), deadline_s=60.0)


async def test_only_engines_that_the_policy_lists_are_started(tmp_path: Path) -> None:
    agent = Real(tmp_path)
    agent.policy.parent.mkdir(mode=0o755)
    agent.policy.write_text("policy: 1\nprovision: [sqlite]\n")
    agent.policy.chmod(0o644)
    await agent.start()
    assert agent.process is not None
    try:
        line = await agent.connect()
        for engine in ("postgres", "mysql"):
            line.session.send(start(engine))
            refused = await line.outcome(f"start {engine}")
            assert isinstance(refused, TaskFailed) and refused.error.code == "refused"
            assert refused.error.message == f"starting an embedded {engine} system is not allowed on this host"
            assert f"add `- {engine}` under `provision` in {agent.policy}" in refused.error.way_out
        assert psutil.Process(agent.process.pid).children(recursive=True) == []
        assert not (agent.directory / "state" / "systems").exists()
        line.session.send(start("sqlite"))
        outcome = await line.outcome("start sqlite")
        assert isinstance(outcome, TaskDone) and isinstance(outcome.result, SystemStarted), outcome
        file = Path(outcome.result.endpoint.dsn)
        assert file.exists()
        spec = StopSystem(system="db", data_root="/srv/runs/x", remove=True)
        line.session.send(Task(key="stop", spec=spec, deadline_s=60.0))
        assert isinstance(await line.outcome("stop"), TaskDone)
        assert not file.exists()
    finally:
        await agent.leave()
        await agent.stop(signal.SIGKILL)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
async def test_a_system_that_a_killed_agent_was_removing_is_removed_by_the_next_one(tmp_path: Path) -> None:
    """Its data stayed for good: no later task names it."""
    agent = Real(tmp_path)
    agent.policy.parent.mkdir(mode=0o755)
    agent.policy.write_text("policy: 1\nprovision: [sqlite]\n")
    await agent.start()
    state = agent.directory / "state"
    try:
        line = await agent.connect()
        line.session.send(start("sqlite"))
        outcome = await line.outcome("start sqlite")
        assert isinstance(outcome, TaskDone) and isinstance(outcome.result, SystemStarted), outcome
        file = Path(outcome.result.endpoint.dsn)
        assert agent.process is not None
        for helper in psutil.Process(agent.process.pid).children():
            helper.suspend()
        spec = StopSystem(system="db", data_root="/srv/runs/x", remove=True)
        line.session.send(Task(key="stop", spec=spec, deadline_s=60.0))
        await eventually_async(lambda: list(state.glob("work-*/removal-db")), "the task is under way")
        await agent.stop(signal.SIGKILL)
        assert file.exists()
        await agent.start()
        assert not file.exists()
        assert list((state / "systems").iterdir()) == []
    finally:
        await agent.leave(within_s=0.0)
        await agent.stop(signal.SIGKILL)

"""A permanent agent: fencing, one run at a time, state kept over a restart, and errors at start and in connecting."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import random
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fabric_bench import FAKE_AGENT, Bench, Line, eventually, is_gone, lines, task

from proveout.coordinator.agents.connect import AgentRefused, AgentUnreachable, StreamEnded, open_stream
from proveout.coordinator.agents.local_agents import LocalFabric
from proveout.coordinator.agents.session import SessionEvent, connect
from proveout.coordinator.pki.certificates import Authority, Credentials
from proveout.proto.trust import enrolment
from proveout.proto.trust.task_signing import Addressee, Signer
from proveout.proto.wire import codec
from proveout.proto.wire.messages import PROTOCOL_VERSION, Goodbye, Hello, TaskDone, TaskFailed

pytestmark = pytest.mark.server

HELLO = Hello(run_id="run", epoch=1, host="db1", beat_s=0.1, lease_s=15.0)


def free_port() -> int:
    """A free port below the range from which the kernel assigns ports, so that it stays free while an agent restarts."""
    while True:
        port = random.SystemRandom().randrange(20_000, 30_000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


class Permanent:
    """The installation of one agent: PKI, state directory and address are the same after a restart."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        authority = Authority.create()
        authority.write_agent(directory / "pki", "db1", ["127.0.0.1", "localhost"])
        authority.write_coordinator(directory / "coordinator")
        self.credentials = Credentials.read(directory / "coordinator")
        self.address = f"127.0.0.1:{free_port()}"
        self.process: asyncio.subprocess.Process | None = None
        self.sessions: list[Line] = []

    @property
    def log(self) -> Path:
        return self.directory / "log"

    def command(self) -> list[str]:
        where = ["--pki", str(self.directory / "pki"), "--state-dir", str(self.directory / "state")]
        return [*FAKE_AGENT, "--listen", self.address, "--name", "db1", *where]

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(*self.command(), stdout=log, stderr=log)
        before = self.log.read_text().count("listens at")
        await eventually(lambda: self.log.read_text().count("listens at") > before or self.listens(), "it listens")

    def listens(self) -> bool:
        host, port = self.address.split(":")
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
            return True
        return False

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)
        return await self.process.wait()

    async def connect(self, **changes: object) -> Line:
        hello = dataclasses.replace(HELLO, **changes)  # type: ignore[arg-type]
        events: asyncio.Queue[SessionEvent] = asyncio.Queue()
        line = Line(await connect("db1", self.address, self.credentials, hello, events), events)
        self.sessions.append(line)
        return line


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[Permanent]:
    agent = Permanent(tmp_path)
    await agent.start()
    try:
        yield agent
    finally:
        for line in agent.sessions:
            await line.session.close(timeout_s=5.0)
        await agent.stop(signal.SIGKILL)


def work_dirs(agent: Permanent) -> list[Path]:
    return list((agent.directory / "state").glob("work-*"))


async def test_it_continues_to_listen_after_a_run(agent: Permanent) -> None:
    for run in ("one", "two"):
        line = await agent.connect(run_id=run)
        line.session.send(task("k", "sleep 0"))
        assert isinstance(await line.outcome("k"), TaskDone)
        await line.session.close()
        assert work_dirs(agent) == []
    assert (agent.directory / "pki" / "agent.key").exists()
    assert await agent.stop() == 0


async def test_processes_that_a_session_leaves_behind_end_with_it(agent: Permanent, tmp_path: Path) -> None:
    line = await agent.connect()
    line.session.send(task("k", f"spawn {tmp_path}/pid"))
    await line.outcome("k")
    child = int(lines(tmp_path / "pid")[0])
    assert not is_gone(child)
    await line.session.close()
    assert is_gone(child)
    await (await agent.connect(run_id="the agent is still there")).session.close()


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
    first, second = (signer.sign(task("k", f"append {file}"), to) for _ in range(2))
    stream, _ = await open_stream("db1", agent.address, agent.credentials, HELLO, 20.0)
    for signed in (first, second):
        await stream._call.write(codec.coordinator_envelope(signed))
        while not isinstance(await stream.read(), TaskDone):
            pass
    await stream.write(Goodbye(keep_data=False))
    with pytest.raises(StreamEnded):
        while True:
            await stream.read()
    await stream.close()
    stream, _ = await open_stream("db1", agent.address, agent.credentials, HELLO, 20.0)
    await stream._call.write(codec.coordinator_envelope(second))
    while not isinstance(answer := await stream.read(), (TaskDone, TaskFailed)):
        pass
    await stream.close()
    assert isinstance(answer, TaskFailed)
    assert "it may be a replay" in answer.error.message
    assert lines(file) == ["effect"]


async def test_a_stale_epoch_is_refused_also_after_a_restart(agent: Permanent) -> None:
    await (await agent.connect(epoch=7)).session.close()
    await agent.stop()
    await agent.start()
    with pytest.raises(AgentRefused, match="epoch 6 of run run is over: this agent has served epoch 7"):
        await agent.connect(epoch=6)
    await (await agent.connect(epoch=6, run_id="another run")).session.close()


async def test_another_run_is_refused_while_one_has_a_session(agent: Permanent) -> None:
    line = await agent.connect(run_id="one")
    with pytest.raises(AgentRefused, match="busy with run one") as caught:
        await agent.connect(run_id="two")
    assert "Wait for the end of that run" in caught.value.way_out
    line.session.send(task("k", "sleep 0"))
    assert isinstance(await line.outcome("k"), TaskDone)


COORDINATOR = """
import asyncio, dataclasses, sys
from pathlib import Path
from proveout.coordinator.pki.certificates import Credentials
from proveout.coordinator.agents.session import connect
from proveout.proto.wire.messages import Hello
from proveout.proto.wire.tasks import Endpoint, RunSql, Task

async def main():
    hello = Hello(run_id="run", epoch=1, host="db1", beat_s=0.1, lease_s=8.0)
    session = await connect("db1", sys.argv[1], Credentials.read(Path(sys.argv[2])), hello, asyncio.Queue())
    endpoint = Endpoint(system="s", engine="postgres", dsn="host=x")
    statements = (f"append {sys.argv[3]} began", f"sleep 600 {sys.argv[3]}")
    session.send(Task(key="k", spec=RunSql(endpoint=endpoint, statements=statements), deadline_s=700))
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.fixture
async def killed(agent: Permanent, tmp_path: Path) -> Path:
    """The file of a run whose coordinator was killed during a task."""
    file = tmp_path / "f"
    arguments = [agent.address, str(agent.directory / "coordinator"), str(file)]
    coordinator = await asyncio.create_subprocess_exec(sys.executable, "-c", COORDINATOR, *arguments)
    await eventually(lambda: lines(file)[:1] == ["began"], "the task has begun")
    coordinator.kill()
    await coordinator.wait()
    return file


async def test_another_run_waits_for_the_lease_of_one_whose_coordinator_was_killed(
    agent: Permanent, killed: Path
) -> None:
    await agent.connect(run_id="another")
    assert lines(killed) == ["began", "stopped"]


async def test_a_resumed_run_takes_over_at_once(agent: Permanent, killed: Path) -> None:
    line = await agent.connect(epoch=2)
    assert lines(killed) == ["began", "stopped"]
    line.session.send(task("k", f"append {killed} again"))
    assert isinstance(await line.outcome("k"), TaskDone)


async def test_tasks_of_an_agent_that_was_killed_do_not_run_again(agent: Permanent, tmp_path: Path) -> None:
    file = tmp_path / "f"
    line = await agent.connect()
    line.session.send(task("done", f"append {file} done"))
    line.session.send(task("half", f"append {file} half", "sleep 600"))
    await line.outcome("done")
    await eventually(lambda: "half" in lines(file), "the task is under way")
    await agent.stop(signal.SIGKILL)
    await line.lost()
    assert len(work_dirs(agent)) == 1
    await agent.start()
    again = await agent.connect()
    assert len(work_dirs(agent)) == 1  # that of the killed agent is removed; this is the new session's
    again.session.send(task("done", f"append {file} done"))
    again.session.send(task("half", f"append {file} half", "sleep 600"))
    for key in ("done", "half"):
        assert (await again.failure(key))[0] == "lease_lost"
    assert sorted(lines(file)) == ["done", "half"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"protocol": PROTOCOL_VERSION + 1, "version": "9.9"},
            rf"the coordinator \(proveout 9.9\) {PROTOCOL_VERSION + 1}",
        ),
        ({"host": "db2"}, "the agent of host db1, not of db2"),
        ({"lease_s": 0.05}, "is not valid"),
        ({"lease_s": 1e6}, "is not valid"),
        ({"epoch": 0}, "no epoch"),
        ({"run_id": ""}, "no name"),
    ],
)
async def test_a_hello_that_is_refused(agent: Permanent, changes: dict[str, object], says: str) -> None:
    with pytest.raises(AgentRefused, match=says):
        await agent.connect(**changes)


# ---- errors at start -------------------------------------------------------------------------------------------------


async def refusal(command: list[str]) -> str:
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, stderr = await process.communicate()
    assert process.returncode == 4
    assert b"Traceback" not in stderr
    return stderr.decode()


async def test_two_agents_on_one_state_directory(agent: Permanent) -> None:
    command = agent.command()
    command[command.index("--listen") + 1] = "127.0.0.1:0"
    assert "another agent uses this state directory" in await refusal(command)


async def test_two_agents_on_one_port(agent: Permanent, tmp_path: Path) -> None:
    command = agent.command()
    command[command.index("--state-dir") + 1] = str(tmp_path / "other")
    assert f"{agent.address}: cannot listen at this address" in await refusal(command)


async def test_a_key_that_others_can_read(agent: Permanent, tmp_path: Path) -> None:
    (tmp_path / "pki" / "agent.key").chmod(0o644)
    assert "other users can read the key" in await refusal(agent.command())


async def test_a_missing_certificate(agent: Permanent, tmp_path: Path) -> None:
    (tmp_path / "pki" / "agent.pem").unlink()
    assert "agent.pem: No such file or directory" in await refusal(agent.command())


@pytest.mark.parametrize("name", ["pki", "state"])
async def test_a_folder_that_others_can_write(agent: Permanent, name: str) -> None:
    """A user with write access could install another authority, or undo entries that the agent would execute as root."""
    (agent.directory / name).chmod(0o777)
    assert "other users can write the" in await refusal(agent.command())


async def test_a_folder_that_others_can_replace(agent: Permanent) -> None:
    agent.directory.chmod(0o777)
    assert "other users can replace the" in await refusal(agent.command())
    agent.directory.chmod(0o700)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
async def test_a_state_directory_of_another_user(agent: Permanent, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0o700)
    os.chown(tmp_path / "theirs", 12345, 12345)
    command = agent.command()
    command[command.index("--state-dir") + 1] = str(tmp_path / "theirs")
    assert "the state directory belongs to another user" in await refusal(command)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "state")
    os.chown(link, 12345, 12345, follow_symlinks=False)
    for named in (link, link / "below"):
        command[command.index("--state-dir") + 1] = str(named)
        error = await refusal(command)
        assert f"other users can replace the state directory: the link {link} belongs to another user" in error
        assert f"chown -h root {link}" in error


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pki/ca.pem", "ca.pem belongs to another user"),
        ("pki/agent.key", "agent.key belongs to another user"),
        ("pki/authority", "authority belongs to another user"),
        ("pki/denied", "denied belongs to another user"),
        ("state/journal.sqlite", "the agent's journal belongs to another user"),
        ("state/tuning", "the folder of the undo journal belongs to another user"),
        ("state/tuning/undo.sqlite", "the undo journal belongs to another user"),
    ],
)
async def test_trusted_files_of_another_user_are_refused(agent: Permanent, name: str, message: str) -> None:
    """The folders belong to the agent's own user."""
    await agent.stop()
    path = agent.directory / name
    (agent.directory / "state" / "tuning").mkdir()
    if not path.exists():
        path.write_text("")
    os.chown(path, 12345, 12345)
    assert f"{path}: {message}" in await refusal(agent.command())


async def test_a_ca_that_others_can_write(agent: Permanent) -> None:
    (agent.directory / "pki" / "ca.pem").chmod(0o664)
    assert "other users can write ca.pem" in await refusal(agent.command())


async def test_an_unreadable_list_of_revoked_certificates_is_refused(agent: Permanent) -> None:
    (agent.directory / "pki" / "denied").write_text("1f\ndb7\ndb-seven\n")
    assert "line 3 is not a serial number" in await refusal(agent.command())


# ---- errors in connecting --------------------------------------------------------------------------------------------


async def dial(address: str, credentials: Credentials) -> str:
    hello = dataclasses.replace(HELLO, lease_s=0.5)  # connecting takes at most that and `DIAL_S`
    with pytest.raises(AgentUnreachable) as caught:
        await connect("db1", address, credentials, hello, asyncio.Queue())
    assert "host db1" in str(caught.value) and address in str(caught.value)
    return str(caught.value)


async def test_connecting_to_a_closed_port() -> None:
    credentials = Authority.create().issue_coordinator()
    error = await dial(f"127.0.0.1:{free_port()}", credentials)
    assert "nothing listens there" in error and "proveout agent --listen" in error


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


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("no-such-host.invalid:7443", "the name does not resolve"),
        ("db1.lab", "the address is not valid"),
        ("db1:http:x", "the address is not valid"),
    ],
)
async def test_connecting_to_invalid_addresses(address: str, says: str) -> None:
    assert says in await dial(address, Authority.create().issue_coordinator())


async def test_connecting_to_a_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proveout.coordinator.agents.session.DIAL_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        error = await dial(f"127.0.0.1:{mute.getsockname()[1]}", Authority.create().issue_coordinator())
    assert "no answer within" in error and "firewall" in error


async def test_connecting_to_an_agent_of_another_authority(agent: Permanent) -> None:
    error = await dial(agent.address, Authority.create().issue_coordinator())
    assert "of another authority than the coordinator's" in error


async def test_a_certificate_for_another_address(bench: Bench, tmp_path: Path) -> None:
    """The certificate is of the right authority, but for another name: the agent may be another host's."""
    authority = Authority.create()
    authority.write_agent(tmp_path / "pki", "db1", ["10.9.8.7"])
    fabric = LocalFabric(FAKE_AGENT)
    command = [*FAKE_AGENT, "--local", "--name", "db1", "--pki", str(tmp_path / "pki"), "--listen", "127.0.0.1:0"]
    command += ["--state-dir", str(tmp_path / "agents" / "state")]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        address = (await process.stdout.readline()).decode().split()[1]
        assert "enrol it again with --address 127.0.0.1" in await dial(address, authority.issue_coordinator())
    finally:
        process.terminate()
        await process.wait()
        await fabric.close()

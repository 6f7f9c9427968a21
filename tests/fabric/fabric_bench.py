"""Helpers of the fabric's tests: agents as real child processes with fake handlers, and a TCP proxy that breaks
connections."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
import psutil
from eventually import PATIENCE_S, eventually_async

from proveout.coordinator.agents.connect import Stream, StreamEnded, open_stream
from proveout.coordinator.agents.local_agents import LocalFabric
from proveout.coordinator.agents.session import AgentSession, Lost, Received, SessionEvent, connect
from proveout.coordinator.certificates import VALIDITY, Authority, Credentials, Ledger, Member, write_member
from proveout.proto.wire import agent_pb2 as pb
from proveout.proto.wire import codec
from proveout.proto.wire.agent_pb2_grpc import AgentStub
from proveout.proto.wire.messages import AgentMessage, Goodbye, Hello, TaskAccepted, TaskDone, TaskFailed
from proveout.proto.wire.tasks import Endpoint, RunSql, SignedTask, Task

FAKE_AGENT = (sys.executable, str(Path(__file__).with_name("fake_agent.py")))
LEASE_S = 120.0
MAPPED = "::ffff:127.0.0.1"
"""Longer than any test waits: an agent that misses beats on a busy machine keeps its session."""
HELLO = Hello(run_id="run", epoch=1, host="db1", beat_s=0.1, lease_s=LEASE_S)
ENDPOINT = Endpoint(system="s", engine="postgres", dsn="host=x")


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def is_gone(pid: int) -> bool:
    """Whether a process has ended or is a zombie."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def accept_all(_: SignedTask) -> str:
    """A verifier that accepts every task: signatures are tested in tests/fabric/test_signatures.py."""
    return ""


def task(key: str, *statements: str, deadline_s: float = 20.0) -> Task:
    return Task(key=key, spec=RunSql(endpoint=ENDPOINT, statements=statements), deadline_s=deadline_s)


class Line:
    """A session with the events that it has received so far."""

    def __init__(self, session: AgentSession, events: asyncio.Queue[SessionEvent]) -> None:
        self.session = session
        self.events = events
        self.received: list[SessionEvent] = []

    def messages(self) -> list[AgentMessage]:
        return [event.message for event in self.received if isinstance(event, Received)]

    async def receive(self, wanted: Callable[[SessionEvent], bool]) -> SessionEvent:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                event = await self.events.get()
                self.received.append(event)
                if wanted(event):
                    return event
                assert not isinstance(event, Lost), event

    async def message(self, kind: type | tuple[type, ...], *keys: str) -> AgentMessage:
        def wanted(event: SessionEvent) -> bool:
            message = event.message if isinstance(event, Received) else None
            return isinstance(message, kind) and (not keys or getattr(message, "key", None) in keys)

        event = await self.receive(wanted)
        assert isinstance(event, Received)
        return event.message

    async def outcome(self, *keys: str) -> TaskDone | TaskFailed:
        message = await self.message((TaskDone, TaskFailed), *keys)
        assert isinstance(message, (TaskDone, TaskFailed))
        return message

    async def failures(self, *keys: str) -> dict[str, tuple[str, str]]:
        """Code and message of tasks that end in any order."""
        found: dict[str, tuple[str, str]] = {}
        while len(found) < len(keys):
            outcome = await self.outcome(*keys)
            assert isinstance(outcome, TaskFailed), outcome
            found[outcome.key] = (outcome.error.code, outcome.error.message)
        return found

    async def failure(self, key: str) -> tuple[str, str]:
        return (await self.failures(key))[key]

    async def accepted(self, key: str) -> None:
        await self.message(TaskAccepted, key)

    async def lost(self) -> str:
        event = await self.receive(lambda event: isinstance(event, Lost))
        assert isinstance(event, Lost)
        return event.reason

    def rest(self) -> list[SessionEvent]:
        """Take the events that are queued, without waiting; return all events of the session."""
        while not self.events.empty():
            self.received.append(self.events.get_nowait())
        return self.received


class Bench:
    """Local agents of one test, and the sessions with them; everything is closed after it."""

    def __init__(self, fabric: LocalFabric, log_dir: Path) -> None:
        self.fabric = fabric
        self.log_dir = log_dir
        self.sessions: list[AgentSession] = []

    async def start(self, host: str = "db1") -> str:
        return (await self.fabric.start([host], self.log_dir))[host]

    async def connect(self, address: str, hello: Hello | None = None, **changes: object) -> Line:
        hello = dataclasses.replace(hello or HELLO, **changes)  # type: ignore[arg-type]
        events: asyncio.Queue[SessionEvent] = asyncio.Queue()
        session = await connect(hello.host, address, self.fabric.credentials, hello, events)
        self.sessions.append(session)
        return Line(session, events)

    async def line(self, **changes: object) -> Line:
        return await self.connect(await self.start(), None, **changes)

    def log(self, host: str = "db1") -> str:
        return (self.log_dir / f"agent-{host}.log").read_text()

    async def close(self) -> None:
        for session in self.sessions:
            await session.close(timeout_s=5.0)
        directory = self.fabric.directory
        pids = self.fabric.pids
        await self.fabric.close()
        assert directory is None or not directory.exists()
        assert all(is_gone(pid) for pid in pids)


def issued(
    authority: Path, role: str, directory: Path, *addresses: str, name: str = "db1", validity: timedelta = VALIDITY
) -> Authority:
    """Write the credentials of a member of an authority, which is made if there is none."""
    ledger = Ledger.open(authority) if authority.exists() else Ledger.create(authority, validity)
    write_member(ledger, Member(role=role, name=name, addresses=addresses), directory)
    ledger.close()
    return ledger.authority


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
        issued(directory / "authority", "agent", directory / "pki", "127.0.0.1", "::1", MAPPED, "localhost")
        self.authority = issued(directory / "authority", "coordinator", directory / "coordinator")
        self.credentials = Credentials.read(directory / "coordinator")
        self.address = f"127.0.0.1:{free_port()}"
        self.process: subprocess.Popen[bytes] | None = None
        self.sessions: list[Line] = []

    @property
    def log(self) -> Path:
        return self.directory / "log"

    def command(self) -> list[str]:
        where = ["--pki", str(self.directory / "pki"), "--state-dir", str(self.directory / "state")]
        return [*FAKE_AGENT, "--listen", self.address, "--name", "db1", *where]

    def launch(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log)

    async def start(self) -> None:
        self.launch()
        await eventually_async(self.listens, self.log.read_text)

    def listens(self) -> bool:
        assert self.process is not None and self.process.poll() is None, self.log.read_text()
        host, _, port = self.address.rpartition(":")
        with contextlib.suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), PATIENCE_S):
            return True
        return False

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return await asyncio.to_thread(self.process.wait, PATIENCE_S)

    async def connect(self, *, address: str = "", **changes: object) -> Line:
        hello = dataclasses.replace(HELLO, **changes)  # type: ignore[arg-type]
        events: asyncio.Queue[SessionEvent] = asyncio.Queue()
        line = Line(await connect("db1", address or self.address, self.credentials, hello, events), events)
        self.sessions.append(line)
        return line

    async def leave(self, within_s: float = PATIENCE_S) -> None:
        """Say Goodbye in all sessions, and wait for their ends."""
        for line in self.sessions:
            await line.session.close(timeout_s=within_s)
        self.sessions.clear()


async def by_hand(agent: Permanent, hello: Hello, credentials: Credentials | None = None) -> Stream:
    """Open a stream that a test writes message by message."""
    stream, _ = await open_stream("db1", agent.address, credentials or agent.credentials, hello, PATIENCE_S)
    return stream


async def exchange(stream: Stream, signed: SignedTask) -> TaskDone | TaskFailed:
    """Send a task with the signature that it has, and return its outcome."""
    await stream._call.write(codec.coordinator_envelope(signed))
    while not isinstance(answer := await stream.read(), TaskDone | TaskFailed):
        pass
    return answer


async def leave(stream: Stream) -> None:
    """Say Goodbye, and wait for the end of the session."""
    await stream.write(Goodbye())
    with contextlib.suppress(StreamEnded):
        while True:
            await stream.read()
    await stream.close()


def channel(agent: Permanent, shown: Credentials | None, ca: bytes = b"") -> grpc.aio.Channel:
    """A channel to an agent with this certificate, and with this authority instead of the agent's."""
    pair = (None, None) if shown is None else (shown.key, shown.certificate)
    tls = grpc.ssl_channel_credentials(ca or agent.credentials.ca, *pair)
    return grpc.aio.secure_channel(agent.address, tls, options=[("grpc.max_send_message_length", -1)])


async def status(through: grpc.aio.Channel, *envelopes: pb.CoordinatorEnvelope) -> grpc.StatusCode:
    """Send messages over a stream and return its status; the answers are discarded."""
    async with through:
        call: Any = AgentStub(through).Session()
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the code is returned below
            async with asyncio.timeout(PATIENCE_S):
                for envelope in envelopes:
                    await call.write(envelope)
                await call.done_writing()
                while await call.read() is not grpc.aio.EOF:
                    pass
        return cast(grpc.StatusCode, await call.code())


class Proxy:
    """A TCP proxy between coordinator and agent: `cut` breaks open connections, `drops_replies` discards the bytes of the
    agent."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._jobs: set[asyncio.Task[object]] = set()
        self.drops_replies = False
        self.connections = 0
        self.address = ""

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self.address

    def cut(self) -> None:
        self.drops_replies = False
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        for job in list(self._jobs):
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection; close both sides when either ends, or when the agent is gone."""
        self.connections += 1
        job = asyncio.current_task()
        assert job is not None
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        mine = {writer}
        self._writers.add(writer)
        try:
            there, back = await asyncio.open_connection(self._host, self._port)
            mine.add(back)
            self._writers.add(back)
            await asyncio.gather(self._pump(reader, back, False), self._pump(there, writer, True))
        except (OSError, asyncio.CancelledError):
            pass  # the agent is gone, or the test is over
        finally:
            self._writers -= mine
            for end in mine:
                end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, from_agent: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if not (from_agent and self.drops_replies):
                    writer.write(data)
                    await writer.drain()
        writer.close()

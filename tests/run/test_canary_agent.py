"""The password of a database that a permanent agent tunes is never in a file: while the agent tunes, when it is killed
(-9), and when it is restarted.

A real PostgreSQL that requires the password (SCRAM), a real agent with a state directory. All files of the agent are
read continuously, with write-ahead logs and the open files of its processes. The server's own files are not searched.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
from canary import CANARY, FileWatch
from eventually import eventually_async
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from proveout.agent.engines.postgres import roles as postgres_roles
from proveout.agent.engines.postgres.provision import Server
from proveout.coordinator.agents.session import AgentSession, Received, SessionEvent, connect
from proveout.coordinator.pki.certificates import Authority, Credentials
from proveout.dsl.plan.topology import System
from proveout.dsl.plan.tuning_step import Tuning
from proveout.proto.wire.messages import Hello, TaskDone, TaskFailed
from proveout.proto.wire.results import TuningDone
from proveout.proto.wire.tasks import ApplyTuning, Endpoint, InspectSystem, Task, TaskSpec

pytestmark = pytest.mark.server

ROLE = "canary_admin"
DEADLINE_S = 120.0
SETTINGS = Tuning(
    name="memory",
    operation="postgres_settings",
    hosts=("db1",),
    parameters=(("system", "db"), ("settings", (("work_mem", "67MB"),))),
    system="db",
)


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a server of the test, whose settings may be changed; yield the dsn of its administrator."""
    system = System(name="db", engine="postgres", host="local", provision="embedded", settings=(("fsync", "off"),))
    started = Server(system, tmp_path_factory.mktemp("canary-server"))
    try:
        dsn = make_conninfo(postgres_roles.administration(started.start()), options="")
        with psycopg.connect(dsn, autocommit=True) as admin:
            make = "CREATE ROLE {} LOGIN SUPERUSER PASSWORD {}"
            admin.execute(sql.SQL(make).format(sql.Identifier(ROLE), sql.Literal(CANARY)))
        yield dsn
    finally:
        started.close(keep_data=False)


class Agent:
    """A permanent agent that can be restarted on the same folders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority = Authority.create()
        authority.write_agent(folder / "pki", "db1", ["127.0.0.1"])
        authority.write_coordinator(folder / "coordinator")
        self._credentials = Credentials.read(folder / "coordinator")
        with socket.socket() as asking:
            asking.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{asking.getsockname()[1]}"
        self.process: asyncio.subprocess.Process | None = None
        self._epoch = 0
        self._events: asyncio.Queue[SessionEvent] = asyncio.Queue()
        self.session: AgentSession | None = None

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    @property
    def pids(self) -> list[int]:
        return [self.process.pid] if self.process is not None and self.process.returncode is None else []

    async def start(self) -> None:
        argv = [sys.executable, "-m", "proveout.agent", "--name", "db1", "--listen", self.address]
        argv += ["--pki", str(self.folder / "pki"), "--state-dir", str(self.folder / "state")]
        argv += ["--undo-dir", str(self.folder / "machine")]
        environment = {**os.environ, "TMPDIR": str(self.folder / "tmp")}
        (self.folder / "tmp").mkdir(exist_ok=True)
        told = (self.folder / "log").read_text().count("listens at") if self.process is not None else 0
        with (self.folder / "log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(*argv, stdout=log, stderr=log, env=environment)
        await eventually_async(lambda: self.log.count("listens at") > told, lambda: self.log)

    async def open(self) -> None:
        self._epoch += 1
        hello = Hello(run_id="r", epoch=self._epoch, host="db1", lease_s=60.0, beat_s=1.0)
        self._events = asyncio.Queue()
        self.session = await connect("db1", self.address, self._credentials, hello, self._events)

    async def done(self, what: str, spec: TaskSpec) -> TaskDone:
        assert self.session is not None
        key = f"r/-/0/0/{self._epoch}.1/{what}/db1"
        self.session.send(Task(key=key, spec=spec, deadline_s=DEADLINE_S))
        while True:
            event = await self._events.get()
            if isinstance(event, Received) and isinstance(event.message, (TaskDone, TaskFailed)):
                assert isinstance(event.message, TaskDone), event.message
                return event.message

    async def kill(self) -> None:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        if self.session is not None:
            await self.session.close(timeout_s=1.0)
            self.session = None


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[Agent]:
    agent = Agent(tmp_path)
    try:
        await agent.start()
        yield agent
    finally:
        await agent.kill()


def stored(dsn: str) -> str:
    """Return the value of `work_mem` that ALTER SYSTEM has stored; "" for none."""
    with psycopg.connect(dsn, autocommit=True) as admin:
        query = (
            "SELECT setting FROM pg_file_settings WHERE sourcefile LIKE '%postgresql.auto.conf' AND name = 'work_mem'"
        )
        row = admin.execute(query).fetchone()
    return "" if row is None else str(row[0])


async def test_a_killed_agent_leaves_no_password_and_reverts_when_it_receives_the_password_again(
    server: str, agent: Agent, tmp_path: Path
) -> None:
    where = conninfo_to_dict(server)
    dsn = make_conninfo(host=str(where["host"]), port=where.get("port"), dbname="postgres", user=ROLE, password=CANARY)
    endpoint = Endpoint(system="db", engine="postgres", dsn=dsn)
    apply = ApplyTuning(tunings=(SETTINGS,), endpoints=(endpoint,))
    files = FileWatch(tmp_path, lambda: agent.pids)
    with files.watching():
        await agent.open()
        await agent.done("inspect:db", InspectSystem(endpoint=endpoint))
        ended = await agent.done("tune", apply)
        assert isinstance(ended.result, TuningDone)
        assert [state.outcome for state in ended.result.states] == ["applied"]
        assert stored(server) == "67MB"
        looks = files.looks
        await eventually_async(lambda: files.looks > looks + 1, "it looks")
        await agent.kill()
        looks = files.looks
        await eventually_async(lambda: files.looks > looks + 1, "it looks")
        assert files.hits == set()
        await agent.start()
        assert "memory' of an earlier run: residue; db: ALTER SYSTEM RESET work_mem could not be undone" in agent.log
        assert "its password is not kept on disk: resume run r, or run a plan that tunes this database" in agent.log
        assert stored(server) == "67MB"
        await agent.open()
        ended = await agent.done("tune", apply)
        assert isinstance(ended.result, TuningDone)
        assert "tuning 'memory' of an earlier run: reverted" in agent.log
        assert [state.outcome for state in ended.result.states] == ["applied"], (
            "it was as before when it was tuned again"
        )
        assert agent.session is not None
        await agent.session.close()
        agent.session = None
        await eventually_async(lambda: stored(server) == "", "it is reverted")
    assert files.hits == set()
    assert {"journal.sqlite-wal", "undo.sqlite-wal", "undo.sqlite", "audit.log", "log"} <= files.read
    assert not (tmp_path / "machine").exists()

"""After a kill of the agent, the supervisor or the postmaster, no process, socket, shared memory or temporary directory
is left."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg
import pytest

from proveout.agent.engines.embedded import supervisor
from proveout.agent.engines.embedded.supervisor_client import SupervisorClient
from proveout.agent.engines.embedded.workspace import is_locked
from proveout.agent.engines.postgres.provision import Server
from proveout.agent.errors import TaskFault
from proveout.dsl.plan.topology import System

pytestmark = pytest.mark.server

PATIENCE_S = 60.0
SYSTEM = System(name="db", engine="postgres", host="h", provision="embedded")

AGENT = """
import json, os, sys
from pathlib import Path
from proveout.agent.engines.postgres.provision import Server
from proveout.dsl.plan.topology import System
server = Server(System(name="db", engine="postgres", host="h", provision="embedded"), Path(sys.argv[1]))
print("begun", flush=True)
server.start()
if os.fork() == 0:
    # A child that holds the agent's end of the supervisor's pipe, as a forked load worker would.
    print(json.dumps({"child": os.getpid(), "supervisor": server.supervisor_pid, "postmaster": server.pid,
                      "session": str(server.session), "data": str(server.data), "dsn": server.dsn}), flush=True)
sys.stdin.read()
"""


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def below(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [descendant for child in children for descendant in (int(child), *below(int(child)))]


def shared_memory_of(pid: int) -> list[str]:
    rows = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return [row for row in rows if int(row.split()[4]) == pid]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    process: subprocess.Popen[str]
    child: int
    supervisor: int
    postmaster: int
    session: Path
    data: Path
    dsn: str


def spawn(root: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", AGENT, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """A process that has started a server like an agent, and waits."""
    with spawn(tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        state = json.loads(process.stdout.readline())
        session, data = Path(state.pop("session")), Path(state.pop("data"))
        agent = Agent(process=process, session=session, data=data, **state)
        yield agent
        process.kill()
        os.kill(agent.child, signal.SIGKILL)
    assert eventually(lambda: not alive(agent.supervisor) and not alive(agent.postmaster))
    Server(SYSTEM, tmp_path).close(keep_data=False)
    shutil.rmtree(agent.session, ignore_errors=True)


def test_agent_killed(agent: Agent) -> None:
    processes = [agent.supervisor, *below(agent.supervisor)]
    assert len(processes) > 5
    assert is_locked(agent.session)
    agent.process.kill()
    agent.process.wait()
    assert alive(agent.child)
    assert eventually(lambda: not any(map(alive, processes)))
    assert not agent.session.exists()
    assert not shared_memory_of(agent.postmaster)
    assert agent.data.is_dir()
    assert not (agent.data / "postmaster.pid").exists()


def test_agent_killed_while_a_session_is_busy(agent: Agent) -> None:
    with contextlib.closing(psycopg.connect(agent.dsn, autocommit=True)) as connection:
        connection.execute("CREATE TABLE t AS SELECT generate_series(1, 1000) AS n")
        connection.execute("BEGIN")
        connection.execute("UPDATE t SET n = 0")
        processes = [agent.supervisor, *below(agent.supervisor)]
        agent.process.kill()
        assert eventually(lambda: not any(map(alive, processes)))
    assert not agent.session.exists()


def test_supervisor_killed(agent: Agent) -> None:
    processes = below(agent.supervisor)
    os.kill(agent.supervisor, signal.SIGKILL)
    assert eventually(lambda: not any(map(alive, processes)))
    assert not shared_memory_of(agent.postmaster)


def test_supervisor_and_agent_killed_at_once(agent: Agent) -> None:
    processes = below(agent.supervisor)
    os.kill(agent.supervisor, signal.SIGKILL)
    agent.process.kill()
    assert eventually(lambda: not any(map(alive, processes)))
    # No process is left to remove the folder. It is not locked, so the next start on the host removes it.
    assert not is_locked(agent.session)


@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.15, 0.3])
def test_agent_killed_while_it_starts(tmp_path: Path, delay_s: float) -> None:
    with spawn(tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        time.sleep(delay_s)
        processes = below(process.pid)
        process.kill()
        process.wait()
        assert eventually(lambda: not any(map(alive, processes)))
        line = process.stdout.readline()
        if line:
            os.kill(json.loads(line)["child"], signal.SIGKILL)
    server = Server(SYSTEM, tmp_path)
    try:
        assert server.start().provisioned
    finally:
        server.close(keep_data=False)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[Server, threading.Event, list[str]]]:
    died, deaths = threading.Event(), list[str]()

    def on_death(text: str) -> None:
        deaths.append(text)
        died.set()

    server = Server(SYSTEM, tmp_path, on_death)
    server.start()
    yield server, died, deaths
    server.close(keep_data=False)


def test_a_killed_postmaster_is_reported_and_its_backends_are_killed(
    watched: tuple[Server, threading.Event, list[str]],
) -> None:
    server, died, deaths = watched
    pid, session = server.pid, server.session
    assert pid is not None
    with contextlib.closing(psycopg.connect(server.dsn)) as connection:
        # A backend in one long computation does not check whether its postmaster runs.
        connection.pgconn.send_query(
            b"SELECT sum(a * b) FROM generate_series(1, 100000) a, generate_series(1, 100000) b"
        )
        processes = below(pid)
        os.kill(pid, signal.SIGKILL)
        assert died.wait(PATIENCE_S)
    assert "signal SIGKILL" in deaths[0]
    assert "signal SIGKILL" in (server.death or "")
    assert not any(map(alive, processes))
    assert not shared_memory_of(pid)
    server.close(keep_data=True)
    assert not session.exists()


def test_a_server_starts_again_after_its_death(watched: tuple[Server, threading.Event, list[str]]) -> None:
    server, died, _ = watched
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    assert died.wait(PATIENCE_S)
    server.start()
    assert server.death is None
    with psycopg.connect(server.dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_killed_supervisor_is_reported_and_requests_fail_with_the_cause(
    watched: tuple[Server, threading.Event, list[str]],
) -> None:
    server, died, deaths = watched
    supervisor, session = server.supervisor_pid, server.session
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    assert died.wait(PATIENCE_S)
    assert "supervisor process was killed" in deaths[0]
    with pytest.raises(TaskFault, match="supervisor process was killed"):
        server.save_snapshot()
    # The old postmaster may still be shutting down: the new one waits for it.
    server.start()
    with psycopg.connect(server.dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert not session.exists()


def test_closing_a_session_does_not_report_a_death(tmp_path: Path) -> None:
    deaths: list[str] = []
    server = Server(SYSTEM, tmp_path, deaths.append)
    server.start()
    server.stop()
    server.start()
    server.close(keep_data=False)
    server.close(keep_data=False)
    assert deaths == []
    assert server.death is None


def test_a_late_answer_is_not_used_for_the_next_request() -> None:
    client = SupervisorClient(lambda _: None)
    try:
        with pytest.raises(TaskFault) as caught:
            client.request(
                "run", timeout_s=0.05, limit_s=60.0, argv=["/bin/sleep", "0.3"], environment={}, identity="agent"
            )
        assert caught.value.code == "timeout"
        assert client.request("reach", path="/") == {"id": 2, "reachable": True}
    finally:
        client.end()


def test_a_program_is_killed_at_its_timeout_and_a_failed_one_is_quoted() -> None:
    client = SupervisorClient(lambda _: None)
    try:
        with pytest.raises(TaskFault, match="did not end"):
            client.run(["/bin/sleep", "60"], {}, limit_s=0.1, identity="agent")
        with pytest.raises(TaskFault, match=r"exit code 1.*cannot stat"):
            client.run(["/bin/cp", "/no/such/file", "/no/where"], {"LC_ALL": "C"}, limit_s=60.0, identity="agent")
        with pytest.raises(TaskFault, match="unknown request dance"):
            client.request("dance")
    finally:
        client.end()


def test_the_processes_of_a_server_are_found_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass for each process takes 15 s at 1,000 connections, in which the server works on."""
    shell = "for n in 1 2 3 4; do sleep 60 & done; (sleep 60; true) & echo; wait"
    top = subprocess.Popen(["/bin/sh", "-c", shell], stdout=subprocess.PIPE)
    assert top.stdout is not None
    top.stdout.readline()
    passes, listed = [], os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: passes.append(path) or listed(path))
    try:
        assert eventually(lambda: len(psutil.Process(top.pid).children(recursive=True)) == 6)
        passes.clear()
        found = supervisor._descendants(top.pid)
        assert passes == ["/proc"]
        assert {*found} == {one.pid for one in psutil.Process(top.pid).children(recursive=True)}
    finally:
        for pid in [*supervisor._descendants(top.pid), top.pid]:
            os.kill(pid, signal.SIGKILL)
        top.communicate()

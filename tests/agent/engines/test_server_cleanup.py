"""Of servers whose agent, supervisor or postmaster was killed nothing is left: no process, socket, shared memory or
temporary folder, at once or after the start of the next session on the host."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from eventually import PATIENCE_S, eventually
from fabric_bench import is_gone

from proveout.agent.engines.embedded import data_store, supervisor
from proveout.agent.engines.embedded import supervisor as embedded_supervisor
from proveout.agent.engines.embedded.workspace import SupervisorClient, is_locked
from proveout.agent.engines.postgres.provision import Server
from proveout.agent.errors import TaskFault
from proveout.dsl.plan.topology import System

pytestmark = pytest.mark.server

SYSTEM = System(name="db", engine="postgres", host="h", provision="embedded", settings=(("fsync", "off"),))
BUSY = b"SELECT sum(a * b) FROM generate_series(1, 100000) a, generate_series(1, 100000) b"
"""A backend in one long computation does not check whether its postmaster runs."""
AGENT = """
import json, os, sys
from pathlib import Path
from proveout.agent.engines.postgres.provision import Server
from proveout.dsl.plan.topology import System
settings = (("fsync", "off"),)
server = Server(System(name="db", engine="postgres", host="h", provision="embedded", settings=settings), Path(sys.argv[1]))
print("begun", flush=True)
server.start()
if os.fork() == 0:
    # A child that holds the agent's end of the supervisor's pipe, as a forked load worker would.
    print(json.dumps({"child": os.getpid(), "supervisor": server.supervisor_pid, "postmaster": server.pid,
                      "session": str(server.session), "data": str(server.data), "dsn": server.dsn}), flush=True)
    sys.stdin.read()
    os._exit(0)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data root for the servers of the module, whose data is made once."""
    folder = tmp_path_factory.mktemp("data-root")
    yield folder
    Server(SYSTEM, folder).close(keep_data=False)


@contextlib.contextmanager
def agent(root: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that starts a server like an agent, and waits; it has just begun. It is killed at the end."""
    argv = [sys.executable, "-c", AGENT, str(root)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "begun\n"
            yield process
        finally:
            process.kill()


def started(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait until its server runs: the processes `child`, `supervisor` and `postmaster`, and where the server is."""
    assert process.stdout is not None
    found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


def below(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [descendant for child in children for descendant in (int(child), *below(int(child)))]


def kill(*pids: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def shared_memory_of(pid: int) -> list[str]:
    """System V segments that the process has made."""
    rows = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return [row for row in rows if int(row.split()[4]) == pid]


def test_agent_killed_while_a_session_is_busy(root: Path) -> None:
    with agent(root) as process:
        state = started(process)
        session, data = Path(state["session"]), Path(state["data"])
        processes = [state["supervisor"], *below(state["supervisor"])]
        assert len(processes) > 5
        assert is_locked(session)
        with contextlib.closing(psycopg.connect(state["dsn"], autocommit=True)) as connection:
            connection.pgconn.send_query(BUSY)
            process.kill()
            process.wait()
            assert not is_gone(state["child"])
            eventually(lambda: all(map(is_gone, processes)), "the end of the server")
        assert not session.exists()
        assert not shared_memory_of(state["postmaster"])
        assert data.is_dir()
        assert not (data / "postmaster.pid").exists()


def test_agent_and_supervisor_killed(root: Path) -> None:
    with agent(root) as process:
        state = started(process)
        processes = below(state["supervisor"])
        kill(state["supervisor"], process.pid)
        eventually(lambda: all(map(is_gone, processes)), "the end of the server")
        assert not shared_memory_of(state["postmaster"])
        # No process is left to remove the folder. It is not locked, so the next start on the host removes it.
        assert not is_locked(Path(state["session"]))
    shutil.rmtree(state["session"], ignore_errors=True)


def test_agent_killed_while_it_starts(root: Path) -> None:
    with agent(root) as process:
        processes = eventually(lambda: below(process.pid), "a supervisor")
        process.kill()
        process.wait()
        eventually(lambda: all(map(is_gone, processes)), "the end of the start")
    server = Server(SYSTEM, root)
    try:
        assert server.start().provisioned
    finally:
        server.close(keep_data=True)


def test_a_killed_postmaster_and_a_killed_supervisor_are_reported_and_nothing_of_theirs_is_left(root: Path) -> None:
    deaths: list[str] = []
    server = Server(SYSTEM, root, deaths.append)
    try:
        server.start()
        pid = server.pid
        assert pid is not None
        with contextlib.closing(psycopg.connect(server.dsn)) as connection:
            connection.pgconn.send_query(BUSY)
            processes = below(pid)
            os.kill(pid, signal.SIGKILL)
            eventually(lambda: deaths, "the report of the death")
        assert "signal SIGKILL" in deaths[0]
        assert "signal SIGKILL" in (server.death or "")
        assert all(map(is_gone, processes))
        assert not shared_memory_of(pid)
        server.start()
        assert server.death is None
        assert works(server)

        supervisor, session, pid = server.supervisor_pid, server.session, server.pid
        assert supervisor is not None and pid is not None
        os.kill(supervisor, signal.SIGKILL)
        eventually(lambda: len(deaths) == 2, "the report of the supervisor's death")
        assert "supervisor process was killed" in deaths[1]
        with pytest.raises(TaskFault, match="supervisor process was killed"):
            server.save_snapshot()
        # The old postmaster may still be shutting down: the new one waits for it.
        server.start()
        assert works(server)
        assert not shared_memory_of(pid)
        assert not session.exists()
        session = server.session
        server.close(keep_data=True)
        assert not session.exists()
        assert len(deaths) == 2, "the end of a session is no death"
    finally:
        server.close(keep_data=True)


def works(server: Server) -> bool:
    with psycopg.connect(server.dsn) as connection:
        return connection.execute("SELECT 1").fetchone() == (1,)


def test_a_late_answer_is_not_used_for_the_next_request() -> None:
    client = SupervisorClient(lambda _: None)
    try:
        with pytest.raises(TaskFault) as caught:
            client.request(
                "run", timeout_s=0.05, limit_s=60.0, argv=["/bin/sleep", "0.2"], environment={}, identity="agent"
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
        eventually(lambda: len(psutil.Process(top.pid).children(recursive=True)) == 6, "six processes")
        passes.clear()
        found = supervisor._descendants(top.pid)
        assert passes == ["/proc"]
        assert {*found} == {one.pid for one in psutil.Process(top.pid).children(recursive=True)}
    finally:
        for pid in [*supervisor._descendants(top.pid), top.pid]:
            os.kill(pid, signal.SIGKILL)
        top.communicate()


# ---- by the next session ---------------------------------------------------------------------------------------------


def segments() -> set[int]:
    """Identifiers of System V segments."""
    return {int(row.split()[1]) for row in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]}


def processes_in(folder: Path) -> set[int]:
    """Running processes whose working directory is the folder."""
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "cwd").samefile(folder):
                found.add(int(entry.name))
    return found


def test_a_backend_without_supervisor_and_postmaster_is_killed_by_the_next_session(root: Path) -> None:
    """The backend holds the shared memory, which would keep PostgreSQL from starting on its data again."""
    with agent(root) as process:
        state = started(process)
        data = Path(state["data"])
        with contextlib.closing(psycopg.connect(state["dsn"], autocommit=True)) as connection:
            connection.pgconn.send_query(BUSY)
            pid = connection.info.backend_pid
            os.kill(state["supervisor"], signal.SIGSTOP)  # so that it cannot clean up between the two kills
            os.kill(state["postmaster"], signal.SIGKILL)
            os.kill(state["supervisor"], signal.SIGKILL)
            process.kill()
            process.wait()
            eventually(lambda: not is_locked(Path(state["session"])), "the end of the supervisor")
            assert pid in processes_in(data)
            server = Server(SYSTEM, root)
            try:
                server.start()
                assert pid not in processes_in(data)
                assert not Path(state["session"]).exists()
            finally:
                server.close(keep_data=True)


def attached(key: int, *, hold: bool) -> tuple[subprocess.Popen[str], int]:
    """A process that creates a segment of this key and exits at once; with `hold` it stays."""
    code = f"""
import ctypes, sys
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
identifier = libc.shmget({key}, 56, 0o1600)
libc.shmat(identifier, None, 0)
print(identifier, flush=True)
if {hold}:
    sys.stdin.read()
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    identifier = int(process.stdout.readline())
    if not hold:
        process.wait()
    return process, identifier


@pytest.mark.parametrize(
    ("offset", "hold", "uid", "removed"),
    [(0, False, 0, True), (3, False, 0, True), (100_000, False, 0, False), (0, True, 0, False), (0, False, 1, False)],
    ids=["its key", "a key after it", "another key", "attached", "another user's"],
)
def test_only_a_dead_servers_own_segment_is_removed(
    tmp_path: Path, offset: int, hold: bool, uid: int, removed: bool
) -> None:
    entry: dict[str, Any] = embedded_supervisor.entry_of(str(tmp_path), "/usr/bin/postgres", os.geteuid() + uid)
    key = ctypes.c_int32(entry["inode"] + offset).value
    process, identifier = attached(key, hold=hold)
    try:
        assert identifier in segments()
        embedded_supervisor.clear(entry)
        assert (identifier not in segments()) == removed
    finally:
        process.communicate()
        embedded_supervisor.LIBC.shmctl(identifier, embedded_supervisor.IPC_RMID, None)


def test_only_the_servers_program_of_the_servers_user_in_its_data_is_killed(tmp_path: Path) -> None:
    data, other = tmp_path / "data", tmp_path / "other"
    data.mkdir()
    other.mkdir()
    here, elsewhere = (subprocess.Popen(["/bin/sleep", "60"], cwd=folder) for folder in (data, other))
    program = str(Path(f"/proc/{here.pid}/exe").readlink())
    try:
        for wrong in (
            embedded_supervisor.entry_of(str(data), "/usr/bin/postgres", None),
            embedded_supervisor.entry_of(str(data), program, os.geteuid() + 1) | {"uid": os.geteuid() + 1},
        ):
            embedded_supervisor.clear(wrong)
            assert here.poll() is None
        entry = embedded_supervisor.entry_of(str(data), program, None)
        data.rename(other / "data")  # as the data of another session that has the inode of a removed directory
        embedded_supervisor.clear(entry)
        assert here.poll() is None
        (other / "data").rename(tmp_path / "in place")
        embedded_supervisor.clear(entry)
        assert here.wait(PATIENCE_S) == -signal.SIGKILL
        assert elsewhere.poll() is None
    finally:
        for process in (here, elsewhere):
            process.kill()
            process.wait()


def test_a_session_without_a_supervisor_is_removed_and_one_in_creation_is_kept(tmp_path: Path) -> None:
    killed, new = tmp_path / f"{data_store.SESSION_PREFIX}killed", tmp_path / f"{data_store.SESSION_PREFIX}new"
    for folder in (killed, new):
        folder.mkdir()
    embedded_supervisor.note(str(killed), embedded_supervisor.entry_of(str(tmp_path), "postgres", None))
    with (killed / embedded_supervisor.FILE).open("a") as file:
        file.write('{"device": ')  # the supervisor was killed in the middle of a line
    assert len(embedded_supervisor.read(str(killed))) == 1
    data_store.sweep((tmp_path,), locked=lambda _: False)
    assert (killed.exists(), new.exists()) == (False, True)


def test_a_later_process_with_the_number_of_the_maker_is_not_the_maker() -> None:
    now_s = int(time.time())
    assert embedded_supervisor._lives(os.getpid(), now_s)
    assert not embedded_supervisor._lives(os.getpid(), now_s - 86_400), "this process began after that"

"""Of servers whose agent, supervisor or postmaster was killed nothing is left: no process, socket, shared memory or
temporary folder, at once or after the start of the next session on the host."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from embedded_servers import ask, embedded
from eventually import PATIENCE_S, eventually
from fabric_bench import is_gone

from proveout.agent.engines.embedded import data_store, supervisor
from proveout.agent.engines.embedded.workspace import SupervisorClient, is_locked
from proveout.agent.errors import TaskFault

pytestmark = pytest.mark.server

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
    print(json.dumps({"child": os.getpid(), "supervisor": server._at.supervisor.pid, "postmaster": server.pid,
                      "session": str(server.session), "data": str(server.data), "dsn": server.dsn}), flush=True)
    sys.stdin.read()
    os._exit(0)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data root for the servers of the module, whose data is made once."""
    folder = tmp_path_factory.mktemp("data-root")
    with embedded(folder):
        yield folder


@pytest.fixture
def client() -> Iterator[SupervisorClient]:
    made = SupervisorClient(lambda _: None)
    yield made
    made.end()


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


def started(process: subprocess.Popen[str]) -> SimpleNamespace:
    """Wait until its server runs: the processes `child`, `supervisor` and `postmaster`, and where the server is."""
    assert process.stdout is not None
    found = json.loads(process.stdout.readline())
    return SimpleNamespace(**{**found, "session": Path(found["session"]), "data": Path(found["data"])})


@contextlib.contextmanager
def busy(dsn: str) -> Iterator[int]:
    """A backend, by its process id, that computes."""
    with contextlib.closing(psycopg.connect(dsn)) as connection:
        connection.pgconn.send_query(BUSY)
        yield connection.info.backend_pid


def below(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [descendant for child in children for descendant in (int(child), *below(int(child)))]


def end_of(processes: list[int]) -> None:
    eventually(lambda: all(map(is_gone, processes)), "the end of the server")


def segments() -> dict[int, int]:
    """System V segments -> the processes that have made them."""
    rows = (row.split() for row in Path("/proc/sysvipc/shm").read_text().splitlines()[1:])
    return {int(row[1]): int(row[4]) for row in rows}


def test_agent_killed_while_a_session_is_busy(root: Path) -> None:
    with agent(root) as process:
        state = started(process)
        processes = [state.supervisor, *below(state.supervisor)]
        assert len(processes) > 5
        assert is_locked(state.session)
        with busy(state.dsn):
            process.kill()
            process.wait()
            assert not is_gone(state.child)
            end_of(processes)
        assert not state.session.exists()
        assert state.postmaster not in segments().values()
        assert state.data.is_dir()
        assert not (state.data / "postmaster.pid").exists()


def test_agent_and_supervisor_killed(root: Path) -> None:
    with agent(root) as process:
        state = started(process)
        processes = below(state.supervisor)
        os.kill(state.supervisor, signal.SIGKILL)
        process.kill()
        end_of(processes)
        assert state.postmaster not in segments().values()
        # No process is left to remove the folder. It is not locked, so the next start on the host removes it.
        assert not is_locked(state.session)
    shutil.rmtree(state.session, ignore_errors=True)


def test_agent_killed_while_it_starts(root: Path) -> None:
    with agent(root) as process:
        processes = eventually(lambda: below(process.pid), "a supervisor")
        process.kill()
        process.wait()
        end_of(processes)
    with embedded(root, keep_data=True) as server:
        assert server.start().provisioned


def test_a_killed_postmaster_and_a_killed_supervisor_are_reported_and_nothing_of_theirs_is_left(root: Path) -> None:
    deaths: list[str] = []
    with embedded(root, keep_data=True, on_death=deaths.append) as server:
        server.start()
        pid = server.pid
        with busy(server.dsn):
            processes = below(pid)
            os.kill(pid, signal.SIGKILL)
            eventually(lambda: deaths, "the report of the death")
        assert "signal SIGKILL" in deaths[0]
        assert "signal SIGKILL" in server.death
        assert all(map(is_gone, processes))
        assert pid not in segments().values()
        server.start()
        assert server.death is None
        assert ask(server.dsn, "SELECT 1") == [(1,)]

        session, pid = server.session, server.pid
        os.kill(server._at.supervisor.pid, signal.SIGKILL)
        eventually(lambda: len(deaths) == 2, "the report of the supervisor's death")
        assert "supervisor process was killed" in deaths[1]
        with pytest.raises(TaskFault, match="supervisor process was killed"):
            server.save_snapshot()
        # The old postmaster may still be shutting down: the new one waits for it.
        server.start()
        assert ask(server.dsn, "SELECT 1") == [(1,)]
        assert pid not in segments().values()
        assert not session.exists()
        session = server.session
        server.close(keep_data=True)
        assert not session.exists()
        assert len(deaths) == 2, "the end of a session is no death"


def test_a_late_answer_is_not_used_for_the_next_request(client: SupervisorClient) -> None:
    nap: Any = {"argv": ["/bin/sleep", "0.2"], "environment": {}, "identity": "agent", "limit_s": 60.0}
    with pytest.raises(TaskFault) as caught:
        client.request("run", timeout_s=0.05, **nap)
    assert caught.value.code == "timeout"
    assert client.request("reach", path="/") == {"id": 2, "reachable": True}


def test_a_program_is_killed_at_its_timeout_and_a_failed_one_is_quoted(client: SupervisorClient) -> None:
    with pytest.raises(TaskFault, match="did not end"):
        client.run(["/bin/sleep", "60"], limit_s=0.1, identity="agent")
    with pytest.raises(TaskFault, match=r"exit code 1.*cannot stat"):
        client.run(["/bin/cp", "/no/such/file", "/no/where"], limit_s=60.0, identity="agent")
    with pytest.raises(TaskFault, match="unknown request dance"):
        client.request("dance")


def test_the_processes_of_a_server_are_found_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass for each process takes 15 s at 1,000 connections, in which the server works on."""
    shell = "for n in 1 2 3 4; do sleep 60 & done; (sleep 60; true) & wait"
    passes: list[str] = []
    listed = os.listdir

    def watched(path: str) -> list[str]:
        passes.append(path)
        return listed(path)

    with subprocess.Popen(["/bin/sh", "-c", shell]) as top:
        eventually(lambda: len(below(top.pid)) == 6, "six processes")
        monkeypatch.setattr(os, "listdir", watched)
        found = supervisor._descendants(top.pid)
        try:
            assert passes == ["/proc"]
            assert {*found} == {*below(top.pid)}
        finally:
            for pid in (*found, top.pid):
                os.kill(pid, signal.SIGKILL)


# ---- by the next session ---------------------------------------------------------------------------------------------


def test_a_backend_without_supervisor_and_postmaster_is_killed_by_the_next_session(root: Path) -> None:
    """The backend holds the shared memory, which would keep PostgreSQL from starting on its data again."""
    with agent(root) as process:
        state = started(process)
        with busy(state.dsn) as backend:
            os.kill(state.supervisor, signal.SIGSTOP)  # so that it cannot clean up between the two kills
            os.kill(state.postmaster, signal.SIGKILL)
            os.kill(state.supervisor, signal.SIGKILL)
            process.kill()
            process.wait()
            eventually(lambda: not is_locked(state.session), "the end of the supervisor")
            assert not is_gone(backend)
            with embedded(root, keep_data=True) as server:
                server.start()
                assert is_gone(backend)
                assert not state.session.exists()


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
    entry: dict[str, Any] = supervisor.entry_of(str(tmp_path), "/usr/bin/postgres", os.geteuid() + uid)
    key = ctypes.c_int32(entry["inode"] + offset).value
    process, identifier = attached(key, hold=hold)
    try:
        assert identifier in segments()
        supervisor.clear(entry)
        assert (identifier not in segments()) == removed
    finally:
        process.communicate()
        supervisor.LIBC.shmctl(identifier, supervisor.IPC_RMID, None)


def test_only_the_servers_program_of_the_servers_user_in_its_data_is_killed(tmp_path: Path) -> None:
    data, other = tmp_path / "data", tmp_path / "other"
    data.mkdir()
    other.mkdir()
    here, elsewhere = (subprocess.Popen(["/bin/sleep", "60"], cwd=folder) for folder in (data, other))
    program = str(Path(f"/proc/{here.pid}/exe").readlink())
    try:
        for wrong in (
            supervisor.entry_of(str(data), "/usr/bin/postgres", None),
            supervisor.entry_of(str(data), program, os.geteuid() + 1) | {"uid": os.geteuid() + 1},
        ):
            supervisor.clear(wrong)
            assert here.poll() is None
        entry = supervisor.entry_of(str(data), program, None)
        data.rename(other / "data")  # as the data of another session that has the inode of a removed directory
        supervisor.clear(entry)
        assert here.poll() is None
        (other / "data").rename(tmp_path / "in place")
        supervisor.clear(entry)
        assert here.wait(PATIENCE_S) == -signal.SIGKILL
        assert elsewhere.poll() is None
    finally:
        for process in (here, elsewhere):
            process.kill()
            process.wait()


def test_what_killed_sessions_have_left_is_removed_and_what_is_made_or_held_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_store, "ELSEWHERE", tmp_path)
    store = data_store.make_store(data_store.home(tmp_path / "runs", "db"), None, lambda _: False)
    orphan = tmp_path / f"{data_store.STORE_PREFIX}orphan"
    killed, new, held = (tmp_path / f"{data_store.SESSION_PREFIX}{name}" for name in ("killed", "new", "held"))
    for folder in (orphan, killed, new, held):
        folder.mkdir()
    (orphan / "owner").write_text(str(tmp_path / "gone" / "system.json"))
    for session in (killed, held):
        supervisor.note(str(session), supervisor.entry_of(str(tmp_path), "postgres", None))
    with (killed / supervisor.FILE).open("a") as file:
        file.write('{"device": ')  # the supervisor was killed in the middle of a line
    assert len(supervisor.read(str(killed))) == 1

    def left() -> set[Path]:
        data_store.sweep((tmp_path,), locked=lambda path: path == held)
        return {path for path in (Path(store.store), orphan, killed, new, held) if path.exists()}

    assert left() == {Path(store.store), orphan, new, held}, "the orphan is too young"
    monkeypatch.setattr(data_store, "SWEEP_AGE_S", -1.0)
    assert left() == {Path(store.store), held}
    (Path(store.store) / "owner").unlink()
    data_store.remove(tmp_path / "runs" / "db")  # again, after a kill in the middle
    assert left() == {held}


@pytest.mark.parametrize(
    ("field", "value"), [("store", "/etc"), ("store", "/var/tmp/proveout-store-../x"), ("uid", 0), ("uid", 1000)]
)
def test_a_state_file_with_foreign_paths_or_users_is_refused(tmp_path: Path, field: str, value: Any) -> None:
    folder = data_store.home(tmp_path, "db")
    state = data_store.make_store(folder, None, lambda _: True)
    data_store.write_state(folder, dataclasses.replace(state, **{field: value}))
    for touch in (data_store.read_state, data_store.remove):
        with pytest.raises(TaskFault, match="not its data"):
            touch(folder)


def test_a_later_process_with_the_number_of_the_maker_is_not_the_maker() -> None:
    now_s = int(time.time())
    assert supervisor._lives(os.getpid(), now_s)
    assert not supervisor._lives(os.getpid(), now_s - 86_400), "this process began after that"


def test_a_program_that_does_not_end_when_it_is_killed_ends_no_supervisor() -> None:
    serving = supervisor.Supervisor.__new__(supervisor.Supervisor)
    stub = {"_spawn": lambda *_: 1, "_ended": lambda *_, **__: False, "_kill": lambda _: None}
    vars(serving).update(stub, _statuses={})
    assert serving.run({"identity": "agent", "limit_s": 0.0}) == {"status": -9, "timed_out": True, "output": ""}


def test_a_new_child_has_not_the_status_of_an_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    serving = supervisor.Supervisor.__new__(supervisor.Supervisor)
    vars(serving).update(_statuses={7: 1, 8: 0})
    monkeypatch.setattr(os, "fork", lambda: 7)
    assert serving._spawn({"argv": ["/bin/true"]}, 1, None) == 7
    assert serving._statuses == {8: 0}

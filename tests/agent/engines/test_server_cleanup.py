"""Shared memory and backends of killed servers are removed by the start of the next session on the host."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import thorough

from proveout.agent.engines.embedded import data_store, server_cleanup
from proveout.agent.engines.embedded.account import choose_account
from proveout.agent.engines.embedded.workspace import is_locked
from proveout.agent.engines.postgres.provision import Server
from proveout.dsl.plan.topology import System

pytestmark = pytest.mark.server

PATIENCE_S = 60.0
SYSTEM = System(name="db", engine="postgres", host="h", provision="embedded")
KILLS = thorough.count(20, 8)
SEED = 51
BUSY = b"SELECT sum(a * b) FROM generate_series(1, 100000) a, generate_series(1, 100000) b"
CLONE_NEWNS, CLONE_NEWIPC = 0x00020000, 0x08000000
MS_REC, MS_PRIVATE = 1 << 14, 1 << 18

AGENT = """
import json, sys
from pathlib import Path
from proveout.agent.engines.postgres.provision import Server
from proveout.dsl.plan.topology import System
server = Server(System(name="db", engine="postgres", host="h", provision="embedded"), Path(sys.argv[1]))
print("begun", flush=True)
server.start()
print(json.dumps({"supervisor": server.supervisor_pid, "postmaster": server.pid, "session": str(server.session),
                  "data": str(server.data), "dsn": server.dsn}), flush=True)
sys.stdin.read()
"""


def segments() -> set[int]:
    """Identifiers of System V segments."""
    return {int(row.split()[1]) for row in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]}


def owned_by(uids: set[int]) -> set[int]:
    rows = [row.split() for row in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
    return {int(row[1]) for row in rows if int(row[7]) in uids}


def in_shm(uids: set[int]) -> set[str]:
    found = set()
    for path in Path("/dev/shm").glob("PostgreSQL.*"):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_uid in uids:
                found.add(path.name)
    return found


def processes_in(folder: Path) -> set[int]:
    """Running processes whose working directory is the folder."""
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "cwd").samefile(folder):
                found.add(int(entry.name))
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


def users() -> set[int]:
    """The users that servers and `initdb` run as."""
    account = choose_account()
    return {os.geteuid()} if account is None else {account.uid, account.initialise[0]}


@contextlib.contextmanager
def agent(root: Path) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-c", AGENT, str(root)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "begun\n"
            yield process
        finally:
            process.kill()


def next_session(root: Path) -> None:
    """A session of another system on the same host."""
    server = Server(SYSTEM, root)
    server.start()
    server.close(keep_data=False)


def many_kills(root: Path) -> None:
    """Kill the supervisor, the postmaster, the agent, or all of them, at a random time between the start of `initdb` and a
    busy server."""
    known = users()
    before, draw = (owned_by(known), in_shm(known)), random.Random(SEED)
    for number in range(KILLS):
        with agent(root / str(number)) as process:
            if number % 2:
                time.sleep(draw.uniform(0.0, 1.5))  # `initdb`, most of the time
                tree = below(process.pid)
                draw.shuffle(tree)
                kill(process.pid, *tree)
                continue
            assert process.stdout is not None
            state = json.loads(process.stdout.readline())
            victims = (["postmaster"], ["supervisor"], [], ["supervisor", "postmaster"])[number // 2 % 4]
            with contextlib.closing(psycopg.connect(state["dsn"], autocommit=True)) as connection:
                connection.pgconn.send_query(BUSY)
                kill(*(state[victim] for victim in victims), process.pid)
    next_session(root / "next")
    deadline = time.monotonic() + PATIENCE_S  # supervisors that were not killed end their servers
    while (owned_by(known) - before[0] or in_shm(known) - before[1]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert owned_by(known) - before[0] == set()
    assert in_shm(known) - before[1] == set()


def alone(work: Callable[[], None]) -> None:
    """Run `work` in a child process; as root in its own IPC namespace, without the servers of other users."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if os.geteuid() == 0:
                assert server_cleanup.LIBC.unshare(CLONE_NEWIPC | CLONE_NEWNS) == 0
                assert server_cleanup.LIBC.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) == 0
                assert server_cleanup.LIBC.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"mode=1777") == 0
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.thorough
def test_nothing_is_left_of_servers_that_were_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(
        dir="/var/tmp", prefix="p"
    ) as folder:  # a separate folder, so that no other process sweeps its sessions
        Path(folder).chmod(0o755)
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        alone(lambda: many_kills(tmp_path))


def test_a_backend_without_supervisor_and_postmaster_is_killed_by_the_next_session(tmp_path: Path) -> None:
    """The backend holds the shared memory, which would keep PostgreSQL from starting on its data again."""
    with agent(tmp_path) as process:
        assert process.stdout is not None
        state = json.loads(process.stdout.readline())
        data = Path(state["data"])
        with contextlib.closing(psycopg.connect(state["dsn"], autocommit=True)) as connection:
            connection.pgconn.send_query(BUSY)
            pid = connection.info.backend_pid
            os.kill(state["supervisor"], signal.SIGSTOP)  # so that it cannot clean up between the two kills
            os.kill(state["postmaster"], signal.SIGKILL)
            os.kill(state["supervisor"], signal.SIGKILL)
            process.kill()
            process.wait()
            deadline = time.monotonic() + PATIENCE_S
            while is_locked(Path(state["session"])) and time.monotonic() < deadline:
                time.sleep(0.01)
            assert pid in processes_in(data)
            server = Server(SYSTEM, tmp_path)
            try:
                server.start()
                assert pid not in processes_in(data)
                assert not Path(state["session"]).exists()
            finally:
                server.close(keep_data=False)


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
    entry: dict[str, Any] = server_cleanup.entry_of(str(tmp_path), "/usr/bin/postgres", os.geteuid() + uid)
    key = ctypes.c_int32(entry["inode"] + offset).value
    process, identifier = attached(key, hold=hold)
    try:
        assert identifier in segments()
        server_cleanup.clear(entry)
        assert (identifier not in segments()) == removed
    finally:
        process.communicate()
        server_cleanup.LIBC.shmctl(identifier, server_cleanup.IPC_RMID, None)


def test_only_the_servers_program_of_the_servers_user_in_its_data_is_killed(tmp_path: Path) -> None:
    data, other = tmp_path / "data", tmp_path / "other"
    data.mkdir()
    other.mkdir()
    here, elsewhere = (subprocess.Popen(["/bin/sleep", "60"], cwd=folder) for folder in (data, other))
    program = str(Path(f"/proc/{here.pid}/exe").readlink())
    try:
        for wrong in (
            server_cleanup.entry_of(str(data), "/usr/bin/postgres", None),
            server_cleanup.entry_of(str(data), program, os.geteuid() + 1) | {"uid": os.geteuid() + 1},
        ):
            server_cleanup.clear(wrong)
            assert here.poll() is None
        server_cleanup.clear(server_cleanup.entry_of(str(data), program, None))
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
    server_cleanup.note(str(killed), server_cleanup.entry_of(str(tmp_path), "postgres", None))
    with (killed / server_cleanup.FILE).open("a") as file:
        file.write('{"device": ')  # the supervisor was killed in the middle of a line
    assert len(server_cleanup.read(str(killed))) == 1
    data_store.sweep((tmp_path,), locked=lambda _: False)
    assert (killed.exists(), new.exists()) == (False, True)


def test_a_later_process_with_the_number_of_the_maker_is_not_the_maker() -> None:
    now_s = int(time.time())
    assert server_cleanup._lives(os.getpid(), now_s)
    assert not server_cleanup._lives(os.getpid(), now_s - 86_400), "this process began after that"

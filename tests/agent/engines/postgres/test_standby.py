"""Standbys of an embedded server: base backup, streaming, synchronous commits, promotion, and the return of the old
primary."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from proveout.agent.engines.embedded.server_role import ServerRole
from proveout.agent.engines.embedded.workspace import is_locked
from proveout.agent.engines.postgres.provision import Server
from proveout.agent.errors import TaskFault
from proveout.dsl.plan.topology import System

pytestmark = pytest.mark.server


class Group:
    """A primary `a` and its standby `b` below one folder."""

    def __init__(self, root: Path, *, synchronous: bool) -> None:
        self._synchronous = ("b",) if synchronous else ()
        self.primary, self.standby = (
            Server(System(name=name, engine="postgres", host="h", provision="embedded"), root) for name in "ab"
        )

    def start_primary(self) -> None:
        self.primary.take_role(ServerRole(standbys=("b",), synchronous=self._synchronous), self.primary._system)
        self.endpoint = self.primary.start()

    def start_standby(self) -> None:
        self.standby.take_role(ServerRole(primary=self.endpoint), self.standby._system)
        self.standby.start()

    def start(self) -> None:
        self.start_primary()
        self.start_standby()

    def kill_primary(self) -> None:
        assert self.primary.pid is not None
        os.kill(self.primary.pid, signal.SIGKILL)
        await_true(lambda: self.primary.death is not None)

    def close(self, *, keep_data: bool) -> None:
        self.standby.close(keep_data=keep_data)
        self.primary.close(keep_data=keep_data)


def processes(server: Server, kind: str) -> list[int]:
    """The process ids of one kind of a server's processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            parent = (path.parent / "stat").read_text().rpartition(")")[2].split()[1]
            if parent == str(server.pid) and kind in path.read_text():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def await_true(condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.01)


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="proveout-test-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def begin(root: Path) -> Iterator[Callable[..., Group]]:
    made: list[Group] = []

    def make(*, synchronous: bool = False) -> Group:
        group = Group(root, synchronous=synchronous)
        made.append(group)
        group.start()
        return group

    yield make
    for group in made:
        group.close(keep_data=False)


def run(server: Server, statement: str) -> None:
    with psycopg.connect(server.dsn) as connection:
        connection.execute(statement.encode())


def numbers(server: Server) -> list[int]:
    with psycopg.connect(server.dsn) as connection:
        return [row[0] for row in connection.execute("SELECT n FROM t ORDER BY n")]


def test_a_standby_is_level_when_it_has_started_and_refuses_writes(begin: Callable[..., Group], root: Path) -> None:
    group = begin()
    run(group.primary, "CREATE TABLE t AS SELECT 1 AS n")
    group.start_standby()  # of a standby that runs: level with what is committed by now
    assert numbers(group.standby) == [1]
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        run(group.standby, "INSERT INTO t VALUES (2)")
    pid = group.standby.pid
    group.start_standby()
    assert group.standby.pid == pid
    group.close(keep_data=True)
    group.start()
    assert "base backup" not in group.standby.note
    assert numbers(group.standby) == [1]
    group.close(keep_data=False)
    assert sorted(path.name for path in root.rglob("*") if path.is_file()) == ["server.log", "server.log"]


def test_a_killed_standby_follows_again_and_a_primary_is_not_promoted(begin: Callable[..., Group]) -> None:
    group = begin()
    run(group.primary, "CREATE TABLE t AS SELECT 1 AS n")
    group.standby.disturb("kill")
    run(group.primary, "INSERT INTO t VALUES (2)")
    group.standby.recover()
    group.start_standby()
    assert numbers(group.standby) == [1, 2]
    with pytest.raises(TaskFault, match="is not a running standby"):
        group.primary.disturb("promote")
    assert group.primary.superseded_by == ""


AGENT = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_standby import Group
group = Group(Path(sys.argv[1]), synchronous=False)
group.start()
group.primary.disturb("kill")
group.standby.disturb("promote")
print(group.primary.session, group.standby.session, group.standby.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_a_kill_of_the_agent_after_a_promotion_leaves_no_server_and_the_primary_keeps_its_data(
    root: Path, begin: Callable[..., Group]
) -> None:
    command = [sys.executable, "-c", AGENT, str(root), str(Path(__file__).parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        first, second, pid = agent.stdout.readline().split()
        agent.kill()
    await_true(lambda: not (Path(first).exists() or Path(second).exists() or Path("/proc", pid).exists()))
    await_true(lambda: not (is_locked(root / "a") or is_locked(root / "b")))
    group = begin()
    assert group.primary.superseded_by == ""
    assert group.primary.note.startswith(("took the data of b", "kept its own data"))
    run(group.primary, "CREATE TABLE t AS SELECT 1 AS n")
    group.start_standby()
    assert numbers(group.standby) == [1]


def test_a_standby_of_restored_data_is_copied_again(begin: Callable[..., Group]) -> None:
    group = begin()
    run(group.primary, "CREATE TABLE t AS SELECT 1 AS n")
    group.primary.save_snapshot()
    run(group.primary, "INSERT INTO t VALUES (2)")
    group.start_standby()
    assert numbers(group.standby) == [1, 2]
    group.primary.restore_snapshot()
    group.start_standby()
    assert group.standby.note == "a base backup of a"
    assert numbers(group.standby) == [1]


def test_a_commit_waits_for_a_synchronous_standby(begin: Callable[..., Group]) -> None:
    group = begin(synchronous=True)
    run(group.primary, "CREATE TABLE t AS SELECT 1 AS n")
    group.standby.stop()
    writer = threading.Thread(target=run, args=(group.primary, "INSERT INTO t VALUES (2)"))
    writer.start()
    # One transaction would see the sessions of its first query only, and the writer may connect after that.
    with psycopg.connect(group.primary.dsn, autocommit=True) as connection:
        query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        await_true(lambda: connection.execute(query).fetchone() == (1,))
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (1,)
    assert writer.is_alive()
    group.start_standby()
    writer.join(20.0)
    assert not writer.is_alive()
    assert numbers(group.standby) == [1, 2]


def test_the_old_primary_takes_the_history_of_the_promoted_standby(begin: Callable[..., Group]) -> None:
    group = begin()
    address = group.primary.dsn
    run(group.primary, "CREATE TABLE t AS SELECT 1 AS n")
    group.start_standby()
    (sender,) = processes(group.primary, "walsender")
    os.kill(sender, signal.SIGSTOP)
    run(group.primary, "INSERT INTO t VALUES (2)")  # acknowledged, and not on the standby
    group.primary.disturb("kill")
    assert (group.primary.state, group.standby.state, group.standby.is_standby) == ("down", "runs", True)
    group.standby.disturb("promote")
    done = group.standby.promotion
    assert done is not None and done.staleness_s is not None
    assert 0.0 <= done.staleness_s < 600.0
    assert (group.standby.state, group.standby.is_standby) == ("promoted", False)
    with pytest.raises(TaskFault, match="was promoted already"):
        group.standby.promote()
    run(group.standby, "INSERT INTO t VALUES (3)")
    group.primary.recover()  # the healing of its kill
    assert (group.primary.state, group.primary.superseded_by) == ("down", "b")
    group.standby.disturb("kill")
    group.standby.recover()
    assert group.standby.state == "promoted"
    assert numbers(group.standby) == [1, 3]

    group.start_primary()
    assert group.primary.superseded_by == "b"
    assert group.primary.pid is None
    group.standby.close(keep_data=True)
    group.start_primary()
    assert group.primary.superseded_by == ""
    assert "by pg_rewind" in group.primary.note
    assert group.primary.dsn == address
    assert numbers(group.primary) == [1, 3]
    group.start_standby()
    assert group.standby.note == ""
    run(group.primary, "INSERT INTO t VALUES (4)")
    group.start_standby()
    assert numbers(group.standby) == [1, 3, 4]

"""Standbys of an embedded MariaDB: replication by GTIDs, semi-synchronous commits, promotion, and the return of the old
primary."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pymysql
import pytest

from proveout.agent.engines.adapter import Tick
from proveout.agent.engines.embedded.server_role import ServerRole
from proveout.agent.engines.mysql.dsn import connect, parse
from proveout.agent.engines.mysql.lag import LagObserver
from proveout.agent.engines.mysql.provision import Server
from proveout.dsl.plan.topology import System

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("mysql_server")]  # skips without a server


class Group:
    """A primary `a` and its standby `b` below one folder."""

    def __init__(self, root: Path, *, synchronous: bool) -> None:
        self._role = ServerRole(standbys=("b",), synchronous=("b",) if synchronous else ())
        self.systems = {n: System(name=n, engine="mysql", host="h", provision="embedded") for n in "ab"}
        self.primary, self.standby = (Server(system, root) for system in self.systems.values())

    def start_primary(self) -> None:
        self.primary.take_role(self._role, self.systems["a"])
        self.endpoint = self.primary.start()

    def start_standby(self) -> None:
        self.standby.take_role(ServerRole(primary=self.endpoint), self.systems["b"])
        self.standby_endpoint = self.standby.start()

    def close(self, *, keep_data: bool) -> None:
        self.standby.close(keep_data=keep_data)
        self.primary.close(keep_data=keep_data)


@pytest.fixture
def begin() -> Iterator[Callable[..., Group]]:
    made: list[Group] = []
    with tempfile.TemporaryDirectory(prefix="proveout-test-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)

        def make(*, synchronous: bool = False) -> Group:
            group = Group(Path(folder), synchronous=synchronous)
            made.append(group)
            group.start_primary()
            group.start_standby()
            return group

        yield make
        for group in made:
            group.close(keep_data=False)
        assert sorted(path.name for path in Path(folder).rglob("*") if path.is_file()) == ["server.log", "server.log"]


def run(server: Server, statement: str) -> list[int]:
    with connect(parse(server.dsn)) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return [row[0] for row in cursor.fetchall()]


def await_true(condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_the_old_primary_takes_the_history_of_the_promoted_standby(begin: Callable[..., Group]) -> None:
    group = begin()
    run(group.primary, "CREATE TABLE t (n int PRIMARY KEY)")
    run(group.primary, "INSERT INTO t VALUES (1)")
    group.start_standby()  # of a standby that runs: level with what is committed by now
    assert run(group.standby, "SELECT n FROM t") == [1]
    with pytest.raises(pymysql.err.OperationalError, match="read-only"):
        run(group.standby, "INSERT INTO t VALUES (2)")
    observer = LagObserver(group.endpoint, group.standby_endpoint)
    readings = observer.look(Tick(at_ns=0, report=True, last=False))
    observer.close()
    assert [(one.metric, one.value) for one in readings or ()] == [("lag.seconds", 0.0), ("lag.transactions", 0)]
    group.primary.save_snapshot()
    run(group.primary, "INSERT INTO t VALUES (2)")
    group.primary.restore_snapshot()
    group.start_standby()
    assert group.standby.note == "a copy of the snapshot of a"
    assert run(group.standby, "SELECT n FROM t") == [1]

    assert group.primary.pid is not None
    group.standby.stop()
    run(group.primary, "INSERT INTO t VALUES (3)")  # acknowledged, and not on the standby
    os.kill(group.primary.pid, signal.SIGSTOP)
    group.standby._launch()
    pid = group.primary.pid
    os.kill(pid, signal.SIGKILL)
    await_true(lambda: group.primary.death is not None)
    assert group.standby.promote().staleness_s is None
    run(group.standby, "INSERT INTO t VALUES (4)")
    group.start_primary()
    assert (group.primary.superseded_by, group.primary.pid) == ("b", None)
    group.standby.close(keep_data=True)
    group.start_primary()
    assert group.primary.note.startswith("took the data of b in")
    assert run(group.primary, "SELECT n FROM t") == [1, 4]
    group.start_standby()
    assert group.standby.note == ""
    run(group.primary, "INSERT INTO t VALUES (5)")
    group.start_standby()
    assert run(group.standby, "SELECT n FROM t") == [1, 4, 5]


def test_a_commit_waits_for_a_synchronous_standby(begin: Callable[..., Group]) -> None:
    group = begin(synchronous=True)
    run(group.primary, "CREATE TABLE t (n int PRIMARY KEY)")
    group.standby.stop()
    writer = threading.Thread(target=run, args=(group.primary, "INSERT INTO t VALUES (1)"))
    writer.start()
    waiting = "SELECT count(*) FROM information_schema.PROCESSLIST WHERE STATE LIKE 'Waiting for semi-sync ACK%'"
    await_true(lambda: run(group.primary, waiting) == [1])
    assert writer.is_alive()
    group.start_standby()
    writer.join(20.0)
    assert not writer.is_alive()
    assert run(group.standby, "SELECT n FROM t") == [1]

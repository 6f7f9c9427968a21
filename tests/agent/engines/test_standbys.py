"""Standbys of an embedded server, of PostgreSQL and of MariaDB: a copy of the data, replication, synchronous commits,
promotion, and the return of the old primary."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from eventually import PATIENCE_S, eventually

from proveout.agent.engines.adapter import Tick
from proveout.agent.engines.embedded.data_store import ServerRole
from proveout.agent.engines.mysql.captures import LagObserver
from proveout.agent.engines.mysql.dsn import connect, parse
from proveout.agent.engines.mysql.provision import Server as MysqlServer
from proveout.agent.engines.postgres.provision import Server as PostgresServer
from proveout.agent.errors import TaskFault
from proveout.dsl.plan.topology import System

pytestmark = pytest.mark.server

SERVERS: dict[str, Any] = {"postgres": PostgresServer, "mysql": MysqlServer}
SETTINGS = {
    "postgres": (("fsync", "off"),),
    "mysql": (("innodb_flush_log_at_trx_commit", "2"), ("innodb_log_file_size", "8M")),
}
"""Commits do not wait for the disk, as no test cuts the power; and there is little to copy."""
COPIED = {"postgres": "a base backup of a", "mysql": "a copy of the snapshot of a"}
RETURNED = {"postgres": "by pg_rewind", "mysql": "took the data of b in"}
WAITING = {
    "postgres": "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'",
    "mysql": "SELECT count(*) FROM information_schema.PROCESSLIST WHERE STATE LIKE 'Waiting for semi-sync ACK%'",
}


class Group:
    """A primary `a` and its standby `b` below one folder."""

    def __init__(self, root: Path, engine: Any) -> None:
        self.engine = engine
        self.role = ServerRole(standbys=("b",))
        self._systems = [
            System(name=name, engine=engine, host="h", provision="embedded", settings=SETTINGS[engine]) for name in "ab"
        ]
        self.primary, self.standby = (SERVERS[engine](system, root) for system in self._systems)

    def start_primary(self) -> None:
        self.primary.take_role(self.role, self._systems[0])
        self.endpoint = self.primary.start()

    def start_standby(self) -> None:
        """Of a standby that runs: level with what is committed by now."""
        self.standby.take_role(ServerRole(primary=self.endpoint), self._systems[1])
        self.standby_endpoint = self.standby.start()

    def start(self) -> None:
        self.start_primary()
        self.start_standby()

    def lose(self, statement: str) -> None:
        """Run a statement that is acknowledged and not on the standby, and kill the primary."""
        if self.engine == "postgres":
            (sender,) = processes(self.primary.pid, "walsender")
            os.kill(sender, signal.SIGSTOP)
            run(self.primary, statement)
        else:
            self.standby.stop()
            run(self.primary, statement)
            os.kill(self.primary.pid, signal.SIGSTOP)
            self.standby._launch()
        self.primary.disturb("kill")

    def close(self, *, keep_data: bool) -> None:
        self.standby.close(keep_data=keep_data)
        self.primary.close(keep_data=keep_data)


def processes(parent: int, kind: str) -> list[int]:
    """The process ids of one kind of a server's processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            above = (path.parent / "stat").read_text().rpartition(")")[2].split()[1]
            if above == str(parent) and kind in path.read_text():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def run(server: Any, statement: str) -> list[int]:
    dsn = server.dsn
    opened: Any = connect(parse(dsn)) if dsn.startswith("mysql") else psycopg.connect(dsn, autocommit=True)
    with opened as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return [row[0] for row in cursor.fetchall()] if cursor.description else []


def numbers(server: Any) -> list[int]:
    return run(server, "SELECT n FROM t ORDER BY n")


@pytest.fixture(params=["postgres", "mysql"])
def group(request: pytest.FixtureRequest, package_folder: Path) -> Iterator[Group]:
    if request.param == "mysql":
        request.getfixturevalue("mariadb")  # skips without a server
    made = Group(package_folder, request.param)
    try:
        made.start()
        run(made.primary, "CREATE TABLE t (n int PRIMARY KEY)")
        run(made.primary, "INSERT INTO t VALUES (1)")
        made.start_standby()
        yield made
    finally:
        made.close(keep_data=False)
    files = sorted(path.name for path in package_folder.rglob("*") if path.is_file())
    assert files == ["server.log", "server.log"]


def test_a_standby_follows_its_primary_and_refuses_writes(group: Group) -> None:
    assert numbers(group.standby) == [1]
    with pytest.raises((psycopg.errors.ReadOnlySqlTransaction, pymysql.err.OperationalError), match="read-only"):
        run(group.standby, "INSERT INTO t VALUES (2)")
    if group.engine == "mysql":
        observer = LagObserver(group.endpoint, group.standby_endpoint)
        readings = observer.look(Tick(at_ns=0, report=True, last=False))
        observer.close()
        assert [(one.metric, one.value) for one in readings or ()] == [("lag.seconds", 0.0), ("lag.transactions", 0)]
    group.standby.disturb("kill")
    run(group.primary, "INSERT INTO t VALUES (2)")
    group.standby.recover()
    group.start_standby()
    assert numbers(group.standby) == [1, 2]
    with pytest.raises(TaskFault, match="is not a running standby"):
        group.primary.disturb("promote")
    assert group.primary.superseded_by == ""
    group.primary.save_snapshot()
    run(group.primary, "INSERT INTO t VALUES (3)")
    group.primary.restore_snapshot()
    group.start_standby()
    assert group.standby.note == COPIED[group.engine]
    assert numbers(group.standby) == [1, 2]
    pid = group.standby.pid
    group.start_standby()
    assert group.standby.pid == pid
    group.close(keep_data=True)

    group.role = ServerRole(standbys=("b",), synchronous=("b",))
    group.start()
    assert group.standby.note == ""
    assert numbers(group.standby) == [1, 2]
    group.standby.stop()
    writer = threading.Thread(target=run, args=(group.primary, "INSERT INTO t VALUES (3)"))
    writer.start()
    eventually(lambda: run(group.primary, WAITING[group.engine]) == [1], "a commit that waits for the standby")
    assert writer.is_alive()
    group.start_standby()
    writer.join(PATIENCE_S)
    assert not writer.is_alive()
    assert numbers(group.standby) == [1, 2, 3]


def test_the_old_primary_takes_the_history_of_the_promoted_standby(group: Group) -> None:
    address = group.primary.dsn
    group.lose("INSERT INTO t VALUES (2)")
    assert (group.primary.state, group.standby.state, group.standby.is_standby) == ("down", "runs", True)
    group.standby.disturb("promote")
    done = group.standby.promotion
    assert done is not None
    assert (done.staleness_s is not None) == (group.engine == "postgres")
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
    assert (group.primary.superseded_by, group.primary.pid) == ("b", None)
    group.standby.close(keep_data=True)
    group.start_primary()
    assert group.primary.superseded_by == ""
    assert RETURNED[group.engine] in group.primary.note
    assert group.primary.dsn == address
    assert numbers(group.primary) == [1, 3]
    group.start_standby()
    assert group.standby.note == ""
    run(group.primary, "INSERT INTO t VALUES (4)")
    group.start_standby()
    assert numbers(group.standby) == [1, 3, 4]

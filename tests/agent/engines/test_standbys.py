"""Standbys of an embedded server, of PostgreSQL and of MariaDB: a copy of the data, replication, synchronous commits,
promotion, and the return of the old primary."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pymysql
import pytest
from embedded_servers import SERVERS, ask, system
from eventually import PATIENCE_S, eventually

from proveout.agent.engines.adapter import Tick
from proveout.agent.engines.embedded.data_store import ServerRole
from proveout.agent.engines.mysql.captures import LagObserver
from proveout.agent.engines.mysql.dsn import connect, parse
from proveout.agent.errors import TaskFault

pytestmark = pytest.mark.server

COPIED = {"postgres": "a base backup of a", "mysql": "a copy of the snapshot of a"}
RETURNED = {"postgres": "by pg_rewind", "mysql": "took the data of b in"}
WAITING = {
    "postgres": "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'",
    "mysql": "SELECT count(*) FROM information_schema.PROCESSLIST WHERE STATE LIKE 'Waiting for semi-sync ACK%'",
}


class Group:
    """A primary `a` and its standby `b` below one folder."""

    def __init__(self, root: Path, engine: str) -> None:
        self.engine, self.role = engine, ServerRole(standbys=("b",))
        self._systems = [system(engine, name=name) for name in "ab"]
        self.primary, self.standby = (SERVERS[engine](one, root) for one in self._systems)

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

    def lose(self, number: int) -> None:
        """Insert a row that is acknowledged and not on the standby, and kill the primary."""
        if self.engine == "postgres":
            children = psutil.Process(self.primary.pid).children()
            (sender,) = (one.pid for one in children if "walsender" in " ".join(one.cmdline()))
            os.kill(sender, signal.SIGSTOP)
            insert(self.primary, number)
        else:
            self.standby.stop()
            insert(self.primary, number)
            os.kill(self.primary.pid, signal.SIGSTOP)
            self.standby._launch()
        self.primary.disturb("kill")

    def close(self, *, keep_data: bool) -> None:
        self.standby.close(keep_data=keep_data)
        self.primary.close(keep_data=keep_data)


def insert(server: Any, number: int) -> None:
    ask(server.dsn, f"INSERT INTO t VALUES ({number})")


def numbers(server: Any) -> list[int]:
    return [number for (number,) in ask(server.dsn, "SELECT n FROM t ORDER BY n")]


@pytest.fixture(params=["postgres", "mysql"])
def group(request: pytest.FixtureRequest, package_folder: Path) -> Iterator[Group]:
    if request.param == "mysql":
        request.getfixturevalue("mariadb")  # skips without a server
    made = Group(package_folder, request.param)
    try:
        made.start()
        ask(made.primary.dsn, "CREATE TABLE t (n int PRIMARY KEY)")
        insert(made.primary, 1)
        made.start_standby()
        yield made
    finally:
        made.close(keep_data=False)
    files = sorted(path.name for path in package_folder.rglob("*") if path.is_file())
    assert files == ["server.log", "server.log"]


def test_a_standby_follows_its_primary_and_refuses_writes(group: Group) -> None:
    assert numbers(group.standby) == [1]
    with pytest.raises((psycopg.errors.ReadOnlySqlTransaction, pymysql.err.OperationalError), match="read-only"):
        insert(group.standby, 2)
    if group.engine == "mysql":
        observer = LagObserver(group.endpoint, group.standby_endpoint)
        readings = observer.look(Tick(at_ns=0, report=True, last=False))
        observer.close()
        assert [(one.metric, one.value) for one in readings or ()] == [("lag.seconds", 0.0), ("lag.transactions", 0)]
    group.standby.disturb("kill")
    insert(group.primary, 2)
    group.standby.recover()
    group.start_standby()
    assert numbers(group.standby) == [1, 2]
    with pytest.raises(TaskFault, match="is not a running standby"):
        group.primary.disturb("promote")
    assert group.primary.superseded_by == ""
    group.primary.save_snapshot()
    insert(group.primary, 3)
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
    writer = threading.Thread(target=insert, args=(group.primary, 3))
    writer.start()
    eventually(lambda: ask(group.primary.dsn, WAITING[group.engine]) == [(1,)], "a commit that waits for the standby")
    assert writer.is_alive()
    group.start_standby()
    writer.join(PATIENCE_S)
    assert not writer.is_alive()
    assert numbers(group.standby) == [1, 2, 3]


@pytest.mark.usefixtures("mariadb")
def test_a_standby_of_mariadb_applies_what_it_has_received_before_its_promotion(package_folder: Path) -> None:
    """Its primary has acknowledged that: a semi-synchronous standby acknowledges what it has received."""
    group = Group(package_folder, "mysql")
    group.role = ServerRole(standbys=("b",), synchronous=("b",))
    try:
        group.start()
        ask(group.primary.dsn, "CREATE TABLE t (n int PRIMARY KEY)")
        group.start_standby()
        with connect(parse(group.standby.dsn)) as applies_nothing, applies_nothing.cursor() as cursor:
            cursor.execute("FLUSH TABLES WITH READ LOCK")
            for number in (1, 2, 3):
                insert(group.primary, number)
            group.primary.disturb("kill")
            promotion = threading.Thread(target=group.standby.disturb, args=("promote",))
            promotion.start()
            waits = "INFO LIKE 'SELECT MASTER_GTID_WAIT%' OR INFO = 'STOP SLAVE'"
            waiting = f"SELECT 1 FROM information_schema.PROCESSLIST WHERE {waits}"
            eventually(lambda: cursor.execute(waiting), "the promotion waits for what is applied")
            cursor.execute("UNLOCK TABLES")
        promotion.join(PATIENCE_S)
        assert numbers(group.standby) == [1, 2, 3]
    finally:
        group.close(keep_data=False)
    files = sorted(path.name for path in package_folder.rglob("*") if path.is_file())
    assert files == ["server.log", "server.log"]


def test_the_old_primary_takes_the_history_of_the_promoted_standby(group: Group) -> None:
    address = group.primary.dsn
    group.lose(2)
    assert (group.primary.state, group.standby.state, group.standby.is_standby) == ("down", "runs", True)
    group.standby.disturb("promote")
    assert (group.standby.staleness_s is not None) == (group.engine == "postgres")
    assert (group.standby.state, group.standby.is_standby) == ("promoted", False)
    with pytest.raises(TaskFault, match="was promoted already"):
        group.standby.promote()
    insert(group.standby, 3)
    group.primary.recover()  # the healing of its kill
    assert (group.primary.state, group.primary.superseded_by) == ("down", "b")
    group.standby.disturb("kill")
    group.standby.recover()
    assert group.standby.state == "promoted"
    insert(group.standby, 5)
    assert numbers(group.standby) == [1, 3, 5]

    group.start_primary()
    assert (group.primary.superseded_by, group.primary.pid) == ("b", None)
    group.standby.close(keep_data=True)
    group.start_primary()
    assert group.primary.superseded_by == ""
    assert RETURNED[group.engine] in group.primary.note
    assert group.primary.dsn == address
    assert numbers(group.primary) == [1, 3, 5]
    group.start_standby()
    assert group.standby.note == ""
    insert(group.primary, 4)
    group.start_standby()
    assert numbers(group.standby) == [1, 3, 4, 5]

"""The TimesTen driver without a TimesTen: its calls of the client module, and its errors without the client library.

`Stand` stands in for the client: it shows which calls are made, and that calls which TimesTen lacks are not made. It
does not show that TimesTen answers them, or accepts the SQL. The errors for a missing library and for the mode of a
process come from the real python-oracledb.
"""

from __future__ import annotations

import os
from typing import Any

import oracledb
import pytest

from proveout.agent.engines.driver_contract import FailureKind, Labelled, StatementFailure
from proveout.agent.engines.handlers import checkpoint, inspect_system, run_sql
from proveout.agent.engines.timesten.driver import HOME, LIBRARIES, TimesTenDriver, ready
from proveout.agent.errors import TaskFault
from proveout.agent.load.loop.transaction import BEGIN_WRITE, COMMIT, ROLLBACK
from proveout.dsl.workloads.base import Statement
from proveout.proto.wire.tasks import Checkpoint, Endpoint, InspectSystem, RunSql

DSN = "hlr/se@cret@cache1/hlrcache:timesten_direct"
READ = Statement(name="r", text={"oracle": "SELECT a FROM t WHERE b = $1"}, arguments=(int,), rows_max=1)
WRITE = Statement(name="w", text={"oracle": "UPDATE t SET a = $1 WHERE b = $2"}, arguments=(int, int), reads=False)


class Cursor:
    def __init__(self, calls: list[Any]) -> None:
        self._calls, self.rowcount = calls, 1
        self.arraysize = self.prefetchrows = 0

    def prepare(self, text: str) -> None:
        self._calls.append(("prepare", text))

    def execute(self, text: str | None, values: dict[str, Any]) -> None:
        self._calls.append(("execute", text, values, self.arraysize, self.prefetchrows))

    def fetchall(self) -> list[tuple[int]]:
        return [(7,)]


class Stand:
    """A connection that records its calls; calls that TimesTen lacks raise AttributeError."""

    __slots__ = ("autocommit", "calls")

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.autocommit = False

    def cursor(self) -> Cursor:
        return Cursor(self.calls)

    def commit(self) -> None:
        self.calls.append(("commit", self.autocommit))

    def rollback(self) -> None:
        self.calls.append(("rollback", self.autocommit))

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> tuple[Stand, list[Any]]:
    connection, calls = Stand(), []

    def connect(**how: Any) -> Stand:
        calls.append(how)
        return connection

    monkeypatch.setattr(oracledb, "init_oracle_client", lambda *a, **k: calls.append(("init", a, k)))
    monkeypatch.setattr(oracledb, "connect", connect)
    monkeypatch.setenv(HOME, "/opt/TimesTen/tt22")
    monkeypatch.setenv(LIBRARIES, "/opt/TimesTen/tt22/install/lib")
    return connection, calls


def test_the_client_is_initialised_without_a_folder_and_the_dsn_is_passed_unchanged(
    stand: tuple[Stand, list[Any]],
) -> None:
    TimesTenDriver().connect(DSN)
    init, connect = stand[1]
    assert init == ("init", (), {})
    assert (connect["user"], connect["password"]) == ("hlr", "se@cret")
    assert connect["dsn"] == "cache1/hlrcache:timesten_direct"
    assert set(connect) == {"user", "password", "dsn", "stmtcachesize"}


def test_calls_that_timesten_lacks_are_not_made(stand: tuple[Stand, list[Any]]) -> None:
    session = TimesTenDriver().connect(DSN)
    assert not isinstance(session, Labelled)
    read, write = session.prepare(READ), session.prepare(WRITE)
    session.execute(read, (1,))
    assert (session.count, session.rows()) == (1, [(7,)])
    session.execute(session.prepare(BEGIN_WRITE), ())
    session.execute(write, (1, 2))
    session.execute(session.prepare(COMMIT), ())
    session.execute(session.prepare(ROLLBACK), ())
    session.close()
    session.close()
    assert stand[0].calls == [
        ("prepare", "SELECT a FROM t WHERE b = :p1"),
        ("prepare", "UPDATE t SET a = :p1 WHERE b = :p2"),
        ("execute", None, {"p1": 1}, 1, 2),
        ("execute", None, {"p1": 1, "p2": 2}, Cursor([]).arraysize, 0),
        ("commit", False),
        ("rollback", True),
        "close",
    ]


def test_an_environment_without_ttenv_and_a_target_without_a_connection_type_are_refused() -> None:
    with pytest.raises(StatementFailure, match="timesten_client"):
        TimesTenDriver().connect("hlr/x@cache1/hlrcache")
    for environment in ({}, {HOME: "/opt/tt"}, {HOME: "/opt/tt", LIBRARIES: "/usr/lib"}):
        with pytest.raises(StatementFailure, match="ttenv") as raised:
            ready(environment)
        assert (raised.value.code, raised.value.kind) == ("DPI-1047", FailureKind.LOST)


def test_a_process_in_thin_mode_cannot_switch_to_thick_mode(oracle: str) -> None:
    credentials, _, target = oracle.rpartition("@")
    user, _, password = credentials.partition("/")
    oracledb.connect(user=user, password=password, dsn=target).close()
    with pytest.raises(StatementFailure, match="one mode") as raised:
        ready({HOME: "/opt/tt", LIBRARIES: "/opt/tt/install/lib"})
    assert raised.value.code == "DPY-2019"


async def test_the_agents_own_statements_run_in_a_separate_process(
    task_context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uses the real python-oracledb, which finds no client library on this host."""
    endpoint = Endpoint(system="cache", engine="timesten", dsn=DSN)
    monkeypatch.delenv(HOME, raising=False)
    with pytest.raises(TaskFault, match="TIMESTEN_HOME is not set") as raised:
        await inspect_system(task_context, InspectSystem(endpoint=endpoint))
    assert raised.value.code == "missing"
    monkeypatch.setenv(HOME, "/nowhere")
    monkeypatch.setenv(LIBRARIES, f"/nowhere/install/lib:{os.environ.get(LIBRARIES, '')}")
    for request in (
        run_sql(task_context, RunSql(endpoint=endpoint, statements=("SELECT 1 FROM dual",))),
        checkpoint(task_context, Checkpoint(endpoint=endpoint)),
    ):
        with pytest.raises(TaskFault, match="DPI-1047") as raised:
            await request
        assert "se@cret" not in raised.value.what
        assert "ttenv" in raised.value.what

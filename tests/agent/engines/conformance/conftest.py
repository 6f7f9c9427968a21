"""The table of drivers that the conformance suite tests. To add a driver: write a `Subject` and add it to `SUBJECTS`.

A subject is made by a function that takes pytest's request (for fixtures: a running server, a folder) and yields the
subject; code after the `yield` stops the server. Servers that start slowly are shared by the tests of a session.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import apsw
import pymysql
import pytest
from distribution_postgres import distribution_postgres
from embedded_servers import ask, embedded, system
from eventually import PATIENCE_S
from psycopg.conninfo import make_conninfo
from shared_servers import LabMysql, mysql_database

from proveout.agent.engines.driver_contract import PURE_PYTHON, Driver, PolledSession
from proveout.agent.engines.duckdb.driver import DuckdbDriver, open_database
from proveout.agent.engines.mysql.driver import MysqlDriver, MysqlSession
from proveout.agent.engines.mysql.driver import direct_session as mysql_direct_session
from proveout.agent.engines.oracle.driver import OracleDriver
from proveout.agent.engines.postgres import roles as postgres_roles
from proveout.agent.engines.postgres.driver import PostgresDriver, PostgresSession
from proveout.agent.engines.sqlite.driver import SqliteDriver
from proveout.coordinator.certificates import Authority
from proveout.dsl.workloads.base import Statement

TNS_SERVER = Path(__file__).parents[3] / "wire" / "tns_server.py"
END_OTHERS = (
    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
)


@dataclass(kw_only=True)
class Subject:
    """A driver with a running server and a database without the tests' tables.

    `administer(text)` runs one statement without the driver and returns its rows. `duplicate` and `foreign` are the codes
    of a duplicate primary key and of a missing parent row. `endless` is a query that takes at least a minute. `restart`
    (stop the server, call the argument, start it again), `end_session` (without the driver) and `conflict` (how two
    transactions conflict: "deadlock", or "lock" where a writer locks out all others) are None where the engine has no
    such operation. `connect` replaces the driver's own. `cancel_ignored` is the reason why a server ignores cancel requests.
    """

    engine: str
    driver: Driver
    dsn: str
    administer: Callable[[str], list[tuple[Any, ...]]]
    endless: str
    duplicate: str
    foreign: str
    unreachable_dsn: str
    connect: Callable[[], Any] | None = None
    restart: Callable[[Callable[[], None]], None] | None = None
    end_session: Callable[[Any], None] | None = None
    conflict: str = "deadlock"
    cancel_ignored: str = ""
    begin: str = "BEGIN"
    table_ending: str = ""
    opened: list[Any] = field(default_factory=list)

    def open(self) -> Any:
        """A new session, closed after the test."""
        session = self.connect() if self.connect else self.driver.connect(self.dsn)
        self.opened.append(session)
        return session

    def close(self) -> None:
        """Close the sessions that the test has opened."""
        for session in self.opened:
            session.close()

    def statement(self, text: str, *arguments: Any, reads: bool = True, **more: Any) -> Statement:
        """A statement in this driver's dialect."""
        return Statement(name="tried", text={self.driver.dialect: text}, arguments=arguments, reads=reads, **more)

    def execute(self, session: Any, of: Statement | Any, *arguments: Any) -> Any:
        """Execute on either kind of session, to the end; a `Statement` is prepared first. Returns the session as its
        `Result`."""
        prepared = session.prepare(of) if isinstance(of, Statement) else of
        if self.driver.waits == "blocking":
            session.execute(prepared, arguments)
            return session
        session.send(prepared, arguments)
        return self.finish(session)

    def finish(self, session: Any) -> Any:
        """Read a polled session's answer to its end."""
        poll = select.poll()
        poll.register(session.fileno(), select.POLLIN)
        while not session.receive():
            assert poll.poll(1000 * PATIENCE_S), "no answer"
        return session

    def fill(self) -> None:
        """Create the tables of the tests: `item` with five rows, and `part`, which refers to it."""
        for columns in (
            "item (id integer PRIMARY KEY, small integer, big bigint, word varchar(40), fixed char(3))",
            "part (id integer PRIMARY KEY, item integer, FOREIGN KEY (item) REFERENCES item (id))",
        ):
            self.administer(f"CREATE TABLE {columns}{self.table_ending}")
        rows = ", ".join(f"({i}, {-i}, {i * 10**10}, 'word {i}', 'abc')" for i in range(1, 6))
        self.administer(f"INSERT INTO item VALUES {rows}")


def restarted(server: Any, meanwhile: Callable[[], None]) -> None:
    """Stop the server, call `meanwhile`, start it again."""
    server.stop()
    try:
        meanwhile()
    finally:
        server.start()


# ---- PostgreSQL -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def own_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A PostgreSQL that tests may stop and start."""
    with embedded(
        tmp_path_factory.mktemp("own-postgres"), of=system("postgres", ("deadlock_timeout", "20ms"))
    ) as server:
        yield server


@pytest.fixture(scope="session")
def tls_server() -> Iterator[str]:
    """The dsn of a PostgreSQL of the distribution that accepts only TLS on TCP, with its authority."""
    authority = Authority.create()
    shown = authority.issue("agent/db", ["127.0.0.1"])
    with distribution_postgres(
        "listen_addresses=127.0.0.1",
        "ssl=on",
        "deadlock_timeout=20ms",
        access="local all all trust\nhostssl all all 127.0.0.1/32 trust\n",
        files={"server.crt": shown.certificate, "server.key": shown.key},
    ) as (folder, port):
        ca = folder / "ca.pem"  # readable by the workers' user, which pytest's own folders are not
        ca.write_bytes(authority.pem)
        server = {"host": "127.0.0.1", "port": port, "user": "tester", "dbname": "postgres"}
        yield make_conninfo(**server, sslmode="verify-full", sslrootcert=str(ca))


def postgres(request: pytest.FixtureRequest, *, way: Literal["libpq", "compiled", "tls"]) -> Iterator[Subject]:
    """PostgreSQL: statements by libpq, as where nothing is compiled, or by our own wire protocol, compiled, also over
    TLS."""
    if way != "libpq":
        pytest.importorskip(
            "proveout.agent.engines.postgres.protocol_native", reason="the hot path was not compiled here"
        )
    request.getfixturevalue("monkeypatch").setenv(PURE_PYTHON, "1" if way == "libpq" else "")
    if way == "tls":
        server, dsn = None, request.getfixturevalue("tls_server")
    else:
        server = request.getfixturevalue("own_postgres")
        dsn = make_conninfo(postgres_roles.administration(server.start()), options="")
    administer = partial(ask, dsn)
    administer("DROP TABLE IF EXISTS part, item")

    def directly() -> PolledSession:
        session = PostgresDriver().connect(dsn)
        assert isinstance(session, PostgresSession) == (way == "libpq")
        return session

    yield Subject(
        engine="postgres",
        driver=PostgresDriver(),
        dsn=dsn,
        administer=administer,
        endless="SELECT count(*) FROM pg_sleep(60)",
        duplicate="23505",
        foreign="23503",
        unreachable_dsn="host=127.0.0.1 port=1 user=nobody dbname=none",
        connect=directly,
        restart=partial(restarted, server) if server else None,
        end_session=lambda _: administer(END_OTHERS),
    )


# ---- files ----------------------------------------------------------------------------------------------------------


def in_file(request: pytest.FixtureRequest, *, engine: Literal["sqlite", "duckdb"]) -> Iterator[Subject]:
    request.getfixturevalue("monkeypatch").setattr("proveout.agent.engines.sqlite.driver.BUSY_TIMEOUT_MS", 50)
    file: Path = request.getfixturevalue("database_folder") / f"data.{engine}"
    is_sqlite = engine == "sqlite"

    def administer(text: str) -> list[tuple[Any, ...]]:
        connection: Any = apsw.Connection(str(file)) if is_sqlite else open_database(str(file))
        with contextlib.closing(connection):
            if is_sqlite:
                connection.set_busy_timeout(5_000)
            return list(connection.execute(text).fetchall())

    administer("PRAGMA journal_mode = wal" if is_sqlite else "CHECKPOINT")
    request.getfixturevalue("hand_over")(file.parent)
    numbers = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
    ranges = "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range + b.range = 7"
    yield Subject(
        engine=engine,
        driver=SqliteDriver() if is_sqlite else DuckdbDriver(),
        dsn=str(file),
        administer=administer,
        endless=numbers if is_sqlite else ranges,
        duplicate="SQLITE_CONSTRAINT_PRIMARYKEY" if is_sqlite else "DUCKDB_PRIMARY_KEY",
        foreign="SQLITE_CONSTRAINT_FOREIGNKEY" if is_sqlite else "DUCKDB_FOREIGN_KEY",
        unreachable_dsn=str(file.with_name("absent")),
        conflict="lock",
        begin="BEGIN IMMEDIATE" if is_sqlite else "BEGIN",
    )


# ---- MySQL ----------------------------------------------------------------------------------------------------------


def mysql(request: pytest.FixtureRequest, *, way: Literal["wire", "compiled"]) -> Iterator[Subject]:
    """MariaDB, statements by our own wire protocol, in Python or compiled."""
    if way == "compiled":
        pytest.importorskip("proveout.agent.engines.mysql.protocol_native", reason="the hot path was not compiled here")
    request.getfixturevalue("monkeypatch").setenv(PURE_PYTHON, "1" if way == "wire" else "")
    mysql_direct_session.cache_clear()
    server: LabMysql = request.getfixturevalue("own_mysql")
    with mysql_database(server.dsn) as dsn:
        administer = partial(ask, dsn)

        def end_session(session: Any) -> None:
            with contextlib.suppress(pymysql.err.MySQLError):
                administer(f"KILL CONNECTION {getattr(session, '_opened', session)._thread}")

        def directly() -> PolledSession:
            session = MysqlDriver().connect(dsn)
            assert isinstance(session, MysqlSession) == (way == "wire")
            return session

        yield Subject(
            engine="mysql",
            connect=directly,
            driver=MysqlDriver(),
            dsn=dsn,
            administer=administer,
            endless="SELECT sleep(60) FROM item",  # of one row alone, the row 1 may come without the error
            duplicate="1062",
            foreign="1452",
            unreachable_dsn="mysql://nobody@127.0.0.1:1/none",
            restart=partial(restarted, server),
            end_session=end_session,
            table_ending=" ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4",
        )
    mysql_direct_session.cache_clear()


# ---- Oracle, over its protocol --------------------------------------------------------------------------------------


class TnsServer:
    """The TNS server of tests/wire on a port that stays the same, stopped and started as a database is."""

    def __init__(self, conninfo: str) -> None:
        self._argv = [sys.executable, str(TNS_SERVER), "--postgres", conninfo]
        self._process: subprocess.Popen[str] | None = None
        self.dsn = ""

    def start(self) -> None:
        port = ["--port", self.dsn.rpartition(":")[2].partition("/")[0]] if self.dsn else []
        process = subprocess.Popen([*self._argv, *port], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        self._process, self.dsn = process, process.stdout.readline().split()[1]

    def stop(self) -> None:
        if self._process is not None:
            self._process.communicate(timeout=PATIENCE_S)
            self._process = None


@pytest.fixture(scope="session")
def own_tns(postgres_server: str) -> Iterator[tuple[TnsServer, str]]:
    """A TNS server that tests may stop and start, and the conninfo of the database behind it."""
    name = f"own_tns_{os.getpid()}"
    ask(postgres_server, f"CREATE DATABASE {name}", f"ALTER DATABASE {name} SET deadlock_timeout = '20ms'")
    behind = make_conninfo(postgres_server, dbname=name)
    server = TnsServer(behind)
    server.start()
    yield server, behind
    server.stop()


def oracle_wire(request: pytest.FixtureRequest) -> Iterator[Subject]:
    """Oracle's protocol with PostgreSQL behind it: tests the calls of python-oracledb, not the answers of an Oracle."""
    server, behind = request.getfixturevalue("own_tns")
    administer = partial(ask, behind)
    administer("DROP TABLE IF EXISTS part, item")
    yield Subject(
        engine="oracle",
        driver=OracleDriver(),
        dsn=server.dsn,
        administer=administer,
        endless="SELECT count(*) FROM pg_sleep(60)",
        duplicate="ORA-00001",
        foreign="ORA-02291",
        unreachable_dsn="nobody/none@//127.0.0.1:1/HLR",
        restart=partial(restarted, server),
        end_session=lambda _: administer(END_OTHERS),
        cancel_ignored="seerdb reads no break while a statement runs",
    )


# ---- the table ------------------------------------------------------------------------------------------------------

SUBJECTS: dict[str, Callable[[pytest.FixtureRequest], Iterator[Subject]]] = {
    "postgres-libpq": partial(postgres, way="libpq"),
    "postgres-compiled": partial(postgres, way="compiled"),
    "postgres-tls": partial(postgres, way="tls"),
    "sqlite": partial(in_file, engine="sqlite"),
    "duckdb": partial(in_file, engine="duckdb"),
    "mysql": partial(mysql, way="wire"),
    "mysql-compiled": partial(mysql, way="compiled"),
    "oracle-wire": oracle_wire,
}


@pytest.fixture(params=SUBJECTS)
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    """Every driver in turn, with an empty database."""
    for made in SUBJECTS[request.param](request):
        yield made
        made.close()


@pytest.fixture
def filled(subject: Subject) -> Subject:
    """The subject with the tests' tables."""
    subject.fill()
    return subject

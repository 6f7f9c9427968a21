"""Sessions over TLS: a real PostgreSQL that accepts only TLS on TCP, `sslmode=verify-full`, and wrong certificates."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from distribution_postgres import distribution_postgres
from eventually import PATIENCE_S
from psycopg.conninfo import make_conninfo

from proveout.agent.engines.driver_contract import FailureKind, PolledSession, StatementFailure
from proveout.agent.engines.postgres.driver import PURE_PYTHON, PostgresDriver, PostgresSession
from proveout.agent.errors import TaskFault
from proveout.agent.load import ceiling
from proveout.coordinator.certificates import Authority
from proveout.dsl.workloads.base import Statement
from proveout.proto.wire.tasks import Endpoint

pytestmark = pytest.mark.server


@dataclass(frozen=True)
class Served:
    """The dsn by TCP without anything about TLS, and the file of the authority."""

    tcp: str
    ca: Path


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    authority = Authority.create()
    shown = authority.issue("agent/db", ["127.0.0.1"])
    with distribution_postgres(
        "listen_addresses=127.0.0.1",
        "ssl=on",
        access="local all all trust\nhostssl all all 127.0.0.1/32 trust\n",
        files={"server.crt": shown.certificate, "server.key": shown.key},
    ) as (folder, port):
        ca = folder / "ca.pem"  # readable by the workers' user, which pytest's own folders are not
        ca.write_bytes(authority.pem)
        yield Served(tcp=make_conninfo(host="127.0.0.1", port=port, user="tester", dbname="postgres"), ca=ca)


@pytest.mark.skipif(os.geteuid() != 0, reason="only a root agent's load runs as somebody else")
async def test_a_file_that_the_loads_user_cannot_read_is_explained(served: Served, tmp_path: Path) -> None:
    mine = tmp_path / "ca.pem"
    mine.write_bytes(served.ca.read_bytes())
    tmp_path.chmod(0o700)
    dsn = make_conninfo(served.tcp, sslmode="verify-full", sslrootcert=str(mine))
    endpoint = Endpoint(system="tls", engine="postgres", dsn=dsn)
    with pytest.raises(TaskFault, match=r"ca\.pem") as caught:
        await ceiling.measure(endpoint, [2], seconds=1.0, workers=1, on_step=lambda _: None)
    assert "load runs as user id" in caught.value.way_out


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("of another authority", "certificate verify failed|signature failure"),
        ("another host", "does not match host name"),
        ("no TLS", "no encryption"),
    ],
)
def test_a_session_with_a_wrong_certificate_is_refused(
    served: Served, tmp_path: Path, wrong: str, message: str
) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(Authority.create().pem)
    dsn = {
        "of another authority": make_conninfo(served.tcp, sslmode="verify-full", sslrootcert=str(other)),
        "another host": make_conninfo(
            served.tcp, host="db.lab", hostaddr="127.0.0.1", sslmode="verify-full", sslrootcert=str(served.ca)
        ),
        "no TLS": make_conninfo(served.tcp, sslmode="disable"),
    }[wrong]
    with pytest.raises(StatementFailure, match=message):
        PostgresDriver().connect(dsn)


def statement(
    name: str, text: str, *arguments: type, columns: tuple[type, ...] = (int,), reads: bool = True
) -> Statement:
    return Statement(name=name, text={"postgres": text}, arguments=arguments, columns=columns, reads=reads)


def test_without_the_compiled_session_statements_of_encrypted_ones_go_through_libpq(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PURE_PYTHON, "1")
    encrypted = PostgresDriver().connect(make_conninfo(served.tcp, sslmode="require"))
    assert type(encrypted) is PostgresSession
    encrypted.close()


@pytest.fixture
def encrypted(served: Served) -> Iterator[PolledSession]:
    """A session of our own over TLS."""
    native = pytest.importorskip(
        "proveout.agent.engines.postgres.native_session", reason="the hot path was not compiled here"
    )
    dsn = make_conninfo(served.tcp, sslmode="verify-full", sslrootcert=str(served.ca))
    session = PostgresDriver().connect(dsn)
    assert type(session) is native.NativeSession
    yield session
    session.close()


def answer(session: PolledSession, prepared: Any, *arguments: Any) -> list[Any]:
    """The rows of one statement; waits as the loop does, by the socket."""
    ready = select.poll()
    ready.register(session.fileno(), select.POLLIN)
    done = session.exchange(prepared, arguments)
    while not done:
        assert ready.poll(1000 * PATIENCE_S), "the socket is not readable, and the answer not complete"
        done = session.receive()
    return session.rows()


def test_answers_and_statements_of_many_records_come_whole(encrypted: PolledSession) -> None:
    """A record holds 16 kB; a statement of 8 MB does not fit into the buffers of a socket. libpq prepares in between."""
    version = encrypted.prepare(
        statement("version", "SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl", columns=(str,))
    )
    assert answer(encrypted, version) == [("TLSv1.3",)]
    rows = encrypted.prepare(
        statement("rows", "SELECT n::int, repeat('x', n) FROM generate_series(1, $1::int) n", int, columns=(int, str))
    )
    for count in (1, 2_000, 3, 500):
        assert answer(encrypted, rows, count) == [(n, "x" * n) for n in range(1, count + 1)]
    length = encrypted.prepare(statement("length", "SELECT length($1::text)", str))
    for size in (1, 8_000_000, 20_000):
        assert answer(encrypted, length, "y" * size) == [(size,)]
    columns = ", ".join(f'{n} AS "{"c" * 50}{n}"' for n in range(600))
    wide = encrypted.prepare(statement("wide", f"SELECT {columns}", columns=(int,) * 600))
    assert answer(encrypted, wide) == [tuple(range(600))]


def test_a_group_that_fills_the_buffers_both_ways(encrypted: PolledSession) -> None:
    """While the client waits for room it reads: the server answers each statement before it reads the next one."""
    session: Any = encrypted
    say = statement("say", "SELECT $1::text", str, columns=(str,))
    pipeline = session.pipeline({"say": session.prepare(say)})
    for size in (10, 900_000):
        words = [letter * size for letter in "abcdefgh"]
        answer(session, pipeline, *[(say, (word,)) for word in words])
        assert [result.rows() for result in session.results()] == [[(word,)] for word in words]


def test_errors_of_encrypted_statements_are_distinguished(encrypted: PolledSession) -> None:
    zero = encrypted.prepare(statement("zero", "SELECT 1 / $1::int", int))
    with pytest.raises(StatementFailure) as caught:
        answer(encrypted, zero, 0)
    assert (caught.value.code, caught.value.kind) == ("22012", FailureKind.ERROR)
    assert answer(encrypted, zero, 1) == [(1,)]
    end = encrypted.prepare(statement("end", "SELECT pg_terminate_backend(pg_backend_pid())::int"))
    with pytest.raises(StatementFailure) as caught:
        answer(encrypted, end)
    assert (caught.value.code, caught.value.kind) == ("57P01", FailureKind.LOST)
    with pytest.raises(StatementFailure) as caught:
        answer(encrypted, zero, 1)
    assert caught.value.kind is FailureKind.LOST

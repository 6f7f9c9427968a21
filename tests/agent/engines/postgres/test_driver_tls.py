"""Load over TLS: a real PostgreSQL that accepts only TLS on TCP, `sslmode=verify-full`, and wrong certificates."""

from __future__ import annotations

import asyncio
import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from proveout.agent.engines.driver_contract import FailureKind, PolledSession, StatementFailure
from proveout.agent.engines.postgres.driver import PURE_PYTHON, PostgresDriver, PostgresSession
from proveout.agent.errors import TaskFault
from proveout.agent.load import ceiling
from proveout.coordinator.pki.certificates import Authority
from proveout.dsl.workloads.base import Statement
from proveout.proto.wire.tasks import Endpoint

pytestmark = pytest.mark.server

SESSIONS = 2
PASSWORD = "of-a-test"
ENCRYPTED = """
SELECT count(*) FILTER (WHERE s.ssl), count(*) FILTER (WHERE NOT s.ssl), min(s.version)
FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) WHERE a.client_addr IS NOT NULL AND a.pid <> pg_backend_pid()
"""


def programs() -> Path:
    """The folder of a PostgreSQL with TLS, which the embedded one lacks; skips without one on the host."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        pytest.skip("this host has no PostgreSQL that speaks TLS (Debian: apt-get install postgresql)")
    return found[-1].parent


class TlsServer:
    """A server that accepts only TLS on TCP, with a certificate for 127.0.0.1, in its own folder; as the user `nobody` when
    the tests run as root."""

    def __init__(self, authority: Authority) -> None:
        self._programs = programs()
        self._folder = self.folder = Path(tempfile.mkdtemp(prefix="pvtls-", dir="/tmp"))
        self._folder.chmod(0o755)
        self._data = self._folder / "data"
        self._as: dict[str, Any] = {"cwd": "/", "stdin": subprocess.DEVNULL}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._as |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(self._folder, nobody.pw_uid, nobody.pw_gid)
        (self._folder / "password").write_text(PASSWORD)
        (self._folder / "password").chmod(0o644)
        shown = authority.issue_agent("db", ["127.0.0.1"])
        self._initialise({"server.crt": shown.certificate, "server.key": shown.key})
        self.port = 0
        self._process = self._start()

    @property
    def dsn(self) -> str:
        """The dsn of the unix socket."""
        return make_conninfo(host=str(self._folder), port=self.port, user="bench", password=PASSWORD, dbname="postgres")

    def _initialise(self, files: dict[str, bytes]) -> None:
        argv = [self._programs / "initdb", "-D", self._data, "-U", "bench", "-A", "scram-sha-256", "--no-sync"]
        done = subprocess.run(
            [*argv, f"--pwfile={self._folder}/password", "--locale=C", "-E", "UTF8"],
            check=False,
            capture_output=True,
            **self._as,
        )
        assert done.returncode == 0, done.stderr
        owner = self._data.stat()
        for name, content in files.items():
            path = self._data / name
            path.touch(mode=0o600)
            path.write_bytes(content)
            os.chown(path, owner.st_uid, owner.st_gid)
        (self._data / "pg_hba.conf").write_text(
            "local all all scram-sha-256\nhostssl all all 127.0.0.1/32 scram-sha-256\n"
        )

    def _start(self) -> subprocess.Popen[bytes]:
        """Start the server at a free port; try another one when a process has taken the port meanwhile."""
        for _ in range(5):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = probe.getsockname()[1]
            process = self._launch()
            if self._is_up(process):
                return process
        raise AssertionError((self._folder / "log").read_text())

    def _launch(self) -> subprocess.Popen[bytes]:
        words = {"listen_addresses": "127.0.0.1", "port": self.port, "ssl": "on", "fsync": "off"}
        words |= {"unix_socket_directories": self._folder, "ssl_cert_file": "server.crt", "ssl_key_file": "server.key"}
        options = [word for name, value in words.items() for word in ("-c", f"{name}={value}")]
        log = (self._folder / "log").open("wb")
        argv = [str(self._programs / "postgres"), "-D", str(self._data), *options]
        process = subprocess.Popen(argv, stdout=log, stderr=log, **self._as)
        log.close()
        return process

    def _is_up(self, process: subprocess.Popen[bytes]) -> bool:
        """Whether the server answers; False when its port is in use by another process."""
        until_s = time.monotonic() + 60
        while not self._ready():
            log = (self._folder / "log").read_text()
            if process.poll() is not None and "Address already in use" in log:
                return False
            assert process.poll() is None and time.monotonic() < until_s, log
            time.sleep(0.05)
        return True

    def _ready(self) -> bool:
        try:
            psycopg.connect(self.dsn, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def close(self) -> None:
        """Stop it and remove its folder."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(60)
        shutil.rmtree(self._folder)


@dataclass(frozen=True)
class Served:
    """The dsn by TCP without anything about TLS, the one by socket, and the file of the authority."""

    tcp: str
    socket: str
    ca: Path


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    authority = Authority.create()
    server = TlsServer(authority)
    ca = server.folder / "ca.pem"  # readable by the workers' user, which pytest's own folders are not
    try:
        ca.write_bytes(authority.pem)
        yield Served(tcp=make_conninfo(server.dsn, host="127.0.0.1"), socket=server.dsn, ca=ca)
    finally:
        server.close()


async def load(dsn: str, seconds: float = 1.0) -> list[ceiling.Step]:
    endpoint = Endpoint(system="tls", engine="postgres", dsn=dsn)
    return await ceiling.measure(endpoint, [SESSIONS], seconds=seconds, workers=1, on_step=lambda _: None)


async def test_every_session_of_a_load_is_encrypted(served: Served) -> None:
    dsn = make_conninfo(served.tcp, sslmode="verify-full", sslrootcert=str(served.ca))
    running = asyncio.create_task(load(dsn, seconds=5.0))
    seen: tuple[int, int, str] = (0, 0, "")
    with psycopg.connect(served.socket, autocommit=True) as watch:
        while not running.done():
            row = await asyncio.to_thread(lambda: watch.execute(ENCRYPTED).fetchone())
            assert row is not None
            seen = max(seen, (row[0], row[1], row[2] or ""))
            assert row[1] == 0
            await asyncio.sleep(0.05)
    (step,) = await running
    assert seen[0] >= SESSIONS
    assert seen[2] == "TLSv1.3"
    assert step.per_s > 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only a root agent's load runs as somebody else")
async def test_a_file_that_the_loads_user_cannot_read_is_explained(served: Served, tmp_path: Path) -> None:
    mine = tmp_path / "ca.pem"
    mine.write_bytes(served.ca.read_bytes())
    tmp_path.chmod(0o700)
    with pytest.raises(TaskFault, match=r"ca\.pem") as caught:
        await load(make_conninfo(served.tcp, sslmode="verify-full", sslrootcert=str(mine)))
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


@pytest.fixture
def pure_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PURE_PYTHON, "1")


def test_without_the_compiled_session_statements_of_encrypted_ones_go_through_libpq(
    served: Served, pure_python: None
) -> None:
    encrypted = PostgresDriver().connect(make_conninfo(served.tcp, sslmode="require"))
    assert type(encrypted) is PostgresSession
    encrypted.close()


@pytest.fixture
def encrypted(served: Served) -> Iterator[PolledSession]:
    """A session of our own over TLS."""
    native = pytest.importorskip(
        "proveout.agent.engines.postgres.wire.native_session", reason="the hot path was not compiled here"
    )
    session = PostgresDriver().connect(make_conninfo(served.tcp, sslmode="require"))
    assert type(session) is native.NativeSession
    yield session
    session.close()


def answer(session: PolledSession, prepared: Any, *arguments: Any) -> list[Any]:
    """The rows of one statement; waits as the loop does, by the socket."""
    ready = select.poll()
    ready.register(session.fileno(), select.POLLIN)
    done = session.exchange(prepared, arguments)
    while not done:
        assert ready.poll(10_000), "the socket is not readable, and the answer not complete"
        done = session.receive()
    return session.rows()


def test_answers_and_statements_of_many_records_come_whole(encrypted: PolledSession) -> None:
    """A record holds 16 kB; a statement of 8 MB does not fit into the buffers of a socket."""
    rows = encrypted.prepare(
        statement("rows", "SELECT n::int, repeat('x', n) FROM generate_series(1, $1::int) n", int, columns=(int, str))
    )
    for count in (1, 2_000, 3, 500):
        assert answer(encrypted, rows, count) == [(n, "x" * n) for n in range(1, count + 1)]
    length = encrypted.prepare(statement("length", "SELECT length($1::text)", str))
    for size in (1, 8_000_000, 20_000):
        assert answer(encrypted, length, "y" * size) == [(size,)]


def test_a_group_that_fills_the_buffers_both_ways(encrypted: PolledSession) -> None:
    """While the client waits for room it reads: the server answers each statement before it reads the next one."""
    session: Any = encrypted
    say = statement("say", "SELECT $1::text", str, columns=(str,))
    pipeline = session.pipeline({"say": session.prepare(say)})
    for size in (10, 900_000):
        words = [letter * size for letter in "abcdefgh"]
        answer(session, pipeline, *[(say, (word,)) for word in words])
        assert [result.rows() for result in session.results()] == [[(word,)] for word in words]


def test_libpq_prepares_between_statements(encrypted: PolledSession) -> None:
    """A description of many columns is more than one record."""
    one = encrypted.prepare(statement("one", "SELECT 1"))
    for number in range(3):
        assert answer(encrypted, one) == [(1,)]
        columns = ", ".join(f'{n} AS "{"c" * 50}{n}"' for n in range(600 + number))
        wide = encrypted.prepare(statement(f"wide{number}", f"SELECT {columns}", columns=(int,) * (600 + number)))
        assert answer(encrypted, wide) == [tuple(range(600 + number))]


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

"""Parsing of a MySQL dsn: its parts, its options, and errors that quote no secret."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pymysql
import pytest

from proveout.agent.engines.mysql.dsn import MalformedDsn, connect, parse
from proveout.coordinator.agents.endpoints import filled
from proveout.dsl.plan.topology import System


@pytest.mark.parametrize(
    ("dsn", "parts"),
    [
        ("mysql://u@h/d", {"host": "h", "port": 3306, "user": "u", "password": "", "database": "d"}),
        ("mariadb://u:p%40%2F@h:13306/d%20d", {"port": 13306, "password": "p@/", "database": "d d"}),
        ("mysql://u@[::1]:3307", {"host": "::1", "port": 3307, "database": None}),
        ("mysql://u@/d?unix_socket=/run/my%20sql.sock", {"host": "localhost", "unix_socket": "/run/my sql.sock"}),
        ("mysql://u@h/d?ssl_mode=VERIFY_IDENTITY&ssl_ca=/ca.pem", {"ssl_mode": "verify_identity", "ssl_ca": "/ca.pem"}),
    ],
)
def test_parts(dsn: str, parts: dict[str, Any]) -> None:
    address = parse(dsn)
    assert {name: getattr(address, name) for name in parts} == parts


@pytest.mark.parametrize(
    ("dsn", "says"),
    [
        ("host=h password=hunter2", "does not begin with"),
        ("mysql://u:hunter2@h:70000/d", "no valid port"),
        ("mysql://:hunter2@h/d", "names no user"),
        ("mysql://u:hunter2@h/d?ssl=1", "unknown option 'ssl'"),
        ("mysql://u:hunter2@h/d?ssl_mode=on", "unknown ssl_mode"),
    ],
)
def test_refusals_quote_no_secret(dsn: str, says: str) -> None:
    with pytest.raises(MalformedDsn, match=says) as raised:
        parse(dsn)
    assert "hunter2" not in str(raised.value)


def test_a_password_of_any_characters_is_decoded() -> None:
    secret = "a:b/c@d?e#f&g%h i'j"
    dsn = "mysql://hlr:${secrets.hlr}@db1:3307/hlr?ssl_mode=required"
    system = System(name="db", engine="mysql", host="h", dsn=dsn)
    address = parse(filled(system, dsn, lambda _: secret))
    assert secret not in repr(address)
    assert (address.password, address.host, address.port, address.database) == (secret, "db1", 3307, "hlr")
    assert address.ssl_mode == "required"


@pytest.mark.parametrize(
    "greeting", [b"", b"\x0a", b"\x0a8.0.36\0\7", b"\x0a8.0.36\0" + bytes(13) + b"\xff\xff", bytes(40)]
)
def test_another_server_than_mysql_is_an_error_of_mysqls(greeting: bytes) -> None:
    def greet() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.sendall(len(greeting).to_bytes(3, "little") + b"\0" + greeting)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=greet)
        thread.start()
        with pytest.raises(pymysql.err.OperationalError):
            connect(parse(f"mysql://u@127.0.0.1:{listening.getsockname()[1]}/d"), timeout_s=5.0, read_timeout_s=5.0)
        thread.join()

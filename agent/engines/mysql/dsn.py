"""A MySQL dsn, `mysql://user:password@host:port/database?option=value`, taken apart for the client library.

Flow: the plan's `dsn` with its secrets filled in (percent-encoded) -> `parse` -> `Address` -> `connect`, the one place
that calls PyMySQL, for the driver, for populating and for the agent's own questions. The options are few:
`unix_socket`, `ssl_mode` (as the mysql client has it, default `preferred`), `ssl_ca`. No error here quotes the dsn: it
holds a password.
"""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pymysql
from pymysql.connections import Connection
from pymysql.constants import CLIENT

from proveout.core.data_classes import field, record
from proveout.core.errors import ProveoutError

SCHEMES = ("mysql", "mariadb")
PORT = 3306
CONNECT_S = 5.0
SSL_MODES = ("disabled", "preferred", "required", "verify_ca", "verify_identity")
OPTIONS = ("unix_socket", "ssl_mode", "ssl_ca")
FORM = "mysql://user:${secrets.name}@host:3306/database"
UNREACHABLE = frozenset({"1053", "1927", "2002", "2003", "2006", "2012", "2013"})
"""The codes of a server that is not reached, or that ends the connection."""


class MalformedDsn(ProveoutError):
    """A malformed dsn; the message quotes nothing of it that could be a secret."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the dsn of a MySQL system {what}", way_out=f"write it as {FORM}")


@record
class Address:
    """A server's address, and the user that connects. `unix_socket` replaces host and port."""

    host: str = "localhost"
    port: int = PORT
    user: str = ""
    password: str = field(default="", repr=False)
    database: str | None = None
    unix_socket: str | None = None
    ssl_mode: str = "preferred"
    ssl_ca: str | None = None


def parse(dsn: str) -> Address:
    """The parts of a dsn. Raises MalformedDsn."""
    try:
        parts = urlsplit(dsn)
        port = parts.port
    except ValueError:
        raise MalformedDsn("has no valid port or address") from None
    if parts.scheme not in SCHEMES:
        raise MalformedDsn("does not begin with mysql://")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise MalformedDsn(f"has the unknown option {unknown[0]!r}; there are {', '.join(OPTIONS)}")
    mode = options.get("ssl_mode", "preferred").lower()
    if mode not in SSL_MODES:
        raise MalformedDsn(f"has an unknown ssl_mode; there are {', '.join(SSL_MODES)}")
    if not parts.username:
        raise MalformedDsn("names no user")
    return Address(
        host=parts.hostname or "localhost",
        port=port or PORT,
        user=unquote(parts.username),
        password=unquote(parts.password or ""),
        database=unquote(parts.path.strip("/")) or None,
        unix_socket=options.get("unix_socket") or None,
        ssl_mode=mode,
        ssl_ca=options.get("ssl_ca") or None,
    )


def connect(
    address: Address,
    *,
    timeout_s: float = CONNECT_S,
    read_timeout_s: float | None = None,
    kind: type[Connection[Any]] = Connection,
    client_flag: int = 0,
) -> Connection[Any]:
    """A connection in autocommit that counts the rows an UPDATE *found*, as SQL has it. Raises pymysql.err.MySQLError.

    MySQL itself counts the rows that an UPDATE changed, and one that sets a column to the value it has would look like
    one that found nothing.
    """
    connection = kind(
        host=address.host,
        port=address.port,
        user=address.user,
        password=address.password.encode(),
        database=address.database,
        charset="utf8mb4",
        autocommit=True,
        client_flag=client_flag | CLIENT.FOUND_ROWS,
        connect_timeout=timeout_s,
        read_timeout=read_timeout_s,
        program_name="proveout",
        defer_connect=True,
        **_ssl(address),
    )
    # PyMySQL counts as safe for passwords only the unix sockets that it has opened itself
    connection._secure = address.unix_socket is not None
    try:
        connection.connect(_socket(address, timeout_s))
    except (IndexError, NameError, ValueError, struct.error):  # PyMySQL reads a greeting without a check
        raise pymysql.err.OperationalError(2012, "what answers there does not speak the protocol of MySQL") from None
    return connection


def _socket(address: Address, timeout_s: float) -> socket.socket:
    """A connected socket; PyMySQL would leave one open where it cannot connect it."""
    try:
        if address.unix_socket is None:
            made = socket.create_connection((address.host, address.port), timeout_s)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return made
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.settimeout(timeout_s)
        try:
            made.connect(address.unix_socket)
        except OSError:
            made.close()
            raise
        return made
    except OSError as error:
        where = address.unix_socket or f"{address.host}:{address.port}"
        text = f"cannot connect to the MySQL server at {where}: {error.strerror or error}"
        raise pymysql.err.OperationalError(2003, text) from None


def one_line(error: pymysql.err.MySQLError) -> tuple[str, str]:
    """(code, text) of an error of the client library, on one line."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = str(error.args[-1]) if error.args else type(error).__name__
    return str(code), " ".join(text.split())


def _ssl(address: Address) -> dict[str, Any]:
    """PyMySQL's arguments for a mode: without any it encrypts where the server can."""
    if address.unix_socket is not None or address.ssl_mode == "disabled":
        return {"ssl_disabled": True}
    if address.ssl_mode == "preferred":
        return {}
    ca = address.ssl_ca
    if ca is not None and not Path(ca).is_file():
        raise pymysql.err.OperationalError(2026, f"SSL connection error: no file {ca} on this host")
    if address.ssl_mode == "required":
        return {"ssl": {"ca": ca, "verify_mode": "none", "check_hostname": False}}
    return {"ssl": {"ca": ca, "verify_mode": "required", "check_hostname": address.ssl_mode == "verify_identity"}}

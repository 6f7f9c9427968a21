"""The address of a target for a program: the fields of its arguments, and the variables of its environment. Pure.

Flow: `Endpoint` -> `address(endpoint)` -> `fields` (`host`, `port` …, without the password) and `variables`: those of
libpq (PostgreSQL), MYSQL_PWD (MySQL), and LOAD_PASSWORD. A password is in the environment and in a file of mode 0600,
never in an argument, which every user of a host can read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from proveout.agent.errors import TaskFault
from proveout.core.data_classes import dataclass, field
from proveout.core.errors import ProveoutError
from proveout.proto.wire.tasks import Endpoint

LIBPQ = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "dbname": "PGDATABASE", "password": "PGPASSWORD"}
"""Words of a conninfo -> variables of libpq."""
_EZCONNECT = re.compile(
    r"(?:tcps?:)?(?://)?(?P<host>\[[0-9A-Fa-f:]+\]|[^/:\s()=]+)(?::(?P<port>\d+))?/(?P<service>[^/?:\s]+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A target: fields of arguments, variables of the environment, and the password."""

    fields: Mapping[str, str]
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    password: str = field(default="", repr=False)


def address(endpoint: Endpoint) -> Address:
    """The address of a system. TaskFault `invalid` where its dsn cannot be taken apart."""
    read = _ENGINES.get(endpoint.engine)
    if read is None:
        raise TaskFault("invalid", f"a program cannot take its target from a dsn of {endpoint.engine}")
    return read(endpoint)


def _postgres(endpoint: Endpoint) -> Address:
    from psycopg import Error  # noqa: PLC0415 - only where a program needs such a target
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415

    try:
        words = {name: str(value) for name, value in conninfo_to_dict(endpoint.dsn).items() if value is not None}
    except Error:
        raise TaskFault("invalid", f"the dsn of system {endpoint.system!r} is not a conninfo of libpq") from None
    fields = {
        "host": words.get("host", ""),
        "port": words.get("port", "5432"),
        "user": words.get("user", ""),
        "database": words.get("dbname", ""),
    }
    variables = {LIBPQ[name]: value for name, value in words.items() if name in LIBPQ}
    return Address(fields=fields, variables=variables, password=words.get("password", ""))


def _mysql(endpoint: Endpoint) -> Address:
    from proveout.agent.engines.mysql.dsn import parse  # noqa: PLC0415 - as above

    try:
        found = parse(endpoint.dsn)
    except ProveoutError as fault:
        raise TaskFault("invalid", fault.what, way_out=fault.way_out) from None
    fields = {
        "host": found.host,
        "port": str(found.port),
        "user": found.user,
        "database": found.database or "",
        "socket": found.unix_socket or "",
    }
    return Address(fields=fields, variables={"MYSQL_PWD": found.password}, password=found.password)


def _oracle(endpoint: Endpoint) -> Address:
    user, slash, rest = endpoint.dsn.partition("/")
    password, at, target = rest.rpartition("@")
    if not slash or not at:
        raise TaskFault("invalid", f"the dsn of system {endpoint.system!r} is not user/password@connect-string")
    match = _EZCONNECT.match(target.strip())
    parts = {"host": match["host"], "port": match["port"] or "1521", "database": match["service"]} if match else {}
    return Address(fields={"user": user.strip(), "connect_string": target.strip(), **parts}, password=password)


def _file(endpoint: Endpoint) -> Address:
    return Address(fields={"database": endpoint.dsn.partition("?")[0]})


_ENGINES: Mapping[str, Callable[[Endpoint], Address]] = {
    "postgres": _postgres,
    "mysql": _mysql,
    "oracle": _oracle,
    "timesten": _oracle,
    "sqlite": _file,
    "duckdb": _file,
    "none": lambda _: Address(fields={}),
}

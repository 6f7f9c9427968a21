"""Removes secrets from a data source name, so that the undo journal can store it.

Flow: `Endpoint` -> `public` -> the parts for the location of a system and its user; everything else is left out. A dsn
that cannot be parsed is left out as a whole. Pure, and without a database client: a root agent loads none.

Formats: postgresql://user:password@host:port/db?… and `host=… password=…` of libpq (33.1.1 of the PostgreSQL manual);
`user/password@target` of Oracle and TimesTen, split at the first `/` and the last `@`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from proveout.proto.wire.tasks import Endpoint

KEPT = (
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "service",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "passfile",
)
_WORD = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*('(?:[^'\\]|\\.)*'|(?:[^\s'\\]|\\.)*)(?=\s|$)\s*", re.DOTALL)
_WITH_USER = ("oracle", "timesten")


def public(endpoint: Endpoint) -> str:
    """The dsn without secrets; "" if it cannot be parsed."""
    dsn = endpoint.dsn
    if endpoint.engine == "postgres":
        return _uri(dsn) if dsn.startswith(("postgres://", "postgresql://")) else _words(dsn)
    if endpoint.engine in _WITH_USER:
        return _logon(dsn)
    return ""


def identity(endpoint: Endpoint) -> str:
    """Identifies a system, without secrets."""
    return f"{endpoint.engine} {public(endpoint) or endpoint.system}"


def without_secrets(endpoint: Endpoint) -> Endpoint:
    """The endpoint without secrets, for storage."""
    return replace(endpoint, dsn=public(endpoint), instances=())


def _uri(dsn: str) -> str:
    try:
        parts = urlsplit(dsn)
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        return ""
    before, at, hosts = parts.netloc.rpartition("@")
    user = before.partition(":")[0]
    if "@" in user or parts.fragment:  # an unquoted `@` or `#` in the password: its end is ambiguous
        return ""
    query = urlencode([(name, value) for name, value in given if name in KEPT], quote_via=quote)
    return f"{parts.scheme}://{user}{at}{hosts}{parts.path}{'?' if query else ''}{query}"


def _words(dsn: str) -> str:
    found = dict(_pairs(dsn))
    return " ".join(f"{name}={found[name]}" for name in KEPT if name in found)


def _pairs(dsn: str) -> Iterator[tuple[str, str]]:
    """Names and values as written; nothing if the dsn has any other syntax."""
    position, found = 0, []
    while position < len(dsn.rstrip()):
        match = _WORD.match(dsn, position)
        if match is None:
            return
        found.append((match[1], match[2]))
        position = match.end()
    yield from found


def _logon(dsn: str) -> str:
    """`user@target` of `user/password@target`; "sys as sysdba/…" likewise."""
    user, slash, rest = dsn.partition("/")
    _, at, target = rest.rpartition("@")
    return f"{user}@{target}" if slash and at and "@" not in user else ""

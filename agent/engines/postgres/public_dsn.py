"""A PostgreSQL dsn without its secrets. Pure, and without a client library: a root agent loads none.

Forms: `postgresql://user:password@host:port/db?…` and libpq's `host=… password=…` (PostgreSQL manual, "Connection Strings").
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

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


def public_dsn(dsn: str) -> str:
    """Return the parts that say where a server is and which user connects; "" when the dsn cannot be taken apart."""
    return _uri(dsn) if dsn.startswith(("postgres://", "postgresql://")) else _words(dsn)


def _uri(dsn: str) -> str:
    try:
        parts = urlsplit(dsn)
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        return ""
    before, at, hosts = parts.netloc.rpartition("@")
    user = before.partition(":")[0]
    if "@" in user or parts.fragment:  # a password with characters that had to be quoted: where it ends is not known
        return ""
    query = urlencode([(name, value) for name, value in given if name in KEPT], quote_via=quote)
    return f"{parts.scheme}://{user}{at}{hosts}{parts.path}{'?' if query else ''}{query}"


def _words(dsn: str) -> str:
    found = dict(_pairs(dsn))
    return " ".join(f"{name}={found[name]}" for name in KEPT if name in found)


def _pairs(dsn: str) -> Iterator[tuple[str, str]]:
    """Name and value as it is written; nothing for what is not made of such words."""
    position, found = 0, []
    while position < len(dsn.rstrip()):
        match = _WORD.match(dsn, position)
        if match is None:
            return
        found.append((match[1], match[2]))
        position = match.end()
    yield from found

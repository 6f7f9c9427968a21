"""The part of a dsn without its secrets, by the form of the engine's dsn; without any client library."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from proveout.dsl import engines
from proveout.dsl.engines import DsnForm

DSN_KEPT = (
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


def public_dsn(engine: str, dsn: str) -> str:
    """Return the dsn without what may be secret; "" when it cannot be taken apart."""
    stated = engines.of(engine)
    take = _FORMS.get(stated.dsn_form) if stated.dsn else None
    return "" if take is None else take(dsn)


def _of_conninfo(dsn: str) -> str:
    """Forms: `postgresql://user:password@host:port/db?…` and `host=… password=…` (PostgreSQL manual, "Connection
    Strings")."""
    return _of_libpq_uri(dsn) if dsn.startswith(("postgres://", "postgresql://")) else _words(dsn)


def _of_libpq_uri(dsn: str) -> str:
    try:
        parts = urlsplit(dsn)
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        return ""
    before, at, hosts = parts.netloc.rpartition("@")
    user = before.partition(":")[0]
    if "@" in user or parts.fragment:  # a password with characters that had to be quoted: where it ends is not known
        return ""
    query = urlencode([(name, value) for name, value in given if name in DSN_KEPT], quote_via=quote)
    return f"{parts.scheme}://{user}{at}{hosts}{parts.path}{'?' if query else ''}{query}"


def _words(dsn: str) -> str:
    found = dict(_pairs(dsn))
    return " ".join(f"{name}={found[name]}" for name in DSN_KEPT if name in found)


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


def _of_uri(dsn: str) -> str:
    """All but password and options."""
    try:
        parts = urlsplit(dsn)
        port = "" if parts.port is None else f":{parts.port}"
        socket = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query))).get("unix_socket", "")
    except ValueError:
        return ""
    if not parts.scheme or not parts.username:
        return ""
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    options = f"?{urlencode({'unix_socket': socket})}" if socket else ""
    return f"{parts.scheme}://{parts.username}@{host}{port}{parts.path}{options}"


def _of_connect_string(dsn: str) -> str:
    """`user@target` of `user/password@target`, which is divided at the first `/` and the last `@`; "" for
    another form."""
    user, slash, rest = dsn.partition("/")
    _, at, target = rest.rpartition("@")
    return f"{user}@{target}" if slash and at and "@" not in user else ""


_FORMS: Mapping[DsnForm, Callable[[str], str]] = {
    "conninfo": _of_conninfo,
    "uri": _of_uri,
    "connect_string": _of_connect_string,
    "path": str,
}

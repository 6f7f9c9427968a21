"""A session whose statements bypass libpq on the compiled hot path (`protocol_native.pyx`), encrypted ones by TLS.

Importing it raises ImportError where that was not built: then statements go through libpq.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

from psycopg import pq

from proveout.agent.engines.driver_contract import StatementFailure, only
from proveout.agent.engines.postgres.driver import (
    PostgresPrepared,
    PostgresSession,
    binary_integer,
    failure_of,
    kinds_of,
)
from proveout.agent.engines.postgres.protocol import Failures, around, await_room, connection_lost, send_rest
from proveout.agent.engines.postgres.protocol_native import Prepared, Wire
from proveout.agent.engines.wire_native import use_tls
from proveout.dsl.workloads.base import Statement

# libpq makes the handshake and verifies the certificate; then the compiled session writes and reads by the functions of
# the OpenSSL that libpq itself is linked to, whose addresses are found through psycopg's module. psycopg in Python, a
# libpq with another library for TLS, or one linked into psycopg without its symbols: then there are none, and
# statements go through libpq. Source: libpq, `PQsslStruct`; OpenSSL, SSL_read(3), SSL_write(3), SSL_set_read_ahead(3).

FUNCTIONS = (
    "SSL_read",
    "SSL_write",
    "SSL_has_pending",
    "SSL_get_error",
    "ERR_clear_error",
    "SSL_set_read_ahead",
)


@cache
def addresses() -> tuple[int, ...] | None:
    """Those of `FUNCTIONS`; None where they are not to be found."""
    library = _library()
    if library is None:
        return None
    try:
        found = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in FUNCTIONS]
    except AttributeError:
        return None
    return tuple(address or 0 for address in found)


def tls_session(conn: pq.abc.PGconn) -> int:
    """The address of a connection's `SSL`; 0 when it is not one of OpenSSL, or its functions are not known."""
    library = _library()
    if library is None or addresses() is None:
        return 0
    structure = library.PQsslStruct
    structure.restype, structure.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)
    pointer = getattr(conn, "pgconn_ptr", None)  # not in psycopg's protocol of a PGconn
    return (structure(pointer, b"OpenSSL") or 0) if pointer else 0


@cache
def _library() -> ctypes.CDLL | None:
    """psycopg's compiled module: a search in it finds the symbols of the libraries that it is linked to."""
    path = getattr(sys.modules[pq.PGconn.__module__], "__file__", None) or ""
    if not path.endswith(".so"):
        return None
    library = ctypes.CDLL(path)
    return library if hasattr(library, "PQsslStruct") else None


class NativeSession(Wire):
    """A `PolledSession`; `send`, `receive`, `exchange` and `rows` are compiled."""

    __slots__ = ("_libpq", "cancel", "close", "fileno")

    def __init__(self, libpq: PostgresSession, tls_session: int = 0) -> None:
        room = await_room if tls_session else send_rest
        super().__init__(libpq.fileno(), Failures(failure_of).of, connection_lost, room, tls_session)
        self._libpq = libpq
        self.fileno, self.cancel, self.close = libpq.fileno, libpq.cancel, libpq.close

    def prepare(self, statement: Statement) -> Prepared:
        """Prepare with libpq; the messages from then on are ours."""
        return only(self.prepare_all((statement,)))

    def prepare_all(self, statements: Sequence[Statement]) -> list[Prepared | StatementFailure]:
        self.pause()
        return [
            each if isinstance(each, StatementFailure) else wired(each) for each in self._libpq.prepare_all(statements)
        ]


SHARED_MAX = 4_096
_shared: dict[tuple[Any, ...], Prepared] = {}
"""Sessions share what is the same for a statement in all of them, which then stays in the processor's caches."""


def wired(prepared: PostgresPrepared) -> Prepared:
    """The statement for the compiled session."""
    kinds = tuple(kinds_of(prepared))
    head, tail = around(prepared.name, kinds, prepared.result_format)
    decoders = tuple(None if decode is binary_integer else decode for decode in prepared.decoders)
    key = (id(prepared.statement), head, kinds, tail, decoders)
    if key not in _shared:
        if len(_shared) >= SHARED_MAX:
            _shared.clear()
        _shared[key] = Prepared(prepared.statement, head, kinds, tail, decoders)
    return _shared[key]


def session_over(libpq: PostgresSession) -> NativeSession | None:
    """The session over a connection; None where that has TLS and its statements must go through libpq."""
    if not libpq.connection.ssl_in_use:
        return NativeSession(libpq)
    found = addresses()
    session = tls_session(libpq.connection)
    if found is None or not session:
        return None
    use_tls(*found)
    return NativeSession(libpq, session)

"""The TLS session below a connection of libpq's, for statements that bypass libpq on the compiled hot path.

libpq makes the handshake and verifies the certificate; then the compiled session writes and reads by the functions of
the OpenSSL that libpq itself is linked to, whose addresses are found through psycopg's module. psycopg in Python, a
libpq with another library for TLS, or one linked into psycopg without its symbols: then there are none, and statements
go through libpq. Source: libpq, `PQsslStruct`; OpenSSL, SSL_read(3), SSL_write(3), SSL_set_read_ahead(3).
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache

from psycopg import pq

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


def session_of(conn: pq.abc.PGconn) -> int:
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

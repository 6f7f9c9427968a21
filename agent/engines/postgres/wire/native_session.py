"""A session whose statements bypass libpq on the compiled hot path (`protocol_native.pyx`), encrypted ones by TLS.

Importing it raises ImportError where that was not built: then `postgres.WireSession` does the same in Python.
"""

from __future__ import annotations

from collections.abc import Sequence

from proveout.agent.engines.driver_contract import StatementFailure, only
from proveout.agent.engines.postgres.driver import (
    OnLibpq,
    PostgresPrepared,
    PostgresSession,
    binary_integer,
    failure_of,
    kinds_of,
)
from proveout.agent.engines.postgres.wire import tls
from proveout.agent.engines.postgres.wire.protocol import Failures, around, await_room, connection_lost, send_rest
from proveout.agent.engines.postgres.wire.protocol_native import Prepared, Wire
from proveout.agent.engines.wire.wire_native import use_tls
from proveout.dsl.workloads.base import Statement


class NativeSession(OnLibpq, Wire):
    """A `PolledSession`; `send`, `receive`, `exchange` and `rows` are compiled."""

    __slots__ = ("_libpq",)

    def __init__(self, libpq: PostgresSession, tls_session: int = 0) -> None:
        room = await_room if tls_session else send_rest
        super().__init__(libpq.fileno(), Failures(failure_of).of, connection_lost, room, tls_session)
        self._libpq = libpq

    def prepare(self, statement: Statement) -> Prepared:
        """Prepare with libpq; the messages from then on are ours."""
        return only(self.prepare_all((statement,)))

    def prepare_all(self, statements: Sequence[Statement]) -> list[Prepared | StatementFailure]:
        """See `PreparesTogether`."""
        self.pause()
        return [
            each if isinstance(each, StatementFailure) else _wired(each) for each in self._libpq.prepare_all(statements)
        ]


def _wired(prepared: PostgresPrepared) -> Prepared:
    kinds = tuple(kinds_of(prepared))
    head, tail = around(prepared.name, kinds, prepared.result_format)
    decoders = tuple(None if decode is binary_integer else decode for decode in prepared.decoders)
    return Prepared(prepared.statement, head, kinds, tail, decoders)


def encrypted_session(libpq: PostgresSession) -> NativeSession | None:
    """The session of a connection with TLS; None where its statements must go through libpq."""
    found = tls.addresses()
    session = tls.session_of(libpq.connection)
    if found is None or not session:
        return None
    use_tls(*found)
    return NativeSession(libpq, session)

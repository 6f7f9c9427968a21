"""A session whose statements bypass libpq on the compiled hot path (`protocol_native.pyx`).

Importing it raises ImportError where that was not built: then `postgres.WireSession` does the same in Python.
"""

from __future__ import annotations

from proveout.agent.engines.postgres.driver import OnLibpq, PostgresSession, binary_integer, failure_of, kinds_of
from proveout.agent.engines.postgres.wire.protocol import Failures, around, connection_lost, send_rest
from proveout.agent.engines.postgres.wire.protocol_native import Prepared, Wire
from proveout.dsl.workloads.base import Statement


class NativeSession(OnLibpq, Wire):
    """A `PolledSession`; `send`, `receive`, `exchange` and `rows` are compiled."""

    __slots__ = ("_libpq",)

    def __init__(self, libpq: PostgresSession) -> None:
        super().__init__(libpq.fileno(), Failures(failure_of).of, connection_lost, send_rest)
        self._libpq = libpq

    def prepare(self, statement: Statement) -> Prepared:
        """Prepare with libpq; the messages from then on are ours."""
        prepared = self._libpq.prepare(statement)
        kinds = tuple(kinds_of(prepared))
        head, tail = around(prepared.name, kinds, prepared.result_format)
        decoders = tuple(None if decode is binary_integer else decode for decode in prepared.decoders)
        return Prepared(statement, head, kinds, tail, decoders)

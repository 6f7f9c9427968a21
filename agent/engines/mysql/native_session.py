"""A session whose statements go over the compiled hot path (`protocol_native.pyx`).

Importing it raises ImportError where that was not built: then `driver.MysqlSession` does the same in Python.
"""

from __future__ import annotations

from collections.abc import Sequence

from proveout.agent.engines.driver_contract import StatementFailure, only
from proveout.agent.engines.mysql.driver import MysqlSession, failure_of
from proveout.agent.engines.mysql.protocol import Failures, lost, send_all
from proveout.agent.engines.mysql.protocol_native import Prepared, Wire
from proveout.dsl.workloads.base import Statement


class NativeSession(Wire):
    """A `PolledSession`; `send`, `receive`, `exchange` and `rows` are compiled. The rest is done by `opened`."""

    __slots__ = ("_opened", "cancel", "close", "fileno")

    def __init__(self, opened: MysqlSession) -> None:
        stream = opened.stream
        encrypted = stream if stream.is_encrypted else None
        super().__init__(
            stream.fileno(), Failures(failure_of).of, lost, lambda _, rest: send_all(stream, rest), encrypted
        )
        self._opened = opened
        self.fileno, self.cancel, self.close = opened.fileno, opened.cancel, opened.close

    def prepare(self, statement: Statement) -> Prepared:
        """Prepare on the server, and wait for it. Raises StatementFailure."""
        return only(self.prepare_all((statement,)))

    def prepare_all(self, statements: Sequence[Statement]) -> list[Prepared | StatementFailure]:
        return [
            start if isinstance(start, StatementFailure) else Prepared(each, *start)
            for each, start in zip(statements, self._opened.starts_of(statements), strict=True)
        ]

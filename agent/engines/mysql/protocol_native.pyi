from collections.abc import Callable

from proveout.agent.engines import wire_native
from proveout.agent.engines.driver_contract import StatementFailure
from proveout.agent.engines.mysql.protocol import Stream
from proveout.dsl.workloads.base import Statement

class Prepared(wire_native.Prepared):
    def __init__(self, statement: Statement, start: bytes, order: tuple[int, ...]) -> None: ...

class Wire(wire_native.Wire):
    def __init__(
        self,
        fd: int,
        fail: Callable[[bytes, Statement | None], StatementFailure],
        lost: Callable[[str, str], StatementFailure],
        room: Callable[[int, bytes], None],
        stream: Stream | None = None,
    ) -> None: ...

from collections.abc import Callable, Sequence
from typing import Any

from proveout.agent.engines.driver_contract import StatementFailure
from proveout.dsl.workloads.base import Result, Row, Statement

class Prepared:
    statement: Statement
    decoders: tuple[Callable[[bytes], Any] | None, ...]
    def __init__(
        self,
        statement: Statement,
        head: bytes,
        parameters: tuple[str | None, ...],
        tail: bytes,
        decoders: tuple[Callable[[bytes], Any] | None, ...],
    ) -> None: ...

class Wire:
    count: int
    sent: Prepared | None
    def __init__(
        self,
        fd: int,
        fail: Callable[[bytes, Statement | None, int, int], StatementFailure],
        lost: Callable[[str, StatementFailure | None], StatementFailure],
        room: Callable[[int, bytes, Callable[[], object]], None],
        tls: int = 0,
    ) -> None: ...
    def pause(self) -> None: ...
    def send(self, prepared: Prepared, arguments: Sequence[Any]) -> None: ...
    def receive(self) -> bool: ...
    def exchange(self, prepared: Prepared, arguments: Sequence[Any]) -> bool: ...
    def rows(self) -> list[Row]: ...
    def pipeline(self, prepared: dict[str, Prepared]) -> Prepared: ...
    def results(self) -> list[Result]: ...
    def take_in(self) -> None: ...

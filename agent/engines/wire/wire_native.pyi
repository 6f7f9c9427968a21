from collections.abc import Sequence
from typing import Any

from proveout.dsl.workloads.base import Row, Statement

class Prepared:
    statement: Statement

class Wire:
    count: int
    sent: Prepared | None
    def send(self, prepared: Prepared, arguments: Sequence[Any]) -> None: ...
    def receive(self) -> bool: ...
    def exchange(self, prepared: Prepared, arguments: Sequence[Any]) -> bool: ...
    def rows(self) -> list[Row]: ...

"""A load worker whose sessions answer every statement at once: the engine without a database. `python -m null_worker
PARENT-PID`.

Flow: a benchmark calls `use()` -> the agent's pool starts this module in place of `proveout.agent.load.worker` -> the
same `main`, with the driver table answered by `NullDriver`. A session is an eventfd, written by `send` and read by
`receive`: the loop waits for it and is woken by it as for a socket, at two system calls a transaction.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from proveout.agent.engines.driver_contract import Driver
from proveout.agent.load import local_pool as pool
from proveout.agent.load import worker
from proveout.core import child_process
from proveout.dsl.engines import Dialect
from proveout.dsl.workloads.base import Row


class NullSession:
    """Answers every statement at once with one row."""

    def __init__(self) -> None:
        self.count = 1
        self._fd = os.eventfd(0, os.EFD_NONBLOCK)

    def fileno(self) -> int:
        return self._fd

    def prepare(self, statement: Any) -> Any:
        return statement

    def send(self, prepared: Any, arguments: Sequence[Any]) -> None:
        os.eventfd_write(self._fd, 1)

    def receive(self) -> bool:
        try:
            os.eventfd_read(self._fd)
        except BlockingIOError:
            return False
        return True

    def exchange(self, prepared: Any, arguments: Sequence[Any]) -> bool:
        self.send(prepared, arguments)
        return self.receive()

    def rows(self) -> list[Row]:
        return [(1,)]

    def cancel(self) -> None: ...

    def close(self) -> None:
        os.close(self._fd)


class NullDriver:
    """Connects to nothing."""

    dialect: Dialect = "postgres"
    waits: Literal["polled"] = "polled"

    def connect(self, dsn: str) -> NullSession:
        return NullSession()


def use() -> None:
    """From here on, this process's pools start null workers. They find this module by PYTHONPATH, which children get
    when it is named."""
    here = str(Path(__file__).resolve().parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH", ""))))
    os.environ[child_process.PASS_ENV] = "PYTHONPATH"
    pool.MODULE = "null_worker"


def main() -> None:
    null: Driver = NullDriver()
    worker.driver = lambda engine: null
    worker.main()


if __name__ == "__main__":
    main()

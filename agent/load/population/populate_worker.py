"""One populate worker process, `python -m proveout.agent.load.population.populate_worker PARENT PRIVILEGES ENGINE`:
jobs in on stdin, answers out on stdout.

It lives no longer than its agent: the kernel kills it when the parent dies (PR_SET_PDEATHSIG), and where that comes too
late or does not exist, end of file on stdin ends it in the middle of a job. See `job_messages` for the messages.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
from typing import Any

from proveout.agent.engines.adapter import Loader, Populates
from proveout.agent.engines.table import adapter, driver
from proveout.agent.errors import TaskFault
from proveout.agent.load.population.job_messages import (
    Answer,
    Count,
    Execute,
    Failed,
    Finished,
    Load,
    Opening,
    Prepare,
    Progress,
    Settle,
    Undo,
    from_line,
    to_line,
)
from proveout.agent.sandbox.privileges import Privileges
from proveout.core.child_process import LOAD_WORKER_NAME
from proveout.core.errors import ProveoutError
from proveout.core.linux import ORPHANED, die_with_parent
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.base import Population, Table
from proveout.dsl.workloads.kinds import build


class Jobs:
    """Jobs as they come, None at the end; a thread reads them, so that the agent's end is seen in the middle of a
    job.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._received = 0  # written by the reader only
        self._answered = 0  # written by the worker only
        threading.Thread(target=self._read, daemon=True).start()

    def get(self) -> Any:
        """The next job; None when there will be no more."""
        return self._queue.get()

    def answer(self, answer: Finished | Failed) -> None:
        """End the job in hand."""
        self._answered += 1
        say(answer)

    def _read(self) -> None:
        for line in sys.stdin.buffer:
            self._received += 1
            self._queue.put(from_line(line))
        if self._received > self._answered:  # the agent has ended during a job
            os._exit(ORPHANED)
        self._queue.put(None)


def main(parent: int, argument: str, engine: str) -> int:
    """Serve jobs until stdin ends. Exit code 0, or 1 after a `Failed`."""
    privileges = Privileges.from_argument(argument)
    privileges.drop()
    die_with_parent(parent, LOAD_WORKER_NAME)
    with contextlib.suppress(ProveoutError):  # reported by the first job
        driver(engine)
    privileges.seal()
    jobs = Jobs()
    try:
        opening = jobs.get()
        if opening is None:
            return 0
        loader, tables = _open(opening)
        jobs.answer(Finished())
        while (job := jobs.get()) is not None:
            jobs.answer(Finished(rows=_do(loader, tables, job)))
        loader.close()
    except ProveoutError as error:
        jobs.answer(Failed(code=getattr(error, "code", "fault"), message=error.what, way_out=error.way_out))
        return 1
    return 0


def _open(opening: Opening) -> tuple[Loader, dict[str, Table]]:
    workload = Workload(name=opening.kind, kind=opening.kind, parameters=opening.parameters)
    population = build(workload).population
    return _connect(opening, population), {table.name: table for table in population.tables}


def _connect(opening: Opening, population: Population) -> Loader:
    engine = adapter(opening.engine)
    if not isinstance(engine, Populates):
        raise TaskFault("missing", f"a population cannot be loaded into engine {opening.engine!r}")
    return engine.loader(opening.dsn, population)


def _do(loader: Loader, tables: dict[str, Table], job: object) -> int:
    """Run one job; the rows it is about."""
    match job:
        case Load(table=name, first=first, count=count):
            return loader.load(tables[name], first, count, lambda rows: say(Progress(rows=rows)))
        case Count(table=name):
            return loader.count(name)
        case Execute(statement=statement):
            loader.execute(statement)
        case Prepare():
            loader.prepare()
        case Settle():
            loader.settle()
        case Undo():
            loader.undo()
        case _:
            raise TaskFault("invalid", f"a populate worker has no job {type(job).__name__}")
    return 0


def say(answer: Answer) -> None:
    """Send one line to the agent."""
    sys.stdout.buffer.write(to_line(answer))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:4]))

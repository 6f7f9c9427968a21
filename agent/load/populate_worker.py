"""One populate worker process, `python -m proveout.agent.load.populate_worker PARENT PRIVILEGES ENGINE`:
jobs in on stdin, answers out on stdout.

It lives no longer than its agent: the kernel kills it when the parent dies (PR_SET_PDEATHSIG), and where that comes too
late or does not exist, end of file on stdin ends it in the middle of a job. See `populate_jobs` for the messages.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from typing import Any

from proveout.agent.engines.adapter import Loader
from proveout.agent.engines.table import TableLoader, adapter
from proveout.agent.errors import TaskFault
from proveout.agent.load.populate_jobs import Answer, Finished, Job, LoadJournal, Opening, Progress, from_line, to_line
from proveout.agent.sandbox.privileges import enter
from proveout.core.child_process import LOAD_WORKER_NAME
from proveout.core.errors import ProveoutError
from proveout.core.linux import ORPHANED
from proveout.dsl.workloads.base import Population
from proveout.dsl.workloads.kinds import build
from proveout.proto.wire.results import TaskError


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

    def answer(self, answer: Finished | TaskError) -> None:
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
    """Serve jobs until stdin ends. Exit code 0, or 1 after a `TaskError`."""
    enter(argument, parent, LOAD_WORKER_NAME, engine)
    jobs = Jobs()
    try:
        opening = jobs.get()
        if opening is None:
            return 0
        work = _Work(opening)
        jobs.answer(Finished())
        while (job := jobs.get()) is not None:
            jobs.answer(work.answer(job))
        work.loader.close()
    except ProveoutError as error:
        jobs.answer(TaskError(code=getattr(error, "code", "fault"), message=error.what, way_out=error.way_out))
        return 1
    return 0


class _Work:
    """A loader, the tables of its population, and the journal of the load."""

    def __init__(self, opening: Opening) -> None:
        population = build(opening.workload).population
        self.loader = _connect(opening, population)
        self._tables = {table.name: table for table in population.tables}
        self._journal: LoadJournal | None = None
        if opening.load and isinstance(self.loader, TableLoader):
            self._journal = LoadJournal(self.loader, population, opening.load)

    def answer(self, job: Job) -> Finished:
        """Do one job."""
        loader, journal = self.loader, self._journal
        match job.what:
            case "load":
                return Finished(rows=self._load(job))
            case "count":
                return Finished(rows=loader.count(job.table))
            case "prepare":
                return Finished(rows=self._prepare())
            case "committed" if journal is not None:
                return Finished(ranges={table: tuple(ranges) for table, ranges in journal.ranges().items()})
            case "committed":
                pass
            case "execute" if journal is not None:
                journal.execute(job.step, job.statement)
            case "execute":
                loader.execute(job.statement)
            case "settle":
                loader.settle()
            case "undo" | "complete":
                if job.what == "undo":
                    loader.undo()
                if journal is not None:
                    journal.drop()
            case _:
                raise TaskFault("invalid", f"a populate worker has no job {job.what}")
        return Finished()

    def _load(self, job: Job) -> int:
        table = self._tables[job.table]
        if self._journal is None:
            return self.loader.load(table, job.first, job.count, _progressed)
        mark = self._journal.mark(job.table, job.first, job.count)
        assert isinstance(self.loader, TableLoader)  # noqa: S101 - it has a journal
        return self.loader.load(table, job.first, job.count, _progressed, mark)

    def _prepare(self) -> int:
        journal = self._journal
        kept = None if journal is None else journal.rows_kept()
        if kept is None:
            if journal is not None:
                journal.drop()
            self.loader.prepare()
            if journal is not None:
                journal.create()
        return kept or 0


def _connect(opening: Opening, population: Population) -> Loader:
    name = opening.endpoint.engine
    engine = adapter(name)
    if not engine.stated.populate:
        raise TaskFault("missing", f"a population cannot be loaded into engine {name!r}")
    return engine.loader(opening.endpoint.dsn, population)


def _progressed(rows: int) -> None:
    say(Progress(rows=rows))


def say(answer: Answer) -> None:
    """Send one line to the agent."""
    sys.stdout.buffer.write(to_line(answer))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:4]))

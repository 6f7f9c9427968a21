"""What an agent has of tuning from its start to its end: the undo journal, and one thing at a time.

Flow: `Tuner(directory, policy)` when the agent starts -> `recover()` undoes what an agent that was killed has left -> a session keeps it among
its resources from the beginning, so it is closed, and everything undone, after all else, however the session ends -> handlers
`apply`, `look`, `revert` in threads. What is heavy is imported when there is something to do.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from proveout.agent.policy import NOTHING, Policy
from proveout.agent.tasks import TaskFault
from proveout.dsl.plan import Tuning
from proveout.proto.results import TuningState
from proveout.proto.tasks import Endpoint

if TYPE_CHECKING:
    from proveout.agent.aide.blocking import Asker
    from proveout.agent.tuning.host import Host
    from proveout.agent.tuning.tools import Processes
    from proveout.agent.tuning.undo import UndoJournal

RESOURCE = "tuning"
STOP_S = 120.0
FILE = "undo.sqlite"
HELD_S = 30.0
HELD_POLL_S = 0.2

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")


class Tuner:
    """Of one agent; `directory` is for the undo journal alone. `prepare` lets tests have another host."""

    def __init__(
        self, directory: Path, policy: Policy = NOTHING, prepare: Callable[[Host], Host] = lambda host: host
    ) -> None:
        self.directory = directory
        self._policy = policy
        self._prepare = prepare
        self._journal: UndoJournal | None = None
        self._endpoints: dict[str, Endpoint] = {}
        self._turn = asyncio.Lock()
        self._stop = threading.Event()
        self._tools: Processes | None = None
        self._asker: Asker | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is outstanding that anybody knows of."""
        return self._journal is None and not (self.directory / FILE).exists()

    async def recover(self) -> tuple[TuningState, ...]:
        """Undo what an agent before has left, if it has."""
        if self.is_idle:
            return ()
        states = await self.revert()
        for state in states:
            level = logging.ERROR if state.outcome == "residue" else logging.WARNING
            _log.log(level, "tuning %r of an earlier run: %s%s", state.name, state.outcome, _lines(state))
        return states

    async def plan(
        self, tunings: Sequence[Tuning], endpoints: Sequence[Endpoint], scratch: Path
    ) -> tuple[TuningState, ...]:
        """What would be changed; nothing is written, the undo journal neither."""
        from proveout.agent.tuning.transaction import Transaction  # noqa: PLC0415 - see the module's head
        from proveout.agent.tuning.undo import UndoJournal  # noqa: PLC0415

        self._endpoints |= {one.system: one for one in endpoints}
        transaction = Transaction(host=self._host(scratch), journal=UndoJournal(self.directory), run="")
        return await self._in_turn(lambda: transaction.plan(tunings))

    async def apply(
        self, run: str, tunings: Sequence[Tuning], endpoints: Sequence[Endpoint], scratch: Path
    ) -> tuple[TuningState, ...]:
        """Apply them all, or none. A cancellation undoes what was made so far before it goes on."""
        from proveout.agent.tuning.transaction import Stopped, Transaction  # noqa: PLC0415 - see the module's head

        self._endpoints |= {one.system: one for one in endpoints}
        self._stop.clear()

        def watch(step: str) -> None:
            if self._stop.is_set():
                raise Stopped(step)

        def work() -> tuple[TuningState, ...]:
            journal = self._opened()
            if any(tuning.system for tuning in tunings):
                journal.remember(endpoints)
            return Transaction(host=self._host(scratch), journal=journal, run=run, watch=watch).apply(tunings)

        return await self._when_free(work)

    async def look(self, scratch: Path) -> tuple[TuningState, ...]:
        """Whether what was applied is still in place."""
        if self.is_idle:
            return ()
        from proveout.agent.tuning import undoing  # noqa: PLC0415 - see the module's head

        return await self._in_turn(lambda: undoing.look(self._host(scratch), self._opened()))

    async def revert(self, *, systems_only: bool = False) -> tuple[TuningState, ...]:
        """Undo everything that is outstanding (or what tunes systems), but for what is kept, which is let go of."""
        if self.is_idle:
            return ()
        from proveout.agent.tuning import undoing  # noqa: PLC0415 - see the module's head

        def work() -> tuple[TuningState, ...]:
            journal = self._opened()
            self._endpoints = {one.system: one for one in journal.endpoints()} | self._endpoints
            return undoing.end(self._host(self.directory), journal, systems_only=systems_only)

        return await self._in_turn(work)

    async def close(self, *, keep_data: bool) -> None:
        """The session is over: undo, and say what could not be.

        Whoever waits no longer for a program that hangs leaves it to itself: what is to be undone is undone as soon as that has ended.
        """
        del keep_data  # tuning is never data
        self._stop.set()
        self._closing = asyncio.ensure_future(self._undo_all())
        self._closing.add_done_callback(_told)
        await asyncio.shield(self._closing)

    async def _undo_all(self) -> None:
        for state in await self.revert():
            level = logging.WARNING if state.outcome in ("residue", "drifted") else logging.INFO
            _log.log(level, "tuning %r: %s%s", state.name, state.outcome, _lines(state))

    # ---- within ----------------------------------------------------------------------------------------------------

    async def _when_free(self, work: Callable[[], _Answer]) -> _Answer:
        """Do it when no other agent has the journal: one whose coordinator was killed sets the host back at the end of its lease, and a
        run that is resumed at once finds it there. It is waited for; nothing was changed yet."""
        from proveout.agent.tuning.undo import Held  # noqa: PLC0415 - see the module's head

        clock = asyncio.get_running_loop().time
        until_s = clock() + HELD_S
        while True:
            try:
                return await self._in_turn(work)
            except Held:
                if clock() >= until_s:
                    raise
            await asyncio.sleep(HELD_POLL_S)

    async def _in_turn(self, work: Callable[[], _Answer]) -> _Answer:
        """Run it in a thread, one at a time; a cancellation waits for the thread, which is told to stop.

        The journal is opened and let go of within the turn: whoever waits for his must not hold one that was closed meanwhile.
        """
        from proveout.agent.aide.blocking import Asker  # noqa: PLC0415 - see the module's head

        async with self._turn:
            asker = self._asker = Asker()
            job = asyncio.ensure_future(asyncio.to_thread(work))
            try:
                return await asyncio.shield(job)
            except asyncio.CancelledError:
                self._stop.set()
                if self._tools is not None:
                    self._tools.interrupt()
                with suppress(BaseException):
                    await asyncio.wait_for(asyncio.shield(job), STOP_S)
                raise
            finally:
                if job.done():
                    with suppress(TaskFault):  # a journal that cannot be read stays
                        self._tidy()
                await asyncio.shield(asker.end())

    def _ask(self, question: str, endpoint: Endpoint, statement: str) -> Any:
        assert self._asker is not None  # noqa: S101 - asked in turns only
        return self._asker.ask(question, endpoint, statement)

    def _opened(self) -> UndoJournal:
        from proveout.agent.tuning.undo import UndoJournal  # noqa: PLC0415 - see the module's head

        if self._journal is None:
            self._journal = UndoJournal(self.directory)
        return self._journal

    def _tidy(self) -> None:
        """With nothing outstanding, leave nothing behind."""
        journal = self._journal
        if journal is not None and journal.is_written and not journal.outstanding():
            journal.close()
            self._journal = None

    def _host(self, scratch: Path) -> Host:
        from proveout.agent.tuning.databases import Databases  # noqa: PLC0415 - see the module's head
        from proveout.agent.tuning.host import Host  # noqa: PLC0415
        from proveout.agent.tuning.tools import Processes  # noqa: PLC0415

        if self._tools is None:
            self._tools = Processes()
        databases = Databases(self._endpoints.values(), self._ask)
        host = Host(policy=self._policy, scratch=scratch, databases=databases, tools=self._tools)
        return self._prepare(host)


def _told(closing: asyncio.Task[None]) -> None:
    """What goes wrong when nobody waits any more is told as well."""
    if not closing.cancelled() and (error := closing.exception()) is not None:
        _log.error("tuning could not be undone: %s", error)


def _lines(state: TuningState) -> str:
    return "".join(f"; {line}" for line in state.lines)

"""What an agent has of tuning from its start to its end: its undo journal in the machine's folder, and one thing at a time.

Flow: `Tuner(directory, policy)` when the agent starts -> `recover()` undoes what agents that were killed have left -> a session keeps it among
its resources from the beginning, so it is closed, and everything undone, after all else, however the session ends -> handlers
`apply`, `look`, `revert` in threads. What is heavy is imported when there is something to do.

`apply` waits while an agent of another run has tuned the same of this machine (`machine`), and undoes what an ended agent has left before it changes anything.
After its session an agent holds no journal, whatever is left in it: the next agent of the machine tries again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from proveout.agent.daemon.tasks import TaskFault
from proveout.agent.security.policy import NOTHING, Policy
from proveout.core.errors import one_line
from proveout.dsl.plan.stages import Tuning
from proveout.proto.wire.results import TuningState
from proveout.proto.wire.tasks import Endpoint

if TYPE_CHECKING:
    from proveout.agent.sandbox.sync_client import Asker
    from proveout.agent.tuning.database_access import DatabasesOfRuns
    from proveout.agent.tuning.host import Host
    from proveout.agent.tuning.machine import Holder, Machine
    from proveout.agent.tuning.programs import Processes
    from proveout.agent.tuning.undo_journal import UndoJournal

RESOURCE = "tuning"
STOP_S = 120.0
FILE = "undo.sqlite"
HELD_S = 30.0
"""How long another run's tuning of this machine is waited for: the end of a lease, and the undoing."""
TURN_S = 300.0
"""How long another agent's transaction is waited for."""
TELL_S = 10.0
HELD_POLL_S = 0.2

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")


def _untold(_text: str) -> None:
    return None


class Tuner:
    """Of one agent; `directory` is the machine's folder of undo journals, `host` the agent's name. `prepare` lets tests have another host."""

    def __init__(
        self,
        directory: Path,
        policy: Policy = NOTHING,
        prepare: Callable[[Host], Host] = lambda host: host,
        host: str = "",
    ) -> None:
        self.directory = directory
        self._policy = policy
        self._prepare = prepare
        self._name = host
        self._journal: UndoJournal | None = None
        self._run = ""
        self._told: dict[tuple[str, str], Endpoint] = {}
        self._turn = asyncio.Lock()
        self._stop = threading.Event()
        self._tools: Processes | None = None
        self._asker: Asker | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is outstanding on this machine that agents have noted."""
        return self._journal is None and not (
            (self.directory / FILE).exists() or next(self.directory.glob(f"*/{FILE}"), None)
        )

    async def recover(self) -> tuple[TuningState, ...]:
        """Undo what agents before have left, if they have."""
        states = await self.revert(release=True)
        for state in states:
            level = logging.ERROR if state.outcome == "residue" else logging.WARNING
            _log.log(level, "tuning %r of an earlier run: %s%s", state.name, state.outcome, _lines(state))
        return states

    async def plan(
        self, tunings: Sequence[Tuning], endpoints: Sequence[Endpoint], scratch: Path
    ) -> tuple[TuningState, ...]:
        """What would be changed; nothing is written, the undo journal neither."""
        from proveout.agent.tuning.transaction import Transaction  # noqa: PLC0415 - see the module's head
        from proveout.agent.tuning.undo_journal import UndoJournal  # noqa: PLC0415

        self._tell_endpoints("", endpoints)
        transaction = Transaction(host=self._host(scratch), journal=UndoJournal(self.directory), run="")
        return await self._in_turn(lambda: transaction.plan(tunings))

    async def apply(
        self,
        run: str,
        tunings: Sequence[Tuning],
        endpoints: Sequence[Endpoint],
        scratch: Path,
        *,
        host: str = "",
        epoch: str = "",
        tell: Callable[[str], None] = _untold,
    ) -> tuple[TuningState, ...]:
        """Apply them all, or none. A cancellation undoes what was made so far before it goes on.

        `host` is this one's name in the plan, `epoch` tells one coordinator of the run from the next. `tell` is called while another run is waited for.
        """
        from proveout.agent.tuning.transaction import Stopped, Transaction  # noqa: PLC0415 - see the module's head

        self._tell_endpoints(run, endpoints)
        self._stop.clear()

        def watch(step: str) -> None:
            if self._stop.is_set():
                raise Stopped(step)

        def work() -> tuple[TuningState, ...]:
            machine = self._machine()
            with machine.turn():
                journal = self._admitted(machine, self._holder((run, epoch, host), tunings, endpoints))
                if any(tuning.system for tuning in tunings):
                    journal.remember(endpoints, run)
                return Transaction(host=self._host(scratch), journal=journal, run=run, watch=watch).apply(tunings)

        return await self._when_free(work, tell)

    async def look(self, scratch: Path) -> tuple[TuningState, ...]:
        """Whether what this agent has applied is still in place."""
        from proveout.agent.tuning import revert as undoing  # noqa: PLC0415 - see the module's head

        def work() -> tuple[TuningState, ...]:
            return () if self._journal is None else undoing.look(self._host(scratch), self._journal)

        return await self._in_turn(work) if self._journal is not None else ()

    async def revert(self, *, systems_only: bool = False, release: bool = False) -> tuple[TuningState, ...]:
        """Undo everything that is outstanding (or what tunes systems), but for what is kept, which is let go of.

        That is what this agent has made; without any, what agents that have ended have left. `release`: the journal is let go of, whatever is left in it.
        """
        if self.is_idle:
            return ()
        from proveout.agent.tuning import revert as undoing  # noqa: PLC0415 - see the module's head
        from proveout.agent.tuning.machine import TurnTaken  # noqa: PLC0415

        machine = self._machine()

        def work() -> tuple[TuningState, ...]:
            if self._journal is None:
                with suppress(TurnTaken), machine.turn(needed=False):  # who has the turn takes over what is left
                    return self._undo_left(machine, systems_only=systems_only)
                return ()
            host = self._host(self.directory, self._journal)
            return undoing.end(host, self._journal, systems_only=systems_only)

        return await self._in_turn(work, release=release)

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
        for state in await self.revert(release=True):
            level = logging.WARNING if state.outcome in ("residue", "drifted") else logging.INFO
            _log.log(level, "tuning %r: %s%s", state.name, state.outcome, _lines(state))

    # ---- within ----------------------------------------------------------------------------------------------------

    async def _when_free(self, work: Callable[[], _Answer], tell: Callable[[str], None]) -> _Answer:
        """Do it when no agent of another run has tuned the same, and none of this machine is in the middle of a transaction.

        An agent whose coordinator was killed sets the machine back at the end of its lease, so it is waited for; nothing was changed yet.
        """
        from proveout.agent.tuning.machine import Held, TurnTaken  # noqa: PLC0415 - see the module's head

        clock = asyncio.get_running_loop().time
        began_s, told_s = clock(), -TELL_S
        while True:
            try:
                return await self._in_turn(work)
            except Held as fault:
                waited_s, bound_s = clock() - began_s, TURN_S if isinstance(fault, TurnTaken) else HELD_S
                if waited_s >= bound_s:
                    raise
                if not isinstance(fault, TurnTaken) and waited_s - told_s >= TELL_S:
                    told_s = waited_s
                    tell(
                        f"waiting to tune this machine, for {waited_s:.0f} s so far, up to {bound_s:g} s: {fault.what}"
                    )
            await asyncio.sleep(HELD_POLL_S)

    def _tell_endpoints(self, run: str, endpoints: Sequence[Endpoint]) -> None:
        self._run = run
        self._told |= {(run, one.system): one for one in endpoints}

    def _machine(self) -> Machine:
        from proveout.agent.tuning.machine import Machine  # noqa: PLC0415 - see the module's head

        return Machine(self.directory)

    def _holder(self, of: tuple[str, str, str], tunings: Sequence[Tuning], endpoints: Sequence[Endpoint]) -> Holder:
        from proveout.agent.tuning.machine import Holder, claims_of  # noqa: PLC0415 - see the module's head

        before = self._journal.holder.claims if self._journal is not None else ()
        claims = sorted(claims_of(tunings, endpoints).union(before))
        run, epoch, host = of
        return Holder(run=run, epoch=epoch, host=host or self._name, pid=os.getpid(), claims=tuple(claims))

    def _admitted(self, machine: Machine, holder: Holder) -> UndoJournal:
        """The journal to tune with, in which nothing is outstanding that could be undone, but what this run has made."""
        from proveout.agent.tuning import revert as undoing  # noqa: PLC0415 - see the module's head

        if self._journal is not None:
            machine.widen(self._journal, holder)
            return self._journal
        journal = self._journal = machine.open(holder)
        journal.others = lambda: machine.changed_by_others(journal)
        for state in undoing.end(self._host(self.directory, journal), journal):
            _log.warning("tuning %r of an earlier run: %s%s", state.name, state.outcome, _lines(state))
        return journal

    def _undo_left(self, machine: Machine, *, systems_only: bool) -> tuple[TuningState, ...]:
        """Undo what is in journals that no agent holds; those that cannot be trusted or read are named and left alone."""
        from proveout.agent.tuning import revert as undoing  # noqa: PLC0415 - see the module's head
        from proveout.agent.tuning.machine import Held, Holder  # noqa: PLC0415
        from proveout.agent.tuning.undo_journal import UndoJournal  # noqa: PLC0415

        states: list[TuningState] = []
        for directory in reversed(machine.directories()):
            journal = UndoJournal(directory, Holder(host=self._name, pid=os.getpid()))
            try:
                journal.open()
                states += undoing.end(self._host(self.directory, journal), journal, systems_only=systems_only)
            except TaskFault as fault:
                # An agent that lives holds it, others can write it, or it cannot be read.
                usual, distrusted = isinstance(fault, Held), fault.code == "refused"
                level = logging.INFO if usual else logging.WARNING if distrusted else logging.ERROR
                _log.log(level, "left %s alone: %s", directory, one_line(fault))
            if not journal.is_written:  # a full disk: what was undone is known to this process only
                self._journal = journal
                break
            journal.close()
        return tuple(states)

    async def _in_turn(self, work: Callable[[], _Answer], *, release: bool = False) -> _Answer:
        """Run it in a thread, one at a time; a cancellation waits for the thread, which is told to stop.

        The journal is opened and let go of within the turn: whoever waits for his must not hold one that was closed meanwhile.
        """
        from proveout.agent.sandbox.sync_client import Asker  # noqa: PLC0415 - see the module's head

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
                        self._tidy(release=release)
                await asyncio.shield(asker.end())

    def _ask(self, question: str, endpoint: Endpoint, statement: str) -> Any:
        assert self._asker is not None  # noqa: S101 - asked in turns only
        return self._asker.ask(question, endpoint, statement)

    def _tidy(self, *, release: bool) -> None:
        """With nothing outstanding, leave nothing behind; with `release` let the journal go whatever is in it."""
        journal = self._journal
        if journal is not None and journal.is_written and (release or not journal.outstanding()):
            journal.close()
            self._journal = None
        if release and self.is_idle:
            self._told.clear()  # passwords are kept only as long as something may have to be undone with them

    def _host(self, scratch: Path, journal: UndoJournal | None = None) -> Host:
        """This machine; with a journal, as undoing sees it: systems of all runs that the journal is of."""
        from proveout.agent.tuning.host import Host  # noqa: PLC0415 - see the module's head
        from proveout.agent.tuning.programs import Processes  # noqa: PLC0415

        if self._tools is None:
            self._tools = Processes()
        host = Host(policy=self._policy, scratch=scratch, databases=self._databases(journal), tools=self._tools)
        return self._prepare(host)

    def _databases(self, journal: UndoJournal | None) -> DatabasesOfRuns:
        """By (run, system): as a session has told, else a told one that is the same system, else what the journal knows without secrets."""
        from proveout.agent.tuning.database_access import DatabasesOfRuns  # noqa: PLC0415 - see the module's head
        from proveout.agent.tuning.public_dsn import public  # noqa: PLC0415

        known = dict(self._told)
        bare: set[tuple[str, str]] = set()
        same = {(one.engine, public(one)): one for one in self._told.values() if public(one)}
        for key, stored in (journal.reached() if journal is not None else {}).items():
            if key not in known:
                found = same.get((stored.engine, stored.dsn))
                known[key] = (
                    stored if found is None else replace(found, system=stored.system, provisioned=stored.provisioned)
                )
                bare |= {key} if found is None else set()
        return DatabasesOfRuns(known, self._ask, self._run, frozenset(bare))


def _told(closing: asyncio.Task[None]) -> None:
    """What goes wrong when nobody waits any more is told as well."""
    if not closing.cancelled() and (error := closing.exception()) is not None:
        _log.error("tuning could not be undone: %s", error)


def _lines(state: TuningState) -> str:
    return "".join(f"; {line}" for line in state.lines)

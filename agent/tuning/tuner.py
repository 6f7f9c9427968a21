"""Tuning of one agent, from its start to its end, and the handlers of its tasks.

The modules that read and change a host are imported with the first tuning or fault, as agents start faster so.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.errors import TaskFault
from proveout.agent.security.policy import NOTHING, Policy
from proveout.agent.tuning.machine import (
    Held,
    Hold,
    Holder,
    TurnTaken,
    boot,
    claims_of,
    forget_hold,
    public,
    read_hold,
)
from proveout.agent.tuning.programs import Processes, reboot, require_reboot
from proveout.agent.tuning.undo_journal import FILE, Machine, UndoJournal
from proveout.core.errors import one_line
from proveout.dsl.plan.stages import Tuning
from proveout.proto.wire.results import Done, TuningDone, TuningState
from proveout.proto.wire.tasks import ApplyTuning, Endpoint, RebootHost, RevertTuning, VerifyTuning

if TYPE_CHECKING:
    from proveout.agent.daemon.tasks import Resource
    from proveout.agent.tuning.fault_host import HostDisturbances
    from proveout.agent.tuning.host import Host
    from proveout.agent.tuning.sql_access import Databases, SyncClient
    from proveout.agent.tuning.transaction import Moment


# `apply` waits while an agent of another run has tuned the same part of this machine (`machine`), and undoes changes of
# ended agents before it makes its own. After its session an agent holds no journal, even if changes are left in it: the
# next agent of the machine retries.

RESOURCE = "tuning"
STOP_S = 120.0
"""After which what still runs in a helper process for a cancelled turn is ended."""
HELD_S = 30.0
"""Longest wait for the end of another run's tuning: the rest of its lease, and the undoing."""
TURN_S = 300.0
"""Longest wait for another agent's transaction."""
NOTICE_S = 10.0
HELD_POLL_S = 0.2
FAULT_HELD_S, FAULT_POLL_S = 1.0, 0.01
"""The same for a fault, which would begin too late: the time of another agent's transaction."""
PLAN_TURN_S = 10.0
"""Longest wait of a look at the host for another agent's transaction."""

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")


class Tuner:
    """Tuning of one agent.

    `directory`: undo journals of the machine; `host`: name of the agent. Tests replace the host by `prepare`.
    """

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
        self._endpoints: dict[tuple[str, str], Endpoint] = {}
        self._turn = asyncio.Lock()
        self._stop = threading.Event()
        self._tools = Processes()
        self._client: SyncClient | None = None
        self._closing: asyncio.Task[None] | None = None
        self._hold: tuple[str, float] | None = None
        self._late: asyncio.Task[None] | None = None
        self.port = 0
        """The TCP port that the agent listens on."""
        self._disturbances: HostDisturbances | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no undo journal of this machine has outstanding changes."""
        return self._journal is None and not (
            (self.directory / FILE).exists() or next(self.directory.glob(f"*/{FILE}"), None)
        )

    def serve(self, host: str, resources: Mapping[str, Resource]) -> None:
        """Let faults use the servers of a session, on the host of this name."""
        disturbed = self._disturbed()
        disturbed.host, disturbed.port, disturbed.resources = host, self.port, resources

    @property
    def reboots(self) -> bool:
        """Whether the machine reboots: the agent serves no session more."""
        return self._hold is not None

    def reboot_at_end(self, run: str, hold_s: float) -> None:
        """Reboot the machine when the session ends, and keep the changes of this run until it is back, for at most
        `hold_s`."""
        self._hold = run, hold_s

    async def recover(self) -> tuple[TuningState, ...]:
        """Undo changes that earlier agents have left; those that a run holds over a reboot when it is not back in
        time."""
        hold = None if self.is_idle else read_hold(self.directory)
        if hold is not None and (left_s := hold.left_s) > 0.0:
            _log.info("the changes of run %s stay for up to %.0f s: it has rebooted this machine", hold.run, left_s)
            self._late = asyncio.create_task(self._recover_late(left_s))
            return ()
        forget_hold(self.directory)
        return await self._recover_now()

    async def _recover_late(self, left_s: float) -> None:
        await asyncio.sleep(left_s)
        if self._journal is None and read_hold(self.directory) is not None:
            _log.warning("the run that has rebooted this machine is not back: its changes are undone")
            forget_hold(self.directory)
            await self._recover_now()

    async def _recover_now(self) -> tuple[TuningState, ...]:
        states = await self.revert(release=True)
        for state in states:
            level = logging.ERROR if state.outcome == "residue" else logging.WARNING
            _log.log(level, "tuning %r of an earlier run: %s%s", state.name, state.outcome, _lines(state))
        return states

    async def plan(
        self, tunings: Sequence[Tuning], endpoints: Sequence[Endpoint], scratch: Path
    ) -> tuple[TuningState, ...]:
        """The changes to expect. Writes nothing, not even an undo journal, except that changes of killed agents to
        systems are undone, now that their passwords are known."""
        from proveout.agent.tuning.transaction import Transaction  # noqa: PLC0415 - see the module's head

        self._set_endpoints("", endpoints)
        transaction = Transaction(host=self._host(scratch), journal=UndoJournal(self.directory), run="")

        def work() -> tuple[TuningState, ...]:
            if endpoints and self._journal is None and not self.is_idle:
                # another agent that has the turn does not know the passwords
                self._undo_abandoned(Machine(self.directory), systems_only=True, until_s=time.monotonic() + PLAN_TURN_S)
            return transaction.plan(tunings)

        return await self._in_turn(work)

    async def apply(
        self,
        run: str,
        tunings: Sequence[Tuning],
        endpoints: Sequence[Endpoint],
        scratch: Path,
        *,
        host: str = "",
        epoch: str = "",
        notify: Callable[[str], None] = lambda _: None,
        fault: str = "",
        notice: Callable[[Moment], None] = lambda _: None,
    ) -> tuple[TuningState, ...]:
        """Apply all tunings, or none. A cancellation first undoes the changes so far.

        `host` is the name of this host in the plan, `epoch` identifies the coordinator of the run. `notify` gets a text
        from time to time while the call waits for another run. `fault`, `notice`: see `Transaction`; `notice` is called
        in another thread.
        """
        from proveout.agent.tuning.transaction import Stopped, Transaction  # noqa: PLC0415 - see the module's head

        self._set_endpoints(run, endpoints)

        def watch(step: str) -> None:
            if self._stop.is_set():
                raise Stopped(step)

        def work() -> tuple[TuningState, ...]:
            machine = Machine(self.directory)
            with machine.turn():
                journal, lost = self._admitted(machine, self._holder((run, epoch, host), tunings, endpoints))
                if any(tuning.system for tuning in tunings):
                    journal.remember(endpoints, run)
                transaction = Transaction(
                    host=self._host(scratch), journal=journal, run=run, watch=watch, fault=fault, notice=notice
                )
                return (*lost, *transaction.apply(tunings))

        return await self._retry_while_held(work, notify, fault=bool(fault))

    async def look(self, scratch: Path) -> tuple[TuningState, ...]:
        """Verify that the changes of this agent are still in place."""
        from proveout.agent.tuning import transaction as reverting  # noqa: PLC0415 - see the module's head

        def work() -> tuple[TuningState, ...]:
            return () if self._journal is None else reverting.look(self._host(scratch), self._journal)

        return await self._in_turn(work) if self._journal is not None else ()

    async def revert(
        self,
        *,
        systems_only: bool = False,
        tunings: frozenset[str] = frozenset(),
        fault: str = "",
        release: bool = False,
    ) -> tuple[TuningState, ...]:
        """Undo all outstanding changes (or only those of systems, or of some tunings). Changes with `keep` are released
        and stay, except where `tunings` are named. Changes of faults stay, except those of `fault` if it is named:
        these alone are then undone.

        These are the changes of this agent or, if it has none, those of ended agents. `release`: undo the changes of
        faults too, and close the journal even if changes are left in it.
        """
        if self.is_idle or (fault and self._journal is None):
            return ()
        from proveout.agent.tuning import transaction as reverting  # noqa: PLC0415 - see the module's head

        machine = Machine(self.directory)

        def work() -> tuple[TuningState, ...]:
            if self._journal is None:
                return self._undo_abandoned(machine, systems_only=systems_only)
            host = self._host(self.directory, self._journal)
            if tunings or fault:
                return reverting.revert(host, self._journal, tunings=tunings, fault=fault)
            of_fault = None if release else ""
            return reverting.end(host, self._journal, systems_only=systems_only, fault=of_fault)

        return await self._in_turn(work, release=release)

    async def close(self, *, keep_data: bool) -> None:
        """Undo all changes at the end of the session, and log the failures.

        If a program hangs and the session stops waiting, the undoing continues as soon as the program has ended.
        """
        del keep_data  # tuning has no data to keep
        if self._disturbances is not None:
            self.serve(self._name, {})  # the servers of the session have ended
        self._stop.set()
        self._closing = asyncio.ensure_future(self._undo_all() if self._hold is None else self._reboot(*self._hold))
        self._closing.add_done_callback(_log_failure)
        await asyncio.shield(self._closing)

    async def _reboot(self, run: str, hold_s: float) -> None:
        """Close the journal with the changes in it, and reboot; where that fails, undo them."""

        def work() -> bool:
            if self._journal is not None:
                try:
                    Hold(run=run, boot=boot(), from_unix_s=time.time(), hold_s=hold_s).store(self.directory)
                except OSError as error:  # the agent of the next boot would undo the changes
                    _log.error("the host is not rebooted: %s", error)
                    return False
                self._journal.close()
                self._journal = None
            return reboot()

        if not await self._in_turn(work):
            self._hold = None
            forget_hold(self.directory)
            await self._undo_all()

    async def _undo_all(self) -> None:
        if self._journal is None and read_hold(self.directory) is not None:
            return  # until the run that has rebooted this machine is back, or `_recover_late`
        for state in await self.revert(release=True):
            level = logging.WARNING if state.outcome in ("residue", "drifted") else logging.INFO
            _log.log(level, "tuning %r: %s%s", state.name, state.outcome, _lines(state))

    # ---- internals ---------------------------------------------------------------------------------------------------

    async def _retry_while_held(
        self, work: Callable[[], _Answer], notify: Callable[[str], None], *, fault: bool
    ) -> _Answer:
        """Retry `work` while an agent of another run has tuned the same part, or another agent is in a transaction.

        An agent whose coordinator was killed undoes its changes at the end of its lease, so waiting helps. Nothing is
        changed before.
        """
        clock = asyncio.get_running_loop().time
        began_s, noticed_s = clock(), -NOTICE_S
        while True:
            try:
                return await self._in_turn(work, stops=True)
            except Held as held:
                waited_s, bound_s = clock() - began_s, TURN_S if isinstance(held, TurnTaken) else HELD_S
                if waited_s >= (FAULT_HELD_S if fault else bound_s):
                    raise
                if not fault and not isinstance(held, TurnTaken) and waited_s - noticed_s >= NOTICE_S:
                    noticed_s = waited_s
                    notify(
                        f"waiting to tune this machine, for {waited_s:.0f} s so far, up to {bound_s:g} s: {held.what}"
                    )
            await asyncio.sleep(FAULT_POLL_S if fault else HELD_POLL_S)

    def _set_endpoints(self, run: str, endpoints: Sequence[Endpoint]) -> None:
        self._run = run
        self._endpoints |= {(run, one.system): one for one in endpoints}

    def _holder(self, of: tuple[str, str, str], tunings: Sequence[Tuning], endpoints: Sequence[Endpoint]) -> Holder:
        before = self._journal.holder.claims if self._journal is not None else ()
        run, epoch, host = of
        # A run that changes only its own systems claims nothing of the machine; an empty list means an unknown holder.
        claims = sorted(claims_of(tunings, endpoints).union(before)) or [f"run:{run}"]
        return Holder(run=run, epoch=epoch, host=host or self._name, pid=os.getpid(), claims=tuple(claims))

    def _admitted(self, machine: Machine, holder: Holder) -> tuple[UndoJournal, tuple[TuningState, ...]]:
        """Open the journal for this run, after the changes of other runs in it have been undone where possible; those
        of this run, which has rebooted the machine, are taken over, and the states are those that have not survived."""
        from proveout.agent.tuning import transaction as reverting  # noqa: PLC0415 - see the module's head

        if self._journal is not None:
            machine.widen(self._journal, holder)
            return self._journal, ()
        journal = self._journal = machine.open(holder)
        journal.others = lambda: machine.changed_by_others(journal)
        hold = read_hold(self.directory)
        forget_hold(self.directory)
        if hold is not None and hold.run == holder.run:
            return journal, reverting.adopt(self._host(self.directory, journal), journal)
        for state in reverting.end(self._host(self.directory, journal), journal):
            _log.warning("tuning %r of an earlier run: %s%s", state.name, state.outcome, _lines(state))
        return journal, ()

    def _undo_abandoned(self, machine: Machine, *, systems_only: bool, until_s: float = 0.0) -> tuple[TuningState, ...]:
        """Undo the changes in journals that no agent holds, unless another agent has the turn until then, of the
        monotonic clock: it takes them over.
        """
        while True:
            try:
                with machine.turn(needed=False):
                    return self._undo_in_turn(machine, systems_only=systems_only)
            except TurnTaken:
                if time.monotonic() >= until_s:
                    return ()
            time.sleep(HELD_POLL_S)

    def _undo_in_turn(self, machine: Machine, *, systems_only: bool) -> tuple[TuningState, ...]:
        """Undo the changes in journals that no agent holds.

        Journals that are not trusted or not readable are logged and left.
        """
        from proveout.agent.tuning import transaction as reverting  # noqa: PLC0415 - see the module's head

        states: list[TuningState] = []
        for directory in reversed(machine.directories()):
            journal = UndoJournal(directory, Holder(host=self._name, pid=os.getpid()))
            try:
                journal.open()
                states += reverting.end(self._host(self.directory, journal), journal, systems_only=systems_only)
            except TaskFault as fault:
                # A running agent holds it, other users can write it, or it cannot be read.
                held, untrusted = isinstance(fault, Held), fault.code == "refused"
                level = logging.INFO if held else logging.WARNING if untrusted else logging.ERROR
                _log.log(level, "cannot undo the tuning in %s, so it is left: %s", directory, one_line(fault))
            if not journal.is_written:  # the disk is full: the list of undone changes is only in this process
                self._journal = journal
                break
            journal.close()
        return tuple(states)

    async def _in_turn(self, work: Callable[[], _Answer], *, release: bool = False, stops: bool = False) -> _Answer:
        """Run `work` in a thread, one at a time. A cancellation stops the thread, where it looks at `_stop` (`stops`),
        and waits for it, however long that takes: two threads must not change the host at the same time.

        The journal is opened and closed within the turn, so that the next turn never uses a closed journal.
        """
        from proveout.agent.tuning.sql_access import SyncClient  # noqa: PLC0415 - see the module's head

        async with self._turn:
            if stops:  # not before: the stop of another one would be forgotten
                self._stop.clear()
            client = self._client = SyncClient(self._policy)
            job = asyncio.ensure_future(asyncio.to_thread(work))
            try:
                return await asyncio.shield(job)
            except asyncio.CancelledError:
                self._stop.set()
                self._tools.interrupt()
                while not job.done():
                    with suppress(asyncio.CancelledError):
                        await asyncio.wait({job}, timeout=STOP_S)
                        await client.close()  # which ends what a helper process still does for the thread
                job.exception()  # retrieved, so that asyncio does not report it as unhandled
                raise
            finally:
                with suppress(TaskFault):  # keep a journal that cannot be read
                    self._close_journal(release=release)
                await asyncio.shield(client.close())

    def _call(self, name: str, endpoint: Endpoint, statement: str) -> Any:
        assert self._client is not None  # noqa: S101 - set while a turn runs
        return self._client.call(name, endpoint, statement)

    def _close_journal(self, *, release: bool) -> None:
        """Close the journal if no change is outstanding, or with `release` in any case."""
        journal = self._journal
        if journal is not None and journal.is_written and (release or not journal.outstanding()):
            journal.close()
            self._journal = None
        if release and self.is_idle:
            self._endpoints.clear()  # keep passwords only while changes may have to be undone with them

    def _host(self, scratch: Path, journal: UndoJournal | None = None) -> Host:
        """This machine; with a journal, with the systems of all runs in it."""
        from proveout.agent.tuning.host import Host  # noqa: PLC0415 - see the module's head

        host = Host(
            policy=self._policy,
            scratch=scratch,
            databases=self._databases(journal),
            tools=self._tools,
            disturbances=self._disturbed(),
        )
        return self._prepare(host)

    def _disturbed(self) -> HostDisturbances:
        from proveout.agent.tuning.fault_host import HostDisturbances  # noqa: PLC0415 - see the module's head

        if self._disturbances is None:
            self._disturbances = HostDisturbances(host=self._name)
        return self._disturbances

    def _databases(self, journal: UndoJournal | None) -> Databases:
        """Systems by (run, system): from a session, else the same system of another run, else the journal's endpoint
        without secrets.
        """
        from proveout.agent.tuning.sql_access import Databases  # noqa: PLC0415 - see the module's head

        known = dict(self._endpoints)
        bare: set[tuple[str, str]] = set()
        same = {(one.engine, public(one)): one for one in self._endpoints.values() if public(one)}
        for key, stored in (journal.reached() if journal is not None else {}).items():
            if key not in known:
                found = same.get((stored.engine, stored.dsn))
                known[key] = (
                    stored if found is None else replace(found, system=stored.system, provisioned=stored.provisioned)
                )
                bare |= {key} if found is None else set()
        return Databases(known, self._call, self._run, frozenset(bare))


def _log_failure(closing: asyncio.Task[None]) -> None:
    """Log a failure of the undoing after the session has stopped waiting for it."""
    if not closing.cancelled() and (error := closing.exception()) is not None:
        _log.error("cannot undo the tuning of this session: %s", error)


def _lines(state: TuningState) -> str:
    return "".join(f"; {line}" for line in state.lines)


# Refusals and failures of a host are in the result; a TaskFault means that tuning was not tried.


async def apply_tuning(context: TaskContext, spec: ApplyTuning) -> TuningDone:
    """Apply the tunings, or with `check` only report the changes."""
    began = time.monotonic()
    tuner = tuner_of(context)
    if spec.check:
        states = await tuner.plan(spec.tunings, spec.endpoints, context.work_dir)
    else:
        run, epoch = holder_of(context.key)
        notify = partial(context.log, "warning")
        wanted = (spec.tunings, spec.endpoints)
        states = await tuner.apply(run, *wanted, context.work_dir, host=context.host, epoch=epoch, notify=notify)
    return _done(began, states)


async def verify_tuning(context: TaskContext, spec: VerifyTuning) -> TuningDone:
    """Verify that all changes are still in place."""
    del spec
    began = time.monotonic()
    return _done(began, await tuner_of(context).look(context.work_dir))


async def revert_tuning(context: TaskContext, spec: RevertTuning) -> TuningDone:
    """Undo all changes, or those of some tunings."""
    began = time.monotonic()
    return _done(began, await tuner_of(context).revert(systems_only=spec.systems_only, tunings=frozenset(spec.tunings)))


async def reboot_host(context: TaskContext, spec: RebootHost) -> Done:
    """Reboot the host at the end of the session. TaskFault as `require_reboot`."""
    await asyncio.to_thread(require_reboot, context)
    tuner_of(context).reboot_at_end(holder_of(context.key)[0], spec.hold_s)
    return Done()


def holder_of(key: str) -> tuple[str, str]:
    """The run of a task, and the epoch of its coordinator, by its key run/stage/rung/repeat/attempt/…
    (`coordinator.schedule.tasks`).
    """
    run, *rest = key.split("/")
    return run, rest[3].partition(".")[0] if len(rest) > 3 else ""


def tuner_of(context: TaskContext) -> Tuner:
    """The agent's tuner. TaskFault `missing` without one."""
    found = context.resources.get(RESOURCE)
    if found is None:
        raise TaskFault("missing", "this agent cannot tune its host")
    return cast(Tuner, found)


def _done(began: float, states: tuple[TuningState, ...]) -> TuningDone:
    return TuningDone(states=states, seconds=time.monotonic() - began)

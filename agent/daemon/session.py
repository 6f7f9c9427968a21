"""One session on an agent: a run's tasks here, its resources, and its lease, from Welcome until everything is undone.

Flow: the stream's messages -> `receive` -> tasks (`work`), each answered through the outbox -> the stream that is attached.
Streams come and go within the lease; the session stays. A key that is known already is answered with what is known of it.
The session ends once, by `end`: at a Goodbye, at the end of the lease, when a newer coordinator takes over, or with
the agent. Then all tasks are stopped, resources closed in reverse order of their making, child processes that are left ended, and the
work directory removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import shutil
import sqlite3
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from proveout.agent.daemon.lease import Lease
from proveout.agent.daemon.outbox import Departures, Outbox
from proveout.agent.daemon.process_cleanup import end_children
from proveout.agent.daemon.task_journal import AgentJournal
from proveout.agent.daemon.task_runner import Work
from proveout.agent.daemon.tasks import Handler, Resource, TaskContext, TaskFault
from proveout.agent.security import task_rules
from proveout.agent.security.policy import NOTHING, Policy
from proveout.agent.security.redaction import for_people
from proveout.agent.security.signatures import Orders
from proveout.core.disk_space import describe
from proveout.proto.trust.audit_log import AuditLog
from proveout.proto.wire.codec import task_digest
from proveout.proto.wire.messages import (
    AgentMessage,
    Beat,
    BeatReply,
    Cancel,
    CoordinatorMessage,
    Finish,
    Goodbye,
    Hello,
    LogLine,
    Start,
    TaskAccepted,
    TaskArmed,
    TaskDone,
    TaskFailed,
)
from proveout.proto.wire.protobuf_mapping import WireFault
from proveout.proto.wire.results import TaskError, TaskResult
from proveout.proto.wire.tasks import Task, TaskSpec

TASKS_MAX = 256
KEY_MAX = 2000
DEADLINE_MAX_S = 30 * 86400.0
CLOSE_S = 30.0

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Attachment:
    """A stream that speaks for the session at the moment; `open` until it breaks or another one replaces it."""

    open: bool = True


class Session:
    """What an agent does for one coordinator. `work_dir` is made here (0700) and removed at the end.

    `standing` resources are there from the beginning, and closed after all that the session's tasks have made.
    """

    def __init__(
        self,
        hello: Hello,
        work_dir: Path,
        journal: AgentJournal,
        table: Mapping[type, Handler],
        *,
        orders: Orders,
        audit: AuditLog,
        policy: Policy = NOTHING,
        standing: Mapping[str, Resource] = MappingProxyType({}),
    ) -> None:
        self.hello = hello
        self._audit = audit
        self.orders = orders
        self._policy = policy
        self.name = uuid.uuid4().hex
        self.work_dir = work_dir
        self.resources: dict[str, Resource] = dict(standing)
        self.ended = asyncio.Event()
        self._journal = journal
        self._table = table
        self._outbox = Outbox(departures=Departures(hello.gather_s, hello.host))
        self._works: dict[str, Work] = {}
        self._runs: dict[str, asyncio.Task[None]] = {}
        self._lease = Lease(hello.lease_s, time.monotonic_ns())
        self._attachment: Attachment | None = None
        self._ending: asyncio.Task[None] | None = None
        work_dir.mkdir(mode=0o700, parents=True)
        self._note("session", run=hello.run_id, epoch=hello.epoch, host=hello.host, head=hello.audit)
        self._watch = asyncio.create_task(self._watch_lease())

    # ---- streams ---------------------------------------------------------------------------------------------------

    @property
    def attached(self) -> bool:
        """Whether a stream speaks for the session now."""
        return self._attachment is not None and self._attachment.open

    @property
    def lease_remaining_s(self) -> float:
        """Seconds until the session ends unless a beat comes."""
        return self._lease.remaining_s(time.monotonic_ns())

    def attach(self) -> Attachment:
        """A (new) stream speaks for the session from now on; one that did so is detached. Renews the lease."""
        if self._attachment is not None:
            self.detach(self._attachment)
        self._lease.renew(time.monotonic_ns())
        self._attachment = Attachment()
        return self._attachment

    async def room(self) -> None:
        """Wait until there is room for more answers: who does not listen is not heard either."""
        await self._outbox.room()

    def detach(self, attachment: Attachment) -> None:
        """That stream is gone; what waits to be said waits for the next one, for as long as the lease lasts."""
        if attachment.open:
            attachment.open = False
            self._outbox.forget_beats()
            self._outbox.nudge()

    async def speak(self, attachment: Attachment) -> AsyncIterator[AgentMessage]:
        """What to say on that stream, until it is detached or the session has ended and said everything."""
        while attachment.open and not self._outbox.finished:
            message = await self._outbox.take()
            if message is None:
                continue
            if isinstance(message, BeatReply):
                message = replace(message, replied_ns=time.monotonic_ns())
            yield message

    # ---- what comes in ---------------------------------------------------------------------------------------------

    def receive(self, message: CoordinatorMessage, digest: str = "") -> None:
        """Act on a message of the attached stream. WireFault for a second Hello.

        `digest` is that of a task (`codec.came_digest`), when it is known already.
        """
        match message:
            case Beat():
                now_ns = time.monotonic_ns()
                self._lease.renew(now_ns)
                self._outbox.put(
                    BeatReply(sequence=message.sequence, sent_ns=message.sent_ns, received_ns=now_ns, replied_ns=now_ns)
                )
            case Task():
                self._take(message, digest or task_digest(message))
            case Goodbye():
                self.end("cancelled", "the coordinator said goodbye", keep_data=message.keep_data)
            case Start() | Finish() | Cancel():
                self._control(message)
            case Hello():
                raise WireFault("a second Hello came on a stream")

    def _control(self, message: Start | Finish | Cancel) -> None:
        """Something for a task under way; one that has ended meanwhile has said so, and there is nothing to do."""
        work = self._works.get(message.key)
        if work is None:
            return
        match message:
            case Start():
                work.start_at(message.t0_ns)
                self._outbox.quiet_before(message.t0_ns / 1e9)
            case Finish():
                work.finish()
            case Cancel():
                work.stop("cancelled", message.reason)

    def _take(self, task: Task, digest: str) -> None:
        if len(task.key) > KEY_MAX:
            raise WireFault(f"a task has a key of {len(task.key)} characters")
        run, epoch = self.hello.run_id, self.hello.epoch
        try:
            known = self._journal.known(run, epoch, task.key)
            if known is not None and known.digest == digest and not self.orders.objection(task, digest):
                self._note_sequence(run, task)
            if known is None:
                self._accept(task, digest)
            elif known.digest != digest:
                self._refuse(task.key, "refused", "this key was used for another task")
            elif known.outcome is not None:
                self._outbox.put(TaskAccepted(key=task.key))
                self._outbox.put(known.outcome)
            elif task.key in self._works:
                self._repeat_state(self._works[task.key])
            else:
                self._refuse(task.key, "lease_lost", "this task was taken by a session of the agent that has ended")
        except (sqlite3.Error, OSError) as error:
            place = describe(self._journal.directory)
            self._refuse(task.key, "disk_full", f"the agent cannot write its journal: {error} ({place})")

    def _note_sequence(self, run: str, task: Task) -> None:
        """A task was signed anew after a broken connection: when its key is forgotten, with the run, its number must not be.

        A disk that is full keeps it from that, not the task from its answer.
        """
        try:
            self._journal.note_sequence(run, task.sequence)
        except (sqlite3.Error, OSError) as error:
            _log.warning("the number %d of task %s is not noted: %s", task.sequence, task.key, error)

    def _accept(self, task: Task, digest: str) -> None:
        handler = self._table.get(type(task.spec))
        if not (math.isfinite(task.deadline_s) and 0 < task.deadline_s <= DEADLINE_MAX_S):
            return self._refuse(task.key, "invalid", f"{task.deadline_s} s is no deadline")
        if reason := self._objection(task, digest):
            _log.warning("refused task %s: %s", task.key, reason)
            self._note("task refused", key=task.key, kind=type(task.spec).__name__, reason=reason)
            return self._refuse(task.key, "refused", f"the task is not taken: {reason}")
        if handler is None:
            return self._refuse(task.key, "missing", f"this agent cannot do {type(task.spec).__name__}")
        if len(self._works) >= TASKS_MAX or self._ending is not None:
            return self._refuse(task.key, "refused", "the agent has too many tasks, or is about to leave")
        fields: dict[str, str | int] = {
            "key": task.key,
            "kind": type(task.spec).__name__,
            "digest": digest,
            "sequence": task.sequence,
        }
        self._audit.note("task", **fields)  # what cannot be written down is not done
        self._journal.accept(self.hello.run_id, self.hello.epoch, task.key, digest, task.sequence)
        self._outbox.put(TaskAccepted(key=task.key))
        work = Work(task.key, self.hello.host, self.work_dir, self.resources, self._outbox.put, policy=self._policy)
        self._works[task.key] = work
        self._runs[task.key] = asyncio.create_task(self._run(work, handler, task), name=task.key)
        return None

    def _objection(self, task: Task, digest: str) -> str:
        """What is wrong with a new task's signature, "" when nothing is; a number that was passed is a task of before."""
        if reason := self.orders.objection(task, digest):
            return reason
        highest = self._journal.highest_sequence(self.hello.run_id)
        return "" if task.sequence > highest else "it is older than another one that was taken: somebody sends it again"

    async def _run(self, work: Work, handler: Handler, task: Task) -> None:
        outcome = await work.run(self._held_to_rules(handler), task.spec, task.deadline_s)
        try:
            self._journal.finish(self.hello.run_id, self.hello.epoch, outcome)
        except WireFault as fault:
            outcome = TaskFailed(key=work.key, error=TaskError(code="fault", message=fault.what, way_out=fault.way_out))
            self._journal.finish(self.hello.run_id, self.hello.epoch, outcome)
        except sqlite3.Error:
            _log.exception("the outcome of %s could not be noted", work.key)
        code = "done" if isinstance(outcome, TaskDone) else outcome.error.code
        self._note("outcome", key=work.key, code=code)
        self._outbox.put(outcome)
        del self._works[work.key], self._runs[work.key]
        if isinstance(outcome, TaskDone):
            _log.info("task %s is done", work.key)
        else:
            _log.warning("task %s failed: %s: %s", work.key, outcome.error.code, outcome.error.message)

    def _held_to_rules(self, handler: Handler) -> Handler:
        """The handler, which is not called for a task that breaks a rule."""

        async def handle(context: TaskContext, spec: TaskSpec) -> TaskResult:
            # In a thread where models are imported and long texts are read: that takes long enough to make a beat late.
            broken = (
                await asyncio.to_thread(task_rules.objection, spec)
                if task_rules.takes_long(spec)
                else task_rules.objection(spec)
            )
            if broken is not None:
                self._note("task refused", key=context.key, kind=type(spec).__name__, reason=for_people(broken.message))
                what = f"the task is not valid: {type(spec).__name__}: {broken.message}"
                raise TaskFault("invalid", what, way_out=broken.way_out)
            return await handler(context, spec)

        return handle

    def _repeat_state(self, work: Work) -> None:
        self._outbox.put(TaskAccepted(key=work.key))
        if work.is_armed:
            self._outbox.put(TaskArmed(key=work.key))

    def _note(self, what: str, **fields: str | int) -> None:
        """Write down what has happened; a disk that is full does not undo it."""
        try:
            self._audit.note(what, **fields)
        except OSError:
            _log.exception("%s could not be written down", what)

    def _refuse(self, key: str, code: str, message: str) -> None:
        self._outbox.put(TaskFailed(key=key, error=TaskError(code=code, message=for_people(message))))

    # ---- the end ---------------------------------------------------------------------------------------------------

    async def _watch_lease(self) -> None:
        while (remaining_s := self.lease_remaining_s) > 0:  # noqa: ASYNC110 -- the clock ends a lease, nobody signals it
            await asyncio.sleep(remaining_s)
        _log.warning("the lease of run %s ended: no beat for %g s", self.hello.run_id, self.hello.lease_s)
        self.end("lease_lost", "the agent lost its coordinator", keep_data=True)

    def end(self, code: str, reason: str, *, keep_data: bool) -> None:
        """Begin to end the session, once; await `ended`. Tasks that are under way fail with `code` and `reason`."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(code, reason, keep_data))

    async def _end(self, code: str, reason: str, keep_data: bool) -> None:
        _log.info("the session of run %s ends: %s", self.hello.run_id, reason)
        self._outbox.put(LogLine(level="info", text=f"the agent ends its session: {reason}"))
        self._watch.cancel()
        for work in self._works.values():
            work.stop(code, reason)
        if self._runs:
            await asyncio.wait(set(self._runs.values()))
        for name, resource in reversed(list(self.resources.items())):
            await self._close(name, resource, keep_data)
        await asyncio.to_thread(end_children)
        await asyncio.to_thread(shutil.rmtree, self.work_dir, ignore_errors=True)
        with contextlib.suppress(sqlite3.Error):
            self._journal.blank()
            if not keep_data:
                self._journal.forget(self.hello.run_id)
        self._note("session ended", run=self.hello.run_id, epoch=self.hello.epoch, reason=reason)
        with contextlib.suppress(OSError):
            await asyncio.to_thread(self._audit.sync)
        self._outbox.close()
        self.ended.set()

    async def _close(self, name: str, resource: Resource, keep_data: bool) -> None:
        try:
            async with asyncio.timeout(CLOSE_S):
                await resource.close(keep_data=keep_data)
        except Exception as error:  # noqa: BLE001 -- the others must be closed whatever is wrong with this one
            _log.error("%s could not be closed", name, exc_info=error)
            text = f"{name} could not be closed in order: {type(error).__name__}: {error}"
            self._outbox.put(LogLine(level="error", text=for_people(text)))

"""One session of an agent: its tasks, their resources, the lease, and the queue of messages to the coordinator.

Flow: messages of the stream -> `receive` -> tasks, each answered through the outbox -> the attached stream.
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
import zlib
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import psutil

from proveout.agent.daemon.task_journal import AgentJournal
from proveout.agent.daemon.tasks import BATCH_MAX, DEADLINE_MAX_S, Handler, Resource, TaskContext, TaskRunner
from proveout.agent.errors import TaskFault, sanitize
from proveout.agent.security import task_rules
from proveout.agent.security.authz import TaskVerifier
from proveout.agent.security.policy import NOTHING, Policy
from proveout.core.data_classes import dataclass
from proveout.core.directories import describe
from proveout.proto.audit_log import AuditLog
from proveout.proto.wire.codec import WireFault, task_digest, task_from_bytes
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
    Sample,
    Samples,
    Start,
    TaskAccepted,
    TaskArmed,
    TaskDone,
    TaskFailed,
    TaskProgress,
    Trigger,
)
from proveout.proto.wire.results import TaskError, TaskResult
from proveout.proto.wire.tasks import SignedTask, Task, TaskSpec

# With many agents, a coordinator requests samples in batches: they wait for the next send time of this host, or for any
# other message, which takes them along in order. Send times of different hosts are spread over the interval.

LIMIT = 1000
ANSWERS_MAX = 2000
BEATS_MAX = 64
QUIET_S = 0.05
"""No samples are sent during this time before the start of a load."""


class SendSchedule:
    """Send times of a host: every `every_s`, with an offset from the host's name.

    Pure; times are of `time.monotonic`, s.
    """

    def __init__(self, every_s: float, host: str) -> None:
        self.every_s = every_s
        self._first_s = every_s * zlib.crc32(host.encode()) / 2**32
        self._start_s = -math.inf

    def quiet_before(self, start_s: float) -> None:
        """A load starts at this time: send no samples just before it."""
        self._start_s = start_s

    def after(self, now_s: float) -> float:
        """The next send time."""
        next_s = now_s + (self._first_s - now_s) % self.every_s
        return self._start_s if self._start_s - QUIET_S <= next_s < self._start_s else next_s


class Outbox:
    """A queue with one reader at a time. Without `schedule` every message is sent at once."""

    def __init__(self, limit: int = LIMIT, schedule: SendSchedule | None = None) -> None:
        self._limit = limit
        self._departures = schedule if schedule is not None and schedule.every_s > 0.0 else None
        self._timer: asyncio.TimerHandle | None = None
        self._flushing = False
        self._waiting: deque[AgentMessage] = deque()
        self._beats: deque[BeatReply] = deque(maxlen=BEATS_MAX)
        self._taken = asyncio.Event()
        self._droppable = 0
        self._dropped = 0
        self._wake = asyncio.Event()
        self._closed = False

    def put(self, message: AgentMessage) -> None:
        """Queue a message. A reply to a beat goes first; a sample may wait for a batch."""
        if isinstance(message, BeatReply):
            self._beats.append(message)
            self._wake.set()
            return
        if not isinstance(message, (Sample, TaskProgress, LogLine)):
            self._waiting.append(message)
        elif self._droppable < self._limit:
            self._droppable += 1
            self._waiting.append(message)
        else:
            self._dropped += 1
        # The first sample of a task shows that it has started: the coordinator waits for it.
        if self._departures is not None and isinstance(message, Sample) and message.sequence > 1 and not self._dropped:
            self._wait_for_schedule(self._departures)
        else:
            self._flush()

    def quiet_before(self, start_s: float) -> None:
        """A load starts at this time of `time.monotonic`."""
        if self._departures is not None:
            self._departures.quiet_before(start_s)

    def _wait_for_schedule(self, schedule: SendSchedule) -> None:
        if self._timer is None and not self._flushing:
            now_s = time.monotonic()
            left_s = schedule.after(now_s) - now_s
            self._timer = asyncio.get_running_loop().call_later(left_s, self._flush)

    def _flush(self) -> None:
        """Send all messages that wait."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._flushing = True
        self._wake.set()

    def close(self) -> None:
        """No message is put after this; `take` gives the remaining messages, then None."""
        self._closed = True
        self._flush()
        self._taken.set()

    def wake(self) -> None:
        """Make a waiting `take` return None, so that its caller checks its state."""
        self._wake.set()

    async def wait_for_room(self) -> None:
        """Back-pressure: wait while more than `ANSWERS_MAX` answers are queued. A broken stream cancels the wait."""
        while len(self._waiting) - self._droppable > ANSWERS_MAX and not self._closed:
            self._taken.clear()
            await self._taken.wait()

    def drop_beat_replies(self) -> None:
        self._beats.clear()

    async def take(self) -> AgentMessage | None:
        """The next message; None after `wake` and at the end."""
        if not (self._beats or self._flushing or self._closed):
            self._wake.clear()
            await self._wake.wait()
        if self._beats:
            return self._beats.popleft()
        if not self._flushing:
            return None
        if not self._waiting:
            self._flushing = False
            return self._report_dropped()
        return self._next()

    def _next(self) -> AgentMessage:
        """The next queued message; consecutive samples become one batch if there is a schedule."""
        message = self._waiting.popleft()
        self._taken.set()
        if not isinstance(message, (Sample, TaskProgress, LogLine)):
            return message
        self._droppable -= 1
        if self._departures is None or not isinstance(message, Sample):
            return message
        batch = [message]
        while self._waiting and isinstance(following := self._waiting[0], Sample) and len(batch) < BATCH_MAX:
            batch.append(following)
            self._waiting.popleft()
            self._droppable -= 1
        return Samples(samples=tuple(batch)) if len(batch) > 1 else message

    def _report_dropped(self) -> LogLine | None:
        if not self._dropped:
            return None
        text = (
            f"{self._dropped} messages of this agent (samples, progress, log lines) were dropped: its "
            "send queue was full"
        )
        self._dropped = 0
        return LogLine(level="warning", text=text)

    @property
    def finished(self) -> bool:
        """Closed, and all messages taken."""
        return self._closed and not self._beats and not self._waiting and not self._dropped


TASKS_MAX = 256
KEY_MAX = 2000
CLOSE_S = 30.0
TERMINATE_S = 2.0

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Attachment:
    """The stream of a session; `open` until it breaks or another one replaces it."""

    open: bool = True


class Session:
    """The work of an agent for one coordinator. `work_dir` is created here (0700) and removed at the end.

    `permanent` resources exist from the beginning, and are closed after all resources of the session's tasks.
    """

    def __init__(
        self,
        hello: Hello,
        work_dir: Path,
        journal: AgentJournal,
        table: Mapping[type, Handler],
        *,
        verifier: TaskVerifier,
        audit: AuditLog,
        policy: Policy = NOTHING,
        permanent: Mapping[str, Resource] = MappingProxyType({}),
    ) -> None:
        self.hello = hello
        self._audit = audit
        self.verifier = verifier
        self._policy = policy
        self.name = uuid.uuid4().hex
        self.work_dir = work_dir
        self.resources: dict[str, Resource] = dict(permanent)
        self.ended = asyncio.Event()
        self._journal = journal
        self._table = table
        self._outbox = Outbox(schedule=SendSchedule(hello.gather_s, hello.host))
        self._runners: dict[str, TaskRunner] = {}
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
        return self._attachment is not None and self._attachment.open

    @property
    def is_ending(self) -> bool:
        """Whether it takes no more tasks: its work is being ended, or has ended."""
        return self._ending is not None

    def attach(self) -> Attachment:
        """Attach a new stream and detach the old one. Renews the lease."""
        if self._attachment is not None:
            self.detach(self._attachment)
        self._lease.renew(time.monotonic_ns())
        self._attachment = Attachment()
        return self._attachment

    async def wait_for_room(self) -> None:
        """Back-pressure: stop reading while the send queue is full."""
        await self._outbox.wait_for_room()

    def detach(self, attachment: Attachment) -> None:
        """Detach a stream. Queued messages wait for the next stream, until the lease ends."""
        if attachment.open:
            attachment.open = False
            self._outbox.drop_beat_replies()
            self._outbox.wake()

    async def outgoing(self, attachment: Attachment) -> AsyncIterator[AgentMessage]:
        """Messages to send on the stream, until it is detached, or the session has ended and all are sent."""
        while attachment.open and not self._outbox.finished:
            message = await self._outbox.take()
            if message is None:
                continue
            if isinstance(message, BeatReply):
                message = replace(message, replied_ns=time.monotonic_ns())
            yield message

    # ---- incoming messages ---------------------------------------------------------------------------------------

    def receive(self, message: CoordinatorMessage) -> None:
        """Handle a message of the attached stream. WireFault for a second Hello, and a task that cannot be read."""
        match message:
            case Beat():
                now_ns = time.monotonic_ns()
                self._lease.renew(now_ns)
                self._outbox.put(
                    BeatReply(sequence=message.sequence, sent_ns=message.sent_ns, received_ns=now_ns, replied_ns=now_ns)
                )
            case SignedTask():
                task = task_from_bytes(message.task)
                if not any("/start:" in key for key in (task.key, *self._runners)):
                    # the coordinator goes on, so it has journalled the answers of all starts
                    for resource in self.resources.values():
                        getattr(resource, "answered", lambda: None)()
                self._take(message, task)
            case Goodbye():
                self.end("cancelled", "the coordinator sent Goodbye", keep_data=message.keep_data)
            case Start() | Trigger() | Finish() | Cancel():
                self._control(message)
            case Hello():
                raise WireFault("the stream carried a second Hello")

    def _control(self, message: Start | Trigger | Finish | Cancel) -> None:
        """Control a running task. Of one that has ended the outcome is on its way. The Cancel of a task that does not
        run here is answered, by its outcome if it is known: a coordinator that had lost this agent waits for its
        end."""
        runner = self._runners.get(message.key)
        if runner is not None:
            runner.control(message)
            if isinstance(message, Start):
                self._outbox.quiet_before(message.t0_ns / 1e9)
        elif isinstance(message, Cancel):
            with contextlib.suppress(sqlite3.Error):
                known = self._journal.known(self.hello.run_id, self.hello.epoch, message.key)
                if known is not None and known.outcome is not None:
                    return self._outbox.put(known.outcome)
            self._refuse(message.key, "cancelled", "the task does not run here")
        return None

    def _take(self, signed: SignedTask, task: Task) -> None:
        if len(task.key) > KEY_MAX:
            raise WireFault(f"the key of a task has {len(task.key)} characters; the limit is {KEY_MAX}")
        run, epoch, digest = self.hello.run_id, self.hello.epoch, task_digest(signed.task)
        try:
            known = self._journal.known(run, epoch, task.key)
            if known is not None and known.digest == digest and not self.verifier(signed):
                self._note_sequence(run, task.key, signed.sequence)
            if known is None:
                self._accept(signed, task, digest)
            elif known.digest != digest:
                self._refuse(task.key, "refused", "the key of this task was used for another task")
            elif known.outcome is not None:
                self._outbox.put(TaskAccepted(key=task.key))
                self._outbox.put(known.outcome)
            elif (runner := self._runners.get(task.key)) is not None:
                self._outbox.put(TaskAccepted(key=task.key))
                if runner.is_armed:
                    self._outbox.put(TaskArmed(key=task.key))
            else:
                self._refuse(task.key, "lease_lost", "an earlier session of the agent accepted this task and has ended")
        except (sqlite3.Error, OSError) as error:
            space = describe(self._journal.directory)
            self._refuse(task.key, "disk_full", f"the agent cannot write its journal: {error} ({space})")

    def _note_sequence(self, run: str, key: str, sequence: int) -> None:
        """Store the sequence number of a known task that was signed again after a broken connection.

        It must outlive the key, which is removed with the run. A full disk prevents the write, but not the answer to
        the task.
        """
        try:
            self._journal.note_sequence(run, sequence)
        except (sqlite3.Error, OSError) as error:
            _log.warning("cannot store the sequence number %d of task %s: %s", sequence, key, error)

    def _accept(self, signed: SignedTask, task: Task, digest: str) -> None:
        handler = self._table.get(type(task.spec))
        if not (math.isfinite(task.deadline_s) and 0 < task.deadline_s <= DEADLINE_MAX_S):
            return self._refuse(task.key, "invalid", f"{task.deadline_s} s is not a valid deadline")
        if reason := self._objection(signed):
            _log.warning("refused task %s: %s", task.key, reason)
            self._note("task refused", key=task.key, kind=type(task.spec).__name__, reason=reason)
            return self._refuse(task.key, "refused", f"the agent does not accept the task: {reason}")
        if handler is None:
            return self._refuse(task.key, "missing", f"this agent has no handler for {type(task.spec).__name__}")
        if len(self._runners) >= TASKS_MAX or self._ending is not None:
            return self._refuse(task.key, "refused", "the agent has too many tasks, or its session is ending")
        # a task that cannot be logged is not run
        self._audit.note("task", key=task.key, kind=type(task.spec).__name__, digest=digest, sequence=signed.sequence)
        self._journal.accept(self.hello.run_id, self.hello.epoch, task.key, digest, signed.sequence)
        self._outbox.put(TaskAccepted(key=task.key))
        runner = TaskRunner(
            task.key, self.hello.host, self.work_dir, self.resources, self._outbox.put, policy=self._policy
        )
        self._runners[task.key] = runner
        self._runs[task.key] = asyncio.create_task(self._run(runner, handler, task), name=task.key)
        return None

    def _objection(self, task: SignedTask) -> str:
        """The reason against a new task's signature or sequence number; "" if both are valid. A lower number is a
        replay.
        """
        if reason := self.verifier(task):
            return reason
        highest = self._journal.highest_sequence(self.hello.run_id)
        return (
            ""
            if task.sequence > highest
            else "its sequence number is not above the highest accepted one, so it may be a replay"
        )

    async def _run(self, runner: TaskRunner, handler: Handler, task: Task) -> None:
        outcome = await runner.run(self._with_rules(handler), task.spec, task.deadline_s)
        try:
            self._journal.finish(self.hello.run_id, self.hello.epoch, outcome)
        except sqlite3.Error:
            _log.exception("cannot store the outcome of task %s", runner.key)
        code = "done" if isinstance(outcome, TaskDone) else outcome.error.code
        self._note("outcome", key=runner.key, code=code)
        self._outbox.put(outcome)
        del self._runners[runner.key], self._runs[runner.key]
        if isinstance(outcome, TaskDone):
            _log.info("task %s is done", runner.key)
        else:
            _log.warning("task %s failed: %s: %s", runner.key, outcome.error.code, outcome.error.message)

    def _with_rules(self, handler: Handler) -> Handler:
        """The handler behind a check of the task against `task_rules`."""

        async def handle(context: TaskContext, spec: TaskSpec) -> TaskResult:
            # In a thread if models are imported or long texts are parsed: that would delay a beat.
            broken = (
                await asyncio.to_thread(task_rules.objection, spec)
                if task_rules.is_slow_to_check(spec)
                else task_rules.objection(spec)
            )
            if broken is not None:
                self._note("task refused", key=context.key, kind=type(spec).__name__, reason=sanitize(broken.message))
                what = f"the task is not valid: {type(spec).__name__}: {broken.message}"
                raise TaskFault("invalid", what, way_out=broken.way_out)
            return await handler(context, spec)

        return handle

    def _note(self, what: str, **fields: str | int) -> None:
        """Write an entry to the audit log. A full disk is reported, and does not stop the session."""
        try:
            self._audit.note(what, **fields)
        except OSError:
            _log.exception("cannot write the entry %r to the audit log", what)

    def _refuse(self, key: str, code: str, message: str) -> None:
        self._outbox.put(TaskFailed(key=key, error=TaskError(code=code, message=sanitize(message))))

    # ---- the end ---------------------------------------------------------------------------------------------------

    async def _watch_lease(self) -> None:
        while (remaining_s := self._lease.remaining_s(time.monotonic_ns())) > 0:  # noqa: ASYNC110 -- ends by the clock
            await asyncio.sleep(remaining_s)
        _log.warning("the lease of run %s has ended: no beat for %g s", self.hello.run_id, self.hello.lease_s)
        self.end("lease_lost", "the agent lost its coordinator", keep_data=True)

    def end(self, code: str, reason: str, *, keep_data: bool) -> None:
        """Start to end the session, once; await `ended`. Running tasks fail with `code` and `reason`."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(code, reason, keep_data))

    async def _end(self, code: str, reason: str, keep_data: bool) -> None:
        _log.info("the session of run %s ends: %s", self.hello.run_id, reason)
        self._outbox.put(LogLine(level="info", text=f"the agent ends its session: {reason}"))
        self._watch.cancel()
        for runner in self._runners.values():
            runner.stop(code, reason)
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
        except Exception as error:  # noqa: BLE001 -- a failure must not keep the other resources open
            _log.error("cannot close %s", name, exc_info=error)
            text = f"cannot close {name}: {type(error).__name__}: {error}"
            self._outbox.put(LogLine(level="error", text=sanitize(text)))


class Lease:
    """A lease of `lease_s` since its last renewal. Times are nanoseconds of one monotonic clock, passed in. Pure."""

    def __init__(self, lease_s: float, now_ns: int) -> None:
        self._lease_ns = round(lease_s * 1e9)
        self._ends_ns = now_ns + self._lease_ns

    def renew(self, now_ns: int) -> None:
        """Extend the lease to `lease_s` from now. A lease that has ended stays ended."""
        if not self.ended(now_ns):
            self._ends_ns = now_ns + self._lease_ns

    def ended(self, now_ns: int) -> bool:
        return now_ns >= self._ends_ns

    def remaining_s(self, now_ns: int) -> float:
        """Seconds until the lease ends without a renewal; 0 if it has ended."""
        return max(0, self._ends_ns - now_ns) / 1e9


def end_children() -> None:
    """Terminate, then kill, all descendants of this process. Blocks for at most a few seconds."""
    if not _may_have_children():
        return
    children = psutil.Process().children(recursive=True)
    for child in children:
        _log.warning("ending process %d, which a handler has left behind", child.pid)
        with contextlib.suppress(psutil.Error):  # it has ended, or is another user's, as of sudo
            child.terminate()
    running = psutil.wait_procs(children, timeout=TERMINATE_S)[1]
    for child in running:
        with contextlib.suppress(psutil.Error):
            child.kill()
    psutil.wait_procs(running, timeout=TERMINATE_S)


def _may_have_children() -> bool:
    """Whether the kernel lists a child. False saves psutil's scan of all processes of the host."""
    try:
        return any((thread / "children").read_bytes() for thread in Path("/proc/self/task").iterdir())
    except OSError:  # a thread has just ended, or the kernel has no such lists
        return True

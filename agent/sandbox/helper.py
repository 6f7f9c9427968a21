"""An aide as its agent sees it: a process that is started when its first task comes, and that ends with the session.

Flow: `Aide.run(context, spec)` -> the process -> what it says of the task goes on through the context -> the result, or a TaskFault.
One process does all that is done with the same privileges; when it dies, the tasks under way fail, and the next one starts another.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from proveout.agent.daemon.tasks import TaskContext, TaskFault
from proveout.agent.sandbox import helper_messages, privileges
from proveout.core import child_process
from proveout.proto.wire.messages import Cancel, Finish, LogLine, Sample, TaskDone, TaskFailed, TaskProgress
from proveout.proto.wire.protobuf_mapping import WireFault
from proveout.proto.wire.results import TaskResult
from proveout.proto.wire.tasks import Endpoint, Task, TaskSpec

MODULE = "proveout.agent.sandbox.helper_main"
START_S = 60.0
STOP_S = 14.0
"""Below the time that an agent gives a handler to stop (`work.STOP_GRACE_S`)."""
CLOSE_S = 25.0
"""Below the time that a session gives a resource to close (`session.CLOSE_S`)."""
DEADLINE_S = 30 * 86400.0
LINE_BYTES_MAX = 1 << 16
LAST_WORDS_MAX = 8
LAST_WORDS_S = 1.0

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Job:
    """A task under way: who hears of it, and how it ends."""

    context: TaskContext
    outcome: asyncio.Future[TaskDone | TaskFailed] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Aide:
    """All that is done with one set of privileges (a `tasks.Resource`). `said(system)`: what a server's log says of replication;
    `holds(names)` is told which resources the process keeps."""

    def __init__(
        self,
        told: str,
        engine: str,
        *,
        said: Callable[[str], str] = lambda _: "",
        holds: Callable[[Sequence[str]], None] = lambda _: None,
    ) -> None:
        self._told, self._engine, self._said, self._holds = told, engine, said, holds
        self._process: _Process | None = None
        self._starting = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._process.pid if self._process is not None and self._process.alive else None

    async def run(self, context: TaskContext, spec: TaskSpec) -> TaskResult:
        """Have a task done. TaskFault as its handler raises it; `fault` when the process dies."""
        process = await self._running(context.host)
        return await process.run(context, spec)

    async def call(self, name: str, endpoint: Endpoint, **arguments: Any) -> Any:
        """Have a function of `serve.CALLS` called; what it returns, or its TaskFault."""
        process = await self._running("")
        return await process.ask("call", name, {"endpoint": asdict(endpoint), **arguments})

    async def close_held(self, name: str, *, keep_data: bool) -> None:
        """Close one resource that the process keeps; it is gone when the process is."""
        if self._process is not None and self._process.alive:
            await self._process.ask("close", name, keep_data)

    async def close(self, *, keep_data: bool) -> None:
        """End the process, in order where that works."""
        process, self._process = self._process, None
        if process is not None:
            await process.end(keep_data)

    async def _running(self, host: str) -> _Process:
        async with self._starting:
            if self._process is not None and not self._process.alive:
                await self._process.kill()
                self._process = None
            if self._process is None:
                self._process = await _Process.start(self, host)
            return self._process

    def command(self) -> tuple[tuple[str, ...], dict[str, str]]:
        """Arguments and environment of the process."""
        argv = child_process.python(MODULE, str(os.getpid()), self._told, self._engine)
        own = child_process.environment(*child_process.of_engine(self._engine))
        return argv, privileges.environment(self._told, own)

    def heard(self, said: helper_messages.Words) -> str | None:
        """What the process says beside its tasks; the answer where it asks."""
        match said:
            case ["holds", list(names)]:
                self._holds([str(name) for name in names])
            case ["ask", int(), str(system)]:
                return self._said(system)
        return None


class _Process:
    """One process: `jobs` by key, `asked` by number."""

    def __init__(self, aide: Aide, process: Process) -> None:
        assert process.stdin is not None and process.stdout is not None  # noqa: S101 - PIPE
        self._aide, self._process = aide, process
        self._stdin, self._stdout = process.stdin, process.stdout
        self._jobs: dict[str, _Job] = {}
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count(1)
        self._up = asyncio.get_running_loop().create_future()
        self._last_words: deque[str] = deque(maxlen=LAST_WORDS_MAX)
        self._pidfd = -1
        with contextlib.suppress(ProcessLookupError):  # it has ended already, which listening to it will tell
            self._pidfd = os.pidfd_open(process.pid)
        self._listeners = [asyncio.create_task(self._listen()), asyncio.create_task(self._log_lines())]
        self.alive = True

    @classmethod
    async def start(cls, aide: Aide, host: str) -> _Process:
        argv, environment = aide.command()
        started = await asyncio.create_subprocess_exec(
            *argv,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            limit=LINE_BYTES_MAX,
            env=environment,
            cwd=child_process.DIRECTORY,
        )
        process = cls(aide, started)
        process._send(helper_messages.words("host", host))
        try:
            async with asyncio.timeout(START_S):
                await process._up
        except BaseException as error:
            await process.kill()
            if isinstance(error, TimeoutError):
                raise TaskFault("timeout", f"a helping process did not come up within {START_S:.0f} s") from None
            raise
        return process

    @property
    def pid(self) -> int:
        return self._process.pid

    async def run(self, context: TaskContext, spec: TaskSpec) -> TaskResult:
        key = f"{context.key}#{next(self._numbers)}"
        job = self._jobs[key] = _Job(context)
        finishing = asyncio.create_task(self._finish(key, context))
        try:
            self._send(helper_messages.to_aide(Task(key=key, spec=spec, deadline_s=DEADLINE_S)))
            outcome = await asyncio.shield(job.outcome)
        except asyncio.CancelledError:
            self._send(helper_messages.to_aide(Cancel(key=key, reason="the task was stopped")))
            await asyncio.wait({job.outcome}, timeout=STOP_S)
            raise
        except WireFault as fault:
            raise TaskFault("fault", fault.what) from None
        finally:
            finishing.cancel()
            self._jobs.pop(key, None)
            if job.outcome.done() and not job.outcome.cancelled():
                job.outcome.exception()  # heard, also where nobody waits for it any more
        if isinstance(outcome, TaskFailed):
            raise TaskFault(outcome.error.code, outcome.error.message, way_out=outcome.error.way_out)
        return outcome.result

    async def ask(self, word: str, *arguments: Any) -> Any:
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            self._send(helper_messages.words(word, number, *arguments))
            return await answer
        finally:
            del self._asked[number]

    async def end(self, keep_data: bool) -> None:
        self._send(helper_messages.words("end", keep_data))
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._process.wait()
        except TimeoutError:
            _log.warning("the helping process %d did not end in order", self.pid)
        finally:
            await self.kill()

    async def kill(self) -> None:
        if (
            self._pidfd >= 0
        ):  # past `Process.kill`: that reaps a child that has died, and its exit status is lost to asyncio
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        await self._process.wait()
        for listener in self._listeners:
            listener.cancel()
        await asyncio.gather(*self._listeners, return_exceptions=True)
        self._gone("was ended")
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    async def _finish(self, key: str, context: TaskContext) -> None:
        await context.finished()
        self._send(helper_messages.to_aide(Finish(key=key)))

    def _send(self, frame: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # its end is heard of where it is listened to
            self._stdin.write(frame)

    async def _listen(self) -> None:
        why = "has ended"
        try:
            while (said := await helper_messages.heard_by_agent(self._stdout)) is not None:
                self._take(said)
            await asyncio.wait({self._listeners[1]}, timeout=LAST_WORDS_S)
            why += f"; its last words:\n{chr(10).join(self._last_words)}" if self._last_words else ""
        except WireFault as fault:
            why = f"said what cannot be: {fault.what}"
        finally:
            self._gone(why)

    def _take(self, said: Any) -> None:
        match said:
            case ["holds", list()]:
                self._aide.heard(said)
                if not self._up.done():
                    self._up.set_result(None)
            case ["ask", int(number), str()]:
                self._send(helper_messages.words("told", number, self._aide.heard(said) or ""))
            case ["done", int(number), answer] if (asked := self._waiting(number)) is not None:
                asked.set_result(answer)
            case ["fault", int(number), str(code), str(what), str(way_out)] if (
                asked := self._waiting(number)
            ) is not None:
                asked.set_exception(TaskFault(code, what, way_out=way_out))
            case LogLine() | Sample() | TaskProgress() | TaskDone() | TaskFailed():
                self._pass_on(said)

    def _waiting(self, number: int) -> asyncio.Future[Any] | None:
        asked = self._asked.get(number)
        return None if asked is None or asked.done() else asked

    def _pass_on(self, said: LogLine | Sample | TaskProgress | TaskDone | TaskFailed) -> None:
        """What it says of a task, to those who hear of the task."""
        if isinstance(said, LogLine):
            for one in list(self._jobs.values())[:1]:
                one.context.log(said.level, said.text)
            return
        job = self._jobs.get(said.key)
        if job is None or job.outcome.done():
            return
        match said:
            case Sample(sample=sample):
                job.context.sample(sample)
            case TaskProgress():
                job.context.progress(said.done, said.total, said.unit, said.note)
            case TaskDone() | TaskFailed():
                job.outcome.set_result(said)

    def _gone(self, why: str) -> None:
        """Nothing more will come: whoever waits is told."""
        if not self.alive:
            return
        self.alive = False
        fault = TaskFault(
            "fault",
            f"the helping process {self.pid}, which speaks to databases, {why}",
            way_out="the iteration counts for nothing; the agent's log on that host has its last words",
        )
        waiting = [self._up, *(job.outcome for job in self._jobs.values()), *self._asked.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(fault)
                future.exception()  # heard, also where nobody waits for it

    async def _log_lines(self) -> None:
        assert self._process.stderr is not None  # noqa: S101 - PIPE
        while line := await _line(self._process.stderr):
            self._last_words.append(line.decode(errors="replace").rstrip())
            _log.warning("process %d: %s", self.pid, self._last_words[-1])


async def _line(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readline()
    except ValueError:  # longer than the limit; what has come of it is dropped
        return b"(a line that is too long)\n"

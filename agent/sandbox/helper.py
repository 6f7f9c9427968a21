"""The agent's side of a helper process, and the protocol between both over standard input and output.

Flow: `Helper.run(context, spec)` -> the process -> its samples, progress and log lines -> the result.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError

from proveout.agent.daemon.tasks import Resource, TaskContext
from proveout.agent.errors import TaskFault
from proveout.agent.sandbox.privileges import Privileges
from proveout.core import child_process
from proveout.core.data_classes import dataclass
from proveout.core.json_data import FRAME_BYTES_MAX, frame, read_frame, to_plain
from proveout.dsl import engines
from proveout.proto.wire import agent_pb2 as pb
from proveout.proto.wire import codec
from proveout.proto.wire.codec import WireFault
from proveout.proto.wire.messages import (
    AgentMessage,
    Cancel,
    CoordinatorMessage,
    Finish,
    LogLine,
    Sample,
    Start,
    TaskDone,
    TaskFailed,
    TaskProgress,
)
from proveout.proto.wire.results import TaskResult
from proveout.proto.wire.tasks import Endpoint, RunCapture, SignedTask, Task, TaskSpec

# Format: a frame of `core.json_data` holds a kind (one byte) and a body. Kind 0 is an envelope of `agent.proto`: tasks,
# `Start`, `Finish` and `Cancel` to the helper; samples, progress, log lines and outcomes from it. Kind 1 is a control
# message, a JSON array of its name and its arguments:
#
# | name | to | arguments |
# |---|---|---|
# | `host` | helper | this host's name in the plan |
# | `close` | helper | number, name of a resource, whether its data is kept |
# | `end` | helper | whether data is kept; the helper closes all resources and exits |
# | `call` | helper | number, name of a function of `helper_main.CALLS`, its keyword arguments |
# | `reply` | helper | number, the answer to `replication_log` |
# | `done` | agent | number, the result of `close` or `call` |
# | `fault` | agent | number, code, what, way out, refusal, line: a `TaskFault` in place of a result |
# | `resources` | agent | names of all resources that the helper keeps |
# | `replication_log` | agent | number, name of a system: the last line about replication in its server's log |
#
# No pickle, and a bound on every frame: a compromised helper can send wrong data, but cannot run code in the agent or
# fill its memory.

_MESSAGE, _CONTROL = 0, 1

Control: TypeAlias = list[Any]


def control(*message: Any) -> bytes:
    """A frame with a control message: its name and its arguments."""
    return _frame(_CONTROL, json.dumps(message).encode())


def to_helper(message: CoordinatorMessage) -> bytes:
    """A frame with a message for a helper; WireFault if it cannot be encoded."""
    return _frame(_MESSAGE, codec.coordinator_envelope(message).SerializeToString())


def to_agent(message: AgentMessage) -> bytes:
    """A frame with a message for the agent; WireFault if it cannot be encoded, for example a result that is too
    large.
    """
    return _frame(_MESSAGE, codec.agent_envelope(message).SerializeToString())


async def read_from_agent(stream: asyncio.StreamReader) -> CoordinatorMessage | Control | None:
    """The next message from the agent; None at the end of the stream. WireFault for anything else."""
    kind, body = await _read(stream)
    if body is None:
        return None
    return (
        codec.coordinator_message(pb.CoordinatorEnvelope.FromString(body)) if kind == _MESSAGE else _parse_control(body)
    )


async def read_from_helper(stream: asyncio.StreamReader) -> AgentMessage | Control | None:
    """The next message from a helper; None at the end of the stream. WireFault for anything else."""
    kind, body = await _read(stream)
    if body is None:
        return None
    try:
        return codec.agent_message(pb.AgentEnvelope.FromString(body)) if kind == _MESSAGE else _parse_control(body)
    except DecodeError as error:
        raise WireFault("a helper process sent bytes that are not a message") from error


async def _read(stream: asyncio.StreamReader) -> tuple[int, bytes | None]:
    try:
        content = await read_frame(stream, FRAME_BYTES_MAX + 1)
    except ValueError as error:
        raise WireFault(str(error)) from error
    if content is None:
        return _CONTROL, None
    if not content or content[0] not in (_MESSAGE, _CONTROL):
        raise WireFault(f"a frame of kind {content[:1].hex() or 'none'}; expected {_MESSAGE} or {_CONTROL}")
    return content[0], content[1:]


def _frame(kind: int, body: bytes) -> bytes:
    if len(body) > FRAME_BYTES_MAX:
        raise WireFault(f"a frame of {len(body)} bytes is above the limit of {FRAME_BYTES_MAX}")
    return frame(bytes((kind,)), body)


def _parse_control(body: bytes) -> Control:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise WireFault("a control message is not valid JSON") from error
    if not isinstance(message, list) or not message or not isinstance(message[0], str):
        raise WireFault("a control message is not a JSON array that starts with a name")
    return message


MODULE = "proveout.agent.sandbox.helper_main"
START_S = 60.0
STOP_S = 14.0
"""Below the time that an agent gives a handler to stop (`task_runner.STOP_GRACE_S`)."""
CLOSE_S = 25.0
"""Below the time that a session gives a resource to close (`session.CLOSE_S`)."""
DEADLINE_S = 30 * 86400.0
LINE_BYTES_MAX = 1 << 16
STDERR_LINES_MAX = 8
STDERR_S = 1.0

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Job:
    """A running task: the context that gets its messages, and its outcome."""

    context: TaskContext
    outcome: asyncio.Future[TaskDone | TaskFailed] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Helper:
    """Runs tasks in one process with one set of privileges (a `tasks.Resource`).

    `replication_log(system)` gives the last line about replication in a server's log. `on_resources(names)` is called
    with the resources that the process keeps.
    """

    def __init__(
        self,
        privileges: Privileges,
        engine: str,
        *,
        replication_log: Callable[[str], str] = lambda _: "",
        on_resources: Callable[[Sequence[str]], None] = lambda _: None,
    ) -> None:
        self._privileges, self._engine = privileges, engine
        self._replication_log, self._on_resources = replication_log, on_resources
        self._process: _Process | None = None
        self._starting = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """Process id while the process runs, else None."""
        return self._process.pid if self._process is not None and self._process.alive else None

    async def run(self, context: TaskContext, spec: TaskSpec) -> TaskResult:
        """Run a task. TaskFault as its handler raises it, or `fault` if the process dies."""
        process = await self._running(context.host)
        return await process.run(context, spec)

    async def call(self, name: str, endpoint: Endpoint, **arguments: Any) -> Any:
        """Call a function of `helper_main.CALLS`; return its result or raise its TaskFault."""
        process = await self._running("")
        return await process.request("call", name, {"endpoint": to_plain(endpoint), **arguments})

    async def close_resource(self, name: str, *, keep_data: bool) -> None:
        """Close one resource of the process. Does nothing if the process has ended: its resources ended with it."""
        if self._process is not None and self._process.alive:
            await self._process.request("close", name, keep_data)

    async def close(self, *, keep_data: bool) -> None:
        """End the process: ask it to end, and kill it after `CLOSE_S`."""
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
        argv = child_process.python(MODULE, str(os.getpid()), self._privileges.to_argument(), self._engine)
        own = child_process.environment(*child_process.of_engine(self._engine))
        return argv, self._privileges.environment(own)

    def resources_changed(self, names: Sequence[object]) -> None:
        """The process keeps these resources now."""
        self._on_resources([str(name) for name in names])

    def replication_log(self, system: str) -> str:
        """The last line about replication in the log of a server of this session."""
        return self._replication_log(system)


class _Process:
    """One process, its running tasks by key, and its open requests by number."""

    def __init__(self, helper: Helper, process: Process) -> None:
        assert process.stdin is not None and process.stdout is not None  # noqa: S101 - PIPE
        self._helper, self._process = helper, process
        self._stdin, self._stdout = process.stdin, process.stdout
        self._jobs: dict[str, _Job] = {}
        self._requests: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count(1)
        self._up = asyncio.get_running_loop().create_future()
        self._stderr_lines: deque[str] = deque(maxlen=STDERR_LINES_MAX)
        self._pidfd = -1
        with contextlib.suppress(ProcessLookupError):  # it has ended already; the reader of its output reports that
            self._pidfd = os.pidfd_open(process.pid)
        self._readers = [asyncio.create_task(self._read_stdout()), asyncio.create_task(self._read_stderr())]
        self.alive = True

    @classmethod
    async def start(cls, helper: Helper, host: str) -> _Process:
        argv, environment = helper.command()
        started = await asyncio.create_subprocess_exec(
            *argv,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            limit=LINE_BYTES_MAX,
            env=environment,
            cwd=child_process.DIRECTORY,
        )
        process = cls(helper, started)
        process._send(control("host", host))
        try:
            async with asyncio.timeout(START_S):
                await process._up
        except BaseException as error:
            await process.kill()
            if isinstance(error, TimeoutError):
                raise TaskFault("timeout", f"a helper process did not start within {START_S:.0f} s") from None
            raise
        return process

    @property
    def pid(self) -> int:
        return self._process.pid

    async def run(self, context: TaskContext, spec: TaskSpec) -> TaskResult:
        key = f"{context.key}#{next(self._numbers)}"
        job = self._jobs[key] = _Job(context)
        controls = [asyncio.create_task(self._finish(key, context))]
        if isinstance(spec, RunCapture) and spec.edges_s:
            controls.append(asyncio.create_task(self._start(key, context)))
        try:
            task = Task(key=key, spec=spec, deadline_s=DEADLINE_S)
            self._send(to_helper(SignedTask(task=codec.task_bytes(task))))
            outcome = await asyncio.shield(job.outcome)
        except asyncio.CancelledError:
            self._send(to_helper(Cancel(key=key, reason="the task was stopped")))
            await asyncio.wait({job.outcome}, timeout=STOP_S)
            raise
        except WireFault as fault:
            raise TaskFault("fault", fault.what) from None
        finally:
            for control in controls:
                control.cancel()
            self._jobs.pop(key, None)
            if job.outcome.done() and not job.outcome.cancelled():
                job.outcome.exception()  # retrieved, so that asyncio does not report it as unhandled
        if isinstance(outcome, TaskFailed):
            raise TaskFault.from_error(outcome.error)
        return outcome.result

    async def request(self, kind: str, *arguments: Any) -> Any:
        number = next(self._numbers)
        answer = self._requests[number] = asyncio.get_running_loop().create_future()
        try:
            self._send(control(kind, number, *arguments))
            return await answer
        except WireFault as fault:
            raise TaskFault("invalid", fault.what, way_out=fault.way_out) from None
        finally:
            del self._requests[number]

    async def end(self, keep_data: bool) -> None:
        self._send(control("end", keep_data))
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._process.wait()
        except TimeoutError:
            _log.warning("helper process %d did not end within %g s and is killed", self.pid, CLOSE_S)
        finally:
            await self.kill()

    async def kill(self) -> None:
        if self._pidfd >= 0:  # not `Process.kill`: it reaps a dead child, and asyncio then loses the exit status
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        await self._process.wait()
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        self._gone("was ended by its agent")
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    async def _start(self, key: str, context: TaskContext) -> None:
        self._send(to_helper(Start(key=key, t0_ns=await context.started())))

    async def _finish(self, key: str, context: TaskContext) -> None:
        await context.finished()
        self._send(to_helper(Finish(key=key)))

    def _send(self, frame: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # `_read_stdout` reports the end of the process
            self._stdin.write(frame)

    async def _read_stdout(self) -> None:
        why = "has ended"
        try:
            while (message := await read_from_helper(self._stdout)) is not None:
                self._take(message)
            await asyncio.wait({self._readers[1]}, timeout=STDERR_S)
            why += f"; its last output:\n{chr(10).join(self._stderr_lines)}" if self._stderr_lines else ""
        except WireFault as fault:
            why = f"sent a message that is not valid: {fault.what}"
        finally:
            self._gone(why)

    def _take(self, message: Any) -> None:
        match message:
            case ["resources", list(names)]:
                self._helper.resources_changed(names)
                if not self._up.done():
                    self._up.set_result(None)
            case ["replication_log", int(number), str(system)]:
                self._send(control("reply", number, self._helper.replication_log(system)))
            case ["done", int(number), answer] if (request := self._open_request(number)) is not None:
                request.set_result(answer)
            case ["fault", int(number), str(code), str(what), str(way_out), str(refusal), int(line)] if (
                request := self._open_request(number)
            ) is not None:
                request.set_exception(TaskFault(code, what, way_out=way_out, refusal=refusal, line=line))
            case LogLine() | Sample() | TaskProgress() | TaskDone() | TaskFailed():
                self._forward(message)

    def _open_request(self, number: int) -> asyncio.Future[Any] | None:
        request = self._requests.get(number)
        return None if request is None or request.done() else request

    def _forward(self, message: LogLine | Sample | TaskProgress | TaskDone | TaskFailed) -> None:
        """Hand a message about a task to the context of the task."""
        if isinstance(message, LogLine):
            for one in list(self._jobs.values())[:1]:
                one.context.log(message.level, message.text)
            return
        job = self._jobs.get(message.key)
        if job is None or job.outcome.done():
            return
        match message:
            case Sample(sample=sample):
                job.context.sample(sample)
            case TaskProgress():
                job.context.progress(message.done, message.total, message.unit, message.note)
            case TaskDone() | TaskFailed():
                job.outcome.set_result(message)

    def _gone(self, why: str) -> None:
        """The process has ended: fail all tasks and requests that wait for it."""
        if not self.alive:
            return
        self.alive = False
        fault = TaskFault(
            "fault",
            f"the helper process {self.pid}, which connects to databases, {why}",
            way_out="the iteration is void; the agent's log on that host has the last output of the process",
        )
        waiting = [self._up, *(job.outcome for job in self._jobs.values()), *self._requests.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(fault)
                future.exception()  # retrieved, so that asyncio does not report it as unhandled

    async def _read_stderr(self) -> None:
        assert self._process.stderr is not None  # noqa: S101 - PIPE
        while line := await _line(self._process.stderr):
            self._stderr_lines.append(line.decode(errors="replace").rstrip())
            _log.warning("process %d: %s", self.pid, self._stderr_lines[-1])


async def _line(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readline()
    except ValueError:  # longer than the limit; asyncio drops what was read
        return b"(a line that is too long)\n"


def helper_for(context: TaskContext, privileges: Privileges, engine: str) -> Helper:
    """The session's helper process with these privileges. The process starts with its first task."""
    name = f"helper:{privileges.to_argument()}"
    if engines.of(engine).own_process:
        name = f"{name}:{engine}"
    found = context.resources.get(name)
    if isinstance(found, Helper):
        return found
    resources = context.resources

    def add_resources(names: Sequence[str]) -> None:
        for remote in names:
            resources.setdefault(remote, RemoteResource(helper, remote))

    helper = resources[name] = Helper(
        privileges,
        engine,
        replication_log=lambda system: _replication_log(resources, system),
        on_resources=add_resources,
    )
    return helper


class RemoteResource:
    """A resource that a helper process keeps.

    It stands among the session's resources, so that it is closed in order.
    """

    def __init__(self, helper: Helper, name: str) -> None:
        self._helper, self._name = helper, name

    async def close(self, *, keep_data: bool) -> None:
        """Close the resource in its helper process."""
        await self._helper.close_resource(self._name, keep_data=keep_data)


def _replication_log(resources: dict[str, Resource], system: str) -> str:
    """The last line about replication in the log of an embedded server of this session."""
    complaint = getattr(resources.get(f"system:{system}"), "replication_complaint", None)
    return str(complaint()) if complaint is not None else ""

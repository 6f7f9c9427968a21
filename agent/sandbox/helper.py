"""The agent's side of its child processes (`Child`); helper processes, the protocol with them over standard input and
output, and the handlers of tasks that read from a database or an exporter: a root agent runs them in a helper process,
every agent those of an engine whose client needs a process of its own.

Flow: `Helper.run(context, spec)` -> the process -> its samples, progress and log lines -> the result.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import shutil
import signal
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, cast

from google.protobuf.message import DecodeError

from proveout.agent.daemon.handlers import IN_HELPER, resolve
from proveout.agent.daemon.tasks import DEADLINE_MAX_S, STOP_S, Handler, Resource, TaskContext
from proveout.agent.engines import handlers
from proveout.agent.engines.adapter import ProvisionedSystem, Settings
from proveout.agent.engines.embedded import data_store
from proveout.agent.engines.embedded.workspace import give, is_locked
from proveout.agent.engines.table import adapter, is_in_files
from proveout.agent.errors import TaskFault
from proveout.agent.sandbox import privileges
from proveout.agent.sandbox.privileges import Privileges
from proveout.core import child_process
from proveout.core.data_classes import dataclass
from proveout.core.json_data import FRAME_BYTES_MAX, frame, read_frame, to_plain
from proveout.dsl import engines
from proveout.dsl.plan.captures import CAPTURES
from proveout.dsl.plan.topology import System
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
from proveout.proto.wire.results import CaptureResult, SystemStarted, TaskResult
from proveout.proto.wire.tasks import (
    Endpoint,
    InspectSystem,
    LinkSystems,
    RunCapture,
    SignedTask,
    SnapshotSystem,
    StartSystem,
    Task,
    TaskSpec,
)

# Format: a frame of `core.json_data` holds a kind (one byte) and a body. Kind 0 is an envelope of `agent.proto`: tasks,
# `Start`, `Finish` and `Cancel` to the helper; samples, progress, log lines and outcomes from it. Kind 1 is a control
# message, a JSON array of its name and its arguments:
#
# | name | to | arguments |
# |---|---|---|
# | `close` | helper | number, name of a resource, whether its data is kept |
# | `end` | helper | whether data is kept; the helper closes all resources and exits |
# | `call` | helper | number, name of one of `sql_access.FUNCTIONS`, its endpoint and its text |
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
T = TypeVar("T")


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
    return await _read(stream, lambda body: codec.coordinator_message(pb.CoordinatorEnvelope.FromString(body)))


async def read_from_helper(stream: asyncio.StreamReader) -> AgentMessage | Control | None:
    """The next message from a helper; None at the end of the stream. WireFault for anything else."""
    return await _read(stream, codec.agent_message)


async def _read(stream: asyncio.StreamReader, decode: Callable[[bytes], T]) -> T | Control | None:
    try:
        content = await read_frame(stream, FRAME_BYTES_MAX + 1)
        if content is None:
            return None
        if not content or content[0] not in (_MESSAGE, _CONTROL):
            raise WireFault(f"a frame of kind {content[:1].hex() or 'none'}; expected {_MESSAGE} or {_CONTROL}")
        return decode(content[1:]) if content[0] == _MESSAGE else _parse_control(content[1:])
    except DecodeError as error:
        raise WireFault("a frame holds bytes that are not a message") from error
    except ValueError as error:
        raise WireFault(str(error)) from error


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
CLOSE_S = 25.0
"""Below the time that a session gives a resource to close (`session.CLOSE_S`)."""
STREAM_LIMIT = 1 << 20
STDERR_LINES_MAX = 8
STDERR_S = 1.0

_log = logging.getLogger(__name__)


class Child:
    """The agent's side of a process with messages on its stdin and stdout; the last lines of its stderr are kept."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None and process.stdout is not None  # noqa: S101 - PIPE
        self._process = process
        self._stdin, self._stdout = process.stdin, process.stdout
        self._pidfd = -1
        with contextlib.suppress(ProcessLookupError):  # it has ended already; reading its output reports that
            self._pidfd = os.pidfd_open(process.pid)
        self._stderr_lines: deque[str] = deque(maxlen=STDERR_LINES_MAX)
        self._reader = asyncio.create_task(self._read_stderr())

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process still runs, as far as the agent can see."""
        return self._process.returncode is None and not self._stdout.at_eof()

    async def kill(self) -> None:
        """Kill the process; idempotent."""
        self._signal()
        await self._process.wait()
        await self._reader
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    async def close_pipe(self, within_s: float) -> None:
        """Close its stdin, and kill it if it has not ended within this time."""
        with contextlib.suppress(ConnectionError, RuntimeError):
            self._stdin.close()
        try:
            async with asyncio.timeout(within_s):
                while await self._stdout.read(STREAM_LIMIT):
                    pass
                await self._process.wait()
        except TimeoutError:
            pass
        finally:
            await self.kill()

    async def ending(self) -> str:
        """Wait until the process has ended; how it did, with its last output."""
        await self._process.wait()
        await self._reader
        code = self._process.returncode or 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        words = "\n".join(self._stderr_lines)
        return how + (f"; its last output:\n{words}" if words else "")

    def _signal(self) -> None:
        """Send SIGKILL, not by `Process.kill`: it reaps a dead child, and asyncio then loses the exit status."""
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    async def _read_stderr(self) -> None:
        assert self._process.stderr is not None  # noqa: S101 - PIPE
        while True:
            try:
                line = await self._process.stderr.readline()
            except ValueError:  # longer than the limit
                continue
            if not line:
                return
            if text := line.decode(errors="replace").rstrip():
                self._hear(text)

    def _hear(self, text: str) -> None:
        """Take a line of its stderr."""
        self._stderr_lines.append(text)


async def spawn(
    module: str,
    privileges: Privileges,
    *last: str,
    flags: Sequence[str] = (),
    engine: str = "",
    limit: int = STREAM_LIMIT,
    more: Mapping[str, str] | None = None,
) -> Process:
    """Start a module for `Child`: parent, privileges and `last` are its arguments; with flags of the interpreter, the
    variables of an engine's client, and `more`."""
    own = privileges.environment(child_process.environment(*child_process.of_engine(engine)))
    return await asyncio.create_subprocess_exec(
        *child_process.interpreter(),
        *(*flags, "-m", module, str(os.getpid()), privileges.to_argument(), *last),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        limit=limit,
        cwd=child_process.DIRECTORY,
        env={**own, **(more or {})},
    )


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
        self.privileges, self.engine = privileges, engine
        self.replication_log, self.on_resources = replication_log, on_resources
        self._process: _Process | None = None
        self._starting = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """Process id while the process runs, else None."""
        return self._process.pid if self._process is not None and self._process.alive else None

    async def run(self, context: TaskContext, spec: TaskSpec) -> TaskResult:
        """Run a task. TaskFault as its handler raises it, or `fault` if the process dies."""
        return await (await self._running()).run(context, spec)

    async def call(self, name: str, endpoint: Endpoint, statement: str) -> Any:
        """Call one of `sql_access.FUNCTIONS`; return its result or raise its TaskFault."""
        return await (await self._running()).request("call", name, to_plain(endpoint), statement)

    async def close_resource(self, name: str, *, keep_data: bool) -> None:
        """Close one resource of the process. Does nothing if the process has ended."""
        if self._process is not None and self._process.alive:
            await self._process.request("close", name, keep_data)

    async def close(self, *, keep_data: bool) -> None:
        """End the process: ask it to end, and kill it after `CLOSE_S`."""
        process, self._process = self._process, None
        if process is not None:
            await process.end(keep_data)

    async def _running(self) -> _Process:
        async with self._starting:
            if self._process is not None and not self._process.alive:
                await self._process.kill()
                self._process = None
            if self._process is None:
                self._process = await _Process.start(self)
            return self._process


class _Process(Child):
    """One process, its running tasks by key, and its open requests by number."""

    def __init__(self, process: Process, helper: Helper) -> None:
        super().__init__(process)
        self._helper = helper
        self._jobs: dict[str, _Job] = {}
        self._requests: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count(1)
        self._up = asyncio.get_running_loop().create_future()
        self._is_gone = False
        self._messages = asyncio.create_task(self._read_stdout())

    @classmethod
    async def start(cls, helper: Helper) -> _Process:
        process = cls(await spawn(MODULE, helper.privileges, engine=helper.engine), helper)
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
    def alive(self) -> bool:
        """Whether the process runs, and has sent nothing that is not valid."""
        return not self._is_gone

    async def run(self, context: TaskContext, spec: TaskSpec) -> TaskResult:
        key = f"{context.key}#{next(self._numbers)}"
        job = self._jobs[key] = _Job(context)
        controls = [asyncio.create_task(self._finish(key, context))]
        if isinstance(spec, RunCapture) and spec.edges_s:
            controls.append(asyncio.create_task(self._start(key, context)))
        try:
            task = Task(key=key, spec=spec, deadline_s=DEADLINE_MAX_S)
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
        self._signal()
        self._messages.cancel()
        await asyncio.gather(self._messages, return_exceptions=True)
        while await self._stdout.read(STREAM_LIMIT):  # asyncio sees the end of a process only after that of its output
            pass
        await super().kill()
        self._gone("was ended by its agent")

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
            await asyncio.wait({self._reader}, timeout=STDERR_S)
            why += f"; its last output:\n{chr(10).join(self._stderr_lines)}" if self._stderr_lines else ""
        except WireFault as fault:
            why = f"sent a message that is not valid: {fault.what}"
        finally:
            self._gone(why)

    def _take(self, message: Any) -> None:
        match message:
            case ["resources", list(names)]:
                self._helper.on_resources([str(name) for name in names])
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
        if self._is_gone:
            return
        self._is_gone = True
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

    def _hear(self, text: str) -> None:
        super()._hear(text)
        _log.warning("process %d: %s", self.pid, text)


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
            if isinstance(resources.get(remote), RemoteResource | None):
                resources[remote] = RemoteResource(helper, remote)

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
        self._helper, self._name, self._pid = helper, name, helper.pid

    async def close(self, *, keep_data: bool) -> None:
        """Close the resource in its helper process. TaskFault where that has died, without `keep_data`."""
        if self._helper.pid != self._pid and not keep_data:
            what = f"the helper process that kept {self._name} has died, and what it has made in databases stays"
            way_out = "the next run that links these systems removes it; or drop subscription, slot and publication"
            raise TaskFault("fault", what, way_out=way_out)
        await self._helper.close_resource(self._name, keep_data=keep_data)


def _replication_log(resources: dict[str, Resource], system: str) -> str:
    """The last line about replication in the log of an embedded server of this session."""
    complaint = getattr(resources.get(f"system:{system}"), "replication_complaint", None)
    return str(complaint()) if complaint is not None else ""


FILES = "files"


async def snapshot(context: TaskContext, spec: SnapshotSystem) -> TaskResult:
    """Save or restore the data of a system. The copy of a user's file lies in a store of the agent, with the owner of
    the file as its owner, because the process that copies has that user's rights."""
    system = spec.system
    if not system.is_named_file:
        return await handlers.snapshot_system(context, spec)
    privileges_of = Privileges.for_engine(system.engine, str(system.dsn), context.policy)
    folder = data_store.home(Path(spec.data_root), system.name)
    local = replace(spec, data_root=str(await asyncio.to_thread(_copies, folder, privileges_of)))
    if privileges_of.inherited:
        return await handlers.snapshot_system(context, local)
    return await helper_for(context, privileges_of, system.engine).run(context, local)


def _copies(folder: Path, owner: Privileges) -> Path:
    """The folder of the copies in the store of a system, made when it is not there."""
    data_store.sweep((), locked=is_locked)
    reachable = is_enterable_by_all if not owner.inherited else (lambda _: True)
    state = data_store.read_state(folder) or data_store.make_store(folder, None, reachable)
    files = Path(state.store) / FILES
    if not files.exists():
        files.mkdir(mode=0o700)
        owner.give(files)
    return files


class DatabaseFiles:
    """The database file of one system, opened by a helper process; `fresh`: whether `start` made it. For root agents
    only.
    """

    def __init__(self, context: TaskContext, system: System, data_root: Path) -> None:
        user = privileges.account()
        assert user is not None  # noqa: S101 - an agent that is not root makes the file itself
        self._context, self._system, self._uid = context, system, user.uid
        self._folder = data_store.home(data_root, system.name)
        self._files = ""
        self.fresh = True
        self.death: str | None = None

    async def start(self) -> Endpoint:
        """Make the folder and the file if they are missing.

        TaskFault as `DatabaseFile.start`; nothing is left behind then.
        """
        had_data = await asyncio.to_thread(self._prepare)
        try:
            answer = await self._helper().run(self._context, StartSystem(system=self._system, data_root=self._files))
        except BaseException:
            if not had_data:
                await asyncio.shield(asyncio.to_thread(data_store.remove, self._folder))
            raise
        started = cast(SystemStarted, answer)
        self.fresh = started.fresh
        return started.endpoint

    async def save_snapshot(self) -> None:
        """Copy the file."""
        await self._snapshot("save")

    async def restore_snapshot(self) -> None:
        """Restore the copy; TaskFault `missing` if there is none."""
        await self._snapshot("restore")

    async def close(self, *, keep_data: bool) -> None:
        """Close the file; without `keep_data`, remove the store."""
        await self._helper().close_resource(f"system:{self._system.name}", keep_data=keep_data)
        if not keep_data:
            await asyncio.to_thread(data_store.remove, self._folder)
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _snapshot(self, action: Literal["save", "restore"]) -> None:
        spec = SnapshotSystem(system=self._system, data_root=self._files, action=action)
        await self._helper().run(self._context, spec)

    def _helper(self) -> Helper:
        return helper_for(self._context, Privileges.for_engine(self._system.engine), self._system.engine)

    def _prepare(self) -> bool:
        """Make the folder `files` for the helper's user; return whether the store existed before."""
        data_store.sweep((), locked=is_locked)  # remove what killed agents have left in /var/tmp
        found = data_store.read_state(self._folder)
        state = found or data_store.make_store(self._folder, self._uid, is_enterable_by_all)
        files = Path(state.store) / FILES
        files.mkdir(mode=0o700, exist_ok=True)
        if files.lstat().st_uid != self._uid:
            give(files, self._uid)  # the folder is new, or the user ids of this host have changed
        self._files = str(files)
        return found is not None


def is_enterable_by_all(folder: Path) -> bool:
    """Whether any user can enter a folder."""
    path = folder.resolve()
    return all(os.stat(parent).st_mode & 0o001 for parent in (path, *path.parents))  # noqa: PTH116 - a mode, not a path


# The agent process itself keeps: servers that it has started and their logs, kernel counters (capture `os`), and the
# private folders of embedded SQLite files, which it makes and gives to the helper's user.


async def run_in_helper(context: TaskContext, spec: Any) -> TaskResult:
    """Run a task that connects to its systems."""
    endpoints = spec.asked
    privileges, engine = _privileges(context, endpoints)
    with handlers.explain_death(context, [end.system for end in endpoints]):
        if privileges.inherited and not engines.of(engine).own_process:
            return await _run_in_agent(context, spec)
        return await helper_for(context, privileges, engine).run(context, spec)


async def capture(context: TaskContext, spec: RunCapture) -> CaptureResult:
    """Run a capture until `Finish`.

    The agent process itself takes those of hosts: kernel counters, which cover processes of all users, and the output
    of programs, which it starts as the unprivileged user.
    """
    own = CAPTURES[spec.capture.kind].of == "hosts"
    result = await (_run_in_agent(context, spec) if own else run_in_helper(context, spec))
    return cast(CaptureResult, result)


async def link(context: TaskContext, spec: LinkSystems) -> TaskResult:
    """Set up propagation. Passwords of embedded servers are added here: a helper process cannot read them."""
    _privileges(context, spec.asked)  # refuses files that root owns, before anything is read
    return await run_in_helper(context, await asyncio.to_thread(adapter(spec.source.engine).link_keys, spec))


async def start_system(context: TaskContext, spec: StartSystem) -> SystemStarted:
    """Start a system and read its settings. TaskFault `refused` if the host's policy does not list its engine."""
    context.policy.allows_provision(spec.system.engine).require()

    async def read(endpoint: Endpoint) -> Settings:
        return cast(SystemStarted, await run_in_helper(context, InspectSystem(endpoint=endpoint))).settings

    return await handlers.start_system(context, spec, _provision, read)


def _provision(context: TaskContext, system: System, data_root: Path) -> ProvisionedSystem:
    """Provision a system in the agent; a database file of a root agent in a process without privileges."""
    if privileges.account() is None or not is_in_files(system.engine):
        return handlers.provision(context, system, data_root)
    return DatabaseFiles(context, system, data_root)


async def _run_in_agent(context: TaskContext, spec: TaskSpec) -> TaskResult:
    handler: Handler = resolve(IN_HELPER[type(spec)])
    return await handler(context, spec)


def _privileges(context: TaskContext, endpoints: Sequence[Endpoint]) -> tuple[Privileges, str]:
    """Privileges for the helper process of a task, and the engine that decides them."""
    files = [end for end in endpoints if is_in_files(end.engine) and not end.provisioned]
    own = [end for end in endpoints if engines.of(end.engine).own_process]
    for end in files or own or endpoints:
        return Privileges.for_endpoint(end, context.policy), end.engine
    return Privileges.for_engine(""), ""

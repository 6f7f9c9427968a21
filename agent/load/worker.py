"""A load worker: one process of a load pool. `python -m proveout.agent.load.worker PARENT-PID PRIVILEGES ENGINE`.

Flow: stdin -> `Arm` (connect, prepare) -> `Ready` -> `Start(t0)` -> the loop -> chunks of times -> `Finished`.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import select
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import astuple
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar

from proveout.agent.engines.driver_contract import (
    Driver,
    FailureKind,
    Labelled,
    OpensWithSettings,
    Pipelines,
    StatementFailure,
)
from proveout.agent.engines.sessions import Members, cancel_statements, configure, grouped, prepare
from proveout.agent.engines.table import driver
from proveout.agent.load import worker_messages
from proveout.agent.load.commit_log import CommitLog, last_start_ms, server_start_ms
from proveout.agent.load.loop.client_delays import runqueue_ns
from proveout.agent.load.loop.event_loop import RECONNECT_S, Connection, PolledLoop, Reconnector, SessionLoop
from proveout.agent.load.loop.recorder import LATE_NS, SECOND_NS, TRIPLE, Recorder
from proveout.agent.load.loop.terminal import Terminal
from proveout.agent.load.loop.thread_loop import ThreadedLoop
from proveout.agent.load.loop.transaction import statements, statements_of
from proveout.agent.load.pacing import Pacing, Timeline
from proveout.agent.sandbox.privileges import enter
from proveout.core.child_process import LOAD_WORKER_NAME
from proveout.core.data_classes import record
from proveout.core.errors import ProveoutError
from proveout.dsl.workloads.base import WorkloadKind
from proveout.dsl.workloads.commits import PIPELINE
from proveout.dsl.workloads.kinds import build, part_of
from proveout.proto.wire.histogram import longest
from proveout.proto.wire.results import Stall, TaskError

T = TypeVar("T")

AT_ONCE = 8


def open_all(
    numbers: Sequence[int],
    connect: Callable[[int], T],
    *,
    at_once: int = AT_ONCE,
    give_up: Callable[[Callable[[float], object]], object],
) -> dict[int, T]:
    """Call `connect` for each number; returns its results by number. Raises the first exception of
    `connect`; no number is begun after it.

    Before it is raised, `give_up(settle)` ends the attempts under way; `settle(seconds)` waits for them for that time.
    """
    first, *others = numbers
    opened = {first: connect(first)}
    waiting = deque(others)
    failures: list[BaseException] = []
    ends: list[Future[None]] = [Future() for _ in range(min(at_once, len(others)))]

    def work(end: Future[None]) -> None:
        try:
            while not failures and waiting:
                try:
                    number = waiting.popleft()
                except IndexError:  # another thread has taken the last one
                    break
                opened[number] = connect(number)
        except BaseException as failure:  # noqa: BLE001 - raised again by the caller's thread
            failures.append(failure)
            end.set_exception(failure)
        else:
            end.set_result(None)

    for end in ends:
        threading.Thread(target=work, args=(end,), name="connect", daemon=True).start()
    wait(ends, return_when=FIRST_EXCEPTION)
    if failures:
        give_up(lambda seconds: wait(ends, seconds))
        raise failures[0]
    return opened


# A chunk is written as far as the pipe accepts it, and the rest is kept. If the agent does not read and
# CHUNK_WAITING_MAX bytes wait, further chunks are dropped, and their records are counted as lost.

PIPE_BYTES = 1 << 20
CHUNK_WAITING_MAX = 64 << 20
INT64_BYTES = 8


class ChunkWriter:
    """Writes frames to a pipe."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self.lost = 0
        with contextlib.suppress(OSError):  # a smaller pipe works too, with more writes
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def offer(self, chunk: worker_messages.Chunk) -> None:
        """Write a chunk without blocking. The rest waits for the next call, or is dropped and counted."""
        if self._bytes > CHUNK_WAITING_MAX:
            records = sum(length for code, length in chunk.codes if code >= 0)
            self.lost += records // (INT64_BYTES * TRIPLE) + sum(one.what == "error" for one in chunk.incidents)
        else:
            self._keep(worker_messages.encode(chunk))
        os.set_blocking(self._fd, False)
        with contextlib.suppress(BlockingIOError):
            self._write()

    @property
    def has_rest(self) -> bool:
        """Whether the pipe did not take all of the chunks."""
        return bool(self._waiting)

    def send(self, frame: worker_messages.FromWorker) -> None:
        """Write a frame and all queued data before it. Blocks until the agent has read."""
        self._keep(worker_messages.encode(frame))
        os.set_blocking(self._fd, True)
        self._write()

    def _keep(self, data: bytes) -> None:
        self._waiting.append(data)
        self._bytes += len(data)

    def _write(self) -> None:
        while self._waiting:
            data = self._waiting[0]
            written = os.write(self._fd, data)
            self._bytes -= written
            if written == len(data):
                self._waiting.popleft()
            else:
                self._waiting[0] = data[written:]


TICK_NS = 100_000_000
PAUSE_MIN_NS = 2 * TICK_NS
"""The shortest pause of which the time is kept."""
CHUNK_BYTES = PIPE_BYTES // 2
"""Records that are sent before their second is complete, so that the pipe takes them."""
WAITING_MAX = 1000
"""Limit of the transactions without an answer that a worker lists at the end."""


@record
class _Mark:
    """Counters at an edge of the measure window; `runqueue_ns` by thread."""

    at_ns: int
    cpu_ns: int
    runqueue_ns: dict[int, int]
    answers: int
    stamped: int


class LoadTicker:
    """Periodic work of a load: packs records, measures CPU in the measure window, reads messages of the agent.

    The loop calls it ten times a second. Each chunk wakes the agent, so it sends the records when the agent takes their
    second as complete, and earlier many records, or the rest of those that its pipe did not take.
    `pause_longest_ns` is the longest time between two calls in the measure window: a process that is stopped, or gets
    no CPU, makes no calls. `pauses`: those times of at least `PAUSE_MIN_NS`, the longest.
    """

    def __init__(self, recorder: Recorder, outlet: ChunkWriter, timeline: Timeline, stdin: int) -> None:
        self._recorder, self._outlet, self._timeline, self._stdin = recorder, outlet, timeline, stdin
        self._messages = select.poll()
        self._messages.register(stdin, select.POLLIN)
        self._edges = (timeline.measure_start_ns, timeline.measure_end_ns, timeline.end_ns)
        self._marks: list[_Mark] = []
        self._stopped = self._completed = self._settles = False
        self._ticked_ns = timeline.t0_ns
        self._complete = 0
        self.pause_longest_ns = 0
        self.pauses: list[Stall] = []

    def control(self) -> int:
        """The descriptor of the agent's messages; the loop calls `tick` when it is readable."""
        return self._stdin

    def tick(self, now_ns: int) -> int:
        """Send the records that are due. Returns the time of the next call, ns; 0 when the load is over."""
        self._read_messages()
        self._note_pause(now_ns)
        while len(self._marks) < 2 and now_ns >= self._edges[len(self._marks)]:
            self._marks.append(self._mark())
        since = now_ns - self._timeline.t0_ns
        over = self._stopped or self._completed or now_ns >= self._timeline.end_ns
        complete = (since - LATE_NS) // SECOND_NS
        many = self._outlet.has_rest or self._recorder.size_bytes > CHUNK_BYTES
        if over or many or complete > self._complete:
            self._complete = complete
            self.pack(now_ns)
        if over:
            return 0
        grid_ns = self._timeline.t0_ns + (since // TICK_NS + 1) * TICK_NS
        return min(grid_ns, *(edge for edge in self._edges if edge > now_ns))

    def complete(self, now_ns: int) -> None:
        """End the measure window: all passes have ended, and the next `tick` returns 0."""
        self._completed = True
        self._edges = (self._edges[0], now_ns, now_ns)

    def _note_pause(self, now_ns: int) -> None:
        """Record the part of the measure window since the last tick."""
        began_ns = max(self._ticked_ns, self._timeline.measure_start_ns)
        self._ticked_ns = now_ns
        pause_ns = min(now_ns, self._timeline.measure_end_ns) - began_ns
        self.pause_longest_ns = max(self.pause_longest_ns, pause_ns)
        if pause_ns >= PAUSE_MIN_NS:
            from_ns = began_ns - self._timeline.measure_start_ns
            self.pauses = longest([*self.pauses, Stall(start_ns=from_ns, end_ns=from_ns + pause_ns)])

    def pack(self, now_ns: int) -> None:
        """Send the records since the last call."""
        records = self._recorder
        more = {
            worker_messages.HANDLING: records.sampler.take,
            worker_messages.CONNECTS: records.connects.take,
            worker_messages.WAITS: records.waits.take,
            worker_messages.RERUNS: records.reruns.take,
        }
        taken = records.take() | {code: found for code, take in more.items() if (found := take())}
        chunk = worker_messages.Chunk(
            until_ns=now_ns,
            codes=tuple((code, len(times)) for code, times in taken.items()),
            incidents=tuple(records.take_incidents()),
            times=b"".join(taken.values()),
        )
        self._outlet.offer(chunk)

    def _mark(self) -> _Mark:
        sampler = self._recorder.sampler
        return _Mark(
            at_ns=time.monotonic_ns(),
            cpu_ns=time.process_time_ns(),
            runqueue_ns=runqueue_ns(),
            answers=sampler.answers,
            stamped=sampler.stamped,
        )

    def measured(self) -> dict[str, Any]:
        """The fields of `Finished` about CPU time and handling, over the measure window; {} if it was cut short."""
        if len(self._marks) < 2:
            return {}
        began, ended = self._marks
        window_ns = ended.at_ns - began.at_ns
        found: dict[str, Any] = {
            "cpu_s": (ended.cpu_ns - began.cpu_ns) / 1e9,
            "cpu_window_s": window_ns / 1e9,
            "answers": ended.answers - began.answers,
            "stamped": ended.stamped - began.stamped,
        }
        waits_ns = [waited - began.runqueue_ns.get(thread, 0) for thread, waited in ended.runqueue_ns.items()]
        if waits_ns:
            found |= {"runqueue_s": sum(waits_ns) / 1e9, "runqueue_fraction": max(waits_ns) / window_ns}
        return found

    def _read_messages(self) -> None:
        """Read messages of the agent.

        A Stop, or the end of the pipe, stops the load; its statements are then cancelled on the server.

        If the agent has ended, the kernel kills this process (`core.linux`).
        """
        while not self._stopped and self._messages.poll(0):
            self._read_message()

    def _read_message(self) -> None:
        frame = worker_messages.read_blocking(self._stdin)
        self._stopped = frame is None or isinstance(frame, worker_messages.Stop)
        self._settles = self._settles or isinstance(frame, worker_messages.Settle)

    def await_settle(self) -> None:
        """Wait, after the load, until its commits are to be read back; not longer than it is wanted."""
        while not self._settles and not self._stopped:
            self._read_message()


class Load:
    """One load in this worker."""

    def __init__(self, arm: worker_messages.Arm) -> None:
        self._arm, self._spec = arm, arm.spec
        spec = arm.spec
        self._driver: Driver = driver(spec.endpoint.engine)
        self._workload: WorkloadKind = build(spec.workload)
        self._dsns = spec.endpoint.instances or (spec.endpoint.dsn,)
        self._sessions = spec.sessions
        count = 1 if self._sessions.access else len(self._dsns)
        parts = (part_of(spec.workload, index, count) for index in range(count))
        self._parts = [self._workload] if count == 1 else [build(part) for part in parts]
        self._needed = statements(self._workload, tracked=spec.tracked)
        self._commits: CommitLog | None = None
        if spec.tracked:
            self._commits = CommitLog(arm, self._driver.waits)
        self._session = spec.session
        if isinstance(self._driver, OpensWithSettings):
            changes = any(s.changes for kind in self._workload.transactions if kind.weight > 0 for s in kind.statements)
            engine, given = self._driver, spec.session
            self._dsns = tuple(engine.dsn_for_load(dsn, given, changes=changes) for dsn in self._dsns)
            self._session = ()
        self._members = Members(self._driver, self._dsns, self._sessions.access)
        self._pacing = Pacing.of(spec.share, spec.windows, spec.seed)
        self._recorder = Recorder(len(self._workload.transactions))
        self._server_starts_ms: list[int] = []
        self._opened: list[Any] = []
        self._preparing: list[Any] = []
        self._stopped = False
        self._terminals: list[Terminal] = []
        self._connections: list[Connection] = []

    def arm(self) -> worker_messages.Ready | TaskError:
        """Connect and prepare all terminals. After a failure no connection stays open.

        Garbage is collected here, and not between the start message and T0: it takes 30 ms of CPU, and the workers of
        many loads on a few cores would begin late.
        """
        try:
            opened: dict[int, tuple[Any, dict[str, Any]]] = {}
            if self._sessions.are_lent:
                self._arm_lent()
            else:
                opened = self._open_all(self._arm.numbers)
                self._note_server_start(opened[self._arm.numbers[0]][0])
            for number in self._arm.numbers:
                self._terminals.append(self._terminal(number, *opened.get(number, (None, {}))))
        except StatementFailure as failure:
            self.abandon()
            lost = failure.kind is FailureKind.LOST
            return TaskError(
                code="unreachable" if lost else "invalid",
                message=f"{failure.code}: {failure.what}",
                subject="" if lost else failure.subject,
                line=failure.line,
            )
        gc.collect()
        return worker_messages.Ready()

    def _note_server_start(self, session: Any = None) -> None:
        """Ask the one server of the load when it was started; of all workers that of terminal 0. Before the load on a
        session of it: the server may accept no more of them."""
        if self._arm.numbers[0] == 0 and len(self._dsns) == 1 and not self._sessions.access:
            of = self._driver.waits, self._driver.dialect
            at_ms = server_start_ms(session, *of) if session is not None else last_start_ms(self._reader, *of)
            self._server_starts_ms += [] if at_ms is None else [at_ms]

    def _arm_lent(self) -> None:
        """Open the connections of the pool. Without a pool only try one: each terminal makes its own when it needs
        it."""
        count = max(self._arm.connections, 1) if self._sessions.pool else len(self._arm.numbers)
        # of its own numbers, so that the workers together use the members in turn
        self._connections = [Connection(number) for number in self._arm.numbers[:count]]
        kept = self._connections if self._sessions.pool and not self._sessions.connect_every else []
        if kept:
            opened = self._open_all([connection.number for connection in kept])
            for connection in kept:
                connection.hold(opened[connection.number])
            self._note_server_start(kept[0].session)
        else:
            session, _ = self._connect(self._arm.numbers[0])
            with contextlib.closing(session):
                self._note_server_start(session)

    def _open_all(self, numbers: Sequence[int]) -> dict[int, tuple[Any, dict[str, Any]]]:
        """Connect and prepare several sessions at a time, but one after the other to a database in this process, which
        has nothing to wait for. StatementFailure of the first that fails; the others are then closed, by their threads
        or by `abandon`."""

        def connect(number: int) -> tuple[Any, dict[str, Any]]:
            opened = self._connect(number)
            if self._stopped:
                opened[0].close()
            self._check_stopped()
            return opened

        def give_up(settle: Callable[[float], object]) -> None:
            self._stopped = True
            cancel_statements(lambda: list(self._preparing), settle)

        at_once = 1 if getattr(self._driver, "in_files", False) else AT_ONCE
        return open_all(numbers, connect, at_once=at_once, give_up=give_up)

    def stop_arming(self, arming: Future[Any]) -> None:
        """Called from another thread while it arms: open no more connections, and cancel running statements."""
        self._stopped = True
        cancel_statements(lambda: list(self._preparing), lambda seconds: wait([arming], seconds))

    def run(self, t0_ns: int, outlet: ChunkWriter, stdin: int) -> worker_messages.Finished | TaskError:
        """Run the windows from T0 on. A `Fault` if a connection was lost, and the load must not go on without it."""
        timeline = Timeline.of(self._spec.windows, t0_ns)
        ticker = LoadTicker(self._recorder, outlet, timeline, stdin)
        loop = self._loop(timeline, ticker)
        gc.disable()
        try:
            loop.run()
        finally:
            gc.enable()
            self._stopped = True  # stops connections that are being opened
            loop.close()
            cancel_statements(lambda: list(self._preparing), time.sleep)
        if loop.failure is not None:
            code, what = loop.failure.code, loop.failure.what
            message = f"a connection was lost, and `on_disconnect: fail` ends the load: {code}: {what}"
            return TaskError(code="refused", message=message, way_out="on_disconnect: reconnect, or retry")
        ticker.pack(time.monotonic_ns())
        if self._spec.awaits_finish:
            ticker.await_settle()
        if self._commits is not None:
            self._commits.finish(self._reader)
        self._note_server_start()
        missed, *missed_in_phases = loop.missed()
        return worker_messages.Finished(
            missed=missed,
            missed_in_phases=tuple(missed_in_phases),
            committed=tuple(self._recorder.committed.items()),
            unknown=tuple(Counter(loop.unknown).items()),
            start_skew_ns=loop.start_skew_ns,
            samples_lost=outlet.lost,
            first_errors=self._recorder.first_errors,
            pause_longest_ns=ticker.pause_longest_ns,
            pauses=tuple((pause.start_ns, pause.end_ns) for pause in ticker.pauses),
            waiting=tuple(sorted(loop.waiting, key=itemgetter(1))[:WAITING_MAX]),
            unfinished=tuple(loop.unfinished),
            seen_ns=loop.seen_ns,
            completed_ns=loop.completed_ns,
            server_starts_ms=tuple(self._server_starts_ms),
            passes_s=tuple(seconds for terminal in self._terminals for seconds in terminal.passes_s),
            acknowledged=None if self._commits is None else self._commits.acknowledged,
            readings=() if self._commits is None else tuple(map(astuple, self._commits.readings)),
            **ticker.measured(),
        )

    def abandon(self) -> None:
        """Close the connections of a load that does not run, except those that a thread is still preparing: it closes
        them."""
        for session in tuple(self._opened):
            if session not in self._preparing:
                session.close()

    def _terminal(self, number: int, session: Any, prepared: dict[str, Any]) -> Terminal:
        return Terminal(
            number,
            workload=self._parts[number % len(self._parts)],
            pacing=self._pacing,
            recorder=self._recorder,
            seed=self._spec.seed,
            session=session,
            prepared=prepared,
            passes=self._spec.windows.passes,
            tally=None if self._commits is None else self._commits.tallies[number],
        )

    def _connect(
        self, number: int, kind: int | None = None, *, within_s: float | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """A session for the terminal, or the place of a pool, of that number, prepared for the transaction `kind`, or
        for all. With several instances, a terminal always uses the same one, unless the load has an access."""
        began_ns, session = time.monotonic_ns(), None
        try:
            session = self._members.connect(number, within_s)
            # Before the check whether the load is stopped: `stop_arming` cancels these sessions.
            self._preparing.append(session)
            if within_s is None:
                self._opened.append(session)
            self._check_stopped()
            self._configure(session)
        except BaseException:
            self._recorder.connects.extend((began_ns, 0, time.monotonic_ns()))
            if session is not None:
                session.close()
                self._preparing.remove(session)
            raise
        self._recorder.connects.extend((began_ns, 1, time.monotonic_ns()))
        try:
            prepared = self._prepared(session, kind)
            if self._commits is not None:
                self._commits.resume(number, session, prepared)
            return session, prepared
        except BaseException:
            session.close()
            raise
        finally:
            self._preparing.remove(session)

    def _prepared(self, session: Any, kind: int | None) -> dict[str, Any]:
        """The prepared statements of a transaction, or of all, by name."""
        needed = (
            self._needed
            if kind is None
            else statements_of(self._workload.transactions[kind], tracked=self._commits is not None)
        )
        prepared: dict[str, Any] = {}
        for group in grouped(needed, self._driver.dialect):
            self._check_stopped()
            ready = prepare(session, group, self._spec.endpoint.engine)
            prepared.update(zip((statement.name for statement in group), ready, strict=True))
        if isinstance(session, Pipelines):
            prepared[PIPELINE.name] = session.pipeline(prepared)
        return prepared

    def _reader(self) -> tuple[Any, dict[str, Any]]:
        """A session after the load, to read commits back."""
        session = self._members.connect(0, RECONNECT_S)
        try:
            self._configure(session)
        except BaseException:
            session.close()
            raise
        return session, {}

    def _configure(self, session: Any) -> None:
        if isinstance(session, Labelled):
            session.label(self._arm.run, self._spec.label)
        configure(session, self._driver, self._session)

    def _check_stopped(self) -> None:
        """StatementFailure if the load is stopped: a statement sent now would run on the server without a client."""
        if self._stopped:
            raise StatementFailure("57014", "the load was stopped", FailureKind.LOST)

    def _loop(self, timeline: Timeline, ticker: LoadTicker) -> PolledLoop | ThreadedLoop:
        connect = partial(self._connect, within_s=RECONNECT_S)  # while the load runs an attempt is shorter
        common: dict[str, Any] = {
            "terminals": self._terminals,
            "recorder": self._recorder,
            "pacing": self._pacing,
            "timeline": timeline,
            "ticker": ticker,
            "sessions": self._sessions,
        }
        if self._driver.waits != "polled":
            return ThreadedLoop(**common, connect=connect)
        common["reconnector"] = Reconnector(connect)
        if not self._sessions.are_lent:
            return PolledLoop(**common)
        return SessionLoop(**common, **{"pool" if self._sessions.pool else "own": self._connections})


def serve(stdin: int, outlet: ChunkWriter) -> None:
    """Run the loads that the agent requests, until it closes the pipe."""
    outlet.send(worker_messages.Ready())
    while (frame := worker_messages.read_blocking(stdin)) is not None:
        if not isinstance(frame, worker_messages.Arm):
            continue  # a Stop that crossed with Finished
        try:
            load = Load(frame)
        except ProveoutError as error:
            outlet.send(TaskError(code="invalid", message=error.what, way_out=error.way_out))
            continue
        armed = arm(load, stdin)
        outlet.send(armed)
        if isinstance(armed, TaskError):
            continue
        start = worker_messages.read_blocking(stdin)
        if isinstance(start, worker_messages.Start):
            outlet.send(load.run(start.t0_ns, outlet, stdin))
        else:
            load.abandon()


def arm(load: Load, stdin: int) -> worker_messages.Ready | TaskError:
    """Arm in a thread, and read the agent's messages: preparing may wait for a lock. A `Stop` ends this process."""
    arming: Future[worker_messages.Ready | TaskError] = Future()
    done = os.eventfd(0)

    def work() -> None:
        try:
            arming.set_result(load.arm())
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            arming.set_exception(error)
        os.eventfd_write(done, 1)

    threading.Thread(target=work, name="arm", daemon=True).start()
    either = select.poll()
    either.register(stdin, select.POLLIN)
    either.register(done, select.POLLIN)
    if not any(fd == done for fd, _ in either.poll()):
        load.stop_arming(arming)
        os._exit(0)
    os.close(done)
    return arming.result()


def main() -> None:
    """Run the process."""
    parent, argument, engine = sys.argv[1:]
    enter(argument, int(parent), LOAD_WORKER_NAME, engine)
    gc.freeze()  # what the imports have made lives as long as the process: collections need not visit it
    out = os.dup(1)
    os.dup2(2, 1)  # prints of libraries go to the log, not between the frames
    serve(0, ChunkWriter(out))


if __name__ == "__main__":
    main()

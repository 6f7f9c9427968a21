"""A load worker: one process of a load's pool. `python -m proveout.agent.load.worker PARENT-PID PRIVILEGES ENGINE`.

Flow: stdin -> `Arm` (connect, prepare) -> `Armed` -> `Start(t0)` -> the loop of the driver's kind, with a `Chunk` of raw
times ten times a second -> `Finished` -> the next `Arm`. It serves until its stdin ends, and never outlives its agent.
The garbage collector rests while a load runs: the loop makes no cycles, and a collection would be a pause in every
terminal's times.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import sys
import threading
import time
from collections import Counter
from concurrent.futures import Future, wait
from operator import itemgetter
from typing import Any

from proveout.agent.engines.driver_contract import Driver, FailureKind, Labelled, StatementFailure
from proveout.agent.engines.table import driver
from proveout.agent.load import worker_messages
from proveout.agent.load.loop.cancellation import give_up
from proveout.agent.load.loop.chunk_writer import Outlet
from proveout.agent.load.loop.event_loop import PolledLoop
from proveout.agent.load.loop.reconnect import Reconnector
from proveout.agent.load.loop.recorder import Recorder
from proveout.agent.load.loop.terminal import Terminal
from proveout.agent.load.loop.thread_loop import ThreadedLoop
from proveout.agent.load.loop.transaction import statements
from proveout.agent.load.pacing import Timeline
from proveout.agent.load.session_settings import configure
from proveout.agent.sandbox.privileges import Privileges
from proveout.core.child_process import LOAD_WORKER_NAME
from proveout.core.errors import ProveoutError
from proveout.core.linux import die_with_parent
from proveout.dsl.workloads.base import WorkloadKind
from proveout.dsl.workloads.kinds import build, part_of

CHUNK_NS = 100_000_000
WAITING_MAX = 1000
"""Transactions without an answer that a worker names at the end."""


class Pulse:
    """The ticker of a load: packs the records, keeps the CPU of the measure window, heeds the agent.

    It is to tick ten times a second. `pause_longest_ns` is the longest time between two ticks in the measure window: a process that
    is stopped, or gets no CPU, does not tick.
    """

    def __init__(self, recorder: Recorder, outlet: Outlet, timeline: Timeline, stdin: int) -> None:
        self._recorder, self._outlet, self._timeline, self._stdin = recorder, outlet, timeline, stdin
        self._heard = select.poll()
        self._heard.register(stdin, select.POLLIN)
        self._edges = (timeline.measure_start_ns, timeline.measure_end_ns, timeline.end_ns)
        self._marks: list[tuple[int, int]] = []
        self._stopped = False
        self._ticked_ns = timeline.t0_ns
        self.pause_longest_ns = 0

    def control(self) -> int:
        """The agent's pipe."""
        return self._stdin

    def tick(self, now_ns: int) -> int:
        """See `engine.Ticker`."""
        self._heed()
        self._paused(now_ns)
        while len(self._marks) < 2 and now_ns >= self._edges[len(self._marks)]:
            self._marks.append((time.monotonic_ns(), time.process_time_ns()))
        self.pack(now_ns)
        if self._stopped or now_ns >= self._timeline.end_ns:
            return 0
        since = now_ns - self._timeline.t0_ns
        grid_ns = self._timeline.t0_ns + (since // CHUNK_NS + 1) * CHUNK_NS
        return min(grid_ns, *(edge for edge in self._edges if edge > now_ns))

    def _paused(self, now_ns: int) -> None:
        """Note how much of the measure window has passed since the last tick."""
        began_ns = max(self._ticked_ns, self._timeline.measure_start_ns)
        self._ticked_ns = now_ns
        self.pause_longest_ns = max(self.pause_longest_ns, min(now_ns, self._timeline.measure_end_ns) - began_ns)

    def pack(self, now_ns: int) -> None:
        """Hand over what was recorded so far."""
        taken = self._recorder.take()
        chunk = worker_messages.Chunk(
            until_ns=now_ns,
            codes=tuple((code, len(times)) for code, times in taken.items()),
            incidents=tuple(self._recorder.take_incidents()),
            times=b"".join(taken.values()),
        )
        self._outlet.offer(chunk)

    def cpu(self) -> tuple[float, float]:
        """CPU of this process between the edges of the measure window, and that time itself, seconds; zeros if cut short."""
        if len(self._marks) < 2:
            return 0.0, 0.0
        (began_ns, cpu_began_ns), (ended_ns, cpu_ended_ns) = self._marks
        return (cpu_ended_ns - cpu_began_ns) / 1e9, (ended_ns - began_ns) / 1e9

    def _heed(self) -> None:
        """Take what the agent says: a Stop, or the end of its pipe. What is under way on the server is then given up, not left to wait
        there; an agent that is gone takes this process with it (`parent`)."""
        while not self._stopped and self._heard.poll(0):
            frame = worker_messages.read_blocking(self._stdin)
            self._stopped = frame is None or isinstance(frame, worker_messages.Stop)


class Load:
    """One armed load in this worker."""

    def __init__(self, arm: worker_messages.Arm) -> None:
        self._arm = arm
        self._driver: Driver = driver(arm.engine)
        self._workload: WorkloadKind = build(arm.workload())
        self._dsns = arm.instances or (arm.dsn,)
        count = len(self._dsns)
        parts = (part_of(arm.workload(), index, count) for index in range(count))
        self._parts = [self._workload] if count == 1 else [build(part) for part in parts]
        self._needed = statements(self._workload)
        self._pacing = arm.pacing()
        self._recorder = Recorder(len(self._workload.transactions))
        self._opened: list[Any] = []
        self._preparing: list[Any] = []
        self._broken_off = False
        self._terminals: list[Terminal] = []

    def arm(self) -> worker_messages.Armed | worker_messages.Fault:
        """Connect and prepare all terminals; no connection stays open when that fails."""
        try:
            for number in self._arm.numbers:
                self._terminals.append(self._terminal(number))
        except StatementFailure as failure:
            self.abandon()
            code = "unreachable" if failure.kind is FailureKind.LOST else "invalid"
            return worker_messages.Fault(code=code, message=f"{failure.code}: {failure.what}")
        return worker_messages.Armed()

    def break_off(self, arming: Future[Any]) -> None:
        """From another thread, while it arms: open nothing more, and give up what the server is waiting for."""
        self._broken_off = True
        give_up(lambda: list(self._preparing), lambda seconds: wait([arming], seconds))

    def run(self, t0_ns: int, outlet: Outlet, stdin: int) -> worker_messages.Finished:
        """Run the windows from T0 on."""
        timeline = Timeline.of(self._arm.plan_windows(), t0_ns)
        pulse = Pulse(self._recorder, outlet, timeline, stdin)
        loop = self._loop(timeline, pulse)
        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            loop.run()
        finally:
            gc.enable()
            gc.unfreeze()
            self._broken_off = True  # for connections that are being opened again
            loop.close()
            give_up(lambda: list(self._preparing), time.sleep)
        pulse.pack(time.monotonic_ns())
        cpu_s, window_s = pulse.cpu()
        return worker_messages.Finished(
            missed=tuple(loop.missed().items()),
            committed=tuple((Counter(self._recorder.committed) + Counter(loop.committed_late)).items()),
            unknown=tuple(Counter(loop.unknown).items()),
            cpu_s=cpu_s,
            cpu_window_s=window_s,
            start_skew_ns=loop.start_skew_ns,
            samples_lost=outlet.lost,
            first_errors=self._recorder.first_errors,
            pause_longest_ns=pulse.pause_longest_ns,
            waiting=tuple(sorted(loop.waiting, key=itemgetter(1))[:WAITING_MAX]),
        )

    def abandon(self) -> None:
        """Close the connections of a load that is not run."""
        for session in self._opened:
            session.close()

    def _terminal(self, number: int) -> Terminal:
        session, prepared = self._connect(number)
        return Terminal(
            number,
            workload=self._parts[number % len(self._parts)],
            pacing=self._pacing,
            recorder=self._recorder,
            seed=self._arm.seed,
            session=session,
            prepared=prepared,
        )

    def _connect(self, number: int) -> tuple[Any, dict[str, Any]]:
        """A session for a terminal, prepared; of several instances, always the same one."""
        session = self._driver.connect(self._dsns[number % len(self._dsns)])
        self._opened.append(session)
        # Before it is asked whether the load was broken off: who does that gives these up.
        self._preparing.append(session)
        try:
            self._go_on()
            if isinstance(session, Labelled):
                session.label(self._arm.run, self._arm.label)
            configure(session, self._driver, self._arm.session)
            prepared = {}
            for statement in self._needed:
                self._go_on()
                prepared[statement.name] = session.prepare(statement)
            return session, prepared
        except BaseException:
            session.close()
            raise
        finally:
            self._preparing.remove(session)

    def _go_on(self) -> None:
        """StatementFailure when the load was broken off meanwhile: a server keeps on with what it is asked for now."""
        if self._broken_off:
            raise StatementFailure("57014", "the load was stopped", FailureKind.LOST)

    def _loop(self, timeline: Timeline, pulse: Pulse) -> PolledLoop | ThreadedLoop:
        common: dict[str, Any] = {
            "terminals": self._terminals,
            "recorder": self._recorder,
            "pacing": self._pacing,
            "timeline": timeline,
            "ticker": pulse,
        }
        if self._driver.waits == "polled":
            return PolledLoop(**common, reconnector=Reconnector(self._connect))
        return ThreadedLoop(**common, connect=self._connect)


def serve(stdin: int, outlet: Outlet) -> None:
    """Run the loads that the agent asks for, until it closes the pipe."""
    outlet.send(worker_messages.Ready(pid=os.getpid()))
    while (frame := worker_messages.read_blocking(stdin)) is not None:
        if not isinstance(frame, worker_messages.Arm):
            continue  # a Stop that crossed with Finished
        try:
            load = Load(frame)
        except ProveoutError as error:
            outlet.send(worker_messages.Fault(code="invalid", message=error.what, way_out=error.way_out))
            continue
        armed = arm(load, stdin)
        outlet.send(armed)
        if isinstance(armed, worker_messages.Fault):
            continue
        start = worker_messages.read_blocking(stdin)
        if isinstance(start, worker_messages.Start):
            outlet.send(load.run(start.t0_ns, outlet, stdin))
        else:
            load.abandon()


def arm(load: Load, stdin: int) -> worker_messages.Armed | worker_messages.Fault:
    """Arm in a thread, and heed the agent meanwhile: preparing may wait for a lock for ever. A `Stop` ends this process."""
    arming: Future[worker_messages.Armed | worker_messages.Fault] = Future()
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
        load.break_off(arming)
        os._exit(0)
    os.close(done)
    return arming.result()


def main() -> None:
    """The process."""
    parent, argument, engine = int(sys.argv[1]), *sys.argv[2:4]
    privileges = Privileges.from_argument(argument)
    privileges.drop()
    die_with_parent(parent, LOAD_WORKER_NAME)  # after `drop`: a change of the user resets the parent-death signal
    with contextlib.suppress(ProveoutError):  # what cannot be loaded is told when it is needed
        driver(engine)
    privileges.seal()
    out = os.dup(1)
    os.dup2(2, 1)  # what a library prints goes to the log, not between the frames
    serve(0, Outlet(out))


if __name__ == "__main__":
    main()

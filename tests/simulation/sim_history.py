"""One seed: a whole run of the real coordinator and three real agents through the faults that the seed draws.

Data flow: seed -> faults (`sim_faults`) and delays -> `History.run()`: one or more coordinator processes ("sittings"; a
killed one is resumed) against one `servicer.Servicer` per host over `sim_wire` -> recorded facts -> `judge`.

Real parts: scheduler, loop, sessions, connecting, journals (SQLite files), codec, signatures, the agents' admission,
session, lease, outbox and task runner, and all of tuning except kernel, units and programs. Simulated parts: the event
loop and its time, processes and threads, the network below gRPC, the other handlers and databases, the numbers of an
iteration (`sim_world`, `_Numbers`), machines and their disks (`sim_machine`, `sim_disk`). Left out: TLS and audit logs.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from run_simulator import Evaluator, finished
from sim_clock import CURRENT, Process, SimLoop, SimTime
from sim_disk import SimOs
from sim_faults import HOSTS, Fault, draw
from sim_host import NoAudit, SimHost
from sim_machine import Machine, operations
from sim_plan import LEASE_S, PLAN, SLOTS, STORING, drawn
from sim_strikes import Strikes
from sim_threads import Asyncio, Threads
from sim_undo import os_of, sqlite_of
from sim_wire import COORDINATOR, Link, Network, outside
from sim_world import World

from proveout.agent.daemon import servicer
from proveout.agent.daemon import session as agent_session
from proveout.agent.daemon import task_journal as agent_journal
from proveout.agent.tuning import fault_injection, files, machine, tuner, undo_journal
from proveout.agent.tuning import host as tuning_host
from proveout.coordinator import run
from proveout.coordinator.agents import connect as dial
from proveout.coordinator.agents import session as coordinator_session
from proveout.coordinator.measure import samples
from proveout.coordinator.run import RunOptions
from proveout.coordinator.schedule.state import Summarise, run_progress
from proveout.coordinator.storage import run_directory
from proveout.coordinator.storage.journal import Journal, StorageFailed, read
from proveout.coordinator.storage.run_directory import RunDirectory
from proveout.proto import events, signing
from proveout.proto.wire import results

END_S = 2400.0
"""The limit for a run with all its sittings, losses and retries; the plan takes half a minute."""
QUIET_S = 60.0
STORING_EVERY = 10
"""One history of this many stores a setting that is not in effect."""
AGAIN_S = 180.0
"""The limit for restarted agents to revert all remaining changes, although each program may hang once."""
REVERTED_S = 10.0
"""The limit for reverting after the end of a lease, on the agent's own clock."""
LOOK_EVERY_S = 0.5


class RunJournal(Journal):
    """The run's journal, on a disk that can be full."""

    full = False

    def append(self, event: events.Event) -> events.Stamped:
        if self.full:
            raise StorageFailed("the journal cannot be written: the disk is full", way_out="Free some space there.")
        return super().append(event)


class _Numbers:
    """Replaces `samples` in the loop: gathers and counts lost samples as the real module; the metrics are invented."""

    Gathering = samples.Gathering

    def __init__(self, history: History) -> None:
        self._history = history

    def summarise(
        self, gathering: Any, _plan: Any, rate: Any, loads: Any, captures: Any, *, faults: Any
    ) -> events.IterationFinished:
        outcomes = {**loads, **captures}
        lost = gathering.lost(outcomes)
        self._history.count(gathering, outcomes, lost)
        command = Summarise(id=gathering.id, rate=rate, loads=loads, captures=captures)
        return finished(command, {"tps": float(gathering.id.rung)}, valid=not lost)

    def write(self, gathering: Any, _folder: Path) -> None:
        if self._history.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._history.written.add(str(gathering.id))


class History:
    """One seed's history. `folder` is empty and should be on a disk with a fast fsync. With given `faults` it runs the
    usual plan; without them it draws the faults, and tunings of the plan."""

    def __init__(self, seed: int, folder: Path, faults: tuple[Fault, ...] | None = None) -> None:
        self.seed = seed
        usual = STORING if seed % STORING_EVERY == STORING_EVERY - 1 else PLAN
        self.plan = drawn(random.Random(f"plan {seed}"), usual) if faults is None else usual
        self.loop = SimLoop()
        self.time = SimTime(self.loop)
        self.chance = random.Random(f"delays {seed}")
        self.faults = draw(random.Random(f"faults {seed}")) if faults is None else faults
        self.world = World(self.loop, self.time, self.chance)
        self.threads = Threads(self.loop)
        self.links = {name: Link(name, self.chance) for name in HOSTS}
        for name, link in self.links.items():
            link.renewed = functools.partial(self._renewed, name)
        self.network = Network(self.loop, self.links)
        for part in ("run", "run/samples", "run/logs", *HOSTS):
            (folder / part).mkdir()
        self.directory = RunDirectory(folder / "run")
        self.world.tuned_by = lambda name: self.hosts[name].tuned_by()
        self.world.in_place = lambda name: self.hosts[name].faults_in_place()
        self.hosts = {name: SimHost(self, name, folder / name) for name in HOSTS}
        db1 = self.hosts["db1"].machine
        db1.serves = lambda: "db" in self.world.systems
        self.world.settings = db1.settings
        self.coordinator = Process("coordinator", alive=False)
        self.journal: RunJournal | None = None
        self.sittings = 0
        self.sitting: asyncio.Task[events.RunFinished] | None = None
        self.resume_due = False
        self.full = False
        self.healed_s = 0.0
        self.written: set[str] = set()
        self.acknowledged: dict[int, events.Event] = {}
        self.ends: list[events.RunFinished] = []
        self.interrupts: asyncio.Queue[None] | None = None
        self.over_s = 0.0
        self.strikes = Strikes(self)

    # ---- running -----------------------------------------------------------------------------------------------------

    def run(self) -> History:
        """Run all sittings, wait until remaining leases have ended, and start every agent once more."""
        with _patched(self):
            for host in self.hosts.values():
                host.start()
            self.strikes.arm(self.faults)
            self.begin()
            self._look()
            if not self.loop.run_until(self._ended, END_S):
                self.world.wrong("the run has no end")
            self.over_s = self.loop.now_s
            self.loop.run_until(lambda: False, max(self.loop.now_s, *self._drawn_s(), self.healed_s) + QUIET_S)
            self.loop.run_until(lambda: False, max(self.loop.now_s, self._hung_until_s() + REVERTED_S))
            self._finish()
        return self

    def _ended(self) -> bool:
        return self.sitting is not None and self.sitting.done() and not self.resume_due

    def _drawn_s(self) -> list[float]:
        return [0.0, *(fault.at_s + fault.for_s for fault in self.faults)]

    def _hung_until_s(self) -> float:
        """Return the time at which the last hanging program ends."""
        return max(host.machine.hung_until_s for host in self.hosts.values())

    def begin(self) -> None:
        """Start a coordinator: `proveout run`, or `proveout resume` after a kill."""
        self.resume_due = False
        self.sittings += 1
        crashed = self.journal is not None
        self.journal = RunJournal(self.directory.path, clock=self.time.time)
        wall_s, self.coordinator = (
            self.coordinator.wall_s,
            Process("coordinator", offset_ns=-self.sittings * 10**9),
        )
        self.coordinator.wall_s = wall_s  # the host's clock keeps its error
        signing._counter = signing._Counter()
        sitting = RunOptions(
            plan=self.plan,
            directory=self.directory,
            version="1",
            credentials=COORDINATOR,
            crashed=crashed,
            lease_s=LEASE_S,
            gather_hosts=len(HOSTS) + self.seed % 2,  # with every other seed the samples of a host are sent in groups
        )
        self.world.note(f"sitting {self.sittings} begins, epoch {self.journal.epoch}")
        self.interrupts = asyncio.Queue()
        work = run.run(sitting, self.journal, [self._record], interrupts=self.interrupts)
        self.sitting = self.loop.spawn(self.coordinator, work, "coordinator")
        self.sitting.add_done_callback(self._sitting_ended, context=outside())

    def _sitting_ended(self, sitting: asyncio.Task[events.RunFinished]) -> None:
        if sitting.cancelled():
            self.world.wrong("the coordinator was cancelled")
        elif (error := sitting.exception()) is not None:
            self.world.wrong(f"the coordinator raised {error!r}")
        else:
            end = sitting.result()
            self.world.note(f"the run {end.status}, {end.exit_code}: {end.reason}")
            self.ends.append(end)

    def _record(self, stamped: events.Stamped) -> None:
        if isinstance(stamped.event, events.LIVE_EVENTS) or (self.journal is not None and self.journal.full):
            return
        self.acknowledged[stamped.sequence] = stamped.event
        self.world.note(f"event {stamped.sequence} {_short(stamped.event)}")

    def here(self) -> Machine:
        """Return the machine of the current process."""
        process = CURRENT.get()
        assert process is not None
        return self.hosts[process.name].machine

    # ---- checking ----------------------------------------------------------------------------------------------------

    def _renewed(self, name: str) -> None:
        self.world.renewed_s[name] = self.loop.now_s

    def _look(self) -> None:
        """Check periodically that no agent works on after its lease (promise 3)."""
        now_s = self.loop.now_s
        for one in self.world.running:
            host = self.hosts[one.host]
            renewed_s = max(self.world.renewed_s.get(one.host, 0.0), host.since_s, host.machine.hung_until_s)
            if host.process.alive and not host.process.stopped and now_s - renewed_s > LEASE_S + 2.0:
                self.world.wrong(f"{one.key} goes on {now_s - renewed_s:.1f} s after the last beat of a coordinator")
                host.since_s = now_s  # report it once
        for host in self.hosts.values():
            self._late(host, now_s)
        self.loop.call_later(LOOK_EVERY_S, self._look, context=outside())

    def _late(self, host: SimHost, now_s: float) -> None:
        """Check that an agent reverts its host soon after the end of its lease, or after its restart (promise 3)."""
        since_s = max(self.world.renewed_s.get(host.name, 0.0), host.since_s, host.machine.hung_until_s)
        due_s = since_s + LEASE_S + REVERTED_S + LOOK_EVERY_S
        if not host.process.alive or host.process.stopped or now_s <= due_s or host.checked_s > due_s or host.full:
            return
        host.checked_s = now_s
        if unnamed := host.unnamed():
            self.world.wrong(f"{host.name}: {now_s - since_s:.1f} s after the last beat of a coordinator {unnamed}")

    def count(self, gathering: Any, outcomes: Any, lost: Any) -> None:
        """Check at the end of an iteration that received and lost samples add up to the produced ones (promise 12)."""
        for key, host in gathering.hosts.items():
            received = len(gathering.seconds.get(key, ())) + len(gathering.captured.get(key, ()))
            missing = lost.get((gathering.names.get(key, "load"), host), 0)
            produced = self.world.produced.get(key, 0)
            if key in outcomes and received + missing != produced:
                self.world.wrong(f"{key}: {produced} samples made, {received} received, {missing} reported as lost")
        for key, (host, began_s) in self._starts(gathering, outcomes).items():
            self._skew(key, host, began_s, gathering, outcomes[key])

    def _starts(self, gathering: Any, outcomes: Any) -> dict[str, tuple[str, float]]:
        loads = [key for key in outcomes if isinstance(outcomes[key], results.LoadResult)]
        return {key: (gathering.hosts[key], self.world.began_s[key]) for key in loads}

    def _skew(self, key: str, host: str, began_s: float, gathering: Any, result: results.LoadResult) -> None:
        """Check that a load began at T0 plus the skew that its agent reports, within the clock's uncertainty (promise
        16)."""
        t0_true_s = (gathering.t0_ns - self.coordinator.offset_ns) / 1e9
        late_s = began_s - t0_true_s
        bound_s = gathering.clocks[host][1] / 1e9 + 2e-4
        if abs(late_s - result.start_skew_ns / 1e9) > bound_s:
            self.world.wrong(
                f"{key} began {late_s:.6f} s late, reported {result.start_skew_ns / 1e9:.6f}, bound {bound_s:.6f}"
            )

    # ---- the end -----------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        if self.journal is not None:
            self.journal.close()
        judge(self, list(read(self.directory.path)))
        self.strikes.disarm()
        for host in self.hosts.values():
            host.machine.hangs = False
            host.kill()
            host.start()
        self.loop.run_until(lambda: all(host.ready for host in self.hosts.values()), self.loop.now_s + AGAIN_S)
        check_reverted(self)
        wrongs = list(self.world.wrongs)
        self.threads.close()
        self.loop.end_tasks()
        self.world.wrongs[:] = wrongs
        for host in self.hosts.values():
            host.close()


# ---- the rules that every history must keep under all faults (`World` and `History` check others while it runs) ------


def judge(history: History, journal: Sequence[events.Stamped]) -> None:
    """Add every broken rule to `world.wrongs`."""
    world = history.world
    for text in history.loop.raised:
        world.wrong(text)
    _nothing_left(history)
    for host in history.hosts.values():
        if not host.full and (unnamed := host.unnamed()):
            world.wrong(f"{host.name}, a minute after the end: {unnamed}")
    _nothing_forgotten(history, journal)
    if history.ends and not any(f.kind == "fill" and not f.host for f in history.faults):
        _complete(history, journal)


def check_reverted(history: History) -> None:
    """Check that after one more start of every agent, with free disk space and working programs, every change is
    reverted and no undo journal is left."""
    for host in history.hosts.values():
        for subject, (now, wanted) in host.machine.unexpected().items():
            history.world.wrong(f"{host.name}, after another start: {subject} is {now}, not {wanted}")
        if (host.folder / "tuning").exists():
            history.world.wrong(f"{host.name}, after another start: the undo journal is still there")


def _nothing_left(history: History) -> None:
    """Check that after the end no agent runs a task and no database is up."""
    for one in history.world.running:
        if history.hosts[one.host].process.alive:
            history.world.wrong(f"{one.key} still runs on {one.host}, a minute after the end")
    for name, host in history.world.systems.items():
        history.world.wrong(f"the database {name} on {host} is still up, a minute after the end")


def _nothing_forgotten(history: History, journal: Sequence[events.Stamped]) -> None:
    """Check that every published event is in the journal, and that each finished iteration has its samples."""
    kept = {stamped.sequence: stamped.event for stamped in journal}
    for sequence, event in history.acknowledged.items():
        if kept.get(sequence) != event:
            history.world.wrong(f"event {sequence} was published and is not in the journal: {event}")
    names = [str(event.id) for event in kept.values() if isinstance(event, events.IterationFinished)]
    if len(names) != len(set(names)):
        history.world.wrong(f"an iteration finished twice: {sorted(names)}")
    for name in names:
        if name not in history.written:
            history.world.wrong(f"the samples of {name} were not kept")


def _complete(history: History, journal: Sequence[events.Stamped]) -> None:
    """Check that the last sitting has an end in the journal, and all numbers when its status is `finished`."""
    facts = run_progress(stamped.event for stamped in journal)
    end = history.ends[-1]
    if facts.ended != end:
        history.world.wrong(f"the journal ends with {facts.ended}, the run with {end}")
    if facts.open_iteration is not None:
        history.world.wrong(f"{facts.open_iteration} is neither finished nor void")
    if end.status == "finished":
        have = {(i.id.rung, i.id.repeat) for i in facts.iterations}
        if have != SLOTS:
            history.world.wrong(f"finished without {sorted(SLOTS - have)}")
    elif end.exit_code not in (4, 130):
        history.world.wrong(f"{end.status} with exit code {end.exit_code}")


def _short(event: events.Event) -> str:
    what = getattr(event, "id", None) or getattr(event, "text", None) or getattr(event, "stage", None) or ""
    return f"{type(event).__name__} {getattr(event, 'host', '')} {what} {getattr(event, 'reason', '')}"[:160].strip()


@contextlib.contextmanager
def _patched(history: History) -> Iterator[None]:
    """Replace clock, network, numbers and host access in the modules under test."""
    facts = SimpleNamespace(machine_id=lambda: "m", cores=lambda: 2, facts=lambda: ())
    simulated_os = SimOs(history.threads, lambda: history.here().disk, lambda path: history.here().wrote(path))
    changes: list[tuple[Any, str, Any]] = [
        (servicer, "host_facts", facts),
        (dial, "grpc", history.network.grpc),
        (dial, "_probe", history.network.probe),
        (run, "PlanEvaluator", Evaluator),
        (run, "samples", _Numbers(history)),
        (run, "time", history.time),
        (coordinator_session, "time", history.time),
        (agent_session, "time", history.time),
        (agent_journal, "time", history.time),
        (agent_session, "end_children", lambda: None),  # the real one would end the children of the test process
        (run_directory, "AuditLog", NoAudit),
        (run, "release_memory", lambda: None),
        (run, "rare_garbage_collection", contextlib.nullcontext),  # `seeds` collects garbage
        (signing, "time", history.time),
        (signing, "_counter", signing._counter),
        (tuner, "asyncio", Asyncio(history.threads)),
        (fault_injection, "time", history.time),
        (tuner, "time", history.time),
        (files, "os", simulated_os),
        (tuning_host, "os", simulated_os),
        (undo_journal, "sqlite3", sqlite_of(history.here)),
        (undo_journal, "os", os_of(history.here)),
        (machine, "os", os_of(history.here)),
        *operations(history.here),
    ]
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.ExitStack() as stack:
            for place, name, value in changes:
                stack.enter_context(mock.patch.object(place, name, value))
            yield
    finally:
        logging.disable(logging.NOTSET)

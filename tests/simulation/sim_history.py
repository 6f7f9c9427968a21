"""One seed: a whole run of the real coordinator and three real agents through the faults that the seed draws.

Data flow: seed -> faults (`sim_faults`) and delays -> `History.run()`: sittings of `coordinator.run` (a killed one is resumed)
against `daemon.Servicer` per host over `sim_wire` -> what was seen -> `sim_rules.judge`.

Real are: scheduler, loop, sessions, dialling, journals (SQLite files), codec, the agents' admission, session, lease, outbox,
work. Simulated are: the event loop and its time, processes, the network below gRPC, handlers and databases, the numbers of an
iteration (`sim_world`, `_Numbers`), and how full a disk is. TLS and certificates are left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from sim_clock import Process, SimLoop, SimTime
from sim_faults import HOSTS, Fault, draw
from sim_judgement import SimJudgement
from sim_plan import PLAN
from sim_wire import AUTHORITY, Link, Network, ServerSide, outside
from sim_world import World, table

from proveout.agent import daemon
from proveout.agent.admission import Admission, Place
from proveout.agent.journal import AgentJournal
from proveout.agent.trusting import Orders
from proveout.coordinator import dial, run, samples
from proveout.coordinator import session as coordinator_session
from proveout.coordinator.exchange import Summarise
from proveout.coordinator.journal import Journal, StorageFailed, read
from proveout.coordinator.run import Sitting
from proveout.coordinator.simulator import finished
from proveout.coordinator.store import RunDirectory
from proveout.proto import events, messages, results, tasks
from proveout.proto.audit import AuditLog
from proveout.proto.orders import Addressee, Verifier

COORDINATOR = AUTHORITY.issue_coordinator()
LEASE_S = 10.0
END_S = 2400.0
"""By then a sitting has ended, whatever has happened: some sittings of a plan of half a minute, with every loss and retry."""
QUIET_S = 60.0
LOOK_EVERY_S = 0.5


class _Full(sqlite3.OperationalError):
    def __init__(self) -> None:
        super().__init__("database or disk is full")


class _Disk:
    """A database whose disk can be full: it reads, and does not write."""

    def __init__(self, database: sqlite3.Connection, host: SimHost) -> None:
        self._database, self._host = database, host

    def execute(self, query: str, *arguments: Any) -> sqlite3.Cursor:
        if self._host.full and query.lstrip().upper().startswith(("INSERT", "UPDATE", "DELETE")):
            raise _Full
        return self._database.execute(query, *arguments)

    def close(self) -> None:
        self._database.close()


class SimHost:
    """A host with an agent that is started again when it is killed."""

    def __init__(self, history: History, name: str, folder: Path) -> None:
        self.history, self.name, self.folder = history, name, folder
        self.link = history.links[name]
        self.full = False
        self.offset_ns = round(history.chance.choice((0.5e9, -0.5e9, 0.0, 3.6e12)) * history.chance.random())
        self.drift_ppm = history.chance.uniform(-80.0, 80.0)
        self.process = Process(name, alive=False)
        self.since_s = 0.0
        self._journal: AgentJournal | None = None

    def start(self) -> None:
        """Start the agent on the state that the last one left."""
        self.process = Process(self.name, offset_ns=self.offset_ns, drift_ppm=self.drift_ppm)
        self._journal = AgentJournal(self.folder / "journal.sqlite")
        self._journal._db = _Disk(self._journal._db, self)  # type: ignore[assignment]
        world = self.history.world
        place = Place(
            name=self.name,
            state_dir=self.folder,
            table=table(world),
            trust=_Trust(self.name),  # type: ignore[arg-type]
            audit=AuditLog(self.folder / "audit.log"),
        )
        servicer = daemon.Servicer(Admission(place, self._journal), self.name)

        async def serve(side: ServerSide) -> None:
            await servicer.Session(None, side)

        self.link.serve, self.link.process = serve, self.process
        self.since_s = self.history.loop.now_s

    def kill(self) -> None:
        """kill -9."""
        if not self.process.alive:
            return
        self.process.alive = False
        self.link.serve = self.link.process = None
        self.history.world.died(self.name)
        self.link.cut()
        if self._journal is not None:
            self._journal.close()

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()


class _Trust:
    """An agent's `Trust`, from memory; the checks themselves are the real ones."""

    def __init__(self, name: str) -> None:
        self._name = name

    def objection(self, _hello: messages.Hello) -> str:
        return ""

    def orders(self, hello: messages.Hello) -> Orders:
        to = Addressee(agent=f"agent/{self._name}", run=hello.run_id, epoch=hello.epoch)
        return Orders(Verifier(hello.signer.encode(), AUTHORITY.pem, frozenset()), to)


class _RunJournal(Journal):
    """The run's journal, on a disk that can be full."""

    full = False

    def append(self, event: events.Event) -> events.Stamped:
        if self.full:
            raise StorageFailed("the journal cannot be written: the disk is full", way_out="Free some space there.")
        return super().append(event)


class _Numbers:
    """In place of `samples` in the loop: the real gathering, what it has lost as the real one counts it, made-up metrics."""

    Gathering = samples.Gathering

    def __init__(self, history: History) -> None:
        self._history = history

    def summarise(self, gathering: Any, _plan: Any, rate: Any, loads: Any, captures: Any) -> events.IterationFinished:
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
    """One seed's world. `folder` is empty, and on a disk that is quick to sync."""

    def __init__(self, seed: int, folder: Path, faults: tuple[Fault, ...] | None = None) -> None:
        self.seed = seed
        self.loop = SimLoop()
        self.time = SimTime(self.loop)
        self.chance = random.Random(f"delays {seed}")
        self.faults = draw(random.Random(f"faults {seed}")) if faults is None else faults
        self.world = World(self.loop, self.time, self.chance)
        self.links = {name: Link(name, self.chance) for name in HOSTS}
        for name, link in self.links.items():
            link.renewed = functools.partial(self._renewed, name)
        self.network = Network(self.loop, self.links)
        for part in ("run", "run/samples", "run/logs", *HOSTS):
            (folder / part).mkdir()
        self.directory = RunDirectory(folder / "run")
        self.hosts = {name: SimHost(self, name, folder / name) for name in HOSTS}
        self.coordinator = Process("coordinator", alive=False)
        self.journal: _RunJournal | None = None
        self.sittings = 0
        self.sitting: asyncio.Task[events.RunFinished] | None = None
        self.resume_due = False
        self.full = False
        self.written: set[str] = set()
        self.acknowledged: dict[int, events.Event] = {}
        self.ends: list[events.RunFinished] = []
        self.interrupts: asyncio.Queue[None] | None = None
        self.over_s = 0.0

    # ---- driving -----------------------------------------------------------------------------------------------------

    def run(self) -> History:
        """Through all sittings, and a while on until everything that was left has ended itself."""
        with _patched(self):
            for host in self.hosts.values():
                host.start()
            for fault in self.faults:
                self.loop.call_at(fault.at_s, self._strike, fault, context=outside())
            self._begin()
            self._look()
            if not self.loop.run_until(self._ended, END_S):
                self.world.wrong("the run has no end")
            self.over_s = self.loop.now_s
            self.loop.run_until(lambda: False, max(self.loop.now_s, *self._healed_s()) + QUIET_S)
            self._finish()
        return self

    def _ended(self) -> bool:
        return self.sitting is not None and self.sitting.done() and not self.resume_due

    def _healed_s(self) -> list[float]:
        return [0.0, *(fault.at_s + fault.for_s for fault in self.faults)]

    def _begin(self) -> None:
        """A coordinator sits down: `proveout run`, or `proveout resume` after a kill."""
        self.resume_due = False
        self.sittings += 1
        crashed = self.journal is not None
        self.journal = _RunJournal(self.directory.path, clock=self.time.time)
        self.coordinator = Process("coordinator", offset_ns=-self.sittings * 10**9)
        sitting = Sitting(
            plan=PLAN, directory=self.directory, version="1", credentials=COORDINATOR, crashed=crashed, lease_s=LEASE_S
        )
        self.world.note(f"sitting {self.sittings} begins, epoch {self.journal.epoch}")
        self.interrupts = asyncio.Queue()
        work = run.run(sitting, self.journal, [self._told], interrupts=self.interrupts)
        self.sitting = self.loop.spawn(self.coordinator, work, "coordinator")
        self.sitting.add_done_callback(self._sat, context=outside())

    def _sat(self, sitting: asyncio.Task[events.RunFinished]) -> None:
        if sitting.cancelled():
            self.world.wrong("the coordinator was cancelled")
        elif (error := sitting.exception()) is not None:
            self.world.wrong(f"the coordinator raised {error!r}")
        else:
            end = sitting.result()
            self.world.note(f"the run {end.status}, {end.exit_code}: {end.reason}")
            self.ends.append(end)

    def _told(self, stamped: events.Stamped) -> None:
        if isinstance(stamped.event, events.LIVE_EVENTS) or (self.journal is not None and self.journal.full):
            return
        self.acknowledged[stamped.sequence] = stamped.event
        self.world.note(f"event {stamped.sequence} {_short(stamped.event)}")

    # ---- looking -----------------------------------------------------------------------------------------------------

    def _renewed(self, name: str) -> None:
        self.world.heard_s[name] = self.loop.now_s

    def _look(self) -> None:
        """Now and then: no agent works on without its coordinator (promise 3)."""
        now_s = self.loop.now_s
        for one in self.world.running:
            host = self.hosts[one.host]
            heard_s = max(self.world.heard_s.get(one.host, 0.0), host.since_s)
            if host.process.alive and not host.process.stopped and now_s - heard_s > LEASE_S + 2.0:
                self.world.wrong(f"{one.key} goes on {now_s - heard_s:.1f} s after the last word of a coordinator")
                host.since_s = now_s  # once is enough
        self.loop.call_later(LOOK_EVERY_S, self._look, context=outside())

    def count(self, gathering: Any, outcomes: Any, lost: Any) -> None:
        """At the end of an iteration: what was received and what is known to be lost is what was produced (promise 12)."""
        for key, host in gathering.hosts.items():
            received = len(gathering.seconds.get(key, ())) + len(gathering.captured.get(key, ()))
            missing = lost.get((gathering.names.get(key, "load"), host), 0)
            produced = self.world.produced.get(key, 0)
            if key in outcomes and received + missing != produced:
                self.world.wrong(f"{key}: {produced} samples made, {received} received, {missing} said to be lost")
        for key, (host, began_s) in self._starts(gathering, outcomes).items():
            self._skew(key, host, began_s, gathering, outcomes[key])

    def _starts(self, gathering: Any, outcomes: Any) -> dict[str, tuple[str, float]]:
        loads = [key for key in outcomes if isinstance(outcomes[key], results.LoadResult)]
        return {key: (gathering.hosts[key], self.world.began_s[key]) for key in loads}

    def _skew(self, key: str, host: str, began_s: float, gathering: Any, result: results.LoadResult) -> None:
        """A load began when it was to begin, within what its agent says and the bound of the clock (promise 16)."""
        t0_true_s = (gathering.t0_ns - self.coordinator.offset_ns) / 1e9
        late_s = began_s - t0_true_s
        bound_s = gathering.clocks[host][1] / 1e9 + 2e-4
        if abs(late_s - result.start_skew_ns / 1e9) > bound_s:
            self.world.wrong(
                f"{key} began {late_s:.6f} s late, said {result.start_skew_ns / 1e9:.6f}, bound {bound_s:.6f}"
            )

    # ---- faults ------------------------------------------------------------------------------------------------------

    def _strike(self, fault: Fault) -> None:
        self.world.note(f"FAULT {fault}")
        if fault.host:
            getattr(self, f"_{fault.kind}")(self.hosts[fault.host], fault.for_s)
        else:
            getattr(self, f"_coordinator_{fault.kind}")(fault.for_s)

    def _later(self, for_s: float, what: Any, *arguments: Any) -> None:
        self.loop.call_later(for_s, what, *arguments, context=outside())

    def _cut(self, host: SimHost, _for_s: float) -> None:
        host.link.cut()

    def _half_open(self, host: SimHost, for_s: float) -> None:
        host.link.cut(half_open_s=for_s)

    def _hold(self, host: SimHost, for_s: float) -> None:
        host.link.held_until_s = max(host.link.held_until_s, self.loop.now_s + for_s)

    def _deaf(self, host: SimHost, for_s: float) -> None:
        """What the agent says is lost for a while; then the connection breaks."""
        for connection in host.link.connections:
            connection.back.deaf = True
        self._later(for_s, host.link.cut)

    def _slow(self, host: SimHost, for_s: float) -> None:
        host.link.slow_s, host.link.slow_until_s = self.chance.uniform(0.05, 2.0), self.loop.now_s + for_s

    def _repeat(self, host: SimHost, _for_s: float) -> None:
        host.link.repeat_next += 5

    def _lossy(self, host: SimHost, for_s: float) -> None:
        """The connection breaks again and again."""
        for _ in range(self.chance.randint(2, 12)):
            self._later(self.chance.uniform(0.0, for_s), host.link.cut)

    def _kill(self, host: SimHost, for_s: float) -> None:
        if host.process.alive:
            host.kill()
            self._later(for_s, host.start)

    def _stop(self, host: SimHost, for_s: float) -> None:
        process = host.process
        if process.alive and not process.stopped:
            process.stopped = True
            self._later(for_s, self._continue, host, process)

    def _continue(self, host: SimHost, process: Process) -> None:
        host.since_s = max(host.since_s, self.loop.now_s - LEASE_S)  # it may not have had the time to see its lease end
        self.loop.proceed(process)

    def _fill(self, host: SimHost, for_s: float) -> None:
        host.full = True
        self._later(for_s, setattr, host, "full", False)

    def _wall(self, host: SimHost, _for_s: float) -> None:
        host.process.wall_s += self.chance.choice((3600.0, -3600.0))

    def _coordinator_kill(self, for_s: float) -> None:
        if not self.coordinator.alive or self.sitting is None or self.sitting.done() or self.journal is None:
            return
        self.coordinator.alive = False
        self.journal.close()
        for link in self.links.values():
            link.cut(half_open_s=self.chance.choice((0.0, 0.2)))
        self.resume_due = True
        self._later(for_s, self._begin)

    def _coordinator_stop(self, for_s: float) -> None:
        process = self.coordinator
        if process.alive and not process.stopped:
            process.stopped = True
            self._later(for_s, self.loop.proceed, process)

    def _coordinator_fill(self, for_s: float) -> None:
        if self.journal is not None:
            self.full = self.journal.full = True
            self._later(for_s, self._coordinator_room, self.journal)

    def _coordinator_room(self, journal: _RunJournal) -> None:
        self.full = journal.full = False

    def _coordinator_wall(self, _for_s: float) -> None:
        self.coordinator.wall_s += self.chance.choice((3600.0, -3600.0))

    def _coordinator_interrupt(self, _for_s: float) -> None:
        if self.interrupts is not None and self.coordinator.alive:
            self.interrupts.put_nowait(None)

    def _coordinator_ghost(self, _for_s: float) -> None:
        """An older coordinator of this run is still somewhere, and gives every agent a task."""
        epoch = self.sittings  # the one before the next sitting's; fenced off once that has been there
        self._coordinator_kill(0.5)
        for name in HOSTS:
            process = Process(f"ghost of {name}")
            self._later(self.chance.uniform(1.0, 20.0), self.loop.spawn, process, self._haunt(name, epoch), "ghost")

    async def _haunt(self, name: str, epoch: int) -> None:
        hello = messages.Hello(run_id=self.directory.name, epoch=epoch, host=name, lease_s=LEASE_S)
        spec = tasks.RunSql(endpoint=tasks.Endpoint(system="db", engine="postgres", dsn="x"), statements=("x",))
        with contextlib.suppress(dial.AgentRefused, dial.AgentUnreachable, dial.StreamEnded):
            stream, _ = await dial.open_stream(name, f"{name}:7443", COORDINATOR, hello, 30.0)
            await stream.write(tasks.Task(key=f"run/-/0/0/{epoch}.99/ghost/{name}", spec=spec, deadline_s=60.0))
            await asyncio.sleep(2.0)
            await stream.close()

    # ---- the end -----------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        from sim_rules import judge

        if self.journal is not None:
            self.journal.close()
        judge(self, list(read(self.directory.path)))
        wrongs = list(self.world.wrongs)
        self.loop.bury()
        self.world.wrongs[:] = wrongs
        for host in self.hosts.values():
            host.close()


def _short(event: events.Event) -> str:
    what = getattr(event, "id", None) or getattr(event, "text", None) or getattr(event, "stage", None) or ""
    return f"{type(event).__name__} {getattr(event, 'host', '')} {what} {getattr(event, 'reason', '')}"[:160].strip()


@contextlib.contextmanager
def _patched(history: History) -> Iterator[None]:
    """Clock, network and numbers in place of the real ones, wherever the code under test would reach for those."""
    facts = SimpleNamespace(machine_id=lambda: "m", cores=lambda: 2, facts=lambda: ())
    changes: list[tuple[Any, str, Any]] = [
        (daemon, "facts", facts),
        (dial, "grpc", history.network.grpc),
        (dial, "_probe", history.network.probe),
        (run, "PlanJudgement", SimJudgement),
        (run, "samples", _Numbers(history)),
        (run, "time", history.time),
        (coordinator_session, "time", history.time),
    ]
    from proveout.agent import journal as agent_journal
    from proveout.agent import session as agent_session

    changes += [
        (agent_session, "time", history.time),
        (agent_journal, "time", history.time),
        (agent_session, "end_children", lambda: None),  # it would end the children of the test process
    ]
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.ExitStack() as stack:
            for place, name, value in changes:
                stack.enter_context(mock.patch.object(place, name, value))
            yield
    finally:
        logging.disable(logging.NOTSET)

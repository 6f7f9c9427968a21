"""Injection of faults into a history: each kind of `sim_faults` is a method here.

Data flow: `Strikes.arm(faults)` -> at its instant, or at its step of a tuning, a fault strikes a host, a link or the
coordinator of the `History` -> the same method schedules its repair.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import grpc
from sim_clock import CURRENT, Process
from sim_faults import HOSTS, Fault
from sim_host import SimHost
from sim_plan import LEASE_S, RIVALS
from sim_wire import COORDINATOR, outside
from sim_world import FORGED

from proveout.coordinator.agents import connect as dial
from proveout.proto.signing import Addressee, Signer
from proveout.proto.wire import agent_pb2 as pb
from proveout.proto.wire import codec, messages, tasks

if TYPE_CHECKING:
    from sim_history import History, RunJournal

_SPEC = tasks.RunSql(endpoint=tasks.Endpoint(system="db", engine="postgres", dsn="dbname=x"), statements=("x",))


class Strikes:
    """The fault injector of a history."""

    def __init__(self, history: History) -> None:
        self.history, self.loop, self.world, self.chance = history, history.loop, history.world, history.chance
        self._armed: list[tuple[Fault, int]] = []
        history.threads.stepped = self._stepped

    def arm(self, faults: tuple[Fault, ...]) -> None:
        for fault in faults:
            self.loop.call_at(fault.at_s, self._due, fault, context=outside())

    def disarm(self) -> None:
        """Cancel the faults that still wait for their step."""
        self._armed.clear()

    def _due(self, fault: Fault) -> None:
        if fault.step:
            self._armed.append((fault, fault.step))
        else:
            self._strike(fault)

    def _stepped(self, process: Process) -> None:
        """Count a step of tuning that a thread of an agent begins; the faults of this step strike before it ends."""
        operation = self.history.hosts[process.name].machine.at
        left: list[tuple[Fault, int]] = []
        for fault, before in self._armed:
            steps = before - (fault.host in ("", process.name) and fault.at in ("", operation))
            if steps:
                left.append((fault, steps))
            else:
                self.loop.call_soon(self._strike, fault, context=outside())
        self._armed = left

    def _strike(self, fault: Fault) -> None:
        self.world.note(f"FAULT {fault}")
        if fault.host:
            getattr(self, f"_{fault.kind}")(self.history.hosts[fault.host], fault.for_s)
        else:
            getattr(self, f"_coordinator_{fault.kind}")(fault.for_s)

    def _later(self, for_s: float, what: Any, *arguments: Any) -> None:
        self.history.healed_s = max(self.history.healed_s, self.loop.now_s + for_s)
        self.loop.call_later(for_s, what, *arguments, context=outside())

    # ---- on a host and its link --------------------------------------------------------------------------------------

    def _cut(self, host: SimHost, _for_s: float) -> None:
        host.link.cut()

    def _half_open(self, host: SimHost, for_s: float) -> None:
        host.link.cut(half_open_s=for_s)

    def _hold(self, host: SimHost, for_s: float) -> None:
        host.link.held_until_s = max(host.link.held_until_s, self.loop.now_s + for_s)

    def _deaf(self, host: SimHost, for_s: float) -> None:
        """Drop the agent's messages for a while, then break the connection."""
        for connection in host.link.connections:
            connection.back.deaf = True
        self._later(for_s, host.link.cut)

    def _slow(self, host: SimHost, for_s: float) -> None:
        host.link.slow_s, host.link.slow_until_s = self.chance.uniform(0.05, 2.0), self.loop.now_s + for_s

    def _repeat(self, host: SimHost, _for_s: float) -> None:
        host.link.repeat_next += 5

    def _lossy(self, host: SimHost, for_s: float) -> None:
        """Break the connection repeatedly."""
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
        host.since_s = max(host.since_s, self.loop.now_s - LEASE_S)  # a stopped agent detects the end of its lease late
        self.loop.proceed(process)

    def _fill(self, host: SimHost, for_s: float) -> None:
        host.machine.disk.full = host.machine.was_full = True
        self._later(for_s, setattr, host.machine.disk, "full", False)

    def _wall(self, host: SimHost, _for_s: float) -> None:
        host.process.wall_s += self.chance.choice((3600.0, -3600.0))

    def _power(self, host: SimHost, for_s: float) -> None:
        """Cut the power of the whole host."""
        if host.process.alive:
            host.kill()
            host.machine.lose_power()
            self._later(for_s, host.start)

    def _hand(self, host: SimHost, _for_s: float) -> None:
        """Change something as the host's owner; not in the milliseconds between the agent's check and its
        replacement."""
        if self.history.threads.busy(host.process):
            self.loop.call_later(0.001, self._hand, host, 0.0, context=outside())
        else:
            host.machine.hand()

    def _hang(self, host: SimHost, _for_s: float) -> None:
        """Let the next program that is started there hang."""
        host.machine.hangs = True

    def _fail(self, host: SimHost, for_s: float) -> None:
        """Let programs fail for a while."""
        host.machine.fails += 1
        self._later(for_s, self._repair, host)

    def _repair(self, host: SimHost) -> None:
        host.machine.fails -= 1

    # ---- attackers and other runs ------------------------------------------------------------------------------------

    def _intrude(self, host: SimHost, _for_s: float) -> None:
        """Write forged tasks into the stream: replayed ones, those of another host, changed ones, an expired one."""
        recorded = [data for link in self.history.links.values() for data in link.recorded]
        for connection in host.link.connections[-1:]:
            for data in self.chance.sample(recorded, min(3, len(recorded))):
                connection.there.put(data)
                connection.there.put(_changed(data))
            connection.there.put(self._expired(host.name))

    def _expired(self, name: str) -> bytes:
        """Return a task signed for this agent by this coordinator two days ago (its host's clock may be hours off),
        with the highest sequence number."""
        to = Addressee(agent=f"agent/{name}", run=self.history.directory.name, epoch=self.history.sittings)
        key = f"run/-/0/0/{self.history.sittings}.98/{FORGED}/{name}"
        task = tasks.Task(key=key, spec=_SPEC, deadline_s=60.0)
        context = outside()
        context.run(CURRENT.set, Process("long ago", wall_s=-48 * 3600.0))
        signed = context.run(Signer(COORDINATOR.signer_key).sign, codec.task_bytes(task), to)
        return codec.coordinator_envelope(signed).SerializeToString()

    def _thief(self, host: SimHost, _for_s: float) -> None:
        """Replay recorded tasks with a coordinator's TLS certificate but without its signing key, during the run or
        after it."""
        process = Process(f"thief at {host.name}")
        self._later(self.chance.uniform(0.0, 45.0), self._steal, process, host)

    def _steal(self, process: Process, host: SimHost) -> None:
        self.loop.spawn(process, self._stealing(host), process.name)

    async def _stealing(self, host: SimHost) -> None:
        hello = messages.Hello(
            run_id=self.history.directory.name, epoch=self.history.sittings, host=host.name, lease_s=LEASE_S
        )
        recorded = [data for link in self.history.links.values() for data in link.recorded]
        with contextlib.suppress(dial.AgentRefused, dial.AgentUnreachable, grpc.aio.AioRpcError):
            stream, _ = await dial.open_stream(host.name, f"{host.name}:7443", COORDINATOR, hello, 20.0)
            for data in self.chance.sample(recorded, min(12, len(recorded))):
                await stream._call.write(pb.CoordinatorEnvelope.FromString(data))
            await asyncio.sleep(1.0)
            await stream.close()

    def _rival(self, host: SimHost, _for_s: float) -> None:
        """Connect as another run and tune the host, if its agent accepts the connection."""
        process = Process(f"rival at {host.name}")
        self._later(self.chance.uniform(0.0, 10.0), self._rivals, process, host)

    def _rivals(self, process: Process, host: SimHost) -> None:
        self.loop.spawn(process, self._rivalling(host), process.name)

    async def _rivalling(self, host: SimHost) -> None:
        hello = messages.Hello(run_id="rival", epoch=1, host=host.name, lease_s=LEASE_S)
        with contextlib.suppress(dial.AgentRefused, dial.AgentUnreachable, dial.StreamEnded):
            stream, _ = await dial.open_stream(host.name, f"{host.name}:7443", COORDINATOR, hello, 20.0)
            spec = tasks.ApplyTuning(tunings=RIVALS)
            key = f"rival/-/0/0/1.{self.chance.randrange(10**9)}/tune/{host.name}"
            await stream.write(tasks.Task(key=key, spec=spec, deadline_s=60.0))
            await asyncio.sleep(self.chance.uniform(0.0, 3.0))
            if self.chance.random() < 0.5:
                await stream.write(messages.Goodbye(keep_data=False))
                await asyncio.sleep(1.0)
            await stream.close()

    # ---- on the coordinator ------------------------------------------------------------------------------------------

    def _coordinator_kill(self, for_s: float) -> None:
        history = self.history
        if (
            not history.coordinator.alive
            or history.sitting is None
            or history.sitting.done()
            or history.journal is None
        ):
            return
        history.coordinator.alive = False
        history.journal.close()
        for link in history.links.values():
            link.cut(half_open_s=self.chance.choice((0.0, 0.2)))
        history.resume_due = True
        self._later(for_s, history.begin)

    def _coordinator_stop(self, for_s: float) -> None:
        process = self.history.coordinator
        if process.alive and not process.stopped:
            process.stopped = True
            self._later(for_s, self.loop.proceed, process)

    def _coordinator_fill(self, for_s: float) -> None:
        if self.history.journal is not None:
            self.history.full = self.history.journal.full = True
            self._later(for_s, self._coordinator_room, self.history.journal)

    def _coordinator_room(self, journal: RunJournal) -> None:
        self.history.full = journal.full = False

    def _coordinator_wall(self, _for_s: float) -> None:
        self.history.coordinator.wall_s += self.chance.choice((3600.0, -3600.0))

    def _coordinator_interrupt(self, _for_s: float) -> None:
        if self.history.interrupts is not None and self.history.coordinator.alive:
            self.history.interrupts.put_nowait(None)

    def _coordinator_ghost(self, _for_s: float) -> None:
        """Send every agent a task from an older coordinator of this run that still exists."""
        epoch = self.history.sittings  # agents refuse it once the next sitting, with a higher epoch, has connected
        self._coordinator_kill(0.5)
        for name in HOSTS:
            process = Process(f"ghost of {name}")
            self._later(self.chance.uniform(1.0, 20.0), self.loop.spawn, process, self._haunt(name, epoch), "ghost")

    async def _haunt(self, name: str, epoch: int) -> None:
        hello = messages.Hello(run_id=self.history.directory.name, epoch=epoch, host=name, lease_s=LEASE_S)
        with contextlib.suppress(dial.AgentRefused, dial.AgentUnreachable, dial.StreamEnded):
            stream, _ = await dial.open_stream(name, f"{name}:7443", COORDINATOR, hello, 30.0)
            for number, spec in enumerate((_SPEC, tasks.ApplyTuning(tunings=RIVALS))):
                task = tasks.Task(key=f"run/-/0/0/{epoch}.{number}99/ghost/{name}", spec=spec, deadline_s=60.0)
                await stream.write(codec.task_bytes(task))
            await asyncio.sleep(2.0)
            await stream.close()


def _changed(data: bytes) -> bytes:
    """Return the task under another key with the original signature."""
    envelope = pb.CoordinatorEnvelope.FromString(data)
    task = pb.Task.FromString(envelope.signed_task.task)
    *place, host = task.key.split("/")
    task.key = "/".join((*place, FORGED, host))
    envelope.signed_task.task = task.SerializeToString()
    return envelope.SerializeToString()

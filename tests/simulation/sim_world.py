"""The true state of the simulated hosts, independent of the state in agents and coordinator; and the handlers that
change it.

Data flow: the real agent's task runner calls a handler of `table()` -> the handler enters and leaves a `World`, which
records task, host, time and epoch -> `sim_history.judge` checks the record. The handlers only take time and return results like
those of the real ones. Handlers of a killed process end with it: `World.died`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from sim_clock import SimLoop, SimTime
from sim_database import Settings

from proveout.agent.daemon.tasks import Handler, Resource, TaskContext
from proveout.agent.tuning.fault_injection import inject_fault
from proveout.agent.tuning.tuner import apply_tuning, revert_tuning, verify_tuning
from proveout.proto.wire import results, tasks

SECOND_NS = 1_000_000_000
FORGED = "forged"
"""A part of the key of every task that no coordinator of the run has sent."""


@dataclass(eq=False)
class Running:
    """A task that a handler is executing."""

    host: str
    key: str
    epoch: int
    began_s: float
    kind: str

    @property
    def run(self) -> str:
        return self.key.partition("/")[0]

    @property
    def slot(self) -> str:
        """The iteration of the task, with its attempt; "" for a task of none."""
        _, stage, rung, repeat, attempt, *_ = (*self.key.split("/"), "", "", "", "")
        return f"{stage}/{rung}/{repeat}/{attempt}" if self.kind in ("load", "capture", "fault") else ""


@dataclass(eq=False)
class World:
    """The facts of a history. `wrongs`: the broken rules."""

    loop: SimLoop
    time: SimTime
    chance: random.Random
    running: list[Running] = field(default_factory=list)
    entered: dict[tuple[str, str], int] = field(default_factory=dict)
    epoch: dict[tuple[str, str], int] = field(default_factory=dict)
    renewed_s: dict[str, float] = field(default_factory=dict)
    systems: dict[str, str] = field(default_factory=dict)
    produced: dict[str, int] = field(default_factory=dict)
    began_s: dict[str, float] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    tuned_by: Callable[[str], set[str]] = lambda _host: set()
    in_place: Callable[[str], set[str]] = lambda _host: set()
    injected: Counter[str] = field(default_factory=Counter)
    wrongs: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.history.append(f"{self.loop.now_s:10.4f} {text}")

    def wrong(self, text: str) -> None:
        self.note(f"WRONG {text}")
        self.wrongs.append(f"at {self.loop.now_s:.3f} s: {text}")

    @contextlib.asynccontextmanager
    async def doing(self, context: TaskContext, kind: str) -> AsyncIterator[Running]:
        """Record the execution of a handler; `died` removes the record when its process is killed."""
        epoch = int(context.key.split("/")[-3].split(".")[0]) if context.key.count("/") > 3 else 0
        running = Running(context.host, context.key, epoch, self.loop.now_s, kind)
        self._enter(running)
        self.running.append(running)
        self.note(f"{context.host} begins {context.key}")
        try:
            yield running
        finally:
            if running in self.running:
                self.running.remove(running)
                self.note(f"{context.host} ends {context.key}")

    def _enter(self, new: Running) -> None:
        slot = (new.host, new.key)
        self.entered[slot] = self.entered.get(slot, 0) + 1
        if self.entered[slot] > 1:
            self.wrong(f"{new.key} ran {self.entered[slot]} times on {new.host}")
        if not new.key.endswith(f"/{new.host}") or FORGED in new.key:
            self.wrong(f"{new.key} ran on {new.host}, and no coordinator has sent it there")
        highest = self.epoch.get((new.host, new.run), 0)
        if new.epoch < highest:
            self.wrong(f"{new.key} of epoch {new.epoch} began on {new.host} after epoch {highest} did")
        self.epoch[new.host, new.run] = max(new.epoch, highest)
        for other in self.running:
            if other.host == new.host and (other.epoch, other.run) != (new.epoch, new.run):
                self.wrong(f"{new.key} overlaps with {other.key} of another epoch or run")
            elif other.host == new.host and "" not in (new.slot, other.slot) and new.slot != other.slot:
                self.wrong(f"{new.key} overlaps with {other.key} of another iteration")

    def died(self, host: str) -> None:
        """Remove the tasks and child processes of an agent that received kill -9."""
        self.running = [one for one in self.running if one.host != host]
        self.systems = {name: where for name, where in self.systems.items() if where != host}


class Server(Resource):
    """A database server as a resource of an agent's session."""

    def __init__(self, world: World, name: str, host: str) -> None:
        self._world, self._name = world, name
        world.systems[name] = host
        world.settings.start()

    async def close(self, *, keep_data: bool) -> None:
        await asyncio.sleep(self._world.chance.uniform(0.0, 0.5))
        self._world.systems.pop(self._name, None)


def table(world: World) -> dict[type, Handler]:
    """Return the handlers of one world by type of task."""

    def plain(kind: str, longest_s: float, answer: Any) -> Handler:
        async def handle(context: TaskContext, spec: Any) -> Any:
            async with world.doing(context, kind):
                context.progress(0.0, 1.0, "rows")
                await asyncio.sleep(world.chance.uniform(0.001, longest_s))
                return answer(context, spec)

        return handle

    def tuning(kind: str, real: Handler) -> Handler:
        async def handle(context: TaskContext, spec: Any) -> Any:
            async with world.doing(context, kind) as running:
                if others := world.tuned_by(context.host) - {running.run}:
                    world.wrong(f"{running.key} tunes {context.host}, which is tuned by {others}")
                done = await real(context, spec)
                _settled(world, kind, spec, done)
                world.note(
                    f"{context.host} {kind}: {', '.join(f'{state.name} {state.outcome}' for state in done.states)}"
                )
                return done

        return handle

    def started(context: TaskContext, spec: tasks.StartSystem) -> results.SystemStarted:
        name = spec.system.name
        context.resources[f"system:{name}"] = Server(world, name, context.host)
        return results.SystemStarted(
            endpoint=tasks.Endpoint(system=name, engine="postgres", dsn="dbname=x", provisioned=True), fresh=False
        )

    return {
        tasks.StartSystem: plain("start", 1.5, started),
        tasks.StopSystem: plain("stop", 0.5, lambda c, s: _stop(world, c, s)),
        tasks.InspectSystem: plain(
            "inspect", 0.2, lambda _c, s: results.SystemStarted(endpoint=s.endpoint, fresh=False)
        ),
        tasks.SnapshotSystem: plain("snapshot", 1.0, lambda _c, _s: results.Done()),
        tasks.PopulateSystem: plain("populate", 6.0, lambda _c, _s: results.Populated(tables=(), seconds=1.0)),
        tasks.CheckInvariants: plain(
            "invariants", 0.5, lambda _c, _s: results.InvariantsChecked(checks=(), seconds=0.1)
        ),
        tasks.ReadFacts: plain("facts", 0.1, lambda _c, _s: results.FactsRead()),
        tasks.RestoreCopy: plain("restore", 1.0, lambda _c, _s: results.Done()),
        tasks.Checkpoint: plain("checkpoint", 0.5, lambda _c, _s: results.Done()),
        tasks.RunSql: plain("sql", 1.0, lambda _c, s: results.SqlDone(counts=tuple(0 for _ in s.statements))),
        tasks.ApplyTuning: tuning("apply", apply_tuning),
        tasks.VerifyTuning: tuning("look", verify_tuning),
        tasks.RevertTuning: tuning("revert", revert_tuning),
        tasks.RunLoad: _load(world),
        tasks.InjectFault: _fault(world),
        tasks.RunCapture: _capture(world),
    }


def _settled(world: World, kind: str, spec: Any, done: results.TuningDone) -> None:
    """Check that the server's settings agree with the reported outcomes."""
    outcomes = {
        state.name: state.outcome for state in done.states if not any("is down" in line for line in state.lines)
    }
    running = {"memory": ("work_mem", "8192"), "stored": ("max_connections", "200")}
    for name, (setting, value) in running.items():
        in_effect = world.settings.running[setting] == value
        if kind == "apply" and outcomes.get(name) in ("applied", "unchanged") and not in_effect:
            world.wrong(f"{name} is {outcomes[name]}, but the server does not run with it")
        if (
            kind == "revert"
            and outcomes.get(name) == "reverted"
            and spec.systems_only
            and setting in world.settings.stored
        ):
            world.wrong(f"{name} is reverted, but {setting} is still stored")


def _stop(world: World, context: TaskContext, spec: tasks.StopSystem) -> results.Done:
    world.systems.pop(spec.system, None)
    context.resources.pop(f"system:{spec.system}", None)
    if spec.remove:
        world.settings.remove()
    return results.Done()


def _fault(world: World) -> Handler:
    """The real handler of faults; when it ends, its fault is not in place, or the result names what is left."""

    async def handle(context: TaskContext, spec: tasks.InjectFault) -> results.FaultInjected:
        async with world.doing(context, "fault") as running:
            if others := world.tuned_by(context.host) - {running.run}:
                world.wrong(f"{running.key} changes {context.host}, which is tuned by {others}")
            done: results.FaultInjected | None = None
            try:
                done = await inject_fault(context, spec)
                return done
            finally:
                named = done is not None and any(one.residue for one in done.occurrences)
                if running in world.running and spec.fault in world.in_place(context.host) and not named:
                    world.wrong(f"{running.key} has ended, and the fault is in place on {context.host}")
                for one in done.occurrences if done is not None else ():
                    world.injected[spec.fault] += one.healed_ns is not None
                    world.note(f"{context.host} {spec.fault} {one.number}: {one.error or one.residue or 'healed'}")

    return handle


def _load(world: World) -> Handler:
    async def handle(context: TaskContext, spec: tasks.RunLoad) -> results.LoadResult:
        async with world.doing(context, "load"):
            await asyncio.sleep(world.chance.uniform(0.0, 0.5))
            context.armed()
            t0_ns = await context.started()
            while (left_ns := t0_ns - world.time.monotonic_ns()) > 0:  # noqa: ASYNC110 -- a clock that drifts
                await asyncio.sleep(left_ns / 1e9)
            world.began_s[context.key] = world.loop.now_s
            if left := world.in_place(context.host):
                world.wrong(f"{context.key} begins, and {', '.join(sorted(left))} is in place on {context.host}")
            skew_ns = world.time.monotonic_ns() - t0_ns
            seconds = round(spec.windows.total_s)
            for second in range(seconds):
                await asyncio.sleep(1.0)
                world.produced[context.key] = second + 1
                window = "measure" if second else "ramp_up"
                start_ns = t0_ns + second * SECOND_NS
                context.sample(
                    results.LoadSecond(second=second, window=window, start_ns=start_ns, duration_s=1.0, transactions=())
                )
            return results.LoadResult(
                transactions=(),
                ended_in_window=seconds,
                measure_start_ns=t0_ns,
                measure_end_ns=t0_ns + seconds * SECOND_NS,
                client_cpu_fraction=0.1,
                client_cpu_s=0.1,
                start_skew_ns=skew_ns,
                seconds_produced=seconds,
            )

    return handle


def _capture(world: World) -> Handler:
    async def handle(context: TaskContext, spec: tasks.RunCapture) -> results.CaptureResult:
        async with world.doing(context, "capture"):
            name, sent = spec.capture.name, 0
            finished = asyncio.ensure_future(context.finished())
            try:
                while not finished.done():
                    sent += 1
                    world.produced[context.key] = sent
                    context.sample(results.CaptureSample(capture=name, at_ns=world.time.monotonic_ns(), readings=()))
                    await asyncio.wait({finished}, timeout=spec.capture.every_s)
            finally:
                finished.cancel()
            return results.CaptureResult(capture=name, samples=sent)

    return handle

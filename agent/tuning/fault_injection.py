"""The handler of `InjectFault`: a fault on this host, from its arming to its last healing.

Flow: `inject_fault(context, spec)` -> heal what an earlier fault has left, look whether the tunings are allowed ->
armed -> Start -> at each instant (or `Trigger`) the tunings are applied by the agent's `Tuner`, which stores in the
undo journal how they are undone before it makes a change -> `for_s` later they are undone -> `FaultInjected`. Each step
is streamed as a `FaultStep` at the instant at which it was reached.

However the task ends (a Cancel, its deadline, the end of the lease), the fault is healed before the handler returns.
After a kill of the agent its next start heals by the undo journal. A healing that fails is a step `failed` with the
reason; the change stays in the journal, and the next fault, the end of the session and the next start retry it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any, TypeVar

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.handlers import resource_name
from proveout.agent.errors import TaskFault
from proveout.agent.tuning.transaction import Moment
from proveout.agent.tuning.tuner import Tuner, holder_of, tuner_of
from proveout.core.data_classes import dataclass
from proveout.proto.wire.results import (
    FaultInjected,
    FaultOccurrence,
    FaultStep,
    FaultStepKind,
    TuningOutcome,
    TuningState,
)
from proveout.proto.wire.tasks import InjectFault

LEFT: frozenset[TuningOutcome] = frozenset({"residue", "drifted"})
"""The outcomes of undoing that leave a host in another state than before the fault."""

_Answer = TypeVar("_Answer")


async def inject_fault(context: TaskContext, spec: InjectFault) -> FaultInjected:
    """Arm a fault, and begin and heal each of its occurrences. TaskFault `refused` if this host does not allow it,
    `fault` if an earlier fault could not be healed."""
    fault = _Fault(context=context, spec=spec, tuner=tuner_of(context))
    await fault.prepare()
    context.armed()
    t0_ns = await context.started()
    finish = asyncio.ensure_future(context.finished())
    try:
        while (number := await fault.next(t0_ns, finish)) is not None:
            await fault.occur(number, finish)
    finally:
        finish.cancel()
        await fault.heal_all()
    return FaultInjected(fault=spec.fault, occurrences=tuple(fault.occurrences))


@dataclass(slots=True, kw_only=True)
class _Fault:
    """The state of a fault on this host."""

    context: TaskContext
    spec: InjectFault
    tuner: Tuner
    occurrences: list[FaultOccurrence] = field(default_factory=list)

    async def prepare(self) -> None:
        """Heal what an earlier fault has left, and look at the changes to expect."""
        self.tuner.serve(self.context.host, self.context.resources)
        if left := await self._undo():
            what = f"an earlier fault on this host could not be healed: {'; '.join(left)}"
            raise TaskFault("fault", what, way_out="set the host back by hand, and run the plan again")
        states = await self.tuner.plan(self.spec.tunings, self.spec.endpoints, self.context.work_dir)
        if refused := _texts(state for state in states if state.outcome == "refused"):
            raise TaskFault("refused", f"fault {self.spec.fault}: {'; '.join(refused)}")

    # ---- instants --------------------------------------------------------------------------------------------------

    async def next(self, t0_ns: int, finish: asyncio.Future[None]) -> int | None:
        """Wait for the instant of the next occurrence, and return its number; None after the last one."""
        last = self.occurrences[-1].number if self.occurrences else 0
        if not self.spec.begins_s:
            return await _before(finish, self._triggered(last))
        if last == len(self.spec.begins_s):
            return None
        wait_s = t0_ns / 1e9 + self.spec.begins_s[last] - time.monotonic()
        return await _before(finish, asyncio.sleep(wait_s, last + 1))

    async def _triggered(self, last: int) -> int:
        """The number of the next `Trigger`; those of occurrences that have begun already are ignored."""
        while (number := await self.context.triggered()) <= last:
            pass
        return number

    # ---- one occurrence --------------------------------------------------------------------------------------------

    async def occur(self, number: int, finish: asyncio.Future[None]) -> None:
        """Begin an occurrence, wait, and heal it; at Finish it is healed at once."""
        self.occurrences.append(FaultOccurrence(number=number, begins_ns=time.monotonic_ns()))
        run, epoch = holder_of(self.context.key)
        loop = asyncio.get_running_loop()

        def notice(moment: Moment) -> None:
            """Called in the thread of the tuner."""
            loop.call_soon_threadsafe(self._reached, moment, time.monotonic_ns())

        try:
            states = await self.tuner.apply(
                run,
                self.spec.tunings,
                self.spec.endpoints,
                self.context.work_dir,
                host=self.context.host,
                epoch=epoch,
                notify=partial(self.context.log, "warning"),
                fault=self.spec.fault,
                notice=notice,
            )
        except TaskFault as fault:
            self._failed((fault.what,))
            return
        if wrong := _not_made(states):
            self._failed(wrong)
            self.occurrences[-1] = replace(self._now, residue=await _to_its_end(self._undo()))
            return
        self.occurrences[-1] = replace(self._now, staleness_s=self._staleness_s())
        self._step("in_place", self._now.in_place_ns or time.monotonic_ns())
        await _before(finish, asyncio.sleep(self.spec.for_s))
        await _to_its_end(self._heal())

    def _staleness_s(self) -> float | None:
        """The age of the newest commit of a standby at its promotion, if the fault has promoted one."""
        names = [tuning.system for tuning in self.spec.tunings if tuning.operation == "promote"]
        found = [getattr(self.context.resources.get(resource_name(name)), "staleness_s", None) for name in names]
        return max((one for one in found if one is not None), default=None)

    def _reached(self, moment: Moment, at_ns: int) -> None:
        """Note a moment of one of the tunings: the fault begins with the first, and is in place with the last."""
        if moment == "in_place":
            self.occurrences[-1] = replace(self._now, in_place_ns=at_ns)
        elif self._now.in_place_ns is None:
            self.occurrences[-1] = replace(self._now, begins_ns=at_ns)
            self._step("begins", at_ns)

    async def _heal(self) -> None:
        """Undo the tunings of the occurrence."""
        healing_ns = time.monotonic_ns()
        self.occurrences[-1] = replace(self._now, healing_ns=healing_ns)
        self._step("healing", healing_ns)
        residue = await self._undo()
        ended_ns = time.monotonic_ns()
        self.occurrences[-1] = replace(self._now, residue=residue, healed_ns=None if residue else ended_ns)
        self._step("failed" if residue else "healed", ended_ns, "; ".join(residue))

    async def heal_all(self) -> None:
        """At the end of the task: heal the occurrence in which it was stopped, and retry a healing that has failed."""
        if self.occurrences and self._now.healing_ns is None and not self._now.error:
            await _to_its_end(self._heal())
        elif self.occurrences and self._now.residue:
            await _to_its_end(self._undo())

    async def _undo(self) -> tuple[str, ...]:
        """Undo all of this fault; why that was not possible, if so."""
        try:
            states = await self.tuner.revert(fault=self.spec.fault)
        except TaskFault as fault:
            return (fault.what,)
        for text in (left := _texts(state for state in states if state.outcome in LEFT)):
            self.context.log("error", f"fault {self.spec.fault} is not healed: {text}")
        return left

    # ---- the record ------------------------------------------------------------------------------------------------

    @property
    def _now(self) -> FaultOccurrence:
        return self.occurrences[-1]

    def _failed(self, lines: Sequence[str]) -> None:
        """Note that the occurrence could not begin; the transaction has undone what it had changed."""
        self.occurrences[-1] = replace(self._now, error="; ".join(lines), in_place_ns=None)
        self._step("failed", time.monotonic_ns(), self._now.error)

    def _step(self, step: FaultStepKind, at_ns: int, text: str = "") -> None:
        sample = FaultStep(fault=self.spec.fault, number=self._now.number, step=step, at_ns=at_ns, text=text)
        self.context.sample(sample)


def _not_made(states: Sequence[TuningState]) -> tuple[str, ...]:
    """The reasons that the tunings are not in place; () if all of them have changed the host."""
    if wrong := [state for state in states if state.outcome in ("refused", "failed", *LEFT)]:
        return _texts(wrong)
    same = (f"{state.name} changes nothing: the host is so already" for state in states if state.outcome == "unchanged")
    later = [state for state in states if state.outcome == "needs_restart"]
    return (*same, *_texts(later))


def _texts(states: Iterable[TuningState]) -> tuple[str, ...]:
    return tuple(f"{state.name}: {line}" for state in states for line in state.lines or (state.outcome,))


async def _before(finish: asyncio.Future[None], work: Coroutine[None, None, _Answer]) -> _Answer | None:
    """The answer of `work`; None if Finish comes first."""
    task = asyncio.ensure_future(work)
    either: tuple[asyncio.Future[Any], ...] = (finish, task)
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return None if finish.done() else task.result()
    finally:
        task.cancel()


async def _to_its_end(work: Coroutine[None, None, _Answer]) -> _Answer:
    """Wait for `work`, even if this task is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise

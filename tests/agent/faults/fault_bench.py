"""Faults for tests: tasks, their steps, and the wait for one of them."""

from __future__ import annotations

import asyncio
from typing import Any

from eventually import eventually_async

from proveout.agent.tuning.fault_injection import inject_fault
from proveout.agent.tuning.tuner import RESOURCE, Tuner
from proveout.dsl.operations.table import FAULT_KEYS, OPERATIONS
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.stages import Tuning, Windows
from proveout.proto.wire.results import FaultInjected, FaultStep
from proveout.proto.wire.tasks import InjectFault


def disturbance(key: str, name: str = "", *, host: str = "local", **fields: object) -> Tuning:
    """A compiled tuning of a fault by its key in a plan; `fields` are the operation's."""
    operation = OPERATIONS[FAULT_KEYS[key]].model_validate(fields)
    return Tuning(
        name=name or key,
        operation=FAULT_KEYS[key],
        hosts=(host,),
        parameters=to_values(operation),
        system=operation.of_system or "",
        destructive=True,
    )


def injection(*tunings: Tuning, begins_s: tuple[float, ...] = (0.0,), for_s: float = 0.0) -> InjectFault:
    windows = Windows(ramp_up_s=0.0, measure_s=60.0, ramp_down_s=0.0)
    return InjectFault(fault="f", tunings=tunings, for_s=for_s, begins_s=begins_s, windows=windows, label="run/1/1/1")


def steps(context: Any) -> list[tuple[int, str]]:
    """(number, step) of all steps that were streamed."""
    return [(one.number, one.step) for one in context.samples if isinstance(one, FaultStep)]


async def until(context: Any, number: int, step: str) -> None:
    """Wait for a step."""
    await eventually_async(lambda: (number, step) in steps(context), f"step {step} of occurrence {number}")


def tuner(context: Any) -> Tuner:
    found = context.resources[RESOURCE]
    assert isinstance(found, Tuner)
    return found


class InPlace:
    """A fault that is in place within the block, and healed after it."""

    def __init__(self, context: Any, *tunings: Tuning) -> None:
        self._context = context
        self._tunings = tunings
        self.result: FaultInjected | None = None

    async def __aenter__(self) -> InPlace:
        self._context.samples.clear()
        self._context.restart()
        self._task = asyncio.ensure_future(inject_fault(self._context, injection(*self._tunings, for_s=3600.0)))
        waiting = asyncio.ensure_future(until(self._context, 1, "in_place"))
        done, _ = await asyncio.wait({self._task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        assert waiting in done, self._task.exception() or self._task.result()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._context.end()
        self.result = await self._task
        (one,) = self.result.occurrences
        assert (one.error, one.residue) == ("", ())

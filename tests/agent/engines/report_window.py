"""Run a capture of reports (AWR, statements) over a window that lasts as long as a test's work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from eventually import PATIENCE_S

from proveout.agent.capture.kinds import capture
from proveout.dsl.plan.topology import Capture
from proveout.proto.wire.results import CaptureResult, CaptureSample
from proveout.proto.wire.tasks import Endpoint, RunCapture


class Window:
    """A task context whose load starts with the first sample, which reports that the capture is connected; the load is
    over at once, or when `work` has been done after the first reading."""

    def __init__(self, work: Callable[[], None] | None) -> None:
        self.samples: list[CaptureSample] = []
        self._work, self._over = work, asyncio.Event()
        self._t0: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def sample(self, sample: CaptureSample) -> None:
        self.samples.append(sample)
        if len(self.samples) == 1:
            self._t0.set_result(time.monotonic_ns())
        elif len(self.samples) == 2 and self._work is not None:
            self._work()
            self._over.set()
        if self._work is None:
            self._over.set()

    async def started(self) -> int:
        return await asyncio.shield(self._t0)

    async def finished(self) -> None:
        await self._over.wait()


def captured(
    endpoint: Endpoint, described: Capture, edges_s: tuple[float, ...], work: Callable[[], None] | None = None
) -> tuple[CaptureResult, list[CaptureSample]]:
    """The result of the capture, and its samples."""

    async def run() -> tuple[CaptureResult, list[CaptureSample]]:
        window = Window(work)
        task = RunCapture(capture=described, endpoints=(endpoint,), edges_s=edges_s)
        return await capture(window, task), window.samples  # type: ignore[arg-type]

    return asyncio.run(asyncio.wait_for(run(), PATIENCE_S))

"""Run a capture of reports (AWR, statements) over a window that lasts as long as a test's work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from eventually import PATIENCE_S

from proveout.agent.capture.kinds import capture
from proveout.dsl.plan.topology import Capture
from proveout.proto.wire.results import CaptureResult, CaptureSample
from proveout.proto.wire.tasks import Endpoint, RunCapture


def captured(
    endpoint: Endpoint, described: Capture, edges_s: tuple[float, ...], work: Callable[[], None] | None = None
) -> tuple[CaptureResult, list[CaptureSample]]:
    """The result of the capture, and its samples. Its load starts with the first sample, which reports that the capture
    is connected; the load is over at once, or when `work` has been done after the first reading."""

    async def run() -> CaptureResult:
        started, over = asyncio.get_running_loop().create_future(), asyncio.Event()

        def sample(one: CaptureSample) -> None:
            samples.append(one)
            if len(samples) == 1:
                started.set_result(time.monotonic_ns())
            elif len(samples) == 2 and work is not None:
                work()
                over.set()
            if work is None:
                over.set()

        window: Any = SimpleNamespace(sample=sample, started=lambda: asyncio.shield(started), finished=over.wait)
        return await capture(window, RunCapture(capture=described, endpoints=(endpoint,), edges_s=edges_s))

    samples: list[CaptureSample] = []
    return asyncio.run(asyncio.wait_for(run(), PATIENCE_S)), samples

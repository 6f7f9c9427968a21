"""The CPU cost of the capture `os` on a host: `python benchmarks/fabric/collectors.py [--seconds 30] [--json FILE]`.

The capture runs at 1 Hz as in an agent: the thread that reads /proc, and this whole process (its loop, and the encoding
of messages for the coordinator). Nothing else runs in the process. The number of processes on the host affects the
result, because the capture searches them for its own; it is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from pathlib import Path
from typing import Any

import psutil

from proveout.agent.capture import os as capture_os
from proveout.dsl.plan.topology import Capture
from proveout.proto.wire import codec
from proveout.proto.wire.messages import Sample
from proveout.proto.wire.results import CaptureResult, CaptureSample
from proveout.proto.wire.tasks import RunCapture


class Context:
    """The part of a task's context that a capture uses; samples are encoded as for the wire."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.readings = 0
        self.bytes = 0

    async def finished(self) -> None:
        """Return after the given seconds."""
        await asyncio.sleep(self._seconds)

    def sample(self, sample: CaptureSample) -> None:
        """Encode a sample and count its readings and bytes."""
        self.readings = len(sample.readings)
        self.bytes = len(codec.agent_envelope(Sample(key="k", sequence=1, sample=sample)).SerializeToString())


async def measure(seconds: float) -> dict[str, Any]:
    """Measure the shares of a core, and the size of a sample."""
    spec = RunCapture(capture=Capture(name="host", kind="os", every_s=1.0, hosts=("here",)))
    context = Context(seconds)
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    result: CaptureResult = await capture_os.run(context, spec)  # type: ignore[arg-type]
    lasted_s = time.monotonic() - began_s
    return {
        "look_core_fraction": result.cpu_s / lasted_s,
        "process_core_fraction": (time.process_time() - began_cpu_s) / lasted_s,
        "samples": result.samples,
        "lost": result.lost,
        "readings": context.readings,
        "bytes": context.bytes,
        "processes": len(psutil.pids()),
    }


def main() -> None:
    """Print the shares."""
    parser = argparse.ArgumentParser(description="Measure the CPU cost of the capture `os` at 1 Hz.")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    chosen = parser.parse_args()
    found = asyncio.run(measure(chosen.seconds))
    print(
        f"capture os at 1 Hz, {found['samples']} samples of {found['readings']} readings ({found['bytes']} bytes), "
        f"{found['lost']} lost, {found['processes']} processes on the host:\n"
        f"  reading    {found['look_core_fraction']:.2%} of a core\n"
        f"  in all     {found['process_core_fraction']:.2%} of a core"
    )
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

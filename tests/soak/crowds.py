"""Load on an agent's port: thousands of idle connections, unfinished TLS handshakes, and a link that loses bytes.

`idle`: TCP connections that stay open without data while the agent serves coordinators. `handshakes`: TLS handshakes
that stop after the first message. `lossy`: a proxy that drops a share of the chunks. Above TCP a lost chunk is a TLS
record that does not verify: the connection breaks repeatedly and the session resumes; every sample of a capture is
either received or counted as missing by its sequence number (promise 12).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import resource
import socket
import tempfile
import time
from pathlib import Path

import grpc
from eventually import eventually
from fabric_bench import FAKE_AGENT, Bench, Proxy
from hostile import Target

from proveout.coordinator.agents.local_agents import LocalFabric
from proveout.coordinator.measure.samples import Gathering
from proveout.dsl.plan.topology import Capture
from proveout.proto.events import IterationId
from proveout.proto.wire.messages import Finish, Sample, TaskDone
from proveout.proto.wire.results import CaptureResult
from proveout.proto.wire.tasks import RunCapture, Task

SPARE_FILES = 500


def idle(count: int) -> tuple[str, list[str]]:
    """Open `count` connections to an agent from 127.0.0.1 while it serves one run after the other."""
    failures: list[str] = []
    _room_for(count)
    with tempfile.TemporaryDirectory() as folder:
        target = Target(Path(folder))
        before_bytes, before = target.rss_bytes, target.descriptors
        crowd: list[socket.socket] = []
        slowest_s = 0.0
        try:
            refused = 0
            while len(crowd) + refused < count:
                try:
                    crowd.append(socket.create_connection(("127.0.0.1", target.port), 60))
                except OSError:
                    refused += 1
                if (len(crowd) + refused) % max(1, count // 10) == 0:
                    slowest_s = max(slowest_s, _served(target, failures))
            held, grown = len(crowd), (target.rss_bytes - before_bytes) >> 20
            there = target.descriptors - before
        finally:
            for one in crowd:
                one.close()
        with contextlib.suppress(AssertionError):
            eventually(lambda: target.descriptors <= before + 20, "they are closed")
        left = target.descriptors - before
        _served(target, failures)
        alive = target.process.poll() is None
        target.close()
    failures += [] if alive else ["the agent is gone"]
    failures += [f"{left} descriptors are left when all have hung up"] if left > 20 else []
    failures += [f"memory grew by {grown} MiB"] if grown > 64 + count // 20 else []
    figure = f"{held} idle connections ({refused} refused, {there} held by the agent), {grown} MiB more, a run served within {slowest_s:.1f} s"
    return figure, failures


def handshakes(count: int) -> tuple[str, list[str]]:
    """Open `count` handshakes that stop after their first message, five times; each group is closed before the next."""
    failures: list[str] = []
    _room_for(count)
    with tempfile.TemporaryDirectory() as folder:
        target = Target(Path(folder))
        before_bytes, kept = target.rss_bytes, []
        for _ in range(5):
            for one in target.half_open(count):
                one.close()
            time.sleep(5.0)  # the agent returns freed memory to the system every 2 s
            kept.append((target.rss_bytes - before_bytes) >> 20)
        _served(target, failures)
        target.close()
    failures += [f"{kept[-1]} MiB are kept after the last crowd"] if kept[-1] > 64 else []
    return f"5 x {count} half-open handshakes: {', '.join(map(str, kept))} MiB more after each", failures


def _room_for(count: int) -> None:
    """Let this process, and the agent that it starts, have this many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + SPARE_FILES), max(hard, count + SPARE_FILES)))


def _served(target: Target, failures: list[str]) -> float:
    began_s = time.monotonic()
    code, _ = target.send(target.hello())
    if code is not grpc.StatusCode.OK:
        failures.append(f"a run was not served: {code}")
    return time.monotonic() - began_s


class LossyProxy(Proxy):
    """A proxy that drops a share of the chunks in both directions when `share` is more than 0."""

    def __init__(self, target: str, seed: int) -> None:
        super().__init__(target)
        self.share, self.lost = 0.0, 0
        self._chance = random.Random(seed)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, from_agent: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if self._chance.random() < self.share:
                    self.lost += 1
                    continue
                writer.write(data)
                await writer.drain()
        writer.close()


async def lossy(samples: int, share: float = 0.01, seed: int = 5) -> tuple[str, list[str]]:
    """Run a capture of at least `samples` samples over a link that loses 1 % of its chunks."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(LocalFabric(FAKE_AGENT), Path(folder) / "logs")
        proxy = LossyProxy(await bench.start(), seed)
        try:
            line = await bench.connect(await proxy.start(), lease_s=60.0)
            spec = RunCapture(capture=Capture(name="c", kind="os", every_s=0.1))
            line.session.send(Task(key="c", spec=spec, deadline_s=600))
            proxy.share = share
            for _ in range(samples):
                await line.message(Sample, "c")
            proxy.share = 0.0
            line.session.send(Finish(key="c"))
            done = await line.outcome("c")
            received = [message for message in line.messages() if isinstance(message, Sample)]
        finally:
            await bench.close()
            await proxy.close()
    assert isinstance(done, TaskDone) and isinstance(done.result, CaptureResult), done
    gathering = Gathering(id=IterationId(stage="s", rung=1, repeat=1, attempt=1), hosts={"c": "db1"}, names={"c": "c"})
    for message in received:
        gathering.add(message)
    made, counted = done.result.samples, gathering.lost({"c": done.result}).get(("c", "db1"), 0)
    numbers = [message.sequence for message in received]
    failures = [] if proxy.lost else ["nothing was lost on the line"]
    if len(numbers) != len(set(numbers)) or not set(numbers) <= set(range(1, made + 1)):
        failures.append("samples came twice, or were never made")
    if made != len(numbers) + counted:
        failures.append(f"{made} samples made, {len(numbers)} received, but {counted} counted as lost")
    figure = (
        f"{proxy.lost} chunks lost on {proxy.connections} connections; {made} samples made = {len(numbers)} received"
        f" + {counted} counted as lost"
    )
    return figure, failures

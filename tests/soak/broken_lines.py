"""Real agents under repeated kills, broken connections and lost replies: count the executions of tasks and the received
samples.

`kills`: kill -9 of a permanent agent under tasks and a capture (promises 4, 5, 12). `cuts`: the connection breaks and
is restored, also under two coordinators in turn (4). `retries`: the agent's replies to a task are lost (5). The agents
are those of `fake_agent.py`: a real daemon whose handlers write one line per effect, so that effects can be counted.
"""

from __future__ import annotations

import asyncio
import random
import signal
import tempfile
from collections import Counter
from pathlib import Path

from eventually import eventually_async
from fabric_bench import FAKE_AGENT, Bench, Line, Permanent, Proxy, lines, task

from proveout.coordinator.agents.local_agents import LocalFabric
from proveout.coordinator.agents.session import Lost
from proveout.dsl.plan.topology import Capture
from proveout.proto.wire.messages import Sample, TaskDone, TaskFailed
from proveout.proto.wire.tasks import RunCapture, Task

Figure = tuple[str, list[str]]


async def kills(count: int, seed: int = 1) -> Figure:
    """Kill an agent `count` times while it executes tasks, restart it and send the same tasks again."""
    chance, failures, received = random.Random(seed), [], 0
    with tempfile.TemporaryDirectory() as folder:
        agent = Permanent(Path(folder))
        file = Path(folder) / "effects"
        try:
            for number in range(count):
                await agent.start()
                received += await _one_kill(agent, file, number, chance, failures)
        finally:
            await agent.stop(signal.SIGKILL)
        often = {line: times for line, times in Counter(lines(file)).items() if times > 1}
    failures += [f"{line} ran {times} times" for line, times in often.items()]
    return (
        f"{count} kill -9, {received} samples received without a gap, 0 tasks ran twice" if not failures else "",
        failures,
    )


async def _one_kill(agent: Permanent, file: Path, number: int, chance: random.Random, failures: list[str]) -> int:
    keys = [f"{number}-{n}" for n in range(4)]
    line = await agent.connect(epoch=number + 1)
    line.session.send(Task(key="c", spec=RunCapture(capture=Capture(name="c", kind="os", every_s=0.25)), deadline_s=60))
    await line.message(Sample, "c")
    for key in keys:
        line.session.send(task(key, f"append {file} {key}", "sleep 0.02"))
    await asyncio.sleep(chance.uniform(0.0, 0.06))
    await agent.stop(signal.SIGKILL)
    await line.lost()
    line.rest()
    done = {m.key for m in line.messages() if isinstance(m, TaskDone)}
    failures += [f"{key} was done and left no effect" for key in done if key not in lines(file)]
    sequences = [m.sequence for m in line.messages() if isinstance(m, Sample)]
    if sequences != list(range(1, len(sequences) + 1)):
        failures.append(f"kill {number}: samples {sequences} have a gap")
    await agent.start()
    again = await agent.connect(epoch=number + 1)
    for key in keys:
        again.session.send(task(key, f"append {file} {key}", "sleep 0.02"))
    for key in keys:
        await again.outcome(key)
    await line.session.close(timeout_s=1.0)
    await again.session.close(timeout_s=5.0)
    agent.sessions.clear()
    await agent.stop(signal.SIGKILL)
    return len(sequences)


async def cuts(count: int, seed: int = 2) -> Figure:
    """Cut and restore the connection `count` times under tasks that record their begin and end: each runs once."""
    chance, failures = random.Random(seed), []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "effects"
        bench, proxy, line = await _through(Path(folder))
        try:
            for number in range(count):
                line.session.send(
                    task(f"k{number}", f"append {file} begin-{number}", "sleep 0.01", f"append {file} end-{number}")
                )
                await asyncio.sleep(chance.uniform(0.0, 0.03))
                if chance.random() < 0.3:
                    proxy.drops_replies = True
                    await asyncio.sleep(chance.uniform(0.0, 0.02))
                proxy.cut()
            failures += await _all_done(line, {f"k{number}" for number in range(count)})
        finally:
            await bench.close()
            await proxy.close()
        failures += [f"{what} {n} times" for what, n in Counter(lines(file)).items() if n != 1]
        if len(lines(file)) != 2 * count:
            failures.append(f"{len(lines(file))} lines of {2 * count}")
    return f"{count} cuts and heals, {proxy.connections} connections, {count} tasks ran once each", failures


async def retries(count: int, seed: int = 3) -> Figure:
    """Lose the first reply of each of `count` tasks; each task is sent again and has one effect."""
    chance, failures, lost = random.Random(seed), [], 0
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "effects"
        bench, proxy, line = await _through(Path(folder))
        try:
            for start in range(0, count, 10):
                keys = {f"k{number}" for number in range(start, min(start + 10, count))}
                proxy.drops_replies = True
                for key in sorted(keys):
                    line.session.send(task(key, f"append {file} {key}"))
                expected = start + len(keys)
                await eventually_async(lambda wanted=expected: len(lines(file)) >= wanted, "they have run")  # type: ignore[misc]
                lost += len(keys)
                await asyncio.sleep(chance.uniform(0.0, 0.01))
                proxy.cut()
                failures += await _all_done(line, keys)
        finally:
            await bench.close()
            await proxy.close()
        failures += [f"{what} ran {n} times" for what, n in Counter(lines(file)).items() if n != 1]
    return f"{lost} tasks with lost replies had one effect and one outcome each", failures


async def _through(folder: Path) -> tuple[Bench, Proxy, Line]:
    bench = Bench(LocalFabric(FAKE_AGENT), folder / "logs")
    proxy = Proxy(await bench.start())
    return bench, proxy, await bench.connect(await proxy.start(), lease_s=60.0)


async def _all_done(line: Line, keys: set[str]) -> list[str]:
    left, wrongs = set(keys), []
    while left:
        event = await line.receive(lambda e: isinstance(getattr(e, "message", e), (TaskDone, TaskFailed, Lost)))
        if isinstance(event, Lost):
            return [*wrongs, f"lost: {event.reason}"]
        message = event.message
        if not isinstance(message, TaskDone) or message.key not in left:
            wrongs.append(f"{message}")
        left.discard(message.key)  # type: ignore[union-attr]
    return wrongs

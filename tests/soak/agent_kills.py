"""Kill -9 of a permanent agent under tasks and a capture, again and again: count the executions of tasks and the received
samples (promises 4, 5, 12). Broken connections and lost replies: tests/fabric/test_sessions.py.

The agent is that of `fake_agent.py`: a real daemon whose handlers write one line per effect, so that effects can be
counted.
"""

from __future__ import annotations

import asyncio
import random
import signal
import tempfile
from collections import Counter
from pathlib import Path

from fabric_bench import Permanent, lines, task

from proveout.dsl.plan.topology import Capture
from proveout.proto.wire.messages import Sample, TaskDone
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

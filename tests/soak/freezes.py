"""A real embedded PostgreSQL, all of whose processes are stopped (SIGSTOP) for the length of a measure window, at any
moment of an iteration.

Data flow: a run under load -> SIGSTOP at a drawn moment, SIGCONT after the length of a window -> the journal: the
iteration has a breach that reports the system as down; the run continues to its end.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from live_run import LiveRun, plan
from stops import freeze, servers

from proveout.proto.events import IterationFinished, IterationStarted, IterationVoided

MEASURE_S, RAMP_UP_S = 6.0, 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """The start of the freeze (s after the window's start), and the result of the first iteration that it overlaps."""

    at_s: float
    code: int
    valid: bool
    evidence: tuple[str, ...]
    tps: float
    output: str


def frozen(folder: Path, at_s: float) -> Frozen:
    """Freeze the server from `at_s` seconds after the window's start, for the length of the window."""
    text = plan(engine="postgres", measure_s=MEASURE_S).replace("ramp_up: 0s", f"ramp_up: {RAMP_UP_S}s")
    run = LiveRun(folder, text)
    try:
        started = run.until_event(IterationStarted)
        begins_s = time.monotonic() + started.starts_in_s + started.ramp_up_s + at_s
        whom = servers(run)
        assert whom, "there is no server"
        run.until(lambda: time.monotonic() >= begins_s, "it is time")
        freeze(whom, MEASURE_S, run)
        code = run.end()
    finally:
        run.kill()
    first = next(event for event in run.events() if isinstance(event, (IterationFinished, IterationVoided)))
    if isinstance(first, IterationVoided):
        return Frozen(at_s=at_s, code=code, valid=False, evidence=(first.reason,), tps=0.0, output=run.output)
    evidence = tuple(f"{f.check}: {f.evidence}" for f in first.findings if not f.ok and f.breach)
    tps = float(first.metrics.get("tps", 0.0))
    return Frozen(at_s=at_s, code=code, valid=first.valid, evidence=evidence, tps=tps, output=run.output)


def freezes(count: int, seed: int = 1) -> Iterator[Frozen]:
    """Yield `count` freezes that begin between half a ramp-up before the window's start and a third of the window, so
    that at least two thirds of the window are frozen."""
    drawn = random.Random(seed)
    low, high = -RAMP_UP_S / 2, MEASURE_S / 3
    for number in range(count):
        at_s = low + (high - low) * (number + drawn.random()) / count
        with tempfile.TemporaryDirectory() as folder:
            yield frozen(Path(folder), at_s)

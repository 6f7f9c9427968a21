"""A run of many short iterations (four ladders of seven rungs and three repeats), in which the memory and descriptors of
coordinator and agents must not grow (promise 15).

Data flow: the plan with windows of half a second -> at the start of each iteration the memory and the descriptors of
the coordinator and of its agent -> the medians of the first and the last third of each ladder after the first, which
loads caches and imports. At the end of a ladder the coordinator computes its results, and keeps them for the verdicts:
some 2 MB of estimates for 21 iterations. So memory is compared within a ladder, descriptors from the first to the last.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

import psutil
from live_run import LiveRun

from proveout.proto.events import IterationStarted

LADDERS, RUNGS = 4, (1, 2, 3, 4, 5, 6, 7)
GROWTH_MAX = 0.03
PLAN = """
proveout: 1
name: long
topology:
  hosts:
    box: {roles: [server, client], address: local}
  systems:
    db: {engine: sqlite, host: box, provision: embedded}
workloads:
  hlr: {kind: hlr, population: 100}
captures:
  host: {kind: os, on: all, every: 200ms}
stages:
  - populate: {workload: hlr, into: db}
"""
LADDER = """
  - ladder: {{id: l{number}, workload: hlr, target: db, threads: {rungs}, ramp_up: 100ms, measure: 500ms, repeat: {repeats},
             retries: 3, capture: [host], limits: {{start_skew: 10s, tps_slope: 10000%, tps_cv: 10000%, void: 100%, errors: 100%, client_cpu: 100%}}}}
"""
Marks = dict[str, list[tuple[int, int]]]


def ladders(repeats: int, progress: Callable[[int], None]) -> tuple[str, list[str]]:
    """Run the plan and compare the ladders: (figure, failures)."""
    text = PLAN + "".join(LADDER.format(number=number, rungs=list(RUNGS), repeats=repeats) for number in range(LADDERS))
    text += "verdicts:\n  - {id: answers, check: l0.at(1).tps.mean > 0.0}\n"
    with tempfile.TemporaryDirectory() as folder:
        run = LiveRun(Path(folder), text)
        try:
            marks = _watch(run, progress)
            code = run.end()
            output = run.output[-800:]
        finally:
            run.kill()
    failures = [] if code == 0 else [f"exit code {code}: {output}"]
    parts = []
    for who, seen in marks.items():
        size = len(seen) // LADDERS
        each = [seen[number * size : (number + 1) * size] for number in range(LADDERS)]
        thirds = [(one[: size // 3], one[-(size // 3) :]) for one in each]
        memory = [[median(rss for rss, _ in third) for third in pair] for pair in thirds]
        files = [max(fds for _, fds in one[size // 2 :]) for one in each]  # the most: it changes within an iteration
        grown = max(late / early - 1.0 for early, late in memory[1:])
        steps = ", ".join(f"{late / 2**20:.0f}" for _, late in memory)
        parts.append(f"{who} {steps} MiB (within one {grown:+.1%}), {files[0]} and {files[-1]} descriptors")
        failures += [f"{who}: memory {grown:+.1%}"] if grown > GROWTH_MAX else []
        failures += [f"{who}: {files[-1] - files[0]:+d} descriptors"] if files[-1] > files[0] else []
    return f"{LADDERS} × {len(RUNGS)} × {repeats} iterations, at the end of each ladder: {'; '.join(parts)}", failures


def _watch(run: LiveRun, progress: Callable[[int], None]) -> Marks:
    """Return (memory in bytes, descriptors) of each process at the start of each iteration."""
    marks: Marks = {}
    run.until(lambda: run.agents() and run.all(IterationStarted), "it begins")
    processes = {"coordinator": psutil.Process(run.process.pid), "agent": psutil.Process(run.agents()[0])}
    seen = 0
    while run.process.poll() is None:
        run.until(lambda seen=seen: len(run.all(IterationStarted)) > seen or run.process.poll() is not None, "the next")  # type: ignore[misc]
        seen = len(run.all(IterationStarted))
        progress(seen)
        for who, process in processes.items():
            try:
                marks.setdefault(who, []).append((process.memory_info().rss, process.num_fds()))
            except psutil.NoSuchProcess:
                return marks
    return marks

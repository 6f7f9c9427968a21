"""The schedule of due terminals, and the loop on it: compiled and in Python they begin the same transactions."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import runpy
import select
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from proveout.agent.engines.wire import PURE_PYTHON
from proveout.agent.load.loop import arrival_schedule as schedule_module
from proveout.agent.load.pacing import Pacing

TERMINALS, UNTIL_NS, THINK_S = 3, 60_000_000, 0.004
CHILD = """
import contextlib, json, os, sys, time
from proveout.agent.load.loop.event_loop import PolledLoop
from proveout.agent.load.loop.reconnect import Reconnector
from proveout.agent.load.loop.recorder import Recorder
from proveout.agent.load.loop.terminal import Terminal
from proveout.agent.load.loop.transaction import statements
from proveout.agent.load.pacing import Pacing, Timeline
from proveout.dsl.plan.stages import Think, Windows
from proveout.dsl.workloads.hlr import workload as hlr
from proveout.dsl.workloads.hlr.parameters import Hlr

class Echo:
    def __init__(self): self.count, self.fd, self.asked = 1, os.eventfd(0, os.EFD_NONBLOCK), False
    def fileno(self): return self.fd
    def send(self, prepared, arguments): os.eventfd_write(self.fd, 1); self.asked = True
    def exchange(self, prepared, arguments): self.send(prepared, arguments); return False
    def receive(self):
        with contextlib.suppress(BlockingIOError):
            return bool(os.eventfd_read(self.fd))
        return False
    def rows(self): return [(7,) * 8]
    def cancel(self): pass
    def close(self): os.close(self.fd)

class Ticker:
    def __init__(self, end_ns): (self.silent, self.hold), self.end_ns = os.pipe(), end_ns
    def control(self): return self.silent
    def tick(self, now_ns): return min(now_ns + 7_000_000, self.end_ns) if now_ns < self.end_ns else 0

words = json.loads(sys.argv[1])
rate, think_s, total = words["rate"], words["think_s"], words["terminals"]
think = Think(mean_s=think_s, distribution="constant") if think_s else None
pacing = Pacing(total=total, ramp_s=0.0, rate=rate, distribution="poisson", seed=5, think=think)
kind = hlr.build(Hlr(population=100))
recorder, prepared = Recorder(len(kind.transactions)), {s.name: s for s in statements(kind)}
terminals = [
    Terminal(n, workload=kind, pacing=pacing, recorder=recorder, seed=5, session=Echo(), prepared=prepared)
    for n in range(total)
]
t0_ns = time.monotonic_ns() + 5_000_000
timeline = Timeline.of(Windows(ramp_up_s=0.0, measure_s=60.0, ramp_down_s=0.0), t0_ns)
loop = PolledLoop(
    terminals=terminals, recorder=recorder, pacing=pacing, timeline=timeline,
    ticker=Ticker(t0_ns + words["until_ns"]), reconnector=Reconnector(lambda number: None),
)
try:
    loop.run()
finally:
    loop.close()
records = {}
for code, data in recorder.take().items():
    flat = [ns - t0_ns for ns in memoryview(data).cast("q").tolist()]
    records[code] = [flat[at : at + 3] for at in range(0, len(flat), 3)]
print(json.dumps({"native": "native" in type(loop.schedule).__module__, "skew_ns": loop.start_skew_ns, "records": records}))
"""


def ran(*, pure: bool, rate: float | None, think_s: float = 0.0, terminals: int = TERMINALS) -> dict[str, Any]:
    """The records of a load on sessions that answer at once, in a process with one of the hot loops."""
    words = {"rate": rate, "think_s": think_s, "terminals": terminals, "until_ns": UNTIL_NS}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(words)],
        env={**os.environ, PURE_PYTHON: "1" if pure else ""},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["native"] is not pure
    return found


def native() -> None:
    pytest.importorskip("proveout.agent.load.loop.transaction_loop_native", reason="the hot path was not compiled here")


def test_both_hot_loops_begin_every_due_arrival_once_and_as_the_same_transaction() -> None:
    native()
    pacing = Pacing(total=TERMINALS, ramp_s=0.0, rate=2_000.0, distribution="poisson", seed=5)
    due = sorted(int(ns) for n in range(TERMINALS) for part in pacing.due_between(n, 0, UNTIL_NS // 2) for ns in part)
    assert len(due) > 30
    kinds = []
    for pure in (True, False):
        found = ran(pure=pure, rate=2_000.0)
        records = [(int(code) // 2, *times) for code, part in found["records"].items() for times in part]
        assert all(intended <= started <= ended for _, intended, started, ended in records)
        assert found["skew_ns"] > 0
        early = sorted((intended, kind) for kind, intended, _, _ in records if intended < UNTIL_NS // 2)
        assert [intended for intended, _ in early] == due
        kinds.append(early)
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("pure", [True, False], ids=["python", "compiled"])
def test_both_hot_loops_wait_for_the_think_time(pure: bool) -> None:
    if not pure:
        native()
    found = ran(pure=pure, rate=None, think_s=THINK_S, terminals=1)
    records = sorted(times for part in found["records"].values() for times in part)
    assert len(records) > 1
    assert all(intended == started for intended, started, _ in records)
    gaps = [after[0] - before[2] for before, after in itertools.pairwise(records)]
    assert min(gaps) >= THINK_S * 1e9


@pytest.mark.parametrize("pure", [True, False], ids=["python", "compiled"])
def test_a_schedule_gives_the_terminals_in_order_and_wakes_for_the_first(
    pure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not pure:
        native()
    monkeypatch.setenv(PURE_PYTHON, "1" if pure else "")
    schedule = runpy.run_path(schedule_module.__file__)["Schedule"]()
    assert ("native" in type(schedule).__module__) is not pure
    now = time.monotonic_ns()
    with contextlib.closing(schedule), contextlib.closing(select.epoll()) as epoll:
        epoll.register(schedule.fileno(), select.EPOLLIN)
        at = [(now - 1 - 7919 * n % 101, SimpleNamespace(number=n)) for n in range(300)]
        for at_ns, terminal in at:
            schedule.push(at_ns, terminal)
        schedule.arm(now + 10**12)
        assert epoll.poll(5.0)
        schedule.fired()
        taken = []
        while (due := schedule.pop(now)) is not None:
            taken.append((due[0], due[1].number))
        assert taken == sorted((at_ns, terminal.number) for at_ns, terminal in at)
        schedule.push(now + 10**12, at[0][1])
        assert schedule.pop(now) is None
        schedule.arm(now + 2 * 10**12)
        assert not epoll.poll(0)
        schedule.arm(now)  # the limit is earlier
        assert epoll.poll(5.0)

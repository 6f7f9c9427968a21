"""The cost of the load engine above a bare driver loop: pacing, drawing the mix, recording, packing; nanoseconds per
transaction.

    python benchmarks/load/overhead.py [--transactions 200000] [--rounds 7] [--json FILE]

Both loops drive the same session, which answers at once, so that the figures do not contain noise of a server: the bare
loop (epoll, receive, draw the arguments, send), and the engine with its worker's ticker, whose chunks go to a pipe that
is read. One process, alternating rounds, the minimum of each; CPU time, user and system.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import select
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import workload

from proveout.agent.load.loop.event_loop import PolledLoop, Reconnector
from proveout.agent.load.loop.recorder import Recorder
from proveout.agent.load.loop.terminal import Terminal
from proveout.agent.load.loop.transaction import statements
from proveout.agent.load.pacing import Pacing, Timeline
from proveout.agent.load.worker import ChunkWriter, LoadTicker
from proveout.dsl.plan.stages import Windows
from proveout.dsl.workloads.base import WorkloadKind
from proveout.dsl.workloads.kinds import build

TERMINALS = 4
WEIGHTS = {"GetBasicSubscriberData": 1.0}


class Full(Exception):
    """As many transactions as were asked for."""


class NullSession:
    """Answers every statement at once with one row; `left` sends, then `Full`."""

    def __init__(self, budget: list[int]) -> None:
        self.count = 1
        self._budget = budget
        self._fd = os.eventfd(0)
        self._is_asked = False

    def fileno(self) -> int:
        return self._fd

    def prepare(self, statement: Any) -> Any:
        return statement

    def send(self, prepared: Any, arguments: Sequence[Any]) -> None:
        if not self._is_asked:  # from then on there is always an answer; before, a terminal has not begun
            self._is_asked = True
            os.eventfd_write(self._fd, 1)
        budget = self._budget
        budget[0] -= 1
        if budget[0] < 0:
            raise Full

    def receive(self) -> bool:
        return True

    def exchange(self, prepared: Any, arguments: Sequence[Any]) -> bool:
        self.send(prepared, arguments)
        return True

    def rows(self) -> list[tuple[int]]:
        return [(1,)]

    def cancel(self) -> None: ...

    def close(self) -> None:
        os.close(self._fd)


def bare(sessions: list[NullSession], kind: WorkloadKind) -> float:
    """Return the CPU seconds of a minimal driver loop: without a mix, times and records."""
    keys = kind.keys(1)
    chosen = next(t for t in kind.transactions if t.weight > 0)
    assert chosen.bare
    requests = chosen.inputs(keys)
    prepared = {s.name: s for s in statements(kind)}[chosen.statements[0].name]
    epoll, of = select.epoll(), {}
    for session in sessions:
        epoll.register(session.fileno(), select.EPOLLIN)
        of[session.fileno()] = session
    poll, turns = epoll.poll, range(16)
    began = time.process_time()
    try:
        for session in sessions:
            session.send(prepared, requests()[1])
        while True:
            for fd, _ in poll():
                session = of[fd]
                for _ in turns:
                    if not session.receive():
                        break
                    session.count  # noqa: B018 - the answer is looked at
                    session.send(prepared, requests()[1])
    except Full:
        return time.process_time() - began
    finally:
        epoll.close()


def engine(sessions: list[NullSession], kind: WorkloadKind) -> float:
    """CPU seconds of the engine with everything that a worker has around it."""
    windows = Windows(ramp_up_s=0.0, measure_s=3600.0, ramp_down_s=0.0)
    pacing = Pacing(total=TERMINALS, ramp_s=0.0)
    prepared = {s.name: s for s in statements(kind)}
    recorder = Recorder(len(kind.transactions))
    terminals = [
        Terminal(number, workload=kind, pacing=pacing, recorder=recorder, seed=1, session=session, prepared=prepared)
        for number, session in enumerate(sessions)
    ]
    reading, writing = os.pipe()
    silent, hold = os.pipe()
    threading.Thread(target=_swallow, args=(reading,), daemon=True).start()
    timeline = Timeline.of(windows, time.monotonic_ns())
    loop = PolledLoop(
        terminals=terminals,
        recorder=recorder,
        pacing=pacing,
        timeline=timeline,
        ticker=LoadTicker(recorder, ChunkWriter(writing), timeline, silent),
        reconnector=Reconnector(lambda: (_ for _ in ()).throw(AssertionError("never lost"))),
    )
    began = time.process_time()
    try:
        loop.run()
    except Full:
        return time.process_time() - began
    finally:
        for fd in (writing, silent, hold):
            os.close(fd)
    raise AssertionError("the load ended by itself")


def _swallow(fd: int) -> None:
    while os.read(fd, 1 << 20):
        pass
    os.close(fd)


def measure(run: Any, kind: WorkloadKind, statements_sent: int) -> float:
    """CPU seconds for that many statements."""
    budget = [statements_sent]
    sessions = [NullSession(budget) for _ in range(TERMINALS)]
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        return float(run(sessions, kind))
    finally:
        gc.enable()
        gc.unfreeze()
        for session in sessions:
            session.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="The engine's cost over a bare driver loop, ns per transaction.")
    parser.add_argument("--transactions", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    arguments = parser.parse_args()
    kind = build(workload(100_000, WEIGHTS))
    times: dict[str, list[float]] = {"bare": [], "engine": []}
    for _ in range(arguments.rounds):
        times["bare"].append(measure(bare, kind, arguments.transactions))
        times["engine"].append(measure(engine, kind, arguments.transactions))
    ns = {name: min(values) / arguments.transactions * 1e9 for name, values in times.items()}
    ns["overhead"] = ns["engine"] - ns["bare"]
    print(f"{'one SELECT, closed':22}{'ns/transaction':>16}")
    for name, value in ns.items():
        print(f"{name:22}{value:>16,.0f}")
    print("target: overhead <= 1000 ns")
    if arguments.json:
        arguments.json.write_text(json.dumps({f"{name}_ns": value for name, value in ns.items()}, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""The client CPU of Oracle's driver: HLR's mix over proveout's load loop beside a bare loop of python-oracledb; one
run.

    python benchmarks/oracle/oracle_client.py [--connections 1 8] [--answer-us 0 500] [--seconds 1] [--rounds 7]

The mix is without InsertCallForwarding (2 in 100), whose errors are not repeated. The server repeats recorded answers
of the TNS server of the tests (`tns_replay`), so the figures are not those of an Oracle Database; both sides receive
the same answers, in thin mode. `--answer-us`: the time until it answers. With 0 the client hardly sleeps; with more it
sleeps for each answer, which costs it CPU. CPU is user and system time of this process, and the sides take turns;
medians are printed.

- ours: `ThreadedLoop` with a terminal for each connection, and everything that a load worker has around it;
- bare: a thread for each connection, cursors kept open, binds by position, rows and their end in one round trip,
  transactions of one statement in autocommit, COMMIT or ROLLBACK after the others; no arrivals, records and timeouts.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from proveout.agent.engines.oracle.driver import OracleDriver, OracleSession, binds, open_connection
from proveout.agent.load.loop.recorder import TRIPLE, Recorder
from proveout.agent.load.loop.terminal import Terminal
from proveout.agent.load.loop.thread_loop import ThreadedLoop
from proveout.agent.load.loop.transaction import statements
from proveout.agent.load.pacing import Pacing, Timeline
from proveout.agent.load.populate import populate
from proveout.agent.load.worker import ChunkWriter, LoadTicker
from proveout.dsl.plan.stages import Windows
from proveout.dsl.workloads.base import WorkloadKind, placed
from proveout.dsl.workloads.hlr import HLR_WEIGHTS
from proveout.dsl.workloads.kinds import build
from proveout.proto.wire.tasks import Endpoint, PopulateSystem

sys.path.append(str(Path(__file__).resolve().parents[1] / "load"))

from harness import Context, tns_server, workload

SUBSCRIBERS = 1_000
RAMP_S = 0.1
COUNTED = 2_000
"""Transactions in which round trips are counted."""
REPLAY = Path(__file__).with_name("tns_replay.py")
TARGET_RATIO, TARGET_US = 1.20, 60.0
RECORD_BYTES = 8 * TRIPLE


class Bare:
    """A connection of python-oracledb, and HLR's transactions on it."""

    def __init__(self, dsn: str, kind: WorkloadKind, number: int) -> None:
        self.connection = open_connection(dsn)
        self._cursors: dict[str, Any] = {}
        for statement in statements(kind):
            if statement.arguments:
                cursor = self._cursors[statement.name] = self.connection.cursor()
                if statement.reads:
                    cursor.arraysize = statement.rows_max
                    cursor.prefetchrows = (statement.rows_max or 0) + 1
                text = binds(statement.text["oracle"])
                cursor.prepare(text)
                cursor.parse(text)
        terminal = Terminal(
            number,
            workload=kind,
            pacing=Pacing(total=number + 1, ramp_s=0.0),
            recorder=Recorder(len(kind.transactions)),
            seed=1,
            session=None,
            prepared={},
        )
        self._draw = terminal.next_kind
        self._steps = [t.steps for t in kind.transactions]

    def transact(self) -> None:
        """Execute a transaction."""
        kind = self._draw()
        inputs, connection = kind.inputs(), self.connection
        if kind.bare:
            connection.autocommit = True
            cursor = self._cursors[inputs[0].name]
            cursor.execute(None, inputs[1])
            cursor.fetchall()
            return
        connection.autocommit = False
        connection.commit() if self._walk(kind.number, inputs) else connection.rollback()

    def _walk(self, number: int, inputs: Any) -> bool:
        kept: tuple[Any, ...] = ()
        for step, drawn in zip(self._steps[number], inputs, strict=True):
            cursor = self._cursors[step.statement.name]
            cursor.execute(None, drawn if step.places is None else placed(step.places, kept + drawn))
            count = cursor.rowcount
            if step.statement.reads:
                rows = cursor.fetchall()
                count = len(rows)
                if step.keeps and rows:
                    kept += rows[0][: step.keeps]
            if count < step.least:
                return False
        return True


def bare(dsn: str, kind: WorkloadKind, connections: int, seconds: float) -> tuple[float, float]:
    """Transactions a second, and CPU time of a transaction, µs."""
    opened = [Bare(dsn, kind, number) for number in range(connections)]
    counts = [0] * connections
    over = threading.Event()

    def work(index: int) -> None:
        transact = opened[index].transact
        while not over.is_set():
            transact()
            counts[index] += 1

    threads = [threading.Thread(target=work, args=(index,)) for index in range(connections)]
    for thread in threads:
        thread.start()
    time.sleep(RAMP_S)
    before, began, cpu = sum(counts), time.monotonic(), time.process_time()
    time.sleep(seconds)
    count, took, spent = sum(counts) - before, time.monotonic() - began, time.process_time() - cpu
    over.set()
    for thread, one in zip(threads, opened, strict=True):
        thread.join()
        one.connection.close()
    return count / took, spent / count * 1e6


def ours(dsn: str, kind: WorkloadKind, connections: int, seconds: float) -> tuple[float, float]:
    """The same of the load loop, in its measure window."""
    sessions = [OracleDriver().connect(dsn) for _ in range(connections)]
    terminals, recorder = terminals_of(kind, sessions)
    reading, writing = os.pipe()
    silent, hold = os.pipe()
    threading.Thread(target=_swallow, args=(reading,), daemon=True).start()
    windows = Windows(ramp_up_s=RAMP_S, measure_s=seconds, ramp_down_s=RAMP_S)
    timeline = Timeline.of(windows, time.monotonic_ns())
    ticker = LoadTicker(recorder, ChunkWriter(writing), timeline, silent)
    counted = Counted(ticker, recorder, timeline)
    loop = ThreadedLoop(
        terminals=terminals,
        recorder=recorder,
        pacing=Pacing(total=connections, ramp_s=0.0),
        timeline=timeline,
        ticker=counted,  # type: ignore[arg-type]
        connect=lambda _: (_ for _ in ()).throw(AssertionError("never lost")),
    )
    loop.run()
    loop.close()
    for fd in (writing, silent, hold):
        os.close(fd)
    if recorder.first_errors:
        sys.exit(f"the load had errors: {recorder.first_errors}")
    spent, took = ticker.cpu()
    count = counted.ended
    return count / took, spent / count * 1e6


class Counted:
    """A worker's ticker that counts the transactions between the edges of the measure window."""

    def __init__(self, ticker: LoadTicker, recorder: Recorder, timeline: Timeline) -> None:
        self._ticker, self._recorder = ticker, recorder
        self._edges = [timeline.measure_start_ns, timeline.measure_end_ns]
        self._ended: list[int] = []
        self._taken = 0
        self.control = ticker.control
        self.complete = ticker.complete

    @property
    def ended(self) -> int:
        """The transactions that ended in the window."""
        return self._ended[1] - self._ended[0]

    def tick(self, now_ns: int) -> int:
        recorded = self._recorder.size_bytes
        while len(self._ended) < 2 and now_ns >= self._edges[len(self._ended)]:
            self._ended.append((self._taken + recorded) // RECORD_BYTES)
        until = self._ticker.tick(now_ns)
        self._taken += recorded - self._recorder.size_bytes
        return until


def terminals_of(kind: WorkloadKind, sessions: list[OracleSession]) -> tuple[list[Terminal], Recorder]:
    """A terminal for each session, with its statements prepared."""
    recorder = Recorder(len(kind.transactions))
    pacing = Pacing(total=len(sessions), ramp_s=0.0)
    made = [
        Terminal(
            number,
            workload=kind,
            pacing=pacing,
            recorder=recorder,
            seed=1,
            session=session,
            prepared={s.name: session.prepare(s) for s in statements(kind)},
        )
        for number, session in enumerate(sessions)
    ]
    return made, recorder


def round_trips(dsn: str, kind: WorkloadKind) -> dict[str, float]:
    """Round trips of a transaction, by side."""
    trips = {"ours": 0, "bare": 0}

    def counting(side: str) -> Callable[..., None]:
        def count(*_: object) -> None:
            trips[side] += 1

        return count

    connection = open_connection(dsn)
    (terminal,), _ = terminals_of(kind, [OracleSession(connection)])
    connection.round_trip_callback = counting("ours")
    for _ in range(COUNTED):
        drawn = terminal.kind = terminal.next_kind()
        terminal.inputs = drawn.inputs()
        if drawn.bare:
            terminal.session.execute(drawn.prepared, terminal.inputs[1])
        else:
            drawn.script.run(terminal, terminal.carries and drawn.carries_commit)
    peer = Bare(dsn, kind, 0)
    peer.connection.round_trip_callback = counting("bare")
    for _ in range(COUNTED):
        peer.transact()
    for one in (connection, peer.connection):
        one.close()
    return {side: count / COUNTED for side, count in trips.items()}


def _swallow(fd: int) -> None:
    while os.read(fd, 1 << 20):
        pass
    os.close(fd)


@contextmanager
def server_with(hlr: Any) -> Iterator[str]:
    """The dsn of the TNS server of the tests, with HLR's tables."""
    with tns_server() as dsn, tempfile.TemporaryDirectory(prefix="proveout-bench-") as folder:
        endpoint = Endpoint(system="db", engine="oracle", dsn=dsn)
        asyncio.run(populate(Context(Path(folder)), PopulateSystem(workload=hlr, endpoint=endpoint, workers=1)))  # type: ignore[arg-type]
        yield dsn


@contextmanager
def replayed(dsn: str, answer_us: float) -> Iterator[str]:
    """The dsn of a replay server, which answers after some time."""
    user, _, target = dsn.partition("@//")
    address, _, service = target.partition("/")
    argv = [sys.executable, str(REPLAY), address, str(answer_us / 1e6)]
    server = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield f"{user}@//127.0.0.1:{server.stdout.readline().strip()}/{service}"
    finally:
        server.communicate(timeout=20)


def compare(dsn: str, kind: WorkloadKind, connections: int, options: argparse.Namespace) -> dict[str, Any]:
    """Medians of rate and CPU of both sides, taken in turn, and of the ratio of CPU."""
    taken: dict[str, list[tuple[float, float]]] = {"ours": [], "bare": []}
    for _ in range(options.rounds):
        for name, measure in (("ours", ours), ("bare", bare)):
            gc.collect()
            gc.freeze()
            gc.disable()  # as in a load worker
            taken[name].append(measure(dsn, kind, connections, options.seconds))
            gc.enable()
            gc.unfreeze()
    line: dict[str, Any] = {"connections": connections}
    for name, values in taken.items():
        tps, cpu_us = (statistics.median(value[i] for value in values) for i in range(2))
        line[name] = {"tps": tps, "cpu_us": cpu_us}
    pairs = zip(taken["ours"], taken["bare"], strict=True)
    line["cpu_ratio"] = statistics.median(one[1] / other[1] for one, other in pairs)
    return line


def show(line: dict[str, Any]) -> None:
    for name in ("ours", "bare"):
        tps, cpu_us, trips = line[name]["tps"], line[name]["cpu_us"], line["trips"][name]
        label = f"{name}, {line['connections']} connections, answer {line['answer_us']:.0f} µs"
        print(f"{label:42}{tps:9,.0f}{cpu_us:11.1f}{trips:12.2f}{cpu_us / trips:12.1f}{1e6 / cpu_us:12,.0f}")
    print(f"{'  CPU, ours / bare':42}{line['cpu_ratio']:20.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--answer-us", type=float, nargs="+", default=[0.0, 500.0], help="time until an answer is sent")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    hlr = workload(SUBSCRIBERS, {**HLR_WEIGHTS, "InsertCallForwarding": 0.0})
    kind = build(hlr)
    figures: list[dict[str, Any]] = []
    print(f"{'':42}{'tx/s':>9}{'CPU µs/tx':>11}{'round trips':>12}{'CPU µs/trip':>12}{'tx/s a core':>12}")
    with server_with(hlr) as dsn:
        trips = round_trips(dsn, kind)
        for answer_us in options.answer_us:
            with replayed(dsn, answer_us) as repeated:
                for connections in options.connections:
                    line = compare(repeated, kind, connections, options) | {"answer_us": answer_us, "trips": trips}
                    figures.append(line)
                    show(line)
    print(f"target: ours / bare <= {TARGET_RATIO}; ours <= {TARGET_US:.0f} µs a transaction")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()

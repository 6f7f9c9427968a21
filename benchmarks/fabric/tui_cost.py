"""The CPU cost of the run screen: the share of a core that it takes at 1 Hz from every host.

Data flow: generated ticks of N hosts × 20 metrics, of the load, its transactions and waits once a second, and the state
of the agents every two seconds -> `RunApp` on a terminal of 200 × 60 without output -> CPU seconds of this process over
wall clock time. The pane of hosts is open, because it is the most expensive. The cost of a real terminal and of the
socket is not included.

    python benchmarks/fabric/tui_cost.py [--hosts 64] [--seconds 20] [--pane 4] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from proveout.cli.screen_services import LocalRun
from proveout.coordinator.storage.run_directory import RunDirectory
from proveout.proto.events import (
    AgentLine,
    AgentsTick,
    AgentUp,
    Event,
    HostTick,
    IterationId,
    IterationStarted,
    LoadLine,
    LoadTick,
    RunStarted,
    Stamped,
    TransactionsTick,
    WaitLine,
    WaitsTick,
)
from proveout.tui.run_app import RunApp

METRICS = 20
BATCHES_PER_S = 4
KINDS = 7
IDENTITY = IterationId(stage="base", rung=4, repeat=1, attempt=1)


class Hosts:
    """N hosts that each send 20 metrics a second, spread over the batches of a second as in a tail."""

    def __init__(self, hosts: int, seconds: int) -> None:
        self._hosts, self._seconds = hosts, seconds

    async def batches(self) -> AsyncIterator[Sequence[Stamped]]:
        """Yield the initial events, then a batch every quarter of a second."""
        yield [self._stamp(event) for event in self._opening()]
        for number in range(self._seconds * BATCHES_PER_S):
            share = range(number % BATCHES_PER_S, self._hosts, BATCHES_PER_S)
            batch: list[Event] = [self._tick(host, number) for host in share]
            if number % BATCHES_PER_S == 0:
                batch += self._moving(number // BATCHES_PER_S)
            yield [self._stamp(event) for event in batch]
            await asyncio.sleep(1.0 / BATCHES_PER_S)

    def _opening(self) -> list[Event]:
        plan = {"stages": [{"id": "base", "kind": "ladder", "threads": [4], "repeat": 3}]}
        begin = RunStarted(
            run_id="cost", epoch=1, name="cost", title="", digest="", plan=plan, version="1", estimate_s=600.0
        )
        going = IterationStarted(
            id=IDENTITY, rate=None, starts_in_s=0.0, ramp_up_s=0.0, measure_s=600.0, ramp_down_s=0.0
        )
        return [begin, *(self._up(host) for host in range(self._hosts)), going]

    @staticmethod
    def _up(host: int) -> AgentUp:
        return AgentUp(
            host=f"host{host}", agent_version="1", machine_id=f"m{host // 2}", cores=8, offset_ns=9, uncertainty_ns=900
        )

    @staticmethod
    def _tick(host: int, number: int) -> HostTick:
        busy = (host * 7 + number * 3) % 100 / 100
        readings = {f"metric{index}": float(number + index) for index in range(METRICS - 7)}
        readings |= {"cpu.busy_fraction": busy, "memory.used_bytes": 1e9 * (1 + busy), "memory.total_bytes": 8e9}
        readings |= {f"disk.{way}_bytes_per_s[sda]": 1e6 * (1 + busy) for way in ("read", "write")}
        readings |= {f"network.{way}_bytes_per_s[eth0]": 1e5 * (1 + busy) for way in ("received", "sent")}
        return HostTick(host=f"host{host}", capture="host", readings=readings)

    def _moving(self, second: int) -> list[Event]:
        moving = [self._load(second), self._transactions(second), self._waits(second)]
        return [*moving, self._agents(second)] if second % 2 == 0 else moving

    @staticmethod
    def _transactions(second: int) -> TransactionsTick:
        lines = tuple(
            LoadLine(
                name=f"Transaction{kind}", tps=700.0 + kind + second % 7, ok=700 * second + kind,
                logical_failures=second,
                errors=0, p50_us=250.0 + kind, p95_us=900.0 + second % 5, p99_us=2000.0 + second % 3,
            )
            for kind in range(KINDS)
        )  # fmt: skip
        return TransactionsTick(id=IDENTITY, window="measure", seconds=float(second), transactions=lines)

    @staticmethod
    def _waits(second: int) -> WaitsTick:
        lines = tuple(
            WaitLine(
                event=f"event{rank}", wait_class="IO", seconds=second / (rank + 1), db_time_fraction=1 / (rank + 2)
            )
            for rank in range(10)
        )
        return WaitsTick(id=IDENTITY, host="host0", capture="waits", seconds=float(second), waits=lines)

    def _agents(self, second: int) -> AgentsTick:
        lines = tuple(
            AgentLine(host=f"host{host}", offset_ns=1000 + host, uncertainty_ns=900 + second, silent_s=0.5)
            for host in range(self._hosts)
        )
        return AgentsTick(lease_s=10.0, beat_s=2.0, agents=lines)

    @staticmethod
    def _load(second: int) -> LoadTick:
        tps = 5000.0 + 100.0 * (second % 7)
        return LoadTick(
            id=IDENTITY, second=second, window="measure", tps=tps, avg_us=310.0, p50_us=250.0, p99_us=2000.0, errors=0
        )

    @staticmethod
    def _stamp(event: Event) -> Stamped:
        return Stamped(sequence=1, unix_s=time.time(), event=event)

    def now_unix_s(self) -> float:
        """Return the present time, s since 1970."""
        return time.time()

    async def stop(self) -> bool:
        """Return False, because nothing runs that could be stopped."""
        return False


async def share_of_a_core(hosts: int, seconds: int, pane: int) -> float:
    """Measure CPU seconds per second while ticks arrive, without the start."""
    app = RunApp(Hosts(hosts, seconds + 5), LocalRun(RunDirectory(Path())))
    async with app.run_test(size=(200, 60)) as pilot:
        await pilot.press(str(pane))
        await asyncio.sleep(2.0)
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        await asyncio.sleep(seconds)
        return (time.process_time() - cpu_s) / (time.perf_counter() - wall_s)


def main() -> None:
    """Print the share for each number of hosts."""
    parser = argparse.ArgumentParser(description="Measure the CPU cost of the run screen.")
    parser.add_argument("--hosts", type=int, nargs="+", default=[64, 1000])
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--pane", type=int, default=4, help="1 live, 4 hosts …")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    chosen = parser.parse_args()
    lines = []
    for hosts in chosen.hosts:
        share = asyncio.run(share_of_a_core(hosts, chosen.seconds, chosen.pane))
        lines.append({"hosts": hosts, "pane": chosen.pane, "percent": 100 * share})
        print(f"{hosts:,} hosts × {METRICS} metrics at 1 Hz, pane {chosen.pane}: {share:.1%} of a core")
    if chosen.json:
        chosen.json.write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    main()

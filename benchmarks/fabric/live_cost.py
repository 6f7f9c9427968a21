"""The CPU cost of live events of a load in the coordinator: one second of N load agents × 7 transaction types.

Data flow: generated `LoadSecond`s (log-normal response times, some 1,000 buckets each) -> `ticks.Meters`, as in the
run's loop -> CPU time per second of load, that is the share of a core. The merged line (`LoadTick`) and the
transactions so far are included; storing the samples is not.

    python benchmarks/fabric/live_cost.py [--agents 1 8 64] [--seconds 20] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from proveout.coordinator.live.ticks import Meters
from proveout.coordinator.measure.samples import Gathering
from proveout.proto.events import IterationId
from proveout.proto.wire import histogram
from proveout.proto.wire.messages import Sample
from proveout.proto.wire.results import LoadSecond, TransactionCounts, TransactionLoad

KINDS = 7
PER_SECOND = 2_000


def second(number: int, random: np.random.Generator) -> LoadSecond:
    """One agent's second: 2,000 transactions of each type."""
    kinds = []
    for kind in range(KINDS):
        ns = random.lognormal(mean=12.5, sigma=0.6, size=PER_SECOND).astype(np.int64)
        counts = TransactionCounts(name=f"t{kind}", ok=PER_SECOND)
        kinds.append(TransactionLoad(counts=counts, response=histogram.bin_ns(ns)))
    return LoadSecond(second=number, window="measure", start_ns=0, duration_s=1.0, transactions=tuple(kinds))


def cost(agents: int, seconds: int) -> float:
    """CPU seconds per second of load."""
    random = np.random.default_rng(7)
    hosts = {f"load{agent}": f"host{agent}" for agent in range(agents)}
    gathering = Gathering(id=IterationId(stage="s", rung=1, repeat=1, attempt=1), hosts=hosts, names={})
    meters = Meters(gathering)
    spent_s = 0.0
    for number in range(seconds):
        messages = [Sample(key=key, sequence=number + 1, sample=second(number, random)) for key in hosts]
        shown = 0
        for message in messages:
            gathering.add(message)
            begun_s = time.process_time()
            shown += len(list(meters.take(message)))
            spent_s += time.process_time() - begun_s
        assert shown == 2, "a merged line and the transactions, once a second"
    return spent_s / seconds


def main() -> None:
    """Print the share for each number of agents."""
    parser = argparse.ArgumentParser(description="Measure the CPU cost of live events in the coordinator.")
    parser.add_argument("--agents", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    chosen = parser.parse_args()
    lines = []
    for agents in chosen.agents:
        share = cost(agents, chosen.seconds)
        lines.append({"agents": agents, "percent": 100 * share})
        print(f"{agents} load agents × {KINDS} transaction types: {share:.1%} of a core")
    if chosen.json:
        chosen.json.write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    main()

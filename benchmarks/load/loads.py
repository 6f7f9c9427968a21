"""Several loads at the same time beside one load of as many threads: memory, start skew, throughput and merging.

    python benchmarks/load/loads.py [--loads 8] [--threads 64] [--seconds 5] [--rounds 3] [--rate 20000] [--json FILE]

Each round runs both in turn on this machine, through the agent's own path (`run_load`, its pool, its workers) with
sessions that answer at once (`null_worker`): LOADS loads of THREADS threads, and one load of all these threads. The
loads of a host divide its cores, so each of them has max(cores // LOADS, 1) workers, and one load has one for each
core. At an open rate both make the same records. Measured for an iteration:

- private memory (USS) of the workers and of the agent while they measure;
- start skew: the latest start of a worker after T0, of all loads;
- CPU of the agent for merging the workers' chunks, a transaction;
- CPU of the coordinator for the live lines, a second, and for the summary of the iteration.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import null_worker
from harness import Context
from memory import private_mb

from proveout.agent.load.run_load import POOL, run_load
from proveout.coordinator.live.ticks import LoadMeter
from proveout.coordinator.measure.samples import Gathering, summarise
from proveout.coordinator.schedule.tasks import load_tasks
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder
from proveout.proto.events import IterationId
from proveout.proto.wire import codec
from proveout.proto.wire.messages import Sample
from proveout.proto.wire.results import CaptureSample, LoadResult, LoadSecond
from proveout.proto.wire.tasks import Endpoint

PLAN = """
proveout: 1
name: loads
topology:
  hosts: {{here: {{address: local, roles: [client, server]}}}}
  systems: {{db: {{engine: postgres, host: here, dsn: "host=/tmp dbname=none"}}}}
workloads:
  hlr: {{kind: hlr, population: 1000000}}
stages:
  - ladder: {{id: several, loads: {{{several}}}, {common}}}
  - ladder: {{id: one, loads: {{whole: {{workload: hlr, target: db, share: 1}}}}, {common}}}
"""
CORES = len(os.sched_getaffinity(0))
REPEATED = 20
"""Times that the coordinator's work is repeated: once is too short for the clock of a process."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """One iteration."""

    per_s: float
    workers_mb: float
    agent_mb: float
    skew_ms: float
    merging_us: float
    live_ms: float
    summary_ms: float


class LoadContext(Context):
    """The context of one load of several: its seconds are kept, and all of them start at one T0."""

    def __init__(self, whole: Context, key: str, t0: asyncio.Future[int], armed: Callable[[], None]) -> None:
        super().__init__(whole.work_dir)
        self.resources, self.key = whole.resources, key  # type: ignore[misc]
        self.seconds: list[LoadSecond] = []
        self._t0, self._armed = t0, armed

    def sample(self, sample: LoadSecond | CaptureSample) -> None:
        if isinstance(sample, LoadSecond):
            self.seconds.append(sample)

    def armed(self) -> None:
        """Count the loads that are connected."""
        self._armed()

    async def started(self) -> int:
        return await self._t0


def plan_of(loads: int, threads: int, seconds: float, rate: float) -> Plan:
    """The plan of both stages."""
    several = ", ".join(f"l{n}: {{workload: hlr, target: db, share: 1/{loads}}}" for n in range(loads))
    common = f"threads: [{loads * threads}], ramp_up: 1s, measure: {seconds:g}s, ramp_down: 0s, rate: {rate:g}/s"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "loads.yaml"
        path.write_text(PLAN.format(several=several, common=common))
        return compile_plan(path)


async def iteration(context: Context, plan: Plan, stage: Ladder, rate: float) -> Figures:
    """Run the loads of a stage at the same time; then the coordinator's work on them."""
    (rung,) = stage.threads
    identity = IterationId(stage=stage.id, rung=rung, repeat=1, attempt=1)
    endpoints = {"db": Endpoint(system="null", engine="postgres", dsn="")}
    tasks = load_tasks(
        plan,
        stage,
        iteration=identity,
        rate=rate,
        windows=stage.windows,
        endpoints=endpoints,
        cores={"here": CORES},
    )
    t0: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    waiting = len(tasks)

    def armed() -> None:
        nonlocal waiting
        waiting -= 1
        if not waiting:
            t0.set_result(time.monotonic_ns() + 500_000_000)

    contexts = {spec.load: LoadContext(context, f"run/{spec.load}", t0, armed) for _, spec in tasks}
    running = [asyncio.create_task(run_load(contexts[spec.load], spec)) for _, spec in tasks]
    start_ns = await asyncio.shield(t0)
    began_s = time.process_time()
    await asyncio.sleep(stage.windows.ramp_up_s + stage.windows.measure_s / 2.0)
    pool = context.resources[POOL]
    workers_mb = sum(private_mb(worker.pid) for worker in pool.workers)  # type: ignore[attr-defined]
    agent_mb = private_mb(os.getpid())
    results = dict(zip(contexts, await asyncio.gather(*running), strict=True))
    merging_s, ended = time.process_time() - began_s, sum(one.ended_in_window for one in results.values())
    live_ms, summary_ms = _coordinator(plan, identity, rate, results, contexts, start_ns)
    return Figures(
        per_s=ended / stage.windows.measure_s,
        workers_mb=workers_mb,
        agent_mb=agent_mb,
        skew_ms=max(one.start_skew_ns for one in results.values()) / 1e6,
        merging_us=merging_s / ended * 1e6,
        live_ms=live_ms,
        summary_ms=summary_ms,
    )


def _coordinator(
    plan: Plan,
    identity: IterationId,
    rate: float,
    results: dict[str, LoadResult],
    contexts: dict[str, LoadContext],
    t0_ns: int,
) -> tuple[float, float]:
    """CPU of the coordinator, ms: of a second of live lines, and of the summary."""
    live_s = summary_s = 0.0
    sent = {
        key: [codec.agent_envelope(Sample(key=key, sequence=number, sample=second)).SerializeToString()
              for number, second in enumerate(contexts[key].seconds, 1)]
        for key in results
    }  # fmt: skip
    for _ in range(REPEATED):
        hosts, loads = dict.fromkeys(results, "here"), {key: key for key in results}
        gathering = Gathering(id=identity, hosts=hosts, names={}, loads=loads)
        gathering.t0_ns, gathering.clocks = t0_ns, {"here": (0, 0)}
        meter, began_s = LoadMeter(identity), time.process_time()
        for envelopes in zip(*sent.values(), strict=False):
            for data in envelopes:
                message = codec.agent_message(data)
                assert isinstance(message, Sample)
                gathering.add(message)
            for parts in gathering.whole_seconds():
                meter.ticks(parts)
        live_s += (time.process_time() - began_s) / min(map(len, sent.values()))
        began_s = time.process_time()
        summarise(gathering, plan, rate, results, {})
        summary_s += time.process_time() - began_s
    return live_s / REPEATED * 1e3, summary_s / REPEATED * 1e3


async def measure(options: argparse.Namespace) -> dict[str, list[Figures]]:
    """The figures of each round, by stage."""
    plan = plan_of(options.loads, options.threads, options.seconds, options.rate)
    null_worker.use()
    found: dict[str, list[Figures]] = {"several": [], "one": []}
    with tempfile.TemporaryDirectory(prefix="proveout-bench-") as folder:
        for number in range(options.rounds):
            for name in ("several", "one") if number % 2 == 0 else ("one", "several"):
                context = Context(Path(folder))  # workers of its own: idle ones of the other side would count
                stage = plan.stage(name)
                assert isinstance(stage, Ladder)
                try:
                    found[name].append(await iteration(context, plan, stage, options.rate))
                finally:
                    await context.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Several loads beside one load of as many threads.")
    parser.add_argument("--loads", type=int, default=8)
    parser.add_argument("--threads", type=int, default=64, help="threads of each load")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=20_000.0, help="transactions a second of all loads together")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    options = parser.parse_args()
    found = asyncio.run(measure(options))
    several, one = f"{options.loads} x {options.threads}", f"1 x {options.loads * options.threads}"
    print(f"medians of {options.rounds} rounds, {options.rate:,.0f} transactions/s wanted, {CORES} cores")
    print(f"{'':12}{several:>12}{one:>12}{'ratio':>10}")
    lines = {}
    for field in fields(Figures):
        left, right = (statistics.median(getattr(item, field.name) for item in found[name]) for name in found)
        lines[field.name] = {"several": left, "one": right, "ratio": left / right}
        print(f"{field.name:12}{left:>12,.2f}{right:>12,.2f}{left / right:>10.2f}")
    if options.json:
        rounds = {name: [asdict(item) for item in items] for name, items in found.items()}
        options.json.write_text(json.dumps({"medians": lines, "rounds": rounds}, indent=1) + "\n")


if __name__ == "__main__":
    main()

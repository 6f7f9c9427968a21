"""The accuracy of open arrival: the lag (started - intended) at 1,000/s, 10,000/s and the highest achieved rate.

    python benchmarks/load/pacing.py [--seconds 5] [--rates 1000 10000 20000 40000 80000] [--postgres] [--json FILE]

Each rate is one open load by the agent's own path on two workers, constant arrival over 16 terminals. Without
`--postgres` the sessions answer at once (`null_worker`), so that delays are those of the engine or of the machine. With
it the statement is HLR's read by key on an embedded PostgreSQL, which shares the cores. A rate is *held* when 99 % of
it was achieved; above the highest held rate the client is saturated and the lag grows without a limit. Target: p99 < 1
ms at every held rate at which the busiest worker uses less than 85 % of a core. For comparison, a separate process
measures the wake-up delay of the machine during the same load.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import null_worker
from harness import Context, postgres, workload

from proveout.agent.load.run_load import run_load
from proveout.dsl.plan.stages import Windows
from proveout.proto.wire import histogram
from proveout.proto.wire.tasks import Endpoint, LoadShare, RunLoad

WEIGHTS = {"GetBasicSubscriberData": 1.0}
RATES = (1_000.0, 10_000.0, 20_000.0, 40_000.0, 60_000.0, 80_000.0)
TERMINALS = 16
HELD = 0.99
RAMP_S = 1.0
PERCENTILES = (50.0, 99.0, 99.9)
SLEEPER = """
import sys, time
late, due = [], time.monotonic_ns()
end = due + int(float(sys.argv[1]) * 1e9)
while due < end:
    due = time.monotonic_ns() + 1_000_000
    time.sleep(0.001)
    late.append(time.monotonic_ns() - due)
late.sort()
print(late[len(late) * 99 // 100] / 1e3)
"""

Line = dict[str, float]


async def measure(context: Context, endpoint: Endpoint, rate: float, seconds: float) -> Line:
    """One load; lags in µs."""
    spec = RunLoad(
        workload=workload(10_000, WEIGHTS),
        endpoint=endpoint,
        share=LoadShare(first=0, count=TERMINALS, total=TERMINALS, rate=rate),
        windows=Windows(ramp_up_s=RAMP_S, measure_s=seconds, ramp_down_s=0.0),
        workers=2,
        seed=1,
        label="pacing",
    )
    argv = [sys.executable, "-c", SLEEPER, str(seconds + RAMP_S)]
    sleeper = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    result = await run_load(context, spec)
    woken, _ = await sleeper.communicate()
    lag = result.transactions[0].schedule
    p50, p99, p999 = histogram.percentiles_ns(lag, PERCENTILES)
    return {
        "rate": rate,
        "achieved": result.ended_in_window / seconds / rate,
        "p50_us": p50 / 1e3,
        "p99_us": p99 / 1e3,
        "p999_us": p999 / 1e3,
        "max_us": lag.max_ns / 1e3,
        "cpu_fraction": result.client_cpu_fraction,
        "machine_p99_us": float(woken),
    }


async def measure_all(arguments: argparse.Namespace) -> list[Line]:
    """Every rate, told as it ends."""
    lines: list[Line] = []
    async with AsyncExitStack() as stack:
        if arguments.postgres:
            context, endpoint = await stack.enter_async_context(postgres(workload(10_000, WEIGHTS)))
        else:
            null_worker.use()
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="proveout-bench-"))
            context, endpoint = Context(Path(folder)), Endpoint(system="null", engine="postgres", dsn="")
            stack.push_async_callback(context.close)
        for rate in arguments.rates:
            lines.append(await measure(context, endpoint, rate, arguments.seconds))
            print(text(lines[-1]), flush=True)
    return lines


HEAD = (
    f"{'rate/s':>10}{'achieved':>10}{'lag p50':>10}{'p99':>10}{'p99.9':>10}{'max':>12}{'busiest':>10}{'machine':>12}\n"
    f"{'':>10}{'':>10}{'µs':>10}{'µs':>10}{'µs':>10}{'µs':>12}{'worker':>10}{'p99, µs':>12}"
)


def text(line: Line) -> str:
    """A row of the table."""
    lags = "".join(f"{line[name]:>10,.0f}" for name in ("p50_us", "p99_us", "p999_us"))
    return (
        f"{line['rate']:>10,.0f}{line['achieved']:>10.1%}{lags}{line['max_us']:>12,.0f}"
        f"{line['cpu_fraction']:>10.0%}{line['machine_p99_us']:>12,.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Lag of open arrivals by rate.")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rates", type=float, nargs="+", default=list(RATES))
    parser.add_argument(
        "--postgres", action="store_true", help="an embedded PostgreSQL in place of sessions that do nothing"
    )
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    arguments = parser.parse_args()
    print(HEAD)
    lines = asyncio.run(measure_all(arguments))
    held = [line["rate"] for line in lines if line["achieved"] >= HELD]
    print(f"highest rate that was held: {max(held):,.0f}/s" if held else "no rate was held")
    if arguments.json:
        arguments.json.write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    main()

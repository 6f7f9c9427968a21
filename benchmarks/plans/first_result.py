"""The time that commands take beside the measurement: until the agents of a run are up, `check`, and `report` of a run
with many iterations.

    python benchmarks/plans/first_result.py [--rounds N] [--iterations N] [--json FILE]

Each figure is the median of the rounds, from the start of the command: its elapsed time, and the CPU time of the
command and of all processes that it has started and awaited. The agents are those of `plans/smoke.yaml`; the run is
interrupted when the last of them is up. The run of the report is made first, on an embedded SQLite, with a measure
window of 1 s for each iteration: some three minutes for 100 iterations. All folders are removed at the end. The exit
code is 1 when a command fails. No other program should run on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

SMOKE = Path(__file__).parents[2] / "plans" / "smoke.yaml"
PROVEOUT = (sys.executable, "-m", "proveout")
HOSTS = 2
"""The hosts of the plan, each with an agent."""
TARGETS_S = {"check": 0.25, "agents up": 0.7, "report": 2.0}
INTERRUPTED = 130
RUNGS = 2
PLAN = """
proveout: 1
name: many
title: Many short iterations
topology:
  hosts: {{one: {{roles: [client, server], address: local}}}}
  systems: {{db: {{engine: sqlite, host: one, provision: embedded}}}}
workloads:
  hlr: {{kind: hlr, population: 1000}}
stages:
  - populate: {{workload: hlr, into: db}}
  - ladder:
      {{workload: hlr, target: db, threads: [1, 2], ramp_up: 200ms, measure: 1s, ramp_down: 100ms, repeat: {repeat}}}
verdicts:
  - {{id: errors, title: No errors, check: ladder.at(1).errors.count.mean == 0}}
"""


def environment() -> dict[str, str]:
    """The caller's, with bytecode kept: without it each process would compile all its modules."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def ended(folder: Path, *arguments: str, codes: tuple[int, ...] = (0,)) -> float:
    """Run a command in a folder; its elapsed time in seconds. SystemExit with its output when it ends with another
    code."""
    began_s = time.monotonic()
    done = subprocess.run(
        [*PROVEOUT, *arguments], cwd=folder, env=environment(), check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    took_s = time.monotonic() - began_s
    if done.returncode not in codes:
        sys.exit(f"proveout {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return took_s


def agents_up(folder: Path) -> float:
    """Start a run, and interrupt it when all its agents are up; the time until then in seconds."""
    argv = [*PROVEOUT, "run", str(SMOKE), "--headless", "--runs-dir", str(folder)]
    began_s, lines, up_s = time.monotonic(), [], 0.0
    with subprocess.Popen(
        argv, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        assert run.stdout is not None
        for line in run.stdout:
            lines.append(line)
            if not up_s and sum(" is up: " in one and "agent " in one for one in lines) == HOSTS:
                up_s = time.monotonic() - began_s
                run.send_signal(signal.SIGINT)
    if not up_s or run.returncode != INTERRUPTED:
        sys.exit(f"the run ended with {run.returncode}:\n{''.join(lines[-40:])}")
    return up_s


def measured(rounds: int, of: Callable[[], float]) -> dict[str, float]:
    """The medians of the elapsed time and of the CPU time, after one round that is not counted."""
    of()
    elapsed, cpu = [], []
    for _ in range(rounds):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        elapsed.append(of())
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {"seconds": statistics.median(elapsed), "cpu_seconds": statistics.median(cpu)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="counted rounds of each command (7)")
    parser.add_argument("--iterations", type=int, default=100, help="iterations of the run that is reported (100)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="proveout-first-result-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        plan, runs = folder / "many.yaml", folder / "runs"
        plan.write_text(PLAN.format(repeat=max(2, options.iterations // RUNGS)))
        ended(folder, "run", str(plan), "--headless", "--runs-dir", str(runs), codes=(0, 3))
        (run,) = (one for one in runs.iterdir() if one.is_dir())
        found = {
            "check": measured(options.rounds, lambda: ended(folder, "check", "--quiet", str(SMOKE))),
            "agents up": measured(options.rounds, lambda: agents_up(folder)),
            "report": measured(options.rounds, lambda: ended(folder, "report", str(run))),
        }
    print(f"{'':12}{'elapsed':>10}{'CPU time':>10}  target")
    for what, figures in found.items():
        met = "met" if figures["seconds"] <= TARGETS_S[what] else "MISSED"
        print(f"{what:12}{figures['seconds']:8.2f} s{figures['cpu_seconds']:8.2f} s  <= {TARGETS_S[what]} s  {met}")
    print(
        f"report: of a run with {options.iterations} iterations; CPU time of `agents up`: of the whole interrupted run"
    )
    if options.json:
        options.json.write_text(json.dumps({"targets_s": TARGETS_S, "commands": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Time and memory of a run by its size: at a tenth, a third and the whole of each size.

    python benchmarks/plans/growth.py [--of PART,…] [--sizes SHARE,…] [--json FILE]

One short run of an embedded SQLite is recorded. Its numbers are then repeated through the coordinator's own decisions
(`state_machine.advance`, answered here in place of agents) and the real journal:

| part         | the whole                                                                  |
|--------------|----------------------------------------------------------------------------|
| `iterations` | 10,000 iterations of one ladder of 100 rungs                                      |
| `stages`     | 500 ladders of 4 iterations                                                |
| `readings`   | one iteration of 8 hours on 64 hosts, each with 20 readings a second       |
| `history`    | 5,000 runs of the same plan in a folder                                    |

Each command is a process: its CPU time at the same speed of the machine (`measured`), and the most memory that it had.
`record` is the run itself: decisions, journal and, of `readings`, the summary and the files of samples. The exponent is
that of growth between a third and the whole, with what the command takes without any data left out of the times: 1 is
linear. All folders are removed at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from proveout import collect_less_garbage
from proveout.coordinator.live import ticks
from proveout.coordinator.measure import samples
from proveout.coordinator.schedule import state as s
from proveout.coordinator.schedule import state_machine
from proveout.coordinator.storage import journal, run_directory
from proveout.coordinator.storage.run_directory import RunDirectory
from proveout.coordinator.verdict.verdicts import PlanEvaluator
from proveout.core.child_process import rare_garbage_collection
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.workloads.hlr import HLR_WEIGHTS
from proveout.proto import events as e
from proveout.proto.wire import histogram
from proveout.proto.wire import messages as m
from proveout.proto.wire import results as r
from proveout.proto.wire import tasks as t
from proveout.proto.wire.messages import Readings

HOSTS = 64
READINGS = 20
REPEATS = 100
"""Of each rung in a ladder of many iterations."""
WHOLE = {"iterations": 10_000, "stages": 500, "readings": 8 * 3600, "history": 5_000}
"""Iterations; ladders; seconds; runs."""
COMMANDS = {
    "iterations": ("record", "journal", "report", "watch"),
    "stages": ("record", "journal", "report", "watch"),
    "readings": ("record", "report", "watch"),
    "history": ("runs", "trend"),
}
PACE: dict[str, float] = {}
"""The time of the fixed piece of work at first, s."""
SHARES = (0.1, 1 / 3, 1.0)
PLAN = """
proveout: 1
name: many
title: Many short iterations
topology:
  hosts: {{{hosts}}}
  systems: {{db: {{engine: sqlite, host: h1, provision: embedded}}}}
workloads:
  hlr: {{kind: hlr, population: 1000}}
captures:
  os: {{kind: os, every: 1s}}
stages:
  - populate: {{workload: hlr, into: db}}
{ladders}
verdicts:
  - {{id: errors, title: No errors, check: ladder1.at(1).errors.count.mean == 0}}
"""
LADDER = """
  - ladder:
      {{id: ladder{number}, workload: hlr, target: db, threads: {threads}, ramp_up: 0s,
        measure: {measure}s, ramp_down: 0s, repeat: {repeat}, capture: [os]}}
"""


def plan_of(
    folder: Path, *, ladders: int = 1, threads: str = "[1, 2]", repeat: int = 2, hosts: int = 1, measure: int = 2
) -> Path:
    """The file of a plan with so many ladders, repeats and hosts; the seconds of a measure window."""
    named = ", ".join(
        f"h{one}: {{roles: [{'client, server' if one == 1 else 'server'}], address: local}}"
        for one in range(1, hosts + 1)
    )
    each = (LADDER.format(number=one, threads=threads, measure=measure, repeat=repeat) for one in range(1, ladders + 1))
    path = folder / f"many-{ladders}-{repeat}-{hosts}-{measure}.yaml"
    path.write_text(PLAN.format(hosts=named, ladders="".join(each).replace("\n\n", "\n").strip("\n")))
    return path


class Recorded:
    """The run that is repeated."""

    def __init__(self, runs: Path) -> None:
        (self.directory,) = run_directory.all_runs(runs)
        self.events = [one.event for one in journal.read(self.directory.path)]
        self.iterations = {
            one.id.rung: one for one in self.events if isinstance(one, e.IterationFinished) and one.id.repeat == 1
        }
        (self.up,) = (one for one in self.events if isinstance(one, e.AgentUp))
        (self.populated,) = (one.populated for one in self.events if isinstance(one, e.PopulateFinished))


# ---- a run without agents ----------------------------------------------------------------------------------------

Finish = Callable[[s.Summarise, s.GatherSamples], e.IterationFinished]
CPU_S = 0.1
TIME_NS, SPREAD = 100_000, 0.5
"""Median, and standard deviation of the logarithm, of the response times of a drawn second."""


def run_simulated(file: Path, runs: Path, recorded: Recorded, finish: Finish) -> None:
    """Let the coordinator decide a run of the plan to its end, each task answered at once; `finish` makes the numbers
    of an iteration. Its journal is written."""
    plan = compile_plan(file)
    directory = run_directory.create(runs, plan, run_directory.Command(plan=str(file)), datetime.now().astimezone())
    evaluator, setup = PlanEvaluator(plan), s.Setup(run_id=directory.name, epoch=1, data_root=str(directory.systems))
    started = e.RunStarted(
        run_id=directory.name, epoch=1, name=plan.name, title=plan.title, digest=plan.digest,
        plan=journal.plan_data(plan), version="0", estimate_s=1.0,
    )  # fmt: skip
    now_s = 0.0
    gathered: s.GatherSamples | None = None
    with journal.Journal(directory.path, clock=lambda: 1.8e9 + now_s) as kept:
        kept.append(started)
        state, commands = state_machine.start(plan, setup, s.run_progress([started]), evaluator, now_s)
        due: deque[s.Command | s.Input] = deque(commands)
        while due or not state.over:
            one = due.popleft() if due else s.Tick(at_s=state_machine.wake_s(state) or now_s)
            if isinstance(one, s.Emit):
                kept.append(one.event)
            elif isinstance(one, s.GatherSamples):
                gathered = one
            elif isinstance(one, s.Summarise):
                assert gathered
                due.append(s.Summarised(at_s=now_s + 1.0, finished=finish(one, gathered)))
            elif isinstance(one, s.Command):
                due.extend(_answers(one, now_s, recorded))
            else:
                now_s = max(one.at_s, now_s)
                state, commands = state_machine.advance(state, one, evaluator)
                due.extendleft(reversed(commands))


def _answers(command: s.Command, at_s: float, recorded: Recorded) -> Iterator[s.Input]:
    """The answers of agents to a command."""
    match command:
        case s.Dial(hosts=hosts):
            yield from (s.AgentReady(at_s=at_s, up=replace(recorded.up, host=host)) for host in hosts)
        case s.StartLoads(loads=loads, in_s=in_s):
            for host, key in loads:
                yield s.MessageReceived(at_s=at_s + in_s, host=host, message=m.TaskDone(key=key, result=load_result()))
        case s.SendMessage(host=host, message=m.Finish(key=key)):
            done = m.TaskDone(key=key, result=r.CaptureResult(capture="os", samples=0))
            yield s.MessageReceived(at_s=at_s, host=host, message=done)
        case s.SendMessage(host=host, message=t.Task() as task):
            yield s.MessageReceived(at_s=at_s, host=host, message=_of_task(task, recorded))
        case _:
            return


def _of_task(task: t.Task, recorded: Recorded) -> m.AgentMessage:
    result: r.TaskResult
    match task.spec:
        case t.RunLoad() | t.RunCapture():
            return m.TaskArmed(key=task.key)
        case t.StartSystem(system=system):
            result = r.SystemStarted(endpoint=t.Endpoint(system=system.name, engine=system.engine, dsn="file"))
        case t.InspectSystem(endpoint=endpoint):
            result = r.SystemStarted(endpoint=endpoint, fresh=False)
        case t.PopulateSystem():
            result = recorded.populated
        case t.ReadFacts():
            result = r.FactsRead(facts=(("kernel", "6.1"),))
        case _:
            result = r.Done()
    return m.TaskDone(key=task.key, result=result)


def load_result(transactions: Sequence[r.TransactionLoad] = (), seconds: int = 1) -> r.LoadResult:
    """A load of so many seconds that does not strain its client."""
    return r.LoadResult(
        transactions=tuple(transactions), ended_in_window=sum(one.counts.ok for one in transactions),
        measure_start_ns=0, measure_end_ns=seconds * 1_000_000_000, client_cpu_fraction=CPU_S, client_cpu_s=CPU_S,
        start_skew_ns=0, seconds_produced=seconds,
    )  # fmt: skip


def drawn_second() -> r.LoadSecond:
    """10,000 transactions of HLR, their times drawn: how widely times are spread decides what there is to keep, and a
    measured second has others each time."""
    random = np.random.default_rng(1)
    transactions = []
    for name, weight in HLR_WEIGHTS.items():
        times = random.lognormal(np.log(TIME_NS), SPREAD, round(10_000 * weight / sum(HLR_WEIGHTS.values())))
        counts = r.TransactionCounts(name=name, ok=len(times))
        transactions.append(r.TransactionLoad(counts=counts, response=histogram.bin_ns(times.astype(np.int64))))
    return r.LoadSecond(second=0, window="measure", start_ns=0, duration_s=1.0, transactions=tuple(transactions))


def repeated(recorded: Recorded) -> Finish:
    """The numbers of a recorded iteration."""
    return lambda of, _: replace(recorded.iterations[2 - of.id.rung % 2], id=of.id)


def sampled(recorded: Recorded, file: Path, runs: Path, seconds: int) -> Finish:
    """The numbers of so many seconds of samples, from all hosts: the recorded readings, and the same second of a
    load."""
    plan, load = compile_plan(file), drawn_second()
    path = recorded.directory.samples / "ladder1-1-1-1.captures.parquet"
    looks = samples.read_rows(path)[:READINGS]
    names = tuple((one["metric"], one["label"]) for one in looks)
    values = [float(one["value"]) for one in looks]

    def finish(of: s.Summarise, gathered: s.GatherSamples) -> e.IterationFinished:
        (folder,) = (one.samples for one in run_directory.all_runs(runs))
        gathering = samples.Gathering(
            id=of.id, hosts=gathered.hosts, names=gathered.captures, spool=samples.Spool(folder)
        )
        (key,) = of.loads
        for second in range(seconds):
            at_ns = second * 1_000_000_000
            sent = replace(load, second=second, window="measure", start_ns=at_ns)
            gathering.add(m.Sample(key=key, sequence=second + 1, sample=sent))
            for part in gathering.whole_seconds():
                ticks.LoadMeter(of.id).ticks(part)
            for capture in of.captures:
                readings = Readings(names, samples.array("d", (value + second for value in values)))
                taken = r.CaptureSample(capture="os", at_ns=at_ns, readings=readings)
                gathering.add(m.Sample(key=capture, sequence=second + 1, sample=taken))
        loads = {key: load_result(load.transactions, seconds)}
        captures = {one: r.CaptureResult(capture="os", samples=seconds) for one in of.captures}
        found = samples.summarise(gathering, plan, of.rate, loads, captures)
        samples.write(gathering, folder)
        return found

    return finish


def again(recorded: Recorded, runs: Path, count: int) -> None:
    """Write so many runs with the events of the recorded one; each a little faster or slower."""
    plan = compile_plan(plan_of(runs.parent))
    for number in range(count):
        at = datetime(2026, 1, 1).astimezone() + timedelta(minutes=number)
        directory = run_directory.create(runs, plan, run_directory.Command(plan="many.yaml"), at)
        with journal.Journal(directory.path, clock=at.timestamp) as kept:
            for event in recorded.events:
                match event:
                    case e.RunStarted():
                        kept.append(replace(event, run_id=directory.name))
                    case e.IterationFinished():
                        tps = event.metrics["tps"] * (1.0 + 0.01 * math.sin(number * event.id.repeat))
                        kept.append(replace(event, metrics=event.metrics | {"tps": tps}))
                    case _:
                        kept.append(event)


# ---- commands ----------------------------------------------------------------------------------------------------


async def watched(directory: RunDirectory) -> None:
    """Show a run that has ended until its result is on the screen."""
    from proveout.cli.screen_services import LocalRun
    from proveout.cli.watch import source
    from proveout.tui.run_app import RunApp

    app = RunApp(source(directory, 10.0), LocalRun(directory))
    async with app.run_test(size=(120, 40)) as pilot:
        while app.result is None or app.view.ended is None:  # noqa: ASYNC110 - it has no event for that
            await asyncio.sleep(0.05)
        await pilot.pause()


def one_command(command: str, part: str, size: int, folder: Path) -> None:
    """Do what one process of the benchmark is for; `size` 0: a run of four iterations."""
    runs = folder / f"{part}-{size}"
    if command == "record":
        recorded = Recorded(folder / "recorded")
        if part == "readings":
            file = plan_of(folder, threads="[1]", repeat=1, hosts=HOSTS, measure=max(size, 2))
            with rare_garbage_collection():
                run_simulated(file, runs, recorded, sampled(recorded, file, runs, max(size, 2)))
        else:
            rungs = list(range(1, max(size // REPEATS, 2) + 1))
            sizes: dict[str, Any] = {"threads": str(rungs), "repeat": min(max(size // 2, 2), REPEATS)}
            if part == "stages":
                sizes = {"ladders": max(size, 1)}
            with rare_garbage_collection():  # as the coordinator
                run_simulated(plan_of(folder, **sizes), runs, recorded, repeated(recorded))
    elif command == "journal":
        journal.read(only(runs).path)
    elif command == "watch":
        asyncio.run(watched(only(runs)))
    else:
        again(Recorded(folder / "recorded"), runs, max(size, 1))


def only(runs: Path) -> RunDirectory:
    """The one run of a folder."""
    return run_directory.all_runs(runs)[0]


def pace() -> float:
    """The CPU time that a fixed piece of work takes now, s; the least of three."""
    spent = []
    for _ in range(3):
        began_s = time.process_time()
        json.loads(json.dumps({str(number): [number] * 20 for number in range(20_000)}))
        spent.append(time.process_time() - began_s)
    return min(spent)


def measured(argv: Sequence[str], folder: Path) -> tuple[float, float]:
    """The CPU time of a command, s, and the most memory that it had, MB. SystemExit when it fails.

    The speed of a shared machine changes by a quarter within minutes: the time is given for the speed that the machine
    had at first, by what a fixed piece of work takes before and after the command.
    """
    before_s = pace()
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(argv, env=environment, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 3):
        sys.exit(f"{' '.join(argv)}:\n{(folder / 'output').read_text()[-4000:]}")
    now_s = (before_s + pace()) / 2
    return (used.ru_utime + used.ru_stime) * PACE.setdefault("first", now_s) / now_s, used.ru_maxrss / 1024


def command_line(command: str, part: str, size: int, folder: Path) -> list[str]:
    """The process that does a command."""
    runs, proveout = folder / f"{part}-{size}", [sys.executable, "-m", "proveout"]
    match command:
        case "report":
            return [*proveout, "report", str(only(runs).path)]
        case "runs" | "trend":
            return [*proveout, command, "--runs-dir", str(runs)]
        case _:
            return [sys.executable, __file__, "--one", command, part, str(size), str(folder)]


def exponent(found: Sequence[tuple[float, float]], empty: float) -> float:
    """Of growth between the last two of (size, number), without what there is at size 0; 0 for a twentieth of that."""
    (less, before), (more, after) = found[-2:]
    if after < 1.05 * empty:
        return 0.0
    return math.log(max(after - empty, 1e-9) / max(before - empty, 1e-9)) / math.log(more / less)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", type=lambda text: text.split(","), default=list(WHOLE), metavar="PART,…")
    parser.add_argument("--sizes", type=lambda text: [float(one) for one in text.split(",")], default=SHARES)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        command, part, size, folder = options.one
        collect_less_garbage()
        one_command(command, part, int(size), Path(folder))
        return
    lines: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="proveout-growth-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        recorded = ["run", str(plan_of(folder)), "--headless", "--runs-dir", str(folder / "recorded")]
        measured([sys.executable, "-m", "proveout", *recorded], folder)
        print(f"{'':24}{'size':>8}{'CPU, s':>9}{'memory, MB':>12}   exponents: CPU, memory")
        for part in options.of:
            lines += _of_part(part, [0, *(round(WHOLE[part] * share) for share in options.sizes)], folder)
    if options.json:
        options.json.write_text(json.dumps(lines, indent=1) + "\n")


def _of_part(part: str, sizes: Sequence[int], folder: Path) -> Iterator[dict[str, Any]]:
    found: dict[str, list[tuple[int, float, float]]] = {}
    for size in sizes:
        if part == "history":
            measured(command_line("again", part, size, folder), folder)
        for command in COMMANDS[part]:
            cpu_s, memory_mb = measured(command_line(command, part, size, folder), folder)
            line = {"part": part, "command": command, "size": size, "cpu_s": cpu_s, "memory_mb": memory_mb}
            shown = f"{part + ': ' + command:24}{size:8,}{cpu_s:9.2f}{memory_mb:12.0f}"
            each = found.setdefault(command, [])
            each.append((size, cpu_s, memory_mb))
            if len(each) > 2:
                line["exponent_cpu"] = exponent([(at, cpu) for at, cpu, _ in each], each[0][1])
                line["exponent_memory"] = exponent([(at, memory) for at, _, memory in each], each[0][2])
                shown += f"   {line['exponent_cpu']:.2f}, {line['exponent_memory']:.2f}"
            print(shown, flush=True)
            yield line


if __name__ == "__main__":
    main()

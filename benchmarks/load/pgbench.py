"""The load engine beside pgbench, and beside a loop in C: the same statements, weights and connections, in one run, in
turn and in another order each round; medians of the rounds' ratios.

    python benchmarks/load/pgbench.py [--only closed,tpcb,open,tls] [--connections 1,4,16,64,256,1000] [--seconds 3]
        [--rounds 9] [--rates 2000,10000] [--scale 20] [--place one,split] [--counts] [--json FILE]

Placement: free processes differ by 40 % with the core on which the kernel puts each. Here the server with all its
sessions is on one core, and the client on the same one (`one`) or on the next (`split`), with one process or thread.
Split, the rate is mostly the server's; CPU of the client is what compares clients. The loop in C (pgbench_loop.c, one
SELECT only) is the bound.
`--counts` runs each once more under `perf stat` on the client's core, split: system calls and context switches of a
transaction, with connecting in them.

Sections:
- closed: HLR's mix and its read by key, as pgbench scripts;
- tpcb: pgbench's built-in scripts beside `kind: tpcb`, on the same tables;
- open: Poisson arrivals at a rate, `-R` beside ours, of the built-in select-only script with 64 connections: schedule
  lag and response too, both from the instant at which a transaction was due;
- tls: HLR again, over TCP on localhost with TLS on both sides (sslmode=require, a self-signed certificate). It needs a
  PostgreSQL of the distribution, because the embedded one has no TLS.

Both sides use prepared statements against one PostgreSQL with synchronous_commit off on this machine, over a Unix
socket except under tls. CPU is the client's, user and system: ours with the agent process that merges, pgbench's
without its start. Where pgbench cannot say the same thing of HLR it gets the cheaper one: it pads the number of a
subscriber in the server, commits what we roll back, and inserts with ON CONFLICT, because an error would end its
client.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import math
import os
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from subprocess import PIPE

import psycopg
from harness import (
    Context,
    Figures,
    Times,
    placed,
    postgres,
    run,
    tls_programs,
    tls_server,
    workload,
)

from proveout.agent.engines.postgres.installation import find_installation
from proveout.agent.load.populate import populate
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.hlr import DECLARED, HLR_WEIGHTS
from proveout.dsl.workloads.tpcb import Tpcb
from proveout.proto.wire.tasks import Endpoint, PopulateSystem

SUBSCRIBERS = 100_000
SAMPLED = 0.1  # share of the transactions that are logged under -R: writing all of them would cost pgbench CPU


VALUES: Mapping[str, str] = {
    "s_id": f"random(1, {SUBSCRIBERS})",
    "type": "random(1, 4)",
    "start": "8 * random(0, 2)",
    "end": "random(1, 24)",
    "numberx": "random(100000000000000, 999999999999999)",
    "bit": "random(0, 1)",
    "data_a": "random(0, 255)",
    "location": "random(1, 4294967295)",
}
"""The binds of HLR's statements as pgbench draws them."""
THEIRS: Mapping[str, str] = {
    "find_number": "SELECT s_id FROM subscriber WHERE sub_nbr = lpad(:s_id::text, 15, '0') \\gset",
    "insert_forwarding": "INSERT INTO call_forwarding (s_id, sf_type, start_time, end_time, numberx)"
    " SELECT s_id, sf_type, :start, :end, :numberx FROM special_facility WHERE s_id = :s_id AND sf_type = :type"
    " ON CONFLICT DO NOTHING;",
}
"""The statements that pgbench needs in another form."""


def scripts() -> dict[str, str]:
    """The seven transactions of HLR for pgbench, which writes binds as we do."""
    made: dict[str, str] = {}
    for name, statements in DECLARED.items():
        texts = [THEIRS.get(one.name, f"{one.text};") for one in statements]
        used = re.findall(r"(?<!:):(\w+)", " ".join(texts))
        sets = [f"\\set {bind} {value}" for bind, value in VALUES.items() if bind in used]
        bracketed = texts if len(texts) == 1 else ["BEGIN;", *texts, "COMMIT;"]
        made[name] = "\n".join((*sets, *bracketed, ""))
    return made


BUILT_IN: Mapping[str, str] = {"TpcbLike": "tpcb-like", "SimpleUpdate": "simple-update", "SelectOnly": "select-only"}


@dataclass(frozen=True)
class _Run:
    """One run: figures that it printed, CPU of the process."""

    tps: float
    count: int
    cpu_s: float
    connect_s: float


@dataclass
class Pgbench:
    """A pgbench program, with HLR's scripts in a folder.

    A run counts as long as its `-T`; CPU is that of its process, less what a run of one transaction per connection
    needs: starting and connecting. Under `-R` the percentiles come from a sampled log of single transactions, in which
    a latency counts from the scheduled start, as ours counts from the intended one.
    """

    program: Path
    dsn: str
    folder: Path

    def __post_init__(self) -> None:
        for name, text in scripts().items():
            (self.folder / name).write_text(text)

    def run(self, weights: Mapping[str, float], connections: int, seconds: int, rate: float | None = None) -> Figures:
        """Run for some seconds, closed or at a `rate`; `weights` are of HLR's transactions or of the built-in
        scripts."""
        chosen = self._chosen(weights)
        start = self._run(connections, ["-t", "1", *chosen])
        length = seconds + math.ceil(1.5 * start.connect_s)  # the time of -T begins before the first connection
        argv = ["-T", str(length), *chosen]
        log = self.folder / "log"
        if rate is not None:
            argv += ["-R", f"{rate:.0f}", "--log", f"--log-prefix={log}", f"--sampling-rate={SAMPLED}"]
        run = self._run(connections, argv)
        cpu_us = (run.cpu_s - start.cpu_s) / max(1, run.count - start.count) * 1e6
        times = Times() if rate is None else self._times(log)
        return Figures(run.tps, cpu_us, connect_s=run.connect_s, times=times, more_s=length - seconds)

    def _chosen(self, weights: Mapping[str, float]) -> list[str]:
        pairs = [(name, weight) for name, weight in weights.items() if weight]
        if pairs[0][0] in BUILT_IN:
            return [word for name, weight in pairs for word in ("-b", f"{BUILT_IN[name]}@{weight:.0f}")]
        return [word for name, weight in pairs for word in ("-f", f"{self.folder / name}@{weight:.0f}")]

    def _run(self, connections: int, arguments: Sequence[str]) -> _Run:
        argv = [self.program, "-n", "-M", "prepared", "-j", "1", "-c", str(connections), *arguments, self.dsn]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            sys.exit(f"pgbench failed: {done.stderr.strip()[-2000:]}")
        if "actually processed: 0" in done.stdout:
            sys.exit(f"pgbench ended no transaction: use more --seconds\n{done.stdout}")
        return _Run(
            tps=_number(r"tps = ([\d.]+)", done.stdout),
            count=int(_number(r"actually processed: (\d+)", done.stdout)),
            cpu_s=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
            connect_s=_number(r"initial connection time = ([\d.]+) ms", done.stdout) / 1e3,
        )

    def _times(self, log: Path) -> Times:
        """Percentiles of the logs of all threads, which are removed: a line has the latency and, last, the lag, µs."""
        latency, lag = [], []
        for path in log.parent.glob(f"{log.name}.*"):
            for line in path.read_text().splitlines():
                words = line.split()
                latency.append(float(words[2]))
                lag.append(float(words[-1]))
            path.unlink()
        return Times(
            lag_p50_us=_at(lag, 0.5),
            lag_p99_us=_at(lag, 0.99),
            response_p50_us=_at(latency, 0.5),
            response_p99_us=_at(latency, 0.99),
        )


def _number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found, text
    return float(found[1])


def _at(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else 0.0


HLR_MIXES: Mapping[str, Mapping[str, float]] = {"HLR mix": HLR_WEIGHTS, "one SELECT": {"GetBasicSubscriberData": 1.0}}
TPCB_MIXES: Mapping[str, Mapping[str, float]] = {"tpcb-like": {"TpcbLike": 1.0}, "select-only": {"SelectOnly": 1.0}}
OPEN_CONNECTIONS = 64


PLACES = ("one", "split")
COUNTED = {
    "send": ("sendto", "write", "writev", "sendmsg"),
    "recv": ("recvfrom", "read", "recvmsg"),
    "wait": ("epoll_wait", "epoll_pwait", "ppoll", "poll", "pselect6"),
}
ALL_CALLS, SWITCHES = "raw_syscalls:sys_enter", "sched:sched_switch"


@dataclass(frozen=True)
class Line:
    """A row: medians of each side, of the rounds' ratios of ours to each other one, and targets of those to pgbench."""

    section: str
    mix: str
    place: str
    connections: int
    sides: Mapping[str, Figures]
    tps_ratios: Mapping[str, float]
    cpu_ratios: Mapping[str, float]
    counts: Mapping[str, Mapping[str, float]]
    rate: float | None = None
    rate_min: float = 1.0
    cpu_max: float = 0.95

    @property
    def tps_ratio(self) -> float:
        """Rate, ours over pgbench's."""
        return self.tps_ratios["pgbench"]

    @property
    def cpu_ratio(self) -> float:
        """Client CPU of a transaction, ours over pgbench's."""
        return self.cpu_ratios["pgbench"]

    @property
    def missed(self) -> str:
        """The targets that are not met."""
        rate = self.tps_ratio < self.rate_min and not self.rate
        cpu = self.cpu_ratio > self.cpu_max
        return " ".join((*(("rate",) if rate else ()), *(("CPU",) if cpu else ())))

    @property
    def label(self) -> str:
        """Section, mix and offered rate."""
        return f"{self.section} {self.mix}" + (f" {self.rate:,.0f}/s" if self.rate else "")

    def text(self) -> str:
        """As a row of the table."""
        ours, theirs = self.sides["ours"], self.sides["pgbench"]
        bound = f"{self.cpu_ratios['C']:8.2f}" if "C" in self.cpu_ratios else f"{'-':>8}"
        return (
            f"{self.label:28}{self.place:>6}{self.connections:>6}{theirs.tps:>10,.0f}{ours.tps:>10,.0f}"
            f"{self.tps_ratio:>7.2f}{theirs.cpu_us:>10.2f}{ours.cpu_us:>10.2f}{self.cpu_ratio:>7.2f}{bound}"
            f"{ours.merging_us:>9.2f}{theirs.connect_s:>9.2f}{ours.connect_s:>9.2f}  {self.missed}"
        )

    def times(self) -> str:
        """Lag and response of an open load."""
        sides = (self.sides["pgbench"], self.sides["ours"])
        cells = (f"{ours:>11,.0f}" for side in sides for ours in dataclasses.astuple(side.times))
        return f"{f'{self.mix} {self.rate:,.0f}/s {self.place}':34}{''.join(cells)}"

    def counted(self) -> Iterator[str]:
        """System calls and context switches of a transaction, a line each side."""
        for side, counts in self.counts.items():
            calls = "".join(f"{counts[name]:>8.2f}" for name in (*COUNTED, "others", "switches"))
            yield f"{self.label:28}{self.connections:>6}  {side:10}{calls}"

    def data(self) -> dict[str, object]:
        return {**dataclasses.asdict(self), "tps_ratio": self.tps_ratio, "cpu_ratio": self.cpu_ratio}


HEAD = (
    f"{'':28}{'':>6}{'conns':>6}{'pgbench':>10}{'proveout':>10}{'rate':>7}{'pgbench':>10}{'proveout':>10}{'CPU':>7}{'beside':>8}"
    f"{'merging':>9}{'pgbench':>9}{'proveout':>9}\n"
    f"{'':28}{'place':>6}{'':>6}{'tps':>10}{'tps':>10}{'ratio':>7}{'CPU µs':>10}{'CPU µs':>10}{'ratio':>7}{'C, CPU':>8}"
    f"{'CPU µs':>9}{'conn. s':>9}{'ready s':>9}  missed"
)
TIMES_HEAD = f"{'open, µs':34}" + "".join(
    f"{side + ' ' + what:>11}" for side in ("pg", "ours") for what in ("lag 50", "lag 99", "resp 50", "resp 99")
)
COUNTS_HEAD = f"{'of a transaction':28}{'conns':>6}  {'':10}" + "".join(
    f"{name:>8}" for name in (*COUNTED, "others", "switches")
)


@dataclass(frozen=True)
class Sides:
    """The programs on one server."""

    context: Context
    endpoint: Endpoint
    pgbench: Pgbench
    arguments: argparse.Namespace
    loop: Path | None = None

    async def lines(
        self,
        section: str,
        mix: str,
        of: Workload,
        weights: Mapping[str, float],
        connections: int,
        rate: float | None = None,
    ) -> AsyncIterator[Line]:
        seconds = self.arguments.seconds

        async def theirs(seed: int) -> Figures:
            return await asyncio.to_thread(self.pgbench.run, weights, connections, seconds, rate)

        async def ours(seed: int) -> Figures:
            return await run(
                self.context,
                self.endpoint,
                of,
                connections=connections,
                seconds=seconds,
                seed=seed,
                workers=1,
                rate=rate,
            )

        async def bound(seed: int) -> Figures:
            assert self.loop is not None
            return await asyncio.to_thread(_loop, self.loop, self.endpoint.dsn, connections, seconds)

        runs: dict[str, Callable[[int], Awaitable[Figures]]] = {"pgbench": theirs, "ours": ours}
        if self.loop is not None and mix == "one SELECT" and section == "closed":
            runs["C"] = bound
        for place in self.arguments.place:
            found: dict[str, list[Figures]] = {name: [] for name in runs}
            with placed(CORES[PLACES.index(place)]):
                for seed in range(1, self.arguments.rounds + 1):
                    for name in random.Random(seed).sample(list(runs), len(runs)):
                        found[name].append(await runs[name](seed))
                counts = {}
                if self.arguments.counts and place == "split":
                    counts = {name: await _counted(call, seconds) for name, call in runs.items()}
            line = Line(
                section,
                mix,
                place,
                connections,
                {name: _medians(of) for name, of in found.items()},
                *({name: _ratio(found["ours"], of, what) for name, of in found.items()} for what in ("tps", "cpu_us")),
                counts,
                rate,
            )
            print(line.text(), flush=True)
            yield line


CORES = sorted(os.sched_getaffinity(0))[:2]
"""The server's core, which is the client's too under `one`, and the client's under `split`."""


def _ratio(ours: list[Figures], theirs: list[Figures], what: str) -> float:
    return statistics.median(getattr(a, what) / getattr(b, what) for a, b in zip(ours, theirs, strict=True))


def _loop(program: Path, dsn: str, connections: int, seconds: float) -> Figures:
    """The loop in C for some seconds, on sessions that are opened here."""
    (select,) = DECLARED["GetBasicSubscriberData"]
    with ExitStack() as stack:
        sessions = [stack.enter_context(psycopg.connect(dsn, autocommit=True)) for _ in range(connections)]
        for session in sessions:
            session.execute(f"PREPARE s (int8) AS {select.text.replace(':s_id', '$1')}")
        descriptors = [session.fileno() for session in sessions]
        argv = [program, *map(str, (SUBSCRIBERS, seconds, *descriptors))]
        done = subprocess.run(argv, stdout=PIPE, text=True, check=True, pass_fds=descriptors)
    count, taken_s, cpu_s = done.stdout.split()
    return Figures(int(count) / float(taken_s), float(cpu_s) / int(count) * 1e6)


async def _counted(call: Callable[[int], Awaitable[Figures]], seconds: float) -> dict[str, float]:
    """System calls and context switches of a transaction on the client's core, with its connecting in them."""
    names = [f"syscalls:sys_enter_{name}" for of in COUNTED.values() for name in of]
    events = ",".join((ALL_CALLS, SWITCHES, *names))
    counter = await asyncio.create_subprocess_exec(
        *("perf", "stat", "-x", ";", "-a", "-C", str(CORES[1]), "-e", events, "cat"), stdin=PIPE, stderr=PIPE
    )
    figures = await call(1)
    _, printed = await counter.communicate(b"")  # `cat` ends with its input
    fields = [line.split(";") for line in printed.decode().splitlines() if ";" in line]
    count = {words[2]: float(words[0]) for words in fields}
    ended = figures.tps * (seconds + figures.more_s)
    calls = {name: sum(count[f"syscalls:sys_enter_{n}"] for n in of) / ended for name, of in COUNTED.items()}
    others = count[ALL_CALLS] / ended - sum(calls.values())
    return {**calls, "others": others, "switches": count[SWITCHES] / ended}


def _medians(of: list[Figures]) -> Figures:
    times = (statistics.median(values) for values in zip(*(dataclasses.astuple(f.times) for f in of), strict=True))
    return Figures(
        tps=statistics.median(f.tps for f in of),
        cpu_us=statistics.median(f.cpu_us for f in of),
        merging_us=statistics.median(f.merging_us for f in of),
        connect_s=statistics.median(f.connect_s for f in of),
        times=Times(*times),
    )


async def closed(arguments: argparse.Namespace) -> AsyncIterator[Line]:
    """HLR over a Unix socket."""
    async with AsyncExitStack() as stack:
        sides = await embedded(stack, arguments, workload(SUBSCRIBERS, HLR_WEIGHTS))
        async for line in hlr("closed", sides):
            yield line


async def tls(arguments: argparse.Namespace) -> AsyncIterator[Line]:
    """HLR over TLS."""
    programs = tls_programs()
    if programs is None:
        print("tls: left out, this host has no PostgreSQL that speaks TLS (Debian: apt-get install postgresql)")
        return
    async with AsyncExitStack() as stack:
        dsn = stack.enter_context(tls_server(programs, max(arguments.connections), CORES[0]))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="proveout-bench-")))
        context, endpoint = Context(folder), Endpoint(system="target", engine="postgres", dsn=dsn)
        stack.push_async_callback(context.close)
        everything = workload(SUBSCRIBERS, HLR_WEIGHTS)
        await populate(context, PopulateSystem(workload=everything, endpoint=endpoint, workers=2))
        pgbench = Pgbench(programs / "pgbench", dsn, folder)
        sides = Sides(context, endpoint, pgbench, arguments)
        async for line in hlr("tls", sides):
            yield line


async def hlr(section: str, sides: Sides) -> AsyncIterator[Line]:
    """Every mix of HLR at every number of connections."""
    for mix, weights in HLR_MIXES.items():
        for connections in sides.arguments.connections:
            async for line in sides.lines(section, mix, workload(SUBSCRIBERS, weights), weights, connections):
                yield line


async def tpcb(arguments: argparse.Namespace) -> AsyncIterator[Line]:
    """pgbench's built-in scripts."""
    async with AsyncExitStack() as stack:
        sides = await embedded(stack, arguments, _tpcb(arguments, TPCB_MIXES["tpcb-like"]))
        for mix, weights in TPCB_MIXES.items():
            for connections in arguments.connections:
                async for line in sides.lines("tpcb", mix, _tpcb(arguments, weights), weights, connections):
                    yield line


async def open_arrival(arguments: argparse.Namespace) -> AsyncIterator[Line]:
    """The built-in read at a rate."""
    weights = TPCB_MIXES["select-only"]
    async with AsyncExitStack() as stack:
        sides = await embedded(stack, arguments, _tpcb(arguments, weights))
        for rate in arguments.rates:
            of = _tpcb(arguments, weights)
            async for line in sides.lines("open", "select-only", of, weights, OPEN_CONNECTIONS, rate):
                yield line


def _tpcb(arguments: argparse.Namespace, weights: Mapping[str, float]) -> Workload:
    model = Tpcb(scale=arguments.scale, weights=dict(weights))
    return Workload(name="tpcb", kind="tpcb", parameters=to_values(model))


async def embedded(stack: AsyncExitStack, arguments: argparse.Namespace, of: Workload) -> Sides:
    """Both programs on an embedded server with the workload's data."""
    connections = max(*arguments.connections, OPEN_CONNECTIONS)
    context, endpoint = await stack.enter_async_context(postgres(of, connections, CORES[0]))
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    program = find_installation().programs / "pgbench"
    loop = compiled_loop(folder) if which("gcc") else None
    return Sides(context, endpoint, Pgbench(program, endpoint.dsn, folder), arguments, loop)


def compiled_loop(folder: Path) -> Path:
    """The program of the loop in C."""
    program, source = folder / "loop", Path(__file__).with_name("pgbench_loop.c")
    subprocess.run(["gcc", "-O2", "-o", program, source], check=True)
    return program


SECTIONS: Mapping[str, Callable[[argparse.Namespace], AsyncIterator[Line]]] = {
    "closed": closed,
    "tpcb": tpcb,
    "open": open_arrival,
    "tls": tls,
}


async def compare(arguments: argparse.Namespace) -> list[Line]:
    """The lines of the chosen sections, told as they end."""
    return [line for name in arguments.only for section in (SECTIONS[name],) async for line in section(arguments)]


def sections(text: str) -> list[str]:
    """Names of sections, between commas."""
    names = text.split(",")
    unknown = [name for name in names if name not in SECTIONS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    return names


def places(text: str) -> list[str]:
    """Placements, between commas."""
    names = text.split(",")
    if not set(names) <= set(PLACES) or len(CORES) < len(PLACES):
        raise argparse.ArgumentTypeError(f"{text!r} must be of {', '.join(PLACES)}, on {len(PLACES)} cores")
    return names


def positives(text: str) -> list[int]:
    """Whole numbers from 1 on, between commas."""
    try:
        numbers = [int(number) for number in text.split(",")]
    except ValueError:
        numbers = [0]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be whole numbers above 0, as 1,4,16")
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(description="The load engine beside pgbench: rate and client CPU, as ratios.")
    parser.add_argument("--only", type=sections, default=list(SECTIONS), help="closed,tpcb,open,tls (all)")
    parser.add_argument("--seconds", type=int, default=3, help="length of each measurement")
    parser.add_argument("--rounds", type=int, default=9, help="measurements of each, taken in turn; the median counts")
    parser.add_argument("--connections", type=positives, default=[1, 4, 16, 64, 256, 1_000], help="1,4,16,64,256,1000")
    parser.add_argument("--rates", type=positives, default=[2_000, 10_000], help="of the open section: 2000,10000")
    parser.add_argument("--scale", type=int, default=20, help="branches of the built-in scripts' tables")
    parser.add_argument("--place", type=places, default=list(PLACES), help="of the client: one,split")
    parser.add_argument("--counts", action="store_true", help="count system calls and context switches (needs perf)")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    arguments = parser.parse_args()
    lines = asyncio.run(compare(arguments))
    print("", HEAD, *(line.text() for line in lines), sep="\n")
    if timed := [line.times() for line in lines if line.rate]:
        print("", TIMES_HEAD, *timed, sep="\n")
    if counted := [text for line in lines for text in line.counted()]:
        print("", COUNTS_HEAD, *counted, sep="\n")
    print("ratios are ours over pgbench's, and over the loop's; targets: rate >= 1.00 (closed), CPU <= 0.95")
    if arguments.json:
        arguments.json.write_text(json.dumps([line.data() for line in lines], indent=1) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

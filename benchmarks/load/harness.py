"""Shared parts of the load benchmarks: a task context, a PostgreSQL with a workload's data, and a load run."""

from __future__ import annotations

import argparse
import asyncio
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from proveout.agent.daemon.tasks import Resource
from proveout.agent.engines.handlers import start_system
from proveout.agent.load.populate import populate
from proveout.agent.load.run_load import run_load
from proveout.agent.security.policy import Policy
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import Windows
from proveout.dsl.plan.topology import System
from proveout.dsl.workloads.hlr import Hlr
from proveout.proto.wire import histogram
from proveout.proto.wire.results import CaptureSample, LoadResult, LoadSecond
from proveout.proto.wire.tasks import Endpoint, LoadShare, PopulateSystem, RunLoad, StartSystem

RAMP_S = 0.5
T0_S = 0.2
TNS_SERVER = Path(__file__).resolve().parents[2] / "tests" / "wire" / "tns_server.py"
WORKERS = 2
"""Processes or threads of a client, unless `--workers` says otherwise; never more than connections."""


@dataclass(frozen=True)
class Times:
    """Schedule lag and response of an open load, µs; the response counts from the intended start."""

    lag_p50_us: float = 0.0
    lag_p99_us: float = 0.0
    response_p50_us: float = 0.0
    response_p99_us: float = 0.0


@dataclass(frozen=True)
class Figures:
    """Transactions a second, client CPU per transaction, and the agent's merging as a part of it; the time until all
    connections are there; `more_s`, for which it ran beside the time that counts."""

    tps: float
    cpu_us: float
    merging_us: float = 0.0
    connect_s: float = 0.0
    times: Times = Times()
    more_s: float = 0.0


class Context:
    """A task context for handlers that are called directly."""

    key = host = "benchmark"
    policy = Policy(own=True)

    def __init__(self, work_dir: Path) -> None:
        self.work_dir = work_dir
        self.resources: dict[str, Resource] = {}
        self.ended = 0
        self.cpu_at_start_s = 0.0
        self.armed_s = 0.0

    def progress(self, done: float, total: float, unit: str, note: str = "") -> None: ...

    def sample(self, sample: LoadSecond | CaptureSample) -> None:
        """Count the ended transactions."""
        if isinstance(sample, LoadSecond):
            self.ended += sum(t.counts.ok + t.counts.logical_failures for t in sample.transactions)

    def log(self, level: str, text: str) -> None:
        print(f"{level}: {text}", file=sys.stderr)

    def armed(self) -> None:
        """Note the connection of the load, from which merging counts."""
        self.ended, self.cpu_at_start_s, self.armed_s = 0, time.process_time(), time.monotonic()

    async def started(self) -> int:
        return time.monotonic_ns() + round(T0_S * 1e9)

    async def finished(self) -> None: ...

    async def close(self) -> None:
        """Close the resources of the handlers."""
        for resource in reversed(list(self.resources.values())):
            await resource.close(keep_data=False)


def workload(subscribers: int, weights: Mapping[str, float]) -> Workload:
    """Return HLR with these weights."""
    return Workload(name="hlr", kind="hlr", parameters=to_values(Hlr(population=subscribers, weights=dict(weights))))


def server_settings(connections: int) -> dict[str, str]:
    """Settings of PostgreSQL for that many connections of a load."""
    return {
        "max_connections": str(connections + 50),
        "shared_buffers": "256MB",
        "synchronous_commit": "off",
        "autovacuum": "off",  # autovacuum and checkpoints would affect some rounds of one side only
        "max_wal_size": "16GB",
        "checkpoint_timeout": "1h",
    }


def worker_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number above 0")
    return int(text)


@contextmanager
def placed(core: int | None) -> Iterator[None]:
    """Meanwhile this process, the idle workers of its agent and the processes that it starts are on this core; None:
    anywhere."""
    before = os.sched_getaffinity(0)
    _pin(before if core is None else {core})
    try:
        yield
    finally:
        _pin(before)


def _pin(cores: set[int]) -> None:
    own = Path("/proc/self/task")
    children = [Path("/proc", pid, "task") for each in own.glob("*/children") for pid in each.read_text().split()]
    kept = [child for child in children if b"agent.load.worker" in child.with_name("cmdline").read_bytes()]
    for thread in (thread for process in (own, *kept) for thread in process.iterdir()):
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), cores)


@asynccontextmanager
async def postgres(
    of: Workload, connections: int = 150, core: int | None = None
) -> AsyncIterator[tuple[Context, Endpoint]]:
    """Yield an embedded PostgreSQL with synchronous_commit off and the workload's data, on a core of its own if one is
    given, and a context."""
    with tempfile.TemporaryDirectory(prefix="proveout-bench-") as folder:
        context = Context(Path(folder))
        settings = tuple(server_settings(connections).items())
        system = System(name="target", engine="postgres", host="here", provision="embedded", settings=settings)
        try:
            with placed(core):
                started = await start_system(context, StartSystem(system=system, data_root=f"{folder}/data"))
            await populate(context, PopulateSystem(workload=of, endpoint=started.endpoint, workers=2))
            yield context, started.endpoint
        finally:
            await asyncio.shield(context.close())


@contextmanager
def tns_server() -> Iterator[str]:
    """Yield the dsn of the TNS server of the tests in front of a PostgreSQL. The password is `hlr`."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, TNS_SERVER], stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdin is not None and server.stdout is not None
        try:
            line = server.stdout.readline()
            if not line.startswith("dsn "):
                sys.exit("the TNS server did not come up; its words are above")
            yield line.removeprefix("dsn ").strip()
        finally:
            server.stdin.close()


def tls_programs() -> Path | None:
    """The folder of a PostgreSQL that speaks TLS, which the embedded one does not; None without one on this host."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    return found[-1].parent if found else None


@contextmanager
def tls_server(programs: Path, connections: int, core: int) -> Iterator[str]:
    """Yield the dsn of a server on a core, with a self-signed certificate: `sslmode=require` over TCP on localhost."""
    folder = Path(tempfile.mkdtemp(prefix="proveout-tls-", dir="/tmp"))  # where `nobody` reaches it
    folder.chmod(0o755)
    user: dict[str, Any] = {"cwd": "/", "stdin": subprocess.DEVNULL}
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        user |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    data, process = folder / "data", None
    try:
        options = ["-U", "bench", "-A", "trust", "--no-sync", "--locale=C", "-E", "UTF8"]
        subprocess.run([programs / "initdb", "-D", data, *options], check=True, stdout=subprocess.DEVNULL, **user)
        subject = ["-subj", "/CN=localhost", "-keyout", data / "server.key", "-out", data / "server.crt"]
        certificate = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
        subprocess.run(certificate, check=True, stderr=subprocess.DEVNULL, **user)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        words = {**server_settings(connections), "listen_addresses": "127.0.0.1", "port": str(port), "ssl": "on"}
        words |= {"unix_socket_directories": "", "fsync": "off"}
        given = [word for name, value in words.items() for word in ("-c", f"{name}={value}")]
        with (folder / "log").open("wb") as log, placed(core):
            process = subprocess.Popen([programs / "postgres", "-D", data, *given], stdout=log, stderr=log, **user)
        dsn = make_conninfo(host="127.0.0.1", port=port, user="bench", dbname="postgres", sslmode="require")
        _await_server(process, dsn, folder / "log")
        yield dsn
    finally:
        if process is not None:
            process.send_signal(signal.SIGINT)
            process.wait(60)
        shutil.rmtree(folder)


def _await_server(process: subprocess.Popen[bytes], dsn: str, log: Path) -> None:
    """Wait until it answers. Exits when it does not."""
    until_s = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(dsn, connect_timeout=5).close()
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > until_s:
                sys.exit(f"the server with TLS did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.05)
        else:
            return


async def run(
    context: Context,
    endpoint: Endpoint,
    of: Workload,
    *,
    connections: int,
    seconds: float,
    seed: int,
    workers: int = WORKERS,
    rate: float | None = None,
) -> Figures:
    """Run one load, closed or with Poisson arrivals at a `rate`. Exits on any error in it."""
    spec = RunLoad(
        workload=of,
        endpoint=endpoint,
        share=LoadShare(first=0, count=connections, total=connections, rate=rate, distribution="poisson"),
        windows=Windows(ramp_up_s=RAMP_S, measure_s=seconds, ramp_down_s=0.0),
        workers=workers,
        seed=seed,
        label="benchmark",
    )
    began_s = time.monotonic()
    result = await run_load(context, spec)
    merging_us = (time.process_time() - context.cpu_at_start_s) / context.ended * 1e6
    failed = any(load.counts.errors for load in result.transactions)  # one that was retried has ended well
    if failed or result.samples_lost:
        sys.exit(f"the load had errors: {result.first_errors}, samples lost: {result.samples_lost}")
    cpu_us = result.client_cpu_s / result.ended_in_window * 1e6
    return Figures(
        result.ended_in_window / seconds,
        cpu_us + merging_us,
        merging_us,
        context.armed_s - began_s,
        _times(result),
        RAMP_S,
    )


def _times(result: LoadResult) -> Times:
    """Those of all transactions together."""
    lag = histogram.merge(one.schedule for one in result.transactions)
    response = histogram.merge(one.response for one in result.transactions)
    ns = (histogram.percentiles_ns(of, (50.0, 99.0)) or (0, 0) for of in (lag, response))
    return Times(*(value / 1e3 for pair in ns for value in pair))

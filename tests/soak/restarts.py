"""A PostgreSQL that others run, which is restarted, or refuses connections for a while, at any moment of a run.

Data flow: a server of the test's own (`External`), an undisturbed run for how long one takes -> a run that is struck at
a seeded moment (`strike`) -> its exit code and journal: it has to end well, whatever it was doing.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from live_run import LiveRun

from proveout.agent.engines.postgres.installation import find_installation
from proveout.proto.events import Notice

USER = "nobody"
KINDS = {"restart": 2.0, "refuse": 4.0}
"""How long the server is away, s."""

PLAN = """
proveout: 1
name: away
topology:
  hosts: {{box: {{roles: [server, client], address: {address}}}}}
  systems: {{db: {{engine: postgres, host: box, dsn: "{dsn}"}}}}
workloads: {{hlr: {{kind: hlr, population: 20000}}}}
captures:
  waits: {{kind: waits, system: db}}
  sizes: {{kind: sizes, system: db}}
stages:
  - sql: {{id: first, system: db, statements: "SELECT pg_sleep(0.5)"}}
  - populate: {{workload: hlr, into: db}}
  - reset: {{systems: db, restore: false}}
  - ladder: {{workload: hlr, target: db, threads: [2], ramp_up: 500ms, measure: 2s, ramp_down: 0s, repeat: 2, retries: 6,
             capture: [waits, sizes],
             limits: {{start_skew: 10s, tps_slope: 10000%, tps_cv: 10000%, void: 100%, client_cpu: 100%}}}}
  - sql: {{id: last, system: db, statements: "SELECT pg_sleep(0.5)"}}
report: {{figures: [lag]}}  # there is none to draw: drawing takes a second of a processor
verdicts:
  - {{id: answers, check: ladder.at(2).tps.mean > 0.0}}
"""


class External:
    """A PostgreSQL in `folder`, on a port of its own."""

    def __init__(self, folder: Path) -> None:
        self._bin = programs()
        self._data = folder / "data"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._ran("initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "--no-sync")
        self._log = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.dsn = f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres"

    def _ran(self, program: str, *arguments: str) -> None:
        user = USER if os.geteuid() == 0 else None
        subprocess.run([self._bin / program, *arguments], check=True, capture_output=True, cwd="/", user=user)

    def start(self, wait: bool = True) -> None:
        options = ["-c", "listen_addresses=127.0.0.1", "-c", f"port={self.port}", "-c", "unix_socket_directories="]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", self._data, *options],
                stdout=log,
                stderr=log,
                cwd="/",
                user=USER if os.geteuid() == 0 else None,
            )
        if wait:
            self.until_up()

    def until_up(self) -> None:
        """Wait until it takes connections."""
        assert self._process is not None
        while True:
            try:
                psycopg.connect(self.dsn).close()
            except psycopg.OperationalError:
                assert self._process.poll() is None, self._log.read_text()
                time.sleep(0.05)
            else:
                return

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: a fast shutdown; SIGQUIT: as a crash."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None


def programs() -> Path:
    """The folder of PostgreSQL's programs: the system's, or the wheel's."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else find_installation().programs


@contextmanager
def external() -> Iterator[External]:
    """A server that runs, in a folder that its user can reach."""
    folder = Path(tempfile.mkdtemp(prefix="proveout-external-"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, USER)
        server = External(folder)
        server.start()
        try:
            yield server
        finally:
            server.stop(signal.SIGQUIT)
    finally:
        shutil.rmtree(folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """What became of a run: what was done to its database and when, how it ended, what it said, how long it took."""

    kind: str
    at_s: float
    code: int
    notices: tuple[str, ...]
    seconds: float
    said: str


def undisturbed(server: External, folder: Path) -> float:
    """How long a run takes to which nothing happens, s."""
    began_s = time.monotonic()
    run = LiveRun(folder, PLAN.format(dsn=server.dsn, address="local"))
    try:
        assert run.end() == 0, run.said
    finally:
        run.kill()
    return time.monotonic() - began_s


def strike(server: External, folder: Path, kind: str, at_s: float) -> Struck:
    """Take the database away `at_s` seconds after the run's start, for as long as the kind says."""
    began_s = time.monotonic()
    run = LiveRun(folder, PLAN.format(dsn=server.dsn, address="local"))

    def away() -> None:
        time.sleep(at_s)
        server.stop()
        time.sleep(KINDS[kind])
        server.start(wait=False)

    striking = threading.Thread(target=away)
    striking.start()
    try:
        code = run.end()
    finally:
        striking.join()
        run.kill()
    notices = tuple(notice.text for notice in run.all(Notice))
    seconds = time.monotonic() - began_s
    return Struck(kind=kind, at_s=at_s, code=code, notices=notices, seconds=seconds, said=run.said)


def struck(count: int, seed: int = 1) -> Iterator[Struck]:
    """So many runs, each struck once, spread over the whole of a run; at seeded moments."""
    drawn = random.Random(seed)
    with external() as server:
        with tempfile.TemporaryDirectory() as folder:
            length_s = undisturbed(server, Path(folder))
        for number in range(count):
            kind = list(KINDS)[number % len(KINDS)]
            at_s = (number + drawn.random()) * length_s / count
            with tempfile.TemporaryDirectory() as folder:
                yield strike(server, Path(folder), kind, at_s)

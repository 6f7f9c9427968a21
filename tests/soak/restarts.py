"""An external PostgreSQL that is restarted, or refuses connections for a while, at any moment of a run.

Data flow: a server of the test (`External`), an undisturbed run to measure its length -> a run with an interruption of
the server at a seeded moment (`strike`) -> its exit code and journal (`Struck.wrong`): no run ends with 4, and one
ends with 3, an undecided verdict, only where the interruption is a finding of an iteration that counts.
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
from eventually import eventually
from live_run import LiveRun

from proveout.agent.engines.postgres.installation import find_installation
from proveout.proto.events import IterationFinished

USER = "nobody"
KINDS = {"restart": 2.0, "refuse": 4.0}
"""The time without the server, s."""
OF_THE_DATABASE = ("outage:", "errors", "load", "unfinished", "missed", "hung:", "capture:")
"""The findings that an interruption of the database leaves in an iteration that counts."""

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
report: {{without: [others]}}  # no figure, because drawing others takes a second of CPU time
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
        """Wait until the server accepts connections."""
        eventually(self._is_up, self._log.read_text)

    def _is_up(self) -> bool:
        try:
            psycopg.connect(self.dsn).close()
        except psycopg.OperationalError:
            assert self._process is not None and self._process.poll() is None, self._log.read_text()
            return False
        return True

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """Stop the server. SIGINT: a fast shutdown; SIGQUIT: an immediate one, like a crash."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None


def programs() -> Path:
    """Return the folder of PostgreSQL's programs: the system's, else the wheel's."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else find_installation().programs


@contextmanager
def external() -> Iterator[External]:
    """Start a server in a folder that its user can access."""
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
    """The result of a run: the kind and moment of the interruption, exit code, findings of the iterations on the
    database, and output."""

    kind: str
    at_s: float
    code: int
    findings: tuple[str, ...]
    output: str

    @property
    def wrong(self) -> bool:
        """Whether the run ended in a way that the interruption does not explain."""
        return self.code not in ((0, 3) if self.findings else (0,))


def strike(server: External, folder: Path, kind: str, at_s: float) -> Struck:
    """Stop the database `at_s` seconds after the run's start, and start it again after the time of `KINDS`."""
    run = LiveRun(folder, PLAN.format(dsn=server.dsn, address="local"))

    def away() -> None:
        time.sleep(at_s)
        server.stop()
        time.sleep(KINDS[kind])
        server.start(wait=False)

    striking = threading.Thread(target=away)
    if kind in KINDS:
        striking.start()
    try:
        code = run.end()
    finally:
        if kind in KINDS:
            striking.join()
        run.kill()
    findings = (
        f"{iteration.id}: {finding.check}: {finding.evidence}"
        for iteration in run.all(IterationFinished)
        for finding in iteration.findings
        if not finding.ok and finding.check.startswith(OF_THE_DATABASE)
    )
    return Struck(kind=kind, at_s=at_s, code=code, findings=tuple(findings), output=run.output)


def struck(count: int, seed: int = 1) -> Iterator[Struck]:
    """Yield `count` runs, each with one interruption; the seeded moments are spread over the length of a run."""
    drawn = random.Random(seed)
    with external() as server:
        began_s = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            assert strike(server, Path(folder), "nothing", 0.0).code == 0
        length_s = time.monotonic() - began_s
        for number in range(count):
            kind = list(KINDS)[number % len(KINDS)]
            at_s = (number + drawn.random()) * length_s / count
            with tempfile.TemporaryDirectory() as folder:
                yield strike(server, Path(folder), kind, at_s)

"""Whole runs with real agents and a real PostgreSQL: their results, and their remains after parts are killed."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from proveout.coordinator.pki.certificates import Authority
from proveout.coordinator.schedule.progress import RunProgress, run_progress
from proveout.coordinator.storage.event_codec import JournalFault
from proveout.coordinator.storage.journal import read
from proveout.proto import events

PLAN = """
proveout: 1
name: small
title: A small run
topology:
  hosts:
    db1:     {roles: [server], address: local}
    client1: {roles: [client], address: local}
  systems:
    db: {engine: postgres, host: db1, provision: embedded, settings: {synchronous_commit: "off"}}
workloads:
  hlr: {kind: hlr, population: 1_000}
captures:
  host: {kind: os, on: all, every: 1s}
stages:
  - populate: {workload: hlr, into: db}
  - ladder:
      workload: hlr
      target: db
      threads: [1, 2]
      think: {constant: 10ms}
      ramp_up: 200ms
      measure: 1s
      ramp_down: 200ms
      repeat: 2
      retries: 4
      capture: [host]
      limits: {start_skew: 10s, tps_slope: 100%, tps_cv: 100%}
report: {without: [others]}  # no figure, because drawing others takes a second of CPU time
verdicts:
  - {id: answers, check: ladder.at(1).tps.mean > 0.0}
"""
SLOTS = {(1, 1), (1, 2), (2, 1), (2, 2)}
COMMAND = str(Path(sys.executable).with_name("proveout"))

pytestmark = pytest.mark.slow


class Run:
    """A coordinator's process, and all of its descendants that were found while it ran."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder, self.runs = folder, folder / "runs"
        self.log = folder / f"{arguments[0]}-{time.monotonic_ns()}.txt"
        argv = [COMMAND, *arguments, "--headless", "--runs-dir", str(self.runs)]
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, cwd=folder)
        self.family: dict[int, psutil.Process] = {}

    def until(self, what: Callable[[RunProgress], bool], within_s: float = 120.0) -> RunProgress:
        """Wait until `what` is true of the journal's facts; collect the processes of the run meanwhile."""
        deadline = time.monotonic() + within_s
        while not what(facts := self.facts()):
            self.look()
            assert self.process.poll() is None, f"it ended with {self.process.returncode}:\n{self.log.read_text()}"
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.1)
        self.look()
        return facts

    def look(self) -> None:
        try:
            children = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return
        self.family |= {child.pid: child for child in children}

    def named(self, *words: str) -> list[psutil.Process]:
        """Return the processes of the run whose command line contains these words."""
        self.look()
        return [p for p in self.family.values() if p.is_running() and all(w in _command(p) for w in words)]

    def facts(self) -> RunProgress:
        found = sorted(self.runs.glob("*/journal.sqlite"))
        try:
            return run_progress(stamped.event for stamped in read(found[-1].parent)) if found else RunProgress()
        except JournalFault:  # its tables do not exist yet
            return RunProgress()

    def end(self, within_s: float = 120.0) -> int:
        """Wait for its end; return the exit code."""
        deadline = time.monotonic() + within_s
        while self.process.poll() is None:
            self.look()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.2)
        return int(self.process.returncode)

    def assert_nothing_left(self, within_s: float = 30.0) -> None:
        """Check that no process of the run is alive after `within_s` (leases last 10 s)."""
        _, alive = psutil.wait_procs(list(self.family.values()), timeout=within_s)
        assert not [(p.pid, _command(p)) for p in alive if not _is_over(p)]


def _is_over(process: psutil.Process) -> bool:
    """Whether the process has ended, also as a zombie."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Return a function that starts coordinators; their remaining processes are killed after the test."""
    (tmp_path / "small.yaml").write_text(PLAN)
    started: list[Run] = []

    def begin(*arguments: str) -> Run:
        started.append(Run(tmp_path, *arguments))
        return started[-1]

    yield begin
    for run in started:
        if run.process.poll() is None:
            run.process.kill()
        run.process.wait()
        for process in run.family.values():
            if process.is_running():
                process.kill()


def running(count: int) -> Callable[[RunProgress], bool]:
    """Return a condition: an iteration runs after `count` finished ones."""
    return lambda facts: len(facts.iterations) >= count and facts.open_iteration is not None


def assert_complete(facts: RunProgress) -> None:
    assert facts.ended is not None
    assert (facts.ended.status, facts.ended.exit_code) == ("finished", 0), facts.ended.reason
    assert {(i.id.rung, i.id.repeat) for i in facts.iterations if i.valid} == SLOTS
    assert len({str(i.id) for i in facts.iterations}) == len(facts.iterations)


def clients_in(pid: int) -> set[str]:
    """Return the database clients whose libraries a process has loaded."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    assert "libpython" in maps or "python" in maps
    return {name for name in ("psycopg", "libpq", "apsw", "oracledb") if name in maps}


def test_a_run_from_start_to_verdict(start: Callable[..., Run], tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(re.sub("report: .*", "", PLAN))
    outputs = ["--junit", "j.xml", "--json", "r.json", "--summary", "s.md"]
    run = start("run", "small.yaml", *outputs)
    run.until(running(0))
    clients = {word for agent in run.named("-m proveout.agent --local") for word in clients_in(agent.pid)}
    assert run.end() == 0, run.log.read_text()
    assert os.geteuid() != 0 or not clients, "an agent with privileges listens to no database itself"
    assert_complete(run.facts())
    run.assert_nothing_left()
    (directory,) = run.runs.iterdir()
    assert not (directory / "systems").exists()
    assert len(list((directory / "samples").glob("*.load.parquet"))) == len(run.facts().iterations)
    assert {path.name for path in (directory / "logs").iterdir()} == {"agent-db1.log", "agent-client1.log"}
    assert ET.parse(tmp_path / "j.xml").getroot().tag in {"testsuite", "testsuites"}
    assert json.loads((tmp_path / "r.json").read_text()) == json.loads((directory / "result.json").read_text())
    assert "</html>" in (directory / "report.html").read_text()
    assert "answers" in (tmp_path / "s.md").read_text()


def test_killed_then_interrupted_then_resumed_to_the_end(start: Callable[..., Run]) -> None:
    first = start("run", "small.yaml")
    first.until(running(1))
    first.process.kill()
    first.process.wait()
    before = {str(i.id): i for i in first.facts().iterations}

    second = start("resume", "latest")
    second.until(lambda facts: running(2)(facts) and facts.started is not None and facts.started.resumed == 1)
    second.process.send_signal(signal.SIGINT)
    assert second.end() == 130, second.log.read_text()
    second.assert_nothing_left()
    first.assert_nothing_left()
    facts = second.facts()
    assert facts.ended is not None
    assert facts.ended.status == "interrupted"
    assert facts.open_iteration is None

    third = start("resume", "latest")
    assert third.end() == 0, third.log.read_text()
    third.assert_nothing_left()
    facts = third.facts()
    assert_complete(facts)
    assert {key: i for key, i in ((str(i.id), i) for i in facts.iterations) if key in before} == before
    populated = [e for e in facts.history if isinstance(e, events.PopulateFinished)]
    assert len(populated) == 1, "the data outlived both"
    fourth = start("resume", "latest")
    assert fourth.end() == 0, "a run that has finished: its results again, and its own exit code"
    assert fourth.facts().iterations == facts.iterations


def test_several_loads_killed_then_interrupted_then_resumed_to_the_end(
    start: Callable[..., Run], tmp_path: Path
) -> None:
    """No iteration is lost or made twice, neither of both loads together nor of each alone."""
    loads = """interference: true
      loads:
        low: {workload: hlr, target: db, share: 1/2, range: [1, 500]}
        high: {workload: hlr, target: db, share: 1/2, range: [501, 1000]}
      threads: [2]"""
    text = re.sub(r"workload: hlr\n +target: db\n +threads: \[1, 2\]", loads, PLAN).replace("at(1)", "at(2)")
    (tmp_path / "small.yaml").write_text(text)
    first = start("run", "small.yaml")
    first.until(running(1))
    first.process.kill()
    first.process.wait()
    before = [str(item.id) for item in first.facts().iterations]

    second = start("resume", "latest")
    second.until(lambda facts: running(3)(facts) and facts.started is not None and facts.started.resumed == 1)
    second.process.send_signal(signal.SIGINT)
    assert second.end() == 130, second.log.read_text()
    second.assert_nothing_left()
    first.assert_nothing_left()
    facts = second.facts()
    assert facts.open_iteration is None and facts.ended is not None and facts.ended.status == "interrupted"

    third = start("resume", "latest")
    assert third.end() == 0, third.log.read_text()
    third.assert_nothing_left()
    facts = third.facts()
    ids = [str(item.id) for item in facts.iterations]
    assert ids[: len(before)] == before and len(set(ids)) == len(ids)
    stages = ("ladder", "ladder__low_alone", "ladder__high_alone")
    valid = [(item.id.stage, item.id.repeat) for item in facts.iterations if item.valid]
    assert sorted(valid) == sorted((stage, repeat) for stage in stages for repeat in (1, 2))
    loads_of = {item.id.stage: set(item.metrics["loads"]) for item in facts.iterations}
    assert loads_of == dict(zip(stages, ({"low", "high"}, {"low"}, {"high"}), strict=True))
    ended = facts.stages_finished["ladder"].metrics["peak"]["loads"]["low"]["interference"]["tps_ratio"]
    assert ended["method"] == "paired" and ended["n"] == 2


def test_a_killed_agent_voids_an_iteration_and_a_killed_database_is_in_the_findings(
    start: Callable[..., Run], tmp_path: Path
) -> None:
    """The database is part of the system under test: the iteration counts, unless one of its tasks failed."""
    (tmp_path / "small.yaml").write_text(PLAN.replace("measure: 1s", "measure: 4s"))
    run = start("run", "small.yaml")
    run.until(running(0))
    (agent,) = run.named("proveout.agent", "db1")
    agent.kill()
    run.until(lambda facts: len(facts.voided) >= 1 and running(0)(facts))
    postmasters = [p for p in run.named("postgres", "-D") if p.ppid() != 0]
    assert postmasters
    run.until(running(1))
    os.kill(postmasters[-1].pid, signal.SIGKILL)
    assert run.end() == 0, run.log.read_text()
    run.assert_nothing_left()
    facts = run.facts()
    assert_complete(facts)
    assert [e.host for e in facts.history if isinstance(e, events.AgentLost)] == ["db1"]
    assert facts.voided[0].rerun
    down = [i for i in facts.iterations if not i.valid or any(f.breach and not f.ok for f in i.findings)]
    assert len(facts.voided) + len(down) >= 2, run.log.read_text()
    assert len([e for e in facts.history if isinstance(e, events.PopulateFinished)]) == 1


def test_a_run_that_cannot_proceed_fails_with_one_message(start: Callable[..., Run], tmp_path: Path) -> None:
    text = PLAN.replace('synchronous_commit: "off"', 'wal_level: minimal, max_wal_senders: "5"')
    (tmp_path / "small.yaml").write_text(text)
    run = start("run", "small.yaml")
    assert run.end() == 4
    out = run.log.read_text()
    assert "max_wal_senders" in out
    assert "Traceback" not in out
    run.assert_nothing_left()


REMOTE = """
proveout: 1
name: remote
title: A server and an agent that run already
topology:
  hosts:
    lab1: {roles: [server, client], address: "127.0.0.1:PORT"}
  systems:
    db: {engine: postgres, host: lab1, dsn: "DSN password=${secrets.pw}"}
secrets: {pw: {env: LAB_PASSWORD}}
workloads:
  hlr: {kind: hlr, population: 1_000}
stages:
  - populate: {workload: hlr, into: db}
  - sql: {id: look, system: db, statements: ["select 1"]}
verdicts:
  - {id: loaded, check: populate.rows >= 1_000.0}
"""


def port_of(daemon: subprocess.Popen[bytes], log: Path) -> str:
    """Wait until an agent logs its port; return it."""
    deadline = time.monotonic() + 60
    while not (found := re.search(r"listens at \S+:(\d+)\n", log.read_text())):
        assert daemon.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    return found[1]


def test_a_server_and_an_agent_that_run_already(tmp_path: Path, database: str) -> None:
    """Also: the password is in no file and in no output of the run."""
    dsn = conninfo_to_dict(database)
    password = str(dsn.pop("password"))
    authority = Authority.create()
    authority.write_agent(tmp_path / "agent", "lab1", ["127.0.0.1"])
    authority.write_coordinator(tmp_path / "coordinator")
    agent = ["agent", "--listen", "127.0.0.1:0", "--pki", "agent", "--name", "lab1", "--state-dir", "state"]
    environment = {**os.environ, "LAB_PASSWORD": password}
    with (tmp_path / "agent.log").open("wb") as log:
        daemon = subprocess.Popen([COMMAND, *agent], cwd=tmp_path, stdout=log, stderr=log)
    try:
        port = port_of(daemon, tmp_path / "agent.log")
        (tmp_path / "remote.yaml").write_text(REMOTE.replace("PORT", port).replace("DSN", make_conninfo(**dsn)))
        argv = [COMMAND, "run", "remote.yaml", "--headless", "--pki", "coordinator"]
        ended = subprocess.run(
            argv, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
    finally:
        daemon.terminate()
        daemon.wait(30)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 10
    for secret in (password, base64.b64encode(password.encode()).decode(), quote(password, safe="")):
        assert secret not in ended.stdout + ended.stderr
        assert not [path for path in written if secret.encode() in path.read_bytes()]


def test_agents_that_run_already_require_certificates(tmp_path: Path) -> None:
    (tmp_path / "remote.yaml").write_text(REMOTE.replace("PORT", "7443").replace("DSN", "host=localhost"))
    environment = {name: value for name, value in os.environ.items() if name != "PROVEOUT_PKI"}
    argv = [COMMAND, "run", "remote.yaml", "--headless"]
    ended = subprocess.run(
        argv, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180, check=False
    )
    assert ended.returncode == 2
    assert "--pki DIR" in ended.stderr
    argv += ["--pki", str(tmp_path)]
    ended = subprocess.run(
        argv, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180, check=False
    )
    assert ended.returncode == 4
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "runs").exists()


def test_the_data_of_an_interrupted_run_may_be_gone(start: Callable[..., Run]) -> None:
    first = start("run", "small.yaml")
    first.until(running(1))
    first.process.send_signal(signal.SIGTERM)
    assert first.end() == 130
    (directory,) = first.runs.iterdir()
    shutil.rmtree(directory / "systems")
    second = start("resume", directory.name)
    assert second.end() == 0, second.log.read_text()
    facts = second.facts()
    assert_complete(facts)
    assert len([e for e in facts.history if isinstance(e, events.PopulateFinished)]) == 2
    second.assert_nothing_left()

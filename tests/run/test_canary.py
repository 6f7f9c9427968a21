"""A search for a secret in all outputs of a run that works and of a run whose login fails.

Searched: standard output and error (with exceptions), every file of the run's directory (journals with their
write-ahead logs, samples, the HTML report, logs, audit log), the requested result files (JUnit, JSON, summary), the
OpenMetrics text, command lines and environments of all processes of the run, with those of database clients. Forms of
the secret: plain, quoted for URLs, in base64 at each of the three offsets, in hexadecimal, backwards. Files are read at
the end and continuously during the run (`canary.FileWatch`).

The run that works sends the secret to the database and to an exporter, which its `to` names.

Not tested: leaks by the driver or the server, such as the server's own log.

The password of a database that a permanent agent tunes is searched in all files of the agent, continuously, with
write-ahead logs and the open files of its processes: while it tunes, when it is killed (-9), and when it is restarted."""

from __future__ import annotations

import base64
import contextlib
import signal
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from canary import CANARY, FileWatch, found
from eventually import eventually, eventually_async
from fabric_bench import Line
from live_run import LiveRun
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from shared_servers import system
from whole_run import Agent

from proveout.agent.engines.postgres import roles as postgres_roles
from proveout.agent.engines.postgres.provision import Server
from proveout.dsl.plan.stages import Tuning
from proveout.proto.wire.messages import TaskDone
from proveout.proto.wire.results import TuningDone
from proveout.proto.wire.tasks import ApplyTuning, Endpoint, InspectSystem, Task, TaskSpec

pytestmark = pytest.mark.server

ROLE = "canary_role"

PLAN = """\
proveout: 1
name: canary
title: A secret goes through
secrets: {{word: {{env: CANARY_WORD, to: [127.0.0.1]}}}}
topology:
  hosts: {{here: {{roles: [client], address: local}}}}
  systems:
    db: {{engine: postgres, host: here, dsn: "{dsn}"}}
workloads:
  q: {{kind: sql, transactions: {{one: {{statements: {{q: {{sql: SELECT 1 AS x, expect_rows: 1}}}}}}}}}}
captures:
  waits: {{kind: waits, system: db, every: 200ms}}
  metrics: {{kind: prometheus, on: here, url: "http://u:${{secrets.word}}@127.0.0.1:{port}/", metrics: [{{name: up}}]}}
stages:
  - sql: {{id: look, system: db, statements: ["SELECT 1"]}}
  - ladder: {{workload: q, target: db, threads: [1], think: {{constant: 5ms}}, ramp_up: 0s, measure: 1s, ramp_down: 0s, repeat: 1,
      capture: [waits, metrics], limits: NEVER_VOID}}
report: {{without: [others]}}
verdicts:
  - {{id: runs, title: It runs, check: ladder.at(1).errors.count.mean == 0}}
"""


def scraped(metrics: Path) -> bytes:
    """The OpenMetrics text of a run."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(5)
        asking.connect(str(metrics))
        asking.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        return b"".join(iter(lambda: asking.recv(65536), b""))
    return b""


def test_the_forms_are_found() -> None:
    for text in (CANARY, f"postgresql://x:{quote(CANARY, safe='')}@h/d", repr({"a": CANARY})):
        assert found(text.encode())
    for prefix in ("", "a", "ab", "abc"):
        assert found(base64.b64encode((prefix + CANARY + " and more").encode()))
    assert not found(b"kanarek and nothing more")


@pytest.fixture
def role(postgres_server: str) -> Iterator[str]:
    """Create a role whose password is the canary; yield the server's folder of sockets."""
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(ROLE), sql.Literal(CANARY)))
        yield str(conninfo_to_dict(postgres_server)["host"])
        admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(ROLE)))


class Exporter(BaseHTTPRequestHandler):
    """An exporter that stores who asks it."""

    def do_GET(self) -> None:
        self.server.asked.add(self.headers["Authorization"])  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"up 1\n")

    def log_message(self, format: str, *args: object) -> None:
        """Discard log messages."""


@pytest.fixture
def exporter() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Exporter) as server:
        server.asked = set[str]()  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("way", ["works", "fails"])
def test_a_secret_is_in_no_output_file_or_process(
    role: str, exporter: ThreadingHTTPServer, tmp_path: Path, way: str
) -> None:
    user = ROLE if way == "works" else "nobody_of_that_name"
    uri = f"postgresql://{user}:${{secrets.word}}@/postgres?host={quote(role, safe='')}"
    words = f"host={role} user={user} dbname=postgres password=${{secrets.word}}"
    outputs = [word for name in ("junit", "json", "summary") for word in (f"--{name}", str(tmp_path / name))]
    (tmp_path / "tmp").mkdir()
    run = LiveRun(
        tmp_path, PLAN.format(dsn=uri if way == "works" else words, port=exporter.server_port), *outputs,
        "--metrics", str(tmp_path / "metrics"), environment={"CANARY_WORD": CANARY, "TMPDIR": str(tmp_path / "tmp")},
    )  # fmt: skip
    metrics: list[bytes] = []

    def ended() -> bool:
        metrics.append(scraped(tmp_path / "metrics"))
        return run.process.poll() is not None

    files = FileWatch(tmp_path, lambda: [run.process.pid])
    try:
        with files.watching():
            eventually(ended, lambda: run.output)
    finally:
        run.kill()
    assert files.hits == set()
    assert "journal.sqlite-wal" in files.read, "it exists only during the run"
    assert len(files.processes) > 1
    assert run.end() == (0 if way == "works" else 4), run.output
    if way == "works":
        assert exporter.asked == {f"Basic {base64.b64encode(f'u:{CANARY}'.encode()).decode()}"}  # type: ignore[attr-defined]
    else:
        assert "wrong password, or no user nobody_of_that_name" in run.output
    assert b"proveout_" in b"".join(metrics)
    assert not found(b"".join(metrics))
    read = [path for path in tmp_path.rglob("*") if path.is_file()]  # with all that the run has printed
    assert any(path.name == "audit.log" for path in read)
    assert [str(path) for path in read if found(path.read_bytes()) or found(str(path).encode())] == []


ADMINISTRATOR = "canary_admin"
SETTINGS = Tuning(
    name="memory",
    operation="postgres_settings",
    hosts=("db1",),
    parameters=(("system", "db"), ("settings", (("work_mem", "67MB"),))),
    system="db",
)


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a server of the test, whose settings may be changed; yield the dsn of its administrator."""
    started = Server(system("postgres"), tmp_path_factory.mktemp("canary-server"))
    try:
        dsn = make_conninfo(postgres_roles.administration(started.start()), options="")
        with psycopg.connect(dsn, autocommit=True) as admin:
            make = "CREATE ROLE {} LOGIN SUPERUSER PASSWORD {}"
            admin.execute(sql.SQL(make).format(sql.Identifier(ADMINISTRATOR), sql.Literal(CANARY)))
        yield dsn
    finally:
        started.close(keep_data=False)


@pytest.fixture
async def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Agent]:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    agent = Agent(tmp_path)
    try:
        await agent.start()
        yield agent
    finally:
        await agent.leave(within_s=0.0)
        await agent.stop(signal.SIGKILL)


async def ended(line: Line, what: str, spec: TaskSpec) -> object:
    key = f"r/-/0/0/1.1/{what}/db1"
    line.session.send(Task(key=key, spec=spec, deadline_s=120.0))
    outcome = await line.outcome(key)
    assert isinstance(outcome, TaskDone), outcome
    return outcome.result


def stored(dsn: str) -> str:
    """Return the value of `work_mem` that ALTER SYSTEM has stored; "" for none."""
    with psycopg.connect(dsn, autocommit=True) as admin:
        query = (
            "SELECT setting FROM pg_file_settings WHERE sourcefile LIKE '%postgresql.auto.conf' AND name = 'work_mem'"
        )
        row = admin.execute(query).fetchone()
    return "" if row is None else str(row[0])


async def test_a_killed_agent_leaves_no_password_and_reverts_when_it_receives_the_password_again(
    server: str, agent: Agent, tmp_path: Path
) -> None:
    where = conninfo_to_dict(server)
    dsn = make_conninfo(
        host=str(where["host"]), port=where.get("port"), dbname="postgres", user=ADMINISTRATOR, password=CANARY
    )
    endpoint = Endpoint(system="db", engine="postgres", dsn=dsn)
    apply = ApplyTuning(tunings=(SETTINGS,), endpoints=(endpoint,))
    files = FileWatch(tmp_path, lambda: [agent.process.pid] if agent.process else [])

    async def looked() -> None:
        looks = files.looks
        await eventually_async(lambda: files.looks > looks + 1, "it looks")

    async def tuned(line: Line) -> None:
        result = await ended(line, "tune", apply)
        assert isinstance(result, TuningDone)
        assert [state.outcome for state in result.states] == ["applied"]

    with files.watching():
        line = await agent.connect(run_id="r", epoch=1)
        await ended(line, "inspect:db", InspectSystem(endpoint=endpoint))
        await tuned(line)
        assert stored(server) == "67MB"
        await looked()
        await agent.stop(signal.SIGKILL)
        await agent.leave(within_s=1.0)
        await looked()
        assert files.hits == set()
        await agent.start()
        log = agent.log.read_text()
        assert "memory' of an earlier run: residue; db: ALTER SYSTEM RESET work_mem could not be undone" in log
        assert "its password is not kept on disk: resume run r, or run a plan that tunes this database" in log
        assert stored(server) == "67MB"
        await tuned(await agent.connect(run_id="r", epoch=2))  # it was as before when it was tuned again
        assert "tuning 'memory' of an earlier run: reverted" in agent.log.read_text()
        await agent.leave()
        await eventually_async(lambda: stored(server) == "", "it is reverted")
    assert files.hits == set()
    assert {"journal.sqlite-wal", "undo.sqlite-wal", "undo.sqlite", "audit.log", "log"} <= files.read
    assert not (tmp_path / "machine").exists()

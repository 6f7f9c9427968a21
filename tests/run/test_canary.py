"""A search for a secret in all outputs of a run that works and of a run whose login fails.

Searched: standard output and error (with exceptions), every file of the run's directory (journals with their
write-ahead logs, samples, the HTML report, logs, audit log), the requested result files (JUnit, JSON, summary), the
OpenMetrics text, command lines and environments of all processes of the run, with those of database clients. Forms of
the secret: plain, quoted for URLs, in base64 at each of the three offsets, in hexadecimal, backwards. Files are read at
the end and continuously during the run (`canary.FileWatch`). For an agent that is killed see `test_canary_agent.py`.

The run that works sends the secret to the database and to an exporter, which its `to` names.

Not tested: leaks by the driver or the server, such as the server's own log.
"""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from canary import CANARY, FileWatch, found
from eventually import eventually
from live_run import LiveRun
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

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

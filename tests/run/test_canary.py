"""A search for a secret in all outputs of a run that works and of a run whose login fails.

Searched: standard output and error (with exceptions), every file of the run's directory (journals with their
write-ahead logs, samples, the HTML report, logs, audit log), the requested result files (JUnit, JSON, summary), the
OpenMetrics text, command lines and environments of all processes of the run, with those of database clients. Forms of
the secret: plain, quoted for URLs, in base64 at each of the three offsets, in hexadecimal, backwards. Files are read at
the end and continuously during the run (`canary.FileWatch`). For an agent that is killed see `test_canary_agent.py`.

Not tested: leaks by the driver or the server, such as the server's own log.
"""

from __future__ import annotations

import base64
import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
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
secrets: {{word: {{env: CANARY_WORD}}}}
topology:
  hosts: {{here: {{roles: [client], address: local}}}}
  systems:
    db: {{engine: postgres, host: here, dsn: "{dsn}"}}
workloads:
  q: {{kind: sql, transactions: {{one: {{statements: {{q: {{sql: SELECT 1 AS x, expect_rows: 1}}}}}}}}}}
captures:
  waits: {{kind: waits, system: db, every: 200ms}}
stages:
  - sql: {{id: look, system: db, statements: ["SELECT 1"]}}
  - ladder: {{workload: q, target: db, threads: [1], think: {{constant: 5ms}}, ramp_up: 0s, measure: 1s, ramp_down: 0s, repeat: 1,
      capture: waits, limits: NEVER_VOID}}
verdicts:
  - {{id: runs, title: It runs, check: ladder.at(1).errors.count.mean == 0}}
"""


@dataclass
class Watch:
    """Collects the command lines of a process and its descendants and the environments of the descendants while it
    runs, and its metrics."""

    run: LiveRun
    metrics: Path
    seen: set[bytes] = field(default_factory=set)
    scraped: list[bytes] = field(default_factory=list)

    def look(self) -> bool:
        """Look once; return whether the run has ended."""
        for pid in (self.run.process.pid, *(process.pid for process in self.run.below())):
            for name in ("cmdline", "environ") if pid != self.run.process.pid else ("cmdline",):
                with contextlib.suppress(OSError):
                    self.seen.add(Path(f"/proc/{pid}/{name}").read_bytes())
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(5)
            asking.connect(str(self.metrics))
            asking.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            while piece := asking.recv(65536):
                self.scraped.append(piece)
        return self.run.process.poll() is not None


def test_the_forms_are_found() -> None:
    for text in (CANARY, f"postgresql://x:{quote(CANARY, safe='')}@h/d", repr({"a": CANARY})):
        assert found(text.encode())
    for prefix in ("", "a", "ab", "abc"):
        assert found(base64.b64encode((prefix + CANARY + " and more").encode()))
    assert not found(b"kanarek and nothing more")


def watched(tmp_path: Path, dsn: str) -> tuple[LiveRun, Watch]:
    """Run the plan to its end while it is watched."""
    outputs = [word for name in ("junit", "json", "summary") for word in (f"--{name}", str(tmp_path / name))]
    (tmp_path / "tmp").mkdir()
    environment = {"CANARY_WORD": CANARY, "TMPDIR": str(tmp_path / "tmp")}
    text = PLAN.format(dsn=dsn)
    run = LiveRun(tmp_path, text, *outputs, "--metrics", str(tmp_path / "metrics"), environment=environment)
    watch, files = Watch(run, tmp_path / "metrics"), FileWatch(tmp_path, lambda: [run.process.pid])
    try:
        with files.watching():
            eventually(watch.look, lambda: run.output)
    finally:
        run.kill()
    assert files.hits == set()
    assert "journal.sqlite-wal" in files.read, "it exists only during the run"
    return run, watch


@pytest.fixture
def role(postgres_server: str) -> Iterator[str]:
    """Create a role whose password is the canary; yield the server's folder of sockets."""
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(ROLE), sql.Literal(CANARY)))
        yield str(conninfo_to_dict(postgres_server)["host"])
        admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(ROLE)))


@pytest.mark.parametrize("way", ["works", "fails"])
def test_a_secret_is_in_no_output_file_or_process(role: str, tmp_path: Path, way: str) -> None:
    user = ROLE if way == "works" else "nobody_of_that_name"
    uri = f"postgresql://{user}:${{secrets.word}}@/postgres?host={quote(role, safe='')}"
    words = f"host={role} user={user} dbname=postgres password=${{secrets.word}}"
    run, watch = watched(tmp_path, uri if way == "works" else words)
    assert run.end() == (0 if way == "works" else 4), run.output
    if way == "fails":
        assert "wrong password, or no user nobody_of_that_name" in run.output
    assert len(watch.seen) > 1, "the search has found processes"
    assert [each[:200] for each in watch.seen if found(each)] == []
    assert b"proveout_" in b"".join(watch.scraped)
    assert not found(b"".join(watch.scraped))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]  # with all that the run has printed
    assert any(path.name == "audit.log" for path in files)
    assert [str(path) for path in files if found(path.read_bytes()) or found(str(path).encode())] == []

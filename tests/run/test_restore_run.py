"""Runs on a database that runs already, with `restore: template`, by a role with a password and CREATEDB only: resets
restore it, and it is the same database afterwards, also after an interrupt, and after a kill of everything."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from live_run import LiveRun, signalled
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from whole_run import Done, proveout, run, written

PLAN = """
proveout: 1
name: restored
topology:
  hosts: {h: {roles: [client, server], address: local}}
  systems:
    db: {engine: postgres, host: h, restore: template, dsn: "%s"}
secrets: {pw: {env: PROVEOUT_TEST_PASSWORD}}
report: {without: [others]}
workloads:
  p: {kind: tptbm, key: 4}
  w:
    kind: sql
    binds: {id: {uniform: [1, 100]}}
    transactions:
      Pay: {statements: {pay: "UPDATE account SET cents = cents + 1 WHERE id = :id"}}
stages:
"""
LADDER = "  - ladder: {workload: w, target: db, threads: [2], ramp_up: 0s, measure: 500ms, ramp_down: 0s, repeat: 1, limits: NEVER_VOID}\n"
COUNT = """  - sql:
      id: %s
      system: db
      query: SELECT (sum(cents) > 0)::int AS paid, (SELECT count(*) FROM pg_indexes WHERE indexname = 'i') AS i FROM account
      metrics: {paid: {column: paid}, i: {column: i}}
"""
CHANGE = (
    "  - sql: {id: index, system: db, statements: [CREATE INDEX i ON account (cents), UPDATE account SET cents = 1]}\n"
)

pytestmark = pytest.mark.server


@pytest.fixture
def own(postgres_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The conninfo of a database with rows, by its owner: a role with CREATEDB only."""
    name = f"own_{secrets.token_hex(4)}"
    with psycopg.connect(postgres_server, autocommit=True) as db:
        db.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'x' CREATEDB")
        db.execute(f"CREATE DATABASE {name} OWNER {name}")
    conninfo = make_conninfo(postgres_server, dbname=name, user=name, password="x")
    with psycopg.connect(conninfo, autocommit=True) as db:
        db.execute("CREATE TABLE account (id int PRIMARY KEY, cents int)")
        db.execute("INSERT INTO account SELECT n, 0 FROM generate_series(1, 100) AS n")
    monkeypatch.setenv("PROVEOUT_TEST_PASSWORD", "x")
    yield conninfo
    with psycopg.connect(postgres_server, autocommit=True) as db:
        for (left,) in db.execute("SELECT datname FROM pg_database WHERE datname ~ %s", (f"^{name}",)).fetchall():
            db.execute(f"DROP DATABASE {left} WITH (FORCE)")
        db.execute(f"DROP ROLE {name}")


def plan(own: str, stages: str) -> str:
    parts = conninfo_to_dict(own)
    dsn = f"host={parts['host']} port={parts['port']} dbname={parts['dbname']} user={parts['user']}"
    return PLAN % f"{dsn} password=${{secrets.pw}}" + stages


def databases(server: str, own: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(server) as db:
        query = "SELECT datname, oid, datallowconn FROM pg_database WHERE starts_with(datname, %s) ORDER BY 1"
        return db.execute(query, (str(conninfo_to_dict(own)["dbname"]),)).fetchall()


def paid(own: str) -> int:
    with psycopg.connect(own) as db:
        row = db.execute("SELECT sum(cents) FROM account").fetchone()
        assert row is not None
        return int(row[0])


def values(done: Done) -> dict[str, tuple[float, float]]:
    return {name: (paid, done.values("i")[name]) for name, paid in done.values("paid").items()}


def test_a_reset_restores_a_running_database(own: str, postgres_server: str, tmp_path: Path) -> None:
    before = databases(postgres_server, own)
    back = "  - reset: {id: %s, systems: db, checkpoint: false%s}\n"
    stages = f"  - populate: {{id: load, workload: p, into: db}}\n{LADDER}{CHANGE}{COUNT % 'changed'}"
    stages += back % ("keeps", ", keep: ddl") + COUNT % "kept"
    stages += "  - sql: {id: pay, system: db, statements: [UPDATE account SET cents = 1]}\n"
    stages += back % ("back", "") + COUNT % "restored"
    done = run(tmp_path, plan(own, stages)).ended(0)
    assert values(done) == {"changed": (1.0, 1.0), "kept": (0.0, 1.0), "restored": (0.0, 0.0)}
    assert "the run works on a copy, the original is" in done.said
    assert databases(postgres_server, own) == before
    assert paid(own) == 0
    with psycopg.connect(own) as db:
        assert db.execute("SELECT count(*) FROM vpn_users").fetchone() == (16,)
        assert db.execute("SELECT count(*) FROM pg_indexes WHERE indexname = 'i'").fetchone() == (0,)


def test_after_an_interrupt_and_a_kill_the_database_is_the_same(own: str, postgres_server: str, tmp_path: Path) -> None:
    """Both come while a stage waits for a gate: another limit of its role's connections."""
    before, name = databases(postgres_server, own), conninfo_to_dict(own)["dbname"]
    gate = "query: SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user, equals: 50, every: 100ms, within: 5m"
    stages = f"{CHANGE}  - sql: {{id: wait, system: db, wait_until: {{{gate}}}}}\n{COUNT % 'changed'}"
    stages += f"  - reset: {{systems: db, checkpoint: false}}\n{COUNT % 'restored'}"
    first = LiveRun(tmp_path, plan(own, stages))
    try:
        first.until(lambda: "stage wait (sql) begins" in first.said, "it waits")
        first.process.send_signal(signal.SIGINT)
        assert first.end() == 130, first.output
        first.assert_nothing_left()
        assert first.facts.ended is not None and first.facts.ended.status == "interrupted"
        assert databases(postgres_server, own) == before
        assert paid(own) == 0
        second = first.again("resume", "latest")
        second.until(lambda: "runs again (index)" in second.said, "it works on its copy")
        for pid in (second.process.pid, *second.agents()):
            signalled(pid, signal.SIGKILL)  # a helper that the agent has just forked dies with it
        second.process.wait()
    finally:
        first.kill()
    assert [one[0] for one in databases(postgres_server, own)] == [name, f"{name}_proveout"]
    with psycopg.connect(postgres_server, autocommit=True) as db:  # as if it had been killed in a reset
        db.execute(f"DROP DATABASE {name} WITH (FORCE)")
        db.execute(f"ALTER ROLE {name} CONNECTION LIMIT 50")
    assert first.directory is not None
    done = proveout(tmp_path, "resume", str(first.directory), "--headless").ended(0)
    assert "what had changed its copy runs again (index)" in done.said
    assert values(done) == {"changed": (1.0, 1.0), "restored": (0.0, 0.0)}
    assert "restores `db` as it was before the run, which removes what stage `index` has made" in done.said
    assert databases(postgres_server, own) == before
    assert paid(own) == 0


def test_a_database_that_cannot_be_copied_is_reported_before_a_run(
    own: str, postgres_server: str, tmp_path: Path
) -> None:
    before, name = databases(postgres_server, own), conninfo_to_dict(own)["dbname"]
    written(tmp_path, plan(own, LADDER))
    with psycopg.connect(postgres_server, autocommit=True) as db:
        db.execute(f"ALTER ROLE {name} NOCREATEDB")
    with psycopg.connect(own, application_name="psql"):
        said = proveout(tmp_path, "check", "--connect", "plan.yaml").ended(4).words
    assert "plan.yaml:7:5: host h: the copy of db would be refused:" in said
    assert f"user {name} may not create databases (ALTER ROLE {name} CREATEDB)" in said
    assert f"database {name} is in use by 1 session: pid" in said
    assert "'psql'" in said
    assert databases(postgres_server, own) == before

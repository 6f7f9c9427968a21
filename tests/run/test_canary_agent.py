"""The password of a database that a permanent agent tunes is never in a file: while the agent tunes, when it is killed
(-9), and when it is restarted.

A real PostgreSQL that requires the password (SCRAM), a real agent with a state directory. All files of the agent are
read continuously, with write-ahead logs and the open files of its processes. The server's own files are not searched.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
from canary import CANARY, FileWatch
from eventually import eventually_async
from fabric_bench import Line
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

ROLE = "canary_admin"
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
            admin.execute(sql.SQL(make).format(sql.Identifier(ROLE), sql.Literal(CANARY)))
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
    dsn = make_conninfo(host=str(where["host"]), port=where.get("port"), dbname="postgres", user=ROLE, password=CANARY)
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

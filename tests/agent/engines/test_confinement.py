"""Confinement of a database server on its host: every attempt of `server_escapes` is refused, and a server works."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from server_escapes import ESCAPED, ESCAPES, REFUSED, Escape, Target, program

from proveout.agent.engines import handlers
from proveout.agent.engines.embedded import workspace
from proveout.agent.engines.embedded.confinement import landlock_version
from proveout.agent.engines.embedded.workspace import SupervisorClient
from proveout.agent.engines.postgres import roles
from proveout.agent.engines.postgres.provision import Server
from proveout.agent.errors import TaskFault
from proveout.agent.security.policy import Policy
from proveout.dsl.plan.topology import System
from proveout.proto.wire.tasks import StartSystem

pytestmark = pytest.mark.server

PYTHON = Path(sys.executable).resolve()
SYSTEM = System(name="db", engine="postgres", host="h", provision="embedded", settings=(("fsync", "off"),))
needs_landlock = pytest.mark.skipif(landlock_version() == 0, reason="this kernel has no Landlock")


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    """Files of the agent's user in folders that other users can enter, and this process as the agent."""
    name = f"proveout-test-{secrets.token_hex(8)}"
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, socket.socket(socket.AF_UNIX) as listening:
        root = Path(folder)
        key, home, data = root / "pki" / "agent.key", root / "home", root / "data"
        for made in (root, key.parent, home, home / ".ssh", data):
            made.mkdir(exist_ok=True)
            made.chmod(0o755)
        listening.bind(f"\0{name}")
        listening.listen()
        yield Target(key=str(key), home=str(home), data=str(data), agent=os.getpid(), socket_name=name)


@pytest.fixture(scope="module")
def client() -> Iterator[SupervisorClient]:
    made = SupervisorClient(lambda _: None)
    yield made
    made.end()


def attempt(client: SupervisorClient, case: Escape, target: Target, reach: workspace.Access | None) -> int:
    """The exit status of an attempt as the agent's own user, the worst case."""
    for path, text in ((target.key, "secret"), (f"{target.home}/.ssh/authorized_keys", "")):
        Path(path).write_text(text)
        Path(path).chmod(0o600)
    shutil.rmtree(target.data)
    Path(target.data).mkdir()
    argv = [str(PYTHON), *program(case, target)]
    answer = client.request("run", argv=argv, environment={}, limit_s=20.0, identity="agent", access=reach)
    assert answer["status"] in {ESCAPED, REFUSED}, answer["output"]
    return int(answer["status"])


@needs_landlock
@pytest.mark.escape
@pytest.mark.parametrize("case", ESCAPES, ids=lambda case: case.name)
def test_an_escape_is_refused(case: Escape, client: SupervisorClient, target: Target) -> None:
    if case.since > landlock_version():
        pytest.skip(f"Landlock refuses this from version {case.since} on")
    if case.needs_root and os.geteuid() != 0:
        pytest.skip("an agent that is not root has no right to change its bounding set")
    reach = workspace.of_server(PYTHON, read=[], write=[Path(target.data)])
    assert attempt(client, case, target, reach) == REFUSED
    assert Path(target.key).read_text() == "secret"
    assert Path(target.home, ".ssh", "authorized_keys").read_text() == ""


@pytest.mark.parametrize("case", [case for case in ESCAPES if case.works], ids=lambda case: case.name)
def test_an_escape_succeeds_without_landlock(case: Escape, client: SupervisorClient, target: Target) -> None:
    """Check of the attempts: the refusals above are Landlock's, not errors in the attempts."""
    assert attempt(client, case, target, None) == ESCAPED


def test_a_server_may_use_its_own_files_and_a_helper_may_run_programs(client: SupervisorClient, target: Target) -> None:
    """Check of the confinement: permitted operations work, so the attempts are refused for their targets."""
    own = Escape(
        "own",
        "os.mkdir(data + '/a'); open(data + '/a/f', 'w').write('x'); os.rename(data + '/a/f', data + '/g');"
        " os.truncate(data + '/g', 0); socket.socket(socket.AF_UNIX).bind(data + '/s'); open('/dev/null', 'w').write('x')",
    )
    assert attempt(client, own, target, workspace.of_server(PYTHON, read=[], write=[Path(target.data)])) == ESCAPED
    shell = next(case for case in ESCAPES if case.name == "run-shell")
    assert attempt(client, shell, target, workspace.of_helper(PYTHON, write=[])) == ESCAPED


@needs_landlock
def test_a_postgres_reaches_nothing_of_the_host_and_works(tmp_path: Path, package_folder: Path) -> None:
    """As superuser: the rights of the plan's role are a separate line of defence. Parallel queries and checkpoints
    work."""
    file = package_folder / "readable"
    file.write_text("of the host")
    file.chmod(0o644)
    server = Server(SYSTEM, tmp_path)
    try:
        superuser = make_conninfo(roles.administration(server.start()), options="")
        rows = (line.partition(":") for line in Path(f"/proc/{server.pid}/status").read_text().splitlines())
        status = {name: value.strip() for name, _, value in rows}
        privileges = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb") if os.geteuid() == 0 else ("CapEff",)
        assert [int(status[name], 16) for name in privileges] == [0] * len(privileges)
        assert status["NoNewPrivs"] == "1"
        with psycopg.connect(superuser, autocommit=True) as connection:
            connection.execute("CREATE TABLE t AS SELECT generate_series(1, 30000) AS n")
            connection.execute("CREATE TABLE loot (line text)")
            for attempted in (
                "COPY loot FROM PROGRAM 'id'",
                f"COPY loot FROM '{file}'",
                f"SELECT pg_read_file('{file}')",
                "COPY loot TO '/tmp/proveout-escape'",
            ):
                with pytest.raises(psycopg.Error):
                    connection.execute(attempted)
            assert connection.execute("SELECT count(*) FROM loot").fetchone() == (0,)
            connection.execute(
                "SET max_parallel_workers_per_gather = 4; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;"
                "SET min_parallel_table_scan_size = 0; SET debug_parallel_query = on; SET work_mem = '64kB'"
            )
            plan = connection.execute("EXPLAIN (ANALYZE) SELECT count(DISTINCT n), sum(n) FROM t").fetchall()
            assert any("Workers Launched" in line for (line,) in plan)
            connection.execute("CREATE INDEX ON t (n)")
            connection.execute("CHECKPOINT")
    finally:
        server.close(keep_data=False)


@pytest.mark.parametrize(
    ("policy", "code"),
    [(Policy(), "refused"), (Policy(provision_as_agent_user=True), None), (Policy(own=True), None)],
    ids=["permanent", "permitted", "local"],
)
async def test_the_policy_decides_whether_the_agents_own_user_runs_a_server(
    task_context: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: Policy, code: str | None
) -> None:
    """On a kernel without Landlock. If the agent is root, the server's own user protects the agent."""
    monkeypatch.setattr(handlers, "choose_account", lambda: None)
    monkeypatch.setattr(handlers, "landlock_version", lambda: 0)
    task_context.policy = policy
    if code is None:
        handlers.provision(task_context, SYSTEM, tmp_path)
        assert [level for level, _ in task_context.logs] == ["warning"]
        return
    with pytest.raises(TaskFault) as raised:
        await handlers.start_system(task_context, StartSystem(system=SYSTEM, data_root=str(tmp_path)))
    assert raised.value.code == code
    assert "provision_as_agent_user: true" in raised.value.way_out
    assert not list(tmp_path.iterdir())


WITHOUT_LANDLOCK = """
import ctypes, struct, sys
from pathlib import Path
from proveout.agent.engines.embedded import confinement
from proveout.agent.engines.postgres.provision import Server
from proveout.dsl.plan.topology import System

# A kernel without Landlock: landlock_create_ruleset gives ENOSYS. struct sock_filter: code, jt, jf, k.
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, confinement.CREATE_RULESET), (0x06, 0, 0, 0x00050000 | 38), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
assert confinement.LIBC.prctl(38, 1, 0, 0, 0) == 0 and confinement.LIBC.prctl(22, 2, program, 0, 0) == 0
assert confinement.landlock_version() == 0
settings = (("fsync", "off"),)
server = Server(System(name="db", engine="postgres", host="h", provision="embedded", settings=settings), Path(sys.argv[1]))
server.start()
server.close(keep_data=False)
"""


def test_a_server_starts_on_a_kernel_without_landlock(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", WITHOUT_LANDLOCK, str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

"""Confinement of a database server on its host: attempts of a compromised server to reach what is outside are refused,
and a server works.

`program(case, …)` gives the arguments of a Python interpreter that runs in the server's place, with the server's
identity and access: what native code in the server could do, so it needs no SQL and no role. It exits with `REFUSED`
when the attempt raises OSError, with `ESCAPED` when it succeeds; any other status is an error of the test. Names in the
code: `key` (a private key of the agent's user, 0600), `home` (that user's home directory, with `.ssh/authorized_keys`),
`data` (the server's own data), `agent` (the agent's process id), `socket_name` (an abstract unix socket on which the
agent listens).
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import psycopg
import pytest
from embedded_servers import ask, embedded, status_of, system
from psycopg.conninfo import make_conninfo

from proveout.agent.engines import handlers
from proveout.agent.engines.embedded import workspace
from proveout.agent.engines.embedded.confinement import landlock_version
from proveout.agent.engines.embedded.workspace import SupervisorClient
from proveout.agent.engines.postgres import roles
from proveout.agent.errors import TaskFault
from proveout.agent.security.policy import Policy
from proveout.proto.wire.tasks import StartSystem

pytestmark = pytest.mark.server

PYTHON = Path(sys.executable).resolve()
needs_landlock = pytest.mark.skipif(landlock_version() == 0, reason="this kernel has no Landlock")
ESCAPED, REFUSED = 0, 10


class Escape(NamedTuple):
    """An attempt; `since` is the version of Landlock that refuses it, 0 when none is needed.

    `works`: whether the agent's user can do it without Landlock, with no capabilities and no_new_privs. `needs_root`:
    whether only an agent that is root can refuse it.
    """

    name: str
    code: str
    since: int = 1
    works: bool = True
    needs_root: bool = False


ESCAPES = (
    Escape("read-key", "open(key).read()"),
    Escape("read-key-by-root-link", "open('/proc/self/root' + key).read()"),
    Escape("read-key-by-link", "os.symlink(key, data + '/link'); open(data + '/link').read()"),
    Escape("link-key", "os.link(key, data + '/hard'); open(data + '/hard').read()"),
    Escape("move-key", "os.rename(key, data + '/moved')"),
    Escape("list-keys", "os.listdir(os.path.dirname(key))"),
    Escape("remove-key", "os.unlink(key)"),
    Escape("cut-key", "os.truncate(key, 0)", since=3),
    Escape("read-home", "os.listdir(home)"),
    Escape("append-authorized-keys", "open(home + '/.ssh/authorized_keys', 'a').write('ssh-ed25519 AAAA')"),
    Escape("add-startup-file", "open(home + '/.profile', 'x').write('id')"),
    Escape("add-in-tmp", "os.close(os.open('/tmp', os.O_TMPFILE | os.O_RDWR))"),
    Escape("add-in-shm", "os.close(os.open('/dev/shm', os.O_TMPFILE | os.O_RDWR))"),
    Escape("make-device", "os.mknod(data + '/d', 0o600 | stat.S_IFBLK, 0)", since=0, works=False),
    Escape("run-shell", "os.execv('/bin/sh', ['sh', '-c', 'exit 0'])"),
    Escape(
        "run-set-uid", "os.execv(next(p for p in ('/usr/bin/su', '/bin/su') if os.path.exists(p)), ['su', '--version'])"
    ),
    Escape(
        "run-own-file",
        "shutil.copy('/bin/true', data + '/own'); os.chmod(data + '/own', 0o700); os.execv(data + '/own', ['own'])",
    ),
    Escape("read-environment", "open(f'/proc/{agent}/environ', 'rb').read()", works=False),
    Escape("read-memory", "open(f'/proc/{agent}/mem', 'rb')", works=False),
    Escape("read-command-line", "open(f'/proc/{agent}/cmdline').read()"),
    # PTRACE_SEIZE
    Escape("trace-agent", "called(libc.ptrace(0x4206, agent, None, None))", works=False),
    Escape("signal-agent", "os.kill(agent, 0)", since=6),
    Escape("connect-abstract", "socket.socket(socket.AF_UNIX).connect('\\0' + socket_name)", since=6),
    Escape("listen-tcp", "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()", since=4),
    Escape(
        "inherited-files",
        textwrap.dedent("""
            for number in range(3, 1024):
                try:
                    os.fstat(number)
                except OSError:
                    continue
                sys.exit(0)
            raise OSError
        """),
        since=0,
        works=False,
    ),
    # PR_GET_NO_NEW_PRIVS: a set-uid program could raise privileges
    Escape("gain-privileges", "called(-libc.prctl(39, 0, 0, 0, 0))", since=0, works=False),
    # PR_CAPBSET_READ
    Escape(
        "bounding-set",
        "called(max(libc.prctl(23, number, 0, 0, 0) for number in range(64)) - 1)",
        since=0,
        works=False,
        needs_root=True,
    ),
    Escape("become-root", "libc.setuid(0); open('/etc/shadow').read()", works=False),
)

PROGRAM = """
import ctypes, os, shutil, socket, stat, sys
libc = ctypes.CDLL(None, use_errno=True)
def called(status):
    if status < 0:
        raise OSError(ctypes.get_errno(), "refused")
key, home, data, agent, socket_name = {values!r}
try:
{code}
except OSError:
    sys.exit(10)
sys.exit(0)
"""


@pytest.fixture(scope="module")
def target() -> Iterator[SimpleNamespace]:
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
        paths = {"key": str(key), "home": str(home), "data": str(data)}
        yield SimpleNamespace(**paths, agent=os.getpid(), socket_name=name)


@pytest.fixture(scope="module")
def client() -> Iterator[SupervisorClient]:
    made = SupervisorClient(lambda _: None)
    yield made
    made.end()


def attempt(client: SupervisorClient, case: Escape, target: SimpleNamespace, reach: workspace.Access | None) -> int:
    """The exit status of an attempt as the agent's own user, the worst case."""
    for path, text in ((target.key, "secret"), (f"{target.home}/.ssh/authorized_keys", "")):
        Path(path).write_text(text)
        Path(path).chmod(0o600)
    shutil.rmtree(target.data)
    Path(target.data).mkdir()
    code = PROGRAM.format(values=tuple(vars(target).values()), code=textwrap.indent(case.code, "    "))
    argv = [str(PYTHON), "-I", "-S", "-c", code]
    answer = client.request("run", argv=argv, environment={}, limit_s=20.0, identity="agent", access=reach)
    assert answer["status"] in {ESCAPED, REFUSED}, answer["output"]
    return int(answer["status"])


@needs_landlock
@pytest.mark.escape
@pytest.mark.parametrize("case", ESCAPES, ids=lambda case: case.name)
def test_an_escape_is_refused(case: Escape, client: SupervisorClient, target: SimpleNamespace) -> None:
    if case.since > landlock_version():
        pytest.skip(f"Landlock refuses this from version {case.since} on")
    if case.needs_root and os.geteuid() != 0:
        pytest.skip("an agent that is not root has no right to change its bounding set")
    reach = workspace.of_server(PYTHON, read=[], write=[Path(target.data)])
    assert attempt(client, case, target, reach) == REFUSED
    assert Path(target.key).read_text() == "secret"
    assert Path(target.home, ".ssh", "authorized_keys").read_text() == ""


@pytest.mark.parametrize("case", [case for case in ESCAPES if case.works], ids=lambda case: case.name)
def test_an_escape_succeeds_without_landlock(case: Escape, client: SupervisorClient, target: SimpleNamespace) -> None:
    """Check of the attempts: the refusals above are Landlock's, not errors in the attempts."""
    assert attempt(client, case, target, None) == ESCAPED


def test_a_server_may_use_its_own_files_and_a_helper_may_run_programs(
    client: SupervisorClient, target: SimpleNamespace
) -> None:
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
    with embedded(tmp_path) as server:
        superuser = make_conninfo(roles.administration(server.start()), options="")
        status = status_of(server.pid)
        privileges = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb") if os.geteuid() == 0 else ("CapEff",)
        assert [int(status[name], 16) for name in privileges] == [0] * len(privileges)
        assert status["NoNewPrivs"] == "1"
        ask(superuser, "CREATE TABLE t AS SELECT generate_series(1, 30000) AS n", "CREATE TABLE loot (line text)")
        for attempted in (
            "COPY loot FROM PROGRAM 'id'",
            f"COPY loot FROM '{file}'",
            f"SELECT pg_read_file('{file}')",
            "COPY loot TO '/tmp/proveout-escape'",
        ):
            with pytest.raises(psycopg.Error):
                ask(superuser, attempted)
        assert ask(superuser, "SELECT count(*) FROM loot") == [(0,)]
        plan = ask(
            superuser,
            "SET max_parallel_workers_per_gather = 4; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;"
            "SET min_parallel_table_scan_size = 0; SET debug_parallel_query = on; SET work_mem = '64kB'",
            "EXPLAIN (ANALYZE) SELECT count(DISTINCT n), sum(n) FROM t",
        )
        assert any("Workers Launched" in line for (line,) in plan)
        ask(superuser, "CREATE INDEX ON t (n)", "CHECKPOINT")


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
        handlers.provision(task_context, system(), tmp_path)
        assert [level for level, _ in task_context.logs] == ["warning"]
        return
    with pytest.raises(TaskFault) as raised:
        await handlers.start_system(task_context, StartSystem(system=system(), data_root=str(tmp_path)))
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

"""An embedded MySQL system on the host's MariaDB: settings, snapshots, checkpoints, crashes, and settings that a plan
cannot set."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from proveout.agent.engines import handlers
from proveout.agent.engines.driver_contract import StatementFailure
from proveout.agent.engines.mysql import provision as embedded_mysql
from proveout.agent.engines.mysql import sql as mysql_statements
from proveout.agent.engines.mysql.driver import MysqlDriver
from proveout.agent.errors import TaskFault
from proveout.dsl.plan.topology import System
from proveout.dsl.rules.mysql_settings import CODE, OWN, objection
from proveout.proto.wire.tasks import (
    Checkpoint,
    Endpoint,
    InspectSystem,
    RunSql,
    SnapshotSystem,
    StartSystem,
    StopSystem,
)

pytestmark = pytest.mark.server

PATIENCE_S = 60.0


def system(*settings: tuple[str, str]) -> System:
    return System(name="my", engine="mysql", host="h", provision="embedded", settings=settings)


async def start(context: Any, root: Path, *settings: tuple[str, str]) -> Any:
    return await handlers.start_system(context, StartSystem(system=system(*settings), data_root=str(root)))


async def run(context: Any, endpoint: Endpoint, *statements: str) -> tuple[int, ...]:
    return (await handlers.run_sql(context, RunSql(endpoint=endpoint, statements=statements))).counts


async def snapshot(context: Any, root: Path, action: Any) -> None:
    await handlers.snapshot_system(context, SnapshotSystem(system=system(), data_root=str(root), action=action))


@pytest.mark.usefixtures("mysql_server")  # skips without a server
async def test_a_session_from_its_start_to_its_end(task_context: Any, tmp_path: Path) -> None:
    """Settings take effect, kept data survives the session, a snapshot restores it, and nothing is left after removal."""
    started = await start(task_context, tmp_path, ("innodb_flush_log_at_trx_commit", "2"), ("max_connections", "77"))
    endpoint = started.endpoint
    assert started.fresh
    settings = dict(started.settings)
    assert (settings["innodb_flush_log_at_trx_commit"], settings["max_connections"]) == ("2", "77")
    assert endpoint.version in settings["version"]
    assert endpoint.version[:3] not in {"", "5.5"}
    with pytest.raises(TaskFault, match="no saved state"):
        await snapshot(task_context, tmp_path, "restore")
    assert await run(task_context, endpoint, "CREATE TABLE t (n int)", "INSERT INTO t VALUES (1), (2)") == (0, 2)
    await snapshot(task_context, tmp_path, "save")
    assert await run(task_context, endpoint, "DELETE FROM t", "SELECT * FROM t") == (2, 0)
    await snapshot(task_context, tmp_path, "restore")
    assert await run(task_context, endpoint, "SELECT * FROM t") == (2,)
    await task_context.close(keep_data=True)
    with pytest.raises(StatementFailure):
        MysqlDriver().connect(endpoint.dsn)
    again = await start(task_context, tmp_path)
    assert not again.fresh
    assert await run(task_context, again.endpoint, "SELECT * FROM t") == (2,)
    with pytest.raises(StatementFailure) as raised:  # each session has a new password
        MysqlDriver().connect(endpoint.dsn)
    assert "proveout" not in raised.value.what.partition("mysqld.sock")[2]
    await handlers.stop_system(task_context, StopSystem(system="my", data_root=str(tmp_path), remove=True))
    assert [file.name for file in (tmp_path / "my").iterdir()] == ["server.log"]


@pytest.mark.usefixtures("mysql_server")
async def test_temporary_tables_of_other_servers_are_left_alone(task_context: Any, tmp_path: Path) -> None:
    """A MariaDB at its start removes files that look like its own temporary tables from the folder for them."""
    others = Path(f"/tmp/#sql-temptable-{os.getpid():x}-ffff-1.MAI")
    others.touch()
    try:
        await start(task_context, tmp_path)
        assert others.exists()
    finally:
        others.unlink(missing_ok=True)
        await task_context.close(keep_data=False)
    assert not list((tmp_path / "my").glob("data*"))


async def test_a_checkpoint_leaves_no_dirty_pages_and_the_setting_as_it_was(
    task_context: Any, own_mysql: embedded_mysql.Server
) -> None:
    endpoint = Endpoint(system="shared", engine="mysql", dsn=own_mysql.dsn)
    query = "SELECT 1 FROM dual WHERE @@global.innodb_max_dirty_pages_pct > 0"
    before = await run(task_context, endpoint, query)
    await run(task_context, endpoint, "CREATE TABLE t (n int)", "INSERT INTO t SELECT seq FROM seq_1_to_200000")
    await handlers.checkpoint(task_context, Checkpoint(endpoint=endpoint))
    dirty = (
        "SELECT 1 FROM information_schema.global_status WHERE variable_name = 'INNODB_BUFFER_POOL_PAGES_DIRTY'"
        f" AND variable_value <= {mysql_statements.DIRTY_PAGES_LEFT}"
    )
    assert await run(task_context, endpoint, dirty, query) == (1, *before)


async def test_an_external_server_is_inspected(task_context: Any, mysql_database: str) -> None:
    given = Endpoint(system="theirs", engine="mysql", dsn=mysql_database)
    found = await handlers.inspect_system(task_context, InspectSystem(endpoint=given))
    assert dict(found.settings)["version"] == found.endpoint.version
    assert not found.fresh


async def test_refusals_quote_the_server_s_message_and_no_password(task_context: Any, mysql_database: str) -> None:
    right = Endpoint(system="theirs", engine="mysql", dsn=mysql_database)
    with pytest.raises(TaskFault, match=r"nowhere.*MySQL error 1146") as raised:
        await run(task_context, right, "SELECT * FROM nowhere")
    assert raised.value.code == "refused"
    wrong = Endpoint(system="theirs", engine="mysql", dsn=mysql_database.replace("proveout:", "proveout:hunter2"))
    with pytest.raises(TaskFault, match="Access denied") as raised:
        await run(task_context, wrong, "SELECT 1")
    assert raised.value.code == "refused"
    assert "hunter2" not in str(raised.value)
    nobody = Endpoint(system="theirs", engine="mysql", dsn="mysql://x:hunter2@127.0.0.1:1/none")
    with pytest.raises(TaskFault, match="Connection refused") as raised:
        await run(task_context, nobody, "SELECT 1")
    assert (raised.value.code, "hunter2" in str(raised.value)) == ("unreachable", False)


@pytest.mark.usefixtures("mysql_server")
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [("innodb_no_such_setting", "1", "unknown variable"), ("innodb_page_size", "apples", "innodb.page.size")],
)
async def test_a_setting_that_the_server_refuses_is_a_fault(
    task_context: Any, tmp_path: Path, name: str, value: str, words: str
) -> None:
    with pytest.raises(TaskFault, match=words) as caught:
        await start(task_context, tmp_path, (name, value))
    assert caught.value.code == "invalid"


@pytest.mark.usefixtures("mysql_server")
async def test_a_killed_server_is_reported_and_can_be_started_again(task_context: Any, tmp_path: Path) -> None:
    server = embedded_mysql.Server(system(), tmp_path)
    try:
        endpoint = server.start()
        await run(task_context, endpoint, "CREATE TABLE t (n int)", "INSERT INTO t VALUES (1)")
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE_S
        while server.death is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert "SIGKILL" in server.death
        with pytest.raises(TaskFault, match="is gone"):
            server.save_snapshot()
        assert await run(task_context, server.start(), "SELECT * FROM t") == (1,)
    finally:
        server.close(keep_data=False)


@pytest.mark.usefixtures("mysql_server")
def test_nothing_is_left_of_a_session(tmp_path: Path) -> None:
    server = embedded_mysql.Server(system(), tmp_path)
    server.start()
    pid, session, data = server.pid, Path(server.dsn.partition("unix_socket=")[2]).parents[1], server.data
    assert pid is not None
    assert session.is_dir()
    assert Path(f"/proc/{pid}").exists()
    assert session.stat().st_mode & 0o777 == 0o711
    assert (session / "socket").stat().st_mode & 0o777 == (0o750 if os.geteuid() == 0 else 0o700)
    if os.geteuid() == 0:
        assert Path(f"/proc/{pid}").stat().st_uid >= 60_000
    server.close(keep_data=False)
    assert not Path(f"/proc/{pid}").exists()
    assert not session.exists()
    assert not data.exists()


def runs(pid: str) -> bool:
    """Whether the process runs and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


STARTER = """
import sys, time
from pathlib import Path
from proveout.agent.engines.mysql.provision import Server
from proveout.dsl.plan.topology import System
server = Server(System(name="my", engine="mysql", host="h", provision="embedded"), Path(sys.argv[1]))
endpoint = server.start()
print(server.pid, server.supervisor_pid, endpoint.dsn.partition("unix_socket=")[2], flush=True)
time.sleep(600)
"""


@pytest.mark.usefixtures("mysql_server")
@pytest.mark.parametrize("victim", ["agent", "supervisor"])
def test_a_killed_agent_or_supervisor_leaves_no_server(tmp_path: Path, victim: str) -> None:
    """The data is intact: another session starts on it."""
    argv = [sys.executable, "-c", STARTER, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        try:
            pid, supervisor, socket = agent.stdout.readline().split()
            os.kill(agent.pid if victim == "agent" else int(supervisor), signal.SIGKILL)
            deadline = time.monotonic() + PATIENCE_S
            while runs(pid):
                assert time.monotonic() < deadline, "the server outlives its session"
                time.sleep(0.05)
        finally:
            agent.kill()
    while victim == "agent" and Path(socket).parents[1].exists():
        assert time.monotonic() < deadline, "the session's folder is left"
        time.sleep(0.05)
    server = embedded_mysql.Server(system(), tmp_path)
    try:
        assert server.start().version
        assert not server.fresh
    finally:
        server.close(keep_data=False)


def test_the_error_on_a_host_without_mariadb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(embedded_mysql, "FOLDERS", (str(tmp_path),))
    with pytest.raises(TaskFault, match="no MariaDB server") as caught:
        embedded_mysql.Server(system(), tmp_path)
    assert (caught.value.code, "apt-get install" in caught.value.way_out) == ("missing", True)


@pytest.mark.parametrize(
    "name",
    [
        *sorted(OWN),
        *sorted(CODE),
        "datadi",
        "loose_plugin_load",
        "PORT",
        "plugin_load_add_more",
        "innodb-data-file-path",
        "innodb_data_h",
        "aria_log_d",
        "ft_stopword_file",
        "des_key_file",
        "character_sets_dir",
        "ssl_key",
        "log_tc",
        "feedback_url",
        "wsrep_data_home_dir",
        "report_host",
        "no_such_setting",
        "key_cache.key_buffer_size",
        "loose_innodb_tmpdir",
    ],
)
def test_forbidden_settings_are_refused(name: str, tmp_path: Path) -> None:
    assert objection(name, "1")
    with pytest.raises(TaskFault):
        embedded_mysql.configuration(((name, "1"),), tmp_path, tmp_path)


@pytest.mark.parametrize(
    "name", ["innodb_buffer_pool_size", "max_connections", "log_bin", "sync_binlog", "tmp_table_size", "sql_mode"]
)
def test_permitted_settings_are_accepted(name: str, tmp_path: Path) -> None:
    assert objection(name) is None
    assert f"\n{name} = 1\n" in embedded_mysql.configuration(((name, "1"),), tmp_path, tmp_path)


def test_a_setting_s_value_cannot_add_lines(tmp_path: Path) -> None:
    with pytest.raises(TaskFault, match="cannot be written"):
        embedded_mysql.configuration((("sql_mode", "x\nplugin_dir=/tmp"),), tmp_path, tmp_path)

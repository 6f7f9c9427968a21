"""An embedded MySQL system on the host's MariaDB: settings, snapshots, checkpoints, crashes, and settings that a plan
cannot set."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from eventually import eventually

from proveout.agent.engines import handlers
from proveout.agent.engines.driver_contract import StatementFailure
from proveout.agent.engines.mysql import provision as embedded_mysql
from proveout.agent.engines.mysql import sql as mysql_statements
from proveout.agent.engines.mysql.driver import MysqlDriver
from proveout.agent.errors import TaskFault
from proveout.dsl.plan.topology import System
from proveout.dsl.rules.mysql_settings import CODE, OWN, objection
from proveout.proto.wire.tasks import Checkpoint, Endpoint, RunSql, StartSystem

pytestmark = pytest.mark.server


def system(*settings: tuple[str, str]) -> System:
    return System(name="my", engine="mysql", host="h", provision="embedded", settings=settings)


async def start(context: Any, root: Path, *settings: tuple[str, str]) -> Any:
    return await handlers.start_system(context, StartSystem(system=system(*settings), data_root=str(root)))


async def run(context: Any, endpoint: Endpoint, *statements: str) -> tuple[int, ...]:
    return (await handlers.run_sql(context, RunSql(endpoint=endpoint, statements=statements))).counts


@pytest.mark.usefixtures("mysql_server")  # skips without a server
async def test_a_start_leaves_temporary_tables_of_other_servers_and_makes_a_new_password(
    task_context: Any, tmp_path: Path
) -> None:
    """A MariaDB at its start removes files that look like its own temporary tables from the folder for them."""
    others = Path(f"/tmp/#sql-temptable-{os.getpid():x}-ffff-1.MAI")
    others.touch()
    endpoint = (await start(task_context, tmp_path)).endpoint
    assert others.exists()
    others.unlink()
    await task_context.close(keep_data=True)
    await start(task_context, tmp_path)
    with pytest.raises(StatementFailure) as raised:
        MysqlDriver().connect(endpoint.dsn)
    assert "proveout" not in raised.value.what.partition("mysqld.sock")[2]


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


@pytest.mark.usefixtures("mysql_server")
async def test_a_killed_server_is_reported_and_started_again_and_nothing_is_left_of_its_session(
    task_context: Any, tmp_path: Path
) -> None:
    server = embedded_mysql.Server(system(), tmp_path)
    try:
        endpoint = server.start()
        await run(task_context, endpoint, "CREATE TABLE t (n int)", "INSERT INTO t VALUES (1)")
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        assert "SIGKILL" in eventually(lambda: server.death, "the report of the death")
        with pytest.raises(TaskFault, match="is gone"):
            server.save_snapshot()
        assert await run(task_context, server.start(), "SELECT * FROM t") == (1,)
        process, session = Path(f"/proc/{server.pid}"), Path(server.dsn.partition("unix_socket=")[2]).parents[1]
        assert process.exists()
        assert session.stat().st_mode & 0o777 == 0o711
        assert (session / "socket").stat().st_mode & 0o777 == (0o750 if os.geteuid() == 0 else 0o700)
        if os.geteuid() == 0:
            assert process.stat().st_uid >= 60_000
    finally:
        server.close(keep_data=False)
    assert not process.exists()
    assert not session.exists()
    assert not server.data.exists()


STARTER = """
import sys, time
from pathlib import Path
from proveout.agent.engines.mysql.provision import Server
from proveout.dsl.plan.topology import System
server = Server(System(name="my", engine="mysql", host="h", provision="embedded"), Path(sys.argv[1]))
endpoint = server.start()
print(server.pid, endpoint.dsn.partition("unix_socket=")[2], flush=True)
time.sleep(600)
"""


@pytest.mark.usefixtures("mysql_server")
def test_a_killed_agent_leaves_no_server(tmp_path: Path) -> None:
    """The data is intact: another session starts on it."""
    argv = [sys.executable, "-c", STARTER, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        pid, socket = agent.stdout.readline().split()
        agent.kill()
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "the end of the server")
    eventually(lambda: not Path(socket).parents[1].exists(), "the removal of the session's folder")
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
        "datadi",
        "loose_plugin_load",
        "PORT",
        "plugin_load_add_more",
        "innodb-data-file-path",
        "innodb_data_h",
        "ft_stopword_file",
        "ssl_key",
        "log_tc",
        "wsrep_data_home_dir",
        "no_such_setting",
        "key_cache.key_buffer_size",
        "loose_innodb_tmpdir",
    ],
)
def test_settings_that_could_leave_the_confinement_are_refused(name: str, tmp_path: Path) -> None:
    assert objection(name, "1")
    with pytest.raises(TaskFault):
        embedded_mysql.configuration(((name, "1"),), tmp_path, tmp_path)


def test_settings_of_ours_and_of_code_are_refused_and_others_cannot_add_lines(tmp_path: Path) -> None:
    assert [name for name in OWN | CODE if objection(name) is None] == []
    names = ("innodb_buffer_pool_size", "max_connections", "log_bin", "sync_binlog", "tmp_table_size", "sql_mode")
    made = embedded_mysql.configuration(tuple((name, "1") for name in names), tmp_path, tmp_path)
    assert [name for name in names if f"\n{name} = 1\n" not in made] == []
    with pytest.raises(TaskFault, match="cannot be written"):
        embedded_mysql.configuration((("sql_mode", "x\nplugin_dir=/tmp"),), tmp_path, tmp_path)

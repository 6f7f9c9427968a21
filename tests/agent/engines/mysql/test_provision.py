"""An embedded MySQL system on the host's MariaDB: settings, snapshots, checkpoints, crashes, and settings that a plan
cannot set."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from eventually import eventually

from proveout.agent.engines import handlers
from proveout.agent.engines.embedded.server import RIGHTS_WAY_OUT
from proveout.agent.engines.mysql import provision as embedded_mysql
from proveout.agent.engines.mysql import sql as mysql_statements
from proveout.agent.errors import TaskFault
from proveout.dsl.plan.topology import System
from proveout.dsl.rules.settings import CODE, OWN, mysql_objection
from proveout.proto.wire.tasks import Checkpoint, Endpoint, RunSql

pytestmark = pytest.mark.server


SYSTEM = System(name="my", engine="mysql", host="h", provision="embedded", settings=(("innodb_log_file_size", "8M"),))


async def run(context: Any, endpoint: Endpoint, *statements: str) -> tuple[int, ...]:
    return (await handlers.run_sql(context, RunSql(endpoint=endpoint, statements=statements))).counts


@pytest.mark.usefixtures("mariadb")
async def test_a_server_from_its_start_over_a_kill_to_its_removal(task_context: Any, tmp_path: Path) -> None:
    """A MariaDB at its start removes files that look like its own temporary tables from the folder for them: those of
    other servers stay. A checkpoint leaves no dirty pages, and the setting as it was."""
    others = Path(f"/tmp/#sql-temptable-{os.getpid():x}-ffff-1.MAI")
    others.touch()
    server = embedded_mysql.Server(SYSTEM, tmp_path)
    try:
        endpoint = server.start()
        assert others.exists()
        others.unlink()
        query = "SELECT 1 FROM dual WHERE @@global.innodb_max_dirty_pages_pct > 0"
        await run(task_context, endpoint, "CREATE TABLE t (n int)", "INSERT INTO t SELECT seq FROM seq_1_to_50000")
        await handlers.checkpoint(task_context, Checkpoint(endpoint=endpoint))
        dirty = (
            "SELECT 1 FROM information_schema.global_status WHERE variable_name = 'INNODB_BUFFER_POOL_PAGES_DIRTY'"
            f" AND variable_value <= {mysql_statements.DIRTY_PAGES_LEFT}"
        )
        assert await run(task_context, endpoint, dirty, query) == (1, 1)
        for statement, way_out in (("SET GLOBAL max_connections = 5", RIGHTS_WAY_OUT), ("SELEC", "")):
            with pytest.raises(TaskFault) as caught:
                await run(task_context, endpoint, statement)
            assert (caught.value.code, caught.value.way_out) == ("refused", way_out)
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        assert "SIGKILL" in eventually(lambda: server.death, "the report of the death")
        with pytest.raises(TaskFault, match="is gone"):
            server.save_snapshot()
        assert await run(task_context, server.start(), "SELECT * FROM t") == (50_000,)
        process, session = Path(f"/proc/{server.pid}"), Path(server.dsn.partition("unix_socket=")[2]).parents[1]
        rows = (line.partition(":") for line in (process / "status").read_text().splitlines())
        status = {name: value.strip() for name, _, value in rows}
        assert (int(status["CapEff"], 16), status["NoNewPrivs"]) == (0, "1")
        assert session.stat().st_mode & 0o777 == 0o711
        assert (session / "init.sql").stat().st_mode & 0o777 == 0o600, "it holds passwords"
        assert (session / "socket").stat().st_mode & 0o777 == (0o750 if os.geteuid() == 0 else 0o700)
        if os.geteuid() == 0:
            assert process.stat().st_uid >= 60_000
            assert int(status["CapBnd"], 16) == 0
    finally:
        server.close(keep_data=False)
    assert not process.exists()
    assert not session.exists()
    assert not server.data.exists()


def test_the_error_on_a_host_without_mariadb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(embedded_mysql, "FOLDERS", (str(tmp_path),))
    with pytest.raises(TaskFault, match="no MariaDB server") as caught:
        embedded_mysql.Server(SYSTEM, tmp_path)
    assert (caught.value.code, "apt-get install" in caught.value.way_out) == ("missing", True)


@pytest.mark.parametrize(
    "name",
    [
        "datadi",
        "loose_plugin_load",
        "PORT",
        "plugin_load_add_more",
        "innodb-data-file-path",
        "ssl_key",
        "wsrep_data_home_dir",
        "no_such_setting",
        "key_cache.key_buffer_size",
    ],
)
def test_settings_that_could_leave_the_confinement_are_refused(name: str, tmp_path: Path) -> None:
    assert mysql_objection(name, "1")
    with pytest.raises(TaskFault):
        embedded_mysql.configuration(((name, "1"),), tmp_path, tmp_path)


def test_settings_of_ours_and_of_code_are_refused_and_others_cannot_add_lines(tmp_path: Path) -> None:
    assert [name for name in OWN | CODE if mysql_objection(name) is None] == []
    names = ("innodb_buffer_pool_size", "max_connections", "log_bin", "sync_binlog", "tmp_table_size", "sql_mode")
    made = embedded_mysql.configuration(tuple((name, "1") for name in names), tmp_path, tmp_path)
    assert [name for name in names if f"\n{name} = 1\n" not in made] == []
    with pytest.raises(TaskFault, match="cannot be written"):
        embedded_mysql.configuration((("sql_mode", "x\nplugin_dir=/tmp"),), tmp_path, tmp_path)

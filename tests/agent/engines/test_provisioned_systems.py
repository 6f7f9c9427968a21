"""Systems that proveout starts, of every engine, from their start to their removal: settings, data that is kept, a
snapshot, refusals; what only PostgreSQL or MariaDB has of that; and systems with a dsn that cannot be used."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from embedded_servers import ask, embedded, status_of, system, value
from eventually import PATIENCE_S, eventually
from full_disks import fill, small_disk

from proveout.agent.engines import handlers
from proveout.agent.engines.embedded import account, data_store
from proveout.agent.engines.embedded import server as embedded_server
from proveout.agent.engines.embedded.server import RIGHTS_WAY_OUT
from proveout.agent.engines.mysql import provision as mysql
from proveout.agent.engines.mysql import sql as mysql_statements
from proveout.agent.engines.mysql.sql import DIRTY_PAGES_LEFT
from proveout.agent.engines.postgres import installation as programs
from proveout.agent.engines.postgres import roles
from proveout.agent.errors import TaskFault
from proveout.agent.sandbox import privileges
from proveout.dsl.rules.settings import CODE, OWN, mysql_objection
from proveout.proto.wire.results import SystemStarted
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
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="another user's reach is only in question for root")


@dataclass(frozen=True, kw_only=True)
class Case:
    """An engine: settings that it takes and how it shows them, one that it does not take with words of the fault."""

    engine: str
    settings: tuple[tuple[str, str], ...]
    shown: dict[str, str]
    refused: tuple[str, str, str]
    left: tuple[str, ...] = ()
    """The files that stay after the removal."""


CASES = (
    Case(
        engine="postgres",
        settings=(("work_mem", "5MB"), ("cluster_name", "it's \\ ok")),
        shown={"work_mem": "5MB", "cluster_name": "it's \\ ok"},
        refused=("work_mem", "lots", 'invalid value for parameter "work_mem": "lots"'),
        left=("server.log",),
    ),
    Case(
        engine="mysql",
        settings=(("max_connections", "77"),),
        shown={"innodb_flush_log_at_trx_commit": "2", "max_connections": "77"},
        refused=("innodb_no_such_setting", "1", "unknown variable"),
        left=("server.log",),
    ),
    Case(
        engine="sqlite",
        settings=(("page_size", "8192"), ("auto_vacuum", "incremental")),
        shown={"page_size": "8192", "auto_vacuum": "2", "journal_mode": "wal"},
        refused=("synchronous", "FULL", "not one that an SQLite file keeps"),
    ),
    Case(
        engine="duckdb",
        settings=(("threads", "1"), ("memory_limit", "256MiB")),
        shown={"threads": "1", "memory_limit": "256.0 MiB"},
        refused=("temp_directory", "/etc", "not a setting of DuckDB"),
    ),
)


@pytest.fixture(params=CASES, ids=lambda case: case.engine)
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Case:
    found: Case = request.param
    if found.engine == "mysql":
        request.getfixturevalue("mariadb")  # skips without a server
    elif found.engine != "postgres":  # as in an agent without privileges, and in the helper of one that has some
        monkeypatch.setattr(privileges, "account", lambda: None)
    return found


async def run(context: Any, endpoint: Endpoint, *statements: str) -> tuple[int, ...]:
    return (await handlers.run_sql(context, RunSql(endpoint=endpoint, statements=statements))).counts


async def test_a_system_from_its_start_to_its_removal(case: Case, task_context: Any, tmp_path: Path) -> None:
    described, root = system(case.engine, *case.settings), str(tmp_path)

    async def start() -> SystemStarted:
        return await handlers.start_system(task_context, StartSystem(system=described, data_root=root))

    async def snapshot(action: Any) -> None:
        await handlers.snapshot_system(task_context, SnapshotSystem(system=described, data_root=root, action=action))

    started = await start()
    endpoint, shown = started.endpoint, dict(started.settings)
    assert (started.fresh, {name: shown[name] for name in case.shown}) == (True, case.shown)
    assert not {"data_directory", "primary_conninfo"} & shown.keys()
    inspected = await handlers.inspect_system(task_context, InspectSystem(endpoint=endpoint))
    assert inspected.endpoint.version == endpoint.version != ""
    assert (await start()).endpoint == endpoint, "it runs already"
    with pytest.raises(TaskFault, match="no saved state") as caught:
        await snapshot("restore")
    assert caught.value.code == "missing"
    assert await run(task_context, endpoint, "CREATE TABLE t (n int)", "INSERT INTO t VALUES (1), (2)") == (0, 2)
    await handlers.checkpoint(task_context, Checkpoint(endpoint=endpoint))
    await snapshot("save")
    assert await run(task_context, endpoint, "DELETE FROM t", "SELECT * FROM t") == (2, 0)
    await snapshot("restore")
    assert await run(task_context, endpoint, "SELECT * FROM t") == (2,)
    with pytest.raises(TaskFault, match="nowhere") as caught:
        await run(task_context, endpoint, "SELECT * FROM nowhere")
    assert caught.value.code == "refused"
    if case.engine in {"postgres", "mysql"}:  # an agent, or a coordinator, that was killed before it had the answer
        await task_context.close(keep_data=True)
        assert (await start()).fresh
        task_context.resources["system:db"].answered()
    await task_context.close(keep_data=True)
    again = await start()
    assert not again.fresh
    assert await run(task_context, again.endpoint, "SELECT * FROM t") == (2,)
    await handlers.stop_system(task_context, StopSystem(system="db", data_root=root, remove=True))
    assert not task_context.resources
    assert tuple(file.name for file in tmp_path.rglob("*") if file.is_file()) == case.left


async def test_a_setting_that_a_system_does_not_take_is_a_fault(case: Case, task_context: Any, tmp_path: Path) -> None:
    *setting, words = case.refused
    spec = StartSystem(system=system(case.engine, tuple(setting)), data_root=str(tmp_path))  # type: ignore[arg-type]
    with pytest.raises(TaskFault) as caught:
        await handlers.start_system(task_context, spec)
    assert (caught.value.code, words in caught.value.what) == ("invalid", True)


@pytest.mark.parametrize("by", ["", "b"])
async def test_a_primary_whose_standby_was_promoted_is_reported_and_not_asked(by: str, task_context: Any) -> None:
    async def answer(given: Any) -> Any:
        return given

    end = Endpoint(system="db", engine="postgres", dsn="d")
    system_of_ours: Any = SimpleNamespace(
        fresh=True,
        death=None,
        note="a copy",
        superseded_by=by,
        start=lambda: answer(end),
        close=lambda **_: answer(None),
    )
    spec = StartSystem(system=system(), data_root="/")
    settings = (("fsync", "off"),)
    started = await handlers.start_system(task_context, spec, lambda *_: system_of_ours, lambda _: answer(settings))
    found = (started.superseded_by, started.fresh, started.note, started.settings)
    assert found == (("b", False, "", ()) if by else ("", True, "a copy", settings))


@pytest.mark.parametrize(
    ("engine", "old", "new", "code", "words"),
    [
        ("postgres", "password=", "password=canary-1b2e", "refused", "wrong password, or no user"),
        ("postgres", "dbname=", "dbname=nowhere_", "refused", 'database "nowhere_'),
        ("postgres", None, "host=127.0.0.1 port=9 password=canary-1b2e", "unreachable", "Connection refused"),
        ("postgres", None, "connect_timeout=2s password=canary-1b2e", "unreachable", "value for connect_timeout: '2s'"),
        ("postgres", None, "password canary-1b2e", "invalid", ""),
        ("mysql", "proveout:", "proveout:canary-1b2e", "refused", "Access denied"),
        ("mysql", None, "mysql://x:canary-1b2e@127.0.0.1:1/none", "unreachable", "Connection refused"),
    ],
)
async def test_the_error_of_a_system_that_cannot_be_used_quotes_no_password(
    request: pytest.FixtureRequest, task_context: Any, engine: str, old: str | None, new: str, code: str, words: str
) -> None:
    dsn = request.getfixturevalue({"postgres": "database", "mysql": "mysql_database"}[engine])
    wrong = new if old is None else dsn.replace(old, new)
    with pytest.raises(TaskFault) as caught:
        endpoint = Endpoint(system="ext", engine=engine, dsn=wrong)
        await handlers.inspect_system(task_context, InspectSystem(endpoint=endpoint))
    assert (caught.value.code, words in caught.value.what) == (code, True)
    assert caught.value.way_out
    assert "canary-1b2e" not in str(caught.value)


@pytest.mark.parametrize(("engine", "is_long"), [("postgres", False), ("sqlite", False), ("sqlite", True)])
async def test_of_statements_that_are_stopped_none_begins_any_more_and_the_number_is_reported(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, task_context: Any, engine: str, is_long: bool
) -> None:
    """Those of engines without a cancellable client went on, beside their repetition."""
    goes_on, ran = threading.Event(), list[str]()

    def execute(_: object, text: str) -> int:
        ran.append(text)
        goes_on.wait(PATIENCE_S)
        return 0

    monkeypatch.setattr("proveout.agent.engines.sqlite.sql._run", execute)
    monkeypatch.setattr("proveout.agent.engines.adapter.STOP_S", 1.0 if is_long else PATIENCE_S)
    dsn = request.getfixturevalue("database") if engine == "postgres" else ":memory:"
    endpoint = Endpoint(system="db", engine=engine, dsn=dsn)
    job = asyncio.ensure_future(run(task_context, endpoint, "SELECT pg_sleep(600)", "CREATE TABLE second (a int)"))
    await asyncio.to_thread(eventually, lambda: ran or task_context.progressed, "the first one runs")
    job.cancel()
    await asyncio.sleep(0)
    assert engine == "postgres" or is_long or not job.done()
    if not is_long:
        goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await job
    goes_on.set()
    words = "the statements were stopped: 1 of 2 had begun, and all run again when the stage goes on"
    words += "; the last one of these still runs" if is_long else ""
    assert (task_context.logs, len(ran)) == ([("warning", words)], int(engine == "sqlite"))


# ---- settings that a plan cannot set ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("listen_addresses", "*", "refused"),
        ("archive_command", "touch /tmp/owned", "refused"),
        ("Shared_Preload_Libraries", "evil", "refused"),
        ("work_memm", "4MB", "refused"),
        ("work_mem = '1MB'\ninclude", "/etc/shadow", "invalid"),
        ("work_mem", "1MB'\nlisten_addresses = '*", "invalid"),
    ],
)
def test_settings_of_postgres_that_escape_the_confinement_are_refused(name: str, value: str, code: str) -> None:
    with pytest.raises(TaskFault) as caught:
        roles.configuration([(name, value)], ["/s"])
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        *(
            (name, "1", "refused")
            for name in ("datadi", "loose_plugin_load", "PORT", "plugin_load_add_more", "ssl_key")
        ),
        *((name, "1", "refused") for name in ("innodb-data-file-path", "wsrep_data_home_dir", "no_such_setting")),
        ("key_cache.key_buffer_size", "1", "refused"),
        ("sql_mode", "x\nplugin_dir=/tmp", "invalid"),
    ],
)
def test_settings_of_mysql_that_escape_the_confinement_are_refused(
    name: str, value: str, code: str, tmp_path: Path
) -> None:
    with pytest.raises(TaskFault) as caught:
        mysql.configuration(((name, value),), tmp_path, tmp_path)
    assert caught.value.code == code


def test_settings_of_mysql_that_are_ours_or_of_code_are_refused_and_others_written(tmp_path: Path) -> None:
    assert [name for name in OWN | CODE if mysql_objection(name) is None] == []
    names = ("innodb_buffer_pool_size", "max_connections", "log_bin", "sync_binlog", "tmp_table_size", "sql_mode")
    made = mysql.configuration(tuple((name, "1") for name in names), tmp_path, tmp_path)
    assert [name for name in names if f"\n{name} = 1\n" not in made] == []


# ---- PostgreSQL ------------------------------------------------------------------------------------------------------


@pytest.fixture
def closed_root(tmp_path: Path) -> Path:
    """A data root that only its owner can reach, as under /root."""
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o700)
    return folder


def test_an_installation_that_cannot_run_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of another machine type."""
    broken = programs.Installation(folder=tmp_path, root=Path("/"))
    broken.programs.mkdir()
    (broken.programs / "postgres").write_bytes(b"\x7fELF")
    (broken.programs / "postgres").chmod(0o755)
    usable = programs.find_installation()
    monkeypatch.setattr(programs, "_installed", lambda: iter((broken, usable)))
    assert programs.find_installation(usable.version) == usable
    with pytest.raises(TaskFault, match=rf"versions that are: {usable.version}\b"):
        programs.find_installation(7)


@needs_root
def test_data_and_programs_that_the_database_user_cannot_reach_are_elsewhere(
    closed_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has a user id of its own, no groups and no capabilities."""
    hidden = programs.private_copy(programs.find_installation(), tmp_path / "hidden")
    with embedded(closed_root, keep_data=True) as first:
        with monkeypatch.context() as patch:
            patch.setattr(programs, "find_installation", lambda _: hidden)
            first.start()
        session, where = first.session, first.data.parent
        assert (session / "site").is_dir()
        assert ask(first.dsn, "SELECT 1 FROM pg_language WHERE lanname = 'plpgsql'") == [(1,)]
        assert where.parent == data_store.ELSEWHERE
        assert stat.S_IMODE(first.data.stat().st_mode) == 0o700
        assert stat.S_IMODE((closed_root / "db" / "system.json").stat().st_mode) == 0o600
        status = status_of(first.pid)
        (uid,) = {int(word) for word in status["Uid"].split()}
        assert account.UID_FIRST <= uid < account.UID_LAST
        assert (status["Groups"], int(status["CapEff"], 16)) == ("", 0)
        ask(first.dsn, "CREATE TABLE kept AS SELECT 8 AS n")
    assert not session.exists()
    with embedded(closed_root) as second:
        second.start()
        assert second.data.parent == where
        assert value(second.dsn, "SELECT n FROM kept") == 8
    assert not where.exists()


@pytest.mark.parametrize("version", [15, 16, 17])
def test_another_version_serves_the_roles_of_a_plan(version: int, tmp_path: Path) -> None:
    with embedded(tmp_path, of=system(version=version)) as server:
        try:
            programs.find_installation(version)
        except TaskFault as fault:
            words = f"PostgreSQL {version} is not installed on this host; versions that are: "
            with pytest.raises(TaskFault, match=words):
                server.start()
            pytest.skip(fault.what)
        assert server.start().version.startswith(f"{version}.")
        ask(server.dsn, "CREATE TABLE made (n int)")
        server.save_snapshot()
        assert int(value(server.dsn, "SHOW server_version_num")) // 10_000 == version


def test_a_snapshot_is_saved_restored_and_both_are_finished_after_an_interruption(
    closed_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Privileged writes do not follow links in the data directory, nor in its snapshot."""
    with embedded(closed_root, keep_data=True) as server:
        server.start()
        monkeypatch.setattr("proveout.agent.engines.embedded.workspace.PREDECESSOR_S", 0.1)
        with (
            pytest.raises(TaskFault, match="still in use by another session"),
            embedded(closed_root, keep_data=True) as other,
        ):
            other.start()

        def sockets() -> list[str]:
            return str(value(server.dsn, "SHOW unix_socket_directories")).split(", ")

        ask(server.dsn, "CREATE TABLE t AS SELECT 1 AS n")
        victim = closed_root / "victim"
        victim.write_text("precious")
        for name in ("pg_hba.conf", "postgresql.conf", "pg_ident.conf"):
            (server.data / name).unlink()
            (server.data / name).symlink_to(victim)
        (server.data / "base" / "link").symlink_to(victim)
        server.save_snapshot()
        dsn, before = server.dsn, sockets()
        ask(server.dsn, "UPDATE t SET n = 2")
        server.restore_snapshot()
        assert value(server.dsn, "SELECT n FROM t") == 1
        assert (victim.read_text(), victim.stat().st_uid) == ("precious", os.geteuid())
        assert (server.data / "base" / "link").is_symlink()
        assert server.dsn == dsn
        assert (sockets()[0], sockets()[1] != before[1]) == (before[0], True), "only the socket of replication moves"
        # State of a kill after the copy was complete and the old snapshot was removed.
        store = server.data.parent
        (store / "snapshot").rename(store / "snapshot.saved")
        ask(server.dsn, "UPDATE t SET n = 3")
        server.restore_snapshot()
        assert value(server.dsn, "SELECT n FROM t") == 1
        (store / "snapshot").rename(store / "snapshot.saved")
        server.save_snapshot()
        ask(server.dsn, "UPDATE t SET n = 4")
        server.answered()
    # State of a kill between the two renames: the old data is moved away, the restored data is not in place yet.
    (store / "snapshot").rename(store / "data.restored")
    (store / "data").rename(store / "data.old")
    (store / "data.partial").mkdir()  # of a copy that a kill has cut short
    with embedded(closed_root) as again:
        again.start()
        assert not again.fresh
        assert value(again.dsn, "SELECT n FROM t") == 1
        assert [path.name for path in store.iterdir() if path.name not in ("data", "owner")] == []


@needs_root
def test_recovery_without_room_is_a_full_disk(package_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is on the same disk: PostgreSQL cannot write there that it found no space."""
    monkeypatch.setattr(embedded_server, "READY_S", 5.0)
    with small_disk(package_folder / "disk", 160 << 20) as disk, embedded(disk) as server:
        server.start()
        assert server.data == disk / "db" / "store" / "data", "this root can be reached by the database's user"
        ask(server.dsn, "CREATE TABLE filled AS SELECT generate_series(1, 100000) AS n")
        os.kill(server.pid, signal.SIGKILL)
        eventually(lambda: server.death is not None, "the death of the server")
        fill(disk / "filler", 0)
        with pytest.raises(TaskFault, match=f"no space is left .file system {disk}") as caught:
            server.start()
        assert caught.value.code == "disk_full"


@needs_root
def test_a_snapshot_without_room_leaves_the_server_its_own(package_folder: Path) -> None:
    """Else the server would not start on the disk that half a copy has filled."""
    with small_disk(package_folder / "disk", 160 << 20) as disk, embedded(disk) as server:
        server.start()
        fill(disk / "filler", 20 << 20)
        with pytest.raises(TaskFault, match=r"cp failed .*No space left on device") as caught:
            server.save_snapshot()
        assert caught.value.code == "disk_full"
        assert value(server.dsn, "SELECT 1") == 1
        server.answered()
        assert [path.name for path in server.data.parent.iterdir()] == ["data"]


def test_a_temporary_folder_with_a_blank_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path of the socket is one of several words of a dsn."""
    for name, chosen in (("a b", "/tmp"), ("ab", str(tmp_path / "ab"))):
        (tmp_path / name).mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / name))
        monkeypatch.setattr(account, "SOCKET_PATH_MAX", 1000)
        assert str(account.reachable_base(lambda _: True)) == chosen


def test_a_missing_installation_of_postgres_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "PACKAGE", "no_such_package_here")
    with embedded(tmp_path) as server, pytest.raises(TaskFault) as caught:
        server.start()
    assert (caught.value.code, "pip install" in caught.value.way_out) == ("missing", True)
    assert "pgserver" in caught.value.way_out


# ---- MariaDB ---------------------------------------------------------------------------------------------------------


def test_checkpoints_of_two_systems_in_one_server_leave_its_limit(
    mysql_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = Endpoint(system="db", engine="mysql", dsn=mysql_server.dsn)
    going, numbers, inside = (threading.Event(), threading.Event()), itertools.count(), list[int]()

    def is_clean(*_: object) -> bool:
        inside.append(number := next(numbers))
        return going[number].wait(PATIENCE_S)

    monkeypatch.setattr(mysql_statements, "_is_clean", is_clean)
    with mysql_statements.cursor(endpoint) as cursor, ThreadPoolExecutor() as pool:

        def value(query: str) -> str:
            cursor.execute(query)
            return str(cursor.fetchone()[0])

        before = value("SELECT @@global.innodb_max_dirty_pages_pct")
        both = [pool.submit(mysql_statements.write_out, endpoint) for _ in range(2)]
        waits = "SELECT count(*) FROM information_schema.processlist WHERE state = 'User lock'"
        eventually(lambda: len(inside) == 2 or (inside and value(waits) != "0"), "the second one waits, or is inside")
        going[0].set()
        eventually(lambda: any(one.done() for one in both), "the first one has put the limit back")
        going[1].set()
        for one in both:
            one.result()
        assert value("SELECT @@global.innodb_max_dirty_pages_pct") == before


@pytest.mark.parametrize("killed", ["agent", "session"])
def test_a_checkpoint_that_is_killed_leaves_the_limits_to_the_server_or_to_the_next_one(
    mysql_server: Any, killed: str
) -> None:
    checkpoint = (
        "import sys; from proveout.agent.engines.mysql import sql; from proveout.proto.wire.tasks import Endpoint;"
        " sql._is_clean = lambda *_: False; sql.write_out(Endpoint(system='db', engine='mysql', dsn=sys.argv[1]))"
    )
    endpoint = Endpoint(system="db", engine="mysql", dsn=mysql_server.dsn)
    with mysql_statements.cursor(endpoint) as cursor:

        def rows(query: str) -> list[tuple[Any, ...]]:
            cursor.execute(query)
            return list(cursor.fetchall())

        def limits() -> tuple[float, ...]:
            ((percent, low),) = rows(
                "SELECT @@global.innodb_max_dirty_pages_pct, @@global.innodb_max_dirty_pages_pct_lwm"
            )
            return float(percent), float(low)

        rounds = "SELECT id FROM information_schema.processlist WHERE info LIKE 'DO SLEEP(1.0%'"
        before = limits()
        cursor.execute("SET GLOBAL innodb_max_dirty_pages_pct = 75.5, GLOBAL innodb_max_dirty_pages_pct_lwm = 10")
        agent = subprocess.Popen([sys.executable, "-c", checkpoint, endpoint.dsn], stderr=subprocess.DEVNULL)
        try:
            (session,) = eventually(lambda: rows(rounds), "a round")
            if killed == "agent":
                agent.kill()
            else:
                cursor.execute(f"KILL {session[0]}")
            agent.wait(PATIENCE_S)
            if killed == "session":
                assert max(limits()) < 0.01
                mysql_statements.write_out(endpoint)
            eventually(lambda: limits() == (75.5, 10.0), "the limits are put back")
        finally:
            agent.kill()
            agent.wait()
            cursor.execute(mysql_statements._allow_dirty(endpoint, *before))


@pytest.mark.usefixtures("mariadb")
async def test_a_mariadb_from_its_start_over_a_kill_to_its_removal(task_context: Any, tmp_path: Path) -> None:
    """A MariaDB at its start removes files that look like its own temporary tables from the folder for them: those of
    other servers stay. A checkpoint leaves no dirty pages, and the setting as it was."""
    others = Path(f"/tmp/#sql-temptable-{os.getpid():x}-ffff-1.MAI")
    others.touch()
    with embedded(tmp_path, of=system("mysql")) as server:
        endpoint = server.start()
        assert others.exists()
        others.unlink()
        query = "SELECT 1 FROM dual WHERE @@global.innodb_max_dirty_pages_pct > 0"
        await run(task_context, endpoint, "CREATE TABLE t (n int)", "INSERT INTO t SELECT seq FROM seq_1_to_50000")
        await handlers.checkpoint(task_context, Checkpoint(endpoint=endpoint))
        dirty = (
            "SELECT 1 FROM information_schema.global_status WHERE variable_name = 'INNODB_BUFFER_POOL_PAGES_DIRTY'"
            f" AND variable_value <= {DIRTY_PAGES_LEFT}"
        )
        assert await run(task_context, endpoint, dirty, query) == (1, 1)
        for statement, way_out in (("SET GLOBAL max_connections = 5", RIGHTS_WAY_OUT), ("SELEC", "")):
            with pytest.raises(TaskFault) as caught:
                await run(task_context, endpoint, statement)
            assert (caught.value.code, caught.value.way_out) == ("refused", way_out)
        os.kill(server.pid, signal.SIGKILL)
        assert "SIGKILL" in eventually(lambda: server.death, "the report of the death")
        with pytest.raises(TaskFault, match="is gone"):
            server.save_snapshot()
        assert await run(task_context, server.start(), "SELECT * FROM t") == (50_000,)
        process, session, status = Path(f"/proc/{server.pid}"), server.session, status_of(server.pid)
        assert (int(status["CapEff"], 16), status["NoNewPrivs"]) == (0, "1")
        assert session.stat().st_mode & 0o777 == 0o711
        assert (session / "init.sql").stat().st_mode & 0o777 == 0o600, "it holds passwords"
        assert (session / "socket").stat().st_mode & 0o777 == (0o750 if os.geteuid() == 0 else 0o700)
        if os.geteuid() == 0:
            assert process.stat().st_uid >= 60_000
            assert int(status["CapBnd"], 16) == 0
    assert not process.exists()
    assert not session.exists()
    assert not server.data.exists()


def test_the_error_on_a_host_without_mariadb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(mysql, "FOLDERS", (str(tmp_path),))
    with pytest.raises(TaskFault, match="no MariaDB server") as caught:
        mysql.Server(system("mysql"), tmp_path)
    assert (caught.value.code, "apt-get install" in caught.value.way_out) == ("missing", True)

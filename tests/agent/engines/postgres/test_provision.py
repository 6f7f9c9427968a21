"""An embedded server: its data folder, its user, refused settings, snapshots, and the state after a resume."""

from __future__ import annotations

import dataclasses
import os
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from eventually import eventually
from full_disks import fill, small_disk

from proveout.agent.engines.embedded import account, data_store
from proveout.agent.engines.embedded import server as embedded_server
from proveout.agent.engines.postgres import installation as programs
from proveout.agent.engines.postgres import roles
from proveout.agent.engines.postgres.provision import Server
from proveout.agent.errors import TaskFault
from proveout.dsl.plan.topology import System

pytestmark = pytest.mark.server

Start = Callable[..., Server]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="another user's reach is only in question for root")


def system(*pairs: tuple[str, str], name: str = "db") -> System:
    settings = (("fsync", "off"), *pairs)
    return System(name=name, engine="postgres", host="h", provision="embedded", settings=settings)


@pytest.fixture
def closed_root(tmp_path: Path) -> Path:
    """A data root that only its owner can reach, as under /root."""
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def begin() -> Iterator[Start]:
    servers: list[Server] = []

    def make(root: Path, *pairs: tuple[str, str]) -> Server:
        server = Server(system(*pairs), root)
        servers.append(server)
        server.start()
        return server

    yield make
    for server in servers:
        server.close(keep_data=False)


def number(server: Server, query: str) -> int:
    with psycopg.connect(server.dsn) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0])


def run(server: Server, statement: str) -> None:
    with psycopg.connect(server.dsn) as connection:
        connection.execute(statement.encode())


@needs_root
def test_data_and_programs_that_the_database_user_cannot_reach_are_elsewhere(
    closed_root: Path, tmp_path: Path, begin: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has a user id of its own, no groups and no capabilities."""
    hidden = programs.private_copy(programs.find_installation(), tmp_path / "hidden")
    with monkeypatch.context() as patch:
        patch.setattr(programs, "find_installation", lambda _: hidden)
        first = begin(closed_root)
    session, where = first.session, first.data.parent
    assert (session / "site").is_dir()
    assert number(first, "SELECT 1 FROM pg_language WHERE lanname = 'plpgsql'") == 1
    assert where.parent == data_store.ELSEWHERE
    assert stat.S_IMODE(first.data.stat().st_mode) == 0o700
    assert stat.S_IMODE((closed_root / "db" / "system.json").stat().st_mode) == 0o600
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{first.pid}/status").read_text().splitlines())
    uids = {int(word) for word in fields["Uid"].split()}
    assert len(uids) == 1
    assert account.UID_FIRST <= uids.pop() < account.UID_LAST
    assert fields["Groups"].split() == []
    assert int(fields["CapEff"], 16) == 0
    run(first, "CREATE TABLE kept AS SELECT 8 AS n")
    first.close(keep_data=True)
    assert not session.exists()
    second = begin(closed_root)
    assert second.data.parent == where
    assert number(second, "SELECT n FROM kept") == 8
    second.close(keep_data=False)
    assert not where.exists()


@pytest.mark.parametrize("version", [15, 16, 17])
def test_another_version_serves_the_roles_of_a_plan(version: int, tmp_path: Path) -> None:
    server = Server(dataclasses.replace(system(), version=version), tmp_path)
    try:
        programs.find_installation(version)
    except TaskFault as fault:
        with pytest.raises(TaskFault, match=f"PostgreSQL {version} is not installed on this host; versions that are: "):
            server.start()
        pytest.skip(fault.what)
    try:
        assert server.start().version.startswith(f"{version}.")
        run(server, "CREATE TABLE made (n int)")
        server.save_snapshot()
        assert number(server, "SHOW server_version_num") // 10_000 == version
    finally:
        server.close(keep_data=False)


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
def test_settings_that_escape_the_confinement_are_refused(name: str, value: str, code: str) -> None:
    with pytest.raises(TaskFault) as caught:
        roles.configuration([(name, value)], ["/s"])
    assert caught.value.code == code


def test_a_snapshot_is_saved_restored_and_both_are_finished_after_an_interruption(
    closed_root: Path, begin: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Privileged writes do not follow links in the data directory, nor in its snapshot."""
    server = begin(closed_root)
    with pytest.raises(TaskFault) as caught:
        server.restore_snapshot()
    assert caught.value.code == "missing"
    monkeypatch.setattr("proveout.agent.engines.embedded.workspace.PREDECESSOR_S", 0.1)
    with pytest.raises(TaskFault, match="still in use by another session"):
        Server(system(), closed_root).start()

    def sockets() -> list[str]:
        with psycopg.connect(server.dsn) as connection:
            ((folders,),) = connection.execute("SHOW unix_socket_directories").fetchall()
        return str(folders).split(", ")

    run(server, "CREATE TABLE t AS SELECT 1 AS n")
    victim = closed_root / "victim"
    victim.write_text("precious")
    for name in ("pg_hba.conf", "postgresql.conf", "pg_ident.conf"):
        (server.data / name).unlink()
        (server.data / name).symlink_to(victim)
    (server.data / "base" / "link").symlink_to(victim)
    server.save_snapshot()
    dsn, before = server.dsn, sockets()
    run(server, "UPDATE t SET n = 2")
    server.restore_snapshot()
    assert number(server, "SELECT n FROM t") == 1
    assert (victim.read_text(), victim.stat().st_uid) == ("precious", os.geteuid())
    assert (server.data / "base" / "link").is_symlink()
    assert server.dsn == dsn
    assert (sockets()[0], sockets()[1] != before[1]) == (before[0], True), "only the socket of replication moves"
    # State of a kill after the copy was complete and the old snapshot was removed.
    store = server.data.parent
    (store / "snapshot").rename(store / "snapshot.saved")
    run(server, "UPDATE t SET n = 3")
    server.restore_snapshot()
    assert number(server, "SELECT n FROM t") == 1
    run(server, "UPDATE t SET n = 4")
    server.close(keep_data=True)
    # State of a kill between the two renames: the old data is moved away, the restored data is not in place yet.
    (store / "snapshot").rename(store / "data.restored")
    (store / "data").rename(store / "data.old")
    again = begin(closed_root)
    assert not again.fresh
    assert number(again, "SELECT n FROM t") == 1
    assert not (store / "data.old").exists()


@needs_root
def test_recovery_without_room_is_a_full_disk(
    package_folder: Path, begin: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is on the same disk: PostgreSQL cannot write there that it found no space."""
    monkeypatch.setattr(embedded_server, "READY_S", 5.0)
    with small_disk(package_folder / "disk", 160 << 20) as disk:
        server = begin(disk)
        assert server.data == disk / "db" / "store" / "data", "this root can be reached by the database's user"
        run(server, "CREATE TABLE filled AS SELECT generate_series(1, 100000) AS n")
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        eventually(lambda: server.death is not None, "the death of the server")
        fill(disk / "filler", 0)
        with pytest.raises(TaskFault, match=f"no space is left .file system {disk}") as caught:
            server.start()
        assert caught.value.code == "disk_full"
        server.close(keep_data=False)


def test_a_missing_installation_names_the_extra(closed_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "PACKAGE", "no_such_package_here")
    with pytest.raises(TaskFault) as caught:
        Server(system(), closed_root).start()
    assert caught.value.code == "missing"
    assert "pip install" in caught.value.way_out
    assert "pgserver" in caught.value.way_out


def test_abandoned_stores_are_removed_and_others_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_store, "ELSEWHERE", tmp_path)
    monkeypatch.setattr(data_store, "SWEEP_AGE_S", -1.0)
    folder = data_store.home(tmp_path / "runs", "db")
    kept = data_store.make_store(folder, None, lambda _: False)
    orphan = tmp_path / f"{data_store.STORE_PREFIX}orphan"
    orphan.mkdir()
    (orphan / "owner").write_text(str(tmp_path / "gone" / "system.json"))
    session, held = (tmp_path / f"{data_store.SESSION_PREFIX}{name}" for name in ("dead", "held"))
    session.mkdir()
    held.mkdir()
    data_store.sweep((tmp_path,), locked=lambda path: path == held)
    assert Path(kept.store).is_dir()
    assert held.is_dir()
    assert not orphan.exists()
    assert not session.exists()


@pytest.mark.parametrize(
    ("field", "value"), [("store", "/etc"), ("store", "/var/tmp/proveout-store-../x"), ("uid", 0), ("uid", 1000)]
)
def test_a_state_file_with_foreign_paths_or_users_is_refused(tmp_path: Path, field: str, value: object) -> None:
    folder = data_store.home(tmp_path, "db")
    state = data_store.make_store(folder, None, lambda _: True)
    data_store.write_state(folder, dataclasses.replace(state, **{field: value}))  # type: ignore[arg-type]
    for touch in (data_store.read_state, data_store.remove):
        with pytest.raises(TaskFault, match="not its data"):
            touch(folder)

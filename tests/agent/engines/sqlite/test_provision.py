"""An SQLite system: a file in WAL mode, its settings, its snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import pytest

from proveout.agent.engines import handlers
from proveout.agent.errors import TaskFault
from proveout.agent.sandbox import privileges
from proveout.dsl.plan.topology import System
from proveout.proto.wire.tasks import (
    Checkpoint,
    Endpoint,
    InspectSystem,
    RunSql,
    SnapshotSystem,
    StartSystem,
    StopSystem,
)


@pytest.fixture(autouse=True)
def _made_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Create the file in this process, as an agent without privileges and the helper process of a root agent do."""
    monkeypatch.setattr(privileges, "account", lambda: None)


def system(*settings: tuple[str, str]) -> System:
    return System(name="lite", engine="sqlite", host="h", provision="embedded", settings=settings)


async def start(context: Any, root: Path, *settings: tuple[str, str]) -> Any:
    return await handlers.start_system(context, StartSystem(system=system(*settings), data_root=str(root)))


async def run(context: Any, endpoint: Endpoint, *statements: str) -> tuple[int, ...]:
    return (await handlers.run_sql(context, RunSql(endpoint=endpoint, statements=statements))).counts


async def test_a_file_is_created_once_in_wal_mode_with_its_settings(task_context: Any, tmp_path: Path) -> None:
    started = await start(task_context, tmp_path, ("page_size", "8192"), ("auto_vacuum", "incremental"))
    assert started.fresh
    assert dict(started.settings)["page_size"] == "8192"
    assert dict(started.settings)["auto_vacuum"] == "2"
    assert dict(started.settings)["journal_mode"] == "wal"
    assert started.endpoint.version == apsw.sqlite_lib_version()
    assert not (await start(task_context, tmp_path)).fresh
    await task_context.close(keep_data=True)
    assert Path(started.endpoint.dsn).exists()
    assert not (await start(task_context, tmp_path)).fresh
    await handlers.stop_system(task_context, StopSystem(system="lite", data_root=str(tmp_path), remove=True))
    assert not Path(started.endpoint.dsn).exists()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [("page_size", "1000", "does not take page_size"), ("synchronous", "FULL", "not one that an SQLite file keeps")],
)
async def test_a_setting_that_has_no_effect_is_a_fault(
    task_context: Any, tmp_path: Path, name: str, value: str, words: str
) -> None:
    with pytest.raises(TaskFault, match=words) as caught:
        await start(task_context, tmp_path, (name, value))
    assert caught.value.code == "invalid"
    assert not list((tmp_path / "lite").iterdir())


async def test_a_restored_snapshot_has_the_old_rows(task_context: Any, tmp_path: Path) -> None:
    endpoint = (await start(task_context, tmp_path)).endpoint
    with pytest.raises(TaskFault, match="no saved state"):
        await handlers.snapshot_system(
            task_context, SnapshotSystem(system=system(), data_root=str(tmp_path), action="restore")
        )
    assert await run(task_context, endpoint, "CREATE TABLE t (n)", "INSERT INTO t VALUES (1), (2)") == (0, 2)
    await handlers.snapshot_system(
        task_context, SnapshotSystem(system=system(), data_root=str(tmp_path), action="save")
    )
    assert await run(task_context, endpoint, "DELETE FROM t", "SELECT * FROM t") == (2, 0)
    await handlers.snapshot_system(
        task_context, SnapshotSystem(system=system(), data_root=str(tmp_path), action="restore")
    )
    assert await run(task_context, endpoint, "SELECT * FROM t") == (2,)


async def test_a_file_in_use_is_not_replaced(
    task_context: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proveout.agent.engines.sqlite.sql.BUSY_MS", 50)
    endpoint = (await start(task_context, tmp_path)).endpoint
    await run(task_context, endpoint, "CREATE TABLE t (n)", "INSERT INTO t VALUES (1)")
    reader = apsw.Connection(endpoint.dsn)
    reader.execute("BEGIN").execute("SELECT * FROM t").fetchall()
    await run(task_context, endpoint, "INSERT INTO t VALUES (2)")
    with pytest.raises(TaskFault, match="still in use"):
        await handlers.snapshot_system(
            task_context, SnapshotSystem(system=system(), data_root=str(tmp_path), action="save")
        )
    reader.close()


async def test_inspect_and_checkpoint(task_context: Any, tmp_path: Path) -> None:
    endpoint = (await start(task_context, tmp_path)).endpoint
    await run(task_context, endpoint, "CREATE TABLE t (n)")
    await handlers.checkpoint(task_context, Checkpoint(endpoint=endpoint))
    inspected = await handlers.inspect_system(task_context, InspectSystem(endpoint=endpoint))
    assert inspected.endpoint.version == apsw.sqlite_lib_version()


async def test_a_path_that_cannot_be_opened_is_named(task_context: Any, tmp_path: Path) -> None:
    missing = Endpoint(system="lite", engine="sqlite", dsn=str(tmp_path / "no" / "file.sqlite"))
    with pytest.raises(TaskFault, match=r"no/file\.sqlite"):
        await handlers.inspect_system(task_context, InspectSystem(endpoint=missing))

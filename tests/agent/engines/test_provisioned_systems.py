"""Systems that proveout starts, of every engine, from their start to their removal: settings, data that is kept, a
snapshot, refusals; and systems with a dsn that cannot be used. Peculiarities of an engine are in
`test_provision.py` of its folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from proveout.agent.engines import handlers
from proveout.agent.errors import TaskFault
from proveout.agent.sandbox import privileges
from proveout.dsl.plan.topology import System
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


@dataclass(frozen=True, kw_only=True)
class Case:
    """An engine: settings that it takes and how it shows them, one that it does not take with words of the fault."""

    engine: Any
    settings: tuple[tuple[str, str], ...]
    shown: dict[str, str]
    refused: tuple[str, str, str]
    left: tuple[str, ...] = ()
    """The files that stay after the removal."""

    def system(self, *settings: tuple[str, str]) -> System:
        return System(name="db", engine=self.engine, host="h", provision="embedded", settings=settings)


CASES = (
    Case(
        engine="postgres",
        settings=(("fsync", "off"), ("work_mem", "5MB"), ("cluster_name", "it's \\ ok")),
        shown={"work_mem": "5MB", "cluster_name": "it's \\ ok"},
        refused=("work_mem", "lots", 'invalid value for parameter "work_mem": "lots"'),
        left=("server.log",),
    ),
    Case(
        engine="mysql",
        settings=(
            ("innodb_flush_log_at_trx_commit", "2"),
            ("innodb_log_file_size", "8M"),
            ("max_connections", "77"),
        ),
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


async def test_a_system_from_its_start_to_its_removal(case: Case, task_context: Any, tmp_path: Path) -> None:
    async def start(*settings: tuple[str, str]) -> SystemStarted:
        return await handlers.start_system(
            task_context, StartSystem(system=case.system(*settings), data_root=str(tmp_path))
        )

    async def run(endpoint: Endpoint, *statements: str) -> tuple[int, ...]:
        return (await handlers.run_sql(task_context, RunSql(endpoint=endpoint, statements=statements))).counts

    async def snapshot(action: Any) -> None:
        spec = SnapshotSystem(system=case.system(*case.settings), data_root=str(tmp_path), action=action)
        await handlers.snapshot_system(task_context, spec)

    started = await start(*case.settings)
    endpoint, shown = started.endpoint, dict(started.settings)
    assert (started.fresh, {name: shown[name] for name in case.shown}) == (True, case.shown)
    assert not {"data_directory", "primary_conninfo"} & shown.keys()
    inspected = await handlers.inspect_system(task_context, InspectSystem(endpoint=endpoint))
    assert inspected.endpoint.version == endpoint.version != ""
    assert (await start(*case.settings)).endpoint == endpoint, "it runs already"
    with pytest.raises(TaskFault, match="no saved state") as caught:
        await snapshot("restore")
    assert caught.value.code == "missing"
    assert await run(endpoint, "CREATE TABLE t (n int)", "INSERT INTO t VALUES (1), (2)") == (0, 2)
    await handlers.checkpoint(task_context, Checkpoint(endpoint=endpoint))
    await snapshot("save")
    assert await run(endpoint, "DELETE FROM t", "SELECT * FROM t") == (2, 0)
    await snapshot("restore")
    assert await run(endpoint, "SELECT * FROM t") == (2,)
    with pytest.raises(TaskFault, match="nowhere") as caught:
        await run(endpoint, "SELECT * FROM nowhere")
    assert caught.value.code == "refused"
    await task_context.close(keep_data=True)
    again = await start(*case.settings)
    assert not again.fresh
    assert await run(again.endpoint, "SELECT * FROM t") == (2,)
    await handlers.stop_system(task_context, StopSystem(system="db", data_root=str(tmp_path), remove=True))
    assert not task_context.resources
    assert tuple(file.name for file in tmp_path.rglob("*") if file.is_file()) == case.left


async def test_a_setting_that_a_system_does_not_take_is_a_fault(case: Case, task_context: Any, tmp_path: Path) -> None:
    name, value, words = case.refused
    with pytest.raises(TaskFault) as caught:
        await handlers.start_system(
            task_context, StartSystem(system=case.system((name, value)), data_root=str(tmp_path))
        )
    assert (caught.value.code, words in caught.value.what) == ("invalid", True)


@pytest.mark.parametrize("by", ["", "b"])
async def test_a_primary_whose_standby_was_promoted_is_reported_and_not_asked(by: str, task_context: Any) -> None:
    class Replaced:
        fresh, death, note, superseded_by = True, None, "a copy", by

        async def start(self) -> Endpoint:
            return Endpoint(system="db", engine="postgres", dsn="d")

        async def close(self, *, keep_data: bool) -> None: ...

    async def settings(_: Endpoint) -> tuple[tuple[str, str], ...]:
        return (("fsync", "off"),)

    spec = StartSystem(system=CASES[0].system(), data_root="/")
    started = await handlers.start_system(task_context, spec, lambda *_: Replaced(), settings)  # type: ignore[arg-type,return-value]
    found = (started.superseded_by, started.fresh, started.note, started.settings)
    assert found == (("b", False, "", ()) if by else ("", True, "a copy", (("fsync", "off"),)))


@pytest.mark.parametrize(
    ("engine", "old", "new", "code", "words"),
    [
        ("postgres", "password=", "password=canary-1b2e", "refused", "wrong password, or no user"),
        ("postgres", "dbname=", "dbname=nowhere_", "refused", 'database "nowhere_'),
        ("postgres", None, "host=127.0.0.1 port=9 password=canary-1b2e", "unreachable", "Connection refused"),
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

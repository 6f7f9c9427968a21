"""Populations over Oracle's protocol, into the TNS server of tests/wire: every row, and rows that are refused."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import oracledb
import psycopg
import pytest

from proveout.agent.engines.handlers import checkpoint, inspect_system, run_sql
from proveout.agent.engines.oracle.populate import OracleLoader
from proveout.agent.errors import TaskFault
from proveout.agent.load.populate import populate
from proveout.dsl.workloads.kinds import build
from proveout.proto.wire.tasks import Checkpoint, Endpoint, InspectSystem, PopulateSystem, RunSql
from tests.agent.load.conftest import workload_of

pytestmark = pytest.mark.server

SUBSCRIBERS = 300
TABLES = ("call_forwarding", "special_facility", "access_info", "subscriber")


@pytest.fixture
def endpoint(oracle: str, tns_database: str) -> Iterator[Endpoint]:
    yield Endpoint(system="db", engine="oracle", dsn=oracle)
    with psycopg.connect(tns_database, autocommit=True) as connection:
        for table in (*TABLES, "mine"):
            connection.execute(f"DROP TABLE IF EXISTS {table} CASCADE")


WORKLOAD = workload_of("hlr", population=SUBSCRIBERS)


async def test_every_row_is_inserted(task_context: Any, endpoint: Endpoint, tns_database: str) -> None:
    await populate(task_context, PopulateSystem(workload=WORKLOAD, endpoint=endpoint, workers=2))
    made = build(WORKLOAD).population
    with psycopg.connect(tns_database) as connection:
        for table in made.tables:
            columns = [a.astype(str) if a.dtype.kind == "S" else a for a in table.rows(1, SUBSCRIBERS)]
            rows = sorted(zip(*(column.tolist() for column in columns), strict=True))
            found = connection.execute(f"SELECT * FROM {table.name}").fetchall()
            assert sorted(tuple(map(_plain, row)) for row in found) == rows
        keys = connection.execute("SELECT conname FROM pg_constraint WHERE contype IN ('p', 'f') ORDER BY 1").fetchall()
        assert {"subscriber_pk", "access_info_fk", "call_forwarding_fk"} <= {name for (name,) in keys}


def _plain(value: Any) -> Any:
    return value if isinstance(value, str) else int(value)


def test_rows_that_are_refused_are_named(endpoint: Endpoint) -> None:
    loader = OracleLoader(endpoint.dsn, build(WORKLOAD).population)
    try:
        loader.prepare()
        subscriber = loader._population.tables[0]
        loader.execute("ALTER TABLE subscriber ADD CONSTRAINT subscriber_pk PRIMARY KEY (s_id)")
        assert loader.load(subscriber, 1, 3, lambda _: None) == 3
        with pytest.raises(TaskFault) as raised:
            loader.load(subscriber, 3, 2, lambda _: None)
        assert "1 rows were refused: row 0: ORA-00001" in raised.value.what
        assert loader.count("subscriber") == 3
        loader.undo()
        loader.undo()
    finally:
        loader.close()


def test_a_table_locked_by_the_direct_path_load_of_another_worker_takes_array_inserts(
    monkeypatch: pytest.MonkeyPatch, endpoint: Endpoint
) -> None:
    def locked(*_: object) -> None:
        raise oracledb.DatabaseError(SimpleNamespace(full_code="ORA-00054", code=54))

    loader = OracleLoader(endpoint.dsn, build(WORKLOAD).population)
    try:
        loader.prepare()
        monkeypatch.setattr(loader, "_direct_path", locked)
        assert loader.load(loader._population.tables[0], 1, 3, lambda _: None) == 3
        assert loader.count("subscriber") == 3
    finally:
        loader.undo()
        loader.close()


async def test_inspect_sql_and_checkpoint(task_context: Any, endpoint: Endpoint) -> None:
    up = await inspect_system(task_context, InspectSystem(endpoint=endpoint))
    assert up.endpoint.version == "19.7.0.0.0"
    assert {"commit_wait": "WAIT", "container": "1"}.items() <= dict(up.settings).items()
    statements = ("CREATE TABLE mine (a NUMBER(5));", "INSERT INTO mine VALUES (1)", "SELECT a FROM mine")
    assert (await run_sql(task_context, RunSql(endpoint=endpoint, statements=statements))).counts == (0, 1, 1)
    with pytest.raises(TaskFault) as raised:
        await run_sql(task_context, RunSql(endpoint=endpoint, statements=("SELECT a FROM nothere",)))
    assert (raised.value.code, "ORA-00942" in raised.value.what) == ("refused", True)
    assert (await checkpoint(task_context, Checkpoint(endpoint=endpoint))).seconds >= 0

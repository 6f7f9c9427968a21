"""Databases that refuse, conflict or run out of disk under a load: the message, the counted class, and the continuation
of the load. Those that a load cannot connect to are in `test_load_task.py`."""

from __future__ import annotations

import errno
import os
import secrets
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from proveout.agent.errors import TaskFault
from proveout.dsl.plan.plan import Workload
from proveout.proto.wire.results import LoadResult

from .conftest import LoadContext, Spec, ok, run_until, workload_of

SHORT = (0.0, 0.2, 0.0)


def own(**statements: str) -> Workload:
    """A workload of one transaction of these statements, with two binds."""
    binds = {"a": {"uniform": [1, 4]}, "b": {"uniform": [1, 4]}}
    return workload_of("sql", binds=binds, transactions={"Change": {"statements": statements}})


@pytest.fixture
def items(database: str) -> str:
    """A database with four rows for conflicting transactions."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE item (id integer PRIMARY KEY, n text)")
        connection.execute("INSERT INTO item SELECT i, '0' FROM generate_series(1, 4) i")
    return database


async def test_permission_denied(context: LoadContext, items: str, spec: Spec) -> None:
    load = spec(make_conninfo(items, options="-c role=pg_monitor"), workload=TWO_ROWS, windows=SHORT)
    result = await run_until(lambda result: bool(errors(result)), context, load)
    assert set(errors(result)) == {"42501"}
    assert any("permission denied for table" in text for text in result.first_errors), result.first_errors


TWO_ROWS = own(one="UPDATE item SET n = 'x' WHERE id = :a", two="UPDATE item SET n = 'y' WHERE id = :b")
BIG_ROW = own(add="INSERT INTO big SELECT repeat('x', 2000) WHERE :a > 0 AND :b > 0")


async def test_conflicts_are_retried_and_counted(context: LoadContext, items: str, spec: Spec) -> None:
    """Deadlocks; a serialization failure is retryable in the drivers' conformance tests."""
    load = spec(make_conninfo(items, options="-c deadlock_timeout=5ms"), terminals=8, workload=TWO_ROWS, windows=SHORT)
    result = await run_until(lambda result: result.transactions[0].counts.retried > 0 and ok(result) > 0, context, load)
    assert len(result.transactions) == 1
    assert set(errors(result)) <= {"40P01"}, "a transaction that has failed too often is an error of that class"


@pytest.fixture
def small_disk(postgres_server: str) -> Iterator[Path]:
    """A tmpfs of 1 MiB of the server's account in its data folder, as the server cannot write elsewhere; root only."""
    with psycopg.connect(postgres_server) as connection:
        row = connection.execute("SHOW data_directory").fetchone()
    assert row is not None
    disk = Path(row[0]) / f"small_{secrets.token_hex(4)}"
    disk.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0777", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(argv, capture_output=True, check=False).returncode:
        disk.rmdir()
        pytest.skip("this host does not let the tests mount a tmpfs")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)
    disk.rmdir()


async def test_the_servers_disk_is_full(context: LoadContext, items: str, spec: Spec, small_disk: Path) -> None:
    space = f"small_{secrets.token_hex(4)}"
    with psycopg.connect(items, autocommit=True) as connection:
        os.chown(small_disk, small_disk.parent.stat().st_uid, -1)
        connection.execute(f"CREATE TABLESPACE {space} LOCATION '{small_disk}'".encode())
        connection.execute(f"CREATE TABLE big (n text) TABLESPACE {space}".encode())
    try:
        load = spec(items, workload=BIG_ROW, windows=SHORT)
        with pytest.raises(TaskFault, match=os.strerror(errno.ENOSPC)) as caught:
            await run_until(lambda result: bool(errors(result)), context, load)
    finally:
        with psycopg.connect(items, autocommit=True) as connection:
            connection.execute("DROP TABLE big")
            connection.execute(f"DROP TABLESPACE {space}".encode())
    assert caught.value.code == "disk_full", "not a result: its numbers would be those of a full disk"
    assert "53100" in caught.value.what
    assert "free disk space" in caught.value.way_out


def errors(result: LoadResult) -> Counter[str]:
    found: Counter[str] = Counter()
    for transaction in result.transactions:
        found.update(dict(transaction.counts.errors))
    return found

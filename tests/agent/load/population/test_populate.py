"""Populations of real databases: rows, keys, partitions and cardinalities match the specification."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proveout.agent.errors import TaskFault
from proveout.agent.load.populate import WorkerPool, judge, populate
from proveout.agent.load.populate_jobs import Count, share_of, slices
from proveout.dsl.workloads.hlr import NAMES, PRIMARY_KEYS
from proveout.proto.wire.results import TableCount
from proveout.proto.wire.tasks import PopulateSystem

from .conftest import counts, made, rows_of

SUBSCRIBERS = 3_000
LOOKED_UP = "EXPLAIN SELECT s_id FROM subscriber WHERE sub_nbr = '000000000000042'"


async def test_postgres_contains_the_generated_rows_in_ordinary_keyed_and_analysed_tables(
    database: str, task_context: Any, spec: Any
) -> None:
    """The second population replaces the first, and has partitions."""
    await _populated(task_context, spec(database, population=SUBSCRIBERS, seed=7, workers=3))
    with psycopg.connect(database) as connection:
        kinds = connection.execute(
            "SELECT relname, relkind, relpersistence, relreplident, relallvisible, relpages, reltuples"
            " FROM pg_class WHERE relname = ANY(%s)",
            (list(NAMES),),
        ).fetchall()
        keys = connection.execute(
            "SELECT conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint"
            " WHERE contype IN ('p', 'f') AND convalidated AND connamespace = 'public'::regnamespace"
        ).fetchall()
        plan = connection.execute(LOOKED_UP).fetchall()
    assert len(kinds) == len(NAMES)
    for _, kind, persistence, identity, visible, pages, tuples in kinds:
        assert (kind, persistence, identity) == ("r", "p", "d")
        assert visible >= 0.9 * pages  # the other pages were reserved by parallel COPYs and not used
        assert tuples > 0
    primary = {(table, f"PRIMARY KEY ({key})") for table, key in PRIMARY_KEYS.items()}
    foreign = {
        ("access_info", "FOREIGN KEY (s_id) REFERENCES subscriber(s_id)"),
        ("special_facility", "FOREIGN KEY (s_id) REFERENCES subscriber(s_id)"),
        ("call_forwarding", "FOREIGN KEY (s_id, sf_type) REFERENCES special_facility(s_id, sf_type)"),
    }
    assert set(keys) == primary | foreign
    assert "subscriber_sub_nbr" in plan[0][0]

    await _populated(task_context, spec(database, population=SUBSCRIBERS, partitions=3, cardinality="lab"))
    with psycopg.connect(database) as connection:
        for table in NAMES:
            parts = connection.execute(
                f"SELECT tableoid::regclass::text, min(s_id), max(s_id) FROM {table} GROUP BY 1 ORDER BY 1".encode()
            ).fetchall()
            assert [name for name, _, _ in parts] == [f"{table}_p1", f"{table}_p2", f"{table}_p3"]
            assert parts[0][2] <= 1_000 < parts[1][1] <= parts[1][2] <= 2_000 < parts[2][1]
        plan = connection.execute(LOOKED_UP).fetchall()
    assert sum("sub_nbr" in line and "Index" in line for (line,) in plan) >= 3


async def _populated(context: Any, task: PopulateSystem) -> None:
    """Populate, and compare the rows, their counts and the progress with the specification."""
    context.progressed.clear()
    populated = await populate(context, task)
    assert list(counts(populated)) == list(NAMES)
    for table in NAMES:
        expected = made(task, table)
        assert rows_of(task.endpoint.dsn, table) == expected
        assert counts(populated)[table] == len(expected)
    assert populated.seconds > 0
    reports = context.progressed
    done = [done for done, *_ in reports]
    assert done == sorted(done)
    assert done[-1] == sum(counts(populated).values())
    assert all(0 < done <= total and unit == "rows" for done, total, unit, _ in reports)
    assert reports[-1][3] == "counting rows"
    assert not context.logs


async def test_sqlite_contains_the_same_rows_all_in_the_file(wal_file: Path, task_context: Any, spec: Any) -> None:
    task = spec(str(wal_file), engine="sqlite", population=SUBSCRIBERS, seed=7)
    connection = apsw.Connection(str(wal_file))
    try:
        await populate(task_context, task)
        log = wal_file.with_name(f"{wal_file.name}-wal")
        assert not log.exists() or log.stat().st_size == 0
        for table in NAMES:
            stored = connection.execute(f"SELECT * FROM {table} ORDER BY {PRIMARY_KEYS[table]}").fetchall()
            assert stored == made(task, table)
        assert connection.pragma("foreign_key_check") is None
        plan = connection.execute("EXPLAIN QUERY PLAN SELECT s_id FROM subscriber WHERE sub_nbr = 'x'").fetchall()
        assert "subscriber_sub_nbr" in plan[0][3]
    finally:
        connection.close()


@given(units=st.integers(1, 3_000_000_000), cuts=st.lists(st.integers(1, 63), unique=True))
def test_slices_and_shares_cover_every_unit_once(units: int, cuts: list[int]) -> None:
    cut = slices(units)
    bounds = [0, *sorted(cuts), 64]
    assert [part for low, high in pairwise(bounds) for part in share_of(cut, low, high, 64)] == cut
    assert cut[0][0] == 1
    assert all(first + count == after for (first, count), (after, _) in pairwise(cut))
    assert sum(count for _, count in cut) == units


def test_a_table_out_of_its_range_is_named() -> None:
    right = TableCount(table="subscriber", rows=100, expected_low=100, expected_high=100)
    wrong = TableCount(table="access_info", rows=401, expected_low=240, expected_high=260)
    judge((right,), "backend")
    with pytest.raises(TaskFault, match="access_info has 401 rows, not 240 to 260") as caught:
        judge((right, wrong), "backend")
    assert caught.value.code == "fault"
    assert "subscriber" not in caught.value.what


async def test_rows_that_are_not_those_that_were_sent_are_named(
    task_context: Any, spec: Any, sqlite_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database counts one more."""

    async def run(pool: WorkerPool, jobs: Any) -> list[int]:
        found = await whole(pool, jobs)
        return [101 if job == Count(table="subscriber") else rows for job, rows in zip(jobs, found, strict=True)]

    whole = WorkerPool.run
    monkeypatch.setattr(WorkerPool, "run", run)
    with pytest.raises(TaskFault, match="table subscriber has 101 rows after 100 were loaded into it"):
        await populate(task_context, spec(str(sqlite_file), engine="sqlite", population=100))

"""Windows that are counted in passes: every terminal runs its set so many times, to completion, on both kinds of
loops."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

from proveout.agent.load.run_load import run_load
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import Windows
from proveout.dsl.workloads.sql.parameters import Custom
from proveout.proto.wire.results import LoadResult
from proveout.proto.wire.tasks import RunLoad

LIMIT_S = 60.0
NAMES = ("One", "Two", "Three")


def queries(**texts: str) -> Workload:
    entries = {name: {"statements": {"rows": texts.get(name, "SELECT 1 AS n")}} for name in NAMES}
    model = Custom.model_validate({"in_order": True, "transactions": entries})
    return Workload(name="queries", kind="sql", parameters=to_values(model))


def in_passes(load: RunLoad, passes: int, limit_s: float = LIMIT_S) -> RunLoad:
    return replace(load, windows=Windows(ramp_up_s=0.0, measure_s=limit_s, ramp_down_s=0.0, passes=passes))


def counts(result: LoadResult) -> dict[str, int]:
    return {one.counts.name: one.counts.ok + one.counts.error_count for one in result.transactions}


def length_s(result: LoadResult) -> float:
    return (result.measure_end_ns - result.measure_start_ns) / 1e9


@pytest.fixture
def sqlite_file(database_folder: Path, hand_over: Any) -> str:
    file = database_folder / "data.sqlite"
    apsw.Connection(str(file)).close()
    hand_over(database_folder)
    return str(file)


def judge(result: LoadResult, *, terminals: int, passes: int) -> None:
    assert counts(result) == dict.fromkeys(NAMES, terminals * passes), result.first_errors
    assert len(result.passes_s) == terminals * passes
    assert all(0.0 < seconds <= length_s(result) for seconds in result.passes_s)
    assert result.ended_in_window == len(NAMES) * terminals * passes
    assert result.seconds_produced <= length_s(result) + 1.0
    assert length_s(result) < LIMIT_S
    assert not result.stalls
    assert result.hung == 0


@pytest.mark.usefixtures("hot_path")
async def test_event_loops_run_the_passes_of_all_workers_and_end(database: str, context: Any, spec: Any) -> None:
    load = in_passes(spec(database, terminals=3, workers=2, workload=queries(One="SELECT pg_sleep(0.02)")), 4)
    judge(await run_load(context, load), terminals=3, passes=4)
    judge(await run_load(context, replace(load, seed=2)), terminals=3, passes=4)  # on the same workers


async def test_threads_run_their_passes_and_end(sqlite_file: str, context: Any, spec: Any) -> None:
    load = in_passes(spec(sqlite_file, engine="sqlite", terminals=3, workers=1, workload=queries()), 4)
    judge(await run_load(context, load), terminals=3, passes=4)


async def test_a_query_that_fails_counts_as_run(database: str, context: Any, spec: Any) -> None:
    load = spec(database, terminals=2, workers=1, workload=queries(Two="SELECT 1 / (pg_backend_pid() * 0)"))
    result = await run_load(context, in_passes(load, 3))
    assert counts(result) == dict.fromkeys(NAMES, 6)
    assert {one.counts.name: one.counts.error_count for one in result.transactions}["Two"] == 6
    assert length_s(result) < LIMIT_S


async def test_a_lost_connection_counts_as_run(database: str, context: Any, spec: Any) -> None:
    ends = "SELECT pg_terminate_backend(pg_backend_pid())"
    result = await run_load(context, in_passes(spec(database, terminals=1, workload=queries(Three=ends)), 2))
    assert sum(one.counts.error_count for one in result.transactions) == 2
    assert length_s(result) < LIMIT_S


@pytest.mark.parametrize("engine", ["postgres", "sqlite"])
async def test_the_limit_ends_a_load_whose_passes_have_not(
    engine: str, context: Any, spec: Any, request: pytest.FixtureRequest
) -> None:
    dsn = request.getfixturevalue("database" if engine == "postgres" else "sqlite_file")
    load = in_passes(spec(dsn, engine=engine, terminals=2, workers=1, workload=queries()), 10**6, 0.4)
    result = await run_load(context, load)
    assert length_s(result) == pytest.approx(0.4)
    assert sum(counts(result).values()) < 6 * 10**6

"""A set of queries in order, and windows that are counted in passes of it: every terminal runs its set so many times, to
completion, on both kinds of loops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import apsw
import pytest

from proveout.agent.load.loop.recorder import Recorder
from proveout.agent.load.loop.terminal import stream_of
from proveout.agent.load.loop.transaction import kinds, mix
from proveout.agent.load.run_load import run_load
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import Windows
from proveout.dsl.workloads.conformance import conform
from proveout.dsl.workloads.kinds import build
from proveout.proto.wire.results import LoadResult
from proveout.proto.wire.tasks import RunLoad

from .conftest import seen_of, workload_of

LIMIT_S = 600.0
NAMES = ("One", "Two", "Three")


def queries(*, in_order: bool = True, **texts: str) -> Workload:
    entries = {name: {"statements": {"rows": texts.get(name, "SELECT 1 AS n")}} for name in NAMES}
    return workload_of("sql", in_order=in_order, transactions=entries)


def drawn(workload: Workload, terminal: int) -> Iterator[int]:
    built, stream = build(workload), stream_of(7, terminal)
    return (kind.number for kind in mix(kinds(built, built.keys(stream), Recorder(3).times), built, stream))


@pytest.mark.parametrize(("terminal", "first"), [(0, [0, 1, 2]), (1, [1, 2, 0]), (3, [0, 1, 2])])
def test_each_terminal_cycles_through_the_set_from_its_own_first_query(terminal: int, first: list[int]) -> None:
    assert list(islice(drawn(queries(), terminal), 9)) == first * 3
    assert list(islice(drawn(queries(in_order=False), terminal), 300)) != first * 100


# ---- whole loads ---------------------------------------------------------------------------------------------------


def in_passes(load: RunLoad, passes: int, limit_s: float = LIMIT_S) -> RunLoad:
    return replace(load, windows=Windows(ramp_up_s=0.0, measure_s=limit_s, ramp_down_s=0.0, passes=passes))


def counts(result: LoadResult) -> dict[str, int]:
    return {one.counts.name: one.counts.ok + one.counts.error_count for one in result.transactions}


def length_s(result: LoadResult) -> float:
    return (result.measure_end_ns - result.measure_start_ns) / 1e9


@pytest.fixture
def dsn(request: pytest.FixtureRequest, database_folder: Path, hand_over: Any, engine: str) -> str:
    if engine == "postgres":
        return str(request.getfixturevalue("database"))
    file = database_folder / "data.sqlite"
    apsw.Connection(str(file)).close()
    hand_over(database_folder)
    return str(file)


@pytest.mark.server
@pytest.mark.parametrize("engine", ["postgres", "sqlite"])
async def test_all_workers_run_their_passes_and_end(engine: str, dsn: str, context: Any, spec: Any) -> None:
    """The limit ends a load whose passes have not."""
    whole = spec(dsn, engine=engine, terminals=3, workers=2, workload=queries())
    result = await run_load(context, in_passes(whole, 4))
    assert counts(result) == dict.fromkeys(NAMES, 3 * 4), result.first_errors
    assert all(finding.ok for finding in conform(queries(), seen_of(result)))
    assert len(result.passes_s) == 3 * 4
    assert all(0.0 < seconds <= length_s(result) for seconds in result.passes_s)
    assert result.ended_in_window == len(NAMES) * 3 * 4
    assert result.seconds_produced <= length_s(result) + 1.0
    assert length_s(result) < LIMIT_S, "their end is that of the window"
    assert result.hung == 0
    limited = await run_load(context, in_passes(whole, 10**9, 0.2))
    assert length_s(limited) == pytest.approx(0.2)
    assert sum(counts(limited).values()) > 0


@pytest.mark.server
@pytest.mark.parametrize("engine", ["postgres"])
async def test_a_query_that_fails_or_loses_its_connection_counts_as_run(dsn: str, context: Any, spec: Any) -> None:
    for query in ("SELECT 1 / (pg_backend_pid() * 0)", "SELECT pg_terminate_backend(pg_backend_pid())"):
        workload = queries(Two=query)
        result = await run_load(context, in_passes(spec(dsn, terminals=2, workers=1, workload=workload), 2))
        assert counts(result) == dict.fromkeys(NAMES, 4)
        assert {t.counts.name: t.counts.error_count for t in result.transactions} == {"One": 0, "Two": 4, "Three": 0}

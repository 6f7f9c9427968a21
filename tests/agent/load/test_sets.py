"""A set of queries in order: which one each terminal runs next, and a load of it on a real engine."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import apsw
import pytest

from proveout.agent.load.loop.recorder import Recorder
from proveout.agent.load.loop.terminal import stream_of
from proveout.agent.load.loop.transaction import kinds, mix
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.conformance import Seen, conform
from proveout.dsl.workloads.kinds import build, is_in_order
from proveout.dsl.workloads.sql.parameters import Custom

from .conftest import run_until


def queries(*, in_order: bool = True) -> Workload:
    texts = {"One": "SELECT 1 AS n", "Two": "SELECT 2 AS n", "Three": "SELECT 3 AS n"}
    entries = {name: {"statements": {"rows": text}} for name, text in texts.items()}
    model = Custom.model_validate({"in_order": in_order, "transactions": entries})
    return Workload(name="queries", kind="sql", parameters=to_values(model))


def drawn(workload: Workload, terminal: int) -> Iterator[int]:
    built, stream = build(workload), stream_of(7, terminal)
    return (kind.number for kind in mix(kinds(built, built.keys(stream), Recorder(3).times), built, stream))


@pytest.mark.parametrize(("terminal", "first"), [(0, [0, 1, 2]), (1, [1, 2, 0]), (2, [2, 0, 1]), (3, [0, 1, 2])])
def test_each_terminal_cycles_through_the_set_from_its_own_first_query(terminal: int, first: list[int]) -> None:
    assert list(islice(drawn(queries(), terminal), 9)) == first * 3


def test_a_mix_is_drawn_as_before() -> None:
    found = list(islice(drawn(queries(in_order=False), 0), 300))
    assert found != [0, 1, 2] * 100
    assert not is_in_order(queries(in_order=False))


def test_a_set_has_no_weights() -> None:
    entries = {"One": {"weight": 2, "statements": {"rows": "SELECT 1 AS n"}}}
    with pytest.raises(ValueError, match="leave `weight` out"):
        Custom.model_validate({"in_order": True, "transactions": entries})


@pytest.mark.usefixtures("hot_path")
async def test_a_load_runs_every_query_as_often_as_the_others(
    database_folder: Path, hand_over: Any, context: Any, spec: Any
) -> None:
    file = database_folder / "data.sqlite"
    apsw.Connection(str(file)).close()
    hand_over(database_folder)
    made = spec(str(file), engine="sqlite", terminals=2, workers=1, windows=(0.1, 0.5, 0.1), workload=queries())
    result = await run_until(lambda result: min(one.counts.ok for one in result.transactions) > 0, context, made)
    counts = [(one.counts.name, one.counts.ok) for one in result.transactions]
    assert sum(one.counts.error_count for one in result.transactions) == 0, result.first_errors
    most, least = (pick(count for _, count in counts) for pick in (max, min))
    assert most - least <= 2  # a pass of each terminal may be cut at an edge of the window
    seen = [Seen(name=name, ok=count, logical_failures=0) for name, count in counts]
    assert all(finding.ok for finding in conform(queries(), seen))

"""An agent checks the queries, waits and values of a task again: a task need not come from the compiler."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from proveout.agent.security.task_rules import objection
from proveout.dsl.plan.commands import MeasuredValue, WaitUntil
from proveout.dsl.plan.topology import Capture
from proveout.proto.wire.tasks import Endpoint, RunCapture, RunSql

END = Endpoint(system="db", engine="postgres", dsn="host=x dbname=y")
VALUE = MeasuredValue(name="a", column="1")
STAGE = RunSql(endpoint=END, statements=(), query="SELECT 1", values=(VALUE,))
SAMPLED = RunCapture(
    capture=Capture(name="c", kind="sql", every_s=1.0, system="db", query="SELECT 1", values=(VALUE,)), endpoints=(END,)
)


def test_what_a_compiler_makes_is_accepted() -> None:
    assert objection(STAGE) is None
    assert objection(SAMPLED) is None
    assert objection(replace(STAGE, wait_until=WaitUntil(query="SELECT 1", equals="1"))) is None


@pytest.mark.parametrize(
    "change",
    [
        *(
            {"values": values}
            for values in (
                (),
                (VALUE, VALUE),
                (replace(VALUE, name="a b"),),
                (replace(VALUE, name="a_upper"),),
                (replace(VALUE, name="a_total"),),
                (replace(VALUE, column=""),),
                (replace(VALUE, column="0"),),
                (replace(VALUE, column="9" * 4000),),
                (replace(VALUE, column="x\0y"),),
                (replace(VALUE, where=(("a", "b"),) * 11),),
                tuple(replace(VALUE, name=f"v{number}") for number in range(101)),
            )
        ),
        *({"query": query} for query in ("", " ", "x" * 5000, "SELECT\0")),
    ],
)
def test_values_and_queries_that_no_plan_has_are_refused(change: dict[str, Any]) -> None:
    assert objection(replace(STAGE, **change)) is not None
    assert objection(replace(SAMPLED, capture=replace(SAMPLED.capture, **change))) is not None


@pytest.mark.parametrize(
    "wait",
    [{"query": ""}, {"every_s": 0.0}, {"every_s": float("nan")}, {"within_s": float("inf")}, {"equals": "x" * 5000}],
)
def test_waits_that_no_plan_has_are_refused(wait: dict[str, Any]) -> None:
    assert objection(replace(STAGE, wait_until=WaitUntil(**{"query": "SELECT 1", "equals": "1", **wait}))) is not None


def test_a_capture_of_another_kind_or_engine_has_no_query() -> None:
    other = replace(SAMPLED.capture, kind="waits")
    assert objection(replace(SAMPLED, capture=other)) is not None
    silent = replace(SAMPLED.capture, query="", values=())
    assert objection(replace(SAMPLED, capture=silent)) is not None
    found = objection(replace(SAMPLED, endpoints=(replace(END, engine="other"),)))
    assert found is not None
    assert found.message == "queries of other are not captured in this release"

"""An agent checks the commands, queries, waits, values, levels and phases of a task again: a task need not come from the
compiler."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from proveout.agent.security.task_rules import objection
from proveout.dsl.plan.commands import Command, MeasuredValue, OutputRows, WaitUntil
from proveout.dsl.plan.phases import PHASES_MAX, POINTS_MAX, SLICES_MAX, Level
from proveout.dsl.plan.stages import Windows
from proveout.dsl.plan.topology import Capture
from proveout.dsl.rules.ladder_rules import load_problems
from proveout.proto.wire.tasks import Endpoint, RunCapture, RunCommand, RunSql

END = Endpoint(system="db", engine="postgres", dsn="host=x dbname=y")
VALUE = MeasuredValue(name="a", column="1")
STAGE = RunSql(endpoint=END, statements=(), query="SELECT 1", values=(VALUE,))
QUERIED = Capture(name="c", kind="sql", every_s=1.0, system="db", query="SELECT 1", values=(VALUE,))
SAMPLED = RunCapture(capture=QUERIED, endpoints=(END,))
COMMAND = RunCommand(command=Command(argv=("/usr/bin/df",)), values=(VALUE,))
OUTPUT = Capture(name="c", kind="command", every_s=1.0, hosts=("h",), command=COMMAND.command, values=(VALUE,))


def test_what_a_compiler_makes_is_accepted() -> None:
    waits = replace(STAGE, wait_until=WaitUntil(query="SELECT 1", equals="1"))
    for spec in (STAGE, SAMPLED, waits, COMMAND, RunCapture(capture=OUTPUT)):
        assert objection(spec) is None


@pytest.mark.parametrize(
    "values",
    [
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
    ],
)
def test_values_that_no_plan_has_are_refused(values: tuple[MeasuredValue, ...]) -> None:
    for spec in (STAGE, COMMAND):
        assert objection(replace(spec, values=values)) is not None
    assert objection(replace(SAMPLED, capture=replace(QUERIED, values=values))) is not None


@pytest.mark.parametrize("query", ["", " ", "x" * 5000, "SELECT\0"])
def test_queries_that_no_plan_has_are_refused(query: str) -> None:
    assert objection(replace(STAGE, query=query)) is not None
    assert objection(replace(SAMPLED, capture=replace(QUERIED, query=query))) is not None


@pytest.mark.parametrize(
    "wait",
    [{"query": ""}, {"every_s": 0.0}, {"every_s": float("nan")}, {"within_s": float("inf")}, {"equals": "x" * 5000}],
)
def test_waits_that_no_plan_has_are_refused(wait: dict[str, Any]) -> None:
    assert objection(replace(STAGE, wait_until=WaitUntil(**{"query": "SELECT 1", "equals": "1", **wait}))) is not None


def test_a_capture_of_another_kind_or_engine_has_no_query_and_no_command() -> None:
    for other in (replace(QUERIED, kind="waits"), replace(QUERIED, query="", values=())):
        assert objection(replace(SAMPLED, capture=other)) is not None
    assert objection(RunCapture(capture=replace(OUTPUT, kind="os"))) is not None
    found = objection(replace(SAMPLED, endpoints=(replace(END, engine="other"),)))
    assert found is not None
    assert found.message == "queries of other are not captured in this release"


@pytest.mark.parametrize(
    "change",
    [
        {"argv": ()},
        {"argv": ("../df",)},
        {"argv": ("/usr/bin/../df",)},
        {"argv": ("-rf",)},
        {"argv": ("df", "a\0b")},
        {"argv": ("df", "${secrets.p}")},
        {"argv": ("df",) * 300},
        {"within_s": 0.0},
        {"within_s": float("nan")},
        {"exit_codes": ()},
        {"exit_codes": (256,)},
        {"output": OutputRows(format="pattern")},
        {"output": OutputRows(format="json", pattern="(?P<a>x)")},
        {"output": OutputRows(format="pattern", pattern="(?P<a>x")},
        {"output": OutputRows(format="pattern", pattern="x")},
        {"output": OutputRows(format="pattern", pattern="(?P<a>(x{100}){100})")},
        {"output": OutputRows(format="csv", separator="ab")},
    ],
)
def test_commands_that_no_plan_has_are_refused(change: dict[str, Any]) -> None:
    command = replace(COMMAND.command, **change)
    assert objection(replace(COMMAND, command=command)) is not None
    assert objection(RunCapture(capture=replace(OUTPUT, command=command))) is not None


# ---- levels and phases -----------------------------------------------------------------------------------------------

WINDOWS = Windows(ramp_up_s=0.0, measure_s=20.0, ramp_down_s=0.0, phases=(("calm", 10.0), ("spike", 10.0)))
LEVEL = Level(for_s=10.0, values=(500.0,))
LINE = Level(for_s=10.0, at_s=(0.0, 10.0), values=(1.0, 2.0))


def test_phases_of_a_plan_are_allowed() -> None:
    wave = Level(for_s=10.0, values=(5.0,), amplitude=5.0, period_s=1.0)
    assert list(load_problems((LINE, wave), WINDOWS, 1000.0)) == []
    assert list(load_problems((), WINDOWS, 1000.0)) == []
    assert list(load_problems((), replace(WINDOWS, phases=()), 1000.0)) == []


@pytest.mark.parametrize(
    "level",
    [
        replace(LEVEL, for_s=0.0),
        replace(LEVEL, values=()),
        replace(LEVEL, values=(math.inf,)),
        replace(LEVEL, values=(-1.0,)),
        replace(LEVEL, values=(1001.0,)),
        replace(LEVEL, values=(1.0, 2.0)),
        replace(LEVEL, at_s=(1.0,)),
        replace(LINE, at_s=(0.0, 0.0)),
        replace(LINE, at_s=(0.0, 11.0)),
        replace(LINE, amplitude=0.5, period_s=1.0),
        replace(LEVEL, amplitude=1.0),
        replace(LEVEL, amplitude=501.0, period_s=1.0),
        replace(LEVEL, amplitude=1.0, period_s=1e-9),
    ],
)
def test_a_level_that_is_not_possible_is_refused(level: Level) -> None:
    assert list(load_problems((LEVEL, level), WINDOWS, 1000.0))


@pytest.mark.parametrize(
    ("levels", "phases"),
    [
        ((LEVEL,), WINDOWS.phases),
        ((LEVEL, LEVEL), (("calm", 10.0),)),
        ((LEVEL, LEVEL), (("calm", 10.0), ("calm", 10.0))),
        ((LEVEL, LEVEL), (("calm", 10.0), ("no name", 10.0))),
        ((LEVEL, LEVEL), (("calm", 20.0), ("spike", 0.0))),
        ((replace(LEVEL, values=(0.0,)),) * 2, WINDOWS.phases),
        ((replace(LEVEL, for_s=20.0 / (PHASES_MAX + 1)),) * (PHASES_MAX + 1), ()),
        ((), tuple((f"p{number}", 20.0 / (SLICES_MAX + 1)) for number in range(SLICES_MAX + 1))),
    ],
)
def test_phases_that_do_not_fit_the_window_are_refused(
    levels: tuple[Level, ...], phases: tuple[tuple[str, float], ...]
) -> None:
    assert list(load_problems(levels, replace(WINDOWS, phases=phases), 1000.0))


def test_a_table_has_a_bound() -> None:
    at_s = tuple(20.0 * number / (POINTS_MAX + 1) for number in range(POINTS_MAX + 1))
    level = Level(for_s=20.0, at_s=at_s, values=(1.0,) * len(at_s))
    assert [one.message for one in load_problems((level,), replace(WINDOWS, phases=()), 9.0)] == [
        f"more than {POINTS_MAX:,} points"
    ]

"""The workload kind `program`: its argv template, and the arguments of a host's share."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from proveout.dsl.plan.model_values import from_values, to_values
from proveout.dsl.workloads.program.parameters import Program, words

ARGV = ["pgbench", "--client={threads}", "--time={seconds}"]


def test_fields_are_filled_in() -> None:
    model = Program(argv=ARGV, output="pgbench")
    assert words(model.argv, {"threads": "4", "seconds": "10"}) == ("pgbench", "--client=4", "--time=10")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([*ARGV, "{rates}"], "unknown field {rates}; the fields are {threads}"),
        (ARGV[:2], "no argument has {seconds}"),
        (ARGV[::2], "no argument has {threads}"),
        (["./pgbench", *ARGV[1:]], "neither the absolute path"),
        ([*ARGV, "a\0b"], "control characters"),
        ([], "at least 1"),
    ],
)
def test_templates_that_cannot_work_are_refused(argv: list[str], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Program(argv=argv, output="pgbench")
    assert message in str(caught.value)


COLUMNS = {"time": "t", "tps": "n"}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"output": "csv"}, "a summary needs the metric `tps` or `transactions`"),
        ({"output": "csv", "metrics": {"tps": {}, "transactions": {}}}, "and not both"),
        ({"output": {"log": COLUMNS}, "metrics": {"tps": {}}}, "`tps` is a column of the `log`"),
        ({"output": {"log": {"time": "t"}}}, "either `tps` or `transactions`"),
        ({"output": {"log": {**COLUMNS, "transactions": "n"}}}, "either `tps` or `transactions`"),
        ({"output": {"format": "csv", "file": "../x", "log": COLUMNS}}, "not the name of a file"),
        ({"output": {"pattern": "no groups"}, "metrics": {"tps": {}}}, "no named group"),
        ({"output": {"format": "csv", "separator": '"'}, "metrics": {"tps": {}}}, "not a quote"),
        ({"output": "pgbench", "metrics": {"p90_ms": {}}}, "output: pgbench has numbers of its own"),
        ({"output": "json", "metrics": {"tps": {"as": "rate"}}}, "`as: rate` is of captures"),
        ({"output": "pgbench", "range": [1, 10]}, "{range_to} belong together"),
        ({"output": "pgbench", "argv": [*ARGV, "{range_from}"], "range": [10, 1]}, "is empty"),
        ({"output": "pgbench", "argv": [*ARGV, "{measure_s}"]}, "exclude each other"),
        ({"output": "pgbench", "exit_codes": [256]}, "from 0 to 255"),
    ],
)
def test_parameters_that_contradict_each_other_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Program(**{"argv": ARGV, **parameters})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "whole"),
    [
        ({"output": "pgbench"}, True),
        ({"output": "sysbench"}, False),
        ({"output": "json", "metrics": {"tps": {}}}, False),
        ({"output": {"log": COLUMNS}}, True),
        ({"output": "json", "metrics": {"tps": {}}, "argv": ["c", "{threads}", "{measure_s}"]}, True),
    ],
)
def test_a_run_covers_the_ramp_up_where_its_window_can_be_cut(parameters: dict[str, Any], whole: bool) -> None:
    assert Program(**{"argv": ARGV, **parameters}).runs_whole is whole


def test_parameters_cross_the_wire() -> None:
    model = Program(argv=ARGV, output={"log": COLUMNS, "file": "out.csv"}, metrics={"p90_ms": {"hosts": "max"}})
    assert from_values(Program, to_values(model)) == model

"""Parameters of workloads: defaults, and those that are refused and not in tests/golden/bad. (`test_golden.py` holds that
parameters survive the compiled plan.)"""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from proveout.dsl.workloads.hlr import HLR_TRANSACTIONS, Hlr
from proveout.dsl.workloads.kinds import built_in
from proveout.dsl.workloads.program import Program, words

ARGV = ["pgbench", "--client={threads}", "--time={seconds}"]
COLUMNS = {"time": "t", "tps": "n"}
PGBENCH = {"argv": ARGV, "output": "pgbench"}


def test_the_defaults_of_the_hlr_workload_are_the_specification() -> None:
    model = Hlr()
    assert list(model.weights.items()) == list(zip(HLR_TRANSACTIONS, (35, 35, 10, 2, 14, 2, 2), strict=True))
    assert (model.keys, model.cardinality, model.partitions) == ("uniform", "tatp", 1)
    assert (model.first, model.last) == (1, model.population)
    mix = Hlr.model_validate({"weights": {"UpdateLocation": 3, "GetAccessData": 1.5}})
    assert tuple(mix.weights) == HLR_TRANSACTIONS
    given = {name: weight for name, weight in mix.weights.items() if weight}
    assert given == {"GetAccessData": 1.5, "UpdateLocation": 3.0}


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        ("hlr", {"population": 0}, "greater than or equal to 1"),
        ("hlr", {"population": 10_000_000_001}, "less than or equal to 10000000000"),
        ("hlr", {"keys": "zipf"}, "'uniform' or 'nurand'"),
        ("hlr", {"population": 3, "partitions": 4}, "would leave some empty"),
        ("hlr", {"weights": {"GetAccessData": float("nan")}}, "from 0 to 1e9"),
        ("tprocc", {"mix": "paper", "weights": {"Payment": 1.0}}, "give one of them"),
        ("tproch", {"scale": 0.015}, "multiple of 0.01"),
        ("tproch", {"queries": [1, 23]}, "query 23 does not exist"),
        ("tproch", {"queries": [2, 2]}, "twice"),
        ("program", PGBENCH | {"argv": ARGV[:2]}, "no argument has {seconds}"),
        ("program", PGBENCH | {"argv": ["./pgbench", *ARGV[1:]]}, "neither the absolute path"),
        ("program", PGBENCH | {"argv": [*ARGV, "a\0b"]}, "control characters"),
        ("program", PGBENCH | {"output": "csv"}, "a summary needs the metric `tps` or `transactions`"),
        ("program", PGBENCH | {"output": "csv", "metrics": {"tps": {}, "transactions": {}}}, "and not both"),
        ("program", PGBENCH | {"output": {"log": COLUMNS}, "metrics": {"tps": {}}}, "`tps` is a column of the `log`"),
        ("program", PGBENCH | {"output": {"format": "csv", "file": "../x", "log": COLUMNS}}, "not the name of a file"),
        ("program", PGBENCH | {"output": {"format": "csv", "separator": '"'}, "metrics": {"tps": {}}}, "not a quote"),
        ("program", PGBENCH | {"metrics": {"p90_ms": {}}}, "output: pgbench has numbers of its own"),
    ],
)
def test_wrong_parameters_are_refused(kind: str, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        built_in(kind).parameters.model_validate(parameters)
    assert message in str(caught.value)


def test_the_fields_of_a_program_s_arguments_are_filled_in() -> None:
    argv = Program.model_validate(PGBENCH).argv
    assert words(argv, {"threads": "4", "seconds": "10"}) == ("pgbench", "--client=4", "--time=10")


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
def test_a_run_of_a_program_covers_the_ramp_up_where_its_window_can_be_cut(parameters: Any, whole: bool) -> None:
    assert Program.model_validate(PGBENCH | parameters).runs_whole is whole

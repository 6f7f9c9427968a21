"""The arguments and the environment of a program: shares of hosts, windows, rates, key ranges, and its target."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from proveout.agent.errors import TaskFault
from proveout.agent.tools.generator import address, checked, load_fields, variables
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import Windows
from proveout.dsl.workloads.program import FIELDS, Program
from proveout.proto.wire.tasks import Endpoint, LoadShare, RunLoad

FOLDER = Path("/run/tool")
KEY = "run-1/ladder/8/3/1/load/client2"
POSTGRES = Endpoint(system="db", engine="postgres", dsn="host=db1 port=5433 dbname=hlr user=u password='s e'")
WINDOWS = Windows(ramp_up_s=60.0, measure_s=120.0, ramp_down_s=30.0)


def task(model: Program, endpoint: Endpoint = POSTGRES, windows: Windows = WINDOWS, **share: Any) -> RunLoad:
    return RunLoad(
        workload=Workload(name="w", kind="program", parameters=to_values(model)),
        endpoint=endpoint,
        share=LoadShare(**{"first": 6, "count": 2, "total": 8, **share}),
        windows=windows,
        workers=0,
        seed=7,
        label="l",
    )


def fields(*argv: str, endpoint: Endpoint = POSTGRES, **more: Any) -> Mapping[str, str]:
    share = {name: more.pop(name) for name in ("rate",) if name in more}
    model = Program(argv=["client", "{threads}", "{measure_s}", *argv], output="hammerdb", **more)
    spec = task(model, endpoint, **share)
    checked(spec, model)
    return load_fields(KEY, spec, model, address(endpoint), folder=FOLDER, seconds=179.5)


def test_every_field_has_a_value() -> None:
    found = fields("{range_from}", "{range_to}", "{rate}", range=[1, 1000], rate=100.0)
    assert {*found} == {*FIELDS}
    expected = {
        "threads": "2", "total_threads": "8", "first_thread": "6", "rate": "25", "total_rate": "100",
        "range_from": "751", "range_to": "1000", "seconds": "180", "ramp_up_s": "60", "measure_s": "120",
        "ramp_down_s": "30", "ramp_up_min": "1", "measure_min": "2", "stage": "ladder", "rung": "8", "repeat": "3",
        "attempt": "1", "seed": "7", "host": "db1", "port": "5433", "user": "u", "database": "hlr", "socket": "",
        "connect_string": "", "password_file": "/run/tool/password",
    }  # fmt: skip
    assert found == expected


def test_shares_of_a_range_are_disjoint_and_whole() -> None:
    model = Program(
        argv=["c", "{threads}", "{seconds}", "{range_from}", "{range_to}"], output="pgbench", range=[5, 104]
    )
    parts = []
    for first, count in ((0, 1), (1, 2), (3, 4)):
        spec = task(model, first=first, count=count, total=7)
        found = load_fields(KEY, spec, model, address(POSTGRES), folder=FOLDER, seconds=1.0)
        parts.append((int(found["range_from"]), int(found["range_to"])))
    assert parts == [(5, 18), (19, 46), (47, 104)]


@pytest.mark.parametrize(
    ("engine", "dsn", "expected", "variable"),
    [
        (
            "mysql",
            "mysql://u:p%40w@db1:3307/hlr?unix_socket=/run/m.sock",
            {"host": "db1", "port": "3307", "user": "u", "database": "hlr", "socket": "/run/m.sock"},
            ("MYSQL_PWD", "p@w"),
        ),
        (
            "oracle",
            "hlr/p/w@//rac1:1522/HLR1",
            {"host": "rac1", "port": "1522", "user": "hlr", "database": "HLR1", "connect_string": "//rac1:1522/HLR1"},
            ("LOAD_PASSWORD", "p/w"),
        ),
        ("oracle", "hlr/pw@ALIAS", {"host": "", "connect_string": "ALIAS"}, ("LOAD_PASSWORD", "pw")),
        ("sqlite", "/data/x.db", {"database": "/data/x.db"}, ("LOAD_FOLDER", "/run/tool")),
        ("none", "none", {"database": ""}, ("LOAD_THREADS", "2")),
    ],
)
def test_the_target_of_each_engine(
    engine: str, dsn: str, expected: Mapping[str, str], variable: tuple[str, str]
) -> None:
    endpoint = Endpoint(system="db", engine=engine, dsn=dsn)
    found = fields(endpoint=endpoint)
    assert {name: found[name] for name in expected} == expected
    name, value = variable
    assert variables(found, address(endpoint), FOLDER)[name] == value
    assert value not in found.values() or not name.endswith(("PASSWORD", "PWD"))


def test_tasks_that_a_program_cannot_run_are_refused() -> None:
    alias = Endpoint(system="rac", engine="oracle", dsn="hlr/pw@ALIAS")
    with pytest.raises(TaskFault, match=r"the field \{host\} has no value: the dsn of system 'rac'"):
        fields("{host}", endpoint=alias)
    with pytest.raises(TaskFault, match="belong together"):
        fields(rate=10.0)
    with pytest.raises(TaskFault, match="belong together"):
        fields("{rate}")
    model = Program(argv=["hammerdbcli"], output="hammerdb")
    with pytest.raises(TaskFault, match="whole minutes"):
        checked(task(model, windows=Windows(ramp_up_s=30.0, measure_s=60.0, ramp_down_s=0.0)), model)

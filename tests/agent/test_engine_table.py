"""The entries of `dsl.engines`: their places exist and take what `agent.engines.adapter` gives them, each states one thing
about the engine, and an adapter loads no client library."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from typing import Any, get_args

import pytest

from proveout.agent.engines.table import adapter, driver, is_in_files
from proveout.dsl import engines
from proveout.dsl.plan.captures import CAPTURES, CaptureDeclaration, CaptureKind
from proveout.proto.wire import agent_pb2 as pb

CLIENTS = ("psycopg", "pymysql", "oracledb", "apsw", "duckdb", "numpy", "pyarrow")
ARGUMENTS = {
    "driver": 0, "settings": 1, "run_sql": 2, "provision": 2, "server_program": 1, "populate": 2, "checkpoint": 1,
    "tune": 1, "queries": 1, "waits": 1, "sizes": 1, "lag": 2, "report_session": 2, "statement_session": 1,
    "data_copy": 2, "link_keys": 1,
}  # fmt: skip
"""The number of arguments of each part."""
FUNCTIONS = {"copies_file": ("problems", "copy_file", "restore_file"), "propagation": ("link", "compare")}
"""The functions of the parts that are modules."""
PLACES = [
    (engine.name, field)
    for engine in engines.ENGINES.values()
    for field in (*ARGUMENTS, *FUNCTIONS, "schema")
    if getattr(engine, field)
]


@pytest.mark.parametrize(("name", "field"), PLACES)
def test_each_place_is_there_and_takes_its_arguments(name: str, field: str) -> None:
    part: Any = adapter(name).part(field)
    if field == "schema":
        assert isinstance(part, str)
    elif field in FUNCTIONS:
        assert all(callable(getattr(part, function)) for function in FUNCTIONS[field])
    else:
        count = ARGUMENTS[field] + (field == "run_sql" and inspect.iscoroutinefunction(part))
        named = {"on_death": print} if field == "provision" else {}
        inspect.signature(part).bind(*range(count), **named)


@pytest.mark.parametrize("name", engines.WITH_DRIVER)
def test_the_driver_speaks_the_stated_dialect(name: str) -> None:
    assert driver(name).dialect == engines.of(name).dialect


@pytest.mark.parametrize("name", engines.ENGINES)
def test_the_statements_about_one_engine_agree(name: str) -> None:
    engine = engines.of(name)
    assert engine.name == name
    assert bool(engine.server) == bool(engine.commands) == bool(engine.server_program) == (engine.embedded == "server")
    assert bool(engine.provision) == (engine.embedded is not None)
    assert bool(engine.data_copy) == bool(engine.restore)
    assert bool(engine.report_session) == bool(engine.report)
    assert bool(engine.statement_session) == bool(engine.statements)
    assert bool(engine.lag) == (bool(engine.propagates_to) or engine.standbys)
    assert bool(engine.propagation) == bool(engine.link_keys) == bool(engine.links_to)
    assert (engine.embedded == "file") == (engine.dsn_form == "path")
    assert engine.dsn or not engine.has_driver or engine.embedded
    assert set(engine.links_to) <= set(engine.propagates_to)
    assert not (engine.populate and engine.instead_of_populate)
    assert not (engine.waits and engine.instead_of_waits)
    assert bool(engine.tested) == engine.has_driver
    assert engine.has_driver or not (engine.populate or engine.embedded or engine.session or engine.tune)


def test_an_engine_of_no_package_has_no_driver_and_no_files() -> None:
    assert not is_in_files("nosuchengine")
    assert engines.of("nosuchengine").embedded is None


def test_adapters_are_made_without_any_client_library() -> None:
    """An agent that serves one engine must not load the others' clients."""
    code = (
        "import sys\n"
        "from proveout.agent.engines import handlers\n"
        "from proveout.agent.engines.table import adapter\n"
        "from proveout.dsl import engines\n"
        "[adapter(name) for name in engines.ENGINES]\n"
        f"print(*(name for name in {CLIENTS!r} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == []


@pytest.mark.parametrize("kind", CAPTURES.values(), ids=CAPTURES)
def test_each_kind_of_captures_has_its_function_its_place_on_the_wire_and_a_refusal_of_engines(
    kind: CaptureDeclaration,
) -> None:
    module, _, name = kind.run.partition(":")
    assert callable(getattr(importlib.import_module(module), name))
    assert f"CAPTURE_KIND_{kind.name.upper()}" in dict(pb.CaptureKind.items())
    assert bool(kind.able) == bool(kind.refused)
    assert tuple(CAPTURES) == get_args(CaptureKind)

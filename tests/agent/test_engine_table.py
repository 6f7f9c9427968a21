"""The data in `dsl.engines` and the adapters in `agent.engines` state the same, and an adapter loads no client
library."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import get_args

import pytest

from proveout.agent.engines.adapter import (
    CapturesLag,
    CapturesSizes,
    CapturesStatements,
    CapturesWaits,
    Checkpoints,
    CopiesData,
    FindsServer,
    MakesReports,
    OpensCursors,
    OpensQueries,
    OwnsProcess,
    Populates,
    Propagates,
    Provisions,
)
from proveout.agent.engines.table import ADAPTERS, adapter, driver, is_in_files
from proveout.dsl import engines
from proveout.dsl.plan.captures import CAPTURES, CaptureDeclaration, CaptureKind
from proveout.proto.wire import agent_pb2 as pb

CLIENTS = ("psycopg", "pymysql", "oracledb", "apsw", "duckdb", "numpy", "pyarrow")


def test_the_table_has_an_adapter_for_each_engine_with_a_driver() -> None:
    assert sorted(ADAPTERS) == sorted([*engines.WITH_DRIVER, engines.NO_DATABASE])


@pytest.mark.parametrize("name", engines.WITH_DRIVER)
def test_each_capability_is_stated_and_implemented(name: str) -> None:
    found, stated = adapter(name), engines.of(name)
    implemented = {
        protocol.__name__: isinstance(found, protocol)
        for protocol in (
            Provisions,
            FindsServer,
            Populates,
            Checkpoints,
            CopiesData,
            OpensCursors,
            OpensQueries,
            CapturesWaits,
            CapturesSizes,
            CapturesLag,
            MakesReports,
            CapturesStatements,
            Propagates,
            OwnsProcess,
        )
    }
    assert implemented == {
        "CapturesStatements": bool(stated.statements),
        "Provisions": stated.embedded is not None,
        "FindsServer": bool(stated.server),
        "Populates": stated.populate,
        "Checkpoints": stated.checkpoint,
        "CopiesData": bool(stated.restore),
        "OpensCursors": stated.tune,
        "OpensQueries": stated.queries,
        "CapturesWaits": stated.waits,
        "CapturesSizes": stated.sizes,
        "CapturesLag": bool(stated.propagates_to) or stated.standbys,
        "MakesReports": bool(stated.report),
        "Propagates": bool(stated.links_to),
        "OwnsProcess": stated.own_process,
    }


@pytest.mark.parametrize("name", engines.WITH_DRIVER)
def test_the_driver_speaks_the_stated_dialect(name: str) -> None:
    assert driver(name).dialect == engines.of(name).dialect


@pytest.mark.parametrize("name", engines.ENGINES)
def test_the_statements_about_one_engine_agree(name: str) -> None:
    engine = engines.of(name)
    assert engine.name == name
    assert bool(engine.server) == bool(engine.commands) == (engine.embedded == "server")
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
        "from proveout.agent.engines.table import ADAPTERS, adapter\n"
        "[adapter(name) for name in ADAPTERS]\n"
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

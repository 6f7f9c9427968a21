"""Ceilings: stored for the present machine, and part of every load's result."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from proveout.agent.load import ceiling_store
from proveout.agent.load.ceiling_store import FILE, Ceiling, Known, keep, known
from proveout.agent.load.populate import populate
from proveout.agent.load.run_load import run_load
from proveout.proto.wire.tasks import Endpoint, PopulateSystem

from .conftest import workload_of

MEASURED = Ceiling(
    engine="sqlite", shared=True, per_s=1234.5, connections=4, cpu_us=10.0, workers=2, measured_unix_s=1.0
)


def test_a_ceiling_is_kept_for_this_machine_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(ceiling_store, "fingerprint", lambda: "another machine")
        keep(dataclasses.replace(MEASURED, engine="postgres"), tmp_path)
        assert known("postgres", tmp_path).shared_per_s == 1234.5
    assert known("postgres", tmp_path) == Known()
    for one in (MEASURED, dataclasses.replace(MEASURED, shared=False, per_s=2000.0)):
        keep(one, tmp_path)
    keep(dataclasses.replace(MEASURED, per_s=1300.0), tmp_path)
    assert known("sqlite", tmp_path) == Known(shared_per_s=1300.0, apart_per_s=2000.0)
    assert json.loads((tmp_path / FILE).read_text()).keys() == {"sqlite/shared", "sqlite/apart"}


@pytest.mark.parametrize("text", ["", '{"sqlite/shared": {"per_s": 5}}'])
def test_an_unreadable_file_has_no_ceilings(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    assert known("sqlite", tmp_path) == Known()
    keep(MEASURED, tmp_path)
    assert known("sqlite", tmp_path).shared_per_s == 1234.5


@pytest.mark.server
async def test_the_result_of_a_load_has_the_ceiling_of_its_driver(
    context: Any, spec: Any, tmp_path: Path, wal_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    read = workload_of("hlr", population=50, weights={"GetBasicSubscriberData": 1.0})
    endpoint = Endpoint(system="file", engine="sqlite", dsn=str(wal_file))
    await populate(context, PopulateSystem(workload=read, endpoint=endpoint, workers=1))
    task = spec(endpoint.dsn, engine="sqlite", terminals=1, workload=read, windows=(0.0, 0.1, 0.0))
    keep(MEASURED)
    result = await run_load(context, task)
    assert (result.ceiling_shared_per_s, result.ceiling_apart_per_s) == (1234.5, None)

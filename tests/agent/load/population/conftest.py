"""Fixtures for populations: a task context that records progress and log, and a factory of `PopulateSystem` tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proveout.agent.daemon.tasks import Resource
from proveout.agent.security.policy import Policy
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.hlr.parameters import Hlr
from proveout.proto.wire.results import TaskSample
from proveout.proto.wire.tasks import Endpoint, PopulateSystem


class Context:
    """A `TaskContext` that keeps progress and log."""

    key = "run/load/-/-/1/populate/db1"
    host = "db1"
    policy = Policy(own=True)

    def __init__(self, work_dir: Path) -> None:
        self.work_dir = work_dir
        self.resources: dict[str, Resource] = {}
        self.reports: list[tuple[float, float, str, str]] = []
        self.logged: list[tuple[str, str]] = []

    def progress(self, done: float, total: float, unit: str, note: str = "") -> None:
        self.reports.append((done, total, unit, note))

    def log(self, level: str, text: str) -> None:
        self.logged.append((level, text))

    def sample(self, sample: TaskSample) -> None:
        raise AssertionError("a load sends no samples")

    def armed(self) -> None:
        raise AssertionError("a load is not armed")

    async def started(self) -> int:
        raise AssertionError("a load is not started")

    async def finished(self) -> None:
        raise AssertionError("a load is not finished")


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(tmp_path)


def spec(dsn: str, *, engine: str = "postgres", workers: int = 2, **parameters: Any) -> PopulateSystem:
    """The task that populates the database of `dsn` with HLR data by these parameters."""
    workload = Workload(name="hlr", kind="hlr", parameters=to_values(Hlr.model_validate(parameters)))
    return PopulateSystem(
        workload=workload, endpoint=Endpoint(system="backend", engine=engine, dsn=dsn), workers=workers
    )


@pytest.fixture(name="spec")
def spec_fixture() -> Any:
    return spec

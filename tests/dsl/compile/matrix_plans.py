"""Plans with a matrix, for the tests of matrices and of turns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proveout.core.errors import PlanError
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.plan import Plan


def document(*stages: dict[str, Any], verdicts: list[dict[str, str]] | None = None) -> dict[str, Any]:
    return {
        "proveout": 1,
        "name": "m",
        "topology": {
            "hosts": {"h": {"roles": ["client"], "address": "local"}},
            "systems": {"db": {"engine": "sqlite", "host": "h", "provision": "embedded"}},
        },
        "workloads": {"hlr": {"kind": "hlr", "population": 100}},
        "stages": [{"populate": {"id": "load", "workload": "hlr", "into": "db"}}, *stages],
        "verdicts": verdicts or [],
    }


def ladder(id: str, **more: Any) -> dict[str, Any]:
    return {"ladder": {"id": id, "workload": "hlr", "target": "db", "threads": 1, "measure": "1s", **more}}


def made(folder: Path, plan: dict[str, Any]) -> Plan:
    path = folder / "plan.yaml"
    path.write_text(json.dumps(plan))
    return compile_plan(path)


def compiled(tmp_path: Path, *stages: dict[str, Any], verdicts: list[dict[str, str]] | None = None) -> Plan:
    return made(tmp_path, document(*stages, verdicts=verdicts))


def refused(tmp_path: Path, *stages: dict[str, Any], verdicts: list[dict[str, str]] | None = None) -> list[str]:
    with pytest.raises(PlanError) as caught:
        compiled(tmp_path, *stages, verdicts=verdicts)
    return [problem.message for problem in caught.value.problems]

"""Plans for tests of the compiler: documents with defaults, of which a test says the parts that matter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proveout.core.errors import PlanError
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.plan import Plan

Entry = dict[str, Any]


def embedded(engine: str, **more: Any) -> Entry:
    return {"engine": engine, "host": "h", "provision": "embedded", **more}


def document(*stages: Entry, **sections: Any) -> Entry:
    """A plan whose `db` on the host `h` is loaded first; `sections` replace its own, `systems` those of its topology."""
    systems = sections.pop("systems", None) or {"db": embedded("sqlite")}
    return {
        "proveout": 1,
        "name": "m",
        "topology": {"hosts": {"h": {"roles": ["client", "server"], "address": "local"}}, "systems": systems},
        "workloads": {"hlr": {"kind": "hlr", "population": 100}},
        "stages": [populate("load"), *stages],
    } | sections


def populate(id: str, into: Any = "db") -> Entry:
    return {"populate": {"id": id, "workload": "hlr", "into": into}}


def ladder(id: str, **more: Any) -> Entry:
    return {"ladder": {"id": id, "workload": "hlr", "target": "db", "threads": 1, "measure": "1s", **more}}


def sql(*statements: str, **more: Any) -> Entry:
    return {"sql": {"system": "db", "statements": list(statements), **more}}


def reset(*systems: str, **more: Any) -> Entry:
    return {"reset": {"systems": list(systems) or "db", **more}}


def made(folder: Path, plan: Entry, **overrides: Any) -> Plan:
    path = folder / "plan.yaml"
    path.write_text(json.dumps(plan))
    return compile_plan(path, overrides=overrides)


def compiled(folder: Path, *stages: Entry, **sections: Any) -> Plan:
    return made(folder, document(*stages, **sections))


def refused(folder: Path, *stages: Entry, **sections: Any) -> list[str]:
    with pytest.raises(PlanError) as caught:
        compiled(folder, *stages, **sections)
    return [problem.message for problem in caught.value.problems]

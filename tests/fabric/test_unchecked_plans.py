"""Plans compiled with the compiler's checks of hosts switched off: agents refuse their tasks with the messages that the
compiler would give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_hostile_tasks import _tasks as tasks_of

from proveout.agent.security import task_rules
from proveout.core.errors import PlanError
from proveout.dsl.compile import loads, prometheus_captures, sections, tool_stages, topology
from proveout.dsl.compile import tuning as tunings
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.rules import session_settings

HEAD = "proveout: 1\nname: p\n"
HOST = "  hosts:\n    db1: {roles: [client], address: local}\n"
PAUSE = "stages:\n  - pause: {duration: 1s}\n"
LOAD = """workloads:
  hlr: {kind: hlr, population: 100}
stages:
  - populate: {workload: hlr, into: [db], from: db1}
  - ladder: {workload: hlr, target: db, from: db1, threads: [1], measure: 1s%s}
"""
DEVICE = "/dev/disk/by-id/wwn-1"


def system(text: str) -> str:
    return f"topology:\n{HOST}  systems:\n    db: {{host: db1, {text}}}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchecked:
    """A plan that the compiler refuses with `says`; `parts` are all sections of the plan but its name."""

    name: str
    parts: str
    says: str


SERVER = "engine: postgres, provision: embedded"
PLANS = (
    Unchecked(name="duckdb with a dsn", parts=system("engine: duckdb, dsn: /etc/x.db") + PAUSE, says="it has no dsn"),
    Unchecked(
        name="archive_command",
        parts=system(f"{SERVER}, settings: {{archive_command: touch /tmp/x}}") + PAUSE,
        says="makes the server run or load something",
    ),
    Unchecked(
        name="plugin_load",
        parts=system("engine: mysql, provision: embedded, settings: {loose_plugin_load: x}") + PAUSE,
        says="would run a command or load code on the server",
    ),
    Unchecked(
        name="oracle embedded",
        parts=system("engine: oracle, provision: embedded") + PAUSE,
        says="proveout cannot start oracle",
    ),
    Unchecked(name="mysql dsn", parts=system("engine: mysql, dsn: --defaults-file=/x") + PAUSE, says="not a MySQL dsn"),
    Unchecked(
        name="session of a stage",
        parts=system(SERVER) + LOAD % ", session: {session_preload_libraries: /tmp/x.so}",
        says="would load code into the server",
    ),
    Unchecked(
        name="exporter",
        parts=f"topology:\n{HOST}captures:\n  c: {{kind: prometheus, on: db1, url: 'file:///etc/shadow', metrics: [{{name: a}}]}}\n{PAUSE}",
        says="not the address of an exporter",
    ),
    Unchecked(
        name="waits of sqlite",
        parts=system("engine: sqlite, provision: embedded") + "captures:\n  c: {kind: waits, system: db}\n" + PAUSE,
        says="wait events of sqlite are not captured",
    ),
    Unchecked(
        name="fio on a device that moves",
        parts=f"topology:\n{HOST}stages:\n  - tool: {{run: fio, from: db1, pattern: random-read-4k, size: 1MiB, measure: 1s, target: {{devices: [/dev/sda]}}}}\n",
        says="does not name a device for good",
    ),
    Unchecked(
        name="fio writes without consent",
        parts=f"topology:\n{HOST}stages:\n  - tool: {{run: fio, from: db1, pattern: sequential-write-1m, size: 1MiB, measure: 1s, target: {{devices: [{DEVICE}]}}}}\n",
        says="writing to devices destroys the data on them",
    ),
    Unchecked(
        name="fio climbs",
        parts=f"topology:\n{HOST}stages:\n  - tool: {{run: fio, from: db1, pattern: random-read-4k, size: 1MiB, measure: 1s, target: {{directory: /data/../etc}}}}\n",
        says="a directory is an absolute path",
    ),
    Unchecked(
        name="partition without consent",
        parts=f"topology:\n{HOST}tuning:\n  - {{name: p, on: db1, partition: {{device: {DEVICE}, partitions: [{{name: data}}]}}}}\n{PAUSE}",
        says="`partition` can destroy data",
    ),
)


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch the rules off in the compiler only; agents check all of them."""

    def nothing(*_: Any, **__: Any) -> Iterator[Any]:
        return iter(())

    for module, names in (
        (
            topology,
            ("dsn_problems", "instances_problems", "provision_problems", "without_dsn_problems"),
        ),
        (sections, ("captured_problems",)),
        (prometheus_captures, ("exporter_problems", "scrape_problems")),
        (tool_stages, ("fio_problems",)),
        (tunings, ("consent_problems",)),
    ):
        for name in names:
            monkeypatch.setattr(module, name, nothing)
    monkeypatch.setattr(topology, "setting_objections", lambda *_: [])
    for module in (loads, topology):
        unchecked = SimpleNamespace(
            objection=lambda *_: "", session_problems=lambda *_: (), expanded=session_settings.expanded
        )
        monkeypatch.setattr(module, "session_settings", unchecked)


def write(case: Unchecked, folder: Path) -> Path:
    path = folder / "plan.yaml"
    path.write_text(HEAD + case.parts)
    return path


@pytest.mark.parametrize("case", PLANS, ids=lambda case: case.name)
def test_the_compiler_refuses_it(case: Unchecked, tmp_path: Path) -> None:
    with pytest.raises(PlanError) as caught:
        compile_plan(write(case, tmp_path))
    assert [case.says in problem.message for problem in caught.value.problems] == [True]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("case", PLANS, ids=lambda case: case.name)
def test_an_agent_refuses_its_tasks_with_the_same_message(case: Unchecked, tmp_path: Path) -> None:
    found = [task_rules.objection(spec) for spec in tasks_of(compile_plan(write(case, tmp_path)))]
    assert any(case.says in str(objection) for objection in found), found

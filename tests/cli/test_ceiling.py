"""The command `ceiling`: measurement, stored result, errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proveout.agent.load import ceiling as measuring
from proveout.agent.load.ceiling_store import Ceiling, keep, known
from proveout.cli import execute
from proveout.cli.ceiling import is_local
from proveout.coordinator.schedule.preflight import offered_rates
from proveout.core.numbers import number
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.topology import System
from proveout.proto.wire.tasks import Endpoint

pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _own_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(measuring, "RAMP_S", 0.0)
    monkeypatch.chdir(ROOT)


def test_an_engine_is_provisioned_and_measured(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert execute(["ceiling", "sqlite", "--seconds", "0.5", "--connections", "1"]) == 0
    output = capsys.readouterr().out
    best = known("sqlite").shared_per_s
    assert best is not None and f"ceiling: {number(best)}/s at 1 connection with" in output
    stored = tmp_path / "proveout" / "ceilings.json"
    assert str(stored) in output
    assert list(json.loads(stored.read_text())) == ["sqlite/shared"]


def test_of_a_plan_its_only_system_is_measured_and_the_best_rate_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    async def measured(found: System, counts: list[int], **_: object) -> list[measuring.Step]:
        assert (found.name, found.engine, found.provision) == ("db", "sqlite", "embedded")
        rates = {1: 100.0, 4: 300.0, 16: 200.0, 64: 50.0}
        return [
            measuring.Step(connections=n, per_s=rates[n], cpu_us=1.0, p50_us=1.0, p99_us=1.0) for n in sorted(counts)
        ]

    monkeypatch.setattr(measuring, "measure", measured)
    assert execute(["ceiling", "plans/hlr-sqlite.yaml"]) == 0
    assert known("sqlite").shared_per_s == 300.0


def test_a_file_is_a_dsn_where_its_engine_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def measured(found: Endpoint, *_: object, **__: object) -> list[measuring.Step]:
        assert (found.engine, found.dsn) == ("sqlite", str(file))
        return [measuring.Step(connections=1, per_s=7.0, cpu_us=1.0, p50_us=1.0, p99_us=1.0)]

    file = tmp_path / "own.db"
    file.touch()
    monkeypatch.setattr(measuring, "measure", measured)
    assert execute(["ceiling", str(file), "--engine", "sqlite"]) == 0
    assert known("sqlite").shared_per_s == 7.0


def test_a_dsn_is_measured_and_no_objects_are_left_there(capsys: pytest.CaptureFixture[str], database: str) -> None:
    assert execute(["ceiling", database, "--seconds", "0.5", "--connections", "1"]) == 0
    assert "postgres, server on this machine" in capsys.readouterr().out
    assert known("postgres").shared_per_s
    assert known("postgres").apart_per_s is None


@pytest.mark.parametrize(
    ("target", "code", "message"),
    [
        ("nonsense", 2, "not an engine"),
        ("plans/hlr-cache-embedded.yaml", 2, "which one?"),
        ("host=127.0.0.1 port=1 dbname=x connect_timeout=2", 4, "Connection refused"),
    ],
)
def test_targets_that_cannot_be_measured_are_refused(
    target: str, code: int, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert execute(["ceiling", target, "--seconds", "0.5"]) == code
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("dsn", "local"),
    [
        ("dbname=x", True),
        ("host=/run/postgresql dbname=x", True),
        ("postgresql://u@[::1]/x", True),
        ("host=10.0.0.7 dbname=x", False),
        ("mysql://u@localhost.lab.example/x", False),
    ],
)
def test_whether_a_dsn_is_local(dsn: str, local: bool) -> None:
    assert is_local("postgres", dsn) is local


PLAN = """proveout: 1
name: fast
topology:
  hosts:
    here: {roles: [client, server], address: local}
  systems: {db: {engine: postgres, host: here, provision: embedded}}
workloads: {hlr: {kind: hlr, population: 100}}
stages:
  - populate: {workload: hlr, into: db}
  - ladder: {id: open, workload: hlr, target: db, threads: [2], arrival: constant, rate: 5000/s,
             ramp_up: 0s, measure: 2s, ramp_down: 0s, repeat: 2}
  - ladder: {id: slow, workload: hlr, target: db, threads: [2], arrival: poisson, rate: 800/s,
             ramp_up: 0s, measure: 2s, ramp_down: 0s, repeat: 2}
  - ladder: {id: closed, workload: hlr, target: db, threads: [2], ramp_up: 0s, measure: 2s, ramp_down: 0s, repeat: 2}
"""


@pytest.fixture
def fast(tmp_path: Path) -> Path:
    path = tmp_path / "fast.yaml"
    path.write_text(PLAN)
    keep(
        Ceiling(
            engine="postgres", shared=True, per_s=1_000.0, connections=1, cpu_us=9.0, workers=1, measured_unix_s=1.0
        )
    )
    return path


def test_explain_and_preflight_warn_of_a_rate_above_the_ceiling(capsys: pytest.CaptureFixture[str], fast: Path) -> None:
    assert execute(["explain", str(fast)]) == 0
    said = capsys.readouterr().out
    assert "postgres: at most 1,000/s beside the server" in said
    assert "warning: stages.open: the load offers 5,000/s from this host, 500 % of the 1,000/s that its" in said
    assert said.count("warning:") == 1
    execute(["check", "--connect", "--json", str(fast)])
    (found,) = json.loads(capsys.readouterr().out)["plans"]
    assert [one["code"] for one in found["problems"]] == ["rate"], found
    rate = found["problems"][0]
    assert rate["message"].startswith("the load offers 5,000/s from this host")
    assert rate["line"] == 10


def test_the_rates_that_a_plan_offers_from_each_host(fast: Path) -> None:
    other = '    other: {roles: [client], address: "other.example:7443"}\n'
    phases = "phases: [{name: a, for: 1s, rate: 100/s}, {name: b, for: 1s, rate: 900/s}]"
    several = PLAN.replace("  systems:", f"{other}  systems:").replace(
        "arrival: poisson, rate: 800/s,\n             ramp_up: 0s, measure: 2s", f"{phases},\n             ramp_up: 0s"
    )
    fast.write_text(several.replace("provision: embedded", 'dsn: "postgresql://bench@db.example/bench"'))
    found = {host: offered_rates(compile_plan(fast), host) for host in ("here", "other")}
    assert [(one.subject, one.per_s, one.beside) for one in found["here"]] == [
        ("stages.open", 2_500.0, True),
        ("stages.slow", 450.0, True),
    ]
    assert [(one.per_s, one.beside) for one in found["other"]] == [(2_500.0, False), (450.0, False)]

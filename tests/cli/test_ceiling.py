"""The command `ceiling`: measurement, stored result, errors."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from proveout.agent.load.ceiling_store import known
from proveout.cli import execute
from proveout.cli.ceiling import is_local
from proveout.core.numbers import number

pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _own_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(ROOT)


def test_an_engine_is_provisioned_and_measured_and_its_ceiling_is_stored(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert execute(["ceiling", "sqlite", "--seconds", "0.5", "--connections", "2", "--connections", "1"]) == 0
    output = capsys.readouterr().out
    rates = {int(line[0]): line[1] for line in re.findall(r"^ +(\d+) +([\d,]+) ", output, re.MULTILINE)}
    assert sorted(rates) == [1, 2]
    best = known("sqlite").shared_per_s
    assert best is not None and f"ceiling: {number(best)}/s at" in output
    assert number(best) in rates.values()
    assert str(tmp_path / "proveout/ceilings.json") in output


def test_a_dsn_is_measured_and_no_objects_are_left_there(capsys: pytest.CaptureFixture[str], database: str) -> None:
    assert execute(["ceiling", database, "--seconds", "0.5", "--connections", "2"]) == 0
    assert "postgres, server on this machine" in capsys.readouterr().out
    assert known("postgres").shared_per_s
    assert known("postgres").apart_per_s is None


def test_a_plan_s_system_is_measured(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["ceiling", "plans/hlr-sqlite.yaml", "--seconds", "0.5", "--connections", "1"]
    assert execute(arguments) == 0
    assert list(json.loads((tmp_path / "proveout/ceilings.json").read_text())) == ["sqlite/shared"]
    assert execute(["ceiling", "plans/hlr-cache-embedded.yaml"]) == 2
    assert "which one?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "code", "message"),
    [
        ("nonsense", 2, "not an engine"),
        ("missing.yaml", 2, "missing.yaml"),
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
        ("host=localhost", True),
        ("postgresql://u@127.0.0.1:5432/x", True),
        ("postgresql://u@[::1]/x", True),
        ("postgresql://u@db1.lab/x", False),
        ("host=10.0.0.7 dbname=x", False),
        ("mysql://u@localhost.lab.example/x", False),
    ],
)
def test_whether_a_dsn_is_local(dsn: str, local: bool) -> None:
    assert is_local("postgres", dsn) is local

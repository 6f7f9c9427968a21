"""`proveout doctor`: lines for users, JSON for programs, and an exit code for missing parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proveout.agent import diagnosis
from proveout.agent.diagnosis import Finding
from proveout.cli import execute
from proveout.cli.screen_services import LocalServices

ROOT = Path(__file__).parents[2]
PLANS = ROOT / "plans"
FOUND = (
    Finding(
        area="equipment", name="extra oracle", state="absent", detail="oracledb not installed", way_out="pip install x"
    ),
)


@pytest.fixture(autouse=True)
def _fixed_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(diagnosis, "equipment", lambda: iter(FOUND))
    monkeypatch.setattr(diagnosis, "machine", lambda: iter(()))
    for name in ("PROVEOUT_PKI", "PROVEOUT_ORACLE_PASSWORD", "PROVEOUT_TIMESTEN_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def doctor(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = execute(["doctor", "--json", *words])
    document = json.loads(capsys.readouterr().out)
    assert document["format"] == "proveout.doctor/1"
    assert document["exit_code"] == code
    return code, {one["name"]: one for one in document["findings"]}


def test_absent_parts_are_missing_only_when_a_plan_needs_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, found = doctor(capsys)
    assert (code, found["extra oracle"]["state"]) == (0, "absent")
    refused = Finding(
        area="plan", name="mysql driver", state="missing", detail="cannot be loaded", way_out="pip install y"
    )
    monkeypatch.setattr(diagnosis, "drives", lambda engine: refused)
    code, found = doctor(capsys, str(PLANS / "hlr-mysql.yaml"))
    assert (code, found["mysql driver"]["state"]) == (1, "missing")


def test_a_local_plan_needs_its_driver_and_its_connections(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, found = doctor(capsys, str(PLANS / "hlr-sqlite.yaml"))
    assert code == 0
    assert found["sqlite driver"]["state"] == "ok"
    assert "connections" in found["open files"]["detail"]
    monkeypatch.setattr(diagnosis, "open_files", lambda: 100)
    code, found = doctor(capsys, str(PLANS / "hlr-sqlite.yaml"))
    assert (code, found["open files"]["state"]) == (1, "missing")


def test_a_lab_needs_secrets_and_certificates_and_its_hosts_are_not_checked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, found = doctor(capsys, str(PLANS / "hlr-cache-lab.yaml"))
    assert code == 1
    assert {name for name, one in found.items() if one["state"] == "missing"} == {
        "secret asm",
        "secret oracle",
        "secret timesten",
        "certificates",
    }
    assert "cache1" in found["agents"]["detail"]
    assert "oracle driver" not in found  # no agent of this plan is started here
    monkeypatch.setenv("PROVEOUT_PKI", "")
    assert doctor(capsys, str(PLANS / "hlr-cache-lab.yaml"))[1]["certificates"] == found["certificates"]
    monkeypatch.setenv("PROVEOUT_ORACLE_PASSWORD", "hush")
    assert execute(["doctor", str(PLANS / "hlr-cache-lab.yaml")]) == 1
    output = capsys.readouterr().out
    assert "✓ secret oracle" in output
    assert "hush" not in output
    assert "3 missing, 1 worth a look" in output


def test_errors_of_a_plan_are_those_of_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.yaml").write_text("proveout: 1\nname: bad\nstagez: []\n")
    assert execute(["doctor", "bad.yaml"]) == 2
    assert "bad.yaml:3:1: unknown key `stagez`" in capsys.readouterr().err


def test_runs_that_cannot_be_written_are_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    code, found = doctor(capsys, "--runs-dir", str(tmp_path / "file"))
    assert (code, found["runs"]["state"]) == (1, "missing")


def test_a_plan_that_tunes_this_machine_needs_a_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tuned = (PLANS / "starters" / "sqlite.yaml").read_text()
    tuning = "tuning:\n  - {name: little swapping, on: all, sysctl: {vm.swappiness: 10}}\n"
    (tmp_path / "tuned.yaml").write_text(f"{tuned}\n{tuning}")
    code, found = doctor(capsys, "tuned.yaml")
    assert (code, found["tuning"]["state"]) == (1, "note")
    refused = next(one for one in found.values() if "little swapping would be refused" in one["detail"])
    assert refused["state"] == "missing"
    assert "--policy FILE" in found["tuning"]["way_out"]
    assert LocalServices([tmp_path], tmp_path, "").plan(str(tmp_path / "tuned.yaml"), {}, "").tunes_here


def test_a_plan_with_a_local_tool_stage_needs_fio(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, content, state in (("with", "#!/bin/sh\n", "ok"), ("without", None, "missing")):
        folder = tmp_path / name
        folder.mkdir()
        if content is not None:
            (folder / "fio").write_text(content)
            (folder / "fio").chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))
        code, found = doctor(capsys, str(PLANS / "storage-embedded.yaml"))
        assert found["fio"]["state"] == state
        assert code == (state == "missing")

"""One whole run of a `tool` stage: real agents, the real fio, and what is there and not there when it has ended."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PLAN = """
proveout: 1
name: storage
title: A small file
topology:
  hosts:
    store1: {roles: [storage], address: local}
    store2: {roles: [storage], address: local}
captures:
  host: {kind: os, on: all, every: 1s}
stages:
  - tool:
      id: mixed
      run: fio
      from: role:storage
      pattern: mixed-8k-70-30
      iodepth: 2
      jobs: 1
      size: 4MiB
      direct: false
      ramp_up: 200ms
      measure: 1s
      repeat: 2
      retries: 4
      capture: host
      limits: {start_skew: 60s, iops_slope: 100%, iops_cv: 100%}
verdicts:
  - id: both
    check: mixed.at(2).nodes.store1.iops.mean > 0.0 && mixed.at(2).nodes.store2.iops.mean > 0.0
  - {id: slow, severity: warn, check: mixed.at(2).write.iops.mean < 1.0}
report: {figures: [iops-by-queue-depth]}
"""
COMMAND = str(Path(sys.executable).with_name("proveout"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not on this host"),
]


def test_from_the_plan_to_the_report(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    argv = [COMMAND, "run", "plan.yaml", "--headless", "--runs-dir", "runs", "--json", "result.json"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "mixed, I/O depth 2, repeat 1 of 2" in done.stdout
    result = json.loads((tmp_path / "result.json").read_text())
    (stage,) = result["stages"]
    (rung,) = stage["rungs"]
    nodes = rung["metrics"]["nodes"]
    assert set(nodes) == {"store1", "store2"}
    assert rung["metrics"]["iops"]["mean"] == pytest.approx(sum(node["iops"]["mean"] for node in nodes.values()))
    assert [verdict["outcome"] for verdict in result["verdicts"]] == ["PASS", "FAIL"]
    assert result["run"]["reason"] == "1 passed, 1 failed (a warning only: slow)"
    facts = {one["host"]: one["facts"] for one in result["environment"]}
    assert facts["store1"]["tool.fio"].startswith("fio-")
    (run,) = (tmp_path / "runs").iterdir()
    assert not (run / "systems").exists(), "its files are gone"
    assert "IOPS by I/O depth: mixed" in (run / "report.html").read_text()
    _check_rows(tmp_path, run)


def _check_rows(folder: Path, run: Path) -> None:
    argv = [COMMAND, "report", str(run), "--csv", "rows.csv"]
    subprocess.run(argv, cwd=folder, capture_output=True, timeout=600, check=True)
    with (folder / "rows.csv").open(newline="") as stream:
        valid = [row for row in csv.DictReader(stream) if row["valid"] == "True"]
    assert [(row["stage"], row["threads"], row["transaction"]) for row in valid] == [
        ("mixed", "2", "(all)"),
        ("mixed", "2", "read"),
        ("mixed", "2", "write"),
    ] * 2  # once for each repeat

"""One whole run of a `tool` stage: real agents, the real fio, and what is there and not there when it has ended."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from whole_run import run

PLAN = """
proveout: 1
name: storage
title: A small file
topology:
  hosts:
    store1: {roles: [storage], address: local}
    store2: {roles: [storage], address: local}
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
      ramp_up: 0s
      measure: 1s
      repeat: 1
      limits: {start_skew: 10m, pause: 10m, iops_slope: 10000%, iops_cv: 10000%}
verdicts:
  - {id: both, check: mixed.at(2).nodes.store1.iops.mean > 0.0 && mixed.at(2).nodes.store2.iops.mean > 0.0}
  - {id: slow, severity: warn, check: mixed.at(2).write.iops.mean < 1.0}
report: {figures: [iops-by-queue-depth]}
"""

pytestmark = pytest.mark.server


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not on this host")
def test_from_the_plan_to_the_report(tmp_path: Path) -> None:
    done = run(tmp_path, PLAN).ended(0, 3)
    assert "mixed, I/O depth 2, repeat 1 of 1" in done.out
    (rung,) = done.stages["mixed"]["rungs"]
    nodes = rung["metrics"]["nodes"]
    assert set(nodes) == {"store1", "store2"}
    assert rung["metrics"]["iops"]["mean"] == pytest.approx(sum(node["iops"]["mean"] for node in nodes.values()))
    facts = {one["host"]: one["facts"] for one in done.result["environment"]}
    assert facts["store1"]["tool.fio"].startswith("fio-")
    assert not (done.directory / "systems").exists(), "its files are gone"
    assert "IOPS by I/O depth: mixed" in (done.directory / "report.html").read_text()
    rows = [(row["stage"], row["threads"], row["transaction"]) for row in done.table("csv")]
    assert rows == [("mixed", "2", transaction) for transaction in ("(all)", "read", "write")]

"""A run whose ladders are made by pgbench and by sysbench, in turns: their numbers, outputs, and the refusal without a
policy."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from proveout.agent.engines.postgres.installation import find_installation

COMMAND = str(Path(sys.executable).with_name("proveout"))
ROOT = Path(__file__).parents[2]
PLAN = ROOT / "plans" / "compare-clients-embedded.yaml"
SMALL = ("-p", "threads=[2]", "-p", "measure=2s", "-p", "repeat=2")

pytestmark = pytest.mark.slow


def run(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    plan = folder / "plan.yaml"
    plan.write_text(PLAN.read_text().replace(".at(4)", ".at(2)"))
    argv = [COMMAND, "run", "plan.yaml", "--headless", "--runs-dir", "runs", "--json", "result.json", *SMALL, *more]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.skipif(shutil.which("sysbench") is None, reason="sysbench is not on this host")
def test_other_load_generators_run_as_ladders(tmp_path: Path) -> None:
    pgbench = find_installation().programs / "pgbench"
    policy = tmp_path / "policy.yaml"
    commands = [f"  - {{path: {program}, arguments: ['*']}}" for program in (pgbench, shutil.which("sysbench"))]
    policy.write_text("\n".join(["policy: 1", "commands:", *commands, ""]))
    policy.chmod(0o644)
    done = run(tmp_path, "--policy", str(policy))
    assert done.returncode in (0, 3), done.stdout + done.stderr
    found: Any = json.loads((tmp_path / "result.json").read_text())
    stages = {stage["id"]: stage for stage in found["stages"]}
    for name in ("pgbench", "sysbench", "accounts", "sbtest"):
        (rung,) = stages[name]["rungs"]
        assert rung["metrics"]["tps"]["n"] == 2
        assert rung["metrics"]["tps"]["mean"] > 100.0
        assert 0.0 < rung["metrics"]["response"]["avg_us"]["mean"] < rung["metrics"]["response"]["max_us"]["mean"]
    outputs = next((tmp_path / "runs").iterdir()) / "outputs"
    assert "number of transactions actually processed" in (outputs / "pgbench-2-1-1-load-client1.txt").read_text()
    assert "Latency histogram" in (outputs / "sysbench-2-2-1-load-client1.txt").read_text()


def test_without_a_policy_the_message_has_the_line_to_add(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 4, done.stdout + done.stderr
    text = " ".join(done.stdout.split())
    assert "the command pgbench --select-only" in text
    assert "arguments: [--select-only, --protocol=prepared, '--client=*', --jobs=1, '--time=*'" in text

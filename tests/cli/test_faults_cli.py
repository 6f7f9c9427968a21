"""Faults by the command line: `explain` shows them, and with `--facts` the agents answer whether they could be made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PLAN = """proveout: 1
name: disturbed
topology:
  hosts: {fault-test: {roles: [client, server], address: local}}
  systems: {db: {engine: postgres, host: fault-test, provision: embedded}}
workloads: {hlr: {kind: hlr, population: 1000}}
stages:
  - populate: {workload: hlr, into: [db]}
  - ladder:
      workload: hlr
      target: db
      threads: 1
      measure: 20s
      faults:
        - {name: busy, at: 1s, for: 1s, on: all, cpu_pressure: {cpus: 1}}
        - {name: swap, at: 4s, for: 1s, on: all, sysctl: {vm.swappiness: 1}}
        - {name: crash, at: 9s, for: 1s, kill: {system: db}, destructive: true}
"""


def explain(folder: Path, *words: str) -> tuple[int, list[str]]:
    (folder / "plan.yaml").write_text(PLAN)
    argv = [sys.executable, "-m", "proveout", "explain", *words, "plan.yaml"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, [line.strip() for line in (done.stdout + done.stderr).splitlines()]


def test_a_fault_is_explained_with_its_time_its_change_and_its_healing(tmp_path: Path) -> None:
    code, lines = explain(tmp_path)
    assert code == 0
    first = lines.index("fault crash: 9s after the start of the measure window")
    assert lines[first + 1].startswith("kill of system db on fault-test (privileges: ")
    assert lines[first + 1].endswith("CAN LOSE DATA")
    assert (
        lines[first + 3] == "healed: undone after 1s, or as soon as the iteration, the agent's lease or the agent ends"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="tuning takes root")
def test_agents_answer_whether_faults_could_be_made(tmp_path: Path) -> None:
    code, lines = explain(tmp_path, "--facts")
    assert code == 4, "one is not allowed"
    answers = lines[lines.index("tuning and faults, as the hosts are now") + 1 :]
    assert answers[1:3] == [
        "fault busy of ladder (cpu_pressure): would change",
        "the agent can make its changes, and undo them",
    ]
    assert answers[3] == "fault swap of ladder (sysctl): refused"
    assert "the kernel setting vm.swappiness is not allowed on this host" in answers[4]
    assert answers[5:] == [
        "fault crash of ladder (kill): would change",
        "system db is started by the run, so its settings cannot be read now",
    ]

"""Plans that tune or disturb this machine, by the command line: refused without a policy, explained with --facts,
applied and reverted by a run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from proveout.agent.tuning.machine import holder_of, machine_dir
from proveout.agent.tuning.machine_journals import Machine

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="tuning takes root")

PLAN = """proveout: 1
name: tuned
topology: {{hosts: {{tuned-test: {{roles: [client], address: local}}}}}}
tuning:
  - {{name: application, on: all, file: {{path: {app}/app.conf, content: "a = 2\\n"}}}}
stages:
  - pause: {{duration: 100ms}}
"""
FAULTS = """proveout: 1
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    app = tmp_path / "app"
    app.mkdir()
    (app / "app.conf").write_text("a = 1\n")
    (tmp_path / "plan.yaml").write_text(PLAN.format(app=app))
    (tmp_path / "policy").mkdir(mode=0o700)
    policy = tmp_path / "policy" / "policy.yaml"
    policy.write_text(f"policy: 1\npaths: [{{path: {app}, i_know: files of a test}}]\n")
    policy.chmod(0o600)
    return tmp_path


def proveout(folder: Path, *words: str) -> tuple[int, str]:
    argv = [sys.executable, "-m", "proveout", *words]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, done.stdout + done.stderr


def test_explain_with_facts_reads_the_hosts(folder: Path) -> None:
    code, output = proveout(folder, "explain", "--facts", "--policy", "policy/policy.yaml", "plan.yaml")
    assert code == 0, output
    tuning = output.partition("tuning and faults, as the hosts are now")[2]
    assert [line.strip() for line in tuning.splitlines() if line] == [
        "tuned-test",
        "application (file): would change",
        f"{folder}/app/app.conf:",
        "@@ -1 +1 @@",
        "-a = 1",
        "+a = 2",
    ]
    assert (folder / "app/app.conf").read_text() == "a = 1\n"


def test_explain_with_facts_answers_whether_faults_could_be_made(folder: Path) -> None:
    (folder / "plan.yaml").write_text(FAULTS)
    code, output = proveout(folder, "explain", "--facts", "plan.yaml")
    assert code == 4, "one is not allowed"
    facts = output.partition("tuning and faults, as the hosts are now")[2]
    answers = [line.strip() for line in facts.splitlines() if line]
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


def test_explain_reports_errors_of_a_policy_without_the_log_of_the_agent(folder: Path) -> None:
    (folder / "policy" / "policy.yaml").write_text("policy: 1\nsysctls: []\n")
    code, output = proveout(folder, "explain", "--facts", "--policy", "policy/policy.yaml", "plan.yaml")
    assert code == 2
    assert "policy.yaml:2:1: unknown key `sysctls`\n" in output
    assert "did you mean `sysctl`?" in output
    assert ".log" not in output


def test_without_a_policy_a_run_changes_nothing_and_names_the_option(folder: Path) -> None:
    code, output = proveout(folder, "run", "--headless", "plan.yaml")
    assert code == 4
    assert f"the path {folder}/app/app.conf is not allowed on this host" in output
    assert "--policy FILE" in output
    assert (folder / "app/app.conf").read_text() == "a = 1\n"


def test_a_run_tunes_reverts_and_reports(folder: Path) -> None:
    code, output = proveout(folder, "run", "--headless", "--policy", "policy/policy.yaml", "plan.yaml")
    assert code == 0, output
    assert "tuned-test: tuning application: applied" in output
    assert "tuned-test: tuning application: reverted" in output
    assert (folder / "app/app.conf").read_text() == "a = 1\n"
    (result,) = (folder / "runs").glob("*/result.json")
    (state,) = json.loads(result.read_text())["tuning"]
    assert (state["outcome"], state["end"]) == ("applied", "reverted")
    assert state["changes"] == [f"{folder}/app/app.conf:", "  @@ -1 +1 @@", "  -a = 1", "  +a = 2"]
    assert "tuned-test" not in {holder_of(journal).host for journal in Machine(machine_dir()).directories()}

"""Plans that tune or disturb this machine, by the command line: refused without a policy, and explained with --facts.

A run that tunes, and reverts, is in `test_one_machine.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proveout.cli import execute

pytestmark = [pytest.mark.server, pytest.mark.skipif(os.geteuid() != 0, reason="tuning takes root")]

PLAN = """proveout: 1
name: tuned
topology:
  hosts: {tuned-test: {roles: [client, server], address: local}}
  systems: {db: {engine: postgres, host: tuned-test, provision: embedded}}
tuning:
  - {name: application, on: all, file: {path: APP/app.conf, content: "a = 2\\n"}}
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
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that the plan in this directory changes, and its policy allows."""
    monkeypatch.chdir(tmp_path)
    app, policy = tmp_path / "app", tmp_path / "policy" / "policy.yaml"
    for folder in (app, policy.parent):
        folder.mkdir(mode=0o700)
    (app / "app.conf").write_text("a = 1\n")
    (tmp_path / "plan.yaml").write_text(PLAN.replace("APP", str(app)))
    policy.write_text(f"policy: 1\npaths: [{{path: {app}, i_know: files of a test}}]\n")
    policy.chmod(0o600)
    return app / "app.conf"


def test_explain_with_facts_reads_the_hosts_and_answers_whether_faults_could_be_made(
    conf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["explain", "--facts", "--policy", "policy/policy.yaml", "plan.yaml"]) == 4, "one is not allowed"
    facts = capsys.readouterr().out.partition("tuning and faults, as the hosts are now")[2]
    answers = [line.strip() for line in facts.splitlines() if line]
    refused = next(line for line in answers if "vm.swappiness" in line)
    assert "the kernel setting vm.swappiness is not allowed on this host" in refused
    assert answers[: answers.index(refused)] == [
        "tuned-test",
        "application (file): would change",
        f"{conf}:",
        "@@ -1 +1 @@",
        "-a = 1",
        "+a = 2",
        "fault busy of ladder (cpu_pressure): would change",
        "the agent can make its changes, and undo them",
        "fault swap of ladder (sysctl): refused",
    ]
    assert answers[answers.index(refused) + 1 :] == [
        "fault crash of ladder (kill): would change",
        "system db is started by the run, so its settings cannot be read now",
    ]
    assert conf.read_text() == "a = 1\n"


def test_explain_reports_errors_of_a_policy_without_the_log_of_the_agent(
    conf: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("policy/policy.yaml").write_text("policy: 1\nsysctls: []\n")
    assert execute(["explain", "--facts", "--policy", "policy/policy.yaml", "plan.yaml"]) == 2
    said = "".join(capfd.readouterr())
    assert "policy.yaml:2:1: unknown key `sysctls`\n" in said
    assert "did you mean `sysctl`?" in said
    assert ".log" not in said


def test_without_a_policy_a_run_changes_nothing_and_names_the_option(
    conf: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert execute(["run", "--headless", "plan.yaml"]) == 4
    said = "".join(capfd.readouterr())
    assert f"the path {conf} is not allowed on this host" in said
    assert "--policy FILE" in said
    assert conf.read_text() == "a = 1\n"

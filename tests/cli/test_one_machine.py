"""Hosts with different names, and concurrent runs, that tune one machine by the command line: the machine is restored
each time.

The machine's folder of undo journals is private to the test: a mount namespace (unshare(1)) has it in place of
/var/lib, so test suites that run at the same time do not wait for each other.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="tuning and mount namespaces take root and util-linux"
)

RUNS = int(os.environ.get("PROVEOUT_EXAMPLES", "4"))
TWO_HOSTS = """proveout: 1
name: two-hosts
topology:
  hosts: {{a: {{roles: [server], address: local}}, b: {{roles: [server], address: local}}}}
tuning:
  - {{name: settings, on: role:server, file: {{path: {app}/app.conf, content: "a = 2\\n"}}}}
stages:
  - pause: {{id: one, duration: 100ms}}
  - tune: {{id: more, tuning: [{{name: again, on: b, file: {{path: {app}/app.conf, content: "a = 3\\n"}}}}]}}
  - pause: {{id: two, duration: 100ms}}
"""
ONE_HOST = """proveout: 1
name: {host}
topology: {{hosts: {{{host}: {{roles: [client], address: local}}}}}}
tuning:
  - {{name: settings of {host}, on: all, file: {{path: {app}/app.conf, content: "{host}\\n"}}}}
stages:
  - pause: {{duration: 1s}}
"""
PRIVATE = 'mount --bind "$0" /var/lib && exec "$@"'
"""Mounted over /var/lib and not over /var/lib/proveout: when a process outside removes that folder, the mount goes too."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("app", "state"):
        (tmp_path / name).mkdir()
    (tmp_path / "app" / "app.conf").write_text("a = 1\n")
    policy = tmp_path / "policy" / "policy.yaml"
    policy.parent.mkdir(mode=0o700)
    policy.write_text(f"policy: 1\npaths: [{{path: {tmp_path}/app, i_know: files of this test}}]\n")
    policy.chmod(0o600)
    return tmp_path


def begin(folder: Path, name: str, plan: str) -> subprocess.Popen[str]:
    """Start a run in the mount namespace of this test."""
    (folder / f"{name}.yaml").write_text(plan)
    words = ["run", "--headless", "--policy", "policy/policy.yaml", "--runs-dir", f"runs-{name}", f"{name}.yaml"]
    argv = ["unshare", "--mount", "sh", "-c", PRIVATE, str(folder / "state"), sys.executable, "-m", "proveout", *words]
    return subprocess.Popen(argv, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(run: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = run.communicate(timeout=300)
    return run.returncode, output


def left(folder: Path) -> list[str]:
    """Undo journals, and the temporary files of changes."""
    found = [*(folder / "state").rglob("*.sqlite*"), *(folder / "app").glob(".*")]
    return [str(path) for path in found]


def test_two_local_hosts_of_a_plan_are_tuned_once_and_reverted(folder: Path) -> None:
    code, text = ended(begin(folder, "two-hosts", TWO_HOSTS.format(app=folder / "app")))
    assert code == 0, text
    assert (folder / "app/app.conf").read_text() == "a = 1\n"
    (result,) = (folder / "runs-two-hosts").glob("*/result.json")
    states = [
        (one["host"], one["name"], one["outcome"], one["end"]) for one in json.loads(result.read_text())["tuning"]
    ]
    assert states == [("a", "settings", "applied", "reverted"), ("a", "again", "applied", "reverted")]
    assert left(folder) == []


def test_runs_with_other_host_names_take_turns(folder: Path) -> None:
    """Each run starts while the other may have tuned the machine: during a run its own value is set, at the end the
    original one.
    """
    waited = 0
    for number in range(RUNS // 2):
        runs = [begin(folder, name, ONE_HOST.format(host=name, app=folder / "app")) for name in ("one", "two")]
        for run in runs:
            code, text = ended(run)
            assert code == 0, text
            waited += "waiting to tune this machine" in text
        assert (folder / "app/app.conf").read_text() == "a = 1\n", f"pair {number}"
        assert left(folder) == []
    assert waited, "no run met another one: this shows nothing"

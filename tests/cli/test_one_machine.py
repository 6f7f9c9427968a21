"""Hosts with other names, and runs beside each other, that tune one machine: by the command line, each in the end as it
was before.

The machine's folder of undo journals is one of the test's own: in a mount namespace (unshare(1)) it lies where /var/lib
is, so suites that run at the same time do not wait for each other.
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
"""Not over /var/lib/proveout: a folder that somebody outside removes takes with it what is mounted there."""


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
    """A run of its own in the machine of this test."""
    (folder / f"{name}.yaml").write_text(plan)
    words = ["run", "--headless", "--policy", "policy/policy.yaml", "--runs-dir", f"runs-{name}", f"{name}.yaml"]
    argv = ["unshare", "--mount", "sh", "-c", PRIVATE, str(folder / "state"), sys.executable, "-m", "proveout", *words]
    return subprocess.Popen(argv, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(run: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = run.communicate(timeout=300)
    return run.returncode, said


def left(folder: Path) -> list[str]:
    """Undo journals, and the temporary files of changes."""
    found = [*(folder / "state").rglob("*.sqlite*"), *(folder / "app").glob(".*")]
    return [str(path) for path in found]


def test_two_local_hosts_of_a_plan_are_tuned_once_and_set_back(folder: Path) -> None:
    code, said = ended(begin(folder, "two-hosts", TWO_HOSTS.format(app=folder / "app")))
    assert code == 0, said
    assert (folder / "app/app.conf").read_text() == "a = 1\n"
    (result,) = (folder / "runs-two-hosts").glob("*/result.json")
    told = [(one["host"], one["name"], one["outcome"], one["end"]) for one in json.loads(result.read_text())["tuning"]]
    assert told == [("a", "settings", "applied", "reverted"), ("a", "again", "applied", "reverted")]
    assert left(folder) == []


def test_runs_with_other_host_names_take_turns(folder: Path) -> None:
    """Each begins while the other one may have tuned the machine: its own value is there while it goes on, and the
    first one's at the end.
    """
    waited = 0
    for number in range(RUNS // 2):
        runs = [begin(folder, name, ONE_HOST.format(host=name, app=folder / "app")) for name in ("one", "two")]
        for run in runs:
            code, said = ended(run)
            assert code == 0, said
            waited += "waiting to tune this machine" in said
        assert (folder / "app/app.conf").read_text() == "a = 1\n", f"pair {number}"
        assert left(folder) == []
    assert waited, "no run met another one: this shows nothing"

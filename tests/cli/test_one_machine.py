"""Hosts with different names, and concurrent runs, that tune one machine by the command line: the machine is restored
each time.

The machine's folder of undo journals is private to the test: a mount namespace (unshare(1)) has it in place of
/var/lib, so test suites that run at the same time do not wait for each other.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from eventually import eventually

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("unshare") is None,
        reason="tuning and mount namespaces take root and util-linux",
    ),
]

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
  - pause: {{duration: {duration}}}
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


class Run:
    """A run in the mount namespace of this test."""

    def __init__(self, folder: Path, name: str, plan: str) -> None:
        (folder / f"{name}.yaml").write_text(plan)
        words = ["run", "--headless", "--policy", "policy/policy.yaml", "--runs-dir", f"runs-{name}", f"{name}.yaml"]
        alone = ["unshare", "--mount", "sh", "-c", PRIVATE, str(folder / "state")]
        self._output = folder / f"{name}.output"
        with self._output.open("w") as output:
            self.process = subprocess.Popen(
                [*alone, sys.executable, "-m", "proveout", *words], cwd=folder, stdout=output, stderr=output
            )

    @property
    def output(self) -> str:
        return self._output.read_text()

    def ended(self) -> int:
        eventually(lambda: self.process.poll() is not None, lambda: self.output)
        return self.process.returncode


@pytest.fixture
def begin(folder: Path) -> Iterator[Callable[[str, str], Run]]:
    begun: list[Run] = []

    def run(name: str, plan: str) -> Run:
        begun.append(Run(folder, name, plan))
        return begun[-1]

    yield run
    for one in begun:
        one.process.kill()
        one.process.wait()


def left(folder: Path) -> list[str]:
    """Undo journals, and the temporary files of changes."""
    found = [*(folder / "state").rglob("*.sqlite*"), *(folder / "app").glob(".*")]
    return [str(path) for path in found]


def test_two_local_hosts_of_a_plan_are_tuned_once_and_reverted(folder: Path, begin: Callable[[str, str], Run]) -> None:
    run = begin("two-hosts", TWO_HOSTS.format(app=folder / "app"))
    assert run.ended() == 0, run.output
    assert (folder / "app/app.conf").read_text() == "a = 1\n"
    assert "a: tuning settings: applied" in run.output
    assert "a: tuning settings: reverted" in run.output
    (result,) = (folder / "runs-two-hosts").glob("*/result.json")
    states = json.loads(result.read_text())["tuning"]
    assert [(one["host"], one["name"], one["outcome"], one["end"]) for one in states] == [
        ("a", "settings", "applied", "reverted"),
        ("a", "again", "applied", "reverted"),
    ]
    assert states[0]["changes"] == [f"{folder}/app/app.conf:", "  @@ -1 +1 @@", "  -a = 1", "  +a = 2"]
    assert left(folder) == []


@pytest.mark.soak
def test_runs_with_other_host_names_take_turns(folder: Path, begin: Callable[[str, str], Run]) -> None:
    """The second run starts while the first has tuned the machine: during a run its own value is set, at the end the
    original one.
    """
    conf = folder / "app" / "app.conf"
    first = begin("one", ONE_HOST.format(host="one", app=folder / "app", duration="10m"))
    eventually(lambda: conf.read_text() == "one\n", lambda: first.output)
    second = begin("two", ONE_HOST.format(host="two", app=folder / "app", duration="10m"))
    eventually(lambda: "waiting to tune this machine" in second.output, lambda: second.output)
    assert conf.read_text() == "one\n"
    first.process.send_signal(signal.SIGINT)
    assert first.ended() == 130, first.output
    eventually(lambda: conf.read_text() == "two\n", lambda: second.output)
    second.process.send_signal(signal.SIGINT)
    assert second.ended() == 130, second.output
    assert conf.read_text() == "a = 1\n"
    assert left(folder) == []

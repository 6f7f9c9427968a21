"""The systemd unit: what it allows follows the policy, and systemd itself reads it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from proveout.agent.policy import NOTHING, Policy
from proveout.agent.unit import CAPABILITIES, unit
from proveout.cli import execute

PKI, STATE = Path("/etc/proveout/pki"), Path("/var/lib/proveout")
ROOTED = Policy(source="/etc/proveout/policy.yaml", paths=("/etc/udev/rules.d",))
POLICIES = {
    "none": NOTHING,
    "files": ROOTED,
    "sysctl": Policy(source="/p", sysctl=("vm.swappiness",)),
    "devices": Policy(source="/p", devices=("serial:X",), destructive=True),
}


def settings(policy: Policy, *arguments: str) -> dict[str, str]:
    text = unit("/bin/true", ("agent", *arguments), pki=PKI, state_dir=STATE, policy=policy)
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}


def test_an_agent_without_a_policy_is_no_root() -> None:
    found = settings(NOTHING)
    assert found["User"] == "proveout"
    assert found["CapabilityBoundingSet"] == ""
    assert found["ReadWritePaths"] == "/etc/proveout/pki /var/lib/proveout"


def test_what_is_open_is_what_the_policy_lists() -> None:
    found = settings(ROOTED)
    assert "User" not in found
    assert found["ReadWritePaths"].split()[2:] == ["/etc/udev/rules.d"]
    assert (found["ProtectKernelTunables"], found["PrivateDevices"]) == ("yes", "yes")
    assert found["CapabilityBoundingSet"] == CAPABILITIES
    assert settings(POLICIES["sysctl"])["ProtectKernelTunables"] == "no"
    assert settings(POLICIES["devices"])["PrivateDevices"] == "no"
    for name, policy in POLICIES.items():
        found = settings(policy)
        assert (found["NoNewPrivileges"], found["ProtectSystem"]) == ("yes", "strict"), name


def test_words_cannot_leave_their_place() -> None:
    found = settings(NOTHING, "--name", 'a b"; %n $HOME')
    assert found["ExecStart"] == '/bin/true agent --name "a b\\"; %%n $$HOME"'


@pytest.mark.parametrize("name", POLICIES)
def test_systemd_reads_it(name: str, tmp_path: Path) -> None:
    analyse = shutil.which("systemd-analyze")
    if analyse is None:
        pytest.skip("this host has no systemd-analyze")
    path = tmp_path / "proveout-agent.service"
    path.write_text(unit("/bin/true", ("agent",), pki=PKI, state_dir=STATE, policy=POLICIES[name]))
    done = subprocess.run(
        [analyse, "verify", "--man=no", str(path)], capture_output=True, text=True, timeout=180, check=False
    )
    about_it = [line for line in (done.stdout + done.stderr).splitlines() if "proveout-agent" in line]
    assert about_it == []


def test_print_unit(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("policy: 1\npaths: [/etc/udev/rules.d]\n")
    policy.chmod(0o644)
    argv = ["agent", "--pki", "/etc/proveout/pki", "--name", "db1", "--policy", str(policy), "--print-unit"]
    assert execute(argv) == 0
    text = capsys.readouterr().out
    assert f"--name db1 --policy {policy}\n" in text
    assert "/etc/udev/rules.d\n" in text

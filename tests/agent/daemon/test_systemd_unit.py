"""The systemd unit: its permissions follow the policy, and systemd accepts it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from proveout.agent.daemon.process import CAPABILITIES, unit
from proveout.agent.security.policy import NOTHING, Policy, Tool
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


def test_an_agent_without_a_policy_does_not_run_as_root() -> None:
    found = settings(NOTHING)
    assert found["User"] == "proveout"
    assert found["CapabilityBoundingSet"] == ""
    assert found["ReadWritePaths"] == "/etc/proveout/pki /var/lib/proveout"


def test_writable_paths_and_devices_are_those_of_the_policy(tmp_path: Path) -> None:
    found = settings(ROOTED)
    assert "User" not in found
    assert found["ReadWritePaths"].split()[2:] == ["-/etc/udev/rules.d"], "systemd starts it also where one is missing"
    files = Policy(source="/p", paths=("/etc/fstab",), database_files=(str(tmp_path), "/data/shop.db"))
    replaced = settings(files)["ReadWritePaths"].split()[2:]
    assert replaced == ["-/etc", f"-{tmp_path}", "-/data"], (
        "folders: a file is replaced, and SQLite writes beside its file"
    )
    assert (found["ProtectKernelTunables"], found["PrivateDevices"]) == ("yes", "yes")
    assert found["CapabilityBoundingSet"].split() == [*CAPABILITIES]
    assert settings(POLICIES["sysctl"])["ProtectKernelTunables"] == "no"
    assert settings(POLICIES["devices"])["PrivateDevices"] == "no"
    assert settings(POLICIES["devices"])["DevicePolicy"] == "closed"
    assert "DevicePolicy" not in settings(POLICIES["sysctl"])
    for name, policy in POLICIES.items():
        found = settings(policy)
        assert (found["NoNewPrivileges"], found["ProtectSystem"]) == ("yes", "strict"), name


@pytest.mark.parametrize(
    ("policy", "tunables", "more"),
    [
        ({"units": ("multipathd.service",)}, "yes", ""),
        ({"sysctl": ("vm.swappiness",)}, "no", "CAP_SYS_ADMIN CAP_SYS_RESOURCE"),
        ({"sysctl": ("net.core.somaxconn",)}, "no", "CAP_NET_ADMIN CAP_SYS_ADMIN CAP_SYS_RESOURCE"),
        ({"paths": ("/sys/class/net/bond0",)}, "no", "CAP_NET_ADMIN CAP_SYS_ADMIN CAP_SYS_RESOURCE"),
        ({"sysctl": ("*",)}, "no", "CAP_NET_ADMIN CAP_SYS_ADMIN CAP_SYS_RESOURCE"),
        ({"paths": ("/sys/block",)}, "no", "CAP_SYS_ADMIN CAP_SYS_RESOURCE"),
        ({"paths": ("/systems",)}, "yes", ""),
        ({"tools": (Tool(path="/usr/bin/udevadm"),)}, "no", "CAP_SYS_ADMIN CAP_SYS_RESOURCE"),
        ({"tools": (Tool(path="/usr/sbin/multipath"),)}, "yes", "CAP_SYS_ADMIN CAP_SYS_RESOURCE"),
        ({"devices": ("serial:X",)}, "yes", "CAP_SYS_ADMIN CAP_SYS_RESOURCE"),
        ({"faults": ("partition",)}, "yes", "CAP_NET_ADMIN"),
        ({"faults": ("fill_disk", "cpu_pressure")}, "yes", ""),
    ],
)
def test_capabilities_are_those_that_the_policy_needs(policy: dict[str, Any], tunables: str, more: str) -> None:
    found = settings(Policy(source="/p", **policy))
    assert found["ProtectKernelTunables"] == tunables
    assert found["CapabilityBoundingSet"].split() == [*CAPABILITIES, *more.split()]


def test_values_with_special_characters_are_quoted() -> None:
    found = settings(NOTHING, "--name", 'a b"; %n $HOME')
    assert found["ExecStart"] == '/bin/true agent --name "a b\\"; %%n $$HOME"'


def analysed(name: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The output of systemd-analyze for the unit of a policy. Skips where it is not installed."""
    analyse = shutil.which("systemd-analyze")
    if analyse is None:
        pytest.skip("this host has no systemd-analyze")
    path = folder / "proveout-agent.service"
    path.write_text(unit("/bin/true", ("agent",), pki=PKI, state_dir=STATE, policy=POLICIES[name]))
    argv = [analyse, *words, str(path)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=180, check=False)


@pytest.mark.parametrize("name", POLICIES)
def test_systemd_accepts_the_unit(name: str, tmp_path: Path) -> None:
    done = analysed(name, tmp_path, "verify", "--man=no")
    about_it = [line for line in (done.stdout + done.stderr).splitlines() if "proveout-agent" in line]
    assert about_it == []


EXPOSURE_MAX = {"none": 1.7, "files": 3.3, "sysctl": 3.8, "devices": 3.8}
"""Half a point above the exposure that systemd 252 reports (docs/security.md), as other versions weigh more settings. The
scale is 0 to 10."""


@pytest.mark.parametrize("name", POLICIES)
def test_its_exposure_is_at_most_the_documented_one(name: str, tmp_path: Path) -> None:
    done = analysed(name, tmp_path, "security", "--no-pager", "--offline=true")
    exposure = re.search(r"Overall exposure level for proveout-agent.service: ([0-9.]+)", done.stdout)
    if exposure is None:
        pytest.skip(f"this systemd does not analyse a file: {done.stderr.strip()}")
    assert float(exposure[1]) <= EXPOSURE_MAX[name], done.stdout


def test_print_unit(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("policy: 1\npaths: [/etc/udev/rules.d]\n")
    policy.chmod(0o644)
    argv = ["agent", "--pki", "/etc/proveout/pki", "--name", "db1", "--policy", str(policy), "--print-unit"]
    assert execute(argv) == 0
    text = capsys.readouterr().out
    assert f"--name db1 --policy {policy}\n" in text
    assert "/etc/udev/rules.d\n" in text

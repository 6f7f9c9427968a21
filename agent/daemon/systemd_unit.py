"""The systemd unit of an agent, with the least privileges that its policy needs: `proveout agent … --print-unit`.

Flow: the agent's options and its policy -> `unit(…)` -> text for /etc/systemd/system/proveout-agent.service. Without a
policy the agent changes nothing on the host, and runs as a user of its own without capabilities. With a policy it runs
as root, may write the folders of the policy and its own, and has no access to kernel settings and devices unless the
policy lists some.

The system calls `seccomp` and `pidfd_getfd` bind a Ray node to one address (`load.pools.ray.address_binding`).

Not set, and why: MemoryDenyWriteExecute (Python's ctypes needs executable closures), ProcSubset=pid (the counters of
the host are in /proc), IPAddressDeny (the network of a host is the lab's choice: add it in a drop-in), RootDirectory,
PrivateNetwork.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from proveout.agent.security.policy import Policy, is_beneath

USER = "proveout"
STATE = "/var/lib/proveout"
CAPABILITIES = (
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
)
"""Capabilities to write files of other users, and to run servers, load and helper processes as other users."""

KERNEL_CAPABILITIES = ("CAP_SYS_ADMIN", "CAP_SYS_RESOURCE")
"""Additional capabilities for some kernel settings and for partition tables."""

ALWAYS = """NoNewPrivileges=yes
ProtectSystem=strict
PrivateTmp=yes
PrivateMounts=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
LockPersonality=yes
KeyringMode=private
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service seccomp pidfd_getfd
SystemCallErrorNumber=EPERM
LimitNOFILE=65536
UMask=0077"""

DISKS = (
    "DevicePolicy=closed",
    "DeviceAllow=block-* rw",
    "DeviceAllow=char-sg rw",
    "DeviceAllow=/dev/mapper/control rw",
)
"""Devices for partitions, multipath and device tests; no memory, consoles or input devices."""

HEAD = """# {file}: systemctl daemon-reload; systemctl enable --now proveout-agent
[Unit]
Description=proveout agent
Documentation=man:systemd.exec(5)
After=network-online.target
Wants=network-online.target

[Service]
Type=exec
ExecStart={command}
Restart=on-failure
RestartSec=5
KillMode=mixed
TimeoutStopSec=90
"""

FILE = "/etc/systemd/system/proveout-agent.service"


def unit(program: str, arguments: Sequence[str], *, pki: Path, state_dir: Path, policy: Policy) -> str:
    """The text of the unit. `program` is the absolute path of `proveout`, `arguments` are its arguments."""
    command = " ".join(_quoted(word).replace("$", "$$") for word in (program, *arguments))  # ExecStart expands `$`
    lines = [HEAD.format(file=FILE, command=command), ALWAYS, *_home(program, pki, state_dir)]
    lines += _privileged(pki, state_dir, policy) if policy.source else _plain(pki, state_dir)
    return "\n".join([*lines, "", "[Install]", "WantedBy=multi-user.target", ""])


def _privileged(pki: Path, state_dir: Path, policy: Policy) -> list[str]:
    yes_no = {True: "yes", False: "no"}
    has_disks = bool(policy.devices) or policy.destructive
    return [
        f"# These settings depend on {policy.source}; print the unit again when it changes.",
        f"ReadWritePaths={' '.join(_quoted(str(path)) for path in (pki, state_dir, *policy.paths))}",
        f"ProtectKernelTunables={yes_no[not _sets_the_kernel(policy)]}",
        f"PrivateDevices={yes_no[not has_disks]}",
        *(DISKS if has_disks else ()),
        f"CapabilityBoundingSet={' '.join(_capabilities(policy))}",
        f"StateDirectory={Path(STATE).name}",  # the undo journals of this machine, for any --state-dir
    ]


def _sets_the_kernel(policy: Policy) -> bool:
    """Whether the policy needs writes below /proc/sys or /sys; udevadm writes there to apply rules."""
    beneath = any(is_beneath(path, place) for path in policy.paths for place in ("/proc", "/sys"))
    return bool(policy.sysctl) or beneath or any(Path(tool.path).name == "udevadm" for tool in policy.tools)


def _capabilities(policy: Policy) -> tuple[str, ...]:
    network = any(glob.startswith(("net.", "net*", "*", "?", "[")) for glob in policy.sysctl)
    network = network or any(is_beneath(path, "/sys/class/net") for path in policy.paths)
    kernel = _sets_the_kernel(policy) or bool(policy.devices) or policy.destructive or bool(policy.tools)
    return (*CAPABILITIES, *(("CAP_NET_ADMIN",) if network else ()), *(KERNEL_CAPABILITIES if kernel else ()))


def _plain(pki: Path, state_dir: Path) -> list[str]:
    return [
        "# No policy: the agent changes nothing on this host, and an ordinary user is enough. "
        "Once, before the first start:",
        f"#   useradd --system --home-dir {STATE} {USER}; chown -R {USER}: {shlex.quote(str(pki))}",
        f"User={USER}",
        f"Group={USER}",
        f"ReadWritePaths={' '.join(_quoted(str(path)) for path in (pki, state_dir))}",
        "ProtectKernelTunables=yes",
        "PrivateDevices=yes",
        "DevicePolicy=closed",
        "PrivateUsers=yes",
        "ProtectProc=invisible",
        "RemoveIPC=yes",
        "SystemCallFilter=~@privileged",
        "CapabilityBoundingSet=",
        *([f"StateDirectory={state_dir.name}", "StateDirectoryMode=0700"] if str(state_dir) == STATE else []),
    ]


def _home(program: str, pki: Path, state_dir: Path) -> list[str]:
    """Hide home directories, unless the agent's program or files are in one."""
    inside = any(str(path).startswith(("/home/", "/root/")) for path in (program, pki, state_dir))
    return [f"ProtectHome={'read-only' if inside else 'yes'}"]


def _quoted(word: str) -> str:
    """Quote a word of a unit file.

    Source: systemd.syntax(7), systemd.unit(5): `%` is doubled, quotes are those of C.
    """
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"' if any(character in word for character in " \t;'\"\\#") else escaped

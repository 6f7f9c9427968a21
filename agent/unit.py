"""The systemd unit of an agent, as narrow as what it is there for: `proveout agent … --print-unit`.

Flow: the agent's options and the policy that it would take -> `unit(…)` -> text for /etc/systemd/system/proveout-agent.service.
Without a policy there is nothing to change, and the agent runs as a user of its own without any capability. With one it is root,
may write the policy's folders and its own, and is kept from the kernel's settings and from devices unless the policy lists some.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from proveout.agent.policy import Policy

USER = "proveout"
STATE = "/var/lib/proveout"
CAPABILITIES = (
    "CAP_CHOWN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER CAP_IPC_LOCK CAP_KILL CAP_NET_ADMIN CAP_SETGID CAP_SETPCAP "
    "CAP_SETUID CAP_SYS_ADMIN CAP_SYS_NICE CAP_SYS_PTRACE CAP_SYS_RESOURCE"
)
"""What changing a host, running servers and load as other users, and reading all processes' counters takes."""

ALWAYS = """NoNewPrivileges=yes
ProtectSystem=strict
PrivateTmp=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
LockPersonality=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
LimitNOFILE=65536
UMask=0077"""

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
    """The unit's text. `program` is the absolute path of `proveout`, `arguments` what it is started with."""
    command = " ".join(_quoted(word).replace("$", "$$") for word in (program, *arguments))  # which ExecStart expands
    lines = [HEAD.format(file=FILE, command=command), ALWAYS, *_home(program, pki, state_dir)]
    lines += _privileged(pki, state_dir, policy) if policy.source else _plain(pki, state_dir)
    return "\n".join([*lines, "", "[Install]", "WantedBy=multi-user.target", ""])


def _privileged(pki: Path, state_dir: Path, policy: Policy) -> list[str]:
    yes_no = {True: "yes", False: "no"}
    return [
        f"# What {policy.source} lists decides on these; print the unit anew when it changes.",
        f"ReadWritePaths={' '.join(_quoted(str(path)) for path in (pki, state_dir, *policy.paths))}",
        f"ProtectKernelTunables={yes_no[not policy.sysctl]}",
        f"PrivateDevices={yes_no[not policy.devices and not policy.destructive]}",
        f"CapabilityBoundingSet={CAPABILITIES}",
        *([f"StateDirectory={state_dir.name}"] if str(state_dir) == STATE else []),
    ]


def _plain(pki: Path, state_dir: Path) -> list[str]:
    return [
        "# No policy: nothing on this host is changed, and nothing but an ordinary user is needed. Once, before the first start:",
        f"#   useradd --system --home-dir {STATE} {USER}; chown -R {USER}: {shlex.quote(str(pki))}",
        f"User={USER}",
        f"Group={USER}",
        f"ReadWritePaths={' '.join(_quoted(str(path)) for path in (pki, state_dir))}",
        "ProtectKernelTunables=yes",
        "PrivateDevices=yes",
        "CapabilityBoundingSet=",
        *([f"StateDirectory={state_dir.name}", "StateDirectoryMode=0700"] if str(state_dir) == STATE else []),
    ]


def _home(program: str, pki: Path, state_dir: Path) -> list[str]:
    """Homes are hidden unless something of the agent's is in one."""
    inside = any(str(path).startswith(("/home/", "/root/")) for path in (program, pki, state_dir))
    return [f"ProtectHome={'read-only' if inside else 'yes'}"]


def _quoted(word: str) -> str:
    """A word of a unit file. Source: systemd.syntax(7), systemd.unit(5): `%` is doubled, quotes are C's."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"' if any(character in word for character in " \t;'\"\\#") else escaped

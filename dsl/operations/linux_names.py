"""Names that Linux and systemd define, for the checks of tuning operations and of a host's policy. No pydantic here:
every helper and worker process of an agent imports the policy.
"""

from __future__ import annotations

PROGRAM_SYSCTLS = (
    "kernel.core_pattern",
    "kernel.hotplug",
    "kernel.modprobe",
    "kernel.poweroff_cmd",
    "kernel.usermodehelper.*",
    "fs.binfmt_misc.*",
)
"""Patterns of kernel parameters that hold a program which the kernel starts as root: refused in a plan and in an
agent's policy.
Source: Documentation/admin-guide/sysctl of Linux."""
UNIT_KINDS = ("service", "socket", "timer", "mount", "automount", "path", "target", "swap", "slice")
"""Kinds of systemd's units that an operation may name."""

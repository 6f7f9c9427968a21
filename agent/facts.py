"""What this machine is: the part of the environment's fingerprint that an agent tells in its Welcome.

Source: /proc and /sys of Linux; what a machine does not tell is left out.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

from proveout.dsl.plan import Value


def machine_id() -> str:
    """systemd's machine id, which stays over reboots; the host's name where there is none."""
    return _line("/etc/machine-id") or platform.node()


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def facts() -> tuple[tuple[str, Value], ...]:
    """Facts by name, sorted: kernel, CPU, memory, and what they are set to."""
    found: dict[str, Value] = {
        "architecture": platform.machine(),
        "boot_id": _line("/proc/sys/kernel/random/boot_id"),
        "cpu_governor": _line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "cpu_model": _field("/proc/cpuinfo", "model name"),
        "cpus": os.cpu_count(),
        "distribution": _field("/etc/os-release", "PRETTY_NAME", separator="="),
        "host_name": platform.node(),
        "kernel": platform.release(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
        "transparent_hugepages": _chosen(_line("/sys/kernel/mm/transparent_hugepage/enabled")),
    }
    return tuple((name, value) for name, value in sorted(found.items()) if value not in {None, ""})


def _line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _field(path: str, name: str, separator: str = ":") -> str:
    for line in _line(path).splitlines():
        key, found, value = line.partition(separator)
        if found and key.strip() == name:
            return value.strip().strip('"')
    return ""


def _chosen(choices: str) -> str:
    """`madvise` of `always [madvise] never`."""
    return choices.partition("[")[2].partition("]")[0]

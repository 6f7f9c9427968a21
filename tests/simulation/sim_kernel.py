"""The attributes of a simulated kernel below /proc and /sys.

Data flow: the real operations -> `SimTexts` in place of `agent.tuning.host.Attributes` -> `Kernel`, which keeps values
and shows choices with the current one in brackets.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from proveout.agent.tuning.host import Attributes

CPUS = (0, 1)
THP = "/sys/kernel/mm/transparent_hugepage"
PLACE, PLACE_DEVICE = "/ttdb", "/dev/disk/by-label/ttdb"
"""A folder without a mount, and a device that can be mounted there."""


def governor(cpu: int) -> str:
    return f"/sys/devices/system/cpu/cpufreq/policy{cpu}/scaling_governor"


BOOT = {
    "/proc/sys/vm/swappiness": "60",
    "/proc/sys/vm/dirty_ratio": "20",
    "/proc/sys/vm/min_free_kbytes": "67584",
    "/proc/sys/vm/laptop_mode": "0",
    "/proc/sys/net/core/somaxconn": "128",
    "/proc/sys/vm/nr_hugepages": "0",
    f"{THP}/enabled": "madvise",
    f"{THP}/defrag": "madvise",
    **{governor(cpu): "powersave" for cpu in CPUS},
    "/sys/class/net/eth1/mtu": "1500",
}
"""The writable attributes with their values after a boot."""
CHOICES: Mapping[str, tuple[str, ...]] = {
    f"{THP}/enabled": ("always", "madvise", "never"),
    f"{THP}/defrag": ("always", "defer", "defer+madvise", "madvise", "never"),
}
FIXED: Mapping[str, bytes] = {
    "/proc/meminfo": b"MemTotal: 16384000 kB\nHugepagesize: 2048 kB\n",
    "/proc/swaps": b"Filename Type Size Used Priority\n",
    "/proc/self/mountinfo": b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n",
    "/proc/self/net/dev": b"Inter-|\n face |\n  eth1: 0\n",
    **{governor(cpu).replace("governor", "available_governors"): b"performance powersave\n" for cpu in CPUS},
}
LINKS = {PLACE: PLACE, PLACE_DEVICE: "/dev/sde"}


class Kernel(dict[str, str]):
    """Attribute -> value."""

    def shown(self, path: str) -> bytes | None:
        """Return the bytes that a read of the attribute gives; None when it does not exist."""
        value = self.get(path)
        if value is None:
            return FIXED.get(path)
        if path in CHOICES:
            value = " ".join(f"[{one}]" if one == value else one for one in CHOICES[path])
        return f"{value}\n".encode()


@functools.cache
def matching(pattern: str) -> tuple[str, ...]:
    """Return the attributes and folders that a pattern matches; `*` does not match a slash."""
    parts = pattern.split("/")
    found = {"/".join(path.split("/")[: len(parts)]) for path in (*BOOT, *FIXED, *LINKS)}
    return tuple(
        sorted(
            one for one in found if one.count("/") == len(parts) - 1 and all(map(fnmatchcase, one.split("/"), parts))
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimTexts(Attributes):
    """`Attributes` on a `Kernel`; `more` returns attributes that depend on the rest of the machine. A written value has
    its effect at once."""

    kernel: Kernel
    more: Callable[[str], bytes | None]
    wrote: Callable[[str], None]

    def octets(self, path: str) -> bytes | None:
        found = self.more(path)
        return found if found is not None else self.kernel.shown(path)

    def write(self, path: str, text: str) -> None:
        self.wrote(path)
        self.kernel[path] = text

    def matching(self, pattern: str) -> tuple[str, ...]:
        return matching(pattern)

    def link(self, path: str) -> str | None:
        return LINKS.get(path)

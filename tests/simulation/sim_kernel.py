"""The attributes of a simulated kernel below /proc and /sys, and the symbolic links to its disks.

Data flow: the real operations -> `SimTexts` in place of `agent.tuning.sysfs.Attributes` -> `Kernel`, which keeps
values, shows choices with the current one in brackets, and has the side effects of Linux: a change of the I/O scheduler
resets the queue's length and replaces the scheduler's own attributes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from proveout.agent.tuning.sysfs import Attributes

QUEUE_USUAL = {"mq-deadline": "256", "none": "1023", "kyber": "256"}
OWN: Mapping[str, Mapping[str, str]] = {
    "mq-deadline": {"read_expire": "500"},
    "none": {},
    "kyber": {"read_lat_nsec": "2000000"},
}
"""I/O scheduler -> its own attributes with their initial values."""
DISKS = ("sdb", "sdc")
CPUS = (0, 1)
THP = "/sys/kernel/mm/transparent_hugepage"
SPARE, SPARE_ID = "sdd", "/dev/disk/by-id/wwn-0x600a"
"""An empty disk."""
ASM_DISKS = {
    "/dev/oraudev/disks/D1": ("sdf", "/dev/disk/by-id/wwn-0x600d1"),
    "/dev/oraudev/disks/D2": ("sdg", "/dev/disk/by-id/wwn-0x600d2"),
}
"""The name of a disk in ASM -> its kernel name and its persistent name."""
NEW_DISK, OLD_DISK = "/dev/disk/by-id/wwn-0x600e", "/dev/disk/by-id/wwn-0x600f"
"""An empty disk for a filesystem, and one with data that no signature marks."""
PLACE, PLACE_DEVICE = "/ttdb", "/dev/disk/by-label/ttdb"
"""A folder without a mount, and a device that can be mounted there."""


def governor(cpu: int) -> str:
    return f"/sys/devices/system/cpu/cpufreq/policy{cpu}/scaling_governor"


def _disk(folder: str, numbers: str) -> dict[str, bytes]:
    """Return the attributes of an empty disk of 100 GiB."""
    words = {"size": "209715200", "ro": "0", "dev": numbers, "queue/logical_block_size": "512"}
    return {f"{folder}/{name}": f"{word}\n".encode() for name, word in words.items()}


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
    **{f"/sys/block/{disk}/queue/scheduler": "mq-deadline" for disk in DISKS},
    "/sys/class/net/eth1/mtu": "1500",
    "/sys/block/sdb/queue/nr_requests": "256",
    "/sys/block/sdc/queue/nr_requests": "200",
    "/sys/block/sdb/queue/iosched/read_expire": "500",
    "/sys/block/sdc/queue/iosched/read_expire": "120",
    **{f"/sys/block/{disk}/queue/rotational": "1" for disk in DISKS},
}
"""The writable attributes with their values after a boot; those of sdc (a shorter queue, a shorter read_expire) differ
from the defaults of their scheduler."""
CHOICES: Mapping[str, tuple[str, ...]] = {
    f"{THP}/enabled": ("always", "madvise", "never"),
    f"{THP}/defrag": ("always", "defer", "defer+madvise", "madvise", "never"),
    **{f"/sys/block/{disk}/queue/scheduler": tuple(QUEUE_USUAL) for disk in DISKS},
}
FIXED: Mapping[str, bytes] = {
    "/proc/meminfo": b"MemTotal: 16384000 kB\nHugepagesize: 2048 kB\n",
    "/proc/swaps": b"Filename Type Size Used Priority\n",
    "/proc/self/mountinfo": b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n",
    **{governor(cpu).replace("governor", "available_governors"): b"performance powersave\n" for cpu in CPUS},
    **{f"/sys/block/{disk}/device/vendor": b"FUSIONIO\n" for disk in DISKS},
    **{f"/sys/block/{disk}/device/model": b"ION LUN\n" for disk in DISKS},
    **{
        f"/sys/block/{disk}/device/vpd_pg83": bytes.fromhex(f"00830014010300106002{number:04x}" + "00" * 12)
        for number, disk in enumerate(DISKS, 1)
    },
    "/proc/self/net/dev": b"Inter-|\n face |\n  eth1: 0\n  eth2: 0\n bond0: 0\n",
    "/sys/class/net/bond0/bonding/mode": b"802.3ad 4\n",
    "/sys/class/net/bond0/bonding/slaves": b"eth2\n",
    "/sys/class/net/eth2/bonding_slave/mii_status": b"up\n",
    **_disk("/sys/class/block/sdh", "8:112"),
    **_disk("/sys/class/block/sdi", "8:128"),
    **_disk(f"/sys/block/{SPARE}", "8:48"),
    **_disk("/sys/class/block/sdf", "8:80"),
    **_disk("/sys/class/block/sdg", "8:96"),
}
LINKS = {
    SPARE_ID: f"/dev/{SPARE}",
    NEW_DISK: "/dev/sdh",
    OLD_DISK: "/dev/sdi",
    PLACE: PLACE,
    PLACE_DEVICE: "/dev/sde",
    **{path: f"/dev/{name}" for path, (name, _) in ASM_DISKS.items()},
    **{lasting: f"/dev/{name}" for name, lasting in ASM_DISKS.values()},
}


class Kernel(dict[str, str]):
    """Attribute -> value."""

    def set(self, path: str, value: str) -> None:
        """Set an attribute with the side effects of a write."""
        self[path] = value
        if path.endswith("/queue/scheduler"):
            self[path.replace("scheduler", "nr_requests")] = QUEUE_USUAL[value]
            own = path.replace("scheduler", "iosched/")
            for gone in [one for one in self if one.startswith(own)]:
                del self[gone]
            self.update({f"{own}{name}": usual for name, usual in OWN[value].items()})

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
    parts: Callable[[], tuple[str, ...]]
    wrote: Callable[[str], None]

    def octets(self, path: str) -> bytes | None:
        found = self.more(path)
        return found if found is not None else self.kernel.shown(path)

    def write(self, path: str, text: str) -> None:
        self.wrote(path)
        self.kernel.set(path, text)

    def matching(self, pattern: str) -> tuple[str, ...]:
        if pattern == f"/sys/block/{SPARE}/*/dev":
            return self.parts()
        if "/iosched/" in pattern:
            return tuple(sorted(path for path in self.kernel if fnmatchcase(path, pattern)))
        return matching(pattern)

    def link(self, path: str) -> str | None:
        return LINKS.get(path)

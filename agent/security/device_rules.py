"""Rules for udev rules of a plan: which devices they may give an owner, a mode or a name, and which names.

Flow: the `match` of a rule (key and pattern pairs; a device must match them all) -> `is_pinned` -> whether one of the
pairs limits the rule to devices that the policy lists: a device under `devices`, by a property that udev derives from
its name in /dev/disk/by-id, or a pattern under `udev: devices`. A rule therefore never reaches /dev/mem, or a disk that
the owner of the host has not listed.

`udev: devices` has the syntax of a rule, `KERNEL==scini*`. Without a reason (`i_know`) an entry must name one device by
a lasting property, or a known family of data disks: kernel names of disks (`sd*`) change, and may be those of the
system disk. Everything here is pure. Sources: udev(7), 60-persistent-storage.rules of systemd, 10-dm.rules of device
mapper.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

FORM = re.compile(
    r"(?P<key>KERNEL|ENV\{[A-Z0-9_]+\}|ATTRS\{[a-z0-9_]+\})==(?P<value>[A-Za-z0-9][A-Za-z0-9._:+*?\[\]-]*)"
)
KEYS = frozenset(
    {
        "ATTRS{model}", "ATTRS{vendor}", "ENV{DM_NAME}", "ENV{DM_UUID}", "ENV{ID_SERIAL}", "ENV{ID_SERIAL_SHORT}",
        "ENV{ID_WWN_WITH_EXTENSION}", "KERNEL",
    }
)  # fmt: skip
"""Properties that identify disks, and that no rule of a plan can assign to another disk."""

LASTING = frozenset(
    {"ENV{DM_NAME}", "ENV{DM_UUID}", "ENV{ID_SERIAL}", "ENV{ID_SERIAL_SHORT}", "ENV{ID_WWN_WITH_EXTENSION}"}
)

DATA_DISKS = ("drbd", "emcpower", "fio", "nbd", "rbd", "rssd", "scini")
"""Prefixes of kernel names that no system disk has: DRBD, PowerPath, Fusion-io, network block devices, Ceph, Micron,
ScaleIO.
"""

ARRAYS = ("3PARdata", "COMPELNT", "DGC", "EMC", "FUSIONIO", "HITACHI", "HUAWEI", "NETAPP", "Nimble", "PURE", "XtremIO")
"""Vendors of storage arrays, as their disks report them."""

NEVER = (
    "mem", "kmem", "kmsg", "kvm", "port", "null", "zero", "full", "random", "urandom", "console", "tty", "tty0",
    "ttyS0", "ptmx", "fuse", "vfio", "vhost-net", "vhost-vsock", "uinput", "nvram", "hpet", "rtc0", "cpu0", "msr0",
    "event0", "loop-control", "btrfs-control", "mapper/control", "sg0", "fb0", "vcs", "watchdog", "autofs",
    "userfaultfd", "net/tun", "tpm0", "hwrng", "snapshot",
)  # fmt: skip
"""Devices that are not disks: a KERNEL pattern that matches one is always refused."""

LINK_FOLDERS = ("oraudev",)
"""Folders of /dev in which plans may put links without an entry in the policy."""

LITERAL_MIN = 2
_GLOB = re.compile(r"[*?\[]")
_OF_THE_SERIAL = re.compile(r"/dev/disk/by-id/(?:scsi|ata|virtio|nvme|usb)-(?P<serial>.+)")


def is_pinned(match: Iterable[tuple[str, str]], devices: Sequence[str], listed: Sequence[str]) -> bool:
    """Whether a rule with these pairs matches only devices of the policy: `devices`, or those of the patterns
    `listed`.
    """
    patterns = [found.group("key", "value") for one in listed if (found := FORM.fullmatch(one))]
    for key, value in match:
        if any(key == of and is_within(value, pattern) for of, pattern in patterns):
            return True
        if any(is_of(device, key, value) for device in devices):
            return True
    return False


def is_within(value: str, listed: str) -> bool:
    """Whether the listed pattern matches everything that a rule's pattern matches; `|` separates alternatives of a
    rule.
    """
    return all(_one_within(one, listed) for one in value.split("|"))


def _one_within(value: str, listed: str) -> bool:
    begin = _GLOB.search(value)
    if begin is None:
        return fnmatchcase(value, listed)
    prefix = listed.removesuffix("*")
    return value == listed or (
        listed != prefix and _GLOB.search(prefix) is None and value[: begin.start()].startswith(prefix)
    )


def is_of(device: str, key: str, value: str) -> bool:
    """Whether only this device (a name in /dev/disk/by-id, or `serial:…`), or its partitions, has that property."""
    if device.startswith("serial:"):
        return key == "ENV{ID_SERIAL_SHORT}" and value == device.removeprefix("serial:")
    name = device.removeprefix("/dev/disk/by-id/")
    if key == "ENV{DM_NAME}" and name.startswith("dm-name-"):
        return re.fullmatch(re.escape(name.removeprefix("dm-name-")) + r"((p|-part)\d+)?", value) is not None
    if key == "ENV{DM_UUID}" and name.startswith("dm-uuid-"):
        return re.fullmatch(r"(part\d+-)?" + re.escape(name.removeprefix("dm-uuid-")), value) is not None
    if key == "ENV{ID_WWN_WITH_EXTENSION}" and name.startswith("wwn-"):
        return value == name.removeprefix("wwn-")
    serial = _OF_THE_SERIAL.fullmatch(device)
    return key == "ENV{ID_SERIAL}" and serial is not None and value == serial["serial"]


def is_known(pattern: str) -> bool:
    """Whether `udev: devices` accepts a pattern of `FORM` without a reason."""
    found = FORM.fullmatch(pattern)
    if found is None:
        return False
    key, value = found.group("key", "value")
    beginning = _GLOB.split(value)[0]
    if key == "KERNEL":
        return beginning.startswith(DATA_DISKS)
    if key == "ATTRS{vendor}":
        return beginning in ARRAYS and value in (beginning, f"{beginning}*")
    return key in LASTING and beginning == value


def objection(pattern: str) -> str:
    """The reason against a pattern, which no policy can list then; "" if there is none."""
    found = FORM.fullmatch(pattern)
    if found is None or found["key"] not in KEYS:
        return f"`{pattern}` does not identify disks: write KEY==pattern, KEY one of {', '.join(sorted(KEYS))}"
    if len(_GLOB.split(found["value"])[0]) < LITERAL_MIN:
        return f"`{pattern}` is too wide: it must begin with at least {LITERAL_MIN} literal characters"
    if found["key"] == "KERNEL" and (other := next((one for one in NEVER if fnmatchcase(one, found["value"])), None)):
        return f"`{pattern}` matches /dev/{other}, which is not a disk"
    return ""


def is_link_allowed(link: str, folders: Sequence[str]) -> bool:
    """Whether a rule may create this link below /dev: in one of the folders, or in one of `LINK_FOLDERS`."""
    return any(link.startswith(f"{folder}/") for folder in (*LINK_FOLDERS, *folders))

"""Free space of file systems, for messages about full disks.

Data flow: an OSError or a path -> `is_full`, `describe` -> the text of a `disk_full` failure on agents and coordinator.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
USED_UP_BYTES = 64 << 10
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def is_full(error: BaseException | None) -> bool:
    """Whether an error says that a file system, or the quota on it, is used up."""
    return isinstance(error, OSError) and error.errno in _FULL


def is_used_up(path: Path, least_bytes: int = USED_UP_BYTES) -> bool:
    """Whether the file system of a directory has less room than that, by default none for anything: for programs that
    cannot write the reason why they cannot write."""
    try:
        about = os.statvfs(path)
    except OSError:
        return False
    return about.f_bavail * about.f_frsize < least_bytes or bool(about.f_files and not about.f_favail)


def describe(path: Path) -> str:
    """`file system /data of host db1: 12 KiB of 8 MiB are free`; of the nearest directory that there is."""
    place = _existing(path.absolute())
    try:
        about = os.statvfs(place)
    except OSError as fault:
        return f"file system of {place} on host {os.uname().nodename}: {fault.strerror}"
    free, total = about.f_bavail * about.f_frsize, about.f_blocks * about.f_frsize
    inodes = ", no inode is free" if about.f_files and not about.f_favail else ""
    room = f"{size_text(free)} of {size_text(total)} are free{inodes}"
    return f"file system {_mount(place)} of host {os.uname().nodename}: {room}"


def _existing(path: Path) -> Path:
    return next(place for place in (path, *path.parents) if os.path.isdir(place) or place == place.parent)  # noqa: PTH112 - it never raises


def _mount(path: Path) -> Path:
    """The directory on which the file system of `path` is mounted."""
    try:
        device = path.stat().st_dev
        while path != path.parent and path.parent.stat().st_dev == device:
            path = path.parent
    except OSError:
        pass
    return path


def size_text(count: int) -> str:
    """`12 KiB`."""
    value, unit = float(count), 0
    while value >= 1024.0 and unit < len(_UNITS) - 1:
        value, unit = value / 1024.0, unit + 1
    return f"{value:.3g} {_UNITS[unit]}"

"""Private temporary directories of a command, and the free space of file systems for messages about full disks."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from proveout.core import linux
from proveout.core.numbers import size

PURPOSES = ("agents", "ceiling", "check", "deploy", "explain")
_TRIES = 20


class PrivateDirectory:
    """A directory with a lock on it. `descriptor` is what child processes inherit."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path, self.descriptor = path, descriptor

    def close(self) -> None:
        """Remove the directory with all that is in it, and release the lock; idempotent."""
        if self.descriptor >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()


def make(purpose: str) -> PrivateDirectory:
    """A new directory in the temporary directory, for one of `PURPOSES`. OSError when none can be made."""
    assert purpose in PURPOSES, "a directory of another name is not swept"  # noqa: S101
    for _ in range(_TRIES):
        path = Path(tempfile.mkdtemp(prefix=f"proveout-{purpose}-"))
        descriptor = _locked(path, shared=True)
        if descriptor is not None:  # else another command swept it before it was locked
            return PrivateDirectory(path, descriptor)
    raise FileNotFoundError(2, "something removes new directories there", tempfile.gettempdir())


def sweep() -> tuple[Path, ...]:
    """Remove directories that killed commands of this user have left in the temporary directory. Returns them."""
    return tuple(_swept())


def _swept() -> Iterator[Path]:
    beginnings = tuple(f"proveout-{purpose}-" for purpose in PURPOSES)
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        left = [Path(entry.path) for entry in entries if entry.name.startswith(beginnings)]
        for path in left:
            descriptor = _locked(path)
            if descriptor is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(descriptor)
                yield path


def _locked(path: Path, *, shared: bool = False) -> int | None:
    """A descriptor of a private directory of this user that holds its lock; None when another process holds it, or it
    is something else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        found = os.fstat(descriptor)
        is_private = found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077
        if is_private and linux.lock(descriptor, shared=shared, wait=shared) and os.path.samestat(found, path.lstat()):
            return descriptor
    os.close(descriptor)
    return None


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
USED_UP_BYTES = 64 << 10


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
    room = f"{size(free)} of {size(total)} are free{inodes}"
    return f"file system {_mount(place)} of host {os.uname().nodename}: {room}"


def _existing(path: Path) -> Path:
    return next(place for place in (path, *path.parents) if os.path.isdir(place) or place == place.parent)  # noqa: PTH112 - it never raises


def _mount(path: Path) -> Path:
    try:
        device = path.stat().st_dev
        while path != path.parent and path.parent.stat().st_dev == device:
            path = path.parent
    except OSError:
        pass
    return path

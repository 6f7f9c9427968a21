"""Temporary directories of a command: private, locked while anything of the command lives, removed by the next command
if it was killed.

Flow: `make("agents")` -> `PrivateDirectory` with a path (0700) and a descriptor that holds a shared lock on it. Child
processes that inherit the descriptor hold the lock as well, so the lock lasts until the last of them has ended, however
it ended. Every `proveout` command calls `sweep()` first: a directory of the same user with such a name that is not
locked was left by killed processes, and is removed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from proveout.core import linux

PURPOSES = ("agents", "ceiling", "check", "explain")
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

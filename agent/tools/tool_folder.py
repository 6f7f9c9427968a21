"""The folder for the files of a tool: created on the agent's host, owned by the tool's user, removed with the session.

Flow: `ToolFolder.enter(base, uid)` -> a new folder below `base`, locked while the agent runs -> `close` removes it. A
folder that a killed agent has left is not locked: the next agent with the same `base` removes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from proveout.agent.errors import TaskFault
from proveout.core import linux

PREFIX = "proveout-tool-"
_TRIES = 20


class ToolFolder:
    """A locked folder (a `tasks.Resource`)."""

    def __init__(self, path: Path, descriptor: int, *, is_last: bool = False) -> None:
        self.path, self._descriptor, self._is_last = path, descriptor, is_last
        self.made: set[tuple[int, int]] = set()
        """Complete sets of files: (number of files, bytes of each)."""

    def has(self, files: int, size_bytes: int) -> bool:
        """Whether there are enough complete files of at least that size."""
        return any(count >= files and size >= size_bytes for count, size in self.made)

    @classmethod
    def enter(cls, base: Path, uid: int | None, *, is_last: bool = False) -> ToolFolder:
        """Create a folder below `base` for the user `uid`.

        Blocking. TaskFault if that fails. `is_last`: an empty `base` is removed too.
        """
        try:
            sweep(base)
            for _ in range(_TRIES):
                path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
                descriptor = _lock(path)
                if descriptor is None:  # another agent removed it before it was locked
                    continue
                if uid is not None:
                    os.fchown(descriptor, uid, uid)
                return cls(path, descriptor, is_last=is_last)
        except OSError as error:
            code = "disk_full" if error.errno == 28 else "invalid"
            way_out = "name an existing folder that the agent may write"
            raise TaskFault(code, f"cannot create a folder in {base}: {error.strerror}", way_out=way_out) from None
        raise TaskFault(
            "fault", f"new folders in {base} disappear", way_out="find out which program removes folders there"
        )

    def free_bytes(self) -> int:
        """Free bytes of the file system."""
        found = os.fstatvfs(self._descriptor)
        return found.f_bavail * found.f_frsize

    def used_bytes(self) -> int:
        """Bytes used by the files."""
        return sum(item.stat(follow_symlinks=False).st_blocks * 512 for item in os.scandir(self._descriptor))

    async def close(self, *, keep_data: bool) -> None:
        """Remove the folder, also with `keep_data`: its files have no use after the run."""
        await asyncio.to_thread(self.leave)

    def leave(self) -> None:
        """Remove the folder; idempotent."""
        if self._descriptor >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._descriptor)
            self._descriptor = -1
            if self._is_last:
                with contextlib.suppress(OSError):
                    self.path.parent.rmdir()


def sweep(base: Path) -> None:
    """Remove unlocked folders of killed agents in `base`; an agent that is not root removes only its own."""
    owners = {os.geteuid()} if os.geteuid() else None
    for path in base.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if owners is not None and path.lstat().st_uid not in owners:
                continue
            descriptor = _lock(path)
            if descriptor is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(descriptor)


def _lock(path: Path) -> int | None:
    """Lock the folder; returns its descriptor, or None if another process has the lock or the folder is missing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if linux.lock(descriptor) and os.path.samestat(os.fstat(descriptor), path.lstat()):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None

"""The folder that a tool's files lie in: made on the agent's host, given to the tool's user, removed with the session.

Flow: `Grounds.enter(base, uid)` -> a folder of its own below `base`, locked as long as the agent lives -> `close` removes it. A folder that
a killed agent has left is not locked: the next that comes to the same place removes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from proveout.agent.daemon.tasks import TaskFault
from proveout.core import linux

PREFIX = "proveout-tool-"
_TRIES = 20


class Grounds:
    """A folder with a lock on it (a `tasks.Resource`)."""

    def __init__(self, path: Path, descriptor: int, *, is_last: bool = False) -> None:
        self.path, self._descriptor, self._is_last = path, descriptor, is_last
        self.made: set[tuple[int, int]] = set()
        """Files that are whole: how many there are, and how large each is."""

    def has(self, files: int, size_bytes: int) -> bool:
        """Whether so many whole files of at least that size are here."""
        return any(count >= files and size >= size_bytes for count, size in self.made)

    @classmethod
    def enter(cls, base: Path, uid: int | None, *, is_last: bool = False) -> Grounds:
        """A new folder below `base`, of the user `uid`. Blocking. TaskFault when there is no such place. `is_last`: an empty `base` goes with it."""
        try:
            sweep(base)
            for _ in range(_TRIES):
                path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
                descriptor = _lock(path)
                if descriptor is None:  # another agent took it for a left one before it was locked
                    continue
                if uid is not None:
                    os.fchown(descriptor, uid, uid)
                return cls(path, descriptor, is_last=is_last)
        except OSError as error:
            code = "disk_full" if error.errno == 28 else "invalid"
            way_out = "name a folder that is there and that the agent may write to"
            raise TaskFault(code, f"no folder can be made in {base}: {error.strerror}", way_out=way_out) from None
        raise TaskFault("fault", f"no folder stays in {base}", way_out="see what removes folders there")

    def free_bytes(self) -> int:
        """What the file system has left for files here."""
        found = os.fstatvfs(self._descriptor)
        return found.f_bavail * found.f_frsize

    def used_bytes(self) -> int:
        """What the files here have by now."""
        return sum(item.stat(follow_symlinks=False).st_blocks * 512 for item in os.scandir(self._descriptor))

    async def close(self, *, keep_data: bool) -> None:
        """Remove the folder: its files mean nothing to anybody, whatever is kept of the run."""
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
    """Remove what killed agents have left in `base`: folders of that name, ours or of the same hand, that nobody holds."""
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
    """A descriptor of the folder that holds its lock; None when somebody else does, or it is gone."""
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

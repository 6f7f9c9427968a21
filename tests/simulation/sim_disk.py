"""A simulated disk, and the part of the module `os` that accesses it: a power loss can discard unsynced changes.

Data flow: the real `agent.tuning.host` calls `SimOs` in place of `os` -> the `Disk` of the calling process's
host -> inodes and names. Every call that changes a file takes simulated time, in which the process can be killed or the
power can fail.

Durability follows POSIX: a file's content, mode and owner are durable after an fsync of the file, a name after an fsync
of its folder. At a power loss the names of a folder return to any state between the last fsync and the present one (in
order, as on a journalling filesystem), and an unsynced file has its old content, a part of the new one, or all of it.
"""

from __future__ import annotations

import errno
import io
import itertools
import os
import random
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from sim_threads import Killed, Threads, is_dead

STEP_S = 0.004
FIRST = 1_000_000
"""The first simulated descriptor, far above those of real files, so that the two cannot be confused."""


@dataclass(slots=True)
class Data:
    """The content and attributes of a file, without its name."""

    content: bytes = b""
    mode: int = 0o600
    uid: int = 0
    gid: int = 0
    xattrs: dict[str, bytes] = field(default_factory=dict)
    mtime_ns: int = 0

    def copy(self) -> Data:
        return Data(self.content, self.mode, self.uid, self.gid, dict(self.xattrs), self.mtime_ns)


@dataclass(eq=False, slots=True)
class Inode:
    """A file: its present data, and the data that survives a power loss."""

    now: Data
    safe: Data | None = None

    def sync(self) -> None:
        self.safe = self.now.copy()

    def lose(self, chance: random.Random) -> None:
        """Lose unsynced data at a power loss: all of it, a part, or none."""
        if self.safe == self.now:
            return
        kind = chance.randrange(3)
        if kind == 0 and self.safe is not None:
            self.now = self.safe.copy()
        elif kind < 2:
            self.now.content = self.now.content[: chance.randint(0, len(self.now.content))]
        self.sync()


Names = dict[str, Inode]


class Disk:
    """The files of a host by absolute path; `folders` exist from the beginning and are durable."""

    def __init__(self, chance: random.Random, folders: tuple[str, ...]) -> None:
        self._chance = chance
        self.folders = {"", *folders, *(folder.rpartition("/")[0] for folder in folders)}
        self.names: Names = {}
        self.full = False
        self._states: dict[str, list[Names]] = {folder: [{}] for folder in self.folders}

    def put(self, path: str, data: Data) -> None:
        """Write a file as another process does, completely and synced."""
        inode = Inode(data)
        inode.sync()
        self.names[path] = inode
        folder = path.rpartition("/")[0]
        self.changed(folder)
        self.sync_folder(folder)

    def changed(self, folder: str) -> None:
        self._states[folder].append(self._in(folder))

    def sync_folder(self, folder: str) -> None:
        self._states[folder] = [self._in(folder)]

    def _in(self, folder: str) -> Names:
        return {path: inode for path, inode in self.names.items() if path.rpartition("/")[0] == folder}

    def lose_power(self) -> None:
        """Set the names of each folder to one of its states since its last fsync, and lose unsynced data of files."""
        self.names = {}
        for folder, states in self._states.items():
            self.names |= self._chance.choice(states)
            self.sync_folder(folder)
        for inode in self.names.values():
            inode.lose(self._chance)

    def picture(self) -> dict[str, Data]:
        return {path: inode.now.copy() for path, inode in self.names.items()}


class _Writer(io.RawIOBase):
    """A file that is open for writing. Each half of a write takes its own step, so that a fault between them leaves
    half of the data."""

    def __init__(self, sim: SimOs, descriptor: int, inode: Inode) -> None:
        self._sim, self._descriptor, self._inode = sim, descriptor, inode

    def write(self, data: Any) -> int:
        for piece in (data[: len(data) // 2], data[len(data) // 2 :]):
            self._sim.step(writes=True)
            self._inode.now.content += bytes(piece)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._sim.close(self._descriptor)
        super().close()


class SimOs:
    """The functions of `os` that `agent.tuning.host` uses. `disk()` returns the disk of the calling process;
    `wrote(path)` is called before each change."""

    def __init__(self, threads: Threads, disk: Callable[[], Disk], wrote: Callable[[str], None]) -> None:
        self._threads, self._disk, self._wrote = threads, disk, wrote
        self._open: dict[int, tuple[str, Inode | None]] = {}
        self._serial = itertools.count(FIRST)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("O_"):
            raise AttributeError(f"the simulated os has no {name}")
        return getattr(os, name)

    def step(self, *, writes: bool = False) -> None:
        self._threads.pause(STEP_S, short=True)
        if writes and self._disk().full:
            raise OSError(errno.ENOSPC, "No space left on device")

    # ---- folders ---------------------------------------------------------------------------------------------------

    def open(self, name: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if is_dead():
            raise Killed
        path = "" if dir_fd is None else f"{self._open[dir_fd][0]}/{name}"
        if flags & os.O_DIRECTORY:
            if path not in self._disk().folders:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            return self._descriptor(path, None)
        if flags & os.O_CREAT:
            self.step(writes=True)
            if path in self._disk().names:
                raise FileExistsError(errno.EEXIST, "File exists", path)
            self._disk().names[path] = Inode(Data(mode=mode))
            self._disk().changed(path.rpartition("/")[0])
        return self._descriptor(path, self._inode(path))

    def _descriptor(self, path: str, inode: Inode | None) -> int:
        descriptor = next(self._serial)
        self._open[descriptor] = (path, inode)
        return descriptor

    def _inode(self, path: str) -> Inode:
        try:
            return self._disk().names[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path) from None

    def close(self, descriptor: int) -> None:
        self._open.pop(descriptor, None)

    def listdir(self, descriptor: int) -> list[str]:
        folder = self._open[descriptor][0]
        found = (path.rpartition("/") for path in self._disk().names)
        return [name for parent, _, name in found if parent == folder]

    def rename(self, old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        self.step()
        folder = self._open[src_dir_fd][0]
        assert folder == self._open[dst_dir_fd][0]
        self._wrote(f"{folder}/{new}")
        self._disk().names[f"{folder}/{new}"] = self._disk().names.pop(f"{folder}/{old}")
        self._disk().changed(folder)

    def unlink(self, name: str, *, dir_fd: int) -> None:
        self.step()
        folder = self._open[dir_fd][0]
        self._inode(f"{folder}/{name}")
        if ".proveout-" not in name:  # a temporary file that was not renamed yet needs no undo entry
            self._wrote(f"{folder}/{name}")
        del self._disk().names[f"{folder}/{name}"]
        self._disk().changed(folder)

    # ---- files -----------------------------------------------------------------------------------------------------

    def stat(self, name: str, *, dir_fd: int, follow_symlinks: bool) -> Any:
        assert not follow_symlinks
        path = f"{self._open[dir_fd][0]}/{name}"
        if path in self._disk().folders:
            return SimpleNamespace(st_mode=stat.S_IFDIR | 0o755)
        return self._status(self._inode(path).now)

    def fstat(self, descriptor: int) -> Any:
        return self._status(self._file(descriptor).now)

    def _status(self, data: Data) -> Any:
        return SimpleNamespace(
            st_mode=stat.S_IFREG | data.mode, st_uid=data.uid, st_gid=data.gid, st_mtime_ns=data.mtime_ns, st_nlink=1
        )

    def _file(self, descriptor: int) -> Inode:
        inode = self._open[descriptor][1]
        assert inode is not None
        return inode

    def fdopen(self, descriptor: int, mode: str) -> Any:
        inode = self._file(descriptor)
        return io.BytesIO(inode.now.content) if mode == "rb" else _Writer(self, descriptor, inode)

    def fchown(self, descriptor: int, uid: int, gid: int) -> None:
        self._file(descriptor).now.uid, self._file(descriptor).now.gid = uid, gid

    def fchmod(self, descriptor: int, mode: int) -> None:
        self._file(descriptor).now.mode = mode

    def listxattr(self, descriptor: int) -> list[str]:
        return list(self._file(descriptor).now.xattrs)

    def getxattr(self, descriptor: int, name: str) -> bytes:
        return self._file(descriptor).now.xattrs[name]

    def setxattr(self, descriptor: int, name: str, value: bytes) -> None:
        self._file(descriptor).now.xattrs[name] = value

    def removexattr(self, descriptor: int, name: str) -> None:
        del self._file(descriptor).now.xattrs[name]

    def utime(self, descriptor: int, *, ns: tuple[int, int]) -> None:
        self._file(descriptor).now.mtime_ns = ns[1]

    def fsync(self, descriptor: int) -> None:
        self.step()
        path, inode = self._open[descriptor]
        if inode is None:
            self._disk().sync_folder(path)
        else:
            inode.sync()

"""Files of a host, changed so that nobody can lead the change astray, and nobody ever sees half of it.

A path is walked from the root, one folder at a time, each opened beneath the one before with O_NOFOLLOW: a symbolic link anywhere in
it is refused, one that is swapped in while the walk is under way is not followed, and no part of it climbs. (openat2 with RESOLVE_NO_SYMLINKS
and RESOLVE_BENEATH promises the same in one call; why it is not used is ADR 46.) A write goes to a new file in the same folder, is given its mode,
owner and extended attributes, fsynced, and renamed into place; then the folder is fsynced.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from proveout.agent.daemon.tasks import TaskFault
from proveout.dsl.operations.facts import ABSENT, FileFact

SIZE_MAX_BYTES = 8 * 1024 * 1024
_LEFT = re.compile(r"\.proveout-[0-9a-f]{12}$")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """A file as it was, to the byte; not `exists`: there was none."""

    exists: bool
    content: bytes = b""
    mode: int = 0
    uid: int = 0
    gid: int = 0
    xattrs: Mapping[str, bytes] = field(default_factory=dict)
    mtime_ns: int = 0


NONE = Original(exists=False)


@dataclass(frozen=True, slots=True)
class Files:
    """The files beneath `root`; `/` but in tests. Paths are absolute, as in a plan. Raises TaskFault."""

    root: Path = Path("/")

    def fact(self, path: str) -> FileFact:
        """What is at `path`; a folder that is not there means that nothing is."""
        try:
            with self._folder(path) as (folder, name):
                kind = _kind(folder, name)
                if kind != "file":
                    return FileFact(kind=kind)  # type: ignore[arg-type]  # _kind gives just these words
                found = _read(folder, name, path)
        except FileNotFoundError:
            return ABSENT
        return FileFact(
            kind="file", content=found.content, mode=found.mode, owner=_user(found.uid), group=_group(found.gid)
        )

    def original(self, path: str) -> Original:
        """The file as it is now, whole; `NONE` where there is none."""
        try:
            with self._folder(path) as (folder, name):
                return NONE if _kind(folder, name) == "absent" else _read(folder, name, path)
        except FileNotFoundError:
            return NONE

    def write(self, path: str, content: bytes, mode: int, owner: str, group: str) -> None:
        """Make the file be so; one that is there keeps its extended attributes."""
        before = self.original(path)
        made = Original(exists=True, content=content, mode=mode, uid=_uid(owner), gid=_gid(group), xattrs=before.xattrs)
        if before != made:
            self._put(path, made, inherits=not before.exists)

    def put(self, path: str, wanted: Original) -> None:
        """Make the file be `wanted`, or not be there. Nothing is written where it is so already."""
        if self.original(path) != wanted:
            self._put(path, wanted)

    def _put(self, path: str, wanted: Original, *, inherits: bool = False) -> None:
        try:
            with self._folder(path) as (folder, name):
                if wanted.exists:
                    _replace(folder, name, path, wanted, inherits=inherits)
                else:
                    os.unlink(name, dir_fd=folder)
                os.fsync(folder)
        except FileNotFoundError as error:
            raise TaskFault("missing", f"the folder of {path} is not there") from error
        except OSError as error:
            raise _fault(path, error) from error

    def sweep(self, path: str) -> None:
        """Remove what an agent that was killed in the middle of `put` has left beside `path`."""
        try:
            with self._folder(path) as (folder, name):
                left = [one for one in _names(folder) if one.startswith(_scratch(name)) and _LEFT.search(one)]
                for one in left:
                    os.unlink(one, dir_fd=folder)
                if left:
                    os.fsync(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _fault(path, error) from error

    @contextlib.contextmanager
    def _folder(self, path: str) -> Iterator[tuple[int, str]]:
        """(descriptor of the folder, name in it); FileNotFoundError when a folder on the way is not there."""
        *folders, name = path.strip("/").split("/")
        if {"", ".", ".."} & {*folders, name}:
            raise TaskFault("refused", f"{path!r} is no plain path; nothing is changed by it")
        here = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for folder in folders:
                below = _enter(here, folder, path)
                os.close(here)
                here = below
            yield here, name
        finally:
            os.close(here)


def _enter(here: int, folder: str, path: str) -> int:
    try:
        return os.open(folder, _DIRECTORY, dir_fd=here)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            text = f"{folder!r} in {path} is a symbolic link or no folder; nothing is changed through it"
            raise TaskFault("refused", text, way_out="name the path that it really is") from error
        raise _fault(path, error) from error


def _kind(folder: int, name: str) -> str:
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return "absent"
    except OSError as error:
        raise _fault(name, error) from error
    if stat.S_ISREG(mode):
        return "file"
    return "link" if stat.S_ISLNK(mode) else "directory" if stat.S_ISDIR(mode) else "other"


def _read(folder: int, name: str, path: str) -> Original:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise TaskFault("refused", f"{path} is a symbolic link; nothing is changed through it") from error
        raise _fault(path, error) from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise TaskFault("refused", f"{path} is not a regular file")
    if (
        found.st_nlink > 1
    ):  # what is put in its place would be another file, and what it shows may be a file of another folder
        os.close(descriptor)
        raise TaskFault(
            "refused", f"{path} has {found.st_nlink} names (hard links); nothing is changed through one of them"
        )
    with os.fdopen(descriptor, "rb") as stream:
        content = stream.read(SIZE_MAX_BYTES + 1)
        if len(content) > SIZE_MAX_BYTES:
            raise TaskFault("refused", f"{path} is larger than {SIZE_MAX_BYTES >> 20} MiB")
        return Original(
            exists=True,
            content=content,
            mode=stat.S_IMODE(found.st_mode),
            uid=found.st_uid,
            gid=found.st_gid,
            xattrs=_xattrs(descriptor),
            mtime_ns=found.st_mtime_ns,
        )


def _xattrs(descriptor: int) -> dict[str, bytes]:
    try:
        return {name: os.getxattr(descriptor, name) for name in os.listxattr(descriptor)}
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return {}
        raise


def _set_xattrs(descriptor: int, wanted: Mapping[str, bytes], *, inherits: bool) -> None:
    for attribute, value in wanted.items():
        os.setxattr(descriptor, attribute, value)
    for attribute in () if inherits else _xattrs(descriptor):
        if attribute not in wanted and not attribute.startswith("security."):  # a label is the kernel's to give
            os.removexattr(descriptor, attribute)


def _names(folder: int) -> list[str]:
    return os.listdir(folder)


def _scratch(name: str) -> str:
    """How the names of new files that take the place of `name` begin."""
    return f".{name[:200]}.proveout-"


def _replace(folder: int, name: str, path: str, wanted: Original, *, inherits: bool) -> None:
    """A new file in the place of `name`; one that `inherits` keeps what its folder gives new files (an access list, a label)."""
    if _kind(folder, name) not in ("file", "absent"):
        raise TaskFault("refused", f"{path} is not a regular file")
    scratch = f"{_scratch(name)}{secrets.token_hex(6)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(scratch, flags, 0o600, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(wanted.content)
            stream.flush()
            os.fchown(descriptor, wanted.uid, wanted.gid)
            _set_xattrs(descriptor, wanted.xattrs, inherits=inherits)
            os.fchmod(descriptor, wanted.mode)  # after an access list, which has permissions of its own
            if wanted.mtime_ns:
                os.utime(descriptor, ns=(wanted.mtime_ns, wanted.mtime_ns))
            os.fsync(descriptor)
        os.rename(scratch, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(scratch, dir_fd=folder)
            os.fsync(folder)
        raise


def _fault(path: str, error: OSError) -> TaskFault:
    code = "disk_full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "refused"
    way_out = "an agent that tunes runs as root" if error.errno in (errno.EACCES, errno.EPERM) else ""
    return TaskFault(code, f"{path}: {error.strerror}", way_out=way_out)


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _uid(owner: str) -> int:
    """A number is the owner of a file whom this host has no name for, as `_user` tells it."""
    try:
        return pwd.getpwnam(owner).pw_uid
    except KeyError:
        if owner.isdecimal():
            return int(owner)
        raise TaskFault("missing", f"this host has no user {owner!r}") from None


def _gid(group: str) -> int:
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        if group.isdecimal():
            return int(group)
        raise TaskFault("missing", f"this host has no group {group!r}") from None

"""Files of a host: read, written and put back without following a link."""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from proveout.agent.errors import TaskFault
from proveout.core.data_classes import dataclass
from proveout.dsl.operations.facts import ABSENT, NONE, FileFact, Original

# A path is opened from the root, one folder at a time, each beneath the one before with O_NOFOLLOW: a symbolic link
# anywhere in it is refused, a link that is put there meanwhile is not followed, and no part is `..`. (openat2 with
# RESOLVE_NO_SYMLINKS and RESOLVE_BENEATH guarantees the same in one call; ADR 46 says why it is not used.) A write goes
# to a new file in the same folder, which gets its mode, owner and extended attributes, is fsynced, and is renamed into
# place; then the folder is fsynced.

SIZE_MAX_BYTES = 8 * 1024 * 1024
_LEFT = re.compile(r"\.proveout-[0-9a-f]{12}$")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Files:
    """The files beneath `root`, which is `/` except in tests. Paths are absolute, as in a plan. Raises TaskFault."""

    root: Path = Path("/")

    def fact(self, path: str) -> FileFact:
        """The file at `path`; absent also if its folder is missing."""
        try:
            with self.folder(path) as (folder, name):
                kind = _kind(folder, name)
                if kind != "file":
                    return FileFact(kind=kind)
                found = _read(folder, name, path)
        except FileNotFoundError:
            return ABSENT
        owner, group = _name_of(pwd.getpwuid, found.uid), _name_of(grp.getgrgid, found.gid)
        return FileFact(kind="file", content=found.content, mode=found.mode, owner=owner, group=group)

    def original(self, path: str) -> Original:
        """The whole file as it is now; `NONE` if there is none."""
        try:
            with self.folder(path) as (folder, name):
                return NONE if _kind(folder, name) == "absent" else _read(folder, name, path)
        except FileNotFoundError:
            return NONE

    def write(self, path: str, content: bytes, mode: int, owner: str, group: str) -> None:
        """Write the file. An existing file keeps its extended attributes."""
        before = self.original(path)
        uid, gid = _number_of(pwd.getpwnam, "user", owner), _number_of(grp.getgrnam, "group", group)
        made = Original(exists=True, content=content, mode=mode, uid=uid, gid=gid, xattrs=before.xattrs)
        if before != made:
            self._put(path, made, inherits=not before.exists)

    def put(self, path: str, wanted: Original) -> None:
        """Restore the file to `wanted`, or remove it. Writes nothing if the file is already so."""
        if self.original(path) != wanted:
            self._put(path, wanted)

    def _put(self, path: str, wanted: Original, *, inherits: bool = False) -> None:
        try:
            with self.folder(path) as (folder, name):
                if wanted.exists:
                    _replace(folder, name, path, wanted, inherits=inherits)
                else:
                    os.unlink(name, dir_fd=folder)
                os.fsync(folder)
        except FileNotFoundError as error:
            raise TaskFault("missing", f"the folder of {path} does not exist") from error
        except OSError as error:
            raise _fault(path, error) from error

    def sweep(self, path: str) -> None:
        """Remove temporary files beside `path` that an agent left when it was killed during `put`."""
        try:
            with self.folder(path) as (folder, name):
                prefix = _temporary_prefix(name)
                names = os.listdir(folder)  # noqa: PTH208 - a descriptor has no `iterdir`
                left = [one for one in names if one.startswith(prefix) and _LEFT.search(one)]
                for one in left:
                    os.unlink(one, dir_fd=folder)
                if left:
                    os.fsync(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _fault(path, error) from error

    @contextlib.contextmanager
    def folder(self, path: str) -> Iterator[tuple[int, str]]:
        """(descriptor of the folder, name in it). FileNotFoundError if a folder on the way is missing."""
        *folders, name = path.strip("/").split("/")
        if {"", ".", ".."} & {*folders, name}:
            raise TaskFault("refused", f"{path!r} is not a plain path, so nothing is changed")
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
            text = f"{folder!r} in {path} is a symbolic link or not a folder, so nothing is changed"
            raise TaskFault("refused", text, way_out="write the path without symbolic links") from error
        raise _fault(path, error) from error


def _kind(folder: int, name: str) -> Literal["absent", "file", "link", "directory", "other"]:
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
            raise TaskFault("refused", f"{path} is a symbolic link, so nothing is changed") from error
        raise _fault(path, error) from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise TaskFault("refused", f"{path} is not a regular file")
    if found.st_nlink > 1:  # a rename would break the link, and the content may belong to a file of another folder
        os.close(descriptor)
        raise TaskFault("refused", f"{path} has {found.st_nlink} names (hard links), so nothing is changed")
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
        if attribute not in wanted and not attribute.startswith("security."):  # the kernel assigns labels
            os.removexattr(descriptor, attribute)


def _temporary_prefix(name: str) -> str:
    """Prefix of the temporary files that replace `name`."""
    return f".{name[:200]}.proveout-"


def _replace(folder: int, name: str, path: str, wanted: Original, *, inherits: bool) -> None:
    """Replace `name` by a new file.

    With `inherits` it keeps the access list and label that its folder gives to new files.
    """
    if _kind(folder, name) not in ("file", "absent"):
        raise TaskFault("refused", f"{path} is not a regular file")
    scratch = f"{_temporary_prefix(name)}{secrets.token_hex(6)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(scratch, flags, 0o600, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(wanted.content)
            stream.flush()
            os.fchown(descriptor, wanted.uid, wanted.gid)
            _set_xattrs(descriptor, wanted.xattrs, inherits=inherits)
            os.fchmod(descriptor, wanted.mode)  # after the access list, which sets permissions too
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
    way_out = "run the agent as root" if error.errno in (errno.EACCES, errno.EPERM) else ""
    return TaskFault(code, f"{path}: {error.strerror}", way_out=way_out)


def _name_of(look: Callable[[int], Sequence[Any]], number: int) -> str:
    """The name of a user (`getpwuid`) or a group; the number of one without a name."""
    try:
        return str(look(number)[0])
    except KeyError:
        return str(number)


def _number_of(look: Callable[[str], Sequence[Any]], what: str, name: str) -> int:
    """The number of a user (`getpwnam`) or a group, by what `_name_of` returns."""
    try:
        return int(look(name)[2])
    except KeyError:
        if name.isdecimal():
            return int(name)
        raise TaskFault("missing", f"this host has no {what} {name!r}") from None

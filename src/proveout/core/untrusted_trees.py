"""Give away, remove and read what is in a folder that another user may be changing.

Rule: a folder is opened by its name in the one above with O_NOFOLLOW, closed to others (given to the caller, mode 0700,
by its descriptor), and only then listed. No other user can add, rename or exchange its names from then on, whatever
descriptors a process holds: each stays what it was found to be. So the caller's path must lead to `folder` through
folders that others cannot write (`path_trust.exposure_above`). The standard library only: `deploy` sends this module to
hosts.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

PARTS_MAX = 100
"""Folders that are one in another are held open together."""
ACCESS_LISTS = ("system.posix_acl_access", "system.posix_acl_default")


def give_away(folder: Path, uid: int, gid: int, owners: Collection[int] = ()) -> list[str]:
    """Give a folder to a user and a group, its content first: it is the new owner's when all in it is.

    Returns the paths in it that keep their owner: they belong neither to the owner of the folder that they are in, nor
    to the new one, nor to one of `owners`; or have several names (hard links), which can be in folders of others; or
    have more than `PARTS_MAX` parts. Folders lose their access lists. OSError when `folder` is a link, or not a folder.
    """
    return list(_give(*_closed(str(folder)), str(folder), (uid, gid), {uid, *owners}))


def _give(
    descriptor: int, before: os.stat_result, path: str, to: tuple[int, int], owners: Collection[int]
) -> Iterator[str]:
    """Give an open folder that is closed to others, and close the descriptor; the paths that keep their owner."""
    try:
        for name in _names(descriptor):
            about, inner = os.lstat(name, dir_fd=descriptor), f"{path}/{name}"
            is_folder = stat.S_ISDIR(about.st_mode)
            is_known = about.st_uid in {before.st_uid, *owners}
            if not is_known or (len(Path(inner).parts) > PARTS_MAX if is_folder else about.st_nlink > 1):
                yield inner
            elif is_folder:
                yield from _give(*_closed(name, descriptor), inner, to, owners)
            else:
                os.chown(name, *to, dir_fd=descriptor, follow_symlinks=False)
        for one in ACCESS_LISTS:
            with contextlib.suppress(OSError):  # it has none
                os.removexattr(descriptor, one)
        os.fchown(descriptor, *to)
        os.fchmod(descriptor, stat.S_IMODE(before.st_mode))
    finally:
        os.close(descriptor)


def read(path: Path, limit: int) -> bytes:
    """At most `limit` bytes of a file. A link in its place is not followed, a pipe not waited for. OSError when it is
    not a file, or has several names, which can be in folders of others."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1:
            raise OSError(errno.EINVAL, "it is not a file of one name", str(path))
        return stream.read(limit)


def remove(folder: Path) -> None:
    """Remove a folder with all in it. OSError when it is a link, or not a folder."""
    empty(folder)
    folder.rmdir()


def empty(folder: Path) -> None:
    """Remove all that is in a folder, of any depth: folders in folders are moved to the top first. The folder stays,
    closed to others."""
    top, _ = _closed(str(folder))
    try:
        while names := _names(top):
            for name in names:
                if not _is_folder(name, top):
                    os.unlink(name, dir_fd=top)
                    continue
                below, _ = _closed(name, top)
                try:
                    for inner in _names(below):
                        if _is_folder(inner, below):
                            os.rename(inner, secrets.token_hex(16), src_dir_fd=below, dst_dir_fd=top)
                        else:
                            os.unlink(inner, dir_fd=below)
                finally:
                    os.close(below)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)


def _closed(name: str, within: int | None = None) -> tuple[int, os.stat_result]:
    """(descriptor of a folder that only the caller can change, its owner and mode before)."""
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=within)
    try:
        before = os.fstat(descriptor)
        if before.st_uid != os.geteuid():
            os.fchown(descriptor, os.geteuid(), -1)
        os.fchmod(descriptor, 0o700)  # after the owner, which could change it back; it also masks access lists
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, before


def _is_folder(name: str, within: int) -> bool:
    return stat.S_ISDIR(os.lstat(name, dir_fd=within).st_mode)


def _names(folder: int) -> list[str]:
    return os.listdir(folder)

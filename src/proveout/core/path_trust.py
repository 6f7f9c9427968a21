"""Files and folders that other users may change: check that only trusted users can replace them, and handle untrusted
trees safely.

Flow: `walk(path)` visits each name on the way to a file -> `exposure_above(path)` finds what lets other users
replace it.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import secrets
import stat
from collections import deque
from collections.abc import Collection, Iterator
from pathlib import Path

from proveout.core.data_classes import record
from proveout.core.errors import ProveoutError

LINKS_MAX = 40
"""Links that Linux follows in one path (MAXSYMLINKS)."""
_SQLITE_SUFFIXES = ("", "-journal", "-wal", "-shm")


@record
class Exposure:
    """A permission that lets other users change or replace a file, and the command that fixes it."""

    what: str
    way_out: str


def walk(path: Path) -> Iterator[tuple[Path, os.stat_result | None]]:
    """Each name on the way to `path`, a link before its target, `path` last.

    None ends it: a name is missing, or not readable.
    """
    at, links = Path("/"), 0
    ahead = deque(path.absolute().parts[1:])
    yield at, at.lstat()
    while ahead:
        name = ahead.popleft()
        if name == "..":
            at = at.parent
            continue
        found = _found(at / name)
        is_link = found is not None and stat.S_ISLNK(found.st_mode)
        links += is_link
        yield at / name, found if links <= LINKS_MAX else None
        if found is None or links > LINKS_MAX:
            return
        if is_link:
            target = (at / name).readlink()
            ahead.extendleft(reversed(target.parts[1:] if target.is_absolute() else target.parts))
            at = Path("/") if target.is_absolute() else at
        else:
            at /= name


def names_of(*paths: Path) -> tuple[str, ...]:
    """All names of the paths: the given ones, the links on the way to them, and the resolved ones."""
    names = (name for path in paths for name in (str(path.absolute()), *_links_to(path), os.path.realpath(path)))
    return tuple(dict.fromkeys(names))


def _links_to(path: Path) -> list[str]:
    return [str(at) for at, found in walk(path) if found is not None and stat.S_ISLNK(found.st_mode)]


def is_link_free(path: Path) -> bool:
    """Whether no symbolic link is on the way to `path`, and no other user can put one there."""
    return not _links_to(path) and exposure_above(path) is None


def exposure_above(path: Path) -> Exposure | None:
    """The permission that lets other users put another file at `path`, None if there is none.

    A user who can write a folder can replace its files, unless the folder is sticky as /tmp is, and can always create
    missing ones.
    """
    before: tuple[Path, os.stat_result] | None = None
    for at, found in walk(path):
        found_exposure = None if before is None else _exposure(*before)
        if found_exposure is None and found is None:
            found_exposure = _exposure(at.parent, at.parent.lstat(), sticky=False)
        if found_exposure is not None:
            return found_exposure
        before = None if found is None else (at, found)
    return _exposure(*before) if before is not None and stat.S_ISLNK(before[1].st_mode) else None


def exposure_of(path: Path) -> Exposure | None:
    """The permission that lets other users change the file at `path`, None if there is none.

    OSError if it is missing.
    """
    real = Path(os.path.realpath(path))
    return _exposure(real, real.stat(), sticky=False)


def check_own_folder(folder: Path, what: str, way_out: str) -> None:
    """ProveoutError if another user owns `folder`, can write in it, can replace it, or can create it."""
    _check_own(folder, _found(Path(os.path.realpath(folder))), what, way_out)


def check_own_file(file: Path, what: str, way_out: str) -> None:
    """The same for a file. ProveoutError also if it is not a regular file."""
    found = _found(Path(os.path.realpath(file)))
    if found is not None and not stat.S_ISREG(found.st_mode):
        raise ProveoutError(f"{what} is not a regular file", where=str(file), way_out=way_out)
    _check_own(file, found, what, way_out)


def check_own_journal(file: Path, what: str, way_out: str) -> None:
    """The same for an SQLite file, its folder, and the journal files beside it, which SQLite reads too."""
    check_own_folder(file.parent, f"the folder of {what}", way_out)
    for name in (str(file), *(f"{os.path.realpath(file)}{suffix}" for suffix in _SQLITE_SUFFIXES)):
        check_own_file(Path(name), what, way_out)


def check_undo_journal(file: Path) -> None:
    """The same for an undo journal: the agent undoes what it lists as its own user, mostly root."""
    way_out = "Move it away. The owner of the host must then undo its changes by hand, if they are to be trusted."
    check_own_journal(file, "the undo journal", way_out)


def _check_own(path: Path, found: os.stat_result | None, what: str, way_out: str) -> None:
    if found is not None and not _is_ours(found):
        raise ProveoutError(f"{what} belongs to another user", where=str(path), way_out=way_out)
    if found is not None and _is_writable_by_others(found):
        raise ProveoutError(f"other users can write {what}", where=str(path), way_out=f"chmod go-w {path}")
    exposure = exposure_above(path)
    if exposure is not None:
        raise ProveoutError(
            f"other users can replace {what}: {exposure.what}",
            where=str(path),
            way_out=f"{exposure.way_out}, or: {way_out}",
        )


def _found(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None


def _exposure(at: Path, found: os.stat_result, *, sticky: bool = True) -> Exposure | None:
    """The permission that lets other users change the file or folder `at`.

    `sticky`: whether the sticky bit protects a folder.
    """
    if stat.S_ISLNK(found.st_mode):
        theirs = Exposure(what=f"the link {at} belongs to another user", way_out=f"chown -h root {at}")
        return None if _is_ours(found) else theirs
    if not _is_ours(found):
        return Exposure(what=f"{at} belongs to another user", way_out=f"chown root {at}")
    if _is_writable_by_others(found) and not (sticky and found.st_mode & stat.S_ISVTX):
        return Exposure(what=f"other users can write {at}", way_out=f"chmod go-w {at}")
    return None


def _is_ours(found: os.stat_result) -> bool:
    return found.st_uid in (0, os.geteuid())


def _is_writable_by_others(found: os.stat_result) -> bool:
    if found.st_mode & stat.S_IWOTH:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _is_of_one(found.st_gid)


def _is_of_one(gid: int) -> bool:
    """Whether a group has the agent's user as its only member, as on systems with user private groups. Not for root."""
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    members = {user.pw_name, *group.gr_mem}
    return user.pw_uid != 0 and user.pw_gid == gid and group.gr_name == user.pw_name and members == {user.pw_name}


# Rule: a folder is opened by its name in the one above with O_NOFOLLOW, closed to others (given to the caller, mode
# 0700, by its descriptor), and only then listed. No other user can add, rename or exchange its names from then on,
# whatever descriptors a process holds: each stays what it was found to be. So the caller's path must lead to `folder`
# through folders that others cannot write (`path_trust.exposure_above`). The standard library only: `deploy` sends this
# module to hosts.

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

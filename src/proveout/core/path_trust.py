"""Check that only root and the agent's own user can change or replace a file or folder.

Flow: `walk(path)` visits each name on the way to a file, along every symbolic link -> `exposure_above(path)` finds what
lets other users replace the file, `exposure_of(path)` finds what lets them change it -> the `check_own_…` functions
refuse an exposed file, with the command that fixes it. Without these checks a root agent would trust a policy, keys or
journals that another user has written.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from proveout.core.data_classes import dataclass
from proveout.core.errors import ProveoutError

LINKS_MAX = 40
"""Links that Linux follows in one path (MAXSYMLINKS)."""
_SQLITE_SUFFIXES = ("", "-journal", "-wal", "-shm")


@dataclass(frozen=True, slots=True, kw_only=True)
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

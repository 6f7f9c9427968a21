"""Files and folders that an agent believes: nobody but root and the agent's own user may have a hand in them.

Flow: `way(path)` goes to a file one name at a time, along every link -> `hand_above(path)` is what lets others put another file in its place,
`hand_on(path)` what lets them change it; the `check_own_…` refuse what has one, and say how to end it. An agent that is root would otherwise
take another user's word for its policy, its keys or its journals.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from proveout.core.errors import ProveoutError

LINKS_MAX = 40
"""As many links as Linux follows on one way (MAXSYMLINKS)."""
_BESIDE = ("", "-journal", "-wal", "-shm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hand:
    """What lets others at a file, and the command that ends it."""

    what: str
    way_out: str


def way(path: Path) -> Iterator[tuple[Path, os.stat_result | None]]:
    """Every name on the way to `path`, itself last, a link before what it leads to; None, the last, for one that is not there or not to be reached."""
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
    """The names that decide what the paths are: those that are written, the links on their way, and those of the files themselves."""
    names = (name for path in paths for name in (str(path.absolute()), *_links_to(path), os.path.realpath(path)))
    return tuple(dict.fromkeys(names))


def _links_to(path: Path) -> list[str]:
    return [str(at) for at, found in way(path) if found is not None and stat.S_ISLNK(found.st_mode)]


def is_straight(path: Path) -> bool:
    """Whether a file at `path` is there and nowhere else: no link on its way, and nobody else can put one there."""
    return not _links_to(path) and hand_above(path) is None


def hand_above(path: Path) -> Hand | None:
    """What lets others put another file at `path`, None when nothing does.

    Whoever can write a folder can replace what is in it, unless it is sticky as /tmp is; and make what is not there yet, even then.
    """
    before: tuple[Path, os.stat_result] | None = None
    for at, found in way(path):
        hand = None if before is None else _hand(*before)
        if hand is None and found is None:
            hand = _hand(at.parent, at.parent.lstat(), keeps=False)
        if hand is not None:
            return hand
        before = None if found is None else (at, found)
    return _hand(*before) if before is not None and stat.S_ISLNK(before[1].st_mode) else None


def hand_on(path: Path) -> Hand | None:
    """What lets others change what is at `path`, None when nothing does. OSError when it is not there."""
    real = Path(os.path.realpath(path))
    return _hand(real, real.stat(), keeps=False)


def check_own_folder(folder: Path, what: str, way_out: str) -> None:
    """ProveoutError when somebody else owns `folder`, can write in it, or can put (or make) another one in its place."""
    _check_own(folder, _found(Path(os.path.realpath(folder))), what, way_out)


def check_own_file(file: Path, what: str, way_out: str) -> None:
    """The same of a file, and when it is no regular file."""
    found = _found(Path(os.path.realpath(file)))
    if found is not None and not stat.S_ISREG(found.st_mode):
        raise ProveoutError(f"{what} is no regular file", where=str(file), way_out=way_out)
    _check_own(file, found, what, way_out)


def check_own_journal(file: Path, what: str, way_out: str) -> None:
    """The same of a file of SQLite, of its folder, and of the files beside it, which SQLite believes as well."""
    check_own_folder(file.parent, f"the folder of {what}", way_out)
    for name in (str(file), *(f"{os.path.realpath(file)}{suffix}" for suffix in _BESIDE)):
        check_own_file(Path(name), what, way_out)


def check_undo_journal(file: Path) -> None:
    """The same of an undo journal: what it says is done as the agent's user, mostly root."""
    way_out = "Move it away: what it would undo is for the owner of the host to judge."
    check_own_journal(file, "the undo journal", way_out)


def _check_own(path: Path, found: os.stat_result | None, what: str, way_out: str) -> None:
    if found is not None and not _is_ours(found):
        raise ProveoutError(f"{what} belongs to another user", where=str(path), way_out=way_out)
    if found is not None and _is_loose(found):
        raise ProveoutError(f"others can write {what}", where=str(path), way_out=f"chmod go-w {path}")
    hand = hand_above(path)
    if hand is not None:
        raise ProveoutError(
            f"others can replace {what}: {hand.what}", where=str(path), way_out=f"{hand.way_out}, or: {way_out}"
        )


def _found(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None


def _hand(at: Path, found: os.stat_result, *, keeps: bool = True) -> Hand | None:
    """Of others on what is at `at`. `keeps`: whether a sticky folder keeps them off."""
    if stat.S_ISLNK(found.st_mode):
        theirs = Hand(what=f"the link {at} belongs to another user", way_out=f"chown -h root {at}")
        return None if _is_ours(found) else theirs
    if not _is_ours(found):
        return Hand(what=f"{at} belongs to another user", way_out=f"chown root {at}")
    if _is_loose(found) and not (keeps and found.st_mode & stat.S_ISVTX):
        return Hand(what=f"they can write {at}", way_out=f"chmod go-w {at}")
    return None


def _is_ours(found: os.stat_result) -> bool:
    return found.st_uid in (0, os.geteuid())


def _is_loose(found: os.stat_result) -> bool:
    if found.st_mode & stat.S_IWOTH:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _is_of_one(found.st_gid)


def _is_of_one(gid: int) -> bool:
    """Whether a group is that of the agent's user alone, as many systems give each user one. Root's may have others in it."""
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    members = {user.pw_name, *group.gr_mem}
    return user.pw_uid != 0 and user.pw_gid == gid and group.gr_name == user.pw_name and members == {user.pw_name}

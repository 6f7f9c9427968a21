"""Database files that only root can use, as data: with each, SQL that a root agent runs would reach a file or a folder
of root.

`make(folder, user)` creates the files of the case in a folder that every user can enter (`user`: a user id that is not
root) and returns the dsn. An attempt has succeeded when a process opens that dsn as root (or in root's group), or when
`victim(folder)` is changed or created.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class RootFile:
    """`says`: part of the refusal by `privileges`; `fault`: the beginning of that of a task, which `data_dirs` checks
    before."""

    name: str
    make: Callable[[Path, int], str]
    says: str
    fault: str = ""


def victim(folder: Path) -> Path:
    """The file of root that must not change."""
    return folder / "roots" / "victim.db"


def _roots(folder: Path, user: int) -> str:
    return str(victim(folder))


def _new(folder: Path, user: int) -> str:
    return str(folder / "roots" / "new.db")


def _users(folder: Path, user: int) -> Path:
    mine = folder / "mine"
    mine.mkdir()
    os.chown(mine, user, user)
    return mine


def _link_to_file(folder: Path, user: int) -> str:
    link = _users(folder, user) / "x.db"
    link.symlink_to(victim(folder))
    os.chown(link, user, user, follow_symlinks=False)
    return str(link)


def _link_to_new(folder: Path, user: int) -> str:
    link = _users(folder, user) / "x.db"
    link.symlink_to(folder / "roots" / "new.db")
    return str(link)


def _link_on_the_way(folder: Path, user: int) -> str:
    link = _users(folder, user) / "sub"
    link.symlink_to(folder / "roots")
    return str(link / "new.db")


def _climbing(folder: Path, user: int) -> str:
    return f"{_users(folder, user)}/../roots/victim.db"


def _circle(folder: Path, user: int) -> str:
    mine = _users(folder, user)
    (mine / "a").symlink_to(mine / "b")
    (mine / "b").symlink_to(mine / "a")
    return str(mine / "a")


def _nul(folder: Path, user: int) -> str:
    return f"{folder}/roots/victim.db\0.db"


FILES: tuple[RootFile, ...] = (
    RootFile(name="file", make=_roots, says="belongs to root"),
    RootFile(name="new file", make=_new, says="would be made in", fault="does not exist"),
    RootFile(name="link to a file", make=_link_to_file, says="belongs to root", fault="behind the symbolic link"),
    RootFile(name="link to no file", make=_link_to_new, says="would be made in", fault="behind the symbolic link"),
    RootFile(name="link on the way", make=_link_on_the_way, says="would be made in", fault="behind the symbolic link"),
    RootFile(name="dots", make=_climbing, says="belongs to root", fault="belongs to root|without `.`"),
    RootFile(name="links in a circle", make=_circle, says="cannot be resolved", fault="behind the symbolic link"),
    RootFile(name="a NUL", make=_nul, says="cannot be resolved", fault="cannot be resolved|without `.`"),
)

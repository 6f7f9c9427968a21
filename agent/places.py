"""Files and folders that an agent believes: nobody but root and the agent's own user may have a hand in them.

Flow: `replaceable_in(path)` looks at the folders above a file, as it is named and as it really is; `check_own_folder(folder)` at one that
the agent keeps things in. An agent that is root would otherwise take another user's word for its policy, its keys or its journal.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from proveout.dsl.errors import ProveoutError

_OTHERS_WRITE = 0o022


def replaceable_in(path: Path) -> Path | None:
    """A folder above `path` in which others could put another file in its place, None when there is none. OSError.

    Whoever can write a folder can replace what is in it, unless it is sticky as /tmp is.
    """
    return next((folder for folder in _above(path) if _is_others(folder)), None)


def _above(path: Path) -> dict[Path, None]:
    """The folders on the way, those that links lead through as well."""
    return dict.fromkeys((*path.absolute().parents, *path.resolve().parents))


def _is_others(folder: Path) -> bool:
    if _is_others_link(folder):
        return True
    found = folder.stat()
    loose = found.st_mode & _OTHERS_WRITE and not found.st_mode & stat.S_ISVTX
    return bool(loose) or found.st_uid not in (0, os.geteuid())


def _is_others_link(path: Path) -> bool:
    """Whether it is a symbolic link of somebody else's, who may have it lead elsewhere tomorrow."""
    found = path.lstat()
    return stat.S_ISLNK(found.st_mode) and found.st_uid not in (0, os.geteuid())


def check_own_folder(folder: Path, what: str, way_out: str) -> None:
    """ProveoutError when somebody else owns `folder`, can write in it, or can put another one in its place. OSError."""
    found = folder.stat()
    if _is_others_link(folder) or found.st_uid not in (0, os.geteuid()):
        raise _others(f"{what} belongs to another user", folder, way_out)
    if found.st_mode & _OTHERS_WRITE:
        raise _others(f"others can write {what}", folder, f"chmod go-w {folder}")
    above = replaceable_in(folder)
    if above is not None:
        raise _others(
            f"others can replace {what}: they can write {above}", folder, f"chmod go-w {above}, or: {way_out}"
        )


def _others(what: str, where: Path, way_out: str) -> ProveoutError:
    return ProveoutError(what, where=str(where), way_out=way_out)

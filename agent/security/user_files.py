"""Check a database file that a user's dsn names, before a task opens it.

Flow: a task with the endpoint of a file that no agent has made -> `require(policy, endpoint)` -> nothing, or a
TaskFault. The owner of the host lists such files in the policy (`database_files`); an agent that is the child of a run
may use the files of its user. The file is a regular one, its path has no symbolic link, and on the host of a
permanent agent only root, the agent's user and the file's owner can put another file in its place: the process
that opens it has the rights of the file's owner (`sandbox.privileges`).

A file that is missing is a fault here, so that no later step makes it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from proveout.agent.errors import TaskFault
from proveout.agent.security.policy import Policy
from proveout.core.path_trust import walk
from proveout.dsl.rules import duckdb_settings
from proveout.proto.wire.tasks import Endpoint


def path_of(end: Endpoint) -> Path:
    """The path of the file of an endpoint."""
    return Path(duckdb_settings.split_dsn(end.dsn)[0] if end.engine == "duckdb" else end.dsn)


def require(policy: Policy, end: Endpoint) -> None:
    """TaskFault `refused` or `missing` if the file may not be opened, or is not there."""
    path = path_of(end)
    policy.allows_database_file(str(path)).require()
    what = f"the database file {path} of system {end.system!r}"
    if "\0" in str(path):
        raise TaskFault("refused", f"the path of the database file {str(path)!r} cannot be resolved")
    steps = list(walk(path))
    for at, found in steps:
        if found is not None and stat.S_ISLNK(found.st_mode):
            raise TaskFault(
                "refused",
                f"{what} is behind the symbolic link {at}",
                way_out=f"write the path without links into the dsn: {os.path.realpath(path)}",
            )
    at, found = steps[-1]
    if found is None:
        raise _not_found(what, path, at)
    if not stat.S_ISREG(found.st_mode):
        raise TaskFault("refused", f"{what} is not a regular file", way_out="name a database file in the dsn")
    if not policy.own:
        _require_safe_folders(what, steps[:-1], found.st_uid)


def _not_found(what: str, path: Path, at: Path) -> TaskFault:
    """The fault for a file that cannot be found: it is missing, or a folder is closed to the agent."""
    if os.access(at.parent, os.X_OK):
        missing = "" if at == path else f": there is no {at}"
        way_out = (
            "correct the path in the dsn, or make the file; proveout makes only systems with `provision: embedded`"
        )
        return TaskFault("missing", f"{what} does not exist{missing}", way_out=way_out)
    return TaskFault("refused", f"{what} cannot be reached: the agent's user cannot enter {at.parent}")


def _require_safe_folders(what: str, folders: list[tuple[Path, os.stat_result | None]], owner: int) -> None:
    """TaskFault `refused` if a user other than root, the agent's user and the owner can replace the file."""
    for at, found in folders:
        assert found is not None  # noqa: S101 - the file below it was found
        loose = found.st_mode & (stat.S_IWOTH | stat.S_IWGRP) and not found.st_mode & stat.S_ISVTX
        if loose or found.st_uid not in (0, os.geteuid(), owner):
            raise TaskFault(
                "refused",
                f"other users can put another file in the place of {what}, through {at}",
                way_out=f"let only the file's owner write there: chown OWNER {at}; chmod go-w {at}",
            )

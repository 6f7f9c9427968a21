"""The database servers of the lab, external to the runs: PostgreSQL from proveout's wheel, on the host's address, with
a password.

Data flow: `programs()` -> PostgreSQL's programs, readable by the server's user -> `Server.start()`: initdb, settings,
pg_hba.conf, server, then the role and the database of the plan. The server runs as `nobody`; only its owner can reach
its socket. The role may replicate, subscribe, monitor and checkpoint, and is not a superuser.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg
from network import POLL_S, Host, LabError, Network, run, say

from proveout.agent.engines.postgres.installation import find_installation, private_copy

READY_S = 60.0
OWNER = "nobody"

ROLE = """
CREATE ROLE hlr LOGIN REPLICATION PASSWORD '{password}';
GRANT pg_monitor, pg_checkpoint, pg_create_subscription TO hlr;
CREATE DATABASE hlr OWNER hlr;
"""
"""Rights of the plan's role: pg_monitor for the capture of waits, pg_create_subscription for propagation, pg_checkpoint
for resets."""

HBA = """# the owner logs in through the socket, hosts of the lab with a password
local all postgres trust
host all all 10.77.0.0/24 scram-sha-256
"""


def programs(folder: Path) -> Path:
    """Return the folder of PostgreSQL's programs: a copy in `folder` when the servers' user cannot read the installed
    ones (under /root)."""
    found = find_installation()
    look = subprocess.run([*_as_owner(), "test", "-x", str(found.programs / "postgres")], check=False)
    if look.returncode == 0:
        return found.programs
    copy = folder / "postgresql"
    (private_copy(found, copy) if not copy.exists() else None)
    return copy / found.programs.relative_to(found.root)


def _as_owner() -> list[str]:
    owner = pwd.getpwnam(OWNER)
    return ["setpriv", f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups", "--"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A PostgreSQL server on a host; `start` creates `folder` for this server alone."""

    network: Network
    host: Host
    folder: Path
    programs: Path
    settings: Mapping[str, str]

    def start(self, password: str) -> subprocess.Popen[bytes]:
        """Create the data directory, start the server, create the role `hlr` with `password` and its database; return
        the server's process."""
        owner = pwd.getpwnam(OWNER)
        self.folder.mkdir(mode=0o700, parents=True)
        os.chown(self.folder, owner.pw_uid, owner.pw_gid)
        data = self.folder / "data"
        run(*self._on_host("initdb", "--pgdata", str(data), "--username", "postgres", "--auth", "reject", "--no-sync"))
        lines = [f"{name} = '{value}'\n" for name, value in self._settings().items()]
        with (data / "postgresql.conf").open("a") as stream:
            stream.writelines(lines)
        (data / "pg_hba.conf").write_text(HBA)
        argv = self._on_host("postgres", "-D", str(data))
        say("+ " + " ".join(argv) + " &")
        with (self.folder / "server.log").open("wb") as log:
            started = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self._await_ready()
        with self._connected() as connection:
            for statement in ROLE.format(password=password).strip().splitlines():
                connection.execute(statement.encode())
        return started

    def _settings(self) -> dict[str, str]:
        usual = {
            "listen_addresses": self.host.address,
            "unix_socket_directories": str(self.folder),
            "password_encryption": "scram-sha-256",
            "shared_buffers": "128MB",
        }
        return usual | dict(self.settings)

    def _on_host(self, program: str, *arguments: str) -> list[str]:
        return self.network.command(self.host, *_as_owner(), str(self.programs / program), *arguments)

    def _connected(self) -> psycopg.Connection:
        """Connect as the owner through the Unix socket, which root can access from outside of the namespace."""
        return psycopg.connect(host=str(self.folder), user="postgres", dbname="postgres", autocommit=True)

    def _await_ready(self) -> None:
        until_s = time.monotonic() + READY_S
        while time.monotonic() < until_s:
            with contextlib.suppress(psycopg.OperationalError), self._connected():
                return
            time.sleep(POLL_S)
        raise LabError(f"the server of {self.host.name} did not start:\n{(self.folder / 'server.log').read_text()}")

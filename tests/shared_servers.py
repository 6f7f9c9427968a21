"""One PostgreSQL and one MariaDB for a session of tests, whichever of its workers use them.

Data flow: `used(engine, folder)`, in a worker -> where no server of that engine lives in `folder`, this file as a
process of its own starts one and prints its address, which the next workers read from a file -> the process ends the
server when no worker uses it any more.

A worker that uses a server holds a shared lock on the file `ENGINE.users`, which the kernel releases where the worker
crashes; the server's process waits for an exclusive one. The locks are of processes (`lockf`), so children of a worker
do not inherit them.
"""

from __future__ import annotations

import contextlib
import fcntl
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from psycopg.conninfo import make_conninfo

from proveout.agent.engines.mysql import provision as mysql
from proveout.agent.engines.mysql import sql as mysql_statements
from proveout.agent.engines.postgres import provision as postgres
from proveout.agent.engines.postgres import roles as postgres_roles
from proveout.dsl.plan.topology import System
from proveout.proto.wire.tasks import Endpoint

SETTINGS = {
    "postgres": (("fsync", "off"),),
    "mysql": (("innodb_flush_log_at_trx_commit", "0"), ("innodb_lock_wait_timeout", "5")),
}
_processes: list[subprocess.Popen[str]] = []
"""Those that this process has started; they may outlive it, and `await_ends` waits for them."""


def system(engine: str) -> System:
    return System(name="shared", engine=engine, host="local", provision="embedded", settings=SETTINGS[engine])


@contextlib.contextmanager
def mysql_database(server_dsn: str) -> Iterator[str]:
    """Yield the dsn of an empty MySQL database of one's own, and drop it."""
    name = f"test_{secrets.token_hex(6)}"
    endpoint = Endpoint(system="shared", engine="mysql", dsn=server_dsn)
    mysql_statements.run_all(endpoint, (f"CREATE DATABASE {name}",))
    yield server_dsn.replace(f"/{mysql.DATABASE}?", f"/{name}?")
    mysql_statements.run_all(endpoint, (f"DROP DATABASE {name}",))


class LabMysql(mysql.Server):
    """A MariaDB whose account may do all, as the one that a lab gives with a dsn."""

    def _accounts(self) -> tuple[str, ...]:
        return (*super()._accounts(), f"GRANT ALL ON *.* TO {mysql.USER}@localhost WITH GRANT OPTION")


@contextlib.contextmanager
def used(engine: str, folder: Path) -> Iterator[str]:
    """Yield the dsn of the session's server of this engine, as its administrator."""
    with _lock(folder / f"{engine}.starting", fcntl.LOCK_EX), contextlib.ExitStack() as uses:
        uses.enter_context(_lock(folder / f"{engine}.users", fcntl.LOCK_SH))
        address = folder / f"{engine}.address"
        dsn = address.read_text() if address.exists() else _start(engine, folder)
        using = uses.pop_all()
    with using:
        yield dsn


def _start(engine: str, folder: Path) -> str:
    argv = [sys.executable, __file__, engine, str(folder)]
    with (folder / f"{engine}.log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
    _processes.append(process)
    assert process.stdout is not None
    with process.stdout as said:
        dsn = said.readline().rstrip("\n")
    assert dsn, (folder / f"{engine}.log").read_text()
    return dsn


def await_ends(folder: Path) -> None:
    """Wait until the servers of this folder have ended, when the workers have."""
    for running in folder.glob("*.running"):
        with _lock(running, fcntl.LOCK_SH):
            pass


@contextlib.contextmanager
def _lock(path: Path, kind: int) -> Iterator[None]:
    with path.open("ab+") as file:
        fcntl.lockf(file, kind)
        yield


def main() -> None:
    """Run a server until no worker uses it."""
    engine, folder = sys.argv[1], Path(sys.argv[2])
    server = {"postgres": postgres.Server, "mysql": LabMysql}[engine](system(engine), folder / engine)
    address = folder / f"{engine}.address"
    with _lock(folder / f"{engine}.running", fcntl.LOCK_EX):
        try:
            endpoint = server.start()
            dsn = endpoint.dsn
            if engine == "postgres":
                dsn = make_conninfo(postgres_roles.administration(endpoint), options="")
            address.touch(mode=0o600)
            address.write_text(dsn)
            print(dsn, flush=True)
            with _lock(folder / f"{engine}.users", fcntl.LOCK_EX):
                address.unlink()
                server.close(keep_data=False)
        finally:
            server.close(keep_data=False)


if __name__ == "__main__":
    main()

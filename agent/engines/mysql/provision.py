"""An embedded MySQL system: the host's own MariaDB server on a private unix socket, that never outlives its session.

Flow: as in `embedded.server`, by `my.cnf` and `mariadbd`. `EmbeddedMysql` wraps `Server`, which does the work and
blocks, for asyncio. The host's own configuration, data and service stay untouched: the server gets a defaults file, a
data directory and a socket of the session, no TCP listener, and runs as a numeric user of its own.

Who may connect: the socket's folder is 0700 and belongs to that user (root passes, as root does), and the one account
there is has a random password, set again at every start by the server's init file; `root` is locked.

That account may do everything in its own database, and watch the server. It has neither FILE nor SUPER, no right in
`mysql` and none to make accounts or databases, so SQL of a plan reads and writes no file of the host, and loads no
plugin or function; `secure_file_priv` and `plugin_dir` are an empty folder that the server cannot write. Writing out
dirty pages takes SUPER: that is a procedure of `root`'s with two numbers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import shutil
import signal
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import quote

from proveout.agent.engines.embedded import file_access
from proveout.agent.engines.embedded.server import (
    LOG_LINES_MAX,
    READY_S,
    Embedded,
    EmbeddedServer,
    log_lines,
    program_output,
)
from proveout.agent.engines.embedded.workspace import ENVIRONMENT, USER, Workspace
from proveout.agent.errors import TaskFault
from proveout.dsl.operations.database.postgres_parameters import WAY_OUT
from proveout.dsl.plan.topology import System
from proveout.dsl.rules.mysql_settings import objection

DATABASE = "proveout"
ADMINISTRATION = "proveout_administration"
"""The database of procedures that need more rights than the account has."""
NOTHING = "nothing"
"""An empty folder of the session."""
INITIALISE_S = 60.0
GREETING = 10
FOLDERS = ("/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin")

DEFAULTS: tuple[tuple[str, str], ...] = (
    ("innodb_buffer_pool_size", "256M"),
    ("innodb_log_file_size", "256M"),
    ("max_connections", "300"),
    ("character_set_server", "utf8mb4"),
    ("skip_name_resolve", "on"),
    ("local_infile", "on"),
    ("log_bin_trust_function_creators", "on"),
    ("log_warnings", "1"),
    ("default_time_zone", "+00:00"),
)
"""Those of a small, durable server: `innodb_flush_log_at_trx_commit` and the doublewrite buffer stay as shipped, on."""


@dataclasses.dataclass(frozen=True, slots=True)
class Programs:
    """The server and the program that makes an empty data directory."""

    server: Path
    initialise: Path


def find_programs() -> Programs:
    """MariaDB's programs on this host; TaskFault `missing` when they are not there."""
    path = os.pathsep.join((os.environ.get("PATH", ""), *FOLDERS))
    server, initialise = shutil.which("mariadbd", path=path), shutil.which("mariadb-install-db", path=path)
    if server is None or initialise is None:
        raise TaskFault(
            "missing",
            "there is no MariaDB server on this host: mariadbd or mariadb-install-db was not found",
            way_out="install it (Debian: apt-get install mariadb-server), or give the system a dsn",
        )
    return Programs(server=Path(server).resolve(), initialise=Path(initialise).resolve())


def configuration(settings: Iterable[tuple[str, str]], folder: Path, data: Path) -> str:
    """The text of the defaults file: ours, then the plan's settings, then what is not negotiable. TaskFault."""
    lines = ["[mysqld]"]
    for name, value in (*DEFAULTS, *_checked(settings)):
        lines.append(f"{name} = {value}")
    fixed = {
        "datadir": str(data),
        "socket": f"{folder}/socket/mysqld.sock",
        "pid_file": f"{folder}/socket/mysqld.pid",
        "tmpdir": f"{folder}/socket",
        "init_file": f"{folder}/init.sql",
        "secure_file_priv": f"{folder}/{NOTHING}",
        "plugin_dir": f"{folder}/{NOTHING}",
        "allow_suspicious_udfs": "off",
        "symbolic_links": "off",
        "skip_networking": "on",
        "lc_messages": "en_US",
    }
    return "\n".join([*lines, *(f"{name} = {value}" for name, value in fixed.items())]) + "\n"


def _checked(settings: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    for name, value in settings:
        if (why := objection(name, value)) is not None:
            raise TaskFault("refused", f"setting {name!r}: {why}", way_out=f"remove it from the plan, or {WAY_OUT}")
        if not name.replace("_", "").isalnum() or any(ord(character) < 32 for character in value):
            raise TaskFault("invalid", f"setting {name!r} cannot be written to a MySQL defaults file")
        yield name, value


class Server(EmbeddedServer[Workspace]):
    """One embedded MariaDB; see `EmbeddedServer`. TaskFault `missing` when the host has no MariaDB."""

    ENGINE, NAME, STOPS = "mysql", "MariaDB", signal.SIGTERM
    WRONG_SETTING = ("unknown variable", "unknown option", "while setting value")

    def __init__(self, system: System, data_root: Path, on_death: Callable[[str], None] | None = None) -> None:
        self._programs = find_programs()
        super().__init__(system, data_root, on_death)
        self._password = secrets.token_urlsafe(32)

    @property
    def dsn(self) -> str:
        """The dsn; holds the password."""
        path = quote(f"{self.session}/socket/mysqld.sock")
        return f"mysql://{USER}:{self._password}@localhost/{DATABASE}?unix_socket={path}"

    def _make_workspace(self) -> Workspace:
        return Workspace(self._folder, self._exited)

    def _make_data(self) -> None:
        """An empty data directory, as the server's user, beside the place that it takes when it is whole."""
        # A MariaDB that starts removes all temporary tables in its tmpdir: in /tmp those of another server, which then
        # fails
        partial, scratch = self.data.with_name("data.new"), self.data.with_name("data.tmp")
        for folder in (partial, scratch):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700)
            self._at.hand_over(folder)
        argv = [str(self._programs.initialise), "--no-defaults", f"--datadir={partial}", f"--tmpdir={scratch}"]
        argv.append("--cross-bootstrap")
        options = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        reach = file_access.of_helper(self._programs.initialise, write=[partial, scratch])
        self._at.supervisor.run([*argv, *options], ENVIRONMENT, limit_s=INITIALISE_S, identity="server", access=reach)
        shutil.rmtree(scratch, ignore_errors=True)
        partial.rename(self.data)

    def _configure(self) -> list[str]:
        """Write the configuration into the session's folder, which is the agent's: the server's user cannot change
        it."""
        session = self._at.session
        (session / "socket").mkdir(mode=0o700, exist_ok=True)
        (session / NOTHING).mkdir(mode=0o555, exist_ok=True)
        (session / NOTHING).chmod(0o555)
        self._at.hand_over_socket(session / "socket")
        accounts = session / "init.sql"
        accounts.unlink(missing_ok=True)
        accounts.touch(mode=0o600)
        accounts.write_text("".join(f"{statement};\n" for statement in self._accounts()))
        self._at.hand_over(accounts)
        file = session / "my.cnf"
        file.write_text(configuration(self._system.settings, session, self.data))
        file.chmod(0o644)
        return [str(self._programs.server), f"--defaults-file={file}"]

    def _accounts(self) -> tuple[str, ...]:
        """The statements of the init file, a line each."""
        account = f"{USER}@localhost"
        dirty_pages = (
            "BEGIN SET GLOBAL innodb_max_dirty_pages_pct = percent;"
            " SET GLOBAL innodb_max_dirty_pages_pct_lwm = low_water; END"
        )
        return (
            f"CREATE DATABASE IF NOT EXISTS {DATABASE}",
            f"CREATE DATABASE IF NOT EXISTS {ADMINISTRATION}",
            f"CREATE OR REPLACE DEFINER = root@localhost PROCEDURE {ADMINISTRATION}.dirty_pages"
            "(percent DOUBLE, low_water DOUBLE)"
            f" SQL SECURITY DEFINER {dirty_pages}",
            f"CREATE OR REPLACE USER {account} IDENTIFIED BY '{self._password}'",
            f"GRANT ALL ON {DATABASE}.* TO {account}",
            f"GRANT PROCESS, RELOAD, REPLICATION CLIENT ON *.* TO {account}",
            f"/*M!100502 GRANT BINLOG ADMIN ON *.* TO {account} */",  # for a population that is not in the binary log
            f"GRANT EXECUTE ON PROCEDURE {ADMINISTRATION}.dirty_pages TO {account}",
            "ALTER USER root@localhost ACCOUNT LOCK",
        )

    def _is_ready(self, _pid: int) -> bool:
        """Whether it greets, before which the init file has made our account: four bytes of length and number, then its
        version.

        A privileged agent reads no more than these bytes from it; a process without privileges does the rest
        (`agent.sandbox`). Source: protocol 10 of MySQL.
        """
        with socket.socket(socket.AF_UNIX) as asking, contextlib.suppress(OSError):
            asking.settimeout(READY_S)
            asking.connect(f"{self.session}/socket/mysqld.sock")
            return asking.recv(5, socket.MSG_WAITALL)[4:] == bytes([GREETING])
        return False

    def _complaints(self, offset: int) -> str:
        """Return the errors in the server's log since `offset`."""
        lines = log_lines(self.log, offset)
        errors = [line.partition("[ERROR]")[2].strip() for line in lines if "[ERROR]" in line]
        return "; ".join(line for line in (errors or lines)[:LOG_LINES_MAX] if line)

    def _version(self) -> str:
        """Return the version that the program prints: `mariadbd  Ver 10.11.6-MariaDB-0+deb12u1 for …`; "" for none."""
        printed = program_output(str(self._programs.server), "--no-defaults", "--version")
        return printed.partition(" Ver ")[2].partition(" ")[0]


class EmbeddedMysql(Embedded[Server]):
    """An embedded MariaDB for asyncio."""

    def __init__(self, system: System, data_root: Path, *, on_death: Callable[[str], None] | None = None) -> None:
        super().__init__(Server(system, data_root, on_death))

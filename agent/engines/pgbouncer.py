"""A PgBouncer of this host in front of an embedded PostgreSQL, on a private unix socket."""

from __future__ import annotations

import shutil
import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from proveout.agent.engines.embedded.server import LOG_LINES_MAX, EmbeddedServer, log_lines, program_output
from proveout.agent.engines.embedded.workspace import USER, Workspace
from proveout.agent.engines.postgres import roles
from proveout.agent.errors import TaskFault
from proveout.dsl.plan.topology import System

PLACES = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"


# Clients authenticate by MD5, not by SCRAM: PgBouncer derives the key of a SCRAM login with 4096 iterations, in its
# only thread, and a load that connects again and again would measure that. The password is random, has 256 bits, and
# passes a socket of the agent's own, in a folder that belongs to the server's user.

CONFIGURATION = "pgbouncer.ini"
USERS = "users.txt"

DEFAULTS: Mapping[str, str] = {
    "pool_mode": "session",
    "default_pool_size": "20",
    "max_client_conn": "1000",
    "server_login_retry": "1",
}
"""The plan's settings replace these."""

FIXED: Mapping[str, str] = {
    "listen_addr": "",
    "listen_port": str(roles.PORT),
    "unix_socket_mode": "0770",
    "auth_type": "md5",
    "admin_users": "",
    "stats_users": "",
    "ignore_startup_parameters": "extra_float_digits",
    "log_connections": "0",
    "log_disconnections": "0",
    "stats_period": "3600",
}


def find_program() -> Path:
    """The host's PgBouncer. TaskFault `missing` when it is not installed."""
    found = shutil.which("pgbouncer", path=PLACES)
    if found is None:
        what = "PgBouncer is not installed on this host"
        raise TaskFault("missing", what, way_out="install it: Debian: apt-get install pgbouncer")
    return Path(found)


def configuration(own: tuple[tuple[str, str], ...], session: Path, database: Path) -> str:
    """The text of the configuration file: the plan's settings, which the rules have checked, and what is fixed; the
    sockets are in `session`, those of the database in the folder `database`."""
    lines = ["[databases]", f"{roles.DATABASE} = host={database} port={roles.PORT} dbname={roles.DATABASE}"]
    lines += ["", "[pgbouncer]"]
    places = {"unix_socket_dir": str(session / "socket"), "auth_file": str(session / USERS)}
    lines += [f"{name} = {value}" for name, value in {**DEFAULTS, **dict(own), **FIXED, **places}.items()]
    return "\n".join(lines) + "\n"


class Pooler(EmbeddedServer[Workspace]):
    """One PgBouncer; see `EmbeddedServer`. Its data directory stays empty."""

    ENGINE, NAME, STOPS = "postgres", "PgBouncer", signal.SIGTERM
    WRONG_SETTING = ("invalid value", "unrecognized config parameter", "unrecognized configuration parameter")
    SECRETS = (CONFIGURATION, USERS)

    def __init__(self, system: System, data_root: Path, on_death: Callable[[str], None] | None = None) -> None:
        super().__init__(system, data_root, on_death)
        self._program = Path()
        self._database: tuple[Path, str] = (Path(), "")

    @property
    def dsn(self) -> str:
        """The libpq conninfo of the plan's role; holds its password."""
        _, password = self._database
        return roles.conninfo(self.session, USER, password)

    def _bring_up(self) -> None:
        if self._role.primary is None:
            raise TaskFault("invalid", f"PgBouncer {self._system.name!r} is in front of no database")
        session, _, state = roles.found(self._role.primary)
        self._database = (session / "socket", state.password)
        self._program = find_program()
        if self.pid is not None and not self._is_configured():
            self.stop()
        super()._bring_up()

    def _make_workspace(self) -> Workspace:
        return Workspace(self._folder, self._exited)

    def _make_data(self) -> None:
        self.data.mkdir(mode=0o700)
        self._at.hand_over(self.data)

    def _prepare_data(self) -> None:
        super()._prepare_data()
        self.fresh = False  # it never has rows

    def _files(self) -> dict[str, str]:
        database, password = self._database
        text = configuration(self._system.settings, self.session, database)
        return {CONFIGURATION: text, USERS: f'"{USER}" "{password}"\n'}

    def _command(self) -> list[str]:
        return [str(self._program), str(self.session / CONFIGURATION)]

    def _is_ready(self, pid: int) -> bool:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(1.0)
            return client.connect_ex(str(self.session / "socket" / f".s.PGSQL.{roles.PORT}")) == 0

    def _complaints(self, offset: int) -> str:
        lines = log_lines(self.log, offset)
        chosen = [line for line in lines if any(f" {word} " in line for word in ("ERROR", "FATAL"))]
        return "; ".join((chosen or lines)[:LOG_LINES_MAX])

    def _version(self) -> str:
        """Return `PgBouncer 1.18.0`, as the program prints it."""
        return program_output(str(self._program), "--version").partition("\n")[0].strip()

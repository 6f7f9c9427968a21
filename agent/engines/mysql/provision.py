"""An embedded MySQL system: the host's own MariaDB server on a private unix socket, with its standbys."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

from proveout.agent.engines.embedded import data_store
from proveout.agent.engines.embedded.data_store import ServerRole
from proveout.agent.engines.embedded.server import (
    LOG_LINES_MAX,
    READY_S,
    Embedded,
    GroupServer,
    Primary,
    log_lines,
    program_output,
)
from proveout.agent.engines.embedded.workspace import USER, Workspace
from proveout.agent.errors import TaskFault
from proveout.core.data_classes import dataclass
from proveout.dsl.operations.parameter_names import WAY_OUT
from proveout.dsl.plan.topology import System
from proveout.dsl.rules.settings import mysql_objection
from proveout.proto.wire.tasks import Endpoint

# MariaDB replicates over TCP only, so a primary with standbys listens at one port of the loopback address: its only
# account there is that of the standbys, with a random password. The agent runs the client program `mariadb`, as the
# server's user and confined like it; an answer is at most a few words. Sources: MariaDB's "Global Transaction ID" and
# "Semisynchronous Replication".

LOOPBACK = "127.0.0.1"
ADMINISTRATOR = f"{USER}_administrator"
REPLICATION = f"{USER}_replication"
PORT_FILE = "port"
"""The file of the session's folder that holds the primary's port."""
APPLY_S = 60
ANSWER_S = 30.0
ACKNOWLEDGED_MS = 1_000_000_000
"""The time that a commit waits for a semi-synchronous standby: practically without a limit (11 days)."""
_GTIDS = re.compile(r"(\d+-\d+-\d+(,\d+-\d+-\d+)*)?")


def settings_of(name: str, role: ServerRole, port: int, *, promoted: bool) -> dict[str, str]:
    """The settings of a member of a group. A standby keeps a binary log of what it applies: it may become a primary,
    and is then `promoted`."""
    found = {
        "server_id": str(zlib.crc32(name.encode()) or 1),
        "log_bin": "binlog",
        "relay_log": "relay",
        "binlog_format": "ROW",
        "gtid_strict_mode": "on",
        "log_slave_updates": "on",
        "sync_binlog": "1",
        "skip_slave_start": "on",
    }
    if role.primary is not None:
        read_only = "off" if promoted else "on"
        return found | {"read_only": read_only, "rpl_semi_sync_slave_enabled": "on", "skip_networking": "on"}
    if role.synchronous:
        found |= {
            "rpl_semi_sync_master_enabled": "on",
            "rpl_semi_sync_master_wait_point": "AFTER_SYNC",
            "rpl_semi_sync_master_wait_no_slave": "on",
            "rpl_semi_sync_master_timeout": str(ACKNOWLEDGED_MS),
        }
    return found | {"bind_address": LOOPBACK, "port": str(port)}


def accounts_of(administrator: str, replication: str) -> list[str]:
    """The statements that make the accounts of a member: the agent's own, and that of its standbys."""
    own, remote = f"{ADMINISTRATOR}@localhost", f"{REPLICATION}@{LOOPBACK}"
    return [
        f"CREATE OR REPLACE USER {own} IDENTIFIED BY '{administrator}'",
        f"GRANT ALL ON *.* TO {own}",
        f"CREATE OR REPLACE USER {remote} IDENTIFIED BY '{replication}'",
        f"GRANT REPLICATION SLAVE ON *.* TO {remote}",
    ]


def following(primary: Primary) -> list[str]:
    """The statements by which a standby follows its primary, from the end of its own binary log."""
    port = int((primary.session / PORT_FILE).read_text())
    return [
        "RESET SLAVE ALL",
        "SET GLOBAL gtid_slave_pos = @@global.gtid_binlog_pos",
        f"CHANGE MASTER TO MASTER_HOST = '{LOOPBACK}', MASTER_PORT = {port}, MASTER_USER = '{REPLICATION}',"
        f" MASTER_PASSWORD = '{primary.state.replication}', MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1",
        "START SLAVE",
    ]


def free_port() -> int:
    """A port of the loopback address that nothing listens at now."""
    with socket.socket() as asking:
        asking.bind((LOOPBACK, 0))
        return int(asking.getsockname()[1])


# Access: the socket's folder is 0700 and belongs to that user (root passes, as root does), and the one account
# there is has a random password, set again at every start by the server's init file; `root` is locked.
#
# That account may do everything in its own database, and watch the server. It has neither FILE nor SUPER, no right in
# `mysql` and none to make accounts or databases, so SQL of a plan reads and writes no file of the host, and loads no
# plugin or function; `secure_file_priv` and `plugin_dir` are an empty folder that the server cannot write. Writing out
# dirty pages takes SUPER: that is a procedure of `root`'s with two numbers.

DATABASE = "proveout"
ADMINISTRATION = "proveout_administration"
"""The database of procedures that need more rights than the account has."""
NOTHING = "nothing"
"""An empty folder of the session."""
ACCOUNTS, SETTINGS, SOCKET = "init.sql", "my.cnf", "socket/mysqld.sock"
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

COUNTING = (("performance_schema_consumer_events_statements_current", "ON"),)
"""With performance_schema: without it MariaDB does not count the executions of each prepared statement."""


@dataclass(frozen=True, slots=True)
class Programs:
    """The server, the program that makes an empty data directory, and the client, which standbys need."""

    server: Path
    initialise: Path
    client: Path | None = None


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
    client = shutil.which("mariadb", path=path)
    return Programs(
        server=Path(server).resolve(),
        initialise=Path(initialise).resolve(),
        client=Path(client).resolve() if client is not None else None,
    )


def server_program(_version: int | None = None) -> Path:
    """The server of `find_programs`. TaskFault."""
    return find_programs().server


def configuration(
    settings: Iterable[tuple[str, str]], folder: Path, data: Path, replication: Mapping[str, str] | None = None
) -> str:
    """The text of the defaults file: ours, then the plan's settings, then what is not negotiable, with `replication`,
    the settings of a server's role in its group. TaskFault."""
    lines = ["[mysqld]"]
    settings = tuple(settings)
    for name, value in (*DEFAULTS, *(COUNTING if _is_observed(settings) else ()), *_checked(settings)):
        lines.append(f"{name} = {value}")
    fixed = {
        "datadir": str(data),
        "socket": str(folder / SOCKET),
        "pid_file": f"{folder}/socket/mysqld.pid",
        "tmpdir": f"{folder}/socket",
        "init_file": f"{folder}/{ACCOUNTS}",
        "secure_file_priv": f"{folder}/{NOTHING}",
        "plugin_dir": f"{folder}/{NOTHING}",
        "allow_suspicious_udfs": "off",
        "symbolic_links": "off",
        "lc_messages": "en_US",
        **(replication or {"skip_networking": "on"}),
    }
    return "\n".join([*lines, *(f"{name} = {value}" for name, value in fixed.items())]) + "\n"


def _is_observed(settings: Iterable[tuple[str, str]]) -> bool:
    """Whether the plan turns performance_schema on."""
    return dict(settings).get("performance_schema", "").lower() in ("on", "true", "1")


def _checked(settings: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    for name, value in settings:
        if (why := mysql_objection(name, value)) is not None:
            raise TaskFault("refused", f"setting {name!r}: {why}", way_out=f"remove it from the plan, or {WAY_OUT}")
        if not name.replace("_", "").isalnum() or any(ord(character) < 32 for character in value):
            raise TaskFault("invalid", f"setting {name!r} cannot be written to a MySQL defaults file")
        yield name, value


OBSERVED = (
    "events_statements_summary_by_digest",
    "events_statements_summary_global_by_event_name",
    "prepared_statements_instances",
    "threads",
)
"""Tables of performance_schema that the capture `statements` reads, where the plan turns that on: none has a statement
with its constants but `threads`, which shows what the right PROCESS shows."""


class Server(GroupServer[Workspace]):
    """One embedded MariaDB; see `EmbeddedServer`, `GroupServer`. TaskFault `missing` when the host has no MariaDB."""

    ENGINE, NAME, STOPS = "mysql", "MariaDB", signal.SIGTERM
    WRONG_SETTING = ("unknown variable", "unknown option", "while setting value")
    SECRETS = (ACCOUNTS,)
    BROKEN = ("Got fatal error 1236", "Slave SQL: Error", "out of order")

    def __init__(self, system: System, data_root: Path, on_death: Callable[[str], None] | None = None) -> None:
        self._programs = find_programs()
        super().__init__(system, data_root, on_death)
        self._password = secrets.token_urlsafe(32)
        self._port = 0

    @property
    def dsn(self) -> str:
        """The dsn; holds the password."""
        path = quote(str(self.session / SOCKET))
        return f"mysql://{USER}:{self._password}@localhost/{DATABASE}?unix_socket={path}"

    def _make_workspace(self) -> Workspace:
        return Workspace(self._folder, self._exited)

    def _make_data(self) -> None:
        """An empty data directory, as the server's user, beside the place that it takes when it is whole."""
        # A MariaDB that starts removes all temporary tables in its tmpdir: in /tmp those of another server, which then
        # fails
        partial, scratch = self.data.with_name("data.new"), self.data.with_name("data.tmp")
        for folder in (partial, scratch):
            self._at.make_folder(folder)
        argv = [str(self._programs.initialise), "--no-defaults", f"--datadir={partial}", f"--tmpdir={scratch}"]
        argv.append("--cross-bootstrap")
        options = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        self._at.run([*argv, *options], INITIALISE_S, write=[partial, scratch])
        shutil.rmtree(scratch, ignore_errors=True)
        partial.rename(self.data)

    def _configure(self) -> None:
        (self.session / NOTHING).mkdir(exist_ok=True)
        (self.session / NOTHING).chmod(0o555)
        super()._configure()

    def _files(self) -> dict[str, str]:
        ports = self._ports()
        grouped = None
        if self._role.is_grouped:
            grouped = settings_of(self._system.name, self._role, self._port, promoted=self._promoted)
        return {
            ACCOUNTS: "".join(f"{statement};\n" for statement in self._accounts()),
            SETTINGS: configuration(self._system.settings, self.session, self.data, grouped),
            **({PORT_FILE: str(self._port)} if ports else {}),
        }

    def _command(self) -> list[str]:
        return [str(self._programs.server), f"--defaults-file={self.session / SETTINGS}"]

    def _ports(self) -> tuple[int, ...]:
        """A primary's port for its standbys stays the same for the session."""
        if not self._role.standbys:
            return ()
        self._port = self._port or free_port()
        return (self._port,)

    def _accounts(self) -> tuple[str, ...]:
        """The statements of the init file, a line each. They are not replicated: each member has its own accounts."""
        of_group: list[str] = []
        if self._role.is_grouped:
            of_group += accounts_of(self._state.administrator, self._state.replication)
        if self._primary is not None and not self._promoted:
            of_group += following(self._primary)
        account = f"{USER}@localhost"
        dirty_pages = (
            "BEGIN SET GLOBAL innodb_max_dirty_pages_pct = percent;"
            " SET GLOBAL innodb_max_dirty_pages_pct_lwm = low_water; END"
        )
        observed = OBSERVED if _is_observed(self._system.settings) else ()
        # Without the right to leave the binary log out, a population goes to the standbys.
        unlogged = () if of_group else (f"/*M!100502 GRANT BINLOG ADMIN ON *.* TO {account} */",)
        return (
            "SET SESSION sql_log_bin = 0",
            f"CREATE DATABASE IF NOT EXISTS {DATABASE}",
            f"CREATE DATABASE IF NOT EXISTS {ADMINISTRATION}",
            f"CREATE OR REPLACE DEFINER = root@localhost PROCEDURE {ADMINISTRATION}.dirty_pages"
            "(percent DOUBLE, low_water DOUBLE)"
            f" SQL SECURITY DEFINER {dirty_pages}",
            f"CREATE OR REPLACE USER {account} IDENTIFIED BY '{self._password}'",
            f"GRANT ALL ON {DATABASE}.* TO {account}",
            f"GRANT PROCESS, RELOAD, REPLICATION CLIENT ON *.* TO {account}",
            *unlogged,
            f"GRANT EXECUTE ON PROCEDURE {ADMINISTRATION}.dirty_pages TO {account}",
            *(f"GRANT SELECT ON performance_schema.{table} TO {account}" for table in observed),
            "ALTER USER root@localhost ACCOUNT LOCK",
            *of_group,
        )

    def _is_ready(self, _pid: int) -> bool:
        """Whether it greets, before which the init file has made our account: four bytes of length and number, then its
        version.

        A privileged agent reads no more than these bytes from it; a process without privileges does the rest
        (`agent.sandbox`). Source: protocol 10 of MySQL.
        """
        with socket.socket(socket.AF_UNIX) as asking, contextlib.suppress(OSError):
            asking.settimeout(READY_S)
            asking.connect(str(self.session / SOCKET))
            return asking.recv(5, socket.MSG_WAITALL)[4:] == bytes([GREETING])
        return False

    # ---- a group of servers --------------------------------------------------------------------------------------

    def _find_primary(self, endpoint: Endpoint) -> Primary:
        socket_path = Path(parse_qs(urlsplit(endpoint.dsn).query).get("unix_socket", [""])[0])
        session, folder, state = data_store.find(socket_path.parent.parent, f"system {endpoint.system!r}", "MariaDB")
        return Primary(session=session, folder=folder, state=state)

    def _copy_primary(self, primary: Primary) -> str:
        """The primary's last snapshot, whose changes since are in its binary log; without one all changes are."""
        snapshot = Path(primary.state.store) / "snapshot"
        if not snapshot.is_dir():
            return "empty, for all changes of its primary"
        self._at.copy(snapshot, self.data)
        return f"a copy of the snapshot of {primary.folder.name}"

    def _adopt(self, primary: Primary) -> None:
        """Nothing beside the init file."""

    def _reach(self, primary: Primary) -> Callable[[], bool]:
        position = self._ask("SELECT @@global.gtid_binlog_pos", primary)
        if not _GTIDS.fullmatch(position):
            raise TaskFault("fault", f"the primary answers {position[:80]!r} for the position of its binary log")
        running = (
            "SELECT VARIABLE_VALUE = 'ON' FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'SLAVE_RUNNING'"
        )
        return lambda: self._ask(running) == "1" and self._ask(f"SELECT MASTER_GTID_WAIT('{position}', 1)") == "0"

    def _promote(self) -> None:
        """Apply what it has received, forget its primary, accept writes.

        The age of its newest commit is not known: MariaDB does not report it.
        """
        self._ask("STOP SLAVE IO_THREAD")
        shown = self._ask("SHOW ALL SLAVES STATUS\\G", names=True)
        received = re.search(r"^\s*Gtid_IO_Pos: ([\d,-]*)$", shown, re.MULTILINE)
        if received is None:
            raise TaskFault("fault", f"the standby answers {shown[:80]!r} for what it has received")
        if self._ask(f"SELECT MASTER_GTID_WAIT('{received[1]}', {APPLY_S})") != "0":
            raise TaskFault("timeout", f"the standby did not apply what it had received within {APPLY_S} s")
        self._ask("STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = 0")

    def _ask(self, statement: str, of: Primary | None = None, *, names: bool = False) -> str:
        """The answer, with the names of columns or without, to a statement of the administrator of this server, or of
        another, from the client program, which runs as the server's user. TaskFault."""
        program = self._programs.client
        if program is None:
            raise TaskFault(
                "missing",
                "the client program mariadb, which makes standbys, was not found on this host",
                way_out="install it (Debian: apt-get install mariadb-client)",
            )
        session, password = (
            (self.session, self._state.administrator) if of is None else (of.session, of.state.administrator)
        )
        login = f"[client]\nuser={ADMINISTRATOR}\npassword={password}\nsocket={session / SOCKET}\nprotocol=socket\n"
        with self._at.secret("login.cnf", login) as file:
            argv = [str(program), f"--defaults-file={file}", "-B", *([] if names else ["-N"]), "-e", statement]
            return self._at.run(argv, ANSWER_S + APPLY_S, read=[file]).strip()

    def _is_in_order(self, data: Path) -> bool:
        """A copy of a killed server's data recovers like that data."""
        return data.is_dir()

    def _complaints(self, offset: int) -> str:
        """Return the errors in the server's log since `offset`."""
        lines = log_lines(self.log, offset)
        errors = [line.partition("[ERROR]")[2].strip() for line in lines if "[ERROR]" in line]
        return "; ".join(line for line in (errors or lines)[:LOG_LINES_MAX] if line)

    def _version(self) -> str:
        """Return the version that the program prints: `mariadbd  Ver 10.11.6-MariaDB-0+deb12u1 for …`; "" for none."""
        printed = program_output(str(self._programs.server), "--no-defaults", "--version")
        return printed.partition(" Ver ")[2].partition(" ")[0]


def embedded(system: System, data_root: Path, *, on_death: Callable[[str], None]) -> Embedded:
    """An embedded MariaDB."""
    return Embedded(Server(system, data_root, on_death))

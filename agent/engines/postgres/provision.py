"""An embedded PostgreSQL server and its standbys: real PostgreSQL, on a private unix socket."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from proveout.agent.engines.embedded import data_store, workspace
from proveout.agent.engines.embedded.server import (
    LOG_LINES_MAX,
    POLL_S,
    Embedded,
    GroupServer,
    Primary,
    log_lines,
    log_size,
    program_output,
)
from proveout.agent.engines.embedded.workspace import PREDECESSOR_S, USER, Workspace, give
from proveout.agent.engines.postgres import installation as programs
from proveout.agent.engines.postgres import roles
from proveout.agent.errors import TaskFault
from proveout.dsl.plan.topology import System
from proveout.proto.wire.tasks import Endpoint

# The agent does not speak PostgreSQL's protocol itself: the programs of the server's own installation do, as the
# server's user and confined like it, with a password file that is theirs. An answer is at most a few words.

BACKUP_S = 3600.0
REWIND_S = 600.0
PROMOTE_S = 60
ANSWER_S = 30.0
PASSWORDS = "replication.pass"
"""The password file of the replication role, in the session's folder; of the standby's user."""
SIGNAL = "standby.signal"
KEPT = "postgresql.auto.conf"
"""The settings that plans have stored at the old primary; they stay when it takes the standby's data."""
_LSN = re.compile(r"[0-9A-F]{1,8}/[0-9A-F]{1,8}")


def replication_socket(session: Path, state: data_store.State) -> Path:
    """The folder of a server's socket for replication."""
    return session / f"socket-{state.generation}"


def settings_of_primary(standbys: tuple[str, ...], synchronous: tuple[str, ...]) -> list[tuple[str, str]]:
    """The settings of a primary. All synchronous standbys confirm each commit: promoting any of them loses none."""
    if not standbys:
        return []
    names = ", ".join(f'"{name}"' for name in synchronous)
    return [
        ("wal_keep_size", "1GB"),
        *([("synchronous_standby_names", f"FIRST {len(synchronous)} ({names})")] if synchronous else []),
    ]


def settings_of_standby(primary: Primary, session: Path, name: str) -> list[tuple[str, str]]:
    """The settings of a standby; its password is in a file of its own, as the configuration can be read by all."""
    words = {
        "host": str(replication_socket(primary.session, primary.state)),
        "port": str(roles.PORT),
        "user": roles.REPLICATION,
        "passfile": str(session / PASSWORDS),
        "application_name": name,
    }
    conninfo = " ".join(f"{word}={value}" for word, value in words.items())
    return [("wal_keep_size", "1GB"), ("hot_standby", "on"), ("primary_conninfo", conninfo)]


def password_file(password: str) -> str:
    """The text of a password file of libpq."""
    return f"*:*:*:*:{password}\n"


# Access: the socket's folder is 0700 and belongs to the server's own numeric user (root passes, as root does),
# and every connection authenticates by SCRAM with a random 256-bit password. The server does not listen on TCP. The
# endpoint has the password of the plan's role, which is not a superuser (`postgres.roles`). The passwords are kept in
# `system.json` (0600) for a resume, and are worth nothing elsewhere, which is why one SCRAM iteration is enough: the
# iterations slow the guessing of weak passwords, and would slow every connection of a load by milliseconds.
#
# A server has two sockets: one for clients, whose path stays the same for the session, and one for replication, whose
# path changes with every restore. So a subscriber cannot reach a source that went back in time before it is linked
# again; else it would acknowledge positions that the restored source has not written yet, and those changes would never
# arrive.

INITDB_S = 60.0
INITDB_OPTIONS = [
    "-A",
    "scram-sha-256",
    "-E",
    "UTF8",
    "--locale=C",
    "--no-sync",
    "--no-instructions",
    *("-c", "scram_iterations=1"),
    *("-c", "dynamic_shared_memory_type=mmap"),  # else a killed initdb leaves a segment in /dev/shm
]
OPTIONS_BEFORE_16 = INITDB_OPTIONS[: INITDB_OPTIONS.index("-c")]
"""Of an initdb without `-c`."""


CONFIGURATION = {"config_file": "postgresql.conf", "hba_file": "pg_hba.conf", "ident_file": "pg_ident.conf"}
LOG_TAIL_BYTES = 1 << 18
LOG_PARTS = ("ERROR", "DETAIL", "CONTEXT")


class PostgresWorkspace(Workspace):
    """The workspace of one PostgreSQL server, with its programs, of a major version, and its new data. Blocking;
    `on_exit(text)` as `Workspace`."""

    def __init__(self, folder: Path, on_exit: Callable[[str], None], version: int | None) -> None:
        self.installation = programs.find_installation(version)
        self._initdb_options = INITDB_OPTIONS if roles.has_iterations(version) else OPTIONS_BEFORE_16
        super().__init__(folder, on_exit)

    def enter(self) -> data_store.State | None:
        """See `Workspace.enter`; programs that the server's user cannot read are copied to where it can."""
        previous = super().enter()
        if not self.reachable(self.installation.programs / "postgres"):
            self.installation = programs.private_copy(self.installation, self.session / "site")
        return previous

    def initialise(self, data: Path, password: str, finish: Callable[[Path, tuple[int, int] | None], None]) -> None:
        """`initdb` beside `data`, which it becomes when it is whole. `finish` is called before that, with the folder
        and its user and group, which have a name (None: the agent's own)."""
        partial = data.with_name("data.new")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(mode=0o700)
        secret = self.write_secret("password", password)
        identity: str | tuple[int, int] = "server"
        if self._account is not None:
            identity = self._account.initialise
            os.chown(partial, *identity)
            os.chown(secret, *identity)
        program = self.installation.programs / "initdb"
        argv = [str(program), "-D", str(partial), "-U", roles.ADMINISTRATOR, "--pwfile", str(secret)]
        self.supervisor.run(
            [*argv, *self._initdb_options],
            limit_s=INITDB_S,
            identity=identity,
            access=workspace.of_helper(program, read=[secret, *self._libraries()], write=[partial]),
            database=(str(partial), "postgres"),
        )
        secret.unlink()
        finish(partial, None if self._account is None else self._account.initialise)
        if self._account is not None:
            give(partial, self._account.uid)
        partial.rename(data)

    def _libraries(self) -> list[Path]:
        return self.installation.libraries


class Server(GroupServer[PostgresWorkspace]):
    """One embedded PostgreSQL; see `EmbeddedServer` and `GroupServer`."""

    ENGINE, NAME, STOPS = "postgres", "PostgreSQL", signal.SIGINT
    WRONG_SETTING = ("configuration file", "parameter")
    BROKEN = (
        "has already been removed",
        "forked off current database system timeline",
        "is ahead of the WAL flush position",
        "is not in this server's history",
        "database system identifier differs",
        "highest timeline",
    )

    @property
    def dsn(self) -> str:
        """The libpq conninfo of the plan's role; holds its password."""
        return roles.conninfo(self.session, USER, self._state.password)

    def _make_workspace(self) -> PostgresWorkspace:
        return PostgresWorkspace(self._folder, self._exited, self._system.version)

    def _make_data(self) -> None:
        def make_roles(data: Path, identity: tuple[int, int] | None) -> None:
            roles.make_roles(self._at.installation.programs / "postgres", data, self._state, identity)

        self._at.initialise(self.data, self._state.administrator, make_roles)

    def _await_ended(self) -> None:
        """Wait for a postmaster whose supervisor was killed. TaskFault."""
        deadline = time.monotonic() + PREDECESSOR_S
        while (lines := _lines(self.data / "postmaster.pid")) and _works_in(lines[0], self.data):
            if time.monotonic() > deadline:
                raise TaskFault("refused", f"another PostgreSQL (process {lines[0]}) runs on {self.data}")
            time.sleep(POLL_S)

    def _files(self) -> dict[str, str]:
        if self._primary is not None:
            replication = settings_of_standby(self._primary, self.session, self._system.name)
        else:
            replication = settings_of_primary(self._role.standbys, self._role.synchronous)
        sockets = [str(path) for path in self._sockets()]
        replicas = f"local replication {roles.REPLICATION} scram-sha-256\n" if self._role.is_grouped else ""
        texts = (
            roles.configuration(self._system.settings, sockets, replication, self._system.version),
            f"local all all scram-sha-256\n{replicas}local replication all reject\n",
            "",
        )
        return dict(zip(CONFIGURATION.values(), texts, strict=True))

    def _command(self) -> list[str]:
        program = str(self._at.installation.programs / "postgres")
        given = [word for name, file in CONFIGURATION.items() for word in ("-c", f"{name}={self.session / file}")]
        return [program, "-D", str(self.data), *given]

    def _sockets(self) -> list[Path]:
        return [self.session / "socket", replication_socket(self.session, self._state)]

    def replication_complaint(self) -> str:
        """See `EmbeddedServer`; with its detail and context."""
        return last_log_error(self.log, "logical replication")

    def _is_ready(self, pid: int) -> bool:
        """Whether postmaster.pid has this id in its first line and `ready` in its eighth."""
        lines = _lines(self.data / "postmaster.pid")
        return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"

    def _complaints(self, offset: int) -> str:
        return log_complaints(self.log, offset)

    def _version(self) -> str:
        """Return the version that the program prints (`postgres (PostgreSQL) 18.4`): a privileged agent does not read
        from the server."""
        printed = program_output(str(self._at.installation.programs / "postgres"), "--version")
        return printed.partition(")")[2].strip()

    # ---- a group of servers --------------------------------------------------------------------------------------

    def _find_primary(self, endpoint: Endpoint) -> Primary:
        session, folder, state = roles.found(endpoint)
        return Primary(session=session, folder=folder, state=state)

    def _copy_primary(self, primary: Primary) -> str:
        partial = self._at.make_folder(self.data.with_name("data.new"))
        passwords = self.session / PASSWORDS
        conninfo = (
            f"host={replication_socket(primary.session, primary.state)} port={roles.PORT} user={roles.REPLICATION}"
            f" passfile={passwords}"
        )
        options = ["--checkpoint=fast", "--wal-method=stream", "--no-manifest", "--no-sync", "--no-password"]
        argv = ["-D", str(partial), "-d", conninfo, *options]
        self._run("pg_basebackup", argv, BACKUP_S, read=[passwords], write=[partial])
        self._mark_standby(partial)
        partial.rename(self.data)
        return f"a base backup of {primary.folder.name}"

    def _mark_standby(self, data: Path) -> None:
        """Make a server on `data` start as a standby. The server's user does it: `data` is that user's."""
        self._at.tool("touch", str(data / SIGNAL), write=[data])

    def _adopt(self, primary: Primary) -> None:
        """Take the passwords of the primary, which are in its data, and follow it."""
        of = primary.state
        self._keep(password=of.password, administrator=of.administrator, replication=of.replication)
        self._at.write_secret(PASSWORDS, password_file(of.replication))
        if self.data.is_dir():
            self._mark_standby(self.data)

    def _reach(self, primary: Primary) -> Callable[[], bool]:
        (position,) = self._ask(primary.session, primary.state, "SELECT pg_current_wal_flush_lsn()")
        if not _LSN.fullmatch(position):
            raise TaskFault("fault", f"the primary answers {position[:80]!r} for the position of its log")
        question = (
            f"SELECT EXISTS (SELECT FROM pg_stat_wal_receiver WHERE status = 'streaming')"  # noqa: S608 - a position
            f" AND pg_last_wal_replay_lsn() >= '{position}'"
        )

        def is_level() -> bool:
            with contextlib.suppress(TaskFault):  # a standby refuses connections until its data is consistent
                return self._ask(self.session, self._state, question) == ["t"]
            return False

        return is_level

    def _promote(self) -> float | None:
        requested_s = time.time()
        done, newest_s = self._ask(
            self.session,
            self._state,
            f"SELECT pg_promote(true, {PROMOTE_S})",
            "SELECT coalesce(extract(epoch FROM pg_last_xact_replay_timestamp())::text, '')",
        )
        if done != "t":
            raise TaskFault("timeout", f"the standby was not promoted within {PROMOTE_S} s")
        return max(requested_s - float(newest_s), 0.0) if newest_s else None

    def _is_in_order(self, data: Path) -> bool:
        shown = self._run("pg_controldata", ["-D", str(data)], ANSWER_S, read=[data])
        return bool(re.search(r"^Database cluster state:\s+shut down( in recovery)?$", shown, re.MULTILINE))

    def _take_differences(self, source: Path) -> str:
        """pg_rewind needs a server that has stopped in order. It would recover a killed one in single-user mode, which
        refuses a user without a name: so the server runs without clients until it has recovered."""
        scratch = self.session / "socket-none"  # in which no client looks for a socket
        scratch.mkdir(mode=0o700, exist_ok=True)
        self._at.hand_over(scratch)
        if not self._is_in_order(self.data):
            self._launch("-c", f"unix_socket_directories={scratch}")
            self.stop()
        self._at.tool("cp", "-p", str(self.data / KEPT), str(scratch), read=[self.data], write=[scratch])
        argv = ["-D", str(self.data), f"--source-pgdata={source}", "--no-ensure-shutdown", "--no-sync"]
        self._run("pg_rewind", argv, REWIND_S, read=[source], write=[self.data])
        self._at.tool("cp", "-p", str(scratch / KEPT), str(self.data / KEPT), read=[scratch], write=[self.data])
        return "pg_rewind"

    # ---- programs of the server's own installation, run as the server's user. TaskFault ---------------------------

    def _ask(self, session: Path, state: data_store.State, *statements: str) -> list[str]:
        """The first value of each statement, of the administrator of the server with that session."""
        with self._at.secret("administrator.pass", password_file(state.administrator)) as path:
            argv = ["-AtX", "--no-password", "-d", roles.administrator_conninfo(session, path)]
            argv += [word for statement in statements for word in ("-c", statement)]
            shown = self._run("psql", argv, ANSWER_S + PROMOTE_S, read=[path])
        lines = shown.split("\n")
        return lines + [""] * (len(statements) - len(lines))

    def _run(
        self, name: str, argv: list[str], limit_s: float, *, read: Sequence[Path], write: Sequence[Path] = ()
    ) -> str:
        """A program of the installation."""
        installation = self._at.installation
        words = [str(installation.programs / name), *argv]
        return self._at.run(words, limit_s, read=[*read, *installation.libraries], write=write)


def embedded(system: System, data_root: Path, *, on_death: Callable[[str], None]) -> Embedded:
    """A server, or a pooler in front of one."""
    if system.in_front_of is None:
        return Embedded(Server(system, data_root, on_death))
    from proveout.agent.engines.pgbouncer import Pooler  # noqa: PLC0415 - few plans have one

    return Embedded(Pooler(system, data_root, on_death))


def _works_in(pid: str, folder: Path) -> bool:
    """Whether the process runs and has the folder as its working directory, as a postmaster has its data."""
    try:
        return Path("/proc", pid, "cwd").samefile(folder)
    except OSError:
        return False


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def log_complaints(log: Path, offset: int) -> str:
    """The server's complaints since `offset`, joined by `; `; all of its words when it does not complain."""
    found = [line.partition("postmaster ")[2] or line for line in log_lines(log, offset)]
    chosen = [
        line for line in found if line.startswith(("FATAL", "PANIC", "HINT", "ERROR")) or "configuration file" in line
    ]
    chosen += [line for line in found if "parameter" in line and line not in chosen]
    return "; ".join((chosen or found)[:LOG_LINES_MAX])


def last_log_error(log: Path, backend: str) -> str:
    """The last ERROR of a kind of backend (`logical replication`) in the log's tail, with the lines that belong to
    it."""
    tail = log_lines(log, max(0, log_size(log) - LOG_TAIL_BYTES))
    found = [line.partition(f"] {backend}")[2].partition(" ")[2] for line in tail]
    starts = [index for index, text in enumerate(found) if "ERROR:" in text]
    if not starts:
        return ""
    block = [text for text in found[starts[-1] : starts[-1] + 4] if any(f"{part}:" in text for part in LOG_PARTS)]
    return "; ".join(" ".join(re.sub(rf"^.*?({'|'.join(LOG_PARTS)}):", "", text).split()) for text in block)

"""A standby of an embedded PostgreSQL: a base backup of its primary, streaming replication, promotion; and a replaced
primary that takes the data of the promoted standby.

Flow: `embedded.group_server` finds the primary's sockets and passwords -> `base_backup` makes the data -> the server
starts with `settings_of_standby` -> `position` of the primary and `is_level` of the standby until the standby streams
and has replayed that position. `promote` ends the replication.
After that, `rewind` gives the old primary the standby's data: the blocks that differ; where that cannot be done the
caller copies everything.

The agent does not speak PostgreSQL's protocol itself: the programs of the server's own installation do, as the server's
user and confined like it, with a password file that is theirs. An answer is at most a few words.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from proveout.agent.engines.embedded import file_access
from proveout.agent.engines.embedded.group_server import Primary
from proveout.agent.engines.embedded.server_role import Promotion
from proveout.agent.engines.embedded.workspace import ENVIRONMENT, Workspace
from proveout.agent.engines.postgres import roles, settings
from proveout.agent.engines.postgres.installation import Installation
from proveout.agent.errors import TaskFault
from proveout.core.data_classes import dataclass

BACKUP_S = 3600.0
REWIND_S = 600.0
PROMOTE_S = 60
ANSWER_S = 30.0
PASSWORDS = "replication.pass"
"""The password file of the replication role, in the session's folder; of the standby's user."""
SIGNAL = "standby.signal"
KEPT = "postgresql.auto.conf"
"""The settings that plans have stored at the old primary; they stay when it takes the standby's data."""
BROKEN = (
    "has already been removed",
    "forked off current database system timeline",
    "is ahead of the WAL flush position",
    "is not in this server's history",
    "database system identifier differs",
    "highest timeline",
)
"""Texts in a standby's log after which waiting is of no use: it needs a new copy of the data."""
_LSN = re.compile(r"[0-9A-F]{1,8}/[0-9A-F]{1,8}")


def replication_socket(primary: Primary) -> Path:
    """The folder of the primary's socket for replication."""
    return primary.session / f"socket-{primary.state.generation}"


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
        "host": str(replication_socket(primary)),
        "port": str(settings.PORT),
        "user": roles.REPLICATION,
        "passfile": str(session / PASSWORDS),
        "application_name": name,
    }
    conninfo = " ".join(f"{word}={value}" for word, value in words.items())
    return [("wal_keep_size", "1GB"), ("hot_standby", "on"), ("primary_conninfo", conninfo)]


def write_password(at: Workspace, path: Path, password: str) -> None:
    """A password file of libpq, of the server's user alone."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(f"*:*:*:*:{password}\n")
    at.hand_over(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """PostgreSQL's client programs, run in a workspace as the server's user. Methods block. TaskFault."""

    at: Workspace
    installation: Installation

    def base_backup(self, primary: Primary, data: Path) -> None:
        """Copy the running primary's data to the new folder `data`, ready to start as its standby."""
        partial = data.with_name("data.new")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(mode=0o700)
        self.at.hand_over(partial)
        conninfo = (
            f"host={replication_socket(primary)} port={settings.PORT} user={roles.REPLICATION}"
            f" passfile={self.at.session / PASSWORDS}"
        )
        options = ["--checkpoint=fast", "--wal-method=stream", "--no-manifest", "--no-sync", "--no-password"]
        argv = ["-D", str(partial), "-d", conninfo, *options]
        self._run("pg_basebackup", argv, BACKUP_S, read=[self.at.session / PASSWORDS], write=[partial])
        self.mark_standby(partial)
        partial.rename(data)

    def mark_standby(self, data: Path) -> None:
        """Make a server on `data` start as a standby. The server's user does it: `data` is that user's."""
        self._tool("touch", str(data / SIGNAL), write=[data])

    def unmark_standby(self, data: Path) -> None:
        """The reverse."""
        self._tool("rm", "-f", str(data / SIGNAL), write=[data])

    def is_shut_down(self, data: Path) -> bool:
        """Whether the server on `data` has ended in order."""
        shown = self._run("pg_controldata", ["-D", str(data)], ANSWER_S, read=[data], write=[])
        return bool(re.search(r"^Database cluster state:\s+shut down( in recovery)?$", shown, re.MULTILINE))

    def scratch(self) -> Path:
        """A folder of the server's user, in which no client looks for a socket."""
        folder = self.at.session / "socket-none"
        folder.mkdir(mode=0o700, exist_ok=True)
        self.at.hand_over(folder)
        return folder

    def rewind(self, data: Path, source: Path) -> None:
        """Give `data` the content of `source`, from the point on where the two differ. Servers on both have ended in
        order."""
        kept = self.scratch()
        self._tool("cp", "-p", str(data / KEPT), str(kept), read=[data], write=[kept])
        argv = ["-D", str(data), f"--source-pgdata={source}", "--no-ensure-shutdown", "--no-sync"]
        self._run("pg_rewind", argv, REWIND_S, read=[source], write=[data])
        self._tool("cp", "-p", str(kept / KEPT), str(data / KEPT), read=[kept], write=[data])

    def position(self, primary: Primary) -> str:
        """The end of the primary's log."""
        (answer,) = self._ask(primary.session, primary.state.administrator, "SELECT pg_current_wal_flush_lsn()")
        if not _LSN.fullmatch(answer):
            raise TaskFault("fault", f"the primary answers {answer[:80]!r} for the position of its log")
        return answer

    def is_level(self, session: Path, password: str, position: str) -> bool:
        """Whether the standby streams, and has replayed its primary's log up to `position`."""
        question = (
            f"SELECT EXISTS (SELECT FROM pg_stat_wal_receiver WHERE status = 'streaming')"  # noqa: S608 - a position
            f" AND pg_last_wal_replay_lsn() >= '{position}'"
        )
        with contextlib.suppress(TaskFault):  # a standby refuses connections until its data is consistent
            return self._ask(session, password, question) == ["t"]
        return False

    def promote(self, session: Path, password: str) -> Promotion:
        """Make a standby a primary, and wait until it accepts writes."""
        requested_s, began_s = time.time(), time.monotonic()
        done, newest_s = self._ask(
            session,
            password,
            f"SELECT pg_promote(true, {PROMOTE_S})",
            "SELECT coalesce(extract(epoch FROM pg_last_xact_replay_timestamp())::text, '')",
        )
        if done != "t":
            raise TaskFault("timeout", f"the standby was not promoted within {PROMOTE_S} s")
        staleness_s = max(requested_s - float(newest_s), 0.0) if newest_s else None
        return Promotion(seconds=time.monotonic() - began_s, staleness_s=staleness_s)

    def _ask(self, session: Path, password: str, *statements: str) -> list[str]:
        """The first value of each statement, of the administrator of the server with that session."""
        with self._password(password) as path:
            conninfo = roles.administrator_conninfo(session, path)
            argv = ["-AtX", "--no-password", "-d", conninfo]
            argv += [word for statement in statements for word in ("-c", statement)]
            shown = self._run("psql", argv, ANSWER_S + PROMOTE_S, read=[path], write=[])
        lines = shown.split("\n")
        if len(lines) < len(statements):
            lines += [""] * (len(statements) - len(lines))
        return lines

    @contextlib.contextmanager
    def _password(self, password: str) -> Iterator[Path]:
        path = self.at.session / "administrator.pass"
        write_password(self.at, path, password)
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def _run(self, name: str, argv: list[str], limit_s: float, *, read: list[Path], write: list[Path]) -> str:
        """A program of the installation."""
        program = self.installation.programs / name
        access = file_access.of_helper(program, read=[*read, *self.installation.libraries], write=write)
        words = [str(program), *argv]
        return self.at.supervisor.run(words, ENVIRONMENT, limit_s=limit_s, identity="server", access=access)

    def _tool(self, name: str, *argv: str, read: list[Path] | None = None, write: list[Path]) -> None:
        """A program of the system."""
        program = shutil.which(name, path=ENVIRONMENT["PATH"])
        if program is None:
            raise TaskFault("missing", f"the program {name} is not on this host", way_out="install coreutils")
        access = file_access.of_helper(Path(program), read=read or [], write=write)
        self.at.supervisor.run([program, *argv], ENVIRONMENT, limit_s=ANSWER_S, identity="server", access=access)

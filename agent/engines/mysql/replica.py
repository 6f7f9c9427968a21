"""A standby of an embedded MariaDB: an asynchronous or semi-synchronous replica by GTIDs, its promotion, and what the
primary needs for it.

Flow: `settings_of(…)` into the defaults file, `following(primary)` into the init file of a standby -> the server
follows from the end of its own binary log, which has all that it has applied -> `position` of the primary, `is_level`
of the standby -> `promote`: the log that was received is applied, and the server accepts writes.

MariaDB replicates over TCP only, so a primary with standbys listens at one port of the loopback address: its only
account there is that of the standbys, with a random password. The agent runs the client program `mariadb`, as the
server's user and confined like it; an answer is at most a few words. Sources: MariaDB's "Global Transaction ID" and
"Semisynchronous Replication".
"""

from __future__ import annotations

import contextlib
import re
import socket
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from proveout.agent.engines.embedded import file_access
from proveout.agent.engines.embedded.group_server import Primary
from proveout.agent.engines.embedded.server_role import Promotion, ServerRole
from proveout.agent.engines.embedded.workspace import ENVIRONMENT, USER, Workspace
from proveout.agent.errors import TaskFault
from proveout.core.data_classes import dataclass

LOOPBACK = "127.0.0.1"
ADMINISTRATOR = f"{USER}_administrator"
REPLICATION = f"{USER}_replication"
PORT_FILE = "port"
"""The file of the session's folder that holds the primary's port."""
APPLY_S = 60
ANSWER_S = 30.0
SYNCHRONOUS_MAX = 1
"""The number of standbys whose confirmation MariaDB can wait for."""
ACKNOWLEDGED_MS = 1_000_000_000
"""The time that a commit waits for a semi-synchronous standby: practically without a limit (11 days)."""
BROKEN = ("Got fatal error 1236", "Slave SQL: Error", "out of order")
"""Texts in a standby's log after which waiting is of no use: it needs a new copy of the data."""
_GTIDS = re.compile(r"(\d+-\d+-\d+(,\d+-\d+-\d+)*)?")


def settings_of(name: str, role: ServerRole, port: int) -> dict[str, str]:
    """The settings of a member of a group. A standby keeps a binary log of what it applies: it may become a primary."""
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
        return found | {"read_only": "on", "rpl_semi_sync_slave_enabled": "on", "skip_networking": "on"}
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """MariaDB's client program, run in a workspace as the server's user. Methods block. TaskFault."""

    at: Workspace
    program: Path

    def position(self, primary: Primary) -> str:
        """The GTIDs that the primary has in its binary log."""
        answer = self._ask(primary.session, primary.state.administrator, "SELECT @@global.gtid_binlog_pos")
        if not _GTIDS.fullmatch(answer):
            raise TaskFault("fault", f"the primary answers {answer[:80]!r} for the position of its binary log")
        return answer

    def reach(self, session: Path, password: str, position: str) -> Callable[[], bool]:
        """A question: whether the standby replicates, and has applied all up to `position`."""
        running = (
            "SELECT VARIABLE_VALUE = 'ON' FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'SLAVE_RUNNING'"
        )

        def is_level() -> bool:
            return (
                self._ask(session, password, running) == "1"
                and self._ask(session, password, f"SELECT MASTER_GTID_WAIT('{position}', 1)") == "0"
            )

        return is_level

    def promote(self, session: Path, password: str) -> Promotion:
        """Make a standby a primary: apply what it has received, forget its primary, accept writes.

        The age of its newest commit is not known: MariaDB does not report it.
        """
        began_s = time.monotonic()
        self._ask(session, password, "STOP SLAVE IO_THREAD")
        shown = self._ask(session, password, "SHOW ALL SLAVES STATUS\\G")
        received = re.search(r"^\s*Gtid_IO_Pos: ([\d,-]*)$", shown, re.MULTILINE)
        position = received[1] if received is not None else ""
        if self._ask(session, password, f"SELECT MASTER_GTID_WAIT('{position}', {APPLY_S})") != "0":
            raise TaskFault("timeout", f"the standby did not apply what it had received within {APPLY_S} s")
        self._ask(session, password, "STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = 0")
        return Promotion(seconds=time.monotonic() - began_s, staleness_s=None)

    def _ask(self, session: Path, password: str, statement: str) -> str:
        """The answer to a statement, of the administrator of the server with that session."""
        with self._login(session, password) as file:
            argv = [str(self.program), f"--defaults-file={file}", "-N", "-B", "-e", statement]
            access = file_access.of_helper(self.program, read=[file], write=[])
            limit_s = ANSWER_S + APPLY_S
            return self.at.supervisor.run(argv, ENVIRONMENT, limit_s=limit_s, identity="server", access=access).strip()

    @contextlib.contextmanager
    def _login(self, session: Path, password: str) -> Iterator[Path]:
        """A defaults file of the server's user alone."""
        path = self.at.session / "login.cnf"
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        path.write_text(
            f"[client]\nuser={ADMINISTRATOR}\npassword={password}\nsocket={session}/socket/mysqld.sock\nprotocol=socket\n"
        )
        self.at.hand_over(path)
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

"""The agent's task journal: the highest fencing epoch of each run, and the outcome of each task.

SQLite in the state directory.

Flow: `servicer` stores epochs; a session stores the key of a task before the task starts (`accept`) and its outcome
before the outcome is sent (`finish`), so a task that arrives again is answered and not run again. Keys belong to one
epoch of a run: before a newer coordinator takes over, everything of the old one is ended, so the tasks of the newer one
are new. Outcomes belong to one session: everything that the session has started ends with it (or with the agent), so
its outcomes are no longer valid. `blank` removes them and keeps the keys, which are never run again.

Outcomes may contain connection strings with passwords, so they are encrypted (AES-256-GCM) with a key that exists only
in the memory of this process: neither the file nor its write-ahead log can be read after the agent has ended. An agent
removes them when it starts. The file has mode 0600. The keys of a run are removed at the end of the run, or after
`KEPT_DAYS` if the run never reports its end.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from proveout.core.data_classes import record
from proveout.core.errors import ProveoutError
from proveout.proto.wire import codec
from proveout.proto.wire.messages import TaskDone, TaskFailed

_SCHEMA = """
CREATE TABLE IF NOT EXISTS epoch (
  run TEXT PRIMARY KEY, highest INTEGER NOT NULL, seen_unix_s INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sequence (run TEXT PRIMARY KEY, highest INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS task (
  run TEXT NOT NULL, epoch INTEGER NOT NULL, key TEXT NOT NULL, digest TEXT NOT NULL, outcome BLOB,
  PRIMARY KEY (run, epoch, key)
) WITHOUT ROWID;
"""

_PRUNE = "DELETE FROM task WHERE run IN (SELECT run FROM epoch WHERE seen_unix_s < ?)"

KEPT_DAYS = 30
NONCE_BYTES = 12
"""Nonce length of NIST SP 800-38D for GCM; random nonces are safe for 2^32 outcomes of one process."""


@record
class Known:
    """A task that was accepted before: its digest, and its outcome if it has one."""

    digest: str
    outcome: TaskDone | TaskFailed | None


class AgentJournal:
    """The journal in `path`, created if it is missing. ProveoutError if it cannot be opened."""

    def __init__(self, path: Path) -> None:
        self._cipher = AESGCM(AESGCM.generate_key(256))
        self.directory = path.parent
        try:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            self._db = sqlite3.connect(path, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("PRAGMA secure_delete = ON")
            self._db.executescript(_SCHEMA)
            self._db.execute(_PRUNE, (round(time.time()) - KEPT_DAYS * 86400,))
            self.blank()
        except (OSError, sqlite3.Error) as error:
            raise ProveoutError(
                f"cannot open the agent's task journal: {error}",
                where=str(path),
                way_out="Name another --state-dir, or remove the file while no run uses this agent.",
            ) from error

    def highest_epoch(self, run: str) -> int | None:
        """The highest epoch ever admitted for `run`."""
        row = self._db.execute("SELECT highest FROM epoch WHERE run = ?", (run,)).fetchone()
        return None if row is None else int(row[0])

    def note_epoch(self, run: str, epoch: int) -> None:
        """Admit only `epoch` and higher ones for `run` from now on, and remove the tasks of older epochs.

        Their sequence numbers are removed too: a signature is valid for one epoch, and the coordinator's clock, the
        source of the numbers, may have been set back.
        """
        before = self.highest_epoch(run)
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.execute(
                "INSERT INTO epoch VALUES (?, ?, ?) ON CONFLICT (run) DO UPDATE "
                "SET highest = max(highest, excluded.highest), seen_unix_s = excluded.seen_unix_s",
                (run, epoch, round(time.time())),
            )
            if before is not None and before < epoch:
                self._db.execute("DELETE FROM sequence WHERE run = ?", (run,))
            self._db.execute("DELETE FROM task WHERE run = ? AND epoch < ?", (run, epoch))
        except sqlite3.Error:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def known(self, run: str, epoch: int, key: str) -> Known | None:
        """The task with this key, None if it was never accepted."""
        query = "SELECT digest, outcome FROM task WHERE run = ? AND epoch = ? AND key = ?"
        row = self._db.execute(query, (run, epoch, key)).fetchone()
        if row is None:
            return None
        return Known(digest=row[0], outcome=None if row[1] is None else self._decrypt((run, epoch, key), row[1]))

    def accept(self, run: str, epoch: int, key: str, digest: str, sequence: int) -> None:
        """Store a key, and the sequence number of its signature, before its task starts."""
        self.note_sequence(run, sequence)  # first: after a failure in between, the task cannot be accepted twice
        self._db.execute("INSERT INTO task VALUES (?, ?, ?, ?, NULL)", (run, epoch, key, digest))

    def note_sequence(self, run: str, sequence: int) -> None:
        """Store the number of a known task that was signed again, so that a replay of it is not accepted as new."""
        query = (
            "INSERT INTO sequence VALUES (?, ?) ON CONFLICT (run) DO UPDATE SET highest = "
            "max(highest, excluded.highest)"
        )
        self._db.execute(query, (run, sequence))

    def highest_sequence(self, run: str) -> int:
        """The highest sequence number of an accepted task of `run`; 0 if there is none."""
        row = self._db.execute("SELECT highest FROM sequence WHERE run = ?", (run,)).fetchone()
        return 0 if row is None else int(row[0])

    def finish(self, run: str, epoch: int, outcome: TaskDone | TaskFailed) -> None:
        """Store an outcome before it is sent."""
        nonce = os.urandom(NONCE_BYTES)
        data = nonce + self._cipher.encrypt(
            nonce, codec.outcome_bytes(outcome), _associated_data((run, epoch, outcome.key))
        )
        query = "UPDATE task SET outcome = ? WHERE run = ? AND epoch = ? AND key = ?"
        self._db.execute(query, (data, run, epoch, outcome.key))

    def _decrypt(self, of: tuple[str, int, str], encrypted: bytes) -> TaskDone | TaskFailed:
        data = self._cipher.decrypt(encrypted[:NONCE_BYTES], encrypted[NONCE_BYTES:], _associated_data(of))
        return codec.outcome_from_bytes(data)

    def blank(self) -> None:
        """Remove all outcomes and keep the keys, at the end of a session."""
        self._db.execute("UPDATE task SET outcome = NULL WHERE outcome IS NOT NULL")
        self._overwrite()

    def forget(self, run: str) -> None:
        """Remove the tasks of a run that is over.

        Epoch and sequence number stay, against old coordinators and replays.
        """
        self._db.execute("DELETE FROM task WHERE run = ?", (run,))
        self._overwrite()

    def _overwrite(self) -> None:
        """Write removals from the write-ahead log to the file, and truncate the log."""
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def close(self) -> None:
        self._db.close()


def _associated_data(of: tuple[str, int, str]) -> bytes:
    """Associated data of an encrypted outcome: run, epoch and key."""
    return repr(of).encode()

"""What an agent remembers: the highest fencing epoch per run, and what became of each task. SQLite in its state directory.

Flow: `admission` notes epochs; a session notes a task's key before it starts it (`accept`) and its outcome before it sends
it (`finish`), so a task that is sent again is answered and has no second effect. Keys belong to one epoch of a run: when a
newer coordinator takes over everything of the old one is ended first, so its tasks are new ones. Outcomes belong to one
session: what it had started was stopped when it ended (or when the agent was killed), so they are no longer true, and
`blank` leaves the bare keys, which are never run again.

Outcomes may hold connection strings with passwords, so they are sealed (AES-256-GCM) with a key that is only in the memory of this process: neither
the file nor its write-ahead log can be read after the agent has ended. Nothing needs them then: an agent that starts removes them. The file is 0600.
A run's keys are forgotten when it says that it is over, and those of a run that never did after `KEPT_DAYS`.
"""

from __future__ import annotations

import os
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from proveout.core.errors import ProveoutError
from proveout.proto.wire import codec
from proveout.proto.wire.messages import TaskDone, TaskFailed

_SCHEMA = """
CREATE TABLE IF NOT EXISTS epoch (run TEXT PRIMARY KEY, highest INTEGER NOT NULL, seen_unix_s INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sequence (run TEXT PRIMARY KEY, highest INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS task (
  run TEXT NOT NULL, epoch INTEGER NOT NULL, key TEXT NOT NULL, digest TEXT NOT NULL, outcome BLOB,
  PRIMARY KEY (run, epoch, key)
) WITHOUT ROWID;
"""

_PRUNE = "DELETE FROM task WHERE run IN (SELECT run FROM epoch WHERE seen_unix_s < ?)"

KEPT_DAYS = 30
NONCE_BYTES = 12
"""As SP 800-38D of NIST has it for GCM; drawn at random, which is safe for 2^32 outcomes of one process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A task that was accepted before: the digest of what it was, and its outcome when it has one."""

    digest: str
    outcome: TaskDone | TaskFailed | None


class AgentJournal:
    """The journal in `path`, made when it is not there. ProveoutError when it cannot be used."""

    def __init__(self, path: Path) -> None:
        self._seal = AESGCM(AESGCM.generate_key(256))
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
                f"the agent's journal cannot be used: {error}",
                where=str(path),
                way_out="Name another --state-dir, or remove the file while no run uses this agent.",
            ) from error

    def highest_epoch(self, run: str) -> int | None:
        """The highest epoch that was ever admitted for `run`."""
        row = self._db.execute("SELECT highest FROM epoch WHERE run = ?", (run,)).fetchone()
        return None if row is None else int(row[0])

    def note_epoch(self, run: str, epoch: int) -> None:
        """From now on only `epoch` and higher ones are admitted for `run`; what older ones asked for is forgotten.

        So are their numbers: a signature counts for one epoch, and the clock that numbers come from may have been set back meanwhile.
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
        """What became of a key, None when it was never accepted."""
        query = "SELECT digest, outcome FROM task WHERE run = ? AND epoch = ? AND key = ?"
        row = self._db.execute(query, (run, epoch, key)).fetchone()
        if row is None:
            return None
        return Known(digest=row[0], outcome=None if row[1] is None else self._opened((run, epoch, key), row[1]))

    def accept(self, run: str, epoch: int, key: str, digest: str, sequence: int) -> None:
        """Note a key, and the number that its signature has, before its task starts."""
        self.note_sequence(run, sequence)  # first: whatever comes in between, this task is not taken twice
        self._db.execute("INSERT INTO task VALUES (?, ?, ?, ?, NULL)", (run, epoch, key, digest))

    def note_sequence(self, run: str, sequence: int) -> None:
        """Note the number of a task that is known already and was signed once more: sent again later, it is not taken for a new one."""
        query = "INSERT INTO sequence VALUES (?, ?) ON CONFLICT (run) DO UPDATE SET highest = max(highest, excluded.highest)"
        self._db.execute(query, (run, sequence))

    def highest_sequence(self, run: str) -> int:
        """The highest number of a task that was ever accepted for `run`; 0 when none was."""
        row = self._db.execute("SELECT highest FROM sequence WHERE run = ?", (run,)).fetchone()
        return 0 if row is None else int(row[0])

    def finish(self, run: str, epoch: int, outcome: TaskDone | TaskFailed) -> None:
        """Note an outcome before it is sent. WireFault when it cannot be sent at all."""
        nonce = os.urandom(NONCE_BYTES)
        data = nonce + self._seal.encrypt(nonce, codec.outcome_bytes(outcome), _place((run, epoch, outcome.key)))
        query = "UPDATE task SET outcome = ? WHERE run = ? AND epoch = ? AND key = ?"
        self._db.execute(query, (data, run, epoch, outcome.key))

    def _opened(self, of: tuple[str, int, str], sealed: bytes) -> TaskDone | TaskFailed:
        data = self._seal.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], _place(of))
        return codec.outcome_from_bytes(data)

    def blank(self) -> None:
        """A session has ended: its outcomes are no longer true, its keys stay used."""
        self._db.execute("UPDATE task SET outcome = NULL WHERE outcome IS NOT NULL")
        self._overwrite()

    def forget(self, run: str) -> None:
        """Forget the tasks of a run that is over; epoch and sequence stay, against who does not know or sends them again."""
        self._db.execute("DELETE FROM task WHERE run = ?", (run,))
        self._overwrite()

    def _overwrite(self) -> None:
        """Bring removals from the write-ahead log into the file, and empty the log."""
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def _place(of: tuple[str, int, str]) -> bytes:
    """What a sealed outcome is bound to: run, epoch and key."""
    return repr(of).encode()

"""The undo journal: every change that is (or may be) in place, with what it takes to undo it. SQLite in a directory of the agent.

Flow: `intend` before the changes of a tuning are made, one durable commit with all their originals -> `outstanding`, the last first, for
whoever undoes them -> `settle` once a change is undone. A change that is noted here may not have been made yet: undoing looks first.
What a full disk keeps from being written down of that is remembered as long as the agent lives, and written when there is room again.
The directory (0700) is made for the first change, held by one agent at a time, and removed when nothing is outstanding.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from proveout.agent.places import check_undo_journal
from proveout.agent.tasks import TaskFault
from proveout.agent.tuning.files import Original
from proveout.agent.tuning.records import change_of, change_text, original_of, original_text
from proveout.dsl.errors import ProveoutError
from proveout.dsl.plan import Tuning
from proveout.dsl.tuning.change import Change
from proveout.proto.tasks import Endpoint

FILE = "undo.sqlite"
LOCAL = "local-tuning"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS change (
  id INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL, tuning TEXT NOT NULL, operation TEXT NOT NULL, keep INTEGER NOT NULL,
  system TEXT NOT NULL,
  change TEXT NOT NULL, original TEXT NOT NULL, residue TEXT NOT NULL DEFAULT '',
  done INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS endpoint (system TEXT PRIMARY KEY, engine TEXT NOT NULL, dsn TEXT NOT NULL, provisioned INTEGER NOT NULL)
  WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A change with its original (of a file), of a tuning of a run. `residue`: why it could not be undone so far.

    `done`: the transaction that it is of has ended well; only then is it kept, if it says so.
    """

    id: int
    run: str
    tuning: str
    operation: str
    keep: bool
    system: str
    change: Change
    original: Original | None
    residue: str = ""
    done: bool = False


class Held(TaskFault):
    """Another agent has the journal, and may still undo what is in it."""


@dataclass(slots=True)
class UndoJournal:
    """The journal in `directory`. TaskFault `disk_full` when it cannot be written: then nothing may be changed."""

    directory: Path
    _db: sqlite3.Connection | None = field(default=None, init=False)
    _lock: int = field(default=-1, init=False)
    _unwritten: dict[int, str | None] = field(default_factory=dict, init=False)
    """By entry: why it could not be undone, None for one that is settled; what the disk has had no room for yet."""

    @property
    def is_there(self) -> bool:
        """Whether there is a journal, of this agent or of one that was killed."""
        return self._db is not None or (self.directory / FILE).exists()

    def intend(self, run: str, tuning: Tuning, changes: Sequence[tuple[Change, Original | None]]) -> None:
        """Note the changes of a tuning before the first of them is made; durable when it returns."""
        about = (run, tuning.name, tuning.operation, tuning.keep, tuning.system)
        rows = [(*about, change_text(change), original_text(original)) for change, original in changes]
        try:
            db = self._open()
            self._catch_up(db)
            with db:
                db.execute("BEGIN IMMEDIATE")
                insert = "INSERT INTO change (run, tuning, operation, keep, system, change, original) VALUES (?, ?, ?, ?, ?, ?, ?)"
                db.executemany(insert, rows)
        except (OSError, sqlite3.Error) as error:
            raise TaskFault(
                "disk_full",
                f"the originals cannot be kept in {self.directory}, so nothing is changed: {error}",
                way_out="free disk space there, or see that the agent may write there",
            ) from error

    def remember(self, endpoints: Sequence[Endpoint]) -> None:
        """How to reach the systems that are tuned, for an agent that has to undo it after a crash."""
        rows = [(one.system, one.engine, one.dsn, one.provisioned) for one in endpoints]
        try:
            with self._open() as db:
                db.executemany("INSERT OR REPLACE INTO endpoint VALUES (?, ?, ?, ?)", rows)
        except sqlite3.Error as error:
            raise self._fault("written", error) from error

    def endpoints(self) -> tuple[Endpoint, ...]:
        """What `remember` was told."""
        if not self.is_there:
            return ()
        rows = self._open().execute("SELECT system, engine, dsn, provisioned FROM endpoint").fetchall()
        return tuple(
            Endpoint(system=system, engine=engine, dsn=dsn, provisioned=bool(provisioned))
            for system, engine, dsn, provisioned in rows
        )

    def mark(self) -> int:
        """What `outstanding(after=…)` takes to give only what is noted from now on."""
        if not self.is_there:
            return 0
        return int(self._open().execute("SELECT coalesce(max(id), 0) FROM change").fetchone()[0])

    def outstanding(self, *, after: int = 0) -> tuple[Entry, ...]:
        """Everything that is not undone, the last first. TaskFault `disk_full` when that cannot be read."""
        if not self.is_there:
            return ()
        query = (
            "SELECT id, run, tuning, operation, keep, system, change, original, residue, done FROM change WHERE id > ? "
            "ORDER BY id DESC"
        )
        rows = self._open().execute(query, (after,)).fetchall()
        return tuple(
            Entry(
                id=number,
                run=run,
                tuning=tuning,
                operation=operation,
                keep=bool(keep),
                system=system,
                change=change_of(change),
                original=original_of(original),
                residue=self._unwritten.get(number) or residue,
                done=bool(done),
            )
            for number, run, tuning, operation, keep, system, change, original, residue, done in rows
            if self._unwritten.get(number, "") is not None
        )

    def commit(self, *, after: int) -> None:
        """The transaction that began at this mark has ended well. TaskFault `disk_full`."""
        try:
            with self._open() as db:
                db.execute("UPDATE change SET done = 1 WHERE id > ?", (after,))
        except sqlite3.Error as error:
            raise self._fault("written", error) from error

    def settle(self, entry: Entry) -> None:
        """It is undone (or somebody else's, or kept). A full disk does not stop that: it is written down when there is room."""
        self._unwritten[entry.id] = None
        self._catch_up(self._open())

    def leave(self, entry: Entry, reason: str) -> None:
        """It could not be undone; it is tried again when the agent starts, and by the next run."""
        self._unwritten[entry.id] = reason
        self._catch_up(self._open())

    def _catch_up(self, db: sqlite3.Connection) -> None:
        """Write down what there was no room for, as far as there is now."""
        with suppress(sqlite3.Error):
            for number, residue in list(self._unwritten.items()):
                if residue is None:
                    db.execute("DELETE FROM change WHERE id = ?", (number,))
                else:
                    db.execute("UPDATE change SET residue = ? WHERE id = ?", (residue, number))
                del self._unwritten[number]

    def _fault(self, what: str, error: Exception) -> TaskFault:
        return TaskFault("disk_full", f"the undo journal in {self.directory} cannot be {what}: {error}")

    @property
    def is_written(self) -> bool:
        """Whether all that was settled or left is written down."""
        if self._unwritten and self._db is not None:
            self._catch_up(self._db)
        return not self._unwritten

    def close(self) -> None:
        """Close it; with nothing outstanding the directory goes as well."""
        if self._db is None:
            return
        self._catch_up(self._db)
        empty = self._db.execute("SELECT count(*) FROM change").fetchone()[0] == 0
        self._db.close()
        self._db = None
        if empty:
            for name in (FILE, f"{FILE}-wal", f"{FILE}-shm", "lock"):
                (self.directory / name).unlink(missing_ok=True)
            with suppress(OSError):
                self.directory.rmdir()
                if (
                    self.directory.parent.name == LOCAL
                ):  # of agents that come and go: a folder that holds anything stays
                    self.directory.parent.rmdir()
                    self.directory.parent.parent.rmdir()
        os.close(self._lock)

    def _open(self) -> sqlite3.Connection:
        """TaskFault `refused` when another agent has it or others can write it, `disk_full` when it cannot be used."""
        if self._db is None:
            try:
                self._check()
                self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._lock = os.open(self.directory / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise self._fault("used", error) from error
            self._hold()
            try:
                self._db = self._connected()
            except (OSError, sqlite3.Error) as error:
                os.close(self._lock)
                raise self._fault("used", error) from error
        return self._db

    def _check(self) -> None:
        """TaskFault `refused` when others have a hand in it."""
        try:
            check_undo_journal(self.directory / FILE)
        except ProveoutError as error:
            raise TaskFault("refused", f"{error.where}: {error.what}", way_out=error.way_out) from error

    def _connected(self) -> sqlite3.Connection:
        os.close(os.open(self.directory / FILE, os.O_CREAT | os.O_RDWR, 0o600))
        # Handlers come from threads, one after the other: the agent sees to that.
        db = sqlite3.connect(self.directory / FILE, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA secure_delete = ON")
            db.executescript(_SCHEMA)
        except sqlite3.Error:
            db.close()
            raise
        return db

    def _hold(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise Held(
                "refused",
                f"another agent is tuning this host: it holds {self.directory}",
                way_out="let its run end, or give this agent a --state-dir of its own on another machine",
            ) from None

"""The undo journal: every change that is (or may be) in place, with what it takes to undo it. An SQLite file in the machine's folder (`machine`).

Flow: `open` locks it -> `intend` before the changes of a tuning are made, one durable commit with all their originals -> `outstanding`, the last
first, for undoing -> `settle` once a change is undone. A change that is noted here may not have been made yet: undoing looks first.
What a full disk keeps from being written down of that is remembered as long as the agent lives, and written when there is room again.
The directory (0700) is made for the first change, held by one agent at a time, and removed when nothing is outstanding.

No secret is written: of an endpoint only its public part (`public_dsn`) is kept, and the password comes from a session that names the system again.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from proveout.agent.daemon.tasks import TaskFault
from proveout.agent.security.path_trust import check_undo_journal
from proveout.agent.tuning.file_changes import Original
from proveout.agent.tuning.machine import BESIDE, FOLDER, LOCK, NET, FileLock, Held, Holder, held, holder_of, network
from proveout.agent.tuning.public_dsn import without_secrets
from proveout.agent.tuning.records import change_of, change_text, original_of, original_text
from proveout.core.errors import ProveoutError
from proveout.dsl.operations.change import Change, SetText
from proveout.dsl.plan.stages import Tuning
from proveout.proto.wire.tasks import Endpoint

__all__ = ["FILE", "Entry", "Held", "UndoJournal", "checked", "places_in"]

FILE = "undo.sqlite"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS change (
  id INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL, tuning TEXT NOT NULL, operation TEXT NOT NULL, keep INTEGER NOT NULL,
  system TEXT NOT NULL,
  change TEXT NOT NULL, original TEXT NOT NULL, residue TEXT NOT NULL DEFAULT '',
  done INTEGER NOT NULL DEFAULT 0,
  net TEXT NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS reached (
  run TEXT NOT NULL, system TEXT NOT NULL, engine TEXT NOT NULL, dsn TEXT NOT NULL, provisioned INTEGER NOT NULL,
  PRIMARY KEY (run, system)
) WITHOUT ROWID;
DROP TABLE IF EXISTS endpoint;
"""
_COLUMNS = "run, tuning, operation, keep, system, change, original, residue, done, net"
_INTEND = (
    "INSERT INTO change (run, tuning, operation, keep, system, change, original, net) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_ABSORB = f"INSERT INTO change ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - a constant
_DEFINITION = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = 'change'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A change with its original (of a file), of a tuning of a run. `residue`: why it could not be undone so far.

    `done`: the transaction that it is of has ended well; only then is it kept, if it says so. `net`: the network namespace of a parameter
    of the network (`machine.network`).
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
    net: str = ""


def _nothing() -> Mapping[str, Holder]:
    return {}


@dataclass(slots=True)
class UndoJournal:
    """The journal in `directory`. TaskFault `disk_full` when it cannot be written: then nothing may be changed.

    `others` gives the places (paths, devices) that other agents of the machine have changed; they are not changed again.
    """

    directory: Path
    holder: Holder = field(default_factory=Holder)
    others: Callable[[], Mapping[str, Holder]] = _nothing
    _db: sqlite3.Connection | None = field(default=None, init=False)
    _lock: FileLock | None = field(default=None, init=False)
    _unwritten: dict[int, str | None] = field(default_factory=dict, init=False)
    """By entry: why it could not be undone, None for one that is settled; what the disk has had no room for yet."""

    @property
    def is_there(self) -> bool:
        """Whether there is a journal, of this agent or of one that was killed."""
        return self._db is not None or (self.directory / FILE).exists()

    def intend(self, run: str, tuning: Tuning, changes: Sequence[tuple[Change, Original | None]]) -> None:
        """Note the changes of a tuning before the first of them is made; durable when it returns.

        TaskFault `refused` when another agent has changed the same place, `disk_full`.
        """
        about = (run, tuning.name, tuning.operation, tuning.keep, tuning.system)
        rows = [(*about, change_text(change), original_text(original), _net(change)) for change, original in changes]
        self._check_others([change for change, _ in changes])
        try:
            db = self._open()
            self._catch_up(db)
            with db:
                db.execute("BEGIN IMMEDIATE")
                db.executemany(_INTEND, rows)
        except (OSError, sqlite3.Error) as error:
            raise TaskFault(
                "disk_full",
                f"the originals cannot be kept in {self.directory}, so nothing is changed: {error}",
                way_out="free disk space there, or see that the agent may write there",
            ) from error

    def _check_others(self, changes: Sequence[Change]) -> None:
        taken = self.others()
        for net, place in ((_net(change), place) for change in changes for place in _places(change, _net(change))):
            if place in taken:
                raise TaskFault(
                    "refused",
                    f"{place.removeprefix(net)} was already changed on this machine: by {taken[place].named}",
                    way_out="hosts of one machine share its settings: let one of them set it",
                )

    def remember(self, endpoints: Sequence[Endpoint], run: str = "") -> None:
        """Where the systems are that a run tunes, without secrets, for an agent that has to undo it after a crash."""
        known = [without_secrets(one) for one in endpoints]
        rows = [(run, one.system, one.engine, one.dsn, one.provisioned) for one in known]
        try:
            with self._open() as db:
                db.executemany("INSERT OR REPLACE INTO reached VALUES (?, ?, ?, ?, ?)", rows)
        except sqlite3.Error as error:
            raise self._fault("written", error) from error

    def reached(self) -> Mapping[tuple[str, str], Endpoint]:
        """What `remember` was told: (run, system) -> endpoint without secrets, its dsn "" where that is not known."""
        if not self.is_there:
            return {}
        rows = self._open().execute("SELECT run, system, engine, dsn, provisioned FROM reached").fetchall()
        return {
            (run, system): Endpoint(system=system, engine=engine, dsn=dsn, provisioned=bool(provisioned))
            for run, system, engine, dsn, provisioned in rows
        }

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
            "SELECT id, run, tuning, operation, keep, system, change, original, residue, done, net FROM change WHERE id > ? "
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
                net=net,
            )
            for number, run, tuning, operation, keep, system, change, original, residue, done, net in rows
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

    def absorb(self, other: UndoJournal) -> None:
        """Take over what another journal, which this agent holds as well, has outstanding, and end that one."""
        try:
            theirs, ours = other.open(), self._open()
            rows = theirs.execute(f"SELECT {_COLUMNS} FROM change ORDER BY id").fetchall()  # noqa: S608 - a constant
            reached = theirs.execute("SELECT * FROM reached").fetchall()
            with ours as db:
                db.execute("BEGIN IMMEDIATE")
                db.executemany(_ABSORB, rows)
                db.executemany("INSERT OR IGNORE INTO reached VALUES (?, ?, ?, ?, ?)", reached)
            # A crash here leaves both: undoing twice does what undoing once does.
            theirs.execute("DELETE FROM change")
        except sqlite3.Error as error:
            raise self._fault("written", error) from error
        finally:
            other.close()

    def claim(self, holder: Holder) -> None:
        """Say in the lock file who holds it, and what that holder claims."""
        self.holder = holder
        try:
            if self._lock is not None:
                self._lock.write(holder)
        except OSError as error:
            raise self._fault("written", error) from error

    def close(self) -> None:
        """Close it and let it go; with nothing outstanding the directory goes as well."""
        empty = not (self.directory / FILE).exists()
        if self._db is not None:
            self._catch_up(self._db)
            empty = self._db.execute("SELECT count(*) FROM change").fetchone()[0] == 0
            self._db.close()
            self._db = None
            if empty:
                for name in (FILE, f"{FILE}-wal", f"{FILE}-shm"):
                    (self.directory / name).unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.release(remove=empty)
            self._lock = None
            if empty:
                _remove_empty(self.directory)

    def open(self) -> sqlite3.Connection:
        """Lock it and connect. Held while another agent has it, TaskFault `refused` when others can write it, `disk_full`."""
        return self._open()

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            self._check()
            lock = FileLock(self.directory / LOCK)
            try:
                if not lock.take():
                    raise held(self.directory, holder_of(self.directory))
                self._lock = lock
                lock.write(self.holder)
                self._db = self._connected()
            except (OSError, sqlite3.Error) as error:
                lock.release(remove=False)
                self._lock = None
                raise self._fault("used", error) from error
        return self._db

    def _check(self) -> None:
        """TaskFault `refused` when others have a hand in it."""
        checked(self.directory)

    def _connected(self) -> sqlite3.Connection:
        os.close(os.open(self.directory / FILE, os.O_CREAT | os.O_RDWR, 0o600))
        # Handlers come from threads, one after the other: the agent sees to that.
        db = sqlite3.connect(self.directory / FILE, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA secure_delete = ON")
            db.executescript(_SCHEMA)
            if " net TEXT" not in str(db.execute(_DEFINITION).fetchone()[0]):  # of an earlier release
                db.execute("ALTER TABLE change ADD COLUMN net TEXT NOT NULL DEFAULT ''")
        except sqlite3.Error:
            db.close()
            raise
        return db


def checked(directory: Path) -> None:
    """TaskFault `refused` when others than root and this user can write a journal in `directory`, or replace it."""
    try:
        check_undo_journal(directory / FILE)
    except ProveoutError as error:
        raise TaskFault("refused", f"{error.where}: {error.what}", way_out=error.way_out) from error


def places_in(directory: Path) -> set[str]:
    """The places (paths, devices) that the changes of another agent's journal are of."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"{(directory / FILE).as_uri()}?mode=ro", uri=True)) as db:
        rows = db.execute("SELECT change, net FROM change").fetchall()
        return {place for change, net in rows for place in _places(change_of(change), net)}
    return set()


def _places(change: Change, net: str) -> set[str]:
    path = getattr(change, "path", "")
    return {f"{net}{path}", getattr(change, "device", "")} - {""}


def _net(change: Change) -> str:
    return network() if isinstance(change, SetText) and change.path.startswith(NET) else ""


def _remove_empty(directory: Path) -> None:
    """A journal's directory, and those of the machine above it: a folder that holds anything stays."""
    with suppress(OSError):
        directory.rmdir()
        if directory.name.startswith(BESIDE):
            _remove_empty(directory.parent)
            return
        for above in (directory.parent, directory.parent.parent):
            if FOLDER not in (above.name, above.parent.name):
                return
            above.rmdir()

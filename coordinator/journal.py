"""The append-only journal of a run: what it says has happened has happened, whatever becomes of the coordinator.

Data flow: `run` appends events (live ones are refused) -> `journal.sqlite` in the run directory -> `read` by a resume,
by `runs` and by reports. SQLite in WAL mode with synchronous=FULL: an event that `append` has returned for survives a
power cut. One coordinator drives a run at a time: it holds an exclusive lock on `lock` beside the journal, which the kernel
gives up with the process, and each sitting has a higher epoch than the last, so that agents refuse a stale one. No secret
reaches a journal: events never hold endpoints.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from proveout.coordinator.eventcodec import VERSION, JournalFault, decode, encode
from proveout.dsl.errors import ProveoutError
from proveout.proto.events import LIVE_EVENTS, Event, Stamped

FILE = "journal.sqlite"
LOCK = "lock"
_SCHEMA = """
BEGIN;
CREATE TABLE IF NOT EXISTS about (version INTEGER NOT NULL, epoch INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS event (sequence INTEGER PRIMARY KEY, unix_s REAL NOT NULL, body TEXT NOT NULL);
CREATE TRIGGER IF NOT EXISTS no_update BEFORE UPDATE ON event BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER IF NOT EXISTS no_delete BEFORE DELETE ON event BEGIN SELECT RAISE(ABORT, 'append-only'); END;
COMMIT;
"""
_IS_MADE = "SELECT count(*) FROM sqlite_master WHERE name = 'event'"


class StorageFailed(ProveoutError):
    """The run directory cannot be written: most likely the disk is full."""


class RunInUse(ProveoutError):
    """Another coordinator drives the run."""


class Journal:
    """A run's journal, open for appending by the one coordinator that holds its lock. `epoch` is this sitting's."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.time) -> None:
        self._directory, self._clock = directory, clock
        self._lock = _lock(directory)
        try:
            self._database = sqlite3.connect(directory / FILE, isolation_level=None, check_same_thread=False)
            self.epoch = self._begin()
            self._sequence = self._last_sequence()
        except (sqlite3.Error, JournalFault) as fault:
            os.close(self._lock)
            raise fault if isinstance(fault, JournalFault) else _failed(directory, fault) from fault

    def _begin(self) -> int:
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.executescript(_SCHEMA)
        row = self._database.execute("SELECT version, epoch FROM about").fetchone()
        if row is None:
            self._database.execute("INSERT INTO about VALUES (?, 1)", (VERSION,))
            return 1
        _check_version(self._directory, row[0])
        self._database.execute("UPDATE about SET epoch = epoch + 1")
        return int(row[1]) + 1

    def _last_sequence(self) -> int:
        return int(self._database.execute("SELECT coalesce(max(sequence), 0) FROM event").fetchone()[0])

    def append(self, event: Event) -> Stamped:
        """Make an event part of the run. StorageFailed when it cannot be kept."""
        if isinstance(event, LIVE_EVENTS):
            raise TypeError(f"{type(event).__name__} is live; it is not journalled")
        stamped = Stamped(sequence=self._sequence + 1, unix_s=self._clock(), event=event)
        try:
            self._database.execute(
                "INSERT INTO event VALUES (?, ?, ?)", (stamped.sequence, stamped.unix_s, encode(event))
            )
        except sqlite3.Error as fault:
            raise _failed(self._directory, fault) from fault
        self._sequence += 1
        return stamped

    def live(self, event: Event) -> Stamped:
        """A live event, stamped with the number of the last one kept, and not kept."""
        return Stamped(sequence=self._sequence, unix_s=self._clock(), event=event)

    def close(self) -> None:
        """Close the file, then give up the lock. Idempotent."""
        if self._lock >= 0:
            self._database.close()
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def read(directory: Path, after: int = 0) -> tuple[Stamped, ...]:
    """All events of a run (with a number above `after`), also of one that is under way. JournalFault when there is no journal or it cannot be read."""
    if not (directory / FILE).is_file():
        raise JournalFault("there is no journal", where=str(directory), way_out="`proveout runs` lists the runs.")
    try:
        database = sqlite3.connect(f"{(directory / FILE).absolute().as_uri()}?mode=ro", uri=True)
        try:
            if not database.execute(_IS_MADE).fetchone()[0]:  # its coordinator is about to make it
                return ()
            row = database.execute("SELECT version FROM about").fetchone()
            _check_version(directory, row[0] if row else VERSION)
            query = "SELECT sequence, unix_s, body FROM event WHERE sequence > ? ORDER BY sequence"
            rows = database.execute(query, (after,)).fetchall()
        finally:
            database.close()
    except sqlite3.Error as fault:
        raise JournalFault(f"the journal cannot be read: {fault}", where=str(directory)) from fault
    return tuple(Stamped(sequence=row[0], unix_s=row[1], event=decode(row[2])) for row in rows)


def is_driven(directory: Path) -> bool:
    """Whether a coordinator drives the run right now."""
    try:
        handle = os.open(directory / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _lock(directory: Path) -> int:
    try:
        handle = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as fault:
        raise StorageFailed(f"the run directory cannot be used: {fault.strerror}", where=str(directory)) from fault
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as fault:
        owner = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(handle)
        raise RunInUse(
            f"another coordinator (pid {owner}) drives this run",
            where=str(directory),
            way_out="Wait for its end, or stop it with Ctrl-C.",
        ) from fault
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle


def _check_version(directory: Path, version: int) -> None:
    if version != VERSION:
        raise JournalFault(
            f"the journal has format {version}, this version reads format {VERSION}",
            where=str(directory),
            way_out="Use the version of proveout that made the run.",
        )


def _failed(directory: Path, fault: sqlite3.Error) -> StorageFailed:
    return StorageFailed(
        f"the journal cannot be written: {fault}",
        where=str(directory),
        way_out="Free some space there, then `proveout resume` goes on.",
    )

"""The append-only journal of a run: all events, with a hash chain over them, safe against the loss of the coordinator.

Data flow: event -> `encode` -> a row of `journal.sqlite` with the hash of the row before -> `read` -> the same
events.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeAlias, get_args

from proveout.core import linux
from proveout.core.data_classes import dataclass
from proveout.core.directories import describe, is_full, is_used_up
from proveout.core.errors import ProveoutError
from proveout.core.json_data import from_plain, to_plain
from proveout.dsl.plan.plan import Plan, to_data
from proveout.proto.events import LIVE_EVENTS, Event, RunFinished, Stamped

VERSION = 2
"""Of the journal's format."""
DEPTH_MAX = 100
"""The maximum nesting of lists and objects in an event; plans have about 20 levels."""
_TYPES: Mapping[str, type] = {kind.__name__: kind for kind in get_args(Event)}
NOT_AS_WRITTEN = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""The errors of `from_plain` for data of another form."""


class JournalFault(ProveoutError):
    """A journal that cannot be used."""


def encode(event: Event) -> str:
    """One line of JSON."""
    data = {"type": type(event).__name__, **to_plain(event)}
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False)


def decode(text: str) -> Event:
    """The event that `encode` was given. JournalFault."""
    try:
        data = load_bounded(text)
        event: Event = from_plain(_TYPES[data.pop("type")], data)
    except NOT_AS_WRITTEN as fault:
        raise _unknown("an event", fault) from fault
    return event


def load_bounded(text: str | bytes) -> Any:
    """JSON of a file that may be damaged. ValueError also when it is nested deeper than DEPTH_MAX."""
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError(f"nested deeper than {DEPTH_MAX}") from None
    level: list[Any] = [data]
    for _ in range(DEPTH_MAX):
        held = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, (dict, list)))
        level = [item for items in held for item in items if isinstance(item, (dict, list))]
        if not level:
            return data
    raise ValueError(f"nested deeper than {DEPTH_MAX}")


def recorded_plan(data: Any) -> Plan:
    """The plan that `plan.to_data(plan, positions=True)` was given. JournalFault."""
    try:
        return from_plain(Plan, _with_levels(data))
    except NOT_AS_WRITTEN as fault:
        raise _unknown("the recorded plan", fault) from fault


def _with_levels(data: Any) -> Any:
    """A recorded plan with the arrival of its ramps as levels: earlier versions recorded the two rates."""
    stages = [
        {**stage, "arrival": _level_of(stage)} if stage.get("arrival", {}).get("kind") == "ramp" else stage
        for stage in data["stages"]
    ]
    return {**data, "stages": stages}


def _level_of(stage: dict[str, Any]) -> dict[str, Any]:
    ramp, measure_s = stage["arrival"], stage["windows"]["measure_s"]
    level = {"for_s": measure_s, "at_s": [0.0, measure_s], "values": [ramp["rate_from"], ramp["rate_to"]]}
    return {"levels": [level], "of": "rate", "distribution": ramp["distribution"], "think": None, "kind": "phased"}


def plan_data(plan: Plan) -> Any:
    """The plan as `RunStarted` records it, positions and all."""
    return to_data(plan, positions=True)


def _unknown(what: str, fault: Exception) -> JournalFault:
    return JournalFault(
        f"{what} is not as this version writes it: {fault}", way_out="Use the version of proveout that made the run."
    )


HEAD_FILE = "journal.head"
_BEGIN = "0" * 64
_HEAD = re.compile(rb"([ 0-9]{12}) ([ 0-9]{12}) ([0-9a-f]{64})\n")
AS_OWNER = "Name it as the user that the run belongs to, or copy the run's directory as that user."
RESTORE = "Restore the run's directory from a copy, or run the plan again."


class JournalDamaged(JournalFault):
    """A journal whose bytes are not those that were written."""


@dataclass(frozen=True, slots=True)
class Head:
    """The newest event: its number (0: none yet) and its hash; `epoch` is that of the newest sitting."""

    sequence: int = 0
    hash: str = _BEGIN
    epoch: int = 0


def link(previous: str, sequence: int, unix_s: float, body: str) -> str:
    """The hash of an event that comes after one with the hash `previous`."""
    text = f"{previous}\n{sequence}\n{unix_s.hex()}\n{body}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def damaged(what: str, where: str, number: int = 0) -> JournalDamaged:
    """The error for a journal that was changed."""
    place = f"{where}, event {number}" if number else where
    return JournalDamaged(f"the journal is damaged: {what}", where=place, way_out=RESTORE)


# ---- the newest event --------------------------------------------------------------------------------------------


def open_head(directory: Path, head: Head) -> int:
    """A descriptor for `write_head`; the file is durable with this head in it, or not made. OSError."""
    path = directory / HEAD_FILE
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        write_head(descriptor, head)
        os.fsync(descriptor)
        folder = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError:
        if not os.fstat(descriptor).st_size:  # a full disk; an empty one counts as damage
            path.unlink()
        os.close(descriptor)
        raise
    return descriptor


def write_head(descriptor: int, head: Head) -> None:
    """Replace the record in place: it has always the same length, so that a full disk does not matter. OSError."""
    os.pwrite(descriptor, f"{head.sequence:>12} {head.epoch:>12} {head.hash}\n".encode(), 0)


def read_head(directory: Path) -> Head:
    """The newest event that the journal must have; of a journal that was copied without its head, none. JournalFault
    for that of another user, JournalDamaged for anything else."""
    path = directory / HEAD_FILE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Head()
    except PermissionError as fault:
        raise JournalFault(
            f"{HEAD_FILE} cannot be read: {fault.strerror}", where=str(path), way_out=AS_OWNER
        ) from fault
    except OSError as fault:
        raise damaged(f"{HEAD_FILE} cannot be read: {fault.strerror}", str(path)) from fault
    found = _HEAD.fullmatch(data)
    numbers = [field.lstrip() for field in found.groups()[:2]] if found else []
    if found is None or not all(text.isdigit() and str(int(text)).encode() == text for text in numbers):
        raise damaged(f"{HEAD_FILE} does not hold the number and hash of an event", str(path))
    return Head(int(numbers[0]), found[3].decode(), int(numbers[1]))


_Row: TypeAlias = tuple[int, float, str, str]
"""Number, time, event and hash."""
FILE = "journal.sqlite"
LOCK = "lock"
_SCHEMA = """
BEGIN;
CREATE TABLE IF NOT EXISTS about (version INTEGER NOT NULL, epoch INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS event
    (sequence INTEGER PRIMARY KEY, unix_s REAL NOT NULL, body TEXT NOT NULL, hash TEXT NOT NULL);
CREATE TRIGGER IF NOT EXISTS no_update BEFORE UPDATE ON event BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER IF NOT EXISTS no_delete BEFORE DELETE ON event BEGIN SELECT RAISE(ABORT, 'append-only'); END;
COMMIT;
"""
_IS_MADE = "SELECT count(*) FROM sqlite_master WHERE name = 'event'"
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
"""The last: its tables are not those that were made."""
_NO_LOG = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY})
_READS = 3
"""The number of reads of a journal under way until its head and its events match."""


class StorageFailed(JournalFault):
    """The run directory cannot be written, or on a full disk not read."""


def storage_failed(
    path: Path, fault: Exception, what: str, *, full: bool, then: str = "`proveout resume` goes on"
) -> StorageFailed:
    """The error for a file of a run that cannot be written: on a full disk with how full it is, and what to free."""
    reason = f"{what}: {getattr(fault, 'strerror', None) or fault}"
    if not full:
        return StorageFailed(reason, where=str(path), way_out=f"Make it writable; then {then}.")
    return StorageFailed(
        f"{reason} ({describe(path.parent)})",
        where=str(path),
        way_out=f"Free some space there (older runs, other programs' files), then {then}.",
    )


class RunInUse(ProveoutError):
    """Another coordinator drives the run."""


class Journal:
    """A run's journal, open for appending by the one coordinator that holds its lock. `epoch` is this sitting's."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.time) -> None:
        self._directory, self._clock = directory, clock
        self._failed: ProveoutError | None = None
        self._lock = _lock(directory)
        try:
            self._database = sqlite3.connect(directory / FILE, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as fault:
            os.close(self._lock)
            raise _failure(directory, fault) from fault
        try:
            self._head = self._begin()
            self.epoch = self._head.epoch
            self._head_file = open_head(directory, self._head)
        except BaseException as fault:
            self._database.close()
            os.close(self._lock)
            if isinstance(fault, sqlite3.Error | OSError | UnicodeError):
                raise _failure(directory, fault) from fault
            raise

    def _begin(self) -> Head:
        """Take the journal up: where it ends, with the epoch of this sitting."""
        epoch = _about(self._database, self._directory)
        if epoch is None:
            os.close(open_head(self._directory, Head(epoch=1)))
            self._pragmas()
            self._database.executescript(_SCHEMA)
            self._database.execute("INSERT INTO about VALUES (?, 1)", (VERSION,))
            return Head(epoch=1)
        head = read_head(self._directory)
        if head.epoch and epoch not in {head.epoch, head.epoch + 1}:
            raise damaged(f"epoch {epoch} is stored, and {HEAD_FILE} has {head.epoch}", str(self._directory))
        rows = _rows(self._database, self._directory, Head(), head)
        end = Head(rows[-1][0], rows[-1][3], epoch) if rows else Head(epoch=epoch)
        self._pragmas()
        if epoch != head.epoch:  # of a coordinator that ended here: two of them must not add up
            os.close(open_head(self._directory, end))
        self._database.execute("UPDATE about SET epoch = epoch + 1")
        return replace(end, epoch=epoch + 1)

    def _pragmas(self) -> None:
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")

    def append(self, event: Event) -> Stamped:
        """Make an event part of the run. StorageFailed when it cannot be kept; after one that could not, only the end
        of the run is: smaller events might find room, and a stage would have ended without its last iteration."""
        if isinstance(event, LIVE_EVENTS):
            raise TypeError(f"{type(event).__name__} is live; it is not journalled")
        if self._failed is not None and not isinstance(event, RunFinished):
            raise self._failed
        stamped = Stamped(sequence=self._head.sequence + 1, unix_s=float(self._clock()), event=event)
        body = encode(event)
        hashed = link(self._head.hash, stamped.sequence, stamped.unix_s, body)
        try:
            self._database.execute(
                "INSERT INTO event VALUES (?, ?, ?, ?)", (stamped.sequence, stamped.unix_s, body, hashed)
            )
            self._head = Head(stamped.sequence, hashed, self.epoch)
            write_head(self._head_file, self._head)
        except (sqlite3.Error, OSError) as fault:
            self._failed = _failure(self._directory, fault)
            raise self._failed from fault
        return stamped

    def live(self, event: Event) -> Stamped:
        """A live event, stamped with the number of the last one kept, and not kept."""
        return Stamped(sequence=self._head.sequence, unix_s=self._clock(), event=event)

    def close(self) -> None:
        """Close the file, then give up the lock. Idempotent."""
        if self._lock >= 0:
            self._database.close()
            os.close(self._head_file)
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(directory: Path, after: int = 0) -> tuple[Stamped, ...]:
    """All events of a run (with a number above `after`), also of one that is under way.

    JournalFault when there is no journal or it cannot be read; JournalDamaged, which is one, names the first event that
    was changed.
    """
    where = str(directory / FILE)
    found = []
    for sequence, unix_s, body, _ in _read_rows(directory, after):
        try:
            found.append(Stamped(sequence=sequence, unix_s=unix_s, event=decode(body)))
        except JournalFault as fault:
            raise JournalFault(fault.what, where=f"{where}, event {sequence}", way_out=fault.way_out) from fault
    return tuple(found)


def unchecked(directory: Path) -> str:
    """The unchecked part of a journal, for users: the end of one that was copied alone; "" when all is checked."""
    known = (directory / HEAD_FILE).exists()
    return "" if known else f"it has no {HEAD_FILE}; whether events are missing at its end was not checked"


def _read_rows(directory: Path, after: int) -> Sequence[_Row]:
    """Checked rows. The head is read first, because its event was committed before. A head that is replaced meanwhile
    is read again."""
    if not (directory / FILE).is_file():
        raise JournalFault("there is no journal", where=str(directory), way_out="`proveout runs` lists the runs.")
    try:
        with closing(_connect(directory)) as database:
            if _about(database, directory) is None:  # its coordinator is about to make it
                return ()
            for left in reversed(range(_READS)):
                try:
                    return _rows(database, directory, _before(database, after), read_head(directory))
                except JournalDamaged:
                    if not left:
                        raise
    except (sqlite3.Error, UnicodeError) as fault:  # SQLite quotes damaged bytes in its messages
        raise _failure(directory, fault, doing="read") from fault
    raise AssertionError("not reached")


def _connect(directory: Path) -> sqlite3.Connection:
    """A connection that reads. On a full or read-only disk SQLite cannot share a log; a journal that was closed well
    has none to share."""
    address = f"{(directory / FILE).absolute().as_uri()}?mode=ro"
    database = sqlite3.connect(address, uri=True)
    try:
        database.execute(_IS_MADE).fetchone()
    except sqlite3.OperationalError as fault:
        database.close()
        log = directory / f"{FILE}-wal"
        if _code(fault) not in _NO_LOG or is_driven(directory) or (log.exists() and log.stat().st_size):
            raise
        return sqlite3.connect(f"{address}&immutable=1", uri=True)
    except BaseException:
        database.close()
        raise
    return database


def _code(fault: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 when there is none."""
    return int(getattr(fault, "sqlite_errorcode", 0)) & 0xFF


def _about(database: sqlite3.Connection, directory: Path) -> int | None:
    """The epoch; None of a journal that is about to be made. JournalFault for a format of another version."""
    made = database.execute(_IS_MADE).fetchone()[0]
    found = database.execute("SELECT version, epoch FROM about").fetchall() if made else []
    if not found:
        events = made and database.execute("SELECT count(*) FROM event").fetchone()[0]
        if events or read_head(directory).sequence:
            raise damaged("its tables or its format are missing", str(directory / FILE))
        return None
    version, epoch = found[0]
    if len(found) > 1 or type(version) is not int or type(epoch) is not int:
        raise damaged("its format is not one", str(directory / FILE))
    if version != VERSION:
        raise JournalFault(
            f"the journal has format {version}, this version reads format {VERSION}",
            where=str(directory),
            way_out="Use the version of proveout that made the run.",
        )
    return epoch


def _before(database: sqlite3.Connection, after: int) -> Head:
    """The event that a reader has already, which the first of the others follows."""
    row = database.execute("SELECT hash FROM event WHERE sequence = ?", (after,)).fetchone()
    return Head(after, str(row[0])) if row else Head(after)


def _rows(database: sqlite3.Connection, directory: Path, before: Head, head: Head) -> tuple[_Row, ...]:
    """Rows that come after `before`, held against their hashes and the head. JournalDamaged names the first bad one."""
    query = "SELECT sequence, unix_s, body, hash FROM event WHERE sequence > ? ORDER BY sequence"
    found, where = tuple(database.execute(query, (before.sequence,))), str(directory / FILE)
    previous, number = before.hash, before.sequence
    for sequence, unix_s, body, stored in found:
        number += 1
        if sequence != number:
            raise damaged(f"event {number} is missing", where, number)
        if not (type(unix_s) is float and type(body) is str and link(previous, number, unix_s, body) == stored):
            raise damaged(f"event {number} is not as it was written, or one before it was exchanged", where, number)
        if number == head.sequence and stored != head.hash:
            raise damaged(f"event {number} is not the one that {HEAD_FILE} names", where, number)
        previous = stored
    if number < head.sequence:
        raise damaged(f"events {number + 1} to {head.sequence} are missing at its end", where, number + 1)
    return found


def is_driven(directory: Path) -> bool:
    """Whether a coordinator drives the run right now."""
    try:
        handle = os.open(directory / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not linux.lock(handle, shared=True)
    finally:
        os.close(handle)


def _lock(directory: Path) -> int:
    try:
        handle = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as fault:
        raise _unusable(directory, fault) from fault
    for _ in range(4):  # a process that only looks (`is_driven`) has it for an instant
        if linux.lock(handle):
            break
        time.sleep(0.02)
    else:
        owner = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(handle)
        raise RunInUse(
            f"another coordinator (pid {owner}) drives this run",
            where=str(directory),
            way_out="Wait for its end, or stop it with Ctrl-C.",
        )
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    except OSError as fault:
        os.close(handle)
        raise _unusable(directory, fault) from fault
    return handle


def _unusable(directory: Path, fault: OSError) -> StorageFailed:
    return storage_failed(directory / LOCK, fault, "the run directory cannot be used", full=is_full(fault))


def _failure(directory: Path, fault: sqlite3.Error | OSError | UnicodeError, doing: str = "written") -> ProveoutError:
    """The error for a journal that cannot be used: damaged, full, or unreadable."""
    where = directory / FILE
    if isinstance(fault, UnicodeError):
        return damaged("it cannot be read: its tables have names that are not text", str(where))
    if isinstance(fault, sqlite3.Error):
        code = _code(fault)
        if code in _DAMAGE:
            return damaged(f"it cannot be read: {fault}", str(where))
        full = code == sqlite3.SQLITE_FULL or (code in _NO_LOG and is_used_up(directory))
        if doing == "read" and not full:
            return JournalFault(f"the journal cannot be read: {fault}", where=str(where))
    else:
        full = is_full(fault)
    return storage_failed(where, fault, f"the journal cannot be {doing}", full=full)

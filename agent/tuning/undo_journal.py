"""The undo journals of a machine: each change that is, or may be, in place, with the data to undo it.

Flow: `open` locks it -> `intend` stores the changes of a tuning and their originals in one durable transaction.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, get_args

from proveout.agent.errors import TaskFault
from proveout.agent.tuning.machine import (
    BESIDE,
    FOLDER,
    LOCK,
    NET,
    FileLock,
    Held,
    Holder,
    TurnTaken,
    held,
    holder_of,
    network,
    public,
    refuse,
)
from proveout.core.data_classes import dataclass, field, record
from proveout.core.errors import ProveoutError
from proveout.core.path_trust import check_undo_journal
from proveout.dsl.operations.change import Change, SetText, WriteFile
from proveout.dsl.operations.facts import Original
from proveout.dsl.plan.stages import Tuning
from proveout.proto.wire.tasks import Endpoint

_KINDS: Mapping[str, Any] = {kind.__dataclass_fields__["kind"].default: kind for kind in get_args(Change)}


def change_text(change: Change) -> str:
    """Encode a change, without the facts before it: the original contains them."""
    data = {one.name: getattr(change, one.name) for one in dataclasses.fields(change)}
    if isinstance(change, WriteFile):
        del data["before"]
    return json.dumps(data, default=_bytes)


def change_of(text: str) -> Change:
    """Decode `change_text`. TaskFault `refused` for a kind of change that this version does not have."""
    data = json.loads(text, object_hook=_unbytes)
    kind = _KINDS.get(data["kind"])
    if kind is None:
        raise TaskFault(
            "refused",
            f"the undo journal has a change of kind {data['kind']!r}, which this version of proveout cannot undo",
            way_out="start an agent of the version that has made the change: it undoes it",
        )
    change: Change = kind(**{name: _tuples(value) for name, value in data.items()})
    return change


def _tuples(value: object) -> object:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def original_text(original: Original | None) -> str:
    """Encode the original of a file; None for a change without an original."""
    return json.dumps(None if original is None else dataclasses.asdict(original), default=_bytes)


def original_of(text: str) -> Original | None:
    """Decode `original_text`."""
    data = json.loads(text, object_hook=_unbytes)
    return None if data is None else Original(**data)


def _bytes(value: object) -> object:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode("ascii")}
    raise TypeError(f"the undo journal cannot store a {type(value).__name__}")


def _unbytes(value: dict[str, Any]) -> Any:
    return base64.b64decode(value["base64"]) if set(value) == {"base64"} else value


# An SQLite file in the folder of the machine.
#
# No secret is stored: of an endpoint only the public part (`public_dsn`). The password comes from a later session with
# the same system.

FILE = "undo.sqlite"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS change (
  id INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL, tuning TEXT NOT NULL, operation TEXT NOT NULL,
  keep INTEGER NOT NULL, system TEXT NOT NULL,
  change TEXT NOT NULL, original TEXT NOT NULL, residue TEXT NOT NULL DEFAULT '',
  done INTEGER NOT NULL DEFAULT 0,
  net TEXT NOT NULL DEFAULT '',
  fault TEXT NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS reached (
  run TEXT NOT NULL, system TEXT NOT NULL, engine TEXT NOT NULL, dsn TEXT NOT NULL, provisioned INTEGER NOT NULL,
  PRIMARY KEY (run, system)
) WITHOUT ROWID;
DROP TABLE IF EXISTS endpoint;
"""
_DEFINITION = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = 'change'"


@record
class Entry:
    """A change of a tuning of a run, with the original of a file. `residue`: why it could not be undone so far.

    `done`: its transaction has succeeded; only then does `keep` apply. `net`: network namespace of a network parameter
    (`machine.network`). `fault`: the fault that it belongs to; "" for a tuning of the run.
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
    fault: str = ""


_FIELDS = tuple(one.name for one in dataclasses.fields(Entry))
_COLUMNS = ", ".join(_FIELDS[1:])
_INSERT = f"INSERT INTO change ({_COLUMNS}) VALUES ({', '.join('?' * len(_FIELDS[1:]))})"  # noqa: S608 - constants


@dataclass(slots=True)
class UndoJournal:
    """The journal in `directory`. TaskFault `disk_full` if it cannot be written: then nothing may be changed.

    `others` returns the places (paths, devices) that other agents of the machine have changed; they must not be changed
    again.
    """

    directory: Path
    holder: Holder = field(default_factory=Holder)
    others: Callable[[], Mapping[str, Holder]] = dict
    _db: sqlite3.Connection | None = field(default=None, init=False)
    _lock: FileLock | None = field(default=None, init=False)
    _unwritten: dict[int, str | None] = field(default_factory=dict, init=False)
    """Updates that the full disk has not taken yet: entry -> why it could not be undone, None if it is settled."""

    @property
    def is_there(self) -> bool:
        """Whether there is a journal, of this agent or of a killed one."""
        return self._db is not None or (self.directory / FILE).exists()

    def intend(
        self, run: str, tuning: Tuning, changes: Sequence[tuple[Change, Original | None]], fault: str = ""
    ) -> None:
        """Store the changes of a tuning (of a fault) before the first of them is made; durable on return.

        TaskFault `refused` if another agent has changed the same place, `disk_full`.
        """
        about = (run, tuning.name, tuning.operation, tuning.keep, tuning.system)
        texts = [(change_text(change), original_text(original), _net(change)) for change, original in changes]
        rows = [(*about, change, original, "", False, net, fault) for change, original, net in texts]
        self._check_others([(net, place) for change, _, net in texts for place in _places(change, net)])
        try:
            db = self.open()
            self._flush(db)
            with db:
                db.execute("BEGIN IMMEDIATE")
                db.executemany(_INSERT, rows)
        except (OSError, sqlite3.Error) as error:
            raise TaskFault(
                "disk_full",
                f"cannot store the originals in {self.directory}, so nothing is changed: {error}",
                way_out="free disk space there, or give the agent write access",
            ) from error

    def _check_others(self, places: Iterable[tuple[str, str]]) -> None:
        taken = self.others()
        for net, place in places:
            if place in taken:
                raise TaskFault(
                    "refused",
                    f"{place.removeprefix(net)} was already changed on this machine: by {taken[place].description}",
                    way_out="the hosts of one machine share its settings: tune only one of them",
                )

    def remember(self, endpoints: Sequence[Endpoint], run: str = "") -> None:
        """Store the endpoints of tuned systems, without secrets, for an agent that undoes after a crash."""
        rows = [(run, one.system, one.engine, public(one), one.provisioned) for one in endpoints]
        with self._written() as db:
            db.executemany("INSERT OR REPLACE INTO reached VALUES (?, ?, ?, ?, ?)", rows)

    def reached(self) -> Mapping[tuple[str, str], Endpoint]:
        """The endpoints of `remember`: (run, system) -> endpoint without secrets; its dsn may be ""."""
        if not self.is_there:
            return {}
        rows = self._rows("SELECT run, system, engine, dsn, provisioned FROM reached")
        return {
            (run, system): Endpoint(system=system, engine=engine, dsn=dsn, provisioned=bool(provisioned))
            for run, system, engine, dsn, provisioned in rows
        }

    def mark(self) -> int:
        """A mark for `outstanding(after=…)`, which then returns only later changes."""
        if not self.is_there:
            return 0
        return int(self._rows("SELECT coalesce(max(id), 0) FROM change")[0][0])

    def outstanding(self, *, after: int = 0) -> tuple[Entry, ...]:
        """All changes that are not undone, the last first. TaskFault `disk_full` if the journal cannot be read."""
        if not self.is_there:
            return ()
        query = f"SELECT id, {_COLUMNS} FROM change WHERE id > ? ORDER BY id DESC"  # noqa: S608 - constants
        rows = self._rows(query, after)
        return tuple(
            Entry(
                **one
                | {"change": change_of(one["change"]), "original": original_of(one["original"])}
                | {"keep": bool(one["keep"]), "done": bool(one["done"])}
                | {"residue": self._unwritten.get(one["id"]) or one["residue"]}
            )
            for one in (dict(zip(_FIELDS, row, strict=True)) for row in rows)
            if self._unwritten.get(one["id"], "") is not None
        )

    def commit(self, *, after: int) -> None:
        """Record that the transaction after this mark has succeeded. TaskFault `disk_full`."""
        with self._written() as db:
            db.execute("UPDATE change SET done = 1 WHERE id > ?", (after,))

    def settle(self, entry: Entry) -> None:
        """Record that a change is undone, foreign or kept. On a full disk the update is written later."""
        self._unwritten[entry.id] = None
        self._flush(self.open())

    def renew(self, entry: Entry) -> None:
        """Record that a change of a network parameter is in place in the namespace of this boot too."""
        with self._written() as db:
            db.execute("UPDATE change SET net = ? WHERE id = ?", (network(), entry.id))

    def leave(self, entry: Entry, reason: str) -> None:
        """Record that a change could not be undone. The next start of the agent, and the next run, retry it."""
        self._unwritten[entry.id] = reason
        self._flush(self.open())

    def _flush(self, db: sqlite3.Connection) -> None:
        """Write the pending updates, as far as the disk has space."""
        with suppress(sqlite3.Error):
            for number, residue in list(self._unwritten.items()):
                if residue is None:
                    db.execute("DELETE FROM change WHERE id = ?", (number,))
                else:
                    db.execute("UPDATE change SET residue = ? WHERE id = ?", (residue, number))
                del self._unwritten[number]

    @contextmanager
    def _written(self) -> Iterator[sqlite3.Connection]:
        """The connection, for a write. TaskFault `disk_full`."""
        try:
            with self.open() as db:
                yield db
        except sqlite3.Error as error:
            raise self._fault("written", error) from error

    def _rows(self, query: str, *values: int) -> list[tuple[Any, ...]]:
        """The rows of a query. TaskFault `disk_full` where the file cannot be read, as one that is damaged."""
        try:
            return self.open().execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise self._fault("read", error) from error

    def _fault(self, what: str, error: Exception) -> TaskFault:
        return TaskFault("disk_full", f"the undo journal in {self.directory} cannot be {what}: {error}")

    @property
    def is_written(self) -> bool:
        """Whether no update is pending."""
        if self._unwritten and self._db is not None:
            self._flush(self._db)
        return not self._unwritten

    def absorb(self, other: UndoJournal) -> None:
        """Move the outstanding changes of another journal, which this agent holds too, into this one, and remove the
        other.
        """
        try:
            rows = other._rows(f"SELECT {_COLUMNS} FROM change ORDER BY id")  # noqa: S608 - a constant
            reached = other._rows("SELECT * FROM reached")
            with self._written() as db:
                db.execute("BEGIN IMMEDIATE")
                db.executemany(_INSERT, rows)
                db.executemany("INSERT OR IGNORE INTO reached VALUES (?, ?, ?, ?, ?)", reached)
            # A crash here leaves both: undoing twice has the same result as undoing once.
            with other._written() as theirs:
                theirs.execute("DELETE FROM change")
        finally:
            other.close()

    def claim(self, holder: Holder) -> None:
        """Write the holder and its claims to the lock file."""
        self.holder = holder
        try:
            if self._lock is not None:
                self._lock.write(holder)
        except OSError as error:
            raise self._fault("written", error) from error

    def close(self) -> None:
        """Close and unlock the journal; remove the directory if no change is outstanding."""
        empty = not (self.directory / FILE).exists()
        if self._db is not None:
            self._flush(self._db)
            empty = False
            with suppress(sqlite3.Error):  # one that cannot be read stays
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
        """Lock and open the journal.

        Held while another agent has it; TaskFault `refused` if other users can write it, `disk_full`.
        """
        if self._db is None:
            check_directory(self.directory)
            lock = FileLock(self.directory / LOCK)
            try:
                if not lock.take():
                    raise held(self.directory, holder_of(self.directory))
                self._lock = lock
                lock.write(self.holder)
                self._db = self._connected()
            except (OSError, sqlite3.Error) as error:
                lock.release(remove=not (self.directory / FILE).exists())
                self._lock = None
                with suppress(OSError):  # not empty: another agent's, or a journal that cannot be read
                    self.directory.rmdir()
                raise self._fault("used", error) from error
        return self._db

    def _connected(self) -> sqlite3.Connection:
        os.close(os.open(self.directory / FILE, os.O_CREAT | os.O_RDWR, 0o600))
        # Several threads use the connection, one after the other.
        db = sqlite3.connect(self.directory / FILE, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA secure_delete = ON")
            db.executescript(_SCHEMA)
            for later in ("net", "fault"):  # which a journal of an earlier release does not have
                if f" {later} TEXT" not in str(db.execute(_DEFINITION).fetchone()[0]):
                    db.execute(f"ALTER TABLE change ADD COLUMN {later} TEXT NOT NULL DEFAULT ''")
        except sqlite3.Error:
            db.close()
            raise
        return db


def check_directory(directory: Path) -> None:
    """TaskFault `refused` if users other than root and this one can write or replace a journal in `directory`."""
    try:
        check_undo_journal(directory / FILE)
    except ProveoutError as error:
        raise TaskFault("refused", f"{error.where}: {error.what}", way_out=error.way_out) from error


def places_in(directory: Path) -> set[str]:
    """The places (paths, devices) of the changes in another agent's journal."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"{(directory / FILE).as_uri()}?mode=ro", uri=True)) as db:
        rows = db.execute("SELECT change, net FROM change").fetchall()
        return {place for change, net in rows for place in _places(change, net)}
    return set()


def _places(text: str, net: str) -> set[str]:
    """Of a stored change, also of a kind that this version does not have."""
    data = json.loads(text)
    return {f"{net}{data.get('path', '')}", data.get("device", "")} - {""}


def _net(change: Change) -> str:
    return network() if isinstance(change, SetText) and change.path.startswith(NET) else ""


def _remove_empty(directory: Path) -> None:
    """Remove the directory of a journal, and the machine's folders above it, if they are empty."""
    with suppress(OSError):
        directory.rmdir()
        if directory.name.startswith(BESIDE):
            _remove_empty(directory.parent)
            return
        for above in (directory.parent, directory.parent.parent):
            if FOLDER not in (above.name, above.parent.name):
                return
            above.rmdir()


# The first agent uses the folder itself, further agents use `beside-N`. Flow: `Machine.turn()`, held by one agent for
# one transaction -> `Machine.open(holder)`: Held while an agent of another run has one of the claims; journals of ended
# agents are merged into the opened one -> the agent undoes the changes in it. `Machine.changed_by_others` finds places
# that other agents have changed.

TURN = "turn"


@dataclass(frozen=True, slots=True)
class Machine:
    """The journals in the folder `place`."""

    place: Path

    def directories(self) -> tuple[Path, ...]:
        """The folders with journals: `place` and those beside it, in order."""
        beside = sorted(self.place.glob(f"{BESIDE}*"), key=_number)
        return tuple(path for path in (self.place, *beside) if (path / FILE).exists())

    @contextmanager
    def turn(self, *, needed: bool = True) -> Iterator[None]:
        """Hold the turn: only one agent of the machine at a time opens journals and applies.

        TurnTaken, `disk_full` (if `needed`).
        """
        check_directory(self.place)
        lock = FileLock(self.place / TURN)
        try:
            if not lock.take():
                raise TurnTaken("refused", "another agent of this machine is applying its tunings")
        except OSError as error:
            if needed:
                _remove_empty(self.place)
                raise TaskFault("disk_full", f"cannot lock {self.place}: {error}") from error
        try:
            yield
        finally:
            lock.release(remove=True)
            _remove_empty(self.place)

    def open(self, holder: Holder) -> UndoJournal:
        """Open a journal for this holder, merged with the journals of ended agents.

        Held while another run has one of the claims.

        Call it within `turn`.
        """
        free: list[UndoJournal] = []
        try:
            for directory in self.directories():
                journal = UndoJournal(directory, holder)
                try:
                    journal.open()
                    free.append(journal)
                except Held:
                    refuse(directory, holder)
            free = free or [UndoJournal(self._new(), holder)]
            free[0].open()
            while len(free) > 1:
                free[0].absorb(free.pop(1))
        except BaseException:
            for journal in free:
                journal.close()
            raise
        return free[0]

    def widen(self, journal: UndoJournal, holder: Holder) -> None:
        """Add claims to an open journal. Held while another run has one of them. Call it within `turn`."""
        for directory in self.directories():
            if directory != journal.directory:
                refuse(directory, holder)
        journal.claim(holder)

    def _new(self) -> Path:
        """A folder without a journal."""
        taken = self.directories()
        numbers = (self.place / f"{BESIDE}{number}" for number in range(1, len(taken) + 2))
        return next(path for path in (self.place, *numbers) if path not in taken)

    def changed_by_others(self, journal: UndoJournal) -> dict[str, Holder]:
        """Outstanding changes of other journals: place (path, device) -> the holder that has changed it."""
        found: dict[str, Holder] = {}
        for directory in self.directories():
            if directory != journal.directory:
                holder = holder_of(directory)
                found |= dict.fromkeys(places_in(directory), holder)
        return found


def _number(path: Path) -> int:
    digits = path.name.removeprefix(BESIDE)
    return int(digits) if digits.isdecimal() else 0

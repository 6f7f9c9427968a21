"""The undo journal of a simulated host: the real SQLite file, on a disk that can be full, of a process that can be
killed at any step.

Data flow: `agent.tuning.undo_journal` -> `sqlite_of` and `os_of` in place of its modules `sqlite3` and `os` ->
`UndoDatabase`, which reports each commit to the `Machine`, and whether a durable entry covers a subject.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sim_threads import Killed, is_dead

from proveout.agent.tuning.undo_journal import change_of
from proveout.dsl.operations.change import Change, Command

if TYPE_CHECKING:
    from sim_machine import Machine


class Full(sqlite3.OperationalError):
    def __init__(self) -> None:
        super().__init__("database or disk is full")


class UndoDatabase:
    """The undo journal's connection, on a disk that can be full, of a process that can be killed before and after each
    commit."""

    def __init__(self, machine: Machine, path: Path) -> None:
        self._machine = machine
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._database.executescript("PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF")
        self._is_synchronous = False
        machine.journal = self
        machine.undo_commits += 1

    def execute(self, query: str, arguments: Sequence[Any] = ()) -> sqlite3.Cursor:
        if query.startswith("PRAGMA"):
            if query.startswith("PRAGMA synchronous"):
                self._is_synchronous = query.endswith("FULL")
            self._before(writes=False)
            return self._database.cursor()
        writes = query.startswith(("INSERT", "UPDATE", "DELETE"))
        self._before(writes=writes)
        cursor = self._database.execute(query, arguments)
        if query.startswith("UPDATE change SET done"):
            self._promise(*arguments)
        if writes and not self._database.in_transaction:
            self._machine.undo_commits += 1
            self._machine.threads.pause(0.002)
        return cursor

    def executemany(self, query: str, rows: Sequence[Any]) -> None:
        self._before(writes=True)
        self._machine.undo_commits += 1
        self._database.executemany(query, rows)

    def executescript(self, script: str) -> None:
        self._before(writes=True)
        self._machine.undo_commits += 1
        self._database.executescript(script)

    def __enter__(self) -> UndoDatabase:
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        if is_dead() or not self._database.in_transaction:
            return
        if kind is not None:
            self._database.rollback()
            return
        self._machine.threads.pause(0.003)
        self._database.commit()
        self._machine.undo_commits += 1
        self._machine.threads.pause(0.001)

    def close(self) -> None:
        if is_dead():
            raise Killed
        self._machine.journal = None
        self._database.close()

    def die(self) -> None:
        self._database.close()

    def _before(self, *, writes: bool) -> None:
        if is_dead():
            raise Killed
        if writes:
            self._machine.threads.pause(0.002)
            if self._machine.disk.full:
                raise Full

    def covers(self, subject: str) -> bool:
        if self._database.in_transaction or not self._is_synchronous:
            return False
        return any(subject in _subjects(text) for (text,) in self._database.execute("SELECT change FROM change"))

    def _promise(self, after: int) -> None:
        for (text,) in self._database.execute("SELECT change FROM change WHERE id > ? AND keep = 1", (after,)):
            for subject in _subjects(text):
                self._machine.promised(subject)


@dataclass(frozen=True, slots=True)
class Outstanding:
    """An entry of an undo journal: its run, the changed subject, and the reason why it is not undoable (else "")."""

    run: str
    subject: str
    residue: str


def outstanding_in(path: Path) -> list[Outstanding]:
    """Return the entries of an undo journal, which another process may have open."""
    if not path.exists():
        return []
    with contextlib.closing(sqlite3.connect(path)) as database:
        try:
            rows = database.execute("SELECT run, change, residue FROM change").fetchall()
        except sqlite3.OperationalError:  # its agent was killed before the tables existed
            return []
    return [Outstanding(run, subject, residue) for run, text, residue in rows for subject in _subjects(text)]


@functools.lru_cache(4096)
def _subjects(text: str) -> tuple[str, ...]:
    return subjects_of(change_of(text))


def subjects_of(change: Change) -> tuple[str, ...]:
    """Return the subjects of a change: a path, a unit, a system, or a program and its device."""
    if isinstance(change, Command):
        named = (*change.argv[:1], *change.undo[:1], change.device)
        return tuple(dict.fromkeys(one for one in named if one))
    return tuple(getattr(change, name) for name in ("path", "unit", "system", "device") if hasattr(change, name))


def sqlite_of(machine: Callable[[], Machine]) -> SimpleNamespace:
    """Return the replacement of the module `sqlite3` in `agent.tuning.undo_journal`."""
    return SimpleNamespace(connect=lambda path, **_more: UndoDatabase(machine(), path), Error=sqlite3.Error)


def os_of(machine: Callable[[], Machine]) -> SimpleNamespace:
    """Return the replacement of `os` in `agent.tuning.undo_journal` and `machine`: its descriptors close with their
    process, and its disk can be full."""

    def opened(path: Path, flags: int, mode: int = 0o777) -> int:
        if is_dead():
            raise Killed
        if machine().disk.full and not path.exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        descriptor = os.open(path, flags, mode)
        machine().descriptors.add(descriptor)
        return descriptor

    def close(descriptor: int) -> None:
        if is_dead():
            raise Killed
        machine().descriptors.discard(descriptor)
        os.close(descriptor)

    def written(descriptor: int, data: bytes, offset: int) -> int:
        if is_dead():
            raise Killed
        if machine().disk.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return os.pwrite(descriptor, data, offset)

    def unlink(path: Path) -> None:
        if is_dead():
            raise Killed
        path.unlink()

    return SimpleNamespace(
        open=opened,
        close=close,
        fsync=os.fsync,
        pwrite=written,
        unlink=unlink,
        stat=os.stat,
        fstat=os.fstat,
        ftruncate=os.ftruncate,
        **{name: getattr(os, name) for name in dir(os) if name.startswith("O_")},
    )

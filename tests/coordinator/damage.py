"""Kinds of damage to a stored run, as data for tests and soak commands.

Each `Damage` changes one file of a run directory whose journal was closed; it counts as detected when `journal.read`
fails with its words.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from proveout.coordinator.storage.event_chain import HEAD_FILE
from proveout.coordinator.storage.journal import FILE


@dataclass(frozen=True, slots=True)
class Damage:
    """A kind of damage: its name, a function that applies it to a run directory, and a pattern of the error."""

    name: str
    apply: Callable[[Path], None]
    words: str


def flip(path: Path, bit: int) -> None:
    """Change one bit of a file in place."""
    with path.open("r+b") as stream:
        stream.seek(bit // 8)
        byte = stream.read(1)[0]
        stream.seek(bit // 8)
        stream.write(bytes([byte ^ (1 << bit % 8)]))


def sql(*statements: str) -> Callable[[Path], None]:
    """Return a function that removes the journal's triggers and executes statements on it."""

    def apply(directory: Path) -> None:
        database = sqlite3.connect(directory / FILE, isolation_level=None)
        for statement in ("DROP TRIGGER no_update", "DROP TRIGGER no_delete", *statements):
            database.execute(statement)
        database.close()

    return apply


def written(name: str, data: bytes) -> Callable[[Path], None]:
    """Return a function that replaces the contents of a file."""

    def apply(directory: Path) -> None:
        (directory / name).write_bytes(data)

    return apply


def cut(name: str, keep: float) -> Callable[[Path], None]:
    """Return a function that truncates a file to a share of its size."""

    def apply(directory: Path) -> None:
        path = directory / name
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])

    return apply


DAMAGES: tuple[Damage, ...] = (
    Damage(
        "a number in an event", sql("UPDATE event SET body = replace(body, '7', '8') WHERE sequence = 3"), "event 3"
    ),
    Damage("the time of an event", sql("UPDATE event SET unix_s = unix_s + 1 WHERE sequence = 2"), "event 2"),
    Damage("the hash of an event", sql("UPDATE event SET hash = 'x' WHERE sequence = 2"), "event 2"),
    Damage("an event that is no text", sql("UPDATE event SET body = CAST(body AS BLOB) WHERE sequence = 2"), "event 2"),
    Damage("the first event is removed", sql("DELETE FROM event WHERE sequence = 1"), "event 1 is missing"),
    Damage("an event in the middle is removed", sql("DELETE FROM event WHERE sequence = 3"), "event 3 is missing"),
    Damage(
        "an event is removed, the others move up",
        sql("DELETE FROM event WHERE sequence = 3", "UPDATE event SET sequence = sequence - 1 WHERE sequence > 3"),
        "event 3",
    ),
    Damage("the last event is removed", sql("DELETE FROM event WHERE sequence = 5"), "event.* 5 .*missing at its end"),
    Damage("all events are removed", sql("DELETE FROM event"), "missing at its end"),
    Damage(
        "two events change places",
        sql(
            "UPDATE event SET sequence = -2 WHERE sequence = 2",
            "UPDATE event SET sequence = 2 WHERE sequence = 3",
            "UPDATE event SET sequence = 3 WHERE sequence = -2",
        ),
        "event 2",
    ),
    Damage(
        "an event is written twice",
        sql("INSERT INTO event SELECT 6, unix_s, body, hash FROM event WHERE sequence = 5"),
        "event 6",
    ),
    Damage("no format", sql("DELETE FROM about"), "format are missing"),
    Damage("the format without checks", sql("UPDATE about SET version = 1"), "format 1 does not have its columns"),
    Damage("another journal's format", sql("UPDATE about SET version = 3"), "format 3"),
    Damage("no table of events", sql("DROP TABLE event", "CREATE TABLE event (x)"), "columns"),
    Damage("an empty head", written(HEAD_FILE, b""), "journal.head"),
    Damage("a head of another journal", written(HEAD_FILE, f"{5:>12} {1:>12} {'a' * 64}\n".encode()), "event 5"),
    Damage("a head that is ahead", written(HEAD_FILE, f"{9:>12} {1:>12} {'a' * 64}\n".encode()), "events 6 to 9"),
    Damage("a journal cut in half", cut(FILE, 0.5), "."),
    Damage("a journal cut to a page", cut(FILE, 0.2), "."),
    Damage("garbage", written(FILE, b"garbage" * 1000), "cannot be read"),
)
"""Kinds of damage to a journal of five events. The pattern "." matches any error."""

"""A hash chain over a journal's events, which shows changed, removed, added or moved events.

Data flow: a row `(sequence, unix_s, body)` and the hash of the row before -> `link` -> the row's hash, stored beside
it. `follow` reads rows back and reports the first one that does not follow from those before it. The chain alone cannot
show a missing end: `journal.head` holds number and hash of the newest event. `write_head` writes it after each commit,
so a journal never has fewer events than its head. The hashes detect damage and edits of single files. A user that can
write the whole directory can compute a new chain; the audit logs of agents and coordinator (`proto.trust.audit_log`)
protect against that.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from proveout.coordinator.storage.event_codec import JournalFault
from proveout.core.data_classes import dataclass

HEAD_FILE = "journal.head"
_BEGIN = "0" * 64
_HEAD = re.compile(rb"([ 0-9]{12}) ([ 0-9]{12}) ([0-9a-f]{64})\n")
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


def hashes(rows: Iterable[tuple[int, float, str]]) -> Iterator[str]:
    """The hash of each of a journal's rows, from its first on."""
    previous = _BEGIN
    for sequence, unix_s, body in rows:
        previous = link(previous, sequence, unix_s, body)
        yield previous


def follow(rows: Iterable[tuple[Any, ...]], before: Head, head: Head, where: str) -> tuple[tuple[int, float, str], ...]:
    """Rows `(sequence, unix_s, body, hash)` that come after `before`, without their hashes. JournalDamaged names the
    first bad one."""
    previous, number = before.hash, before.sequence
    followed = []
    for sequence, unix_s, body, stored in rows:
        number += 1
        if sequence != number:
            raise damaged(f"event {number} is missing", where, number)
        if not (type(unix_s) is float and type(body) is str and link(previous, number, unix_s, body) == stored):
            raise damaged(f"event {number} is not as it was written, or one before it was exchanged", where, number)
        if number == head.sequence and stored != head.hash:
            raise damaged(f"event {number} is not the one that {HEAD_FILE} names", where, number)
        previous = stored
        followed.append((sequence, unix_s, body))
    if number < head.sequence:
        raise damaged(f"events {number + 1} to {head.sequence} are missing at its end", where, number + 1)
    return tuple(followed)


def plain_rows(rows: Iterable[tuple[Any, ...]], before: Head, where: str) -> Iterator[tuple[int, float, str]]:
    """Rows of a journal without checksums that come after `before`: only numbers and types are checked."""
    for number, (sequence, unix_s, body) in enumerate(rows, before.sequence + 1):
        if sequence != number or type(unix_s) is not float or type(body) is not str:
            raise damaged(f"event {number} is missing or not an event", where, number)
        yield sequence, unix_s, body


def damaged(what: str, where: str, number: int = 0) -> JournalDamaged:
    """The error for a journal that was changed."""
    place = f"{where}, event {number}" if number else where
    return JournalDamaged(f"the journal is damaged: {what}", where=place, way_out=RESTORE)


# ---- the newest event --------------------------------------------------------------------------------------------


def open_head(directory: Path, head: Head) -> int:
    """A descriptor for `write_head`; the file is durable with this head in it. OSError."""
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
        os.close(descriptor)
        raise
    return descriptor


def write_head(descriptor: int, head: Head) -> None:
    """Replace the record in place: it has always the same length, so that a full disk does not matter. OSError."""
    os.pwrite(descriptor, f"{head.sequence:>12} {head.epoch:>12} {head.hash}\n".encode(), 0)


def read_head(directory: Path) -> Head:
    """The newest event that the journal must have; of a journal that was copied without its head, none. JournalDamaged
    for anything else."""
    path = directory / HEAD_FILE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Head()
    except OSError as fault:
        raise damaged(f"{HEAD_FILE} cannot be read: {fault.strerror}", str(path)) from fault
    found = _HEAD.fullmatch(data)
    numbers = [field.lstrip() for field in found.groups()[:2]] if found else []
    if found is None or not all(text.isdigit() and str(int(text)).encode() == text for text in numbers):
        raise damaged(f"{HEAD_FILE} does not hold the number and hash of an event", str(path))
    return Head(int(numbers[0]), found[3].decode(), int(numbers[1]))

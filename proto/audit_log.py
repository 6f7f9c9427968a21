"""Tamper-evident log: lines of JSON, each with a hash over itself and the line before.

Flow: `AuditLog(path).note(what, …)` on agents, coordinators and the authority; `verify(path)` reads the log and reports
the first line that does not follow. A process that can write the file can write a new chain; so each side records the
other's head (`LOG/NUMBER/HASH`) when a session begins, and `verify(path, others)` compares a log with the heads in
other logs: lines cut off its end, or a new chain, are detected up to the last session with an agent or coordinator
whose log is intact.

A line: `n` from 1, `at_unix_s`, `what`, its own fields, `previous` (the hash of the line before) and `hash`, SHA-256 of
the line's canonical JSON without `hash`. The first line names the log. Lines contain no connection strings and no
secrets: tasks are named by key, kind and digest.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from proveout.core import linux
from proveout.core.data_classes import record
from proveout.core.errors import ProveoutError
from proveout.core.json_data import json_line

FILE = "audit.log"
BEGIN = "0" * 64
TAIL_BYTES = 1 << 16
TEXT_MAX = 500
HEAD = re.compile(r"([0-9a-f]{32})/(\d{1,12})/([0-9a-f]{64})")
RESERVED = frozenset({"n", "at_unix_s", "what", "previous", "hash", "log"})


class AuditFault(ProveoutError):
    """A log that does not verify, or cannot be read."""

    exit_code = 1


@record
class Head:
    """The end of a log at some time: which log, how many lines, the last one's hash."""

    log: str
    number: int
    hash: str

    def __str__(self) -> str:
        return f"{self.log}/{self.number}/{self.hash}"

    @classmethod
    def read(cls, text: str) -> Head | None:
        """From its text; None when it is none."""
        found = HEAD.fullmatch(text)
        return None if found is None else cls(log=found[1], number=int(found[2]), hash=found[3])


@record
class Verified:
    """A log that verifies: its head, and the number of heads in other logs that agree."""

    head: Head
    seen_by_others: int
    last_seen: int


class AuditLog:
    """The log in `path` (0600), made with the first note. Safe for several processes; OSError when it cannot be
    written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: tuple[tuple[int, int, int], Head] | None = None

    def note(self, what: str, **fields: str | int | float | None) -> Head:
        """Add a line; the log's head with it. Texts are cut at 500 characters."""
        with self._opened() as descriptor:
            head = _append(descriptor, self._head(descriptor), what, fields)
            self._known = _state(descriptor), head
            return head

    def head(self) -> str:
        """The head's text; of a new log, the one of its first line."""
        with self._opened() as descriptor:
            return str(self._head(descriptor))

    def sync(self) -> None:
        """Write the log to disk."""
        with self._opened() as descriptor:
            os.fsync(descriptor)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            linux.lock(descriptor, wait=True)
            yield descriptor
        finally:
            os.close(descriptor)

    def _head(self, descriptor: int) -> Head:
        """The head of the present file; of an empty one, that of the first line, which is written. A line that a crash
        has left half is removed, which a new line records.

        The lines that this object wrote are not read again: an append-only file with the same length is unchanged.
        """
        if self._known is not None and self._known[0] == _state(descriptor):
            return self._known[1]
        size = os.fstat(descriptor).st_size
        tail = os.pread(descriptor, TAIL_BYTES, max(0, size - TAIL_BYTES))
        whole = tail.rfind(b"\n") + 1
        if not whole and size > TAIL_BYTES:
            raise OSError(errno.EBADMSG, "its end is not a line of an audit log")
        torn = len(tail) - whole
        if torn:
            os.ftruncate(descriptor, size - torn)
        lines = tail[:whole].splitlines()
        if not lines:
            return _append(descriptor, Head(log=uuid.uuid4().hex, number=0, hash=BEGIN), "begin", {})
        # The head of a log that ends with this line. OSError when the line is invalid, as a damaged log must not
        # grow.
        raw = lines[-1]
        line = _line(raw)
        head = None if line is None else Head.read(f"{line.get('log')}/{line.get('n')}/{line.get('hash')}")
        if head is None:
            raise OSError(errno.EBADMSG, "its last line is not a line of an audit log")
        return _append(descriptor, head, "torn", {"bytes": torn}) if torn else head


def _line(raw: bytes) -> dict[str, Any] | None:
    """The fields of a line; None when the line is not valid, too long or nested too deep."""
    try:
        line = json.loads(raw) if len(raw) <= TAIL_BYTES else None
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None


def _state(descriptor: int) -> tuple[int, int, int]:
    """The identity of the file, and its length."""
    about = os.fstat(descriptor)
    return about.st_dev, about.st_ino, about.st_size


def _append(descriptor: int, head: Head, what: str, fields: dict[str, Any]) -> Head:
    assert not RESERVED & set(fields)  # noqa: S101 - callers use fixed names
    cut = {name: value[:TEXT_MAX] if isinstance(value, str) else value for name, value in fields.items()}
    line: dict[str, Any] = {"n": head.number + 1, "at_unix_s": round(time.time(), 3), "what": what, **cut}
    line |= {"log": head.log, "previous": head.hash}
    line["hash"] = _hash(line)
    data = json_line(line)
    if os.write(descriptor, data) < len(data):  # the next note removes the part
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return Head(log=head.log, number=head.number + 1, hash=line["hash"])


def _hash(line: dict[str, Any]) -> str:
    bare = {name: value for name, value in line.items() if name != "hash"}
    return hashlib.sha256(json.dumps(bare, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


# ---- reading it back -------------------------------------------------------------------------------------------------


def verify(path: Path, others: Iterable[Path] = ()) -> Verified:
    """Hold a log against itself, and against the heads that other logs have seen of it. AuditFault names what does not
    fit.

    Others that have never seen it are a fault as well: a new log after a removed one has another name.
    """
    others = tuple(others)
    hashes: list[str] = []
    log = ""
    for number, line in enumerate(_lines(path), 1):
        log = log or line.get("log", "")
        _check(path, number, line, log, hashes[-1] if hashes else BEGIN)
        hashes.append(line["hash"])
    if not hashes:
        raise AuditFault("the log is empty", where=str(path))
    if Head.read(f"{log}/{len(hashes)}/{hashes[-1]}") is None:
        raise AuditFault("not a line of an audit log", where=f"{path}:1")
    heads = [head for other in others for head in _heads(other) if head.log == log]
    if others and not heads:
        raise AuditFault(
            "the other logs have never seen this one",
            where=str(path),
            way_out="The log was replaced, or the other logs are unrelated: name a log of a session with this one.",
        )
    for head in heads:
        if head.number > len(hashes):
            raise AuditFault(
                f"lines are missing at its end: it has {len(hashes)}, and another log has seen {head.number}",
                where=str(path),
            )
        if hashes[head.number - 1] != head.hash:
            raise AuditFault(
                "the log was rewritten: another log has recorded another line", where=f"{path}:{head.number}"
            )
    end = Head(log=log, number=len(hashes), hash=hashes[-1])
    return Verified(head=end, seen_by_others=len(heads), last_seen=max((head.number for head in heads), default=0))


def _check(path: Path, number: int, line: dict[str, Any], log: str, previous: str) -> None:
    where = f"{path}:{number}"
    if line.get("hash") != _hash(line):
        raise AuditFault("this line was changed", where=where)
    if line.get("n") != number or line.get("previous") != previous or line.get("log") != log:
        raise AuditFault("a line was removed, added or moved before this one", where=where)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as stream:
            for number, raw in enumerate(stream, 1):
                line = _line(raw)
                if line is None or not raw.endswith(b"\n"):
                    raise AuditFault("not a line of an audit log", where=f"{path}:{number}")
                if raw != json_line(line):  # the hash is of what it means: a key that is there twice has one value
                    raise AuditFault("this line was changed", where=f"{path}:{number}")
                yield line
    except OSError as error:
        raise AuditFault(f"cannot read the log: {error.strerror}", where=str(path)) from error


def _heads(path: Path) -> Iterator[Head]:
    """The heads of other logs that this one, itself whole, has noted."""
    verify(path)
    for line in _lines(path):
        head = Head.read(str(line.get("head", "")))
        if head is not None:
            yield head

"""Clean up after a killed database server: System V shared memory, and backends that outlive their postmaster.

Flow: before it starts a server or `initdb`, the supervisor calls `note(session, entry)`, which adds a line to a file in
the session's folder -> after the server's end `clear(entry)` removes what is left of it -> when the supervisor was
killed too, the next session on the host does the same for every entry that `read(session)` gives. Only the standard
library is imported, and no pathlib: `supervisor` starts with this module.

A segment belongs to an entry when its owner is the entry's user and its key is PostgreSQL's for that data directory
(the inode number, or one of the few after it; src/backend/port/sysv_shmem.c). It is removed only when the process that
made it is gone and no process has it attached. A process belongs to an entry when it has the user, the program, and the
data directory as its working directory. The session's folder is the agent's, so the server's user cannot add an entry.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

FILE = "servers"
IPC_RMID = 0
KEYS = 64
"""The number of keys after the inode's that PostgreSQL may have tried, where other segments had the first ones."""
GONE_S = 5.0

LIBC = ctypes.CDLL(None, use_errno=True)


def entry_of(directory: str, program: str, uid: int | None) -> dict[str, Any]:
    """The entry of a server on the data in `directory`; `uid` is None for this process's own user."""
    found = os.stat(directory)  # noqa: PTH116 - pathlib costs start-up time
    return {
        "device": found.st_dev,
        "inode": found.st_ino,
        "program": program.rpartition("/")[2],
        "uid": os.geteuid() if uid is None else uid,
    }


def note(session: str, entry: dict[str, Any]) -> None:
    """Add an entry to the session's file."""
    with open(f"{session}/{FILE}", "a", encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs start-up time
        file.write(json.dumps(entry) + "\n")


def read(session: str) -> list[dict[str, Any]]:
    """The entries of a session; a line that was not written to its end is passed over."""
    try:
        with open(f"{session}/{FILE}", encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs start-up time
            lines = file.read().splitlines()
    except OSError:
        return []
    entries = []
    for line in lines:
        try:
            entries.append(json.loads(line))
        except ValueError:
            continue
    return entries


def is_noted(session: str) -> bool:
    """Whether a server was started in the session, which its supervisor had locked by then."""
    return os.path.exists(f"{session}/{FILE}")  # noqa: PTH110 - pathlib costs start-up time


def clear(entry: dict[str, Any]) -> None:
    """Kill the processes of an entry, wait for their end, and remove its shared memory.

    A killed process cannot be found by its program a moment before the kernel detaches its memory: while a segment of
    an ended process is attached, this looks again.
    """
    deadline = time.monotonic() + GONE_S
    while True:
        found = list(_processes(entry))
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        segments = _segments(entry)
        for identifier, attached in segments:
            if not attached:
                LIBC.shmctl(identifier, IPC_RMID, None)
        if not (found or any(attached for _, attached in segments)) or time.monotonic() > deadline:
            return
        time.sleep(0.005)


def _processes(entry: dict[str, Any]) -> Iterator[int]:
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib costs start-up time
        if not name.isdigit():
            continue
        try:
            if os.stat(f"/proc/{name}").st_uid != entry["uid"]:  # noqa: PTH116 - pathlib costs start-up time
                continue
            folder = os.stat(f"/proc/{name}/cwd")  # noqa: PTH116
            if (folder.st_dev, folder.st_ino) != (entry["device"], entry["inode"]):
                continue
            program = os.readlink(f"/proc/{name}/exe")  # noqa: PTH115 - pathlib costs start-up time
        except OSError:
            continue
        if program.removesuffix(" (deleted)").rpartition("/")[2] == entry["program"]:
            yield int(name)


def _segments(entry: dict[str, Any]) -> list[tuple[int, int]]:
    """Segments of an entry whose maker is gone: (identifier, number of processes that have it attached)."""
    try:
        with open("/proc/sysvipc/shm", encoding="ascii") as table:  # noqa: PTH123 - pathlib costs start-up time
            rows = [[int(word) for word in row.split()] for row in list(table)[1:]]
    except OSError:
        return []
    return [
        (identifier, attached)
        for key, identifier, _, _, creator, _, attached, owner, _, _, _, _, _, made_s, *_ in rows
        if owner == entry["uid"] and (key - entry["inode"]) % (1 << 32) < KEYS and not _lives(creator, made_s)
    ]


def _lives(pid: int, made_s: int) -> bool:
    """Whether the process that made something at `made_s` (seconds since 1970) still runs: not a zombie, and not a
    later process that was given the same number."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib costs start-up time
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return False
    started_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return fields[0] not in {b"Z", b"X"} and started_s <= made_s + 2

"""What a server says in its log, cut down to what a person needs to read.

PostgreSQL's lines look as `settings.DEFAULTS` has them written: time, `[process id]`, backend type, then `LEVEL:  text`. Pure functions
of the file's text.
"""

from __future__ import annotations

import re
from pathlib import Path

LINES_MAX = 6
TAIL_BYTES = 1 << 18
READ_BYTES_MAX = 1 << 20
PARTS = ("ERROR", "DETAIL", "CONTEXT")


def complaints(log: Path, offset: int) -> str:
    """The server's complaints since `offset`, joined by `; `; all of its words when it does not complain."""
    said = [line.partition("postmaster ")[2] or line for line in lines(log, offset)]
    chosen = [
        line for line in said if line.startswith(("FATAL", "PANIC", "HINT", "ERROR")) or "configuration file" in line
    ]
    chosen += [line for line in said if "parameter" in line and line not in chosen]
    return "; ".join((chosen or said)[:LINES_MAX])


def last_error(log: Path, backend: str) -> str:
    """The last ERROR of a kind of backend (`logical replication`) in the log's tail, with the lines that belong to it."""
    try:
        size = log.stat().st_size
    except OSError:
        return ""
    said = [line.partition(f"] {backend}")[2].partition(" ")[2] for line in lines(log, max(0, size - TAIL_BYTES))]
    starts = [index for index, text in enumerate(said) if "ERROR:" in text]
    if not starts:
        return ""
    block = [text for text in said[starts[-1] : starts[-1] + 4] if any(f"{part}:" in text for part in PARTS)]
    return "; ".join(" ".join(re.sub(rf"^.*?({'|'.join(PARTS)}):", "", text).split()) for text in block)


def size(log: Path) -> int:
    """Where the log ends now, 0 when there is none."""
    try:
        return log.stat().st_size
    except OSError:
        return 0


def lines(log: Path, offset: int) -> list[str]:
    """The log's lines from `offset` on, at most 1 MiB of them; none when there is no log."""
    try:
        with log.open("rb") as file:
            file.seek(offset)
            return file.read(READ_BYTES_MAX).decode(errors="replace").splitlines()
    except OSError:
        return []

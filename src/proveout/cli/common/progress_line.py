"""Progress of a command that reads many files: one line that is rewritten on a terminal's stderr.

There is no output elsewhere.

Data flow: the loop calls the function with the number done and the number of all -> at most ten lines a second.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY_S = 0.1
LATE_S = 0.5
"""A shorter wait shows no progress."""


@contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None]]:
    """A function that shows `12 of 340 runs read` while the block runs; the line is removed at its end."""
    moving = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    begun_s = shown_s = time.monotonic()
    shown = False

    def show(done: int, total: int) -> None:
        nonlocal shown, shown_s
        now_s = time.monotonic()
        if moving and now_s - begun_s >= LATE_S and now_s - shown_s >= EVERY_S:
            shown, shown_s = True, now_s
            sys.stderr.write(f"\r\x1b[K{done} of {total} {what}")
            sys.stderr.flush()

    try:
        yield show
    finally:
        if shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

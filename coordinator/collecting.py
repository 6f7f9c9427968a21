"""Python's garbage collector, told that a run makes many objects and hardly any garbage that only it can find.

Data flow: `run` enters `seldom()` -> thresholds for the time of the run, and what is there already is not walked -> as before at its
end. With the usual threshold of 700 objects a coordinator of a thousand agents spends a sixth of its time in the collector.
Between two iterations `give_back()` returns what the last one has used: else a long run grows with its largest iteration in each thread.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

THRESHOLDS = (50_000, 20, 20)


@contextmanager
def seldom() -> Iterator[None]:
    """Collect seldom while this lasts. May be entered again while it does: the first one out restores what it found."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def give_back() -> None:
    """Return memory that nothing uses to the machine: cycles of objects, Arrow's pool, the C library's arenas. Takes milliseconds."""
    gc.collect()
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # a C library without it
        ctypes.CDLL(None).malloc_trim(0)

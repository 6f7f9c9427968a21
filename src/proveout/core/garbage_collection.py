"""Garbage collection and memory of a long-running process that makes many objects and few reference cycles."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Collect garbage seldom: with the default threshold, a coordinator of a thousand agents spends a sixth of its time
    in the collector.

    May be nested: the first exit restores the thresholds that it found.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def release_memory() -> None:
    """Return unused memory to the operating system: cycles of objects, Arrow's pool, the C library's arenas. Takes
    milliseconds.

    Without it, a long run keeps the memory of its largest iteration in each thread.
    """
    gc.collect()
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # the C library lacks malloc_trim
        ctypes.CDLL(None).malloc_trim(0)

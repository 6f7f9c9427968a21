"""Python's garbage collector, told that a run makes many objects and hardly any garbage that only it can find.

Data flow: `run` enters `seldom()` -> thresholds for the time of the run, and what is there already is not walked -> as before at its
end. With the usual threshold of 700 objects a coordinator of a thousand agents spends a sixth of its time in the collector.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

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

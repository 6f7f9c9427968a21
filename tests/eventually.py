"""Wait in a test until something holds. One patience for all tests: `PROVEOUT_PATIENCE` seconds, 60 by default.

A wait ends as soon as it holds, so patience costs time only where a test fails. An event that has its instant is
driven by a clock of the test's own and not waited for.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = float(os.environ.get("PROVEOUT_PATIENCE", "60"))
PAUSE_S = 0.01

T = TypeVar("T")


def eventually(found: Callable[[], T], what: object) -> T:
    """Return the first true value of `found()`; fail with `what` (or with what it returns) where none comes."""
    ends_s = time.monotonic() + PATIENCE_S
    while not (value := found()):
        assert time.monotonic() < ends_s, _never(what)
        time.sleep(PAUSE_S)
    return value


async def eventually_async(found: Callable[[], T], what: object) -> T:
    """The same in an event loop that goes on meanwhile."""
    ends_s = time.monotonic() + PATIENCE_S
    while not (value := found()):
        assert time.monotonic() < ends_s, _never(what)
        await asyncio.sleep(PAUSE_S)
    return value


def _never(what: object) -> str:
    return f"not within {PATIENCE_S:g} s: {what() if callable(what) else what}"

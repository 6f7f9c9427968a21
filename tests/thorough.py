"""How much of a long test runs by default, and how to run all of it: `PROVEOUT_THOROUGH=1`, which `make soak` sets.

A test that repeats the same thing for many seeds, points or examples runs a part of them by default, the same part each
time. Such a test has the marker `thorough`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

THOROUGH = bool(os.environ.get("PROVEOUT_THOROUGH"))

T = TypeVar("T")


def count(everything: int, default: int) -> int:
    """How many repeats, seeds or examples to run."""
    return everything if THOROUGH else default


def every(step: int, points: Sequence[T]) -> Sequence[T]:
    """Every `step`-th of these points by default; the last one is always among them."""
    return points if THOROUGH else points[(len(points) - 1) % step :: step]

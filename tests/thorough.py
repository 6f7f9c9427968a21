"""The part of a long test that runs by default. `PROVEOUT_THOROUGH=1`, which `make soak` sets, runs all of it.

A test over many seeds, points or examples runs a fixed part of them by default and has the marker `thorough`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

THOROUGH = bool(os.environ.get("PROVEOUT_THOROUGH"))

T = TypeVar("T")


def count(everything: int, default: int) -> int:
    """Return the number of repeats, seeds or examples to run."""
    return everything if THOROUGH else default


def every(step: int, points: Sequence[T]) -> Sequence[T]:
    """Return every `step`-th of these points by default, always with the last one."""
    return points if THOROUGH else points[(len(points) - 1) % step :: step]

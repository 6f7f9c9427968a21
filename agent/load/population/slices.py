"""The slices of a population: which units one transaction loads, and the share of them that a host takes. Pure.

The slices of a population are always the same, however many hosts and workers load it, so that a load that was broken
off continues with other ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isqrt

SLICE_UNITS_MIN = 2_000
SLICE_UNITS_MAX = 250_000
SLICES_FACTOR = 16  # 16 √units: about 60 slices of a million units, 10,000 of the largest populations


def slices(units: int, most: int | None = None) -> list[tuple[int, int]]:
    """(first, count) of slices that cover units 1 … `units` without gap or overlap, in order; of at most `most`
    units."""
    size = min(SLICE_UNITS_MAX, max(SLICE_UNITS_MIN, SLICES_FACTOR * isqrt(units)))
    size = min(size, most or size)
    return [(first, min(size, units - first + 1)) for first in range(1, units + 1, size)]


def share_of(given: list[tuple[int, int]], begin: int, end: int, parts: int) -> list[tuple[int, int]]:
    """The slices between the `begin`th and the `end`th of `parts` equal parts; the parts together have each once."""
    return given[len(given) * begin // parts : len(given) * end // parts]


def missing(given: Iterable[tuple[int, int]], committed: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """The slices that are not within a committed range (first, units, rows)."""
    ranges = list(committed)
    for first, count in given:
        if not any(start <= first and first + count <= start + units for start, units, _ in ranges):
            yield first, count

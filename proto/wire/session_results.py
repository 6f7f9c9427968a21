"""Results about the connections of a load, and the histogram that all results have times in."""

from __future__ import annotations

from proveout.core.data_classes import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """A log-linear histogram of nanoseconds, 3 significant digits, HdrHistogram's bucket layout, sparse.

    `indices` ascending, `counts` beside them; `sum_ns`, `min_ns`, `max_ns` exact. Merging is adding.
    """

    indices: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
    sum_ns: int = 0
    min_ns: int = 0
    max_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionResult:
    """The connections of a load in its measure window.

    `connect`: times of the connects that began in it and succeeded, until the first statement could be prepared;
    `attempts`, `failed`: of all. `pool_wait`: of each transaction due in it, the wait for a connection of the pool,
    also of those that found one at once; `waited` found none. `rerun`: transactions run again after a connection was
    lost, when it was not known whether they had committed.
    """

    connect: Histogram = field(default_factory=Histogram)
    attempts: int = 0
    failed: int = 0
    pool_wait: Histogram = field(default_factory=Histogram)
    waited: int = 0
    rerun: int = 0

"""Records of the sessions of a load, merged over its workers: connects, waits for a connection, reruns.

Flow: triples of `loop.recorder` by code -> `add` -> `SessionResult` of the measure window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from proveout.agent.load.window_counts import Accumulator
from proveout.agent.load.worker_messages import CONNECTS, RERUNS, WAITS
from proveout.proto.wire import histogram
from proveout.proto.wire.results import SessionResult

Int64s = npt.NDArray[np.int64]


def joined(results: Iterable[SessionResult]) -> SessionResult:
    """The results of several workers in one."""
    parts = tuple(results)
    return SessionResult(
        connect=histogram.merge(part.connect for part in parts),
        attempts=sum(part.attempts for part in parts),
        failed=sum(part.failed for part in parts),
        pool_wait=histogram.merge(part.pool_wait for part in parts),
        waited=sum(part.waited for part in parts),
        rerun=sum(part.rerun for part in parts),
    )


class SessionRecords:
    """The records of all workers so far. `inside` tells which instants (ns) lie in the measure window."""

    def __init__(self, inside: Callable[[Int64s], npt.NDArray[np.bool_]]) -> None:
        self._inside = inside
        self._connect, self._wait = Accumulator(), Accumulator()
        self._attempts = self._failed = self._waited = self._rerun = 0

    def add(self, code: int, triples: Int64s) -> None:
        """Count triples of a code, shape (n, 3). Those that did not begin in the measure window do not count."""
        due = triples[self._inside(triples[:, 0])]
        if code == CONNECTS:
            fine = due[due[:, 1] != 0]
            self._connect.add(fine[:, 2] - fine[:, 0])
            self._attempts += len(due)
            self._failed += len(due) - len(fine)
        elif code == WAITS:
            waits_ns = due[:, 2] - due[:, 1]
            self._wait.add(waits_ns)
            self._waited += int(np.count_nonzero(waits_ns))
        elif code == RERUNS:
            self._rerun += len(due)

    def result(self) -> SessionResult:
        """The counts and times of the measure window."""
        return SessionResult(
            connect=self._connect.histogram(),
            attempts=self._attempts,
            failed=self._failed,
            pool_wait=self._wait.histogram(),
            waited=self._waited,
            rerun=self._rerun,
        )

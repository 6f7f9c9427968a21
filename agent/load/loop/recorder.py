"""Records of the hot loop: raw nanoseconds, packed once a second or earlier.

Flow: `transaction_loop` -> `times[code].extend((intended, started, ended))`, one call for each transaction -> `take()`
-> bytes of int64 triples for each code -> the agent, which bins them with numpy (`aggregator`). Times are an array in C
or, without the extension, a list: extending it by a tuple costs 50 ns and packing 20 ns, while appending to an array
costs 60 ns a number. Extending is atomic, so threads can share a recorder.

`code` is `2 * transaction number + outcome`. Errors and retries are rare, and are kept as small tuples.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from proveout.agent.load.loop.transaction_loop import Sampler, Times
from proveout.dsl.workloads.base import Outcome

ERROR_TEXTS_MAX = 10
ERROR_TEXT_LENGTH_MAX = 300
TRIPLE = 3
SECOND_NS = 1_000_000_000
LATE_NS = 100_000_000
"""A thread may add a record so long after its chunk was sent: only then is a second complete."""


class Incident(NamedTuple):
    """An error or a retry: number of the transaction, class (SQLSTATE) of an error, intended and end time (monotonic
    ns)."""

    what: Literal["error", "retry"]
    transaction: int
    code: str
    intended_ns: int
    ended_ns: int


class Recorder:
    """The records of all terminals of one worker. `committed` counts the records taken, by transaction number;
    `sampler` has the samples of late handling.

    Records on sessions are triples too. `connects`: (began, 1 or 0 for a failure, ended); `waits` for a connection of a
    pool: (transaction due, began, given); `reruns`, with an unknown outcome before: (transaction due, lost, number).
    """

    __slots__ = ("_incidents", "_texts", "committed", "connects", "reruns", "sampler", "times", "waits")

    def __init__(self, transactions: int) -> None:
        self.times = [Times() for _ in range(2 * transactions)]
        self._incidents: list[Incident] = []
        self._texts: dict[str, str] = {}
        self.committed: dict[int, int] = {}
        self.sampler = Sampler()
        self.connects, self.waits, self.reruns = Times(), Times(), Times()

    def error(self, transaction: int, code: str, text: str, intended_ns: int, ended_ns: int) -> None:
        """Record an error, and its text if it is the first of its class."""
        self._incidents.append(Incident("error", transaction, code, intended_ns, ended_ns))
        self.note(code, text)

    def note(self, code: str, text: str) -> None:
        """Keep the first text of a class of errors."""
        if code not in self._texts and len(self._texts) < ERROR_TEXTS_MAX:
            self._texts[code] = text[:ERROR_TEXT_LENGTH_MAX]

    def retry(self, transaction: int, intended_ns: int, ended_ns: int) -> None:
        """Record that a transaction is run again."""
        self._incidents.append(Incident("retry", transaction, "", intended_ns, ended_ns))

    @property
    def size_bytes(self) -> int:
        """The size of what `take` would return."""
        return 8 * sum(map(len, self.times))

    def take(self) -> dict[int, bytes]:
        """Take the records since the last call, by code: native int64, three for each transaction."""
        taken: dict[int, bytes] = {}
        for code, times in enumerate(self.times):
            if len(times):
                taken[code] = times.take()
                if code % 2 == Outcome.COMMIT:
                    number, records = code // 2, len(taken[code]) // (TRIPLE * 8)
                    self.committed[number] = self.committed.get(number, 0) + records
        return taken

    def take_incidents(self) -> list[Incident]:
        """Take the errors and retries since the last call."""
        count = len(self._incidents)
        taken = self._incidents[:count]
        del self._incidents[:count]
        return taken

    @property
    def first_errors(self) -> tuple[str, ...]:
        """The first text of each class of error, at most ten: `40P01: deadlock detected`."""
        return tuple(f"{code}: {text}" for code, text in self._texts.items())

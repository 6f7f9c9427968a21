"""The account of one terminal's commits: those acknowledged against those in the database. Pure.

Flow: a terminal's acknowledged commits are counted as they are recorded (`AcknowledgedTimes`) -> a lost connection
makes a reading due, and the running transaction one of unknown outcome -> `settle` with the number in the terminal's
row -> a `CommitReading`: the difference.

A terminal runs one transaction at a time, and its row counts the commits that the database has of it. A database that
loses commits loses the last ones. So with a = acknowledged since the last reading, u = of unknown outcome, and the row
risen by d:

    d < a           a - d acknowledged commits are lost; those of unknown outcome are not there
    a <= d <= a + u d - a of those of unknown outcome have committed
    d > a + u       d - a - u transactions have committed more often than once
"""

from __future__ import annotations

from collections.abc import Sequence

from proveout.agent.load.loop.transaction_loop import AcknowledgedTimes, Times
from proveout.core.data_classes import dataclass, field
from proveout.dsl.workloads.base import TransactionType
from proveout.dsl.workloads.commits import tracked
from proveout.proto.wire.results import CommitReading


@dataclass(slots=True)
class Tally:
    """The account of the terminal whose row is (load id, terminal).

    `due`: its row must be read before its next transaction. `count`: the number in its row at the last reading, None
    before the first; `settled`: the acknowledged commits then; `unknown`: transactions of unknown outcome since;
    `since_ns`: the last answer before the connection was lost, or else the last reading.
    """

    row: tuple[int, int]
    checked: bool = False
    """Whether a transaction that had committed is not run again."""
    due: bool = True
    count: int | None = None
    settled: int = 0
    unknown: int = 0
    since_ns: int = 0
    _counters: list[AcknowledgedTimes] = field(default_factory=list)
    _doubted_ns: int = 0
    """When the last transaction of unknown outcome began."""
    _committed_ns: int = 0
    """When the last one of them that had committed began."""
    _repeated: int = 0
    """The transactions that had committed twice at the last reading."""

    def counted(self, kind: TransactionType, times: Sequence[Times]) -> tuple[TransactionType, Sequence[Times]]:
        """A type of transactions with the statement that counts its commits, and its times for each outcome, the first
        of which counts those that are acknowledged; a type that only reads as it is."""
        made = tracked(kind, self.row)
        if made is kind:
            return kind, times
        counter = AcknowledgedTimes(times[0])
        self._counters.append(counter)
        return made, (counter, *times[1:])

    @property
    def acknowledged(self) -> int:
        """The commits that were acknowledged since the load began."""
        return sum(counter.acknowledged for counter in self._counters)

    def lose(self, answered_ns: int) -> None:
        """The connection is lost; its last answer came at `answered_ns`."""
        if not self.due:
            self.due, self.since_ns = True, max(self.since_ns, answered_ns)

    def doubt(self, started_ns: int) -> None:
        """A transaction that changes rows, and began at `started_ns`, has no answer. It keeps that instant when it is
        run again."""
        self.unknown += 1
        self._doubted_ns = started_ns

    def accepts(self, started_ns: int) -> bool:
        """Whether the transaction that began at `started_ns`, had no answer and is about to be run again has committed,
        so that it counts as it is. The caller then records it."""
        if not self.checked or started_ns != self._committed_ns:
            return False
        self._committed_ns = 0
        for counter in self._counters:
            counter.committed_ns = 0
        self.settled += 1  # its rise of the row is that of `count`
        return True

    def settle(self, found: int, at_ns: int) -> CommitReading:
        """The difference, with the number `found` in the row; the account goes on from there. The first time it only
        begins."""
        acknowledged = self.acknowledged
        reading = CommitReading(since_ns=self.since_ns, at_ns=at_ns)
        if self.count is not None:
            rise, expected = found - self.count, acknowledged - self.settled
            committed = min(max(rise - expected, 0), self.unknown)
            reading = CommitReading(
                since_ns=self.since_ns,
                at_ns=at_ns,
                lost=max(expected - rise, 0),
                unknown=self.unknown,
                unknown_committed=committed,
                duplicates=max(rise - expected - self.unknown, 0) + self._duplicates(committed),
            )
        self.count, self.settled, self.unknown = found, acknowledged, 0
        self.since_ns, self.due = at_ns, False
        return reading

    def _duplicates(self, committed: int) -> int:
        """The transactions since the last reading that had committed when they were run again, and committed again."""
        repeated = sum(counter.repeated for counter in self._counters)
        found, self._repeated = repeated - self._repeated, repeated
        if self.unknown and committed == self.unknown:
            found += self._committed_ns == self._doubted_ns  # committed again, without an answer again
            self._committed_ns = self._doubted_ns
            for counter in self._counters:
                counter.committed_ns = self._doubted_ns
        return found

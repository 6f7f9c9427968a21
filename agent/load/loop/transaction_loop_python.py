"""The inner part of the hot loop in Python; `transaction_loop_native.pyx` is the same, compiled. See
`transaction_loop`.
"""

from __future__ import annotations

import select
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from proveout.agent.engines.driver_contract import StatementFailure
from proveout.agent.load.loop.client_delays import Sampler
from proveout.dsl.workloads.base import Body

SPECULATION = 16  # transactions in a row on one connection while others wait
HELD_FROM = 8  # readable connections, see `transaction_loop`; for the compiled loop
WAIT, NEXT, SETTLE, TICK, HELD = range(5)  # results of a turn, see `transaction_loop`
RETRY, ERROR, ROLLED_BACK = 2, 3, 4  # outcomes of a failed transaction inside the load loop


ScriptStep = tuple[Any, tuple[int, ...] | None, int, int, int]


class Times(list[int]):
    """Records of one transaction type and outcome: (intended, started, ended), ns, one after the other.

    Extending is atomic.
    """

    __slots__ = ()

    def take(self) -> bytes:
        """Take the records since the last call, as native int64."""
        count = len(self)
        taken = struct.pack(f"{count}q", *self[:count])
        del self[:count]
        return taken


class AcknowledgedTimes(Times):
    """Records that go into other times, of which one terminal counts its own: `acknowledged`, and `repeated` those of a
    transaction that had committed before; it began at `committed_ns`.
    """

    __slots__ = ("_into", "acknowledged", "committed_ns", "repeated")

    def __init__(self, into: Times) -> None:
        super().__init__()
        self._into = into
        self.acknowledged = self.repeated = self.committed_ns = 0

    def extend(self, times: Any) -> None:
        """Add a record."""
        self.acknowledged += 1
        if times[1] == self.committed_ns:
            self.repeated += 1
        self._into.extend(times)


class Script:
    """The steps of a transaction on one session, between BEGIN and COMMIT or ROLLBACK.

    Each of `steps` is (prepared statement, places, keeps, least, most), see `dsl.workloads.base.Step`.
    """

    __slots__ = ("begin", "commit", "length", "rollback", "steps")

    def __init__(self, begin: Any, commit: Any, rollback: Any, steps: Sequence[ScriptStep]) -> None:
        self.begin, self.commit, self.rollback, self.steps = begin, commit, rollback, steps
        self.length = len(steps)

    def follow(self, terminal: TerminalState, session: Any) -> tuple[Any, Sequence[Any]] | None:
        """The statement after the answered one; None after the last one: then `terminal.outcome` is valid."""
        at = terminal.at
        if at > self.length:
            return None
        if at and not self._met(self.steps[at - 1], terminal, session):
            terminal.outcome, terminal.at = 1, self.length + 1
            return self.rollback, ()
        terminal.at = at + 1
        if at == self.length:
            terminal.outcome = 0
            return self.commit, ()
        prepared, places, _, _, _ = self.steps[at]
        drawn = terminal.inputs[at]
        if places is None:
            return prepared, drawn
        values = (*terminal.kept, *drawn)
        return prepared, [values[place] for place in places]

    def run(self, terminal: TerminalState, carried: bool) -> int:
        """Execute the whole transaction on the terminal's blocking session; returns its outcome. `carried`: COMMIT is
        sent with the last statement (`transaction.carries_commit`), by a session that `CarriesCommit`.
        """
        session = terminal.session
        session.execute(terminal.restart(self), ())
        while (then := self.follow(terminal, session)) is not None:
            if carried and terminal.at == self.length:
                session.execute_committing(*then)
                self.follow(terminal, session)  # for its outcome only: the transaction has ended
                break
            session.execute(*then)
        return terminal.outcome

    def _met(self, step: ScriptStep, terminal: TerminalState, session: Any) -> bool:
        """Whether the answered step had the required number of rows. Keeps the values that later steps need."""
        _, _, keeps, least, most = step
        if not least <= session.count <= most:
            return False
        if keeps:
            rows = session.rows()
            if not rows:
                return False
            terminal.kept.extend(rows[0][:keeps])
        return True


class KindState:
    """The fields of a `Kind` that the hot loop reads."""

    __slots__ = ("bare", "inputs", "least", "most", "prepared", "script", "start", "times")
    inputs: Callable[[], Any]
    start: Callable[[Any], Body]

    def __init__(self, times: Sequence[Times]) -> None:
        self.times = times
        self.prepared: Any = None
        self.bare = False
        self.least, self.most = 1, sys.maxsize
        self.script: Script | None = None


class Mix:
    """Endless draws of kinds; `batches` are arrays of their indexes, uint16."""

    __slots__ = ("_drawn",)

    def __init__(self, kinds: Sequence[Any], batches: Iterator[npt.NDArray[np.uint16]]) -> None:
        self._drawn = chain.from_iterable([kinds[i] for i in batch.tolist()] for batch in batches)

    def __iter__(self) -> Iterator[Any]:
        return self._drawn

    def __next__(self) -> Any:
        return next(self._drawn)


class TerminalState:
    """The fields of a `Terminal` that the hot loop reads and writes."""

    __slots__ = (
        "at",
        "body",
        "busy",
        "draw",
        "ended_ns",
        "fires",
        "inputs",
        "intended_ns",
        "kept",
        "kind",
        "number",
        "outcome",
        "pauses",
        "pending_ns",
        "prepared",
        "restless",
        "rolling_back",
        "session",
        "started_ns",
        "timed",
        "until_ns",
    )

    def __init__(self) -> None:
        self.session: Any = None
        self.prepared: dict[str, Any] = {}
        self.body: Body | None = None
        self.draw: Iterator[Any] = iter(())
        self.kind: Any = None
        self.inputs: Any = None
        self.at = 0
        self.kept: list[Any] = []
        self.intended_ns = self.started_ns = self.ended_ns = self.outcome = 0
        self.pending_ns = self.until_ns = self.number = 0
        self.fires: Callable[[], int] | None = None
        self.pauses: Any = None
        self.restless = self.timed = self.busy = self.rolling_back = False

    def restart(self, script: Script) -> Any:
        """Prepare for the first statement of a script; returns that statement, BEGIN."""
        self.body, self.at, self.kept = None, 0, []
        return script.begin


def first(terminal: TerminalState) -> tuple[Any, Sequence[Any]]:
    """Draw the inputs of the terminal's transaction; returns its first statement."""
    terminal.inputs = terminal.kind.inputs()
    return again(terminal)


def again(terminal: TerminalState) -> tuple[Any, Sequence[Any]]:
    """The first statement of a transaction, with the inputs drawn before (for a retry)."""
    kind, inputs = terminal.kind, terminal.inputs
    if kind.bare:
        terminal.body = None
        return kind.prepared, inputs[1]
    if kind.script is not None:
        return terminal.restart(kind.script), ()
    body = terminal.body = kind.start(inputs)
    statement, arguments = next(body)
    return terminal.prepared[statement.name], arguments


def execute(terminal: Any) -> int:
    """Execute the drawn transaction on the terminal's blocking session; its outcome. Raises StatementFailure."""
    session, kind = terminal.session, terminal.kind
    if kind.bare:
        session.execute(kind.prepared, terminal.inputs[1])
        return 0 if kind.least <= session.count <= kind.most else 1
    if kind.script is not None:
        return int(kind.script.run(terminal, terminal.carries and kind.carries_commit))
    step = kind.start(terminal.inputs).send
    statement, arguments = step(None)
    while True:
        session.execute(terminal.prepared[statement.name], arguments)
        try:
            statement, arguments = step(session)
        except StopIteration as stop:
            return int(stop.value)


def repeat(terminal: Any, is_over: Callable[[], bool], end_ns: int) -> None:
    """Transactions of a restless terminal on a blocking session, see `transaction_loop`."""
    mono = time.monotonic_ns
    while not is_over() and (now := mono()) < end_ns:
        kind = terminal.kind = next(terminal.draw)
        terminal.intended_ns = terminal.started_ns = now
        terminal.busy = True
        terminal.inputs = kind.inputs()
        outcome = execute(terminal)
        now = mono()
        if now >= end_ns:
            terminal.outcome, terminal.ended_ns = outcome, now
            return
        kind.times[outcome].extend((terminal.intended_ns, terminal.started_ns, now))
        terminal.busy = False


_UNUSED = Sampler()


def turns(terminal: TerminalState, limit_ns: int, sampler: Sampler = _UNUSED) -> int:
    """One turn of a terminal, see `transaction_loop`."""
    session, mono = terminal.session, time.monotonic_ns
    answered, left = session.receive(), SPECULATION
    while answered:
        sampler.answers += 1
        body = terminal.body
        if body is None:
            script = terminal.kind.script
            if script is None:
                outcome = 0 if terminal.kind.least <= session.count <= terminal.kind.most else 1
            elif (then := script.follow(terminal, session)) is not None:
                answered = session.exchange(*then)
                continue
            else:
                outcome = terminal.outcome
        else:
            try:
                statement, arguments = body.send(session)
            except StopIteration as stop:
                outcome = stop.value
            else:
                answered = session.exchange(terminal.prepared[statement.name], arguments)
                continue
        now = terminal.ended_ns = mono()
        if outcome > 1 or now >= limit_ns:
            terminal.outcome = outcome
            return SETTLE if outcome > 1 else TICK
        terminal.kind.times[outcome].extend((terminal.intended_ns, terminal.started_ns, now))
        left -= 1
        if not (terminal.restless and left):
            return NEXT
        terminal.kind = next(terminal.draw)
        terminal.intended_ns = terminal.started_ns = now
        answered = session.exchange(*first(terminal))
    return WAIT


def serve(epoll: select.epoll, terminals: list[Any], loop: Any) -> None:
    """Wait for readable connections of an `event_loop.PolledLoop` and give each its turn, see `transaction_loop`."""
    sampler, paced_ns = loop.sampler, loop.limit_ns
    while loop.limit_ns:
        if loop.limit_ns != paced_ns:
            paced_ns = loop.limit_ns
            sampler.pace()
        if not _batch(epoll, terminals, loop, sampler):
            return


def _batch(epoll: select.epoll, terminals: list[Any], loop: Any, sampler: Sampler) -> bool:
    """Wait once, and handle all descriptors that are readable. Returns False when the load is over."""
    sampler.left -= 1
    sampled = sampler.left <= 0
    if sampled:
        sampler.calls()
    loop.schedule.arm(loop.limit_ns)
    ready = epoll.poll()
    if sampler.left <= 1:
        sampler.returns(sampled=sampled)
    if sampled:
        sampler.thin(len(ready))
    for index, (fd, _) in enumerate(ready):
        terminal = terminals[fd] if fd < len(terminals) else None
        if terminal is None:
            loop.woken(fd)
            continue
        try:
            if sampled and sampler.chosen(index):
                end = _sampled_turn(terminal, loop.limit_ns, sampler, (fd, index, len(ready)))
            else:
                end = turns(terminal, loop.limit_ns, sampler)
            if end != WAIT and not loop.ended(terminal, end):
                return False
        except StatementFailure as failure:
            loop.failed(terminal, failure)
    return True


def _sampled_turn(terminal: Any, limit_ns: int, sampler: Sampler, place: tuple[int, int, int]) -> int:
    """A turn whose lateness is kept; `place`: descriptor, its index in the batch, and the length of the batch."""
    now, before = time.monotonic_ns(), sampler.answers
    late_ns = sampler.late_ns(*place, now)
    end = turns(terminal, limit_ns, sampler)
    if sampler.answers > before:  # else a part of an answer has arrived
        sampler.add(now, late_ns, sampler.answers - before - 1)
    return end

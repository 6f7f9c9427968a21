"""The hot loop's inner part in Python; `turns_native.pyx` is the same compiled. See `turns`."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from proveout.agent.load.turn_ends import NEXT, SETTLE, SPECULATION, TICK, WAIT
from proveout.dsl.workloads.base import Body


class Times(list[int]):
    """Records of one transaction type and outcome: (intended, started, ended), ns, one after the other. Extending is atomic."""

    __slots__ = ()

    def take(self) -> bytes:
        """What was recorded since the last time, as native int64."""
        count = len(self)
        taken = struct.pack(f"{count}q", *self[:count])
        del self[:count]
        return taken


class KindState:
    """What the hot loop reads of a `Kind`."""

    __slots__ = ("bare", "inputs", "prepared", "start", "times")
    inputs: Callable[[], Any]
    start: Callable[[Any], Body]

    def __init__(self, times: Sequence[Times]) -> None:
        self.times = times
        self.prepared: Any = None
        self.bare = False


class TerminalState:
    """What the hot loop reads and writes of a `Terminal`."""

    __slots__ = (
        "body",
        "draw",
        "ended_ns",
        "inputs",
        "intended_ns",
        "kind",
        "outcome",
        "prepared",
        "restless",
        "session",
        "started_ns",
    )

    def __init__(self) -> None:
        self.session: Any = None
        self.prepared: dict[str, Any] = {}
        self.body: Body | None = None
        self.draw: Iterator[Any] = iter(())
        self.kind: Any = None
        self.inputs: Any = None
        self.intended_ns = self.started_ns = self.ended_ns = self.outcome = 0
        self.restless = False


def turns(terminal: TerminalState, limit_ns: int) -> int:
    """See `turns`."""
    session, mono = terminal.session, time.monotonic_ns
    answered, left = session.receive(), SPECULATION
    while answered:
        body = terminal.body
        if body is None:
            outcome = 0 if session.count else 1
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
        kind = terminal.kind = next(terminal.draw)
        terminal.intended_ns = terminal.started_ns = now
        inputs = terminal.inputs = kind.inputs()
        if kind.bare:
            terminal.body = None
            answered = session.exchange(kind.prepared, inputs[1])
        else:
            body = terminal.body = kind.start(inputs)
            statement, arguments = next(body)
            answered = session.exchange(terminal.prepared[statement.name], arguments)
    return WAIT

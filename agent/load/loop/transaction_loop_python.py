"""The hot loop's inner part in Python; `turns_native.pyx` is the same compiled. See `turns`."""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from proveout.agent.engines.driver_contract import StatementFailure
from proveout.agent.load.loop.turn_ends import NEXT, SETTLE, SPECULATION, TICK, WAIT
from proveout.dsl.workloads.base import Body


class Loop(Protocol):
    """What `serve` asks of the engine."""

    limit_ns: int

    def woken(self, fd: int) -> None:
        """Something else than a session is readable."""
        ...

    def ended(self, terminal: Any, end: int) -> bool:
        """A turn has ended otherwise than with WAIT; False when the load is over."""
        ...

    def failed(self, terminal: Any, failure: StatementFailure) -> None:
        """A turn raised it."""
        ...


ScriptStep = tuple[Any, tuple[int, ...] | None, int, int, int]


class Times(list[int]):
    """Records of one transaction type and outcome: (intended, started, ended), ns, one after the other. Extending is atomic."""

    __slots__ = ()

    def take(self) -> bytes:
        """What was recorded since the last time, as native int64."""
        count = len(self)
        taken = struct.pack(f"{count}q", *self[:count])
        del self[:count]
        return taken


class Script:
    """The steps of a transaction on one session, between BEGIN and COMMIT or ROLLBACK.

    `steps` have (prepared statement, places, keeps, least, most) each, as `dsl.workloads.base.Step` says.
    """

    __slots__ = ("begin", "commit", "length", "rollback", "steps")

    def __init__(self, begin: Any, commit: Any, rollback: Any, steps: Sequence[ScriptStep]) -> None:
        self.begin, self.commit, self.rollback, self.steps = begin, commit, rollback, steps
        self.length = len(steps)

    def follow(self, terminal: TerminalState, session: Any) -> tuple[Any, Sequence[Any]] | None:
        """The statement after the one that was answered; None when that was the last one: then `terminal.outcome` stands."""
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

    def _met(self, step: ScriptStep, terminal: TerminalState, session: Any) -> bool:
        """Whether the answered step had the rows it needs; keeps of them what later ones need."""
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
    """What the hot loop reads of a `Kind`."""

    __slots__ = ("bare", "inputs", "prepared", "script", "start", "times")
    inputs: Callable[[], Any]
    start: Callable[[Any], Body]

    def __init__(self, times: Sequence[Times]) -> None:
        self.times = times
        self.prepared: Any = None
        self.bare = False
        self.script: Script | None = None


class TerminalState:
    """What the hot loop reads and writes of a `Terminal`."""

    __slots__ = (
        "at",
        "body",
        "draw",
        "ended_ns",
        "inputs",
        "intended_ns",
        "kept",
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
        self.at = 0
        self.kept: list[Any] = []
        self.intended_ns = self.started_ns = self.ended_ns = self.outcome = 0
        self.restless = False

    def restart(self, script: Script) -> Any:
        """Before the first statement of a script, which is returned: BEGIN."""
        self.body, self.at, self.kept = None, 0, []
        return script.begin


def first(terminal: TerminalState) -> tuple[Any, Sequence[Any]]:
    """Draw the inputs of the terminal's transaction; its first statement."""
    terminal.inputs = terminal.kind.inputs()
    return again(terminal)


def again(terminal: TerminalState) -> tuple[Any, Sequence[Any]]:
    """The first statement of a transaction on the inputs that were drawn for it."""
    kind, inputs = terminal.kind, terminal.inputs
    if kind.bare:
        terminal.body = None
        return kind.prepared, inputs[1]
    if kind.script is not None:
        return terminal.restart(kind.script), ()
    body = terminal.body = kind.start(inputs)
    statement, arguments = next(body)
    return terminal.prepared[statement.name], arguments


def turns(terminal: TerminalState, limit_ns: int) -> int:
    """See `turns`."""
    session, mono = terminal.session, time.monotonic_ns
    answered, left = session.receive(), SPECULATION
    while answered:
        body = terminal.body
        if body is None:
            script = terminal.kind.script
            if script is None:
                outcome = 0 if session.count else 1
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


def serve(epoll: select.epoll, terminals: dict[int, Any], loop: Loop) -> None:
    """See `turns`."""
    poll, terminal_of = epoll.poll, terminals.get
    while loop.limit_ns:
        for fd, _ in poll():
            terminal = terminal_of(fd)
            if terminal is None:
                loop.woken(fd)
                continue
            try:
                end = turns(terminal, loop.limit_ns)
                if end != WAIT and not loop.ended(terminal, end):
                    return
            except StatementFailure as failure:
                loop.failed(terminal, failure)

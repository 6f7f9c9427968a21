"""The event loop of a load whose terminals keep no connection: a transaction borrows one, and gives it back at its end.

Flow of a transaction: due -> a `Connection`: a free one of the pool, or the terminal's own; when there is none the
terminal waits in a queue, first come, first served -> the connection is made if it is new, lost, or has run
`connect_every` transactions -> the transaction, as in `event_loop` -> back to the first waiting terminal, or among the
free ones. The wait and the connect are inside the response time, and are recorded apart.
"""

from __future__ import annotations

import contextlib
import select
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from proveout.agent.engines.driver_contract import StatementFailure
from proveout.agent.load.loop.event_loop import PolledLoop
from proveout.agent.load.loop.reconnect import Opened, pause_ns
from proveout.agent.load.loop.terminal import Terminal
from proveout.agent.load.loop.transaction_loop import again, first


class Connection:
    """A place for one connection. `used` counts its transactions; `borrower` has it now. `session` is None before it
    is made, and after it was lost or has run its transactions."""

    __slots__ = ("borrower", "connects", "fd", "number", "prepared", "session", "used")

    def __init__(self, number: int) -> None:
        self.number = number
        self.borrower: Terminal | None = None
        self.session: Any = None
        self.prepared: dict[str, Any] = {}
        self.fd = -1
        self.used = self.connects = 0

    def hold(self, opened: Opened) -> None:
        """Use a new session with its prepared statements."""
        self.session, self.prepared = opened
        self.fd, self.used = self.session.fileno(), 0


class SessionLoop(PolledLoop):
    """The load of one worker on connections that are lent. For one run; then call `close`.

    `pool`: the connections of all terminals; without, `own` are those of each terminal, in order.
    """

    def __init__(self, *, pool: Sequence[Connection] = (), own: Sequence[Connection] = (), **common: Any) -> None:
        self._pooled = bool(pool)
        self._connections = [*pool, *own]
        self._free = deque(pool)
        self._queue: deque[Terminal] = deque()
        self._borrowed: dict[int, Connection] = {}
        self._idle: dict[int, Connection] = {}
        self._settling: dict[int, Terminal] = {}
        super().__init__(**common)
        for terminal in self._all:
            terminal.restless = terminal.timed = False
        self._own = {} if pool else dict(zip((terminal.number for terminal in self._all), own, strict=True))

    # ---- borrowing ---------------------------------------------------------------------------------------------------

    def _begin(self, terminal: Terminal, intended_ns: int, now: int) -> None:
        terminal.kind = terminal.next_kind()
        terminal.intended_ns, terminal.started_ns = intended_ns, now
        terminal.inputs, terminal.busy = None, True
        if not self._pooled:
            self._lend(terminal, self._own[terminal.number])
        elif self._free:
            self._recorder.waits.extend((intended_ns, now, now))
            self._lend(terminal, self._free.popleft())
        else:
            self._queue.append(terminal)

    def _lend(self, terminal: Terminal, connection: Connection) -> None:
        """Give a connection to a terminal, and begin its transaction, or continue it after a lost connection."""
        self._borrowed[terminal.number] = connection
        connection.borrower = terminal
        if connection.session is None:
            self._connect(connection)
            return
        self._idle.pop(connection.fd, None)
        terminal.session, terminal.prepared, terminal.fd = connection.session, connection.prepared, connection.fd
        terminal.kind.bind(connection.prepared)
        self._terminals[connection.fd] = terminal
        self._settling[connection.fd] = terminal
        begun = terminal.inputs is not None
        terminal.session.send(*(again(terminal) if begun else first(terminal)))

    def _connect(self, connection: Connection) -> None:
        """Request a session. When it is for one transaction, only the statements of that are prepared."""
        assert connection.borrower is not None  # noqa: S101 - it is lent
        one = self._sessions.connect_every == 1
        self._reconnector.request(connection, *((connection.borrower.kind.number,) if one else ()))

    def _give_back(self, terminal: Terminal) -> None:
        """Take a connection back at the end of a transaction, and lend it to the first terminal that waits."""
        connection = self._borrowed.pop(terminal.number, None)
        if connection is None:
            return
        terminal.session, connection.borrower = None, None
        connection.used += 1
        if connection.session is not None:
            self._terminals.pop(connection.fd, None)
            self._settling.pop(connection.fd, None)
            if 0 < self._sessions.connect_every <= connection.used:
                self._forget(connection)
            else:
                self._idle[connection.fd] = connection
        if self._pooled:
            self._pass_on(connection)

    def _pass_on(self, connection: Connection) -> None:
        if not self._queue:
            self._free.append(connection)
            return
        following = self._queue.popleft()
        self._recorder.waits.extend((following.intended_ns, following.started_ns, time.monotonic_ns()))
        with self._failing(following):
            self._lend(following, connection)

    def _forget(self, connection: Connection) -> None:
        """Close a connection."""
        self._idle.pop(connection.fd, None)
        with contextlib.suppress(OSError, ValueError):  # the client library may have closed it already
            self._epoll.unregister(connection.fd)
        connection.session.close()
        connection.session = None

    # ---- the end of a transaction ------------------------------------------------------------------------------------

    def _continue(self, terminal: Terminal, now: int) -> None:
        self._give_back(terminal)
        super()._continue(terminal, now)

    def _continue_pass(self, terminal: Terminal, now: int) -> None:
        self._give_back(terminal)
        super()._continue_pass(terminal, now)

    def _rest(self, terminal: Terminal, now: int) -> None:
        self._give_back(terminal)
        super()._rest(terminal, now)

    def resume(self, terminal: Terminal, now: int) -> None:
        """As in `PolledLoop`; a terminal that waits for a connection has that requested again."""
        connection = self._borrowed.get(terminal.number)
        if connection is not None:  # in the pause before it connects again
            self._pausing.pop(terminal.number, None)
            self._connect(connection)
            return
        with self._failing(terminal):
            self._go(terminal, now)

    def woken(self, fd: int) -> None:
        """A descriptor that no transaction waits on is readable: the server has closed a connection that is free."""
        if (connection := self._idle.get(fd)) is not None:
            self._forget(connection)
        else:
            super().woken(fd)

    # ---- connections that are lost, or made --------------------------------------------------------------------------

    def _drop(self, terminal: Terminal) -> None:
        connection = self._borrowed[terminal.number]
        self._terminals.pop(connection.fd, None)
        self._settling.pop(connection.fd, None)
        terminal.session = None
        self._forget(connection)

    def _after_error(self, terminal: Terminal, now: int) -> None:
        self._give_back(terminal)
        super()._after_error(terminal, now)

    def _unconnected(self, owner: Any, failure: StatementFailure, now: int) -> None:
        """An attempt to connect has failed: it is an error of the transaction, or it is repeated after a pause."""
        terminal = owner.borrower
        terminal.connects += 1
        if self._sessions.on_disconnect == "fail":
            self._fail(failure, now)
        elif self._sessions.on_disconnect == "retry":
            self._recorder.note(failure.code, failure.what)
            self._pausing[terminal.number] = terminal
            self._pause(terminal, now + pause_ns(terminal))
        else:
            self._recorder.error(terminal.kind.number, failure.code, failure.what, terminal.intended_ns, now)
            self._after_error(terminal, now)

    def _connected(self, owner: Any, opened: Opened, now: int) -> None:
        terminal = owner.borrower
        terminal.connects = 0
        owner.hold(opened)
        self._register(owner)
        with self._failing(terminal):
            self._lend(terminal, owner)

    def _register(self, connection: Connection) -> None:
        self._epoll.register(connection.fd, select.EPOLLIN)
        self.sampler.watch(connection.fd)

    def _watch_all(self) -> None:
        for connection in self._connections:
            if connection.session is not None:
                self._register(connection)
                self._idle[connection.fd] = connection

    # ---- the end of the load -----------------------------------------------------------------------------------------

    def _unanswered(self) -> dict[int, Terminal]:
        """As in `PolledLoop`; a terminal that gets a connection during the wait at the end joins them."""
        self._settling = super()._unanswered()
        return self._settling

    def _close_sessions(self) -> None:
        for connection in self._connections:
            if connection.session is not None:
                connection.session.close()

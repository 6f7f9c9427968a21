"""The sampled lateness of answers compared with the true one, which a server on this machine writes into its answers."""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from proveout.agent.engines.driver_contract import StatementFailure
from proveout.agent.load.loop import handling
from proveout.agent.load.loop.arrival_schedule import Schedule
from proveout.agent.load.loop.transaction_loop import TICK

pytestmark = pytest.mark.slow

CONNECTIONS = 64
SPIN_NS = 20_000
LOAD_S = 1.0
BELOW = {"AF_INET": 0.1, "AF_UNIX": 0.35}
"""The largest shortfall of the samples' mean lateness against the true one: with receive time stamps, and estimated."""
ABOVE = {"AF_INET": 0.1, "AF_UNIX": 3.0}
"""The largest excess: beside other busy processes the estimate counts waits for a CPU that delayed no answer."""
WAY_NS = 100_000
"""The transfer of an answer to this process, which the server counts as lateness, plus the cost of the measurement."""
LOOPS = {
    "compiled": "proveout.agent.load.loop.transaction_loop_native",
    "python": "proveout.agent.load.loop.transaction_loop_python",
}
SERVER = """
import contextlib, os, select, socket, struct, sys, time
with contextlib.suppress(PermissionError):
    os.nice(-15)  # seldom interrupted between the clock and the send
family, address, count, together = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "together"
listener = socket.socket(getattr(socket, family))
listener.bind(("127.0.0.1", 0) if family == "AF_INET" else address)
listener.listen(count)
print(listener.getsockname()[1] if family == "AF_INET" else 0, flush=True)
clients = {}
while len(clients) < count:
    client, _ = listener.accept()
    clients[client.fileno()] = client
poll = select.poll()
for fd in clients:
    poll.register(fd, select.POLLIN)
waiting = []
while True:
    for fd, _ in poll.poll():
        try:
            asked_more = clients[fd].recv(100)
        except ConnectionResetError:
            asked_more = b""
        if not asked_more:
            sys.exit()
        waiting.append(clients[fd])
    if together and len(waiting) < count:
        continue
    for client in waiting:
        client.send(struct.pack("q", time.monotonic_ns()))
    waiting.clear()
"""


class Session:
    """A connection to the server above; `handled` has when each answer was handled, and how long after its
    departure, ns.
    """

    def __init__(self, connection: socket.socket, spin_ns: int) -> None:
        self.count = 1
        self._connection, self._spin_ns = connection, spin_ns
        connection.setblocking(False)
        self.handled: list[tuple[int, int]] = []

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, prepared: Any, arguments: Any) -> None:
        self._connection.send(b"?")

    def receive(self) -> bool:
        now = time.monotonic_ns()
        try:
            answer = self._connection.recv(100)
        except BlockingIOError:
            return False
        if not answer:
            raise AssertionError("the server has ended")
        self.handled.append((now, now - struct.unpack("q", answer)[0]))
        while time.monotonic_ns() < now + self._spin_ns:
            pass
        return True


class Load:
    """The part of a load loop that `serve` calls: each connection sends its next request when it has its answer."""

    def __init__(self, sampler: Any, end_ns: int) -> None:
        self._end_ns = end_ns
        self.sampler, self.schedule, self.t0_ns = sampler, Schedule(), 0
        self.limit_ns = time.monotonic_ns() + 100_000_000

    def woken(self, fd: int) -> None:
        raise AssertionError(f"descriptor {fd} is not a connection")

    def failed(self, terminal: Any, failure: StatementFailure) -> None:
        raise failure

    def ended(self, terminal: Any, end: int) -> bool:
        if end == TICK:
            self.limit_ns = min(terminal.ended_ns + 100_000_000, self._end_ns)
            if terminal.ended_ns >= self._end_ns:
                return False
        terminal.session.send(None, ())
        return True


def terminal_of(module: ModuleType, session: Session) -> Any:
    terminal = module.TerminalState()
    terminal.kind = module.KindState((module.Times(), module.Times()))
    terminal.session = session
    return terminal


@contextlib.contextmanager
def server(family: str, path: Path, count: int, *, together: bool) -> Iterator[list[socket.socket]]:
    """Connections to a server in a separate process."""
    address, manner = str(path / "socket"), "together" if together else "each"
    argv = [sys.executable, "-c", SERVER, family, address, str(count), manner]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        connections = []
        for _ in range(count):
            connection = socket.socket(getattr(socket, family))
            connection.connect(("127.0.0.1", port) if family == "AF_INET" else address)
            connections.append(connection)
        try:
            yield connections
        finally:
            for connection in connections:
                connection.close()
            process.kill()


@contextlib.contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Processes that use all available CPU time."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


@dataclass(frozen=True)
class Measured:
    """Of each sampled answer the true and the sampled lateness, ns; and the true one of all answers."""

    true_ns: npt.NDArray[np.int64]
    sampled_ns: npt.NDArray[np.int64]
    all_ns: npt.NDArray[np.int64]
    sampler: Any

    @property
    def mean_error_ns(self) -> float:
        """Mean of sampled less true lateness."""
        return float(np.mean(self.sampled_ns - self.true_ns))


def measured(module: ModuleType, connections: list[socket.socket], spin_ns: int) -> Measured:
    """A load on these connections."""
    sessions = [Session(connection, spin_ns) for connection in connections]
    sampler = getattr(module, "Sampler", handling.Sampler)()
    epoll = select.epoll()
    for session in sessions:
        sampler.watch(session.fileno())
        epoll.register(session.fileno(), select.EPOLLIN)
    time.sleep(0.1)  # the kernel enables time stamps with a delay
    for session in sessions:
        session.send(None, ())
    terminals = {session.fileno(): terminal_of(module, session) for session in sessions}
    load = Load(sampler, time.monotonic_ns() + round(LOAD_S * 1e9))
    try:
        module.serve(epoll, terminals, load)
    finally:
        epoll.close()
        sampler.close()
    samples = np.frombuffer(sampler.take(), dtype=np.int64).reshape(-1, 3)
    handled = np.array(sorted(pair for session in sessions for pair in session.handled), dtype=np.int64)
    assert not samples[:, 2].any(), "this server never answers at once"
    paired = handled[np.searchsorted(handled[:, 0], samples[:, 0]), 1]
    return Measured(paired, samples[:, 1], handled[:, 1], sampler)


@pytest.fixture(params=list(LOOPS))
def module(request: pytest.FixtureRequest) -> ModuleType:
    """The loop, compiled and in Python."""
    if request.param == "compiled":
        pytest.importorskip(LOOPS["compiled"], reason="the hot path was not compiled here")
    return importlib.import_module(LOOPS[request.param])


def assert_close(found: Measured, family: str) -> None:
    true_ns = float(np.mean(found.true_ns))
    assert -BELOW[family] * true_ns - WAY_NS <= found.mean_error_ns <= ABOVE[family] * true_ns + WAY_NS


@pytest.mark.parametrize("family", ["AF_INET", "AF_UNIX"])
def test_samples_show_how_late_a_batch_of_answers_is_handled(module: ModuleType, family: str, tmp_path: Path) -> None:
    with server(family, tmp_path, CONNECTIONS, together=True) as connections:
        found = measured(module, connections, SPIN_NS)
    assert found.sampler.answers == len(found.all_ns)
    assert (found.sampler.stamped > 0) == (family == "AF_INET")
    assert np.mean(found.all_ns) > CONNECTIONS / 4 * SPIN_NS  # this client is slow enough
    assert_close(found, family)


@pytest.mark.parametrize("family", ["AF_INET", "AF_UNIX"])
def test_samples_show_the_wait_for_a_cpu(module: ModuleType, family: str, tmp_path: Path) -> None:
    with neighbours(2 * (os.cpu_count() or 1)), server(family, tmp_path, 16, together=False) as connections:
        found = measured(module, connections, 0)
    assert_close(found, family)


def test_a_quiet_load_is_sampled_at_every_batch_and_a_busy_one_less_often(module: ModuleType, tmp_path: Path) -> None:
    with server("AF_UNIX", tmp_path, 1, together=False) as connections:
        found = measured(module, connections, 10_000_000)
        busy = measured(module, connections, 0)
    assert len(found.sampled_ns) >= 0.75 * len(found.all_ns)  # all but those of the first tenth of a second
    assert len(busy.sampled_ns) < 0.5 * len(busy.all_ns)

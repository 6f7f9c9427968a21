"""The sampled lateness of answers: against the instants at which they were sent, and the estimate against a driven clock.

Figures of whole loads with delayed clients are in `benchmarks/load/late_answers.py`.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from eventually import eventually

from proveout.agent.engines.driver_contract import StatementFailure
from proveout.agent.engines.postgres.protocol import around, connection_lost, send_rest
from proveout.agent.load.loop import client_delays
from proveout.agent.load.loop.arrival_schedule import Schedule
from proveout.dsl.workloads.base import Statement

CONNECTIONS = 8
DESCRIPTORS = 1_024


class Session:
    """The client's end of a connection; `handled` has when its answer was, on both clocks."""

    def __init__(self, connection: socket.socket) -> None:
        self.count = 1
        self.connection = connection
        connection.setblocking(False)
        self.handled: tuple[int, int] = (0, 0)

    def receive(self) -> bool:
        self.connection.recv(100)
        self.handled = time.time_ns(), time.monotonic_ns()
        return True


class Load:
    """The part of a load loop that `serve` calls: it ends when each connection has had an answer, or its pipe is
    readable."""

    def __init__(self, sampler: Any) -> None:
        self.sampler, self.schedule, self.t0_ns = sampler, Schedule(), 0
        self.limit_ns = time.monotonic_ns() + 3_600 * 10**9
        self.left = CONNECTIONS

    def woken(self, fd: int) -> None:
        self.limit_ns = 0

    def failed(self, terminal: Any, failure: StatementFailure) -> None:
        raise failure

    def ended(self, terminal: Any, end: int) -> bool:
        self.left -= 1
        return self.left > 0


def connected(family: str) -> tuple[socket.socket, socket.socket]:
    if family == "AF_UNIX":
        return socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        return client, listener.accept()[0]


@contextlib.contextmanager
def connections(family: str, sampler: Any) -> Iterator[list[tuple[Session, socket.socket]]]:
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(CONNECTIONS):
            client, server = (stack.enter_context(end) for end in connected(family))
            sampler.watch(client.fileno())
            found.append((Session(client), server))
        if family == "AF_INET":  # the kernel enables time stamps with a delay
            client, server = found[0][0].connection, found[0][1]

            def is_stamped() -> bool:
                server.send(b"?")
                select.select([client], [], [])
                stamped = client_delays.arrival_ns(client.fileno()) > 0
                client.recv(100)
                return stamped

            eventually(is_stamped, "time stamps")
        yield found


@pytest.mark.parametrize("family", ["AF_INET", "AF_UNIX"])
def test_samples_are_the_time_from_the_arrival_to_the_turn(turns: ModuleType, family: str) -> None:
    sampler = getattr(turns, "Sampler", client_delays.Sampler)()
    terminals: list[Any] = [None] * DESCRIPTORS
    with connections(family, sampler) as found, contextlib.closing(select.epoll()) as epoll:
        for session, _ in found:
            terminal = turns.TerminalState()
            terminal.kind, terminal.session = turns.KindState((turns.Times(), turns.Times())), session
            terminals[session.connection.fileno()] = terminal
            epoll.register(session.connection.fileno(), select.EPOLLIN)
        before_ns = time.time_ns()
        for session, server in found:
            server.send(b"!")
            select.select([session.connection], [], [])
        sent_ns, began_ns = time.time_ns(), time.monotonic_ns()
        turns.serve(epoll, terminals, Load(sampler))
    samples = np.frombuffer(sampler.take(), dtype=np.int64).reshape(-1, 3)
    assert len(samples) == client_delays.PER_BATCH, "every second answer of one batch"
    assert samples[:, 2].tolist() == [2] * len(samples), "each stands for two, and no turn had further answers"
    assert sampler.answers == CONNECTIONS
    assert sampler.stamped == (CONNECTIONS if family == "AF_INET" else 0)
    handled = sorted(session.handled for session, _ in found)
    for taken_ns, late_ns, _ in samples.tolist():
        index = next(index for index, (_, mono_ns) in enumerate(handled) if mono_ns >= taken_ns)
        at_ns, mono_ns = handled[index]
        if family == "AF_INET":
            earlier_ns = handled[index - 1][0] if index else sent_ns
            assert earlier_ns - sent_ns <= late_ns <= at_ns - before_ns
        else:  # the answers came before epoll: of the client's time only that since its return, and waits for a CPU
            assert 0 <= late_ns <= 2 * (mono_ns - began_ns)
    sampler.close()


ANSWER = b"D\x00\x00\x00\x0e\x00\x01\x00\x00\x00\x04\x00\x00\x00\x07C\x00\x00\x00\x0dSELECT 1\x00Z\x00\x00\x00\x05I"
STATEMENT = Statement(name="one", text={"postgres": "SELECT 7"}, arguments=())


@pytest.mark.parametrize("is_over", [False, True])
def test_transactions_begin_after_all_answers_of_a_batch(native: ModuleType, is_over: bool) -> None:
    """No answer waits for the sends before it, and a start is that of its send. After the load nothing begins."""
    protocol = pytest.importorskip("proveout.agent.engines.postgres.protocol_native", reason="not compiled here")
    head, tail = around(b"one", (None,), 1)
    prepared = protocol.Prepared(STATEMENT, head, (None,), tail, (None,))
    state = native.KindState((native.Times(), native.Times()))
    texts = [f"{number}," * 500 for number in range(CONNECTIONS)]  # more than the first buffer of a loop takes
    drawn, received = iter(texts), list[bytes]()
    state.bare, state.inputs, state.prepared = True, lambda: (STATEMENT, (next(drawn),)), prepared
    terminals: list[Any] = [None] * DESCRIPTORS
    reader, writer = os.pipe()
    with connections("AF_UNIX", client_delays.Sampler()) as found, contextlib.closing(select.epoll()) as epoll:
        for session, server in found:
            terminal = terminals[session.connection.fileno()] = native.TerminalState()
            wire = protocol.Wire(session.connection.fileno(), None, connection_lost, send_rest)
            terminal.session, terminal.kind, terminal.restless, terminal.busy = wire, state, True, True
            terminal.draw = native.Mix([state], iter(lambda: memoryview(bytes(32)).cast("H"), None))
            wire.send(prepared, ("",))
            server.recv(1_000)
            server.send(ANSWER)
            epoll.register(session.connection.fileno(), select.EPOLLIN)

        def end() -> None:
            received.extend(server.recv(10_000) for _, server in found)
            os.write(writer, b"!")

        epoll.register(reader, select.EPOLLIN)
        ends = threading.Thread(target=end, daemon=True)
        if is_over:
            os.write(writer, b"!")
        else:
            ends.start()
        native.serve(epoll, terminals, Load(native.Sampler()))
    each = [terminal for terminal in terminals if terminal is not None]
    assert len(state.times[0]) == 3 * CONNECTIONS
    assert [terminal.busy for terminal in each] == [not is_over] * CONNECTIONS
    if not is_over:
        assert max(terminal.ended_ns for terminal in each) <= min(terminal.started_ns for terminal in each)
        assert all(terminal.intended_ns == terminal.started_ns for terminal in each)
        assert sorted(text for text in texts for message in received if text.encode() in message) == texts
    os.close(reader)
    os.close(writer)


def test_what_was_before_epoll_s_return_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without time stamps: the wait for a CPU in full, and of the rest of a round without sleep a part by the place."""
    at = {"now": 0, "waited": 0, "turns": 5}
    monkeypatch.setattr(client_delays, "time", SimpleNamespace(monotonic_ns=lambda: at["now"]))
    sampler = client_delays.Sampler()
    monkeypatch.setattr(sampler, "_runqueue", lambda: (at["waited"], at["turns"]))
    sampler.all_stamped = False
    sampler.calls()
    at["now"] = 10
    sampler.returns(sampled=True)
    assert [sampler.late_ns(-1, index, 4, 60) for index in range(4)] == [50] * 4, "nothing was before the first batch"

    at |= {"now": 1_010, "waited": 200}  # a round of 1000, in which it waited for 200
    sampler.calls()
    at |= {"now": 1_020, "waited": 230}
    sampler.returns(sampled=True)
    assert [sampler.late_ns(-1, index, 4, 1_060) for index in range(4)] == [
        40 + 230 + part for part in (700, 500, 300, 100)
    ]

    at |= {"now": 2_020, "waited": 500}
    sampler.calls()
    at |= {"now": 9_000, "waited": 700, "turns": 6}  # it slept, so the round before does not count
    sampler.returns(sampled=True)
    assert [sampler.late_ns(-1, index, 4, 9_001) for index in (0, 3)] == [201, 201]


def test_a_quiet_load_is_sampled_at_every_batch_and_a_busy_one_less_often() -> None:
    sampler = client_delays.Sampler()

    def sampled(batches: int) -> int:
        """The samples of so many batches between two ticks."""
        sampler.pace()
        found = 0
        for _ in range(batches):
            sampler.left -= 1
            if sampler.left <= 0:
                found += 1
                sampler.calls()
                sampler.returns(sampled=True)
        return found

    sampled(10)
    assert sampled(10) == 10
    wanted = client_delays.BATCHES_PER_TICK
    sampled(10 * wanted)
    assert sampled(10 * wanted) == pytest.approx(wanted, rel=0.5)
    sampled(100_000)
    assert sampled(100_000) == pytest.approx(100_000 / client_delays.STRIDE_MAX, rel=0.1)
    sampler.close()


def test_a_large_batch_has_few_samples_which_stand_for_all_of_its_answers() -> None:
    """Each answer is as likely to be a sample as any other, so that percentiles are those of all answers."""
    sampler = client_delays.Sampler()
    taken = np.zeros(64)
    for _ in range(4_000):
        sampler.thin(64)
        chosen = [index for index in range(64) if sampler.chosen(index)]
        assert len(chosen) * sampler.every == 64 and len(chosen) == client_delays.PER_BATCH
        taken[chosen] += sampler.every
    assert taken / 4_000 == pytest.approx(1, abs=0.3)  # 1 in 16: five standard errors of 0.06
    for ready in range(1, 200):
        sampler.thin(ready)
        assert 1 <= sum(map(sampler.chosen, range(ready))) <= client_delays.PER_BATCH

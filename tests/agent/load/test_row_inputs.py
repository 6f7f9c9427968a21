"""Inputs that go from arrays into messages: the same bytes on the wire as by Python values, also in a retry."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from functools import partial
from types import ModuleType
from typing import Any

import pytest
import yaml

from proveout.agent.engines.postgres.driver import failure_of
from proveout.agent.engines.postgres.protocol import Failures, around, connection_lost, send_rest
from proveout.agent.load.loop.transaction import CONTROLS, begin_of
from proveout.agent.load.loop.transaction_loop_python import NEXT
from proveout.dsl.workloads.base import Statement, TransactionType, WorkloadKind
from proveout.dsl.workloads.kinds import build

from .conftest import workload_of

SQL = """
binds: {id: {uniform: [1, 9]}, count: {sequence: 5}, name: {text: [1, 9]}}
transactions:
  Read: {statements: {one: {sql: "SELECT a FROM t WHERE id = :id AND n = :count", expect_rows: some}}}
  Write:
    statements:
      one: {sql: "UPDATE t SET a = :id", expect_rows: 1}
      two: {sql: SELECT 1}
      three: {sql: "UPDATE t SET a = :count WHERE id = :id", expect_rows: 1}
  Text: {statements: {one: {sql: "SELECT a FROM t WHERE name = :name"}}}
  Nothing: {statements: {one: {sql: SELECT 1}}}
"""
WORKLOADS = [
    build(workload_of(kind, **parameters))
    for kind, parameters in (
        ("hlr", {"population": 1_000}),
        ("tptbm", {"key": 40}),
        ("prepaid", {"population": 500}),
        ("tpcb", {"scale": 3}),
        ("sql", yaml.safe_load(SQL)),
    )
]
BY_VALUE = {"Nothing"}
"""Without drawn values."""
KINDS = [(workload, kind) for workload in WORKLOADS for kind in workload.transactions]
_, _, COMMIT, ROLLBACK = CONTROLS
ROUNDS = 300  # more than a batch
SYNC = b"S\x00\x00\x00\x04"
ROW = b"D\x00\x00\x00\x0e\x00\x01\x00\x00\x00\x04\x00\x00\x00\x07"  # one column, the number 7
DONE = b"C\x00\x00\x00\x0dSELECT 1\x00Z\x00\x00\x00\x05I"


@pytest.fixture(scope="module")
def loop() -> ModuleType:
    native: ModuleType = pytest.importorskip(
        "proveout.agent.load.loop.transaction_loop_native", reason="the hot path was not compiled here"
    )
    return native


class Server:
    """Answers every statement with one row of one number; keeps what it has received."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.client, self._server = socket.socketpair()
        self.client.setblocking(False)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(ConnectionError):  # closed before it has read the last answer
            while got := self._server.recv(65_536):
                self.received += got
                if self.received.endswith(SYNC):
                    self._server.sendall(ROW + DONE)

    def close(self) -> None:
        self.client.close()
        self._thread.join()
        self._server.close()


def prepared_of(statement: Statement) -> Any:
    from proveout.agent.engines.postgres.protocol_native import Prepared

    kinds = tuple("q" if kind is int else None for kind in statement.arguments)
    head, tail = around(statement.name.encode(), kinds, 1)
    return Prepared(statement, head, kinds, tail, (None,))


def sent(loop: ModuleType, workload: WorkloadKind, kind: TransactionType, *, rows: bool) -> bytes:
    """The messages of a terminal in some transactions; `rows`: with the source of the workload itself."""
    from proveout.agent.engines.postgres.protocol_native import Wire

    server = Server()
    source = kind.inputs(workload.keys(5))
    state, terminal = loop.KindState([loop.Times(), loop.Times()]), loop.TerminalState()
    state.bare, state.start = kind.bare, kind.body
    terminal.prepared = {one.name: prepared_of(one) for one in kind.statements}
    state.inputs = source if rows else partial(next, iter(source, None))
    state.prepared = prepared_of(kind.statements[0])
    if kind.steps:
        steps = [(prepared_of(s.statement), s.places, s.keeps, s.least, s.most) for s in kind.steps]
        begin, commit, rollback = map(prepared_of, (begin_of(kind), COMMIT, ROLLBACK))
        state.script = loop.Script(begin, commit, rollback, steps)
    terminal.session = Wire(server.client.fileno(), Failures(failure_of).of, connection_lost, send_rest)
    terminal.kind, terminal.restless = state, True
    terminal.draw = loop.Mix([state], iter(lambda: memoryview(bytes(2 * 16)).cast("H"), None))
    begun = loop.first(terminal)
    assert (terminal.inputs is state) == (rows and kind.name not in BY_VALUE)
    assert loop.again(terminal) == begun, "a retry has the same inputs"
    terminal.session.send(*begun)
    try:
        while len(state.times[0]) // 3 < ROUNDS:
            select.select([server.client], [], [])
            if loop.turns(terminal, 2**62) == NEXT:
                terminal.session.send(*loop.first(terminal))
    finally:
        server.close()
    return bytes(server.received)


@pytest.mark.parametrize(("workload", "kind"), KINDS, ids=lambda value: getattr(value, "name", ""))
def test_rows_and_values_are_the_same_messages(loop: ModuleType, workload: WorkloadKind, kind: TransactionType) -> None:
    by_row, by_value = sent(loop, workload, kind, rows=True), sent(loop, workload, kind, rows=False)
    common = min(len(by_row), len(by_value))
    assert common > ROUNDS * len(SYNC)
    assert by_row[:common] == by_value[:common]

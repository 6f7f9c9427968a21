"""A retry is the same transaction: same inputs, same intended time, for a failure of any statement.

The sessions here answer from memory and fail at chosen statements. The errors of real servers and their kinds are in the
drivers' conformance tests; `test_sql_load` has real serialisation failures.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, TypeAlias

import pytest

from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.agent.load.loop import transaction_loop_python
from proveout.agent.load.loop.event_loop import PolledLoop
from proveout.agent.load.loop.reconnect import Reconnector
from proveout.agent.load.loop.recorder import Incident, Recorder
from proveout.agent.load.loop.terminal import Terminal
from proveout.agent.load.loop.thread_loop import ThreadedLoop
from proveout.agent.load.loop.transaction import CONTROLS, in_transaction, statements
from proveout.agent.load.pacing import Pacing, Timeline
from proveout.dsl.plan.stages import Windows
from proveout.dsl.workloads.base import Statement, TransactionType, WorkloadKind
from proveout.dsl.workloads.hlr import workload as hlr
from proveout.dsl.workloads.hlr.parameters import Hlr
from proveout.dsl.workloads.prepaid import workload as prepaid
from proveout.dsl.workloads.prepaid.parameters import Prepaid
from proveout.dsl.workloads.tpcb import workload as tpcb
from proveout.dsl.workloads.tpcb.parameters import Tpcb
from proveout.dsl.workloads.tprocc import workload as tprocc
from proveout.dsl.workloads.tprocc.parameters import Tprocc
from proveout.dsl.workloads.tptbm import workload as tptbm
from proveout.dsl.workloads.tptbm.parameters import Tptbm

KINDS: dict[str, WorkloadKind] = {
    "hlr": hlr.build(Hlr(population=100)),
    "prepaid": prepaid.build(Prepaid(population=100)),
    "tpcb": tpcb.build(Tpcb(weights={"TpcbLike": 50.0, "SimpleUpdate": 30.0, "SelectOnly": 20.0})),
    "tprocc": tprocc.build(Tprocc(warehouses=2)),
    "tprocc-pipeline": tprocc.build(Tprocc(warehouses=2, pipeline=True)),
    "tprocc-procedures": tprocc.build(Tprocc(warehouses=2, procedures=True)),
    "tptbm": tptbm.build(Tptbm(key=30, weights={"Read": 40.0, "Update": 20.0, "Insert": 20.0, "Delete": 20.0})),
    "tptbm-3": tptbm.build(Tptbm(key=30, ops_per_transaction=3)),
}
Sent: TypeAlias = list[tuple[str, tuple[Any, ...]] | None]
"""Statements with their arguments; None after each one that failed."""
SENT = 6_000
GAPS = (0, 1, 2, 4, 41, 3, 5, 97, 7, 11, 90, 13)
"""Numbers of successful statements before each failure: each statement of a transaction fails in turn, and BEGIN and
COMMIT."""


class Scripted:
    """A session that answers every statement at once with one row, fails with a deadlock after each of `gaps`, and records
    the statements."""

    def __init__(self, gaps: Sequence[int] = GAPS) -> None:
        self.count = 1
        self.sent: Sent = []
        self._pending: list[tuple[Statement, Sequence[Any]]] = []
        self._gaps = itertools.cycle(gaps)
        self._left = next(self._gaps)
        self._fd = os.eventfd(1)

    def fileno(self) -> int:
        return self._fd

    def prepare(self, statement: Statement) -> Statement:
        return statement

    def execute(self, prepared: Statement, arguments: Sequence[Any]) -> None:
        """Execute; a rollback never fails."""
        self.sent.append((prepared.name, tuple(arguments)))
        self._left -= prepared.name != "rollback"
        if self._left < 0:
            self._left = next(self._gaps)
            self.sent.append(None)
            raise StatementFailure("40P01", "deadlock detected", FailureKind.RETRYABLE)

    def send(self, prepared: Statement, arguments: Sequence[Any]) -> None:
        self._pending.append((prepared, arguments))

    def receive(self) -> bool:
        if not self._pending:
            return False
        self.execute(*self._pending.pop())
        return True

    def exchange(self, prepared: Statement, arguments: Sequence[Any]) -> bool:
        self.send(prepared, arguments)
        return self.receive()

    def rows(self) -> list[tuple[Any, ...]]:
        assert self.sent[-1] is not None
        name, arguments = self.sent[-1]
        if name.startswith("get_items"):
            return [(item, 250, "name", "data") for item in arguments]
        if name.startswith("get_stock"):
            return [(item, 50, "data", "d" * 24) for item in arguments[2:]]
        return [(7, "BC", *["x"] * 20)]

    def cancel(self) -> None: ...

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Ending:
    """A ticker that ends the load when the session has received enough statements."""

    def __init__(self, session: Scripted, statements_max: int) -> None:
        self._session, self._max = session, statements_max
        self._silent, self._hold = os.pipe()

    def control(self) -> int:
        return self._silent

    def tick(self, now_ns: int) -> int:
        return 0 if len(self._session.sent) >= self._max else now_ns + 1_000_000

    def close(self) -> None:
        os.close(self._silent)
        os.close(self._hold)


def load(kind: WorkloadKind, loop_of: Callable[..., Any]) -> tuple[Sent, Recorder]:
    """Run a load of one terminal; return the statements that it sends, and its recorder."""
    session, recorder = Scripted(), Recorder(len(kind.transactions))
    prepared = {s.name: s for s in statements(kind)}
    pacing = Pacing(total=1, ramp_s=0.0)
    terminal = Terminal(0, workload=kind, pacing=pacing, recorder=recorder, seed=1, session=session, prepared=prepared)
    timeline = Timeline.of(Windows(ramp_up_s=0.0, measure_s=60.0, ramp_down_s=0.0), time.monotonic_ns())
    ticker = Ending(session, SENT)
    common = {"terminals": [terminal], "recorder": recorder, "pacing": pacing, "timeline": timeline, "ticker": ticker}
    loop = loop_of(**common)
    try:
        loop.run()
    finally:
        loop.close()
        ticker.close()
    return session.sent[:SENT], recorder


def polled(**common: Any) -> PolledLoop:
    def connect(number: int) -> Any:
        raise AssertionError(f"terminal {number} has lost nothing")

    return PolledLoop(**common, reconnector=Reconnector(connect))


def blocking(**common: Any) -> ThreadedLoop:
    return ThreadedLoop(**common, connect=lambda _: (_ for _ in ()).throw(AssertionError("nothing is lost")))


BEGINNINGS = ("begin_write", "begin_read")
BRACKETS = {*BEGINNINGS, "commit", "rollback"}


def pairs(sent: Sent) -> Iterator[tuple[Sent, Sent]]:
    """For each failure: the statements that the transaction had sent up to the failed one, and the next ones, at most as
    many."""
    began: int | None = None
    for at, entry in enumerate(sent):
        if entry is None:
            start = at - 1 if began is None else began
            after = [one for one in sent[at + 1 :][: 2 * (at - start)] if one != ("rollback", ())]
            ends = after.index(None) if None in after else len(after)
            yield sent[start:at], after[: min(ends, at - start)]
        elif entry[0] in BRACKETS:
            began = at if entry[0] in BEGINNINGS else began if sent[at + 1 : at + 2] == [None] else None


@pytest.mark.parametrize("loop_of", [polled, blocking])
@pytest.mark.parametrize("name", KINDS)
def test_a_retry_sends_the_same_statements_after_any_failure(name: str, loop_of: Callable[..., Any]) -> None:
    """Covers single statements, and all statements of transactions with BEGIN and COMMIT."""
    sent, recorder = load(KINDS[name], loop_of)
    incidents = recorder.take_incidents()
    assert {incident.what for incident in incidents} == {"retry"}
    assert len(incidents) >= 30
    where = Counter[str]()
    for failed, again in list(pairs(sent))[:-1]:
        assert again == failed[: len(again)]
        assert again
        assert failed[-1] is not None
        where[failed[-1][0]] += 1
    if any(not kind.single for kind in KINDS[name].transactions if kind.weight):
        assert where["commit"] > 0
        assert where["begin_write"] + where["begin_read"] > 0
    assert len(where) >= 3 or name == "tprocc-procedures"


@pytest.mark.parametrize("loop_of", [polled, blocking])
def test_the_response_time_of_a_retry_begins_at_the_intended_time(loop_of: Callable[..., Any]) -> None:
    """Each retry has the intended time of the record with which its transaction ends."""
    _, recorder = load(KINDS["hlr"], loop_of)
    intended = set()
    for data in recorder.take().values():
        triples = memoryview(data).cast("q").tolist()
        intended |= set(triples[::3])
    retries: list[Incident] = recorder.take_incidents()
    last = max(retry.intended_ns for retry in retries)  # may have been under way at the end
    assert len(retries) > 20
    assert all(retry.intended_ns in intended for retry in retries if retry.intended_ns != last)


def native() -> ModuleType:
    return pytest.importorskip(
        "proveout.agent.load.loop.transaction_loop_native", reason="the hot path was not compiled here"
    )


@pytest.mark.parametrize("module", [lambda: transaction_loop_python, native], ids=["python", "compiled"])
@pytest.mark.parametrize("bare", [True, False])
def test_both_hot_loops_keep_the_inputs_of_running_transactions(module: Callable[[], Any], bare: bool) -> None:
    """The loops begin transactions themselves; the retry of a failed one must use its inputs."""
    turns = module()
    kind = KINDS["hlr"].transactions[0 if bare else 4]
    of_keys = kind.inputs(KINDS["hlr"].keys(3))
    state = turns.KindState((turns.Times(), turns.Times()))
    drawn: list[Any] = []

    def inputs() -> Any:
        drawn.append(of_keys())
        return drawn[-1]

    state.inputs, state.bare = inputs, bare
    state.start = kind.body if bare else in_transaction(kind)
    state.prepared = kind.statements[0]
    terminal = turns.TerminalState()
    terminal.session, terminal.restless = Scripted((5,)), True
    terminal.prepared = {s.name: s for s in (*kind.statements, *CONTROLS)}
    terminal.draw, terminal.kind = iter([state] * 100), state
    terminal.session.send(kind.statements[0], (1,))
    with pytest.raises(StatementFailure):
        turns.turns(terminal, time.monotonic_ns() + 10**12)
    terminal.session.close()
    assert terminal.inputs is drawn[-1]
    assert len(drawn) >= 1


def test_inputs_default_to_the_keys() -> None:
    def body(keys: list[int]) -> Any:
        yield KINDS["hlr"].transactions[0].statements[0], (keys.pop(),)

    kind = TransactionType(name="own", weight=1.0, body=body, statements=())
    keys = [1, 2]
    assert kind.inputs(keys)() is keys

"""Transactions: their mix, think times, groups of statements in messages, scripts of steps, and inputs that go from
arrays into messages; compiled and in Python."""

from __future__ import annotations

import random
import socket
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import yaml
from in_memory import drawn

from proveout.agent.engines.postgres.driver import failure_of
from proveout.agent.engines.postgres.protocol import Failures, around, connection_lost, send_rest
from proveout.agent.load.loop.recorder import Recorder
from proveout.agent.load.loop.terminal import Terminal, stream_of
from proveout.agent.load.loop.transaction import (
    CONTROLS,
    Kind,
    ThinkTimes,
    begin_of,
    carries_commit,
    in_transaction,
)
from proveout.agent.load.loop.transaction_loop_python import NEXT
from proveout.agent.load.pacing import Pacing
from proveout.dsl.plan.stages import Think
from proveout.dsl.workloads.base import (
    Body,
    Last,
    Outcome,
    Row,
    Statement,
    Step,
    TransactionType,
    WorkloadKind,
    walk,
)
from proveout.dsl.workloads.commits import PIPELINE, together, tracked
from proveout.dsl.workloads.hlr import Hlr
from proveout.dsl.workloads.hlr_workload import HlrWorkload
from proveout.dsl.workloads.kinds import build
from proveout.dsl.workloads.transactions import steps_of, transaction_of

from .conftest import queries, workload_of

HLR = HlrWorkload(Hlr(population=1_000))
SHARES = {"GetBasicSubscriberData": 0.7, "GetAccessData": 0.2, "UpdateLocation": 0.1}
MIXED = HlrWorkload(Hlr(population=100, weights={name: 100 * share for name, share in SHARES.items()}))
_, _, COMMIT, ROLLBACK = CONTROLS


# ---- the mix ---------------------------------------------------------------------------------------------------------


def first(count: int, workload: WorkloadKind, stream: int) -> list[int]:
    return list(islice(drawn(workload, stream), count))


def test_the_mix_follows_the_weights_and_repeats_by_stream() -> None:
    counts = Counter(MIXED.transactions[number].name for number in first(20_000, MIXED, 1))
    assert {name: count / 20_000 for name, count in counts.items()} == pytest.approx(SHARES, abs=0.015)
    assert first(2000, MIXED, 5) == first(2000, MIXED, 5)
    assert first(2000, MIXED, 5) != first(2000, MIXED, 6)
    assert first(2000, MIXED, 5) != first(2000, MIXED, 5 + (1 << 64))


@pytest.mark.parametrize(("terminal", "cycle"), [(0, [0, 1, 2]), (1, [1, 2, 0]), (3, [0, 1, 2])])
def test_each_terminal_cycles_through_an_ordered_set_from_its_own_first_query(terminal: int, cycle: list[int]) -> None:
    stream = stream_of(7, terminal)
    assert first(9, build(queries()), stream) == cycle * 3
    assert first(300, build(queries(in_order=False)), stream) != cycle * 100


def test_random_streams_of_terminals_and_seeds_differ() -> None:
    streams = {stream_of(seed, number) for seed in (0, 1, 2**32, 2**63) for number in range(100)}
    assert len(streams) == 400
    assert all(0 <= stream < 2**128 for stream in streams)


def test_a_transaction_that_only_reads_takes_no_write_lock() -> None:
    begins = {kind.name: begin_of(kind).text["sqlite"] for kind in HLR.transactions}
    assert (begins["GetAccessData"], begins["UpdateLocation"]) == ("BEGIN", "BEGIN IMMEDIATE")


# ---- think and keying times ------------------------------------------------------------------------------------------

CLOSED = Pacing(total=1, ramp_s=0.0)
CONSTANT = replace(CLOSED, think=Think(mean_s=0.25, distribution="constant"))


def terminal(pacing: Pacing, *, keying_s: float = 0.0, thinking_s: float = 0.0, number: int = 0) -> Terminal:
    """A terminal of HLR with keying and think times of its own."""
    own = tuple(replace(kind, keying_s=keying_s, thinking_s=thinking_s) for kind in HLR.transactions)
    workload: Any = SimpleNamespace(population=HLR.population, transactions=own, keys=HLR.keys)
    recorder = Recorder(len(own))
    return Terminal(number, workload=workload, pacing=pacing, recorder=recorder, seed=1, session=None, prepared={})


def pauses_ns(of: Terminal, count: int) -> list[int]:
    assert of.pauses is not None
    return [of.pauses.next_ns(of.next_kind()) for _ in range(count)]


def test_which_terminals_pause() -> None:
    assert terminal(CLOSED).restless
    assert not terminal(CLOSED, thinking_s=0.1).restless
    of_schedule = terminal(replace(CLOSED, rate=10.0), keying_s=1.0, thinking_s=1.0)
    assert (of_schedule.restless, of_schedule.pauses) == (False, None)
    first, *others = HLR.transactions
    assert not ThinkTimes.are_wanted([replace(first, weight=0.0, thinking_s=5.0), *others], None), "not in the mix"


def test_constant_think_times_replace_those_of_the_workload_and_keying_times_are_added() -> None:
    assert set(pauses_ns(terminal(CONSTANT, thinking_s=9.0), 50)) == {250_000_000}
    keyed = terminal(CONSTANT, keying_s=0.5)
    assert set(pauses_ns(keyed, 50)) == {750_000_000}
    assert keyed.begins_ns(CONSTANT) == 500_000_000, "keying precedes the first transaction"


def test_exponential_think_times_have_their_mean_and_their_spread() -> None:
    drawn = np.array(pauses_ns(terminal(CLOSED, thinking_s=0.1), 20_000)) / 1e9
    assert drawn.mean() == pytest.approx(0.1, rel=0.05)
    assert drawn.std() == pytest.approx(0.1, rel=0.05)
    assert drawn.max() <= 1.0


def test_think_times_differ_by_terminal_and_repeat_by_seed() -> None:
    pacing = replace(CLOSED, total=2, think=Think(mean_s=0.1))
    first, again, other = (pauses_ns(terminal(pacing, number=number), 20) for number in (0, 0, 1))
    assert first == again
    assert first != other


def test_the_mix_is_drawn_as_without_pauses() -> None:
    paused, restless = (
        [kind.number for kind in islice(iter(one.next_kind, None), 300)]
        for one in (terminal(CLOSED, keying_s=0.1, thinking_s=0.1), terminal(CLOSED))
    )
    assert paused == restless


# ---- bodies that yield groups: as messages of a session that pipelines, and one statement at a time ------------------

READ = Statement(name="read", text={}, arguments=(int,))
WRITE = Statement(name="write", text={}, arguments=(int,), reads=False)


def grouped(inputs: int) -> Body:
    """Two groups, a statement alone and the last two; each result is that of its own statement."""
    first, second = yield from together((READ, (inputs,)), (READ, (inputs + 1,)))
    (third,) = yield from together((WRITE, (inputs + 2,)))
    alone = yield READ, (inputs + 3,)
    if [one.rows()[0][0] for one in (first, second, alone)] != [inputs, inputs + 1, inputs + 3] or third.count != 1:
        return Last((), Outcome.LOGICAL_FAILURE)
    return Last(((WRITE, (1,)), (READ, (2,))), Outcome.COMMIT if inputs < 90 else Outcome.LOGICAL_FAILURE)


def alone_first(inputs: int) -> Body:
    found = yield READ, (inputs,)
    return Outcome.COMMIT if found.rows() == [(inputs,)] else Outcome.LOGICAL_FAILURE


def messages(body: Any, inputs: int, *, pipelines: bool, counted: bool = False) -> tuple[list[list[str]], Outcome]:
    """The names of the statements of each round trip, and the outcome. Each statement is answered with its first
    argument."""
    kind = TransactionType(name="t", weight=1.0, body=body, statements=(READ, WRITE), pipeline=True)
    state = Kind(0, tracked(kind, (1, 2)) if counted else kind, None, Recorder(1).times)
    state.bind({"read": READ, **({PIPELINE.name: None} if pipelines else {})})
    sent: list[list[str]] = []
    running, answer = state.start(inputs), cast("Any", None)
    while True:
        try:
            statement, arguments = running.send(answer)
        except StopIteration as stop:
            return sent, stop.value
        requests: Any = arguments if statement is PIPELINE else ((statement, arguments),)
        sent.append([one.name for one, _ in requests])
        results = [SimpleNamespace(count=1, rows=lambda row=row[:1]: [row]) for _, row in requests]
        answer = SimpleNamespace(count=1, rows=results[0].rows, results=lambda results=results: results)


@pytest.mark.parametrize(("inputs", "end", "outcome"), [(5, "commit", 0), (95, "rollback", 1)])
def test_begin_and_the_end_travel_with_groups(inputs: int, end: str, outcome: int) -> None:
    sent = [["begin_write", "read", "read"], ["write"], ["read"], ["write", "read", end]]
    assert messages(grouped, inputs, pipelines=True) == (sent, outcome)
    assert messages(grouped, inputs, pipelines=False) == ([[name] for message in sent for name in message], outcome)


@pytest.mark.parametrize(
    ("pipelines", "sent"),
    [(True, [["begin_write", "read"], ["commit"]]), (False, [["begin_write"], ["read"], ["commit"]])],
)
def test_begin_travels_with_a_single_first_statement(pipelines: bool, sent: list[list[str]]) -> None:
    assert messages(alone_first, 7, pipelines=pipelines) == (sent, Outcome.COMMIT)


def test_the_counted_commit_is_a_message_of_its_own() -> None:
    """Its row must be there: COMMIT waits for the answer."""
    sent, outcome = messages(grouped, 5, pipelines=True, counted=True)
    assert sent[-2:] == [["write", "read", "proveout_count_commit"], ["commit"]]
    assert outcome is Outcome.COMMIT
    sent, outcome = messages(grouped, 95, pipelines=True, counted=True)
    assert sent[-1] == ["write", "read", "rollback"]
    assert outcome is Outcome.LOGICAL_FAILURE
    sent, _ = messages(grouped, 5, pipelines=False, counted=True)
    assert sent[-2:] == [["proveout_count_commit"], ["commit"]]


# ---- scripts: the same statements, arguments and outcomes as the body ------------------------------------------------


class Session:
    """A session that answers from a list of (count, rows) and records its statements, and which carried COMMIT."""

    def __init__(self, answers: Sequence[tuple[int, list[Row]]]) -> None:
        self.count = 0
        self.statements: list[tuple[str, tuple[Any, ...]]] = []
        self.carried: list[str] = []
        self._answers, self._rows = iter(answers), list[Row]()

    def receive(self) -> bool:
        return True

    def exchange(self, prepared: Statement, arguments: Sequence[Any]) -> bool:
        self.statements.append((prepared.name, tuple(arguments)))
        self.count, self._rows = (0, []) if prepared in CONTROLS else next(self._answers)
        return True

    def rows(self) -> list[Row]:
        return self._rows

    def execute(self, prepared: Statement, arguments: Sequence[Any]) -> None:
        self.exchange(prepared, arguments)

    def execute_committing(self, prepared: Statement, arguments: Sequence[Any]) -> None:
        self.exchange(prepared, arguments)
        self.carried.append(prepared.name)


def scripted(turns: ModuleType, kind: TransactionType, inputs: Any, session: Session) -> tuple[Any, Any, Any]:
    """The state of the kind with its script, its terminal, and the times of both outcomes."""
    times = [turns.Times(), turns.Times()]
    state, terminal = turns.KindState(times), turns.TerminalState()
    steps = [(step.statement, step.places, step.keeps, step.least, step.most) for step in kind.steps]
    state.script = turns.Script(begin_of(kind), COMMIT, ROLLBACK, steps)
    terminal.kind, terminal.session, terminal.inputs = state, session, inputs
    return state, terminal, times


def by_script(turns: ModuleType, kind: TransactionType, inputs: Any, session: Session) -> int:
    """Run the script as the event loop does; return 0 or 1."""
    state, terminal, times = scripted(turns, kind, inputs, session)
    session.exchange(terminal.restart(state.script), ())
    assert turns.turns(terminal, 2**62) == NEXT
    (outcome,) = [number for number, records in enumerate(times) if len(records)]
    return outcome


def by_body(kind: TransactionType, inputs: Any, session: Session) -> int:
    body = in_transaction(kind)(inputs)
    statement, arguments = next(body)
    while True:
        session.exchange(statement, arguments)
        try:
            statement, arguments = body.send(session)
        except StopIteration as stop:
            return int(stop.value)


def same_both_ways(
    turns: ModuleType, kind: TransactionType, inputs: Any, answers: Sequence[tuple[int, list[Row]]]
) -> None:
    def by_run(carried: bool, session: Session) -> int:
        state, terminal, _ = scripted(turns, kind, inputs, session)
        return int(state.script.run(terminal, carried))

    body, script, blocking, carrying = (Session(answers) for _ in range(4))
    outcome = by_body(kind, inputs, body)
    assert (by_script(turns, kind, inputs, script), script.statements) == (outcome, body.statements)
    assert by_run(False, blocking) == outcome
    assert (blocking.statements, blocking.carried) == (body.statements, [])
    assert by_run(True, carrying) == outcome
    if carrying.carried:  # the last statement was reached: it ends the transaction
        assert carrying.carried == [kind.steps[-1].statement.name]
        assert carrying.statements == body.statements[:-1]
    else:
        assert carrying.statements == body.statements


def test_which_transactions_commit_with_their_last_statement() -> None:
    kinds = {kind.name: kind for kind in HLR.transactions if kind.steps}
    assert {name: carries_commit(kind.steps) for name, kind in kinds.items()} == {
        "UpdateSubscriberData": False,  # where the second update finds nothing, the first one is undone
        "UpdateLocation": True,
        "InsertCallForwarding": True,
        "DeleteCallForwarding": True,
    }
    assert not carries_commit(tracked(kinds["UpdateLocation"], (1, 2)).steps)
    change = statement("change", 1)
    alone = Statement(name="alone", text={}, arguments=(int,), reads=False, rows_only=True)
    assert not carries_commit((Step(change),))  # a trigger may have changed more than the rows that it counts
    assert carries_commit((Step(change, least=0),))
    assert carries_commit((Step(change), Step(change, least=0)))
    assert carries_commit((Step(alone),))
    assert not carries_commit((Step(change), Step(alone)))
    assert not carries_commit((Step(alone, most=1),))
    assert not carries_commit((Step(statement("read", 1, reads=True), least=0),))
    assert not carries_commit(())


@pytest.mark.parametrize("kind", [kind for kind in HLR.transactions if kind.steps], ids=lambda kind: kind.name)
def test_hlr_is_the_same_both_ways(turns: ModuleType, kind: TransactionType) -> None:
    chance, source = random.Random(3), kind.inputs(HLR.keys(5))
    for _ in range(200):
        answers = [(chance.choice((0, 1, 1, 1, 3)), [(chance.randrange(1_000),)]) for _ in kind.steps]
        same_both_ways(turns, kind, source(), [(count, rows if count else []) for count, rows in answers])


def statement(name: str, arguments: int, reads: bool = False) -> Statement:
    return Statement(name=name, text={}, arguments=(object,) * arguments, reads=reads)


def test_values_are_kept_over_steps_and_bounds_hold(turns: ModuleType) -> None:
    """Two values of one row and one of another are used later in any order and more than once; a missing row is a
    failure."""
    steps = (
        Step(statement("a", 1, reads=True), keeps=2, most=2),
        Step(statement("b", 0), least=0),
        Step(statement("c", 3, reads=True), places=(1, 2, 1), keeps=1),
        Step(statement("d", 4), places=(3, 2, 0, 1)),
    )
    kind = TransactionType(
        name="own", weight=1.0, body=lambda i: walk(steps, i), statements=tuple(s.statement for s in steps), steps=steps
    )
    inputs = ((7,), (), ("x",), ("y",))
    first, other = [("one", "two"), ("no", "no")], [(None,)]
    session = Session([(2, first), (0, []), (1, other), (1, [])])
    assert by_script(turns, kind, inputs, session) == 0
    assert [arguments for _, arguments in session.statements] == [
        (),
        (7,),
        (),
        ("two", "x", "two"),
        ("y", None, "one", "two"),
        (),
    ]
    for answers in (
        [(3, first)],
        [(1, [])],
        [(1, first), (0, []), (1, [])],
        [(1, first), (0, []), (1, other), (0, [])],
        [(1, first), (9, []), (1, other), (9, [])],
    ):
        same_both_ways(turns, kind, inputs, answers)


@pytest.mark.parametrize(("least", "most"), [(0, sys.maxsize), (1, sys.maxsize), (1, 1), (2, 3)])
def test_a_single_statement_succeeds_within_its_bounds(turns: ModuleType, least: int, most: int) -> None:
    kind = transaction_of(0, steps_of([(statement("one", 0), (), least, most)], {}), name="one", weight=1.0)
    for count in range(5):
        session, times = Session([(count, []), (count, [])]), [turns.Times(), turns.Times()]
        body = kind.body((kind.statements[0], ()))
        next(body)
        session.exchange(kind.statements[0], ())
        with pytest.raises(StopIteration) as ended:
            body.send(session)
        state, terminal = turns.KindState(times), turns.TerminalState()
        state.bare, state.least, state.most = kind.bare, kind.least, kind.most
        terminal.kind, terminal.session = state, session
        assert turns.turns(terminal, 2**62) == NEXT
        assert [len(records) for records in times] == ([3, 0] if ended.value.value == 0 else [0, 3])


# ---- rows: inputs that go from arrays into messages are the same bytes as Python values, also in a retry -------------

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
KINDS = [(workload, kind) for workload in WORKLOADS for kind in workload.transactions]
ROUNDS = 300  # more than a batch
SYNC = b"S\x00\x00\x00\x04"
ANSWER = b"D\x00\x00\x00\x0e\x00\x01\x00\x00\x00\x04\x00\x00\x00\x07C\x00\x00\x00\x0dSELECT 1\x00Z\x00\x00\x00\x05I"  # the number 7


def prepared_of(statement: Statement) -> Any:
    from proveout.agent.engines.postgres.protocol_native import Prepared

    kinds = tuple("q" if kind is int else None for kind in statement.arguments)
    head, tail = around(statement.name.encode(), kinds, 1)
    return Prepared(statement, head, kinds, tail, (None,))


def sent(native: ModuleType, workload: WorkloadKind, kind: TransactionType, *, rows: bool) -> bytes:
    """The messages of a terminal in some transactions, of which each statement is answered with one row of one number;
    `rows`: with the source of the workload itself."""
    from proveout.agent.engines.postgres.protocol_native import Wire

    source = kind.inputs(workload.keys(5))
    state, terminal = native.KindState([native.Times(), native.Times()]), native.TerminalState()
    state.bare, state.start = kind.bare, kind.body
    terminal.prepared = {one.name: prepared_of(one) for one in kind.statements}
    state.inputs = source if rows else partial(next, iter(source, None))
    state.prepared = prepared_of(kind.statements[0])
    if kind.steps:
        steps = [(prepared_of(s.statement), s.places, s.keeps, s.least, s.most) for s in kind.steps]
        begin, commit, rollback = map(prepared_of, (begin_of(kind), COMMIT, ROLLBACK))
        state.script = native.Script(begin, commit, rollback, steps)
    terminal.kind, terminal.restless = state, True
    terminal.draw = native.Mix([state], iter(lambda: memoryview(bytes(2 * 16)).cast("H"), None))
    begun = native.first(terminal)
    assert (terminal.inputs is state) == (rows and kind.name != "Nothing")
    assert native.again(terminal) == begun, "a retry has the same inputs"
    received = bytearray()
    client, server = socket.socketpair()
    with client, server:
        client.setblocking(False)
        terminal.session = Wire(client.fileno(), Failures(failure_of).of, connection_lost, send_rest)
        terminal.session.send(*begun)
        while len(state.times[0]) // 3 < ROUNDS:
            received += server.recv(65_536)
            if received.endswith(SYNC):
                server.sendall(ANSWER)
                if native.turns(terminal, 2**62) == NEXT:
                    terminal.session.send(*native.first(terminal))
    return bytes(received)


@pytest.mark.parametrize(("workload", "kind"), KINDS, ids=lambda value: getattr(value, "name", ""))
def test_rows_and_values_are_the_same_messages(
    native: ModuleType, workload: WorkloadKind, kind: TransactionType
) -> None:
    by_row, by_value = sent(native, workload, kind, rows=True), sent(native, workload, kind, rows=False)
    common = min(len(by_row), len(by_value))
    assert common > ROUNDS * len(SYNC)
    assert by_row[:common] == by_value[:common]

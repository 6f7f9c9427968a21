"""Scripts of transactions, run by the loop: the same statements, arguments and outcomes as the body, compiled and in
Python."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest

from proveout.agent.load.loop import transaction_loop_python
from proveout.agent.load.loop.transaction import CONTROLS, begin_of, carries_commit, in_transaction
from proveout.dsl.workloads.base import Row, Statement, Step, TransactionType, walk
from proveout.dsl.workloads.commits import tracked
from proveout.dsl.workloads.hlr import Hlr
from proveout.dsl.workloads.hlr_workload import build
from proveout.dsl.workloads.transactions import parts_of, transaction_of

HLR = build(Hlr(population=1_000))
_, _, COMMIT, ROLLBACK = CONTROLS


@pytest.fixture(params=["python", "compiled"])
def turns(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "python":
        return transaction_loop_python
    native: ModuleType = pytest.importorskip(
        "proveout.agent.load.loop.transaction_loop_native", reason="the hot path was not compiled here"
    )
    return native


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
    assert turns.turns(terminal, 2**62) == transaction_loop_python.NEXT
    (outcome,) = [number for number, records in enumerate(times) if len(records)]
    return outcome


def by_run(turns: ModuleType, kind: TransactionType, inputs: Any, session: Session, *, carried: bool) -> int:
    """Run the script as the loop of blocking sessions does."""
    state, terminal, _ = scripted(turns, kind, inputs, session)
    return int(state.script.run(terminal, carried))


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
    body, script, blocking, carrying = (Session(answers) for _ in range(4))
    outcome = by_body(kind, inputs, body)
    assert (by_script(turns, kind, inputs, script), script.statements) == (outcome, body.statements)
    assert by_run(turns, kind, inputs, blocking, carried=False) == outcome
    assert (blocking.statements, blocking.carried) == (body.statements, [])
    assert by_run(turns, kind, inputs, carrying, carried=True) == outcome
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
    kind = transaction_of(0, parts_of([(statement("one", 0), (), least, most)], {}), name="one", weight=1.0)
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
        assert turns.turns(terminal, 2**62) == transaction_loop_python.NEXT
        assert [len(records) for records in times] == ([3, 0] if ended.value.value == 0 else [0, 3])

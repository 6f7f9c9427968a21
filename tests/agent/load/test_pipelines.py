"""Bodies that yield groups: as messages of a session that pipelines, and one statement at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from proveout.agent.load.loop.transaction import Kind
from proveout.agent.load.loop.transaction_loop import Times
from proveout.dsl.workloads.base import Body, Last, Outcome, Statement, TransactionType
from proveout.dsl.workloads.commits import PIPELINE, together, tracked

READ = Statement(name="read", text={}, arguments=(int,))
WRITE = Statement(name="write", text={}, arguments=(int,), reads=False)


class Session:
    """Answers each statement with its first argument; keeps the messages, each the statements of one round trip."""

    count = 1

    def __init__(self) -> None:
        self.messages: list[list[str]] = []
        self._requests: Any = ()

    def results(self) -> list[Any]:
        return [SimpleNamespace(count=1, rows=lambda row=row[:1]: [row]) for _, row in self._requests]

    def rows(self) -> list[tuple[Any, ...]]:
        return [self._requests[0][1][:1]]

    def drive(self, body: Body) -> Outcome | Last:
        try:
            statement, arguments = next(body)
            while True:
                self._requests = arguments if statement is PIPELINE else ((statement, arguments),)
                self.messages.append([one.name for one, _ in self._requests])
                statement, arguments = body.send(self)
        except StopIteration as stop:
            outcome: Outcome = stop.value
            return outcome


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


def run(body: Any, inputs: int, *, pipelines: bool, counted: bool = False) -> tuple[list[list[str]], Outcome | Last]:
    kind = TransactionType(name="t", weight=1.0, body=body, statements=(READ, WRITE), pipeline=True)
    if counted:
        kind = tracked(kind, (1, 2))
    state = Kind(0, kind, None, (Times(), Times()))
    state.bind({"read": READ, **({PIPELINE.name: None} if pipelines else {})})
    session = Session()
    return session.messages, session.drive(state.start(inputs))


@pytest.mark.parametrize(("inputs", "end", "outcome"), [(5, "commit", 0), (95, "rollback", 1)])
def test_begin_and_the_end_travel_with_groups(inputs: int, end: str, outcome: int) -> None:
    messages = [["begin_write", "read", "read"], ["write"], ["read"], ["write", "read", end]]
    assert run(grouped, inputs, pipelines=True) == (messages, outcome)
    alone = [[name] for message in messages for name in message]
    assert run(grouped, inputs, pipelines=False) == (alone, outcome)


@pytest.mark.parametrize("pipelines", [True, False])
def test_begin_travels_with_a_single_first_statement(pipelines: bool) -> None:
    messages, outcome = run(alone_first, 7, pipelines=pipelines)
    assert messages == ([["begin_write", "read"], ["commit"]] if pipelines else [["begin_write"], ["read"], ["commit"]])
    assert outcome is Outcome.COMMIT


def test_the_counted_commit_is_a_message_of_its_own() -> None:
    """Its row must be there: COMMIT waits for the answer."""
    messages, outcome = run(grouped, 5, pipelines=True, counted=True)
    assert messages[-2:] == [["write", "read", "proveout_count_commit"], ["commit"]]
    assert outcome is Outcome.COMMIT
    messages, outcome = run(grouped, 95, pipelines=True, counted=True)
    assert messages[-1] == ["write", "read", "rollback"]
    assert outcome is Outcome.LOGICAL_FAILURE
    messages, _ = run(grouped, 5, pipelines=False, counted=True)
    assert messages[-2:] == [["proveout_count_commit"], ["commit"]]

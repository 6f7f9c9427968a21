"""Groups of requests that do not need each other's results, and may be sent at once. Pure.

Flow: a body does `results = yield from together(a, b, c)` -> one request to `PIPELINE`, whose arguments are the
requests -> a session that pipelines sends all of them in one message and reads all answers (`agent/load/loop/
pipeline.py`); for all others `one_by_one` makes them single requests again -> the body gets a list of results.

The requests of a group are executed in their order, in one transaction, and the first that fails ends the group: the
data are those of single requests. A body of groups may return `Last` requests, with which COMMIT travels.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from proveout.core.data_classes import dataclass
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.base import Body, Last, Outcome, Request, Result, Row, Statement

PIPELINE = Statement(name="proveout_pipeline", text={}, arguments=(), reads=False)

PARAMETER = "pipeline"
"""The parameter of a workload kind that asks for it."""
TEXT = "independent statements of a transaction travel together, COMMIT with the last ones"
"""The effect, for people: response times have fewer round trips than one for each statement."""


def asked_for(workload: Workload) -> bool:
    """Whether a compiled workload sends its groups as pipelines."""
    return dict(workload.parameters).get(PARAMETER) is True


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one request of a group, which stays valid after the next request."""

    count: int
    found: list[Row]

    def rows(self) -> list[Row]:
        """The rows."""
        return self.found


def together(*requests: Request) -> Generator[Request, Any, list[Result]]:
    """Send these requests, at least one, as a group; returns their results, in their order."""
    results: list[Result] = yield PIPELINE, requests
    return results


def one_by_one(body: Callable[[Any], Body]) -> Callable[[Any], Body]:
    """The same transaction without groups: each request by itself, in the same order."""

    def alone(inputs: Any) -> Body:
        step: Callable[[Any], Request] = body(inputs).send
        answer: Any = None
        while True:
            try:
                request = step(answer)
            except StopIteration as stop:
                outcome = stop.value
                break
            if request[0] is PIPELINE:
                answer = []
                for each in request[1]:
                    result = yield each
                    answer.append(Answer(result.count, result.rows() if each[0].reads else []))
            else:
                answer = yield request
        if not isinstance(outcome, Last):
            return Outcome(outcome)
        for each in outcome.requests:
            yield each
        return outcome.outcome

    return alone

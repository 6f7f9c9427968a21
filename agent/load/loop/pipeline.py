"""A transaction whose body yields groups of requests, with BEGIN in its first message and COMMIT in its last where the
body leaves that open.

Flow: `Kind.bind` -> `in_pipelines` for a session that `Pipelines`, else `in_transaction` over `one_by_one` -> the load
loop sends a request to `PIPELINE` as any other, to what `Pipelines.pipeline` has made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proveout.dsl.workloads.base import Body, Last, Outcome, Request, TransactionType
from proveout.dsl.workloads.pipelines import PIPELINE


def in_pipelines(kind: TransactionType, begin: Request, commit: Request, rollback: Request) -> Callable[[Any], Body]:
    """The kind's body between BEGIN and COMMIT; ROLLBACK after a logical failure. BEGIN travels with the first request,
    and the end with the body's `Last` ones: it follows them whatever they find, and the server leaves out what comes
    after a request that fails.
    """
    body = kind.body

    def bracketed(inputs: Any) -> Body:
        step: Callable[[Any], Request] = body(inputs).send
        answer: Any = None
        opening: tuple[Request, ...] = (begin,)
        while True:
            try:
                request = step(answer)
            except StopIteration as stop:
                outcome = stop.value
                break
            if request[0] is PIPELINE:
                session: Any = yield PIPELINE, (*opening, *request[1])
                answer = session.results()[len(opening) :]
            elif opening:
                session = yield PIPELINE, (begin, request)
                answer = session.results()[1]
            else:
                answer = yield request
            opening = ()
        requests: tuple[Request, ...] = ()
        if isinstance(outcome, Last):
            requests, outcome = outcome.requests, outcome.outcome
        end = commit if outcome is Outcome.COMMIT else rollback
        if opening or requests:
            yield PIPELINE, (*opening, *requests, end)
        else:
            yield end
        return Outcome(outcome)

    return bracketed

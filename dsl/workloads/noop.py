"""The workload of `proveout ceiling`: one prepared statement that reads nothing. The maximum of a client is
measured with it.

It has no tables, no keys and no parameters, and a plan cannot name it: it does not measure a database.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proveout.dsl.workloads.base import Body, Outcome, Population, Request, Statement, TransactionType

KIND = "noop"

SELECT_ONE = Statement(
    name="select_one",
    text={
        "postgres": "SELECT 1",
        "sqlite": "SELECT 1",
        "mysql": "SELECT 1",
        "oracle": "SELECT 1 FROM dual",
        "duckdb": "SELECT 1",
    },
    arguments=(),
    columns=(int,),
)
_REQUEST: Request = (SELECT_ONE, ())


def _body(request: Request) -> Body:
    result = yield request
    return Outcome.COMMIT if result.count else Outcome.LOGICAL_FAILURE


def _inputs(keys: Any) -> Callable[[], Request]:
    return lambda: _REQUEST


class Noop:
    """The workload kind."""

    transactions = (
        TransactionType(
            name="Noop", weight=1.0, inputs=_inputs, body=_body, statements=(SELECT_ONE,), single=True, bare=True
        ),
    )
    population = Population(units=0, tables=(), before={}, after={}, drop={}, expected={})

    invariants = ()

    def keys(self, stream: int) -> None:
        """There is nothing to draw."""

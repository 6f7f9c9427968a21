"""The TPROC-H workload: a set of queries and refresh functions, in the order of a stream.

A query is a transaction of one statement, outside BEGIN; where it finds no row it counts as a logical failure, so that
reports can tell which queries returned rows. RF1 and RF2 are transactions with BEGIN and COMMIT.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from operator import itemgetter

from proveout.core.data_classes import dataclass
from proveout.dsl.engines import DIALECTS
from proveout.dsl.workloads.base import (
    Body,
    Invariant,
    Outcome,
    Population,
    Request,
    Statement,
    Table,
    TransactionType,
)
from proveout.dsl.workloads.tproch import refresh, streams, tables
from proveout.dsl.workloads.tproch.parameters import (
    REFRESH_DELETE,
    REFRESH_INSERT,
    STATE,
    TABLES,
    Tproch,
    query_name,
    refreshes,
    transactions,
)
from proveout.dsl.workloads.tproch.query_parameters import Parameters
from proveout.dsl.workloads.tproch.query_templates import STATEMENTS
from proveout.dsl.workloads.tproch.rows import Generator

TERMINAL_MASK = 2**32 - 1
SLICE_UNITS = 2
"""Units of a slice at most: 120,000 rows of LINEITEM."""


@dataclass(frozen=True)
class TprochWorkload:
    """A `base.WorkloadKind`: TPROC-H with its parameters."""

    parameters: Tproch

    in_order = True

    @cached_property
    def transactions(self) -> tuple[TransactionType, ...]:
        """Those of a pass, see `parameters.transactions`."""
        made = {query_name(number): _query(number) for number in self.parameters.queries}
        made[REFRESH_INSERT] = self._refresh(
            REFRESH_INSERT, refresh.insert_set, refresh.INSERT_STATEMENTS, refresh.NUMBER["inserted"]
        )
        made[REFRESH_DELETE] = self._refresh(
            REFRESH_DELETE, refresh.delete_set, refresh.DELETE_STATEMENTS, refresh.NUMBER["deleted"]
        )
        return tuple(made[name] for name in transactions(self.parameters))

    def _refresh(
        self, name: str, body: Callable[[Tproch], Body], statements: tuple[Statement, ...], counted: Statement
    ) -> TransactionType:
        return TransactionType(
            name=name,
            weight=1.0,
            inputs=lambda _: partial(_same, self.parameters),
            body=body,
            statements=statements,
            logical_failure=(0.0, 0.0),
            counted=counted,
        )

    def sequence(self, terminal: int) -> Sequence[str]:
        """The names of a pass in the order of a terminal; see `base.Ordered`."""
        names = transactions(self.parameters)
        if self.parameters.test == "refresh":
            return names
        ordered = [query_name(number) for number in streams.order(self.stream(terminal))]
        queries = [name for name in ordered if name in names]
        return [REFRESH_INSERT, *queries, REFRESH_DELETE] if refreshes(self.parameters) else queries

    def stream(self, terminal: int) -> int:
        """The number of a terminal's stream: the power test has number 0."""
        return terminal if self.parameters.test == "power" else terminal + 1

    @cached_property
    def population(self) -> Population:
        """The eight tables, and the state of the refresh functions."""
        rows = Generator(self.parameters)
        return Population(
            units=self.parameters.units,
            slice_units=SLICE_UNITS,
            tables=tuple(
                Table(name=name, columns=tables.COLUMNS[name], rows=partial(rows.rows, name)) for name in TABLES
            ),
            before=tables.before(),
            after=tables.after(),
            drop=tables.drop(),
            expected=tables.expected(self.parameters),
        )

    @property
    def invariants(self) -> tuple[Invariant, ...]:
        """The number of orders: those of the load, and those that refresh sets have added and removed."""
        own = self.parameters
        there = f"{own.orders} + {own.set_orders} * (inserted - deleted)"
        text = f"SELECT (SELECT COUNT(*) FROM orders), {there} FROM {STATE}"  # noqa: S608 - names of ours
        statement = Statement(name="orders-there", text=dict.fromkeys(DIALECTS, text), arguments=(), columns=(int, int))
        return (
            Invariant(
                name="orders",
                title="There are the orders of the load and of the refresh sets",
                left="orders",
                right="orders loaded, and inserted less deleted",
                statement=statement,
            ),
        )

    def keys(self, stream: int) -> Mapping[str, Callable[[], Request]]:
        """For each query a function that gives its next request. Terminals of one number get the same in every
        iteration."""
        drawn = Parameters(self.parameters.seed, self.stream(stream & TERMINAL_MASK), self.parameters.scale)
        return {query_name(number): partial(_request, drawn, number) for number in self.parameters.queries}


def _query(number: int) -> TransactionType:
    return TransactionType(
        name=query_name(number),
        weight=1.0,
        inputs=itemgetter(query_name(number)),
        body=_one_query,
        statements=(STATEMENTS[number],),
        single=True,
        bare=True,
    )


def _request(drawn: Parameters, number: int) -> Request:
    return STATEMENTS[number], drawn.arguments(number)


def _same(parameters: Tproch) -> Tproch:
    """The inputs of a refresh function: its rows follow from the number of the set."""
    return parameters


def _one_query(request: Request) -> Body:
    result = yield request
    return Outcome.COMMIT if result.count else Outcome.LOGICAL_FAILURE


def build(parameters: Tproch) -> TprochWorkload:
    """The workload of these parameters."""
    return TprochWorkload(parameters)

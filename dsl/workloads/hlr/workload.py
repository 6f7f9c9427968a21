"""The HLR workload (TATP): seven transactions over a home location register, their statements, keys and population.

Flow: `build(parameters)` -> `HlrWorkload`; a driver takes `keys(stream)` for each terminal, picks a `TransactionType`
by weight, draws its inputs, runs its body and sends each statement's result back in. Inputs are drawn ahead in batches
(`hlr.keys`); the three reads are one statement each, the four others tables of steps, which an engine may run by
itself.

Success and failure follow the TATP specification (version 1.0): a transaction that finds nothing, changes nothing, or
inserts what is there already (or belongs to no special facility) has failed *logically*; it is rolled back and counted
apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from operator import attrgetter

from proveout.core.data_classes import dataclass
from proveout.dsl.workloads.base import (
    Body,
    Invariant,
    Outcome,
    Population,
    Request,
    Statement,
    Step,
    Table,
    TransactionType,
    walk,
)
from proveout.dsl.workloads.conformance import Finding, Seen, judge_expected, judge_mix
from proveout.dsl.workloads.hlr import rows as hlr_rows
from proveout.dsl.workloads.hlr import tables as hlr_tables
from proveout.dsl.workloads.hlr.keys import Keys, effective_subscribers
from proveout.dsl.workloads.hlr.parameters import Hlr
from proveout.dsl.workloads.hlr.shares import shares
from proveout.dsl.workloads.hlr.statements import (
    DELETE_FORWARDING,
    FIND_NUMBER,
    GET_ACCESS,
    GET_DESTINATION,
    GET_FACILITIES,
    GET_SUBSCRIBER,
    INSERT_FORWARDING,
    SET_BIT,
    SET_DATA_A,
    SET_LOCATION,
)

COMMIT, LOGICAL_FAILURE = Outcome.COMMIT, Outcome.LOGICAL_FAILURE


def find(request: Request) -> Body:
    """One statement that finds a row or not: a subscriber's row; its access information of one type, which it may not
    have; where calls to an active special facility are forwarded to at a time of day, if they are."""
    result = yield request
    return COMMIT if result.count else LOGICAL_FAILURE


# Of each transaction: which of the keys its inputs are, and its statements
_READS: Mapping[str, tuple[str, Statement]] = {
    "GetBasicSubscriberData": ("subscriber", GET_SUBSCRIBER),
    "GetAccessData": ("access", GET_ACCESS),
    "GetNewDestination": ("destination", GET_DESTINATION),
}
_CHANGES: Mapping[str, tuple[str, tuple[Step, ...]]] = {
    # A bit of a subscriber and a byte of one of its facilities, which it may not have: then neither
    "UpdateSubscriberData": ("subscriber_data", (Step(SET_BIT), Step(SET_DATA_A))),
    "UpdateLocation": ("location", (Step(FIND_NUMBER, keeps=1), Step(SET_LOCATION, places=(1, 0)))),
    # Its facility may not be there, or have a forwarding at that time already
    "InsertCallForwarding": (
        "insert",
        (
            Step(FIND_NUMBER, keeps=1),
            Step(GET_FACILITIES, places=(0,), least=0),
            Step(INSERT_FORWARDING, places=(0, 1, 2, 3, 4)),
        ),
    ),
    "DeleteCallForwarding": ("delete", (Step(FIND_NUMBER, keeps=1), Step(DELETE_FORWARDING, places=(0, 1, 2)))),
}

_TRANSACTIONS = (
    *(
        TransactionType(
            name=name,
            weight=0.0,
            inputs=attrgetter(source),
            body=find,
            statements=(statement,),
            single=True,
            bare=True,
        )
        for name, (source, statement) in _READS.items()
    ),
    *(
        TransactionType(
            name=name,
            weight=0.0,
            inputs=attrgetter(source),
            body=partial(walk, steps),
            statements=tuple(step.statement for step in steps),
            steps=steps,
        )
        for name, (source, steps) in _CHANGES.items()
    ),
)


@dataclass(frozen=True)
class HlrWorkload:
    """A `base.WorkloadKind`: the HLR workload with its parameters."""

    parameters: Hlr

    @cached_property
    def transactions(self) -> tuple[TransactionType, ...]:
        """All seven, in the specification's order; those the plan leaves out have weight 0."""
        expected = shares(self.parameters)
        return tuple(
            replace(
                transaction,
                weight=self.parameters.weights[transaction.name],
                logical_failure=(1.0 - expected[transaction.name].fresh, 1.0 - expected[transaction.name].steady),
            )
            for transaction in _TRANSACTIONS
        )

    @cached_property
    def population(self) -> Population:
        """The four tables; `rows` makes their contents."""
        columns = hlr_tables.columns(self.parameters.population)
        return Population(
            units=self.parameters.population,
            tables=tuple(
                Table(name=name, columns=columns[name], rows=partial(getattr(hlr_rows, name), self.parameters))
                for name in hlr_tables.NAMES
            ),
            before=hlr_tables.before(self.parameters),
            after=hlr_tables.after(self.parameters),
            drop=hlr_tables.drop(),
            expected=hlr_tables.expected(self.parameters),
        )

    @property
    def invariants(self) -> tuple[Invariant, ...]:
        """None: nothing is conserved; a load is judged by its success shares (`findings`)."""
        return ()

    def keys(self, stream: int) -> Keys:
        """Arguments for one terminal; `stream` sets terminals (and repeats) apart."""
        return Keys(self.parameters, stream)

    def findings(self, seen: Sequence[Seen], earlier: Sequence[Hlr]) -> tuple[Finding, ...]:
        """Whether the mix and the success shares are those of the specification; see `conformance`."""
        tables = [shares(one) for one in (self.parameters, *earlier)]
        expected = {name: (min(t[name].low for t in tables), max(t[name].high for t in tables)) for name in tables[0]}
        units = effective_subscribers(self.parameters)
        return judge_mix(self.parameters.weights, seen), judge_expected(expected, seen, units)


def build(parameters: Hlr) -> HlrWorkload:
    """The workload of these parameters."""
    return HlrWorkload(parameters)

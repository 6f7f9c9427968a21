"""The HLR workload (TATP): seven transactions over a home location register, their statements, keys and population.

Flow: `build(parameters)` -> `HlrWorkload`; a driver takes `keys(stream)` for each terminal, picks a `TransactionType` by
weight, draws its inputs, runs its body and sends each statement's result back in. Bodies are the hot path: inputs are drawn
ahead in batches (`hlr_keys`), so a transaction costs one `next()`, which gives its whole first request ready made.

Success and failure follow the TATP specification (version 1.0): a transaction that finds nothing, changes nothing, or
inserts what is there already (or belongs to no special facility) has failed *logically*; it is rolled back and counted
apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from operator import attrgetter
from typing import Any

from proveout.dsl.workloads import hlr_rows, hlr_tables
from proveout.dsl.workloads.base import Body, Invariant, Outcome, Population, Request, Statement, Table, TransactionType
from proveout.dsl.workloads.hlr_keys import Keys
from proveout.dsl.workloads.hlr_shares import shares
from proveout.dsl.workloads.hlr_statements import (
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
from proveout.dsl.workloads.parameters import Hlr

COMMIT, LOGICAL_FAILURE = Outcome.COMMIT, Outcome.LOGICAL_FAILURE


def find(request: Request) -> Body:
    """One statement that finds a row or not: a subscriber's row; its access information of one type, which it may not have;
    where calls to an active special facility are forwarded to at a time of day, if they are."""
    result = yield request
    return COMMIT if result.count else LOGICAL_FAILURE


def update_subscriber_data(inputs: tuple[Request, Request]) -> Body:
    """One bit of a subscriber and a byte of one of its facilities, which it may not have: then neither."""
    set_bit, set_data = inputs
    changed = yield set_bit
    if not changed.count:
        return LOGICAL_FAILURE
    changed = yield set_data
    return COMMIT if changed.count else LOGICAL_FAILURE


def update_location(inputs: tuple[Request, int]) -> Body:
    """The location of the subscriber with a number."""
    subscriber, location = inputs
    found = yield subscriber
    if not found.count:
        return LOGICAL_FAILURE
    changed = yield SET_LOCATION, (location, found.rows()[0][0])
    return COMMIT if changed.count else LOGICAL_FAILURE


def insert_call_forwarding(inputs: tuple[Request, int, int, int, str]) -> Body:
    """A new forwarding for the subscriber with a number; its facility may not be there, or have one at that time already."""
    subscriber, sf_type, start_time, end_time, number = inputs
    found = yield subscriber
    if not found.count:
        return LOGICAL_FAILURE
    s_id = found.rows()[0][0]
    yield GET_FACILITIES, (s_id,)
    inserted = yield INSERT_FORWARDING, (s_id, sf_type, start_time, end_time, number)
    return COMMIT if inserted.count else LOGICAL_FAILURE


def delete_call_forwarding(inputs: tuple[Request, int, int]) -> Body:
    """Remove a forwarding of the subscriber with a number, if there is one."""
    subscriber, sf_type, start_time = inputs
    found = yield subscriber
    if not found.count:
        return LOGICAL_FAILURE
    deleted = yield DELETE_FORWARDING, (found.rows()[0][0], sf_type, start_time)
    return COMMIT if deleted.count else LOGICAL_FAILURE


# Of each transaction: which of the keys its inputs are, its body, its statements
_BODIES: Mapping[str, tuple[str, Callable[[Any], Body], tuple[Statement, ...]]] = {
    "GetBasicSubscriberData": ("subscriber", find, (GET_SUBSCRIBER,)),
    "GetAccessData": ("access", find, (GET_ACCESS,)),
    "GetNewDestination": ("destination", find, (GET_DESTINATION,)),
    "UpdateSubscriberData": ("subscriber_data", update_subscriber_data, (SET_BIT, SET_DATA_A)),
    "UpdateLocation": ("location", update_location, (FIND_NUMBER, SET_LOCATION)),
    "InsertCallForwarding": ("insert", insert_call_forwarding, (FIND_NUMBER, GET_FACILITIES, INSERT_FORWARDING)),
    "DeleteCallForwarding": ("delete", delete_call_forwarding, (FIND_NUMBER, DELETE_FORWARDING)),
}


@dataclass(frozen=True)
class HlrWorkload:
    """A `base.WorkloadKind`: the HLR workload with its parameters."""

    parameters: Hlr

    @cached_property
    def transactions(self) -> tuple[TransactionType, ...]:
        """All seven, in the specification's order; those the plan leaves out have weight 0."""
        expected = shares(self.parameters)
        return tuple(
            TransactionType(
                name=name,
                weight=self.parameters.weights[name],
                inputs=attrgetter(source),
                body=body,
                statements=statements,
                single=len(statements) == 1,
                bare=len(statements) == 1,
                logical_failure=(1.0 - expected[name].fresh, 1.0 - expected[name].steady),
            )
            for name, (source, body, statements) in _BODIES.items()
        )

    @cached_property
    def population(self) -> Population:
        """The four tables; see `hlr_rows` for what is in them."""
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
        """None: nothing is conserved; what a load did is judged by its shares (`conformance`)."""
        return ()

    def keys(self, stream: int) -> Keys:
        """Arguments for one terminal; `stream` sets terminals (and repeats) apart."""
        return Keys(self.parameters, stream)


def build(parameters: Hlr) -> HlrWorkload:
    """The workload of these parameters."""
    return HlrWorkload(parameters)

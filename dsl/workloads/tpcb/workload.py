"""The TPC-B-like workload: pgbench's three built-in scripts on pgbench's own tables.

Flow: `build(parameters)` -> `TpcbWorkload`; a driver takes `keys(stream)` for each terminal, picks a `TransactionType`
by weight and runs it. `TpcbLike` is `-b tpcb-like`, `SimpleUpdate` `-b simple-update` (`-N`), `SelectOnly`
`-b select-only` (`-S`). The statements are pgbench's, in its order; each of them, BEGIN and COMMIT is a round trip of
its own, as in pgbench. The two that write are tables of steps, which an engine may run by itself.

It is not TPC-B: an account's branch does not follow its teller's, the balance is returned by a statement of its own,
and the scale does not grow with the throughput. Source: PostgreSQL 18, src/bin/pgbench/pgbench.c, builtin_script.

Money is conserved: the tellers' balances sum to the branches', the accounts' to the history's amounts; and, where no
load runs SimpleUpdate, the branches' do so too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from operator import attrgetter

from proveout.core.data_classes import dataclass
from proveout.dsl.workloads import ddl
from proveout.dsl.workloads.base import (
    Body,
    Invariant,
    Outcome,
    Population,
    Request,
    Step,
    Table,
    TransactionType,
    walk,
)
from proveout.dsl.workloads.conformance import Finding, Seen, judge_expected, judge_mix
from proveout.dsl.workloads.tpcb import rows as tpcb_rows
from proveout.dsl.workloads.tpcb import tables as tpcb_tables
from proveout.dsl.workloads.tpcb.keys import Keys
from proveout.dsl.workloads.tpcb.parameters import TABLES, TPCB_TRANSACTIONS, Tpcb
from proveout.dsl.workloads.tpcb.statements import (
    ACCOUNTS_TOTAL,
    ADD_HISTORY,
    BRANCHES_TOTAL,
    GET_BALANCE,
    TELLERS_TOTAL,
    UPDATE_ACCOUNT,
    UPDATE_BRANCH,
    UPDATE_TELLER,
)

_ALWAYS = (0.0, 0.0)


def select_only(request: Request) -> Body:
    """The balance of an account."""
    result = yield request
    return Outcome.COMMIT if result.count else Outcome.LOGICAL_FAILURE


STEPS: Mapping[str, tuple[Step, ...]] = {
    "TpcbLike": (
        Step(UPDATE_ACCOUNT),
        Step(GET_BALANCE),
        Step(UPDATE_TELLER),
        Step(UPDATE_BRANCH),
        Step(ADD_HISTORY),
    ),
    "SimpleUpdate": (Step(UPDATE_ACCOUNT), Step(GET_BALANCE), Step(ADD_HISTORY)),
}
_SOURCES: Mapping[str, str] = dict(zip(TPCB_TRANSACTIONS, ("tpcb_like", "simple_update", "select_only"), strict=True))

_TRANSFERRED = Invariant(
    name="tellers",
    title="The balances of the tellers sum to those of the branches",
    left="tellers",
    right="branches",
    statement=TELLERS_TOTAL,
)
_RECORDED = Invariant(
    name="accounts",
    title="The balances of the accounts sum to the amounts in the history",
    left="accounts",
    right="history",
    statement=ACCOUNTS_TOTAL,
)
_BOOKED = Invariant(
    name="branches",
    title="The balances of the branches sum to the amounts in the history",
    left="branches",
    right="history",
    statement=BRANCHES_TOTAL,
)


@dataclass(frozen=True)
class TpcbWorkload:
    """A `base.WorkloadKind`: the TPC-B-like workload with its parameters."""

    parameters: Tpcb

    @cached_property
    def transactions(self) -> tuple[TransactionType, ...]:
        """All three; those the plan leaves out have weight 0. None of them fails logically."""
        weights = self.parameters.weights
        writing = (
            TransactionType(
                name=name,
                weight=weights[name],
                inputs=attrgetter(_SOURCES[name]),
                body=partial(walk, steps),
                statements=tuple(step.statement for step in steps),
                steps=steps,
                logical_failure=_ALWAYS,
            )
            for name, steps in STEPS.items()
        )
        reading = TransactionType(
            name="SelectOnly",
            weight=weights["SelectOnly"],
            inputs=attrgetter(_SOURCES["SelectOnly"]),
            body=select_only,
            statements=(GET_BALANCE,),
            single=True,
            bare=True,
            logical_failure=_ALWAYS,
        )
        return (*writing, reading)

    @cached_property
    def population(self) -> Population:
        """The four tables, in units of accounts; `rows` makes their contents."""
        parameters = self.parameters
        shapes = tpcb_tables.shapes(parameters.accounts)
        rows = (parameters.scale, parameters.tellers, parameters.accounts, 0)
        return Population(
            units=parameters.accounts,
            tables=tuple(
                Table(name=one.name, columns=one.columns, rows=partial(getattr(tpcb_rows, one.name), parameters))
                for one in shapes
            ),
            before=tpcb_tables.before(shapes),
            after=tpcb_tables.after(shapes),
            drop=ddl.drop(shapes),
            expected={name: (count, count) for name, count in zip(TABLES, rows, strict=True)},
        )

    @property
    def invariants(self) -> tuple[Invariant, ...]:
        """Money is conserved. SimpleUpdate adds to the history and changes no branch."""
        always = (_RECORDED, _TRANSFERRED)
        return always if self.parameters.weights["SimpleUpdate"] else (*always, _BOOKED)

    def keys(self, stream: int) -> Keys:
        """Arguments for one terminal; `stream` sets terminals (and repeats) apart."""
        return Keys(self.parameters, stream)

    def findings(self, seen: Sequence[Seen], _: Sequence[Tpcb]) -> tuple[Finding, ...]:
        """Whether the mix is the plan's, and no transaction has missed a row; see `conformance`."""
        found = dict.fromkeys(TPCB_TRANSACTIONS, (1.0, 1.0))
        return judge_mix(self.parameters.weights, seen), judge_expected(found, seen, self.parameters.accounts)


def build(parameters: Tpcb) -> TpcbWorkload:
    """The workload of these parameters."""
    return TpcbWorkload(parameters)

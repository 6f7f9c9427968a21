"""The TPTBM workload: reads, updates, inserts and deletes by key on one table of key × key rows.

Flow: `build(parameters)` -> `TptbmWorkload`; a driver takes `keys(stream)` for each terminal, picks a `TransactionType`
by weight and runs it. The mix 80-10-5-5 is 80 % reads, 10 % updates, 5 % inserts, 5 % deletes; the original is given
the percentages of reads, inserts and deletes, and updates are the rest.

A read, an update or a delete of a row that has been deleted finds nothing: a *logical failure*, counted apart. With
`ops_per_transaction: n` a transaction is n statements of its own kind in one commit, and one that misses fails as a
whole. (In the original, n statements drawn one by one share a commit and misses are nothing special.)

Source: tptbm.c of the TimesTen quickstart samples (oracle-samples/oracle-timesten-samples).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from operator import attrgetter, itemgetter

from proveout.core.data_classes import dataclass
from proveout.dsl.workloads import ddl
from proveout.dsl.workloads.base import (
    Body,
    Invariant,
    Outcome,
    Population,
    Request,
    Row,
    Statement,
    Step,
    Table,
    TransactionType,
    walk,
)
from proveout.dsl.workloads.conformance import Finding, Seen, judge_expected, judge_mix
from proveout.dsl.workloads.tptbm.keys import Keys
from proveout.dsl.workloads.tptbm.parameters import TPTBM_TRANSACTIONS, Tptbm
from proveout.dsl.workloads.tptbm.rows import WIDTH, vpn_users
from proveout.dsl.workloads.tptbm.statements import CALLERS, DELETE, INSERT, READ, UPDATE, deleted, inserted

STATEMENTS: dict[str, Statement] = dict(zip(TPTBM_TRANSACTIONS, (READ, UPDATE, INSERT, DELETE), strict=True))

VPN_USERS = ddl.TableShape(
    name="vpn_users",
    columns=(
        ("vpn_id", "int8"),  # of four bytes in the original: here inserted ids have room for every terminal's stripe
        ("vpn_nb", "int4"),
        ("directory_nb", "char(10)"),
        ("last_calling_party", "char(10)"),
        ("descr", f"char({WIDTH})"),
    ),
    primary_key="vpn_id, vpn_nb",
)


@dataclass(frozen=True)
class TptbmWorkload:
    """A `base.WorkloadKind`: TPTBM with its parameters."""

    parameters: Tptbm

    @cached_property
    def transactions(self) -> tuple[TransactionType, ...]:
        """All four; those the plan leaves out have weight 0."""
        return tuple(self._transaction(name) for name in TPTBM_TRANSACTIONS)

    def _transaction(self, name: str) -> TransactionType:
        source: Callable[[Keys], Callable[[], Request]] = attrgetter(name.lower())
        operations = self.parameters.ops_per_transaction
        steps = (Step(STATEMENTS[name]),) * operations
        return TransactionType(
            name=name,
            weight=self.parameters.weights[name],
            inputs=source if operations == 1 else partial(_several, source, operations),
            body=_operation if operations == 1 else partial(walk, steps),
            statements=(STATEMENTS[name],),
            single=operations == 1,
            bare=operations == 1,
            steps=() if operations == 1 else steps,
            logical_failure=(0.0, 0.0) if name == "Insert" else None,
            counted=self._counted.get(name),
        )

    @property
    def _counted(self) -> Mapping[str, Statement]:
        """The numbers that grow by one with each transaction of one statement."""
        key = self.parameters.key
        return {"Insert": inserted(key), "Delete": deleted(key)} if self.parameters.ops_per_transaction == 1 else {}

    @cached_property
    def population(self) -> Population:
        """The one table; see `tptbm.rows`."""
        rows = self.parameters.rows
        table = Table(name=VPN_USERS.name, columns=VPN_USERS.columns, rows=partial(vpn_users, self.parameters))
        return Population(
            units=rows,
            tables=(table,),
            before=ddl.before([VPN_USERS]),
            after=ddl.after([VPN_USERS]),
            drop=ddl.drop([VPN_USERS]),
            expected={VPN_USERS.name: (rows, rows)},
        )

    @property
    def invariants(self) -> tuple[Invariant, ...]:
        """Updates write what belongs to the row; the numbers of rows are held against the clients' counts."""
        return (
            Invariant(
                name="callers",
                title="The last caller of a row is that of the load or of an update of this row",
                left="rows whose last caller is theirs",
                right="rows",
                statement=CALLERS,
            ),
        )

    def keys(self, stream: int) -> Keys:
        """Arguments for one terminal; `stream` sets terminals (and repeats) apart."""
        return Keys(self.parameters, stream)

    def findings(self, seen: Sequence[Seen], earlier: Sequence[Tptbm]) -> tuple[Finding, ...]:
        """Whether the mix and the success shares are the expected ones; see `conformance`."""
        counts = {one.name: (one.ok, one.logical_failures) for one in seen}
        shares = expected_shares(self.parameters, counts, earlier)
        return judge_mix(self.parameters.weights, seen), judge_expected(shares, seen, math.inf)


def _several(source: Callable[[Keys], Callable[[], Request]], count: int, keys: Keys) -> Callable[[], tuple[Row, ...]]:
    """A source of the arguments of `count` statements at a time."""
    arguments = map(itemgetter(1), iter(source(keys), None))
    return zip(*[arguments] * count, strict=True).__next__


def _operation(request: Request) -> Body:
    """One statement."""
    result = yield request
    return Outcome.COMMIT if result.count else Outcome.LOGICAL_FAILURE


def build(parameters: Tptbm) -> TptbmWorkload:
    """The workload of these parameters."""
    return TptbmWorkload(parameters)


Z = 5.0
ANYTHING = (0.0, 1.0)
ALWAYS = (1.0, 1.0)


def expected_shares(
    parameters: Tptbm, counts: Mapping[str, tuple[int, int]], earlier: Iterable[Tptbm] = ()
) -> Mapping[str, tuple[float, float]]:
    """The range of each transaction's success share; `counts` are (ok, logical failures) of the iteration itself.

    Inserts always succeed. Where rows are deleted, reads and updates draw their rows alike, so that they miss alike: a
    read's range is estimated from the updates (Wilson's interval at z = 5), all of 0 … 1 when there are none.
    """
    deleted = any(one.weights["Delete"] > 0 for one in (parameters, *earlier))
    if not deleted:
        return dict.fromkeys(parameters.weights, ALWAYS)
    return {"Read": interval(*counts.get("Update", (0, 0))), "Update": ANYTHING, "Insert": ALWAYS, "Delete": ANYTHING}


def interval(ok: int, failed: int) -> tuple[float, float]:
    """Wilson's score interval of a share; (0, 1) when nothing was counted."""
    count = ok + failed
    if not count:
        return ANYTHING
    share, weight = ok / count, Z * Z / count
    middle = (share + weight / 2) / (1 + weight)
    half = Z * math.sqrt(share * (1 - share) / count + weight / count / 4) / (1 + weight)
    return max(0.0, middle - half), min(1.0, middle + half)

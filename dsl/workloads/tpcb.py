"""The TPC-B-like workload of pgbench as data: tables, statements, invariants, parameters, description. No numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field

from proveout.dsl.engines import Dialect
from proveout.dsl.extensions import WorkloadExtension
from proveout.dsl.workloads import ddl
from proveout.dsl.workloads.base import Invariant, Sql, sums
from proveout.dsl.workloads.mix import Range, Ranged, division_problem, mix, part, runs_any, writers

TABLES: tuple[str, ...] = ("pgbench_branches", "pgbench_tellers", "pgbench_accounts", "pgbench_history")
TELLERS_PER_BRANCH = 10

# So pgbench can run on tables that `populate` has made, and a load of ours on tables of `pgbench -i`. Numbers of
# accounts have eight bytes from 20,000 branches on; every column outside a primary key may be NULL, and `filler` is
# NULL except in accounts, where it is blank. Other engines have the same columns. Source: PostgreSQL 18,
# src/bin/pgbench/pgbench.c, initCreateTables, initBranch, initTeller, initAccount.

WIDE_FROM = 20_000 * 100_000  # accounts
BRANCH_FILLER, ACCOUNT_FILLER, HISTORY_FILLER = 88, 84, 22


def shapes(accounts_count: int) -> tuple[ddl.TableShape, ...]:
    """The four tables of a population of that many accounts."""
    aid = f"aid {'int8' if accounts_count >= WIDE_FROM else 'int4'}"
    account = f"bid int4 null, abalance int4 null, filler char({ACCOUNT_FILLER}) null"
    history = f"delta int4 null, mtime timestamp null, filler char({HISTORY_FILLER}) null"
    columns = (
        ("bid", f"bid int4, bbalance int4 null, filler char({BRANCH_FILLER}) null"),
        ("tid", f"tid int4, bid int4 null, tbalance int4 null, filler char({ACCOUNT_FILLER}) null"),
        ("aid", f"{aid}, {account}"),
        ("", f"tid int4 null, bid int4 null, {aid} null, {history}"),
    )
    return tuple(ddl.table(name, text, key) for name, (key, text) in zip(TABLES, columns, strict=True))


def before(tables: Sequence[ddl.TableShape]) -> Mapping[Dialect, tuple[str, ...]]:
    """Statements that create the empty tables; in PostgreSQL with the storage parameters that pgbench sets."""
    made = ddl.before(tables)
    *filled, history = made["postgres"]
    return {**made, "postgres": (*(f"{text} WITH (fillfactor=100)" for text in filled), history)}


_ACCOUNT = (
    Sql("update_account", "UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid"),
    Sql("get_balance", "SELECT abalance FROM pgbench_accounts WHERE aid = :aid"),
)
_HISTORY = Sql(
    "add_history",
    "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP)",
)
DECLARED = {
    "TpcbLike": (
        *_ACCOUNT,
        Sql("update_teller", "UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid"),
        Sql("update_branch", "UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid"),
        _HISTORY,
    ),
    "SimpleUpdate": (*_ACCOUNT, _HISTORY),
    "SelectOnly": _ACCOUNT[1:],
}
TPCB_TRANSACTIONS: tuple[str, ...] = tuple(DECLARED)
TPCB_WEIGHTS: Mapping[str, float] = {"TpcbLike": 100.0, "SimpleUpdate": 0.0, "SelectOnly": 0.0}

# It is not TPC-B: an account's branch does not follow its teller's, the balance is returned by a statement of its own,
# and the scale does not grow with the throughput. Source: PostgreSQL 18, src/bin/pgbench/pgbench.c, builtin_script.
#
# Money is conserved: the tellers' balances sum to the branches', the accounts' to the history's amounts; and, where no
# load runs SimpleUpdate, which adds to the history and changes no branch, the branches' do so too.

_SUMS = {
    side: f"(SELECT coalesce(sum({column}), 0) FROM pgbench_{side})"  # noqa: S608 - constants
    for side, column in (
        ("branches", "bbalance"), ("tellers", "tbalance"), ("accounts", "abalance"), ("history", "delta")
    )
}  # fmt: skip


def _conserved(left: str, right: str, of_right: str) -> Invariant:
    return Invariant(
        name=left,
        title=f"The balances of the {left} sum to {of_right}",
        left=left,
        right=right,
        statement=sums(f"{left}_total", [_SUMS[left]], [_SUMS[right]]),
    )


ALWAYS = (
    _conserved("accounts", "history", "the amounts in the history"),
    _conserved("tellers", "branches", "those of the branches"),
)
BOOKED = _conserved("branches", "history", "the amounts in the history")


class Tpcb(Ranged):
    """Parameters of `kind: tpcb` (TPC-B as pgbench runs it): branches with tellers and accounts, and a history that
    adds up."""

    KEYS = ("scale", "branches")

    scale: int = Field(
        default=1,
        ge=1,
        le=100_000,
        description="Branches, as `pgbench -i -s`; each has 10 tellers and 100,000 accounts.",
    )
    accounts_per_branch: int = Field(
        default=100_000,
        ge=1,
        le=10_000_000,
        description="Accounts of each branch. pgbench always draws from 100,000: with fewer it cannot run on the data.",
    )
    seed: int = Field(default=1, ge=0, lt=2**63, description="Seed of the keys drawn.")
    range: Range = Field(
        default=None, description="First and last branch that the load touches; all of them by default."
    )
    weights: Annotated[dict[str, float], mix(TPCB_TRANSACTIONS)] = Field(
        default_factory=lambda: dict(TPCB_WEIGHTS),
        description="The mix: a weight per transaction; one that is left out does not run. By default TpcbLike alone.",
    )

    @property
    def tellers(self) -> int:
        return self.scale * TELLERS_PER_BRANCH

    @property
    def accounts(self) -> int:
        return self.scale * self.accounts_per_branch


def with_loads_of(model: Tpcb, others: Sequence[Tpcb]) -> Tpcb:
    """The parameters whose invariants hold after loads of `others` too: SimpleUpdate's rows of the history belong to no
    change of a branch, whichever load has made them."""
    weights = {name: max(one.weights[name] for one in (model, *others)) for name in model.weights}
    return model.model_copy(update={"weights": weights})


KIND = WorkloadExtension(
    parameters=Tpcb,
    transactions=lambda _: TPCB_TRANSACTIONS,
    build="proveout.dsl.workloads.tpcb_workload:TpcbWorkload",
    writes=runs_any(writers(DECLARED)),
    rows=lambda model: model.scale + model.tellers + model.accounts,
    tables=lambda _: TABLES,
    load_only=frozenset({"range", "seed", "weights"}),
    invariants_after="stage",
    invariants_of_population=True,
    invariants_beside=with_loads_of,
    division_problem=division_problem,
    part=part,
)

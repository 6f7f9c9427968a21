"""The tables of pgbench's built-in scripts, as `pgbench -i` makes them: names, columns, keys, widths.

So pgbench can run on tables that `populate` has made, and a load of ours on tables of `pgbench -i`. Numbers of accounts
have eight bytes from 20,000 branches on; every column outside a primary key may be NULL, and `filler` is NULL except in
accounts, where it is blank. Other engines have the same columns. Source: PostgreSQL 18, src/bin/pgbench/pgbench.c,
initCreateTables, initBranch, initTeller, initAccount.
"""

from __future__ import annotations

from collections.abc import Mapping

from proveout.dsl.engines import Dialect
from proveout.dsl.workloads import ddl
from proveout.dsl.workloads.ddl import TableShape
from proveout.dsl.workloads.tpcb.parameters import TABLES

WIDE_FROM = 20_000 * 100_000  # accounts
BRANCH_FILLER, ACCOUNT_FILLER, HISTORY_FILLER = 88, 84, 22
_FILL_FACTOR = frozenset(TABLES[:3])


def shapes(accounts_count: int) -> tuple[TableShape, ...]:
    """The four tables of a population of that many accounts."""
    aid = "int8" if accounts_count >= WIDE_FROM else "int4"
    branches, tellers, accounts, history = TABLES
    return (
        _shape(branches, "bid", ("bid", "int4"), ("bbalance", "int4"), ("filler", f"char({BRANCH_FILLER})")),
        _shape(
            tellers,
            "tid",
            ("tid", "int4"),
            ("bid", "int4"),
            ("tbalance", "int4"),
            ("filler", f"char({ACCOUNT_FILLER})"),
        ),
        _shape(
            accounts, "aid", ("aid", aid), ("bid", "int4"), ("abalance", "int4"), ("filler", f"char({ACCOUNT_FILLER})")
        ),
        _shape(
            history,
            "",
            ("tid", "int4"),
            ("bid", "int4"),
            ("aid", aid),
            ("delta", "int4"),
            ("mtime", "timestamp"),
            ("filler", f"char({HISTORY_FILLER})"),
        ),
    )


def before(tables: tuple[TableShape, ...]) -> Mapping[Dialect, tuple[str, ...]]:
    """Statements that create the empty tables; in PostgreSQL with the storage parameters that pgbench sets."""
    made = ddl.before(tables)
    postgres = (
        text + (" WITH (fillfactor=100)" if shape.name in _FILL_FACTOR else "")
        for text, shape in zip(made["postgres"], tables, strict=True)
    )
    return {**made, "postgres": tuple(postgres)}


def after(tables: tuple[TableShape, ...]) -> Mapping[Dialect, tuple[tuple[str, ...], ...]]:
    """Statements that make the loaded tables ready, in phases; PostgreSQL names the keys as it does for pgbench."""
    made = ddl.after(tables)
    keys = tuple(f"ALTER TABLE {s.name} ADD PRIMARY KEY ({s.primary_key})" for s in tables if s.primary_key)
    return {**made, "postgres": (keys, *made["postgres"][1:])}


def _shape(name: str, key: str, *columns: tuple[str, str]) -> TableShape:
    nullable = frozenset(column for column, _ in columns if column != key)
    return TableShape(name=name, columns=columns, primary_key=key, nullable=nullable)

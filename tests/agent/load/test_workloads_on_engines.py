"""HLR, TPTBM, the prepaid workload, TPC-B and `kind: sql` as whole loads: populated, run, with conformance, commits and
invariants checked.

By day four kinds on PostgreSQL, and whether each engine accepts the texts of all kinds; all engines and parameters in
`make soak`. Oracle is a TNS server with PostgreSQL behind it (tests/wire): it tests the driver and our texts as that
server reads them, not Oracle. TPROC-C and TPROC-H are in `test_tpc_on_engines`.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict

from proveout.agent.engines.table import adapter, driver
from proveout.agent.errors import TaskFault
from proveout.agent.load.invariants import judged
from proveout.agent.load.loop.transaction import statements
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.conformance import conform
from proveout.dsl.workloads.kinds import build
from proveout.proto.wire.results import LoadResult
from proveout.proto.wire.tasks import Endpoint

from .conftest import (
    LoadContext,
    ask,
    change,
    invariants,
    load_task,
    populated,
    run_until,
    seen_of,
    workload_of,
)

ENGINES = ("postgres", "sqlite", "mysql", "oracle", "duckdb")
TERMINALS = 4

BANK = """
seed: 3
tables:
  account:
    rows: 2_000
    create: CREATE TABLE account (id integer PRIMARY KEY, owner varchar(12) NOT NULL, cents bigint NOT NULL, opened timestamp)
    columns:
      id: {sequence: 1}
      owner: {text: [4, 12]}
      cents: {uniform: [100_000, 900_000]}
      opened: {timestamp: ["2020-01-01", "2020-12-31"]}
    after: CREATE INDEX account_owner ON account (owner)
  movement:
    rows: 1
    create: CREATE TABLE movement (id bigint PRIMARY KEY, account integer, cents bigint)
    columns: {id: {sequence: 1}, account: {sequence: 1}, cents: {pick: [0]}}
binds:
  account: {zipf: [1, 2_000], theta: 0.7}
transactions:
  Look:
    weight: 5
    logical_failures: 20%
    binds: {side: {pick: {in: 80, out: 20}}}
    statements:
      find: {sql: "SELECT owner, cents FROM account WHERE id = :account AND :side = 'in'", expect_rows: some}
  Move:
    weight: 4
    logical_failures: 10%
    binds:
      id: {sequence: 1_000}
      cents: {uniform: [1, 100]}
      held: {from: find.cents}
      go: {pick: {1: 90, 0: 10}}
    statements:
      find: {sql: "SELECT id, cents FROM account WHERE id = :account", expect_rows: 1}
      pay: {sql: UPDATE account SET cents = cents - :cents WHERE id = :account, expect_rows: 1}
      note: "INSERT INTO movement (id, account, cents) VALUES (:id, :account, :cents)"
      check: {sql: UPDATE account SET owner = owner WHERE id = :account AND id * :go > 0 AND cents + :held > 0, expect_rows: 1}
  Twice:
    weight: 1
    logical_failures: 100%
    binds: {one: {pick: [1]}}
    statements:
      insert: {sql: "INSERT INTO movement (id, account, cents) VALUES (:one, 0, 0)", logical_errors: [unique]}
"""


@dataclass(frozen=True)
class Case:
    """A workload. `grows`: the rows that a query counts, the transaction that inserts them, and how many it inserts.
    `constant`: a query whose number no transaction changes."""

    workload: Workload
    rows: dict[str, int] | None = None
    grows: tuple[str, str, int] | None = None
    invariants: tuple[str, ...] = ()
    constant: str = ""


def _hlr(**parameters: object) -> Case:
    return Case(workload_of("hlr", population=5_000, seed=7, **parameters))


def _tptbm(each: int) -> Case:
    inserted = "SELECT count(*) FROM vpn_users WHERE vpn_id >= 100"
    of = workload_of("tptbm", key=100, ops_per_transaction=each)
    return Case(of, {"vpn_users": 10_000}, (inserted, "Insert", each))


def _prepaid(profile: str) -> Case:
    """Few accounts, so that terminals use the same ones."""
    rows = {"account_type": 6, "account_status": 5, "customers": 2_000, "accounts": 4_000, "transactions": 0}
    of = workload_of("prepaid", population=2_000, accounts_per_customer=2, profile=profile, seed=5)
    return Case(of, rows, ("SELECT count(*) FROM transactions", "ChangeBalance", 1), ("balance", "overdrawn"))


def _tpcb(*invariants: str, **parameters: Any) -> Case:
    """Many branches, so that few transactions conflict in DuckDB."""
    rows = {"pgbench_branches": 400, "pgbench_tellers": 4_000, "pgbench_accounts": 8_000, "pgbench_history": 0}
    grows = None if parameters else ("SELECT count(*) FROM pgbench_history", "TpcbLike", 1)
    return Case(workload_of("tpcb", scale=400, accounts_per_branch=20, **parameters), rows, grows, invariants)


CASES = {
    "tptbm-5": _tptbm(5),
    "prepaid": _prepaid("prepaid"),
    "sql": Case(
        workload_of("sql", **yaml.safe_load(BANK)),
        {"account": 2_000, "movement": 1},
        ("SELECT count(*) - 1 FROM movement", "Move", 1),
        constant="SELECT (SELECT sum(cents) FROM account) + (SELECT sum(cents) FROM movement)",
    ),
}
FOR_NIGHTS = {
    "hlr-lab": _hlr(cardinality="lab"),
    "hlr-nurand": _hlr(keys="nurand"),
    "hlr-range": _hlr(range=[501, 1_500]),
    "tptbm": _tptbm(1),
    "banking": _prepaid("banking"),
    "tpcb": _tpcb("accounts", "tellers", "branches"),
    # with a `SimpleUpdate` in the mix the branches are not those of the history, into which two of them insert
    "tpcb-mixed": _tpcb("accounts", "tellers", weights={"TpcbLike": 2, "SimpleUpdate": 2, "SelectOnly": 1}),
}
PAIRS = [
    pytest.param(
        case, engine, id=f"{name}-{engine}", marks=[pytest.mark.soak] * (engine != "postgres" or name not in CASES)
    )
    for name, case in {**CASES, **FOR_NIGHTS}.items()
    for engine in ENGINES
]


@pytest.fixture
def endpoint(request: pytest.FixtureRequest, engine: str, database_folder: Path) -> Endpoint:
    fixtures = {"postgres": "database", "mysql": "mysql_database", "sqlite": "wal_file"}
    dsn = str(request.getfixturevalue(fixtures[engine]) if engine in fixtures else database_folder / "file.db")
    if engine == "oracle":  # a service with an empty database behind it
        database, views = request.getfixturevalue("database"), request.getfixturevalue("tns_views")
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(views)
        dsn = request.getfixturevalue("oracle").replace("/HLR", f"/{conninfo_to_dict(database)['dbname']}")
    return Endpoint(system="backend", engine=engine, dsn=dsn)


async def rows(context: LoadContext, endpoint: Endpoint, of: Workload) -> dict[str, int]:
    """Populate; the rows of each table."""
    return {table.table: table.rows for table in (await populated(context, endpoint, of, workers=2)).tables}


@pytest.mark.server
@pytest.mark.parametrize(("case", "engine"), PAIRS)
async def test_a_workload_conforms_and_its_commits_are_in_the_database(
    case: Case, endpoint: Endpoint, context: LoadContext
) -> None:
    """Without ramps, the counts of the window equal the changes in the tables; each terminal may have ended one more
    after it."""
    of = case.workload
    assert await rows(context, endpoint, of) == case.rows or case.rows is None
    checks = await invariants(context, endpoint, of) if case.invariants else ()
    assert [(check.name, check.holds) for check in checks] == [(name, True) for name in case.invariants]
    constant = ask(endpoint, case.constant) if case.constant else 0
    load = load_task(endpoint.dsn, engine=endpoint.engine, workload=of, windows=(0.0, 0.3, 0.0), terminals=TERMINALS)

    def is_judged(result: LoadResult) -> bool:
        return not any("not judged" in finding.evidence for finding in conform(of, seen_of(result)))

    result = await run_until(is_judged, context, load, again=lambda: rows(context, endpoint, of))
    assert {t.counts.name: t.counts.errors for t in result.transactions if t.counts.errors} == {}, result.first_errors
    assert [finding for finding in conform(of, seen_of(result)) if not finding.ok] == []
    if case.grows is not None:
        query, inserts, each = case.grows
        done = {t.counts.name: t.counts for t in result.transactions}
        grown = ask(endpoint, query)
        assert grown > 0
        assert grown % each == 0
        assert 0 <= grown - each * done[inserts].ok <= each * TERMINALS
    if case.invariants:
        assert all(check.holds for check in await invariants(context, endpoint, of))
    if case.constant:
        assert ask(endpoint, case.constant) == constant


@pytest.mark.server
@pytest.mark.parametrize("engine", ["postgres", "sqlite", "mysql", "duckdb"])
@pytest.mark.parametrize("kind", ["hlr", "tptbm", "prepaid", "tpcb", "tprocc"])
def test_an_engine_accepts_every_text(kind: str, engine: str, endpoint: Endpoint) -> None:
    """Those that make the tables, and all that are prepared for a load and for its invariants."""
    of = build(workload_of(kind, **({"population": 100} if kind in {"hlr", "prepaid"} else {})))
    populates: Any = adapter(engine)
    loader, made = populates.loader(endpoint.dsn, of.population), driver(engine)
    loader.prepare()
    for statement in (text for phase in of.population.after[made.dialect] for text in phase):
        loader.execute(statement)
    loader.close()
    counted = [kind.counted for kind in of.transactions if kind.counted is not None]
    with contextlib.closing(made.connect(endpoint.dsn)) as session:
        for one in (*statements(of), *counted, *(invariant.statement for invariant in of.invariants)):
            session.prepare(one)


@pytest.mark.server
@pytest.mark.parametrize("engine", ["sqlite"])
async def test_damage_breaks_an_invariant(endpoint: Endpoint, context: LoadContext) -> None:
    """A cent too much, an overdrawn account, history lost: each alone. Of TPC-B a branch, a teller, an account."""
    of = workload_of("prepaid", population=500, seed=5, weights={"ChangeBalance": 1})
    await rows(context, endpoint, of)
    load = load_task(endpoint.dsn, engine=endpoint.engine, workload=of, windows=(0.0, 0.1, 0.0), workers=1)
    await run_until(lambda result: result.transactions[0].ended > 0, context, load)
    before = ask(endpoint, "SELECT current_balance FROM accounts WHERE account_id = 17")
    lost = "DELETE FROM transactions WHERE account_id = (SELECT min(account_id) FROM transactions)"
    for harm, broken in (
        (f"UPDATE accounts SET current_balance = {before + 1} WHERE account_id = 17", ["balance"]),
        ("UPDATE accounts SET current_balance = -1 WHERE account_id = 17", ["balance", "overdrawn"]),
        (f"UPDATE accounts SET current_balance = {before} WHERE account_id = 17", []),
        (lost, ["balance"]),
    ):
        change(endpoint, harm)
        checks = await invariants(context, endpoint, of)
        assert [check.name for check in checks if not check.holds] == broken, harm
        assert all("is not" in check.evidence for check in checks if not check.holds)

    tpcb = workload_of("tpcb", scale=2, accounts_per_branch=20)
    await rows(context, endpoint, tpcb)
    for harm, broken in (
        ("UPDATE pgbench_branches SET bbalance = bbalance + 1 WHERE bid = 1", ["tellers", "branches"]),
        ("UPDATE pgbench_tellers SET tbalance = tbalance + 1 WHERE tid = 1", ["branches"]),
        ("UPDATE pgbench_accounts SET abalance = abalance - 1 WHERE aid = 3", ["accounts", "branches"]),
    ):
        change(endpoint, harm)
        assert [check.name for check in await invariants(context, endpoint, tpcb) if not check.holds] == broken


PREPAID = workload_of("prepaid", population=100)


@pytest.mark.parametrize(
    ("file", "code", "why"),
    [
        ("data.db", "invalid", r"cannot check the invariants.*no such table"),
        ("none.db", "unreachable", r"cannot check the invariants of db .sqlite."),
    ],
)
async def test_a_database_without_tables_and_one_that_is_not_there(
    task_context: Any, tmp_path: Path, file: str, code: str, why: str
) -> None:
    apsw.Connection(str(tmp_path / "data.db")).close()
    endpoint = Endpoint(system="db", engine="sqlite", dsn=str(tmp_path / file))
    with pytest.raises(TaskFault, match=why) as fault:
        await invariants(task_context, endpoint, PREPAID)
    assert fault.value.code == code


def test_both_numbers_are_the_evidence() -> None:
    named = replace(build(PREPAID).invariants[0], left="sum of balances", right="initial")
    assert judged(named, (30, 30)).evidence == "sum of balances 30 = initial 30"
    broken = judged(named, (30, 1_031))
    assert (broken.holds, broken.evidence) == (False, "sum of balances 30 is not initial 1,031")

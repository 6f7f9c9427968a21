"""`kind: sql` on real engines: populated and run through the handlers, with the effects checked in the database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
import yaml
from psycopg.conninfo import make_conninfo

from proveout.agent.engines.mysql import dsn as mysql_dsn
from proveout.agent.errors import TaskFault
from proveout.agent.load.population.handler import populate
from proveout.agent.load.run_load import run_load
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.conformance import Seen, conform
from proveout.dsl.workloads.sql.parameters import Custom
from proveout.proto.wire.results import LoadResult
from proveout.proto.wire.tasks import Endpoint, PopulateSystem

from .conftest import LoadContext, Spec, run_until

pytestmark = pytest.mark.slow

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
      stop: {pick: {0: 90, 1: 10}}
    statements:
      find: {sql: "SELECT id, cents FROM account WHERE id = :account", expect_rows: 1}
      pay: {sql: UPDATE account SET cents = cents - :cents WHERE id = :account, expect_rows: 1}
      note: "INSERT INTO movement (id, account, cents) VALUES (:id, :account, :cents)"
      check: {sql: UPDATE account SET owner = owner WHERE id = :account AND :stop = 0 AND :held > 0, expect_rows: 1}
  Twice:
    weight: 1
    logical_failures: 100%
    binds: {one: {pick: [1]}}
    statements:
      insert: {sql: "INSERT INTO movement (id, account, cents) VALUES (:one, 0, 0)", logical_errors: [unique]}
"""


@dataclass
class Engine:
    name: str
    dsn: str
    workload: Workload

    def ask(self, query: str) -> Any:
        if self.name == "sqlite":
            connection = apsw.Connection(self.dsn)
            try:
                return connection.execute(query).get
            finally:
                connection.close()
        if self.name == "mysql":
            with closing(mysql_dsn.connect(mysql_dsn.parse(self.dsn))) as mysql, mysql.cursor() as cursor:
                cursor.execute(query)
                found = cursor.fetchone()
            return found[0] if len(found) == 1 else found
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            row = connection.execute(query).fetchone()  # type: ignore[arg-type]
        assert row is not None
        return row[0] if len(row) == 1 else row


def made(engine: str) -> Workload:
    """The workload `bank`, with a cast for PostgreSQL, which cannot infer the type of a bind beside a literal."""
    typed = "CAST(:stop AS integer) = 0 AND CAST(:held AS bigint) > 0"
    text = BANK if engine == "mysql" else BANK.replace(":stop = 0 AND :held > 0", typed)
    return Workload(name="bank", kind="sql", parameters=to_values(Custom.model_validate(yaml.safe_load(text))))


@pytest.fixture(params=["postgres", "sqlite", "mysql"])
async def bank(
    request: pytest.FixtureRequest, database: str, context: LoadContext, wal_file: Path
) -> AsyncIterator[Engine]:
    dsns = {"postgres": database, "sqlite": str(wal_file)}
    dsn = dsns.get(request.param) or request.getfixturevalue("mysql_database")
    engine = Engine(request.param, dsn, made(request.param))
    endpoint = Endpoint(system="bank", engine=engine.name, dsn=dsn)
    done = await populate(context, PopulateSystem(workload=engine.workload, endpoint=endpoint, workers=1))
    assert {table.table: table.rows for table in done.tables} == {"account": 2_000, "movement": 1}
    yield engine


def counted(result: LoadResult) -> dict[str, Any]:
    return {transaction.counts.name: transaction.counts for transaction in result.transactions}


async def test_the_load_conforms_to_the_plan(bank: Engine, context: LoadContext, spec: Spec) -> None:
    """Mix and logical failures conform by the check of a run, and the database contains exactly the committed changes."""
    before = bank.ask("SELECT sum(cents) FROM account")
    load = spec(bank.dsn, engine=bank.name, workload=bank.workload, terminals=3, workers=1)
    result = await run_until(
        lambda result: min(t.counts.ok + t.counts.logical_failures for t in result.transactions) > 10, context, load
    )
    counts = counted(result)
    assert all(one.error_count == 0 for one in counts.values()), result.first_errors
    seen = [Seen(name=c.name, ok=c.ok, logical_failures=c.logical_failures) for c in counts.values()]
    assert all(finding.ok for finding in conform(bank.workload, seen)), conform(bank.workload, seen)
    assert counts["Twice"].ok == 0
    moved, in_movements = bank.ask("SELECT count(*), sum(cents) FROM movement")
    assert moved - 1 >= counts["Move"].ok
    assert before - bank.ask("SELECT sum(cents) FROM account") == in_movements


async def test_a_second_iteration_inserts_other_keys(bank: Engine, context: LoadContext, spec: Spec) -> None:
    """Without a reset in between, no sequence value is used twice: `note` declares no logical errors."""
    for seed in (1, 2):
        load = replace(
            spec(bank.dsn, engine=bank.name, workload=bank.workload, terminals=2, workers=1, windows=(0.0, 0.5, 0.0)),
            seed=seed,
        )
        counts = counted(await run_until(lambda result: counted(result)["Move"].ok > 0, context, load))
        assert counts["Move"].error_count == 0


async def test_rows_match_the_generators(bank: Engine) -> None:
    least, most = bank.ask("SELECT min(cents), max(cents) FROM account")
    assert 100_000 <= least < 110_000
    assert 890_000 < most <= 900_000
    assert bank.ask("SELECT min(length(owner)), max(length(owner)) FROM account") == (4, 12)


async def test_a_statement_that_the_server_refuses_is_named(database: str, context: LoadContext, spec: Spec) -> None:
    text = "transactions: {Look: {statements: {find: SELECT nothing FROM nowhere}}}"
    workload = Workload(name="w", kind="sql", parameters=to_values(Custom.model_validate(yaml.safe_load(text))))
    with pytest.raises(TaskFault, match=r"Look\.find: relation .nowhere. does not exist"):
        await run_load(context, spec(database, workload=workload))


async def test_serialisation_failures_are_retried(database: str, context: LoadContext, spec: Spec) -> None:
    """Terminals that read and write one row at isolation level serializable are retried until they succeed."""
    text = """
tables: {counter: {rows: 1, create: "CREATE TABLE counter (id integer, n bigint)", columns: {id: {sequence: 1}, n: {pick: [0]}}}}
transactions:
  Count:
    binds: {n: {from: read.n}}
    statements:
      read: SELECT n FROM counter
      write: {sql: "UPDATE counter SET n = CAST(:n AS bigint) + 1", expect_rows: 1}
"""
    workload = Workload(name="w", kind="sql", parameters=to_values(Custom.model_validate(yaml.safe_load(text))))
    endpoint = Endpoint(system="bank", engine="postgres", dsn=database)
    await populate(context, PopulateSystem(workload=workload, endpoint=endpoint, workers=1))
    serializable = make_conninfo(database, options="-c default_transaction_isolation=serializable")
    result = await run_until(
        lambda result: counted(result)["Count"].retried > 0 < counted(result)["Count"].ok,
        context,
        spec(serializable, workload=workload, windows=(0.0, 0.3, 0.0)),
    )
    counts = counted(result)["Count"]
    with psycopg.connect(database) as connection:
        row = connection.execute("SELECT n FROM counter").fetchone()
    assert row is not None
    assert row[0] >= counts.ok

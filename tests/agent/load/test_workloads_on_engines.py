"""TPTBM and the prepaid workload as whole loads on real engines: populated, run, with conformance and invariants
checked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from proveout.agent.daemon.tasks import Resource
from proveout.agent.engines.mysql import provision as embedded_mysql
from proveout.agent.engines.table import driver
from proveout.agent.errors import TaskFault
from proveout.agent.load.invariants import check_invariants
from proveout.agent.load.population.handler import populate
from proveout.agent.load.run_load import run_load
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.topology import System
from proveout.dsl.workloads.base import Statement
from proveout.dsl.workloads.conformance import Seen, conform
from proveout.dsl.workloads.kinds import built_in
from proveout.dsl.workloads.tptbm.statements import everywhere
from proveout.proto.wire.results import InvariantCheck, LoadResult
from proveout.proto.wire.tasks import CheckInvariants, Endpoint, PopulateSystem, RunLoad

from .conftest import WINDOW_MAX_S, LoadContext, Spec, ok, run_until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

ENGINES = ("postgres", "sqlite", "mysql", "oracle", "duckdb")
"""Oracle is a TNS server with PostgreSQL behind it (tests/wire): it tests the driver and our texts as that server reads
them, not Oracle."""


@pytest.fixture(scope="module")
def mysql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The dsn of an embedded MariaDB for the tests of this file; each test recreates its tables."""
    system = System(name="own", engine="mysql", host="local", provision="embedded", settings=())
    try:
        server = embedded_mysql.Server(system, tmp_path_factory.mktemp("mysql"))
        dsn = server.start().dsn
    except TaskFault as fault:
        if fault.code != "missing":
            raise
        pytest.skip(fault.what)
    try:
        yield dsn
    finally:
        server.close(keep_data=False)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def warm() -> AsyncIterator[dict[str, Resource]]:
    """The pool of load workers of all tests of this file, as an agent keeps one for all loads of a run: starting a
    worker takes half a second of CPU time."""
    resources: dict[str, Resource] = {}
    yield resources
    for resource in list(resources.values()):
        await resource.close(keep_data=False)


@pytest.fixture
def context(tmp_path: Path, warm: dict[str, Resource]) -> LoadContext:
    context = LoadContext(tmp_path)
    context.resources = warm
    return context


@pytest.fixture(params=ENGINES)
def endpoint(request: pytest.FixtureRequest, database_folder: Path) -> Endpoint:
    engine: str = request.param
    fixtures = {"postgres": "database", "mysql": "mysql", "oracle": "oracle", "sqlite": "wal_file"}
    dsn = str(request.getfixturevalue(fixtures[engine]) if engine in fixtures else database_folder / "file.db")
    return Endpoint(system="backend", engine=engine, dsn=dsn)


def workload(kind: str, **parameters: Any) -> Workload:
    return Workload(name=kind, kind=kind, parameters=to_values(built_in(kind).parameters.model_validate(parameters)))


async def populated(context: LoadContext, endpoint: Endpoint, of: Workload, workers: int = 1) -> dict[str, int]:
    done = await populate(context, PopulateSystem(workload=of, endpoint=endpoint, workers=workers))
    return {table.table: table.rows for table in done.tables}


def ask(endpoint: Endpoint, text: str) -> int:
    """One number, through the engine's own driver."""
    made: Any = driver(endpoint.engine)
    session = made.connect(endpoint.dsn)
    statement = Statement(name="ask", text=everywhere(text), arguments=(), columns=(int,))
    prepared = session.prepare(statement)
    if made.waits == "blocking":
        session.execute(prepared, ())
    elif not session.exchange(prepared, ()):
        while not session.receive():
            pass
    (row,) = session.rows()
    session.close()
    return int(row[0])


def change(endpoint: Endpoint, text: str) -> None:
    """One statement that changes rows."""
    made: Any = driver(endpoint.engine)
    session = made.connect(endpoint.dsn)
    prepared = session.prepare(Statement(name="change", text=everywhere(text), arguments=(), reads=False))
    if made.waits == "blocking":
        session.execute(prepared, ())
    elif not session.exchange(prepared, ()):
        while not session.receive():
            pass
    session.close()


def counted(result: LoadResult) -> dict[str, tuple[int, int]]:
    return {t.counts.name: (t.counts.ok, t.counts.logical_failures) for t in result.transactions}


def assert_conforms(of: Workload, result: LoadResult, *earlier: Workload) -> None:
    errors = {t.counts.name: t.counts.errors for t in result.transactions if t.counts.errors}
    assert not errors, result.first_errors
    seen = [Seen(name=name, ok=ok, logical_failures=failed) for name, (ok, failed) in counted(result).items()]
    for finding in conform(of, seen, earlier):
        assert finding.ok, finding
        assert "not judged" not in finding.evidence


def is_judged(of: Workload) -> Callable[[LoadResult], bool]:
    """Whether a load was long enough for its conformance to be judged."""

    def judged(result: LoadResult) -> bool:
        seen = [Seen(name=name, ok=ok, logical_failures=failed) for name, (ok, failed) in counted(result).items()]
        return not any("not judged" in finding.evidence for finding in conform(of, seen))

    return judged


async def fresh_load(context: LoadContext, endpoint: Endpoint, of: Workload, load: RunLoad) -> LoadResult:
    """Run a load long enough for its conformance check; the system is freshly populated, and is again before each longer
    load."""
    while not is_judged(of)(result := await run_load(context, load)):
        assert load.windows.measure_s < WINDOW_MAX_S, result
        load = replace(load, windows=replace(load.windows, measure_s=2.0 * load.windows.measure_s))
        await populated(context, endpoint, of)
    return result


async def test_tptbm(context: LoadContext, endpoint: Endpoint, spec: Spec) -> None:
    """Without ramps, the counts of the window equal the changes in the table."""
    of = workload("tptbm", key=100)
    assert await populated(context, endpoint, of, workers=2) == {"vpn_users": 10_000}
    load = spec(endpoint.dsn, engine=endpoint.engine, workload=of, windows=(0.0, 0.3, 0.0))
    result = await fresh_load(context, endpoint, of, load)
    assert_conforms(of, result)
    done = counted(result)
    assert min(ok for ok, _ in done.values()) > 0
    assert done["Insert"][1] == 0
    terminals = 4  # each may have ended one more after the window
    loaded = ask(endpoint, "SELECT count(*) FROM vpn_users WHERE vpn_id < 100")
    assert 0 <= 10_000 - loaded - done["Delete"][0] <= terminals
    inserted = ask(endpoint, "SELECT count(*) FROM vpn_users WHERE vpn_id >= 100")
    assert 0 <= inserted - done["Insert"][0] <= terminals
    assert ask(endpoint, "SELECT count(*) FROM vpn_users WHERE last_calling_party LIKE '%x%'") > 0


async def test_a_second_iteration_of_tptbm_inserts_other_keys(
    context: LoadContext, endpoint: Endpoint, spec: Spec
) -> None:
    of = workload("tptbm", key=20, weights={"Read": 10, "Update": 30, "Insert": 30, "Delete": 30})
    await populated(context, endpoint, of)
    load = spec(endpoint.dsn, engine=endpoint.engine, workload=of, windows=(0.0, 0.3, 0.0), terminals=3, workers=1)
    for seed in (1, 2, 3):
        result = await run_until(is_judged(of), context, replace(load, seed=seed))
        assert_conforms(of, result)

    def misses(found: LoadResult) -> bool:
        return all(counted(found)[name][1] > 0 for name in ("Delete", "Read"))

    result = await run_until(misses, context, replace(load, seed=4))
    assert misses(result), "most of the 400 rows are gone, and deletes and reads that find nothing are misses"


async def test_tptbm_reads_only(context: LoadContext, endpoint: Endpoint, spec: Spec) -> None:
    of = workload("tptbm", key=100, weights={"Read": 100})
    await populated(context, endpoint, of)
    load = spec(endpoint.dsn, engine=endpoint.engine, workload=of, windows=(0.0, 0.3, 0.0), workers=1)
    result = await run_until(ok, context, load)
    assert counted(result)["Read"][1] == 0


async def test_tptbm_with_several_statements_to_a_commit(context: LoadContext, endpoint: Endpoint, spec: Spec) -> None:
    of = workload("tptbm", key=200, ops_per_transaction=5)
    await populated(context, endpoint, of)
    load = spec(endpoint.dsn, engine=endpoint.engine, workload=of, windows=(0.0, 0.3, 0.0))
    result = await fresh_load(context, endpoint, of, load)
    assert_conforms(of, result)
    done = counted(result)
    inserted = ask(endpoint, "SELECT count(*) FROM vpn_users WHERE vpn_id >= 200")
    assert inserted % 5 == 0
    assert 0 <= inserted - 5 * done["Insert"][0] <= 5 * 4


async def invariants(context: LoadContext, endpoint: Endpoint, of: Workload) -> tuple[InvariantCheck, ...]:
    return (await check_invariants(context, CheckInvariants(workload=of, endpoint=endpoint))).checks


@pytest.mark.parametrize("profile", ["prepaid", "banking"])
async def test_prepaid(context: LoadContext, endpoint: Endpoint, spec: Spec, profile: str) -> None:
    """Few accounts, so that terminals use the same ones."""
    of = workload("prepaid", population=2_000, accounts_per_customer=2, profile=profile, seed=5)
    rows = await populated(context, endpoint, of, workers=2)
    assert rows == {
        "account_type": 6,
        "account_status": 5,
        "customers": 2_000,
        "accounts": 4_000,
        "transactions": 0,
    }
    assert all(check.holds for check in await invariants(context, endpoint, of))
    load = spec(endpoint.dsn, engine=endpoint.engine, workload=of, windows=(0.0, 0.3, 0.0))
    result = await fresh_load(context, endpoint, of, load)
    assert_conforms(of, result)
    history = ask(endpoint, "SELECT count(*) FROM transactions")
    assert 0 <= history - counted(result)["ChangeBalance"][0] <= 4
    assert history > 0
    assert ask(endpoint, "SELECT count(*) FROM accounts WHERE current_balance <> prev_balance") > 0
    checks = await invariants(context, endpoint, of)
    assert [check.name for check in checks] == ["balance", "overdrawn"]
    assert all(check.holds for check in checks), checks


async def test_tpcb(context: LoadContext, endpoint: Endpoint, spec: Spec) -> None:
    """Many branches, so that few transactions conflict in DuckDB."""
    of = workload("tpcb", scale=400, accounts_per_branch=20)
    rows = await populated(context, endpoint, of, workers=2)
    assert rows == {
        "pgbench_branches": 400,
        "pgbench_tellers": 4_000,
        "pgbench_accounts": 8_000,
        "pgbench_history": 0,
    }
    checks = await invariants(context, endpoint, of)
    assert [check.name for check in checks] == ["accounts", "tellers", "branches"]
    assert all(check.holds for check in checks), checks
    load = spec(endpoint.dsn, engine=endpoint.engine, workload=of, windows=(0.0, 0.3, 0.0))
    result = await fresh_load(context, endpoint, of, load)
    assert_conforms(of, result)
    history = ask(endpoint, "SELECT count(*) FROM pgbench_history")
    assert 0 <= history - counted(result)["TpcbLike"][0] <= 4
    assert history > 0
    assert all(check.holds for check in await invariants(context, endpoint, of))

    mixed = workload(
        "tpcb", scale=400, accounts_per_branch=20, weights={"TpcbLike": 2, "SimpleUpdate": 2, "SelectOnly": 1}
    )
    load = replace(load, workload=mixed, seed=load.seed + 1)
    assert_conforms(mixed, await run_until(is_judged(mixed), context, load))
    checks = await invariants(context, endpoint, mixed)
    assert [(check.name, check.holds) for check in checks] == [("accounts", True), ("tellers", True)]
    change(endpoint, "UPDATE pgbench_branches SET bbalance = bbalance + 1 WHERE bid = 3")
    change(endpoint, "UPDATE pgbench_accounts SET abalance = abalance - 1 WHERE aid = 3")
    assert not any(check.holds for check in await invariants(context, endpoint, mixed))


async def test_damage_to_the_balances_breaks_an_invariant(context: LoadContext, endpoint: Endpoint, spec: Spec) -> None:
    """A cent too much, an overdrawn account, history lost: each alone."""
    of = workload("prepaid", population=500, seed=5, weights={"ChangeBalance": 1})
    await populated(context, endpoint, of)
    load = spec(endpoint.dsn, engine=endpoint.engine, workload=of, windows=(0.0, 0.2, 0.0), workers=1)
    await run_until(ok, context, load)
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
